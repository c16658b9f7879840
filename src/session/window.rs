//! Decides when a measurement is over.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::command::Running;
use super::submitters::SubmitterFilter;
use super::{service, stop};
use crate::host::block;
use crate::probe::Probe;

/// How often the devices' existence is checked: a removed device causes no more events.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Maximum delay until the command's end, or a signal, is noticed.
const NAP: Duration = Duration::from_millis(20);

/// What ends a measurement, besides a requested stop ([`stop`]).
#[derive(Clone, Copy)]
pub struct Until<'a> {
    pub length: Option<Duration>,
    /// The end of this command, which is started; empty: none.
    pub command: &'a [String],
    /// The command's stdout goes to stderr, because ours carries the result.
    pub quiet_stdout: bool,
    /// The removal of all these disks and partitions; empty: none was named.
    pub named: &'a [String],
    /// The end of all these submitters.
    pub followed: Option<&'a SubmitterFilter>,
    /// Prints why the measurement ended early: everything followed is gone.
    pub say: fn(&str),
}

/// A running measurement.
pub struct Window<'a> {
    until: Until<'a>,
    /// The flag of another window, which this one ends with.
    over: Option<&'a AtomicBool>,
    child: Option<Running>,
    end_at: Option<Instant>,
    looked: Instant,
}

impl<'a> Window<'a> {
    /// Starts now, and starts the command with `start`.
    pub fn open_with(until: Until<'a>, start: impl FnOnce(&Until<'a>) -> Result<Running>) -> Result<Self> {
        let began = Instant::now();
        service::ready();
        let child = if until.command.is_empty() { None } else { Some(start(&until)?) };
        let end_at = until.length.map(|length| began + length);
        Ok(Self { until, over: None, child, end_at, looked: began })
    }

    /// Starts now, and ends when `over` is set, or at `end_at`.
    pub fn beside(over: &'a AtomicBool, end_at: Option<Instant>) -> Self {
        let nothing =
            Until { length: None, command: &[], quiet_stdout: true, named: &[], followed: None, say: |_| {} };
        Self { until: nothing, over: Some(over), child: None, end_at, looked: Instant::now() }
    }

    /// Starts now, and starts the command.
    pub fn open(until: Until<'a>) -> Result<Self> {
        Self::open_with(until, |until| Running::start(until.command, until.quiet_stdout))
    }

    /// When its duration is over.
    pub fn end_at(&self) -> Option<Instant> {
        self.end_at
    }

    /// The remaining time, at most `most`.
    pub fn left(&self, most: Duration) -> Duration {
        self.end_at.map_or(most, |end| end.saturating_duration_since(Instant::now()).min(most))
    }

    /// Whether something other than its duration ended it.
    pub fn is_stopped(&mut self) -> bool {
        if let Some(over) = self.over {
            return over.load(Ordering::Relaxed);
        }
        if stop::requested() || self.child.as_mut().is_some_and(Running::ended) {
            return true;
        }
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        let followed = self.until.followed.and_then(SubmitterFilter::gone);
        followed.into_iter().for_each(|why| (self.until.say)(why));
        followed.is_some() || are_gone(self.until.named)
    }

    /// Keeps the probe going until the deadline (true), or until something ends the window.
    pub fn wait(&mut self, probe: &mut impl Probe, deadline: Option<Instant>) -> bool {
        // Each wake-up has a cost, and a window parallel to others has neither a command nor user input.
        let longest = if self.over.is_some() { Duration::MAX } else { NAP };
        let window = RefCell::new(self);
        probe.wait(deadline, longest, &|| window.borrow_mut().is_stopped())
    }

    /// Whether it is over.
    pub fn is_over(&mut self) -> bool {
        self.is_stopped() || self.end_at.is_some_and(|end| Instant::now() >= end)
    }

    /// The command's exit status. What it still does is not measured.
    pub fn status(self) -> Option<i32> {
        self.child.and_then(Running::status)
    }
}

/// Whether disks and partitions were named and all of them are gone.
pub fn are_gone(named: &[String]) -> bool {
    !named.is_empty() && named.iter().all(|name| !block::is_there(Path::new("/"), name))
}
