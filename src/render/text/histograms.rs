//! Renders histograms as rows of stars.

use std::collections::BTreeMap;

use super::layout::panels;
use super::{count, counted, figure};
use crate::hist::Histogram;

const BAR: usize = 24;

/// Fewer values are not a distribution.
const FEW: u64 = 10;

/// Values by power of two: the key is that of the upper end.
fn octaves(hist: &Histogram) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for (lower, _, n) in hist.buckets() {
        let row = rows.entry(if lower == 0 { 0 } else { 64 - lower.leading_zeros() }).or_insert(0);
        *row = n.saturating_add(*row);
    }
    rows
}

/// One row per power of two, the stages side by side if they fit. A histogram with a single bar, or few values, becomes
/// a line.
pub fn histograms(stages: Vec<(&str, &Histogram)>, unit: (f64, &'static str)) -> String {
    let is_drawn = |hist: &Histogram| hist.count() >= FEW && octaves(hist).len() > 1;
    let (drawn, told): (Vec<_>, Vec<_>) = stages.into_iter().partition(|(_, hist)| is_drawn(hist));
    let drawn: Vec<(&str, BTreeMap<u32, u64>)> =
        drawn.into_iter().map(|(stage, hist)| (stage, octaves(hist))).collect();
    let mut out = picture(&drawn, unit);
    for (stage, hist) in told {
        let edge = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| figure(ns as f64 / unit.0));
        let (least, most) = (edge(hist.min()), edge(hist.max()));
        let (n, unit) = (counted(hist.count(), "I/O"), unit.1);
        out.push_str(&match hist.count() {
            0 => continue,
            _ if least == most => format!("{stage}: {n} of {least} {unit}\n"),
            _ => format!("{stage}: {n} of {least} to {most} {unit}\n"),
        });
    }
    out
}

fn picture(stages: &[(&str, BTreeMap<u32, u64>)], (scale, unit): (f64, &'static str)) -> String {
    let all = || stages.iter().flat_map(|(_, rows)| rows.keys().copied());
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return String::new() };
    let label = |octave: u32| {
        let lower = if octave == 0 { 0 } else { 1u64 << (octave - 1) };
        format!("[{}, {})", figure(lower as f64 / scale), figure(2f64.powi(octave as i32) / scale))
    };
    let counts: Vec<usize> = stages
        .iter()
        .map(|(stage, rows)| rows.values().map(|n| count(*n).len()).chain([stage.len()]).max().unwrap_or(0))
        .collect();
    let names = stages.iter().zip(&counts).map(|((stage, _), wide)| format!("{stage:>wide$}")).collect();
    let mut lines: Vec<(String, Vec<String>)> = vec![(unit.to_string(), names)];
    for o in first..=last {
        let panel = |((_, rows), wide): (&(&str, BTreeMap<u32, u64>), &usize)| {
            let n = rows.get(&o).copied().unwrap_or(0);
            let most = rows.values().copied().max().unwrap_or(1).max(1);
            let stars = ((n as f64 / most as f64) * BAR as f64).ceil() as usize;
            format!("{:>wide$} |{:<BAR$}|", count(n), "*".repeat(stars))
        };
        lines.push((label(o), stages.iter().zip(&counts).map(panel).collect()));
    }
    panels(&lines)
}

#[cfg(test)]
mod tests {
    use super::super::fit;
    use super::super::stages::unit_of;
    use super::*;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::stage::Stage;

    fn picture_of(values: impl Iterator<Item = u64>) -> String {
        let stages = BTreeMap::from([(Stage::Device, values.collect())]);
        let latency = OpLatency { request_stages: stages, ..OpLatency::default() };
        let all = latency.request_stages.iter().map(|(stage, hist)| (stage.name(), hist));
        fit(&histograms(all.collect(), unit_of(&latency)), None)
    }

    #[test]
    fn a_histogram_has_one_unit_from_top_to_bottom() {
        let text = picture_of((0..100u64).map(|i| 400_000 + i * 40_000));
        let expected = [
            "          ms  device",
            "[0.26, 0.52)       4 |**                      |",
            "[0.52, 1.05)      13 |******                  |",
            "[1.05, 2.10)      26 |************            |",
            "[2.10, 4.19)      52 |************************|",
            "[4.19, 8.39)       5 |***                     |",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_would_be_one_bar_is_one_line() {
        assert_eq!(picture_of([70_000; 500].into_iter()), "device: 500 I/Os of 70.0 µs\n");
        assert_eq!(picture_of((0..500).map(|i| 70_000 + i)), "device: 500 I/Os of 70.0 to 70.5 µs\n");
        assert_eq!(picture_of((0..9).map(|i| 1_000 << i)), "device: 9 I/Os of 1.00 to 256 µs\n");
        assert_eq!(picture_of([2_500_000].into_iter()), "device: 1 I/O of 2.50 ms\n");
        assert_eq!(picture_of((0..10).map(|i| 1_000 << i)).lines().count(), 11);
    }
}
