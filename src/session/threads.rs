//! The `threads` view.

use std::collections::BTreeMap;
use std::path::Path;

use super::watch::{Live, WatchInterval};
use crate::analyze::threads::{
    GroupColumn, Meaning, ThreadSampler, ThreadSummary, addresses, summarize, trust,
};
use crate::envelope::{Envelope, Missing};
use crate::host::Host;
use crate::host::cgroups::Hierarchy;
use crate::probe::threads::ThreadProbe;
use crate::symbols::{Helper, Scheduler, Symbolizer};
use crate::wire::threads::{Reading, ThreadSamples};

/// Resolves the numbers in samples; the kernel's symbols are read once for all pieces.
pub struct ThreadSymbolizer<'a> {
    root: &'a Path,
    symbolizer: Symbolizer,
    scheduler: Option<Scheduler>,
    devices: BTreeMap<u32, String>,
}

impl<'a> ThreadSymbolizer<'a> {
    pub fn new(host: &Host, root: &'a Path) -> Self {
        let devices = host
            .devices
            .iter()
            .map(|device| (device.major << 20 | device.minor, device.name.clone()))
            .collect();
        Self { root, symbolizer: Symbolizer::new(Helper::own()), scheduler: None, devices }
    }

    /// The samples of a piece, grouped by `columns`; and what could not be named.
    pub fn summary(
        &mut self,
        probe: &ThreadProbe,
        sampled: &ThreadSamples,
        columns: &[GroupColumn],
    ) -> (ThreadSummary, Vec<Missing>) {
        let names = self.symbolizer.names(&addresses(sampled));
        let scheduler = match sampled.stacks.is_empty() {
            true => &Scheduler::default(),
            false => &*self.scheduler.get_or_insert_with(Scheduler::read),
        };
        let cgroups = match columns.contains(&GroupColumn::Cgroup) {
            true => Hierarchy::read(self.root).map(|hierarchy| hierarchy.paths()).unwrap_or_default(),
            false => BTreeMap::new(),
        };
        let meaning = Meaning { names: &names, scheduler, cgroups: &cgroups, devices: &self.devices };
        let source = Some(if probe.is_kernel() { ThreadSampler::Bpf } else { ThreadSampler::Proc });
        let summary = ThreadSummary { hz: probe.hz(), source, ..summarize(sampled, &meaning, columns) };
        (summary, names.missing.clone())
    }
}

/// Shows samples of threads.
pub struct ThreadView<'a> {
    pub naming: ThreadSymbolizer<'a>,
    /// Columns to group by.
    pub columns: &'a [GroupColumn],
    /// The process also does other work, so the cost includes only the programs.
    pub shares_process: bool,
}

impl Live for ThreadView<'_> {
    type Probe = ThreadProbe;
    type Summary = ThreadSummary;

    fn summary(
        &mut self,
        probe: &ThreadProbe,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, ThreadSummary) {
        let (summary, missing) = self.naming.summary(probe, &piece.to.window, self.columns);
        let envelope = Envelope {
            duration_ns: summary.duration_ns,
            lost: trust::lost(&summary),
            cost: if self.shares_process { probe.programs() } else { probe.cost() },
            missing: [probe.missing(), &missing].concat(),
            ..envelope
        };
        (envelope, summary)
    }

    fn distrust(&mut self, _: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        trust::distrust(last, max_loss)
    }
}
