//! One sample of the machine's memory, I/O and CPU state over a short step: the input of onset detection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One step. What could not be read is None, and stays so: a machine without swap has no swap, one whose counter
/// cannot be read has an unknown one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemorySample {
    /// End of the step, from the start of the run.
    pub at_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// Bytes that the devices of the run moved in it.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// I/Os that they ended in it.
    pub ios: Option<u64>,
    /// Memory at its end. File pages are the page cache with the buffers of block devices.
    pub free_bytes: Option<u64>,
    pub file_bytes: Option<u64>,
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
    /// Pages that reclaim looked at, took, and that came back soon after they were taken, in it.
    pub scanned_pages: Option<u64>,
    pub stolen_pages: Option<u64>,
    pub refault_pages: Option<u64>,
    /// Of the scanned ones, those that a task that wanted memory looked at itself, and how often one had to.
    pub direct_scanned_pages: Option<u64>,
    pub direct_reclaims: Option<u64>,
    /// CPU time of spinning for locks, in percent of all CPUs together: at least, and at most, by samples; one figure by
    /// the time of the waits that ended in it.
    pub spin_percent: Option<(f64, f64)>,
    /// Shares of all CPUs together, in percent.
    pub system_percent: Option<f64>,
    pub iowait_percent: Option<f64>,
    pub idle_percent: Option<f64>,
    /// Tasks that ran or wanted to, and that waited without interruption, at its end.
    pub running: Option<u64>,
    pub blocked: Option<u64>,
}
