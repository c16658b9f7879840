//! Measures off-CPU time and time in reclaim by stack.

use anyhow::Result;

use super::{IntervalWait, Options, SourceResult, cost_of, lost, nap};
use crate::analyze::blocked::{self, idle};
use crate::analyze::flame::{FlameSummary, Note, StackSource, What};
use crate::analyze::profile::{Unit, folded};
use crate::envelope::Missing;
use crate::host::Host;
use crate::probe::blocked::{self as probe, BlockedProbe, WaitOptions};
use crate::probe::reclaim::ReclaimProbe;
use crate::symbols::{Helper, Symbolizer};
use crate::wire::blocked::RawBlocked;

pub fn measure(
    what: What,
    options: &Options,
    host: &Host,
    interval: IntervalWait<'_>,
) -> Result<SourceResult> {
    let waits = WaitOptions {
        filter: options.filter.clone(),
        max_cost: options.max_cost,
        min_block: options.min_block,
        ..WaitOptions::default()
    };
    if what == What::Reclaim {
        let probe = ReclaimProbe::attach(host, waits)?;
        interval(&mut nap)?;
        let missing = probe.missing().to_vec();
        return Ok(named(what, &probe.finish()?, missing, true));
    }
    let io_wait = what == What::IoWait;
    let probe = BlockedProbe::attach(host, probe::Options { waits, io_wait, ..Default::default() })?;
    interval(&mut nap)?;
    let missing = probe.missing().to_vec();
    // No wait for I/O counts as idle.
    Ok(named(what, &probe.finish()?, missing, options.all_waits || io_wait))
}

fn named(what: What, raw: &RawBlocked, mut missing: Vec<Missing>, with_idle: bool) -> SourceResult {
    let names = Symbolizer::new(Helper::own()).names(&blocked::addresses(raw));
    let mut summary = blocked::summarize(raw, &names);
    let idle_ns = if with_idle { 0 } else { idle::take_out(&mut summary.folded) };
    let mut notes = Note::of_waits(&summary, blocked::cut_ns(raw, &names));
    notes.extend((idle_ns > 0).then_some(Note::Idle(idle_ns)));
    missing.extend(names.missing.iter().cloned());
    let left_out = &summary.lost;
    let kinds = [
        ("unkept", left_out.unkept),
        ("unmatched", left_out.unmatched),
        ("missed", left_out.missed),
        ("unnamed", left_out.unnamed),
        ("full", left_out.full),
        ("over_budget", left_out.over),
        ("uninterrupted", left_out.uninterrupted),
        ("ended_since", left_out.ended_since),
    ];
    // The other left-out waits only lack their own stack, and are included in the sums.
    let gone = left_out.unkept + left_out.missed;
    let profile = folded::profile(&summary.folded, Unit::Nanoseconds);
    SourceResult {
        summary: FlameSummary {
            duration_ns: summary.duration_ns,
            source: if what == What::Reclaim { StackSource::Reclaim } else { StackSource::Switches },
            measured: summary.totals.all.count,
            lost: gone,
            notes,
            unnamed: names.unnamed(),
            ..FlameSummary::new(Some(what), profile)
        },
        cost: cost_of(raw.program_ns, raw.duration_ns, raw.map_bytes),
        missing,
        lost: lost(gone, what.word(), kinds.map(|(kind, n)| (kind.to_string(), n)).into_iter().collect()),
        doubt: None,
    }
}
