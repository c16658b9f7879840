//! Sections of a job file: which of them ran at the same time, and all of them as one.

use super::{LoadSummary, RingWorkers};

/// Sections that ran at the same time, together: each one that waits for those before it begins a new group.
pub fn groups(loads: &[LoadSummary]) -> Vec<&[LoadSummary]> {
    let mut groups = Vec::new();
    let mut rest = loads;
    while !rest.is_empty() {
        let end = rest.iter().skip(1).position(|load| load.job.stonewall).map_or(rest.len(), |at| at + 1);
        let (group, others) = rest.split_at(end);
        groups.push(group);
        rest = others;
    }
    groups
}

/// The time in which any of them ran: those that ran at the same time count once.
pub fn duration_ns(loads: &[LoadSummary]) -> u64 {
    let longest = |group: &&[LoadSummary]| group.iter().map(|load| load.duration_ns).max().unwrap_or(0);
    groups(loads).iter().map(longest).sum()
}

/// All of them as one, for their totals: its job is that of the first. None without any.
pub fn together(loads: &[LoadSummary]) -> Option<LoadSummary> {
    let add = |sum: RingWorkers, load: &LoadSummary| {
        let one = load.ring_workers?;
        Some(RingWorkers { threads: sum.threads + one.threads, system_ns: sum.system_ns + one.system_ns })
    };
    Some(LoadSummary {
        duration_ns: duration_ns(loads),
        jobs: loads.iter().flat_map(|load| load.jobs.clone()).collect(),
        ring_workers: loads.iter().try_fold(RingWorkers::default(), add),
        ..loads.first()?.clone()
    })
}
