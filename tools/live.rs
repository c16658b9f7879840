//! The common part of all live views.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::session::submitters::SubmitterFilter;
use biopsy::session::watch::{self, IntervalView, Live, Often};
use biopsy::session::window::Until;

use crate::cli::{IntervalArgs, MeasurementArgs, Submitters};
use crate::output::{self, Sink};
use crate::window;

/// The options of the measurement.
pub struct LiveOptions<'a> {
    /// The disks and partitions given.
    pub named: &'a [String],
    pub window: &'a MeasurementArgs,
    pub interval: &'a IntervalArgs,
    pub command: &'a [String],
    /// The filter by process, thread name and cgroup, if the view has one.
    pub followed: Option<&'a SubmitterFilter>,
    /// Only the result may appear on stdout.
    pub quiet_stdout: bool,
}

/// The filter of these options.
pub fn chosen(named: &Submitters) -> Result<SubmitterFilter> {
    SubmitterFilter::new(&named.pids, &named.comms, &named.cgroups)
}

/// When the measurement ends.
pub fn until<'a>(
    named: &'a [String],
    window: &MeasurementArgs,
    command: &'a [String],
    followed: Option<&'a SubmitterFilter>,
) -> Until<'a> {
    Until { length: window.length, command, quiet_stdout: true, named, followed, say: output::warn }
}

/// Measures, and writes the output of `show` for each interval.
pub fn run<V: Live>(
    mut view: V,
    probe: &mut V::Probe,
    asked: &LiveOptions<'_>,
    mut sink: Sink,
    mut show: impl FnMut(&V::Probe, &IntervalView<'_, V::Summary>) -> Result<Vec<u8>>,
) -> Result<()> {
    let until = Until {
        quiet_stdout: asked.quiet_stdout,
        ..until(asked.named, asked.window, asked.command, asked.followed)
    };
    let often = Often { interval: asked.interval.interval, count: asked.interval.count };
    window::announce(asked.named, asked.window, asked.command);
    // Without bytes the file is not created: no empty flame graph.
    let show = |probe: &V::Probe, shown: &IntervalView<'_, V::Summary>| match show(probe, shown)? {
        bytes if bytes.is_empty() => Ok(()),
        bytes => sink.write(&bytes),
    };
    match watch::run(&mut view, probe, until, often, asked.window.max_loss, show)? {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
