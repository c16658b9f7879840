//! Values over the seconds of a run, as lines.

use super::frame::{ACROSS, FLOOR, LEFT, TOP, at_seconds, frame, label, most, y};

/// One line of a chart.
#[derive(Debug, Clone)]
pub struct ChartLine<'a> {
    /// Shown if there are several.
    pub name: &'a str,
    /// Seconds and values, in order; None leaves a gap.
    pub values: Vec<(f64, Option<f64>)>,
}

/// Lines over `seconds`, from 0 up to the highest value, with vertical lines at `marks`.
pub fn lines(
    title: &str,
    seconds: f64,
    lines: &[ChartLine<'_>],
    marks: &[f64],
    show: impl Fn(f64) -> String,
) -> String {
    let full = most(lines.iter().flat_map(|line| &line.values).filter_map(|(_, value)| *value));
    let x = |at: f64| LEFT + (at / seconds.max(1e-9)).clamp(0.0, 1.0) * ACROSS;
    let legend: String = match lines {
        [_] => String::new(),
        several => several
            .iter()
            .enumerate()
            .map(|(i, line)| format!(" <tspan class=\"line-{i}\">{}</tspan>", super::escape(line.name)))
            .collect(),
    };
    let mut out = frame(title, &legend, full, show);
    for part in [0.0, 0.5, 1.0] {
        let anchor = if part == 1.0 { "end" } else { "middle" };
        out.push_str(&label(x(seconds * part), FLOOR + 16.0, anchor, &at_seconds(seconds * part)));
    }
    for (i, line) in lines.iter().enumerate() {
        for run in line.values.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty()) {
            let points: Vec<String> = run
                .iter()
                .filter_map(|(at, value)| Some(format!("{:.1},{:.1}", x(*at), y((*value)?, full))))
                .collect();
            out.push_str(&format!("<polyline class=\"course line-{i}\" points=\"{}\"/>", points.join(" ")));
        }
    }
    for mark in marks {
        let at = x(*mark);
        out.push_str(&format!(
            "<line class=\"marker\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{FLOOR}\"/>",
            TOP - 4.0
        ));
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_gaps_where_nothing_is_known() {
        let values = vec![(0.1, Some(4.0)), (0.2, Some(8.0)), (0.3, None), (0.4, Some(2.0))];
        let line = ChartLine { name: "<i>", values };
        let svg = lines("a <b>", 0.4, std::slice::from_ref(&line), &[0.2], |value| format!("{value}/s"));
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("class=\"marker\"").count(), 1);
        assert!(svg.contains("8/s") && !svg.contains("<b>") && !svg.contains("NaN"), "{svg}");
        // The highest value touches the upper line, at half of the time.
        assert!(svg.contains("240.0,30.0"), "{svg}");
        let both = lines("x", 0.4, &[line.clone(), line], &[], |v| v.to_string());
        assert!(
            both.contains("<tspan class=\"line-1\">&lt;i&gt;</tspan>") && !both.contains("<i>"),
            "{both}"
        );
        let zero = ChartLine { name: "", values: vec![(0.0, Some(0.0))] };
        assert!(!lines("x", 0.0, &[zero], &[], |v| v.to_string()).contains("NaN"));
    }
}
