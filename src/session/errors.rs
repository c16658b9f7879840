//! The `errors` view.

use super::watch::{Live, WatchInterval};
use crate::analyze::errors::{ErrorSummary, summarize};
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::errors::ErrorProbe;
use crate::wire::errors::Reading;

/// Shows requests that failed or were requeued.
pub struct ErrorView<'a> {
    pub host: &'a Host,
    /// The selected disks; empty: all.
    pub named: &'a [String],
}

impl Live for ErrorView<'_> {
    type Probe = ErrorProbe;
    type Summary = ErrorSummary;

    fn summary(
        &mut self,
        probe: &ErrorProbe,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, ErrorSummary) {
        let summary = summarize(self.host, self.named, piece.from, piece.to);
        let envelope = Envelope {
            duration_ns: summary.duration_ns,
            lost: summary.lost.clone(),
            cost: probe.cost(summary.ios_per_second()),
            missing: probe.missing().to_vec(),
            ..envelope
        };
        (envelope, summary)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        summarize(self.host, self.named, first, last).distrust(max_loss)
    }
}
