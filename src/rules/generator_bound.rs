//! Finding: the load generator itself is the limit.

use std::collections::BTreeMap;

use super::command;
use super::cpu::{self, Saturation};
use super::facts::{self, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity};
use crate::load::USER_SHARE;
use crate::units::{counted, in_percent};

const WORKER_USER_PERCENT: Number =
    Number::new("worker_user_percent", "user time's share of the workers' CPU time");
const WORKERS_SATURATED: Number = Number::new("workers_saturated", "saturated workers");

pub const RULE: Rule = Rule { id: "generator-bound", page: PAGE, find };

const PAGE: &str = "\
The load generator is the bottleneck, not the device.

How it is computed
  A worker is saturated if its user and system time reach 90 % of the run; workers that are pinned
  to the same CPU are added up. Found if at least half of the workers are saturated and user time is
  more than 50 % of the workers' CPU time. With less user time the kernel's work per operation is
  the limit: see submit-cpu-bound.
  Also found, with confidence 0.6 instead of 0.9, if the workers use at least 70 % of their CPUs,
  and 90 % together with the interrupts, as if these ran on the workers' CPUs. Needs 100 operations.
  From: load.jobs[].user_ns, .system_ns; the profile's interrupt time. The CPU time per operation
  also contains load.ring_workers; a worker's share does not.

When it is wrong
  - In a virtual machine, time that the host steals counts as used.
  - If other threads compete for the same CPUs, a worker cannot reach 90 %: then nothing is found.
  - A very short run contains the opening of files and the registration of buffers.
  - A load that polls (--hipri) uses its CPUs up in any case.

What to do
  Use more jobs (--numjobs), each on its own CPU, or larger blocks.
";

/// Needs a load of our own.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let saturation = cpu::saturation(s);
    let (Some(load), Some(workers)) = (s.load, saturation.as_ref().and_then(Saturation::workers)) else {
        return Vec::new();
    };
    let operations = load.operations();
    if workers.user <= USER_SHARE || operations < facts::MIN_IOS {
        return Vec::new();
    }
    let user_ns = load.user_ns() as f64 / operations as f64;
    let system_ns = load.system_ns() as f64 / operations as f64;
    let idle = cpu::profile(s).map(|p| 1.0 - cpu::machine_busy(p));
    let mut evidence = vec![
        format!(
            "{} of {} run on a CPU of which the load uses at least 90 %",
            workers.saturated,
            counted(workers.count as u64, "worker")
        ),
        format!("CPU time of the load per operation: {}", cpu::per_operation(load, operations)),
    ];
    if let Some(idle) = idle {
        evidence.push(format!("all CPUs together are idle for {} of the time", in_percent(idle)));
    }
    vec![Finding {
        id: RULE.id,
        subject: "load generator".to_string(),
        severity: Severity::Warning,
        confidence: if workers.limited() { 0.9 } else { 0.6 },
        sentence: format!(
            "The load generator is the bottleneck: its workers use {} of their CPUs, {} of that in user \
             space.",
            in_percent(workers.busy),
            in_percent(workers.user)
        ),
        numbers: BTreeMap::from([
            (numbers::WORKER_CPU_PERCENT, percent(workers.busy)),
            (WORKER_USER_PERCENT, percent(workers.user)),
            (numbers::WORKERS, workers.count as f64),
            (WORKERS_SATURATED, workers.saturated as f64),
            (numbers::USER_NS_PER_OPERATION, user_ns),
            (numbers::SYSTEM_NS_PER_OPERATION, system_ns),
        ]),
        evidence,
        advice: format!(
            "Use more than {} jobs (--numjobs), one per CPU, and see whether the rate rises.",
            load.job.numjobs
        ),
        check: command::compare_jobs(load),
        worth: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    #[test]
    fn a_worker_that_is_busy_with_itself_is_the_limit() {
        let mut case = Case::new(800_000, 32);
        case.worker(60, 39);
        let found = find(&case.summaries());
        assert_eq!((found.len(), found[0].id), (1, "generator-bound"));
        assert!((found[0].numbers["user_ns_per_operation"] - 750.0).abs() < 0.1);
    }

    #[test]
    fn both_thresholds_have_two_sides() {
        let mut case = Case::new(800_000, 32);
        case.profile = None;
        case.worker(60, 30);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.worker(60, 29);
        assert!(find(&case.summaries()).is_empty(), "89 % of a CPU");
        case.worker(50, 50);
        assert!(find(&case.summaries()).is_empty(), "half of it in the kernel");
    }

    #[test]
    fn it_needs_our_own_load_but_no_device_and_no_profile() {
        let mut case = Case::new(800_000, 32);
        case.worker(80, 19);
        case.profile = None;
        case.latency.devices.clear();
        case.load.as_mut().unwrap().device = None;
        assert_eq!(find(&case.summaries()).len(), 1);
        case.load = None;
        assert!(find(&case.summaries()).is_empty());
    }
}
