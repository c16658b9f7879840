//! Computes which samples were lost, and whether the rest can be trusted.

use std::collections::BTreeMap;

use super::ThreadSummary;
use crate::envelope::Lost;
use crate::wire::threads::Reading;

/// Samples that are in no row.
pub fn lost(summary: &ThreadSummary) -> Lost {
    let kinds = summary.loss.kinds().into_iter().map(|(kind, n)| (kind.to_string(), n)).collect();
    Lost {
        samples: summary.loss.samples(),
        probes: BTreeMap::from([("threads".to_string(), kinds)]),
        ..Lost::default()
    }
}

/// Why the averages must not be trusted; None if they may: `max_loss` in percent of the samples.
pub fn distrust(end: &Reading, max_loss: f64) -> Option<String> {
    let loss = &end.loss;
    if end.rounds == 0 {
        return Some("no scan of the threads ended in this time: measure longer with --for".to_string());
    }
    if loss.missed > end.rounds {
        return Some(format!(
            "{} scans were missed and {} were not: the machine is too busy for this rate; use a lower --hz",
            loss.missed, end.rounds
        ));
    }
    let all = loss.samples().saturating_add(end.samples);
    let percent = if all == 0 { 0.0 } else { 100.0 * loss.samples() as f64 / all as f64 };
    (percent > max_loss).then(|| {
        format!(
            "{percent:.2} % of the samples were lost, more than --max-loss {max_loss} % allows: choose \
             threads with -p, --comm or --cgroup"
        )
    })
}
