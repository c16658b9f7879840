//! What the verbs of live views share.

use anyhow::Result;
use biopsy::refusal::Refusal;
use biopsy::session::submitters::Chosen;
use biopsy::session::watch::{self, Live, Often, Shown};
use biopsy::session::window::Until;

use crate::cli::{Interval, Submitters, Window};
use crate::output::{self, Sink};
use crate::window;

/// What was asked for.
pub struct Asked<'a> {
    /// The disks and partitions that were named.
    pub named: &'a [String],
    pub window: &'a Window,
    pub interval: &'a Interval,
    pub command: &'a [String],
    /// Whose I/O, where that can be chosen.
    pub followed: Option<&'a Chosen>,
    /// stdout carries the product, and nothing else.
    pub quiet_stdout: bool,
}

/// Whose I/O.
pub fn chosen(named: &Submitters) -> Result<Chosen> {
    Chosen::new(&named.pids, &named.comms, &named.cgroups)
}

/// What ends it.
pub fn until<'a>(
    named: &'a [String],
    window: &Window,
    command: &'a [String],
    followed: Option<&'a Chosen>,
) -> Until<'a> {
    Until { length: window.length, command, quiet_stdout: true, named, followed, say: output::warn }
}

/// Measures and writes what `show` makes of each piece.
pub fn run<V: Live>(
    mut view: V,
    probe: &mut V::Probe,
    asked: &Asked<'_>,
    mut sink: Sink,
    mut show: impl FnMut(&V::Probe, &Shown<'_, V::Summary>) -> Result<Vec<u8>>,
) -> Result<()> {
    let until = Until {
        quiet_stdout: asked.quiet_stdout,
        ..until(asked.named, asked.window, asked.command, asked.followed)
    };
    let often = Often { interval: asked.interval.interval, count: asked.interval.count };
    window::announce(asked.named, asked.window, asked.command);
    // Without bytes the file gets no name: there is no empty picture.
    let show = |probe: &V::Probe, shown: &Shown<'_, V::Summary>| match show(probe, shown)? {
        bytes if bytes.is_empty() => Ok(()),
        bytes => sink.write(&bytes),
    };
    match watch::run(&mut view, probe, until, often, asked.window.max_loss, show)? {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
