//! Declares the memory in which a thread of the load generator reports to the latency programs.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// `struct wire_generator`: a thread's entry in memory shared with the programs. Times are CLOCK_MONOTONIC, read by the
/// thread.
#[repr(C)]
#[derive(Debug, Default)]
pub struct WireGenerator {
    /// When it began to prepare the I/Os that its next system call submits; 0: not reported.
    pub handed: AtomicU64,
    /// When it last polled for results and found some; it took all that were there.
    pub looked: AtomicU64,
    /// Kernel side only.
    pub entered: AtomicU64,
    /// Kernel side only.
    pub returned: AtomicU64,
    /// Thread id in the initial PID namespace; 0: the entry is free.
    pub tid: AtomicU32,
    pub pad: [AtomicU32; 7],
}

/// Checks that the layout equals that of the generated record, which has no atomics.
macro_rules! same_place {
    ($($field:ident)+) => {
        const _: () = {
            assert!(size_of::<WireGenerator>() == size_of::<super::records::WireGenerator>());
            $(assert!(offset_of!(WireGenerator, $field) == offset_of!(super::records::WireGenerator, $field));)+
        };
    };
}

same_place!(handed looked entered returned tid);

/// `1 << GENERATOR_BITS`: a thread's entry is its id modulo this.
pub const GENERATOR_PLACES: usize = 1 << 12;
