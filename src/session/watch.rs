//! A view of a live probe: once, or every interval, until its window is over.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::wall_clock;
use super::window::{Until, Window};
use crate::envelope::Envelope;
use crate::probe::Probe;

/// How often a view is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Often {
    /// None: once, at the end.
    pub interval: Option<Duration>,
    /// At most so many times.
    pub count: Option<u64>,
}

/// A piece of the window, between two readings.
pub struct Piece<'a, R> {
    pub from: &'a R,
    pub to: &'a R,
    /// Nothing more comes.
    pub is_last: bool,
}

/// A reading of a view's probe.
pub type Reading<V> = <<V as Live>::Probe as Probe>::Reading;

/// A view of a live probe: what its readings mean.
pub trait Live {
    type Probe: Probe;
    type Summary;

    /// A piece of the window in its envelope, which has its start already.
    fn summary(
        &mut self,
        probe: &Self::Probe,
        piece: &Piece<'_, Reading<Self>>,
        envelope: Envelope,
    ) -> (Envelope, Self::Summary);

    /// Why the whole window is not to be trusted, where the loss is above so many percent.
    fn distrust(&mut self, first: &Reading<Self>, last: &Reading<Self>, max_loss: f64) -> Option<String>;
}

/// A piece of the window, to be shown.
pub struct Shown<'a, S> {
    pub envelope: &'a Envelope,
    pub summary: &'a S,
    /// Of the command, where it has ended.
    pub status: Option<i32>,
    /// Not the first one.
    pub is_further: bool,
}

/// Shows the pieces as they come. Why the whole is not to be trusted, if so.
pub fn run<V: Live>(
    view: &mut V,
    probe: &mut V::Probe,
    until: Until<'_>,
    often: Often,
    max_loss: f64,
    mut show: impl FnMut(&V::Probe, &Shown<'_, V::Summary>) -> Result<()>,
) -> Result<Option<String>> {
    let began = Instant::now();
    let mut start = wall_clock::envelope();
    let mut window = Window::open(until)?;
    let end_at = window.end_at();
    let first = probe.start().clone();
    let mut last = first.clone();
    let (mut shown, mut due) = (0, began);
    while let Some(interval) = often.interval {
        due += interval;
        let deadline = end_at.map_or(due, |end| end.min(due));
        let over = !window.wait(probe, Some(deadline))
            || end_at.is_some_and(|end| deadline >= end)
            || often.count.is_some_and(|count| shown + 1 >= count);
        if over {
            break;
        }
        let reading = probe.read()?;
        let piece = Piece { from: &last, to: &reading, is_last: false };
        let (envelope, summary) = view.summary(probe, &piece, start);
        show(probe, &Shown { envelope: &envelope, summary: &summary, status: None, is_further: shown > 0 })?;
        shown += 1;
        last = reading;
        start = wall_clock::envelope();
    }
    if often.interval.is_none() {
        window.wait(probe, end_at);
    }
    // What the command still does after the window is not ours to measure.
    let end = probe.detach()?;
    let status = window.status();
    let (envelope, summary) = view.summary(probe, &Piece { from: &last, to: &end, is_last: true }, start);
    show(probe, &Shown { envelope: &envelope, summary: &summary, status, is_further: shown > 0 })?;
    Ok(view.distrust(&first, &end, max_loss))
}
