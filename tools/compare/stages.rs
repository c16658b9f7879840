//! `biopsy compare --stages`: runs the latency probe during all rounds.

use std::path::Path;

use anyhow::{Context as _, Result};
use biopsy::analyze::latency::{LatencySummary, summarize};
use biopsy::analyze::loss;
use biopsy::envelope::{Envelope, Lost};
use biopsy::experiment::compare::stages::StageMean;
use biopsy::experiment::compare::{Comparison, Observer, Round};
use biopsy::host::Host;
use biopsy::load::{Engine, Job, LoadSummary, PreparedJobs};
use biopsy::probe::Probe;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::refusal::Refusal;
use biopsy::render::shares;
use biopsy::session::stop;
use biopsy::wire::reading::Reading;

/// A note appears if more than this share of the I/Os has no stages.
const MOST_LOST: f64 = 0.001;

/// The latency probe on one disk.
pub struct StageProbe {
    host: Host,
    disk: String,
    probe: LatencyProbe,
    from: Option<Reading>,
    /// The unit that the means refer to. A round with another unit has no means.
    per: Option<&'static str>,
    ios: u64,
    lost: Lost,
    left_out: usize,
}

impl StageProbe {
    /// Attaches the probe. For biopsy's own load, operations are followed from its submit stamps.
    pub fn attach(disk: Option<&str>, jobs: &[Job]) -> Result<Self> {
        let disk =
            disk.context(Refusal::Usage("--stages measures the I/O of a disk: name it with -d".to_string()))?;
        let root = Path::new("/");
        let host = Host::read(root)?;
        let generator = !jobs.is_empty() && jobs.iter().all(|job| job.engine == Engine::IoUring);
        let options = Options {
            devices: vec![disk.to_string()],
            layers: true,
            only_named: true,
            generator,
            cost: false,
            ..Options::default()
        };
        let probe = LatencyProbe::attach(&host, root, &options)?;
        let disk = disk.to_string();
        let (lost, left_out) = (Lost::default(), 0);
        Ok(Self { host, disk, probe, from: None, per: None, ios: 0, lost, left_out })
    }

    /// Returns a function that runs a load and passes its submit and reap stamps to the probe.
    pub fn driver(&self) -> Result<impl Fn(&mut PreparedJobs) -> Result<LoadSummary> + use<>> {
        let generators = self.probe.generators()?;
        Ok(move |prepared: &mut PreparedJobs| {
            prepared.run_one(stop::flag(), &|_| (), generators.as_deref().unwrap_or_default())
        })
    }

    /// Adds what was missed and lost to the envelope and the notes.
    pub fn describe(self, envelope: &mut Envelope, comparison: &mut Comparison) {
        envelope.missing.extend(self.probe.missing().iter().cloned());
        envelope.lost.add(&self.lost);
        comparison.stages_per = self.per.map(str::to_string);
        let all = self.ios.saturating_add(self.lost.ios);
        if self.lost.ios as f64 > all as f64 * MOST_LOST {
            comparison
                .notes
                .push(format!("{} of {all} I/Os were missed and are not in the stages", self.lost.ios));
        }
        if self.left_out > 0 {
            comparison.notes.push(format!(
                "{} of {} rounds have no stages: their I/Os were not measured like those of the others",
                self.left_out,
                comparison.rounds.len()
            ));
        }
    }

    /// The mean of each stage in this round, in the order of the stages.
    fn means(&mut self, summary: &LatencySummary) -> Vec<StageMean> {
        let device = summary.devices.iter().find(|device| device.name == self.disk);
        let found = device.and_then(|device| shares::of(device, false, None));
        let Some(found) =
            found.filter(|found| *self.per.get_or_insert(found.unit.name()) == found.unit.name())
        else {
            self.left_out += 1;
            return Vec::new();
        };
        let mut rows = found.rows;
        rows.sort_by_key(|row| row.stage);
        rows.into_iter()
            .map(|row| StageMean { stage: row.stage.name().to_string(), mean_ns: row.mean_ns })
            .collect()
    }
}

impl Observer for StageProbe {
    fn begin(&mut self) -> Result<()> {
        self.from = Some(self.probe.read()?);
        Ok(())
    }

    fn end(&mut self, _arm: usize, round: &mut Round) -> Result<()> {
        let (Some(from), to) = (self.from.take(), self.probe.read()?) else { return Ok(()) };
        let summary = summarize(&self.host, &from, &to);
        self.ios = self.ios.saturating_add(summary.ios());
        self.lost.add(&loss::lost(&summary, &from, &to));
        round.stages = self.means(&summary);
        Ok(())
    }
}
