//! What a thread of the load generator tells the latency programs of itself.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// `struct wire_generator`: a thread's place in memory that it shares with the programs. Times are of
/// CLOCK_MONOTONIC, by the thread's own clock.
#[repr(C)]
#[derive(Debug, Default)]
pub struct WireGenerator {
    /// When it began to hand in what its next system call carries; 0: it has not said.
    pub handed: AtomicU64,
    /// When it last looked for results and found some: it took all that were there.
    pub looked: AtomicU64,
    /// The kernel's side.
    pub entered: AtomicU64,
    /// The kernel's side.
    pub returned: AtomicU64,
    /// Thread id, in the first namespace of process ids; 0: the place is free.
    pub tid: AtomicU32,
    pub pad: [AtomicU32; 7],
}

/// The same to the programs, which need no atomics of Rust.
macro_rules! same_place {
    ($($field:ident)+) => {
        const _: () = {
            assert!(size_of::<WireGenerator>() == size_of::<super::records::WireGenerator>());
            $(assert!(offset_of!(WireGenerator, $field) == offset_of!(super::records::WireGenerator, $field));)+
        };
    };
}

same_place!(handed looked entered returned tid);

/// `1 << GENERATOR_BITS`: a thread's place is its id modulo this.
pub const GENERATOR_PLACES: usize = 1 << 12;
