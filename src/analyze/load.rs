//! The result of a load, as printed by `biopsy load`. Values that were not measured are null.

pub mod drive;
pub mod precondition;
pub mod section;
pub mod sweep;
#[cfg(test)]
pub(crate) mod tests;
pub mod work;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::envelope::View;
use crate::load::{LoadSummary, PreconditionResult};
use precondition::PreconditionRecord;
use section::{SectionRecord, SeveralRecord};
use sweep::SweepRecord;

/// The view of `biopsy load`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadResult {
    #[serde(flatten)]
    pub figures: Figures,
    /// Of a sweep, whose points have the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepRecord>,
    /// What was written before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<PreconditionRecord>,
    /// The machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

impl View for LoadResult {
    const SCHEMA: &'static str = "biopsy.load/1";
}

impl LoadResult {
    /// For a job, or for all sections of a job file.
    pub fn of(loads: &[LoadSummary]) -> Self {
        Self { figures: Figures::of(loads), sweep: None, precondition: None, hostname: None }
    }

    /// Adds the preconditioning that came before.
    pub fn after(self, done: Option<&PreconditionResult>) -> Self {
        Self { precondition: done.map(PreconditionRecord::of), ..self }
    }
}

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Figures {
    /// Of several sections: their totals, and `sections` with those of each.
    Several(Box<SeveralRecord>),
    /// Of a single one.
    One(Box<SectionRecord>),
    /// Nothing was run.
    None {},
}

impl Figures {
    pub fn of(loads: &[LoadSummary]) -> Self {
        match loads {
            [load] => Self::One(Box::new(SectionRecord::of(load))),
            _ => SeveralRecord::of(loads).map_or(Self::None {}, |several| Self::Several(Box::new(several))),
        }
    }
}

// Chooses the variant by its keys, so that an error names the wrong key: serde's untagged error says only that no
// variant matches.
impl<'de> Deserialize<'de> for Figures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let has = |key: &str| value.get(key).is_some();
        let read = match (has("sections"), has("ios") || has("target")) {
            (true, _) => serde_json::from_value(value).map(Self::Several),
            (false, true) => serde_json::from_value(value).map(Self::One),
            (false, false) => Ok(Self::None {}),
        };
        read.map_err(Error::custom)
    }
}
