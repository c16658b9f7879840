//! `biopsy record`: records several views into a folder, or keeps the last intervals in memory until they are dumped.

mod flight;
mod place;
mod trace;
mod views;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use biopsy::clock::{now_ns, process_ns};
use biopsy::envelope::{Envelope, Missing};
use biopsy::host::{Host, kernel, own};
use biopsy::recording::folder::{self, Folder};
use biopsy::recording::manifest::{self, EndReason, Manifest, RecordedView};
use biopsy::recording::redact::Redactor;
use biopsy::recording::tape::Tape;
use biopsy::refusal::{Refusal, plain, reason};
use biopsy::render::{json, text};
use biopsy::session::record::{self, Opening, Views};
use biopsy::session::window::{Until, Window, are_gone};
use biopsy::session::{heap, stop, wall_clock};
use biopsy::units;

use self::place::FolderDisk;
use self::views::{RecordOptions, SelectedDevices};
use crate::cli::{At, Record, Recordable};
use crate::{check, devices, output, window};

/// Poll interval for the command's exit and signals. Without a command it is longer, to cause fewer wake-ups.
const NAP: Duration = Duration::from_millis(20);
const LONG_NAP: Duration = Duration::from_millis(50);

pub fn run(args: &Record) -> Result<()> {
    heap::share();
    let root = Path::new("/");
    let host = Host::read(root)?;
    let named = SelectedDevices::new(&host, &args.window.devices)?;
    let redactor = args.redact.then(Arc::<Redactor>::default);
    let machine = redacted(&redactor, [devices::lines(root)?, check::line(root)?].concat())?;
    match args.keep_last {
        Some(length) => flight::run(args, length, &host, &named, &machine, &redactor),
        None => to_folder(args, &host, &named, &machine, &redactor),
    }
}

/// Redacts the lines if requested.
fn redacted(redactor: &Option<Arc<Redactor>>, lines: Vec<u8>) -> Result<Vec<u8>> {
    match redactor {
        Some(redactor) => redactor.lines(&lines),
        None => Ok(lines),
    }
}

fn to_folder(
    args: &Record,
    host: &Host,
    named: &SelectedDevices,
    machine: &[u8],
    redactor: &Option<Arc<Redactor>>,
) -> Result<()> {
    let path =
        args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.biopsy", wall_clock::stamp())));
    let mut folder = create(&path)?;
    stop::install();
    let due = due(args.at)?;
    put(&folder, folder::HOST, machine)?;
    let total = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mut views = Views::new(scope, args.window.max_loss);
        let asked =
            RecordOptions { args, host, named, trigger: None, ios: None, folder: Some((&path, &total)) };
        let tape = |view: Recordable| {
            Ok(Tape::create(folder.path(), view.name(), &total)?.redacted(redactor.clone()))
        };
        let drop = |view: Recordable| folder::discard(folder.path(), view.name());
        let missing = views::add_all(&mut views, &asked, tape, drop)?;
        let at = await_begin(args, due)?;
        let usage = Usage::begin();
        let (mut envelope, mut manifest) = begin(args, missing)?;
        write(&folder, &envelope, &manifest, None, redactor)?;
        views.begin(Opening { at, interval: args.interval, length: args.window.length });
        let is_full = || args.max_size.is_some_and(|most| total.load(Ordering::Relaxed) >= most);
        let (ended, window) = follow(args, named, &views, at, || Ok(is_full().then_some(EndReason::Size)))?;
        folder.keep();
        let end = clocks();
        manifest.ended = Some(ended);
        manifest.recorder_cpu_percent = usage.cpu_percent();
        if let Ok(FolderDisk::Traced(name)) = FolderDisk::of(host, named, folder.path()) {
            manifest.recorder_device = Some(name);
            manifest.recorder_written_bytes = usage.written_bytes();
        }
        let failed = collect(views.finish(), &mut manifest);
        // The command may keep running, but is no longer recorded.
        let status = window.status();
        envelope.duration_ns = end.monotonic_ns.saturating_sub(manifest.clocks.start.monotonic_ns);
        manifest.clocks.end = Some(end);
        manifest.views.values().for_each(|view| envelope.lost.overlay(&view.lost));
        let told = write(&folder, &envelope, &manifest, status, redactor);
        // Report first what stopped the recording: a write error may only be its consequence.
        if let Some(error) = failed {
            return Err(error);
        }
        told?;
        say(&path, &manifest, &envelope);
        match doubts(&manifest) {
            Some(why) => Err(Refusal::Untrusted(why).into()),
            None => Ok(()),
        }
    })
}

fn create(path: &Path) -> Result<Folder> {
    let refused = |error| {
        let why = format!(
            "cannot make the folder {}: {}; name a new folder, in one that exists, with -o",
            path.display(),
            reason(&error)
        );
        Refusal::Usage(why).into()
    };
    Folder::create(path).map_err(refused)
}

/// The metadata of a recording that begins now.
fn begin(args: &Record, missing: Vec<Missing>) -> Result<(Envelope, Manifest)> {
    missing.iter().for_each(|missing| output::warn(&missing.why));
    if stop::requested() {
        return Err(Refusal::Untrusted("stopped before the recording began".to_string()).into());
    }
    let manifest = Manifest {
        run_id: run_id()?,
        host: kernel::hostname(Path::new("/")),
        labels: args.labels.iter().cloned().collect(),
        arguments: std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect(),
        interval_ns: u64::try_from(args.interval.as_nanos()).unwrap_or(u64::MAX),
        views: BTreeMap::new(),
        clocks: manifest::Span { start: clocks(), end: None },
        ended: None,
        trigger: None,
        recorder_cpu_percent: None,
        recorder_device: None,
        recorder_written_bytes: None,
    };
    Ok((Envelope { missing, ..wall_clock::envelope() }, manifest))
}

/// CPU time and disk writes of the recorder.
#[derive(Clone, Copy)]
struct Usage {
    cpu_ns: u64,
    at_ns: u64,
    written_bytes: Option<u64>,
}

impl Usage {
    fn begin() -> Self {
        Self { cpu_ns: process_ns(), at_ns: now_ns(), written_bytes: own::written_bytes(Path::new("/")) }
    }

    /// Since the start; None: the kernel does not account for it.
    fn written_bytes(self) -> Option<u64> {
        Some(Self::begin().written_bytes?.saturating_sub(self.written_bytes?))
    }

    /// Percent of one CPU since the start.
    fn cpu_percent(self) -> Option<f64> {
        let now = Self::begin();
        let wall_ns = now.at_ns.checked_sub(self.at_ns).filter(|ns| *ns > 0)?;
        Some(100.0 * now.cpu_ns.saturating_sub(self.cpu_ns) as f64 / wall_ns as f64)
    }
}

/// The start time of `--at`; None: immediately.
fn due(at: Option<At>) -> Result<Option<Instant>> {
    let now = wall_clock::unix_ns_now();
    let wanted = match at {
        None => return Ok(None),
        Some(At::Multiple(length)) => {
            let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).max(1);
            now.checked_next_multiple_of(length)
        }
        Some(At::Moment(moment)) => moment.unix_ns(now),
    };
    match wanted.and_then(|wanted| wanted.checked_sub(now)) {
        Some(left) => Ok(Some(Instant::now() + Duration::from_nanos(left))),
        None => Err(Refusal::Usage("the time of --at is in the past: give a later one".to_string()).into()),
    }
}

/// Waits for the time of `--at`. Returns when the recording starts.
fn await_begin(args: &Record, due: Option<Instant>) -> Result<Instant> {
    let Some(mut due) = due else { return Ok(Instant::now()) };
    let late = Instant::now().saturating_duration_since(due);
    if let Some(At::Multiple(length)) = args.at {
        // Too late for this multiple: use the next one.
        let missed = u32::try_from(late.as_nanos().div_ceil(length.as_nanos().max(1))).unwrap_or(u32::MAX);
        due += length.saturating_mul(missed);
    } else if !late.is_zero() {
        let why = "the time of --at passed while the views were prepared: give a later one";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    while !stop::requested() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(NAP));
    }
    Ok(due)
}

/// Starts the command and waits for the end of the recording. `look` is called repeatedly, and may end it.
fn follow<'a>(
    args: &'a Record,
    named: &'a SelectedDevices,
    views: &Views<'_, '_, Tape>,
    at: Instant,
    mut look: impl FnMut() -> Result<Option<EndReason>>,
) -> Result<(EndReason, Window<'a>)> {
    window::announce(&named.layers, &args.window, &args.command);
    let until = Until {
        length: None,
        command: &args.command,
        quiet_stdout: false,
        named: &named.layers,
        followed: None,
        say: output::warn,
    };
    let mut window = Window::open(until)?;
    let end_at = args.window.length.map(|length| at + length);
    let ended = loop {
        if views.has_failed() {
            // At the end of the time, each view stops by itself.
            let is_time = end_at.is_some_and(|end| Instant::now() >= end);
            break if is_time { EndReason::Time } else { EndReason::Error };
        }
        if window.is_over() {
            break match () {
                () if stop::requested() => EndReason::Signal,
                () if are_gone(&named.layers) => EndReason::Gone,
                () => EndReason::Command,
            };
        }
        if end_at.is_some_and(|end| Instant::now() >= end) {
            break EndReason::Time;
        }
        if let Some(ended) = look()? {
            break ended;
        }
        std::thread::sleep(if args.command.is_empty() { LONG_NAP } else { NAP });
    };
    Ok((ended, window))
}

/// Stops all views and adds their results to the manifest. Returns the first error.
fn collect(all: Vec<record::ViewResult<Tape>>, manifest: &mut Manifest) -> Option<anyhow::Error> {
    let mut failed = None;
    for record::ViewResult { view, tape, doubt } in all {
        let mut recorded = tape.map_or_else(RecordedView::default, |tape| tape.recorded);
        match doubt {
            Ok(doubt) => recorded.doubt = doubt,
            Err(error) => {
                recorded.error = Some(plain(&format!("{error:#}")));
                failed.get_or_insert(error);
            }
        }
        manifest.views.insert(view.to_string(), recorded);
    }
    failed
}

fn doubts(manifest: &Manifest) -> Option<String> {
    let doubts: Vec<String> = manifest
        .views
        .iter()
        .filter_map(|(view, recorded)| Some(format!("{view}: {}", recorded.doubt.as_ref()?)))
        .collect();
    (!doubts.is_empty()).then(|| doubts.join("; "))
}

fn say(path: &Path, manifest: &Manifest, envelope: &Envelope) {
    let bytes: u64 = manifest.views.values().map(|view| view.bytes).sum();
    let views: Vec<&str> = manifest.views.keys().map(String::as_str).collect();
    // Individual I/Os are read by other tools, e.g. DuckDB.
    let readable = || views.iter().filter(|view| **view != "trace");
    let first = readable().find(|view| **view == "latency").or(readable().next());
    let how = first.map(|view| {
        let verb = if *view == folder::STACKS { "flame" } else { view };
        format!(": read it with biopsy {verb} -i {}", path.display())
    });
    let cpu = manifest.recorder_cpu_percent.map(|percent| format!(", {percent:.1} % of a CPU"));
    let own = manifest.recorder_device.as_ref().zip(manifest.recorder_written_bytes);
    let own = own.map(|(device, written)| {
        format!("; biopsy itself wrote {1} to {0}", text::clean(device), units::bytes(written as f64))
    });
    output::warn(&format!(
        "recorded {} of {} in {} ({}{}{}){}",
        text::time(envelope.duration_ns),
        views.join(", "),
        path.display(),
        units::bytes(bytes as f64),
        cpu.unwrap_or_default(),
        own.unwrap_or_default(),
        how.unwrap_or_default()
    ));
}

fn write(
    folder: &Folder,
    envelope: &Envelope,
    manifest: &Manifest,
    status: Option<i32>,
    redactor: &Option<Arc<Redactor>>,
) -> Result<()> {
    put(folder, folder::MANIFEST, &redacted(redactor, json::view(envelope, manifest, status))?)
}

fn put(folder: &Folder, name: &str, bytes: &[u8]) -> Result<()> {
    folder
        .write(name, bytes)
        .with_context(|| format!("cannot write {}: free some space", folder.path().join(name).display()))
}

fn clocks() -> manifest::Clocks {
    let both = wall_clock::both();
    manifest::Clocks {
        realtime_ns: wall_clock::unix_ns_now(),
        monotonic_ns: both.at_ns,
        boottime_ns: both.boot_ns,
    }
}

fn run_id() -> Result<String> {
    let mut random = [0; 10];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| std::io::Read::read_exact(&mut source, &mut random))
        .context("cannot read /dev/urandom")?;
    Ok(manifest::run_id(wall_clock::unix_ns_now() / 1_000_000, random))
}
