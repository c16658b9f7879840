//! Decodes interrupts with their completions, and holds all of them at one point in time.

use std::collections::BTreeMap;

use super::{DamagedRecord, Record, WireExtent};
use crate::hist::{Histogram, SUB_BITS};
use crate::host::counters::Counters;
use crate::host::interrupts::Interrupts;

pub use super::records::{WireCompletions, WireQueue, WireSoftirq, WireVector};

/// `INTERRUPTED_NAME_EVERY`: the task's name is read for one in this many timed interrupts, at random; for all of them
/// if every interrupt is timed.
pub const NAME_EVERY: u32 = 8;
/// `CARRIED_BUCKETS`.
pub const CARRIED_BUCKETS: usize = (16 - SUB_BITS as usize + 1) << SUB_BITS;
/// `enum wire_interrupted`: the idle task, a kernel thread, a thread of a process.
pub const INTERRUPTED_KINDS: usize = 3;
/// `enum wire_counted`: the class of I/Os that the kernel does not count, after reads, writes, discards and flushes.
pub const COUNTED_NONE: usize = 4;
/// `enum wire_queue_kind`.
pub const QUEUE_BY_REAP: u32 = 0;
pub const QUEUE_BY_NAME: u32 = 1;
pub const QUEUE_POLLED: u32 = 2;
pub const QUEUE_UNKNOWN: u32 = 3;

counted! {
    /// A vector, or a poll queue, whose polls take the place of interrupts.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct VectorSample {
        pub interrupts: u64,
        pub unhandled: u64,
        pub threaded: u64,
        pub completions: u64,
        /// Completions per interrupt. Includes the last interrupt only in the last reading of an interval: until then
        /// more completions may belong to it.
        pub carried: Histogram,
        /// Time in the handler, of timed interrupts, ns.
        pub handler: Histogram,
        /// Time from a timed interrupt to the next one, ns.
        pub apart: Histogram,
        pub interrupted: [u64; INTERRUPTED_KINDS],
        /// The hardware queue that it serves, found by pointer, and the number of a device with this queue.
        pub queue: Option<u32>,
        pub device: Option<u32>,
        /// Interrupts by the CPU that they arrived on.
        pub by_cpu: Vec<u64>,
    }
}

impl WireVector {
    /// `last`: no more completions follow, so those of the last interrupt are complete. `moved`: by CPU, interrupts
    /// that arrived on it before the vector moved away.
    pub fn decode(bytes: &[u8], moved: Vec<u64>, last: bool) -> Result<VectorSample, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        let completions = wire.inside.saturating_add(wire.outside);
        let mut counts = wire.carried;
        let mut most = wire.most;
        let mut counted = wire.counted;
        if last && wire.interrupts > 0 {
            let rest = completions.saturating_sub(wire.counted);
            let bucket = &mut counts[crate::hist::index(rest).min(CARRIED_BUCKETS - 1)];
            *bucket = bucket.saturating_add(1);
            most = most.max(rest);
            counted = completions;
        }
        let of = |counts: &[u64], extent: &WireExtent| {
            Histogram::from_parts(counts, extent.sum, !extent.not_min, extent.max)
        };
        let mut by_cpu = moved;
        if let Some(here) = wire.cpu.checked_sub(1).and_then(|cpu| by_cpu.get_mut(cpu as usize)) {
            *here = here.saturating_add(wire.interrupts.saturating_sub(wire.cpu_since));
        }
        let place = |number: u32| number.checked_sub(1);
        Ok(VectorSample {
            interrupts: wire.interrupts,
            unhandled: wire.unhandled,
            threaded: wire.threaded,
            completions,
            // The minimum is that of the lowest bucket, which is exact below 16.
            carried: Histogram::from_parts(&counts, counted, u64::MAX, most),
            handler: of(&wire.handler_counts, &wire.handler),
            apart: of(&wire.apart_counts, &wire.apart),
            interrupted: wire.interrupted,
            queue: place(wire.queue),
            device: place(wire.device),
            by_cpu,
        })
    }
}

counted! {
    /// Block-layer softirqs on one CPU.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SoftirqSample {
        pub runs: u64,
        /// Of `runs`: run by ksoftirqd.
        pub deferred: u64,
        /// How many were timed, and their total time, ns.
        pub timed: u64,
        pub timed_ns: u64,
        /// Completed requests of disks that are not traced.
        pub others: u64,
    }
}

impl WireSoftirq {
    pub fn decode(bytes: &[u8]) -> Result<SoftirqSample, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok(SoftirqSample {
            runs: wire.runs,
            deferred: wire.deferred,
            timed: wire.timed,
            timed_ns: wire.time.sum,
            others: wire.others,
        })
    }
}

/// A traced device: its queues, and its completions by CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSample {
    pub name: String,
    pub queues: Vec<WireQueue>,
    pub by_cpu: Vec<WireCompletions>,
    /// The kernel's counters just before and just after this reading.
    pub kernel_before: Option<Counters>,
    pub kernel_after: Option<Counters>,
    pub vanished: bool,
}

/// What an entry of the table counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterruptSource {
    /// Interrupt number.
    Vector(u32),
    /// A poll queue: device number, hardware queue.
    Poll(u32, u32),
}

/// Everything at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub places: Vec<(InterruptSource, VectorSample)>,
    pub devices: Vec<DeviceSample>,
    /// By CPU.
    pub softirqs: Vec<SoftirqSample>,
    /// Interrupted tasks by name, from a sample of the timed interrupts; and interrupts of tasks whose name had no
    /// room.
    pub tasks: BTreeMap<Vec<u8>, u64>,
    pub unnamed: u64,
    /// Runs that the kernel skipped, by program.
    pub missed: BTreeMap<&'static str, u64>,
    /// `/proc/interrupts` just before and just after this reading.
    pub kernel_before: Option<Interrupts>,
    pub kernel_after: Option<Interrupts>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> Vec<u8> {
        vec![0; size_of::<WireVector>()]
    }

    /// Writes a 64-bit field by its index in the struct.
    fn put(bytes: &mut [u8], field: usize, value: u64) {
        bytes[field * 8..field * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Two interrupts: the first had three completions, the last four so far.
    #[test]
    fn what_the_last_interrupt_carried_is_known_at_the_end() {
        let mut bytes = wire();
        put(&mut bytes, 1, 2);
        put(&mut bytes, 2, 7);
        put(&mut bytes, 4, 3);
        put(&mut bytes, 24 + 3, 1);
        let open = WireVector::decode(&bytes, Vec::new(), false).unwrap();
        assert_eq!((open.carried.count(), open.carried.sum(), open.completions), (1, 3, 7));
        let last = WireVector::decode(&bytes, Vec::new(), true).unwrap();
        assert_eq!((last.carried.count(), last.carried.sum(), last.carried.max()), (2, 7, Some(4)));
        assert_eq!(last.carried.min(), Some(3));
        assert_eq!(last.carried.count(), last.interrupts);
    }

    #[test]
    fn an_empty_interrupt_carried_nothing() {
        let mut bytes = wire();
        put(&mut bytes, 1, 1);
        let last = WireVector::decode(&bytes, Vec::new(), true).unwrap();
        assert_eq!((last.carried.count(), last.carried.sum(), last.carried.max()), (1, 0, Some(0)));
        assert!(WireVector::decode(&wire(), Vec::new(), true).unwrap().carried.is_empty());
        assert!(WireVector::decode(&bytes[8..], Vec::new(), true).is_err());
    }

    /// Ten arrived on CPU 0, then they moved to CPU 2, which had three before; there are 25 in total.
    #[test]
    fn interrupts_are_where_they_came_to() {
        let mut bytes = wire();
        put(&mut bytes, 1, 25);
        put(&mut bytes, 7, 3 << 32);
        put(&mut bytes, 8, 13);
        let sample = WireVector::decode(&bytes, vec![10, 0, 3, 0], false).unwrap();
        assert_eq!(sample.by_cpu, [10, 0, 15, 0]);
        assert_eq!(sample.by_cpu.iter().sum::<u64>(), sample.interrupts);
    }
}
