//! Requests that failed or were given back, at one moment.

use std::collections::BTreeMap;

use super::records::{WireError, WireErrorRow};

/// `enum wire_error_event`.
pub const FAILED: u16 = 0;
pub const RETRIED: u16 = 1;

/// All so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub at_ns: u64,
    /// I/Os of all disks as the kernel counts them, since boot.
    pub ios: u64,
    pub rows: BTreeMap<WireError, WireErrorRow>,
    /// Events that are in no row.
    pub unkept: u64,
    /// Runs of the programs that the kernel skipped.
    pub missed: u64,
}
