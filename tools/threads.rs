//! `biopsy threads`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::profile::Unit;
use biopsy::analyze::threads::{Column, Meaning, Source, ThreadSummary, addresses, summarize};
use biopsy::envelope::{Envelope, Lost, Missing};
use biopsy::host::Host;
use biopsy::host::cgroups::Hierarchy;
use biopsy::host::kernel;
use biopsy::host::processes;
use biopsy::host::select;
use biopsy::probe::threads::{Options, ThreadProbe};
use biopsy::refusal::Refusal;
use biopsy::render::{self, flame};
use biopsy::symbols::{Helper, Scheduler, Symbolizer};
use biopsy::wire::threads::{Reading, Sampled};

use crate::cli::{Color, Stacks, Threads};
use crate::output::Sink;
use crate::watch::{self, Piece, Watch};
use crate::{clock, output, stop, submitters, window};

pub fn run(args: &Threads, color: Color) -> Result<()> {
    let root = Path::new("/");
    let host = Host::read(root)?;
    let mut devices: Vec<String> = Vec::new();
    for text in &args.window.devices {
        let device = select::find(&host, root, text)?;
        window::note_disk(device, "threads");
        window::add(&mut devices, &[device.disk]);
    }
    if matches!(args.stacks, Some(Stacks::Flame)) && args.interval.interval.is_some() {
        let why = "--stacks flame draws one picture of the whole window: leave the interval out, or take --stacks folded";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let columns = columns(args);
    let mut sink = Sink::open(args.output.output.as_deref())?;
    let options = options(args, &host, &devices, &columns)?;
    stop::install();
    let mut probe = ThreadProbe::attach(root, options)?;
    let watch = Watch {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json || args.stacks.is_some(),
        are_gone: &|| false,
    };
    let mut naming = Naming::new(&host, root);
    let mut failed = None;
    let view = |probe: &ThreadProbe, piece: &Piece<'_, Reading>| {
        let (summary, missing) = naming.summary(probe, &piece.to.window, &columns);
        let envelope = Envelope {
            start: piece.start.to_string(),
            duration_ns: summary.duration_ns,
            lost: lost(&summary),
            cost: probe.cost(),
            missing: [probe.missing(), &missing].concat(),
            ..clock::envelope()
        };
        if args.stacks.is_some() {
            output::note(&render::text::threads::aside(&envelope, piece.status, piece.further));
        }
        match args.stacks {
            Some(Stacks::Folded) => return render::text::threads::folded(&summary.folded).into_bytes(),
            Some(Stacks::Flame) => {
                return picture(&envelope, &summary, probe).unwrap_or_else(|error| {
                    failed = Some(error);
                    Vec::new()
                });
            }
            None => {}
        }
        if args.output.json {
            return render::json::view(&envelope, &summary, piece.status);
        }
        let style = render::text::threads::Style {
            all: args.all,
            color: output::colored(color),
            brief: piece.further,
            hz: probe.hz(),
        };
        render::text::threads::render(&envelope, &summary, piece.status, style).into_bytes()
    };
    let (_, end) = watch::run(&mut probe, &watch, &mut sink, view)?;
    failed.map_or(Ok(()), Err)?;
    trust(&end, args.window.max_loss)
}

/// What to count apart: as asked for, else the usual.
fn columns(args: &Threads) -> Vec<Column> {
    let asked = if args.group_by.is_empty() { &Column::USUAL[..] } else { &args.group_by };
    let mut columns = Vec::new();
    for column in asked {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    columns
}

fn options(args: &Threads, host: &Host, devices: &[String], columns: &[Column]) -> Result<Options> {
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
        by_process: columns.contains(&Column::Pid),
        by_cgroup: columns.contains(&Column::Cgroup),
        by_device: columns.contains(&Column::Device) || !devices.is_empty(),
        pids,
        comms: args.comms.clone(),
        cgroups,
        cgroup_paths,
        devices: devices.iter().filter_map(number).collect(),
        unified_cgroups: hierarchy.is_some_and(|hierarchy| hierarchy.unified),
        cost: !args.window.no_cost,
    })
}

/// What names the numbers of the samples; what was read of the kernel's symbols serves every piece.
pub struct Naming<'a> {
    root: &'a Path,
    symbolizer: Symbolizer,
    scheduler: Option<Scheduler>,
    devices: BTreeMap<u32, String>,
}

impl<'a> Naming<'a> {
    pub fn new(host: &Host, root: &'a Path) -> Self {
        let devices = host
            .devices
            .iter()
            .map(|device| (device.major << 20 | device.minor, device.name.clone()))
            .collect();
        Self { root, symbolizer: Symbolizer::new(Helper::own()), scheduler: None, devices }
    }

    /// The samples of a piece, counted apart by `columns`; and what could not be named.
    pub fn summary(
        &mut self,
        probe: &ThreadProbe,
        sampled: &Sampled,
        columns: &[Column],
    ) -> (ThreadSummary, Vec<Missing>) {
        let names = self.symbolizer.names(&addresses(sampled));
        let scheduler = match sampled.stacks.is_empty() {
            true => &Scheduler::default(),
            false => &*self.scheduler.get_or_insert_with(Scheduler::read),
        };
        let cgroups = match columns.contains(&Column::Cgroup) {
            true => Hierarchy::read(self.root).map(|hierarchy| hierarchy.paths()).unwrap_or_default(),
            false => BTreeMap::new(),
        };
        let meaning = Meaning { names: &names, scheduler, cgroups: &cgroups, devices: &self.devices };
        let source = Some(if probe.is_kernel() { Source::Bpf } else { Source::Proc });
        let summary = ThreadSummary { hz: probe.hz(), source, ..summarize(sampled, &meaning, columns) };
        (summary, names.missing.clone())
    }
}

/// Samples that are in no row.
pub fn lost(summary: &ThreadSummary) -> Lost {
    let kinds = summary.loss.kinds().into_iter().map(|(kind, n)| (kind.to_string(), n)).collect();
    Lost {
        samples: summary.loss.samples(),
        probes: BTreeMap::from([("threads".to_string(), kinds)]),
        ..Lost::default()
    }
}

fn picture(envelope: &Envelope, summary: &ThreadSummary, probe: &ThreadProbe) -> Result<Vec<u8>> {
    // The files of /proc tell one function.
    let by = if probe.is_kernel() { "kernel stack" } else { "where in the kernel" };
    let title = format!("threads that ran or waited, by {by}");
    let subtitle = format!("{} samples in {} rounds at {} Hz", summary.samples, summary.rounds, probe.hz());
    let samples = render::folded::profile(&summary.folded, Unit::Samples);
    let place = kernel::hostname(Path::new("/")).unwrap_or_default();
    let lost = envelope.lost.samples;
    let caption =
        flame::Caption::new(title, subtitle).measured(place, envelope, lost, summary.samples + lost);
    flame::file(&samples, &caption, &flame::Options::default())
}

/// Too much is missing for the averages to mean what they say.
fn trust(end: &Reading, max_loss: f64) -> Result<()> {
    let loss = &end.loss;
    if end.rounds == 0 {
        return Err(Refusal::Untrusted(
            "not one round was over in this time: give it longer with --for".to_string(),
        )
        .into());
    }
    if loss.missed > end.rounds {
        return Err(Refusal::Untrusted(format!(
            "{} rounds were missed and {} were not: the machine is too busy for this rate, take a lower --hz",
            loss.missed, end.rounds
        ))
        .into());
    }
    let all = loss.samples() + end.samples;
    let percent = if all == 0 { 0.0 } else { 100.0 * loss.samples() as f64 / all as f64 };
    if percent > max_loss {
        return Err(Refusal::Untrusted(format!(
            "{percent:.2} % of the samples are in no row, above --max-loss {max_loss}: choose threads with -p, --comm \
             or --cgroup"
        ))
        .into());
    }
    Ok(())
}
