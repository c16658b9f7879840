//! Renders fio's JSON as fio 3.33 writes it, with its keys, their order, its layout, and zeros for what did not happen,
//! because readers expect every key.
//!
//! It differs from fio as follows: `job_start` (of later versions) is set if known; `total_err` and `first_error` only
//! after errors; intervals without an operation count as samples of 0, which fio leaves out; `latency_*` are shares of
//! the timed operations; percentiles and `bins` are in `clat_ns`, or in `lat_ns` without completion latencies. Values
//! of `bins` and percentiles are off by at most 4 % (see [`bins()`]), standard deviations by 1/32 of the root mean
//! square.

pub mod bins;
pub mod entry;
mod layout;
pub mod options;

use std::time::Duration;

use crate::hist::Histogram;
use crate::host::counters::Counters;
use crate::load::{Job, LatencyTarget, LoadSummary, ServedLatencies};
use bins::{PERCENTILES, bins, percentile};
use entry::{DirectionFigures, Entry, Moments};
use layout::JsonValue;

/// End time of the run, for the head of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Time {
    /// Since 1970.
    pub unix_ms: u64,
    /// Local time in the format of C's `ctime`: `Sun Nov 22 07:28:38 2026`.
    pub text: String,
    /// Since the program began.
    pub elapsed: Duration,
}

/// The complete file: json, or json+ with `plus`. `options` are fio's global options, by name and value as given; each
/// section's own come from its job.
pub fn render(
    loads: &[LoadSummary],
    options: &[(String, String)],
    disks: &[Disk],
    time: &Time,
    plus: bool,
) -> Vec<u8> {
    let mut root = vec![
        ("fio version", JsonValue::text(&version())),
        ("timestamp", JsonValue::Whole(time.unix_ms / 1000)),
        ("timestamp_ms", JsonValue::Whole(time.unix_ms)),
        ("time", JsonValue::text(&time.text)),
    ];
    if !options.is_empty() {
        root.push(("global options", words(options)));
    }
    // fio counts a started second.
    let elapsed = time.elapsed.as_millis().div_ceil(1000) as u64;
    let jobs = entry::entries(loads).iter().map(|entry| job(entry, elapsed, plus)).collect();
    root.push(("jobs", JsonValue::List(jobs)));
    if !disks.is_empty() {
        root.push(("disk_util", JsonValue::List(disks.iter().map(disk).collect())));
    }
    let mut bytes = JsonValue::object(root).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// The kernel's counters of a disk, before and after a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Disk {
    pub name: String,
    pub before: Counters,
    pub after: Counters,
    pub duration: Duration,
}

fn disk(disk: &Disk) -> JsonValue {
    let since = |of: fn(&Counters) -> u64| of(&disk.after).saturating_sub(of(&disk.before));
    let whole = |of| JsonValue::Whole(since(of));
    let ms = disk.duration.as_millis().max(1) as f64;
    JsonValue::object([
        ("name", JsonValue::text(&disk.name)),
        ("read_ios", whole(|now| now.reads)),
        ("write_ios", whole(|now| now.writes)),
        ("read_merges", whole(|now| now.read_merges)),
        ("write_merges", whole(|now| now.write_merges)),
        ("read_ticks", whole(|now| now.read_ms)),
        ("write_ticks", whole(|now| now.write_ms)),
        ("in_queue", whole(|now| now.weighted_ms)),
        ("util", JsonValue::Real((since(|now| now.io_ms) as f64 * 100.0 / ms).min(100.0))),
    ])
}

/// Stands in place of fio's version.
pub fn version() -> String {
    format!("biopsy-{}", env!("CARGO_PKG_VERSION"))
}

fn job(entry: &Entry<'_>, elapsed: u64, plus: bool) -> JsonValue {
    let job = &entry.section.job;
    let mut keys =
        vec![("jobname", JsonValue::text(&job.name)), ("groupid", JsonValue::Whole(entry.group as u64))];
    keys.extend(entry.started_ms.map(|ms| ("job_start", JsonValue::Whole(ms))));
    keys.extend([
        ("error", JsonValue::Whole(entry.error.unsigned_abs().into())),
        ("eta", JsonValue::Whole(0)),
        ("elapsed", JsonValue::Whole(elapsed)),
        ("job options", words(&options::given(job))),
    ]);
    for (name, way) in ["read", "write", "trim"].into_iter().zip(&entry.ways) {
        keys.push((name, direction(way, job, plus)));
    }
    keys.push((
        "sync",
        JsonValue::object([
            ("total_ios", JsonValue::Whole(entry.syncs.count())),
            ("lat_ns", latency(&entry.syncs, Some(job.percentiles.as_deref().unwrap_or(&PERCENTILES)), plus)),
        ]),
    ));
    keys.extend([
        ("job_runtime", JsonValue::Whole(entry.runtime_ns / 1_000_000)),
        ("usr_cpu", JsonValue::Real(entry.cpu_percent(entry.user_ns))),
        ("sys_cpu", JsonValue::Real(entry.cpu_percent(entry.system_ns))),
        ("ctx", JsonValue::Whole(entry.context_switches)),
        ("majf", JsonValue::Whole(entry.major_faults)),
        ("minf", JsonValue::Whole(entry.minor_faults)),
        ("iodepth_level", shares(&["1", "2", "4", "8", "16", "32", ">=64"], &entry.depth_shares())),
        ("iodepth_submit", shares(&CALLS, &entry::call_shares(&entry.submitted))),
        ("iodepth_complete", shares(&CALLS, &entry::call_shares(&entry.reaped))),
        ("latency_ns", shares(&SMALL, &entry.times.ns)),
        ("latency_us", shares(&SMALL, &entry.times.us)),
        ("latency_ms", shares(&LARGE, &entry.times.ms)),
    ]);
    if entry.errors > 0 {
        keys.push(("total_err", JsonValue::Whole(entry.errors)));
        keys.push(("first_error", JsonValue::Whole(entry.error.unsigned_abs().into())));
    }
    // As in fio: the target in ns, the window in µs.
    let target = job.latency_target.unwrap_or(LatencyTarget::NONE);
    let whole = |n: u128| JsonValue::Whole(u64::try_from(n).unwrap_or(u64::MAX));
    keys.extend([
        ("latency_depth", JsonValue::Whole(entry.latency_depth.unwrap_or(job.iodepth).into())),
        ("latency_target", whole(target.latency.as_nanos())),
        ("latency_percentile", JsonValue::Real(target.percent)),
        ("latency_window", whole(target.window.as_micros())),
    ]);
    JsonValue::object(keys)
}

const CALLS: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];
const SMALL: [&str; 10] = ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000"];
const LARGE: [&str; 12] = ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"];

fn direction(way: &DirectionFigures, job: &Job, plus: bool) -> JsonValue {
    let at = Some(job.percentiles.as_deref().unwrap_or(&PERCENTILES));
    let (of_clat, of_lat) = if way.percentiles_of_lat() { (None, at) } else { (at, None) };
    let Moments { min, max, mean, deviation, samples } = way.bandwidth;
    let iops = way.rates;
    let mut keys = vec![
        ("io_bytes", JsonValue::Whole(way.bytes)),
        ("io_kbytes", JsonValue::Whole(way.bytes >> 10)),
        ("bw_bytes", JsonValue::Whole(way.bytes_per_second() as u64)),
        ("bw", JsonValue::Whole(way.bytes_per_second() as u64 / 1024)),
        ("iops", JsonValue::Real(way.iops())),
        ("runtime", JsonValue::Whole(way.runtime_ms())),
        ("total_ios", JsonValue::Whole(way.operations)),
        ("short_ios", JsonValue::Whole(way.short)),
        ("drop_ios", JsonValue::Whole(0)),
        ("slat_ns", latency(&way.slat, None, plus)),
        ("clat_ns", latency(&way.clat, of_clat, plus)),
        ("lat_ns", latency(&way.lat, of_lat, plus)),
    ];
    if !way.priorities.is_empty() {
        let own = job.priority.unwrap_or(0);
        let one = |one: &ServedLatencies| {
            let priority = one.priority.unwrap_or(own);
            JsonValue::object([
                ("prioclass", JsonValue::Whole((priority >> 13).into())),
                ("prio", JsonValue::Whole((priority & 7).into())),
                ("clat_ns", latency(&one.clat, at, plus)),
            ])
        };
        keys.push(("prios", JsonValue::List(way.priorities.iter().map(one).collect())));
    }
    keys.extend([
        ("bw_min", JsonValue::Whole(min as u64)),
        ("bw_max", JsonValue::Whole(max as u64)),
        ("bw_agg", JsonValue::Real(way.share_percent)),
        ("bw_mean", JsonValue::Real(mean)),
        ("bw_dev", JsonValue::Real(deviation)),
        ("bw_samples", JsonValue::Whole(samples)),
        ("iops_min", JsonValue::Whole(iops.min as u64)),
        ("iops_max", JsonValue::Whole(iops.max as u64)),
        ("iops_mean", JsonValue::Real(iops.mean)),
        ("iops_stddev", JsonValue::Real(iops.deviation)),
        ("iops_samples", JsonValue::Whole(iops.samples)),
    ]);
    JsonValue::object(keys)
}

/// Latencies of one kind, with the requested percentiles unless it is empty.
fn latency(hist: &Histogram, percentiles: Option<&[f64]>, plus: bool) -> JsonValue {
    let mut keys = vec![
        ("min", JsonValue::Whole(hist.min().unwrap_or(0))),
        ("max", JsonValue::Whole(hist.max().unwrap_or(0))),
        ("mean", JsonValue::Real(hist.mean().unwrap_or(0.0))),
        ("stddev", JsonValue::Real(hist.deviation().unwrap_or(0.0))),
        ("N", JsonValue::Whole(hist.count())),
    ];
    if let Some(at) = percentiles.filter(|_| !hist.is_empty()) {
        let bins = bins(hist);
        let of = |percent: &f64| (format!("{percent:.6}"), JsonValue::Whole(percentile(&bins, *percent)));
        keys.push(("percentile", JsonValue::Object(at.iter().map(of).collect())));
        if plus {
            let counts = bins.iter().map(|(value, n)| (value.to_string(), JsonValue::Whole(*n))).collect();
            keys.push(("bins", JsonValue::Object(counts)));
        }
    }
    JsonValue::object(keys)
}

fn shares(names: &[&'static str], percents: &[f64]) -> JsonValue {
    JsonValue::object(names.iter().zip(percents).map(|(name, percent)| (*name, JsonValue::Real(*percent))))
}

fn words(options: &[(String, String)]) -> JsonValue {
    JsonValue::Object(options.iter().map(|(name, value)| (name.clone(), JsonValue::text(value))).collect())
}
