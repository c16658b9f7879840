//! The `interrupts` view.

use super::watch::{Live, WatchInterval};
use crate::analyze::interrupts::{InterruptSummary, summarize, trust};
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::interrupts::InterruptProbe;
use crate::wire::interrupts::Reading;

/// Shows interrupts, and the completions per interrupt.
pub struct InterruptView<'a> {
    pub host: &'a Host,
    /// One of this many interrupts is timed.
    pub time_every: u32,
}

impl Live for InterruptView<'_> {
    type Probe = InterruptProbe;
    type Summary = InterruptSummary;

    fn summary(
        &mut self,
        probe: &InterruptProbe,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, InterruptSummary) {
        let summary = summarize(self.host, piece.from, piece.to).timed_one_of(self.time_every);
        let envelope = Envelope {
            duration_ns: summary.duration_ns,
            lost: trust::lost(&summary, piece.from, piece.to),
            cost: probe.cost(summary.ios_per_second()),
            missing: probe.missing().to_vec(),
            ..envelope
        };
        (envelope, summary)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        let whole = summarize(self.host, first, last);
        trust::distrust(&whole, &trust::lost(&whole, first, last), max_loss)
    }
}
