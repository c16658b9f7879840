//! Measures lock wait time by stack.

use std::path::Path;

use anyhow::Result;

use super::{IntervalWait, Options, SourceResult, nap};
use crate::analyze::flame::{FlameSummary, Note, StackSource, What};
use crate::analyze::locks::waits::WaitProfiles;
use crate::analyze::locks::{self, trust};
use crate::envelope::Lost;
use crate::host::Host;
use crate::probe::locks::{self as probe, LockProbe, ROOM};
use crate::session::background::Background;
use crate::symbols::{Helper, Symbolizer};
use crate::wire::locks::Reading;

pub fn measure(options: &Options, host: &Host, interval: IntervalWait<'_>) -> Result<SourceResult> {
    let of_probe = probe::Options {
        filter: options.filter.clone(),
        max_cost: options.max_cost,
        room: ROOM,
        waiters: true,
        spin: false,
        cost: options.cost,
        no_events: false,
    };
    let its_host = host.clone();
    let prepare = move || LockProbe::prepare(&its_host, Path::new("/"), &of_probe);
    let read = |probe: &LockProbe, start: &Reading, end: &Reading| {
        let seconds = end.at_ns.saturating_sub(start.at_ns) as f64 / 1e9;
        let sum = |reading: &Reading| reading.cpus.iter().map(|row| row.contentions).sum::<u64>();
        let rate = sum(end).saturating_sub(sum(start)) as f64 / seconds.max(1e-9);
        (start.clone(), end.clone(), probe.missing().to_vec(), probe.cost(rate))
    };
    // The probe empties its tables continuously.
    let background = Background::start(prepare, read)?;
    background.begin();
    background.begun();
    interval(&mut nap)?;
    let (first, end, missing, cost) = background.finish()?;

    let names = Symbolizer::new(Helper::own()).names(&locks::addresses(&end));
    let summary = locks::summarize(host, &first, &end, &names, &[]);
    let waited = WaitProfiles::of(&summary);
    let left_out = trust::lost(&summary);
    Ok(SourceResult {
        summary: FlameSummary {
            duration_ns: summary.duration_ns,
            source: StackSource::Locks { waits: summary.events.contentions, by: summary.source },
            measured: summary.events.contentions,
            lost: left_out.events,
            notes: Note::of_lock_waits(&waited, &summary.stacks),
            unnamed: names.unnamed(),
            counts: Some(waited.counts),
            ..FlameSummary::new(Some(What::LockWait), waited.times)
        },
        cost,
        missing: [locks::missing(&missing, &summary), names.missing].concat(),
        lost: Lost { samples: left_out.events, probes: left_out.probes, ..Lost::default() },
        doubt: None,
    })
}
