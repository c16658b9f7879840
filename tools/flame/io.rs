//! Time of I/Os by who handed them in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::analyze::flame::{FlameSummary, What};
use biopsy::analyze::latency::{DeviceLatency, summarize};
use biopsy::analyze::profile::{Unit, folded};
use biopsy::analyze::submits::{self, SubmitSummary, Tally};
use biopsy::analyze::trace::io::{TracedIo, openers};
use biopsy::analyze::trace::join::Join;
use biopsy::analyze::trace::scene::Scene;
use biopsy::analyze::{loss, missing, trace};
use biopsy::clock::now_ns;
use biopsy::host::{Host, processes};
use biopsy::probe::births::Births;
use biopsy::probe::events::EventOptions;
use biopsy::probe::files::FileNames;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::probe::latency::submits::StackOptions;
use biopsy::render::text;
use biopsy::symbols::{Helper, Mapped, Symbolizer};
use biopsy::wire::births::{self, Comm};
use biopsy::wire::stacks::is_of_ring;
use biopsy::wire::submits::Submits;

use super::source::Taken;
use crate::cli::Flame;
use crate::window;
use biopsy::probe::Probe;
use biopsy::session::submitters::Chosen;

pub fn follow(
    args: &Flame,
    host: &Host,
    chosen: &Chosen,
    window: impl FnOnce(&mut dyn FnMut(Duration) -> Result<()>) -> Result<()>,
) -> Result<Taken> {
    let root = Path::new("/");
    let devices = window::resolve_layers(host, &args.devices)?;
    let options = Options {
        events: Some(EventOptions::default()),
        event_files: args.files,
        stacks: Some(StackOptions { max_cost: args.max_cost, ..StackOptions::default() }),
        filter: chosen.filter.clone(),
        // Each layer has its own time: together they would count twice. Whoever names one has that one.
        layers: !devices.is_empty(),
        only_named: true,
        devices,
        cost: !args.no_cost,
        ..Options::default()
    };
    let mut probe = LatencyProbe::attach(host, root, &options)?;
    let first = probe.start().clone();
    let mut looker = Looker::new(
        Scene::new(host, probe.planned(), probe.request_flags(), first.at_ns),
        args.files.then(|| FileNames::new(root)),
    );
    window(&mut |left| {
        probe.tick();
        if let Some(mut taken) = probe.events(Some(left))? {
            let ios = looker.join.round(now_ns(), taken.events.drain(..), taken.emptied);
            looker.look(&ios);
            probe.give_back(taken.events);
        }
        Ok(())
    })?;
    let end = probe.detach()?;
    probe.end_events();
    while let Some(taken) = probe.events(None)? {
        let ios = looker.join.round(now_ns(), taken.events, taken.emptied);
        looker.look(&ios);
    }
    let ios = looker.join.finish();
    looker.look(&ios);
    looker.look_at_processes();

    let latency = summarize(host, &first, &end);
    let emitted = probe.emitted()?;
    let lost = trace::lost(loss::lost(&latency, &first, &end), &emitted);
    looker.tally.lose(emitted.lost_ios + emitted.damaged);
    let files = looker.scene.files;
    let submits = Submits { maps: looker.mapped, leaders: looker.leaders, files, ..probe.submits()? };
    let names = Symbolizer::new(Helper::own()).names(&submits::addresses(&submits));
    let summary = submits::summarize(&latency, &looker.tally, &submits, &names);
    let doubt = loss::distrust(&latency, &lost, args.max_loss);
    let doubt =
        doubt.or_else(|| trace::distrust(&emitted, args.max_loss, "take fewer stacks with --max-cost"));
    let missing = [probe.missing().to_vec(), missing::stages(&latency), names.missing.clone()].concat();
    let with_ios: Vec<&DeviceLatency> = latency.devices.iter().filter(|device| device.ios > 0).collect();
    let mut notes = notes(&summary, &submits, &with_ios);
    if emitted.lost_ios + emitted.damaged > 0 {
        notes.push(format!(
            "{} with a stack were lost, since the reader was too slow: others stand for them",
            text::counted(emitted.lost_ios + emitted.damaged, "I/O")
        ));
    }
    if args.max_cost == 0.0 {
        notes.push("no stack was taken, since --max-cost is 0".to_string());
    }
    Ok(Taken {
        summary: FlameSummary {
            what: Some(What::Io),
            devices: with_ios.iter().map(|device| device.name.clone()).collect(),
            profile: folded::profile(&summary.folded, Unit::Nanoseconds),
            counts: None,
            duration_ns: latency.duration_ns,
            source: format!(
                "{} of {} by their stacks",
                text::count(summary.sampled),
                text::counted(summary.ios, "I/O")
            ),
            measured: summary.ios,
            lost: lost.ios,
            period_ns: None,
            notes,
            unnamed: names.unnamed(),
            recorded: None,
        },
        cost: probe.cost(latency.ios_per_second()),
        missing,
        lost,
        doubt,
    })
}

/// From one look at processes to the next: who ended is known until the look behind the next one, and an I/O comes here
/// some rounds after it was handed in.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When the mappings of a process are read again: it may load more while it runs.
#[derive(Debug, Default)]
struct Look {
    last: Option<Instant>,
    wait: Duration,
}

impl Look {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(3);

    /// Each time it takes twice as long until the next.
    fn is_due(&mut self) -> bool {
        if self.last.is_some_and(|last| last.elapsed() < self.wait) {
            return false;
        }
        self.wait = (2 * self.wait).clamp(Self::SHORTEST, Self::LONGEST);
        self.last = Some(Instant::now());
        true
    }
}

/// What is made of events while the window is open.
struct Looker {
    scene: Scene,
    /// Where the files of I/Os are frames.
    names: Option<FileNames>,
    join: Join,
    tally: Tally,
    mapped: Mapped,
    births: Births,
    /// Whose mappings are to be read at the next look, and when the last one was.
    due: Vec<(u32, Comm)>,
    looked: Instant,
    /// What was read of processes, under each of their names: who has another has called exec.
    looks: HashMap<(u32, [u8; 16]), Look>,
    leaders: HashMap<u32, Vec<u8>>,
}

impl Looker {
    fn new(scene: Scene, names: Option<FileNames>) -> Self {
        let join = Join::new(&scene);
        Self {
            scene,
            names,
            join,
            tally: Tally::default(),
            mapped: Mapped::default(),
            births: Births::open(),
            due: Vec::new(),
            looked: Instant::now(),
            looks: HashMap::new(),
            leaders: HashMap::new(),
        }
    }

    fn look(&mut self, ios: &[TracedIo]) {
        if let Some(names) = &mut self.names {
            self.scene.files.extend(names.learn(openers(ios)));
        }
        for io in ios {
            self.tally.add(self.scene.name(io), io);
            let owner = io.owner.filter(|owner| !owner.kernel);
            let Some(owner) = owner else { continue };
            let room = self.looks.len() < Mapped::MOST_PROCESSES;
            let look = match self.looks.entry((owner.pid, owner.comm)) {
                Entry::Occupied(look) => Some(look.into_mut()),
                Entry::Vacant(place) => room.then(|| place.insert(Look::default())),
            };
            if look.is_some_and(Look::is_due) {
                self.due.push((owner.pid, births::comm(&owner.comm)));
            }
            if is_of_ring(&owner.comm) && !self.leaders.contains_key(&owner.pid) {
                self.leaders.extend(processes::name(Path::new("/"), owner.pid).map(|name| (owner.pid, name)));
            }
        }
        if self.looked.elapsed() >= LOOK_EVERY {
            self.look_at_processes();
        } else {
            self.births.drain();
        }
    }

    fn look_at_processes(&mut self) {
        self.looked = Instant::now();
        self.births.look(&mut self.mapped, self.due.drain(..));
    }
}

fn notes(summary: &SubmitSummary, submits: &Submits, devices: &[&DeviceLatency]) -> Vec<String> {
    let mut notes = Vec::new();
    let parts = summary.parts.iter().map(|(part, ns)| format!("{} {}", part.name(), text::time(*ns)));
    if summary.ios > 0 {
        notes.push(format!("by stage, of all: {}", parts.collect::<Vec<_>>().join(", ")));
    }
    if let Some(half) = summary.half_width.filter(|_| summary.sampled < summary.ios) {
        notes.push(format!(
            "the stack of one I/O stands for about {}, as --max-cost allows; a share is known to ±{} points at most (95 %)",
            text::significant(summary.ios as f64 / summary.sampled as f64, 2),
            text::significant(half, 2)
        ));
    }
    // Each layer has its own time. What a loop device is on top of is a file to the kernel.
    let is_above = |device: &&DeviceLatency| {
        device.name.starts_with("loop") && devices.len() > 1
            || devices.iter().any(|other| device.stands_on(&other.name))
    };
    for device in devices.iter().copied().filter(is_above) {
        notes.push(format!(
            "an I/O of {} counts again on the disk below: name one of them with -d",
            text::clean(&device.name)
        ));
    }
    let mut also = |ns: u64, words: &str| {
        if ns > 0 {
            notes.push(format!("{} {words}", text::time(ns)));
        }
    };
    also(
        summary.stacks_ns,
        "by which taking the stacks held up I/Os are left out of submit and queue, by what waited behind them in call and \
         plug",
    );
    also(summary.no_stack_ns, "are of I/Os none of which has a stack: the kernel's own flushes, or too few");
    also(summary.cut_ns, "have user stacks that are cut: code without frame pointers hides its callers");
    for (n, words) in [
        (submits.full, "stacks found no room in their table, and stand as such"),
        (submits.over, "bios came while the budget was spent, and are stood for by others"),
        (submits.nested, "were not taken, since an interrupt came between"),
    ] {
        if n > 0 {
            notes.push(format!("{} {words}", text::count(n)));
        }
    }
    notes
}
