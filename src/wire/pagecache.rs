//! Decodes memory reclaim, read-ahead and the functions that are followed for them, and holds all of it at one point in
//! time.

use std::collections::BTreeMap;

use super::{DamagedRecord, Record, task_name};
use crate::hist::Histogram;
use crate::host::memory_reading::MemoryReading;
use crate::names::names;

pub use super::records::{
    WireIsolated, WirePath, WireReadahead, WireReclaim, WireReclaimer, WireReclaimerKey,
};

names! {
    /// Kinds of reclaim, in the order of `enum wire_reclaim_kind`.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ReclaimKind {
        Kswapd = "kswapd",
        Direct = "direct",
        Memcg = "memcg",
        Softlimit = "softlimit",
        Node = "node",
        /// The begin was missed.
        Other = "other",
    }
}

impl ReclaimKind {
    fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// `RECLAIM_KINDS`.
pub const RECLAIM_KINDS: usize = ReclaimKind::ALL.len();
/// `PAGE_KINDS`: anonymous pages, file pages.
pub const PAGE_KINDS: usize = 2;
/// `PATHS`.
pub const PATHS: usize = 16;
/// `PATH_SPIN`.
pub const PATH_SPIN: usize = PATHS - 1;

counted! {
    /// One kind of reclaim on one node.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct ReclaimSample {
        pub begun: u64,
        /// Times of completed reclaims, ns.
        pub time: Histogram,
        pub batches: u64,
        /// Anonymous pages, and file pages.
        pub scanned: [u64; PAGE_KINDS],
        pub reclaimed: [u64; PAGE_KINDS],
        pub throttled: u64,
        pub throttled_ns: u64,
    }
}

impl WireReclaim {
    pub fn decode(bytes: &[u8]) -> Result<ReclaimSample, DamagedRecord> {
        let wire: Self = Record::decode(bytes)?;
        Ok(ReclaimSample {
            begun: wire.begun,
            time: Histogram::from_parts(&wire.counts, wire.time.sum, !wire.time.not_min, wire.time.max),
            batches: wire.batches,
            scanned: wire.scanned,
            reclaimed: wire.reclaimed,
            throttled: wire.throttled,
            throttled_ns: wire.throttled_us.saturating_mul(1000),
        })
    }
}

/// A process that reclaimed memory. Its name is untrusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reclaimer {
    pub kind: Option<ReclaimKind>,
    pub cgroup: u64,
    pub pid: u32,
    pub comm: Vec<u8>,
}

impl WireReclaimerKey {
    pub fn decode(bytes: &[u8]) -> Result<Reclaimer, DamagedRecord> {
        let key: Self = Record::decode(bytes)?;
        Ok(Reclaimer {
            kind: ReclaimKind::of(key.kind),
            cgroup: key.cgroup,
            pid: key.pid,
            comm: task_name(&key.comm).to_vec(),
        })
    }
}

names! {
    /// How a kernel function is followed.
    pub enum Follower {
        Fentry = "fentry",
        Kprobe = "kprobe",
    }
}

/// A function that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSample {
    pub function: &'static str,
    pub by: Follower,
    pub counts: WirePath,
}

names! {
    /// How read-ahead is observed.
    #[derive(Default)]
    pub enum ReadaheadSource {
        /// Not at all.
        #[default]
        None = "none",
        Events = "event",
        Functions = "fentry",
    }
}

/// One reading of the time series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Step {
    pub memory: MemoryReading,
    /// Reclaims by tasks so far, for the machine or within the limit of their cgroup; None: not counted.
    pub reclaims: Option<u64>,
    /// Total time of completed spinlock waits so far, divided by the number of CPUs; None: not counted.
    pub spin_wait_ns: Option<u64>,
    /// CPU time that reading the earlier steps took.
    pub cpu_ns: u64,
}

/// Everything at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// By kind and node.
    pub reclaims: BTreeMap<(ReclaimKind, u32), ReclaimSample>,
    /// By kind.
    pub isolated: BTreeMap<ReclaimKind, WireIsolated>,
    pub reclaimers: BTreeMap<Reclaimer, WireReclaimer>,
    /// None if read-ahead has no event and no function that can be followed.
    pub readahead: Option<WireReadahead>,
    pub readahead_by: ReadaheadSource,
    /// Accessed pages are counted (since 6.12).
    pub sees_reads: bool,
    /// In the order of the table of functions.
    pub paths: Vec<PathSample>,
    /// What was not counted, by kind, including runs that the kernel skipped, by program.
    pub lost: BTreeMap<String, u64>,
    /// The kernel's counters just before and just after this reading.
    pub kernel_before: MemoryReading,
    pub kernel_after: MemoryReading,
    /// Bytes read by all disks that are not stacked on another, whichever were selected: read-ahead is counted for all
    /// of them. None if one of them is gone.
    pub read_bytes: Option<u64>,
    /// Steps since the previous reading, oldest first. They begin with that reading's last step, from which the step
    /// across the boundary is computed. Empty at the start.
    pub series: Vec<Step>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reclaim_is_read_with_its_times_and_pages() {
        let mut bytes = vec![0; size_of::<WireReclaim>()];
        let mut put =
            |field: usize, value: u64| bytes[field * 8..field * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        let fields = [(1, 5), (3, 70), (4, !30), (5, 40), (8, 3), (10, 2), (12, 7)];
        let counts = [30, 40].map(|ns| (16 + crate::hist::index(ns), 1));
        fields.into_iter().chain(counts).for_each(|(field, value)| put(field, value));
        let sample = WireReclaim::decode(&bytes).unwrap();
        assert_eq!((sample.begun, sample.time.count(), sample.time.sum()), (5, 2, 70));
        assert_eq!((sample.time.min(), sample.time.max()), (Some(30), Some(40)));
        assert_eq!((sample.scanned, sample.reclaimed, sample.throttled_ns), ([0, 3], [0, 2], 7000));
        assert!(WireReclaim::decode(&bytes[8..]).is_err());
    }

    #[test]
    fn a_kind_that_nobody_knows_has_no_name() {
        let mut bytes = vec![0; size_of::<WireReclaimerKey>()];
        bytes[12] = 2;
        bytes[16..20].copy_from_slice(b"dd\0x");
        let who = WireReclaimerKey::decode(&bytes).unwrap();
        assert_eq!((who.kind, who.comm.as_slice()), (Some(ReclaimKind::Memcg), &b"dd"[..]));
        bytes[12] = 99;
        assert_eq!(WireReclaimerKey::decode(&bytes).unwrap().kind, None);
    }
}
