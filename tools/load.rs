//! `biopsy load`: the load generator.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::analyze::sweep::{Sweep, SweepPoint};
use biopsy::host::counters::Counters;
use biopsy::host::kernel;
use biopsy::load::jobfile::{self, JobFile};
use biopsy::load::options::{self, Request};
use biopsy::load::{
    self, Extent, Job, LoadSummary, Pattern, Permission, PreconditionResult, Preconditioning, ScratchFiles,
    Target,
};
use biopsy::refusal::{Refusal, plain};
use biopsy::render::{json, text};
use biopsy::session::{stop, wall_clock};

use crate::cli::{FioFormat, Load, Rw, Workload};
use crate::output::{self, Sink, warn};
use crate::progress::ProgressLine;

pub fn run(args: &Load) -> Result<()> {
    let began = Instant::now();
    stop::install();
    let LoadRequest { mut request, readonly } = request(args)?;
    check(args, &request)?;
    beside_the_targets(args, &request)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    let format = if request.minimal { FioFormat::Terse } else { args.output_format };
    // Readers of fio's formats expect submission and completion latencies.
    for job in request.points.iter_mut().flatten() {
        job.submissions = format != FioFormat::Normal;
    }
    let permission = Permission {
        write: args.write,
        readonly,
        destroy_data_on: args.destroy_data_on.clone(),
        overwrite: args.words.overwrite.clone(),
    };
    if !request.sweeps.is_empty() {
        return run_sweep(args, &request, &permission, &mut sink);
    }
    let jobs: Vec<Job> = request.points.into_iter().flatten().collect();
    let logs = text::fio_log::paths(&jobs);
    let mut logs = logs.iter().map(|path| Sink::open(Some(path))).collect::<Result<Vec<_>>>()?;
    let line = ProgressLine::default();
    let report = |progress| line.show(progress);
    let mut scratch = ScratchFiles::default();
    let before = precondition(args, std::slice::from_ref(&jobs), &permission, &mut scratch, &line)?;
    let mut prepared = load::prepare_again(&jobs, &permission, &mut scratch, stop::flag(), &report)?;
    if !args.no_drive_check {
        prepared.sample(stop::flag());
        prepared.watch_health();
        for (target, sampled) in prepared.samples() {
            if let Some(why) = text::drive::warning(&target, sampled) {
                line.clear();
                warn(&format!("warning: {why}"));
            }
        }
    }
    let mut envelope = wall_clock::envelope();
    let disks = disks(&jobs, prepared.devices());
    let started = Instant::now();
    let summaries = prepared.run(stop::flag(), &report, &[])?;
    line.clear();
    for (log, text) in logs.iter_mut().zip(text::fio_log::render(&summaries)) {
        log.write(text.as_bytes())?;
    }
    envelope.duration_ns = summaries.iter().map(|summary| summary.duration_ns).max().unwrap_or(0);
    let bytes = match format {
        _ if args.output.json => {
            json::line(json::load::object(&envelope, &summaries, before.as_ref(), hostname()))
        }
        FioFormat::Normal => {
            let width = output::width(&args.output);
            (text::fit(&said(&before), width) + &text::load::render_all(&summaries, width)).into_bytes()
        }
        FioFormat::Terse => text::terse::render(&summaries).into_bytes(),
        FioFormat::Json | FioFormat::JsonPlus => {
            let (unix_ms, text) = wall_clock::local_time();
            let time = json::fio::Time { unix_ms, text, elapsed: began.elapsed() };
            let disks = used(disks, started.elapsed());
            json::fio::render(&summaries, &[], &disks, &time, format == FioFormat::JsonPlus)
        }
    };
    sink.write(&bytes)?;
    untrusted(&summaries).map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// The name of this machine.
pub fn hostname() -> Option<String> {
    kernel::hostname(Path::new("/"))
}

/// The current counters of the disks, if a job's result includes them.
fn disks(jobs: &[Job], names: Vec<String>) -> Vec<(String, Counters)> {
    if !jobs.iter().any(|job| job.disk_util) {
        return Vec::new();
    }
    let counters = |name: String| Some((Counters::read_counts(Path::new("/"), &name).ok()?, name));
    names.into_iter().filter_map(counters).map(|(counters, name)| (name, counters)).collect()
}

/// The difference to the current counters.
fn used(before: Vec<(String, Counters)>, duration: Duration) -> Vec<json::fio::Disk> {
    let one = |(name, before): (String, Counters)| {
        let after = Counters::read_counts(Path::new("/"), &name).ok()?;
        Some(json::fio::Disk { name, before, after, duration })
    };
    before.into_iter().filter_map(one).collect()
}

/// Why the result must not be trusted. If the user interrupted the ramp, nothing was counted, which is not an error.
fn untrusted(loads: &[LoadSummary]) -> Option<Refusal> {
    let uncounted = || loads.iter().find_map(LoadSummary::uncounted).filter(|_| !stop::requested());
    loads.iter().find_map(LoadSummary::untrusted).or_else(uncounted)
}

/// Preconditions the targets if requested.
fn precondition(
    args: &Load,
    runs: &[Vec<Job>],
    permission: &Permission,
    scratch: &mut ScratchFiles,
    line: &ProgressLine,
) -> Result<Option<PreconditionResult>> {
    if !args.precondition {
        return Ok(None);
    }
    let asked = Preconditioning { round: args.precondition_round, limit: args.precondition_limit };
    line.begin("precondition");
    let done = load::precondition(runs, &asked, permission, scratch, stop::flag(), &|now| line.show(now))?;
    line.begin("");
    if let Some(why) = text::precondition::not_steady(&done) {
        warn(&format!("warning: preconditioning ended {why}; the load runs anyway"));
    }
    Ok(Some(done))
}

fn said(before: &Option<PreconditionResult>) -> String {
    before.as_ref().map(text::precondition::render).unwrap_or_default()
}

/// Refuses an output file that is a target of the load or its job file.
fn beside_the_targets(args: &Load, request: &Request) -> Result<()> {
    let logs = text::fio_log::paths(request.points.iter().flatten());
    for output in args.output.output.iter().chain(&logs) {
        beside_one(args, request, output)?;
    }
    Ok(())
}

fn beside_one(args: &Load, request: &Request, output: &Path) -> Result<()> {
    let targets = request.points.iter().flatten().flat_map(|job| &job.targets);
    let paths = targets.filter_map(|target| match target {
        Target::Existing(path) => Some(path.as_path()),
        Target::Scratch { .. } => None,
    });
    let mut others: Vec<(&Path, &str)> = paths.map(|path| (path, "a target of the load")).collect();
    others.extend(job_file(args)?.map(|path| (path, "the job file")));
    beside(output, &others)
}

/// Refuses an output file that is one of these. Each has a description for the error.
pub fn beside(output: &Path, others: &[(&Path, &str)]) -> Result<()> {
    let Some(place) = output.metadata().ok() else { return Ok(()) };
    let is_place = |path: &Path| {
        path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (place.dev(), place.ino()))
    };
    match others.iter().find(|(path, _)| is_place(path)) {
        Some((path, what)) => {
            let path = text::clean(&path.display().to_string());
            Err(Refusal::Usage(format!("{path} is {what}: write the result to another file")).into())
        }
        None => Ok(()),
    }
}

/// Runs the points one after the other. A failed point does not stop the others.
fn run_sweep(args: &Load, request: &Request, permission: &Permission, sink: &mut Sink) -> Result<()> {
    let mut sweep = Sweep {
        words: request.sweeps.iter().map(|sweep| sweep.word.clone()).collect(),
        asked: request.points.len(),
        points: Vec::with_capacity(request.points.len()),
    };
    let line = ProgressLine::default();
    let report = |progress| line.show(progress);
    let mut scratch = ScratchFiles::default();
    let before = precondition(args, &request.points, permission, &mut scratch, &line)?;
    let mut envelope = wall_clock::envelope();
    let mut first_refusal = None;
    for (at, jobs) in request.points.iter().enumerate() {
        line.begin(&format!("point {} of {}", at + 1, sweep.asked));
        let done = load::prepare_again(jobs, permission, &mut scratch, stop::flag(), &report).and_then(
            |mut prepared| {
                if !args.no_drive_check {
                    prepared.sample(stop::flag());
                    prepared.watch_health();
                }
                prepared.run(stop::flag(), &report, &[])
            },
        );
        let cut = stop::requested();
        let (loads, failed) = match done {
            Ok(loads) => {
                let untrusted = untrusted(&loads);
                (loads, untrusted.map(|why| why.to_string()))
            }
            Err(error) => {
                let why = plain(&format!("{error:#}"));
                first_refusal.get_or_insert(error);
                if cut {
                    break;
                }
                (Vec::new(), Some(why))
            }
        };
        let values = request.values(at).into_iter().map(str::to_string).collect();
        sweep.points.push(SweepPoint { values, jobs: jobs.clone(), loads, failed, cut });
        if cut {
            break;
        }
    }
    line.clear();
    let mut loads = sweep.points.iter().flat_map(|point| &point.loads);
    if let Some(why) = loads.find_map(text::drive::warning_of) {
        warn(&format!("warning: {why}"));
    }
    if let Some(error) = first_refusal
        && sweep.points.iter().all(|point| point.loads.is_empty())
    {
        return Err(error);
    }
    envelope.duration_ns = sweep.points.iter().map(SweepPoint::duration_ns).sum();
    sink.write(&match args.output.json {
        true => json::line(json::load::object_of_sweep(&envelope, &sweep, before.as_ref(), hostname())),
        false => output::fitted(&args.output, &(said(&before) + &text::sweep::render(&sweep))),
    })?;
    let failed = sweep.failed().count();
    match sweep.failed().next() {
        Some((point, why)) => Err(Refusal::Untrusted(format!(
            "{failed} of {} points failed, the first with {}: {why}",
            sweep.points.len(),
            sweep.said(point)
        ))
        .into()),
        None => Ok(()),
    }
}

/// The request, and whether --readonly forbids writes in any case.
struct LoadRequest {
    request: Request,
    readonly: bool,
}

/// The request on the command line or in its job file.
fn request(args: &Load) -> Result<LoadRequest> {
    if let Some(path) = job_file(args)? {
        return from_file(args, path);
    }
    let targets = args
        .targets
        .iter()
        .map(|path| match args.scratch {
            true => scratch(path, options::scratch_bytes(&args.words.said)?),
            false => Ok(Target::Existing(path.clone())),
        })
        .collect::<Result<Vec<_>>>()?;
    let request = options::read(&args.words.said, &targets)?;
    Ok(LoadRequest { request, readonly: is_on(args, "readonly") })
}

/// The job file among the arguments.
fn job_file(args: &Load) -> Result<Option<&Path>> {
    if args.jobfile.is_some() {
        return Ok(args.jobfile.as_deref());
    }
    let is_one = |path: &&PathBuf| path.extension() == Some(OsStr::new("fio")) && path.is_file();
    match (args.targets.iter().find(is_one), args.targets.len()) {
        (Some(path), 2..) => Err(Refusal::Usage(format!(
            "{} is a job file among other targets: name one job file, or targets",
            path.display()
        ))
        .into()),
        (found, _) => Ok(found.map(PathBuf::as_path)),
    }
}

fn from_file(args: &Load, path: &Path) -> Result<LoadRequest> {
    let name = text::clean(&path.display().to_string());
    let of_all = |word: &str| word == "readonly" || word == "minimal";
    let words: Vec<_> = args.words.said.iter().filter(|(word, _)| !of_all(word)).cloned().collect();
    if args.scratch {
        let why = format!("--scratch does not go with the job file {name}: leave out one of them");
        return Err(Refusal::Usage(why).into());
    }
    let JobFile { jobs, warnings, minimal, readonly } =
        jobfile::read_behind(&words, &jobfile::content(path, &name)?, &name)?;
    for warning in warnings {
        warn(&format!("warning: {warning}"));
    }
    if let Some(job) = jobs.iter().find(|job| is_on(args, "readonly") && job.rw.writes()) {
        let why = format!("job {} of {name} writes, and --readonly forbids it", text::clean(&job.name));
        return Err(Refusal::Usage(why).into());
    }
    let readonly = readonly || is_on(args, "readonly");
    let request =
        Request { sweeps: Vec::new(), points: vec![jobs], minimal: minimal || is_on(args, "minimal") };
    Ok(LoadRequest { request, readonly })
}

/// Whether a flag was given, and is on in its last occurrence.
fn is_on(args: &Load, name: &str) -> bool {
    args.words.said.iter().rfind(|(word, _)| word == name).is_some_and(|(_, on)| on == "1")
}

/// Refuses invalid combinations before anything is opened.
fn check(args: &Load, request: &Request) -> Result<()> {
    let refuse = |why: String| Err(Refusal::Usage(why).into());
    let fio = request.minimal || args.output_format != FioFormat::Normal;
    if args.output.json && fio {
        return refuse(
            "--json is biopsy's own format: leave it out, or leave out --output-format and --minimal"
                .to_string(),
        );
    }
    if let Some(sweep) = request.sweeps.first().filter(|_| fio) {
        let (word, values) = (&sweep.word, sweep.values.join(", "));
        return refuse(format!(
            "--{word} has several values ({values}), but fio's formats can show only one: give one, or \
             leave out --output-format and --minimal (--json has all points)"
        ));
    }
    if let Some(sweep) = request.sweeps.first()
        && !text::fio_log::paths(request.points.iter().flatten()).is_empty()
    {
        return refuse(format!(
            "--{} has several values, but fio's logs can hold only one run: give one, or leave out the logs",
            sweep.word
        ));
    }
    match request.points.iter().flatten().find_map(load::unsupported) {
        Some(why) => refuse(why),
        None => Ok(()),
    }
}

/// A scratch file in `directory`, of the given or default size.
pub fn scratch(directory: &Path, bytes: Option<u64>) -> Result<Target> {
    let bytes = bytes.map_or_else(|| load::default_scratch_bytes(directory), Ok)?;
    Ok(Target::Scratch { directory: directory.to_path_buf(), bytes })
}

/// The jobs of a comparison, one per arm. The options of the arm are appended to those of the command line.
pub fn arms(args: &Load, arms: &[Vec<(String, String)>]) -> Result<(Vec<Job>, Permission)> {
    let refuse = |why: &str| Err(Refusal::Usage(why.to_string()).into());
    if args.output.json || args.output.output.is_some() || args.output_format != FioFormat::Normal {
        return refuse("--json and -o belong to compare: give them before --");
    }
    if args.precondition {
        return refuse("compare does not precondition: run biopsy load --precondition before it");
    }
    if job_file(args)?.is_some() {
        return refuse("compare runs one job without a job file: write its options after load");
    }
    let mut jobs = Vec::with_capacity(arms.len());
    let mut readonly = false;
    for words in arms {
        let mut args = args.clone();
        args.words.said.extend(words.iter().cloned());
        let LoadRequest { request, readonly: is_readonly } = request(&args)?;
        check(&args, &request)?;
        readonly |= is_readonly;
        match <[Vec<Job>; 1]>::try_from(request.points).map(|[point]| <[Job; 1]>::try_from(point)) {
            Ok(Ok([job])) => jobs.push(job),
            Err(_) => return refuse("a load option has several values: vary it with --vary"),
            Ok(Err(_)) => return refuse("compare runs one job: name one target"),
        }
    }
    let permission = Permission {
        write: args.write,
        readonly,
        destroy_data_on: args.destroy_data_on.clone(),
        overwrite: args.words.overwrite.clone(),
    };
    Ok((jobs, permission))
}

/// The job for the load options of a diagnosis.
pub fn job(target: Target, workload: &Workload) -> Job {
    let mut job = Job {
        rw: match workload.rw {
            Rw::Read => Pattern::Read,
            Rw::Randread => Pattern::RandRead,
        },
        iodepth: workload.iodepth,
        numjobs: workload.numjobs,
        runtime: Some(workload.runtime),
        size: workload.size.map(Extent::Bytes),
        seed: workload.seed,
        hipri: workload.hipri,
        ..Job::new(target)
    };
    job.set_bs(workload.bs);
    job
}
