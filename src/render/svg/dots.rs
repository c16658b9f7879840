//! Each round of several arms as a dot, in time order.

use super::escape;
use super::frame::{ACROSS, FLOOR, LEFT, frame, label, most, y};

/// The rounds of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounds {
    pub name: String,
    /// Values, and whether each counts.
    pub values: Vec<(f64, bool)>,
    /// The arm's mean.
    pub mean: Option<f64>,
}

/// A column per arm: a dot per round, hollow if it is left out, and a line at the mean.
pub fn dots(title: &str, arms: &[Rounds], show: impl Fn(f64) -> String) -> String {
    let full = most(arms.iter().flat_map(|arm| &arm.values).map(|(value, _)| *value)) * 1.1;
    let mut out = frame(title, "", full, &show);
    let width = ACROSS / arms.len().max(1) as f64;
    for (number, arm) in arms.iter().enumerate() {
        let left = LEFT + width * (number as f64 + 0.1);
        let step = width * 0.8 / arm.values.len().max(1) as f64;
        for (index, (value, counts)) in arm.values.iter().enumerate() {
            let (x, y) = (left + step * (index as f64 + 0.5), y(*value, full));
            let (kind, why) = if *counts { ("dot", "") } else { ("dot left-out", ", left out") };
            out.push_str(&format!(
                "<g><title>{}: {}{why}</title><circle class=\"{kind}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/></g>",
                escape(&arm.name),
                escape(&show(*value)),
            ));
        }
        if let Some(mean) = arm.mean {
            let y = y(mean, full);
            out.push_str(&format!(
                "<line class=\"spread\" x1=\"{left:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                left + width * 0.8
            ));
        }
        out.push_str(&label(left + width * 0.4, FLOOR + 16.0, "middle", &arm.name));
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_is_a_dot_and_names_are_escaped() {
        let arm = |name: &str, values: &[(f64, bool)]| Rounds {
            name: name.to_string(),
            values: values.to_vec(),
            mean: values.first().map(|(value, _)| *value),
        };
        let arms =
            [arm("<none>", &[(10.0, true), (11.0, true)]), arm("bfq", &[(5.0, false)]), arm("kyber", &[])];
        let svg = dots("IOPS", &arms, |value| format!("{value:.0}"));
        assert_eq!((svg.matches("<circle").count(), svg.matches("left-out").count()), (3, 1), "{svg}");
        assert!(svg.contains("<title>bfq: 5, left out</title>") && !svg.contains("<none>"), "{svg}");
        assert_eq!(svg.matches("class=\"spread\"").count(), 2);
        assert!(dots("IOPS", &[], |value| format!("{value:.0}")).ends_with("</svg>"));
    }
}
