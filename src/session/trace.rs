//! Each I/O with its operation, while a window is open.

use std::time::Duration;

use anyhow::Result;

use crate::analyze::latency::DeviceLatency;
use crate::analyze::trace::TraceSummary;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::join::Join;
use crate::analyze::trace::scene::Scene;
use crate::clock::now_ns;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;

/// Reads the events of a probe, and joins those of one I/O.
pub struct Tracer {
    join: Join,
    is_over: bool,
}

impl Tracer {
    pub fn new(scene: &Scene) -> Self {
        Self { join: Join::new(scene), is_over: false }
    }

    /// The I/Os that ended since the last call, after a wait of at most `left`.
    pub fn next(&mut self, probe: &mut LatencyProbe, left: Duration) -> Result<Vec<TracedIo>> {
        probe.tick();
        self.read(probe, Some(left)).map(Option::unwrap_or_default)
    }

    /// Once the probe is detached and [`LatencyProbe::end_events`] was called: what is left, piece by piece. None: that
    /// was all.
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

    /// What came of it; `matched` I/Os were asked for, and so many shown.
    pub fn summary(&self, shown: u64, matched: u64, devices: Vec<DeviceLatency>) -> TraceSummary {
        let (unjoined, unshown) = (self.join.unjoined, self.join.unshown);
        TraceSummary { summary: true, shown, matched, unjoined, unshown, devices }
    }

    /// I/Os so far.
    pub fn ios(&self) -> u64 {
        self.join.ios
    }
}
