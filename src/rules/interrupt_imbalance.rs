//! Finding: one CPU takes most of a device's interrupts.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{self, DeviceView, MIN_IOS, percent};
use super::interrupts::{self, Completer, QueueInterrupts};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::interrupts::{Busiest, VectorSummary};
use crate::findings::{Finding, Number, Severity};
use crate::units::{counted as number_of, in_percent, short};

/// At least this many times its even share, so that ordinary variation does not count.
pub const FACTOR: f64 = 2.0;

/// And at least this share of all: with many CPUs twice an even share is little.
pub const SHARE: f64 = 0.50;

/// From here on interrupts take time that threads on that CPU need; below it is only a note.
pub const MATTERS: f64 = 0.30;

/// A vector with less than this share of a device's interrupts is idle.
pub const ACTIVE: f64 = 0.01;

/// Maximum number of vectors named.
const LINES: usize = 4;

/// Drivers whose queue vectors are placed by the kernel (managed IRQs) and cannot be moved.
const MANAGED: [&str; 2] = ["nvme", "virtio_blk"];

const BUSIEST_CPU: Number = Number::new("busiest_cpu", "the CPU with the most interrupts");
const BUSIEST_SHARE_PERCENT: Number =
    Number::new("busiest_share_percent", "that CPU's share of the device's interrupts");
const DEVICE_INTERRUPTS_PER_SECOND: Number =
    Number::new("device_interrupts_per_second", "interrupts per second of the device");
const EVEN_SHARE_PERCENT: Number = Number::new("even_share_percent", "even share of the device's interrupts");

pub const RULE: Rule = Rule { id: "interrupt-imbalance", page: PAGE, find };

const PAGE: &str = "\
One CPU takes most of a device's interrupts.

That CPU completes I/Os for all others, and threads that run on it must wait.

How it is computed
  busiest_share_percent = interrupts of the device's queues on one CPU / all of them. An even share
  is 1 / (vectors with at least 1 % of the interrupts, or CPUs that they may go to, whichever is
  less). Found if the share is at least 2 times even and at least 50 %, with at least 100
  interrupts.
  A warning if hard and soft interrupts take at least 30 % of that CPU (estimated as in
  interrupt-bound). Else, or if too few interrupts were timed, a note.
  If only one of several queues is used, no vector is misplaced: all I/O comes from the CPUs of that
  queue. Then it is a note, if interrupts take at least 30 % of the CPU.
  From: interrupts.vectors[].by_cpu, .cpus, .allowed_cpus, .handler; interrupts.devices[].busiest.

When it is wrong
  - Each queue interrupts near the CPUs that submit to it: a load of few threads is uneven by
    nature. The advice says which case it is.
  - It is a sum over the run: irqbalance moves vectors every ten seconds, and two CPUs that took
    turns look even.
  - One CPU may be the better choice: if the others are reserved, or at low rates, where they sleep
    deeper.
  - The CPU's work for other devices is only in interrupt_per_cpu_percent.

What to do
  - Several vectors go to one CPU: run irqbalance, or write to /proc/irq/N/smp_affinity_list. The
    kernel manages the vectors of NVMe and virtio and refuses that. Their number follows the queues
    and the CPUs online when the driver was loaded; isolcpus=managed_irq keeps CPUs out.
  - One queue has most of the I/O: submit from more CPUs.
  - echo 2 > /sys/block/DEV/queue/rq_affinity moves the rest of the work to the submitting CPU.
";

/// Why the interrupts are distributed this way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cause {
    /// Several vectors in use are delivered to that CPU.
    Delivery,
    /// One of the queues in use has most of the I/O.
    Submission,
    /// Only one of several queues is in use.
    OneQueue,
}

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    if !p.sound(s) {
        return None;
    }
    let counted = interrupts::counted(s, &p.device.name).filter(|counted| counted.interrupts() >= MIN_IOS)?;
    let busiest = counted.device.busiest?;
    let active = active(&counted);
    let reach = reach(&active);
    let even = 1.0 / active.len().min(reach).max(1) as f64;
    let completer = counted.completer(busiest.cpu);
    let matters = completer.as_ref().map(|one| one.busy() >= MATTERS);
    let cause = if active.len() == 1 && counted.queues > 1 {
        Cause::OneQueue
    } else if reach < 2 || busiest.share < SHARE || busiest.share < even * FACTOR {
        return None;
    } else {
        let mostly = |v: &&&VectorSummary| interrupts::on(v, busiest.cpu) > v.interrupts / 2;
        if active.iter().filter(mostly).count() > 1 { Cause::Delivery } else { Cause::Submission }
    };
    let severity = match (cause, matters) {
        (Cause::OneQueue, Some(true)) => Severity::Note,
        (Cause::OneQueue, _) => return None,
        (_, Some(true)) => Severity::Warning,
        _ => Severity::Note,
    };
    let mut finding = finding(p, &counted, busiest, completer.as_ref(), cause);
    finding.severity = severity;
    finding.numbers.insert(EVEN_SHARE_PERCENT, percent(even));
    finding.evidence.push(format!(
        "{} in use, of {}, may be delivered to {}",
        number_of(active.len() as u64, "vector"),
        counted.queues,
        number_of(reach as u64, "CPU")
    ));
    Some(finding)
}

/// The vectors in use.
fn active<'a>(counted: &QueueInterrupts<'a>) -> Vec<&'a VectorSummary> {
    let least = counted.interrupts() as f64 * ACTIVE;
    counted.vectors.iter().copied().filter(|vector| vector.interrupts as f64 >= least).collect()
}

/// CPUs that these vectors may be delivered to, or were.
fn reach(vectors: &[&VectorSummary]) -> usize {
    let of = |vector: &&VectorSummary| {
        let may = if vector.allowed.is_empty() { &vector.cpus } else { &vector.allowed };
        may.iter().copied().chain(vector.by_cpu.iter().map(|of| of.cpu)).collect::<Vec<u32>>()
    };
    vectors.iter().flat_map(of).collect::<BTreeSet<u32>>().len()
}

fn finding(
    p: &DeviceView<'_>,
    counted: &QueueInterrupts<'_>,
    busiest: Busiest,
    completer: Option<&Completer>,
    cause: Cause,
) -> Finding {
    let (name, cpu) = (&p.device.name, busiest.cpu);
    let disk = p.device.disk_name();
    let mut numbers = BTreeMap::from([
        (BUSIEST_SHARE_PERCENT, percent(busiest.share)),
        (BUSIEST_CPU, f64::from(cpu)),
        (DEVICE_INTERRUPTS_PER_SECOND, counted.per_second(counted.interrupts())),
    ]);
    let mut evidence = Vec::new();
    match completer {
        Some(one) => {
            numbers.insert(numbers::INTERRUPT_PER_CPU_PERCENT, percent(one.busy()));
            numbers.insert(numbers::TIMED_INTERRUPTS, one.timed as f64);
            evidence.push(one.line());
        }
        None => {
            evidence.push(format!("too few interrupts of CPU {cpu} were timed to estimate their share of it"))
        }
    }
    evidence.extend(counted.lines(cpu, LINES));
    let managed = p.disk.and_then(|disk| disk.driver.as_deref()).is_some_and(|d| MANAGED.contains(&d));
    let advice = match cause {
        Cause::Delivery if managed => format!(
            "The kernel manages the vectors of {name}, so they cannot be moved. Check whether CPUs are \
             excluded (isolcpus=managed_irq, or offline when the driver was loaded), and bind threads to \
             CPUs of other queues. echo 2 > /sys/block/{disk}/queue/rq_affinity moves the rest of the work \
             to the submitting CPU."
        ),
        Cause::Delivery => format!(
            "Spread the vectors: run irqbalance, or write other CPUs than {cpu} to /proc/irq/N/smp_affinity_list of those \
             that are named (if the write fails, the kernel manages them)."
        ),
        Cause::Submission | Cause::OneQueue => format!(
            "Submit from more CPUs: the I/Os of {name} go through {}, whose interrupts go to CPU {cpu}. \
             Threads on the CPUs of other queues use the other vectors (biopsy devices shows them).",
            match cause {
                Cause::OneQueue => "one queue",
                _ => "mostly one queue",
            }
        ),
    };
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Note,
        confidence: match cause {
            Cause::Delivery => 0.85,
            Cause::Submission => 0.7,
            Cause::OneQueue => 0.6,
        },
        sentence: format!(
            "CPU {cpu} takes {} of the interrupts of {name}: {} of {} a second.",
            in_percent(busiest.share),
            short(counted.per_second(counted.interrupts()) * busiest.share),
            short(counted.per_second(counted.interrupts()))
        ),
        numbers,
        evidence,
        advice,
        check: format!("biopsy interrupts -d {name} --for 5s"),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// Four vectors that may go to any of four CPUs, with these shares of 100,000 interrupts of `handler` ns each; all
    /// are delivered to CPU 0 except for those of the last.
    fn case(of: [u64; 4], handler: u64) -> Case {
        let mut case = Case::new(100_000, 32);
        case.disk().driver = Some("sd".into());
        for (n, interrupts) in (0..).zip(of) {
            case.interrupt(41 + n, &[(if n == 3 { 3 } else { 0 }, interrupts)], handler, 1);
        }
        allow(&mut case);
        case
    }

    fn allow(case: &mut Case) {
        let seen = case.interrupts.as_mut().unwrap();
        seen.vectors.iter_mut().for_each(|vector| vector.allowed = vec![0, 1, 2, 3]);
    }

    #[test]
    fn vectors_that_all_come_to_one_cpu_can_be_spread() {
        let found = find(&case([25_000; 4], 4_000).summaries()).remove(0);
        assert_eq!((found.severity, found.confidence), (Severity::Warning, 0.85));
        assert_eq!(found.numbers["busiest_share_percent"], 75.0);
        assert_eq!(found.numbers["even_share_percent"], 25.0);
        assert!((found.numbers["interrupt_per_cpu_percent"] - 30.0).abs() < 0.1, "{:?}", found.numbers);
        assert!(found.advice.contains("irqbalance"), "{}", found.advice);
        assert!(found.evidence.iter().any(|line| line.contains("interrupt 42 (req.42)")));
    }

    #[test]
    fn the_share_of_the_cpu_decides_whether_it_matters() {
        assert_eq!(find(&case([25_000; 4], 4_000).summaries())[0].severity, Severity::Warning);
        assert_eq!(find(&case([25_000; 4], 3_990).summaries())[0].severity, Severity::Note);
        let mut untimed = case([25_000; 4], 4_000);
        let seen = untimed.interrupts.as_mut().unwrap();
        seen.vectors.iter_mut().for_each(|vector| vector.handler = Default::default());
        let found = find(&untimed.summaries()).remove(0);
        assert_eq!(found.severity, Severity::Note);
        assert!(!found.numbers.contains_key("interrupt_per_cpu_percent"), "not measured is not nothing");
    }

    #[test]
    fn half_of_all_and_twice_the_even_share() {
        assert_eq!(find(&case([20_000, 20_000, 10_000, 50_000], 8_000).summaries()).len(), 1);
        let mut case = case([16_000, 17_000, 16_000, 50_000], 8_000);
        case.interrupts.as_mut().unwrap().devices[0].busiest.as_mut().unwrap().share = 0.499;
        assert!(find(&case.summaries()).is_empty());
        // With three vectors an even share is a third: two thirds are twice that.
        let three = |first, last| {
            let mut case = Case::new(100_000, 32);
            case.interrupt(41, &[(0, first)], 9_000, 1);
            case.interrupt(42, &[(0, 30_000)], 9_000, 1);
            case.interrupt(43, &[(3, last)], 9_000, 1);
            allow(&mut case);
            find(&case.summaries()).len()
        };
        assert_eq!((three(40_000, 35_000), three(39_000, 36_000)), (1, 0));
    }

    #[test]
    fn managed_vectors_are_not_to_be_moved() {
        let mut case = case([25_000; 4], 4_000);
        case.disk().driver = Some("nvme".into());
        assert!(find(&case.summaries())[0].advice.contains("cannot be moved"));
    }

    #[test]
    fn one_queue_with_most_of_the_io_is_the_submitters_doing() {
        let mut case = case([10_000, 10_000, 10_000, 70_000], 8_000);
        let found = find(&case.summaries()).remove(0);
        assert_eq!((found.severity, found.numbers["busiest_cpu"]), (Severity::Warning, 3.0));
        assert!(found.advice.starts_with("Submit from more CPUs"), "{}", found.advice);
        let seen = case.interrupts.as_mut().unwrap();
        seen.vectors.iter_mut().for_each(|vector| vector.allowed = vec![3]);
        seen.vectors.truncate(4);
        assert_eq!(reach(&seen.vectors.iter().collect::<Vec<_>>()), 2, "where they came to counts as well");
    }

    #[test]
    fn a_single_queue_in_use_is_a_note_where_it_matters() {
        let found = find(&case([0, 0, 0, 100_000], 3_000).summaries());
        assert_eq!((found.len(), found[0].severity, found[0].confidence), (1, Severity::Note, 0.6));
        assert!(find(&case([0, 0, 0, 100_000], 2_990).summaries()).is_empty());
        let mut only = Case::new(100_000, 32);
        only.interrupt(41, &[(0, 100_000)], 6_000, 1);
        assert!(find(&only.summaries()).is_empty(), "it has one vector");
        // A vector with one percent is in use.
        assert_eq!(find(&case([0, 0, 990, 99_010], 3_100).summaries())[0].confidence, 0.6);
        assert!(find(&case([0, 0, 1_010, 98_990], 3_100).summaries()).is_empty(), "two in use, on two CPUs");
    }

    #[test]
    fn doubt_or_no_count_withholds_it() {
        let mut lossy = case([25_000; 4], 8_000);
        lossy.latency.devices[0].lost_ios = 10_000;
        assert!(find(&lossy.summaries()).is_empty());
        lossy.latency.devices[0].lost_ios = 0;
        assert_eq!(find(&lossy.summaries()).len(), 1);
        let bracket = crate::analyze::counting::Bracket { min: 30_000, max: 30_000 };
        lossy.interrupts.as_mut().unwrap().vectors[0].kernel = Some(bracket);
        assert!(find(&lossy.summaries()).is_empty());
        lossy.interrupts = None;
        assert!(find(&lossy.summaries()).is_empty());
    }
}
