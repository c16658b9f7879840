//! What devices did over the run, as `diagnose` nests it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::analyze::latency::LatencySummary;
use crate::analyze::timeline::{Timed, Timeline};
use crate::hist::Histogram;

/// Intervals with their devices. `latency` is of what `timed` says.
pub fn body(timeline: &Timeline, run: &LatencySummary) -> Value {
    let devices = timeline.devices(run).into_iter().map(|(name, timed)| {
        let intervals = timeline.intervals().iter().map(|interval| {
            let activity = interval.devices.get(&name);
            let latency = activity.and_then(|activity| activity.latency(timed));
            let quantile = |q| latency.and_then(|hist| hist.quantile(q));
            json!({
                "start_ns": interval.start_ns,
                "duration_ns": interval.duration_ns,
                "ios": activity.map_or(0, |activity| activity.ios),
                "bytes": activity.map_or(0, |activity| activity.bytes),
                "mean_in_flight": interval.mean_in_flight(&name),
                "p50_ns": quantile(0.5),
                "p99_ns": quantile(0.99),
                "latency_log2": latency.map(octaves).unwrap_or_default(),
            })
        });
        let intervals: Vec<Value> = intervals.collect();
        json!({ "name": name, "timed": Timed::name(timed), "intervals": intervals })
    });
    json!({ "devices": devices.collect::<Vec<_>>() })
}

/// Counts by power of two: the report holds this for each interval and device.
fn octaves(hist: &Histogram) -> Vec<(u64, u64)> {
    let mut octaves: BTreeMap<u64, u64> = BTreeMap::new();
    for (lower, _, n) in hist.buckets() {
        let octave = if lower == 0 { 0 } else { 1 << lower.ilog2() };
        *octaves.entry(octave).or_default() += n;
    }
    octaves.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_by_power_of_two() {
        let hist: Histogram = [0, 1, 3, 1_000, 1_023, 1_024].into_iter().collect();
        assert_eq!(octaves(&hist), [(0, 1), (1, 1), (2, 1), (512, 2), (1024, 1)]);
    }
}
