//! The `system` view: CPU time, CPU quotas, and the rate of each device every 100 ms.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::rates::RateSampler;
use super::watch::{Live, WatchInterval};
use crate::analyze::cpu;
use crate::analyze::system::SystemSummary;
use crate::envelope::Envelope;
use crate::host::Host;
use crate::host::cpu_quota::CpuQuota;
use crate::probe::Probe;
use crate::probe::cpu::{self as cpu_probe, CpuProbe};

/// Half of the sampling period of the rates.
const NAP: Duration = Duration::from_millis(50);

/// The kernel's accounting at one time.
#[derive(Clone)]
pub struct Reading {
    cpu: cpu_probe::Reading,
    quotas: Vec<CpuQuota>,
    at: Instant,
}

/// Reads the kernel's accounting, and samples device counters in between.
pub struct SystemProbe {
    root: PathBuf,
    cpu: CpuProbe,
    rates: RateSampler,
    start: Reading,
}

impl SystemProbe {
    /// `devices`: whose rates are sampled; empty: all devices in use.
    pub fn prepare(root: &Path, host: &Host, devices: &[String]) -> Self {
        let used = || host.devices.iter().filter(|device| !device.is_placeholder());
        let all = || used().map(|device| device.name.as_str());
        let rates = match devices {
            [] => RateSampler::new(all()),
            named => RateSampler::new(named.iter().map(String::as_str)),
        };
        let cpu = CpuProbe::attach(root);
        let start = Reading { cpu: cpu.start().clone(), quotas: Vec::new(), at: Instant::now() };
        Self { root: root.to_path_buf(), cpu, rates, start }
    }
}

impl Probe for SystemProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.rates.tick();
        self.start = self.read()?;
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        self.rates.tick();
    }

    fn nap(&self) -> Duration {
        NAP
    }

    fn read(&self) -> Result<Reading> {
        let (cpu, at) = (self.cpu.read(), Instant::now());
        Ok(Reading { cpu, quotas: CpuQuota::read(&self.root), at })
    }

    fn detach(&mut self) -> Result<Reading> {
        self.read()
    }
}

/// Shows what the machine did besides its I/O.
pub struct SystemView;

impl Live for SystemView {
    type Probe = SystemProbe;
    type Summary = SystemSummary;

    fn summary(
        &mut self,
        probe: &SystemProbe,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, SystemSummary) {
        let WatchInterval { from, to, .. } = piece;
        let cpu = cpu::summarize(&probe.cpu.window(&from.cpu, &to.cpu));
        let missing = cpu.missing();
        let quotas = CpuQuota::between(&from.quotas, to.quotas.clone());
        let summary = SystemSummary::new(cpu, quotas, probe.rates.between(from.at, to.at));
        (Envelope { duration_ns: summary.duration_ns, missing, ..envelope }, summary)
    }

    fn distrust(&mut self, _: &Reading, _: &Reading, _: f64) -> Option<String> {
        None
    }
}
