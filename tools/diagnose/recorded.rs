//! The diagnosis of a recording: the same rules over what was kept.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use biopsy::analyze::devices::HostSummary;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::loss;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::analyze::timeline::Timeline;
use biopsy::envelope::{Envelope, Missing, Reason, View};
use biopsy::merge::Summary;
use biopsy::recording::source::Absent;
use biopsy::recording::{Piece, Pieces, Span, folder, source};
use biopsy::refusal::Refusal;
use biopsy::rules::{self, Summaries, observed};

use super::answer::{Answer, Found};
use super::pictures::Pictures;
use crate::cli::{Color, Diagnose, FailOn, Report};
use crate::flame::recording as stacks;
use crate::{output, replay};

/// What is to be diagnosed, and where the answer goes.
pub struct Asked<'a> {
    recording: &'a Path,
    span: Span,
    page: Option<PathBuf>,
    json: bool,
    verbose: bool,
    fail_on: Option<FailOn>,
    max_loss: f64,
}

impl<'a> Asked<'a> {
    /// `diagnose -i`, which makes a page where one is named.
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

    /// `report`, which always makes one.
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

/// `run.html` for `run.biopsy`, here; with a number where that is another file.
fn page_name(recording: &Path) -> PathBuf {
    let stem = recording.file_name().unwrap_or_default().to_string_lossy();
    let stem = stem.trim_end_matches(".tar").trim_end_matches(".biopsy");
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.html"),
        _ => format!("{stem}-{number}.html"),
    });
    names.map(PathBuf::from).find(|path| !path.exists()).unwrap_or_else(|| format!("{stem}.html").into())
}

pub fn run(asked: &Asked<'_>, color: Color) -> Result<()> {
    let path = asked.recording;
    let machine = machine(path)?;
    let mut answer = Answer::open(asked.page.clone(), asked.json, asked.verbose, asked.fail_on, color)?;
    let mut timeline = Timeline::default();
    let latency = replay::intervals(path, asked.span, |interval: &LatencySummary| timeline.add(interval))?;
    timeline.finish();
    let Piece { mut envelope, view: latency, command_status } = latency.whole();
    let interrupts = beside::<InterruptSummary>(asked, "interrupts", &mut envelope)?;
    let pressure = beside::<PressureSummary>(asked, "locks", &mut envelope)?.unwrap_or_default();
    let threads = beside::<ThreadSummary>(asked, "threads", &mut envelope)?;
    envelope.missing.extend(NOT_KEPT.iter().map(|(part, why)| missing(part, (*why).to_string())));
    let host = &machine.machine;
    let locks = pressure.locks.as_ref().map(|locks| observed::Locks::of(locks, host.cpus_online));
    let pagecache = pressure.pagecache.as_ref().map(observed::PageCache::from);
    let sampled = threads.as_ref().map(observed::Threads::from);
    let summaries = Summaries {
        envelope: &envelope,
        host,
        latency: &latency,
        command: command_status.is_some(),
        rates: &[],
        interrupts: interrupts.as_ref(),
        load: None,
        scaling: None,
        experiment: None,
        cpu: None,
        quotas: &[],
        profile: None,
        locks: locks.as_ref(),
        pagecache: pagecache.as_ref(),
        threads: sampled.as_ref(),
    };
    let diagnosis = rules::diagnose(&summaries);
    let doubt = loss::distrust(&latency, &envelope.lost, asked.max_loss);
    let mut pictures = Pictures::new(&host.hostname, &envelope);
    if answer.wants_page() {
        match stacks::read_as(path, None, asked.span) {
            Ok(recorded) => pictures.stacks(&recorded.measurement.summary),
            Err(error) if error.downcast_ref::<Absent>().is_some() => {}
            Err(error) => output::warn(&format!("there is no flame graph of the CPUs: {error:#}")),
        }
        threads.iter().for_each(|threads| pictures.threads(threads));
        pressure.locks.iter().for_each(|locks| pictures.locks(locks));
    }
    let found = Found {
        summaries,
        diagnosis: &diagnosis,
        doubt: doubt.as_deref(),
        command_status,
        interrupts: interrupts.as_ref(),
        pressure: &pressure,
        threads: threads.as_ref(),
        timeline: &timeline,
        flames: &pictures.all,
    };
    answer.write(&found)?;
    answer.exit(&found)
}

/// What a live diagnosis has and a recording has not.
const NOT_KEPT: [(&str, &str); 4] = [
    (
        "profile",
        "a recording has stacks, but not how many of the samples were idle, in interrupts or in io-wq",
    ),
    ("cpu", "a recording has no CPU time by CPU, and no cycles"),
    (
        "readahead",
        "what was read ahead in one interval may be wanted in the next one, so that it is not known of several",
    ),
    ("rates", "a recording has no rates of each tenth of a second, and no CPU quotas of cgroups"),
];

fn missing(part: &str, why: String) -> Missing {
    Missing { part: Some(part.to_string()), reason: Reason::NotAvailable, why, ..Missing::default() }
}

/// The machine that it was recorded on.
fn machine(path: &Path) -> Result<HostSummary> {
    let refused = || {
        let why = format!(
            "{} is no recording of biopsy record, which alone says what the machine is: name one with -i",
            path.display()
        );
        Refusal::Usage(why)
    };
    let lines = source::plain(path, folder::HOST)
        .map_err(|error| replay::unreadable(error, &path.to_string_lossy()))?
        .ok_or_else(refused)?;
    let host = Pieces::new(lines, Span::default()).read::<HostSummary>();
    let host = host.with_context(|| path.join(folder::HOST).display().to_string())?;
    host.map(|piece| piece.view).with_context(|| format!("{} has no machine", path.display()))
}

/// What another view saw in the same time; None: it was not recorded.
fn beside<V: View + Summary>(asked: &Asked<'_>, part: &str, envelope: &mut Envelope) -> Result<Option<V>> {
    match replay::intervals::<V>(asked.recording, asked.span, |_| {}) {
        Ok(run) => {
            let piece = run.whole();
            for gap in piece.envelope.missing {
                if !envelope.missing.contains(&gap) {
                    envelope.missing.push(gap);
                }
            }
            envelope.lost.samples += piece.envelope.lost.samples;
            envelope.lost.probes.extend(piece.envelope.lost.probes);
            Ok(Some(piece.view))
        }
        Err(error) if error.downcast_ref::<Absent>().is_some() => {
            envelope.missing.push(missing(part, format!("{part} were not recorded")));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
