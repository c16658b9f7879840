//! Diagnoses the intervals of the flight recorder to find new findings.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use biopsy::analyze::devices::HostSummary;
use biopsy::analyze::loss;
use biopsy::clock::now_ns;
use biopsy::findings::{Finding, Severity};
use biopsy::host::Host;
use biopsy::recording::source::Absent;
use biopsy::recording::{Pieces, Span};
use biopsy::render::{json, text};
use biopsy::rules::summary::DiagnosisSummary;

use super::flight::{Due, RecordingWriter};
use crate::cli::Record;
use crate::diagnose::kept::IntervalSource;
use crate::output;

/// Length of a diagnosed interval. Several rules need rates over two seconds or more.
const WINDOW: Duration = Duration::from_secs(5);

/// Diagnoses consecutive intervals.
pub struct Watch {
    host: Host,
    least: Severity,
    max_loss: f64,
    /// Length of a recorded interval, and of a diagnosed one, which spans several.
    interval_ns: u64,
    window_ns: u64,
    /// Start of the next interval to diagnose.
    from_ns: u64,
    /// The findings of the last diagnosis, each with its subject.
    known: BTreeSet<(&'static str, String)>,
    is_told: bool,
}

impl Watch {
    /// `machine`: the lines that describe the machine; `begin`: start of the first interval; `length`: time kept in
    /// memory.
    pub fn new(
        args: &Record,
        length: Duration,
        least: Severity,
        machine: &[u8],
        begin: Instant,
    ) -> Result<Self> {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let machine = Pieces::new(machine, Span::default()).read::<HostSummary>()?;
        let interval_ns = ns(args.interval).max(1);
        Ok(Self {
            host: machine.context("the machine is unknown")?.view.machine,
            least,
            max_loss: args.window.max_loss,
            interval_ns,
            window_ns: ns(WINDOW.min(length)).div_ceil(interval_ns).saturating_mul(interval_ns),
            from_ns: now_ns().saturating_sub(ns(begin.elapsed())),
            known: BTreeSet::new(),
            is_told: false,
        })
    }

    /// The new finding of the next interval. It is diagnosed when all views have reached its end, or `patience` is
    /// over.
    pub fn look(&mut self, writer: &RecordingWriter<'_>, patience: Duration) -> Option<Due> {
        let to_ns = self.from_ns.saturating_add(self.window_ns);
        let late = now_ns().checked_sub(to_ns)?;
        if !writer.reaches(to_ns) && u128::from(late) <= patience.as_nanos() {
            return None;
        }
        // The views end their intervals slightly later.
        let late_ns = self.interval_ns / 2;
        let views = writer.between(self.from_ns + late_ns, to_ns + late_ns);
        // Skip intervals that passed while this thread did not run: they hold no data.
        self.from_ns = to_ns.saturating_add(late / self.window_ns * self.window_ns);
        let found = self.diagnose(IntervalSource::Held(&views)).unwrap_or_else(|error| {
            let is_empty = error.downcast_ref::<Absent>().is_some();
            if !is_empty && !std::mem::replace(&mut self.is_told, true) {
                output::warn(&format!("the interval in memory cannot be diagnosed: {error:#}"));
            }
            None
        })?;
        Some(Due { at_ns: to_ns.saturating_sub(late_ns), ..found })
    }

    /// The first finding that the previous diagnosis did not have.
    fn diagnose(&mut self, kept: IntervalSource<'_>) -> Result<Option<Due>> {
        let measured = kept.window(Span::default())?.measured;
        if loss::distrust(&measured.latency, &measured.envelope.lost, self.max_loss).is_some() {
            return Ok(None);
        }
        let known = &self.known;
        let (now, due) = measured.diagnose(&self.host, false, |summaries, diagnosis| {
            let severe = || diagnosis.findings.iter().filter(|finding| finding.severity >= self.least);
            let new = severe().find(|finding| !known.contains(&key(finding)));
            let due = new.map(|finding| Due {
                why: text::clean(&format!("{} on {}: {}", finding.id, finding.subject, finding.sentence)),
                at_ns: 0,
                findings: Some(json::view(
                    summaries.envelope,
                    &DiagnosisSummary::of(summaries, diagnosis),
                    None,
                )),
            });
            (severe().map(key).collect(), due)
        });
        self.known = now;
        Ok(due)
    }
}

fn key(finding: &Finding) -> (&'static str, String) {
    (finding.id, finding.subject.clone())
}
