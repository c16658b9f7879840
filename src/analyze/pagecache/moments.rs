//! Computes the samples of a run: differences between readings taken ten times a second.

use crate::analyze::memory_sample::MemorySample;
use crate::host::memory_reading::{DiskTotals, MemoryReading};
use crate::host::vmstat::VmstatCounter;
use crate::wire::pagecache::{Reading, Step};

/// Samples that end inside the interval. The first may begin before it, if there is an earlier reading at its start.
/// Each sample belongs to one interval, and those before the run to none.
pub fn moments(start: &Reading, end: &Reading) -> Vec<MemorySample> {
    let inside = inside(start, end);
    let pairs = inside.windows(2).filter(|pair| pair[1].memory.at_ns > pair[0].memory.at_ns);
    pairs.map(|pair| moment(start.at_ns, pair[0], pair[1])).collect()
}

/// CPU time of taking the readings, in percent of one CPU; None with fewer than two.
pub fn cpu_percent(start: &Reading, end: &Reading) -> Option<f64> {
    let inside = inside(start, end);
    let (first, last) = inside.first().zip(inside.last())?;
    let passed_ns = last.memory.at_ns.checked_sub(first.memory.at_ns).filter(|ns| *ns > 0)?;
    Some(100.0 * last.cpu_ns.checked_sub(first.cpu_ns)? as f64 / passed_ns as f64)
}

/// The readings that delimit the samples of the interval.
fn inside<'a>(start: &Reading, end: &'a Reading) -> Vec<&'a Step> {
    let earlier = start.series.iter().map(|step| step.memory.at_ns).filter(|at_ns| *at_ns <= start.at_ns);
    let window = earlier.max().unwrap_or(start.at_ns)..=end.at_ns;
    end.series.iter().filter(|step| window.contains(&step.memory.at_ns)).collect()
}

/// The sample between two readings.
fn moment(start_ns: u64, first: &Step, last: &Step) -> MemorySample {
    let (from, to) = (&first.memory, &last.memory);
    let grown = |counter| to.vmstat.since(&from.vmstat, counter);
    let sum = |counters: &[VmstatCounter]| to.vmstat.sum_since(&from.vmstat, counters);
    let both = |a: VmstatCounter, b: VmstatCounter| Some(grown(a)? + grown(b)?);
    let scanned = both(VmstatCounter::ScanFile, VmstatCounter::ScanAnon);
    // Everything that was not scanned in the background: the kernel does not count cgroup reclaim separately.
    let background =
        sum(&[VmstatCounter::ScanKswapd, VmstatCounter::ScanKhugepaged, VmstatCounter::ScanProactive]);
    let disks = from.disks.zip(to.disks);
    let moved = |of: fn(&(_, _)) -> Option<u64>| disks.as_ref().and_then(of);
    let shares = shares(from, to);
    let stalls = match (first.reclaims, last.reclaims) {
        // Includes cgroup reclaim, which the kernel does not count here.
        (Some(before), Some(now)) => now.checked_sub(before),
        _ => grown(VmstatCounter::Stalls),
    };
    MemorySample {
        at_ns: to.at_ns.saturating_sub(start_ns),
        duration_ns: to.at_ns - from.at_ns,
        read_bytes: moved(|(a, b): &(_, _)| more(b, a, |d| d.read_bytes)),
        written_bytes: moved(|(a, b)| more(b, a, |d| d.written_bytes)),
        ios: moved(|(a, b)| more(b, a, |d| d.ios)),
        free_bytes: to.memory.free_bytes,
        file_bytes: to.memory.file_bytes,
        dirty_bytes: to.memory.dirty_bytes,
        writeback_bytes: to.memory.writeback_bytes,
        scanned_pages: scanned,
        stolen_pages: both(VmstatCounter::StealFile, VmstatCounter::StealAnon),
        refault_pages: sum(&[VmstatCounter::RefaultFile, VmstatCounter::RefaultAnon]),
        direct_scanned_pages: scanned.zip(background).map(|(all, others)| all.saturating_sub(others)),
        direct_reclaims: stalls,
        spin_percent: first.spin_wait_ns.zip(last.spin_wait_ns).and_then(|(before, now)| {
            // A wait counts where it ends, and may have begun before the sample.
            let ns = now.checked_sub(before)? as f64;
            let percent = (100.0 * ns / (to.at_ns - from.at_ns) as f64).min(100.0);
            Some((percent, percent))
        }),
        system_percent: shares.map(|shares| shares.system),
        iowait_percent: shares.map(|shares| shares.iowait),
        idle_percent: shares.map(|shares| shares.idle),
        running: to.cpus.running,
        blocked: to.cpus.blocked,
    }
}

fn more(now: &DiskTotals, then: &DiskTotals, of: fn(&DiskTotals) -> u64) -> Option<u64> {
    of(now).checked_sub(of(then))
}

#[derive(Clone, Copy)]
struct CpuTimeShares {
    system: f64,
    iowait: f64,
    idle: f64,
}

/// Shares of all CPUs together. A column that went back, as `iowait` can, counts as zero in that sample.
fn shares(from: &MemoryReading, to: &MemoryReading) -> Option<CpuTimeShares> {
    let (before, now) = (from.cpus.ticks?, to.cpus.ticks?);
    let delta: [f64; 8] = std::array::from_fn(|i| now[i].saturating_sub(before[i]) as f64);
    let all: f64 = delta.iter().sum();
    let percent = |ticks: f64| 100.0 * ticks / all;
    // user, nice, system, idle, iowait, irq, softirq, steal: interrupts are kernel work too.
    (all > 0.0).then(|| CpuTimeShares {
        system: percent(delta[2] + delta[5] + delta[6]),
        iowait: percent(delta[4]),
        idle: percent(delta[3]),
    })
}
