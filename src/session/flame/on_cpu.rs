//! Samples on-CPU stacks.

use std::collections::BTreeMap;

use anyhow::Result;

use super::super::watch::{Live, WatchInterval};
use super::{IntervalWait, Options, SourceResult, cost_of, lost, nap};
use crate::analyze::flame::{FlameSummary, Note, StackSource, What};
use crate::analyze::profile::{Unit, folded};
use crate::analyze::stack_quality::unwinding;
use crate::analyze::stacks;
use crate::envelope::{Cost, Envelope, Lost, Missing};
use crate::probe::filter::Filter;
use crate::probe::stacks::StacksProbe;
use crate::symbols::{Helper, Symbolizer};
use crate::wire::stacks::{RawProfile, Sample};

pub fn measure(options: &Options, interval: IntervalWait<'_>) -> Result<SourceResult> {
    let symbolizer = Symbolizer::new(Helper::own());
    let probe = StacksProbe::of_groups(options.frequency, &options.filter.cgroups)?;
    interval(&mut nap)?;
    let mut raw = probe.finish()?;
    if !options.filter.is_empty() {
        raw.samples.retain(|sample, _| is_selected(&options.filter, sample));
        // The idle time is that of the whole machine.
        raw.idle_ns = None;
    }
    let (summary, missing) = named(&raw, &symbolizer);
    Ok(SourceResult {
        cost: cost_of(raw.program_ns, raw.duration_ns, raw.map_bytes),
        missing,
        lost: of_samples(raw.lost),
        doubt: None,
        summary,
    })
}

/// The samples by stack, and what could not be named.
fn named(raw: &RawProfile, symbolizer: &Symbolizer) -> (FlameSummary, Vec<Missing>) {
    let names = symbolizer.names(&stacks::addresses(raw));
    let mut samples = stacks::summarize(raw, &names);
    let profile = folded::profile(&std::mem::take(&mut samples.folded), Unit::Samples);
    let summary = FlameSummary {
        duration_ns: raw.duration_ns,
        source: StackSource::Sampler { sampler: raw.sampler, hz: raw.frequency, cpus: raw.cpus },
        // Idle samples are in no stack.
        measured: profile.total(),
        lost: raw.lost,
        period_ns: 1_000_000_000u64.checked_div(raw.frequency),
        samples: Some(samples),
        notes: Note::of_samples(raw.sampler, unwinding(raw, &names)),
        unnamed: names.unnamed(),
        ..FlameSummary::new(Some(What::OnCpu), profile)
    };
    (summary, names.missing)
}

fn of_samples(samples: u64) -> Lost {
    lost(samples, "stacks", BTreeMap::from([("samples".to_string(), samples)]))
}

/// Shows the samples of each interval.
pub struct OnCpuView {
    /// Its caches serve every interval.
    symbolizer: Symbolizer,
    /// Totals over all intervals.
    measured: u64,
    lost: u64,
}

impl OnCpuView {
    pub fn new() -> Self {
        Self { symbolizer: Symbolizer::new(Helper::own()), measured: 0, lost: 0 }
    }
}

impl Default for OnCpuView {
    fn default() -> Self {
        Self::new()
    }
}

impl Live for OnCpuView {
    type Probe = StacksProbe;
    type Summary = FlameSummary;

    /// The cost is unknown: the kernel's program statistics are on only while other views measure theirs.
    fn summary(
        &mut self,
        _: &StacksProbe,
        piece: &WatchInterval<'_, RawProfile>,
        envelope: Envelope,
    ) -> (Envelope, FlameSummary) {
        let raw = piece.to;
        let (summary, missing) = named(raw, &self.symbolizer);
        self.measured += summary.measured;
        self.lost += raw.lost;
        let envelope = Envelope {
            duration_ns: raw.duration_ns,
            lost: of_samples(raw.lost),
            cost: Cost { map_bytes: raw.map_bytes, ..Cost::default() },
            missing,
            ..envelope
        };
        (envelope, summary)
    }

    fn distrust(&mut self, _: &RawProfile, _: &RawProfile, max_loss: f64) -> Option<String> {
        let all = self.measured + self.lost;
        let percent = if all == 0 { 0.0 } else { 100.0 * self.lost as f64 / all as f64 };
        (percent > max_loss).then(|| {
            format!(
                "{} of {all} samples ({percent:.2} %) were lost, more than --max-loss {max_loss} % allows",
                self.lost
            )
        })
    }
}

/// Filters by process and thread name; the program has already filtered by cgroup.
fn is_selected(filter: &Filter, sample: &Sample) -> bool {
    let is_named = |comm: &String| {
        let bytes = comm.as_bytes();
        // The kernel keeps 15 bytes of a name.
        sample.comm_bytes() == &bytes[..bytes.len().min(15)]
    };
    (filter.pids.is_empty() || filter.pids.contains(&sample.pid))
        && (filter.comms.is_empty() || filter.comms.iter().any(is_named))
}
