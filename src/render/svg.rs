//! Charts as inline SVG. Colours come from the page's style sheet through classes, so that a stage
//! has one colour in every chart, in light and in dark.

use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::units::{counted, time};

use super::html::escape;

/// Width of every chart in its own units; the page scales it.
pub const WIDTH: f64 = 1040.0;

/// Equal steps of the logarithmic axis per power of two. The histogram's own buckets differ in
/// width by a factor of two on such an axis, which would look like a saw; one sixth of an octave is
/// two buckets at least.
const BINS_PER_OCTAVE: f64 = 6.0;

/// Parts of a whole as one bar: class of the colour, name, amount.
#[derive(Debug, Clone)]
pub struct Part {
    pub class: &'static str,
    pub name: String,
    pub amount: f64,
    /// Shown in the tooltip and, where it fits, below the name.
    pub text: String,
}

/// One stacked bar over the full width. The parts' amounts add up to the bar.
pub fn bar(label: &str, parts: &[Part]) -> String {
    let all: f64 = parts.iter().map(|p| p.amount).sum();
    let height = 44.0;
    let mut out = open("chart", WIDTH, height, label);
    let mut x = 0.0;
    for part in parts {
        let width = if all > 0.0 { part.amount / all * WIDTH } else { 0.0 };
        let (name, text) = (escape(&part.name), escape(&part.text));
        out.push_str(&format!(
            "<g><title>{name}: {text}</title><rect class=\"{}\" x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{height}\"/>",
            part.class
        ));
        // About 7 units a character; a name that does not fit stands in the legend below.
        if width > part.text.chars().count().max(part.name.chars().count()) as f64 * 7.0 + 16.0 {
            let class = part.class;
            out.push_str(&format!(
                "<text class=\"on-{class} strong\" x=\"{:.1}\" y=\"19\">{name}</text>\
                 <text class=\"on-{class}\" x=\"{:.1}\" y=\"35\">{text}</text>",
                x + 8.0,
                x + 8.0
            ));
        }
        out.push_str("</g>");
        x += width;
    }
    out.push_str("</svg>");
    out
}

/// The range that several histograms share, in powers of two of nanoseconds.
pub fn range<'a>(hists: impl Iterator<Item = &'a Histogram>) -> Option<(f64, f64)> {
    let mut bounds: Option<(f64, f64)> = None;
    for hist in hists {
        let (Some(min), Some(max)) = (hist.min(), hist.max()) else { continue };
        let (low, high) = ((min.max(1) as f64).log2(), (max.max(1) as f64).log2());
        bounds = Some(bounds.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
    }
    // A little air on both sides, and never an empty axis.
    bounds.map(|(low, high)| ((low - 0.5).max(0.0).floor(), (high + 0.5).ceil().max(low.floor() + 3.0)))
}

/// I/Os over time in the stage, on a logarithmic axis that the charts of one device share.
pub fn histogram(stage: Stage, hist: &Histogram, (low, high): (f64, f64)) -> String {
    let (left, top, plot, bottom) = (64.0, 26.0, 96.0, 26.0);
    let (width, floor) = (WIDTH - left - 8.0, top + plot);
    let bins = bins(hist, low, high);
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
        // At least one unit high: a single slow I/O among millions must be seen.
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

/// Vertical lines at the median and above, where they exist: the median's label to the left of its
/// line, the others' to the right.
fn markers(hist: &Histogram, top: f64, floor: f64, at: &dyn Fn(f64) -> f64) -> String {
    let mut out = String::new();
    // The stage's name stands at the left.
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
        // Labels that would overlap the one before are left to the table; their lines are short.
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

/// How something went over time: places in seconds and values, in the order of time, from zero up. A gap is where the
/// value is None. `marks` are places of a line across, all charts of a run share `seconds`.
pub fn course(
    name: &str,
    seconds: f64,
    values: &[(f64, Option<f64>)],
    marks: &[f64],
    show: impl Fn(f64) -> String,
) -> String {
    let (left, top, plot, bottom) = (96.0, 26.0, 64.0, 22.0);
    let (width, floor) = (WIDTH - left - 8.0, top + plot);
    let most = values.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
    let full = if most > 0.0 { most } else { 1.0 };
    let x = |at: f64| left + (at / seconds.max(1e-9)).clamp(0.0, 1.0) * width;
    let y = |value: f64| floor - (value / full).clamp(0.0, 1.0) * plot;
    let mut out = open("chart", WIDTH, floor + bottom, &format!("{name} over time"));
    for (value, at) in [(full, y(full)), (0.0, floor)] {
        out.push_str(&format!(
            "<line class=\"{}\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            if value > 0.0 { "grid" } else { "axis" },
            left + width,
            left - 8.0,
            at + 4.0,
            escape(&show(value))
        ));
    }
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let anchor = if part == 1.0 { "end" } else { "middle" };
        out.push_str(&format!(
            "<text class=\"tick\" text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(seconds * part),
            floor + 16.0,
            time((seconds * part * 1e9) as u64)
        ));
    }
    for run in values.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty()) {
        let points: Vec<String> =
            run.iter().filter_map(|(at, value)| Some(format!("{:.1},{:.1}", x(*at), y((*value)?)))).collect();
        out.push_str(&format!("<polyline class=\"course\" points=\"{}\"/>", points.join(" ")));
    }
    for mark in marks {
        let at = x(*mark);
        out.push_str(&format!(
            "<line class=\"marker\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{floor}\"/>",
            top - 4.0
        ));
    }
    out.push_str(&format!("<text class=\"strong\" x=\"{left}\" y=\"14\">{}</text></svg>", escape(name)));
    out
}

/// Counts in equal steps of the logarithm. A bucket across a border is shared out by its overlap.
fn bins(hist: &Histogram, low: f64, high: f64) -> Vec<f64> {
    let steps = ((high - low) * BINS_PER_OCTAVE).ceil() as usize;
    let mut bins = vec![0.0; steps];
    let place = |ns: f64| (ns.max(1.0).log2() - low) * BINS_PER_OCTAVE;
    let (min, max) = (hist.min().unwrap_or(0) as f64, hist.max().unwrap_or(0) as f64);
    for (lower, upper, n) in hist.buckets() {
        // The extremes are exact: nothing is drawn beyond them.
        let (from, to) = ((lower as f64).max(min), (upper as f64).min(max));
        // The last bucket also holds what lies beyond it.
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

/// Powers of ten, with 2 and 5 between where there is room.
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

/// A round number in short, without trailing zeros: `25k`.
fn amount(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e4 => format!("{}k", v / 1e3),
        v => format!("{v}"),
    }
}

/// The next round number: steps small enough to use most of the height.
fn nice(value: f64) -> f64 {
    // Even numbers below ten, so that the half of it is a count as well.
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

/// The start of a picture of these classes.
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
        let drawn: f64 = bins(&hist, low, high).iter().sum();
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

    #[test]
    fn a_course_has_gaps_where_nothing_is_known() {
        let values = [(0.1, Some(4.0)), (0.2, Some(8.0)), (0.3, None), (0.4, Some(2.0))];
        let svg = course("a <b>", 0.4, &values, &[0.2], |value| format!("{value}/s"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("class=\"marker\"").count(), 1);
        assert!(svg.contains("8/s") && !svg.contains("<b>") && !svg.contains("NaN"), "{svg}");
        // The highest value touches the upper line, at half of the time.
        assert!(svg.contains("564.0,26.0"), "{svg}");
        assert!(!course("x", 0.0, &[(0.0, Some(0.0))], &[], |v| v.to_string()).contains("NaN"));
    }

    #[test]
    fn a_bar_is_as_wide_as_its_parts() {
        let part =
            |name: &str, amount| Part { class: "s-queue", name: name.into(), amount, text: "1 <b>".into() };
        let svg = bar("x", &[part("a", 1.0), part("b", 3.0)]);
        assert!(svg.contains("width=\"260.0\"") && svg.contains("width=\"780.0\"") && !svg.contains("<b>"));
        assert!(!bar("x", &[part("a", 0.0)]).contains("NaN"));
    }
}
