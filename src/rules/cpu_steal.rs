//! Finding: the hypervisor gives other guests CPU time that this machine needs.

use super::command;
use super::facts::percent;
use super::{Rule, Summaries, facts};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::in_percent;

/// Steal time is reported from this share of a CPU's time on.
pub const SOME: f64 = 0.05;

/// A CPU that is busy or stolen to this share has no time left, so steal limits what runs on it.
pub const FULL: f64 = 0.90;

const STEAL_PERCENT: Number = Number::new("steal_percent", "steal time, of the time of that CPU");
const STOLEN_CPU: Number = Number::new("stolen_cpu", "CPU with the most steal time");

pub const RULE: Rule = Rule { id: "cpu-steal", page: PAGE, find };

const PAGE: &str = "\
The hypervisor takes CPU time away (steal time).

A virtual CPU that is ready to run waits for a physical one. Submitting, completing and reaping take
longer, and no profile in this machine shows why.

How it is computed
  Steal time of a CPU / its wall time, from /proc/stat over the interval. The CPU with the most is
  reported from 5 % on. A warning if all CPUs together are busy or stolen for 90 % of the time, and
  stolen for 5 %: then it takes from the I/O, wherever that runs. Else a note: latencies grow.
  From: cpu.cpus[], cpu.all.

When it is wrong
  - Some hypervisors report no steal time, or charge it as the guest's own CPU time.
  - A cap on the virtual machine's CPU time counts as steal.
  - Steal on a CPU that no I/O uses does no harm.

What to do
  Ask for dedicated CPUs or another host. On your own host, overcommit less or pin virtual CPUs.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let cpu = s.cpu?;
    // Ticks are too coarse for a short interval.
    let precise = cpu.cpus.iter().filter(|row| row.error_ns as f64 <= row.wall_ns as f64 * SOME);
    let most = precise.max_by(|a, b| a.share("steal").total_cmp(&b.share("steal")))?;
    let (stolen, idle) = (most.share("steal"), most.share("idle"));
    if stolen < SOME || super::ios(s) < facts::MIN_IOS {
        return None;
    }
    let number = most.cpus.first().copied().unwrap_or(0);
    let full =
        cpu.all.as_ref().is_some_and(|all| 1.0 - all.share("idle") >= FULL && all.share("steal") >= SOME);
    let mut evidence = vec![format!(
        "CPU {number}: {} stolen, {} idle, the rest used",
        in_percent(stolen),
        in_percent(idle)
    )];
    evidence
        .extend(cpu.all.as_ref().map(|all| format!("all CPUs: {} stolen", in_percent(all.share("steal")))));
    Some(Finding {
        id: RULE.id,
        subject: format!("CPU {number}"),
        severity: if full { Severity::Warning } else { Severity::Note },
        confidence: if full { 0.7 } else { 0.5 },
        sentence: format!(
            "The hypervisor takes away {} of CPU {number} (steal){}.",
            in_percent(stolen),
            if full { ", and no CPU is idle" } else { "" }
        ),
        numbers: Numbers::from([(STEAL_PERCENT, percent(stolen)), (STOLEN_CPU, f64::from(number))]),
        evidence,
        advice: "Ask for dedicated CPUs or another host, or measure at a quieter time.".to_string(),
        check: match s.load {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => "biopsy top --plain 1".to_string(),
        },
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::cpu::{CpuRow, CpuSummary, TIMES};
    use crate::rules::fixtures::Case;

    /// One second of two CPUs; steal and idle time of CPU 1 in percent.
    fn stolen(steal: u64, idle: u64) -> CpuSummary {
        let row = |cpu: u32, steal: u64, idle: u64| {
            let mut row = CpuRow { cpus: vec![cpu], wall_ns: 1_000_000_000, ..CpuRow::default() };
            let at = |name: &str| TIMES.iter().position(|time| *time == name).unwrap();
            row.times[at("steal")] = steal * 10_000_000;
            row.times[at("idle")] = idle * 10_000_000;
            row
        };
        let all = row(0, steal, idle);
        CpuSummary { cpus: vec![row(0, 0, 90), row(1, steal, idle)], all: Some(all), ..CpuSummary::default() }
    }

    #[test]
    fn steal_limits_a_cpu_that_has_nothing_left() {
        let case = Case::new(50_000, 32);
        let found = |cpu: &CpuSummary| find(&Summaries { cpu: Some(cpu), ..case.summaries() });
        assert!(found(&stolen(4, 0)).is_empty());
        let full = found(&stolen(20, 5));
        assert_eq!((full[0].severity, full[0].subject.as_str()), (Severity::Warning, "CPU 1"));
        assert_eq!(full[0].numbers["steal_percent"], 20.0);
        assert_eq!(found(&stolen(20, 30))[0].severity, Severity::Note);
        let mut one = stolen(20, 5);
        one.all.as_mut().unwrap().times[TIMES.len() - 1] = 500_000_000;
        assert_eq!(found(&one)[0].severity, Severity::Note, "the other CPU is idle");
        let mut coarse = stolen(20, 5);
        coarse.cpus[1].error_ns = 60_000_000;
        assert!(found(&coarse).is_empty(), "an interval of a few ticks");
    }

    #[test]
    fn without_the_kernels_account_nothing_is_claimed() {
        assert!(find(&Case::new(50_000, 32).summaries()).is_empty());
    }
}
