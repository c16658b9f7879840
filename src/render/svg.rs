//! Renders charts as inline SVG. Colours come from the page's style sheet through classes, so that a stage has the same
//! colour in every chart, in light and dark mode.

mod curve;
mod dots;
mod frame;
mod heatmap;
mod lines;

pub use self::curve::{CurvePoint, curve};
pub use self::dots::{Rounds, dots};
pub use self::heatmap::{HeatmapColumn, heatmap};
pub use self::lines::{ChartLine, lines};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::units::{counted, time};

use super::html::escape;

/// Width of every chart in its own units; the page scales it.
pub const WIDTH: f64 = 1040.0;

/// Equal steps of the logarithmic axis per power of two. The histogram's own buckets differ in width by a factor of two
/// on such an axis, which would look like a sawtooth; one sixth of an octave is at least two buckets.
const BINS_PER_OCTAVE: f64 = 6.0;

/// The common range of several histograms, in powers of two of nanoseconds.
pub fn range<'a>(hists: impl Iterator<Item = &'a Histogram>) -> Option<(f64, f64)> {
    let mut bounds: Option<(f64, f64)> = None;
    for hist in hists {
        let (Some(min), Some(max)) = (hist.min(), hist.max()) else { continue };
        let (low, high) = ((min.max(1) as f64).log2(), (max.max(1) as f64).log2());
        bounds = Some(bounds.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
    }
    // A margin on both sides, and never an empty axis.
    bounds.map(|(low, high)| ((low - 0.5).max(0.0).floor(), (high + 0.5).ceil().max(low.floor() + 3.0)))
}

/// Number of I/Os by time in the stage, on a logarithmic axis that the charts of one device share.
pub fn histogram(stage: Stage, hist: &Histogram, (low, high): (f64, f64)) -> String {
    let (left, top, plot, bottom) = (64.0, 26.0, 96.0, 26.0);
    let (width, floor) = (WIDTH - left - 8.0, top + plot);
    let bins = bins(hist, (low, high), BINS_PER_OCTAVE);
    let most = bins.iter().copied().fold(0.0, f64::max);
    let full = nice(most);
    let label = format!("distribution of the {} stage", stage.name());
    let mut out = open("chart", WIDTH, floor + bottom, &label);
    let at = |log: f64| left + (log - low) / (high - low) * width;
    for part in [0.5, 1.0] {
        let y = floor - plot * part;
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left + width,
            left - 8.0,
            y + 4.0,
            amount(full * part)
        ));
    }
    for (log, label) in ticks(low, high) {
        let x = at(log);
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
            floor + 4.0,
            floor + 18.0
        ));
    }
    for (i, n) in bins.iter().enumerate().filter(|(_, n)| **n > 0.0) {
        let (from, to) = (low + i as f64 / BINS_PER_OCTAVE, low + (i + 1) as f64 / BINS_PER_OCTAVE);
        // At least one unit high, so that a single slow I/O among millions is visible.
        let tall = (n / full * plot).max(1.0);
        out.push_str(&format!(
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{tall:.1}\"><title>{} to {}: {}</title></rect>",
            stage_class(stage),
            at(from),
            floor - tall,
            at(to) - at(from) - 0.6,
            time(from.exp2() as u64),
            time(to.exp2() as u64),
            counted(n.round() as u64, "I/O")
        ));
    }
    out.push_str(&format!(
        "<line class=\"axis\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{floor}\" y2=\"{floor}\"/>",
        left + width
    ));
    out.push_str(&markers(hist, top, floor, &at));
    out.push_str(&format!("<text class=\"strong\" x=\"{left}\" y=\"14\">{}</text></svg>", stage.name()));
    out
}

/// Vertical lines at the median and higher quantiles, where they exist: the median's label is left of its line, the
/// others' right.
fn markers(hist: &Histogram, top: f64, floor: f64, at: &dyn Fn(f64) -> f64) -> String {
    let mut out = String::new();
    // Room for the stage's name at the left.
    let mut free = 150.0;
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let Some(value) = hist.quantile(q) else { continue };
        let x = at((value.max(1) as f64).log2());
        let text = format!("{name} {}", time(value));
        let width = text.chars().count() as f64 * 6.4 + 8.0;
        let (anchor, from) = if name == "p50" && x - width > free || x + width > WIDTH {
            ("end", x - width)
        } else {
            ("start", x)
        };
        // A label that would overlap the previous one is left to the table; its line is short.
        let labelled = from >= free;
        out.push_str(&format!(
            "<line class=\"marker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{floor}\"/>",
            if labelled { top - 20.0 } else { top }
        ));
        if labelled {
            let label = if anchor == "end" { x - 5.0 } else { x + 5.0 };
            out.push_str(&format!(
                "<text class=\"tick\" text-anchor=\"{anchor}\" x=\"{label:.1}\" y=\"14\">{text}</text>"
            ));
            free = from + width;
        }
    }
    out
}

/// Counts in equal steps of the logarithm. A bucket across a boundary is divided in proportion to its overlap.
fn bins(hist: &Histogram, (low, high): (f64, f64), per_octave: f64) -> Vec<f64> {
    let steps = ((high - low) * per_octave).ceil() as usize;
    let mut bins = vec![0.0; steps];
    let place = |ns: f64| (ns.max(1.0).log2() - low) * per_octave;
    let (min, max) = (hist.min().unwrap_or(0) as f64, hist.max().unwrap_or(0) as f64);
    for (lower, upper, n) in hist.buckets() {
        // The extremes are exact: nothing is drawn beyond them.
        let (from, to) = ((lower as f64).max(min), (upper as f64).min(max));
        // The last bucket also has everything beyond it.
        let (from, to) = (place(from).max(0.0), place(to.max(from)).max(0.0));
        let span = to - from;
        let first = (from as usize).min(steps.saturating_sub(1));
        let last = (to as usize).min(steps.saturating_sub(1));
        for (i, bin) in bins.iter_mut().enumerate().take(last + 1).skip(first) {
            let overlap = to.min((i + 1) as f64) - from.max(i as f64);
            *bin += n as f64 * if span > 0.0 { (overlap / span).clamp(0.0, 1.0) } else { 1.0 };
        }
    }
    bins
}

/// Powers of ten, with 2 and 5 in between if there is room.
fn ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let steps: &[u64] = if high - low > 12.0 { &[1] } else { &[1, 2, 5] };
    let mut ticks = Vec::new();
    let mut decade = 1u64;
    while (decade as f64).log2() <= high && decade < 10u64.pow(15) {
        for step in steps {
            let ns = decade * step;
            let log = (ns as f64).log2();
            if (low..=high).contains(&log) {
                ticks.push((log, plain(ns)));
            }
        }
        decade *= 10;
    }
    ticks
}

/// A round time without decimals: `200 µs`.
fn plain(ns: u64) -> String {
    let (scale, unit) = crate::units::time_unit(ns);
    format!("{:.0} {unit}", ns as f64 / scale)
}

/// A short round number without trailing zeros: `25k`.
fn amount(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

/// The next round number: steps small enough to use most of the height.
fn nice(value: f64) -> f64 {
    // Even numbers below ten, so that the half is also a count.
    if value <= 10.0 {
        return (value / 2.0).ceil().max(1.0) * 2.0;
    }
    let decade = 10f64.powf(value.log10().floor());
    [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * decade)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

/// The style sheet's class of a stage.
pub fn stage_class(stage: Stage) -> &'static str {
    match stage {
        Stage::Submit => "s-submit",
        Stage::Queue => "s-queue",
        Stage::Device => "s-device",
        Stage::Complete => "s-complete",
        Stage::Reap => "s-reap",
    }
}

/// The start of an `<svg>` element with these classes.
pub fn open(class: &str, width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_peaks() -> Histogram {
        (0..9_000).map(|i| 80_000 + i * 4).chain((0..1_000).map(|i| 900_000 + i * 50)).collect()
    }

    #[test]
    fn no_io_is_drawn_twice_or_left_out() {
        let hist = two_peaks();
        let (low, high) = range([&hist].into_iter()).unwrap();
        let drawn: f64 = bins(&hist, (low, high), BINS_PER_OCTAVE).iter().sum();
        assert!((drawn - 10_000.0).abs() < 1e-6, "{drawn}");
    }

    #[test]
    fn the_axis_holds_all_values_and_has_labels() {
        let hist = two_peaks();
        let (low, high) = range([&hist].into_iter()).unwrap();
        assert!(low.exp2() <= 80_000.0 && high.exp2() >= 949_950.0);
        let svg = histogram(Stage::Device, &hist, (low, high));
        for text in ["100 µs", "500 µs", "p50", "p99", "s-device"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn one_value_and_zero_are_charts_too() {
        for value in [0, 1, 123_456, 1 << 45] {
            let hist = Histogram::from_iter([value]);
            let svg = histogram(Stage::Queue, &hist, range([&hist].into_iter()).unwrap());
            assert!(!svg.contains("NaN") && svg.contains(": 1 I/O</title>"), "{value}: {svg}");
        }
        assert_eq!(range([&Histogram::default()].into_iter()), None);
    }
}
