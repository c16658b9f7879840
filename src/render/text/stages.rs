//! Renders the table of stages.

use std::collections::BTreeMap;

use super::{count, figure, table, time_unit};
use crate::analyze::latency::{OpLatency, Unit};
use crate::analyze::parts::Parts;
use crate::analyze::stage::Stage;
use crate::hist::Histogram;

/// The unit of all times of one I/O class: that of the largest median.
pub fn unit_of(latency: &OpLatency) -> (f64, &'static str) {
    let total = latency.operations.iter().map(|all| &all.total);
    let times = latency.request_stages.values().chain(&latency.bio).chain(total);
    let medians = times.filter_map(|h| h.quantile(0.5).or(h.max()));
    time_unit(medians.max().unwrap_or(0))
}

/// Percentiles per stage, and of the whole under its name.
pub fn stages_table(
    of: Unit,
    stages: &BTreeMap<Stage, Histogram>,
    parts: &Parts,
    whole: Option<(&str, &Histogram)>,
    (scale, unit): (f64, &'static str),
) -> String {
    let cell = |value: Option<u64>| value.map_or("-".to_string(), |v| figure(v as f64 / scale));
    let rows: Vec<Vec<String>> = Stage::ALL
        .iter()
        .flat_map(|stage| {
            let part =
                parts.get(stage).into_iter().flatten().map(|(part, h)| (format!("  {}", part.name()), h));
            stages.get(stage).map(|h| (stage.name().to_string(), h)).into_iter().chain(part)
        })
        .chain(whole.map(|(name, h)| (name.to_string(), h)))
        .map(|(name, h)| {
            vec![
                name,
                h.mean().map_or("-".to_string(), |v| figure(v / scale)),
                cell(h.min()),
                cell(h.quantile(0.5)),
                cell(h.quantile(0.9)),
                cell(h.quantile(0.99)),
                cell(h.quantile(0.999)),
                cell(h.max()),
                count(h.count()),
            ]
        })
        .collect();
    table(
        &[&format!("{}, {unit}", of.name()), "mean", "min", "p50", "p90", "p99", "p99.9", "max", "n"],
        &rows,
    )
}
