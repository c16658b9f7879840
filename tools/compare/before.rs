//! `biopsy compare --before`: new rounds against a saved result.

use std::collections::BTreeMap;

use anyhow::Result;
use biopsy::experiment::compare::{Comparison, MetricKind, SampleSource, differences, offline};
use biopsy::refusal::Refusal;
use biopsy::render::text;

use super::kept;
use crate::cli::Compare;

/// Rounds without --rounds. They are evaluated once, at the end, as the number of saved runs is fixed.
pub const ROUNDS: usize = 10;

/// The name of the new rounds among the arms.
pub const NAME: &str = "now";

/// Refuses a saved result without the deciding metric.
pub fn check(kept: &SampleSource, primary: MetricKind) -> Result<()> {
    if kept.samples.iter().any(|sample| sample.contains_key(primary.name())) {
        return Ok(());
    }
    let name = text::clean(&kept.name);
    let why = format!("{name} has no {}: name a metric that it has with --metric", primary.title());
    Err(Refusal::Refused(why).into())
}

/// Refuses results of different setups, unless `--across` allows it.
pub fn check_setup(args: &Compare, kept: &SampleSource, now: &BTreeMap<String, String>) -> Result<()> {
    kept::refuse(args, &kept.name, NAME, &differences(&kept.setup, now))
}

/// The comparison with the new rounds as the second arm.
pub fn against(kept: &SampleSource, now: Comparison, are_interpolated: bool, margin: f64) -> Comparison {
    let counts = now.rounds.iter().filter(|round| round.left_out.is_none());
    let source = SampleSource {
        name: NAME.to_string(),
        samples: counts.map(|round| round.values.clone()).collect(),
        setup: now.setup,
        are_interpolated,
    };
    let primary = now.primary.unwrap_or(MetricKind::Iops);
    let found = offline(kept, &source, primary, margin);
    let notes = now.notes.into_iter().chain(found.notes).collect();
    Comparison { target: now.target, device: now.device, value: now.value, end: now.end, notes, ..found }
}
