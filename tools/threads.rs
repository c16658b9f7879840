//! `biopsy threads`: thread states, system calls and wait locations.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::profile::{Unit, folded};
use biopsy::analyze::threads::{GroupColumn, ThreadSummary};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::host::cgroups::Hierarchy;
use biopsy::host::kernel;
use biopsy::host::processes;
use biopsy::host::select;
use biopsy::probe::threads::{Options, ThreadProbe};
use biopsy::refusal::Refusal;
use biopsy::render::{self, flame};
use biopsy::session::threads::{ThreadSymbolizer, ThreadView};
use biopsy::session::watch::IntervalView;
use biopsy::session::{stop, submitters};

use crate::cli::{Color, StackFormat, Threads};
use crate::live::{self, LiveOptions};
use crate::output::{self, Sink};
use crate::screen::Screen;
use crate::{replay, window};

pub fn run(args: &Threads, color: Color) -> Result<()> {
    let mut screen = Screen::of(&args.output, &args.lines, args.all, &args.interval, &args.input)?;
    let text = |shown: &IntervalView<'_, ThreadSummary>| {
        let style = render::text::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
            width: output::width(&args.output),
        };
        render::text::threads::render(shown.envelope, shown.summary, shown.status, style)
    };
    if let Some(shown) = replay::run(&args.input, &args.output, |shown| Ok(screen.show(shown, text))) {
        screen.finish(&shown);
        return shown;
    }
    let root = Path::new("/");
    let host = Host::read(root)?;
    let mut devices: Vec<String> = Vec::new();
    for text in &args.window.devices {
        let device = select::find(&host, root, text)?;
        window::note_disk(device, "threads");
        window::add(&mut devices, &[device.disk]);
    }
    if matches!(args.stacks, Some(StackFormat::Flame)) && args.interval.interval.is_some() {
        let why = "--stacks flame draws one flame graph of the whole run: leave out the interval, or use \
            --stacks folded";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let columns = columns(args);
    let sink = Sink::open(args.output.output.as_deref())?;
    let options = options(args, &host, &devices, &columns)?;
    stop::install();
    let mut probe = ThreadProbe::attach(root, options)?;
    let asked = LiveOptions {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: None,
        quiet_stdout: args.output.json || args.stacks.is_some(),
    };
    let view =
        ThreadView { naming: ThreadSymbolizer::new(&host, root), columns: &columns, shares_process: false };
    let result = live::run(view, &mut probe, &asked, sink, |probe, shown| {
        let (envelope, summary, status) = (shown.envelope, shown.summary, shown.status);
        if args.stacks.is_some() {
            output::note(&render::text::threads::aside(envelope, status, shown.is_further));
        }
        match args.stacks {
            Some(StackFormat::Folded) => {
                return Ok(render::text::threads::folded(&summary.folded).into_bytes());
            }
            Some(StackFormat::Flame) if summary.folded.is_empty() => {
                output::warn("there is nothing to draw: no thread ran or waited uninterruptibly");
                return Ok(Vec::new());
            }
            Some(StackFormat::Flame) => return picture(envelope, summary, probe),
            None => {}
        }
        Ok(screen.show(shown, text))
    });
    screen.finish(&result);
    result
}

/// The columns to group by: as given, or the default.
fn columns(args: &Threads) -> Vec<GroupColumn> {
    let asked = if args.group_by.is_empty() { &GroupColumn::USUAL[..] } else { &args.group_by };
    let mut columns = Vec::new();
    for column in asked {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    columns
}

fn options(args: &Threads, host: &Host, devices: &[String], columns: &[GroupColumn]) -> Result<Options> {
    let root = Path::new("/");
    let pids = args.pids.iter().map(|pid| processes::find(root, *pid)).collect::<Result<_>>()?;
    let hierarchy = Hierarchy::read(root);
    let mut cgroups = Vec::new();
    let mut cgroup_paths = Vec::new();
    if !args.cgroups.is_empty() {
        let hierarchy = submitters::hierarchy()?;
        for text in &args.cgroups {
            let ids = hierarchy.ids(&hierarchy.find(text)?);
            let paths = hierarchy.paths();
            cgroup_paths.extend(ids.iter().filter_map(|id| paths.get(id).cloned()));
            cgroups.extend(ids);
        }
    }
    let number = |name: &String| {
        let device = host.devices.iter().find(|device| device.name == *name)?;
        Some(device.major << 20 | device.minor)
    };
    Ok(Options {
        hz: args.hz,
        sleepers: args.all,
        by_process: columns.contains(&GroupColumn::Pid),
        by_cgroup: columns.contains(&GroupColumn::Cgroup),
        by_device: columns.contains(&GroupColumn::Device) || !devices.is_empty(),
        pids,
        comms: args.comms.clone(),
        cgroups,
        cgroup_paths,
        devices: devices.iter().filter_map(number).collect(),
        unified_cgroups: hierarchy.is_some_and(|hierarchy| hierarchy.unified),
        cost: !args.window.no_cost,
    })
}

fn picture(envelope: &Envelope, summary: &ThreadSummary, probe: &ThreadProbe) -> Result<Vec<u8>> {
    // /proc names only one function per thread.
    let by = if probe.is_kernel() { "kernel stack" } else { "where in the kernel" };
    let title = format!("threads that ran or waited, by {by}");
    let subtitle = format!("{} samples in {} scans at {} Hz", summary.samples, summary.rounds, probe.hz());
    let samples = folded::profile(&summary.folded, Unit::Samples);
    let place = kernel::hostname(Path::new("/")).unwrap_or_default();
    let lost = envelope.lost.samples;
    let caption =
        flame::Caption::new(title, subtitle).measured(place, envelope, lost, summary.samples + lost);
    flame::file(&samples, &caption, &flame::Options::default())
}
