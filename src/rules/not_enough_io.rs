//! Finding: the devices are idle.

use std::collections::BTreeMap;

use super::command;
use super::cpu::BusyThread;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries, cpu};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity};
use crate::units::{bytes, count, counted, in_percent, time};

/// Operations with this share of their time in the queue stage wait for the block layer, however idle the device is.
pub const QUEUE_SHARE: f64 = 0.5;

/// With an operation in flight for this share of the time, its process mostly waits for I/O.
pub const UNDER_WAY: f64 = 0.6;

/// A process that uses this share of a CPU computes, with some I/O.
pub const COMPUTES: f64 = 0.9;

/// From this share on it is a line of evidence.
const SOME_CPU: f64 = 0.25;

const BUSY_PERCENT: Number = Number::new("busy_percent", "busy, at most");
const IO_MEAN_NS: Number = Number::new("io_mean_ns", "mean time of an I/O");
const PROCESS_CPU_PERCENT: Number = Number::new(
    "process_cpu_percent",
    "CPU time of the process, in % of \
    one CPU",
);
const UNDER_WAY_PERCENT: Number = Number::new("under_way_percent", "time with operations under way, at most");

pub const RULE: Rule = Rule { id: "not-enough-io", page: PAGE, find };

const PAGE: &str = "\
Too little I/O: the devices are idle most of the time.

Most of the time passes elsewhere: the application computes, sleeps, or waits for something other
than the block device.

How it is computed
  Only without biopsy's own load. busy_percent is the smaller of two upper bounds of the share of
  time with an I/O: the sum of the stages of all I/Os / interval (I/Os in parallel count twice), and
  the kernel's busy time (io_ticks, %util of iostat), sampled ten times a second. Found if all of
  these hold:
  - it is below 50 % on every traced device (the busiest is named);
  - no CPU is saturated by I/O (see submit-cpu-bound), and throttled is not found;
  - on no traced device do operations spend 50 % or more of their time in the queue stage: these
    wait for the block layer, whatever the reason;
  - an operation is under way for less than 60 % of the time (under_way_percent).
  A process with I/O on a traced device that uses 90 % of a CPU is named as the reason.
  Confidence 0.8, or 0.6 below 100 I/Os. Evidence: under_way_percent = sum of the operations' total
  times / interval.
  From: latency.devices[].ops.*.request_stages, .stages, .total; /sys/block/DEV/stat; the profile.

When it is wrong
  - It is a mean. A burst that keeps the device busy for one second in ten is averaged out and may
    be what hurts. Print the stages each second: biopsy latency -d DEV 1.
  - I/O of devices that are not traced (-d) is not counted.
  - A single thread that alternates between reading and computing waits for the latency of each
    read: a faster device or read-ahead helps it a little.
  - Reads that the page cache answers are no I/O here; they cost CPU time.

What to do
  Find out what the application waits for: states and stacks of its threads (biopsy threads), locks,
  the network. To see what the device can do, drive it: biopsy diagnose DIRECTORY.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let pictures = facts::device_views(s);
    if s.load.is_some()
        || pictures.iter().any(|p| p.ios > 0 && (p.doubt(s).is_some() || p.device.vanished))
        || cpu::saturation(s).is_some()
        || pictures.iter().any(|p| p.operation_share(Stage::Queue).is_some_and(|share| share >= QUEUE_SHARE))
    {
        return Vec::new();
    }
    let busy = |p: &DeviceView<'_>| {
        let ticks =
            s.rates.iter().find(|rates| rates.device == p.device.name).map_or(1.0, |rates| rates.busy);
        p.in_block_layer().unwrap_or(0.0).min(ticks)
    };
    let Some(busiest) = pictures.iter().filter(|p| p.ios > 0).max_by(|a, b| busy(a).total_cmp(&busy(b)))
    else {
        return Vec::new();
    };
    // A device without a device stage cannot be called idle.
    if busy(busiest) >= facts::BUSY || pictures.iter().any(|p| p.ios > 0 && p.in_device().is_none()) {
        return Vec::new();
    }
    // Its process waits for I/O, if not in the block layer.
    if under_way(busiest) >= UNDER_WAY {
        return Vec::new();
    }
    vec![finding(s, busiest, busy(busiest), pictures.iter().filter(|p| p.ios > 0).count())]
}

/// Upper bound of the share of time with an operation in flight; 0 if none is followed.
fn under_way(p: &DeviceView<'_>) -> f64 {
    let (_, sum) = p.operations();
    (sum as f64 / p.duration_ns.max(1) as f64).min(1.0)
}

/// The process with I/O that uses the most CPU time, and that time as a share of one CPU.
fn busiest_process(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<(String, f64)> {
    p.device.processes.as_ref()?;
    let BusyThread { comm, pid, share, .. } = cpu::busiest_of_io(s, cpu::profile(s)?)?;
    Some((format!("{comm} ({pid})"), share))
}

fn finding(s: &Summaries<'_>, p: &DeviceView<'_>, busy: f64, devices: usize) -> Finding {
    let name = &p.device.name;
    let mean = p.stages_ns() / p.ios.max(1);
    let mut evidence = vec![
        format!(
            "{} in {}: {} a second, {}/s, {} each",
            counted(p.ios, "I/O"),
            time(p.duration_ns),
            count(p.rate().round() as u64),
            bytes(p.bytes as f64 * 1e9 / p.duration_ns.max(1) as f64),
            time(mean)
        ),
        format!("an I/O is in the block layer or the device for at most {} of the time", in_percent(busy)),
    ];
    let busiest = busiest_process(s, p);
    if let Some((process, share)) = busiest.as_ref().filter(|(_, share)| (SOME_CPU..COMPUTES).contains(share))
    {
        evidence.insert(0, format!("{process} uses {} of a CPU", in_percent(*share)));
    }
    let under_way = under_way(p);
    if under_way > 0.0 {
        evidence.push(format!(
            "an operation is under way for at most {} of the time, including the host's work before and \
             after",
            in_percent(under_way)
        ));
    }
    if devices > 1 {
        evidence.push(format!("{devices} devices carried I/O, and {name} is the busiest"));
    }
    let mut numbers = BTreeMap::from([
        (BUSY_PERCENT, percent(busy)),
        (numbers::IOS, p.ios as f64),
        (numbers::IOS_PER_SECOND, p.rate()),
        (IO_MEAN_NS, mean as f64),
    ]);
    if under_way > 0.0 {
        numbers.insert(UNDER_WAY_PERCENT, percent(under_way));
    }
    if let Some(profile) = cpu::profile(s) {
        numbers.insert(numbers::MACHINE_BUSY_PERCENT, percent(cpu::machine_busy(profile)));
        evidence.push(format!("all CPUs together are {} busy", in_percent(cpu::machine_busy(profile))));
    }
    let computing = busiest.filter(|(_, share)| *share >= COMPUTES);
    if let Some((_, share)) = computing {
        numbers.insert(PROCESS_CPU_PERCENT, percent(share));
    }
    let no_cpu_left = cpu::nothing_left(s).is_some();
    if no_cpu_left {
        evidence.extend(cpu::busiest_line(s));
    }
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: if p.ios >= facts::MIN_IOS { 0.8 } else { 0.6 },
        sentence: if let Some((process, share)) = &computing {
            format!(
                "{process} uses {} of a CPU and does little I/O: {name} is busy for at most {} of the time.",
                in_percent(*share),
                in_percent(busy)
            )
        } else if s.latency.filtered {
            let (whose, them) =
                if s.command { ("The command does", "it") } else { ("The selected processes do", "them") };
            format!(
                "{whose} little I/O: {name}, the busiest device, is busy for {them} for at most {} of the \
                 time.",
                in_percent(busy)
            )
        } else {
            format!(
                "There is little I/O: the busiest device, {name}, is idle for at least {} of the time, so \
                 at most {} of the time can be I/O wait.",
                in_percent(1.0 - busy),
                in_percent(busy)
            )
        },
        numbers,
        evidence,
        advice: if let Some((process, _)) = &computing {
            format!(
                "Make {process} use less CPU time per byte or more threads: biopsy flame shows what it computes."
            )
        } else if no_cpu_left {
            "No CPU time is left: first find out whether the application uses the CPUs, or waits for them."
                .to_string()
        } else {
            "Find out what else the application waits for: computation, locks, the network.".to_string()
        },
        check: command::latency_by_second(name),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::analyze::rates::DeviceRates;
    use crate::analyze::sharing::{ProcessIos, Relation};
    use crate::analyze::stacks::CpuClass;
    use crate::rules::fixtures::{Case, hist, profile};

    /// `ios` reads of another process in a second, 100 µs each.
    fn case(ios: u64) -> Case {
        let mut case = Case::new(ios, 1);
        case.load = None;
        case.stage(Stage::Queue, 5_000, 2_000);
        case.stage(Stage::Device, 95_000, 50_000);
        case
    }

    #[test]
    fn an_idle_device_is_not_what_the_application_waits_for() {
        let found = find(&case(1_000).summaries());
        assert_eq!((found.len(), found[0].subject.as_str(), found[0].confidence), (1, "vda", 0.8));
        assert!((found[0].numbers["busy_percent"] - 10.0).abs() < 0.1);
        assert!(found[0].sentence.contains("idle for at least 90"), "{}", found[0].sentence);
        assert_eq!(find(&case(40).summaries())[0].confidence, 0.6, "few I/Os are the point");
    }

    /// Other processes may keep the device busy.
    #[test]
    fn with_a_filter_it_is_the_chosen_processes_that_are_idle() {
        let mut case = case(1_000);
        case.latency.filtered = true;
        let found = find(&case.summaries());
        assert!(
            found[0].sentence.starts_with("The selected processes do little I/O"),
            "{}",
            found[0].sentence
        );
        assert!(!found[0].sentence.contains("idle"), "{}", found[0].sentence);
        case.latency.devices[0].vanished = true;
        assert!(find(&case.summaries()).is_empty(), "its rates are too low");
    }

    /// Ten read-ahead I/Os at a time: their times add up to more than the interval.
    #[test]
    fn the_kernels_busy_time_is_below_that_of_parallel_ios() {
        let mut case = case(10_000);
        assert!(find(&case.summaries()).is_empty());
        case.rates = vec![DeviceRates { device: "vda".into(), busy: 0.28, windows: Vec::new() }];
        let found = find(&case.summaries()).remove(0);
        assert!(found.sentence.contains("at most 28 %"), "{}", found.sentence);
        case.rates[0].busy = 0.5;
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn the_process_that_computes_is_named() {
        let mut case = case(1_000);
        case.profile = Some(profile(&[(CpuClass::User, 500)]));
        case.profile.as_mut().unwrap().top =
            vec![("other".into(), 8, 990_000_000), ("md5sum".into(), 7, 950_000_000)];
        let row = ProcessIos { pid: Some(7), relation: Relation::Other, ..ProcessIos::default() };
        case.latency.devices[0].processes = Some(vec![row]);
        let found = find(&case.summaries()).remove(0);
        assert!(
            found.sentence.starts_with("md5sum (7) uses 95 % of a CPU and does little I/O"),
            "{}",
            found.sentence
        );
        case.profile.as_mut().unwrap().top[1].2 = 890_000_000;
        assert!(find(&case.summaries())[0].sentence.starts_with("There is little I/O"));
    }

    #[test]
    fn half_of_the_time_is_the_limit() {
        assert_eq!(find(&case(4_990).summaries()).len(), 1);
        assert!(find(&case(5_010).summaries()).is_empty());
    }

    #[test]
    fn one_busy_device_is_enough_to_be_silent() {
        let mut case = case(1_000);
        let mut second = case.latency.devices[0].clone();
        second.name = "vdb".into();
        case.latency.devices.push(second);
        assert_eq!(find(&case.summaries()).len(), 1, "one finding for the run");
        let busy = case.latency.devices[1].ops.values_mut().next().unwrap();
        busy.request_stages.insert(Stage::Device, hist(1_000, 600_000, 100_000));
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn operations_that_wait_in_the_queue_wait_for_the_block_layer() {
        let mut case = case(500);
        for (queue, found) in [(110_000, 0), (90_000, 1)] {
            case.read().operations = Some(OperationLatency {
                operations: 500,
                stages: BTreeMap::from([(Stage::Queue, hist(500, queue, queue))]),
                total: hist(500, 200_000, 200_000),
                ..OperationLatency::default()
            });
            assert_eq!(find(&case.summaries()).len(), found, "{queue}");
        }
    }

    #[test]
    fn with_a_load_of_our_own_it_asks_for_enough() {
        let mut case = Case::new(1_000, 1);
        case.stage(Stage::Queue, 5_000, 2_000);
        case.stage(Stage::Device, 95_000, 50_000);
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn no_io_a_doubt_or_a_busy_cpu_are_other_matters() {
        let mut none = case(1_000);
        none.latency.devices[0].ops.clear();
        assert!(find(&none.summaries()).is_empty(), "nothing was measured");
        let mut lossy = case(1_000);
        lossy.latency.devices[0].lost_ios = 100;
        assert!(find(&lossy.summaries()).is_empty());
        let mut busy = case(1_000);
        let mut seen = profile(&[(CpuClass::System, 980)]);
        seen.folded.insert("app;blk_mq_submit_bio_[k]".into(), 980);
        busy.profile = Some(seen);
        assert!(find(&busy.summaries()).is_empty());
        let mut blind = case(1_000);
        blind.read().request_stages.clear();
        assert!(find(&blind.summaries()).is_empty(), "without stages nobody knows");
    }

    #[test]
    fn no_more_is_claimed_than_the_device_could_have_cost() {
        let mut case = case(1_000);
        let found = find(&case.summaries()).remove(0);
        assert!(found.sentence.contains("at most 10 % of the time can be I/O wait"), "{}", found.sentence);
        assert!(
            found.advice.contains("what else the application waits for")
                && !found.numbers.contains_key("under_way_percent")
        );
        // The application is in system calls half of the time, and no CPU is left to fetch completions.
        let total = hist(1_000, 500_000, 500_000);
        case.read().operations = Some(OperationLatency { operations: 1_000, total, ..Default::default() });
        case.profile = Some(profile(&[(CpuClass::User, 1000)]));
        let seen = case.profile.as_mut().unwrap();
        seen.folded = [("make;main".to_string(), 1000)].into();
        seen.top = vec![("make".into(), 7, 900_000_000), ("idler".into(), 8, 1_000_000)];
        let found = find(&case.summaries()).remove(0);
        assert_eq!(found.numbers["under_way_percent"].round(), 50.0);
        assert!(found.advice.starts_with("No CPU time is left"), "{}", found.advice);
        let busiest = "busiest threads, in % of one CPU each: make (7) 90 %";
        assert!(found.evidence.iter().any(|line| line == busiest), "{:?}", found.evidence);
    }
}
