//! Keeps the slowest I/Os of each interval, for the flight recorder.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::io_events::IoSink;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::scene::Scene;
use crate::analyze::trace::slowest::Slowest;
use crate::clock::now_ns;
use crate::probe::latency::LatencyProbe;

/// Maximum per interval: 60 intervals take about 2 MB.
pub const MOST: usize = 100;

/// The slowest I/Os of the last intervals.
#[derive(Debug)]
pub struct HeldIos {
    keep_ns: u64,
    /// Resolves their numbers.
    scene: Arc<Scene>,
    /// In the order of intervals.
    ios: VecDeque<TracedIo>,
    /// End of each interval, and the number of its I/Os whose event was lost.
    lost: VecDeque<(u64, u64)>,
}

/// The slowest I/Os of a time range.
pub struct WindowIos {
    pub scene: Arc<Scene>,
    pub ios: Vec<TracedIo>,
    pub lost: u64,
}

impl HeldIos {
    /// Keeps I/Os that ended within the last `keep_ns`.
    pub fn new(keep_ns: u64) -> Self {
        Self { keep_ns, scene: Arc::default(), ios: VecDeque::new(), lost: VecDeque::new() }
    }

    /// Adds an interval that ends now.
    fn add(&mut self, ios: impl Iterator<Item = TracedIo>, lost: u64) {
        let now = now_ns();
        let from = now.saturating_sub(self.keep_ns);
        self.ios.extend(ios);
        self.ios.retain(|io| io.ended_ns > from);
        self.lost.push_back((now, lost));
        self.lost.retain(|(end_ns, _)| *end_ns > from);
    }

    /// I/Os that ended after `from_ns` and not after `to_ns`, in the order of their ends.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> WindowIos {
        let within = |io: &&TracedIo| io.ended_ns > from_ns && io.ended_ns <= to_ns;
        let mut ios: Vec<TracedIo> = self.ios.iter().filter(within).cloned().collect();
        ios.sort_by_key(|io| (io.ended_ns, io.number));
        let lost = self.lost.iter().filter(|(end_ns, _)| *end_ns > from_ns && *end_ns <= to_ns);
        WindowIos { scene: Arc::clone(&self.scene), ios, lost: lost.map(|(_, lost)| lost).sum() }
    }
}

/// Collects the slowest I/Os of each interval.
pub struct SlowestSink {
    slowest: Slowest,
    /// The programs' threshold: faster I/Os cause no event.
    floor_ns: u64,
    /// The threshold at the start of this interval.
    first_floor_ns: u64,
    lost: u64,
    held: Arc<Mutex<HeldIos>>,
}

impl SlowestSink {
    pub fn new(held: Arc<Mutex<HeldIos>>) -> Self {
        Self { slowest: Slowest::new(MOST), floor_ns: 0, first_floor_ns: 0, lost: 0, held }
    }
}

impl IoSink for SlowestSink {
    fn begin(&mut self, scene: Scene) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).scene = Arc::new(scene);
    }

    fn add(&mut self, ios: Vec<TracedIo>) {
        ios.into_iter().for_each(|io| self.slowest.add(io));
    }

    fn settle(&mut self, probe: &mut LatencyProbe) {
        let floor_ns = self.slowest.floor_ns().max(self.first_floor_ns);
        if floor_ns != self.floor_ns {
            self.floor_ns = floor_ns;
            probe.set_floor(floor_ns);
        }
    }

    /// The next interval starts at half of this one's final threshold, so that not every I/O causes an event until the
    /// slowest are known; lower if this interval got fewer I/Os than the maximum.
    fn end_interval(&mut self, probe: &LatencyProbe) {
        let slowest = std::mem::replace(&mut self.slowest, Slowest::new(MOST));
        let reached = slowest.floor_ns();
        self.first_floor_ns = if reached > 0 { reached / 2 } else { self.first_floor_ns / 4 };
        // If the counter cannot be read, the loss is included in the next reading.
        let before = self.lost;
        self.lost = probe.emitted().map_or(before, |emitted| emitted.lost_ios);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.add(slowest.into_sorted(), self.lost.saturating_sub(before));
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
