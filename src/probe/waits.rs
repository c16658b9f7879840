//! Shares constants and tables between the probes of blocked tasks and of reclaim.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::Result;
use libbpf_rs::{MapCore, MapHandle};

use super::filter::Filter;
use super::libbpf;
use super::maps::{self, element};
use crate::wire::Record;
use crate::wire::blocked::{RawBlocked, WireWaitProcess, WireWaitsRow, decode_stack, decode_waiter};

/// The budget for stacks applies to each period of this length.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Default number of distinct stacks that are kept. Each takes 2 KiB.
pub const ROOM: u32 = 8192;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The threads that are measured.
    pub filter: Filter,
    /// CPU budget for stacks, in percent of each CPU; 0: no stacks.
    pub max_cost: f64,
    /// Shorter waits have no stacks; they are counted.
    pub min_block: Duration,
    /// Distinct stacks that are kept.
    pub room: u32,
    /// Include biopsy's own threads; for tests.
    pub ours: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { filter: Filter::default(), max_cost: 1.0, min_block: Duration::ZERO, room: ROOM, ours: false }
    }
}

impl Options {
    /// Time that stacks may take on one CPU in a period, ns.
    pub fn budget_ns(&self) -> u64 {
        (PERIOD.as_nanos() as f64 * self.max_cost.clamp(0.0, 100.0) / 100.0) as u64
    }

    /// `n`, but at least one entry: a map cannot be empty.
    pub fn room_for(n: usize) -> u32 {
        n.max(1) as u32
    }
}

/// Reads the table of stacks.
pub fn read_stacks(stacks: &impl MapCore, raw: &mut RawBlocked) -> Result<()> {
    for (key, value) in maps::entries(stacks)? {
        if let Some((sample, waits)) = decode_stack(&key, &value)? {
            // Two keys may differ in bytes that a sample does not contain: leftovers after the name's end.
            raw.samples.entry(sample).or_default().add(waits);
        }
    }
    Ok(())
}

/// Reads how long each process waited, and which waits have no stack.
pub fn read_waiters(waiters: &impl MapCore, raw: &mut RawBlocked) -> Result<()> {
    for (key, value) in maps::entries(waiters)? {
        let (process, waiter) = decode_waiter(&key, &value)?;
        if waiter.bare.samples > 0 {
            raw.bare.entry(process.clone()).or_default().add(waiter.bare);
        }
        if waiter.all.count > 0 {
            raw.processes.entry(process).or_default().add(waiter.all);
        }
    }
    Ok(())
}

/// Rows by index.
pub fn read_rows(rows: &impl MapCore, number: u32) -> Result<Vec<WireWaitsRow>> {
    (0..number).map(|place| Ok(WireWaitsRow::decode(&element(rows, place)?)?)).collect()
}

/// Runs, run time and skipped runs, summed over programs.
pub fn stats<'a>(programs: impl IntoIterator<Item = BorrowedFd<'a>>) -> libbpf::ProgramStats {
    let mut all = libbpf::ProgramStats::default();
    for program in programs {
        let Ok(one) = libbpf::program_stats(&program) else { continue };
        all.runs += one.runs;
        all.run_ns += one.run_ns;
        all.recursion_misses += one.recursion_misses;
    }
    all
}

/// The process of a key of `waiters`.
pub fn whose(_: &MapHandle, key: &[u8]) -> Option<(u32, [u8; 16])> {
    WireWaitProcess::decode(key).ok().map(|process| (process.pid, process.comm))
}
