//! Reads the views of one interval from a recording or from the flight recorder.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::flame::FlameSummary;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::analyze::stacks::ProfileSummary;
use biopsy::analyze::system::SystemSummary;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::analyze::timeline::Timeline;
use biopsy::envelope::{Envelope, Missing, Reason, View};
use biopsy::merge::{Summary, how};
use biopsy::recording::ring::RingInterval;
use biopsy::recording::source::{self, Absent, LineReader};
use biopsy::recording::stacks::Profiles;
use biopsy::recording::{Piece, Span, folder, name_of};
use biopsy::render::folded;
use biopsy::rules::measured::IntervalSummaries;

use crate::flame::recording as stacks;
use crate::replay;

/// The source of each view's intervals.
#[derive(Clone, Copy)]
pub enum IntervalSource<'a> {
    /// A recording.
    At(&'a Path),
    /// Intervals in memory, with the name of their view.
    Held(&'a [(&'static str, Vec<RingInterval>)]),
}

/// All intervals, merged.
pub struct MergedIntervals {
    pub measured: IntervalSummaries,
    pub timeline: Timeline,
    /// On-CPU stacks; None: not recorded.
    pub stacks: Option<FlameSummary>,
    /// Why the stacks cannot be read, if so. The other views are complete.
    pub damaged: Option<anyhow::Error>,
    pub command_status: Option<i32>,
}

impl IntervalSource<'_> {
    /// The intervals that began within `span`, merged.
    ///
    /// # Errors
    /// If there is no latency, or a view is damaged.
    pub fn window(self, span: Span) -> Result<MergedIntervals> {
        let mut timeline = Timeline::default();
        let lines = self.lines::<LatencySummary>()?;
        let latency =
            replay::intervals(lines, &self.name(), span, |interval: &LatencySummary| timeline.add(interval))?;
        timeline.finish();
        let Piece { mut envelope, view: latency, command_status, .. } = latency.whole();
        let interrupts = self.beside::<InterruptSummary>(span, "interrupts", &mut envelope)?;
        let pressure = self.beside::<PressureSummary>(span, "locks", &mut envelope)?.unwrap_or_default();
        let threads = self.beside::<ThreadSummary>(span, "threads", &mut envelope)?;
        let system =
            self.beside::<SystemSummary>(span, "CPU time, CPU quotas and rates of devices", &mut envelope)?;
        let (stacks, damaged) = match self.stacks(span, &mut envelope) {
            Ok(stacks) => (stacks, None),
            Err(error) => (None, Some(error)),
        };
        let profile = stacks.as_ref().and_then(profile);
        let measured =
            IntervalSummaries { envelope, latency, interrupts, pressure, threads, profile, system };
        Ok(MergedIntervals { measured, timeline, stacks, damaged, command_status })
    }

    fn name(self) -> String {
        match self {
            Self::At(path) => path.display().to_string(),
            Self::Held(_) => "the interval in memory".to_string(),
        }
    }

    fn held(views: &[(&str, Vec<RingInterval>)], view: &str) -> Result<Vec<RingInterval>> {
        let found = views.iter().find(|(name, held)| *name == view && !held.is_empty());
        Ok(found.ok_or_else(|| Absent::new(view))?.1.clone())
    }

    fn lines<V: View>(self) -> Result<LineReader> {
        match self {
            Self::At(path) => replay::open::<V>(path),
            Self::Held(views) => source::held(&Self::held(views, name_of(V::SCHEMA))?),
        }
    }

    /// Another view of the same time; None: it was not recorded.
    fn beside<V: View + Summary>(self, span: Span, what: &str, envelope: &mut Envelope) -> Result<Option<V>> {
        let read = self.lines::<V>().and_then(|lines| replay::intervals(lines, &self.name(), span, |_| {}));
        match read {
            Ok(run) => {
                let piece = run.whole();
                how::each(&mut envelope.missing, &piece.envelope.missing);
                let samples = &mut envelope.lost.samples;
                *samples = samples.saturating_add(piece.envelope.lost.samples);
                envelope.lost.probes.extend(piece.envelope.lost.probes);
                Ok(Some(piece.view))
            }
            Err(error) if error.downcast_ref::<Absent>().is_some() => {
                envelope.missing.push(not_recorded(name_of(V::SCHEMA), what));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn stacks(self, span: Span, envelope: &mut Envelope) -> Result<Option<FlameSummary>> {
        let read = match self {
            Self::At(path) => stacks::of_recording(path, span),
            Self::Held(views) => Self::held(views, folder::STACKS)
                .and_then(Profiles::held)
                .and_then(|profiles| stacks::intervals(profiles, self.name(), None, span)),
        };
        let read = match read {
            Ok(read) => read.measurement,
            Err(error) if error.downcast_ref::<Absent>().is_some() => {
                envelope.missing.push(not_recorded("profile", "stacks of the CPUs"));
                return Ok(None);
            }
            Err(error) => {
                envelope.missing.push(not_recorded("profile", "readable stacks of the CPUs"));
                return Err(error.context(self.name()));
            }
        };
        if read.summary.samples.is_none() {
            envelope.missing.push(not_recorded("profile", "the classes of the samples of the CPUs"));
        }
        envelope.missing.extend(read.envelope.missing);
        envelope.lost.samples = envelope.lost.samples.saturating_add(read.envelope.lost.samples);
        Ok(Some(read.summary))
    }
}

fn not_recorded(part: &str, what: &str) -> Missing {
    let why = format!("{what} were not recorded");
    Missing { part: Some(part.to_string()), reason: Reason::NotAvailable, why, ..Missing::default() }
}

/// In the form of a live diagnosis.
fn profile(stacks: &FlameSummary) -> Option<ProfileSummary> {
    let samples = stacks.samples.clone()?;
    Some(ProfileSummary { folded: folded::lines(&stacks.profile).collect(), ..samples })
}
