//! `biopsy load`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use biopsy::analyze::sweep::{Point, Sweep};
use biopsy::load::jobfile::{self, JobFile};
use biopsy::load::options::{self, Request};
use biopsy::load::{
    self, Extent, Job, LoadSummary, Pattern, Permission, Preconditioned, Preconditioning, ScratchFiles,
    Target,
};
use biopsy::refusal::{Refusal, plain, reason};
use biopsy::render::{json, text};
use biopsy::session::{stop, wall_clock};

use crate::cli::{Format, Load, Rw, Workload};
use crate::output::{Sink, warn};
use crate::progress::Line;

pub fn run(args: &Load) -> Result<()> {
    let began = Instant::now();
    stop::install();
    let Asked { mut request, readonly } = request(args)?;
    check(args, &request)?;
    beside_the_targets(args, &request)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    let format = if request.minimal { Format::Terse } else { args.output_format };
    // Whoever reads fio's forms counts on a submission and a completion of each I/O.
    for job in request.points.iter_mut().flatten() {
        job.submissions = format != Format::Normal;
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
    let line = Line::default();
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
    let summaries = prepared.run(stop::flag(), &report, &[])?;
    line.clear();
    envelope.duration_ns = summaries.iter().map(|summary| summary.duration_ns).max().unwrap_or(0);
    let bytes = match format {
        _ if args.output.json => json::line(json::load::object(&envelope, &summaries, before.as_ref())),
        Format::Normal => (said(&before) + &text::load::render_all(&summaries)).into_bytes(),
        Format::Terse => text::terse::render(&summaries).into_bytes(),
        Format::Json | Format::JsonPlus => {
            let (unix_ms, text) = wall_clock::local_time();
            let time = json::fio::Time { unix_ms, text, elapsed: began.elapsed() };
            json::fio::render(&summaries, &[], &time, format == Format::JsonPlus)
        }
    };
    sink.write(&bytes)?;
    untrusted(&summaries).map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// Why what was measured must not be trusted. Whoever stops a run in its ramp knows that nothing was counted.
fn untrusted(loads: &[LoadSummary]) -> Option<Refusal> {
    let uncounted = || loads.iter().find_map(LoadSummary::uncounted).filter(|_| !stop::requested());
    loads.iter().find_map(LoadSummary::untrusted).or_else(uncounted)
}

/// What is written before the load, where that was asked for.
fn precondition(
    args: &Load,
    runs: &[Vec<Job>],
    permission: &Permission,
    scratch: &mut ScratchFiles,
    line: &Line,
) -> Result<Option<Preconditioned>> {
    if !args.precondition {
        return Ok(None);
    }
    let asked = Preconditioning { round: args.precondition_round, limit: args.precondition_limit };
    line.begin("precondition");
    let done = load::precondition(runs, &asked, permission, scratch, stop::flag(), &|now| line.show(now))?;
    line.begin("");
    if let Some(why) = text::precondition::not_steady(&done) {
        warn(&format!("warning: preconditioning ended {why}; the load runs all the same"));
    }
    Ok(Some(done))
}

fn said(before: &Option<Preconditioned>) -> String {
    before.as_ref().map(text::precondition::render).unwrap_or_default()
}

/// The result does not go where the load goes, nor onto the file that describes it.
fn beside_the_targets(args: &Load, request: &Request) -> Result<()> {
    let output = args.output.output.as_deref();
    let Some(place) = output.and_then(|path| path.metadata().ok()) else { return Ok(()) };
    let is_place = |path: &&Path| {
        path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (place.dev(), place.ino()))
    };
    let targets = request.points.iter().flatten().flat_map(|job| &job.targets);
    let paths = targets.filter_map(|target| match target {
        Target::Existing(path) => Some(path.as_path()),
        Target::Scratch { .. } => None,
    });
    let target = paths.map(|path| (path, "a target of the load")).find(|(path, _)| is_place(path));
    let file = job_file(args)?.filter(is_place).map(|path| (path, "the job file"));
    match target.or(file) {
        Some((path, what)) => {
            let path = text::clean(&path.display().to_string());
            Err(Refusal::Usage(format!("{path} is {what}: write the result to another file")).into())
        }
        None => Ok(()),
    }
}

/// One point after the other; one that fails does not end the others.
fn run_sweep(args: &Load, request: &Request, permission: &Permission, sink: &mut Sink) -> Result<()> {
    let mut sweep = Sweep {
        words: request.sweeps.iter().map(|sweep| sweep.word.clone()).collect(),
        asked: request.points.len(),
        points: Vec::with_capacity(request.points.len()),
    };
    let line = Line::default();
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
        sweep.points.push(Point { values, jobs: jobs.clone(), loads, failed, cut });
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
    envelope.duration_ns = sweep.points.iter().map(Point::duration_ns).sum();
    sink.write(&match args.output.json {
        true => json::line(json::load::object_of_sweep(&envelope, &sweep, before.as_ref())),
        false => (said(&before) + &text::sweep::render(&sweep)).into_bytes(),
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

/// What is to be run, and whether nothing may be written whatever is permitted.
struct Asked {
    request: Request,
    readonly: bool,
}

/// What the command line, or the job file that it names, asks for.
fn request(args: &Load) -> Result<Asked> {
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
    Ok(Asked { request, readonly: is_on(args, "readonly") })
}

/// The job file among the arguments.
fn job_file(args: &Load) -> Result<Option<&Path>> {
    if args.jobfile.is_some() {
        return Ok(args.jobfile.as_deref());
    }
    let is_one = |path: &&PathBuf| path.extension() == Some(OsStr::new("fio")) && path.is_file();
    match (args.targets.iter().find(is_one), args.targets.len()) {
        (Some(path), 2..) => Err(Refusal::Usage(format!(
            "{} is a job file, and stands beside other targets: name one job file, or targets",
            path.display()
        ))
        .into()),
        (found, _) => Ok(found.map(PathBuf::as_path)),
    }
}

fn from_file(args: &Load, path: &Path) -> Result<Asked> {
    let name = text::clean(&path.display().to_string());
    let of_all = |word: &str| word == "readonly" || word == "minimal";
    if let Some((word, _)) = args.words.said.iter().find(|(word, _)| !of_all(word)) {
        let why = format!("--{word} is for jobs of the command line: write it into {name}");
        return Err(Refusal::Usage(why).into());
    }
    if args.scratch {
        let why = format!("--scratch does not go with the job file {name}: leave out one of them");
        return Err(Refusal::Usage(why).into());
    }
    let JobFile { jobs, warnings, minimal, readonly } = jobfile::read(&content(path, &name)?, &name)?;
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
    Ok(Asked { request, readonly })
}

/// Whether a flag was given, and its last value is yes.
fn is_on(args: &Load, name: &str) -> bool {
    args.words.said.iter().rfind(|(word, _)| word == name).is_some_and(|(_, on)| on == "1")
}

/// The text of a job file, as far as one can be long.
fn content(path: &Path, name: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::new();
    let most = jobfile::MOST_BYTES as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| Refusal::Usage(format!("cannot read the job file {name}: {}", reason(&error))))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Refusal::Usage(format!("{name}:{line}: the bytes there are no text (UTF-8): name a job file"))
    })
}

/// What cannot be done together, before anything is opened.
fn check(args: &Load, request: &Request) -> Result<()> {
    let refuse = |why: String| Err(Refusal::Usage(why).into());
    let fio = request.minimal || args.output_format != Format::Normal;
    if args.output.json && fio {
        return refuse(
            "--json is biopsy's own form: leave out it, or --output-format and --minimal".to_string(),
        );
    }
    if let Some(sweep) = request.sweeps.first().filter(|_| fio) {
        let (word, values) = (&sweep.word, sweep.values.join(", "));
        return refuse(format!(
            "--{word} has several values ({values}), for which fio's formats have no place: give one, or leave out \
             --output-format and --minimal (--json has all points)"
        ));
    }
    match request.points.iter().flatten().find_map(load::unsupported) {
        Some(why) => refuse(why),
        None => Ok(()),
    }
}

/// A scratch file in `directory`, as large as asked for or as fits well.
pub fn scratch(directory: &Path, bytes: Option<u64>) -> Result<Target> {
    let bytes = bytes.map_or_else(|| load::default_scratch_bytes(directory), Ok)?;
    Ok(Target::Scratch { directory: directory.to_path_buf(), bytes })
}

/// The job that the options of a diagnosis describe.
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
