//! The `latency` view.

use std::collections::BTreeMap;

use anyhow::Result;

use super::submitters;
use super::watch::{Live, WatchInterval};
use crate::analyze::groups::{self, Dimension};
use crate::analyze::latency::{LatencySummary, summarize};
use crate::analyze::{layers, loss, missing};
use crate::envelope::Envelope;
use crate::host::Host;
use crate::host::cgroups::Hierarchy;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Shows latencies, optionally by group.
pub struct LatencyView<'a> {
    host: &'a Host,
    by: &'a [Dimension],
    /// Set when grouping by cgroup.
    hierarchy: Option<Hierarchy>,
    /// Paths of cgroups by id: a cgroup removed during the interval keeps its name.
    cgroups: BTreeMap<u64, String>,
}

impl<'a> LatencyView<'a> {
    /// `by`: each dimension at most once.
    pub fn new(host: &'a Host, by: &'a [Dimension]) -> Result<Self> {
        let hierarchy = if by.contains(&Dimension::Cgroup) { Some(submitters::hierarchy()?) } else { None };
        let cgroups = hierarchy.as_ref().map(Hierarchy::paths).unwrap_or_default();
        Ok(Self { host, by, hierarchy, cgroups })
    }
}

impl Live for LatencyView<'_> {
    type Probe = LatencyProbe;
    type Summary = LatencySummary;

    fn summary(
        &mut self,
        probe: &LatencyProbe,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, LatencySummary) {
        let (from, to) = (piece.from, piece.to);
        let mut summary = summarize(self.host, from, to);
        self.cgroups.extend(self.hierarchy.as_ref().map(Hierarchy::paths).unwrap_or_default());
        summary.groups = groups::summarize(self.host, self.by, &self.cgroups, from, to);
        let envelope = Envelope {
            duration_ns: summary.duration_ns,
            lost: loss::lost(&summary, from, to),
            cost: probe.cost(summary.ios_per_second()),
            missing: [probe.missing().to_vec(), missing::stages(&summary), layers::missing(&summary)]
                .concat(),
            ..envelope
        };
        (envelope, summary)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        let whole = summarize(self.host, first, last);
        loss::distrust(&whole, &loss::lost(&whole, first, last), max_loss)
    }
}
