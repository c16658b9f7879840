//! Reads the probe about once a second during a diagnosis, for the timeline of its devices.

use std::time::{Duration, Instant};

use crate::analyze::latency::summarize;
use crate::analyze::timeline::Timeline;
use crate::host::Host;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Readings take at most 1 in this many parts of the time: 2 ms per second.
const LEAST_PAUSE: u32 = 500;

/// The timeline so far, and the reading at the end of its last interval.
pub struct TimelineSampler<'a> {
    host: &'a Host,
    timeline: Timeline,
    last: Option<Reading>,
    due: Option<Instant>,
    /// The shortest duration of a reading: longer ones waited for a CPU.
    cost: Duration,
}

impl<'a> TimelineSampler<'a> {
    pub fn new(host: &'a Host) -> Self {
        Self { host, timeline: Timeline::default(), last: None, due: None, cost: Duration::MAX }
    }

    /// Takes a reading if one is due; call it several times a second. After a failed reading the next one covers both
    /// intervals.
    pub fn tick(&mut self, probe: &LatencyProbe) {
        let begin = Instant::now();
        let step = Duration::from_nanos(self.timeline.step_ns());
        if begin < *self.due.get_or_insert(begin + step) {
            return;
        }
        if let Ok(now) = probe.read() {
            self.cost = self.cost.min(begin.elapsed());
            self.add(probe.start(), now);
        }
        let step = Duration::from_nanos(self.timeline.step_ns());
        self.due = Some(begin + step.max(self.cost.checked_mul(LEAST_PAUSE).unwrap_or(step)));
    }

    fn add(&mut self, start: &Reading, now: Reading) {
        self.timeline.add(&summarize(self.host, self.last.as_ref().unwrap_or(start), &now));
        self.last = Some(now);
    }

    /// Adds what came since the last reading.
    pub fn end(mut self, start: &Reading, end: &Reading) -> Timeline {
        self.add(start, end.clone());
        self.timeline.finish();
        self.timeline
    }
}
