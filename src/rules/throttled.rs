//! Finding: a cgroup's limit, or write-back throttling, delays the I/O.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::latency::OpLatency;
use crate::analyze::op::Op;
use crate::analyze::parts::Part;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity};
use crate::hist::Histogram;
use crate::host::Throttle;
use crate::merge::SaturatingSum as _;
use crate::units::{bytes, count, in_percent, time};

/// A rate this close to a limit is at it: the kernel admits I/O in time slices, so the mean of a few seconds is not
/// exact.
pub const NEAR: f64 = 0.10;

/// This share of the operations' time must be spent in blk-throttle or, if only our own load shows it, outside the
/// device. At a limit that the load happens to match, nothing waits.
pub const HELD_SHARE: f64 = 0.25;

/// Share of the I/Os that blk-throttle delayed and that belong to no operation: it delays none below a limit. Of a
/// buffered reader always at a limit of 100 a second it delayed 80 of 400, and passed the others at once.
pub const HELD_IOS: f64 = 0.1;

/// Share of the writes' time in the queue stage from which on write-back throttling is named.
pub const WRITEBACK_SHARE: f64 = 0.5;

const READS: &str = "reads";
const WRITES: &str = "writes";

const HELD_IOS_PERCENT: Number = Number::new("held_ios_percent", "throttled I/Os without operation");
const HELD_PERCENT: Number = Number::new("held_percent", "share of the operation outside the device");
const LIMIT_BYTES_PER_SECOND: Number = Number::new("limit_bytes_per_second", "limit of bytes per second");
const LIMIT_IOS_PER_SECOND: Number = Number::new("limit_ios_per_second", "limit of I/Os per second");
const MEASURED_BYTES_PER_SECOND: Number = Number::new("measured_bytes_per_second", "bytes per second");
const RATE_TO_LIMIT_RATIO: Number = Number::new("rate_to_limit_ratio", "rate / limit");
const WRITE_QUEUE_MEAN_NS: Number = Number::new("write_queue_mean_ns", "mean of the queue stage of writes");
const WRITE_QUEUE_SHARE_PERCENT: Number =
    Number::new("write_queue_share_percent", "queue stage's share of writes");
const WRITEBACK_THROTTLE_NS: Number = Number::new("writeback_throttle_ns", "target of write-back throttling");

pub const RULE: Rule = Rule { id: "throttled", page: PAGE, find };

const PAGE: &str = "\
A cgroup limit or write-back throttling slows the I/O.

How it is computed
  Cgroup limits of the device are read at the start; with biopsy's own load, only those that apply
  to biopsy. Found in one of three ways:
  - Operations wait in blk-throttle. It delays a bio before the first event of the block layer: the
    wait is in the queue stage of the operation, but in no stage of its I/Os. held_percent = (queue
    stages of the operations - queue stages of their I/Os) / total times of the operations; with
    --detail, the throttle part. Found from 25 % on, at any rate, if it is at least half of the
    operations' queue time. Confidence 0.9.
  - The rate (I/Os or bytes a second, reads or writes) is within 10 % of a limit. With biopsy's own
    load, held_percent = 1 - device times / latencies of the generator must be at least 25 %
    (confidence 0.9). Without it: 0.7 if the queue stage has 25 % of their time, else 0.5.
  - Without biopsy's own load, blk-throttle delays 10 % of the I/Os or more that belong to no
    operation (buffered reads, write-back; held_ios_percent), at any rate. Confidence 0.8.
  Write-back throttling (queue/wbt_lat_usec above 0) is a note with confidence 0.3: if, without
  biopsy's own load, 100 writes or more spend at least 50 % of their time in the queue stage, no
  cgroup limit explains it, no scheduler is active and the device is not full (see device-bound).
  From: devices[].limits, .writeback_throttle_us; load.latency; latency.devices[].ops.*.ios, .bytes,
  .stages, .request_stages.

When it is wrong
  - Without biopsy's own load, a rate near a limit may be chance: it contains the I/O of all
    processes. Of several limits the nearest is named, which may be another cgroup's.
  - How long I/O without an operation (write-back, read-ahead) waits is not measured. With -p and
    --comm it is left out: choose it by --cgroup.
  - A limit covers a cgroup and those below it, and counts bios: splits and merges shift the rate.
  - Limits that change during the run, or lie outside a container, are missed. io.latency and
    io.cost are not examined.
  - Writers that wait in balance_dirty_pages or in reclaim: see device-bound and direct-reclaim.
  - The limit of a cloud volume or a hypervisor is not the kernel's: it looks like device-bound.

What to do
  Raise the limit: echo 'MAJ:MIN riops=max rbps=max' > io.max in the named cgroup (v1:
  blkio.throttle.*_device). Write-back: echo 0 > /sys/block/DEV/queue/wbt_lat_usec; compare the
  reads.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| by_cgroup(s, p).or_else(|| by_writeback(s, p))).collect()
}

/// A limit with the measured rate, in the same unit.
struct ReachedLimit<'a> {
    throttle: &'a Throttle,
    /// `reads`, and the format of their rate.
    what: &'static str,
    in_bytes: bool,
    limit: f64,
    rate: f64,
}

impl ReachedLimit<'_> {
    /// Distance of the rate from the limit: equal for twice and half as much.
    fn off(&self) -> f64 {
        (self.rate / self.limit).ln().abs()
    }

    fn show(&self, rate: f64) -> String {
        if self.in_bytes {
            format!("{}/s", bytes(rate))
        } else {
            format!("{} I/Os/s", count(rate.round() as u64))
        }
    }
}

/// The evidence that a limit delays the I/O.
enum ThrottleEvidence {
    /// The operations' own share of time in blk-throttle.
    Held(f64),
    /// A rate at the limit and, with our own load, the operations' share of time outside the device.
    Rate(Option<f64>),
    /// The share of the I/Os that were delayed and belong to no operation.
    HeldIos(f64),
}

fn by_cgroup(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    if !p.sound(s) {
        return None;
    }
    let (reached, shown) = held_at(s, p).or_else(|| held_ios_at(s, p)).or_else(|| rate_at(s, p))?;
    let queue = p.share(Stage::Queue).unwrap_or(0.0);
    let confidence = match shown {
        ThrottleEvidence::Held(_) => 0.9,
        ThrottleEvidence::HeldIos(_) => 0.8,
        ThrottleEvidence::Rate(Some(share)) if share >= HELD_SHARE => 0.9,
        // Nothing waits: the load requests no more than the limit.
        ThrottleEvidence::Rate(Some(_)) => return None,
        ThrottleEvidence::Rate(None) if queue >= HELD_SHARE => 0.7,
        ThrottleEvidence::Rate(None) => 0.5,
    };
    let name = &p.device.name;
    let ReachedLimit { throttle, what, .. } = reached;
    let mut evidence = vec![format!(
        "the limit of cgroup {} for {what} of {name} is {}; {} were measured",
        throttle.cgroup,
        reached.show(reached.limit),
        reached.show(reached.rate)
    )];
    let mut numbers = BTreeMap::from([
        (RATE_TO_LIMIT_RATIO, reached.rate / reached.limit),
        (numbers::QUEUE_SHARE_PERCENT, percent(queue)),
    ]);
    if reached.in_bytes {
        numbers.insert(LIMIT_BYTES_PER_SECOND, reached.limit);
        numbers.insert(MEASURED_BYTES_PER_SECOND, reached.rate);
    } else {
        numbers.insert(LIMIT_IOS_PER_SECOND, reached.limit);
        numbers.insert(numbers::IOS_PER_SECOND, reached.rate);
    }
    match shown {
        ThrottleEvidence::Held(share) => {
            numbers.insert(HELD_PERCENT, percent(share));
            evidence.push(format!(
                "operations spend {} of their time in blk-throttle, before the block layer sees their I/O",
                in_percent(share)
            ));
        }
        ThrottleEvidence::Rate(Some(share)) => {
            numbers.insert(HELD_PERCENT, percent(share));
            evidence.push(format!("operations spend {} of their time outside the device", in_percent(share)));
        }
        ThrottleEvidence::HeldIos(share) => {
            numbers.insert(HELD_IOS_PERCENT, percent(share));
            evidence.push(format!(
                "blk-throttle throttled {} of the I/Os (buffered reads or write-back); for how long was \
                 not measured",
                in_percent(share)
            ));
        }
        ThrottleEvidence::Rate(None) => evidence.push(
            "the I/O is not biopsy's own: it was not measured whether it comes from that cgroup and waits"
                .to_string(),
        ),
    }
    let allowed = reached.show(reached.limit);
    let sentence = match shown {
        ThrottleEvidence::Held(share) => format!(
            "A limit throttles the I/O of {name} for {} of the operations' time: {} allows {allowed} of \
             {what}.",
            in_percent(share),
            throttle.cgroup
        ),
        ThrottleEvidence::HeldIos(share) => format!(
            "A limit throttles {} of the I/Os of {name}: {} allows {allowed} of {what}.",
            in_percent(share),
            throttle.cgroup
        ),
        ThrottleEvidence::Rate(_) => format!(
            "The I/O of {name} runs at the limit of a cgroup: {} allows {allowed} of {what}, and that is \
             the measured rate.",
            throttle.cgroup
        ),
    };
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence,
        sentence,
        numbers,
        evidence,
        advice: format!(
            "Raise the limit of cgroup {} on {name} (io.max; blkio.throttle.* in cgroup v1), or remove it \
             if it is not intended.",
            throttle.cgroup
        ),
        check: command::latency_by_second(name),
        worth: None,
    })
}

/// A limit of a direction whose operations blk-throttle delayed, at any rate: the interval may be longer than the I/O.
/// Of several, the one nearest to the rate.
fn held_at<'a>(s: &Summaries<'a>, p: &DeviceView<'_>) -> Option<(ReachedLimit<'a>, ThrottleEvidence)> {
    let share = |what| operations_held(p, what == READS).filter(|share| *share >= HELD_SHARE);
    let reached = limits(s, p)
        .into_iter()
        .filter(|reached| share(reached.what).is_some())
        .min_by(|a, b| a.off().total_cmp(&b.off()))?;
    let share = share(reached.what)?;
    Some((reached, ThrottleEvidence::Held(share)))
}

/// The limit nearest to the rate, if blk-throttle delayed I/Os of no operation, at any rate.
fn held_ios_at<'a>(s: &Summaries<'a>, p: &DeviceView<'_>) -> Option<(ReachedLimit<'a>, ThrottleEvidence)> {
    // They are counted per device, for all submitters.
    if s.load.is_some() || !facts::has_all_ios(s, p.device) {
        return None;
    }
    let share = p.device.held_unknown as f64 / p.ios.max(1) as f64;
    let reached = limits(s, p).into_iter().min_by(|a, b| a.off().total_cmp(&b.off()))?;
    (share >= HELD_IOS).then(|| (reached, ThrottleEvidence::HeldIos(share.min(1.0))))
}

/// The limit that the rate matches; of several the nearest.
fn rate_at<'a>(s: &Summaries<'a>, p: &DeviceView<'_>) -> Option<(ReachedLimit<'a>, ThrottleEvidence)> {
    let reached = limits(s, p)
        .into_iter()
        .filter(|reached| (reached.rate / reached.limit - 1.0).abs() <= NEAR)
        .min_by(|a, b| a.off().total_cmp(&b.off()))?;
    Some((reached, ThrottleEvidence::Rate(held_share(s, p))))
}

/// Classes that a limit of reads, or of writes, includes.
fn limited<'a>(p: &DeviceView<'a>, reads: bool) -> impl Iterator<Item = &'a OpLatency> {
    let counts = move |op: Op| (op == Op::Read) == reads && !matches!(op, Op::Flush | Op::Passthrough);
    p.device.ops.iter().filter(move |(op, _)| counts(**op)).map(|(_, of)| of)
}

/// Share of the operations' time in blk-throttle: as a part if split, otherwise the operations' queue time minus that
/// of their I/Os, which begins after the throttle. None unless it is most of their queue stage.
fn operations_held(p: &DeviceView<'_>, reads: bool) -> Option<f64> {
    let (mut held, mut queued, mut total) = (0.0, 0.0, 0.0);
    for of in limited(p, reads) {
        let Some(operations) = &of.operations else { continue };
        let queue = operations.stages.get(&Stage::Queue).map_or(0, Histogram::sum) as f64;
        // Write-back waits in other queues, and longer.
        let of_io = match of.owned_mean_ns(Stage::Queue) {
            None if of.unclassified > 0 => return None,
            mean => mean.unwrap_or(0.0),
        };
        held += if of.parts.is_empty() {
            (queue - of_io * operations.total.count() as f64).max(0.0)
        } else {
            of.part(Stage::Queue, Part::Throttle).map_or(0, Histogram::sum) as f64
        };
        queued += queue;
        total += operations.total.sum() as f64;
    }
    (total > 0.0 && held * 2.0 >= queued).then(|| (held / total).min(1.0))
}

/// The limits of this device, with the measured rates.
fn limits<'a>(s: &Summaries<'a>, p: &DeviceView<'_>) -> Vec<ReachedLimit<'a>> {
    // The interval is longer than our own load, by its start and end on a busy machine.
    let seconds = s.load.map_or(p.duration_ns, |load| load.duration_ns) as f64 / 1e9;
    let rates = |reads: bool| {
        let (ios, all) = (
            limited(p, reads).map(|of| of.ios).saturating_sum(),
            limited(p, reads).map(|of| of.bytes).saturating_sum(),
        );
        (ios as f64 / seconds, all as f64 / seconds)
    };
    let ((read_ios, read_bytes), (write_ios, write_bytes)) = (rates(true), rates(false));
    let of_device =
        s.host.throttles.iter().filter(|t| t.device == p.device.disk_name() && (s.load.is_none() || t.own));
    of_device
        .flat_map(|throttle| {
            [
                (READS, true, throttle.read_bytes_per_second, read_bytes),
                (READS, false, throttle.read_ios_per_second, read_ios),
                (WRITES, true, throttle.write_bytes_per_second, write_bytes),
                (WRITES, false, throttle.write_ios_per_second, write_ios),
            ]
            .into_iter()
            .filter_map(move |(what, in_bytes, limit, rate)| {
                let limit = limit.filter(|limit| *limit > 0)? as f64;
                Some(ReachedLimit { throttle, what, in_bytes, limit, rate })
            })
        })
        .collect()
}

/// The operations' share of time outside the device, by the generator's own latencies; None without a load of our own.
fn held_share(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<f64> {
    let whole = s.load?.latency().sum();
    let device = p.stages.get(&Stage::Device).map_or(0, Histogram::sum);
    (whole > 0).then(|| 1.0 - (device as f64 / whole as f64).min(1.0))
}

fn by_writeback(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let latency_us = p.disk?.writeback_throttle_us.filter(|us| *us > 0)?;
    let writes = p.device.ops.get(&Op::Write)?;
    let sum = |stage| writes.request_stages.get(&stage).map_or(0, Histogram::sum);
    let all = [Stage::Queue, Stage::Device, Stage::Complete].map(sum).iter().saturating_sum();
    let share = sum(Stage::Queue) as f64 / all.max(1) as f64;
    if s.load.is_some()
        || !p.sound(s)
        || writes.ios < facts::MIN_IOS
        || share < WRITEBACK_SHARE
        || p.scheduler().is_some()
        || facts::full(p)
    {
        return None;
    }
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let mean = writes.request_stages.get(&Stage::Queue)?.mean()?;
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Note,
        confidence: 0.3,
        sentence: format!(
            "Write-back throttling may delay writes of {name}: they spend {} of their time before the \
             device, which is not full.",
            in_percent(share)
        ),
        numbers: BTreeMap::from([
            (WRITE_QUEUE_SHARE_PERCENT, percent(share)),
            (WRITE_QUEUE_MEAN_NS, mean),
            (WRITEBACK_THROTTLE_NS, latency_us as f64 * 1e3),
        ]),
        evidence: vec![
            format!(
                "queue/wbt_lat_usec of {name} is {latency_us}: the kernel limits write-back when reads take longer"
            ),
            format!(
                "the queue stage of its {} writes is {} on average",
                count(writes.ios),
                time(mean as u64)
            ),
            "no scheduler is active; it was not measured whether they wait for the throttle".to_string(),
        ],
        advice: format!(
            "echo 0 > /sys/block/{disk}/queue/wbt_lat_usec, and compare the queue stage of writes, and the latency of \
             reads."
        ),
        check: command::latency(name),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::analyze::parts::Parts;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, hist};

    fn limit(ios: u64) -> Throttle {
        Throttle {
            cgroup: "/jobs/db".into(),
            device: "vda".into(),
            own: true,
            read_ios_per_second: Some(ios),
            ..Throttle::default()
        }
    }

    /// A load at depth 4 that gets 200 reads a second of 1 ms each, and waits 19 ms for each.
    fn case() -> Case {
        let mut case = Case::new(200, 4);
        case.stage(Stage::Queue, 10_000, 5_000);
        case.stage(Stage::Device, 1_000_000, 900_000);
        case.host.throttles = vec![limit(200)];
        case
    }

    #[test]
    fn a_load_at_its_cgroups_limit_is_throttled() {
        let found = find(&case().summaries());
        assert_eq!((found.len(), found[0].confidence), (1, 0.9));
        assert!(found[0].sentence.contains("/jobs/db allows 200 I/Os/s of reads"), "{}", found[0].sentence);
        assert!((found[0].numbers["held_percent"] - 95.0).abs() < 0.1, "{:?}", found[0].numbers);
        let mut by_bytes = case();
        by_bytes.host.throttles[0].read_ios_per_second = Some(1_000);
        by_bytes.host.throttles[0].read_bytes_per_second = Some(200 * 4096);
        assert!(find(&by_bytes.summaries())[0].sentence.contains("800 KiB/s"));
    }

    #[test]
    fn the_rate_must_be_at_the_limit() {
        for (limit, found) in [(182, 1), (222, 1), (181, 0), (223, 0), (100_000, 0)] {
            let mut case = case();
            case.host.throttles[0].read_ios_per_second = Some(limit);
            assert_eq!(find(&case.summaries()).len(), found, "limit {limit}");
        }
    }

    #[test]
    fn a_device_that_is_as_slow_as_the_limit_is_not_throttled() {
        let mut case = case();
        case.stage(Stage::Device, 15_100_000, 10_000_000);
        assert!(find(&case.summaries()).is_empty(), "24.5 % outside");
        case.stage(Stage::Device, 14_900_000, 10_000_000);
        assert_eq!(find(&case.summaries()).len(), 1, "25.5 % outside");
    }

    #[test]
    fn the_limit_of_another_cgroup_or_device_does_not_hold_us() {
        let mut other = case();
        other.host.throttles[0].own = false;
        assert!(find(&other.summaries()).is_empty());
        let mut elsewhere = case();
        elsewhere.host.throttles[0].device = "vdb".into();
        assert!(find(&elsewhere.summaries()).is_empty());
        let mut writes = case();
        writes.host.throttles[0] = Throttle { write_ios_per_second: Some(200), ..limit(9_999) };
        assert!(find(&writes.summaries()).is_empty(), "a limit of writes");
    }

    #[test]
    fn the_io_of_others_is_less_sure() {
        let mut case = case();
        case.load = None;
        case.host.throttles[0].own = false;
        assert_eq!(find(&case.summaries())[0].confidence, 0.5);
        case.stage(Stage::Queue, 400_000, 5_000);
        assert_eq!(find(&case.summaries())[0].confidence, 0.7);
    }

    /// A buffered reader: the throttle's worker submits its reads, which belong to no operation.
    #[test]
    fn ios_that_are_held_are_throttled_at_any_rate() {
        let mut case = case();
        case.load = None;
        case.host.throttles[0].read_ios_per_second = Some(230);
        case.latency.devices[0].held_unknown = 19;
        assert!(find(&case.summaries()).is_empty(), "too few");
        case.latency.devices[0].held_unknown = 20;
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].confidence), (RULE.id, 0.8));
        assert_eq!(found[0].numbers["held_ios_percent"], 10.0);
        case.latency.filtered = true;
        assert!(find(&case.summaries()).is_empty(), "those that were held may be others'");
        case.latency.filtered = false;
        case.host.throttles.clear();
        assert!(find(&case.summaries()).is_empty(), "no limit is known");
    }

    /// Another process's reads at a limit of 500 a second, which delays each by 7 ms. The interval is longer than the
    /// reads, so their rate is 380.
    fn watched() -> Case {
        let mut case = Case::new(380, 4);
        case.load = None;
        case.stage(Stage::Queue, 6_000, 2_000);
        case.stage(Stage::Device, 1_000_000, 900_000);
        case.host.throttles = vec![Throttle { own: false, ..limit(500) }];
        case.read().operations = Some(operations(7_006_000));
        case
    }

    fn operations(queue: u64) -> OperationLatency {
        OperationLatency {
            operations: 380,
            stages: BTreeMap::from([
                (Stage::Queue, hist(380, queue, queue)),
                (Stage::Device, hist(380, 1_000_000, 1_000_000)),
            ]),
            total: hist(380, queue + 1_000_000, queue + 1_000_000),
            ..OperationLatency::default()
        }
    }

    #[test]
    fn operations_that_were_held_are_throttled_at_any_rate() {
        let found = find(&watched().summaries());
        assert_eq!((found.len(), found[0].confidence), (1, 0.9));
        assert!((found[0].numbers["held_percent"] - 87.4).abs() < 0.1, "{:?}", found[0].numbers);
        assert!(found[0].sentence.contains("/jobs/db allows 500 I/Os/s of reads"), "{}", found[0].sentence);
        let mut case = watched();
        assert_eq!(crate::rules::diagnose(&case.summaries()).findings[0].id, "throttled");
        case.host.throttles[0].device = "vdb".into();
        assert!(find(&case.summaries()).is_empty(), "no limit on this device");
    }

    #[test]
    fn a_quarter_of_the_operations_time_must_be_held() {
        for (queue, found) in [(350_000, 1), (330_000, 0)] {
            let mut case = watched();
            case.read().operations = Some(operations(queue));
            assert_eq!(find(&case.summaries()).len(), found, "{queue}");
        }
    }

    fn of_queue(part: Part, hist: Histogram) -> Parts {
        BTreeMap::from([(Stage::Queue, BTreeMap::from([(part, hist)]))])
    }

    /// A queue stage of the I/Os themselves comes from a scheduler or the tags.
    #[test]
    fn a_queue_behind_the_throttle_is_not_the_throttles() {
        let mut case = watched();
        case.stage(Stage::Queue, 7_000_000, 6_000_000);
        assert!(find(&case.summaries()).is_empty());
        case.read().parts = of_queue(Part::Throttle, hist(380, 6_000_000, 6_000_000));
        assert_eq!(find(&case.summaries()).len(), 1, "the part itself says more");
        let mut apart = watched();
        apart.read().parts = of_queue(Part::Plug, hist(380, 1_000, 1_000));
        assert!(find(&apart.summaries()).is_empty(), "taken apart, and not held");
    }

    /// The waits of I/Os without an operation do not explain the operations' waits.
    #[test]
    fn the_queue_of_ios_of_no_operation_is_not_the_operations() {
        // 380 reads of operations, which wait 6 µs after the throttle, and 380 of read-ahead, which wait 20 ms.
        let mut case = watched();
        case.read().request_stages.insert(Stage::Queue, hist(760, 10_016_179, 139));
        assert!(find(&case.summaries()).is_empty(), "taken together");
        case.read().unowned_stages.insert(Stage::Queue, hist(380, 20_000_000, 20_000_000));
        let found = find(&case.summaries());
        assert!((found[0].numbers["held_percent"] - 87.4).abs() < 0.1, "{:?}", found[0].numbers);
        // The reverse: the operations' own I/Os wait 7 ms, and read-ahead does not.
        let mut case = watched();
        case.read().request_stages.insert(Stage::Queue, hist(760, 3_507_615, 215));
        case.read().unowned_stages.insert(Stage::Queue, hist(380, 6_000, 6_000));
        assert!(find(&case.summaries()).is_empty(), "nothing is left for the throttle");
    }

    /// The depth is not what keeps a throttled device idle, nor is a lack of I/O.
    #[test]
    fn no_other_rule_blames_something_else() {
        let verdict = |case: &Case| crate::rules::diagnose(&case.summaries()).findings[0].id;
        assert_eq!(verdict(&case()), "throttled");
        let mut unlimited = case();
        unlimited.host.throttles.clear();
        assert_eq!(verdict(&unlimited), "queue-depth-too-low");
        let mut watched = case();
        watched.load = None;
        assert_eq!(verdict(&watched), "throttled");
        watched.host.throttles.clear();
        assert_eq!(verdict(&watched), "not-enough-io");
    }

    #[test]
    fn writeback_throttling_is_a_guess_and_says_so() {
        let mut case = Case::new(1_000, 1);
        case.load = None;
        case.disk().writeback_throttle_us = Some(2_000);
        let times = |ns| hist(1_000, ns, ns);
        let writes = OpLatency {
            ios: 1_000,
            request_stages: BTreeMap::from([(Stage::Queue, times(51_000)), (Stage::Device, times(49_000))]),
            ..OpLatency::default()
        };
        case.latency.devices[0].ops.insert(Op::Write, writes);
        let found = find(&case.summaries());
        assert_eq!((found[0].severity, found[0].confidence), (Severity::Note, 0.3));
        let writes = case.latency.devices[0].ops.get_mut(&Op::Write).unwrap();
        writes.request_stages.insert(Stage::Queue, times(48_000));
        assert!(find(&case.summaries()).is_empty(), "less than half");
        let writes = case.latency.devices[0].ops.get_mut(&Op::Write).unwrap();
        writes.request_stages.insert(Stage::Queue, times(80_000));
        case.disk().scheduler = Some("bfq".into());
        assert!(find(&case.summaries()).is_empty(), "the scheduler may be what they wait for");
        case.disk().scheduler = Some("none".into());
        case.disk().writeback_throttle_us = Some(0);
        assert!(find(&case.summaries()).is_empty(), "it is off");
    }
}
