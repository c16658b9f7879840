//! Detects page cache reclaim and spinning CPUs: from counters if available, otherwise from samples, otherwise by
//! inference from other figures.

use super::facts;
use super::inputs::{LockKind, PageCache, ThreadRow, ThreadsInput};
use super::{Summaries, cpu};
use crate::analyze::memory_sample::MemorySample;
use crate::analyze::onset::{self, Onset, Signal};
use crate::analyze::stacks::ProfileSummary;
use crate::merge::SaturatingSum as _;
use crate::units::{bytes, figure, in_percent, short};

/// Scanned pages per second from which on reclaim can matter: 40 MB/s. It takes 32 at a time, so below that the locks
/// are taken some hundred times a second.
pub const SCANNED: f64 = 10_000.0;

/// Share of all CPUs, or of a profile's busy samples.
pub const SHARE: f64 = 0.10;

/// Average number of threads below which stack samples show no reclaim.
pub const THREADS: f64 = 1.0;

/// Fewer thread samples show nothing.
pub const SAMPLES: u64 = 10;

/// System time, as a share of all CPUs, from which on they do nothing else.
pub const KERNEL_FULL: f64 = 0.90;

/// System time per page read beyond which work alone does not explain it: reading a page through the cache, copying it
/// and reclaiming it takes 1 to 3 µs, and 6 µs if each page is an I/O of its own that a worker waits for.
pub const NS_PER_PAGE: f64 = 20_000.0;

/// Same, as a multiple of the value before the onset.
pub const TIMES_AS_MUCH: f64 = 3.0;

/// Free memory, as a share of free plus file pages, below which new pages must evict others.
pub const FREE: f64 = 0.05;

/// Share of the reads that must come into the cache, or leave it.
const THROUGH: f64 = 0.5;

/// Bytes of a page.
pub const PAGE_BYTES: f64 = 4096.0;

/// Functions of reclaim, on any kernel from 5.10 on.
const RECLAIM: &[&str] = &[
    "try_to_free_pages",
    "do_try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "shrink_node",
    "shrink_lruvec",
    "shrink_inactive_list",
    "shrink_page_list",
    "shrink_folio_list",
    "evict_folios",
    "balance_pgdat",
];

/// Functions of direct reclaim, by the task that allocates the memory.
pub const DIRECT: &[&str] = &["try_to_free_pages", "try_to_free_mem_cgroup_pages"];

/// Functions in which waiters of spinlocks loop.
const SLOW: &[&str] = &[
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
];

/// Functions where a sample may be spinning or not: inlined loops, and the first point at which interrupts are enabled
/// again.
const MAYBE_SLOW: &[&str] = &["_raw_spin_", "_raw_read_", "_raw_write_"];

/// Functions in which a reader waits for a page of the cache.
const PAGE_WAITS: &[&str] = &[
    "wait_on_page_bit_common",
    "wait_on_page_bit",
    "__lock_page",
    "folio_wait_bit_common",
    "folio_wait_bit",
    "__folio_lock",
    "filemap_get_pages",
    "filemap_update_page",
    "generic_file_buffered_read",
];

/// Locks of the page cache, as named in the locks view; `lruvec` occurs in the callers that name a lock with an unknown
/// address.
const LOCKS: &[&str] = &["lru_lock", "lruvec", "zone lock", "i_pages"];

/// The kind of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The kernel's counters or events.
    Counted,
    /// Stack samples.
    Sampled,
    /// Inferred from other figures.
    Inferred,
}

/// Pages are being reclaimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Reclaiming {
    pub how: How,
    pub pages_per_second: Option<f64>,
    pub line: String,
}

/// CPUs spin for locks.
#[derive(Debug, Clone, PartialEq)]
pub struct Spinning {
    pub how: How,
    /// Share of all CPUs, lower and upper bound; None if inferred.
    pub share: Option<(f64, f64)>,
    pub line: String,
}

/// Whether it is a lock of the page cache.
pub fn is_its_lock(name: &str) -> bool {
    LOCKS.iter().any(|lock| name.contains(lock))
}

/// CPUs of the machine.
pub fn cpus(s: &Summaries<'_>) -> f64 {
    f64::from(s.host.cpus_online.max(1))
}

/// The onset, if it can be determined.
pub fn onset(s: &Summaries<'_>) -> Option<Onset> {
    onset::onset(&s.pagecache?.moments).ok()
}

/// The samples after the onset, or all.
pub fn behind<'a>(pagecache: &'a PageCache, onset: Option<&Onset>) -> &'a [MemorySample] {
    let from = onset.map_or(0, |onset| onset.at_ns);
    let at = pagecache.moments.iter().position(|moment| moment.at_ns >= from);
    &pagecache.moments[at.unwrap_or(pagecache.moments.len())..]
}

fn before<'a>(pagecache: &'a PageCache, onset: &Onset) -> &'a [MemorySample] {
    let at = pagecache.moments.iter().position(|moment| moment.at_ns > onset.after_ns);
    &pagecache.moments[..at.unwrap_or(pagecache.moments.len())]
}

/// Mean over samples, weighted by their lengths; None if no sample has the value.
pub fn mean(moments: &[MemorySample], of: impl Fn(&MemorySample) -> Option<f64>) -> Option<f64> {
    let known = moments.iter().filter_map(|moment| Some((of(moment)?, moment.duration_ns as f64)));
    let (sum, all) = known.fold((0.0, 0.0), |(sum, all), (value, ns)| (sum + value * ns, all + ns));
    (all > 0.0).then(|| sum / all)
}

/// Bytes read per second.
pub fn read_rate(moments: &[MemorySample]) -> Option<f64> {
    mean(moments, |moment| {
        (moment.duration_ns > 0)
            .then(|| moment.read_bytes.map(|n| n as f64 * 1e9 / moment.duration_ns as f64))?
    })
}

/// Average number of threads in rows that satisfy `matches`; None with too few samples.
pub fn sampled(threads: &ThreadsInput, matches: impl Fn(&ThreadRow) -> bool) -> Option<f64> {
    let rows = || threads.rows.iter().filter(|row| matches(row));
    (rows().map(|row| row.samples).saturating_sum() >= SAMPLES)
        .then(|| rows().map(|row| row.average_threads).sum())
}

/// Whether a row is in one of these functions.
pub fn is_in(row: &ThreadRow, functions: &[&str]) -> bool {
    row.stack.iter().chain(&row.wchan).any(|frame| functions.contains(&function(frame)))
}

/// Removes suffixes that a view may append to a name: `()`, `+0x12/0x34`, `.isra.0`.
fn function(frame: &str) -> &str {
    frame.split(['+', '(', '.', ' ']).next().unwrap_or(frame)
}

/// Whether the page cache is being reclaimed at a relevant rate.
pub fn reclaiming(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Reclaiming> {
    counted(s, onset).or_else(|| in_stacks(s)).or_else(|| in_profile(s)).or_else(|| must_be(s, onset))
}

fn counted(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Reclaiming> {
    let pagecache = s.pagecache?;
    let rate =
        |moment: &MemorySample| Some(moment.scanned_pages? as f64 * 1e9 / moment.duration_ns.max(1) as f64);
    let whole = |n: u64| (pagecache.duration_ns > 0).then(|| n as f64 * 1e9 / pagecache.duration_ns as f64);
    let behind = onset.and_then(|onset| mean(behind(pagecache, Some(onset)), rate));
    let all = || pagecache.scanned_pages.and_then(whole).or_else(|| mean(&pagecache.moments, rate));
    let pages = behind.or_else(all).filter(|pages| *pages >= SCANNED)?;
    let line = format!("reclaim scans {} pages a second ({}/s)", short(pages), bytes(pages * PAGE_BYTES));
    Some(Reclaiming { how: How::Counted, pages_per_second: Some(pages), line })
}

fn in_stacks(s: &Summaries<'_>) -> Option<Reclaiming> {
    let threads = sampled(s.threads?, |row| is_in(row, RECLAIM)).filter(|threads| *threads >= THREADS)?;
    let line = format!("{} threads are in reclaim on average (sampled)", figure(threads));
    Some(Reclaiming { how: How::Sampled, pages_per_second: None, line })
}

fn in_profile(s: &Summaries<'_>) -> Option<Reclaiming> {
    let share = cpu::within(cpu::profile(s)?, RECLAIM);
    let line = format!("{} of the busy CPU time is spent in reclaim (sampled)", in_percent(share));
    (share >= SHARE).then_some(Reclaiming { how: How::Sampled, pages_per_second: None, line })
}

/// Reads go into a cache that does not grow, while no memory is free: as much must leave it.
fn must_be(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Reclaiming> {
    let pagecache = s.pagecache?;
    let now = behind(pagecache, onset);
    let (read, grows) = (read_rate(now)?, growth(now)?);
    let free = mean(now, |moment| Some(moment.free_bytes? as f64))?;
    let files = mean(now, |moment| Some(moment.file_bytes? as f64))?;
    let filled = |onset: &Onset| {
        let then = before(pagecache, onset);
        Some(growth(then)? >= THROUGH * read_rate(then)?)
    };
    let waits = |threads: &ThreadsInput| sampled(threads, |row| is_in(row, PAGE_WAITS));
    let through_the_cache = onset.and_then(filled) == Some(true)
        || s.threads.and_then(waits).is_some_and(|threads| threads >= THREADS);
    let leaves = read - grows.max(0.0);
    if !through_the_cache
        || free > FREE * (free + files)
        || leaves < THROUGH * read
        || leaves < SCANNED * PAGE_BYTES
    {
        return None;
    }
    let line = format!(
        "{}/s are read through the page cache, which no longer grows, with {} free: about as much is \
         reclaimed (inferred, reclaim was not counted)",
        bytes(read),
        bytes(free)
    );
    Some(Reclaiming { how: How::Inferred, pages_per_second: Some(leaves / PAGE_BYTES), line })
}

/// Growth of the file pages in bytes per second.
fn growth(moments: &[MemorySample]) -> Option<f64> {
    let mut known = moments.iter().filter_map(|moment| Some((moment.at_ns, moment.file_bytes? as f64)));
    let (first, last) = (known.next()?, known.next_back()?);
    (last.0 > first.0).then(|| (last.1 - first.1) * 1e9 / (last.0 - first.0) as f64)
}

/// Whether CPUs spin to a relevant extent.
pub fn spinning(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Spinning> {
    let shown = [measured(s, onset), waited(s), profiled(s), threads_spin(s, onset)];
    shown.into_iter().flatten().next().or_else(|| kernel_time(s, onset))
}

fn spin(how: How, (low, high): (f64, f64), by: &str) -> Option<Spinning> {
    let high = high.min(1.0);
    let range = match (in_percent(low), in_percent(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    let line = format!("CPUs spin for {range} of the time of all CPUs ({by})");
    (low >= SHARE).then_some(Spinning { how, share: Some((low, high)), line })
}

fn measured(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Spinning> {
    let behind = |pick: fn((f64, f64)) -> f64| {
        mean(behind(s.pagecache?, Some(onset?)), |moment| moment.spin_percent.map(pick))
    };
    let since = behind(|range| range.0).zip(behind(|range| range.1));
    let whole = s.locks.and_then(|locks| locks.spin.as_ref());
    let (by, (low, high)) = match (since, whole) {
        (Some(since), _) => ("since the onset", since),
        (None, Some(spin)) => (spin.sampler.as_str(), (spin.low_percent, spin.high_percent)),
        (None, None) => return None,
    };
    spin(How::Counted, (low / 100.0, high / 100.0), by)
}

/// Waiting time for the page cache's locks, which is CPU time: a lower bound, so the remaining CPU time may also be
/// spinning.
fn waited(s: &Summaries<'_>) -> Option<Spinning> {
    let locks = s.locks.filter(|locks| locks.duration_ns > 0)?;
    let mine = locks.locks.iter().filter(|lock| lock.kind == LockKind::Spin && is_its_lock(&lock.name));
    let low = mine.map(|lock| lock.wait_ns).sum::<u64>() as f64 / (locks.duration_ns as f64 * cpus(s));
    let high = locks.spin.as_ref().map_or(1.0, |spin| spin.high_percent / 100.0);
    spin(How::Counted, (low.min(1.0), high.max(low)), "by waits for its locks")
}

fn profiled(s: &Summaries<'_>) -> Option<Spinning> {
    let profile = cpu::profile(s)?;
    let of_all = |share: f64| share * cpu::machine_busy(profile);
    let low = of_all(cpu::leaves(profile, |leaf| SLOW.contains(&leaf)));
    let maybe = |leaf: &str| SLOW.contains(&leaf) || MAYBE_SLOW.iter().any(|start| leaf.starts_with(start));
    spin(How::Sampled, (low, of_all(cpu::leaves(profile, maybe))), by(profile))
}

fn by(profile: &ProfileSummary) -> &str {
    match profile.sampler_note {
        Some(_) => "cpu-clock, which sees interrupts-off code late",
        None => "sampled",
    }
}

/// Thread stacks in slow paths; if these are few, all running threads in reclaim while the kernel uses every CPU.
fn threads_spin(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Spinning> {
    let threads = s.threads?;
    let share = |matches: &dyn Fn(&ThreadRow) -> bool| {
        sampled(threads, |row| row.state == 'R' && matches(row)).map(|threads| (threads / cpus(s)).min(1.0))
    };
    let slow = share(&|row| is_in(row, SLOW))?;
    let kernel = s.pagecache.and_then(|of| mean(behind(of, onset), |moment| moment.system_percent));
    let most = kernel.map_or(1.0, |percent| percent / 100.0);
    let in_reclaim = share(&|row| is_in(row, RECLAIM)).unwrap_or(0.0);
    if slow >= SHARE {
        return spin(How::Sampled, (slow, most.max(slow)), "sampled stacks of threads");
    }
    let line = format!(
        "threads spin on at least {} of the CPUs, while reclaim uses {} and the kernel {}",
        in_percent(slow),
        in_percent(in_reclaim),
        in_percent(most)
    );
    let full = kernel.is_some_and(|percent| percent / 100.0 >= KERNEL_FULL);
    (full && in_reclaim >= SHARE).then_some(Spinning { how: How::Sampled, share: Some((slow, most)), line })
}

/// More system time than the work on the pages can take.
fn kernel_time(s: &Summaries<'_>, onset: Option<&Onset>) -> Option<Spinning> {
    let pagecache = s.pagecache?;
    // If spinning was measured and found small, the time has another cause.
    let looked = s.locks.is_some_and(|locks| locks.spin.is_some())
        || pagecache.moments.iter().any(|moment| moment.spin_percent.is_some());
    if looked {
        return None;
    }
    let per_page = |moments: &[MemorySample]| {
        let kernel = mean(moments, |moment| moment.system_percent)? / 100.0 * cpus(s);
        Some(kernel * 1e9 / (read_rate(moments).filter(|rate| *rate > 0.0)? / PAGE_BYTES))
    };
    let now = per_page(behind(pagecache, onset))?;
    let then = onset.and_then(|onset| per_page(before(pagecache, onset)));
    // More time for less work; otherwise other work may have begun.
    let moved = |signal| onset.is_some_and(|onset| onset.of(signal).is_some());
    let more =
        then.filter(|then| moved(Signal::System) && moved(Signal::Throughput) && now >= TIMES_AS_MUCH * then);
    let full = mean(behind(pagecache, onset), |moment| moment.system_percent)? >= KERNEL_FULL * 100.0;
    let was = more.map_or(String::new(), |then| format!(", and {} before", figure(then / 1e3) + " µs"));
    let line = format!(
        "the kernel uses {} µs of CPU time per page read{was}, more than the work explains (inferred, \
         spinning was not measured)",
        figure(now / 1e3)
    );
    (more.is_some() || (full && now >= NS_PER_PAGE)).then_some(Spinning {
        how: How::Inferred,
        share: None,
        line,
    })
}

/// The page cache's share of the waits for named spinning locks; None without such waits.
pub fn part_of_waits(s: &Summaries<'_>) -> Option<f64> {
    let spun = || s.locks.into_iter().flat_map(|of| &of.locks).filter(|lock| lock.kind == LockKind::Spin);
    let all: u64 = spun().map(|lock| lock.wait_ns).saturating_sum();
    let mine: u64 = spun().filter(|lock| is_its_lock(&lock.name)).map(|lock| lock.wait_ns).saturating_sum();
    (all > 0).then(|| mine as f64 / all as f64)
}

/// The subject: the single disk of the run, or all.
pub fn subject(s: &Summaries<'_>) -> String {
    match facts::device_views(s).as_slice() {
        [one] => one.device.name.clone(),
        _ => "page cache".to_string(),
    }
}
