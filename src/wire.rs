//! Rust mirror of `bpf/wire.h`: what crosses the line between kernel and user space. Pure.
//!
//! Each struct is declared on both sides and both assert its size; `src/probe/skel.rs` compares them
//! with the types that clang saw. Bytes become values here, and a record that is too short is an
//! error value, never a panic.

pub mod events;
pub mod groups;
pub mod parts;
pub mod stacks;

use std::collections::BTreeMap;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::parts::PartRow;
use crate::hist::{BUCKETS, Histogram, MAX_BITS as HIST_MAX_BITS};
use crate::host::counters::Counters;

/// Stages in the order of `enum wire_stage`.
pub const STAGES: usize = 3;
/// Operations in the order of `enum wire_op`.
pub const OPS: usize = 8;
/// The operations that have a row per shard; the others have one row per device.
pub const OPS_SHARDED: usize = 2;
/// `MAX_DEVICES` of `bpf/latency.bpf.c`.
pub const MAX_DEVICES: usize = 256;
/// Several CPUs add to one row.
pub const SHARED_ROWS: u32 = 1;
/// Several CPUs add to one row of operations.
pub const SHARED_OPERATION_ROWS: u32 = 2;
/// It has no requests.
pub const BIO_BASED: u32 = 4;
/// A bio-based device that is traced stands on it.
pub const BELOW: u32 = 8;
/// Where the driver flushes first and then writes, the kernel counts a write with a flush ahead as two I/Os.
pub const FLUSHES_APART: u32 = 16;
/// Stages of an operation in the order of `enum wire_operation_stage`; their sum, the total, comes last.
pub const OPERATION_STAGES: usize = 6;
/// Which stages an operation has, `enum wire_cover`: all, all but reap, all but complete.
pub const COVERS: usize = 3;
/// Powers of two of an operation's total.
pub const TOTALS: usize = HIST_MAX_BITS as usize + 1;
/// Numbers of system calls that can be followed, and what they have to do with operations: `enum wire_call`.
pub const SYSCALLS: usize = 512;
pub const CALL_WAITS: u8 = 1;
pub const CALL_RING: u8 = 2;
pub const CALL_AIO: u8 = 3;
pub const CALL_AIO_FETCH: u8 = 4;

/// `struct wire_extent`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WireExtent {
    pub sum: u64,
    pub not_min: u64,
    pub max: u64,
}

/// `struct wire_row`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WireRow {
    pub bytes: u64,
    pub extents: [WireExtent; STAGES],
    pub untimed: u64,
    pub no_start: u64,
    pub never_issued: u64,
    pub unowned: u64,
    pub lock: u64,
    pub further: u64,
    pub bios: u64,
    pub bio_ns: u64,
    pub pad: [u64; 6],
    pub counts: [u64; STAGES * BUCKETS],
}

/// `struct wire_total`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WireTotal {
    pub operations: u64,
    pub sums: [u64; OPERATION_STAGES - 1],
}

/// `struct wire_operation_row`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WireOperationRow {
    pub torn: u64,
    pub bare: u64,
    pub extents: [WireExtent; OPERATION_STAGES],
    pub lock: u64,
    pub by_total: [WireTotal; TOTALS],
    pub counts: [u64; OPERATION_STAGES * BUCKETS],
}

/// `struct wire_device`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WireDevice {
    pub major: u32,
    pub first_minor: u32,
    pub slot_base: u32,
    pub slots_per_queue: u32,
    pub hw_queues: u32,
    pub row_base: u32,
    pub shards: u32,
    pub rare_row_base: u32,
    pub flags: u32,
    pub operation_row_base: u32,
    pub operation_shards: u32,
    pub pad: u32,
}

/// `struct wire_counters`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct WireCounters {
    pub splits: u64,
    pub merges: u64,
    pub requeues: u64,
    pub retries: u64,
    pub negative: u64,
    pub out_of_range: u64,
    pub stale: u64,
    pub no_queue_start: u64,
    pub evicted: u64,
    pub evicted_ended: u64,
}

/// `struct wire_bio_io`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct WireBioIo {
    pub bio: u64,
    pub queued: u64,
    pub link: u64,
    pub proof: u64,
    pub device: u32,
    pub bytes: u32,
    pub op: u32,
    pub parts: u32,
    pub flush_ahead: u32,
    pub group: u32,
    pub cpu: u32,
    pub pad: u32,
}

/// `struct wire_slot`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct WireSlot {
    pub request: u64,
    pub queued: u64,
    pub issued: u64,
    pub reaped: u64,
    pub state: u32,
    pub used: u32,
    pub sector: u64,
    pub bytes: u32,
    pub group: u32,
    pub cpu: u32,
    pub pad: u32,
}

const _: () = assert!(size_of::<WireSlot>() == 64);
const _: () = assert!(size_of::<WireExtent>() == 24);
const _: () = assert!(size_of::<WireRow>() == 192 + 3 * 8 * 592);
const _: () = assert!(size_of::<WireDevice>() == 48);
const _: () = assert!(size_of::<WireTotal>() == 48);
const _: () = assert!(size_of::<WireOperationRow>() == 168 + 41 * 48 + 6 * 8 * 592);
const _: () = assert!(size_of::<WireCounters>() == 80);
const _: () = assert!(size_of::<WireBioIo>() == 64);

/// Bytes from the kernel that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// The struct that was expected.
    pub what: &'static str,
    pub expected: usize,
    pub found: usize,
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a {} of {} bytes came with {}", self.what, self.expected, self.found)
    }
}

impl std::error::Error for Damaged {}

/// One row: what completed of one operation on one device and shard.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    pub bytes: u64,
    pub untimed: u64,
    pub no_start: u64,
    pub never_issued: u64,
    /// Timed, and of no operation that was followed.
    pub unowned: u64,
    /// Parts of timed bios that the kernel counts as I/Os of their own, beyond one each.
    pub further: u64,
    /// Below a bio-based device: bios, and the sum of their times from their own entry on.
    pub bios: u64,
    pub bio_ns: u64,
    /// By `enum wire_stage`: queue, device, complete. Of a bio-based device its bios' whole time, in the
    /// place of device.
    pub stages: [Histogram; STAGES],
}

impl Row {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let wire = WireRow::ref_from_bytes(bytes).map_err(|_| Damaged {
            what: "row",
            expected: size_of::<WireRow>(),
            found: bytes.len(),
        })?;
        Ok(Self {
            bytes: wire.bytes,
            untimed: wire.untimed,
            no_start: wire.no_start,
            never_issued: wire.never_issued,
            unowned: wire.unowned,
            further: wire.further,
            bios: wire.bios,
            bio_ns: wire.bio_ns,
            stages: std::array::from_fn(|i| {
                let extent = &wire.extents[i];
                let counts = &wire.counts[i * BUCKETS..(i + 1) * BUCKETS];
                Histogram::from_parts(counts, extent.sum, !extent.not_min, extent.max)
            }),
        })
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            untimed: self.untimed.saturating_sub(earlier.untimed),
            no_start: self.no_start.saturating_sub(earlier.no_start),
            never_issued: self.never_issued.saturating_sub(earlier.never_issued),
            unowned: self.unowned.saturating_sub(earlier.unowned),
            further: self.further.saturating_sub(earlier.further),
            bios: self.bios.saturating_sub(earlier.bios),
            bio_ns: self.bio_ns.saturating_sub(earlier.bio_ns),
            stages: std::array::from_fn(|i| self.stages[i].since(&earlier.stages[i])),
        }
    }
}

/// Operations of one class that ended with the same cover.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationRow {
    /// Ended with the stamps of several parts mixed up, so without stages.
    pub torn: u64,
    /// Neither fetched as far as seen nor with a `complete` of their own, so without stages.
    pub bare: u64,
    /// By `enum wire_operation_stage`: submit, queue, device, complete, reap, total.
    pub stages: [Histogram; OPERATION_STAGES],
    /// By the highest bit of the total: operations, and the sum of each stage.
    pub by_total: Vec<(u64, [u64; OPERATION_STAGES - 1])>,
}

impl OperationRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let wire = WireOperationRow::ref_from_bytes(bytes).map_err(|_| Damaged {
            what: "row of operations",
            expected: size_of::<WireOperationRow>(),
            found: bytes.len(),
        })?;
        Ok(Self {
            torn: wire.torn,
            bare: wire.bare,
            stages: std::array::from_fn(|i| {
                let extent = &wire.extents[i];
                let counts = &wire.counts[i * BUCKETS..(i + 1) * BUCKETS];
                Histogram::from_parts(counts, extent.sum, !extent.not_min, extent.max)
            }),
            by_total: wire.by_total.iter().map(|t| (t.operations, t.sums)).collect(),
        })
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            torn: since(self.torn, earlier.torn),
            bare: since(self.bare, earlier.bare),
            stages: std::array::from_fn(|i| self.stages[i].since(&earlier.stages[i])),
            by_total: self
                .by_total
                .iter()
                .zip(&earlier.by_total)
                .map(|(now, then)| {
                    (since(now.0, then.0), std::array::from_fn(|i| since(now.1[i], then.1[i])))
                })
                .collect(),
        }
    }
}

impl WireSlot {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged {
            what: "wire_slot",
            expected: size_of::<Self>(),
            found: bytes.len(),
        })
    }
}

impl WireBioIo {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged {
            what: "wire_bio_io",
            expected: size_of::<Self>(),
            found: bytes.len(),
        })
    }
}

impl WireCounters {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged {
            what: "wire_counters",
            expected: size_of::<Self>(),
            found: bytes.len(),
        })
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            splits: self.splits.saturating_sub(earlier.splits),
            merges: self.merges.saturating_sub(earlier.merges),
            requeues: self.requeues.saturating_sub(earlier.requeues),
            retries: self.retries.saturating_sub(earlier.retries),
            negative: self.negative.saturating_sub(earlier.negative),
            out_of_range: self.out_of_range.saturating_sub(earlier.out_of_range),
            stale: self.stale.saturating_sub(earlier.stale),
            no_queue_start: self.no_queue_start.saturating_sub(earlier.no_queue_start),
            evicted: self.evicted.saturating_sub(earlier.evicted),
            evicted_ended: self.evicted_ended.saturating_sub(earlier.evicted_ended),
        }
    }
}

/// The state of one device's rows and counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSample {
    pub name: String,
    pub hw_queues: u32,
    pub shards: u32,
    /// `[(queue × shards + shard) × OPS_SHARDED + op]`.
    pub rows: Vec<Row>,
    /// Operations from `OPS_SHARDED` on.
    pub rare: Vec<Row>,
    /// Operations: `[(shard × COVERS + cover) × OPS_SHARDED + op]` for reads and writes, then
    /// `[cover × (OPS − OPS_SHARDED) + op − OPS_SHARDED]`; empty where operations are not followed.
    pub operations: Vec<OperationRow>,
    pub operation_shards: u32,
    /// `[unit × OPS + op]`; empty where stages are not taken apart.
    pub parts: Vec<PartRow>,
    pub counters: WireCounters,
    /// At the end of a trace: requests that were issued long before `kernel_before` was read and were not
    /// seen to complete. The kernel must have had them in flight then.
    pub held: u64,
    /// The kernel's own counters just before and just after the moment of this sample; None where
    /// they cannot be read.
    pub kernel_before: Option<Counters>,
    pub kernel_after: Option<Counters>,
    /// It was there at the start and is gone.
    pub vanished: bool,
    /// It has no requests: its I/Os are bios.
    pub bio_based: bool,
    /// The kernel counts its I/Os when they begin: bio-based devices before 5f27571382ca (6.4).
    pub counted_at_start: bool,
    /// Nobody named it: it is traced as a layer of these.
    pub added_for: Vec<String>,
}

/// All devices at one moment: the start or end of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub devices: Vec<DeviceSample>,
    /// Runs that the kernel skipped, by program: it does not run a program inside itself on one CPU.
    pub missed: BTreeMap<&'static str, u64>,
    /// Operations that began and could not be followed: their place in the table was taken.
    pub unfollowed: u64,
    /// None: nobody asked for groups.
    pub groups: Option<groups::GroupsSample>,
    /// Only what some submitters hand in was followed.
    pub filtered: bool,
}

impl DeviceSample {
    /// Rows with the hardware queue (none for the rare operations) and the operation's number.
    pub fn each(&self) -> impl Iterator<Item = (Option<u32>, usize, &Row)> {
        let shards = self.shards.max(1) as usize;
        let sharded = self
            .rows
            .iter()
            .enumerate()
            .map(move |(i, row)| (Some((i / OPS_SHARDED / shards) as u32), i % OPS_SHARDED, row));
        sharded.chain(self.rare.iter().enumerate().map(|(i, row)| (None, OPS_SHARDED + i, row)))
    }

    /// Rows of operations with cover and operation's number.
    pub fn each_operation(&self) -> impl Iterator<Item = (usize, usize, &OperationRow)> {
        let sharded = self.operation_shards as usize * COVERS * OPS_SHARDED;
        self.operations.iter().enumerate().map(move |(i, row)| match i.checked_sub(sharded) {
            None => (i / OPS_SHARDED % COVERS, i % OPS_SHARDED, row),
            Some(i) => (i / (OPS - OPS_SHARDED), OPS_SHARDED + i % (OPS - OPS_SHARDED), row),
        })
    }

    /// What came since `earlier`, an older sample of the same device.
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = |now: &[Row], then: &[Row]| now.iter().zip(then).map(|(n, t)| n.since(t)).collect();
        Self {
            name: self.name.clone(),
            hw_queues: self.hw_queues,
            shards: self.shards,
            rows: rows(&self.rows, &earlier.rows),
            rare: rows(&self.rare, &earlier.rare),
            operations: self.operations.iter().zip(&earlier.operations).map(|(n, t)| n.since(t)).collect(),
            operation_shards: self.operation_shards,
            parts: self.parts.iter().zip(&earlier.parts).map(|(n, t)| n.since(t)).collect(),
            counters: self.counters.since(&earlier.counters),
            held: self.held,
            kernel_before: self.kernel_before,
            kernel_after: self.kernel_after,
            vanished: self.vanished,
            bio_based: self.bio_based,
            counted_at_start: self.counted_at_start,
            added_for: self.added_for.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_is_an_error_value() {
        let error = Row::decode(&[0; 100]).unwrap_err();
        assert_eq!(error.found, 100);
        assert!(error.to_string().contains("row"));
        assert!(Row::decode(&[]).is_err() && WireCounters::decode(&[0; 79]).is_err());
    }

    #[test]
    fn an_all_zero_row_is_empty() {
        let bytes = vec![0u8; size_of::<WireRow>()];
        assert_eq!(Row::decode(&bytes).unwrap(), Row::default());
    }

    #[test]
    fn rows_of_operations_are_found_by_cover_and_operation() {
        let shards = 3;
        let all = COVERS * (shards * OPS_SHARDED + OPS - OPS_SHARDED);
        let sample = DeviceSample {
            operation_shards: shards as u32,
            operations: vec![OperationRow::default(); all],
            ..DeviceSample::default()
        };
        let found: Vec<(usize, usize)> = sample.each_operation().map(|(cover, op, _)| (cover, op)).collect();
        assert_eq!(found[..4], [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(found[18..20], [(0, 2), (0, 3)]);
        assert_eq!(found[all - 1], (COVERS - 1, OPS - 1));
        for op in 0..OPS {
            let rows = if op < OPS_SHARDED { shards } else { 1 };
            assert_eq!(found.iter().filter(|f| **f == (1, op)).count(), rows);
        }
    }

    #[test]
    fn rows_are_found_by_queue_and_operation() {
        let mut sample = DeviceSample { hw_queues: 2, shards: 2, ..DeviceSample::default() };
        sample.rows = vec![Row::default(); 8];
        sample.rare = vec![Row::default(); OPS - OPS_SHARDED];
        sample.rows[7].bytes = 42;
        let (queue, op, row) = sample.each().nth(7).unwrap();
        assert_eq!((queue, op, row.bytes), (Some(1), 1, 42));
        assert_eq!(sample.each().nth(8).map(|(queue, op, _)| (queue, op)), Some((None, 2)));
    }
}
