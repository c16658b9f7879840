//! Finding: a load that requests polling is completed by interrupts.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, percent};
use super::interrupts::{self, QueueInterrupts};
use super::numbers;
use super::{Rule, Summaries, neighbours};
use crate::analyze::op::Op;
use crate::findings::{Finding, Number, Severity};
use crate::load::{Engine, LoadSummary};
use crate::merge::SaturatingSum as _;
use crate::units::{count, in_percent};

/// Share of the I/Os from which on it is reported: fewer change a mean by no more than their share, and may belong to
/// other processes.
pub const SOME: f64 = 0.01;

/// From here on the run measures interrupts.
pub const MOST: f64 = 0.50;

const UNPOLLED_IOS: Number = Number::new("unpolled_ios", "I/Os that were not polled");
const UNPOLLED_PERCENT: Number = Number::new("unpolled_percent", "share of the I/Os that were not polled");

pub const RULE: Rule = Rule { id: "polling-not-active", page: PAGE, find };

const PAGE: &str = "\
Polling was requested, but interrupts complete the I/Os.

A driver polls only on queues that were created for it. Without them, interrupts silently complete
synchronous reads, and on older kernels also io_uring operations.

How it is computed
  Only for biopsy's own load with --hipri, if interrupts were counted. unpolled_percent = (I/Os that
  completed in a hard interrupt or softirq - flushes - foreign I/Os) / all I/Os of the device. A
  note from 1 % on, a warning from 50 % on. Confidence 0.95, or 0.7 if foreign I/Os could not be
  counted (see foreign-io).
  From: load.hipri; interrupts.devices[].completed (interrupt, softirq, remote_softirq), .ios;
  devices[].poll_queues.

When it is wrong
  - I/Os of other processes on the same device complete by interrupt. If they could not be counted,
    they are taken for the load's.
  - A driver with threaded interrupt handlers completes I/Os in a thread. That looks like polling,
    and nothing is found.
  - A polled I/O can still complete by interrupt if its request is repeated or a CPU goes offline.
  - Whether other applications request polling is not known.

What to do
  Create poll queues, in one of these ways:
  - nvme.poll_queues=N on the kernel's command line;
  - if no NVMe drive is in use: modprobe -r nvme; modprobe nvme poll_queues=N;
  - write N to /sys/module/nvme/parameters/poll_queues, then unbind and bind the drive in
    /sys/bus/pci/drivers/nvme/;
  - virtio_blk.poll_queues=N for a disk with several queues (Linux 5.19 and newer).
  biopsy devices shows how many poll queues a drive has. Poll with io_uring and O_DIRECT (--ioengine
  io_uring --hipri): since Linux 5.19 synchronous I/O is not polled.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let Some(load) = s.load.filter(|load| load.job.hipri) else { return Vec::new() };
    facts::device_views(s).iter().filter_map(|p| judge(s, load, p)).collect()
}

fn judge(s: &Summaries<'_>, load: &LoadSummary, p: &DeviceView<'_>) -> Option<Finding> {
    if !p.sound(s) {
        return None;
    }
    let counted = interrupts::counted(s, &p.device.name)?;
    let foreign = neighbours::ios(s).filter(|_| load.device.as_ref() == Some(&p.device.name));
    let flushes: u64 = [Op::Flush, Op::EmptyFlush]
        .iter()
        .filter_map(|op| p.device.ops.get(op))
        .map(|of| of.ios)
        .saturating_sum();
    let by_interrupt =
        counted.ended_by_interrupt().saturating_sub(flushes.saturating_add(foreign.unwrap_or(0)));
    let all = counted.device.ios;
    let share = by_interrupt as f64 / all.max(1) as f64;
    (share >= SOME).then(|| finding(load, p, &counted, share, by_interrupt, foreign))
}

fn finding(
    load: &LoadSummary,
    p: &DeviceView<'_>,
    counted: &QueueInterrupts<'_>,
    share: f64,
    by_interrupt: u64,
    foreign: Option<u64>,
) -> Finding {
    let name = &p.device.name;
    let all = counted.device.ios;
    let queues = p.disk.and_then(|disk| disk.poll_queues);
    let mut evidence = vec![format!(
        "of {} I/Os, {} ended in an interrupt or softirq, and {} in a polling task or a thread",
        count(all),
        count(counted.ended_by_interrupt()),
        count(counted.device.completed.task)
    )];
    match foreign {
        Some(0) => {}
        Some(foreign) => evidence.push(format!("{} I/Os of other processes are left out", count(foreign))),
        None => evidence.push("some of them may belong to other processes".to_string()),
    }
    let mut numbers = BTreeMap::from([
        (UNPOLLED_PERCENT, percent(share)),
        (UNPOLLED_IOS, by_interrupt as f64),
        (numbers::DEVICE_IOS, all as f64),
    ]);
    if let Some(queues) = queues {
        numbers.insert(numbers::POLL_QUEUES, f64::from(queues));
        evidence.push(format!("{name} has {queues} poll queues"));
    }
    let module = match p.disk.and_then(|disk| disk.driver.as_deref()) {
        Some("virtio_blk") => "virtio_blk",
        _ => "nvme",
    };
    let advice = match queues {
        Some(1..) if load.job.engine == Engine::Pvsync2 => {
            "Poll with io_uring: since Linux 5.19 synchronous reads and writes are not polled (--ioengine io_uring)."
                .to_string()
        }
        Some(1..) => format!(
            "{name} has poll queues: check what the load reports about --hipri under \"missing\", whether \
             it uses O_DIRECT, and whether the file system and volumes above the drive support polling."
        ),
        _ => format!(
            "Give the driver poll queues: {module}.poll_queues=N on the kernel command line, or as a \
             parameter when the module is reloaded; then biopsy devices must show them."
        ),
    };
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MOST { Severity::Warning } else { Severity::Note },
        confidence: if foreign.is_some() { 0.95 } else { 0.7 },
        sentence: format!(
            "The load requests polling, but interrupts complete {} of the I/Os of {name}: the figures are \
             not those of polling.",
            in_percent(share)
        ),
        numbers,
        evidence,
        advice,
        check: format!("{} --hipri", command::load(load, load.job.iodepth, load.job.numjobs)),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// 100,000 I/Os with polling requested; this many end in interrupts.
    fn case(by_interrupt: u64) -> Case {
        let mut case = Case::new(100_000, 32);
        case.load.as_mut().unwrap().job.hipri = true;
        case.interrupt(41, &[(1, by_interrupt.max(1))], 2_000, 1);
        let device = &mut case.interrupts.as_mut().unwrap().devices[0];
        (device.completed.interrupt, device.completed.task) = (by_interrupt, 100_000 - by_interrupt);
        case
    }

    #[test]
    fn interrupts_under_a_load_that_polls_are_said() {
        let found = find(&case(100_000).summaries());
        assert_eq!((found.len(), found[0].severity, found[0].confidence), (1, Severity::Warning, 0.95));
        assert_eq!(found[0].numbers["unpolled_percent"], 100.0);
        assert!(!found[0].numbers.contains_key("poll_queues"), "nobody knows");
        assert!(found[0].advice.contains("poll_queues=N"), "{}", found[0].advice);
        assert!(found[0].check.ends_with(" --hipri"));
    }

    #[test]
    fn both_shares_have_two_sides() {
        assert!(find(&case(999).summaries()).is_empty());
        assert_eq!(find(&case(1_000).summaries())[0].severity, Severity::Note);
        assert_eq!(find(&case(49_999).summaries())[0].severity, Severity::Note);
        assert_eq!(find(&case(50_000).summaries())[0].severity, Severity::Warning);
    }

    #[test]
    fn nobody_asked_or_nobody_counted() {
        let mut case = case(100_000);
        case.load.as_mut().unwrap().job.hipri = false;
        assert!(find(&case.summaries()).is_empty());
        case.load.as_mut().unwrap().job.hipri = true;
        case.latency.devices[0].lost_ios = 10_000;
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].lost_ios = 0;
        case.interrupts = None;
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn others_do_not_poll_and_are_left_out() {
        let mut case = case(20_000);
        // The load itself has 80,000 of them.
        case.loaded().operations = 80_000;
        assert!(find(&case.summaries()).is_empty());
        case.loaded().operations = 81_000;
        assert_eq!(find(&case.summaries())[0].numbers["unpolled_ios"], 1_000.0);
        case.load.as_mut().unwrap().job.ramp_time = std::time::Duration::from_secs(1);
        assert_eq!(find(&case.summaries())[0].confidence, 0.7, "nobody knows whose they are");
    }

    #[test]
    fn the_advice_is_about_what_is_missing() {
        let mut case = case(100_000);
        case.disk().poll_queues = Some(0);
        assert!(find(&case.summaries())[0].advice.contains("virtio_blk.poll_queues=N"));
        case.disk().driver = Some("nvme".into());
        assert!(find(&case.summaries())[0].advice.contains("nvme.poll_queues=N"));
        case.disk().poll_queues = Some(2);
        assert!(find(&case.summaries())[0].advice.contains("has poll queues"));
        case.load.as_mut().unwrap().job.engine = Engine::Pvsync2;
        assert!(find(&case.summaries())[0].advice.contains("--ioengine io_uring"));
    }
}
