//! The flight recorder: keeps the last intervals in memory, and dumps them on a crossed bound, a finding, or SIGUSR1.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use biopsy::analyze::condition::{Condition, TriggerMetric};
use biopsy::analyze::latency::LatencySummary;
use biopsy::clock::now_ns;
use biopsy::envelope::{Envelope, Missing, Reason};
use biopsy::host::Host;
use biopsy::recording::folder::{self, Folder};
use biopsy::recording::io::Parts;
use biopsy::recording::manifest::{EndReason, Manifest, RecordedView};
use biopsy::recording::redact::Redactor;
use biopsy::recording::ring::{IntervalRing, RingInterval};
use biopsy::recording::tape::{Tape, dump};
use biopsy::refusal::{Refusal, plain, reason};
use biopsy::render::text;
use biopsy::session::record::{Opening, Views};
use biopsy::session::slowest::{HeldIos, MOST, WindowIos};
use biopsy::session::{stop, wall_clock};

use super::views::{self, RecordOptions, SelectedDevices};
use super::watch::Watch;
use super::{Usage, await_begin, begin, clocks, collect, create, doubts, due, follow, put, trace, write};
use crate::cli::{Record, Recordable};
use crate::output;

/// Extra time for which the slowest I/Os are kept: a view may be this late.
const SLACK_NS: u64 = 10_000_000_000;

const HOUR: Duration = Duration::from_secs(3600);

/// Checks each interval against the bound, and requests a dump.
pub struct Trigger {
    /// The parsed bound and its text.
    when: Option<(Condition, String)>,
    state: Mutex<TriggerState>,
}

#[derive(Default)]
struct TriggerState {
    /// The bound was crossed, and the value has not come back yet.
    is_crossed: bool,
    /// The requested dump.
    asked: Option<Due>,
}

/// The reason of a dump, and the time that it must include.
#[derive(Debug, Clone)]
pub struct Due {
    pub why: String,
    pub at_ns: u64,
    /// The diagnosis that triggered it, as a line of JSON.
    pub findings: Option<Vec<u8>>,
}

impl Trigger {
    /// Checks an interval that ended at `end_ns`.
    pub fn look(&self, summary: &LatencySummary, end_ns: u64) {
        let Some((condition, words)) = &self.when else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_crossed {
            state.is_crossed = !condition.is_over(summary);
        } else if let Some(crossed) = condition.crossed(summary) {
            state.is_crossed = true;
            let value = match condition.metric {
                TriggerMetric::Iops => text::count(crossed.value as u64),
                TriggerMetric::Latency { .. } => text::time(crossed.value as u64),
            };
            let op = crossed.op.map(|op| format!(" {}", op.name())).unwrap_or_default();
            let why = format!("{words}: {value} of {}{op}", text::clean(&crossed.device));
            // The views read this interval slightly earlier or later: use its middle.
            let at_ns = end_ns.saturating_sub(summary.duration_ns / 2);
            state.asked = Some(Due { why, at_ns, findings: None });
        }
    }

    /// The dump requested since the last call.
    fn take(&self) -> Option<Due> {
        let by_signal = || Due { why: "SIGUSR1".to_string(), at_ns: now_ns(), findings: None };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.take().or_else(|| stop::dump_requested().then(by_signal))
    }
}

/// The intervals of each view.
type Rings = Vec<(&'static str, Arc<Mutex<IntervalRing>>)>;

pub fn run(
    args: &Record,
    length: Duration,
    host: &Host,
    named: &SelectedDevices,
    machine: &[u8],
    redactor: &Option<Arc<Redactor>>,
) -> Result<()> {
    let into = args.output.clone().unwrap_or_else(|| PathBuf::from("."));
    let is_wanted = |view| args.with.is_empty() || args.with.contains(&view);
    if !is_wanted(Recordable::Latency) {
        let wants_latency = [
            (args.when.is_some(), "--when needs latency"),
            (args.on_finding.is_some(), "--on-finding needs latency"),
            (is_wanted(Recordable::Trace), "trace has the slowest I/Os of latency"),
        ];
        if let Some((_, what)) = wants_latency.iter().find(|(is_asked, _)| *is_asked) {
            let why = format!("{what}, which --with leaves out: add latency to --with");
            return Err(Refusal::Usage(why).into());
        }
    }
    let mut made = if into.is_dir() { None } else { Some(create(&into)?) };
    stop::install();
    stop::install_dump();
    let due_at = due(args.at)?;
    // One interval more: the interval that triggers the dump may have ended some time before the dump.
    let keep = length.saturating_add(args.interval);
    let keep_ns = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
    let rings: Mutex<Rings> = Mutex::default();
    let ios = (is_wanted(Recordable::Trace) && !args.redact)
        .then(|| Arc::new(Mutex::new(HeldIos::new(keep_ns.saturating_add(SLACK_NS)))));
    let trigger = Trigger { when: args.when.clone(), state: Mutex::default() };
    std::thread::scope(|scope| {
        let mut views = Views::new(scope, args.window.max_loss);
        let asked =
            RecordOptions { args, host, named, trigger: Some(&trigger), ios: ios.as_ref(), folder: None };
        let tape = |view: Recordable| {
            let ring = Arc::new(Mutex::new(IntervalRing::new(keep_ns)));
            rings.lock().unwrap_or_else(PoisonError::into_inner).push((view.name(), Arc::clone(&ring)));
            Ok(Tape::hold(view.name(), &ring)?.redacted(redactor.clone()))
        };
        let drop = |view: Recordable| {
            let mut rings = rings.lock().unwrap_or_else(PoisonError::into_inner);
            rings.retain(|(name, _)| *name != view.name());
        };
        let missing = views::add_all(&mut views, &asked, tape, drop)?;
        let at = await_begin(args, due_at)?;
        let (envelope, manifest) = begin(args, missing)?;
        let rings = std::mem::take(&mut *rings.lock().unwrap_or_else(PoisonError::into_inner));
        views.begin(Opening { at, interval: args.interval, length: args.window.length });
        let writer = RecordingWriter {
            into: &into,
            machine,
            envelope: &envelope,
            manifest: &manifest,
            rings,
            ios: ios.as_ref(),
            redactor,
            usage: Usage::begin(),
        };
        let mut watch = match args.on_finding {
            Some(least) => Some(Watch::new(args, length, least.least().0, machine, at)?),
            None => None,
        };
        let mut dumps =
            Dumps { most: args.max_dumps, times: VecDeque::new(), is_told: false, written: 0, failed: None };
        let mut due: Option<(Due, Instant)> = None;
        // Do not wait longer for a view that does not finish its interval.
        let patience = 2 * args.interval + Duration::from_secs(1);
        let (_, window) = follow(args, named, &views, at, || {
            if due.is_none() {
                // Not while a dump is waiting: a new finding is reported only once, and would be lost.
                let found = || watch.as_mut().and_then(|watch| watch.look(&writer, patience));
                let new = trigger.take().or_else(found).filter(|_| dumps.is_allowed());
                due = new.map(|due| (due, Instant::now()));
                due.iter().for_each(|(due, _)| writer.pin(due.at_ns));
            }
            let is_ready =
                |(due, since): &(Due, Instant)| writer.reaches(due.at_ns) || since.elapsed() > patience;
            if let Some((due, _)) = due.take_if(|due| is_ready(due)) {
                dumps.write(&writer, &due);
            }
            Ok(None)
        })?;
        made.iter_mut().for_each(Folder::keep);
        let mut manifest = manifest.clone();
        let failed = collect(views.finish(), &mut manifest);
        // The command may keep running, but is no longer recorded.
        let _status = window.status();
        // The last interval may have crossed the bound.
        let found = || watch.and_then(|mut watch| watch.look(&writer, Duration::ZERO));
        let new = || trigger.take().or_else(found).filter(|_| dumps.is_allowed());
        let due = due.map(|(due, _)| due).or_else(new);
        if let Some(due) = due {
            dumps.write(&writer, &due);
        }
        let cpu = writer.usage.cpu_percent().map(|percent| format!(", at {percent:.1} % of a CPU"));
        let (wrote, cpu) = (text::counted(dumps.written, "recording"), cpu.unwrap_or_default());
        output::warn(&format!("wrote {wrote} to {}{cpu}", into.display()));
        match (failed.or(dumps.failed), doubts(&manifest)) {
            (Some(error), _) => Err(error),
            (None, Some(why)) => Err(Refusal::Untrusted(why).into()),
            (None, None) => Ok(()),
        }
    })
}

/// Counts dumps and limits their rate.
struct Dumps {
    most: u64,
    /// Times of the dumps in the last hour.
    times: VecDeque<Instant>,
    is_told: bool,
    written: u64,
    /// The error of the last failed dump.
    failed: Option<anyhow::Error>,
}

impl Dumps {
    /// A failure is not fatal: a full disk may have space for the next dump.
    fn write(&mut self, writer: &RecordingWriter<'_>, due: &Due) {
        match writer.write(due) {
            Ok(()) => {
                self.written += 1;
                self.times.push_back(Instant::now());
            }
            Err(error) => {
                output::warn(&format!("{}: {}", due.why, plain(&format!("{error:#}"))));
                self.failed = Some(error);
            }
        }
    }

    fn is_allowed(&mut self) -> bool {
        while self.times.front().is_some_and(|first| first.elapsed() > HOUR) {
            self.times.pop_front();
            self.is_told = false;
        }
        if (self.times.len() as u64) < self.most {
            return true;
        }
        if !self.is_told {
            self.is_told = true;
            output::warn(&format!(
                "no more is written within this hour: --max-dumps allows {}",
                text::counted(self.most, "recording")
            ));
        }
        false
    }
}

/// Writes the intervals in memory as a recording.
pub struct RecordingWriter<'a> {
    into: &'a Path,
    machine: &'a [u8],
    envelope: &'a Envelope,
    manifest: &'a Manifest,
    rings: Rings,
    ios: Option<&'a Arc<Mutex<HeldIos>>>,
    redactor: &'a Option<Arc<Redactor>>,
    usage: Usage,
}

impl RecordingWriter<'_> {
    /// The intervals of each view that ended after `from_ns`, up to and including `to_ns`.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Vec<(&'static str, Vec<RingInterval>)> {
        let held = |ring: &Mutex<IntervalRing>| {
            ring.lock().unwrap_or_else(PoisonError::into_inner).between(from_ns, to_ns)
        };
        self.rings.iter().map(|(view, ring)| (*view, held(ring))).collect()
    }

    /// Whether all views have an interval that ended at this time or later.
    pub fn reaches(&self, at_ns: u64) -> bool {
        let end = |ring: &Mutex<IntervalRing>| ring.lock().unwrap_or_else(PoisonError::into_inner).end_ns();
        self.rings.iter().all(|(_, ring)| end(ring).is_some_and(|end| end >= at_ns))
    }

    fn pin(&self, at_ns: u64) {
        for (_, ring) in &self.rings {
            ring.lock().unwrap_or_else(PoisonError::into_inner).pin(at_ns);
        }
    }

    fn write(&self, due: &Due) -> Result<()> {
        let until = |ring: &Mutex<IntervalRing>| {
            ring.lock().unwrap_or_else(PoisonError::into_inner).take_until(due.at_ns)
        };
        let all: Vec<(&str, Vec<RingInterval>)> =
            self.rings.iter().map(|(view, ring)| (*view, until(ring))).collect();
        let mut folder = self.folder()?;
        put(&folder, folder::HOST, self.machine)?;
        if let Some(findings) = &due.findings {
            put(&folder, folder::FINDINGS, findings)?;
        }
        let mut manifest = Manifest {
            run_id: super::run_id()?,
            ended: Some(EndReason::Dump),
            trigger: Some(due.why.clone()),
            recorder_cpu_percent: self.usage.cpu_percent(),
            ..self.manifest.clone()
        };
        // The dump may have waited for a view. The recording ends with its last interval.
        let now = clocks();
        let last_ns = all.iter().filter_map(|(_, held)| Some(held.last()?.end_ns)).max();
        let end = now.earlier(last_ns.map_or(0, |last_ns| now.monotonic_ns.saturating_sub(last_ns)));
        let starts = all.iter().filter_map(|(_, held)| held.first()).map(|first| first.start.clone());
        let start = starts.min().unwrap_or_else(|| self.envelope.start.clone());
        let began = wall_clock::unix_ns(&start).and_then(|ns| u64::try_from(ns).ok());
        let mut envelope = Envelope {
            duration_ns: began.map_or(0, |began| end.realtime_ns.saturating_sub(began)),
            start,
            ..self.envelope.clone()
        };
        manifest.clocks.start = end.earlier(envelope.duration_ns);
        manifest.clocks.end = Some(end);
        for (view, held) in &all {
            let recorded = dump(folder.path(), view, held)?;
            envelope.lost.overlay(&recorded.lost);
            manifest.views.insert((*view).to_string(), recorded);
        }
        if let Some(ios) = self.ios {
            let to_ns = last_ns.unwrap_or(now.monotonic_ns);
            let from_ns = to_ns.saturating_sub(envelope.duration_ns);
            let window = ios.lock().unwrap_or_else(PoisonError::into_inner).between(from_ns, to_ns);
            manifest.views.insert("trace".to_string(), slowest(&folder, &window)?);
            envelope.missing.push(Missing {
                part: Some("trace".to_string()),
                reason: Reason::NotAskedFor,
                why: format!("{} has the slowest I/Os of each interval, at most {MOST}", folder::IOS),
                ..Missing::default()
            });
        }
        write(&folder, &envelope, &manifest, None, self.redactor)?;
        folder.keep();
        output::warn(&format!("{}: wrote {}", due.why, folder.path().display()));
        Ok(())
    }

    /// Creates a new folder named by the time.
    fn folder(&self) -> Result<folder::Folder> {
        let stamp = wall_clock::stamp();
        for number in 1..100 {
            let name =
                if number == 1 { format!("{stamp}.biopsy") } else { format!("{stamp}-{number}.biopsy") };
            let path = self.into.join(name);
            match folder::Folder::create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let why = reason(&error);
                    return Err(error).with_context(|| format!("cannot make {}: {why}", path.display()));
                }
                Ok(folder) => return Ok(folder),
            }
        }
        anyhow::bail!("{} has 99 recordings of this second", self.into.display())
    }
}

/// Writes the slowest I/Os as a table.
fn slowest(folder: &Folder, window: &WindowIos) -> Result<RecordedView> {
    let mut parts = Parts::create(folder.path(), &Arc::default())?;
    let offset = wall_clock::unix_ns_now().saturating_sub(now_ns());
    for io in &window.ios {
        let ended = i64::try_from(io.ended_ns.saturating_add(offset)).unwrap_or(i64::MAX);
        parts.add(&trace::row(&window.scene, io, ended))?;
    }
    parts.finish()?;
    let mut recorded = RecordedView { bytes: parts.bytes, ..RecordedView::default() };
    recorded.lost.events = window.lost;
    Ok(recorded)
}
