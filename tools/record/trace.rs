//! Records individual I/Os in a Parquet table.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use biopsy::analyze::stage::Stage;
use biopsy::analyze::trace::TraceSummary;
use biopsy::analyze::trace::io::{Owner, TracedIo};
use biopsy::analyze::trace::scene::Scene;
use biopsy::clock::now_ns;
use biopsy::host::Host;
use biopsy::probe::Probe;
use biopsy::probe::events::EventOptions;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::recording::io::{Io, Parts};
use biopsy::recording::tape::Tape;
use biopsy::refusal::Refusal;
use biopsy::render::json;
use biopsy::session::io_stream::{IoReceiver, IoSender, Message, link};
use biopsy::session::record::{OpenInterval, Views};
use biopsy::session::trace::{TraceTotals, Tracer};
use biopsy::session::wall_clock;

use super::place::FolderDisk;
use super::views::{RecordOptions, SelectedDevices};
use crate::window;

/// Poll interval for the end of the recording.
const NAP: Duration = Duration::from_millis(5);

/// Advice if the reader is too slow.
const FEWER: &str = "record fewer devices with -d, or use --no-cost";

/// The channel from the latency view to this one, if both are recorded. Each takes its end.
#[derive(Default)]
pub struct Link {
    pub to: Option<IoSender>,
    pub from: Option<IoReceiver>,
}

impl Link {
    pub fn new() -> Self {
        let (to, from) = link();
        Self { to: Some(to), from: Some(from) }
    }
}

/// Adds the view. Its files are created in the folder of the recording. `from` receives the latency view's I/Os; None:
/// the view uses its own probe.
pub fn add<'scope>(
    views: &mut Views<'scope, '_, Tape>,
    tape: Tape,
    asked: &RecordOptions<'scope>,
    from: Option<IoReceiver>,
) -> Result<()> {
    let RecordOptions { args, host, named, folder, .. } = *asked;
    let (recording, total) = folder.context("each I/O is recorded in a folder")?;
    if !args.onto_traced {
        refuse_own(host, named, recording)?;
    }
    let max_loss = args.window.max_loss;
    let parts = move || Parts::create(recording, total);
    if let Some(from) = from {
        return views.add_with("trace", tape, parts, move |parts, tape, opened| {
            let _window = opened.window();
            receive(IoTable::new(parts), &from, tape, max_loss)
        });
    }
    let options = Options {
        events: Some(each()),
        layers: true,
        only_named: true,
        ..window::options(named.layers.clone(), &args.window)
    };
    let prepare = move || Ok((parts()?, LatencyProbe::prepare(host, Path::new("/"), &options)?));
    views.add_with("trace", tape, prepare, move |(parts, probe), tape, opened| {
        record(host, parts, probe, tape, opened, max_loss)
    })
}

/// Options for one event per I/O.
pub fn each() -> EventOptions {
    EventOptions { every: 1, ..EventOptions::default() }
}

/// Refuses to record to a traced disk: each write would cause I/Os that are recorded in turn.
fn refuse_own(host: &Host, named: &SelectedDevices, recording: &Path) -> Result<()> {
    let why = match FolderDisk::of(host, named, recording)? {
        FolderDisk::Untraced => return Ok(()),
        FolderDisk::Unknown => format!(
            "the disk of {} is unknown and may be traced: name another folder with -o (/dev/shm is in \
             memory), or use --onto-traced",
            recording.display()
        ),
        FolderDisk::Traced(name) => format!(
            "{} is on {name}, which is traced: name a folder on another disk with -o, other disks with -d, \
             or use --onto-traced",
            recording.display()
        ),
    };
    Err(Refusal::Usage(why).into())
}

fn record(
    host: &Host,
    parts: Parts,
    mut probe: LatencyProbe,
    tape: &mut Tape,
    opened: OpenInterval<'_>,
    max_loss: f64,
) -> Result<Option<String>> {
    let start = wall_clock::envelope();
    probe.begin()?;
    let mut window = opened.window();
    let mut table = IoTable::new(parts);
    let start_ns = probe.start().at_ns;
    let scene = Scene::new(host, probe.planned(), probe.request_flags(), start_ns);
    let mut tracer = Tracer::new(&scene);
    while !window.is_over() {
        table.put(&scene, &tracer.next(&mut probe, window.left(NAP))?)?;
    }
    let end = probe.detach()?;
    probe.end_events();
    while let Some(ios) = tracer.rest(&probe)? {
        table.put(&scene, &ios)?;
    }
    let whole = TraceTotals::read(host, &probe, &end, start)?;
    let traced = tracer.summary(tracer.ios(), whole.emitted.matched, whole.latency.devices.clone());
    table.finish(tape, &whole, &traced, max_loss)
}

/// The table of I/Os.
struct IoTable {
    parts: Parts,
    /// Difference between the time since 1970 and the clock of the stamps.
    offset: u64,
}

impl IoTable {
    fn new(parts: Parts) -> Self {
        Self { parts, offset: wall_clock::unix_ns_now().saturating_sub(now_ns()) }
    }

    fn unix(&self, ns: u64) -> i64 {
        i64::try_from(ns.saturating_add(self.offset)).unwrap_or(i64::MAX)
    }

    fn put(&mut self, scene: &Scene, ios: &[TracedIo]) -> Result<()> {
        for io in ios {
            let ended = self.unix(io.ended_ns);
            self.parts.add(&row(scene, io, ended))?;
        }
        let now = self.unix(now_ns());
        self.parts.tick(now)
    }

    /// Completes the table. Returns why it must not be trusted, if so.
    fn finish(
        mut self,
        tape: &mut Tape,
        whole: &TraceTotals,
        trace: &TraceSummary,
        max_loss: f64,
    ) -> Result<Option<String>> {
        self.parts.finish()?;
        tape.add(&json::view(&whole.envelope, trace, None), &whole.envelope, now_ns())?;
        tape.recorded.bytes += self.parts.bytes;
        Ok(whole.distrust(max_loss, FEWER))
    }
}

/// Writes the I/Os that the latency view sends.
fn receive(mut table: IoTable, from: &IoReceiver, tape: &mut Tape, max_loss: f64) -> Result<Option<String>> {
    let mut scene = Scene::default();
    while let Some(message) = from.next() {
        match message {
            Message::Begin(of_window) => scene = of_window,
            Message::Ios(ios) => {
                table.put(&scene, &ios)?;
                from.done(ios.len());
            }
            Message::End(end) => {
                let (whole, trace) = *end?;
                return table.finish(tape, &whole, &trace, max_loss);
            }
        }
    }
    // The I/Os received are kept. The latency view reports why it ended.
    table.parts.finish()?;
    bail!("it ended early together with latency, as both use one probe")
}

/// The row of an I/O that ended at `ended`, in ns since 1970.
pub fn row<'a>(scene: &'a Scene, io: &'a TracedIo, ended: i64) -> Io<'a> {
    let operation = io.operation.and_then(|operation| operation.end).filter(|end| end.last);
    let of_operation = |stage| operation.and_then(|end| end.stages?.get(stage));
    Io {
        ended,
        device: scene.name(io),
        op: io.op.map(|op| op.name()),
        flags: io.flags,
        offset: io.offset,
        bytes: io.bytes,
        queue: io.queue,
        queue_ns: io.stages.get(Stage::Queue),
        device_ns: io.stages.get(Stage::Device),
        complete_ns: io.stages.get(Stage::Complete),
        submit_ns: of_operation(Stage::Submit),
        reap_ns: of_operation(Stage::Reap),
        pid: io.owner.map(|owner| owner.pid),
        tid: io.owner.map(|owner| owner.tid),
        comm: io.owner.as_ref().map(Owner::name),
        submit_cpu: io.owner.map(|owner| owner.cpu),
        completion_cpu: io.completion_cpu,
    }
}
