//! Combines sections of a job file: groups those that ran at the same time, and merges all into one summary.

use super::{Job, LoadSummary, RingWorkers};

/// fio's groups: a section with `stonewall` or `new_group` begins one.
pub fn groups(loads: &[LoadSummary]) -> Vec<&[LoadSummary]> {
    split(loads, |job| job.stonewall || job.new_group)
}

/// Groups sections that began at the same time.
fn rounds(loads: &[LoadSummary]) -> Vec<&[LoadSummary]> {
    split(loads, |job| job.stonewall)
}

fn split(loads: &[LoadSummary], begins: impl Fn(&Job) -> bool) -> Vec<&[LoadSummary]> {
    let mut groups = Vec::new();
    let mut rest = loads;
    while !rest.is_empty() {
        let end = rest.iter().skip(1).position(|load| begins(&load.job)).map_or(rest.len(), |at| at + 1);
        let (group, others) = rest.split_at(end);
        groups.push(group);
        rest = others;
    }
    groups
}

/// The time during which any section ran: concurrent sections count once.
pub fn duration_ns(loads: &[LoadSummary]) -> u64 {
    rounds(loads).into_iter().map(span_ns).sum()
}

/// From the first section's start to the last one's end: the longest of concurrent sections, and the sum over a chain
/// of sections that wait for each other.
fn span_ns(round: &[LoadSummary]) -> u64 {
    let mut ends: Vec<u64> = Vec::with_capacity(round.len());
    for load in round {
        let is_waited = |at: &usize| load.job.wait_for.as_ref() == Some(&round[*at].job.name);
        let begin = (0..ends.len()).filter(is_waited).map(|at| ends[at]).max().unwrap_or(0);
        ends.push(begin + load.duration_ns);
    }
    ends.into_iter().max().unwrap_or(0)
}

/// Merges all sections, for their totals. Its job is that of the first. None without any section.
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
