//! Measures the time of I/Os by submitter.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::trace::Tracer;
use super::{IntervalWait, Options, SourceResult};
use crate::analyze::flame::{FlameSummary, Note, StackSource, What};
use crate::analyze::latency::{DeviceLatency, summarize};
use crate::analyze::profile::{Unit, folded};
use crate::analyze::submits::{self, SubmitTally};
use crate::analyze::trace::io::{TracedIo, openers};
use crate::analyze::trace::scene::Scene;
use crate::analyze::{loss, missing, trace};
use crate::host::{Host, processes};
use crate::probe::Probe;
use crate::probe::events::EventOptions;
use crate::probe::files::FileNames;
use crate::probe::latency::submits::StackOptions;
use crate::probe::latency::{LatencyProbe, options as probe};
use crate::probe::process_events::ProcessEvents;
use crate::symbols::{Helper, MappedFiles, Symbolizer};
use crate::wire::process_events::{self, Comm};
use crate::wire::stacks::is_of_ring;
use crate::wire::submits::Submits;

pub fn measure(options: &Options, host: &Host, interval: IntervalWait<'_>) -> Result<SourceResult> {
    let root = Path::new("/");
    let of_probe = probe::Options {
        events: Some(EventOptions::default()),
        event_files: options.files,
        stacks: Some(StackOptions { max_cost: options.max_cost, ..StackOptions::default() }),
        filter: options.filter.clone(),
        // Each layer has its own time, and including several would count it twice. A named layer is measured.
        layers: !options.devices.is_empty(),
        only_named: true,
        devices: options.devices.clone(),
        cost: options.cost,
        ..probe::Options::default()
    };
    let mut probe = LatencyProbe::attach(host, root, &of_probe)?;
    let first = probe.start().clone();
    let mut collector = Collector::new(
        Scene::new(host, probe.planned(), probe.request_flags(), first.at_ns),
        options.files.then(|| FileNames::new(root)),
    );
    let mut tracer = Tracer::new(&collector.scene);
    interval(&mut |left| {
        collector.add(&tracer.next(&mut probe, left)?);
        Ok(())
    })?;
    let end = probe.detach()?;
    probe.end_events();
    while let Some(ios) = tracer.rest(&probe)? {
        collector.add(&ios);
    }
    collector.read_mappings();

    let latency = summarize(host, &first, &end);
    let emitted = probe.emitted()?;
    let lost = trace::lost(loss::lost(&latency, &first, &end), &emitted);
    let lost_ios = emitted.lost_ios + emitted.damaged;
    collector.tally.lose(lost_ios);
    let files = collector.scene.files;
    let submits = Submits { maps: collector.mapped, leaders: collector.leaders, files, ..probe.submits()? };
    let names = Symbolizer::new(Helper::own()).names(&submits::addresses(&submits));
    let summary = submits::summarize(&latency, &collector.tally, &submits, &names);
    let doubt = loss::distrust(&latency, &lost, options.max_loss)
        .or_else(|| trace::distrust(&emitted, options.max_loss, "take fewer stacks with a lower --max-cost"));
    let with_ios: Vec<&DeviceLatency> = latency.devices.iter().filter(|device| device.ios > 0).collect();
    let mut notes = Note::of_ios(&summary, &submits, &with_ios);
    notes.extend((lost_ios > 0).then_some(Note::LostIos(lost_ios)));
    notes.extend((options.max_cost == 0.0).then_some(Note::NoBudget));
    let profile = folded::profile(&summary.folded, Unit::Nanoseconds);
    Ok(SourceResult {
        summary: FlameSummary {
            devices: with_ios.iter().map(|device| device.name.clone()).collect(),
            duration_ns: latency.duration_ns,
            source: StackSource::Ios { sampled: summary.sampled, of: summary.ios },
            measured: summary.ios,
            lost: lost.ios,
            notes,
            unnamed: names.unnamed(),
            ..FlameSummary::new(Some(What::Io), profile)
        },
        cost: probe.cost(latency.ios_per_second()),
        missing: [probe.missing().to_vec(), missing::stages(&latency), names.missing].concat(),
        lost,
        doubt,
    })
}

/// How often mappings are read. An ended process is kept until the second reading after its end, and an I/O arrives
/// here some rounds after its submission.
const READ_EVERY: Duration = Duration::from_millis(100);

/// When to read the mappings of a process again: it may load more libraries while it runs.
#[derive(Debug, Default)]
struct Backoff {
    last: Option<Instant>,
    wait: Duration,
}

impl Backoff {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(3);

    /// The pause doubles each time.
    fn is_due(&mut self) -> bool {
        if self.last.is_some_and(|last| last.elapsed() < self.wait) {
            return false;
        }
        self.wait = (2 * self.wait).clamp(Self::SHORTEST, Self::LONGEST);
        self.last = Some(Instant::now());
        true
    }
}

/// Collects the events of I/Os, and reads what is available only while their processes live.
struct Collector {
    scene: Scene,
    /// Set where the files of I/Os are frames.
    names: Option<FileNames>,
    tally: SubmitTally,
    mapped: MappedFiles,
    process_events: ProcessEvents,
    /// Processes whose mappings are read next, and the time of the last reading.
    due: Vec<(u32, Comm)>,
    read: Instant,
    /// By process and name: a process with a new name has called exec.
    backoffs: HashMap<(u32, [u8; 16]), Backoff>,
    leaders: HashMap<u32, Vec<u8>>,
}

impl Collector {
    fn new(scene: Scene, names: Option<FileNames>) -> Self {
        Self {
            scene,
            names,
            tally: SubmitTally::default(),
            mapped: MappedFiles::default(),
            process_events: ProcessEvents::open(),
            due: Vec::new(),
            read: Instant::now(),
            backoffs: HashMap::new(),
            leaders: HashMap::new(),
        }
    }

    fn add(&mut self, ios: &[TracedIo]) {
        if let Some(names) = &mut self.names {
            self.scene.files.extend(names.learn(openers(ios)));
        }
        for io in ios {
            self.tally.add(self.scene.name(io), io);
            let owner = io.owner.filter(|owner| !owner.kernel);
            let Some(owner) = owner else { continue };
            let room = self.backoffs.len() < MappedFiles::MOST_PROCESSES;
            let backoff = match self.backoffs.entry((owner.pid, owner.comm)) {
                Entry::Occupied(found) => Some(found.into_mut()),
                Entry::Vacant(place) => room.then(|| place.insert(Backoff::default())),
            };
            if backoff.is_some_and(Backoff::is_due) {
                self.due.push((owner.pid, process_events::comm(&owner.comm)));
            }
            if is_of_ring(&owner.comm) && !self.leaders.contains_key(&owner.pid) {
                self.leaders.extend(processes::name(Path::new("/"), owner.pid).map(|name| (owner.pid, name)));
            }
        }
        if self.read.elapsed() >= READ_EVERY {
            self.read_mappings();
        } else {
            self.process_events.drain();
        }
    }

    fn read_mappings(&mut self) {
        self.read = Instant::now();
        self.process_events.look(&mut self.mapped, self.due.drain(..));
    }
}
