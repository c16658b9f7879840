//! The JSON object of `biopsy diagnose --json`, which the report also includes.

mod cpu_costs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cpu_costs::{ClassCost, CpuCosts};

use super::Summaries;
use crate::analyze::devices;
use crate::analyze::devices::device::DeviceRecord;
use crate::analyze::interrupts::InterruptSummary;
use crate::analyze::latency::LatencySummary;
use crate::analyze::load::LoadResult;
use crate::analyze::pressure::PressureSummary;
use crate::analyze::threads::ThreadSummary;
use crate::analyze::timeline::TimelineSummary;
use crate::envelope::{FramedView, View};
use crate::experiment::Curve;
use crate::findings::{Diagnosis, Finding, NotExamined, Severity, Worth};
use crate::host::{BlockDevice, Host};
use crate::load::Scaling;

/// The view of `biopsy diagnose`. What was not measured has no key.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DiagnosisSummary {
    pub verdict: Option<Verdict>,
    pub findings: Vec<FindingRecord>,
    pub not_examined: Vec<NotExamined>,
    pub cpu: CpuCosts,
    pub host: Host,
    /// Those that are in use.
    pub devices: Vec<DeviceRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<FramedView<LatencySummary>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<InterruptSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<PressureSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiment: Option<Curve>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<TimelineSummary>,
}

impl View for DiagnosisSummary {
    const SCHEMA: &'static str = "biopsy.diagnose/1";
}

/// The first finding.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Verdict {
    pub id: String,
    pub subject: String,
    pub sentence: String,
    pub confidence: f64,
    /// The command that compares the run as it is with the advice followed, which `biopsy compare --from-report` runs;
    /// null where no word of the load and no setting follows it.
    pub compare: Option<String>,
}

/// A [`Finding`] as it is read back: one of another version may have an id and numbers that are not known here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FindingRecord {
    pub id: String,
    pub subject: String,
    pub severity: Severity,
    /// 0 to 1.
    pub confidence: f64,
    pub sentence: String,
    /// Each key ends in its unit.
    pub numbers: BTreeMap<String, f64>,
    pub evidence: Vec<String>,
    pub advice: String,
    /// A command.
    pub check: String,
    pub worth: Option<Worth>,
}

impl DiagnosisSummary {
    /// Without the views that it is derived from.
    pub fn of(s: &Summaries<'_>, diagnosis: &Diagnosis) -> Self {
        let used: Vec<&BlockDevice> =
            s.host.devices.iter().filter(|device| !device.is_placeholder()).collect();
        Self {
            verdict: diagnosis.findings.first().map(Verdict::of),
            findings: diagnosis.findings.iter().map(FindingRecord::of).collect(),
            not_examined: diagnosis.not_examined.clone(),
            cpu: CpuCosts::of(s),
            host: s.host.clone(),
            devices: devices::list(s.host, &used),
            ..Self::default()
        }
    }
}

impl Verdict {
    fn of(first: &Finding) -> Self {
        Self {
            id: first.id.to_string(),
            subject: first.subject.clone(),
            sentence: first.sentence.clone(),
            confidence: first.confidence,
            compare: first.comparison().map(str::to_string),
        }
    }
}

impl FindingRecord {
    fn of(finding: &Finding) -> Self {
        Self {
            id: finding.id.to_string(),
            subject: finding.subject.clone(),
            severity: finding.severity,
            confidence: finding.confidence,
            sentence: finding.sentence.clone(),
            numbers: finding.numbers.iter().map(|(number, value)| (number.key.to_string(), *value)).collect(),
            evidence: finding.evidence.clone(),
            advice: finding.advice.clone(),
            check: finding.check.clone(),
            worth: finding.worth.clone(),
        }
    }
}
