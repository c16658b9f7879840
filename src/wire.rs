//! Rust mirror of `bpf/wire.h`: what crosses the line between kernel and user space. Pure.
//!
//! Each struct is declared on both sides and both assert its size; `src/probe/skel.rs` compares them
//! with the types that clang saw. Bytes become values here, and a record that is too short is an
//! error value, never a panic.

pub mod births;
pub mod blocked;
pub mod events;
pub mod files;
pub mod generator;
pub mod groups;
pub mod interrupts;
pub mod locks;
pub mod pagecache;
pub mod parts;
pub mod places;
pub mod process_ios;
pub mod reading;
pub mod rows;
pub mod stacks;
pub mod submits;
pub mod threads;

use std::collections::HashMap;
use std::hash::Hash;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hist::{BUCKETS, Histogram, MAX_BITS as HIST_MAX_BITS};

/// Stages in the order of `enum wire_stage`.
pub const STAGES: usize = 3;
/// Operations in the order of `enum wire_op`.
pub const OPS: usize = 8;
/// The operations that have a row per shard; the others have one row per device.
pub const OPS_SHARDED: usize = 2;
/// `MAX_DEVICES` of `bpf/owner.h`.
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
/// Several CPUs add to one row of I/Os of no operation.
pub const SHARED_UNOWNED_ROWS: u32 = 32;
/// Only one partition of the disk is traced.
pub const PARTITION: u32 = 64;
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
pub const CALL_COMMAND: u8 = 5;

/// `struct wire_extent`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WireExtent {
    pub sum: u64,
    pub not_min: u64,
    pub max: u64,
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
    pub unowned_row_base: u32,
    pub unowned_shards: u32,
    /// Of a [`PARTITION`]: its number as the kernel has it, and where it lies on the disk.
    pub partition: u32,
    pub first_sector: u64,
    pub sectors: u64,
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
    pub held_unknown: u64,
    pub too_many_bios: u64,
}

/// `struct wire_bio_io`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct WireBioIo {
    pub bio: u64,
    pub queued: u64,
    pub proof: u64,
    pub link: u32,
    pub device: u32,
    pub bytes: u32,
    pub op: u32,
    pub parts: u32,
    pub flush_ahead: u32,
    pub group: u32,
    pub cpu: u32,
    pub place: u32,
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
    pub ended: u64,
    pub proof: u64,
    pub link: u32,
    pub group: u32,
    pub cpu: u16,
    pub device: u16,
    pub op: u8,
    pub fused: u8,
    pub state: u8,
    pub used: u8,
}

const _: () = assert!(size_of::<WireSlot>() == 64);
const _: () = assert!(size_of::<WireExtent>() == 24);
const _: () = assert!(size_of::<WireDevice>() == 72);
const _: () = assert!(size_of::<WireCounters>() == 96);
const _: () = assert!(size_of::<WireBioIo>() == 64);

/// Bytes from the kernel that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// The struct that was expected.
    pub what: &'static str,
    pub expected: usize,
    pub found: usize,
}

impl Damaged {
    /// Bytes that should have been a `T`.
    fn of<T>(what: &'static str, bytes: &[u8]) -> Self {
        Self { what, expected: size_of::<T>(), found: bytes.len() }
    }
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a {} of {} bytes came with {}", self.what, self.expected, self.found)
    }
}

impl std::error::Error for Damaged {}

/// The buckets of each lie one behind the other.
fn histograms<const N: usize>(extents: &[WireExtent; N], counts: &[u64]) -> [Histogram; N] {
    std::array::from_fn(|i| {
        let extent = &extents[i];
        let counts = &counts[i * BUCKETS..(i + 1) * BUCKETS];
        Histogram::from_parts(counts, extent.sum, !extent.not_min, extent.max)
    })
}

/// The name of a task: any bytes, up to the first zero.
pub fn task_name(comm: &[u8]) -> &[u8] {
    comm.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Each of `now` less what `earlier` has under the same key; one that is new stays as it is.
fn since_by_key<T: Clone, K: Eq + Hash>(
    now: &[T],
    earlier: &[T],
    key: impl Fn(&T) -> K,
    less: impl Fn(&T, &T) -> T,
) -> Vec<T> {
    let earlier: HashMap<K, &T> = earlier.iter().map(|row| (key(row), row)).collect();
    now.iter().map(|row| earlier.get(&key(row)).map_or_else(|| row.clone(), |then| less(row, then))).collect()
}

impl WireSlot {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged::of::<Self>("wire_slot", bytes))
    }
}

impl WireBioIo {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged::of::<Self>("wire_bio_io", bytes))
    }
}

impl WireCounters {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged::of::<Self>("wire_counters", bytes))
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
            held_unknown: self.held_unknown.saturating_sub(earlier.held_unknown),
            too_many_bios: self.too_many_bios.saturating_sub(earlier.too_many_bios),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_counters_are_an_error_value() {
        assert!(WireCounters::decode(&[0; 79]).is_err());
    }
}
