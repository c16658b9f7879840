//! Runs a live view: once, or at every interval, until its window is over.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::wall_clock;
use super::window::{Until, Window};
use crate::clock;
use crate::envelope::Envelope;
use crate::probe::Probe;

/// How often a view is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Often {
    /// None: once, at the end.
    pub interval: Option<Duration>,
    /// Maximum number of times.
    pub count: Option<u64>,
}

/// A piece of the window, between two readings.
pub struct WatchInterval<'a, R> {
    pub from: &'a R,
    pub to: &'a R,
    /// Whether it is the last piece.
    pub is_last: bool,
}

/// A reading of a view's probe.
pub type Reading<V> = <<V as Live>::Probe as Probe>::Reading;

/// A view of a live probe: summarizes its readings.
pub trait Live {
    type Probe: Probe;
    type Summary;

    /// Summarizes a piece of the window; the envelope already has its start.
    fn summary(
        &mut self,
        probe: &Self::Probe,
        piece: &WatchInterval<'_, Reading<Self>>,
        envelope: Envelope,
    ) -> (Envelope, Self::Summary);

    /// Why the whole window must not be trusted: `max_loss` in percent.
    fn distrust(&mut self, first: &Reading<Self>, last: &Reading<Self>, max_loss: f64) -> Option<String>;
}

/// A piece of the window, ready to be shown.
pub struct IntervalView<'a, S> {
    pub envelope: &'a Envelope,
    pub summary: &'a S,
    /// Exit status of the command, if it has ended.
    pub status: Option<i32>,
    /// Not the first piece.
    pub is_further: bool,
    /// One of several intervals, or the only one of a view with intervals.
    pub is_interval: bool,
    /// When it was read, on [`clock::now_ns`]; 0 for a recorded one.
    pub end_ns: u64,
}

/// The ends of intervals.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    due: Instant,
    interval: Duration,
}

impl Grid {
    /// The first interval begins at `begin`.
    pub fn new(begin: Instant, interval: Duration) -> Self {
        Self { due: begin, interval }
    }

    /// The end of the next interval. After a suspension, missed intervals are skipped.
    pub fn next_end(&mut self) -> Instant {
        self.due += self.interval;
        let late = Instant::now().saturating_duration_since(self.due);
        let missed = late.as_nanos().checked_div(self.interval.as_nanos()).unwrap_or(0);
        self.due += self.interval.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
        self.due
    }

    /// Whether the interval that is due then is the last one of a window with this end. `--for` begins microseconds after
    /// the grid, and an interval of those would have nothing to show: the last one takes along up to 2 % of its length.
    fn ends_with(&self, due: Instant, end: Instant) -> bool {
        end <= due + self.interval / 50
    }
}

/// Shows the pieces as they come. Returns why the whole must not be trusted, if so.
pub fn run<V: Live>(
    view: &mut V,
    probe: &mut V::Probe,
    until: Until<'_>,
    often: Often,
    max_loss: f64,
    show: impl FnMut(&V::Probe, &IntervalView<'_, V::Summary>) -> Result<()>,
) -> Result<Option<String>> {
    let grid = often.interval.map(|interval| Grid::new(Instant::now(), interval));
    let start = wall_clock::envelope();
    let window = Window::open(until)?;
    follow(view, probe, window, Pieces { start, grid, count: often.count }, max_loss, show)
}

/// How a window is divided into pieces.
pub struct Pieces {
    /// The envelope of the first piece.
    pub start: Envelope,
    /// None: a single piece.
    pub grid: Option<Grid>,
    /// Maximum number of pieces.
    pub count: Option<u64>,
}

/// Same as [`run`], with a window that was opened at `pieces.start`.
pub fn follow<V: Live>(
    view: &mut V,
    probe: &mut V::Probe,
    mut window: Window<'_>,
    pieces: Pieces,
    max_loss: f64,
    mut show: impl FnMut(&V::Probe, &IntervalView<'_, V::Summary>) -> Result<()>,
) -> Result<Option<String>> {
    let Pieces { mut start, grid, count } = pieces;
    let mut started = Instant::now();
    let end_at = window.end_at();
    let first = probe.start().clone();
    let (mut last, mut shown) = (first.clone(), 0);
    let mut ends = grid;
    while let Some(grid) = &mut ends {
        let due = grid.next_end();
        let end = end_at.filter(|end| grid.ends_with(due, *end));
        let over = !window.wait(probe, Some(end.unwrap_or(due)))
            || end.is_some()
            || count.is_some_and(|count| shown + 1 >= count);
        if over {
            break;
        }
        let (next_start, next_started) = (wall_clock::envelope(), Instant::now());
        let reading = probe.read()?;
        let end_ns = clock::now_ns();
        start.read_ns = Some(since(started, next_started));
        let piece = WatchInterval { from: &last, to: &reading, is_last: false };
        let (envelope, summary) = view.summary(probe, &piece, start);
        let is_further = shown > 0;
        let (envelope, summary) = (&envelope, &summary);
        let is_interval = true;
        show(probe, &IntervalView { envelope, summary, status: None, is_further, is_interval, end_ns })?;
        shown += 1;
        (last, start, started) = (reading, next_start, next_started);
    }
    if grid.is_none() {
        window.wait(probe, end_at);
    }
    // What the command does after the window is not measured.
    let closing = Instant::now();
    let end = probe.detach()?;
    let end_ns = clock::now_ns();
    start.read_ns = Some(since(started, closing));
    let status = window.status();
    let (envelope, summary) =
        view.summary(probe, &WatchInterval { from: &last, to: &end, is_last: true }, start);
    let (envelope, summary) = (&envelope, &summary);
    let (is_further, is_interval) = (shown > 0, grid.is_some());
    show(probe, &IntervalView { envelope, summary, status, is_further, is_interval, end_ns })?;
    Ok(view.distrust(&first, &end, max_loss))
}

/// Nanoseconds from `started` to `begin`, and to now.
fn since(started: Instant, begin: Instant) -> [u64; 2] {
    [begin.duration_since(started), started.elapsed()]
        .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_the_last_interval_is_part_of_it() {
        let second = Duration::from_secs(1);
        let begin = Instant::now();
        let mut grid = Grid::new(begin, second);
        let due = grid.next_end();
        let is_last = |left_ms: u64| grid.ends_with(due, begin + Duration::from_millis(left_ms));
        assert_eq!([999, 1_000, 1_020, 1_021, 1_500].map(is_last), [true, true, true, false, false]);
    }

    #[test]
    fn intervals_that_were_slept_through_are_left_out() {
        let second = Duration::from_secs(1);
        let begin = Instant::now();
        let mut grid = Grid::new(begin, second);
        assert_eq!([grid.next_end(), grid.next_end()], [begin + second, begin + 2 * second]);
        let Some(past) = begin.checked_sub(Duration::from_millis(7_500)) else { return };
        // The interval that is due is read late, and the next one on time.
        let mut grid = Grid::new(past, second);
        assert_eq!([grid.next_end(), grid.next_end()], [past + 7 * second, past + 8 * second]);
    }
}
