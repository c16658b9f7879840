//! The frame of a small chart: its title, and horizontal lines at the highest value and at zero.

use crate::render::html::escape;

use super::open;
use crate::units::time;

/// Three charts of this width fit side by side on a wide page, one on a small screen.
pub const WIDTH: f64 = 420.0;

pub const LEFT: f64 = 72.0;
pub const RIGHT: f64 = 12.0;
pub const TOP: f64 = 30.0;
pub const PLOT: f64 = 90.0;
const BOTTOM: f64 = 22.0;

/// Vertical position of the lowest value.
pub const FLOOR: f64 = TOP + PLOT;

/// Distance between the axes.
pub const ACROSS: f64 = WIDTH - LEFT - RIGHT;

/// A chart of values from 0 to `most`. The caller appends the content, then `</svg>`.
pub fn frame(title: &str, legend: &str, most: f64, show: impl Fn(f64) -> String) -> String {
    let mut out = open("chart", WIDTH, FLOOR + BOTTOM, title);
    for value in [most, 0.0] {
        let at = y(value, most);
        out.push_str(&format!(
            "<line class=\"{}\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>{}",
            if value > 0.0 { "grid" } else { "axis" },
            WIDTH - RIGHT,
            label(LEFT - 8.0, at + 4.0, "end", &if value > 0.0 { show(value) } else { "0".to_string() })
        ));
    }
    out.push_str(&format!("<text class=\"strong\" x=\"4\" y=\"14\">{}{legend}</text>", escape(title)));
    out
}

/// Vertical position of a value.
pub fn y(value: f64, most: f64) -> f64 {
    FLOOR - (value / most).clamp(0.0, 1.0) * PLOT
}

/// The highest value, or 1 as a safe divisor.
pub fn most(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

/// The label of a position on an axis of seconds.
pub fn at_seconds(seconds: f64) -> String {
    if seconds > 0.0 { time((seconds * 1e9) as u64) } else { "0 s".to_string() }
}

/// A label at an axis.
pub fn label(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text class=\"tick\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text))
}
