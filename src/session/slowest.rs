//! The view `latency` with the slowest I/Os of each interval beside it, for the flight recorder.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::latency::LatencyView;
use super::trace::Tracer;
use super::watch::{Live, Piece};
use crate::analyze::latency::LatencySummary;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::scene::Scene;
use crate::analyze::trace::slowest::Slowest;
use crate::clock::now_ns;
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Of each interval at most: 60 intervals take about 2 MB.
pub const MOST: usize = 100;

/// The slowest I/Os of the last intervals.
#[derive(Debug)]
pub struct HeldIos {
    keep_ns: u64,
    /// What their numbers mean.
    scene: Arc<Scene>,
    /// In the order of intervals.
    ios: VecDeque<TracedIo>,
    /// When each interval ended, and its I/Os whose event found no room.
    lost: VecDeque<(u64, u64)>,
}

/// Those of a window.
pub struct WindowIos {
    pub scene: Arc<Scene>,
    pub ios: Vec<TracedIo>,
    pub lost: u64,
}

impl HeldIos {
    /// Keeps what ended within `keep_ns`.
    pub fn new(keep_ns: u64) -> Self {
        Self { keep_ns, scene: Arc::default(), ios: VecDeque::new(), lost: VecDeque::new() }
    }

    /// An interval that ends now.
    fn add(&mut self, ios: impl Iterator<Item = TracedIo>, lost: u64) {
        let now = now_ns();
        let from = now.saturating_sub(self.keep_ns);
        self.ios.extend(ios);
        self.ios.retain(|io| io.ended_ns > from);
        self.lost.push_back((now, lost));
        self.lost.retain(|(end_ns, _)| *end_ns > from);
    }

    /// Those that ended after `from_ns` and not after `to_ns`, in the order of their ends.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> WindowIos {
        let within = |io: &&TracedIo| io.ended_ns > from_ns && io.ended_ns <= to_ns;
        let mut ios: Vec<TracedIo> = self.ios.iter().filter(within).cloned().collect();
        ios.sort_by_key(|io| (io.ended_ns, io.number));
        let lost = self.lost.iter().filter(|(end_ns, _)| *end_ns > from_ns && *end_ns <= to_ns);
        WindowIos { scene: Arc::clone(&self.scene), ios, lost: lost.map(|(_, lost)| lost).sum() }
    }
}

/// A latency probe with events, of which the slowest are kept.
pub struct SlowestProbe<'a> {
    host: &'a Host,
    probe: LatencyProbe,
    /// None: the window is not open.
    tracer: Option<Tracer>,
    slowest: RefCell<Slowest>,
    /// What the programs know: faster I/Os have no event.
    floor_ns: u64,
    /// Where the floor begins in this interval.
    first_floor_ns: Cell<u64>,
    failed: RefCell<Option<anyhow::Error>>,
    lost: Cell<u64>,
    held: Arc<Mutex<HeldIos>>,
}

impl<'a> SlowestProbe<'a> {
    /// `probe` has events.
    pub fn new(host: &'a Host, probe: LatencyProbe, held: Arc<Mutex<HeldIos>>) -> Self {
        Self {
            host,
            probe,
            tracer: None,
            slowest: Slowest::new(MOST).into(),
            floor_ns: 0,
            first_floor_ns: Cell::default(),
            failed: RefCell::default(),
            lost: Cell::default(),
            held,
        }
    }

    fn take(&mut self) -> Result<()> {
        let Some(tracer) = &mut self.tracer else { return Ok(()) };
        let slowest = self.slowest.get_mut();
        loop {
            let ios = tracer.next(&mut self.probe, Duration::ZERO)?;
            if ios.is_empty() {
                break;
            }
            ios.into_iter().for_each(|io| slowest.add(io));
        }
        let floor_ns = slowest.floor_ns().max(self.first_floor_ns.get());
        if floor_ns != self.floor_ns {
            self.floor_ns = floor_ns;
            self.probe.set_floor(floor_ns);
        }
        Ok(())
    }

    /// Ends an interval. The floor of the next one begins at half of where this one had it, so that not every I/O has an
    /// event until the slowest are known; lower, where this one had fewer than it may have.
    fn keep(&self) {
        let slowest = self.slowest.replace(Slowest::new(MOST));
        let reached = slowest.floor_ns();
        self.first_floor_ns.set(if reached > 0 { reached / 2 } else { self.first_floor_ns.get() / 4 });
        // What could not be read is lost with what is counted later.
        let before = self.lost.get();
        let lost = self.probe.emitted().map_or(before, |emitted| emitted.lost_ios);
        self.lost.set(lost);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.add(slowest.into_sorted(), lost.saturating_sub(before));
    }
}

impl Probe for SlowestProbe<'_> {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.probe.begin()?;
        let start_ns = self.probe.start().at_ns;
        let scene = Scene::new(self.host, self.probe.planned(), self.probe.request_flags(), start_ns);
        self.tracer = Some(Tracer::new(&scene));
        self.held.lock().unwrap_or_else(PoisonError::into_inner).scene = Arc::new(scene);
        Ok(())
    }

    fn start(&self) -> &Reading {
        self.probe.start()
    }

    fn tick(&mut self) {
        self.probe.tick();
        if let Err(error) = self.take() {
            self.failed.get_mut().get_or_insert(error);
        }
    }

    fn read(&self) -> Result<Reading> {
        match self.failed.borrow().as_ref() {
            Some(error) => Err(anyhow!("{error:#}")),
            None => self.probe.read(),
        }
    }

    fn detach(&mut self) -> Result<Reading> {
        let end = self.probe.detach()?;
        self.take()?;
        Ok(end)
    }
}

/// Latencies; the slowest I/Os of each interval are kept when it is shown.
pub struct SlowestView<'a>(pub LatencyView<'a>);

impl<'a> Live for SlowestView<'a> {
    type Probe = SlowestProbe<'a>;
    type Summary = LatencySummary;

    fn summary(
        &mut self,
        probe: &SlowestProbe<'a>,
        piece: &Piece<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, LatencySummary) {
        probe.keep();
        self.0.summary(&probe.probe, piece, envelope)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        self.0.distrust(first, last, max_loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_window_are_in_the_order_of_their_ends() {
        let mut held = HeldIos::new(u64::MAX);
        let io = |number, ended_ns| TracedIo { number, ended_ns, ..TracedIo::default() };
        held.add([io(1, 30), io(2, 10)].into_iter(), 0);
        held.add([io(3, 25), io(4, 40)].into_iter(), 5);
        let numbers = |window: &WindowIos| window.ios.iter().map(|io| io.number).collect::<Vec<_>>();
        assert_eq!(numbers(&held.between(10, 30)), [3, 1]);
        assert_eq!(held.between(0, u64::MAX).lost, 5);
        held.keep_ns = 1;
        held.add(std::iter::empty(), 5);
        assert!(held.between(0, u64::MAX).ios.is_empty(), "all are old");
    }
}
