//! Holds the counts of failed and requeued requests at one point in time.

use std::collections::BTreeMap;

use super::records::{WireError, WireErrorRow};

/// `enum wire_error_event`.
pub const FAILED: u16 = 0;
pub const RETRIED: u16 = 1;

/// All counts so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub at_ns: u64,
    /// I/Os of all disks since boot, as the kernel counts them.
    pub ios: u64,
    pub rows: BTreeMap<WireError, WireErrorRow>,
    /// Events that had no room for a row.
    pub unkept: u64,
    /// Runs of the programs that the kernel skipped.
    pub missed: u64,
}
