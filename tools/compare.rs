//! `biopsy compare`: runs rounds with each value of a setting and compares them.

mod before;
mod kept;
mod report;
mod setup;
mod stacks;
mod stages;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use biopsy::envelope::Envelope;
use biopsy::experiment::compare::{
    self, Arm, CommandDriver, Comparison, LoadDriver, MetricKind, Observer, Options, PrintedMetric,
    RoundProgress, SampleSource,
};
use biopsy::host::{Host, select};
use biopsy::load::options;
use biopsy::load::{Job, LoadSummary, Permission, Phase, Progress, ScratchFiles, Target};
use biopsy::refusal::Refusal;
use biopsy::render::{html, json, text};
use biopsy::session::{stop, wall_clock};
use biopsy::settings::{Keeper, Key, Lock, Problem, SavedSettings, restore_left, watcher};

use self::stacks::StackSampler;
use self::stages::StageProbe;
use crate::cli::{self, Compare, Load, Verb};
use crate::load;
use crate::output::{Sink, note, warn};
use crate::progress::ProgressLine;
use crate::words;

/// Length of a round of a load without --runtime.
const ROUND: Duration = Duration::from_secs(1);

/// Maximum number of rounds of each arm: with rounds of the default length they take about a minute.
const MOST_ROUNDS: usize = 24;

/// What each round runs.
enum Work {
    Load { jobs: Vec<Job>, permission: Permission, round: Duration },
    Command,
}

impl Work {
    /// The job of each arm; empty for a command.
    fn jobs(&self) -> &[Job] {
        match self {
            Self::Load { jobs, .. } => jobs,
            Self::Command => &[],
        }
    }

    /// The files and devices of the load.
    fn targets(&self) -> impl Iterator<Item = &Path> {
        self.jobs().iter().flat_map(|job| &job.targets).filter_map(|target| match target {
            Target::Existing(path) => Some(path.as_path()),
            Target::Scratch { .. } => None,
        })
    }
}

/// Refuses an output file that is a target of the load or a file to compare.
fn beside(args: &Compare, others: &[(&Path, &str)]) -> Result<()> {
    let outputs = args.output.output.iter().chain(&args.html);
    outputs.into_iter().try_for_each(|output| load::beside(output, others))
}

/// A comparison that is ready to run. Nothing was changed yet.
struct PreparedComparison {
    arms: Vec<Arm>,
    /// The varied kernel settings, each with the values of all arms.
    keys: Vec<(Key, Vec<String>)>,
    work: Work,
    disk: Option<String>,
    primary: MetricKind,
    printed: Option<PrintedMetric>,
    target: String,
    notes: Vec<String>,
}

pub fn run(args: &Compare) -> Result<()> {
    if args.restore {
        return restore();
    }
    if let [a, b] = args.files.as_slice() {
        return kept::run(args, a, b);
    }
    if let Some(path) = &args.from_report {
        beside(args, &[(path, "the report")])?;
        return run(&report::options(args, path)?);
    }
    let prepared = prepare(args)?;
    if args.dry_run {
        return dry_run(&prepared);
    }
    let targets = prepared.work.targets().map(|path| (path, "a target of the load"));
    beside(
        args,
        &targets.chain(args.before.as_deref().map(|path| (path, "the saved result"))).collect::<Vec<_>>(),
    )?;
    let kept = args.before.as_deref().map(kept::read).transpose()?;
    if let Some(kept) = &kept {
        before::check(kept, prepared.primary)?;
    }
    let mut sinks = Sinks::open(args)?;
    stop::install();
    report_left(restore_left());
    // Without varied settings, the lock is held until this function returns.
    let mut lock = lock(&prepared)?;
    let sysctls = prepared.disk.is_some() && prepared.keys.iter().any(|(key, _)| !key.needs_disk());
    let _sysctls = sysctls.then(|| Lock::take("sysctl")).transpose()?;
    let mut keeper = match lock.take_if(|_| !prepared.keys.is_empty()) {
        Some(lock) => {
            let saved = SavedSettings::read(Path::new("/"), prepared.disk.as_deref(), &prepared.keys)?;
            Some(Keeper::begin(saved, lock)?)
        }
        None => None,
    };
    if let Some(keeper) = &mut keeper {
        try_all(keeper, &prepared.arms)?;
    }
    let mut envelope = wall_clock::envelope();
    let began = std::time::Instant::now();
    let mut comparison = Comparison {
        target: prepared.target.clone(),
        device: prepared.disk.clone(),
        arms: prepared.arms.clone(),
        primary: Some(prepared.primary),
        value: prepared.printed.as_ref().map(|printed| printed.path.clone()),
        notes: prepared.notes.clone(),
        ..Comparison::default()
    };
    let done = rounds(args, &prepared, keeper.as_mut(), kept.as_ref(), &mut envelope, &mut comparison);
    envelope.duration_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    // Restore before printing anything: printing may block.
    let problems = keeper.map(Keeper::restore).unwrap_or_default();
    problems.iter().for_each(|problem| warn(&format!("warning: {problem}")));
    comparison.notes.extend(problems.iter().map(ToString::to_string));
    let pictures = done?;
    let are_left_out = are_left_out(&comparison);
    if let Some(kept) = &kept {
        comparison = before::against(kept, comparison, kept.are_interpolated, args.margin);
    }
    sinks.write(args, &envelope, &comparison, &pictures)?;
    if problems.iter().any(|problem| matches!(problem, Problem::Failed { .. })) {
        let why = "a setting was not restored: run biopsy compare --restore";
        return Err(Refusal::Untrusted(why.to_string()).into());
    }
    if are_left_out {
        let why = "nothing was compared: other processes used the disk in every block; run it again when \
            the disk is idle";
        return Err(Refusal::Refused(why.to_string()).into());
    }
    exit(args, &comparison)
}

/// Whether other processes used the disk in every block that was run.
fn are_left_out(comparison: &Comparison) -> bool {
    comparison.whole_blocks().is_empty() && comparison.rounds.iter().any(|round| round.left_out.is_some())
}

/// The destinations of the result.
struct Sinks {
    result: Sink,
    page: Option<Sink>,
}

impl Sinks {
    fn open(args: &Compare) -> Result<Self> {
        let result = Sink::open(args.output.output.as_deref())?;
        let page = args.html.as_deref().map(|path| Sink::open(Some(path))).transpose()?;
        Ok(Self { result, page })
    }

    fn write(
        &mut self,
        args: &Compare,
        envelope: &Envelope,
        comparison: &Comparison,
        pictures: &[(String, String)],
    ) -> Result<()> {
        if let Some(page) = &mut self.page {
            let flames: Vec<(&str, String)> =
                pictures.iter().map(|(name, svg)| (name.as_str(), svg.clone())).collect();
            page.write_apart(html::compare::render(envelope, comparison, &flames).as_bytes())?;
        }
        self.result.write(&match args.output.json {
            true => json::view(envelope, comparison, None),
            false => {
                text::compare::render(envelope, comparison, crate::output::width(&args.output)).into_bytes()
            }
        })
    }
}

/// The exit code of `--fail-if-worse`.
fn exit(args: &Compare, comparison: &Comparison) -> Result<()> {
    match comparison.worse().filter(|_| args.fail_if_worse) {
        Some(metric) => Err(Refusal::Worse(text::compare::of_metric(comparison, metric)).into()),
        None => Ok(()),
    }
}

/// The hidden verb of the process that restores settings.
pub fn watch(values: &Path) -> Result<()> {
    if let Some((name, problems)) = watcher::serve(values)? {
        report_left(Ok(vec![(name, problems)]));
    }
    Ok(())
}

/// `--restore`.
fn restore() -> Result<()> {
    if !is_root() {
        return Err(Refusal::Refused("settings are restored as root: use sudo".to_string()).into());
    }
    let left = restore_left()?;
    if left.is_empty() {
        note("nothing to restore: no earlier comparison left a changed setting\n");
    }
    let failed =
        left.iter().flat_map(|(_, problems)| problems).any(|one| matches!(one, Problem::Failed { .. }));
    report_left(Ok(left));
    match failed {
        true => Err(Refusal::Refused(
            "a setting was not restored: set it by hand, as described above".to_string(),
        )
        .into()),
        false => Ok(()),
    }
}

fn report_left(left: Result<Vec<(String, Vec<Problem>)>, Refusal>) {
    for (name, problems) in left.unwrap_or_default() {
        match problems.is_empty() {
            true => warn(&format!("restored the settings of {name}, which a killed comparison had changed")),
            false => problems.iter().for_each(|problem| warn(&format!("warning: {problem}"))),
        }
    }
}

/// Reads the command line. It only resolves names of disks, and changes nothing.
fn prepare(args: &Compare) -> Result<PreparedComparison> {
    if args.vary.is_empty() && args.before.is_none() || args.command.is_empty() {
        let why = "nothing to compare: give two saved results, --from-report FILE, or --vary \
            KEY=VALUE,VALUE -- load TARGET";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let arms = match &args.before {
        Some(_) => vec![Arm { name: before::NAME.to_string(), ..Arm::default() }],
        None => compare::arms(&args.vary)?,
    };
    let mut keys: Vec<(Key, Vec<String>)> = Vec::new();
    let mut of_load: Vec<(String, String)> = Vec::new();
    for vary in &args.vary {
        match (Key::parse(&vary.key)?, word(&vary.key)) {
            (Some(key), _) => {
                let values =
                    vary.values.iter().map(|value| key.canonical(value)).collect::<Result<_, _>>()?;
                keys.push((key, values));
            }
            (None, Some(word)) => of_load.push((vary.key.clone(), word)),
            (None, None) => {
                let known: Vec<&str> = Key::words().collect();
                let why = format!(
                    "'{}' cannot be varied: use {}, sysctl:NAME, cgroup:PATH:FILE, or an option of biopsy \
                     load",
                    text::clean(&vary.key),
                    known.join(", ")
                );
                return Err(Refusal::Usage(why).into());
            }
        }
    }
    let notes = keys.iter().filter_map(|(key, _)| key.risk()).map(str::to_string).collect();
    // Names and values as the settings have them, whatever their form on the command line.
    let arms: Vec<Arm> = arms
        .into_iter()
        .map(|arm| {
            let named = |(key, value): (String, String)| match Key::parse(&key) {
                Ok(Some(key)) => Ok((key.name(), key.canonical(&value)?)),
                _ => Ok((key, value)),
            };
            let settings = arm.settings.into_iter().map(named).collect::<Result<_, Refusal>>()?;
            Ok(Arm { name: arm.name, settings })
        })
        .collect::<Result<_, Refusal>>()?;
    let is_load = args.command.first().is_some_and(|word| word == "load");
    let (work, disk, target, default) = if is_load {
        if args.prepare.is_some() {
            let why = "--prepare needs a COMMAND: a load reopens its target for each round";
            return Err(Refusal::Usage(why.to_string()).into());
        }
        if args.value.is_some() {
            let why = "--value needs a COMMAND that prints JSON: for a load, use --metric";
            return Err(Refusal::Usage(why.to_string()).into());
        }
        let words = |arm: &Arm| {
            let one = |(key, word): &(String, String)| Some((word.clone(), arm.settings.get(key)?.clone()));
            of_load.iter().filter_map(one).collect::<Vec<_>>()
        };
        let words: Vec<_> = arms.iter().map(words).collect();
        let load = parse_load(&args.command)?;
        let (jobs, permission) = load::arms(&load, &words)?;
        let round = load.words.said.iter().any(|(word, _)| word == "runtime");
        let round = jobs.first().and_then(|job| job.runtime).filter(|_| round).unwrap_or(ROUND);
        let target = jobs.first().and_then(|job| job.targets.first());
        let path = target.map(|target| match target {
            Target::Existing(path) | Target::Scratch { directory: path, .. } => path.clone(),
        });
        let default = compare::default_for(&jobs.iter().collect::<Vec<_>>());
        let disk = path.as_deref().and_then(select::disk_of_path);
        let target = path.map(|path| path.display().to_string()).unwrap_or_default();
        (Work::Load { jobs, permission, round }, disk, target, default)
    } else {
        if let Some((key, _)) = of_load.first() {
            let why = format!(
                "{key} is a load option, which a COMMAND does not have: vary settings, or run load after --"
            );
            return Err(Refusal::Usage(why).into());
        }
        let default = match &args.value {
            Some(_) if args.less_is_better => MetricKind::LessValue,
            Some(_) => MetricKind::Value,
            None => MetricKind::Elapsed,
        };
        (Work::Command, None, args.command.join(" "), default)
    };
    let named = args.device.as_deref().map(resolve).transpose()?;
    let primary = args.metric.unwrap_or(default);
    let is_measured = primary.is_of_command() != is_load && (!primary.is_printed() || primary == default);
    if !is_measured {
        let why = format!("{} is not measured here: leave out --metric, or give another", primary.name());
        return Err(Refusal::Usage(why).into());
    }
    let less_is_better = args.less_is_better;
    let printed = args.value.clone().map(|path| PrintedMetric { path, less_is_better });
    Ok(PreparedComparison { arms, keys, work, disk: named.or(disk), primary, printed, target, notes })
}

/// The name of a load option that can be varied.
fn word(key: &str) -> Option<String> {
    let key = match key {
        "polling" => "hipri",
        "cpus" => "cpus_allowed",
        "numa" => "numa_cpu_nodes",
        other => other,
    };
    let is_fixed = ["name", "filename", "directory", "runtime", "time_based", "ramp_time"].contains(&key);
    options::word(&key.replace('-', "_")).filter(|_| !is_fixed).map(|word| word.name.to_string())
}

fn parse_load(command: &[String]) -> Result<Load> {
    let line = std::iter::once(OsString::from("biopsy")).chain(command.iter().map(OsString::from));
    match cli::parse(words::joined(line)) {
        Ok(cli::Cli { verb: Verb::Load(load), .. }) => Ok(load),
        Ok(_) => Err(Refusal::Usage("no load is given after --".to_string()).into()),
        Err(error) => {
            let why = cli::sentence(&error).unwrap_or_else(|| "write --help before --".to_string());
            Err(Refusal::Usage(format!("load: {why}")).into())
        }
    }
}

/// The name of the whole disk.
fn resolve(name: &str) -> Result<String> {
    let root = Path::new("/");
    let host = Host::read(root)?;
    Ok(select::resolve(&host, root, name)?.name.clone())
}

fn is_root() -> bool {
    // SAFETY: it only reads the process's own id.
    unsafe { libc::geteuid() == 0 }
}

/// Takes the lock: one comparison per disk at a time. Without permission to lock, settings cannot be changed either.
fn lock(prepared: &PreparedComparison) -> Result<Option<Lock>> {
    let name = prepared.disk.as_deref().unwrap_or("sysctl");
    match (prepared.keys.is_empty(), is_root()) {
        (true, false) => Ok(None),
        (true, true) if prepared.disk.is_none() => Ok(None),
        _ => Ok(Some(Lock::take(name)?)),
    }
}

/// Applies each arm once: a value that the kernel refuses is found before the first round.
fn try_all(keeper: &mut Keeper, arms: &[Arm]) -> Result<()> {
    arms.iter().try_for_each(|arm| compare::apply(Some(&mut *keeper), arm))?;
    keeper.end_trial()
}

fn rounds(
    args: &Compare,
    prepared: &PreparedComparison,
    keeper: Option<&mut Keeper>,
    kept: Option<&SampleSource>,
    envelope: &mut Envelope,
    comparison: &mut Comparison,
) -> Result<Vec<(String, String)>> {
    let mut stacks = if args.stacks { Some(StackSampler::attach()?) } else { None };
    let mut stages = match args.stages {
        true => Some(StageProbe::attach(prepared.disk.as_deref(), prepared.work.jobs())?),
        false => None,
    };
    let options = Options {
        rounds: args.rounds.map(usize::from).or(kept.map(|_| before::ROUNDS)),
        most_rounds: MOST_ROUNDS,
        margin: args.margin,
        until: args.until.unwrap_or(args.margin / 2.0),
        longest: args.max_time,
        // A new order in each run: an event at a fixed time must not always hit the same arm.
        seed: wall_clock::unix_ns_now(),
    };
    let line = ProgressLine::default();
    let progress = |step: RoundProgress| {
        line.begin(&format!("round {} of at most {}", step.block + 1, step.blocks));
        let (done, total) = (step.block as u64, step.blocks as u64);
        line.show(Progress { phase: Phase::Run, done: done.min(total), total, rates: None });
    };
    let arms = prepared.arms.clone();
    let stop = stop::flag();
    let done = match &prepared.work {
        Work::Load { jobs, permission, round } => {
            let mut scratch = ScratchFiles::default();
            let values = |run: &LoadSummary| {
                let Some(kept) = kept else { return compare::values(run) };
                let mut now = setup::of_load(envelope, run);
                before::check_setup(args, kept, &now.setup)?;
                match now.samples.pop().filter(|_| !kept.are_interpolated) {
                    Some(values) => Ok(values),
                    None => compare::values(run),
                }
            };
            let of_probe = stages.as_ref().map(StageProbe::driver).transpose()?;
            let drive = |prepared: &mut biopsy::load::PreparedJobs| match &of_probe {
                Some(drive) => drive(prepared),
                None => prepared.run_one(stop, &|_| (), &[]),
            };
            let mut driver = LoadDriver {
                jobs: jobs.clone(),
                arms,
                keeper,
                permission,
                scratch: &mut scratch,
                stop,
                device: prepared.disk.clone(),
                round: *round,
                drive: &drive,
                observers: observers(&mut stages, &mut stacks),
                values: &values,
                first: None,
                prepared: BTreeMap::new(),
            };
            let done = compare::run(comparison, &options, &mut driver, stop, &progress);
            comparison.setup =
                driver.first.map_or_else(BTreeMap::new, |run| setup::of_load(envelope, &run).setup);
            done
        }
        Work::Command => {
            let printed = prepared.printed.as_ref();
            comparison.setup = setup::of_command(envelope, &args.command, printed, prepared.disk.as_deref());
            if let Some(kept) = kept {
                before::check_setup(args, kept, &comparison.setup)?;
            }
            let (command, prepare) = (args.command.as_slice(), args.prepare.as_deref());
            let mut driver = CommandDriver {
                command,
                prepare,
                printed,
                arms,
                keeper,
                observers: observers(&mut stages, &mut stacks),
                stop,
            };
            compare::run(comparison, &options, &mut driver, stop, &progress)
        }
    };
    line.clear();
    done?;
    if let Some(stages) = stages {
        stages.describe(envelope, comparison);
    }
    Ok(stacks.map_or_else(Vec::new, |stacks| stacks.pictures(envelope, comparison)))
}

/// The observers of the rounds.
fn observers<'a>(
    stages: &'a mut Option<StageProbe>,
    stacks: &'a mut Option<StackSampler>,
) -> Vec<&'a mut dyn Observer> {
    let stages = stages.iter_mut().map(|stages| stages as &mut dyn Observer);
    stages.chain(stacks.iter_mut().map(|stacks| stacks as &mut dyn Observer)).collect()
}

/// The shell commands that the comparison would run.
fn dry_run(prepared: &PreparedComparison) -> Result<()> {
    let mut out = String::new();
    let saved = match prepared.keys.is_empty() {
        true => SavedSettings::default(),
        false => SavedSettings::read(Path::new("/"), prepared.disk.as_deref(), &prepared.keys)?,
    };
    let echo = |value: &str, path: &PathBuf| {
        format!("echo '{}' >{}\n", text::clean(value), text::clean(&path.display().to_string()))
    };
    for arm in &prepared.arms {
        out.push_str(&format!("# {}\n", text::clean(&arm.name)));
        for setting in &saved.settings {
            let value = arm.settings.get(&setting.name);
            out.extend(value.map(|value| echo(&setting.written(value), &setting.path)));
        }
        let words: Vec<String> = arm
            .settings
            .iter()
            .filter(|(key, _)| !saved.settings.iter().any(|setting| setting.name == **key))
            .map(|(key, value)| format!(" --{} {value}", word(key).unwrap_or_default()))
            .collect();
        let command = match &prepared.work {
            Work::Load { round, .. } => {
                format!("a load of {round:?} on {}{}", prepared.target, words.concat())
            }
            Work::Command => prepared.target.clone(),
        };
        out.push_str(&format!("# {}\n", text::clean(&command)));
    }
    if !saved.settings.is_empty() {
        out.push_str("# at the end\n");
    }
    for setting in &saved.settings {
        out.push_str(&echo(&setting.written(&setting.old), &setting.path));
        out.extend(setting.resets.iter().map(|(path, old)| echo(old, path)));
    }
    Sink::Stdout.write(out.as_bytes())
}
