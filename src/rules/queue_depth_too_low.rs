//! Finding: the device waits for work.

use std::collections::BTreeMap;

use super::command;
use super::cpu;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries, regime};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::experiment::{Arm, Regime};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{count, counted, in_percent, time};

/// Up to here the depth is suspected if the latency shows that I/Os do not wait inside the device.
pub const MODERATE: f64 = 16.0;

/// The device stage must have this share; otherwise the time is lost elsewhere.
pub const DEVICE_SHARE: f64 = 0.5;

/// A worker above this has too little CPU time left: the gain would be below 1 / 0.7 = 1.43.
pub const WORKER_IDLE: f64 = 0.70;

/// Range of the average operations in flight that means one at any time: the caller's work between two, and the start
/// of a command, take the rest. fio that starts for 0.3 of 3.3 seconds has 0.89.
const ONE: std::ops::RangeInclusive<f64> = 0.8..=1.05;

/// One measured depth never predicts more than three doublings.
pub const MAX_WORTH: f64 = 8.0;

const DEPTH_OPERATIONS: Number = Number::new("depth_operations", "queue depth");
const IN_FLIGHT_OPERATIONS: Number = Number::new("in_flight_operations", "operations in flight");

pub const RULE: Rule = Rule { id: "queue-depth-too-low", page: PAGE, find };

const PAGE: &str = "\
Too few I/Os are in flight to use the device fully.

At a fixed depth, rate = depth / latency (Little's law). If the device can work on more I/Os at once
and no CPU is busy, only a greater depth raises the rate.

How it is computed
  - With biopsy's own load, the depth is doubled after the run, in 6 blocks of up to 150 ms each.
    Found if IOPS rise by more than 25 %, or by 50 % if the confidence interval reaches below 25 %.
  - If the depth was not varied: depth = iodepth x numjobs x I/Os per operation. Found if it is at
    most 4, or at most 16 while the median device time is below 2 times the fastest (I/Os do not
    wait for each other in the device); the device stage has at least 50 % of an I/O's time; and the
    workers use less than 70 % of their CPUs on average.
  - Without biopsy's own load, a note with confidence 0.7 if 0.8 to 1.05 operations are in flight on
    average; else with 0.4 if at least 0.5 I/Os are in the block layer and at most 4 in the device,
    the median is below 2 times the fastest, and the device stage has at least 50 %. The note is
    the verdict only if there is no warning.
  In each case no CPU may be saturated (see submit-cpu-bound) and no cgroup limit may throttle the
  I/O (see throttled).
  in_device_ios is exact: the sum of all device times / interval. The gain is
  at least that measured at twice the depth (nothing, if not tried), and at most what three
  doublings, the device's tags and the CPU time that is left allow.
  From: experiment; load.iodepth, .numjobs, .latency, .jobs; latency.devices[].ops.*.request_stages.

When it is wrong
  - A device that serves one I/O at a time (a hard disk) gains little from depth. If the depth was
    not varied, a rotational disk has confidence 0.5 (not in a virtual machine, where disks may
    claim to be rotational).
  - The application may have no more than a depth of 1, such as a database log. A mean of 1 may also
    be rare bursts of many.
  - The fastest I/O may be a hit in a cache of the device or the hypervisor.
  - With large blocks a bandwidth limit is reached at low depth.

What to do
  Double the depth until the rate no longer rises: the knee is the depth to use.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let regime = regime::regime(s);
    if !p.sound(s) || cpu::saturation(s).is_some() {
        return None;
    }
    if s.load.is_none()
        && let Some(finding) = one_by_one(s, p)
    {
        return Some(finding);
    }
    if regime.is_none() && p.share(Stage::Device)? < DEVICE_SHARE {
        return None;
    }
    match regime {
        Some(Regime::LatencyBound) => with_load(s, p).map(|finding| tried(s, p, finding)),
        Some(Regime::Saturated | Regime::NearTheKnee) => None,
        None if s.load.is_some() => with_load(s, p).filter(|_| is_suspected(s, p)),
        // Other processes may keep the device busy, and a removed device has rates that are too low.
        None if !facts::has_all_ios(s, p.device) || p.device.vanished => None,
        None => without_load(p),
    }
}

/// Whether I/Os hardly wait for each other in the device.
fn is_roomy(p: &DeviceView<'_>) -> bool {
    p.median_to_minimum().is_some_and(|crowding| crowding < facts::QUEUEING_RATIO)
}

/// Without an experiment: from the depth and the latency alone.
fn is_suspected(s: &Summaries<'_>, p: &DeviceView<'_>) -> bool {
    let is_shallow =
        facts::depth(s, p).is_some_and(|depth| depth <= facts::SHALLOW || depth <= MODERATE && is_roomy(p));
    is_shallow && cpu::workers(s).is_some_and(|workers| workers.busy < WORKER_IDLE)
}

/// The measured gain of twice the depth overrides the suspicion.
fn tried(s: &Summaries<'_>, p: &DeviceView<'_>, mut finding: Finding) -> Finding {
    let (stages, of_operations) = p.largest_stages();
    let largest = stages.first().filter(|_| of_operations);
    finding.confidence = 0.95;
    finding.sentence = format!("{} could do more: {}.", p.device.name, regime::line(s).unwrap_or_default());
    if let Some((stage, share)) = largest {
        finding.evidence.push(format!(
            "at this depth the largest part of an operation's time is the {} stage ({})",
            stage.name(),
            in_percent(*share)
        ));
    }
    if let (Some(gain), Some(worth)) =
        (s.experiment.and_then(|curve| curve.rate(Arm::TwiceTheDepth)), &mut finding.worth)
    {
        worth.low = gain.low.max(1.0);
        worth.high = worth.high.max(gain.high);
    }
    regime::support(s, &mut finding);
    finding
}

fn with_load(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let load = s.load?;
    let depth = facts::depth(s, p)?;
    let workers = cpu::workers(s)?;
    let roomy = is_roomy(p);
    let in_device = p.in_device()?;
    let offered = u64::from(load.job.iodepth) * u64::from(load.job.numjobs);
    let in_flight = load.latency().sum() as f64 / load.duration_ns.max(1) as f64;
    // A virtual disk reports itself as rotational unless its host says otherwise.
    let rotational = s.host.virtualization.is_none() && p.disk.and_then(|d| d.rotational) == Some(true);
    let mut finding = base(p, in_device);
    finding.sentence = format!(
        "{} could do more: the load keeps only {} in flight. {} of an I/O's time is spent in the device, and the \
         workers use {} of their CPUs.",
        p.device.name,
        counted(offered, "I/O"),
        in_percent(p.share(Stage::Device)?),
        in_percent(workers.busy)
    );
    finding.confidence = match () {
        () if rotational => 0.5,
        () if offered == 1 || roomy => 0.85,
        () => 0.6,
    };
    finding.evidence.insert(
        0,
        format!(
            "Little's law: {} operations/s x {} = {in_flight:.2} in flight, of a depth of {offered}",
            count(load.iops().unwrap_or(0.0).round() as u64),
            time(load.latency().mean().unwrap_or(0.0) as u64),
        ),
    );
    if rotational {
        finding.evidence.push("the disk is rotational: it gains little from depth".to_string());
    }
    finding.numbers.insert(DEPTH_OPERATIONS, offered as f64);
    finding.numbers.insert(IN_FLIGHT_OPERATIONS, in_flight);
    finding.numbers.insert(numbers::WORKER_CPU_PERCENT, percent(workers.busy));
    let room = p.tags().map_or(MAX_WORTH, |tags| f64::from(tags) / depth);
    finding.worth = Some(Worth {
        metric: "iops_ratio".to_string(),
        low: 1.0,
        high: MAX_WORTH.min(1.0 / workers.busy.max(1.0 / MAX_WORTH)).min(room).max(1.0),
    });
    finding.advice = format!("Double the depth ({offered}) until the rate no longer rises.");
    finding.check = command::compare_depth(load);
    Some(finding)
}

/// Another process's load with one operation in flight at any time: its rate is set by the latency.
fn one_by_one(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let (stages, of_operations) = p.largest_stages();
    let &(stage, share) = stages.first().filter(|_| of_operations)?;
    let (operations, total_ns) = p.operations();
    let in_flight = total_ns as f64 / p.duration_ns.max(1) as f64;
    if operations < facts::MIN_IOS || !ONE.contains(&in_flight) || p.device.vanished {
        return None;
    }
    let mut finding = base(p, p.in_device()?);
    finding.severity = Severity::Note;
    finding.confidence = 0.7;
    finding.sentence = format!(
        "The load of {} keeps {in_flight:.2} operations in flight: each takes {}, the largest part in the {} \
         stage ({}).",
        p.device.name,
        time(total_ns / operations),
        stage.name(),
        in_percent(share)
    );
    finding.evidence.insert(0, format!("{} operations in {}", count(operations), time(p.duration_ns)));
    finding.evidence.extend(p.earlier_ios_line().filter(|_| stage == Stage::Submit));
    finding.evidence.extend(regime::observed(s, p).map(|(_, line)| line));
    finding.numbers.insert(IN_FLIGHT_OPERATIONS, in_flight);
    finding.advice = turn_read_ahead_on(p).unwrap_or_else(|| {
        format!(
            "Keep more operations in flight (asynchronous I/O, or more threads); with one in flight, only a \
         shorter {} stage gives more IOPS.",
            stage.name()
        )
    });
    finding.check = command::latency_by_second(&p.device.name);
    Some(finding)
}

fn without_load(p: &DeviceView<'_>) -> Option<Finding> {
    let in_device = p.in_device()?;
    if p.in_block_layer()? < facts::BUSY
        || in_device > facts::SHALLOW
        || p.median_to_minimum()? >= facts::QUEUEING_RATIO
    {
        return None;
    }
    let mut finding = base(p, in_device);
    finding.severity = Severity::Note;
    finding.confidence = 0.4;
    finding.sentence = format!(
        "{} could do more: {in_device:.1} I/Os are in the device on average, and they hardly wait for each other.",
        p.device.name
    );
    finding.advice = turn_read_ahead_on(p).unwrap_or_else(|| {
        "If the application can keep more I/Os in flight, let it, and watch the rate.".to_string()
    });
    finding.check = command::latency_by_second(&p.device.name);
    Some(finding)
}

/// The first advice if buffered reads have no read-ahead.
fn turn_read_ahead_on(p: &DeviceView<'_>) -> Option<String> {
    let disk = p.disk.filter(|disk| disk.read_ahead_bytes == 0 && disk.tells("read_ahead_kb"))?;
    let mostly_reads = p.device.ops.get(&Op::Read).is_some_and(|reads| reads.ios > p.ios / 2);
    mostly_reads.then(|| {
        format!(
            "If the reads are buffered, turn read-ahead on: echo 128 > /sys/block/{}/queue/read_ahead_kb.",
            disk.name
        )
    })
}

fn base(p: &DeviceView<'_>, in_device: f64) -> Finding {
    let mut numbers =
        BTreeMap::from([(numbers::IN_DEVICE_IOS, in_device), (numbers::IOS_PER_SECOND, p.rate())]);
    let mut evidence = vec![format!("the device held {in_device:.2} I/Os on average")];
    if let Some(share) = p.share(Stage::Device) {
        numbers.insert(numbers::DEVICE_SHARE_PERCENT, percent(share));
    }
    if let Some(crowding) = p.median_to_minimum() {
        numbers.insert(numbers::DEVICE_P50_TO_MIN_RATIO, crowding);
        evidence.push(format!("the median device time is {crowding:.1} times the fastest one"));
    }
    Finding {
        id: RULE.id,
        subject: p.device.name.clone(),
        severity: Severity::Warning,
        confidence: 0.0,
        sentence: String::new(),
        numbers,
        evidence,
        advice: String::new(),
        check: String::new(),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, hist};

    #[test]
    fn depth_one_on_a_fast_device_waits_for_work() {
        let mut case = Case::new(12_500, 1);
        case.worker(3, 12);
        let found = find(&case.summaries());
        assert_eq!(found.len(), 1);
        assert!((found[0].numbers["in_flight_operations"] - 1.0).abs() < 0.01);
        let worth = found[0].worth.as_ref().unwrap();
        assert!(worth.low == 1.0 && (worth.high - 1.0 / 0.15).abs() < 1e-6, "{worth:?}");
    }

    #[test]
    fn depth_4_is_shallow_and_5_is_not_when_ios_wait_inside() {
        assert_eq!(find(&Case::new(40_000, 4).summaries()).len(), 1);
        assert!(find(&Case::new(40_000, 5).summaries()).is_empty());
    }

    #[test]
    fn up_to_16_the_latency_decides() {
        let mut case = Case::new(100_000, 16);
        case.stage(Stage::Device, 152_000, 80_000);
        assert_eq!(find(&case.summaries()).len(), 1, "1.9 times the fastest");
        case.stage(Stage::Device, 152_000, 70_000);
        assert!(find(&case.summaries()).is_empty(), "2.2 times the fastest");
        let mut case = Case::new(100_000, 17);
        case.stage(Stage::Device, 152_000, 80_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn a_busy_worker_or_another_stage_is_not_helped_by_depth() {
        let mut case = Case::new(12_500, 1);
        case.worker(10, 59);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.worker(10, 60);
        assert!(find(&case.summaries()).is_empty());
        case.worker(10, 20);
        case.stage(Stage::Queue, 80_000, 40_000);
        assert!(find(&case.summaries()).is_empty(), "most of the time in the queue stage");
    }

    #[test]
    fn a_cut_operation_is_as_deep_as_its_parts() {
        let mut case = Case::new(12_500, 1);
        case.loaded().operations = 12_500 / 8;
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn one_operation_at_a_time_is_the_answer_of_a_load_of_others() {
        let with = |ios, ns: u64| {
            let mut case = Case::new(ios, 1);
            case.load = None;
            // The host takes as long as the device.
            case.stage(Stage::Device, ns / 2, ns / 4);
            case.read().operations = Some(OperationLatency {
                operations: ios,
                total: hist(ios, ns, ns),
                stages: BTreeMap::from([
                    (Stage::Device, hist(ios, ns / 2, ns / 4)),
                    (Stage::Complete, hist(ios, ns / 2, ns / 4)),
                ]),
                ..OperationLatency::default()
            });
            case.read().unowned = Some(0);
            case
        };
        let case = with(9_500, 100_000);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].severity), (RULE.id, Severity::Note), "{found:?}");
        assert!(
            found[0].sentence.contains("keeps 0.95 operations in flight: each takes 100 µs"),
            "{found:?}"
        );
        let is_one = |case: &Case| {
            find(&case.summaries()).iter().any(|one| one.sentence.contains("The load of vda keeps"))
        };
        let advice = |read_ahead_bytes| {
            let mut case = with(9_500, 100_000);
            case.disk().read_ahead_bytes = read_ahead_bytes;
            find(&case.summaries()).remove(0).advice
        };
        assert!(advice(0).contains("turn read-ahead on") && advice(4096).starts_with("Keep more"));
        assert!(is_one(&with(8_900, 100_000)), "a command starts for a tenth of the time");
        assert!(!is_one(&with(7_900, 100_000)), "the load does something else for a fifth of the time");
        assert!(!is_one(&with(10_600, 100_000)), "more than one");
        let mut of_some = with(9_500, 100_000);
        of_some.read().unowned = Some(9_000);
        assert!(!is_one(&of_some), "most I/Os are of no operation");
    }

    #[test]
    fn without_a_load_it_is_only_a_note() {
        let mut case = Case::new(12_500, 1);
        case.load = None;
        case.stage(Stage::Device, 70_000, 50_000);
        let found = find(&case.summaries());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Note, 0.4));
        case.stage(Stage::Device, 50_000, 40_000);
        assert_eq!(find(&case.summaries()).len(), 1, "0.6 in flight is more than not-enough-io takes");
        case.stage(Stage::Device, 33_000, 30_000);
        assert!(find(&case.summaries()).is_empty(), "less than 0.5 in flight is little I/O");
    }
}
