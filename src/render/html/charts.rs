//! Histograms per device and I/O class.

use super::escape;
use crate::analyze::latency::{DeviceLatency, OpLatency};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::render::svg;
use crate::rules::Summaries;
use crate::units::{counted, time};

/// Further pairs of device and class are in the tables only.
const MOST: usize = 8;

/// A pair with less than this share of the busiest pair's I/Os is in the tables only.
const SMALL: f64 = 0.001;

/// Fewer values are not a distribution.
const FEW: u64 = 10;

/// The pairs that are drawn, and how many are not.
pub fn drawn<'a>(s: &Summaries<'a>) -> (Vec<(&'a DeviceLatency, Op, &'a OpLatency)>, usize) {
    let all: Vec<_> = s
        .latency
        .devices
        .iter()
        .flat_map(|device| device.ops.iter().map(move |(op, latency)| (device, *op, latency)))
        .filter(|(_, _, latency)| timed(latency).next().is_some())
        .collect();
    let most = all.iter().map(|(_, _, latency)| latency.ios).max().unwrap_or(0) as f64;
    let shown: Vec<_> =
        all.iter().filter(|(_, _, latency)| latency.ios as f64 >= most * SMALL).take(MOST).copied().collect();
    let left = all.len() - shown.len();
    (shown, left)
}

fn timed(latency: &OpLatency) -> impl Iterator<Item = (Stage, &Histogram)> {
    Stage::ALL
        .into_iter()
        .filter_map(|stage| latency.stages().1.get(&stage).map(|hist| (stage, hist)))
        .filter(|(_, hist)| !hist.is_empty())
}

fn heading(device: &DeviceLatency, op: Op, latency: &OpLatency) -> String {
    format!(
        "<h3>{} {} <span class=\"soft\">{}</span></h3>\n",
        escape(&device.name),
        op.name(),
        counted(latency.count(), latency.stages().0.name())
    )
}

fn chart(stage: Stage, hist: &Histogram, range: (f64, f64)) -> String {
    let is_drawn = hist.count() >= FEW && hist.buckets().count() > 1;
    if is_drawn { wide(&svg::histogram(stage, hist, range)) } else { few(stage, hist) }
}

/// A chart that scrolls if the page is narrower.
pub fn wide(chart: &str) -> String {
    format!("<div class=\"wide\">{chart}</div>\n")
}

/// Describes a histogram in words that would be a single bar, or a few one-pixel bars.
fn few(stage: Stage, hist: &Histogram) -> String {
    let edge = |ns: Option<u64>| ns.map_or("-".to_string(), time);
    let (least, most) = (edge(hist.min()), edge(hist.max()));
    let range = if least == most { least } else { format!("{least} to {most}") };
    let (class, name) = (svg::stage_class(stage), stage.name());
    format!("<p><i class=\"swatch {class}\"></i>{name}: {} of {range}</p>\n", counted(hist.count(), "I/O"))
}

/// One histogram per stage; the charts of one device and class share the time axis.
pub fn distributions(s: &Summaries<'_>) -> String {
    let mut out = String::new();
    for (device, op, latency) in drawn(s).0 {
        let Some(range) = svg::range(timed(latency).map(|(_, hist)| hist)) else { continue };
        out.push_str(&heading(device, op, latency));
        for (stage, hist) in timed(latency) {
            out.push_str(&chart(stage, hist, range));
        }
    }
    if !out.is_empty() {
        out.push_str(
            "<p class=\"soft small\">Vertical: I/Os per sixth of an octave of time; horizontal: \
             time, logarithmic. Single I/Os are drawn one pixel high, so outliers show.</p>\n",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_one_bar_is_one_line() {
        let of = |values: &[u64]| {
            let hist = values.iter().copied().collect();
            chart(Stage::Device, &hist, svg::range([&hist].into_iter()).unwrap())
        };
        let swatch = "<p><i class=\"swatch s-device\"></i>";
        assert_eq!(of(&[2_500_000]), format!("{swatch}device: 1 I/O of 2.50 ms</p>\n"));
        assert_eq!(of(&[70_000; 500]), format!("{swatch}device: 500 I/Os of 70.0 µs</p>\n"));
        let spread: Vec<u64> = (0..10).map(|i| 1_000 << i).collect();
        assert_eq!(of(&spread[..9]), format!("{swatch}device: 9 I/Os of 1.00 µs to 256 µs</p>\n"));
        assert!(of(&spread).starts_with("<div class=\"wide\"><svg"));
    }
}
