//! Runs the real binary on the running kernel, and makes devices and loads for it.

/// How often a measurement is repeated because the kernel did not deliver a completion event (see `view::during`). On a
/// busy host that happened in each of nine self-tests of 900,000 reads, which is more than any of these measurements
/// has.
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
