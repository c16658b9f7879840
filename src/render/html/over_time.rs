//! Rates, latencies and I/Os in flight over the run, and a heat map of the latency.

use super::charts::wide;
use super::escape;
use crate::analyze::timeline::{Interval, LatencyKind, Timeline};
use crate::hist::Histogram;
use crate::render::svg::{self, ChartLine, HeatmapColumn};
use crate::rules::Summaries;
use crate::units::{bytes, figure, short, time};

/// Further devices are in the JSON only.
const MOST: usize = 8;

/// Fewer intervals show nothing that the other sections do not.
const LEAST: usize = 2;

/// Empty if the run was too short.
pub fn over_time(s: &Summaries<'_>, timeline: Option<&Timeline>) -> String {
    let Some(timeline) = timeline.filter(|timeline| timeline.intervals().len() >= LEAST) else {
        return String::new();
    };
    let devices = timeline.devices(s.latency);
    let mut out: String =
        devices.iter().take(MOST).map(|(name, timed)| of_device(timeline, name, *timed)).collect();
    if out.is_empty() {
        return out;
    }
    out.push_str(
        "<p class=\"soft small\">I/Os count in the interval in which they complete. In flight: in the block layer and the \
         device, on average. In the heat map a stronger colour is more I/Os per second, on a logarithmic scale.</p>\n",
    );
    let more = devices.len().saturating_sub(MOST);
    if more > 0 {
        out.push_str(&format!("<p class=\"soft small\">{more} more in the JSON.</p>\n"));
    }
    out
}

fn of_device(timeline: &Timeline, name: &str, timed: LatencyKind) -> String {
    let seconds = timeline.duration_ns() as f64 / 1e9;
    let line =
        |label, of: &dyn Fn(&Interval) -> Option<f64>| ChartLine { name: label, values: steps(timeline, of) };
    let chart = |title: &str, lines: &[ChartLine<'_>], show: &dyn Fn(f64) -> String| {
        svg::lines(title, seconds, lines, &[], show)
    };
    let latency = |interval: &Interval, q| {
        let hist = interval.devices.get(name)?.latency(timed)?;
        hist.quantile(q).map(|ns| ns as f64)
    };
    let charts = [
        chart("IOPS", &[line("", &|interval| Some(interval.iops(name)))], &short),
        chart("bandwidth", &[line("", &|interval| Some(interval.bytes_per_second(name)))], &|rate| {
            format!("{}/s", bytes(rate))
        }),
        chart(
            what(timed),
            &[
                line("p50", &|interval| latency(interval, 0.5)),
                line("p99", &|interval| latency(interval, 0.99)),
            ],
            &|ns| time(ns as u64),
        ),
        chart("I/Os in flight", &[line("", &|interval| Some(interval.mean_in_flight(name)))], &figure),
    ];
    let none = Histogram::default();
    let columns: Vec<HeatmapColumn<'_>> = timeline
        .intervals()
        .iter()
        .map(|interval| HeatmapColumn {
            from_seconds: interval.start_ns as f64 / 1e9,
            to_seconds: interval.end_ns() as f64 / 1e9,
            latency: interval.devices.get(name).and_then(|one| one.latency(timed)).unwrap_or(&none),
        })
        .collect();
    let noun = if timed == LatencyKind::Operation { "operation" } else { "I/O" };
    let map = svg::heatmap(&format!("{}: {noun}s", what(timed)), noun, &columns);
    format!(
        "<h3>{}</h3>\n<div class=\"charts\">\n{}\n</div>\n{}",
        escape(name),
        charts.join("\n"),
        if map.is_empty() { map } else { wide(&map) }
    )
}

fn what(timed: LatencyKind) -> &'static str {
    match timed {
        LatencyKind::Operation => "latency",
        LatencyKind::Device => "time in the device",
        LatencyKind::Bio => "time of a bio",
    }
}

/// A step function: a value from the start to the end of each interval.
fn steps(timeline: &Timeline, of: &dyn Fn(&Interval) -> Option<f64>) -> Vec<(f64, Option<f64>)> {
    let ends = |interval: &Interval| {
        let value = of(interval);
        [interval.start_ns, interval.end_ns()].map(|ns| (ns as f64 / 1e9, value))
    };
    timeline.intervals().iter().flat_map(ends).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
    use crate::analyze::op::Op;
    use crate::analyze::stage::Stage;
    use crate::rules::fixtures::{Case, SECOND};

    fn second(name: &str, ios: u64) -> LatencySummary {
        let device = (0..ios).map(|n| 100_000 + n).collect();
        let read = OpLatency {
            ios,
            bytes: ios * 4096,
            request_stages: BTreeMap::from([(Stage::Device, device)]),
            ..OpLatency::default()
        };
        let device = DeviceLatency {
            name: name.to_string(),
            ios,
            bytes: ios * 4096,
            ops: BTreeMap::from([(Op::Read, read)]),
            ..DeviceLatency::default()
        };
        LatencySummary { duration_ns: SECOND, devices: vec![device], ..LatencySummary::default() }
    }

    #[test]
    fn a_device_has_four_charts_and_a_heat_map() {
        let case = Case::new(1_000, 1);
        let mut timeline = Timeline::default();
        timeline.add(&second("<b>", 500));
        assert_eq!(over_time(&case.summaries(), Some(&timeline)), "", "one interval");
        timeline.add(&second("<b>", 0));
        timeline.add(&second("<b>", 1_000));
        let html = over_time(&case.summaries(), Some(&timeline));
        assert_eq!(html.matches("<svg").count(), 4 + 1, "{html}");
        assert!(html.contains("class=\"heat\"") && html.contains("time in the device"), "{html}");
        assert!(html.contains("1000</text>") && html.contains("3.91 MiB/s</text>"), "{html}");
        assert!(
            html.contains("<h3>&lt;b&gt;</h3>") && !html.contains("<b>") && !html.contains("NaN"),
            "{html}"
        );
        // Nothing completed in the second interval: no latency, and a rate of zero.
        assert_eq!(html.matches("<polyline").count(), 3 + 2 * 2, "{html}");
        assert_eq!(over_time(&case.summaries(), None), "");
    }
}
