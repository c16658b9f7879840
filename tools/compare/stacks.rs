//! `biopsy compare --stacks`: on-CPU stacks of the rounds, and a differential flame graph for each arm.

use anyhow::Result;
use biopsy::analyze::flame::What;
use biopsy::analyze::flame_diff::{Basis, DiffSide, compare};
use biopsy::analyze::profile::{Profile, Unit};
use biopsy::envelope::Envelope;
use biopsy::experiment::compare::{Comparison, MetricKind, Observer, Round};
use biopsy::probe::Probe;
use biopsy::probe::stacks::StacksProbe;
use biopsy::render::flame::{Caption, Options};
use biopsy::render::flame_diff;
use biopsy::session::flame::OnCpuView;
use biopsy::session::watch::{Live as _, WatchInterval};
use biopsy::wire::stacks::RawProfile;

/// Samples per second and CPU. Not a multiple of the kernel's timer frequency.
const FREQUENCY: u64 = 499;

/// The samples of a round.
struct RoundProfile {
    arm: usize,
    profile: Profile,
    /// I/Os of the load in that time; None: a command.
    ios: Option<f64>,
    duration_ns: u64,
}

/// Samples all CPUs.
pub struct StackSampler {
    probe: StacksProbe,
    view: OnCpuView,
    from: Option<RawProfile>,
    /// In the order in which they ran.
    rounds: Vec<RoundProfile>,
    lost: u64,
}

impl StackSampler {
    pub fn attach() -> Result<Self> {
        let probe = StacksProbe::attach(FREQUENCY)?;
        Ok(Self { probe, view: OnCpuView::new(), from: None, rounds: Vec::new(), lost: 0 })
    }

    /// For each arm except the first: its name and a differential flame graph as an `<svg>` element. Uses the counted
    /// blocks only.
    pub fn pictures(self, envelope: &mut Envelope, comparison: &mut Comparison) -> Vec<(String, String)> {
        envelope.lost.samples += self.lost;
        let blocks = comparison.whole_blocks();
        // A stopped round is the last of these, and is missing in the comparison.
        let counted =
            self.rounds.iter().zip(&comparison.rounds).filter(|(_, round)| blocks.contains(&round.block));
        let counted: Vec<&RoundProfile> = counted.map(|(sampled, _)| sampled).collect();
        let of_arm = |arm: usize| counted.iter().filter(move |sampled| sampled.arm == arm).copied();
        let merged = |arm: usize| {
            of_arm(arm).fold(Profile::new(Unit::Samples), |mut all, sampled| {
                all.merge(&sampled.profile);
                all
            })
        };
        let before = merged(0);
        let mut pictures = Vec::new();
        for arm in 1..comparison.arms.len() {
            let (a, b) = (&comparison.arms[0].name, &comparison.arms[arm].name);
            let after = merged(arm);
            let [first, second] =
                [&before, &after].map(|profile| DiffSide { profile, events: None, what: Some(What::OnCpu) });
            let basis = basis([0, arm].map(|arm| of_arm(arm).collect::<Vec<_>>()));
            let by = if matches!(basis, Basis::Ios { .. }) { "per I/O" } else { "per time" };
            let caption = Caption {
                samples: format!("{} against {} samples at {FREQUENCY} Hz", after.total(), before.total()),
                ..Caption::new(format!("{}: {b} against {a}", What::OnCpu.title()), by)
            };
            let picture = compare(first, second, basis)
                .and_then(|found| flame_diff::inline(&found, &caption, &Options::default()));
            match picture {
                Ok(svg) => pictures.push((b.clone(), svg)),
                Err(why) => comparison.notes.push(format!("no flame graph of {b}: {why}")),
            }
        }
        pictures
    }
}

/// Per I/O if the load counted I/Os, else per time.
fn basis(sides: [Vec<&RoundProfile>; 2]) -> Basis {
    let ios = |side: &[&RoundProfile]| {
        side.iter().map(|sampled| sampled.ios).sum::<Option<f64>>().map(|ios| ios as u64)
    };
    let time = |side: &[&RoundProfile]| side.iter().map(|sampled| sampled.duration_ns).sum();
    match (ios(&sides[0]), ios(&sides[1])) {
        (Some(before @ 1..), Some(after @ 1..)) => Basis::Ios { before, after },
        _ => Basis::Time { before: time(&sides[0]), after: time(&sides[1]) },
    }
}

impl Observer for StackSampler {
    /// Each read returns the samples since the previous one.
    fn begin(&mut self) -> Result<()> {
        self.from = Some(self.probe.read()?);
        Ok(())
    }

    fn end(&mut self, arm: usize, round: &mut Round) -> Result<()> {
        let (Some(from), to) = (self.from.take(), self.probe.read()?) else { return Ok(()) };
        self.lost += to.lost;
        let piece = WatchInterval { from: &from, to: &to, is_last: false };
        let (_, summary) = self.view.summary(&self.probe, &piece, Envelope::default());
        let rate = round.values.get(MetricKind::Iops.name());
        self.rounds.push(RoundProfile {
            arm,
            profile: summary.profile,
            ios: rate.map(|rate| rate * summary.duration_ns as f64 / 1e9),
            duration_ns: summary.duration_ns,
        });
        Ok(())
    }
}
