//! Other processes keep the CPUs busy.

use super::command;
use super::cpu;
use super::facts::percent;
use super::numbers;
use super::{Rule, Summaries, facts};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::in_percent;

const OTHERS_CPU_PERCENT: Number =
    Number::new("others_cpu_percent", "CPU time of other processes, of the busy CPU time");

pub const RULE: Rule = Rule { id: "cpu-contention", page: PAGE, find };

const PAGE: &str = "\
Other processes keep the CPUs busy.

Submitting an I/O, completing it and reaping it each need a CPU. If none is idle, each of these
steps waits in a run queue, and the latency that the application sees is the scheduler's.

How it is computed
  Found if all CPUs together are busy for 95 % of the interval, and less than 70 % of that CPU time
  belongs to this I/O. This I/O's are, with biopsy's own load, its threads, io_uring's workers,
  kernel threads and interrupts; else all CPU time of threads that spend at least 5 % of it in the
  block layer or in file I/O. From 70 % on see submit-cpu-bound.
  Confidence 0.75, or 0.6 if half of the CPU time or more is this I/O's.
  From: the profile's classes, folded stacks and threads; load.jobs[].

When it is wrong
  - A real-time or pinned process can take one CPU while others idle: that is missed.
  - CPU time that the hypervisor takes away is not in the profile: see cpu-steal.
  - The device may be full as well, and be the next limit.

What to do
  Stop the named processes, or move them to other CPUs (taskset, cpuset cgroups), and measure again.
  If they have to run, give the I/O threads more weight (cpu.weight) or CPUs of their own.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let busy = cpu::nothing_left(s)?;
    if cpu::saturation(s).is_some() || super::ios(s) < facts::MIN_IOS {
        return None;
    }
    let own = cpu::own_share_of_busy(s).filter(|own| *own < cpu::IO_SHARE)?;
    let others = cpu::others_line(s);
    let is_named = others.is_some();
    let mut evidence: Vec<String> = others.into_iter().collect();
    if let Some(workers) = cpu::workers(s) {
        evidence.push(format!("the load's threads get {} of a CPU each", in_percent(workers.busy)));
    }
    evidence.extend(cpu::profile(s).and_then(|profile| profile.sampler_note.clone()));
    Some(Finding {
        id: RULE.id,
        subject: "CPU".to_string(),
        severity: Severity::Warning,
        // The less of the CPU time is the I/O's, the more of its waits are for a CPU.
        confidence: if own < 0.5 { 0.75 } else { 0.6 },
        sentence: format!(
            "Other processes use the CPUs: all CPUs are busy for {} of the time, and {} of that is not this I/O.",
            in_percent(busy),
            in_percent(1.0 - own)
        ),
        numbers: Numbers::from([
            (numbers::MACHINE_BUSY_PERCENT, percent(busy)),
            (OTHERS_CPU_PERCENT, percent(1.0 - own)),
        ]),
        evidence,
        advice: match is_named {
            true => "Stop the named processes or move them to other CPUs, and measure again.",
            false => "Find what uses the CPUs (biopsy flame draws it), stop it, and measure again.",
        }
        .to_string(),
        check: match s.load {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => "biopsy diagnose --no-load --for 10s".to_string(),
        },
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::stacks::CpuClass;
    use crate::rules::literal::{Case, profile};

    /// A profile of two CPUs: so many samples of a thread that does I/O, of a thousand.
    fn crowded(own: u64, others: u64) -> Case {
        let mut case = Case::new(50_000, 32);
        case.load = None;
        let mut seen = profile(&[(CpuClass::User, own + others)]);
        seen.folded.clear();
        seen.folded.insert("db;io_uring_enter_[k];submit_bio_[k]".into(), own / 10);
        seen.folded.insert("db;compute".into(), own - own / 10);
        seen.folded.insert("make;cc1".into(), others);
        seen.top = vec![("make".into(), 7, 900_000_000)];
        case.profile = Some(seen);
        case
    }

    #[test]
    fn others_are_named_when_no_cpu_is_idle() {
        let found = find(&crowded(200, 800).summaries());
        assert_eq!(found.len(), 1);
        assert!(found[0].sentence.contains("busy for 100 %"), "{}", found[0].sentence);
        assert!(found[0].sentence.contains("80 % of that is not this I/O"), "{}", found[0].sentence);
        assert!(found[0].evidence[0].contains("make 90 %"), "{:?}", found[0].evidence);
        assert_eq!(found[0].numbers["others_cpu_percent"].round(), 80.0);
        assert!(find(&crowded(200, 740).summaries()).is_empty(), "6 % are idle");
    }

    /// All CPU time of a thread that does I/O is this I/O's, its computing included.
    #[test]
    fn the_threads_that_do_the_io_are_no_others() {
        assert!(find(&crowded(710, 290).summaries()).is_empty());
        assert_eq!(find(&crowded(690, 310).summaries()).len(), 1);
        // But its CPU time is not spent on submission: see submit-cpu-bound.
        assert!(cpu::saturation(&crowded(1_000, 0).summaries()).is_none());
    }

    /// The disk's interrupts come to the CPU of a process that does no I/O.
    #[test]
    fn an_interrupted_thread_does_no_io() {
        let mut case = crowded(200, 700);
        let seen = case.profile.as_mut().unwrap();
        seen.folded.insert("make;cc1;asm_common_interrupt_[k];blk_mq_complete_request_[k]".into(), 100);
        seen.classes = profile(&[(CpuClass::User, 1_000)]).classes;
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    #[test]
    fn without_io_there_is_nothing_to_wait() {
        let mut case = crowded(200, 800);
        case.latency.devices.clear();
        assert!(find(&case.summaries()).is_empty());
    }
}
