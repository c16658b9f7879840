//! Measures interrupts, CPUs, stacks, locks, memory and threads in parallel with the latencies. A probe that this
//! machine refuses is reported as missing, and the others go on.

use std::path::Path;

use crate::analyze::cpu::{self, CpuSummary};
use crate::analyze::interrupts::trust as interrupt_trust;
use crate::analyze::interrupts::{self, InterruptSummary};
use crate::analyze::latency::LatencySummary;
use crate::analyze::pressure::PressureSummary;
use crate::analyze::stacks::{self, ProfileSummary};
use crate::analyze::threads::{GroupColumn, ThreadSummary, trust};
use crate::envelope::{Cost, Envelope, Missing, Reason};
use crate::host::Host;
use crate::probe::Probe;
use crate::probe::cpu::CpuProbe;
use crate::probe::filter::Filter;
use crate::probe::interrupts::{InterruptProbe, TIME_EVERY};
use crate::probe::stacks::StacksProbe;
use crate::probe::threads::ThreadProbe;
use crate::refusal::plain;
use crate::symbols::{Helper, Symbolizer};
use crate::wire::interrupts::Reading;
use crate::wire::stacks::RawProfile;
use crate::{probe, wire};
use anyhow::Result;

use super::background::Background;
use super::{pressure, threads};

/// The thread columns that the findings use.
const COLUMNS: [GroupColumn; 4] =
    [GroupColumn::Comm, GroupColumn::State, GroupColumn::Wchan, GroupColumn::Kstack];

/// CPU budget of lock-wait stacks, in percent of each CPU.
const MAX_COST: f64 = 1.0;

/// Measurement options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of the devices; empty: all.
    pub devices: Vec<String>,
    /// The threads whose lock waits are counted. CPUs, interrupts, threads and the page cache are measured for the
    /// whole machine.
    pub filter: Filter,
    /// Stacks per second and CPU.
    pub frequency: u64,
    /// Whether to measure the cost of the programs.
    pub cost: bool,
}

/// The result of the lock and memory probes' thread.
struct Pressure {
    seen: PressureSummary,
    locks_cost: Option<Cost>,
    pagecache_cost: Option<Cost>,
    missing: Vec<Missing>,
}

/// The result of the thread probe's thread.
struct ThreadsResult {
    seen: ThreadSummary,
    cost: Cost,
    missing: Vec<Missing>,
}

/// A part of the result, and its label where it is missing.
#[derive(Clone, Copy)]
struct ResultPart(&'static str, &'static str);

const INTERRUPTS: ResultPart = ResultPart("interrupts", "interrupts were not counted");
const PROFILE: ResultPart = ResultPart("profile", "there is no profile and no flame graph");
const LOCKS: ResultPart = ResultPart("locks", "locks were not measured");
const PAGECACHE: ResultPart = ResultPart("pagecache", "the page cache was not measured");
const THREADS: ResultPart = ResultPart("threads", "threads were not sampled");

impl ResultPart {
    fn refused(self, error: &anyhow::Error) -> Missing {
        Missing {
            part: Some(self.0.to_string()),
            reason: Reason::Refused,
            why: format!("{}: {}", self.1, plain(&format!("{error:#}"))),
            ..Missing::default()
        }
    }
}

/// The probes that take long to attach, before the interval.
pub struct PreparedProbes {
    counter: Option<InterruptProbe>,
    pressure: Option<Background<Pressure>>,
    threads: Option<Background<ThreadsResult>>,
    frequency: u64,
    missing: Vec<Missing>,
}

/// All attached probes, during the interval.
pub struct Probes {
    sampler: Option<StacksProbe>,
    counter: Option<InterruptProbe>,
    pressure: Option<Background<Pressure>>,
    threads: Option<Background<ThreadsResult>>,
    cpus: CpuProbe,
    missing: Vec<Missing>,
}

/// The probes after the interval.
pub struct StoppedProbes {
    sampler: Option<StacksProbe>,
    profile: Option<RawProfile>,
    counter: Option<InterruptProbe>,
    counts: Option<(Reading, Reading)>,
    pressure: Option<Background<Pressure>>,
    threads: Option<Background<ThreadsResult>>,
    cpu: CpuSummary,
    missing: Vec<Missing>,
}

/// The summaries.
pub struct ProbeSummaries {
    pub interrupts: Option<InterruptSummary>,
    pub profile: Option<ProfileSummary>,
    pub cpu: CpuSummary,
    pub pressure: PressureSummary,
    pub threads: Option<ThreadSummary>,
}

impl PreparedProbes {
    /// Prepares every probe that this machine permits.
    pub fn new(host: &Host, options: &Options) -> Self {
        let root = Path::new("/");
        let mut missing = Vec::new();
        let mut refused = |what: ResultPart, error: &anyhow::Error| missing.push(what.refused(error));
        let pressure = Pressure::start(host, options)
            .inspect_err(|error| [LOCKS, PAGECACHE].into_iter().for_each(|part| refused(part, error)))
            .ok();
        let threads = ThreadsResult::start(host, options).inspect_err(|error| refused(THREADS, error)).ok();
        let counted = probe::interrupts::Options {
            devices: options.devices.clone(),
            time_every: TIME_EVERY,
            cost: options.cost,
        };
        let counter = InterruptProbe::prepare(host, root, &counted)
            .inspect_err(|error| refused(INTERRUPTS, error))
            .ok();
        Self { counter, pressure, threads, frequency: options.frequency, missing }
    }

    /// Opens the intervals of all probes together, so that all results cover the same time.
    pub fn begin(self) -> Probes {
        let mut missing = self.missing;
        let mut refused = |what: ResultPart, error: &anyhow::Error| missing.push(what.refused(error));
        let sampler = StacksProbe::attach(self.frequency).inspect_err(|error| refused(PROFILE, error)).ok();
        self.pressure.iter().for_each(Background::begin);
        self.threads.iter().for_each(Background::begin);
        let counter = self.counter.and_then(|mut counter| {
            let begun = counter.begin().inspect_err(|error| refused(INTERRUPTS, error));
            begun.is_ok().then_some(counter)
        });
        let cpus = CpuProbe::attach(Path::new("/"));
        self.pressure.iter().for_each(Background::begun);
        self.threads.iter().for_each(Background::begun);
        Probes { sampler, counter, pressure: self.pressure, threads: self.threads, cpus, missing }
    }
}

impl Probes {
    /// Advances the cost slices; call it several times a second.
    pub fn tick(&mut self) {
        if let Some(counter) = &mut self.counter {
            counter.tick();
        }
    }

    /// Closes the intervals of all probes. [`StoppedProbes::detach`] takes longer, and its time is in no interval.
    pub fn end(mut self) -> StoppedProbes {
        let mut missing = self.missing;
        self.threads.iter().for_each(Background::end);
        self.pressure.iter().for_each(Background::end);
        self.sampler.iter_mut().for_each(StacksProbe::end);
        let cpu = self.cpus.finish();
        let counts = self.counter.as_mut().map(InterruptProbe::end).transpose();
        let counts = counts.map_err(|error| missing.push(INTERRUPTS.refused(&error))).ok().flatten();
        StoppedProbes {
            sampler: self.sampler,
            profile: None,
            counts: self.counter.as_ref().map(|counter| counter.start().clone()).zip(counts),
            counter: self.counter,
            pressure: self.pressure,
            threads: self.threads,
            cpu: cpu::summarize(&cpu),
            missing,
        }
    }
}

impl StoppedProbes {
    /// Detaches everything.
    pub fn detach(&mut self) {
        if let Some(sampler) = self.sampler.take() {
            let profile = sampler.finish();
            self.profile = profile.map_err(|error| self.missing.push(PROFILE.refused(&error))).ok();
        }
        self.counter.iter_mut().for_each(InterruptProbe::release);
        self.threads.iter().for_each(Background::stop);
        self.pressure.iter().for_each(Background::stop);
    }

    /// Summarizes the results; losses, cost and missing parts go into the envelope.
    pub fn summarize(
        mut self,
        host: &Host,
        latency: &LatencySummary,
        envelope: &mut Envelope,
    ) -> ProbeSummaries {
        let missing = &mut envelope.missing;
        missing.append(&mut self.missing);
        let interrupts = self.counts.map(|(start, end)| {
            let summary = interrupts::summarize(host, &start, &end).timed_one_of(TIME_EVERY);
            envelope.lost.probes.extend(interrupt_trust::lost(&summary, &start, &end).probes);
            summary
        });
        let (mut costs, mut pagecache_cost) = (Vec::new(), None);
        if let Some(counter) = self.counter {
            missing.extend(counter.missing().iter().cloned());
            let mut cost = counter.cost(latency.ios_per_second());
            // Both probes have a program on block_rq_complete.
            cost.programs.iter_mut().for_each(|one| one.name = format!("interrupts.{}", one.name));
            costs.push(cost);
        }
        missing.extend(self.cpu.missing());
        let profile = self.profile.map(|raw| named(&raw, missing));
        envelope.lost.samples = profile.as_ref().map_or(0, |profile| profile.lost);
        let pressure = self.pressure.and_then(|background| {
            let ended = background.finish();
            ended.inspect_err(|error| missing.extend([LOCKS, PAGECACHE].map(|part| part.refused(error)))).ok()
        });
        let pressure = pressure.map_or_else(PressureSummary::default, |pressure| {
            missing.extend(pressure.missing);
            let lost = pressure.seen.lost();
            envelope.lost.samples += lost.samples;
            envelope.lost.probes.extend(lost.probes);
            let waits = pressure.seen.locks.as_ref().map_or(0, |locks| locks.events.contentions);
            costs.extend(pressure.locks_cost.map(|cost| cost.spread(waits, latency.ios())));
            pagecache_cost = pressure.pagecache_cost;
            pressure.seen
        });
        let threads = self.threads.and_then(|background| {
            let ended = background.finish();
            ended.inspect_err(|error| missing.push(THREADS.refused(error))).ok()
        });
        let threads = threads.map(|threads| {
            missing.extend(threads.missing);
            let lost = trust::lost(&threads.seen);
            envelope.lost.samples += lost.samples;
            envelope.lost.probes.extend(lost.probes);
            envelope.cost.map_bytes += threads.cost.map_bytes;
            envelope.cost.programs.extend(threads.cost.programs);
            threads.seen
        });
        for cost in costs {
            envelope.cost = std::mem::take(&mut envelope.cost).plus(cost);
        }
        if let Some(cost) = pagecache_cost {
            let (cost, known) = std::mem::take(&mut envelope.cost).beside(cost);
            envelope.cost = cost;
            // If both were measured, the probes' thread has not reported it missing either.
            missing.retain(|gap| gap.part != pressure::unmeasured().part);
            missing.extend((!known).then(pressure::unmeasured));
        }
        // A gap that several probes share, such as the kernel's symbols, is listed once.
        let mut told: Vec<Missing> = Vec::new();
        missing.retain(|gap| {
            let is_new = !told.contains(gap);
            told.extend(is_new.then(|| gap.clone()));
            is_new
        });
        ProbeSummaries { interrupts, profile, cpu: self.cpu, pressure, threads }
    }
}

impl Pressure {
    fn start(host: &Host, options: &Options) -> Result<Background<Self>> {
        let (here, there) = (host.clone(), host.clone());
        let (devices, cost, filter) = (options.devices.clone(), options.cost, options.filter.clone());
        let of_devices = devices.clone();
        let prepare = move || {
            let locks = probe::locks::Options {
                filter: filter.clone(),
                max_cost: MAX_COST,
                room: probe::locks::ROOM,
                waiters: false,
                spin: true,
                cost,
                no_events: false,
            };
            let pagecache = probe::pagecache::Options { devices, functions: false, cost };
            pressure::Probes::prepare(&here, &locks, &pagecache)
        };
        let summarize = move |probes: &pressure::Probes, from: &pressure::Reading, to: &pressure::Reading| {
            let seen = pressure::PressureSymbolizer::new(&there, &of_devices, false).whole(from, to);
            let (locks_cost, pagecache_cost) = probes.costs(&seen);
            Self { missing: probes.missing(&seen), locks_cost, pagecache_cost, seen }
        };
        Background::start(prepare, summarize)
    }
}

impl ThreadsResult {
    fn start(host: &Host, options: &Options) -> Result<Background<Self>> {
        let host = host.clone();
        let cost = options.cost;
        let root = Path::new("/");
        let prepare =
            move || ThreadProbe::prepare(root, probe::threads::Options { cost, ..Default::default() });
        let summarize =
            move |probe: &ThreadProbe, _: &wire::threads::Reading, to: &wire::threads::Reading| {
                let (seen, unnamed) =
                    threads::ThreadSymbolizer::new(&host, root).summary(probe, &to.window, &COLUMNS);
                Self { seen, cost: probe.programs(), missing: [probe.missing(), &unnamed].concat() }
            };
        Background::start(prepare, summarize)
    }
}

fn named(raw: &RawProfile, missing: &mut Vec<Missing>) -> ProfileSummary {
    let names = Symbolizer::new(Helper::own()).names(&stacks::addresses(raw));
    missing.extend(names.missing.iter().cloned());
    stacks::summarize(raw, &names)
}
