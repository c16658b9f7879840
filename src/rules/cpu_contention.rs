//! Finding: other processes keep the CPUs busy.

use super::command;
use super::cpu;
use super::facts::percent;
use super::numbers;
use super::{Rule, Summaries, facts};
use crate::analyze::cpu::CpuRow;
use crate::analyze::stacks::CpuClass;
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::in_percent;

const OTHERS_CPU_PERCENT: Number =
    Number::new("others_cpu_percent", "share of other processes in the busy CPU time");

const OTHERS_OF_ONE_CPU_PERCENT: Number =
    Number::new("others_of_one_cpu_percent", "CPU time of other processes on the load's CPU");

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
  Also found, with confidence 0.75, for a CPU that threads of biopsy's own load are pinned to, if it
  is idle for less than 5 %, and others have at least 50 % of it: its user and system time without
  these threads, and without all CPU time of kernel threads and interrupts.
  From: the profile's classes, folded stacks and threads; load.jobs[]; cpu.cpus[].

When it is wrong
  - Without biopsy's own load, a real-time or pinned process that takes one CPU while others idle is
    missed.
  - CPU time that the hypervisor takes away is not in the profile: see cpu-steal.
  - The device may be full as well, and be the next limit.

What to do
  Stop the named processes, or move them to other CPUs (taskset, cpuset cgroups), and measure again.
  If they have to run, give the I/O threads more weight (cpu.weight) or CPUs of their own.
";

/// Other processes use at least this much of a CPU that the load is pinned to: a thread that needs all of it gets less
/// than half.
pub const OF_ONE_CPU: f64 = 0.50;

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).or_else(|| on_the_loads_cpu(s)).into_iter().collect()
}

/// The busiest CPU that threads of the load are pinned to and that others use.
fn on_the_loads_cpu(s: &Summaries<'_>) -> Option<Finding> {
    let (load, cpu) = (s.load?, s.cpu?);
    if cpu::saturation(s).is_some() || super::ios(s) < facts::MIN_IOS {
        return None;
    }
    // It may have run there: the kernel's work for this I/O must not count as other processes'.
    let kernel = [CpuClass::Kthread, CpuClass::Irq, CpuClass::Softirq];
    let kernel = cpu::cpus(cpu::profile(s)?, &kernel);
    let of_cpu = |row: &CpuRow| {
        let number = *row.cpus.first()?;
        let own = load.jobs.iter().find(|job| job.cpu == Some(number)).map(|job| load.used_on_cpu_of(job))?;
        let own = own as f64 / load.duration_ns.max(1) as f64;
        let idle = row.share("idle");
        let others = row.share("user") + row.share("nice") + row.share("system") - own - kernel;
        (1.0 - idle > cpu::MACHINE_SATURATED && others >= OF_ONE_CPU).then_some((number, own, others))
    };
    let (number, own, others) = cpu.cpus.iter().filter_map(of_cpu).max_by(|a, b| a.2.total_cmp(&b.2))?;
    let mut evidence = vec![format!("the load's threads get {} of it", in_percent(own))];
    evidence.extend(cpu::others_line(s));
    Some(Finding {
        id: RULE.id,
        subject: format!("CPU {number}"),
        severity: Severity::Warning,
        confidence: 0.75,
        sentence: format!(
            "Other processes use {} of CPU {number}, which is never idle and to which threads of the load \
             are pinned.",
            in_percent(others)
        ),
        numbers: Numbers::from([(OTHERS_OF_ONE_CPU_PERCENT, percent(others))]),
        evidence,
        advice: "Stop the named processes, move them to other CPUs, or run the load on another CPU: biopsy \
            load --cpus N."
            .to_string(),
        check: command::load(load, load.job.iodepth, load.job.numjobs),
        worth: None,
    })
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
        evidence.push(format!("each thread of the load gets {} of a CPU", in_percent(workers.busy)));
    }
    evidence.extend(cpu::profile(s).and_then(|profile| profile.sampler_note.clone()));
    Some(Finding {
        id: RULE.id,
        subject: "CPU".to_string(),
        severity: Severity::Warning,
        // The smaller the I/O's share of the CPU time, the more of its waiting is for a CPU.
        confidence: if own < 0.5 { 0.75 } else { 0.6 },
        sentence: format!(
            "Other processes use the CPUs: all CPUs together are {} busy, and {} of that is not for this \
             I/O.",
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
    use crate::analyze::cpu::CpuSummary;
    use crate::rules::fixtures::{Case, SECOND, profile};

    /// A profile of two CPUs, in samples of a thousand: a thread that does I/O, and others.
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
        assert!(found[0].sentence.contains("100 % busy"), "{}", found[0].sentence);
        assert!(found[0].sentence.contains("80 % of that is not for this I/O"), "{}", found[0].sentence);
        assert!(found[0].evidence[0].contains("make 90 %"), "{:?}", found[0].evidence);
        assert_eq!(found[0].numbers["others_cpu_percent"].round(), 80.0);
        assert!(find(&crowded(200, 740).summaries()).is_empty(), "6 % are idle");
    }

    /// All CPU time of a thread that does I/O belongs to this I/O, including its computation.
    #[test]
    fn the_threads_that_do_the_io_are_no_others() {
        assert!(find(&crowded(710, 290).summaries()).is_empty());
        assert_eq!(find(&crowded(690, 310).summaries()).len(), 1);
        // But its CPU time is not spent on submission: see submit-cpu-bound.
        assert!(cpu::saturation(&crowded(1_000, 0).summaries()).is_none());
    }

    /// The disk's interrupts run on the CPU of a process without I/O.
    #[test]
    fn an_interrupted_thread_does_no_io() {
        let mut case = crowded(200, 700);
        let seen = case.profile.as_mut().unwrap();
        seen.folded.insert("make;cc1;asm_common_interrupt_[k];blk_mq_complete_request_[k]".into(), 100);
        seen.classes = profile(&[(CpuClass::User, 1_000)]).classes;
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    /// A real-time thread on the load's CPU, while another CPU idles.
    #[test]
    fn a_cpu_that_the_load_is_pinned_to_is_looked_at_alone() {
        let found_with = |at: u32, others: u64, idle: u64| {
            let mut case = Case::new(50_000, 32);
            let job = &mut case.load.as_mut().unwrap().jobs[0];
            (job.cpu, job.user_ns, job.system_ns) = (Some(at), SECOND / 50, SECOND / 50);
            case.profile = Some(profile(&[(CpuClass::User, 400)]));
            let row = |cpu, [user, idle]: [u64; 2]| CpuRow {
                cpus: vec![cpu],
                wall_ns: 100,
                times: [user, 0, 0, 0, 0, 0, idle],
                ..CpuRow::default()
            };
            let cpus = vec![row(0, [others + 4, idle]), row(1, [5, 95])];
            case.cpu = Some(CpuSummary { cpus, ..CpuSummary::default() });
            find(&case.summaries())
        };
        let found = found_with(0, 96, 0);
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "CPU 0"));
        assert!(found[0].sentence.contains("96 % of CPU 0"), "{}", found[0].sentence);
        assert!(found_with(1, 96, 0).is_empty(), "it runs elsewhere");
        assert_eq!((found_with(0, 50, 4).len(), found_with(0, 49, 4).len()), (1, 0));
        assert!(found_with(0, 91, 5).is_empty(), "5 % are idle");
    }

    #[test]
    fn without_io_there_is_nothing_to_wait() {
        let mut case = crowded(200, 800);
        case.latency.devices.clear();
        assert!(find(&case.summaries()).is_empty());
    }
}
