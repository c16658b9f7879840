//! The flight recorder: the last intervals in memory, written when a bound is crossed or on SIGUSR1.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use biopsy::analyze::condition::{Condition, Metric};
use biopsy::analyze::latency::LatencySummary;
use biopsy::clock::now_ns;
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::recording::folder::{self, Folder};
use biopsy::recording::manifest::{Ended, Manifest};
use biopsy::recording::redact::Redactor;
use biopsy::recording::ring::{Held, Ring};
use biopsy::recording::tape::{Tape, dump};
use biopsy::refusal::{Refusal, plain, reason};
use biopsy::render::text;
use biopsy::session::record::{Opening, Views};
use biopsy::session::{stop, wall_clock};

use super::views::{self, Asked, Named};
use super::{await_begin, begin, clocks, collect, create, doubts, due, follow, put, write};
use crate::cli::{Record, Recordable};
use crate::output;

const HOUR: Duration = Duration::from_secs(3600);

/// Looks at each interval, and says when what is held is to be written.
pub struct Trigger {
    /// As it was written, too.
    when: Option<(Condition, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bound is crossed, and the values are not back yet.
    is_crossed: bool,
    /// To be written, and since when.
    asked: Option<Due>,
}

/// Why what is held is to be written, and up to when it has to reach.
#[derive(Debug, Clone)]
struct Due {
    why: String,
    at_ns: u64,
}

impl Trigger {
    /// `end_ns`: when the interval ended.
    pub fn look(&self, summary: &LatencySummary, end_ns: u64) {
        let Some((condition, words)) = &self.when else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_crossed {
            state.is_crossed = !condition.is_over(summary);
        } else if let Some(crossed) = condition.crossed(summary) {
            state.is_crossed = true;
            let value = match condition.metric {
                Metric::Iops => text::count(crossed.value as u64),
                Metric::Latency { .. } => text::time(crossed.value as u64),
            };
            let op = crossed.op.map(|op| format!(" {}", op.name())).unwrap_or_default();
            let why = format!("{words}: {value} of {}{op}", text::clean(&crossed.device));
            // Each view reads its interval a moment before or after.
            let at_ns = end_ns.saturating_sub(summary.duration_ns / 2);
            state.asked = Some(Due { why, at_ns });
        }
    }

    /// What was asked for since the last call.
    fn take(&self) -> Option<Due> {
        let by_signal = || Due { why: "SIGUSR1".to_string(), at_ns: now_ns() };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked.take().or_else(|| stop::dump_requested().then(by_signal))
    }
}

/// The intervals of each view.
type Rings = Vec<(&'static str, Arc<Mutex<Ring>>)>;

pub fn run(
    args: &Record,
    length: Duration,
    host: &Host,
    named: &Named,
    machine: &[u8],
    redactor: &Option<Arc<Redactor>>,
) -> Result<()> {
    let into = args.output.clone().unwrap_or_else(|| PathBuf::from("."));
    if args.when.is_some() && !args.with.is_empty() && !args.with.contains(&Recordable::Latency) {
        let why = "--when looks at latency, which --with leaves out: add it, or leave --when out";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let mut made = if into.is_dir() { None } else { Some(create(&into)?) };
    stop::install();
    stop::install_dump();
    let due_at = due(args.at)?;
    // The interval for which it is written may be over for a while before that.
    let keep = length.saturating_add(args.interval);
    let keep_ns = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
    let rings: Mutex<Rings> = Mutex::default();
    let trigger = Trigger { when: args.when.clone(), state: Mutex::default() };
    std::thread::scope(|scope| {
        let mut views = Views::new(scope, args.window.max_loss);
        let asked = Asked { args, host, named, trigger: Some(&trigger), folder: None };
        let tape = |view: Recordable| {
            let ring = Arc::new(Mutex::new(Ring::new(keep_ns)));
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
        let writer =
            Writer { into: &into, machine, envelope: &envelope, manifest: &manifest, rings, redactor };
        let mut dumps =
            Dumps { most: args.max_dumps, times: VecDeque::new(), is_told: false, written: 0, failed: None };
        let mut due: Option<(Due, Instant)> = None;
        // One that a view does not finish is not waited for.
        let patience = 2 * args.interval + Duration::from_secs(1);
        let (_, window) = follow(args, named, &views, at, || {
            if due.is_none() {
                due = trigger.take().filter(|_| dumps.is_allowed()).map(|due| (due, Instant::now()));
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
        // What it still does is not recorded.
        let _status = window.status();
        // The last interval may have crossed the bound.
        let due = due.map(|(due, _)| due).or_else(|| trigger.take().filter(|_| dumps.is_allowed()));
        if let Some(due) = due {
            dumps.write(&writer, &due);
        }
        output::warn(&format!("wrote {} to {}", text::counted(dumps.written, "recording"), into.display()));
        match (failed.or(dumps.failed), doubts(&manifest)) {
            (Some(error), _) => Err(error),
            (None, Some(why)) => Err(Refusal::Untrusted(why).into()),
            (None, None) => Ok(()),
        }
    })
}

/// How often it may write.
struct Dumps {
    most: u64,
    /// Of the last hour.
    times: VecDeque<Instant>,
    is_told: bool,
    written: u64,
    /// The last one that could not be written.
    failed: Option<anyhow::Error>,
}

impl Dumps {
    /// A disk that is full now may have space at the next one.
    fn write(&mut self, writer: &Writer<'_>, due: &Due) {
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
                "no more is written within this hour: {} is what --max-dumps allows",
                text::counted(self.most, "recording")
            ));
        }
        false
    }
}

/// Writes what is held as a recording.
struct Writer<'a> {
    into: &'a Path,
    machine: &'a [u8],
    envelope: &'a Envelope,
    manifest: &'a Manifest,
    rings: Rings,
    redactor: &'a Option<Arc<Redactor>>,
}

impl Writer<'_> {
    /// Whether all views have an interval that ended then or later.
    fn reaches(&self, at_ns: u64) -> bool {
        let end = |ring: &Mutex<Ring>| ring.lock().unwrap_or_else(PoisonError::into_inner).end_ns();
        self.rings.iter().all(|(_, ring)| end(ring).is_some_and(|end| end >= at_ns))
    }

    fn pin(&self, at_ns: u64) {
        for (_, ring) in &self.rings {
            ring.lock().unwrap_or_else(PoisonError::into_inner).pin(at_ns);
        }
    }

    fn write(&self, due: &Due) -> Result<()> {
        let until =
            |ring: &Mutex<Ring>| ring.lock().unwrap_or_else(PoisonError::into_inner).take_until(due.at_ns);
        let all: Vec<(&str, Vec<Held>)> =
            self.rings.iter().map(|(view, ring)| (*view, until(ring))).collect();
        let mut folder = self.folder()?;
        put(&folder, folder::HOST, self.machine)?;
        let mut manifest = Manifest {
            run_id: super::run_id()?,
            ended: Some(Ended::Dump),
            trigger: Some(due.why.clone()),
            ..self.manifest.clone()
        };
        // The dump may have waited for a view; the recording ends with its last interval.
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
        write(&folder, &envelope, &manifest, None, self.redactor)?;
        folder.keep();
        output::warn(&format!("{}: wrote {}", due.why, folder.path().display()));
        Ok(())
    }

    /// A new one, named by the time.
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
