//! A heat map of latencies over time: time on the horizontal axis, the logarithm of the latency on the vertical one.

use super::frame::at_seconds;
use super::{WIDTH, bins, escape, open, range, ticks};
use crate::hist::Histogram;
use crate::units::{counted, time};

/// Cells per power of two of the latency.
const PER_OCTAVE: f64 = 3.0;

/// Opacity of a cell with one I/O, and of the fullest cell.
const OPACITY: (f64, f64) = (0.12, 1.0);

const LEFT: f64 = 64.0;
const TOP: f64 = 26.0;
const ROW: f64 = 7.0;

/// One interval.
#[derive(Debug, Clone, Copy)]
pub struct HeatmapColumn<'a> {
    pub from_seconds: f64,
    pub to_seconds: f64,
    pub latency: &'a Histogram,
}

/// Empty without I/O.
pub fn heatmap(title: &str, noun: &str, columns: &[HeatmapColumn<'_>]) -> String {
    let Some((low, high)) = range(columns.iter().map(|column| column.latency)) else { return String::new() };
    let seconds = columns.iter().map(|column| column.to_seconds).fold(0.0, f64::max).max(1e-9);
    let fields: Vec<Vec<f64>> =
        columns.iter().map(|column| bins(column.latency, (low, high), PER_OCTAVE)).collect();
    let per_second =
        |column: &HeatmapColumn<'_>, n: f64| n / (column.to_seconds - column.from_seconds).max(1e-9);
    let rates =
        || columns.iter().zip(&fields).flat_map(|(of, field)| field.iter().map(|n| per_second(of, *n)));
    let most = rates().fold(0.0, f64::max);
    let least = rates().filter(|rate| *rate > 0.0).fold(most, f64::min);
    let width = WIDTH - LEFT - 8.0;
    let height = (high - low) * PER_OCTAVE * ROW;
    let floor = TOP + height;
    let x = |at: f64| LEFT + at / seconds * width;
    let mut out = open("chart", WIDTH, floor + 24.0, title);
    for (column, field) in columns.iter().zip(&fields) {
        let (from, to) = (x(column.from_seconds), x(column.to_seconds));
        for (i, n) in field.iter().enumerate().filter(|(_, n)| **n > 0.0) {
            let step = |i: usize| (low + i as f64 / PER_OCTAVE).exp2() as u64;
            out.push_str(&format!(
                "<rect class=\"heat\" fill-opacity=\"{:.2}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{ROW}\">\
                 <title>{} to {}: {}</title></rect>",
                opacity(per_second(column, *n), least, most),
                floor - (i + 1) as f64 * ROW,
                to - from,
                time(step(i)),
                time(step(i + 1)),
                escape(&counted(n.round().max(1.0) as u64, noun))
            ));
        }
    }
    for (log, label) in ticks(low, high) {
        let y = floor - (log - low) * PER_OCTAVE * ROW;
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT + width,
            LEFT - 8.0,
            y + 4.0
        ));
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        out.push_str(&format!(
            "<text class=\"tick\" text-anchor=\"{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            if part == 1.0 { "end" } else { "middle" },
            x(seconds * part),
            floor + 18.0,
            at_seconds(seconds * part)
        ));
    }
    out.push_str(&format!(
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>\
         <text class=\"strong\" x=\"{LEFT}\" y=\"14\">{}</text></svg>",
        LEFT + width,
        escape(title)
    ));
    out
}

/// Logarithmic, so that a single slow I/O among thousands is visible.
fn opacity(rate: f64, least: f64, most: f64) -> f64 {
    let span = (most / least).ln();
    let part = if span > 0.0 { (rate / least).ln() / span } else { 1.0 };
    OPACITY.0 + part.clamp(0.0, 1.0) * (OPACITY.1 - OPACITY.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_ios_are_high_and_many_are_dark() {
        let fast: Histogram = [100_000; 900].into_iter().collect();
        let slow: Histogram = [100_000, 3_000_000].into_iter().collect();
        let column =
            |from_seconds, latency| HeatmapColumn { from_seconds, to_seconds: from_seconds + 1.0, latency };
        let svg = heatmap("a <b>", "I/O", &[column(0.0, &fast), column(1.0, &slow)]);
        assert_eq!(svg.matches("class=\"heat\"").count(), 3, "{svg}");
        assert!(svg.contains("fill-opacity=\"1.00\"") && svg.contains("fill-opacity=\"0.12\""), "{svg}");
        assert!(svg.contains(": 900 I/Os</title>") && !svg.contains("<b>") && !svg.contains("NaN"), "{svg}");
        assert_eq!(heatmap("x", "I/O", &[column(0.0, &Histogram::default())]), "");
    }
}
