//! Computes what an interval of lock waits lost, and whether the rest can be trusted.

use std::collections::BTreeMap;

use super::LockSummary;
use crate::envelope::Lost;
use crate::merge::SaturatingSum as _;

/// Losses of the interval, by kind.
pub fn lost(summary: &LockSummary) -> Lost {
    let (begins, stacks) = (&summary.events.begins, &summary.stacks);
    let kinds = [
        ("missed", begins.missed),
        ("missed_ends", begins.missed_ends),
        ("unkept", begins.unkept),
        ("abandoned", begins.abandoned),
        ("stacks_failed", stacks.failed),
        ("stacks_full", stacks.full),
        ("stacks_over_budget", stacks.over_budget),
        ("lost_releases", summary.lost_releases.unwrap_or(0)),
        ("waits_of_other_processes", summary.other_processes),
    ];
    Lost {
        events: summary.events.lost(),
        samples: [stacks.failed, stacks.full, summary.spin.map_or(0, |spin| spin.lost)]
            .iter()
            .saturating_sum(),
        probes: BTreeMap::from([(
            "locks".to_string(),
            kinds.iter().map(|(kind, n)| ((*kind).to_string(), *n)).collect(),
        )]),
        ..Lost::default()
    }
}

/// Why a result must not be trusted; None if it may. `max_loss` in percent of the waits.
pub fn distrust(summary: &LockSummary, max_loss: f64) -> Option<String> {
    let events = &summary.events;
    // A wait without its end has no time; one without its begin is missing altogether.
    let lost = events.lost().saturating_add(events.begins.abandoned);
    let all = events.begins.total.saturating_add(events.lost());
    let percent = if all == 0 { 0.0 } else { lost as f64 * 100.0 / all as f64 };
    (percent > max_loss).then(|| {
        format!(
            "{lost} of {all} waits ({percent:.2} %) were missed or not timed, more than --max-loss \
             {max_loss} % allows: run longer or with less load, or allow more"
        )
    })
}
