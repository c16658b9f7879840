//! Finding: interrupts saturate a CPU that completes I/Os.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{self, DeviceView, percent};
use super::interrupts::{self, Completer, LIMIT, PILED_UP, QueueInterrupts};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{in_percent, short, time};

/// If completions pile up, this share of the CPU is enough: interrupt entry and exit and the wake-ups are not included
/// in the handlers' time.
pub const PILED_SHARE: f64 = 0.50;

/// Maximum number of vectors named.
const LINES: usize = 4;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const HANDLER_MEAN_NS: Number = Number::new("handler_mean_ns", "mean time in the interrupt handler");
const INTERRUPT_HARD_PERCENT: Number =
    Number::new("interrupt_hard_percent", "hard interrupts' share of that CPU");
const INTERRUPT_SOFT_PERCENT: Number =
    Number::new("interrupt_soft_percent", "soft interrupts' share of that CPU");
const INTERRUPTS_PER_SECOND: Number =
    Number::new("interrupts_per_second", "the device's interrupts per second on that CPU");

pub const RULE: Rule = Rule { id: "interrupt-bound", page: PAGE, find };

const PAGE: &str = "\
Interrupts saturate a CPU that completes the I/Os.

How it is computed
  interrupt_per_cpu_percent = hard + soft interrupt time of one CPU.
  - Hard: the interrupts of all traced devices on it x the mean handler time of each vector, which
    is sampled.
  - Soft: the block layer's softirqs, sampled for all CPUs together and divided by the I/Os
    completed in them (including those of untraced disks). Those raised on the same CPU are assumed
    to be spread as the device's interrupts are.
  The busiest CPU counts, among those with at least half of an even share of the device's
  interrupts.
  Found from 70 % on, or from 50 % on if the median completions per interrupt are at least 8: they
  pile up (not on virtio, where the hypervisor batches them). At least 100 interrupts must be timed.
  A CPU is named once, for the device with the most interrupts on it. Not found if
  complete-cpu-bound is.
  From: interrupts.vectors[].by_cpu, .handler, .completions_per_interrupt; interrupts.softirq;
  interrupts.devices[].completed.softirq, .remote_softirq.

When it is wrong
  - It is an estimate from a sample. Interrupt entry and exit, handler threads and softirqs raised
    by other CPUs are not included: the real time is usually longer.
  - A hard interrupt within a softirq is counted twice: the estimate is too high.
  - The probes run inside the handlers and add their cost; in a virtual machine, so does stolen
    time.
  - A drive that coalesces interrupts has many completions each on purpose.
  - At 70 % a thread that submits on the same CPU has 30 % left and looks saturated (see
    submit-cpu-bound).
  - Not found if the count differs from the kernel's by more than 1 %.

What to do
  - More CPUs: submit from more of them, so that more queues are used. The kernel places the vectors
    of NVMe and virtio; those of other drivers can be moved (/proc/irq/N/smp_affinity_list).
  - Fewer interrupts: poll (nvme.poll_queues=N and --hipri); coalesce (nvme set-feature DEV -f 8 -V
    0xTTHH, TT in 100 us, HH completions less one), which adds latency at low depth; or posted MSI
    (Linux 6.10 and newer, intremap=posted_msi, on Intel machines that have it).
  - Fewer and larger I/Os.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let mut found: Vec<(u64, u32, Finding)> =
        facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect();
    // The device with the most interrupts first: the CPU is reported for it.
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.subject.cmp(&b.2.subject)));
    let mut named = BTreeSet::new();
    found.into_iter().filter(|(_, cpu, _)| named.insert(*cpu)).map(|(_, _, finding)| finding).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<(u64, u32, Finding)> {
    if !p.sound(s) {
        return None;
    }
    let counted = interrupts::counted(s, &p.device.name)?;
    let one = counted.busiest()?;
    let median = counted.median(Some(one.cpu));
    let collected = interrupts::collected(s, &p.device.name);
    let piled = median.filter(|median| *median >= PILED_UP && one.busy() >= PILED_SHARE && !collected);
    if one.busy() < LIMIT && piled.is_none() {
        return None;
    }
    Some((one.per_second as u64, one.cpu, finding(s, p, &counted, &one, median)))
}

fn finding(
    s: &Summaries<'_>,
    p: &DeviceView<'_>,
    counted: &QueueInterrupts<'_>,
    one: &Completer,
    median: Option<u64>,
) -> Finding {
    let name = &p.device.name;
    let cpus = counted.cpus().len();
    let mut evidence = vec![one.line()];
    evidence.extend(counted.lines(one.cpu, LINES));
    evidence.push(format!(
        "CPU {} takes {} of the interrupts of {name}, which go to {cpus} of {} CPUs",
        one.cpu,
        in_percent(one.share),
        s.host.cpus_online
    ));
    let mut numbers = BTreeMap::from([
        (numbers::INTERRUPT_PER_CPU_PERCENT, percent(one.busy())),
        (INTERRUPT_HARD_PERCENT, percent(one.hard)),
        (INTERRUPTS_PER_SECOND, one.per_second),
        (numbers::TIMED_INTERRUPTS, one.timed as f64),
        (numbers::IOS_PER_SECOND, p.rate()),
    ]);
    if one.soft > 0.0 {
        numbers.insert(INTERRUPT_SOFT_PERCENT, percent(one.soft));
    }
    if let Some(each) = counted.device.ios_per_interrupt {
        numbers.insert(numbers::IOS_PER_INTERRUPT_RATIO, each);
    }
    if let Some((mean, _)) = counted.handler_ns() {
        numbers.insert(HANDLER_MEAN_NS, mean);
    }
    if let Some(median) = median {
        numbers.insert(numbers::COMPLETIONS_PER_INTERRUPT_P50_RATIO, median as f64);
        evidence.push(format!("median completions per interrupt on CPU {}: {median}", one.cpu));
    }
    let neighbours = counted.neighbours(one.cpu);
    if !neighbours.is_empty() {
        evidence.push(format!("CPU {} also takes the interrupts of {}", one.cpu, neighbours.join(", ")));
    }
    let room = cpus < s.host.cpus_online as usize;
    let others = match room {
        true => format!("use more of the {} CPUs: submit from more of them", s.host.cpus_online),
        false => "reduce the interrupts, as all CPUs take some already".to_string(),
    };
    let handler = match counted.handler_ns() {
        Some((mean, _)) => format!(", {} each", time(mean as u64)),
        None => String::new(),
    };
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: match one.hard >= LIMIT {
            true => 0.85,
            false if one.busy() >= LIMIT => 0.7,
            false => 0.6,
        },
        sentence: format!(
            "Interrupts use {} of CPU {}, which completes I/Os of {name}; that CPU takes {} interrupts \
             a second of that device{handler}.",
            in_percent(one.busy()),
            one.cpu,
            short(one.per_second)
        ),
        numbers,
        evidence,
        advice: format!(
            "To relieve CPU {}, {others}; or poll (nvme.poll_queues=N, --hipri), coalesce interrupts (NVMe \
             feature 08h), use posted MSI (intremap=posted_msi), or submit fewer, larger I/Os.",
            one.cpu
        ),
        check: format!("biopsy interrupts -d {name} --for 5s"),
        worth: room.then(|| Worth { metric: "iops_ratio".to_string(), low: 1.0, high: MAX_WORTH }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::interrupts::{CpuInterrupts, VectorSummary};
    use crate::rules::fixtures::{Case, hist};

    /// `handler` ns for each of 100,000 interrupts on CPU 1, with `carried` completions each.
    fn case(handler: u64, carried: u64) -> Case {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 100_000)], handler, carried);
        case
    }

    #[test]
    fn a_cpu_full_of_handlers_is_named_with_its_vectors() {
        let found = find(&case(8_000, 1).summaries());
        assert_eq!((found.len(), found[0].subject.as_str(), found[0].confidence), (1, "vda", 0.85));
        assert!((found[0].numbers["interrupt_per_cpu_percent"] - 80.0).abs() < 0.1, "{:?}", found[0].numbers);
        assert_eq!(found[0].numbers["timed_interrupts"], 12_500.0);
        assert_eq!(found[0].numbers["ios_per_interrupt_ratio"], 1.0);
        assert!(!found[0].numbers.contains_key("interrupt_soft_percent"), "there are none");
        let line = "interrupt 41 (req.41): 100k a second on CPU 1, 1.00 I/Os each, 8.00 µs in the handler (mean of \
                    12,500)";
        assert!(found[0].evidence.iter().any(|l| l == line), "{:?}", found[0].evidence);
        assert!(found[0].worth.is_some(), "the other CPU takes none");
    }

    #[test]
    fn the_share_has_two_sides() {
        assert_eq!(find(&case(7_000, 1).summaries()).len(), 1);
        assert!(find(&case(6_990, 7).summaries()).is_empty());
    }

    #[test]
    fn completions_that_pile_up_need_less() {
        let nvme = |handler, each| {
            let mut case = case(handler, each);
            case.disk().driver = Some("nvme".into());
            case
        };
        assert_eq!(find(&nvme(5_000, 8).summaries())[0].confidence, 0.6);
        assert!(find(&case(5_000, 8).summaries()).is_empty(), "a hypervisor collects them");
        assert!(find(&nvme(5_000, 7).summaries()).is_empty());
        assert!(find(&nvme(4_990, 8).summaries()).is_empty(), "a drive may collect on purpose");
    }

    #[test]
    fn softirqs_of_the_cpu_count_and_make_it_less_sure() {
        let mut case = case(5_000, 1);
        case.soft(20.0, 100_000);
        let found = find(&case.summaries());
        assert_eq!((found[0].confidence, found[0].numbers["interrupt_soft_percent"].round()), (0.7, 20.0));
        case.soft(19.9, 100_000);
        assert!(find(&case.summaries()).is_empty());
        case.soft(40.0, 49_000);
        assert!(find(&case.summaries()).is_empty(), "half of them are asked for by other CPUs");
    }

    #[test]
    fn a_cpu_that_two_devices_fill_is_named_once() {
        let mut case = case(5_000, 1);
        case.load = None;
        case.twin("vdb");
        let seen = case.interrupts.as_mut().unwrap();
        let mut device = seen.devices[0].clone();
        device.name = "vdb".into();
        seen.devices.push(device);
        let mut vector = VectorSummary { irq: 51, devices: vec!["vdb".into()], ..seen.vectors[0].clone() };
        (vector.interrupts, vector.by_cpu) = (50_000, vec![CpuInterrupts { cpu: 1, interrupts: 50_000 }]);
        seen.vectors.push(vector);
        let found = find(&case.summaries());
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "vda"), "it brings the most");
        assert!(found[0].evidence.iter().any(|line| line.contains("also takes the interrupts of vdb")));
        assert_eq!(found[0].numbers["interrupt_per_cpu_percent"].round(), 75.0);
    }

    #[test]
    fn doubt_or_no_count_withholds_it() {
        let mut lossy = case(8_000, 1);
        lossy.latency.devices[0].lost_ios = 10_000;
        assert!(find(&lossy.summaries()).is_empty());
        let mut off = case(8_000, 1);
        let bracket = crate::analyze::counting::Bracket { min: 110_000, max: 110_000 };
        off.interrupts.as_mut().unwrap().vectors[0].kernel = Some(bracket);
        assert!(find(&off.summaries()).is_empty());
        let mut blind = case(8_000, 1);
        blind.interrupts = None;
        assert!(find(&blind.summaries()).is_empty());
        let mut untimed = case(8_000, 1);
        untimed.interrupts.as_mut().unwrap().vectors[0].handler = hist(99, 8_000, 8_000);
        assert!(find(&untimed.summaries()).is_empty());
        untimed.interrupts.as_mut().unwrap().vectors[0].handler = hist(100, 8_000, 8_000);
        assert_eq!(find(&untimed.summaries()).len(), 1);
    }

    #[test]
    fn a_large_complete_stage_has_a_finding_of_its_own() {
        use crate::analyze::stage::Stage;
        use crate::rules::diagnose;
        let mut case = case(8_000, 1);
        case.stage(Stage::Device, 100_000, 20_000);
        case.stage(Stage::Complete, 200_000, 1_000);
        let ids: Vec<&str> = diagnose(&case.summaries()).findings.iter().map(|found| found.id).collect();
        assert!(ids.contains(&"complete-cpu-bound") && !ids.contains(&RULE.id), "{ids:?}");
    }

    #[test]
    fn where_all_cpus_take_part_nothing_is_promised() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 50_000)], 14_500, 1);
        case.interrupt(42, &[(0, 50_000)], 14_000, 1);
        let found = find(&case.summaries());
        assert_eq!((found.len(), found[0].worth.is_none()), (1, true), "one finding for a device");
        assert!(found[0].advice.contains("all CPUs take some already"), "{}", found[0].advice);
    }
}
