//! Finding: a cgroup's CPU quota stops the processes that do the I/O.

use super::command;
use super::facts::{self, percent};
use super::{Rule, Summaries};
use crate::analyze::sharing::{ProcessIos, Relation};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::host::cpu_quota::CpuQuota;
use crate::units::{figure, in_percent};

/// A group throttled in a smaller share of the periods is hardly affected.
pub const SOME: f64 = 0.05;

/// From this share of the periods on the quota is the limit.
pub const LIMITING: f64 = 0.25;

/// The group's processes do at least this share of the I/O.
pub const IO_SHARE: f64 = 0.5;

const QUOTA_CPUS: Number = Number::new("quota_cpus", "CPUs that the cgroup may use");
const THROTTLED_PERIODS_PERCENT: Number =
    Number::new("throttled_periods_percent", "periods in which the cgroup was throttled");

pub const RULE: Rule = Rule { id: "cpu-quota", page: PAGE, find };

const PAGE: &str = "\
A CPU quota stops the processes that do the I/O.

A cgroup with a quota (cpu.max; a container's --cpus) gets its CPU time anew in each period, mostly
100 ms. When the time is used up, all of its threads stop until the next period: no I/O is submitted
and no result is taken, however fast the device answers.

How it is computed
  throttled_periods_percent = growth of nr_throttled in the cgroup's cpu.stat / (interval / period).
  Found for the cgroup with the highest share, if
  - it is 5 % or more;
  - processes in the cgroup, or in one below it, submit 50 % of the bios or more. A measured command
    and biopsy's own load are in biopsy's cgroup. Kernel threads are not counted.
  A warning with confidence 0.85 from 25 % on; below that a note.
  From: cpu.max, cpu.stat and cgroup.procs (v1: cpu.cfs_quota_us, cpu.cfs_period_us) at both ends
  of the interval; latency.devices[].processes.

When it is wrong
  - A process that starts after the beginning of the interval and exits before its end is not in
    cgroup.procs at either.
  - A command that moves itself to another cgroup is not followed.
  - How long the threads stop in each period is not in it. On several CPUs a group may be throttled
    on one of them and go on on the others.
  - From outside a container its quota is visible; from inside, only if its own cgroup is mounted.
  - A quota that changes during the interval counts with its last value.

What to do
  Raise the quota (cpu.max; docker update --cpus; the pod's CPU limit) or remove it, and measure
  again. With several threads a larger period evens out short bursts.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    worst(s).into_iter().collect()
}

fn worst(s: &Summaries<'_>) -> Option<Finding> {
    let share = |quota: &CpuQuota| quota.throttled_share(s.latency.duration_ns);
    let throttled = s.quotas.iter().filter(|quota| share(quota) >= SOME && does_the_io(s, quota));
    let quota = throttled.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (throttled, cpus) = (share(quota), quota.cpus());
    let is_limit = throttled >= LIMITING;
    let name = &quota.cgroup;
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if is_limit { Severity::Warning } else { Severity::Note },
        confidence: if is_limit { 0.85 } else { 0.5 },
        sentence: format!(
            "The CPU quota of cgroup {name} stops the processes that do the I/O: its {} CPUs were used up \
             in {} of the periods.",
            figure(cpus),
            in_percent(throttled)
        ),
        numbers: Numbers::from([(QUOTA_CPUS, cpus), (THROTTLED_PERIODS_PERCENT, percent(throttled))]),
        evidence: vec![format!(
            "cgroup {name} was throttled in {} periods of {}",
            quota.throttled_periods,
            crate::units::time(quota.period_ns)
        )],
        advice: format!("Raise the quota of cgroup {name} (cpu.max), or use less CPU time per I/O."),
        check: match s.load {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => "biopsy diagnose --no-load --for 10s".to_string(),
        },
        worth: None,
    })
}

/// Whether most of the bios come from the group's processes.
fn does_the_io(s: &Summaries<'_>, quota: &CpuQuota) -> bool {
    let is_in = |row: &ProcessIos| match row.relation {
        Relation::Own | Relation::Command => quota.own,
        _ => row.pid.is_some_and(|pid| quota.processes.contains(&pid)),
    };
    let rows = s.latency.devices.iter().flat_map(|device| device.processes.iter().flatten());
    let (mut all, mut inside) = (0, 0);
    for row in rows.filter(|row| facts::is_examined(s, row)) {
        all += row.bios;
        inside += if is_in(row) { row.bios } else { 0 };
    }
    super::ios(s) >= facts::MIN_IOS && all > 0 && inside as f64 >= all as f64 * IO_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::{Case, SECOND};

    fn row(pid: u32, relation: Relation, bios: u64) -> ProcessIos {
        ProcessIos { pid: Some(pid), relation, bios, bytes: bios * 4096, ..ProcessIos::default() }
    }

    /// One second: a group with 0.2 CPUs, throttled in this many of the ten periods, and these processes.
    fn case(throttled_periods: u64, rows: Vec<ProcessIos>) -> Case {
        let mut case = Case::new(1_000, 1);
        case.load = None;
        case.latency.duration_ns = SECOND;
        case.latency.devices[0].processes = Some(rows);
        case.quotas = vec![CpuQuota {
            cgroup: "/pod".into(),
            period_ns: SECOND / 10,
            quota_ns: SECOND / 50,
            throttled_periods,
            processes: vec![7],
            own: false,
        }];
        case
    }

    #[test]
    fn a_quota_that_is_used_up_in_most_periods_is_the_answer() {
        let severity = |periods| {
            let case = case(periods, vec![row(7, Relation::Other, 900), row(8, Relation::Other, 100)]);
            find(&case.summaries()).first().map(|finding| finding.severity)
        };
        assert_eq!(
            (severity(0), severity(2), severity(3)),
            (None, Some(Severity::Note), Some(Severity::Warning))
        );
        let case = case(9, vec![row(7, Relation::Other, 1_000)]);
        let found = super::super::diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].subject.as_str()), ("cpu-quota", "/pod"));
        assert!(
            found[0].sentence.contains("0.20 CPUs were used up in 90 % of the periods"),
            "{}",
            found[0].sentence
        );
        assert!(found.iter().all(|finding| finding.id != "not-enough-io"), "{found:?}");
    }

    #[test]
    fn a_group_that_does_little_of_the_io_is_no_limit() {
        let others = vec![row(7, Relation::Other, 400), row(8, Relation::Other, 600)];
        assert!(find(&case(9, others.clone()).summaries()).is_empty());
        let mut selected = case(9, others);
        selected.latency.filtered = true;
        selected.latency.devices[0].processes.as_mut().unwrap()[0].selected = true;
        assert_eq!(find(&selected.summaries()).len(), 1, "it is the one that was selected");
        let kernel = vec![row(7, Relation::Other, 400), row(8, Relation::Kernel, 600)];
        assert_eq!(find(&case(9, kernel).summaries()).len(), 1, "write-back has no quota");
    }

    /// Its processes may have ended: they started in biopsy's group.
    #[test]
    fn a_command_is_in_the_group_of_biopsy() {
        let mut case = case(9, vec![row(70, Relation::Command, 400), row(8, Relation::Other, 600)]);
        case.command = true;
        assert!(find(&case.summaries()).is_empty());
        case.quotas[0].own = true;
        assert_eq!(find(&case.summaries()).len(), 1);
    }
}
