//! Finding: writers wait until the device has made data durable.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, percent};
use super::{Rule, Summaries};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::units::{count, figure, in_percent, time};

/// Share of the time in which a flush or a forced write (FUA) is in flight.
pub const BUSY: f64 = 0.5;

/// Share of the time of all writing I/Os.
pub const OF_WRITES: f64 = 0.25;

/// Flushes per write from which on writes wait for them one by one: one for four.
pub const PER_WRITE: f64 = 0.25;

/// Average writes and flushes in flight up to which they are serial: a disk flushes one at a time, and a few writers
/// that wait for it have one or two in flight.
pub const SERIAL: f64 = 2.0;

/// Share of the interval that serial writes and flushes must take; otherwise there is little I/O.
pub const SERIAL_BUSY: f64 = 0.25;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const FLUSH_BUSY_PERCENT: Number = Number::new("flush_busy_percent", "time with a flush in flight");
const FLUSH_MEAN_NS: Number = Number::new("flush_mean_ns", "mean of a flush or forced write");
const FLUSH_SHARE_PERCENT: Number =
    Number::new("flush_share_percent", "flushes' share of the time of all I/Os that write");
const FLUSHES: Number = Number::new("flushes", "flush commands");
const FORCED_WRITES: Number = Number::new("forced_writes", "forced writes (FUA)");

pub const RULE: Rule = Rule { id: "flush-bound", page: PAGE, find };

const PAGE: &str = "\
Writers wait for flushes of the device's write cache.

fsync, a journal commit and O_DSYNC end with a flush command, or with a write that bypasses the
device's cache (FUA). A drive without power-loss protection takes milliseconds for each, and a disk
flushes one at a time.

How it is computed
  flush_busy_percent = time of flush commands and FUA writes (queue, device and complete) /
  interval. Found from 50 % on, if they are at least 25 % of the time of all I/Os that write and
  there are at least 100 of them. Also found if writes become durable one by one: at least 0.25
  flushes or FUA writes for each write, at most 2 of all these in flight on average, for at least
  25 % of the interval, and most of the device's I/O time. Confidence 0.8; 0.65 one by one, or if
  FUA writes take more time.
  From: latency.devices[].ops.flush, .fua, .write: .ios, .request_stages.

When it is wrong
  - FUA writes can overlap: their sum may exceed the interval while the device still has room.
  - It does not show which threads wait: flushes of a background task delay only other flushes.
  - With a filter, flushes count for the process that requested them (empty_flush), and operations
    in flight are used: a flush of the journal's thread is missed.

What to do
  - Flush less often: group commits (a database's commit delay or batch), one fsync for several
    files, fdatasync instead of fsync.
  - Flush faster: a drive with power-loss protection, whose flush has nothing to do.
  - If losing the last seconds is acceptable, use the application's setting for that. Never use
    barrier=0 or write through on a drive with a volatile cache.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    s.latency
        .devices
        .iter()
        .map(|device| facts::device_view(s, device))
        .filter_map(|p| judge(s, &p))
        .collect()
}

/// Durable writes and flushes of a device, with their times.
struct Durable {
    /// Flush commands of the disk.
    flushes: u64,
    flush_ns: u64,
    /// Flushes requested by processes, used if those of the disk are not counted: a filter hides them, because no
    /// process submits them and one serves several.
    asked: u64,
    forced: u64,
    forced_ns: u64,
    writes: u64,
    write_ns: u64,
}

impl Durable {
    fn of(p: &DeviceView<'_>) -> Self {
        let of = |op: Op| {
            let latency = p.device.ops.get(&op);
            let stages = latency.into_iter().flat_map(|latency| latency.request_stages.values());
            (latency.map_or(0, |latency| latency.ios), stages.map(Histogram::sum).saturating_sum())
        };
        let ((flushes, flush_ns), (forced, forced_ns), (writes, write_ns)) =
            (of(Op::Flush), of(Op::Fua), of(Op::Write));
        let asked = if flushes == 0 { of(Op::EmptyFlush).0 } else { 0 };
        Self { flushes, flush_ns, asked, forced, forced_ns, writes, write_ns }
    }

    fn ios(&self) -> u64 {
        [self.flushes, self.asked, self.forced].iter().saturating_sum()
    }

    fn ns(&self) -> u64 {
        self.flush_ns.saturating_add(self.forced_ns)
    }

    /// A forced write also counts as a write.
    fn per_write(&self) -> f64 {
        self.ios() as f64 / self.writes.saturating_add(self.forced).max(1) as f64
    }

    /// Mean time of a flush or forced write; None: none was timed.
    fn mean_ns(&self) -> Option<u64> {
        self.ns().checked_div(self.flushes.saturating_add(self.forced))
    }
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let durable = Durable::of(p);
    // The interval's own length: flushes never come from our load.
    let window = s.latency.duration_ns.max(1) as f64;
    let written_ns = durable.ns().saturating_add(durable.write_ns);
    let busy = durable.ns() as f64 / window;
    let share = durable.ns() as f64 / written_ns.max(1) as f64;
    // If the flushes have no times, the operations that wait for them are used.
    let (in_flight, what) = match durable.asked {
        0 => (written_ns as f64 / window, "writes and flushes"),
        _ => (p.operations().1 as f64 / window, "operations"),
    };
    let per_write = durable.per_write();
    let stages = p.device.ops.values().flat_map(|latency| latency.request_stages.values());
    let all_ns: u64 = stages.map(Histogram::sum).saturating_sum();
    let is_most = written_ns >= all_ns.div_ceil(2);
    let serial = is_most && per_write >= PER_WRITE && (SERIAL_BUSY..=SERIAL).contains(&in_flight);
    let fills_the_device = busy >= BUSY && share >= OF_WRITES;
    if durable.ios() < facts::MIN_IOS || !(fills_the_device || serial) || p.doubt(s).is_some() {
        return None;
    }
    let name = &p.device.name;
    let mean = durable.mean_ns();
    let each = mean.map(|ns| format!(", {} each", time(ns))).unwrap_or_default();
    let (flushes, forced) = (count(durable.flushes.saturating_add(durable.asked)), count(durable.forced));
    let mut evidence = vec![match durable.asked {
        0 => format!("{flushes} flush commands and {forced} forced writes{each}"),
        _ => format!(
            "{flushes} flushes requested by the processes, and {forced} forced writes; with a filter, the \
             disk's own flush commands are not counted"
        ),
    }];
    if let Some(device) = p.device.ops.get(&Op::Flush).and_then(|of| of.request_stages.get(&Stage::Device)) {
        evidence
            .extend(device.quantile(0.99).map(|p99| format!("99 % of the flushes end within {}", time(p99))));
    }
    if mean.is_some() {
        evidence.push(format!("that is {} of the time of all I/Os that write", in_percent(share)));
    }
    let cache = p.disk.and_then(|disk| disk.write_cache.as_deref());
    evidence.extend(cache.map(|cache| format!("the kernel treats the cache of {name} as {cache}")));
    let mut numbers = BTreeMap::from([
        (FLUSHES, (durable.flushes + durable.asked) as f64),
        (FORCED_WRITES, durable.forced as f64),
    ]);
    if let Some(mean) = mean {
        numbers.insert(FLUSH_BUSY_PERCENT, percent(busy.min(1.0)));
        numbers.insert(FLUSH_MEAN_NS, mean as f64);
        numbers.insert(FLUSH_SHARE_PERCENT, percent(share));
    }
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        // A load of our own only reads: other processes wait.
        severity: if s.load.is_none() || fills_the_device { Severity::Warning } else { Severity::Note },
        confidence: if fills_the_device && durable.flush_ns >= durable.forced_ns { 0.8 } else { 0.65 },
        sentence: match fills_the_device {
            true => format!(
                "Writers of {name} wait for flushes: a flush is in flight for {} of the time{each}.",
                in_percent(busy.min(1.0))
            ),
            false => format!(
                "Writers of {name} wait until writes are durable: {} flushes per write, and {} {what} in flight on \
                 average.",
                figure(per_write),
                figure(in_flight)
            ),
        },
        numbers,
        evidence,
        advice: "Flush less often: group commits, and fsync once for several writes. Or use a drive with \
             power-loss protection, whose flush has nothing to do."
            .to_string(),
        check: command::latency(name),
        // Fewer flushes also save journal writes and waits: if they are serial there is no upper bound.
        worth: fills_the_device.then(|| Worth {
            metric: "iops_ratio".to_string(),
            low: 1.0,
            high: (1.0 / (1.0 - busy.min(0.9))).min(MAX_WORTH),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::fixtures::{Case, hist};

    /// Adds I/Os of that class, each with `ns` in the device.
    fn with(case: &mut Case, op: Op, ios: u64, ns: u64) {
        let request_stages = BTreeMap::from([(Stage::Device, hist(ios, ns, ns))]);
        let latency = OpLatency { ios, request_stages, ..OpLatency::default() };
        case.latency.devices[0].ops.insert(op, latency);
    }

    /// One second of commits: each a write and a flush.
    fn case(flushes: u64, flush_ns: u64, write_ns: u64) -> Case {
        let mut case = Case::new(1_000, 1);
        case.load = None;
        case.latency.devices[0].ops.clear();
        with(&mut case, Op::Flush, flushes, flush_ns);
        with(&mut case, Op::Write, flushes, write_ns);
        case
    }

    #[test]
    fn the_time_in_flushes_has_two_sides() {
        let found = find(&case(500, 1_000_000, 50_000).summaries());
        assert_eq!(found[0].numbers["flush_busy_percent"], 50.0);
        assert_eq!((found[0].worth.as_ref().unwrap().high, found[0].subject.as_str()), (2.0, "vda"));
        // Fewer than one flush for four writes.
        let mut many = case(500, 999_000, 50_000);
        with(&mut many, Op::Write, 2_001, 10_000);
        assert!(find(&many.summaries()).is_empty());
        assert!(find(&case(99, 9_000_000, 50_000).summaries()).is_empty(), "too few");
    }

    /// An fsync per write: the journal thread takes most of the time, which is not in the device.
    #[test]
    fn writes_that_become_durable_one_by_one_are_found() {
        let mut each = case(4_000, 34_000, 47_000);
        let found = find(&each.summaries());
        assert!(found[0].sentence.contains("1.00 flushes per write"), "{}", found[0].sentence);
        assert_eq!(found[0].confidence, 0.65);
        with(&mut each, Op::Write, 16_000, 47_000);
        assert_eq!(find(&each.summaries()).len(), 1, "one for four");
        with(&mut each, Op::Write, 16_001, 47_000);
        assert!(find(&each.summaries()).is_empty());
        assert!(find(&case(3_000, 34_000, 47_000).summaries()).is_empty(), "24 % of the time");
        assert!(find(&case(4_000, 34_000, 467_000).summaries()).is_empty(), "more than 2 in flight");
    }

    /// With `-p` the disk's flushes are hidden, but the bios that request them are not.
    #[test]
    fn flushes_that_a_filter_hides_count_by_who_asked() {
        let mut filtered = case(4_000, 34_000, 47_000);
        let device = &mut filtered.latency.devices[0];
        device.ops.remove(&Op::Flush);
        device.ops.insert(Op::EmptyFlush, OpLatency { ios: 4_000, ..OpLatency::default() });
        assert!(find(&filtered.summaries()).is_empty(), "no operation waits");
        let total = hist(8_000, 110_000, 110_000);
        filtered.latency.devices[0].ops.get_mut(&Op::Write).unwrap().operations =
            Some(OperationLatency { total, ..OperationLatency::default() });
        let found = find(&filtered.summaries());
        assert!(
            found[0].sentence.ends_with("1.00 flushes per write, and 0.88 operations in flight on average."),
            "{}",
            found[0].sentence
        );
        assert!(!found[0].numbers.contains_key("flush_mean_ns"), "{:?}", found[0].numbers);
        // Their own times are more precise.
        with(&mut filtered, Op::Flush, 4_000, 34_000);
        assert!(find(&filtered.summaries())[0].sentence.contains("writes and flushes in flight"));
    }

    #[test]
    fn many_writes_beside_it_are_what_the_device_does() {
        assert_eq!(find(&case(500, 1_000_000, 3_000_000).summaries()).len(), 1);
        assert!(find(&case(500, 1_000_000, 3_001_000).summaries()).is_empty());
    }

    #[test]
    fn forced_writes_are_flushes_of_their_own() {
        let mut case = case(100, 1_000, 1_000);
        with(&mut case, Op::Fua, 1_000, 900_000);
        let found = find(&case.summaries());
        assert_eq!((found[0].confidence, found[0].numbers["forced_writes"]), (0.65, 1_000.0));
    }

    #[test]
    fn doubt_withholds_it_and_reads_have_none() {
        let mut lossy = case(500, 1_500_000, 50_000);
        lossy.latency.devices[0].lost_ios = 10_000;
        assert!(find(&lossy.summaries()).is_empty());
        assert!(find(&Case::new(100_000, 32).summaries()).is_empty());
    }
}
