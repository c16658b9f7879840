//! Finding: I/Os wait for a request or tag, although the device could take more.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{count, in_percent, time};

/// Share of an I/O's time in the queue stage from which on it is examined.
pub const QUEUE_SHARE: f64 = 0.25;

/// Average share of the I/Os in the block layer that must be without a request: below it the figures may not be from
/// the same time.
pub const WAIT_SHARE: f64 = 0.10;

/// All requests are in use if the mean is this close to their number.
pub const IN_USE: f64 = 0.95;

/// Another process's load with this many times the requests in flight, of at most this many requests, is limited by
/// them if they are in use for this share of the time.
pub const IN_A_BATCH: f64 = 4.0;
pub const FEW_REQUESTS: f64 = 32.0;
pub const IN_USE_IN_A_BATCH: f64 = 0.6;

/// One run never predicts more than three doublings.
const MAX_WORTH: f64 = 8.0;

const IN_BLOCK_LAYER_IOS: Number = Number::new("in_block_layer_ios", "I/Os in the block layer");
const NR_REQUESTS: Number = Number::new("nr_requests", "nr_requests");
const PRESENT_IOS: Number = Number::new("present_ios", "I/Os that need a request");
const REQUESTS: Number = Number::new("requests", "requests");
const WAITING_IOS: Number = Number::new("waiting_ios", "I/Os that wait for a request");

pub const RULE: Rule = Rule { id: "tag-starvation", page: PAGE, find };

const PAGE: &str = "\
I/Os wait for a free tag while the device has room.

A queue has a fixed number of requests (tags). If all are in use, the submitter sleeps until one is
free. With nr_requests=4, a device that can work on 64 I/Os at once gets 4.

How it is computed
  in_block_layer_ios = sum of the queue, device and complete stages of all I/Os / interval: the mean
  number of I/Os there (Little's law). Only as many can have a request as the queues in use provide:
  nr_requests per queue with a scheduler; without one, the smaller of nr_requests and the queue's
  tags. waiting_ios is the rest, a lower bound, because times with few I/Os lower the mean.
  A submitter that sleeps for a request also delays its next submissions. So with biopsy's own load,
  and 95 % of the requests in use, the generator's operations in flight replace in_block_layer_ios.
  With another load its operations do, if they are 4 times the requests, and of at most 32 requests
  60 % are in use.
  Found if at least 10 % of the I/Os wait so, and I/Os spend at least 25 % of their time before the
  device. If 80 % of the driver's tags are in use and the median device time is 2 times the fastest
  or more, the device itself is full: see device-bound. Confidence 0.85. The gain is at most the
  ratio of I/Os to requests, that of tags to I/Os in the device where tags are free, and three
  doublings.
  From: latency.devices[].ops.*.request_stages; load.latency; devices[].requests
  (queue/nr_requests), .scheduler, .queues[].tags.

When it is wrong
  - Write-back throttling (queue/wbt_lat_usec), io.latency and io.cost delay I/Os at the same place,
    before they get a request.
  - The settings are read at the start; they may change during the run.
  - If the median device time is 2 times the fastest or more, I/Os also wait for each other in the
    device, and the wait may only move there: confidence 0.65.
  - Tags that several devices of one host adapter share are counted for each.

What to do
  - Double it: echo N > /sys/block/DEV/queue/nr_requests. Without a scheduler it cannot exceed the
    driver's tags, which are a module parameter (nvme: io_queue_depth, virtio_blk: queue_depth).
  - Or submit fewer I/Os at once: what waits here would wait in the application.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let queue = p.share(Stage::Queue)?;
    let requests = p.requests()?;
    let in_device = p.in_device()?;
    let in_layer = p.in_block_layer()?;
    let held_up = in_flight(s, p)
        .filter(|n| *n > in_layer && in_layer >= requests as f64 * IN_USE)
        .or_else(|| held_up_in_a_batch(s, p, requests as f64, in_layer));
    let present = held_up.unwrap_or(in_layer);
    let waiting = present - requests as f64;
    let before = if held_up.is_some() { 1.0 - in_device / present } else { queue };
    let crowded = p.median_to_minimum().is_some_and(|crowding| crowding >= facts::QUEUEING_RATIO);
    // If all tags are in use, and I/Os wait for each other after that, the device is saturated.
    let full = facts::full(p);
    if !p.sound(s) || before < QUEUE_SHARE || waiting < present * WAIT_SHARE || full && crowded {
        return None;
    }
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let mean = p.stages.get(&Stage::Queue)?.mean()?;
    let setting = u64::from(p.disk?.requests?);
    let mut evidence = vec![
        match held_up {
            Some(_) => format!(
                "{present:.1} operations are in flight on average, and at most {} have a request; a \
                 submitter that sleeps for one fetches no results meanwhile",
                count(requests)
            ),
            None => format!(
                "{present:.1} I/Os are in the block layer on average and at most {} have a request: {waiting:.1} wait for \
                 one",
                count(requests)
            ),
        },
        format!(
            "I/Os spend {} of their time ({} on average) in the queue stage",
            in_percent(queue),
            time(mean as u64)
        ),
        match p.tags() {
            Some(tags) => format!("the device holds {in_device:.1} I/Os on average, and has {tags} tags"),
            None => format!("the device holds {in_device:.1} I/Os on average"),
        },
    ];
    evidence.extend(facts::queue_parts_line(p));
    if let Some(scheduler) = p.scheduler() {
        evidence
            .push(format!("with the scheduler {scheduler} the limit is nr_requests, {setting} per queue"));
    }
    if full {
        evidence.push(
            "all tags are in use, and the median device time is close to the fastest: I/Os do not wait in \
             the device"
                .to_string(),
        );
    }
    if crowded {
        evidence
            .push("I/Os wait for each other inside the device too: the wait may only move there".to_string());
    }
    let mut numbers = BTreeMap::from([
        (IN_BLOCK_LAYER_IOS, in_layer),
        (PRESENT_IOS, present),
        (REQUESTS, requests as f64),
        (NR_REQUESTS, setting as f64),
        (WAITING_IOS, waiting),
        (numbers::IN_DEVICE_IOS, in_device),
        (numbers::QUEUE_SHARE_PERCENT, percent(queue)),
        (numbers::QUEUE_MEAN_NS, mean),
        (numbers::IOS_PER_SECOND, p.rate()),
    ]);
    numbers.extend(p.tags().map(|tags| (numbers::TAGS, f64::from(tags))));
    // If all of a device's tags are in use, it is unknown how many I/Os it can work on.
    let room = p.tags().filter(|_| !full).map_or(MAX_WORTH, |tags| f64::from(tags) / in_device.max(1.0));
    let advised = setting.saturating_mul(2);
    let advice = match full {
        true => format!(
            "Give the driver of {disk} more tags (a module parameter), or submit at most {} I/Os at once.",
            count(requests)
        ),
        false => format!(
            "echo {advised} > /sys/block/{disk}/queue/nr_requests, and compare the IOPS and the queue stage."
        ),
    };
    let what = if full { "tag" } else { "request" };
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: if crowded || s.load.is_none() && held_up.is_some() { 0.65 } else { 0.85 },
        sentence: format!(
            "I/Os of {name} wait for a free {what}: it has {}, {present:.0} {} on average, and the device holds only \
             {in_device:.0}.",
            count(requests),
            if held_up.is_some() { "operations are in flight" } else { "I/Os are there" }
        ),
        numbers,
        evidence,
        advice,
        check: match s.load.filter(|_| !full) {
            Some(load) => {
                let [is, advised] = [setting, advised].map(|requests| requests.to_string());
                command::compare_setting(load, disk, "nr_requests", &is, &advised)
            }
            None => command::latency(name),
        },
        worth: Some(Worth {
            metric: "iops_ratio".to_string(),
            low: 1.0,
            high: (present / requests as f64).min(room).clamp(1.0, MAX_WORTH),
        }),
    })
}

/// Average operations that the generator has in flight; None if they are not the device's I/Os.
fn in_flight(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<f64> {
    let load = s.load.filter(|load| load.duration_ns > 0 && load.device.as_ref() == Some(&p.device.name))?;
    let parts = p.ios as f64 / load.operations().max(1) as f64;
    (0.9..1.1).contains(&parts).then(|| load.latency().sum() as f64 / load.duration_ns as f64)
}

/// The in-flight operations of another load, if these are many times the requests. A thread that submits a batch sleeps
/// for a request again and again. Meanwhile it does not fetch completions, so most of its operations wait in `reap`.
/// Requests are free during the pauses until it runs.
fn held_up_in_a_batch(s: &Summaries<'_>, p: &DeviceView<'_>, requests: f64, in_layer: f64) -> Option<f64> {
    let (operations, sum) = p.operations();
    let in_flight = sum as f64 / p.duration_ns.max(1) as f64;
    let is_many = in_flight >= requests * IN_A_BATCH && operations * 2 >= p.ios;
    (s.load.is_none() && requests <= FEW_REQUESTS && is_many && in_layer >= requests * IN_USE_IN_A_BATCH)
        .then_some(in_flight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::fixtures::{Case, hist};

    /// Ten thousand reads a second, mq-deadline with 4 requests on 64 tags: 4 in the device, `waiting` before.
    fn case(waiting: u64) -> Case {
        let mut case = Case::new(10_000, 32);
        case.disk().scheduler = Some("mq-deadline".into());
        case.disk().requests = Some(4);
        case.disk().queues[0].tags = 64;
        case.load = None;
        case.stage(Stage::Device, 390_000, 300_000);
        case.stage(Stage::Queue, waiting * 100_000 + 10_000, 1_000);
        case
    }

    /// Three of four requests are in use, and the thread that submits 64 at a time sleeps for them: most operations
    /// have completed and wait to be fetched.
    #[test]
    fn a_batch_that_waits_for_requests_is_held_up_by_them() {
        let with = |in_flight: u64, queue: u64| {
            let mut case = case(0);
            case.stage(Stage::Device, 240_000, 200_000);
            case.stage(Stage::Queue, queue, 1_000);
            let each = in_flight * 100_000;
            case.read().operations = Some(OperationLatency {
                operations: 10_000,
                total: hist(10_000, each, each),
                stages: BTreeMap::from([(Stage::Reap, hist(10_000, each - 300_000, 1_000))]),
                ..OperationLatency::default()
            });
            case.read().unowned = Some(0);
            find(&case.summaries())
                .first()
                .map(|found| (found.confidence, found.numbers["present_ios"].round()))
        };
        assert_eq!(with(57, 60_000), Some((0.65, 57.0)));
        assert_eq!(with(15, 60_000), None, "less than four times the requests");
    }

    #[test]
    fn four_requests_for_sixteen_threads() {
        let found = find(&case(12).summaries());
        assert_eq!((found.len(), found[0].subject.as_str()), (1, "vda"));
        assert!((found[0].numbers["waiting_ios"] - 12.0).abs() < 0.1, "{:?}", found[0].numbers);
        assert!(found[0].advice.starts_with("echo 8 > /sys/block/vda/queue/nr_requests"));
        assert_eq!(found[0].check, "biopsy latency -d vda --for 5s");
        let ours = Case { load: Case::new(10_000, 16).load, ..case(12) };
        let found = find(&ours.summaries());
        assert_eq!(
            found[0].check,
            "sudo biopsy compare --vary nr_requests=4,8 -- load /dev/vda --iodepth 16"
        );
        assert_eq!(found[0].confidence, 0.85);
        assert!((found[0].worth.as_ref().unwrap().high - 16.0 / 4.0).abs() < 0.01);
    }

    #[test]
    fn the_waiting_share_has_two_sides() {
        let mut case = case(0);
        // At 10,000 a second, 100 µs are one I/O. Of 4.5, 0.5 waiting are above 10 %.
        case.stage(Stage::Device, 300_000, 200_000);
        case.stage(Stage::Queue, 150_000, 1_000);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Queue, 143_000, 1_000);
        assert!(find(&case.summaries()).is_empty(), "0.43 of 4.43");
    }

    #[test]
    fn the_queue_share_has_two_sides() {
        let mut case = case(0);
        case.disk().requests = Some(2);
        case.stage(Stage::Device, 300_000, 200_000);
        case.stage(Stage::Queue, 100_500, 1_000);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Queue, 99_500, 1_000);
        assert!(find(&case.summaries()).is_empty());
    }

    /// A scheduler that holds back requests for a device, with enough requests for all, is not starvation.
    #[test]
    fn a_long_queue_with_requests_to_spare_is_not_starved() {
        let mut case = case(12);
        case.disk().requests = Some(256);
        assert!(find(&case.summaries()).is_empty());
        case.disk().requests = Some(16);
        assert!(find(&case.summaries()).is_empty(), "16 I/Os, 16 requests");
        case.disk().requests = None;
        assert!(find(&case.summaries()).is_empty(), "a limit that is not known is none");
    }

    #[test]
    fn all_tags_in_use_are_a_limit_unless_the_device_is_crowded() {
        let mut case = case(12);
        case.disk().queues[0].tags = 4;
        let found = find(&case.summaries());
        assert!(found[0].sentence.contains("a free tag: it has 4,"), "{}", found[0].sentence);
        assert!(found[0].advice.contains("module parameter"), "{}", found[0].advice);
        assert!((found[0].worth.as_ref().unwrap().high - 4.0).abs() < 0.01);
        case.stage(Stage::Device, 390_000, 190_000);
        assert!(find(&case.summaries()).is_empty(), "I/Os wait for each other in the device");
    }

    #[test]
    fn without_a_scheduler_the_driver_limits_too() {
        let mut case = case(12);
        case.disk().scheduler = Some("none".into());
        case.disk().requests = Some(256);
        case.disk().queues[0].tags = 8;
        assert_eq!(find(&case.summaries())[0].numbers["requests"], 8.0);
        // Each queue has its own.
        let queue = case.latency.devices[0].queues[0].clone();
        case.latency.devices[0].queues.push(crate::analyze::queues::QueueLatency { queue: 1, ..queue });
        let second = crate::host::HardwareQueue { queue: 1, ..case.disk().queues[0].clone() };
        case.disk().queues.push(second);
        assert!(find(&case.summaries()).is_empty(), "16 requests for 16 I/Os");
        case.latency.devices[0].queues.pop();
        assert_eq!(find(&case.summaries()).len(), 1, "the idle queue lends none");
    }

    /// One thread sleeps for a request, and 27 reads of its ring are not even submitted.
    #[test]
    fn a_load_that_sleeps_for_a_request_holds_up_the_rest() {
        let mut case = case(1);
        case.load = Case::new(10_000, 32).load;
        let found = find(&case.summaries());
        assert!((found[0].numbers["waiting_ios"] - 28.0).abs() < 0.1, "{:?}", found[0].numbers);
        assert!(found[0].evidence[0].contains("in flight"));
        case.stage(Stage::Device, 330_000, 300_000);
        case.stage(Stage::Queue, 40_000, 1_000);
        assert!(find(&case.summaries()).is_empty(), "3.7 of 4 requests: the load does not fill them");
        case.stage(Stage::Device, 390_000, 300_000);
        case.disk().requests = Some(30);
        assert!(find(&case.summaries()).is_empty());
        case.disk().requests = Some(4);
        case.loaded().operations = 20_000;
        assert!(find(&case.summaries()).is_empty(), "merged: an operation needs no request of its own");
    }

    #[test]
    fn a_crowded_device_makes_it_less_sure() {
        let mut case = case(12);
        case.stage(Stage::Device, 390_000, 100_000);
        assert_eq!(find(&case.summaries())[0].confidence, 0.65);
        case.latency.devices[0].negative = 1;
        assert!(find(&case.summaries()).is_empty());
    }
}
