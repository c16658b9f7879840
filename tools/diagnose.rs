//! `biopsy diagnose`: runs a load or watches existing I/O, measures it, and prints a verdict.

mod answer;
pub mod kept;
mod pictures;
pub mod recorded;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use biopsy::analyze::loss;
use biopsy::envelope::{Missing, Reason};
use biopsy::experiment::{self, Curve};
use biopsy::host::cpu_quota::CpuQuota;
use biopsy::host::{Host, kernel, select};
use biopsy::load::{self, Job, LoadSummary, Permission, PreparedJobs, Scaling, ScratchFiles, Target};
use biopsy::probe::Probe;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::probe::permit;
use biopsy::refusal::{Refusal, plain};
use biopsy::render;
use biopsy::rules::{self, Summaries, inputs};
use biopsy::session::beside::{self, PreparedProbes, Probes};
use biopsy::session::command::Running;
use biopsy::session::diagnosis::RunContext;
use biopsy::session::rates::RateSampler;
use biopsy::session::timeline::TimelineSampler;
use biopsy::session::window::{Until, Window};
use biopsy::session::{service, stop, wall_clock};
use biopsy::units;

use self::answer::{Answer, DiagnosisResult};
use self::pictures::Pictures;
use crate::cli::{Color, Diagnose};
use crate::output::warn;
use crate::progress::ProgressLine;
use crate::{live, output, window};

/// Each run of drives alone and together takes this fraction of the runtime, and at least this time.
const SCALING_PART: u32 = 5;
const SCALING_LEAST: Duration = Duration::from_secs(1);

/// Samplers that run during the load, the command or the interval.
struct Samplers<'a> {
    rates: RateSampler,
    timeline: TimelineSampler<'a>,
}

impl Samplers<'_> {
    /// Samples. Called several times a second.
    fn tick(&mut self, probe: &LatencyProbe) {
        self.rates.tick();
        self.timeline.tick(probe);
    }
}

/// The result of the measured interval.
struct IntervalResult<'a> {
    load: Option<LoadSummary>,
    /// None: biopsy drove the load itself.
    window: Option<Window<'a>>,
}

pub fn run(args: &Diagnose, color: Color) -> Result<()> {
    if let Some(recording) = &args.input {
        return recorded::run(&recorded::DiagnosisRequest::of(args, recording), color);
    }
    if args.has_unused_load_options() {
        let why = "without TARGET, -d, -p, --comm and --cgroup only observe: name a target to drive, or \
            leave out the load options";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let root = Path::new("/");
    let mut host = Host::read(root)?;
    host.read_limits(root);
    let mut devices = window::resolve_stacks(&host, &args.window.devices)?;
    let mut disks = window::disks_of(&host, &devices, "tags, queues, interrupts and locks")?;
    let chosen = live::chosen(&args.submitters)?;
    let path = args.output.clone().or_else(|| (!args.json).then(|| report_name(args, &devices)));
    let mut answer = Answer::open(path, args.json, args.verbose, args.fail_on, color)?;
    stop::install();

    // Before a scratch file is created that would not be used.
    permit::permit(root)?;
    let own_load = args.drives();
    if own_load {
        announce(args);
    }
    let line = ProgressLine::default();
    let mut scratch = ScratchFiles::default();
    let mut prepared = own_load.then(|| prepare(args, &line, &mut scratch)).transpose()?;
    let scaling = own_load.then(|| scaling(args, &line)).transpose()?.flatten();
    line.clear();
    if let Some(prepared) = &prepared {
        let disk = prepared.device().with_context(|| {
            Refusal::Refused(format!(
                "{} is not on a block device, so there is nothing to trace: name a directory on a disk",
                prepared.target()
            ))
        })?;
        // Devices of -d are measured in addition to those of the load.
        let stack = select::stack(&host, disk, LatencyProbe::sees_bios())?;
        window::add(&mut devices, &stack);
        window::add(&mut disks, &stack);
        select::disjoint(&host, &devices)?;
    }

    let options = Options {
        generator: own_load,
        // Without a budget for biopsy's own load: each of its operations is compared with the generator's count.
        budget: (args.max_cost > 0.0 && !args.detail && !own_load).then_some(args.max_cost),
        parts: args.detail,
        processes: true,
        files: true,
        layers: true,
        only_named: true,
        filter: chosen.filter.clone(),
        command: !args.command.is_empty(),
        ..window::options(devices.clone(), &args.window)
    };
    let beside = beside::Options {
        devices: disks,
        filter: chosen.filter.clone(),
        frequency: args.freq,
        cost: !args.window.no_cost,
    };
    let mut probe = LatencyProbe::prepare(&host, root, &options)?;
    let mut others = PreparedProbes::new(&host, &beside).begin();
    let quotas = CpuQuota::read(root);
    probe.begin()?;
    let envelope = wall_clock::envelope();
    let mut samplers =
        Samplers { rates: RateSampler::new(probe.devices()), timeline: TimelineSampler::new(&host) };
    let outcome = measure(
        prepared.as_mut(),
        &mut probe,
        &mut others,
        &mut samplers,
        Until {
            quiet_stdout: args.json,
            ..live::until(&devices, &args.window, &args.command, Some(&chosen))
        },
        &line,
    )?;
    let quotas = CpuQuota::between(&quotas, CpuQuota::read(root));
    let rates = samplers.rates.end();
    let mut others = others.end();
    let end = probe.detach();
    others.detach();
    let tried = outcome.load.as_ref().filter(|_| !args.no_experiment && !stop::requested());
    let tried = tried.map(|load| other_depths(load, &mut scratch, &line));
    // Not earlier: deleting a scratch file is I/O as well.
    drop((prepared, scratch));
    line.clear();
    let end = end?;
    let timeline = samplers.timeline.end(probe.start(), &end);
    // After the measurement: the command may keep running.
    let command_status = outcome.window.and_then(Window::status);

    let of_command = !args.command.is_empty();
    let run = RunContext { host: &host, devices: &devices, command: of_command, load: outcome.load.as_ref() };
    let (mut envelope, latency) = run.summarize(&probe, &end, envelope);
    let experiment = tried.transpose().unwrap_or_else(|error| {
        envelope.missing.push(Missing {
            part: Some("experiment".to_string()),
            reason: Reason::Refused,
            why: plain(&format!("{error:#}")),
            ..Missing::default()
        });
        None
    });
    drop(probe);
    let seen = others.summarize(&host, &latency, &mut envelope);
    let locks = seen.pressure.locks.as_ref().map(|locks| inputs::Locks::of(locks, host.cpus_online));
    let pagecache = seen.pressure.pagecache.as_ref().map(inputs::PageCache::from);
    let threads = seen.threads.as_ref().map(inputs::ThreadsInput::from);

    let summaries = Summaries {
        envelope: &envelope,
        host: &host,
        latency: &latency,
        command: of_command,
        rates: &rates,
        interrupts: seen.interrupts.as_ref(),
        load: outcome.load.as_ref(),
        scaling: scaling.as_ref(),
        experiment: experiment.as_ref(),
        cpu: Some(&seen.cpu),
        quotas: &quotas,
        profile: seen.profile.as_ref(),
        locks: locks.as_ref(),
        pagecache: pagecache.as_ref(),
        threads: threads.as_ref(),
    };
    let diagnosis = rules::diagnose(&summaries);
    let doubt = loss::distrust(&latency, &envelope.lost, args.window.max_loss);
    let place = kernel::hostname(root).unwrap_or_default();
    let mut pictures = Pictures::new(&place, &envelope);
    if answer.wants_page() {
        seen.profile.iter().for_each(|profile| pictures.profile(profile));
        seen.threads.iter().for_each(|threads| pictures.threads(threads));
        seen.pressure.locks.iter().for_each(|locks| pictures.locks(locks));
    }
    let found = DiagnosisResult {
        summaries,
        diagnosis: &diagnosis,
        doubt: doubt.as_deref(),
        command_status,
        interrupts: seen.interrupts.as_ref(),
        pressure: &seen.pressure,
        threads: seen.threads.as_ref(),
        timeline: &timeline,
        flames: &pictures.all,
    };
    answer.write(&found)?;
    if let Some(refusal) = outcome.load.as_ref().and_then(LoadSummary::untrusted) {
        return Err(refusal.into());
    }
    answer.exit(&found)
}

/// A new file name such as `biopsy-vda-20261125-221207.html`. Only a report with a name given by the user is
/// overwritten.
fn report_name(args: &Diagnose, devices: &[String]) -> PathBuf {
    let target = || select::disk_of_path(args.target.as_deref().unwrap_or(Path::new(".")));
    let what = match (args.drives(), devices) {
        (true, _) => target().unwrap_or_else(|| "load".to_string()),
        (false, [device]) => device.clone(),
        (false, []) => "all".to_string(),
        (false, many) => format!("{}-devices", many.len()),
    };
    // Some drivers use `!` in their disks' names, others `/`.
    let what = what.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let stem = format!("biopsy-{what}-{}", wall_clock::stamp());
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.html"),
        _ => format!("{stem}-{number}.html"),
    });
    names
        .map(PathBuf::from)
        .find(|path| !path.exists())
        .unwrap_or_else(|| PathBuf::from(format!("{stem}.html")))
}

/// Opens the target or creates the scratch file, before anything is attached.
fn prepare(args: &Diagnose, line: &ProgressLine, scratch: &mut ScratchFiles) -> Result<PreparedJobs> {
    let target = args.target.clone().unwrap_or_else(|| PathBuf::from("."));
    let target = match std::fs::metadata(&target) {
        Ok(found) if found.is_dir() => crate::load::scratch(&target, args.workload.size)?,
        // A directory needs no --scratch here, unlike in `biopsy load`.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = target.display();
            let why = format!("{what} does not exist: name a directory on a disk, a block device or a file");
            return Err(Refusal::Refused(why).into());
        }
        _ => Target::Existing(target),
    };
    let job = crate::load::job(target, &args.workload);
    let report = |progress| line.show(progress);
    let mut prepared = load::prepare_again(&[job], &Permission::default(), scratch, stop::flag(), &report)?;
    prepared.sample(stop::flag());
    prepared.watch_health();
    Ok(prepared)
}

/// Prints what the load will do, if stderr is a terminal.
fn announce(args: &Diagnose) {
    if output::progress() {
        let load = &args.workload;
        let target = args.target.as_deref().unwrap_or(Path::new("."));
        let kind = if target.is_dir() { "a scratch file in " } else { "" };
        warn(&format!(
            "driving {kind}{}: {} of {}, depth {}, for {:?}",
            render::text::clean(&target.to_string_lossy()),
            crate::load::job(Target::Existing(PathBuf::new()), load).rw.name(),
            units::bytes(load.bs as f64),
            load.iodepth * load.numjobs,
            load.runtime
        ));
    }
}

/// Runs the load again at half, the same and twice its depth; with one more job if its threads are limited by their
/// CPUs.
fn other_depths(load: &LoadSummary, scratch: &mut ScratchFiles, line: &ProgressLine) -> Result<Curve> {
    line.begin("other depths");
    let more_jobs = load.own_limit().is_some();
    experiment::of_depth(load, more_jobs, scratch, stop::flag(), &|progress| line.show(progress))
}

/// Runs TARGET and the devices of --beside, each alone and then all at once.
fn scaling(args: &Diagnose, line: &ProgressLine) -> Result<Option<Scaling>> {
    let Some(target) = args.target.as_ref().filter(|_| !args.beside.is_empty()) else { return Ok(None) };
    if target.is_dir() {
        let why = format!(
            "--beside compares drives, and {} is a directory: name a device or a file",
            target.display()
        );
        return Err(Refusal::Usage(why).into());
    }
    let all = || std::iter::once(target).chain(&args.beside);
    let mut drives: Vec<(String, &PathBuf)> = Vec::new();
    for target in all() {
        // A file on no disk is refused later, with its job.
        let Some(disk) = select::disk_of_path(target) else { continue };
        if let Some((_, other)) = drives.iter().find(|(known, _)| *known == disk) {
            let why = format!(
                "{} and {} are the same drive, {disk}: name different drives with --beside",
                render::text::clean(&other.to_string_lossy()),
                render::text::clean(&target.to_string_lossy())
            );
            return Err(Refusal::Usage(why).into());
        }
        drives.push((disk, target));
    }
    let jobs: Vec<Job> =
        all().map(|target| crate::load::job(Target::Existing(target.clone()), &args.workload)).collect();
    let each = (args.workload.runtime / SCALING_PART).max(SCALING_LEAST);
    load::measure_scaling(&jobs, each, stop::flag(), &|progress| line.show(progress)).map(Some)
}

/// Runs the load, the command or the interval. The load runs within the measured interval.
fn measure<'a>(
    prepared: Option<&mut PreparedJobs>,
    probe: &mut LatencyProbe,
    others: &mut Probes,
    samplers: &mut Samplers<'_>,
    until: Until<'a>,
    line: &ProgressLine,
) -> Result<IntervalResult<'a>> {
    if let Some(prepared) = prepared {
        // The generator reports its progress several times a second. The cost slices advance on each report.
        let generators = probe.generators()?;
        service::ready();
        let ticking = RefCell::new((probe, others, samplers));
        let report = |progress| {
            line.show(progress);
            let (probe, others, samplers) = &mut *ticking.borrow_mut();
            probe.tick();
            samplers.tick(probe);
            others.tick();
        };
        let load = prepared.run_one(stop::flag(), &report, generators.as_deref().unwrap_or_default())?;
        return Ok(IntervalResult { load: Some(load), window: None });
    }
    if output::progress() && until.command.is_empty() {
        warn(&format!("observing the running I/O {}", window::how_long(until.length, &[])));
    }
    let mut window = Window::open_with(until, |until| {
        probe.start_command(|| Running::start(until.command, until.quiet_stdout))
    })?;
    while !window.is_over() {
        probe.tick();
        samplers.tick(probe);
        others.tick();
        std::thread::sleep(window.left(probe.nap()));
    }
    Ok(IntervalResult { load: None, window: Some(window) })
}
