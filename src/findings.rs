//! What was found, typed: text and HTML are rendered from it.

use std::collections::BTreeMap;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Note,
    Warning,
    Critical,
}

/// What a fix could be worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worth {
    /// Names the quantity and its unit, for example `iops_ratio`.
    pub metric: String,
    pub low: f64,
    pub high: f64,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// One of the contract's ids.
    pub id: &'static str,
    /// What it is about: a device, a process, the run.
    pub subject: String,
    pub severity: Severity,
    /// 0 to 1.
    pub confidence: f64,
    /// One sentence with the numbers that decide it.
    pub sentence: String,
    /// Keys carry their unit (`_ns`, `_bytes`, `_percent`, `_ratio`).
    pub numbers: BTreeMap<&'static str, f64>,
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// How to check that it helped: a command.
    pub check: String,
    pub worth: Option<Worth>,
}

/// Something that could have mattered and was not looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NotExamined {
    pub what: String,
    pub why: String,
}

/// All findings of a run, the worst first; the first is the verdict.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnosis {
    /// Never empty once the rules ran: `inconclusive` stands where nothing else does.
    pub findings: Vec<Finding>,
    pub not_examined: Vec<NotExamined>,
}

/// The worst first: by severity, then by confidence; equal ones keep the order of the rules.
pub fn order(findings: &mut [Finding]) {
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(b.confidence.total_cmp(&a.confidence)));
}
