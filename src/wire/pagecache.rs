//! Reclaim, read-ahead and the functions on their way, and all of it at one
//! moment.

use std::collections::BTreeMap;

use super::{Damaged, Record, task_name};
use crate::hist::Histogram;
use crate::host::memory_reading::MemoryReading;
use crate::names::names;

pub use super::records::{
    WireIsolated, WirePath, WireReadahead, WireReclaim, WireReclaimer, WireReclaimerKey,
};

names! {
    /// Who reclaims, in the order of `enum wire_reclaim_kind`.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Kind {
        Kswapd = "kswapd",
        Direct = "direct",
        Memcg = "memcg",
        Softlimit = "softlimit",
        Node = "node",
        /// None that was seen to begin.
        Other = "other",
    }
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// `RECLAIM_KINDS`.
pub const RECLAIM_KINDS: usize = Kind::ALL.len();
/// `PAGE_KINDS`: of programs, of files.
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
        /// Of those that ended, ns.
        pub time: Histogram,
        pub batches: u64,
        /// Pages of programs, and of files.
        pub scanned: [u64; PAGE_KINDS],
        pub reclaimed: [u64; PAGE_KINDS],
        pub throttled: u64,
        pub throttled_ns: u64,
    }
}

impl WireReclaim {
    pub fn decode(bytes: &[u8]) -> Result<ReclaimSample, Damaged> {
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

/// Who reclaimed. The name is written by strangers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reclaimer {
    pub kind: Option<Kind>,
    pub cgroup: u64,
    pub pid: u32,
    pub comm: Vec<u8>,
}

impl WireReclaimerKey {
    pub fn decode(bytes: &[u8]) -> Result<Reclaimer, Damaged> {
        let key: Self = Record::decode(bytes)?;
        Ok(Reclaimer {
            kind: Kind::of(key.kind),
            cgroup: key.cgroup,
            pid: key.pid,
            comm: task_name(&key.comm).to_vec(),
        })
    }
}

names! {
    /// What a function of the kernel's is followed by.
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
    /// What the kernel's read-ahead is known by.
    #[derive(Default)]
    pub enum ReadaheadSource {
        /// Not at all.
        #[default]
        None = "none",
        Events = "event",
        Functions = "fentry",
    }
}

/// One reading of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Step {
    pub memory: MemoryReading,
    /// How often tasks had to reclaim so far, for the machine or within the limit of their group; None where nobody
    /// counts it.
    pub reclaims: Option<u64>,
    /// Time of the waits for locks that are spun for, which have ended so far, over the number of CPUs; None where
    /// nobody counts them.
    pub spin_wait_ns: Option<u64>,
    /// CPU time that the steps before this one took to read.
    pub cpu_ns: u64,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// By kind and node.
    pub reclaims: BTreeMap<(Kind, u32), ReclaimSample>,
    /// By kind.
    pub isolated: BTreeMap<Kind, WireIsolated>,
    pub reclaimers: BTreeMap<Reclaimer, WireReclaimer>,
    /// None where pages that are read ahead have no event and no function that can be followed.
    pub readahead: Option<WireReadahead>,
    pub readahead_by: ReadaheadSource,
    /// Pages that were wanted are counted (6.12).
    pub sees_reads: bool,
    /// In the order of the table of functions.
    pub paths: Vec<PathSample>,
    /// What was not counted, by kind; runs that the kernel skipped among them, by program.
    pub lost: BTreeMap<String, u64>,
    /// The kernel's own counters at the two edges of this reading.
    pub kernel_before: MemoryReading,
    pub kernel_after: MemoryReading,
    /// Bytes that the disks have read that stand on no other, whichever were asked for: read-ahead is counted for all. None
    /// where one of them has gone.
    pub read_bytes: Option<u64>,
    /// The steps since the reading before, the oldest first: with the last one up to that, where the step over the edge
    /// begins. None at the start.
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
        assert_eq!((who.kind, who.comm.as_slice()), (Some(Kind::Memcg), &b"dd"[..]));
        bytes[12] = 99;
        assert_eq!(WireReclaimerKey::decode(&bytes).unwrap().kind, None);
    }
}
