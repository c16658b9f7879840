//! Reports stages that a run could have had but did not measure.

use super::latency::{DeviceLatency, LatencySummary};
use super::op::Op;
use super::operations::OperationLatency;
use super::stage::Stage;
use crate::envelope::{Missing, Reason};
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;

/// Stages that the devices of this run could have had but lack, with the reason.
pub fn stages(summary: &LatencySummary) -> Vec<Missing> {
    let unfetched = |device: &&DeviceLatency| {
        let mut all = device.ops.values().filter_map(|op| op.operations.as_ref()).peekable();
        all.peek().is_some() && all.all(|operations| !operations.stages.contains_key(&Stage::Reap))
    };
    let of_device = |device: &DeviceLatency| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Reap.name().to_string()),
        reason: Reason::Polled,
        why: "no system call fetched the results: the application reads its ring without one (it polls, or \
             waits by poll or an eventfd), and no event marks when"
            .to_string(),
        ..Missing::default()
    };
    let polled = summary.devices.iter().filter(unfetched).map(of_device);
    let others = |device| {
        [
            missing_submit(device),
            missing_queue(device),
            missing_parts(device),
            missing_flush(device),
            missing_held(device),
        ]
    };
    let unchecked =
        summary.devices.iter().filter(|device| device.kernel.is_none() && !summary.filtered).map(unchecked);
    polled.chain(unchecked).chain(summary.devices.iter().flat_map(others).flatten()).collect()
}

/// The count cannot be compared with the kernel's.
fn unchecked(device: &DeviceLatency) -> Missing {
    Missing {
        device: Some(device.name.clone()),
        part: Some("kernel_ios".to_string()),
        reason: Reason::NotCounted,
        why: "the count was not checked: the kernel's counters are off (queue/iostats), not readable, or \
            count passthrough commands as reads and writes"
            .to_string(),
        ..Missing::default()
    }
}

/// The drive has no write that is durable when it completes (FUA), so the kernel flushes after it.
fn missing_flush(device: &DeviceLatency) -> Option<Missing> {
    (device.flushed > 0).then(|| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Complete.name().to_string()),
        part: Some("flush".to_string()),
        reason: Reason::Flushed,
        why: format!(
            "{} writes waited for a flush after their data, as the drive cannot write through its cache: \
             that wait is in no stage of these I/Os, but in complete of operations with one I/O; the flushes \
             count as flush",
            device.flushed
        ),
        ..Missing::default()
    })
}

/// The submission of a blocking system call that was throttled is not observed, and neither is that of io_submit.
fn missing_submit(device: &DeviceLatency) -> Option<Missing> {
    let without = |all: &OperationLatency| {
        all.total.count() - all.stages.get(&Stage::Submit).map_or(0, Histogram::count).min(all.total.count())
    };
    let held: u64 = device.ops.values().filter_map(|op| op.operations.as_ref()).map(without).saturating_sum();
    (held > 0).then(|| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Submit.name().to_string()),
        reason: Reason::Throttled,
        included_in: Some(Stage::Queue.name().to_string()),
        why: format!(
            "blk-throttle throttled {held} operations of waiting system calls or libaio before their first \
             event: their queue stage begins at the system call"
        ),
        ..Missing::default()
    })
}

/// Their submitter, and how long they were throttled, is unknown.
fn missing_held(device: &DeviceLatency) -> Option<Missing> {
    (device.held_unknown > 0).then(|| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Queue.name().to_string()),
        part: Some("throttle".to_string()),
        reason: Reason::Throttled,
        why: format!(
            "blk-throttle throttled {} bios without an operation (buffered reads, write-back): the wait is \
             in no stage; they count for a kernel worker, so -p and --comm leave them out",
            device.held_unknown
        ),
        ..Missing::default()
    })
}

/// A command of the driver itself is first observed when the driver takes it.
fn missing_queue(device: &DeviceLatency) -> Option<Missing> {
    let followed = device.ops.get(&Op::Passthrough)?.operations.as_ref()?;
    (followed.stages.get(&Stage::Queue).map_or(0, Histogram::count) < followed.total.count()).then(|| {
        Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Queue.name().to_string()),
        reason: Reason::NoEvent,
        included_in: Some(Stage::Submit.name().to_string()),
        why: "no event marks when a passthrough command enters the block layer: its submit stage ends when \
            the driver takes it"
            .to_string(),
        ..Missing::default()
    }
    })
}

/// Queue stages without parts.
fn missing_parts(device: &DeviceLatency) -> Option<Missing> {
    let [ios, operations] = device
        .ops
        .values()
        .fold([0u64, 0], |sum, op| [0, 1].map(|unit: usize| sum[unit].saturating_add(op.undivided[unit])));
    (ios > 0 || operations > 0).then(|| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Queue.name().to_string()),
        part: Some("detail".to_string()),
        reason: Reason::NoEvent,
        why: format!(
            "the queue stage of {ios} I/Os and {operations} operations is not split: they waited for \
             another request's flush, or the event of their request's allocation was lost"
        ),
        ..Missing::default()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::fixtures::{reading, sample};
    use super::super::latency::{OpLatency, summarize};
    use super::stages as stages_of;
    use super::*;
    use crate::host::Host;

    #[test]
    fn commands_without_a_queue_are_named() {
        let with = |stages: &[Stage]| {
            let hist: Histogram = [7].into_iter().collect();
            let stages = stages.iter().map(|stage| (*stage, hist.clone())).collect();
            let operations = OperationLatency { operations: 1, stages, total: hist, ..Default::default() };
            let op = OpLatency { operations: Some(operations), ..OpLatency::default() };
            let device =
                DeviceLatency { ops: BTreeMap::from([(Op::Passthrough, op)]), ..DeviceLatency::default() };
            stages_of(&LatencySummary { devices: vec![device], filtered: true, ..LatencySummary::default() })
        };
        let found = with(&[Stage::Submit, Stage::Device, Stage::Reap]);
        let [queue] = &found[..] else { panic!("{found:?}") };
        assert_eq!((queue.stage.as_deref(), queue.included_in.as_deref()), (Some("queue"), Some("submit")));
        assert_eq!(with(&[Stage::Submit, Stage::Queue, Stage::Device, Stage::Reap]), []);
    }

    #[test]
    fn what_the_throttle_held_and_nobody_owns_is_named() {
        let mut last = sample(&[], 0, 0);
        last.counters.held_unknown = 152;
        let found = stages(&summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, last)));
        let [held] = &found[..] else { panic!("{found:?}") };
        assert_eq!((held.part.as_deref(), held.reason), (Some("throttle"), Reason::Throttled));
        assert!(held.why.contains("throttled 152 bios"), "{}", held.why);
    }

    #[test]
    fn a_count_without_a_check_is_named() {
        let summary = LatencySummary { devices: vec![DeviceLatency::default()], ..LatencySummary::default() };
        let found = stages(&summary);
        assert_eq!(found.iter().map(|m| m.part.as_deref()).collect::<Vec<_>>(), [Some("kernel_ios")]);
        assert_eq!(stages(&LatencySummary { filtered: true, ..summary }), [], "there it is said of all");
    }

    #[test]
    fn queues_without_parts_are_named() {
        let with = |undivided| {
            let op = OpLatency { undivided, ..OpLatency::default() };
            let ops = BTreeMap::from([(Op::Read, op.clone()), (Op::Write, op)]);
            let device = DeviceLatency { ops, ..DeviceLatency::default() };
            stages_of(&LatencySummary { devices: vec![device], filtered: true, ..LatencySummary::default() })
        };
        assert_eq!(with([0, 0]), []);
        let found = with([1, 2]);
        let [parts] = &found[..] else { panic!("{found:?}") };
        assert_eq!((parts.stage.as_deref(), parts.part.as_deref()), (Some("queue"), Some("detail")));
        assert!(parts.why.starts_with("the queue stage of 2 I/Os and 4 operations"), "{}", parts.why);
    }

    #[test]
    fn writes_that_waited_for_a_flush_are_named() {
        let mut last = sample(&[], 0, 0);
        last.rows[1].stages[1] = [100, 200].into_iter().collect();
        let missing =
            |last| stages(&summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, last)));
        assert_eq!(missing(last.clone()), []);
        last.rows[1].flushed = 2;
        let two = missing(last);
        let [flush] = &two[..] else { panic!("{two:?}") };
        assert_eq!((flush.stage.as_deref(), flush.part.as_deref()), (Some("complete"), Some("flush")));
        assert!(flush.why.starts_with("2 writes waited"), "{}", flush.why);
    }
}
