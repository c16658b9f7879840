//! The findings of a diagnosis as data; text and HTML are rendered from it.

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

/// A number of a finding, declared next to the rule that computes it.
#[derive(Debug, Clone, Copy)]
pub struct Number {
    /// JSON key with the unit as suffix (`_ns`, `_bytes`, `_percent`, `_per_second`, `_ratio`); unique.
    pub key: &'static str,
    /// Label for people.
    pub label: &'static str,
}

impl Number {
    pub const fn new(key: &'static str, label: &'static str) -> Self {
        Self { key, label }
    }
}

// The key alone identifies a number: maps are sorted and searched by it.
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
    /// One of the documented ids.
    pub id: &'static str,
    /// Its subject: a device, a process, the run.
    pub subject: String,
    pub severity: Severity,
    /// 0 to 1.
    pub confidence: f64,
    /// One sentence with the decisive numbers.
    pub sentence: String,
    pub numbers: Numbers,
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// A command that checks whether it helped.
    pub check: String,
    pub worth: Option<Worth>,
}

impl Finding {
    /// The command that compares the current state with the advice applied; None where [`Self::check`] is another
    /// command.
    pub fn comparison(&self) -> Option<&str> {
        Some(self.check.as_str()).filter(|check| is_comparison(check))
    }
}

/// Whether a finding's check is a comparison.
pub fn is_comparison(check: &str) -> bool {
    check.strip_prefix("sudo ").unwrap_or(check).starts_with("biopsy compare ")
}

/// Something that could have mattered and was not looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotExamined {
    pub what: String,
    pub why: String,
}

/// All findings of a run, by severity, rank and confidence; the first is the answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnosis {
    /// Never empty after the rules ran.
    pub findings: Vec<Finding>,
    pub not_examined: Vec<NotExamined>,
}
