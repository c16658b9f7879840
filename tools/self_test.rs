//! `biopsy check --self-test`: measures a short load of its own, and checks invariants of the result.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, anyhow};
use biopsy::analyze::check::CheckSummary;
use biopsy::analyze::invariants::{self, Invariant, KernelObjects, Outcome, TestedRun};
use biopsy::analyze::latency::summarize;
use biopsy::analyze::overhead::OverheadSummary;
use biopsy::analyze::{loss, missing};
use biopsy::envelope::Envelope;
use biopsy::host::rights::Rights;
use biopsy::host::{BlockDevice, Host, select};
use biopsy::load::{self, Job, LoadSummary, Permission, PreparedJobs, Target};
use biopsy::probe::btf::KernelBtf;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::probe::loaded_objects::LoadedObjects;
use biopsy::probe::{Probe, permit, preflight};
use biopsy::refusal::{Refusal, plain, reason};
use biopsy::render;
use biopsy::session::window::{Until, Window};
use biopsy::session::{overhead, stop, wall_clock};

use crate::cli::{Check, Color};
use crate::output::{Sink, warn};
use crate::progress::ProgressLine;
use crate::{output, window};

/// Block size, or the device's logical block size if that is larger; and a queue depth that gives batches of
/// completions.
const BLOCK_BYTES: u64 = 4096;
const DEPTH: u32 = 32;

pub fn run(args: &Check, device: &str, sink: &mut Sink, color: Color) -> Result<()> {
    let root = Path::new("/");
    let host = Host::read(root)?;
    let found = select::find(&host, root, device)?;
    let disk = found.disk;
    window::note_disk(found, "the I/Os of the self-test");
    let mut names = Vec::new();
    window::add(&mut names, &select::traceable(&host, root, device)?);
    permit::permit(root)?;
    stop::install();

    let line = ProgressLine::default();
    let prepared = load::prepare(&[job(args, disk)], &Permission::default(), stop::flag(), &|_| ());
    let options = Options {
        devices: names.clone(),
        generator: prepared.is_ok(),
        drop_issue: args.fault_drop_issue,
        ..Options::default()
    };
    let mut probe = LatencyProbe::attach(&host, root, &options)?;
    let mut envelope = wall_clock::envelope();
    let held = held();
    let load = drive(args, prepared, &mut probe, &names, &line)?;
    line.clear();
    let own_stamps = load.is_ok() && probe.hears_generator();
    let start = probe.start().clone();
    let end = probe.detach()?;

    let summary = summarize(&host, &start, &end);
    envelope.duration_ns = summary.duration_ns;
    envelope.lost = loss::lost(&summary, &start, &end);
    envelope.cost = probe.cost(summary.ios_per_second());
    envelope.missing = [probe.missing().to_vec(), missing::stages(&summary)].concat();
    drop(probe);
    let left = held.and_then(|held| {
        let left = held.left().map_err(|error| reason(&error))?;
        Ok(KernelObjects { held: held.count(), left })
    });
    let no_cost = envelope.missing.iter().find(|m| m.part.as_deref() == Some("cost"));
    let tested = invariants::all(&TestedRun {
        summary: &summary,
        start: &start,
        end: &end,
        lost: &envelope.lost,
        cost: &envelope.cost,
        no_cost: no_cost.map(|m| m.why.as_str()),
        misses_counted: KernelBtf::read()?.skips_nested_runs(),
        load: load.as_ref().map_err(String::as_str),
        own_stamps,
        left: left.as_ref().copied().map_err(String::as_str),
    });
    // An error here must not hide the result of the self-test.
    let overhead = match (args.measure_cost, &load) {
        (true, Ok(_)) => measure_overhead(args, &host, disk, &names).map(Some),
        (true, Err(why)) => {
            Err(Refusal::Untrusted(format!("the cost was not measured without a load: {why}")).into())
        }
        (false, _) => Ok(None),
    };
    let bytes = if args.output.json {
        let rights = Rights::read(root);
        let abilities = preflight::abilities(&host, &rights);
        let self_test = Some(tested.clone());
        let overhead = overhead.as_ref().ok().cloned().flatten();
        render::json::view(&envelope, &CheckSummary { abilities, rights, self_test, overhead }, None)
    } else {
        let load = load.as_ref().map_err(String::as_str);
        let color = output::colored(color);
        let mut text = render::text::self_test::render(&envelope, &disk.name, load, &tested, color);
        if let Ok(Some(overhead)) = &overhead {
            text.push('\n');
            text.push_str(&render::text::overhead::render(&Envelope::default(), overhead));
        }
        output::fitted(&args.output, &text)
    };
    sink.write(&bytes)?;
    verdict(&disk.name, &tested, summary.devices.iter().any(|d| d.vanished))?;
    // The result of an interrupted run was shown.
    match overhead?.and_then(|overhead| overhead.distrust()).filter(|_| !stop::requested()) {
        Some(why) => Err(Refusal::Untrusted(why.to_string()).into()),
        None => Ok(()),
    }
}

/// Random reads of the whole device.
fn job(args: &Check, disk: &BlockDevice) -> Job {
    // The kernel replaces a slash in a name (cciss/c0d0) by an exclamation mark.
    let node = PathBuf::from("/dev").join(disk.name.replace('!', "/"));
    let mut job = Job { iodepth: DEPTH, runtime: Some(args.length), ..Job::new(Target::Existing(node)) };
    job.set_bs(BLOCK_BYTES.max(disk.logical_block_bytes.into()));
    job
}

/// The BPF objects that the probes have loaded, if the kernel can list them for the check after the test.
fn held() -> Result<LoadedObjects, String> {
    let held = LoadedObjects::by_this_process().map_err(|error| reason(&error))?;
    match held.listed() {
        Ok(listed) if listed == held.count() => Ok(held),
        Ok(_) => Err("the kernel's lists do not show what the probes hold".to_string()),
        Err(_) => Err("the kernel shows its lists of programs with CAP_SYS_ADMIN only".to_string()),
    }
}

/// Runs the load, or waits for as long if there can be none. Returns why there was none.
fn drive(
    args: &Check,
    prepared: Result<PreparedJobs>,
    probe: &mut LatencyProbe,
    names: &[String],
    line: &ProgressLine,
) -> Result<Result<LoadSummary, String>> {
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            if output::progress() {
                warn(&format!("watching the I/O of others on {} for {:?}", names.join(", "), args.length));
            }
            let mut window = Window::open(Until {
                length: Some(args.length),
                command: &[],
                quiet_stdout: true,
                named: names,
                followed: None,
                say: warn,
            })?;
            let end_at = window.end_at();
            window.wait(probe, end_at);
            return Ok(Err(plain(&format!("{why:#}"))));
        }
    };
    let generators = probe.generators()?;
    let ticking = RefCell::new(probe);
    let report = |progress| {
        line.show(progress);
        ticking.borrow_mut().tick();
    };
    let load = prepared.run_one(stop::flag(), &report, generators.as_deref().unwrap_or_default())?;
    Ok(Ok(load))
}

/// Ends the load on drop, also if the measurement panics: the scope waits for the load's thread.
struct LoadGuard<'a>(&'a AtomicBool);

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Measures what the probes cost the load of the self-test, which runs on a separate thread.
fn measure_overhead(
    args: &Check,
    host: &Host,
    disk: &BlockDevice,
    names: &[String],
) -> Result<OverheadSummary> {
    let is_over = AtomicBool::new(false);
    let length = overhead::length(overhead::LEAST_PAIRS);
    // Attaching and detaching adds time to the phases. The measurement ends the load.
    let job = Job { runtime: Some(length * 10), ..job(args, disk) };
    let mut load = load::prepare(&[job], &Permission::default(), stop::flag(), &|_| ())?;
    let options = Options { devices: names.to_vec(), cost: false, ..Options::default() };
    let mut probe = LatencyProbe::attach(host, Path::new("/"), &options)?;
    if output::progress() {
        warn(&format!("measuring what the probes cost the load, for {length:?}"));
    }
    std::thread::scope(|scope| {
        let end = LoadGuard(&is_over);
        let driver = scope.spawn(|| load.run_one(&is_over, &|_| (), &[]));
        let until =
            Until { length: None, command: &[], quiet_stdout: true, named: names, followed: None, say: warn };
        let measured =
            Window::open(until).and_then(|mut window| overhead::measure(&mut probe, &mut window, names));
        drop(end);
        let driven = driver.join().map_err(|_| anyhow!("the load's thread has panicked"))?;
        let summary = measured?;
        match driven?.untrusted() {
            Some(why) => Err(why.into()),
            None => Ok(summary),
        }
    })
}

fn verdict(name: &str, tested: &[Invariant], vanished: bool) -> Result<()> {
    let failed: Vec<&str> =
        tested.iter().filter(|one| one.state == Outcome::Fail).map(|one| &*one.name).collect();
    let why = match (vanished, failed.is_empty()) {
        (true, _) => format!("{name} vanished during its self-test: run it again on a device that stays"),
        (false, true) => return Ok(()),
        (false, false) => format!(
            "the self-test of {name} failed ({}): run it again, and if it fails again do not trust figures of \
             {name} and report it with the output of --json",
            failed.join(", ")
        ),
    };
    Err(Refusal::Untrusted(why).into())
}
