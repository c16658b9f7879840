//! Finding: the CPU time of completing I/O is the limit.

use std::collections::BTreeMap;

use super::command;
use super::cpu::{self, Saturation};
use super::facts::{self, DeviceView, percent};
use super::interrupts::{self, LIMIT};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::stacks::CpuClass;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Numbers, Severity, Worth};
use crate::units::{in_percent, time};

/// Share of an operation's (or I/O's) time between the reaping of its completion entry and its result. Without it, the
/// rate at the same depth would grow by 1 / 0.75 = 1.33.
pub const COMPLETE_SHARE: f64 = 0.25;

/// Block I/O must have this share of the interrupt time; otherwise the network or a timer causes it.
pub const IO_SHARE: f64 = 0.5;

/// Maximum number of vectors named.
const LINES: usize = 3;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const COMPLETE_SHARE_PERCENT: Number =
    Number::new("complete_share_percent", "complete stage's share of the operation");
const INTERRUPT_IO_PERCENT: Number =
    Number::new("interrupt_io_percent", "block I/O's share of the interrupts");
const INTERRUPT_NS_PER_IO: Number = Number::new("interrupt_ns_per_io", "interrupt time per I/O");

pub const RULE: Rule = Rule { id: "complete-cpu-bound", page: PAGE, find };

const PAGE: &str = "\
The CPU that completes the I/Os is the bottleneck.

Completions are processed where their interrupt goes. One CPU can process only so many a second; the
others wait in the complete stage and, behind it, in the device stage.

How it is computed
  Found if all of these hold:
  - the complete stage has at least 25 % of the operations' time, or of the I/Os' if operations were
    not traced;
  - hard and soft interrupts take at least 70 % of a completing CPU, by counts (see interrupt-bound;
    confidence 0.85), or by the profile. The profile gives the sum over all CPUs, which is divided
    by the queues with I/O; at least 50 % of the interrupt time must then be in functions of the
    block layer and its drivers. Confidence 0.85 with one queue, 0.6 with several;
  - the load's workers and the loop driver's thread are not saturated: the complete stage also
    contains waiting for a busy worker (see submit-cpu-bound).
  The gain is at most that of a complete stage of zero, and at most one doubling.
  From: latency.devices[].ops.*.stages.complete, .request_stages.complete; interrupts.vectors; the
  profile's classes irq and softirq and its stacks.

When it is wrong
  - By the profile, with several queues, one CPU may take most interrupts: only the mean is known.
  - The device stage ends when the NVMe driver reaps the completion. Completions that wait for the
    interrupt are in the device stage: the share is a lower bound.
  - Other drivers have a complete stage only for io_uring, from the end of the request on.
  - A cpu-clock profile misses code that runs with interrupts disabled: it finds too little.
  - Without counted interrupts, it needs a profile with kernel function names (CAP_SYSLOG).

What to do
  - Complete on more CPUs: more hardware queues, interrupts on separate CPUs
    (/proc/irq/N/smp_affinity_list), or echo 2 > /sys/block/DEV/queue/rq_affinity, so that each I/O
    completes on the CPU that submitted it.
  - Fewer and larger I/Os; poll queues, if the driver supports them.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let (share, of) = match p.operation_share(Stage::Complete) {
        Some(share) => (share, "operations"),
        None => (p.share(Stage::Complete)?, "I/Os"),
    };
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let held = by_count(s, name).or_else(|| by_profile(s, p))?;
    let waits_for_worker =
        matches!(cpu::saturation(s), Some(Saturation::Workers(_) | Saturation::LoopThread(_)));
    if !p.sound(s) || share < COMPLETE_SHARE || waits_for_worker {
        return None;
    }
    let mut evidence =
        vec![format!("the {of} spend {} of their time in the complete stage", in_percent(share))];
    evidence.extend(held.evidence);
    let mut numbers = held.numbers;
    numbers.extend([
        (COMPLETE_SHARE_PERCENT, percent(share)),
        (numbers::INTERRUPT_PER_CPU_PERCENT, percent(held.each)),
        (numbers::IOS_PER_SECOND, p.rate()),
    ]);
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: held.confidence,
        sentence: format!(
            "The CPU that completes the I/Os of {name} is the bottleneck: interrupts use {} of it, and the \
             {of} wait for it for {} of their time, after the device has answered.",
            in_percent(held.each),
            in_percent(share)
        ),
        numbers,
        evidence,
        advice: format!(
            "Complete on more CPUs: spread the interrupts of {name}'s queues \
             (/proc/irq/N/smp_affinity_list), or echo 2 > /sys/block/{disk}/queue/rq_affinity, and compare \
             the IOPS."
        ),
        check: command::latency(name),
        worth: Some(Worth {
            metric: "iops_ratio".to_string(),
            low: 1.0,
            high: (1.0 / (1.0 - share.min(0.9))).min(MAX_WORTH),
        }),
    })
}

/// Evidence that interrupts take most of a completing CPU.
struct InterruptEvidence {
    each: f64,
    confidence: f64,
    numbers: Numbers,
    evidence: Vec<String>,
}

/// From the interrupts of the traced devices; None where they do not show it.
fn by_count(s: &Summaries<'_>, name: &str) -> Option<InterruptEvidence> {
    let counted = interrupts::counted(s, name)?;
    let one = counted.busiest().filter(|one| one.busy() >= LIMIT)?;
    let evidence = std::iter::once(one.line()).chain(counted.lines(one.cpu, LINES)).collect();
    Some(InterruptEvidence { each: one.busy(), confidence: 0.85, numbers: BTreeMap::new(), evidence })
}

/// From the profile; None where it does not show it.
fn by_profile(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<InterruptEvidence> {
    let (all, each) = interrupts::per_cpu(s, p).filter(|(_, each)| *each >= LIMIT)?;
    let profile = cpu::profile(s)?;
    let ours = cpu::interrupt_io_share(profile).filter(|ours| *ours >= IO_SHARE)?;
    let one = p.active_queues() == 1;
    let per_io = |class| super::class_ns(s, profile, class).unwrap_or(0) as f64 / p.ios.max(1) as f64;
    let interrupt_ns = per_io(CpuClass::Irq) + per_io(CpuClass::Softirq);
    let mut evidence = vec![
        format!(
            "interrupts use {} of one CPU in total: {} of each completing CPU, {} per I/O",
            in_percent(all),
            in_percent(each),
            time(interrupt_ns as u64)
        ),
        format!("{} of the interrupt time is for block I/O", in_percent(ours)),
    ];
    if !one {
        evidence.push(format!(
            "{} queues carried I/O: one of their CPUs may take most interrupts, which was not measured",
            p.active_queues()
        ));
    }
    evidence.extend(profile.sampler_note.clone());
    let noted = if profile.sampler_note.is_some() { 0.9 } else { 1.0 };
    let numbers = BTreeMap::from([
        (numbers::INTERRUPT_CPU_PERCENT, percent(all)),
        (INTERRUPT_IO_PERCENT, percent(ours)),
        (INTERRUPT_NS_PER_IO, interrupt_ns),
    ]);
    Some(InterruptEvidence { each, confidence: noted * if one { 0.85 } else { 0.6 }, numbers, evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::fixtures::{Case, hist, profile};

    /// One queue whose CPU is in softirqs for `softirq` of 500 samples, with `complete` of 100 µs after the device.
    fn case(softirq: u64, complete: u64) -> Case {
        let mut case = Case::new(300_000, 32);
        case.worker(10, 50);
        case.stage(Stage::Queue, 1_000, 500);
        case.stage(Stage::Device, 99_000 - complete, 20_000);
        case.stage(Stage::Complete, complete, 1_000);
        let mut seen = profile(&[(CpuClass::Softirq, softirq), (CpuClass::System, 100)]);
        seen.folded = BTreeMap::from([
            ("swapper/1;handle_softirqs_[k];blk_done_softirq_[k];bio_endio_[k]".into(), softirq),
            ("biopsy;submit_bio_[k]".into(), 100),
        ]);
        case.profile = Some(seen);
        case
    }

    #[test]
    fn a_cpu_full_of_completions_is_the_limit() {
        let found = find(&case(400, 40_000).summaries());
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "vda"));
        assert!((found[0].numbers["complete_share_percent"] - 40.0).abs() < 0.1, "{:?}", found[0].numbers);
        assert!((found[0].numbers["interrupt_per_cpu_percent"] - 80.0).abs() < 0.1);
        assert!(found[0].confidence > 0.8);
        let worth = found[0].worth.as_ref().unwrap();
        assert!((worth.high - 1.0 / 0.6).abs() < 0.01, "{worth:?}");
    }

    #[test]
    fn both_thresholds_have_two_sides() {
        assert_eq!(find(&case(350, 25_100).summaries()).len(), 1);
        assert!(find(&case(349, 25_100).summaries()).is_empty(), "69.8 % of the CPU");
        assert!(find(&case(350, 24_900).summaries()).is_empty(), "24.9 % of the time");
    }

    #[test]
    fn the_operations_time_counts_where_they_are_followed() {
        let mut case = case(400, 1_000);
        assert!(find(&case.summaries()).is_empty());
        let times = |ns| hist(1000, ns, ns);
        case.read().operations = Some(OperationLatency {
            operations: 1000,
            stages: BTreeMap::from([(Stage::Device, times(60_000)), (Stage::Complete, times(40_000))]),
            total: times(100_000),
            ..OperationLatency::default()
        });
        assert!(find(&case.summaries())[0].sentence.contains("the operations wait for it for 40"));
    }

    #[test]
    fn a_result_that_waits_for_a_busy_worker_is_not_the_interrupts_doing() {
        let mut case = case(400, 40_000);
        case.worker(10, 85);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn interrupts_of_the_network_do_not_count() {
        let mut case = case(400, 40_000);
        let folded = &mut case.profile.as_mut().unwrap().folded;
        folded.clear();
        folded.insert("swapper/1;handle_softirqs_[k];net_rx_action_[k]".into(), 201);
        folded.insert("swapper/1;handle_softirqs_[k];blk_done_softirq_[k]".into(), 199);
        assert!(find(&case.summaries()).is_empty());
        folded_io(&mut case, 201);
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    fn folded_io(case: &mut Case, samples: u64) {
        let folded = &mut case.profile.as_mut().unwrap().folded;
        folded.insert("swapper/1;handle_softirqs_[k];blk_done_softirq_[k]".into(), samples);
    }

    #[test]
    fn several_queues_share_the_interrupts_and_nobody_knows_how() {
        let mut case = case(400, 40_000);
        let second = case.latency.devices[0].queues[0].clone();
        case.latency.devices[0].queues.push(second);
        assert!(find(&case.summaries()).is_empty(), "40 % each");
        let mut seen = profile(&[(CpuClass::Softirq, 720)]);
        seen.folded =
            BTreeMap::from([("swapper/1;handle_softirqs_[k];blk_done_softirq_[k]".to_string(), 720)]);
        case.profile = Some(seen);
        assert!(find(&case.summaries())[0].confidence < 0.7);
    }

    #[test]
    fn counted_interrupts_need_no_profile_and_no_guess() {
        let mut case = case(100, 40_000);
        case.profile = None;
        case.interrupt(41, &[(1, 150_000)], 4_700, 1); // 70.5 % of CPU 1
        case.interrupt(42, &[(0, 150_000)], 1_000, 1);
        let found = find(&case.summaries()).remove(0);
        assert!((found.numbers["interrupt_per_cpu_percent"] - 70.5).abs() < 0.1, "{:?}", found.numbers);
        assert!(!found.numbers.contains_key("interrupt_ns_per_io"), "of the profile");
        assert!(
            found.evidence.iter().any(|line| line.contains("interrupt 41 (req.41)")),
            "{:?}",
            found.evidence
        );
        case.interrupts = None;
        case.interrupt(41, &[(1, 150_000)], 4_600, 1);
        assert!(find(&case.summaries()).is_empty(), "69 %");
    }

    #[test]
    fn without_a_profile_or_the_stage_nothing_is_said() {
        let mut blind = case(400, 40_000);
        blind.profile = None;
        assert!(find(&blind.summaries()).is_empty());
        let mut absent = case(400, 40_000);
        absent.read().request_stages.remove(&Stage::Complete);
        assert!(find(&absent.summaries()).is_empty());
        let mut lossy = case(400, 40_000);
        lossy.latency.devices[0].lost_ios = 10_000;
        assert!(find(&lossy.summaries()).is_empty());
    }
}
