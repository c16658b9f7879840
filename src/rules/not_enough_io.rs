//! The devices have nothing to do.

use std::collections::BTreeMap;

use super::facts::{self, Picture, percent};
use super::{Rule, Summaries, cpu, throttled};
use crate::findings::{Finding, Severity};
use crate::units::{bytes, count, counted, in_percent, time};

/// A device that an I/O is in for less than this share of the time is idle for most of it.
pub const BUSY: f64 = 0.5;

pub const RULE: Rule = Rule { id: "not-enough-io", page: PAGE, find };

const PAGE: &str = "\
There is not enough I/O: the devices are idle most of the time, because nobody asks for more.

Whatever is slow here, it is not the block device: the application computes, sleeps, or waits for
something else.

How it is computed
  Only without a load of biopsy's own. busy_percent = sum of all stages of all I/Os / time that passed: the
  mean number of I/Os in the block layer and the device, which is an upper bound of the share of
  the time in which there was one at all. Found when it is below 50 % on every traced device (the busiest
  is named), no CPU is saturated by I/O, and no throttle explains it.

From which numbers
  latency.devices[].ops.*.request_stages, latency.duration_ns; the profile; throttles of cgroups.

When it is wrong
  - It is a mean: a burst that keeps the device busy for a second in every ten is in it, and may be what
    hurts. An interval shows it: biopsy latency -d DEV 1.
  - I/O of devices that are not traced (-d) is not in it.
  - A single thread that reads one block after the other, and computes in between, is slow by the
    latency of each read all the same: a faster device or read-ahead would help it a little.
  - Reads that the page cache answers are no I/O here, and what they cost is CPU time.

What to try
  Look at what the application waits for: its threads' states and stacks, its locks, the network. To see
  what the device can do, drive it: biopsy diagnose DIRECTORY.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let pictures = facts::pictures(s);
    if s.load.is_some()
        || pictures.iter().any(|p| p.ios > 0 && p.doubt(s).is_some())
        || cpu::saturation(s).is_some()
        || !throttled::find(s).is_empty()
    {
        return Vec::new();
    }
    let busy = |p: &Picture<'_>| p.in_block_layer().unwrap_or(0.0);
    let Some(busiest) = pictures.iter().filter(|p| p.ios > 0).max_by(|a, b| busy(a).total_cmp(&busy(b)))
    else {
        return Vec::new();
    };
    // What has no device stage cannot be called idle.
    if busy(busiest) >= BUSY || pictures.iter().any(|p| p.ios > 0 && p.in_device().is_none()) {
        return Vec::new();
    }
    vec![finding(s, busiest, busy(busiest), pictures.iter().filter(|p| p.ios > 0).count())]
}

fn finding(s: &Summaries<'_>, p: &Picture<'_>, busy: f64, devices: usize) -> Finding {
    let name = &p.device.name;
    let mean = p.stages_ns() / p.ios.max(1);
    let mut evidence = vec![
        format!(
            "{} in {}: {} a second, {}/s, {} each",
            counted(p.ios, "I/O"),
            time(p.duration_ns),
            count(p.rate() as u64),
            bytes(p.bytes as f64 * 1e9 / p.duration_ns.max(1) as f64),
            time(mean)
        ),
        format!("an I/O is in the block layer or the device for at most {} of the time", in_percent(busy)),
    ];
    if devices > 1 {
        evidence.push(format!("{devices} devices carried I/O, and {name} is the busiest"));
    }
    let mut numbers = BTreeMap::from([
        ("busy_percent", percent(busy)),
        ("ios", p.ios as f64),
        ("ios_per_second", p.rate()),
        ("io_mean_ns", mean as f64),
    ]);
    if let Some(profile) = cpu::profile(s) {
        numbers.insert("machine_busy_percent", percent(cpu::machine_busy(profile)));
        evidence.push(format!("all CPUs together are busy for {}", in_percent(cpu::machine_busy(profile))));
    }
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: if p.ios >= facts::MIN_IOS { 0.8 } else { 0.6 },
        sentence: format!(
            "There is little I/O: the busiest device, {name}, is idle for at least {} of the time, so it is not what \
             the application waits for.",
            in_percent(1.0 - busy)
        ),
        numbers,
        evidence,
        advice: "Look at what the application waits for besides I/O: computing, locks, the network."
            .to_string(),
        check: format!("biopsy latency -d {name} 1"),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::Stage;
    use crate::analyze::stacks::CpuClass;
    use crate::rules::literal::{Case, profile};

    /// `ios` reads in a second of 100 µs each, of somebody else.
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
        busy.request_stages.insert(Stage::Device, crate::rules::literal::hist(1_000, 600_000, 100_000));
        assert!(find(&case.summaries()).is_empty());
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
}
