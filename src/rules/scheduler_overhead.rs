//! Finding: the I/O scheduler uses CPU time that the I/O needs.

use std::collections::BTreeMap;

use super::command;
use super::cpu;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{in_percent, time};

/// Share of an I/O's time in the queue stage from which on the scheduler is examined.
pub const QUEUE_SHARE: f64 = 0.25;

/// Share of the busy CPU time in the scheduler's functions. Below it the gain is at most 1 / 0.9 = 1.11, less than the
/// difference between two runs.
pub const CPU_SHARE: f64 = 0.10;

const SCHEDULER_CPU_PERCENT: Number =
    Number::new("scheduler_cpu_percent", "scheduler's share of the busy CPU time");

pub const RULE: Rule = Rule { id: "scheduler-overhead", page: PAGE, find };

const PAGE: &str = "\
The I/O scheduler uses CPU time that the I/O needs.

A scheduler sorts and delays requests under its own locks. On a device that needs no sorting, such
as an NVMe drive, this only costs CPU time.

How it is computed
  Found if all of these hold:
  - a scheduler other than none is active;
  - the queue stage has at least 25 % of an I/O's time;
  - a CPU is saturated (see submit-cpu-bound);
  - at least 10 % of the profile's busy samples are in the scheduler: frames dd_*, bfq_*, kyber_*,
    blk_mq_sched_*, elv_*, unless a frame of the driver follows;
  - the device is not full (see device-bound).
  A long queue stage alone proves nothing: I/Os also wait there for a busy device or for tags, which
  costs no CPU. Without a profile nothing is found.
  The gain is at most that of a scheduler without CPU time, and at most that of no queue stage; it
  may be nothing, because the work may move elsewhere.
  From: devices[].scheduler; latency.devices[].ops.*.request_stages; the profile's stacks.

When it is wrong
  - The scheduler may be needed: for fairness, for priorities, or for a hard disk.
  - Inlined functions are charged to their callers, so the share is too small.
  - A cpu-clock profile misses code that runs with interrupts disabled.

What to do
  echo none > /sys/block/DEV/queue/scheduler and compare the IOPS.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let scheduler = p.scheduler()?;
    let queue = p.share(Stage::Queue)?;
    let profile = cpu::profile(s)?;
    let share = cpu::elevator_share(profile);
    if !p.sound(s)
        || queue < QUEUE_SHARE
        || share < CPU_SHARE
        || cpu::saturation(s).is_none()
        || facts::full(p)
    {
        return None;
    }
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let mean = p.stages.get(&Stage::Queue)?.mean()?;
    let high = (1.0 / (1.0 - share.min(0.9))).min(1.0 / (1.0 - queue.min(0.9)));
    let mut evidence = vec![
        format!("the scheduler of {name} is {scheduler}"),
        format!("{} of the busy CPU time is spent in its functions", in_percent(share)),
        format!(
            "I/Os spend {} of their time ({} on average) in the queue stage",
            in_percent(queue),
            time(mean as u64)
        ),
    ];
    if let Some(in_device) = p.in_device() {
        evidence.push(format!("the device is not full: it holds {in_device:.1} I/Os on average"));
    }
    evidence.extend(facts::queue_parts_line(p));
    evidence.extend(profile.sampler_note.clone());
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: if profile.sampler_note.is_some() { 0.82 } else { 0.87 },
        sentence: format!(
            "The I/O scheduler {scheduler} of {name} limits the run: it uses {} of the busy CPU time, and \
             no CPU time is left.",
            in_percent(share)
        ),
        numbers: BTreeMap::from([
            (SCHEDULER_CPU_PERCENT, percent(share)),
            (numbers::QUEUE_SHARE_PERCENT, percent(queue)),
            (numbers::QUEUE_MEAN_NS, mean),
            (numbers::IOS_PER_SECOND, p.rate()),
        ]),
        evidence,
        advice: format!(
            "echo none > /sys/block/{disk}/queue/scheduler, and compare the IOPS before and after."
        ),
        check: match s.load {
            Some(load) => command::compare_setting(load, disk, "scheduler", scheduler, "none"),
            None => command::latency(name),
        },
        worth: Some(Worth { metric: "iops_ratio".to_string(), low: 1.0, high }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::stacks::CpuClass;
    use crate::rules::fixtures::{Case, profile};

    /// mq-deadline, queue stage 40 %, a saturated worker, `elevator` of 500 busy samples in dd_*.
    fn case(elevator: u64) -> Case {
        let mut case = Case::new(500_000, 32);
        case.disk().scheduler = Some("mq-deadline".into());
        case.worker(15, 83);
        case.stage(Stage::Queue, 24_000, 1_000);
        case.stage(Stage::Device, 36_000, 9_000);
        let mut profile = profile(&[(CpuClass::System, 450), (CpuClass::User, 50)]);
        profile.folded = BTreeMap::from([
            (
                "biopsy;blk_mq_submit_bio_[k];dd_insert_requests_[k];native_queued_spin_lock_slowpath_[k]"
                    .into(),
                elevator,
            ),
            (
                "biopsy;__blk_mq_sched_dispatch_requests_[k];blk_mq_dispatch_rq_list_[k];virtio_queue_rq_[k]"
                    .into(),
                100,
            ),
            ("dd_user;dd_work;main".into(), 100),
            ("biopsy;submit_bio_[k]".into(), 300 - elevator),
        ]);
        case.profile = Some(profile);
        case
    }

    #[test]
    fn mq_deadline_on_a_busy_cpu_is_found() {
        let found = find(&case(200).summaries());
        assert_eq!(found[0].numbers["scheduler_cpu_percent"], 40.0);
        let worth = found[0].worth.as_ref().unwrap();
        assert!(worth.high > 1.6 && worth.high < 1.7, "{worth:?}");
    }

    #[test]
    fn the_cpu_share_has_two_sides_and_driver_work_is_not_the_schedulers() {
        assert_eq!(find(&case(50).summaries()).len(), 1);
        assert!(find(&case(49).summaries()).is_empty());
    }

    #[test]
    fn the_queue_share_has_two_sides() {
        let mut case = case(200);
        case.stage(Stage::Device, 71_900, 9_000);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.stage(Stage::Device, 72_200, 9_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn waiting_for_a_busy_device_is_not_the_scheduler() {
        let mut idle = case(200);
        idle.worker(5, 20);
        assert!(find(&idle.summaries()).is_empty(), "CPU is left");
        let mut full = case(200);
        full.disk().queues[0].tags = 16;
        assert!(find(&full.summaries()).is_empty(), "18 in a device with 16 tags: it is full");
        let mut none = case(200);
        none.disk().scheduler = Some("none".into());
        assert!(find(&none.summaries()).is_empty());
        let mut blind = case(200);
        blind.profile = None;
        assert!(find(&blind.summaries()).is_empty(), "without a profile nothing tells the two apart");
    }
}
