//! `biopsy trace`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::analyze::latency as analysis;
use biopsy::analyze::trace::{self, Join, Scene, Slowest, TraceSummary, TracedIo};
use biopsy::clock::now_ns;
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::host::cgroups::Hierarchy;
use biopsy::probe::events::{EventOptions, Taken};
use biopsy::probe::latency::{LatencyProbe, Options};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::wire::events::Emitted;

use crate::child::Running;
use crate::cli::Trace;
use crate::output::{Sink, Stream};
use crate::submitters::Chosen;
use crate::{clock, output, stop, window};

/// Between two looks at the rings, which hold many times what comes meanwhile.
const NAP: Duration = Duration::from_millis(5);
/// After so many events at once the next look follows without a nap.
const MANY: usize = 4096;
/// How often the groups are read again for an I/O of an unknown one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Paths of all cgroups by id; none where no hierarchy is mounted.
fn cgroups() -> BTreeMap<u64, String> {
    Hierarchy::read(Path::new("/")).map(|all| all.paths()).unwrap_or_default()
}

pub fn run(args: &Trace) -> Result<()> {
    let root = Path::new("/");
    let host = Host::read(root)?;
    let devices = window::resolve(&host, &args.window)?;
    let named = devices.clone();
    let stream = Stream::start(Sink::open(args.output.output.as_deref())?)?;
    stop::install();
    let chosen = Chosen::new(&args.submitters)?;
    let options = Options {
        events: Some(events(args)),
        filter: chosen.filter.clone(),
        ..window::options(devices, &args.window)
    };
    let mut probe = LatencyProbe::attach(&host, root, &options)?;
    let began = Instant::now();
    let start_text = clock::now_rfc3339();
    window::announce(&named, &args.window, &args.command);
    let mut child = match args.command.is_empty() {
        true => None,
        // Its output would stand between the lines.
        false => Some(Running::start(&args.command, true)?),
    };
    let end_at = args.window.length.map(|length| began + length);
    let first = probe.start().clone();
    let mut scene = Scene::new(&host, probe.planned(), probe.request_flags(), first.at_ns);
    scene.cgroups = cgroups();
    let mut page = Page::new(args, scene);

    let mut waiting = Some(page.take());
    while !window::over(&named)
        && !stream.failed()
        && !chosen.are_gone()
        && !child.as_mut().is_some_and(Running::ended)
        && end_at.is_none_or(|end| Instant::now() < end)
    {
        probe.tick();
        // While the reader has not taken what was written before, the rings fill up, and the kernel counts
        // what finds no room.
        waiting = waiting.and_then(|bytes| stream.offer(bytes));
        if waiting.is_none() {
            let taken = probe.events()?;
            let many = taken.events.len() >= MANY;
            page.add(taken);
            probe.raise_floor(page.floor_ns());
            waiting = Some(page.take()).filter(|bytes| !bytes.is_empty());
            if many {
                continue;
            }
        }
        let left = end_at.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        std::thread::sleep(NAP.min(left));
    }

    if stream.failed() {
        // Nobody reads what is left.
        return stream.finish(Vec::new());
    }
    let end = probe.detach()?;
    let status = child.and_then(Running::status);
    while page.add(probe.events()?) {}
    let emitted = probe.emitted()?;
    let summary = analysis::summarize(&host, &first, &end);
    let traced = page.finish(emitted);
    let ios: u64 = summary.devices.iter().map(|d| d.ios).sum();
    let envelope = Envelope {
        start: start_text,
        duration_ns: summary.duration_ns,
        lost: trace::lost(analysis::lost(&summary, &first, &end), &emitted),
        cost: probe.cost(ios as f64 / (summary.duration_ns as f64 / 1e9).max(1e-9)),
        missing: [probe.missing().to_vec(), analysis::missing(&summary)].concat(),
        ..clock::envelope()
    };
    let mut bytes = waiting.unwrap_or_default();
    bytes.extend(page.take());
    if args.output.json {
        bytes.extend(render::json::trace::summary(&envelope, &summary, &traced, status));
    }
    stream.finish(bytes)?;
    if !args.output.json {
        output::note(&render::text::trace::summary(&envelope, &summary, &traced, status));
    }
    let doubt = analysis::distrust(&summary, &envelope.lost, args.window.max_loss);
    match doubt.or_else(|| trace::distrust(&emitted, args.window.max_loss)) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}

/// What the kernel is asked to send.
fn events(args: &Trace) -> EventOptions {
    EventOptions {
        ops: trace::mask(&args.ops),
        every: args.every.unwrap_or(1),
        slower_ns: args.slower_than.map_or(0, |time| time.as_nanos() as u64),
        ring_bytes: args.fault_ring_bytes,
    }
}

/// From events to lines.
struct Page {
    json: bool,
    join: Join,
    scene: Scene,
    slowest: Option<Slowest>,
    looked: Instant,
    bytes: Vec<u8>,
}

impl Page {
    fn new(args: &Trace, scene: Scene) -> Self {
        let json = args.output.json;
        Self {
            json,
            join: Join::new(&scene),
            scene,
            slowest: args.top.map(|most| Slowest::new(most as usize)),
            looked: Instant::now(),
            bytes: if json { Vec::new() } else { render::text::trace::header().into_bytes() },
        }
    }

    /// Whether there was more.
    fn add(&mut self, taken: Taken) -> bool {
        let ios = self.join.round(now_ns(), taken.events, taken.emptied);
        if !self.scene.knows_cgroups(&ios) && self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.scene.cgroups.extend(cgroups());
        }
        self.show_or_keep(ios);
        !taken.emptied
    }

    fn show_or_keep(&mut self, ios: Vec<TracedIo>) {
        match &mut self.slowest {
            Some(slowest) => ios.into_iter().for_each(|io| slowest.add(io)),
            None => ios.iter().for_each(|io| self.show(io)),
        }
    }

    fn show(&mut self, io: &TracedIo) {
        if self.json {
            render::json::trace::io(&mut self.bytes, &self.scene, io);
        } else {
            self.bytes.extend(render::text::trace::io(&self.scene, io).into_bytes());
        }
    }

    /// Less than this is not among the slowest.
    fn floor_ns(&self) -> u64 {
        self.slowest.as_ref().map_or(0, Slowest::floor_ns)
    }

    /// The lines since the last time.
    fn take(&mut self) -> Vec<u8> {
        let as_much = Vec::with_capacity(self.bytes.len());
        std::mem::replace(&mut self.bytes, as_much)
    }

    /// Shows what has waited until the end.
    fn finish(&mut self, emitted: Emitted) -> TraceSummary {
        let ios = self.join.finish();
        self.show_or_keep(ios);
        let mut shown = self.join.ios;
        if let Some(slowest) = self.slowest.take() {
            let ios: Vec<TracedIo> = slowest.into_sorted().collect();
            shown = ios.len() as u64;
            ios.iter().for_each(|io| self.show(io));
        }
        TraceSummary { shown, emitted, unjoined: self.join.unjoined, unshown: self.join.unshown }
    }
}
