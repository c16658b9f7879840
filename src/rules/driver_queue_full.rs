//! Finding: the driver refuses requests because its own queue is full.

use super::command;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{count, in_percent, time};

/// Share of refused requests, of all I/Os, from which on it is a limit.
pub const REFUSED: f64 = 0.05;

const REQUEUES: Number = Number::new("requeues", "requests that the driver gave back before it started them");
const REQUEUED_PERCENT: Number = Number::new("requeued_percent", "requeues, of the I/Os");

pub const RULE: Rule = Rule { id: "driver-queue-full", page: PAGE, find };

const PAGE: &str = "\
The driver refuses requests: its own queue is full.

The block layer has tags left, but the driver gives requests back: a virtio ring without free
descriptors, a SCSI host at its queue depth, a controller that reports busy. Each such request is
requeued and waits until the queue runs again.

How it is computed
  requeued_percent = requests that the driver gave back before it started them / I/Os. Found from
  5 % on, with at least 100 I/Os, if at least 0.5 I/Os are in the block layer and the device on
  average. A request can be refused more than once: it may exceed 100 %.
  From: latency.devices[].requeues, .ios, .ops.*.request_stages.

When it is wrong
  - Drivers also requeue for other reasons: a reset, a failed path, a quiesced queue.
  - A refused request waits in the queue stage, which has other parts too: --detail splits it.

What to do
  - Enlarge the driver's queue (virtio: the queue size of the virtual disk; SCSI: queue_depth).
  - Set /sys/block/DEV/queue/nr_requests below what the driver takes.
  - Large I/Os need more descriptors each: try smaller ones.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let (ios, requeues) = (p.device.ios, p.device.requeues);
    let share = requeues as f64 / ios.max(1) as f64;
    if !p.sound(s) || share < REFUSED || p.in_block_layer().is_none_or(|ios| ios < facts::BUSY) {
        return None;
    }
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let mut evidence = vec![format!("{} requeues for {} I/Os", count(requeues), count(ios))];
    let mut numbers = Numbers::from([(REQUEUES, requeues as f64), (REQUEUED_PERCENT, percent(share))]);
    if let Some((queue, mean)) =
        p.share(Stage::Queue).zip(p.stages.get(&Stage::Queue).and_then(|stage| stage.mean()))
    {
        numbers.insert(numbers::QUEUE_SHARE_PERCENT, percent(queue));
        evidence.push(format!(
            "the queue stage takes {} of an I/O ({})",
            in_percent(queue),
            time(mean as u64)
        ));
    }
    evidence.extend(facts::queue_parts_line(p));
    if let (Some(held), Some(tags)) = (p.in_device(), p.tags()) {
        evidence.push(format!("{held:.1} I/Os are in the device on average, of {tags} tags"));
    }
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: 0.75,
        sentence: format!(
            "The driver's queue of {name} is full: it refused {:.0} requests per 100 I/Os.",
            percent(share)
        ),
        numbers,
        evidence,
        advice: format!(
            "Enlarge the driver's queue (virtio: queue size; SCSI: queue_depth), or set \
             /sys/block/{disk}/queue/nr_requests below what it takes."
        ),
        check: command::latency(name),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    #[test]
    fn refused_requests_are_a_limit_from_a_twentieth_on() {
        let mut case = Case::new(10_000, 32);
        case.latency.devices[0].requeues = 499;
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].requeues = 9_200;
        let found = find(&case.summaries());
        assert_eq!(found[0].subject, "vda");
        assert!(found[0].sentence.contains("it refused 92 requests per 100 I/Os"), "{}", found[0].sentence);
        assert_eq!(found[0].numbers["requeues"], 9_200.0);
        // There can be more refusals than I/Os.
        case.latency.devices[0].requeues = 25_000;
        assert_eq!(find(&case.summaries())[0].numbers["requeued_percent"], 250.0);
        case.latency.devices[0].negative = 1;
        assert!(find(&case.summaries()).is_empty(), "its counts cannot be trusted");
    }
}
