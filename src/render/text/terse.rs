//! Renders fio's terse output, version 3 (`--minimal`): one line per job, fields separated by semicolons. Times are in
//! microseconds, bandwidth is in KiB/s. As in fio, there is no field for trims, and fields for disks exist only if
//! disks are known, which they are not here.

use super::clean;
use crate::hist::Histogram;
use crate::load::LoadSummary;
use crate::render::json::fio::bins::{PERCENTILES, bins, percentile};
use crate::render::json::fio::entry::{self, DirectionFigures, Entry};
use crate::render::json::fio::version;

/// All lines.
pub fn render(loads: &[LoadSummary]) -> String {
    entry::entries(loads).iter().map(|entry| line(entry) + "\n").collect()
}

fn line(entry: &Entry<'_>) -> String {
    // A semicolon in a name would add a field.
    let name = clean(&entry.section.job.name).replace(';', "\\u{3b}");
    let mut fields = vec![
        "3".to_string(),
        version(),
        name,
        entry.group.to_string(),
        entry.error.unsigned_abs().to_string(),
    ];
    let at = entry.section.job.percentiles.as_deref().unwrap_or(&PERCENTILES);
    for way in &entry.ways[..2] {
        direction(way, at, &mut fields);
    }
    fields.extend([entry.user_ns, entry.system_ns].map(|ns| format!("{:.6}%", entry.cpu_percent(ns))));
    fields.extend([entry.context_switches, entry.major_faults, entry.minor_faults].map(|n| n.to_string()));
    fields.extend(entry.depth_shares().map(|share| format!("{share:.1}%")));
    let mut us = entry.times.us;
    us[0] += entry.times.ns.iter().sum::<f64>();
    fields.extend(us.iter().chain(&entry.times.ms).map(|share| format!("{share:.2}%")));
    if entry.errors > 0 {
        fields.extend([entry.errors.to_string(), entry.error.unsigned_abs().to_string()]);
    }
    fields.join(";")
}

/// 41 fields.
fn direction(way: &DirectionFigures, at: &[f64], fields: &mut Vec<String>) {
    let whole = [way.bytes >> 10, way.bytes_per_second() as u64 / 1024, way.iops() as u64, way.runtime_ms()];
    fields.extend(whole.map(|n| n.to_string()));
    let times = |hist: &Histogram, fields: &mut Vec<String>| {
        fields.extend([hist.min(), hist.max()].map(|ns| (ns.unwrap_or(0) / 1000).to_string()));
        fields.extend([hist.mean(), hist.deviation()].map(|ns| format!("{:.6}", ns.unwrap_or(0.0) / 1000.0)));
    };
    times(&way.slat, fields);
    times(&way.clat, fields);
    let bins = bins(if way.percentiles_of_lat() { &way.lat } else { &way.clat });
    fields.extend(at.iter().map(|at| format!("{at:.6}%={}", percentile(&bins, *at) / 1000)));
    // There is room for 20.
    fields.extend((at.len()..20).map(|_| "0%=0".to_string()));
    times(&way.lat, fields);
    let moments = way.bandwidth;
    fields.extend([moments.min, moments.max].map(|rate| (rate as u64).to_string()));
    fields.push(format!("{:.6}%", way.share_percent));
    fields.extend([moments.mean, moments.deviation].map(|rate| format!("{rate:.6}")));
}
