//! The section on the load at other depths.

use super::escape;
use super::tables::{Cell, table, text};
use crate::experiment::{Arm, ArmResult, Curve};
use crate::render::experiment;
use crate::render::svg::{self, CurvePoint};
use crate::rules::Summaries;
use crate::units::{short, time};

/// Empty if none was tried.
pub fn depths(s: &Summaries<'_>) -> String {
    let Some(curve) = s.experiment else { return String::new() };
    let [load, rest @ ..] = experiment::HEADER;
    let first = format!("<{load}");
    let header: Vec<&str> = std::iter::once(first.as_str()).chain(rest).collect();
    let row = |[load, numbers @ ..]: [String; 4]| {
        std::iter::once(text(&load)).chain(numbers.map(Cell::Number)).collect::<Vec<_>>()
    };
    format!(
        "<p>{}, after the traced run. Ratios have 95 % confidence intervals.</p>\n{}{}",
        escape(&experiment::extent(curve)),
        charts(curve),
        table(&header, experiment::rows(curve).into_iter().map(row).collect())
    )
}

/// Rate and latency by depth; empty if no two arms can be compared.
fn charts(curve: &Curve) -> String {
    let rates = |tried: &ArmResult| -> Vec<f64> {
        tried.blocks.iter().map(|block| block.operations_per_second).collect()
    };
    let means =
        |tried: &ArmResult| -> Vec<f64> { tried.blocks.iter().filter_map(|block| block.mean_ns).collect() };
    let (rates, means) = (points(curve, &rates), points(curve, &means));
    if rates.len() < 2 {
        return String::new();
    }
    let charts =
        [svg::curve("IOPS", &rates, short), svg::curve("mean latency", &means, |ns| time(ns as u64))];
    format!(
        "<div class=\"charts\">\n{}\n</div>\n<p class=\"soft small\">Vertical lines: from the lowest to the highest block.</p>\n",
        charts.join("\n")
    )
}

fn points(curve: &Curve, values: &dyn Fn(&ArmResult) -> Vec<f64>) -> Vec<CurvePoint> {
    let point = |tried: &ArmResult| {
        let values = values(tried);
        let is_apart = tried.arm == Arm::OneMoreJob;
        (!values.is_empty()).then(|| CurvePoint {
            name: format!("depth {}{}", tried.iodepth, if is_apart { ", +1 job" } else { "" }),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(0.0, f64::max),
            is_apart,
        })
    };
    curve.arms.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    #[test]
    fn rate_and_latency_are_drawn_against_depth() {
        let mut case = Case::new(60_000, 32);
        assert_eq!(depths(&case.summaries()), "");
        case.at_twice_the_depth(1.4);
        let html = depths(&case.summaries());
        assert_eq!((html.matches("<svg").count(), html.matches("<circle").count()), (2, 6), "{html}");
        assert!(html.contains("<title>depth 64: 84.2k, 84.0k to 84.3k</title>"), "{html}");
        case.experiment.as_mut().unwrap().arms.iter_mut().for_each(|tried| tried.blocks.clear());
        assert!(!depths(&case.summaries()).contains("<svg"));
    }
}
