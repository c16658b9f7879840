//! Combines lock waits and the page cache in one view, because they explain each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::locks::{LockSummary, trust};
use super::pagecache::PagecacheSummary;
use crate::envelope::{Lost, View};
use crate::merge::{Summary, merge};

/// The view of `biopsy locks`. None: not measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureSummary {
    #[serde(flatten)]
    pub locks: Option<LockSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pagecache: Option<PagecacheSummary>,
}

impl View for PressureSummary {
    const SCHEMA: &'static str = "biopsy.locks/1";
    const HAS_DURATION: bool = true;

    fn has_duration(&self) -> bool {
        self.locks.is_some()
    }
}

merge!(PressureSummary { both: locks pagecache; });

impl Summary for PressureSummary {
    fn settle(&mut self) {
        self.locks.iter_mut().for_each(LockSummary::settle);
        self.pagecache.iter_mut().for_each(PagecacheSummary::settle);
    }

    /// Nothing to prefix: memory belongs to a whole machine.
    fn name_host(&mut self, _: &str) {}

    fn window(&mut self) -> Option<&mut u64> {
        None
    }
}

impl PressureSummary {
    /// Losses of both parts.
    pub fn lost(&self) -> Lost {
        let mut lost = self.locks.as_ref().map(trust::lost).unwrap_or_default();
        let pagecache = self.pagecache.iter().map(|summary| ("pagecache".to_string(), summary.lost.clone()));
        lost.probes.extend(pagecache);
        lost
    }

    pub fn duration_ns(&self) -> u64 {
        let locks = self.locks.as_ref().map(|summary| summary.duration_ns);
        locks.or(self.pagecache.as_ref().map(|summary| summary.duration_ns)).unwrap_or(0)
    }
}
