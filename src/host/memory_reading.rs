//! Takes one sample of the machine's memory, disks and CPUs, for the time series of a run.

use std::path::Path;

use super::attribute::{file, text};
use super::counters::Counters;
use super::cpu_time::COLUMNS;
use super::meminfo::Meminfo;
use super::pressure::Pressure;
use super::vmstat::Vmstat;

/// Totals over the machine's CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTotals {
    /// In ticks, in the order of [`COLUMNS`]; None if the line is damaged.
    pub ticks: Option<[u64; COLUMNS.len()]>,
    /// Tasks that run or are runnable, and tasks in uninterruptible sleep.
    pub running: Option<u64>,
    pub blocked: Option<u64>,
}

impl CpuTotals {
    /// Parses the text of `/proc/stat`.
    pub fn parse(stat: &str) -> Self {
        let value = |name: &str| {
            let mut lines = stat.lines().rev();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
        };
        Self {
            ticks: stat.lines().next().and_then(ticks),
            running: value("procs_running"),
            blocked: value("procs_blocked"),
        }
    }
}

fn ticks(line: &str) -> Option<[u64; COLUMNS.len()]> {
    let mut words = line.strip_prefix("cpu ")?.split_whitespace();
    let mut all = [0; COLUMNS.len()];
    for column in &mut all {
        *column = words.next()?.parse().ok()?;
    }
    Some(all)
}

/// Totals over disks since each was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskTotals {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub ios: u64,
}

impl DiskTotals {
    /// Sums these disks; None if a disk is gone or its counters cannot be read.
    pub fn read(root: &Path, disks: &[String]) -> Option<Self> {
        let mut all = Self::default();
        for disk in disks {
            let counters = Counters::read_counts(root, disk).ok()?;
            all.read_bytes = all.read_bytes.checked_add(counters.read_sectors.checked_mul(512)?)?;
            all.written_bytes = all.written_bytes.checked_add(counters.write_sectors.checked_mul(512)?)?;
            all.ios = all.ios.checked_add(counters.ios())?;
        }
        Some(all)
    }
}

/// One sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemoryReading {
    /// CLOCK_MONOTONIC before the first read.
    pub at_ns: u64,
    pub vmstat: Vmstat,
    pub memory: Meminfo,
    pub pressure: Pressure,
    pub cpus: CpuTotals,
    /// None if there are no disks to sample.
    pub disks: Option<DiskTotals>,
}

impl MemoryReading {
    /// Reads below `root`. The caller passes the time, because the host modules have no clock.
    pub fn read(root: &Path, disks: &[String], at_ns: u64) -> Self {
        Self {
            at_ns,
            vmstat: Vmstat::read(root),
            memory: Meminfo::read(root),
            pressure: Pressure::read(root),
            cpus: file(&root.join("proc/stat"))
                .map_or_else(|_| CpuTotals::default(), |text| CpuTotals::parse(&text)),
            disks: if disks.is_empty() { None } else { DiskTotals::read(root, disks) },
        }
    }
}

/// Whether the multi-generational LRU is in use, which has functions and counters of its own: `lru_gen/enabled` is a
/// mask, and its lowest bit is the main switch. False if the kernel has none.
pub fn is_lru_gen(root: &Path) -> bool {
    let mask = text(&root.join("sys/kernel/mm/lru_gen/enabled"));
    mask.and_then(|mask| u32::from_str_radix(mask.strip_prefix("0x")?, 16).ok()).is_some_and(|m| m & 1 == 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sum_of_the_cpus_and_the_tasks_are_read() {
        let stat = "cpu  10 1 20 300 5 0 2 1 0 0\ncpu0 10 1 20 300 5 0 2 1 0 0\nctxt 5\nprocs_running 3\nprocs_blocked 12\n";
        let totals = CpuTotals::parse(stat);
        assert_eq!(totals.ticks, Some([10, 1, 20, 300, 5, 0, 2, 1]));
        assert_eq!((totals.running, totals.blocked), (Some(3), Some(12)));
        for damaged in ["", "cpu  1 2 3\n", "cpu  1 2 x 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8\n"] {
            assert_eq!(CpuTotals::parse(damaged).ticks, None, "{damaged:?}");
        }
        assert_eq!(CpuTotals::parse("procs_running -1\n").running, None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "(cpu |procs_running |\\PC{0,9})[ 0-9x]{0,90}\n?") {
            let _ = CpuTotals::parse(&text);
        }
    }
}
