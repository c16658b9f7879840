//! A view of a live probe: once, or every interval, until its time, its command or its devices end.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::Result;
use biopsy::probe::interrupts::InterruptProbe;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::locks::LockProbe;
use biopsy::probe::threads::ThreadProbe;
use biopsy::wire;

use crate::child::Running;
use crate::cli::{Interval, Window};
use crate::output::Sink;
use crate::{clock, window};

/// What a view is made of: a probe that counts from its start on.
pub trait Probe {
    type Reading: Clone;
    fn start(&self) -> &Self::Reading;
    /// Until the deadline (true), or until it is to stop.
    fn wait(&mut self, deadline: Option<Instant>, stop: &dyn Fn() -> bool) -> bool;
    fn read(&self) -> Result<Self::Reading>;
    fn detach(&mut self) -> Result<Self::Reading>;
}

/// The library's probes have these methods, each with readings of its own.
macro_rules! probe {
    ($probe:ty, $reading:ty) => {
        impl Probe for $probe {
            type Reading = $reading;
            fn start(&self) -> &Self::Reading {
                self.start()
            }
            fn wait(&mut self, deadline: Option<Instant>, stop: &dyn Fn() -> bool) -> bool {
                self.wait(deadline, stop)
            }
            fn read(&self) -> Result<Self::Reading> {
                self.read()
            }
            fn detach(&mut self) -> Result<Self::Reading> {
                self.detach()
            }
        }
    };
}
probe!(LatencyProbe, wire::reading::Reading);
probe!(InterruptProbe, wire::interrupts::Reading);
probe!(ThreadProbe, wire::threads::Reading);
probe!(LockProbe, wire::locks::Reading);

/// How long, how often, and beside what.
pub struct Watch<'a> {
    pub named: &'a [String],
    pub window: &'a Window,
    pub interval: &'a Interval,
    pub command: &'a [String],
    /// stdout carries JSON.
    pub json: bool,
    /// Whoever's I/O was asked for is gone.
    pub are_gone: &'a dyn Fn() -> bool,
}

/// A piece of the window.
pub struct Piece<'a, R> {
    pub from: &'a R,
    pub to: &'a R,
    /// Wall clock at its start.
    pub start: &'a str,
    /// Of the command, where it has ended.
    pub status: Option<i32>,
    /// Not the first one.
    pub further: bool,
    /// Nothing more comes.
    pub last: bool,
}

/// Shows the pieces as they come, and returns the readings at both ends of the whole.
pub fn run<P: Probe>(
    probe: &mut P,
    watch: &Watch<'_>,
    sink: &mut Sink,
    mut view: impl FnMut(&P, &Piece<'_, P::Reading>) -> Vec<u8>,
) -> Result<(P::Reading, P::Reading)> {
    let began = Instant::now();
    let mut start = clock::now_rfc3339();
    window::announce(watch.named, watch.window, watch.command);
    let child = match watch.command.is_empty() {
        true => None,
        false => Some(Running::start(watch.command, watch.json)?),
    };
    let child = RefCell::new(child);
    let ended = || child.borrow_mut().as_mut().is_some_and(Running::ended);
    let stop = || window::over(watch.named) || (watch.are_gone)() || ended();
    let end_at = watch.window.length.map(|length| began + length);
    let first = probe.start().clone();
    let mut last = first.clone();
    let mut shown = 0;
    match watch.interval.interval {
        None => {
            probe.wait(end_at, &stop);
        }
        Some(interval) => {
            let mut due = began + interval;
            loop {
                let deadline = end_at.map_or(due, |end| end.min(due));
                let over = !probe.wait(Some(deadline), &stop)
                    || end_at.is_some_and(|end| deadline >= end)
                    || watch.interval.count.is_some_and(|count| shown + 1 >= count);
                if over {
                    break;
                }
                let reading = probe.read()?;
                let piece = Piece {
                    from: &last,
                    to: &reading,
                    start: &start,
                    status: None,
                    further: shown > 0,
                    last: false,
                };
                sink.write(&view(probe, &piece))?;
                shown += 1;
                last = reading;
                start = clock::now_rfc3339();
                due += interval;
            }
        }
    }
    // What the command still does after the window is not ours to measure.
    let end = probe.detach()?;
    let status = child.into_inner().and_then(Running::status);
    let piece = Piece { from: &last, to: &end, start: &start, status, further: shown > 0, last: true };
    sink.write(&view(probe, &piece))?;
    Ok((first, end))
}
