//! Writes the result of a diagnosis: HTML page, text or JSON, and the exit code.

use std::path::{Path, PathBuf};

use anyhow::Result;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::analyze::load::LoadResult;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::analyze::timeline::Timeline;
use biopsy::envelope::FramedView;
use biopsy::findings::Diagnosis;
use biopsy::refusal::Refusal;
use biopsy::render::{self, html, text};
use biopsy::rules::Summaries;
use biopsy::rules::summary::DiagnosisSummary;

use crate::cli::{Color, LeastSeverity};
use crate::output::{self, Sink, warn};

/// The diagnosis, with the measurements behind it.
pub struct DiagnosisResult<'a> {
    pub summaries: Summaries<'a>,
    pub diagnosis: &'a Diagnosis,
    /// Why the result must not be trusted, if so.
    pub doubt: Option<&'a str>,
    pub command_status: Option<i32>,
    pub interrupts: Option<&'a InterruptSummary>,
    pub pressure: &'a PressureSummary,
    pub threads: Option<&'a ThreadSummary>,
    pub timeline: &'a Timeline,
    /// Flame graphs with their names.
    pub flames: &'a [(&'a str, String)],
}

/// The destinations of the result.
pub struct Answer {
    path: Option<PathBuf>,
    page: Option<Sink>,
    json: bool,
    verbose: bool,
    fail_on: Option<LeastSeverity>,
    color: Color,
}

impl Answer {
    /// Opens the page at `path`, before the measurement.
    pub fn open(
        path: Option<PathBuf>,
        json: bool,
        verbose: bool,
        fail_on: Option<LeastSeverity>,
        color: Color,
    ) -> Result<Self> {
        if json && path.as_deref() == Some(Path::new("-")) {
            let why = "-o - and --json both want stdout: name a file with -o";
            return Err(Refusal::Usage(why.to_string()).into());
        }
        let page = path.as_deref().map(|path| Sink::open(Some(path))).transpose()?;
        Ok(Self { path, page, json, verbose, fail_on, color })
    }

    /// Whether flame graphs are needed.
    pub fn wants_page(&self) -> bool {
        self.page.is_some()
    }

    /// Writes the page, and the text or JSON on stdout.
    pub fn write(&mut self, found: &DiagnosisResult<'_>) -> Result<()> {
        let DiagnosisResult {
            summaries, diagnosis, doubt, command_status, pressure, threads, timeline, ..
        } = *found;
        let summary = DiagnosisSummary {
            latency: Some(FramedView {
                envelope: summaries.envelope.clone(),
                view: summaries.latency.clone(),
            }),
            interrupts: found.interrupts.cloned(),
            locks: (pressure.locks.is_some() || pressure.pagecache.is_some()).then(|| pressure.clone()),
            threads: threads.cloned(),
            experiment: summaries.experiment.cloned(),
            scaling: summaries.scaling.cloned(),
            load: summaries.load.map(|load| LoadResult::of(std::slice::from_ref(load))),
            timeline: Some(timeline.summary(summaries.latency)),
            ..DiagnosisSummary::of(&summaries, diagnosis)
        };
        let json = render::json::view_object(summaries.envelope, &summary, command_status);
        if let Some(page) = &mut self.page {
            let report = html::Report {
                summaries,
                diagnosis,
                doubt,
                command: &command_line(),
                command_status,
                flames: found.flames,
                locks: pressure.locks.as_ref(),
                pagecache: pressure.pagecache.as_ref(),
                threads,
                timeline: Some(timeline),
                json: &json,
            };
            page.write(html::render(&report).as_bytes())?;
        }
        let to_stdout = self.path.as_deref() == Some(Path::new("-"));
        // A report on stdout has no path.
        let path = self.path.as_deref().filter(|_| !to_stdout);
        if self.json {
            Sink::Stdout.write(&render::json::line(json))?;
        } else {
            let report = path.map(Path::to_string_lossy);
            let page = text::diagnose::Page {
                summaries,
                diagnosis,
                doubt,
                command_status,
                report: report.as_deref(),
                color: output::colored(self.color) && !to_stdout,
            };
            let text = if self.verbose { text::diagnose::render(&page) } else { text::brief::render(&page) };
            if to_stdout {
                output::note(&text);
            } else {
                Sink::Stdout.write(text::fit(&text, output::stdout_width()).as_bytes())?;
            }
        }
        if let Some(path) = path.filter(|_| self.json || self.verbose) {
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            let text = format!("report: {}", text::clean(&whole.to_string_lossy()));
            if self.json { warn(&text) } else { Sink::Stdout.write(format!("{text}\n").as_bytes())? }
        }
        Ok(())
    }

    /// The exit code for these findings.
    pub fn exit(&self, found: &DiagnosisResult<'_>) -> Result<()> {
        if let Some(why) = found.doubt {
            return Err(Refusal::Untrusted(why.to_string()).into());
        }
        match self.fail_on.and_then(|least| worst(found.diagnosis, least)) {
            Some(why) => Err(Refusal::Found(why).into()),
            None => Ok(()),
        }
    }
}

/// The finding that triggers `--fail-on`. Findings are sorted by severity.
fn worst(diagnosis: &Diagnosis, least: LeastSeverity) -> Option<String> {
    let (least, word) = least.least();
    let worst = diagnosis.findings.first().filter(|finding| finding.severity >= least)?;
    let subject = text::clean(&worst.subject);
    Some(format!("{} on {subject} meets --fail-on {word}: see biopsy explain {}", worst.id, worst.id))
}

/// The command line, quoted for a shell.
fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let words = std::env::args_os().enumerate().map(|(i, word)| {
        let word = word.to_string_lossy().into_owned();
        match i {
            0 => "biopsy".to_string(),
            _ if !word.is_empty() && word.chars().all(plain) => word,
            _ => format!("'{}'", word.replace('\'', "'\\''")),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
