//! Finding: the device is the limit.

use std::collections::BTreeMap;

use super::command;
use super::cpu;
use super::facts::{self, DeviceView, percent};
use super::interrupts::{self, LIMIT, PILED_UP, Punctuality};
use super::links;
use super::numbers;
use super::{Rule, Summaries, regime};
use crate::analyze::stage::Stage;
use crate::experiment::{self, Arm, Regime};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{bytes, count, in_percent, time};

/// Device share of an I/O's time. Without the rest, the rate at the same depth would grow by at most 1 / 0.75 = 1.33.
pub const DEVICE_SHARE: f64 = 0.75;

/// Same for operations of another process's load: the device has more of their time than all other stages together.
pub const OF_OPERATION: f64 = 0.5;

/// At least this share of the offered depth must be in the device; otherwise something before it delays the I/Os.
pub const DEPTH_SHARE: f64 = 0.5;

/// Factor on the confidence if the effect of more depth is unknown and tags are free.
const UNTRIED: f64 = 0.75;

/// Factor on the confidence if twice the depth gained a little.
const NEAR: f64 = 0.7;

const DEVICE_MEAN_NS: Number = Number::new("device_mean_ns", "mean of the device stage");
const DEVICE_OF_OPERATION_PERCENT: Number =
    Number::new("device_of_operation_percent", "device stage's share of the operation");

/// Factor on the confidence if half the depth gave more: the saturated resource may be above the device.
const OVERLOADED: f64 = 0.5;

pub const RULE: Rule = Rule { id: "device-bound", page: PAGE, find };

const PAGE: &str = "\
The device itself is the bottleneck.

How it is computed
  - With biopsy's own load, the depth is halved and doubled after the run, in 6 blocks of up to
    150 ms each. If twice the depth gives less than 5 % more IOPS, something is full: the device, if
    no warning names a limit above it. From 5 to 25 % (to 50 % if the interval reaches below 25 %)
    it is near its limit: confidence x 0.7. Above that see queue-depth-too-low. If half the depth
    gives over 5 % more IOPS, something above the device may be full: confidence x 0.5.
  - If the depth was not varied: the device is full (80 % of its tags in use on average); or its
    stage has at least 75 % of an I/O's time (and, with biopsy's own load and no splits, of the
    operation's), the depth is more than 4 and at least 50 % of it is in the device. Without
    biopsy's own load: more than 4 I/Os are in the device, it has at least 50 % of the operations'
    time, and its median is at least 2 times the fastest I/O. queue-depth-too-low must not hold, and
    the rate must not have followed the I/Os in flight; if these did not vary: confidence x 0.75.
  In both cases all of these must hold:
  - no link above it is known to be full (see link-bound);
  - no CPU is saturated (see submit-cpu-bound, generator-bound);
  - the host is in time: hard and soft interrupts take less than 70 % of each completing CPU, and
    the median completions per interrupt are below 8 (see interrupt-bound, complete-cpu-bound).
  Interrupts of a CPU are counted and multiplied by the mean handler time. Softirqs are known in
  total only and assumed to be spread the same way. Without counts, the profile's sum over all CPUs
  is used: below 70 % of one CPU it holds for each; else it is divided by the queues with I/O.
  The confidence falls if these are estimates or unknown, and if other work keeps all CPUs busy for
  95 %. A loop device, which needs those CPUs, is not named then.
  From: experiment; latency.devices[].ops.*.request_stages; devices[].queues[].tags; load.latency;
  interrupts.vectors; the profile's classes.

When it is wrong
  - A drive that coalesces interrupts has many completions in each while the host is in time:
    nothing is found. On virtio the hypervisor batches them, and their number does not count.
  - The device stage contains the link, the controller and, in a virtual machine, the host below. A
    cloud volume's limit looks the same. On other drivers than NVMe it contains interrupt delivery.
  - If the median is below 2 times the fastest I/O, more depth may help.
  - The stage of a stack contains its lower devices. If one of them is found too and holds at least
    half as many I/Os, it is named instead.

What to do
  Compare with the data sheet at this block size and depth. Use another device, a cache, or fewer or
  larger I/Os. At twice the depth the rate must not rise.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    if cpu::saturation(s).is_some() {
        return Vec::new();
    }
    let mut pictures = facts::device_views(s);
    if s.load.is_some() {
        let mut lower: Vec<String> = pictures.iter().flat_map(|p| facts::below(s, &p.device.name)).collect();
        lower.retain(|name| pictures.iter().all(|p| p.device.name != *name));
        pictures.extend(
            s.latency.devices.iter().filter(|d| lower.contains(&d.name)).map(|d| facts::device_view(s, d)),
        );
    }
    let judged: Vec<(&DeviceView<'_>, Finding)> =
        pictures.iter().filter_map(|p| judge(s, p).map(|finding| (p, finding))).collect();
    let keep = |p: &DeviceView<'_>| {
        let below = facts::below(s, &p.device.name);
        !judged.iter().any(|(other, _)| below.contains(&other.device.name) && explains(other, p))
    };
    let kept: Vec<bool> = judged.iter().map(|(p, _)| keep(p)).collect();
    judged.into_iter().zip(kept).filter(|(_, keep)| *keep).map(|((_, finding), _)| finding).collect()
}

/// Whether most of the upper device's time is the lower one's.
fn explains(lower: &DeviceView<'_>, upper: &DeviceView<'_>) -> bool {
    lower.in_device().unwrap_or(0.0) * 2.0 >= upper.in_device().unwrap_or(0.0)
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let share = p.share(Stage::Device)?;
    let in_device = p.in_device()?;
    let full = facts::full(p);
    let whole = match s.load {
        Some(_) => facts::operation_share(s, p).is_none_or(|own| own >= DEVICE_SHARE),
        // The I/Os do not wait for each other: more of them would get more.
        None => {
            of_operation(p).is_none_or(|own| own >= OF_OPERATION)
                && p.median_to_minimum().is_none_or(|crowding| crowding >= facts::QUEUEING_RATIO)
        }
    };
    let depth = facts::depth(s, p);
    let deep = depth.map_or(in_device > facts::SHALLOW, |depth| {
        depth > facts::SHALLOW && in_device >= depth * DEPTH_SHARE
    });
    let is_limit = match regime::regime(s) {
        Some(Regime::Saturated | Regime::NearTheKnee) => true,
        Some(Regime::LatencyBound) => false,
        // A higher depth gave more.
        None if matches!(regime::observed(s, p), Some((Regime::LatencyBound, _))) => full,
        None => full || share >= DEVICE_SHARE && whole && deep,
    };
    if !p.sound(s)
        || !is_limit
        || links::limits(s, &p.device.name)
        || interrupts::late(s, p).is_some()
        || p.is_loop() && cpu::nothing_left(s).is_some()
    {
        return None;
    }
    Some(finding(s, p, share, in_device, full))
}

/// The device stage's share of the operations; None if most I/Os belong to none.
fn of_operation(p: &DeviceView<'_>) -> Option<f64> {
    let (stages, of_operations) = p.largest_stages();
    stages.into_iter().find(|(stage, _)| of_operations && *stage == Stage::Device).map(|(_, share)| share)
}

fn finding(s: &Summaries<'_>, p: &DeviceView<'_>, share: f64, in_device: f64, full: bool) -> Finding {
    let name = &p.device.name;
    let queue = p.share(Stage::Queue).unwrap_or(0.0);
    let mut confidence = 0.95;
    let mut evidence = vec![format!(
        "the device held {in_device:.1} I/Os on average and finished {} a second ({}/s)",
        count(p.rate().round() as u64),
        bytes(p.bytes as f64 * 1e9 / p.duration_ns.max(1) as f64)
    )];
    let mut numbers = BTreeMap::from([
        (numbers::DEVICE_SHARE_PERCENT, percent(share)),
        (numbers::IN_DEVICE_IOS, in_device),
        (numbers::IOS_PER_SECOND, p.rate()),
    ]);
    if p.stages.contains_key(&Stage::Queue) {
        numbers.insert(numbers::QUEUE_SHARE_PERCENT, percent(queue));
    }
    if let Some(hist) = p.stages.get(&Stage::Device) {
        let p99 = hist.quantile(0.99);
        numbers.insert(DEVICE_MEAN_NS, hist.mean().unwrap_or(0.0));
        numbers.extend(p99.map(|ns| (numbers::DEVICE_P99_NS, ns as f64)));
        evidence.push(format!(
            "device stage: mean {}, 99th percentile {}",
            time(hist.mean().unwrap_or(0.0) as u64),
            p99.map_or("-".to_string(), time)
        ));
    }
    if let Some(own) = facts::operation_share(s, p) {
        numbers.insert(DEVICE_OF_OPERATION_PERCENT, percent(own));
        evidence.push(format!(
            "the device stage is {} of the latency that the generator measured",
            in_percent(own)
        ));
    } else if let Some(own) = of_operation(p) {
        numbers.insert(DEVICE_OF_OPERATION_PERCENT, percent(own));
    }
    if let Some(tags) = p.tags() {
        numbers.insert(numbers::TAGS, f64::from(tags));
    }
    if let Some(crowding) = p.median_to_minimum() {
        numbers.insert(numbers::DEVICE_P50_TO_MIN_RATIO, crowding);
        if crowding < facts::QUEUEING_RATIO && !full && s.experiment.is_none() {
            confidence *= 0.7;
            evidence.push(format!(
                "the median is only {crowding:.1} times the fastest I/O: more depth may still help"
            ));
        }
    }
    if let Some(workers) = cpu::workers(s) {
        numbers.insert(numbers::WORKER_CPU_PERCENT, percent(workers.busy));
        evidence.push(format!("the workers use {} of their CPUs", in_percent(workers.busy)));
    }
    match regime::observed(s, p) {
        Some((_, line)) => evidence.push(line),
        None if s.load.is_none() && !full => {
            confidence *= UNTRIED;
            evidence.push(regime::UNTRIED.to_string());
        }
        None => {}
    }
    confidence *= host_on_time(s, p, &mut numbers, &mut evidence);
    let tried = regime::regime(s).zip(regime::line(s));
    let overloaded = s
        .experiment
        .and_then(|curve| curve.rate(Arm::HalfTheDepth))
        .filter(|half| half.low > 1.0 + experiment::SATURATED);
    let sentence = if let Some(half) = &overloaded {
        confidence *= OVERLOADED;
        format!("{name} is faster with fewer I/Os in flight: half the depth gave {}.", half.change("IOPS"))
    } else if let Some((Regime::NearTheKnee, line)) = &tried {
        confidence *= NEAR;
        format!("{name} is near its limit: {line}.")
    } else if let Some((_, line)) = &tried {
        format!("{name} is the bottleneck: {line}, and nothing above it is full.")
    } else if full && queue > share {
        format!(
            "{name} is the bottleneck: {in_device:.0} of its {} tags are in use, and I/Os spend {} of their time in \
             the queue.",
            p.tags().unwrap_or(0),
            in_percent(queue)
        )
    } else {
        let (share, of_what) = match of_operation(p) {
            Some(own) => (own, "operation"),
            None => (share, "I/O"),
        };
        format!(
            "{name} is the bottleneck: {} of each {of_what}'s time is spent in the device.",
            in_percent(share)
        )
    };
    let mut finding = Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence,
        sentence,
        numbers,
        evidence,
        advice: if p.is_loop() {
            "Look at the disk below its file, and at the loop driver's thread: with losetup --direct-io=on it reads past \
             the page cache."
        } else if overloaded.is_some() {
            "Submit fewer I/Os at once; check what more of them cost (CPU, workers, requeues)."
        } else {
            "Compare with the data sheet for this block size and depth. Below it, check the link, the temperature and, \
                 in a virtual machine, the host. At it, only a faster device or less I/O helps."
        }
        .to_string(),
        check: match s.load {
            Some(load) if tried.is_none() => command::compare_depth(load),
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => command::latency_by_second(name),
        },
        worth: None,
    };
    regime::support(s, &mut finding);
    finding
}

/// What is known about delays of the host's completions, as evidence, and the factor on the confidence.
fn host_on_time(
    s: &Summaries<'_>,
    p: &DeviceView<'_>,
    numbers: &mut Numbers,
    evidence: &mut Vec<String>,
) -> f64 {
    let name = &p.device.name;
    let mut factor = 1.0;
    match interrupts::counted(s, name).and_then(|counted| counted.median(None)) {
        None => {
            factor *= 0.85;
            evidence.push("the completions per interrupt were not measured".to_string());
        }
        Some(median) => {
            numbers.insert(numbers::COMPLETIONS_PER_INTERRUPT_P50_RATIO, median as f64);
            evidence.push(format!("median completions per interrupt: {median}"));
            if median >= PILED_UP && interrupts::collected(s, name) {
                factor *= 0.85;
                evidence
                    .push("the hypervisor batches them, so they are not a sign of a slow CPU".to_string());
            }
        }
    }
    match (interrupts::punctuality(s, name), interrupts::per_cpu(s, p)) {
        (Some(Punctuality::OnTime { completer, sure }), by_profile) => {
            numbers.insert(numbers::INTERRUPT_PER_CPU_PERCENT, percent(completer.busy()));
            evidence.push(format!("{}, the busiest of its completing CPUs", completer.line()));
            if !sure {
                factor *= 0.6;
                evidence
                    .push("the softirqs per CPU were not measured: one CPU may be overloaded".to_string());
            }
            // The profile is not limited to the traced devices.
            if let Some((all, each)) = by_profile.filter(|(_, each)| *each >= LIMIT) {
                factor *= 0.8;
                evidence.push(format!(
                    "interrupts use {} of one CPU in total, about {} of each completing CPU",
                    in_percent(all),
                    in_percent(each)
                ));
            }
        }
        (_, None) => {
            factor *= 0.85;
            evidence.push("no profile: interrupt time is not measured".to_string());
        }
        (_, Some((all, each))) => {
            numbers.insert(numbers::INTERRUPT_CPU_PERCENT, percent(all));
            if all < LIMIT {
                evidence.push(format!(
                    "interrupts use {} of one CPU in total, so no CPU delays completions",
                    in_percent(all)
                ));
            } else {
                factor *= 0.6;
                evidence.push(format!(
                    "interrupts use {} of one CPU in total, about {} of each completing CPU",
                    in_percent(all),
                    in_percent(each)
                ));
            }
        }
    }
    if let Some(busy) = cpu::nothing_left(s) {
        factor *= 0.6;
        evidence.push(format!("all CPUs together are {} busy, mostly with other work", in_percent(busy)));
        evidence.extend(cpu::busiest_line(s));
    }
    if let Some(note) = cpu::profile(s).and_then(|profile| profile.sampler_note.as_ref()) {
        factor *= 0.9;
        evidence.push(note.clone());
    }
    factor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::DeviceLatency;
    use crate::analyze::operations::OperationLatency;
    use crate::analyze::stacks::CpuClass;
    use crate::host::BlockDevice;
    use crate::rules::fixtures::{Case, hist, profile};

    #[test]
    fn a_virtio_disk_at_depth_32_with_95_percent_in_the_device() {
        let found = find(&Case::new(15_000, 32).summaries());
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "vda"));
        assert!((found[0].numbers["device_share_percent"] - 95.0).abs() < 0.1);
        assert!((found[0].numbers["in_device_ios"] - 30.4).abs() < 0.1);
        assert!(found[0].confidence > 0.8 && found[0].worth.is_none());
    }

    #[test]
    fn the_share_has_two_sides() {
        let mut case = Case::new(15_000, 32);
        case.loaded().lat = crate::rules::fixtures::hist(15_000, 2_000_000, 2_000_000);
        case.stage(Stage::Device, 1_510_000, 300_000);
        case.stage(Stage::Queue, 490_000, 100_000);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Device, 1_490_000, 300_000);
        case.stage(Stage::Queue, 510_000, 100_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn time_outside_the_block_layer_counts_too() {
        let mut case = Case::new(15_000, 32);
        let whole = crate::rules::fixtures::hist(15_000, 4_000_000, 1_000_000);
        case.loaded().lat = whole;
        assert!(find(&case.summaries()).is_empty(), "half of the operation's time is elsewhere");
    }

    #[test]
    fn a_full_device_makes_the_queue_wait() {
        let mut case = Case::new(15_000, 256);
        case.disk().queues[0].tags = 64;
        case.disk().scheduler = Some("mq-deadline".into());
        case.stage(Stage::Device, 4_000_000, 300_000);
        case.stage(Stage::Queue, 13_000_000, 100_000);
        let found = find(&case.summaries());
        assert!(found[0].sentence.contains("60 of its 64 tags"), "{}", found[0].sentence);
        case.stage(Stage::Device, 3_400_000, 300_000); // 51.0 of 64: below 80 %
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn a_device_that_does_more_with_fewer_ios_is_doubted() {
        let mut case = Case::new(15_000, 32);
        case.at_twice_the_depth(1.0);
        let sure = find(&case.summaries())[0].confidence;
        case.at_twice_the_depth(0.7);
        let found = find(&case.summaries());
        assert!(
            found[0].sentence.starts_with("vda is faster with fewer I/Os in flight: half the depth gave +2")
        );
        assert!((found[0].confidence - sure * OVERLOADED).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn a_late_host_is_not_the_device() {
        let mut case = Case::new(15_000, 32);
        case.profile = Some(profile(&[(CpuClass::Softirq, 349)]));
        let sure = find(&case.summaries())[0].confidence;
        case.profile = Some(profile(&[(CpuClass::Softirq, 350)]));
        assert!(find(&case.summaries()).is_empty(), "70 % of the one completing CPU");
        let second = case.latency.devices[0].queues[0].clone();
        case.latency.devices[0].queues.push(second);
        let spread = find(&case.summaries())[0].confidence;
        assert!(spread < sure, "two queues: about 35 % each, but that is not known");
        case.profile = None;
        assert!(find(&case.summaries())[0].confidence < sure);
    }

    #[test]
    fn counted_interrupts_are_heard_before_the_profile() {
        let mut case = Case::new(15_000, 32);
        case.profile = Some(profile(&[(CpuClass::Softirq, 200)]));
        let guessed = find(&case.summaries())[0].confidence;
        case.interrupt(41, &[(1, 15_000)], 46_000, 1); // 69 % of CPU 1
        let known = find(&case.summaries()).remove(0);
        assert!(known.confidence > guessed, "{known:?}");
        assert!((known.numbers["interrupt_per_cpu_percent"] - 69.0).abs() < 0.1, "{:?}", known.numbers);
        assert!(!known.numbers.contains_key("interrupt_cpu_percent"));
        // For all interrupts together the profile gives more: others may run on the same CPU.
        case.profile = Some(profile(&[(CpuClass::Softirq, 350)]));
        assert!(find(&case.summaries())[0].confidence < known.confidence);
        case.interrupts = None;
        case.interrupt(41, &[(1, 15_000)], 47_000, 1);
        case.profile = Some(profile(&[(CpuClass::Softirq, 10)]));
        assert!(find(&case.summaries()).is_empty(), "70.5 % of CPU 1, which the profile does not see");
        assert!(interrupts::late(&case.summaries(), &facts::device_views(&case.summaries())[0]).is_some());
    }

    #[test]
    fn completions_that_pile_up_are_not_the_devices_time() {
        let mut case = Case::new(15_000, 32);
        case.interrupt(41, &[(1, 2_142)], 10_000, 7);
        assert_eq!(find(&case.summaries())[0].numbers["completions_per_interrupt_p50_ratio"], 7.0);
        case.interrupts = None;
        case.interrupt(41, &[(1, 1_875)], 10_000, 8);
        let by_hypervisor = find(&case.summaries());
        assert!(by_hypervisor[0].evidence.iter().any(|line| line.contains("the hypervisor batches them")));
        case.disk().driver = Some("nvme".into());
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn a_saturated_worker_or_a_shallow_queue_is_not_the_device() {
        let mut case = Case::new(15_000, 32);
        case.worker(20, 75);
        assert!(find(&case.summaries()).is_empty());
        assert!(find(&Case::new(15_000, 4).summaries()).is_empty());
        assert_eq!(find(&Case::new(15_000, 5).summaries()).len(), 1);
    }

    #[test]
    fn others_on_the_cpus_cast_doubt() {
        let mut case = Case::new(15_000, 32);
        case.profile = Some(profile(&[(CpuClass::User, 949)]));
        let sure = find(&case.summaries())[0].confidence;
        case.profile = Some(profile(&[(CpuClass::User, 950)]));
        assert!(find(&case.summaries())[0].confidence < sure);
        case.disk().driver = Some("loop".into());
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn the_lowest_device_of_a_stack_is_named() {
        let mut case = Case::new(15_000, 32);
        let mut lower: DeviceLatency = case.latency.devices[0].clone();
        lower.name = "sdb".into();
        case.latency.devices[0].layers = vec!["sdb".into()];
        case.latency.devices.push(lower);
        let found = find(&case.summaries());
        assert_eq!(found.iter().map(|f| f.subject.as_str()).collect::<Vec<_>>(), ["sdb"]);
    }

    /// Without a queue stage the device has all of the traced time, so the operation is the reference.
    #[test]
    fn the_only_path_of_a_multipath_drive_carries_its_operations() {
        let mut case = Case::new(15_000, 32);
        case.load.as_mut().unwrap().device = Some("nvme0n1".into());
        case.host.devices.push(BlockDevice {
            name: "nvme0n1".into(),
            layers: vec!["vda".into()],
            ..BlockDevice::default()
        });
        case.read().request_stages.remove(&Stage::Queue);
        let s = case.summaries();
        let share = facts::operation_share(&s, &facts::device_views(&s)[0]).unwrap();
        assert!((share - 0.95).abs() < 0.001, "{share}");
        let found = find(&s);
        assert_eq!(found[0].subject, "vda");
        assert!(!found[0].numbers.contains_key("queue_share_percent"), "{:?}", found[0].numbers);
        case.host.devices.pop();
        let s = case.summaries();
        assert!(facts::device_views(&s).is_empty(), "nothing says that it lies on vda");
    }

    #[test]
    fn doubt_withholds_it() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices[0].lost_ios = 1_000;
        case.envelope.lost.ios = 1_000;
        assert_eq!(find(&case.summaries()).len(), 1, "0.99 % lost");
        case.envelope.lost.ios = 1_020;
        assert!(find(&case.summaries()).is_empty());
        case.envelope.lost.ios = 0;
        case.latency.devices[0].lost_ios = 0;
        case.latency.devices[0].negative = 1;
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn without_a_load_the_mean_in_flight_decides() {
        let mut case = Case::new(15_000, 32);
        case.load = None;
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Device, 266_000, 50_000); // 15,000 x 266 µs = 3.99 in the device
        case.stage(Stage::Queue, 10_000, 1_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn without_a_load_ios_must_wait_for_each_other_and_have_most_of_the_operations_time() {
        let mut case = Case::new(15_000, 32);
        case.load = None;
        let ios = case.read().ios;
        let device = case.read().request_stages[&Stage::Device].sum() / ios;
        let of = |whole: u64| OperationLatency {
            operations: ios,
            total: hist(ios, whole, whole),
            stages: BTreeMap::from([(Stage::Device, hist(ios, device, device))]),
            ..OperationLatency::default()
        };
        case.read().unowned = Some(0);
        case.read().operations = Some(of(device * 2));
        let found = find(&case.summaries());
        assert!(found[0].sentence.contains("50 % of each operation's time"), "{}", found[0].sentence);
        case.read().operations = Some(of(device * 21 / 10));
        assert!(find(&case.summaries()).is_empty(), "less than half of the operations' time");
        case.read().operations = None;
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Device, device, device * 2 / 3);
        assert!(find(&case.summaries()).is_empty(), "the median is 1.5 times the fastest");
    }
}
