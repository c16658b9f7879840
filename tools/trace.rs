//! `biopsy trace`: prints individual I/Os.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::analyze::op;
use biopsy::analyze::trace::io::{TracedIo, openers};
use biopsy::analyze::trace::scene::Scene;
use biopsy::analyze::trace::slowest::Slowest;
use biopsy::host::Host;
use biopsy::host::cgroups::Hierarchy;
use biopsy::probe::Probe;
use biopsy::probe::events::EventOptions;
use biopsy::probe::files::FileNames;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::session::trace::{TraceTotals, Tracer};
use biopsy::session::window::Window;
use biopsy::session::{stop, wall_clock};

use crate::cli::Trace;
use crate::output::{Sink, Stream};
use crate::{live, output, window};

/// Poll interval for the end of the measurement.
const NAP: Duration = Duration::from_millis(5);
/// Maximum bytes of lines waiting to be written.
const MANY_BYTES: usize = 4 << 20;
/// Minimum time between two reads of the cgroups, after an I/O of an unknown one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Paths of all cgroups by id; empty if no hierarchy is mounted.
fn cgroups() -> BTreeMap<u64, String> {
    Hierarchy::read(Path::new("/")).map(|all| all.paths()).unwrap_or_default()
}

pub fn run(args: &Trace) -> Result<()> {
    let root = Path::new("/");
    let host = Host::read(root)?;
    let devices = window::resolve_layers(&host, &args.window.devices)?;
    let named = devices.clone();
    let stream = Stream::start(Sink::open(args.output.output.as_deref())?)?;
    stop::install();
    let chosen = live::chosen(&args.submitters)?;
    let options = Options {
        events: Some(events(args)),
        event_files: args.files,
        filter: chosen.filter.clone(),
        // Devices below have their own I/Os, which are printed only if the devices are named.
        layers: true,
        only_named: true,
        ..window::options(devices, &args.window)
    };
    let mut probe = LatencyProbe::attach(&host, root, &options)?;
    let started = wall_clock::envelope();
    window::announce(&named, &args.window, &args.command);
    // The command's output would appear between the lines.
    let mut window = Window::open(live::until(&named, &args.window, &args.command, Some(&chosen)))?;
    let first = probe.start().clone();
    let mut scene = Scene::new(&host, probe.planned(), probe.request_flags(), first.at_ns);
    scene.cgroups = cgroups();
    let mut tracer = Tracer::new(&scene);
    let mut page = EventFormatter::new(args, scene);

    while !stream.failed() && !window.is_over() {
        let left = window.left(NAP);
        // While the reader of stdout is slow, events wait in the probe, then in the rings. When these are full, the
        // kernel counts the lost events.
        if page.is_full() {
            probe.tick();
            std::thread::sleep(left);
        } else {
            page.add(tracer.next(&mut probe, left)?);
            probe.set_floor(page.floor_ns());
        }
        page.offer(&stream);
    }

    if stream.failed() {
        // The reader of stdout has closed the pipe.
        return stream.finish(Vec::new());
    }
    let end = probe.detach()?;
    let status = window.status();
    probe.end_events();
    while let Some(ios) = tracer.rest(&probe)? {
        page.add(ios);
        if page.is_full() {
            stream.give(page.take());
        }
    }
    let whole = TraceTotals::read(&host, &probe, &end, started)?;
    let shown = page.finish().unwrap_or(tracer.ios());
    let traced = tracer.summary(shown, whole.emitted.matched, whole.latency.devices.clone());
    let mut bytes = page.bytes;
    if args.output.json {
        bytes.extend(render::json::view(&whole.envelope, &traced, status));
    }
    stream.finish(bytes)?;
    if !args.output.json {
        output::note(&render::text::trace::summary(&whole.envelope, &whole.latency, &traced, status));
        output::note_programs(&whole.envelope);
    }
    match whole.distrust(args.window.max_loss, FEWER) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}

/// Advice if the reader is too slow.
const FEWER: &str = "write to a file with -o, use --no-cost, or select fewer I/Os with --slower-than, \
    --every or --top";

/// The filters of events in the kernel.
fn events(args: &Trace) -> EventOptions {
    EventOptions {
        ops: op::mask(&args.ops),
        every: args.every.unwrap_or(1),
        slower_ns: args.slower_than.map_or(0, |time| time.as_nanos() as u64),
        ring_bytes: args.fault_ring_bytes,
    }
}

/// Formats events as lines.
struct EventFormatter {
    json: bool,
    /// Set if the file of each I/O is shown.
    names: Option<FileNames>,
    /// Columns of a line. A narrow terminal gets the columns of biosnoop.
    width: Option<usize>,
    scene: Scene,
    slowest: Option<Slowest>,
    looked: Instant,
    bytes: Vec<u8>,
}

impl EventFormatter {
    fn new(args: &Trace, scene: Scene) -> Self {
        let json = args.output.json;
        // biosnoop's columns have no room for a file.
        let width = output::width(&args.output).filter(|_| !args.files);
        let header = match width {
            _ if json => String::new(),
            Some(width) => render::text::trace::narrow_header(width),
            None => render::text::trace::header(args.files),
        };
        Self {
            json,
            width,
            names: args.files.then(|| FileNames::new(Path::new("/"))),
            scene,
            slowest: args.top.map(|most| Slowest::new(most as usize)),
            looked: Instant::now(),
            bytes: header.into_bytes(),
        }
    }

    fn add(&mut self, ios: Vec<TracedIo>) {
        if !self.scene.knows_cgroups(&ios) && self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            self.scene.cgroups.extend(cgroups());
        }
        self.show_or_keep(ios);
    }

    fn show_or_keep(&mut self, ios: Vec<TracedIo>) {
        if let Some(names) = &mut self.names {
            self.scene.files.extend(names.learn(openers(&ios)));
        }
        match &mut self.slowest {
            Some(slowest) => ios.into_iter().for_each(|io| slowest.add(io)),
            None => ios.iter().for_each(|io| self.show(io)),
        }
    }

    fn show(&mut self, io: &TracedIo) {
        if self.json {
            render::json::trace::io(&mut self.bytes, &self.scene, io);
        } else if let Some(width) = self.width {
            self.bytes.extend(render::text::trace::narrow_io(&self.scene, io, width).into_bytes());
        } else {
            self.bytes.extend(render::text::trace::io(&self.scene, io, self.names.is_some()).into_bytes());
        }
    }

    /// I/Os faster than this cannot be among the slowest.
    fn floor_ns(&self) -> u64 {
        self.slowest.as_ref().map_or(0, Slowest::floor_ns)
    }

    /// Whether enough lines wait to be written.
    fn is_full(&self) -> bool {
        self.bytes.len() >= MANY_BYTES
    }

    /// Returns the lines since the last call.
    fn take(&mut self) -> Vec<u8> {
        let as_much = Vec::with_capacity(self.bytes.len());
        std::mem::replace(&mut self.bytes, as_much)
    }

    /// Passes the lines to the writer, unless earlier ones are still being written.
    fn offer(&mut self, stream: &Stream) {
        if self.bytes.is_empty() {
            return;
        }
        if let Some(back) = stream.offer(self.take()) {
            self.bytes = back;
        }
    }

    /// Formats the slowest I/Os at the end. Returns their number, if only the slowest are shown.
    fn finish(&mut self) -> Option<u64> {
        let slowest: Vec<TracedIo> = self.slowest.take()?.into_sorted().collect();
        slowest.iter().for_each(|io| self.show(io));
        Some(slowest.len() as u64)
    }
}
