//! Shows each I/O with the operation that it belongs to.

mod event;
#[cfg(test)]
mod fixtures;
pub mod io;
pub mod join;
pub mod operation;
pub mod scene;
pub mod slowest;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency::DeviceLatency;
use crate::envelope::{Lost, View};
use crate::wire::events::EventCounts;

/// The last line of `biopsy trace --json`. The lines before it are an object per I/O, without an envelope.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TraceSummary {
    /// True: the line of an I/O has no such key.
    pub summary: bool,
    /// I/Os that were shown.
    pub shown: u64,
    /// I/Os of the classes and times that were asked for.
    pub matched: u64,
    /// I/Os that name an operation whose end was not seen: it had not ended, or its event is lost.
    #[serde(rename = "ios_without_end")]
    pub unjoined: u64,
    /// Operations that ended and that no I/O showed: the I/O's event is lost, or too late.
    #[serde(rename = "operations_without_io")]
    pub unshown: u64,
    /// The counts of the whole window.
    pub devices: Vec<DeviceLatency>,
}

impl View for TraceSummary {
    const SCHEMA: &'static str = "biopsy.trace/1";
}

/// Adds the losses of the events to those of the interval.
pub fn lost(mut all: Lost, emitted: &EventCounts) -> Lost {
    let kinds = [
        ("io_ring_full", emitted.lost_ios),
        ("operation_ring_full", emitted.lost_operations),
        ("operation_before_io", emitted.early_operations),
        ("damaged", emitted.damaged),
    ];
    all.events += kinds.iter().map(|(_, n)| n).sum::<u64>();
    all.probes
        .insert("trace".to_string(), kinds.into_iter().map(|(kind, n)| (kind.to_string(), n)).collect());
    all
}

/// Why the stream must not be trusted, with a remedy; None if it may.
pub fn distrust(emitted: &EventCounts, max_loss: f64, remedy: &str) -> Option<String> {
    let lost = emitted.lost_ios + emitted.damaged;
    let percent = if emitted.ios == 0 { 0.0 } else { lost as f64 * 100.0 / emitted.ios as f64 };
    (percent > max_loss).then(|| {
        format!(
            "{lost} of {} I/Os ({percent:.2} %) were lost because the reader was too slow, more than \
             --max-loss {max_loss} % allows: {remedy}",
            emitted.ios
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{json, reading, sample};
    use super::super::latency::summarize;
    use super::*;
    use crate::host::Host;

    #[test]
    fn the_last_line_is_read_back() {
        let devices =
            summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(9, sample(&[5, 7], 2, 2)))
                .devices;
        let summary = TraceSummary { summary: true, shown: 1, matched: 2, unjoined: 3, unshown: 4, devices };
        let value = json(&summary);
        let keys = ["summary", "shown", "matched", "ios_without_end", "operations_without_io"];
        assert_eq!(keys.map(|key| value[key].clone()), [json!(true), json!(1), json!(2), json!(3), json!(4)]);
        assert_eq!((&value["devices"][0]["ios"], value.as_object().unwrap().len()), (&json!(2), 6));
    }

    #[test]
    fn lost_events_are_loss() {
        let emitted = EventCounts { ios: 1000, lost_ios: 1, lost_operations: 3, ..EventCounts::default() };
        let all = lost(Lost::default(), &emitted);
        assert_eq!((all.events, all.probes["trace"]["io_ring_full"]), (4, 1));
        assert_eq!(distrust(&emitted, 0.1, ""), None);
        let early = lost(Lost::default(), &EventCounts { early_operations: 2, ..EventCounts::default() });
        assert_eq!((early.events, early.probes["trace"]["operation_before_io"]), (2, 2));
        let why = distrust(&EventCounts { lost_ios: 2, ..emitted }, 0.1, "select fewer").unwrap();
        assert!(why.contains("2 of 1000") && why.ends_with(": select fewer"), "{why}");
        assert_eq!(distrust(&EventCounts::default(), 0.0, ""), None);
    }
}
