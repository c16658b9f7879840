//! Runs rounds of biopsy's own load.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use super::comparison::{Arm, Round};
use super::metric::MetricKind;
use super::rounds::{Driver, Observer, observed};
use crate::host::counters::Counters;
use crate::load::random::seeded;
use crate::load::{Job, LoadSummary, Permission, PreparedJobs, ScratchFiles, Target, prepare_again};
use crate::refusal::Refusal;
use crate::settings::Keeper;

/// Sector size in sysfs.
const SECTOR: f64 = 512.0;

/// Warm-up after each change, and duration of each run until an arm has settled.
const WARM_UP: Duration = Duration::from_millis(150);

/// Runs a load in its arms.
pub struct LoadDriver<'a> {
    /// By arm, with the varied options.
    pub jobs: Vec<Job>,
    pub arms: Vec<Arm>,
    /// Varied settings of the kernel; None: there are none.
    pub keeper: Option<&'a mut Keeper>,
    pub permission: &'a Permission,
    pub scratch: &'a mut ScratchFiles,
    pub stop: &'a AtomicBool,
    pub device: Option<String>,
    /// Duration of a round.
    pub round: Duration,
    /// Runs a prepared load.
    pub drive: &'a dyn Fn(&mut PreparedJobs) -> Result<LoadSummary>,
    pub observers: Vec<&'a mut dyn Observer>,
    /// The values of a round; an error ends the comparison.
    pub values: &'a dyn Fn(&LoadSummary) -> Result<BTreeMap<String, f64>>,
    /// Of the first round of the first arm.
    pub first: Option<LoadSummary>,
    /// Open targets, by arm and run length.
    pub prepared: BTreeMap<(usize, Duration), PreparedJobs>,
}

/// All values of a round, with quantiles interpolated within their buckets.
pub fn values(load: &LoadSummary) -> Result<BTreeMap<String, f64>> {
    let value = |kind: MetricKind| Some((kind.name().to_string(), kind.of(load)?));
    Ok(MetricKind::ALL.into_iter().filter_map(value).collect())
}

/// Applies the settings of an arm.
pub fn apply(keeper: Option<&mut Keeper>, arm: &Arm) -> Result<()> {
    let Some(keeper) = keeper else { return Ok(()) };
    let names: Vec<String> = keeper.saved().settings.iter().map(|setting| setting.name.clone()).collect();
    for name in names {
        if let Some(value) = arm.settings.get(&name) {
            keeper.set(&name, value)?;
        }
    }
    Ok(())
}

/// Whether the device transfers exactly the load's bytes: buffered data is written whenever the kernel likes, a file
/// system writes its journal, and verify reads data again.
fn moves_what_it_says(job: &Job) -> bool {
    let is_device = |target: &Target| match target {
        Target::Existing(path) => path.metadata().is_ok_and(|found| found.file_type().is_block_device()),
        Target::Scratch { .. } => false,
    };
    job.direct && !job.verify && job.targets.iter().all(is_device)
}

impl LoadDriver<'_> {
    /// One run of an arm. A buffered target is opened anew, so that no pages of the previous run are cached.
    fn run(&mut self, arm: usize, length: Duration, seed: u32) -> Result<(LoadSummary, Option<f64>)> {
        let job = &self.jobs[arm];
        let seed = seeded(job.seed, seed);
        let kept = self.prepared.remove(&(arm, length)).filter(|_| job.direct);
        let mut prepared = match kept {
            Some(prepared) => prepared,
            None => {
                let job =
                    Job { runtime: Some(length), time_based: true, ramp_time: Duration::ZERO, ..job.clone() };
                prepare_again(&[job], self.permission, self.scratch, self.stop, &|_| ())?
            }
        };
        prepared.reseed(seed);
        let before = self.moved();
        let summary = (self.drive)(&mut prepared)?;
        let after = self.moved();
        self.prepared.insert((arm, length), prepared);
        if let Some(refusal) = summary.untrusted() {
            return Err(refusal.into());
        }
        let foreign =
            before.zip(after).filter(|_| moves_what_it_says(&summary.job)).and_then(|(before, after)| {
                let all = after - before;
                (all > 0.0).then(|| ((all - summary.bytes() as f64) / all * 100.0).max(0.0))
            });
        Ok((summary, foreign))
    }

    /// Bytes that the device has transferred so far; None where the kernel does not count.
    fn moved(&self) -> Option<f64> {
        let counters = Counters::read(Path::new("/"), self.device.as_deref()?).ok()?;
        let counts = counters.iostats != Some(false);
        let sectors = counters.read_sectors + counters.write_sectors + counters.discard_sectors.unwrap_or(0);
        counts.then_some(sectors as f64 * SECTOR)
    }
}

impl Driver for LoadDriver<'_> {
    fn apply(&mut self, arm: usize) -> Result<()> {
        apply(self.keeper.as_deref_mut(), &self.arms[arm])
    }

    fn warm_up(&mut self, arm: usize, number: u32) -> Result<Option<f64>> {
        // Seeds that no round uses.
        let (summary, _) = self.run(arm, WARM_UP, u32::MAX - number)?;
        Ok(summary.iops())
    }

    fn round(&mut self, arm: usize, number: u32) -> Result<Round> {
        self.run(arm, WARM_UP, u32::MAX / 2 - number)?;
        let mut observers = std::mem::take(&mut self.observers);
        let round = observed(&mut observers, arm, || self.counted(arm, number));
        self.observers = observers;
        round
    }
}

impl LoadDriver<'_> {
    fn counted(&mut self, arm: usize, number: u32) -> Result<Round> {
        let (summary, foreign_percent) = self.run(arm, self.round, number)?;
        if summary.operations() == 0 && !self.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Refusal::Refused(format!(
                "no operation ended within a round of {:?}: use longer rounds with --runtime",
                self.round
            ))
            .into());
        }
        let values = (self.values)(&summary)?;
        if arm == 0 {
            self.first.get_or_insert(summary);
        }
        Ok(Round { values, foreign_percent, ..Round::default() })
    }
}
