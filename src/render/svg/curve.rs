//! A figure by the load's depth, as a curve.

use super::escape;
use super::frame::{ACROSS, FLOOR, LEFT, frame, label, most, y};

/// The result of the blocks of one load.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvePoint {
    pub name: String,
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    /// It differs from the others by more than its depth: the line skips it.
    pub is_apart: bool,
}

/// Points at equal distances: doubling depths are equal steps of a logarithmic axis.
pub fn curve(title: &str, points: &[CurvePoint], show: impl Fn(f64) -> String) -> String {
    // Room for the figures above the points.
    let full = most(points.iter().map(|point| point.high)) * 1.2;
    let step = ACROSS / points.len().max(1) as f64;
    let placed = || points.iter().enumerate().map(|(i, point)| (LEFT + step * (i as f64 + 0.5), point));
    let mut out = frame(title, "", full, &show);
    let line: Vec<String> = placed()
        .filter(|(_, point)| !point.is_apart)
        .map(|(x, point)| format!("{x:.1},{:.1}", y(point.mean, full)))
        .collect();
    out.push_str(&format!("<polyline class=\"course line-0\" points=\"{}\"/>", line.join(" ")));
    for (x, point) in placed() {
        let [mean, low, high] = [point.mean, point.low, point.high].map(|value| y(value, full));
        out.push_str(&format!(
            "<g><title>{}: {}, {} to {}</title><line class=\"spread\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{high:.1}\" \
             y2=\"{low:.1}\"/><circle class=\"dot\" cx=\"{x:.1}\" cy=\"{mean:.1}\" r=\"3.5\"/></g>{}{}",
            escape(&point.name),
            escape(&show(point.mean)),
            escape(&show(point.low)),
            escape(&show(point.high)),
            label(x, high - 6.0, "middle", &show(point.mean)),
            label(x, FLOOR + 16.0, "middle", &point.name)
        ));
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_passes_through_loads_that_differ_by_depth_alone() {
        let point = |name: &str, mean: f64, is_apart| CurvePoint {
            name: name.to_string(),
            mean,
            low: mean * 0.9,
            high: mean * 1.1,
            is_apart,
        };
        let points =
            [point("depth <16>", 50.0, false), point("depth 32", 80.0, false), point("2 jobs", 90.0, true)];
        let svg = curve("IOPS", &points, |value| format!("{value:.0}"));
        let line = svg.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.split(' ').count(), 2, "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("<title>depth &lt;16&gt;: 50, 45 to 55</title>"), "{svg}");
        assert!(!curve("IOPS", &[], |value| value.to_string()).contains("NaN"));
    }
}
