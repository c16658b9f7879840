//! Finding: interrupts are a large part of the latency at low depth.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, MIN_IOS, percent};
use super::interrupts::{self, QueueInterrupts};
use super::numbers;
use super::{Rule, Summaries, cpu};
use crate::analyze::op::Op;
use crate::analyze::parts::Part;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::hist::Histogram;
use crate::units::{count, in_percent, time};

/// With fewer I/Os per interrupt, most of them have one of their own.
pub const EACH: f64 = 1.5;

/// The host's share of the latency from which on it is reported: the rate at the same depth could grow by 1 / 0.8 =
/// 1.25.
pub const SHARE: f64 = 0.20;

/// From here on it is more than a note: 1 / 0.6 = 1.67.
pub const MUCH: f64 = 0.40;

/// A device with this share of polled I/Os counts as polled.
pub const POLLED: f64 = 0.10;

/// At most this much of the latency is predicted to disappear, however large the host's part is.
const MOST_GONE: f64 = 0.75;

const COMPLETE_MEAN_NS: Number = Number::new("complete_mean_ns", "mean of the complete stage");
const HANDLER_NS_PER_IO: Number = Number::new("handler_ns_per_io", "interrupt handler time per I/O");
const HOST_PERCENT: Number = Number::new("host_percent", "completion's share of the latency");
const LATENCY_MEAN_NS: Number = Number::new("latency_mean_ns", "mean latency");
const REAP_MEAN_NS: Number = Number::new("reap_mean_ns", "mean of the reap stage");
const WAKE_MEAN_NS: Number = Number::new("wake_mean_ns", "mean of the wake-up");

pub const RULE: Rule = Rule { id: "polling-would-help", page: PAGE, find };

const PAGE: &str = "\
At low depth, polling could save much of the latency.

Each I/O waits for an interrupt and a wake-up.

How it is computed
  Only for NVMe drives and devices with poll queues, if fewer than 10 % of the I/Os are polled and
  the load does not use --hipri. Found if all of these hold:
  - at most 4 I/Os are in the device on average, no CPU is saturated, and not all CPUs are busy;
  - an interrupt completes fewer than 1.5 I/Os, and there are at least 100 interrupts;
  - host_percent is at least 20 %: the larger of the complete stage and the handler time per I/O
    (they overlap), plus the reap stage, of an operation's mean latency. A note, or a warning from
    40 % on.
  Confidence 0.6. If operations were not traced, the stages of I/Os or the generator's latency are
  used without reap: 0.5. Without biopsy's own load 0.4, and only if I/O is under way at least half
  of the time.
  The gain at the same depth, with biopsy's own load: at most complete, handler and reap together,
  and at most 75 % of the latency; at least the wake-up, if --detail measured it, else nothing.
  From: latency.devices[].ops.*.stages (complete, reap), .total; interrupts.vectors[].handler;
  interrupts.devices[].ios_per_interrupt; interrupts.polled; devices[].poll_queues.

When it is wrong
  - A polling thread uses a whole CPU. On shared CPUs, in a virtual machine whose host takes CPUs
    away, or with more threads than CPUs, polling costs more than it saves.
  - The time from the drive's interrupt to the handler is in the device stage and not measured;
    waking a CPU from deep idle adds to it. The gain may be larger.
  - Not all of complete and reap disappears: the result must still reach the application, and reap
    contains the application's work before it checks.
  - A greater depth, if possible, gains more (see queue-depth-too-low).
  - File systems and volumes must support polling; page-cache I/O is not polled.

What to do
  Create poll queues (nvme.poll_queues=N when the module is loaded), then poll: io_uring with
  IORING_SETUP_IOPOLL and O_DIRECT. Compare biopsy load DEV --ioengine io_uring with and without
  --hipri. Else run threads on the CPU that gets the interrupt, and disable deep idle states.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    if s.load.is_some_and(|load| load.job.hipri)
        || cpu::saturation(s).is_some()
        || cpu::nothing_left(s).is_some()
    {
        return Vec::new();
    }
    facts::device_views(s).iter().filter_map(|p| judge(s, p)).collect()
}

/// Mean times of an operation, or of an I/O if operations are not followed.
#[derive(Debug, Clone, Copy, Default)]
struct Means {
    total: f64,
    complete: Option<f64>,
    reap: Option<f64>,
    wake: Option<f64>,
    followed: bool,
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let disk = p.disk?;
    let can = disk.driver.as_deref() == Some("nvme") || disk.poll_queues.is_some_and(|queues| queues > 0);
    let in_device = p.in_device()?;
    let idle = s.load.is_none() && p.in_block_layer()? < facts::BUSY;
    if !can || !p.sound(s) || in_device > facts::SHALLOW || idle {
        return None;
    }
    let counted = interrupts::counted(s, &p.device.name).filter(|counted| counted.interrupts() >= MIN_IOS)?;
    let each = counted.device.ios_per_interrupt.filter(|each| *each < EACH)?;
    if counted.polled() as f64 >= counted.device.ios as f64 * POLLED {
        return None;
    }
    let means = means(s, p).filter(|means| means.total > 0.0)?;
    let handler = counted.handler_ns().map(|(mean, n)| (mean / each.max(1.0), n));
    let handler_ns = handler.map_or(0.0, |(ns, _)| ns);
    let (complete, reap) = (means.complete.unwrap_or(0.0), means.reap.unwrap_or(0.0));
    let share = (complete.max(handler_ns) + reap) / means.total;
    if share < SHARE {
        return None;
    }
    let most = ((complete + handler_ns + reap) / means.total).min(MOST_GONE);
    let least = means.wake.map_or(0.0, |wake| wake.min(reap) / means.total).min(most);
    let mut finding = finding(s, p, &counted, means, handler, share);
    finding.numbers.extend([(numbers::IN_DEVICE_IOS, in_device), (numbers::IOS_PER_INTERRUPT_RATIO, each)]);
    finding.worth = s.load.map(|_| Worth {
        metric: "iops_ratio".to_string(),
        low: 1.0 / (1.0 - least),
        high: 1.0 / (1.0 - most),
    });
    Some(finding)
}

/// None where nothing was timed.
fn means(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Means> {
    let ours = |op: &Op| s.load.is_none() || *op == Op::Read;
    let mut total = Histogram::default();
    let mut stages: BTreeMap<Stage, u64> = BTreeMap::new();
    let mut wake: Option<u64> = None;
    for (_, of) in p.device.ops.iter().filter(|(op, _)| ours(op)) {
        let Some(operations) = &of.operations else { continue };
        total.merge(&operations.total);
        for (stage, hist) in &operations.stages {
            let sum = stages.entry(*stage).or_default();
            *sum = sum.saturating_add(hist.sum());
        }
        if let Some(hist) = of.part(Stage::Reap, Part::Wake) {
            wake = Some(wake.unwrap_or(0).saturating_add(hist.sum()));
        }
    }
    if total.count() >= MIN_IOS {
        let of = |stage| stages.get(&stage).map(|sum| *sum as f64 / total.count() as f64);
        return Some(Means {
            total: total.mean()?,
            complete: of(Stage::Complete),
            reap: of(Stage::Reap),
            wake: wake.map(|sum| sum as f64 / total.count() as f64),
            followed: true,
        });
    }
    let seen = s.load.filter(|_| facts::operation_share(s, p).is_some());
    let of_load = seen.and_then(|load| load.latency().mean());
    let of_stages = (p.ios > 0).then(|| p.stages_ns() as f64 / p.ios as f64)?;
    Some(Means {
        total: of_load.map_or(of_stages, |mean| mean.max(of_stages)),
        complete: p.stages.get(&Stage::Complete).and_then(Histogram::mean),
        ..Means::default()
    })
}

fn finding(
    s: &Summaries<'_>,
    p: &DeviceView<'_>,
    counted: &QueueInterrupts<'_>,
    means: Means,
    handler: Option<(f64, u64)>,
    share: f64,
) -> Finding {
    let name = &p.device.name;
    let mut numbers = BTreeMap::from([(HOST_PERCENT, percent(share)), (LATENCY_MEAN_NS, means.total)]);
    let mut evidence = Vec::new();
    let mut parts = Vec::new();
    let measured = [
        (COMPLETE_MEAN_NS, means.complete, "complete"),
        (REAP_MEAN_NS, means.reap, "reap"),
        (WAKE_MEAN_NS, means.wake, "including wake-up"),
    ];
    for (key, ns, word) in measured {
        if let Some(ns) = ns {
            numbers.insert(key, ns);
            parts.push(format!("{word} {}", time(ns as u64)));
        }
    }
    let whole = if means.followed { "an operation" } else { "an I/O" };
    if !parts.is_empty() {
        evidence.push(format!("of the {} of {whole}: {}", time(means.total as u64), parts.join(", ")));
    }
    if let Some((ns, n)) = handler {
        numbers.insert(HANDLER_NS_PER_IO, ns);
        numbers.insert(numbers::TIMED_INTERRUPTS, n as f64);
        evidence.push(format!(
            "the handler takes {} per I/O (estimated from {} timed interrupts)",
            time(ns as u64),
            count(n)
        ));
    }
    evidence.push(format!(
        "{} interrupts for {} I/Os, and {} polled completions",
        count(counted.interrupts()),
        count(counted.device.ios),
        count(counted.polled())
    ));
    let queues = p.disk.and_then(|disk| disk.poll_queues);
    if let Some(queues) = queues {
        numbers.insert(numbers::POLL_QUEUES, f64::from(queues));
    }
    if s.host.virtualization.is_some() {
        evidence.push("this is a virtual machine: its host may take the polling CPU away".to_string());
    }
    let first = match queues {
        Some(1..) => "It has poll queues already.".to_string(),
        _ => "Give the driver poll queues (nvme.poll_queues=N when the module is loaded).".to_string(),
    };
    let confidence = if means.followed { 0.6 } else { 0.5 };
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MUCH { Severity::Warning } else { Severity::Note },
        confidence: if s.load.is_some() { confidence } else { 0.4 },
        sentence: format!(
            "{} of the {} that {whole} on {name} takes is spent on completion by the host, with nearly one \
             interrupt each: polling could save most of that.",
            in_percent(share),
            time(means.total as u64)
        ),
        numbers,
        evidence,
        advice: format!(
            "{first} Then poll (io_uring with IOPOLL; biopsy load --hipri), and compare latency and CPU \
             time: each polling thread uses a whole CPU."
        ),
        check: match s.load {
            Some(load) => command::compare(load, "polling", "0", "1"),
            None => command::latency(name),
        },
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::interrupts::PollSummary;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::fixtures::{Case, hist};

    /// 50,000 serial reads a second, 20 µs each, with the given times in complete, reap and the handler.
    fn case(complete: u64, reap: u64, handler: u64) -> Case {
        let mut case = Case::new(50_000, 1);
        case.disk().driver = Some("nvme".into());
        case.stage(Stage::Device, 12_000, 9_000);
        let times = |ns| hist(50_000, ns, ns);
        case.read().operations = Some(OperationLatency {
            operations: 50_000,
            stages: BTreeMap::from([
                (Stage::Device, times(20_000 - complete - reap)),
                (Stage::Complete, times(complete)),
                (Stage::Reap, times(reap)),
            ]),
            total: times(20_000),
            ..OperationLatency::default()
        });
        case.interrupt(41, &[(1, 50_000)], handler, 1);
        case
    }

    #[test]
    fn a_fast_drive_at_depth_one_waits_for_interrupts() {
        let found = find(&case(2_000, 3_000, 1_500).summaries());
        assert_eq!((found.len(), found[0].severity, found[0].confidence), (1, Severity::Note, 0.6));
        assert!((found[0].numbers["host_percent"] - 25.0).abs() < 0.1, "{:?}", found[0].numbers);
        assert_eq!(found[0].numbers["handler_ns_per_io"], 1_500.0);
        let worth = found[0].worth.as_ref().unwrap();
        // At most 6.5 of 20 µs; the wake-up was not measured.
        assert!(worth.low == 1.0 && (worth.high - 1.0 / 0.675).abs() < 0.001, "{worth:?}");
        assert!(found[0].check.contains(" --vary polling=0,1 -- load "));
    }

    #[test]
    fn the_handlers_time_and_the_complete_stage_overlap() {
        assert_eq!(find(&case(1_000, 1_000, 3_000).summaries()).len(), 1, "3 + 1 of 20 µs");
        assert!(find(&case(2_990, 1_000, 2_990).summaries()).is_empty());
    }

    #[test]
    fn the_shares_have_two_sides() {
        assert_eq!(find(&case(2_000, 2_000, 0).summaries()).len(), 1);
        assert!(find(&case(1_990, 2_000, 0).summaries()).is_empty());
        assert_eq!(find(&case(4_000, 4_000, 0).summaries())[0].severity, Severity::Warning);
        assert_eq!(find(&case(3_990, 4_000, 0).summaries())[0].severity, Severity::Note);
        let worth = find(&case(10_000, 8_000, 0).summaries()).remove(0).worth.unwrap();
        assert_eq!(worth.high, 4.0, "no more than that is promised");
    }

    #[test]
    fn the_wake_up_is_the_least_that_goes_away() {
        let mut case = case(2_000, 5_000, 1_000);
        let wake = BTreeMap::from([(Part::Wake, hist(50_000, 4_000, 4_000))]);
        case.read().parts = BTreeMap::from([(Stage::Reap, wake)]);
        let worth = find(&case.summaries()).remove(0).worth.unwrap();
        assert!((worth.low - 1.25).abs() < 0.001, "{worth:?}");
    }

    #[test]
    fn interrupts_that_carry_several_and_deep_queues_are_another_matter() {
        let with = |ios_per_interrupt| {
            let mut case = case(3_000, 3_000, 1_000);
            case.interrupts.as_mut().unwrap().devices[0].ios_per_interrupt = Some(ios_per_interrupt);
            find(&case.summaries()).len()
        };
        assert_eq!((with(1.49), with(1.5)), (1, 0));
        let mut case = case(3_000, 3_000, 1_000);
        case.stage(Stage::Device, 80_000, 40_000);
        assert_eq!(find(&case.summaries()).len(), 1, "4 in the device");
        case.stage(Stage::Device, 80_100, 40_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn only_where_the_driver_can_poll_and_does_not() {
        let mut case = case(3_000, 3_000, 1_000);
        case.disk().driver = Some("virtio_blk".into());
        assert!(find(&case.summaries()).is_empty());
        case.disk().poll_queues = Some(0);
        assert!(find(&case.summaries()).is_empty());
        case.disk().poll_queues = Some(1);
        assert!(find(&case.summaries())[0].advice.starts_with("It has poll queues"));
        let polled =
            |completions| PollSummary { devices: vec!["vda".into()], completions, ..Default::default() };
        case.interrupts.as_mut().unwrap().polled = vec![polled(4_999)];
        assert_eq!(find(&case.summaries()).len(), 1);
        case.interrupts.as_mut().unwrap().polled = vec![polled(5_000)];
        assert!(find(&case.summaries()).is_empty());
        case.interrupts.as_mut().unwrap().polled.clear();
        case.load.as_mut().unwrap().job.hipri = true;
        assert!(find(&case.summaries()).is_empty(), "see polling-not-active");
    }

    #[test]
    fn without_operations_the_ios_stages_tell() {
        let mut case = case(3_000, 3_000, 1_000);
        case.read().operations = None;
        assert!(find(&case.summaries()).is_empty(), "only the handler is known: 1 of 20 µs");
        case.stage(Stage::Complete, 4_100, 1_000);
        let found = find(&case.summaries()).remove(0);
        assert_eq!((found.confidence, found.numbers.contains_key("reap_mean_ns")), (0.5, false));
    }

    #[test]
    fn an_application_that_asks_for_little_waits_for_something_else() {
        let mut case = case(3_000, 3_000, 1_000);
        case.load = None;
        let found = find(&case.summaries()).remove(0);
        assert_eq!((found.confidence, found.worth.is_none()), (0.4, true));
        case.stage(Stage::Device, 8_900, 8_000); // with 1 µs in the queue 0.495 of the time
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn doubt_or_no_count_withholds_it() {
        let mut case = case(3_000, 3_000, 1_000);
        case.latency.devices[0].lost_ios = 5_000;
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].lost_ios = 0;
        case.worker(20, 79);
        assert!(find(&case.summaries()).is_empty(), "its CPU has no time to poll");
        case.worker(10, 20);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.interrupts = None;
        assert!(find(&case.summaries()).is_empty());
    }
}
