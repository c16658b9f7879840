//! Each I/O, in a table of Parquet.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Result;
use biopsy::analyze::latency::summarize;
use biopsy::analyze::stage::Stage;
use biopsy::analyze::trace::io::{Owner, TracedIo};
use biopsy::analyze::trace::scene::Scene;
use biopsy::analyze::{loss, missing, trace};
use biopsy::clock::now_ns;
use biopsy::envelope::Envelope;
use biopsy::host::{Host, select};
use biopsy::probe::Probe;
use biopsy::probe::events::EventOptions;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::recording::io::{Io, Parts};
use biopsy::recording::tape::Tape;
use biopsy::refusal::Refusal;
use biopsy::render::json;
use biopsy::session::record::{Opened, Views};
use biopsy::session::trace::Tracer;
use biopsy::session::wall_clock;

use super::views::{Asked, Named};
use crate::window;

/// How long the end of the window can go unnoticed.
const NAP: Duration = Duration::from_millis(5);

/// What helps where the reader is too slow.
const FEWER: &str = "record fewer devices with -d, or leave the cost out with --no-cost";

/// Prepares the view; its parts go into the folder of the recording.
pub fn add<'scope>(
    views: &mut Views<'scope, '_, Tape>,
    tape: Tape,
    asked: &Asked<'scope>,
    recording: &'scope Path,
    total: &'scope Arc<AtomicU64>,
) -> Result<()> {
    let Asked { args, host, named, .. } = *asked;
    if !args.onto_traced {
        refuse_own(host, named, recording)?;
    }
    let options = Options {
        events: Some(EventOptions { every: 1, ..EventOptions::default() }),
        layers: true,
        only_named: true,
        ..window::options(named.layers.clone(), &args.window)
    };
    let prepare = move || {
        let parts = Parts::create(recording, total)?;
        Ok((parts, LatencyProbe::prepare(host, Path::new("/"), &options)?))
    };
    let max_loss = args.window.max_loss;
    views.add_with("trace", tape, prepare, move |(parts, probe), tape, opened| {
        record(host, parts, probe, tape, opened, max_loss)
    })
}

/// Each part that is written would be an I/O that is recorded.
fn refuse_own(host: &Host, named: &Named, recording: &Path) -> Result<()> {
    let device = std::fs::metadata(recording)?.dev();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let Ok(device) = select::find(host, Path::new("/"), &number) else {
        // btrfs, overlayfs and ZFS hide their disks behind a number of their own.
        return match is_in_memory(recording) {
            true => Ok(()),
            false => Err(Refusal::Usage(format!(
                "which disk {} is on is not seen, and it may be one that is traced: name a folder elsewhere with -o \
                 (/dev/shm is memory), or say --onto-traced",
                recording.display()
            ))
            .into()),
        };
    };
    let below = select::stack(host, &device.disk.name, true).unwrap_or_default();
    let mut names =
        below.into_iter().map(|disk| disk.name.as_str()).chain([device.name(), &device.disk.name]);
    let is_traced = |name: &str| named.layers.is_empty() || named.layers.iter().any(|traced| traced == name);
    match names.find(|name| is_traced(name)) {
        Some(name) => Err(Refusal::Usage(format!(
            "{} is on {name}, which is traced: name a folder on another disk with -o, other disks with -d, or say \
             --onto-traced",
            recording.display()
        ))
        .into()),
        None => Ok(()),
    }
}

/// Whether a file system has no disk.
fn is_in_memory(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: zeroed is a valid statfs, and the path is a NUL-terminated string that lives across the call.
    let (failed, found) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found), found)
    };
    failed == 0 && [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found.f_type)
}

/// Of linux/magic.h.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

fn record(
    host: &Host,
    mut parts: Parts,
    mut probe: LatencyProbe,
    tape: &mut Tape,
    opened: Opened<'_>,
    max_loss: f64,
) -> Result<Option<String>> {
    let start = wall_clock::envelope();
    probe.begin()?;
    let mut window = opened.window();
    let first = probe.start().clone();
    let scene = Scene::new(host, probe.planned(), probe.request_flags(), first.at_ns);
    let mut tracer = Tracer::new(&scene);
    // From the clock of stamps to the time since 1970.
    let offset = wall_clock::unix_ns_now().saturating_sub(now_ns());
    let unix = |ns: u64| i64::try_from(ns.saturating_add(offset)).unwrap_or(i64::MAX);
    let mut put = |ios: &[TracedIo]| -> Result<()> {
        ios.iter().try_for_each(|io| parts.add(&row(&scene, io, unix(io.ended_ns))))?;
        parts.tick(unix(now_ns()))
    };
    while !window.is_over() {
        put(&tracer.next(&mut probe, window.left(NAP))?)?;
    }
    let end = probe.detach()?;
    probe.end_events();
    while let Some(ios) = tracer.rest(&probe)? {
        put(&ios)?;
    }
    parts.finish()?;
    let emitted = probe.emitted()?;
    let summary = summarize(host, &first, &end);
    let traced = tracer.summary(tracer.ios(), emitted.matched, summary.devices.clone());
    let envelope = Envelope {
        duration_ns: summary.duration_ns,
        lost: trace::lost(loss::lost(&summary, &first, &end), &emitted),
        cost: probe.cost(summary.ios_per_second()),
        missing: [probe.missing().to_vec(), missing::stages(&summary)].concat(),
        ..start
    };
    tape.add(&json::view(&envelope, &traced, None), &envelope, end.at_ns)?;
    tape.recorded.bytes += parts.bytes;
    let doubt = loss::distrust(&summary, &envelope.lost, max_loss);
    Ok(doubt.or_else(|| trace::distrust(&emitted, max_loss, FEWER)))
}

/// An I/O that ended at `ended`, ns since 1970.
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
