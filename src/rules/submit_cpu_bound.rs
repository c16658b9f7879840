//! Finding: the kernel's work per I/O saturates a CPU.

use std::collections::BTreeMap;

use super::command;
use super::cpu::{self, BusyThread, Saturation};
use super::facts::{self, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::stacks::CpuClass;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::load::USER_SHARE;
use crate::merge::SaturatingSum as _;
use crate::units::in_percent;

/// One run never predicts more than the gain of twice the workers.
pub const MAX_WORTH: f64 = 2.0;

const INTERRUPT_NS_PER_OPERATION: Number =
    Number::new("interrupt_ns_per_operation", "interrupt time per operation");
const KTHREAD_NS_PER_OPERATION: Number =
    Number::new("kthread_ns_per_operation", "kernel thread time per operation");

pub const RULE: Rule = Rule { id: "submit-cpu-bound", page: PAGE, find };

const PAGE: &str = "\
The CPU time for submitting I/O is the bottleneck.

System call, file system, block layer, scheduler and driver all run on the submitting CPU, which
limits the I/Os per second. A software device (loop) also does its own work on the host's CPUs.

How it is computed
  Found if I/O work saturates a CPU; these are tried in order:
  - at least half of the load's workers use 90 % of their CPU (added up for workers pinned to the
    same one), with at most 50 % of it in user space (else see generator-bound);
  - the workers use at least 70 %, and 90 % together with the interrupts, if those come to the same
    CPUs (with per-CPU queues they do);
  - the target is a loop device and kernel threads use 90 % of a CPU: the driver serves a cgroup
    from one work item, which cannot use a second CPU;
  - without biopsy's own load: the busiest process of those that do the I/O uses 90 % of a CPU, but
    no more than one thread can, and 50 % of its samples are in file I/O or the block layer;
  - all CPUs together are busy for 95 %, and at least 70 % of that is I/O.
  Not found if hard and soft interrupts have more than 50 % of the busy time: then completions are
  the limit (see complete-cpu-bound). Needs 100 operations (or I/Os). The gain is estimated for the
  load's workers only: at most the idle CPU time, and at most one doubling.
  From: load.jobs[].user_ns, .system_ns; load.ring_workers; the profile's classes and stacks.

When it is wrong
  - A worker's system time also contains reaping completions.
  - A busy CPU may just be slow: its frequency, its SMT sibling, or a host that takes it away.
  - Other threads on the same CPUs keep a worker below 90 %: then nothing is found.
  - A load that polls (--hipri) uses its CPUs up in any case.
  - A cpu-clock profile misses code that runs with interrupts disabled.

What to do
  More workers on other CPUs; larger blocks; larger batches; registered files and buffers; scheduler
  none; fewer layers (dm, loop, file system). The evidence and the flame graph show the hottest
  functions.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let Some(saturation) = cpu::saturation(s) else {
        return Vec::new();
    };
    if saturation.workers().is_some_and(|w| w.user > USER_SHARE) || cpu::interrupts_dominate(s) {
        return Vec::new();
    }
    let ios: u64 = facts::device_views(s).iter().map(|p| p.ios).saturating_sum();
    let operations = s.load.map_or(ios, |load| load.operations());
    if operations < facts::MIN_IOS {
        return Vec::new();
    }
    vec![finding(s, &saturation, operations)]
}

fn finding(s: &Summaries<'_>, saturation: &Saturation, operations: u64) -> Finding {
    let (subject, confidence, sentence) = describe(s, saturation);
    let mut numbers = BTreeMap::from([(numbers::OPERATIONS, operations as f64)]);
    let mut evidence = Vec::new();
    if let (Some(load), Some(workers)) = (s.load, cpu::workers(s)) {
        let per = |ns: u64| ns as f64 / operations as f64;
        numbers.insert(numbers::WORKER_CPU_PERCENT, percent(workers.busy));
        numbers.insert(numbers::USER_NS_PER_OPERATION, per(load.user_ns()));
        numbers.insert(numbers::SYSTEM_NS_PER_OPERATION, per(load.system_ns()));
        evidence
            .push(format!("CPU time of the load per operation: {}", cpu::per_operation(load, operations)));
    }
    if let Some(profile) = cpu::profile(s) {
        let class = |class| super::class_ns(s, profile, class).unwrap_or(0) as f64 / operations as f64;
        numbers.insert(KTHREAD_NS_PER_OPERATION, class(CpuClass::Kthread));
        numbers.insert(INTERRUPT_NS_PER_OPERATION, class(CpuClass::Irq) + class(CpuClass::Softirq));
        numbers.insert(numbers::MACHINE_BUSY_PERCENT, percent(cpu::machine_busy(profile)));
        evidence.push(format!(
            "all CPUs together: busy for {}; kernel threads use {:.2} CPUs, interrupts {:.2}",
            in_percent(cpu::machine_busy(profile)),
            cpu::cpus(profile, &[CpuClass::Kthread]),
            cpu::interrupt_cpus(profile)
        ));
        let hot = cpu::hottest(profile, 3);
        if !hot.is_empty() {
            evidence.push(format!("most samples: {}", hot.join(", ")));
        }
        evidence.extend(profile.sampler_note.clone());
    } else {
        evidence.push("no profile: the kernel's use of the time was not measured".to_string());
    }
    for p in facts::device_views(s) {
        if let Some(scheduler) = p.scheduler() {
            evidence.push(format!("{} uses the I/O scheduler {scheduler}", p.device.name));
        }
    }
    let (advice, check) = advise(s, saturation);
    Finding {
        id: RULE.id,
        subject,
        severity: Severity::Warning,
        confidence,
        sentence,
        numbers,
        evidence,
        advice,
        check,
        worth: worth(s, saturation),
    }
}

fn describe(s: &Summaries<'_>, saturation: &Saturation) -> (String, f64, String) {
    let workers = "load workers".to_string();
    match saturation {
        Saturation::Workers(w) => (
            workers,
            0.8,
            format!(
                "The CPU is the bottleneck: the workers use {} of their CPUs, {} of that in the kernel.",
                in_percent(w.busy),
                in_percent(1.0 - w.user)
            ),
        ),
        Saturation::WithInterrupts(w, interrupts) => (
            workers,
            0.6,
            format!(
                "The CPU is the bottleneck: the workers use {} of their CPUs, and interrupts about {} more \
                 if they go to the same CPUs.",
                in_percent(w.busy),
                in_percent(*interrupts)
            ),
        ),
        Saturation::LoopThread(cpus) => (
            s.load.and_then(|l| l.device.clone()).unwrap_or_else(|| "loop driver".to_string()),
            0.7,
            format!(
                "The CPU is the bottleneck: kernel threads, which do the loop device's work, use {cpus:.2} \
                 CPUs."
            ),
        ),
        Saturation::Thread(BusyThread { comm, pid, share, io }) => (
            format!("{comm} ({pid})"),
            0.65,
            format!(
                "The CPU is the bottleneck: {comm} ({pid}) uses {} of a CPU, as much as one thread can, {} \
                 of that in the kernel's file and block I/O.",
                in_percent(*share),
                in_percent(*io)
            ),
        ),
        Saturation::Machine(busy) => (
            "all CPUs".to_string(),
            0.6,
            format!(
                "The CPUs are the bottleneck: together they are {} busy, mostly with I/O.",
                in_percent(*busy)
            ),
        ),
    }
}

fn advise(s: &Summaries<'_>, saturation: &Saturation) -> (String, String) {
    let check =
        s.load.map_or_else(|| "biopsy diagnose --no-load --for 10s".to_string(), command::compare_jobs);
    let advice = match saturation {
        Saturation::LoopThread(_) => {
            "Read the backing file or its device directly: the loop driver cannot use a second CPU."
        }
        Saturation::Machine(_) => {
            "Spend less CPU per I/O (larger blocks, larger batches, scheduler none, fewer layers), or use \
             more CPUs."
        }
        _ => {
            "Use more workers on other CPUs, or spend less CPU per I/O: larger blocks, larger batches, \
             scheduler none."
        }
    };
    (advice.to_string(), check)
}

/// More workers can gain at most the CPU time that is idle now.
fn worth(s: &Summaries<'_>, saturation: &Saturation) -> Option<Worth> {
    saturation.workers()?;
    let high = (1.0 / cpu::machine_busy(cpu::profile(s)?).max(0.01)).min(MAX_WORTH);
    (high > 1.1).then(|| Worth { metric: "iops_ratio".to_string(), low: 1.0, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::sharing::{ProcessIos, Relation};
    use crate::load::RingWorkers;
    use crate::rules::fixtures::{Case, SECOND, profile};

    #[test]
    fn a_worker_at_90_percent_mostly_in_the_kernel() {
        let mut case = Case::new(450_000, 32);
        case.worker(20, 70);
        let found = find(&case.summaries());
        assert_eq!((found.len(), found[0].confidence), (1, 0.8));
        assert!((found[0].numbers["system_ns_per_operation"] - 1555.6).abs() < 0.1);
        case.profile = None;
        case.worker(20, 69);
        assert!(find(&case.summaries()).is_empty());
        case.worker(51, 49);
        assert!(find(&case.summaries()).is_empty(), "that is the generator");
    }

    #[test]
    fn one_cpu_shared_with_its_interrupts() {
        // One CPU of a large machine, as measured: user 20.9 %, system 52.6 %, the rest interrupts.
        let mut case = Case::new(133_000, 16);
        case.worker(21, 53);
        case.profile = Some(profile(&[(CpuClass::System, 370), (CpuClass::Softirq, 100)]));
        assert_eq!(find(&case.summaries())[0].confidence, 0.6);
        case.profile = Some(profile(&[(CpuClass::System, 370), (CpuClass::Softirq, 79)]));
        assert!(find(&case.summaries()).is_empty(), "74 % + 15.8 %");
    }

    #[test]
    fn completions_are_not_submission() {
        let mut case = Case::new(450_000, 32);
        case.worker(20, 75);
        case.profile = Some(profile(&[(CpuClass::System, 400), (CpuClass::Irq, 401)]));
        assert!(find(&case.summaries()).is_empty());
        case.profile = Some(profile(&[(CpuClass::System, 401), (CpuClass::Irq, 400)]));
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    #[test]
    fn the_loop_drivers_thread_counts_only_on_a_loop_device() {
        let mut case = Case::new(300_000, 32);
        case.worker(20, 30);
        case.profile = Some(profile(&[(CpuClass::System, 250), (CpuClass::Kthread, 450)]));
        assert!(find(&case.summaries()).is_empty());
        case.disk().driver = Some("loop".into());
        assert_eq!(find(&case.summaries())[0].confidence, 0.7);
        case.profile = Some(profile(&[(CpuClass::System, 250), (CpuClass::Kthread, 449)]));
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn a_machine_that_is_busy_with_something_else_is_not_blamed() {
        let mut case = Case::new(100_000, 32);
        case.worker(10, 40);
        case.profile =
            Some(profile(&[(CpuClass::System, 200), (CpuClass::Kthread, 450), (CpuClass::User, 300)]));
        assert_eq!(find(&case.summaries())[0].subject, "all CPUs", "0.5 + 0.9 of 1.9 busy CPUs are I/O");
        case.profile =
            Some(profile(&[(CpuClass::System, 200), (CpuClass::Kthread, 400), (CpuClass::User, 350)]));
        assert!(find(&case.summaries()).is_empty(), "0.5 + 0.8 of 1.9 busy CPUs are less than 70 %");
        case.load.as_mut().unwrap().ring_workers = Some(RingWorkers { threads: 3, system_ns: SECOND / 10 });
        let found = &find(&case.summaries())[0];
        assert_eq!(found.subject, "all CPUs", "with io_uring's workers they are 0.5 + 0.8 + 0.1");
        assert!((found.numbers["system_ns_per_operation"] - 5_000.0).abs() < 0.1, "{:?}", found.numbers);
        assert!(found.evidence[0].ends_with("with io_uring's worker threads"), "{:?}", found.evidence);
    }

    #[test]
    fn without_a_load_a_thread_must_be_in_the_block_layer() {
        let mut case = Case::new(100_000, 32);
        case.load = None;
        let mut seen = profile(&[(CpuClass::System, 480)]);
        seen.top = vec![("postgres".into(), 42, SECOND * 95 / 100)];
        seen.folded = BTreeMap::from([
            ("postgres;submit_bio_[k]".to_string(), 240),
            ("postgres;qsort".to_string(), 240),
        ]);
        case.profile = Some(seen.clone());
        assert_eq!(find(&case.summaries())[0].subject, "postgres (42)");
        seen.folded.insert("postgres;qsort".into(), 241);
        case.profile = Some(seen);
        assert!(find(&case.summaries()).is_empty());
    }

    /// `cp`, next to a process without I/O that uses more CPU time.
    #[test]
    fn a_copy_between_files_is_io_of_the_process_that_does_it() {
        let mut case = Case::new(2_000, 32);
        case.load = None;
        let mut seen = profile(&[(CpuClass::System, 950)]);
        seen.top = vec![("make".into(), 8, SECOND * 99 / 100), ("cp".into(), 7, SECOND * 95 / 100)];
        seen.folded = BTreeMap::from([
            ("make;main".to_string(), 480),
            ("cp;vfs_copy_file_range_[k];ext4_buffered_write_iter_[k];memcpy_[k]".to_string(), 460),
        ]);
        case.profile = Some(seen);
        assert!(find(&case.summaries()).is_empty(), "make is the busiest, and its I/O is not known");
        let row = ProcessIos { pid: Some(7), relation: Relation::Other, bios: 9, ..ProcessIos::default() };
        case.latency.devices[0].processes = Some(vec![row]);
        case.latency.devices[0].requeues = 600;
        let found = crate::rules::diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].subject.as_str()), ("submit-cpu-bound", "cp (7)"));
        let refused = found.iter().find(|finding| finding.id == "driver-queue-full").unwrap();
        assert_eq!(refused.severity, Severity::Note);
    }

    #[test]
    fn the_gain_is_bounded_by_the_idle_cpus() {
        let mut case = Case::new(450_000, 32);
        case.worker(20, 75);
        case.profile = Some(profile(&[(CpuClass::System, 500)]));
        assert_eq!(find(&case.summaries())[0].worth.as_ref().map(|w| w.high), Some(2.0));
        case.profile = Some(profile(&[(CpuClass::System, 950)]));
        assert_eq!(find(&case.summaries())[0].worth, None);
        case.profile = None;
        assert_eq!(find(&case.summaries())[0].worth, None);
    }
}
