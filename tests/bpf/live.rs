//! The real binary on the real kernel: how it is run, and devices of our own to run it on.

/// How often a measurement is made in which the kernel must keep no completion to itself (see `view::during`).
/// On a busy host it did in each of nine self-tests of 900,000 reads, which are more than any of
/// these measurements has.
pub const ATTEMPTS: u32 = 16;

pub mod aio;
pub mod attached;
pub mod cgroup;
pub mod disk;
pub mod events;
pub mod folded;
pub mod mounted;
pub mod ring;
pub mod view;
pub mod zram;
