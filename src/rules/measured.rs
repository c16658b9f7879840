//! Diagnoses stored summaries: from a recording, or from the memory of the flight recorder.

use super::inputs::{Locks, PageCache, ThreadsInput};
use super::{Summaries, diagnose};
use crate::analyze::interrupts::InterruptSummary;
use crate::analyze::latency::LatencySummary;
use crate::analyze::pressure::PressureSummary;
use crate::analyze::stacks::ProfileSummary;
use crate::analyze::system::SystemSummary;
use crate::analyze::threads::ThreadSummary;
use crate::envelope::Envelope;
use crate::findings::Diagnosis;
use crate::host::Host;

/// The views' summaries of one interval; None: not measured.
#[derive(Debug, Clone, Default)]
pub struct IntervalSummaries {
    pub envelope: Envelope,
    pub latency: LatencySummary,
    pub interrupts: Option<InterruptSummary>,
    pub pressure: PressureSummary,
    pub threads: Option<ThreadSummary>,
    pub profile: Option<ProfileSummary>,
    pub system: Option<SystemSummary>,
}

impl IntervalSummaries {
    /// Runs all rules, and calls `with` with their inputs and findings. `command`: the interval is that of a command.
    pub fn diagnose<R>(
        &self,
        host: &Host,
        command: bool,
        with: impl FnOnce(&Summaries<'_>, &Diagnosis) -> R,
    ) -> R {
        let locks = self.pressure.locks.as_ref().map(|locks| Locks::of(locks, host.cpus_online));
        let pagecache = self.pressure.pagecache.as_ref().map(PageCache::from);
        let threads = self.threads.as_ref().map(ThreadsInput::from);
        let rates = self.system.as_ref().map(SystemSummary::rates).unwrap_or_default();
        let cpu = self.system.as_ref().map(SystemSummary::cpu);
        let quotas = self.system.as_ref().map_or(&[][..], |system| &system.cpu_quotas);
        let summaries = Summaries {
            envelope: &self.envelope,
            host,
            latency: &self.latency,
            command,
            rates: &rates,
            interrupts: self.interrupts.as_ref(),
            load: None,
            scaling: None,
            experiment: None,
            cpu: cpu.as_ref(),
            quotas,
            profile: self.profile.as_ref(),
            locks: locks.as_ref(),
            pagecache: pagecache.as_ref(),
            threads: threads.as_ref(),
        };
        with(&summaries, &diagnose(&summaries))
    }
}
