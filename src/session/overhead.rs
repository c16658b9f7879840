//! Measures the overhead of the programs on a running load, by attaching and detaching them alternately.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::wall_clock;
use super::window::Window;
use crate::analyze::overhead::{OverheadPhase, OverheadSummary, Pair};
use crate::host::activity::Activity;
use crate::host::cpu_time::COLUMNS;
use crate::probe::latency::LatencyProbe;

/// Duration of a phase, with or without the programs.
const PHASE: Duration = Duration::from_secs(2);
/// Excluded at the start of each phase: the kernel's text is patched, and caches are cold.
const SETTLE: Duration = Duration::from_millis(250);
/// With fewer pairs the confidence interval is wide.
pub const LEAST_PAIRS: u32 = 10;

/// The minimum duration of this many pairs.
pub fn length(pairs: u32) -> Duration {
    PHASE * 2 * pairs
}

/// `disks`: whose I/Os are counted, each once. Measures pairs until the window is over, or [`LEAST_PAIRS`] if it is
/// open-ended.
///
/// # Errors
///
/// If the kernel refuses to attach what it had attached before.
pub fn measure(
    probe: &mut LatencyProbe,
    window: &mut Window<'_>,
    disks: &[String],
) -> Result<OverheadSummary> {
    let mut pairs = Vec::new();
    loop {
        // Alternating the order makes drift affect both equally.
        let first = pairs.len() % 2 == 1;
        let mut pair = Pair::default();
        for with in [first, !first] {
            let Some(phase) = phase(probe, window, with, disks)? else {
                return Ok(summary(&pairs));
            };
            *(if with { &mut pair.with } else { &mut pair.without }) = phase;
        }
        pairs.push(pair);
        if window.end_at().is_none() && pairs.len() >= LEAST_PAIRS as usize {
            return Ok(summary(&pairs));
        }
    }
}

fn summary(pairs: &[Pair]) -> OverheadSummary {
    OverheadSummary::new(u64::try_from(PHASE.saturating_sub(SETTLE).as_nanos()).unwrap_or(u64::MAX), pairs)
}

/// None: the window ended first.
fn phase(
    probe: &mut LatencyProbe,
    window: &mut Window<'_>,
    with: bool,
    disks: &[String],
) -> Result<Option<OverheadPhase>> {
    probe.set_attached(with)?;
    // Detaching from functions takes seconds.
    let begin = Instant::now();
    let wait = |window: &mut Window<'_>, probe: &mut LatencyProbe, until: Instant| {
        let is_within = window.end_at().is_none_or(|end| until <= end);
        is_within && window.wait(probe, Some(until))
    };
    if !wait(window, probe, begin + SETTLE) {
        return Ok(None);
    }
    let read = || Activity::read(Path::new("/"), disks, wall_clock::both);
    let before = read();
    if !wait(window, probe, begin + PHASE) {
        return Ok(None);
    }
    Ok(Some(between(&before, &read())))
}

fn between(before: &Activity, after: &Activity) -> OverheadPhase {
    let ios = |activity: &Activity| -> u64 {
        activity.disks.values().map(|disk| disk.reads + disk.writes + disk.discards.unwrap_or(0)).sum()
    };
    let busy = |activity: &Activity| -> u64 {
        let of_cpu = |columns: &[u64; 8]| -> u64 {
            let named = COLUMNS.iter().zip(columns);
            named.filter(|(name, _)| !["idle", "iowait"].contains(name)).map(|(_, ns)| ns).sum()
        };
        activity.cpus.values().map(|cpu| of_cpu(&cpu.columns)).sum()
    };
    OverheadPhase {
        ns: after.clocks.at_ns.saturating_sub(before.clocks.at_ns),
        ios: ios(after).saturating_sub(ios(before)),
        busy_ns: busy(after).saturating_sub(busy(before)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::activity::Clocks;
    use crate::host::counters::Counters;
    use crate::host::cpu_time::CpuTime;

    #[test]
    fn a_phase_counts_ios_and_what_is_not_idle() {
        let at = |at_ns: u64, reads: u64, user: u64, idle: u64| Activity {
            clocks: Clocks { at_ns, boot_ns: at_ns },
            cpus: [(0, CpuTime { columns: [user, 0, 0, idle, 5, 7, 0, 0], guest_ns: None })].into(),
            disks: [("sda".to_string(), Counters { reads, writes: 3, ..Counters::default() })].into(),
            ..Activity::default()
        };
        let phase = between(&at(100, 10, 1_000, 50), &at(350, 30, 1_600, 9_000));
        assert_eq!(phase, OverheadPhase { ns: 250, ios: 20, busy_ns: 600 });
    }
}
