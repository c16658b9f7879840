//! Finding: one of several equal devices is slower than the others.

use std::collections::BTreeMap;

use super::command;
use super::facts;
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity};
use crate::hist::Histogram;
use crate::stats::median;
use crate::units::{bytes, count, time};

/// An outlier takes this many times the median of the others. Histograms are off by at most 3 %, and drives of a model
/// differ by 10 to 20 % due to age, fill and temperature: 50 % more exceeds both together.
pub const FACTOR: f64 = 1.5;

/// With two devices it is unknown which one is normal.
pub const LEAST: usize = 3;

/// A device with more I/Os than this many times the others' median has more to do.
pub const BUSIER: f64 = 1.5;

/// A device below this share of their I/Os does something else. A drive that is ten times slower, at the same fixed
/// depth as the others, has a tenth of their I/Os.
pub const IDLER: f64 = 0.1;

/// Below this share the load may be a different one, so the confidence is lower.
pub const ALIKE: f64 = 0.5;

/// Mean I/O sizes may differ by this factor.
pub const SIZES: f64 = 1.25;

/// With this many I/Os a 99th percentile has at least ten I/Os above it.
const TAIL_IOS: u64 = 1_000;

const DEVICE_P50_NS: Number = Number::new("device_p50_ns", "median of the device stage");
const OTHERS_IOS: Number = Number::new("others_ios", "median I/Os of the others");
const OTHERS_P50_NS: Number = Number::new("others_p50_ns", "median of the device stage of the others");
const OTHERS_P99_NS: Number =
    Number::new("others_p99_ns", "99th percentile of the device stage of the others");
const P50_RATIO: Number = Number::new("p50_ratio", "median / median of the others");
const P99_RATIO: Number = Number::new("p99_ratio", "99th percentile / that of the others");

pub const RULE: Rule = Rule { id: "device-outlier", page: PAGE, find };

const PAGE: &str = "\
One device is slower than others of the same model.

A drive that is worn, hot, full, on a degraded link or about to fail delays all that waits for the
slowest of a group: a stripe, or a query over all drives.

How it is computed
  Traced devices of the same model and driver are compared, reads and writes separately;
  at least 3 of them, with 100 I/Os each. The median and the 99th percentile (with 1,000 I/Os) of
  the device stage are compared with the median of the others'. Found from 1.5 times on. Only
  devices with the same work are compared:
  - mean I/O sizes differ by less than a factor of 1.25;
  - the others have 0.5 to 2 times their median number of I/Os;
  - the outlier has between 0.1 and 1.5 times that number.
  Confidence 0.8. It is 0.6 if the outlier has less than 0.5 of the others' I/Os: a slow drive at a
  fixed depth has fewer, but so has one with other work. Lower if only the 99th percentile differs.
  From: latency.devices[].ops.read, .write: .ios, .bytes, .request_stages.device; devices[].model,
  .driver.

When it is wrong
  - The model does not include firmware, fill or age: biopsy devices shows serial and firmware.
  - The device may do other work (a journal, the system): biopsy latency -d DEV --by process shows
    it.
  - More depth on one device makes its I/Os wait inside it. Only the number of I/Os is compared, not
    the depth.
  - Reads of blocks that were never written are faster: a drive with data may look slow next to
    empty ones (see deallocated-read).
  - Virtual disks often share a model name and nothing else.

What to do
  Check link, temperature and wear with biopsy devices, and the health log with nvme smart-log. Run
  biopsy load DEV on it and on another one, each alone. Swap two drives: if the slowness moves
  along, it is the drive.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    [Op::Read, Op::Write].iter().flat_map(|op| of_op(s, *op)).fold(Vec::new(), |mut all, finding| {
        // Once per device: reads come first.
        if all.iter().all(|known: &Finding| known.subject != finding.subject) {
            all.push(finding);
        }
        all
    })
}

/// A device's I/Os of one class.
struct One<'a> {
    name: &'a str,
    kind: (&'a str, Option<&'a str>),
    ios: u64,
    mean_bytes: f64,
    times: &'a Histogram,
}

fn of_op(s: &Summaries<'_>, op: Op) -> Vec<Finding> {
    let all: Vec<One<'_>> = s
        .latency
        .devices
        .iter()
        .filter_map(|device| {
            let disk = facts::disk(s, &device.name)?;
            let of = device.ops.get(&op)?;
            let times = of.request_stages.get(&Stage::Device)?;
            let enough = times.count() >= facts::MIN_IOS && facts::device_view(s, device).doubt(s).is_none();
            enough.then_some(One {
                name: &device.name,
                kind: (disk.model.as_deref()?, disk.driver.as_deref()),
                ios: of.ios,
                mean_bytes: of.bytes as f64 / of.ios.max(1) as f64,
                times,
            })
        })
        .collect();
    all.iter().filter_map(|one| judge(&all, one, op)).collect()
}

fn judge(all: &[One<'_>], one: &One<'_>, op: Op) -> Option<Finding> {
    let is_alike = |other: &&One<'_>| {
        let ratio = one.mean_bytes.max(other.mean_bytes) / one.mean_bytes.min(other.mean_bytes).max(1.0);
        other.name != one.name && other.kind == one.kind && ratio < SIZES
    };
    let mut others: Vec<&One<'_>> = all.iter().filter(is_alike).collect();
    // Some may be idle, or do something else.
    let usual = median(&others.iter().map(|other| other.ios as f64).collect::<Vec<_>>())?;
    others.retain(|other| (usual * ALIKE..=usual / ALIKE).contains(&(other.ios as f64)));
    if others.len() + 1 < LEAST {
        return None;
    }
    let share = one.ios as f64 / usual;
    if !(IDLER..=BUSIER).contains(&share) {
        return None;
    }
    let compared = |q: f64, least: u64| -> Option<(f64, f64)> {
        let of =
            |one: &One<'_>| one.times.quantile(q).filter(|_| one.times.count() >= least).map(|ns| ns as f64);
        let usual = median(&others.iter().map(|other| of(other)).collect::<Option<Vec<f64>>>()?)?;
        Some((of(one)?, usual)).filter(|_| usual > 0.0)
    };
    let (p50, p99) = (compared(0.5, facts::MIN_IOS), compared(0.99, TAIL_IOS));
    let ratio = |pair: Option<(f64, f64)>| pair.map_or(0.0, |(own, usual)| own / usual);
    let (middle, tail) = (ratio(p50), ratio(p99));
    if middle.max(tail) < FACTOR {
        return None;
    }
    let is_slower = middle >= FACTOR;
    let (own, usual_ns) = if is_slower { p50? } else { p99? };
    let which = if is_slower { "median" } else { "99th percentile" };
    let mut numbers = BTreeMap::from([
        (numbers::DEVICES, others.len() as f64 + 1.0),
        (numbers::IOS, one.ios as f64),
        (OTHERS_IOS, usual),
        (numbers::IO_MEAN_BYTES, one.mean_bytes),
    ]);
    let line = |(own, usual): (f64, f64), which: &str| {
        format!(
            "{which} of the device stage of {}s: {}; median of the others: {}",
            op.name(),
            time(own as u64),
            time(usual as u64)
        )
    };
    let mut evidence = Vec::new();
    if let Some((own, usual)) = p50 {
        numbers.insert(DEVICE_P50_NS, own);
        numbers.insert(OTHERS_P50_NS, usual);
        numbers.insert(P50_RATIO, own / usual);
        evidence.push(line((own, usual), "median"));
    }
    if let Some((own, usual)) = p99 {
        numbers.insert(numbers::DEVICE_P99_NS, own);
        numbers.insert(OTHERS_P99_NS, usual);
        numbers.insert(P99_RATIO, own / usual);
        evidence.push(line((own, usual), "99th percentile"));
    }
    let names: Vec<&str> = others.iter().map(|other| other.name).collect();
    evidence.push(format!("compared with {} ({})", names.join(" "), one.kind.0.trim()));
    evidence.push(format!(
        "it has {} {}s of {} on average, the others {}",
        count(one.ios),
        op.name(),
        bytes(one.mean_bytes),
        count(usual as u64)
    ));
    let sure = if share >= ALIKE { 0.8 } else { 0.6 };
    Some(Finding {
        id: RULE.id,
        subject: one.name.to_string(),
        severity: Severity::Warning,
        // A slow tail alone also has other causes.
        confidence: if is_slower { sure } else { sure * 0.8 },
        sentence: format!(
            "{} is slower than {} others of its model: the {which} of its {}s is {}, {:.1} times theirs.",
            one.name,
            others.len(),
            op.name(),
            time(own as u64),
            own / usual_ns
        ),
        numbers,
        evidence,
        advice: "Check its link, temperature and wear (biopsy devices) and its other users; then swap it \
            with another drive."
            .to_string(),
        check: command::latency(one.name),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::{Case, hist};

    /// Drives of one model, given by reads and device time per read.
    fn case(drives: &[(u64, u64)]) -> Case {
        let mut case = Case::new(10_000, 32);
        case.load = None;
        case.disk().model = Some("SAMSUNG MZ1".into());
        for at in 1..drives.len() {
            case.twin(&format!("vd{}", (b'a' + at as u8) as char));
        }
        for (device, (ios, ns)) in case.latency.devices.iter_mut().zip(drives) {
            device.ios = *ios;
            let reads = device.ops.get_mut(&Op::Read).unwrap();
            (reads.ios, reads.bytes) = (*ios, ios * 4096);
            reads.request_stages.insert(Stage::Device, hist(*ios, *ns, *ns));
        }
        case
    }

    fn found(case: &Case) -> Vec<Finding> {
        find(&case.summaries())
    }

    #[test]
    fn half_as_slow_again_is_an_outlier() {
        let slow = found(&case(&[(10_000, 100_000), (10_000, 100_000), (7_000, 150_000)]));
        assert_eq!((slow.len(), slow[0].subject.as_str(), slow[0].confidence), (1, "vdc", 0.8));
        assert!(slow[0].numbers["p50_ratio"] == 1.5 && slow[0].numbers["devices"] == 3.0);
        assert!(slow[0].sentence.starts_with("vdc is slower than 2 others"), "{}", slow[0].sentence);
        assert!(found(&case(&[(10_000, 100_000), (10_000, 100_000), (7_000, 149_999)])).is_empty());
    }

    #[test]
    fn with_two_nobody_knows_which() {
        assert!(found(&case(&[(10_000, 100_000), (10_000, 300_000)])).is_empty());
        let mut three = case(&[(10_000, 100_000), (10_000, 100_000), (10_000, 300_000)]);
        assert_eq!(found(&three).len(), 1);
        three.host.devices[1].model = Some("another".into());
        assert!(found(&three).is_empty());
        three.host.devices[1].model = None;
        assert!(found(&three).is_empty());
    }

    #[test]
    fn who_does_more_or_something_else_is_none() {
        let with = |ios| found(&case(&[(10_000, 100_000), (10_000, 100_000), (ios, 300_000)]));
        assert_eq!((with(15_000).len(), with(15_001).len()), (1, 0), "more to do");
        assert_eq!((with(1_000).len(), with(999).len()), (1, 0), "hardly anything to do");
        assert_eq!((with(5_000)[0].confidence, with(4_999)[0].confidence), (0.8, 0.6));
        let mut large = case(&[(10_000, 100_000), (10_000, 100_000), (10_000, 300_000)]);
        let reads = large.latency.devices[2].ops.get_mut(&Op::Read).unwrap();
        reads.bytes = 10_000 * 5_119;
        assert_eq!(found(&large).len(), 1);
        large.latency.devices[2].ops.get_mut(&Op::Read).unwrap().bytes = 10_000 * 5_120;
        assert!(found(&large).is_empty(), "1.25 times the size");
    }

    #[test]
    fn an_idle_drive_among_the_others_does_not_count() {
        let idle = case(&[(10_000, 100_000), (10_000, 100_000), (200, 20_000), (10_000, 300_000)]);
        let slow = found(&idle);
        assert_eq!((slow.len(), slow[0].subject.as_str()), (1, "vdd"));
        assert_eq!(slow[0].numbers["devices"], 3.0);
    }

    #[test]
    fn a_long_tail_counts_from_a_thousand_ios_on() {
        let tail = |ios: u64| {
            let mut case = case(&[(ios, 100_000), (ios, 100_000), (ios, 100_000)]);
            let mut times = hist(ios - ios / 50, 100_000, 100_000);
            times.merge(&hist(ios / 50, 900_000, 900_000));
            let reads = case.latency.devices[1].ops.get_mut(&Op::Read).unwrap();
            reads.request_stages.insert(Stage::Device, times);
            found(&case)
        };
        let slow = tail(1_000).remove(0);
        assert!(slow.sentence.contains("the 99th percentile of its reads is 9"), "{}", slow.sentence);
        assert!((slow.confidence - 0.64).abs() < 1e-9);
        assert!(tail(999).is_empty());
    }

    #[test]
    fn losses_withhold_it() {
        let mut lossy = case(&[(10_000, 100_000), (10_000, 100_000), (10_000, 300_000)]);
        lossy.latency.devices[2].lost_ios = 1_000;
        assert!(found(&lossy).is_empty());
    }
}
