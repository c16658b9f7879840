//! Finding: the page cache is full, and CPUs spin for its locks instead of reading.

use std::collections::BTreeMap;

use super::facts::percent;
use super::numbers;
use super::pagecache::{self, How, Reclaiming, Spinning};
use super::{Rule, Summaries};
use crate::analyze::onset::{Onset, Signal};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{bytes, figure, in_percent};

/// Minimum share of the page cache's locks in the waits for named spinning locks.
pub const OF_WAITS: f64 = 0.5;

/// One run never predicts more than a doubling, unless the same run was faster before.
const MAX_WORTH: f64 = 2.0;

/// Confidence by the weaker evidence of reclaim and spinning.
const COUNTED: f64 = 0.9;
const SAMPLED: f64 = 0.75;
const INFERRED: f64 = 0.6;

const ONSET_AFTER_NS: Number = Number::new("onset_after_ns", "onset after, from the start");
const ONSET_NS: Number = Number::new("onset_ns", "onset before, from the start");
const RECLAIMED_PAGES_PER_SECOND: Number =
    Number::new("reclaimed_pages_per_second", "pages per second scanned or reclaimed");

pub const RULE: Rule = Rule { id: "pagecache-storm", page: PAGE, find };

const PAGE: &str = "\
The page cache is full, and CPUs spin on its locks.

With no free memory left, each page read into the cache must replace another. All readers then
contend for a few locks (LRU, zone, i_pages), and with dozens of them reads become slower.

How it is computed
  Found if pages are reclaimed and CPUs spin (after the onset, if there is one).
  Reclaim, by the first that applies:
  - reclaim scans 10,000 pages a second or more;
  - by the stacks of sampled threads, at
    least 1 thread on average (of 10 samples or more) is in reclaim;
  - 10 % of the profile's busy samples are in reclaim;
  - inferred: at least 50 % of what is read, and 10,000 pages a second, must leave the cache, which
    does not grow; free memory is at most 5 % of what is free or holds files, and reads go through
    it (before the onset it grew by 50 % of what was read, or a thread waits for it).
  Spinning, by the first that applies:
  - at least 10 % of all CPUs, by samples in slow paths (the low end of the range), by waits for
    page cache locks, by the profile, or by stacks of threads;
  - stacks of threads show some, while reclaim has 10 % of the CPUs and the kernel 90 %;
  - inferred, if spinning was not measured: the kernel takes 20,000 ns per page read and 90 % of all
    CPUs, or 3 times what it took before an onset with less throughput and more kernel CPU time.
  Not found if less than 50 % of the wait for spinning locks is for those of the page cache.
  Critical. Its effects (lock-contention, direct-reclaim, worker-punt) become notes. Confidence 0.9
  if both were counted, 0.75 if one was sampled, 0.6 if one was inferred. The onset is the sample at
  which throughput, free memory, reclaim and spinning (or kernel CPU time) got worse together and
  stayed so, by a least-squares fit of two lines.
  From: locks.pagecache.scanned_pages, .series, .onset; locks.spin; locks.locks[].wait_ns; threads.

When it is wrong
  - Spinning and lock waits are lower bounds: the first waiter and waits in a hypervisor are missed.
    cpu-clock samples fall where interrupts are enabled again.
  - If no lock is named, spinning and reclaim may have different causes.
  - Inference assumes that all reads go through the cache, in 4 KiB pages. An emulated CPU always
    exceeds 20,000 ns.
  - In a gap of the series the onset may lie anywhere.

What to do
  Read past the page cache: O_DIRECT (fio --direct=1), or RWF_DONTCACHE (Linux 6.14 and newer). Or
  use fewer readers at once (IORING_REGISTER_IOWQ_MAX_WORKERS), or a memory cgroup for each: their
  LRU locks are separate since Linux 5.11. Disabling read-ahead does not help.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let onset = pagecache::onset(s);
    let reclaiming = pagecache::reclaiming(s, onset.as_ref())?;
    let spinning = pagecache::spinning(s, onset.as_ref())?;
    let part = pagecache::part_of_waits(s);
    if part.is_some_and(|part| part < OF_WAITS) {
        return None;
    }
    let mut evidence = vec![reclaiming.line.clone(), spinning.line.clone()];
    evidence.extend(
        part.map(|part| format!("{} of the waits for spinning locks are for its locks", in_percent(part))),
    );
    evidence.extend(onset.as_ref().map(began));
    evidence.extend(onset.iter().flat_map(levels));
    evidence.extend(readers(s));
    let mut numbers = BTreeMap::new();
    if let Some(pages) = reclaiming.pages_per_second {
        numbers.insert(RECLAIMED_PAGES_PER_SECOND, pages);
    }
    if let Some((low, high)) = spinning.share {
        numbers
            .extend([(numbers::SPIN_LOW_PERCENT, percent(low)), (numbers::SPIN_HIGH_PERCENT, percent(high))]);
    }
    if let Some(onset) = &onset {
        numbers.extend([(ONSET_NS, onset.at_ns as f64), (ONSET_AFTER_NS, onset.after_ns as f64)]);
    }
    let rate = s.pagecache.and_then(|of| pagecache::read_rate(pagecache::behind(of, onset.as_ref())));
    numbers.extend(rate.map(|rate| (numbers::READ_BYTES_PER_SECOND, rate)));
    Some(Finding {
        id: RULE.id,
        subject: pagecache::subject(s),
        severity: Severity::Critical,
        confidence: match reclaiming.how.max(spinning.how) {
            How::Counted => COUNTED,
            How::Sampled => SAMPLED,
            How::Inferred => INFERRED,
        },
        sentence: sentence(&reclaiming, &spinning, onset.as_ref()),
        numbers,
        evidence,
        advice: "Read past the page cache (O_DIRECT; fio --direct=1). If that is impossible: RWF_DONTCACHE \
            (Linux 6.14), fewer concurrent readers (IORING_REGISTER_IOWQ_MAX_WORKERS), or one memory \
            cgroup per reader, with separate LRU locks. Read-ahead is not the cause."
            .to_string(),
        check: "biopsy top --plain 1".to_string(),
        worth: worth(&spinning, onset.as_ref()),
    })
}

fn sentence(reclaiming: &Reclaiming, spinning: &Spinning, onset: Option<&Onset>) -> String {
    let spin = match spinning.share {
        Some((low, _)) => format!("CPUs spin for at least {} of the time of all CPUs", in_percent(low)),
        None => "the kernel uses more CPU time than the work explains".to_string(),
    };
    let pages = match reclaiming.pages_per_second {
        Some(pages) => format!("{}/s of it are reclaimed", bytes(pages * 4096.0)),
        None => "the readers reclaim it".to_string(),
    };
    let since = onset.map_or(String::new(), |onset| format!(", since second {}", second(onset.at_ns)));
    format!("The page cache is full: {pages}, and {spin}{since}.")
}

fn second(ns: u64) -> String {
    figure(ns as f64 / 1e9)
}

fn began(onset: &Onset) -> String {
    let names = |signals: &[Signal]| signals.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let first = match onset.first.len() == onset.moved.len() {
        true => "all in the same sample".to_string(),
        false => format!("first {}", names(&onset.first)),
    };
    format!("the onset is between second {} and {}: {first}", second(onset.after_ns), second(onset.at_ns))
}

/// `throughput was 4.21 GB/s and is 2.79`
fn levels(onset: &Onset) -> impl Iterator<Item = String> {
    let show = |signal: Signal, value: f64| match signal {
        Signal::Free => bytes(value),
        Signal::Reclaim => format!("{} pages/s", figure(value)),
        Signal::Spin | Signal::System => format!("{} % of all CPUs", figure(value)),
        Signal::Throughput => format!("{}/s", bytes(value)),
    };
    onset.moved.iter().map(move |one| {
        format!(
            "{} was {} and is {} (95 %: {} to {})",
            one.signal.name(),
            show(one.signal, one.before.mean),
            show(one.signal, one.after.mean),
            show(one.signal, one.after.low.max(0.0)),
            show(one.signal, one.after.high)
        )
    })
}

/// How many threads do this at a time.
fn readers(s: &Summaries<'_>) -> Option<String> {
    let threads = s.threads?;
    let of = |state: char| {
        let rows = threads.rows.iter().filter(|row| row.state == state);
        rows.map(|row| row.average_threads).sum::<f64>()
    };
    let (running, waiting) = (of('R'), of('D'));
    (running + waiting > 0.0).then(|| {
        format!(
            "on average {} threads run and {} wait, on {} CPUs",
            figure(running),
            figure(waiting),
            pagecache::cpus(s)
        )
    })
}

/// The run's own throughput before the onset; otherwise the gain without any spinning.
fn worth(spinning: &Spinning, onset: Option<&Onset>) -> Option<Worth> {
    let ratio = |low, high| Worth { metric: "bytes_per_second_ratio".to_string(), low, high };
    if let Some(moved) = onset.and_then(|onset| onset.of(Signal::Throughput)) {
        let times = |level: f64| (moved.before.mean / level.max(1.0)).max(1.0);
        return Some(ratio(times(moved.after.high), times(moved.after.low)));
    }
    let (_, high) = spinning.share?;
    Some(ratio(1.0, (1.0 / (1.0 - high.min(0.9))).min(MAX_WORTH)))
}

#[cfg(test)]
mod tests;
