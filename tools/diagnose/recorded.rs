//! Diagnoses a recording with the same rules as a live measurement.

use std::path::{Path, PathBuf};

use anyhow::Result;
use biopsy::analyze::devices::HostSummary;
use biopsy::analyze::loss;
use biopsy::recording::Span;

use super::answer::{Answer, DiagnosisResult};
use super::kept::{IntervalSource, MergedIntervals};
use super::pictures::Pictures;
use crate::cli::{Color, Diagnose, LeastSeverity, Report};
use crate::replay;

/// The recording to diagnose, and the destination of the result.
pub struct DiagnosisRequest<'a> {
    recording: &'a Path,
    span: Span,
    page: Option<PathBuf>,
    json: bool,
    verbose: bool,
    fail_on: Option<LeastSeverity>,
    max_loss: f64,
}

impl<'a> DiagnosisRequest<'a> {
    /// Options of `diagnose -i`. A page is written only if a file is named.
    pub fn of(args: &'a Diagnose, recording: &'a Path) -> Self {
        Self {
            recording,
            span: args.within.span(),
            page: args.output.clone(),
            json: args.json,
            verbose: args.verbose,
            fail_on: args.fail_on,
            max_loss: args.window.max_loss,
        }
    }

    /// Options of `report`. A page is always written.
    pub fn of_report(args: &'a Report) -> Self {
        Self {
            recording: &args.input,
            span: args.within.span(),
            page: Some(args.output.clone().unwrap_or_else(|| page_name(&args.input))),
            json: false,
            verbose: args.verbose,
            fail_on: None,
            max_loss: args.max_loss,
        }
    }
}

/// `run.html` for `run.biopsy`, in the current directory; numbered if that file exists.
fn page_name(recording: &Path) -> PathBuf {
    let stem = recording.file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.trim_end_matches(".tar").trim_end_matches(".biopsy");
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.html"),
        _ => format!("{stem}-{number}.html"),
    });
    names.map(PathBuf::from).find(|path| !path.exists()).unwrap_or_else(|| format!("{stem}.html").into())
}

pub fn run(asked: &DiagnosisRequest<'_>, color: Color) -> Result<()> {
    let kept = IntervalSource::At(asked.recording);
    let machine = replay::machine::<HostSummary>(asked.recording)?.view;
    let mut answer = Answer::open(asked.page.clone(), asked.json, asked.verbose, asked.fail_on, color)?;
    let MergedIntervals { measured, timeline, stacks, damaged, command_status } = kept.window(asked.span)?;
    let host = &machine.machine;
    let doubt = loss::distrust(&measured.latency, &measured.envelope.lost, asked.max_loss);
    let mut pictures = Pictures::new(&host.hostname, &measured.envelope);
    if answer.wants_page() {
        stacks.iter().filter(|stacks| !stacks.profile.is_empty()).for_each(|stacks| pictures.stacks(stacks));
        measured.threads.iter().for_each(|threads| pictures.threads(threads));
        measured.pressure.locks.iter().for_each(|locks| pictures.locks(locks));
    }
    measured.diagnose(host, command_status.is_some(), |summaries, diagnosis| {
        let found = DiagnosisResult {
            summaries: *summaries,
            diagnosis,
            doubt: doubt.as_deref(),
            command_status,
            interrupts: measured.interrupts.as_ref(),
            pressure: &measured.pressure,
            threads: measured.threads.as_ref(),
            timeline: &timeline,
            flames: &pictures.all,
        };
        answer.write(&found)?;
        // The views that could be read were shown.
        damaged.map_or(Ok(()), Err)?;
        answer.exit(&found)
    })
}
