//! What was found, typed: text and HTML are rendered from it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Note,
    Warning,
    Critical,
}

/// What a fix could be worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Worth {
    /// Names the quantity and its unit, for example `iops_ratio`.
    pub metric: String,
    pub low: f64,
    pub high: f64,
}

/// What a finding counts or measures, declared beside the rule that gives it.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// Carries the unit (`_ns`, `_bytes`, `_percent`, `_per_second`, `_ratio`); unique, and the key in JSON.
    pub key: &'static str,
    /// What people call it.
    pub label: &'static str,
}

impl Number {
    pub const fn new(key: &'static str, label: &'static str) -> Self {
        Self { key, label }
    }
}

// The key alone identifies a number: maps are sorted by it, and can be asked for it.
impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(other.key)
    }
}

impl Borrow<str> for Number {
    fn borrow(&self) -> &str {
        self.key
    }
}

/// The numbers of a finding, sorted by key.
pub type Numbers = BTreeMap<Number, f64>;

/// One finding.
#[derive(Debug, Clone, PartialEq)]
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
    pub numbers: Numbers,
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// How to check that it helped: a command.
    pub check: String,
    pub worth: Option<Worth>,
}

impl Finding {
    /// The command that compares the run as it is with the advice followed; None where [`Self::check`] is another one.
    pub fn comparison(&self) -> Option<&str> {
        Some(self.check.as_str()).filter(|check| is_comparison(check))
    }
}

/// Whether a command that checks a finding compares.
pub fn is_comparison(check: &str) -> bool {
    check.strip_prefix("sudo ").unwrap_or(check).starts_with("biopsy compare ")
}

/// Something that could have mattered and was not looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotExamined {
    pub what: String,
    pub why: String,
}

/// All findings of a run: by severity, then by rank, then by confidence; the first is the answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnosis {
    /// Never empty once the rules ran.
    pub findings: Vec<Finding>,
    pub not_examined: Vec<NotExamined>,
}
