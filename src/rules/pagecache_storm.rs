//! The page cache is full, and CPUs spin for its locks in place of reading.

use std::collections::BTreeMap;

use super::facts::percent;
use super::numbers;
use super::pagecache::{self, How, Reclaiming, Spinning};
use super::{Rule, Summaries};
use crate::analyze::onset::{Onset, Signal};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{bytes, figure, in_percent};

/// Of the waits of spinning locks with names, those of the page cache must be at least so many.
pub const OF_WAITS: f64 = 0.5;

/// One doubling is the most that is promised from one run, unless the same run was faster.
const MAX_WORTH: f64 = 2.0;

/// Confidence by how the less certain of reclaim and spinning is known.
const COUNTED: f64 = 0.9;
const SAMPLED: f64 = 0.75;
const INFERRED: f64 = 0.6;

const ONSET_AFTER_NS: Number = Number::new("onset_after_ns", "began after, from the start of the window");
const ONSET_NS: Number = Number::new("onset_ns", "began before, from the start of the window");
const RECLAIMED_PAGES_PER_SECOND: Number =
    Number::new("reclaimed_pages_per_second", "pages per second that reclaim looks at, or takes");

pub const RULE: Rule = Rule { id: "pagecache-storm", page: PAGE, find };

const PAGE: &str = "\
The page cache is full: tasks reclaim its pages, and CPUs spin for its locks in place of reading.

Reads through the page cache take free memory first. When none is left, each page that comes needs one that
goes, and every reader looks for it under the same few locks (LRU, zone, i_pages). With dozens of readers at
gigabytes a second the CPUs do little but spin, and the reads become slower. On one machine with 32 CPUs
reads fell from 6,800 to 3,200 MiB/s at 100 % of the CPUs, when 256 GB of memory were full of what was read.

How it is computed
  Found where pages are reclaimed and CPUs spin, each by the first of these that is there:
  - reclaimed: reclaim looks at 10,000 pages a second or more (behind the onset, where there is one); or at
    least 1 thread on average (of 10 samples or more) is in a function of reclaim; or 10 % of the busy samples
    of the profile are; or it must be so: at least 50 % of what is read must leave the cache, as free memory
    is at most 5 % of what is free or holds files, the cache does not grow, and the reads go through it
    (before the onset it grew by at least 50 % of what was read, or threads wait for its pages).
  - spinning: at least 10 % of all CPUs by the samples in the slow paths (the low end of their range), or by
    the waits for the page cache's locks, or by the profile, or by the stacks of threads; or stacks of threads
    show it while reclaim has 10 % of the CPUs and the kernel 90 %; or, where nobody looked for it, the kernel
    takes 20,000 ns of CPU time for each page read with 90 % of all CPUs, or 3 times what it took before
    an onset that made it take more for less.
  Not said where less than 50 % of the waits for locks that are spun for are those of the page cache's.
  Critical: what it causes (lock-contention, direct-reclaim, worker-punt) is a note beside it. Confidence 0.9
  where both were counted, 0.75 where one was sampled, 0.6 where one was inferred.
  The onset is the moment at which throughput, free memory, reclaim and spinning (or CPU time in the kernel)
  changed for the worse together and for good: where one cut into two lines of least squares serves them best.

From which numbers
  locks.pagecache.scanned_pages, .series; locks.spin; locks.locks[].wait_ns; threads; the profile's stacks.

When it is wrong
  - Waits for locks are a lower bound, and so is spinning: the first waiter and a hypervisor's waits are not
    seen. Samples by cpu-clock fall where interrupts are switched on again.
  - Spinning and reclaim on one machine need not be of one cause, where no lock has a name.
  - What is inferred takes all reads for reads through the cache, and a page for 4 KiB. On an emulated CPU
    everything takes longer than 20,000 ns.
  - In a gap of the series the onset may lie anywhere.

What to try
  Read past the page cache: O_DIRECT (fio --direct=1, a database's own setting): no pages, no reclaim, no
  locks. Where that cannot be: uncached reads (RWF_DONTCACHE, Linux 6.14 and newer); fewer readers at a time
  (IORING_REGISTER_IOWQ_MAX_WORKERS, fewer threads), since the same work with fewer waiters is done faster;
  readers in memory cgroups of their own, whose LRU locks are apart from Linux 5.11 on. To switch read-ahead
  off does not help: reads then are smaller, and as many pages come.
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
        part.map(|part| format!("{} of the waits of spinning locks are for its locks", in_percent(part))),
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
        advice: "Read past the page cache (O_DIRECT; fio --direct=1). Where that cannot be: RWF_DONTCACHE (Linux \
                 6.14), fewer readers at a time (IORING_REGISTER_IOWQ_MAX_WORKERS), or memory cgroups of their own, \
                 whose LRU locks are apart; read-ahead is not the cause."
            .to_string(),
        check: "biopsy top --plain 1".to_string(),
        worth: worth(&spinning, onset.as_ref()),
    })
}

fn sentence(reclaiming: &Reclaiming, spinning: &Spinning, onset: Option<&Onset>) -> String {
    let spin = match spinning.share {
        Some((low, _)) => format!("CPUs spin for at least {} of the time of all", in_percent(low)),
        None => "the kernel burns CPU time that no work explains".to_string(),
    };
    let pages = match reclaiming.pages_per_second {
        Some(pages) => format!("{}/s of it are taken back", bytes(pages * 4096.0)),
        None => "it is taken back by those who read".to_string(),
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
        true => "all at the same moment".to_string(),
        false => format!("first {}", names(&onset.first)),
    };
    format!("it began between second {} and {}: {first}", second(onset.after_ns), second(onset.at_ns))
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
            "{} was {} and is {} ({} to {} with 95 %)",
            one.signal.name(),
            show(one.signal, one.before.mean),
            show(one.signal, one.after.mean),
            show(one.signal, one.after.low.max(0.0)),
            show(one.signal, one.after.high)
        )
    })
}

/// How many threads it is that do this at a time.
fn readers(s: &Summaries<'_>) -> Option<String> {
    let threads = s.threads?;
    let of = |state: char| {
        let rows = threads.rows.iter().filter(|row| row.state == state);
        rows.map(|row| row.average_threads).sum::<f64>()
    };
    let (running, waiting) = (of('R'), of('D'));
    (running + waiting > 0.0).then(|| {
        format!(
            "{} threads run and {} wait at a time, on {} CPUs",
            figure(running),
            figure(waiting),
            pagecache::cpus(s)
        )
    })
}

/// What the run itself moved before; else all of the spinning gone.
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
