//! What the CPUs do, by samples.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Interval, Options, Stacks, cost_of, lost, nap};
use crate::analyze::flame::{FlameSummary, Note, Source, What};
use crate::analyze::profile::{Unit, folded};
use crate::analyze::stacks;
use crate::analyze::unwinding::unwinding;
use crate::probe::filter::Filter;
use crate::probe::stacks::StacksProbe;
use crate::symbols::{Helper, Symbolizer};
use crate::wire::stacks::Sample;

pub fn measure(options: &Options, interval: Interval<'_>) -> Result<Stacks> {
    let symbolizer = Symbolizer::new(Helper::own());
    let probe = StacksProbe::of_groups(options.frequency, &options.filter.cgroups)?;
    interval(&mut nap)?;
    let mut raw = probe.finish()?;
    if !options.filter.is_empty() {
        raw.samples.retain(|sample, _| is_selected(&options.filter, sample));
        // It is that of the whole machine.
        raw.idle_ns = None;
    }
    let names = symbolizer.names(&stacks::addresses(&raw));
    let profile = folded::profile(&stacks::summarize(&raw, &names).folded, Unit::Samples);
    Ok(Stacks {
        summary: FlameSummary {
            duration_ns: raw.duration_ns,
            source: Source::Sampler { sampler: raw.sampler, hz: raw.frequency, cpus: raw.cpus },
            // Idle ones are in no stack.
            measured: profile.total(),
            lost: raw.lost,
            period_ns: 1_000_000_000u64.checked_div(raw.frequency),
            notes: Note::of_samples(raw.sampler, unwinding(&raw, &names)),
            unnamed: names.unnamed(),
            ..FlameSummary::new(Some(What::OnCpu), profile)
        },
        cost: cost_of(raw.program_ns, raw.duration_ns, raw.map_bytes),
        missing: names.missing,
        lost: lost(raw.lost, "stacks", BTreeMap::from([("samples".to_string(), raw.lost)])),
        doubt: None,
    })
}

/// By process and name of the thread; the program has filtered by cgroup.
fn is_selected(filter: &Filter, sample: &Sample) -> bool {
    let is_named = |comm: &String| {
        let bytes = comm.as_bytes();
        // The kernel keeps 15 bytes of a name.
        sample.comm_bytes() == &bytes[..bytes.len().min(15)]
    };
    (filter.pids.is_empty() || filter.pids.contains(&sample.pid))
        && (filter.comms.is_empty() || filter.comms.iter().any(is_named))
}
