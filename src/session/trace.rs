//! Traces each I/O with its operation during an interval.

use std::time::Duration;

use anyhow::Result;

use crate::analyze::latency::{DeviceLatency, LatencySummary, summarize};
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::join::Join;
use crate::analyze::trace::scene::Scene;
use crate::analyze::trace::{self, TraceSummary};
use crate::analyze::{loss, missing};
use crate::clock::now_ns;
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::events::EventCounts;
use crate::wire::reading::Reading;

/// Reads the events of a probe, and joins those of one I/O.
pub struct Tracer {
    join: Join,
    is_over: bool,
}

impl Tracer {
    pub fn new(scene: &Scene) -> Self {
        Self { join: Join::new(scene), is_over: false }
    }

    /// The I/Os that ended since the last call; waits at most `left`.
    pub fn next(&mut self, probe: &mut LatencyProbe, left: Duration) -> Result<Vec<TracedIo>> {
        probe.tick();
        self.read(probe, Some(left)).map(Option::unwrap_or_default)
    }

    /// The remaining I/Os in batches, after the probe was detached and [`LatencyProbe::end_events`] was called. None:
    /// no more.
    pub fn rest(&mut self, probe: &LatencyProbe) -> Result<Option<Vec<TracedIo>>> {
        if self.is_over {
            return Ok(None);
        }
        if let Some(ios) = self.read(probe, None)? {
            return Ok(Some(ios));
        }
        self.is_over = true;
        Ok(Some(self.join.finish()))
    }

    fn read(&mut self, probe: &LatencyProbe, left: Option<Duration>) -> Result<Option<Vec<TracedIo>>> {
        let Some(mut taken) = probe.events(left)? else { return Ok(None) };
        let ios = self.join.round(now_ns(), taken.events.drain(..), taken.emptied);
        probe.give_back(taken.events);
        Ok(Some(ios))
    }

    /// The summary: `matched` I/Os fit the filter, and `shown` were shown.
    pub fn summary(&self, shown: u64, matched: u64, devices: Vec<DeviceLatency>) -> TraceSummary {
        let (unjoined, unshown) = (self.join.unjoined, self.join.unshown);
        TraceSummary { summary: true, shown, matched, unjoined, unshown, devices }
    }

    /// Number of I/Os so far.
    pub fn ios(&self) -> u64 {
        self.join.ios
    }
}

/// The counts of the whole interval.
pub struct TraceTotals {
    pub envelope: Envelope,
    pub latency: LatencySummary,
    pub emitted: EventCounts,
}

impl TraceTotals {
    /// Of a probe that was detached with the reading `last`; `start` has the start of the interval.
    ///
    /// # Errors
    ///
    /// If the counts of events cannot be read.
    pub fn read(host: &Host, probe: &LatencyProbe, last: &Reading, start: Envelope) -> Result<Self> {
        let emitted = probe.emitted()?;
        let latency = summarize(host, probe.start(), last);
        let envelope = Envelope {
            duration_ns: latency.duration_ns,
            lost: trace::lost(loss::lost(&latency, probe.start(), last), &emitted),
            cost: probe.cost(latency.ios_per_second()),
            missing: [probe.missing().to_vec(), missing::stages(&latency)].concat(),
            ..start
        };
        Ok(Self { envelope, latency, emitted })
    }

    /// Why it must not be trusted, with a remedy; None if it may.
    pub fn distrust(&self, max_loss: f64, remedy: &str) -> Option<String> {
        let doubt = loss::distrust(&self.latency, &self.envelope.lost, max_loss);
        doubt.or_else(|| trace::distrust(&self.emitted, max_loss, remedy))
    }
}
