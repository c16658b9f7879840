//! Measures interrupts: attaches `bpf/interrupts.bpf.c`, reads what it counted, detaches.

mod places;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use zerocopy::IntoBytes;

use self::places::Places;
use super::Probe;
use super::btf::{EventHome, KernelBtf};
use super::cost::{CostMeter, MeteredProgram, metered};
use super::libbpf::{self, refusal};
use super::maps::{array, element, entries};
use super::plan;
use super::skel::interrupts::types::rodata;
use super::skel::interrupts::{InterruptsSkel, InterruptsSkelBuilder, OpenInterruptsSkel};
use super::spec::{self, Here, Program, Reach, Spec, View};
use super::{skel, trial};
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing, Reason};
use crate::host::abilities::ViewState;
use crate::host::counters::Counters;
use crate::host::interrupts::Interrupts;
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::refusal::Refusal;
use crate::wire::Record;
use crate::wire::interrupts::{
    DeviceSample, InterruptSource, Reading, WireCompletions, WireQueue, WireSoftirq, WireVector,
};

/// Time between opening or closing the interval and reading the kernel's counters: handlers that were running have
/// returned by then.
const SETTLE: Duration = Duration::from_millis(2);

/// The programs that run at every interrupt of the machine.
const PER_INTERRUPT: [&str; 2] = ["irq_entry", "irq_exit"];

/// By default, one in this many interrupts is timed. A timed one costs three clock reads, and at 10,000 interrupts a
/// second there are 300 of them.
pub const TIME_EVERY: u32 = 32;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of disks; empty: every disk in use.
    pub devices: Vec<String>,
    /// One in this many interrupts is timed, on average; at least 1.
    pub time_every: u32,
    /// Measure the probe's cost with the kernel's program statistics.
    pub cost: bool,
}

/// The attached probe. Dropping it detaches everything.
pub struct InterruptProbe {
    skel: InterruptsSkel<'static>,
    links: Vec<Link>,
    /// Whether the event is typed or raw; None: there is no event.
    nvme: Option<Reap>,
    places: Places,
    names: Vec<String>,
    counts_passthrough: bool,
    cpus: u32,
    root: PathBuf,
    meter: Option<CostMeter>,
    missing: Vec<Missing>,
    start: Reading,
}

/// The kind of program at the event with which the NVMe driver reaps an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reap {
    Typed,
    Raw,
}

/// Chooses the raw tracepoint if the event's types are unavailable: in 5.10 a module has none, and only root may read
/// them.
fn reap(btf: &KernelBtf, rights: &Rights) -> Option<Reap> {
    match btf.event("nvme_sq", Some("nvme_core")) {
        EventHome::Vmlinux => Some(Reap::Typed),
        EventHome::Module(_) if rights.sys_admin => Some(Reap::Typed),
        EventHome::Module(_) | EventHome::Untyped(_) => Some(Reap::Raw),
        EventHome::NotLoaded(_) | EventHome::Absent => None,
    }
}

impl InterruptProbe {
    /// Loads and attaches. `root` is the root of sysfs and procfs: `/` for this machine.
    ///
    /// Refused when rights, BTF or a device are missing.
    pub fn attach(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        let mut probe = Self::prepare(host, root, options)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but nothing is counted before [`Self::begin`].
    pub fn prepare(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        SPEC.permit(root)?;
        let (devices, left_out) = chosen(host, &options.devices)?;
        let btf = KernelBtf::read()?;
        let nvme = reap(&btf, &Rights::read(root));
        let places = Places::new(&devices, nvme.is_some());
        let mut missing = plan::left_out(left_out);
        missing.extend(missing_vectors(&devices, nvme.is_some()));
        missing.push(Missing {
            part: Some("notification".to_string()),
            reason: Reason::NoEvent,
            why: "handler times exclude interrupts between CPUs (IPI), interrupt entry and exit, and \
                posted-MSI notifications: these have no events"
                .to_string(),
            ..Missing::default()
        });
        let meter = if options.cost { CostMeter::new() } else { None };
        if options.cost && meter.is_none() {
            missing.push(super::cost::missing());
        }
        let skel = load(&places, host, &btf, nvme, options)?;
        let mut probe = Self {
            skel,
            links: Vec::new(),
            nvme,
            places,
            names: devices.iter().map(|device| device.name.clone()).collect(),
            counts_passthrough: btf.counts_passthrough(),
            cpus: host.cpus_possible.max(1),
            root: root.to_path_buf(),
            meter,
            missing,
            start: Reading::default(),
        };
        probe.attach_programs().map_err(|error| refusal("attaching the probes", &error))?;
        Ok(probe)
    }

    fn attach_programs(&mut self) -> libbpf_rs::Result<()> {
        let programs = &self.skel.progs;
        // Ends are attached first: the start of a handler that is running now is not recorded.
        self.links.push(programs.irq_exit.attach()?);
        self.links.push(programs.softirq_end.attach()?);
        self.links.push(programs.rq_complete.attach()?);
        match self.nvme {
            Some(Reap::Typed) => self.links.push(programs.nvme_sq.attach()?),
            Some(Reap::Raw) => self.links.push(programs.nvme_sq_raw.attach()?),
            None => {}
        }
        self.links.push(programs.softirq_begin.attach()?);
        self.links.push(programs.irq_entry.attach()?);
        Ok(())
    }

    /// Opens or closes the interval for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        Ok(())
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Detaches after [`Self::end`]; separate because it takes longer than ending.
    pub fn release(&mut self) {
        self.links.clear();
    }

    /// Closes the interval and reads its end; the programs stay attached.
    pub fn end(&mut self) -> Result<Reading> {
        if let Some(mut meter) = self.meter.take() {
            meter.end(&self.metered(), &|| self.completed());
            self.meter = Some(meter);
        }
        let before = self.kernel();
        let end_ns = now_ns();
        self.run(false)?;
        let missed = self.missed();
        std::thread::sleep(SETTLE);
        let mut reading = self.reading(before, true)?;
        reading.at_ns = end_ns;
        reading.missed = missed;
        Ok(reading)
    }

    /// The cost of the probes so far, for an interval with this many I/Os per second.
    pub fn cost(&self, ios_per_second: f64) -> Cost {
        let bytes = libbpf::map_bytes(self.skel.object());
        let mut cost = self
            .meter
            .as_ref()
            .map_or_else(|| Cost { map_bytes: bytes, ..Cost::default() }, |m| m.cost(bytes, ios_per_second));
        // Without a vector the programs return at once.
        let vectors = self.places.numbers().next();
        cost.ns_per_interrupt = vectors.and_then(|_| cost.net_per_run(&PER_INTERRUPT));
        cost
    }

    fn kernel(&self) -> (Option<Interrupts>, Vec<Option<Counters>>) {
        let counters =
            self.names.iter().map(|name| plan::counters(&self.root, name, self.counts_passthrough)).collect();
        (Interrupts::read(&self.root).ok(), counters)
    }

    fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let programs = &self.skel.progs;
        let mut all = vec![
            metered("irq_entry", &programs.irq_entry),
            metered("irq_exit", &programs.irq_exit),
            metered("softirq_begin", &programs.softirq_begin),
            metered("softirq_end", &programs.softirq_end),
            metered("rq_complete", &programs.rq_complete),
        ];
        all.extend(self.nvme.map(|reap| match reap {
            Reap::Typed => metered("nvme_sq", &programs.nvme_sq),
            Reap::Raw => metered("nvme_sq", &programs.nvme_sq_raw),
        }));
        all
    }

    /// Runs that the kernel skipped, by program.
    fn missed(&self) -> BTreeMap<&'static str, u64> {
        let of = |program: &MeteredProgram<'_>| {
            libbpf::program_stats(&program.fd).ok().map(|stats| (program.name, stats.recursion_misses))
        };
        let unlearned = self.skel.maps.bss_data.as_ref().map(|bss| ("unlearned", bss.unlearned));
        self.metered().iter().filter_map(of).chain(unlearned).collect()
    }

    /// I/Os counted so far, over all devices.
    fn completed(&self) -> u64 {
        let all =
            (0..self.names.len() as u32).flat_map(|device| self.completions_of(device).unwrap_or_default());
        all.map(|row| row.ios.iter().sum::<u64>()).sum()
    }

    fn completions_of(&self, device: u32) -> Result<Vec<WireCompletions>> {
        let rows = (0..self.cpus).map(|cpu| {
            let bytes = element(&self.skel.maps.completions, device * self.cpus + cpu)?;
            Ok(WireCompletions::decode(&bytes)?)
        });
        rows.collect()
    }

    /// By vector and CPU: interrupts that arrived there before the vector moved away. Read in batches: one call per
    /// element takes a second on a large machine.
    fn moved(&self) -> Result<Vec<u64>> {
        let map = &self.skel.maps.vector_cpus;
        let mut all = vec![0; map.max_entries() as usize];
        array(map, |at, count| {
            if let Some(place) = all.get_mut(at as usize) {
                *place = u64::from_ne_bytes(count.try_into().context("a counter has eight bytes")?);
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn reading(
        &self,
        (interrupts, counters): (Option<Interrupts>, Vec<Option<Counters>>),
        last: bool,
    ) -> Result<Reading> {
        let maps = &self.skel.maps;
        let at_ns = now_ns();
        // Before the rows: a vector that moves in between must not be counted twice.
        let moved = self.moved()?;
        let place = |((at, place), moved): ((u32, &InterruptSource), &[u64])| {
            Ok((*place, WireVector::decode(&element(&maps.vectors, at)?, moved.to_vec(), last)?))
        };
        let by_place = moved.chunks(self.cpus as usize);
        let places = (0..).zip(&self.places.all).zip(by_place).map(place).collect::<Result<_>>()?;
        let softirq = |cpu| Ok(WireSoftirq::decode(&element(&maps.softirqs, cpu)?)?);
        let softirqs = (0..self.cpus).map(softirq).collect::<Result<_>>()?;
        let queue = |at| Ok(WireQueue::decode(&element(&maps.queues, at)?)?);
        let mut devices = Vec::with_capacity(self.names.len());
        for ((number, name), kernel_before) in (0u32..).zip(&self.names).zip(counters) {
            let wire = self.places.devices[number as usize];
            devices.push(DeviceSample {
                name: name.clone(),
                queues: (wire.slot_base..wire.slot_base + wire.hw_queues)
                    .map(queue)
                    .collect::<Result<_>>()?,
                by_cpu: self.completions_of(number)?,
                kernel_before,
                kernel_after: None,
                // All of them existed when the host was read.
                vanished: !self.root.join("sys/block").join(name).exists(),
            });
        }
        let mut tasks = BTreeMap::new();
        // An entry may be missing briefly while another CPU writes it.
        for (key, count) in entries(&maps.interrupted_tasks)? {
            let count = u64::from_ne_bytes(count.as_slice().try_into().context("a counter has eight bytes")?);
            *tasks.entry(crate::wire::task_name(&key).to_vec()).or_default() += count;
        }
        let unnamed = maps.bss_data.as_ref().map_or(0, |bss| bss.unnamed_tasks);
        let (kernel_after, after) = self.kernel();
        for (device, after) in devices.iter_mut().zip(after) {
            device.kernel_after = after;
        }
        Ok(Reading {
            at_ns,
            places,
            devices,
            softirqs,
            tasks,
            unnamed,
            missed: self.missed(),
            kernel_before: interrupts,
            kernel_after,
        })
    }
}

impl Probe for InterruptProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        let before = self.kernel();
        if before.0.is_none() && self.places.numbers().next().is_some() {
            self.missing.push(Missing {
                part: Some("check".to_string()),
                reason: Reason::NotReadable,
                why: "/proc/interrupts cannot be read, so the interrupts were not checked against the \
                    kernel's counts"
                    .to_string(),
                ..Missing::default()
            });
        }
        self.start = self.reading(before, false)?;
        self.start.at_ns = now_ns();
        self.run(true)?;
        std::thread::sleep(SETTLE);
        let (interrupts, counters) = self.kernel();
        self.start.kernel_after = interrupts;
        for (device, after) in self.start.devices.iter_mut().zip(counters) {
            device.kernel_after = after;
        }
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        let Some(mut meter) = self.meter.take() else { return };
        if Instant::now() >= meter.due() {
            meter.tick(&self.metered(), &|| self.completed());
        }
        self.meter = Some(meter);
    }

    fn read(&self) -> Result<Reading> {
        let before = self.kernel();
        self.reading(before, false)
    }

    fn detach(&mut self) -> Result<Reading> {
        let reading = self.end();
        self.release();
        reading
    }
}

/// The selected disks that have requests, or all of them; and how many were left out.
fn chosen<'a>(host: &'a Host, names: &[String]) -> Result<(Vec<&'a BlockDevice>, usize)> {
    let (devices, left_out) = if names.is_empty() {
        plan::in_use(&host.devices)
    } else {
        (host.devices.iter().filter(|d| d.request_based && names.contains(&d.name)).collect(), 0)
    };
    if devices.is_empty() {
        let what = "none of the block devices has requests of its own, so no interrupt completes any: name \
            others, `biopsy devices` lists them";
        return Err(Refusal::Refused(what.to_string()).into());
    }
    plan::few_enough(devices.len())?;
    Ok((devices, left_out))
}

/// Gaps for devices whose interrupts cannot be observed.
fn missing_vectors(devices: &[&BlockDevice], sees_reaps: bool) -> Vec<Missing> {
    let mut missing = Vec::new();
    for device in devices {
        let named = device.vectors.iter().any(|vector| vector.queue.is_some()) || device.vectors.len() == 1;
        let joined = named || device.is_nvme() && sees_reaps;
        let (reason, why) = if device.vectors.is_empty() {
            (
                Reason::NoVector,
                format!(
                    "{} has no interrupt vector of its own: its driver completes I/Os in another way",
                    device.name
                ),
            )
        } else if !joined {
            let why = format!(
                "completions are counted per device, not per vector: the driver of {} does not identify \
                 the queue of a vector, neither by pointer nor by name",
                device.name
            );
            (Reason::NotJoined, why)
        } else {
            continue;
        };
        missing.push(Missing {
            device: Some(device.name.clone()),
            part: Some("completions per interrupt".to_string()),
            reason,
            why,
            ..Missing::default()
        });
    }
    missing
}

pub const SPEC: Spec = Spec {
    programs: &[PROGRAMS],
    not_by_file: Some("with a BTF file the kernel types no arguments, so interrupts cannot be measured"),
    try_load: |names, _| trial::load(InterruptsSkelBuilder::default().open(libbpf::object_place())?, names),
    configure,
    ..Spec::of(&[skel::INTERRUPTS])
};

pub const VIEW: View = View { name: "interrupts", state: view };

fn view(here: &Here<'_>) -> ViewState {
    let is_needed = |name: &str| name == "rq_complete" || PROGRAMS.iter().any(|known| known.name == name);
    match here.lacks(is_needed) {
        Some(program) => spec::without(program),
        None if here.traced().next().is_none() => spec::without_disks(),
        None => ViewState::ok(),
    }
}

/// Completions are counted at events of `latency`.
pub const PROGRAMS: &[Program] = &[
    Program::optional("irq_entry", "irq_handler_entry", "interrupts are not counted"),
    Program::optional("irq_exit", "irq_handler_exit", "no handler times"),
    Program::optional("softirq_begin", "softirq_entry", "no softirqs of the block layer"),
    Program::optional("softirq_end", "softirq_exit", "no softirqs of the block layer"),
];

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    libbpf::with_constants(object, |constants: &mut rodata| {
        let config = &mut constants.config;
        config.devices = 1;
        config.cpus = 2;
        config.time_every = 8;
        config.rqf_flush_seq = btf.rqf_flush_seq();
        config.nested_runs = (!btf.skips_nested_runs()).into();
    })
}

fn load(
    places: &Places,
    host: &Host,
    btf: &KernelBtf,
    nvme: Option<Reap>,
    options: &Options,
) -> Result<InterruptsSkel<'static>> {
    let mut open = InterruptsSkelBuilder::default()
        .open(libbpf::object_place())
        .map_err(|error| refusal("opening the probes", &error))?;
    let cpus = host.cpus_possible.max(1);
    size(&mut open, places, cpus).map_err(|error| refusal("sizing the tables of interrupts", &error))?;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.devices = places.devices.len() as u32;
    config.rqf_flush_seq = btf.rqf_flush_seq();
    config.cpus = cpus;
    config.time_every = options.time_every.max(1);
    config.nested_runs = (!btf.skips_nested_runs()).into();
    open.progs.nvme_sq.set_autoload(nvme == Some(Reap::Typed));
    open.progs.nvme_sq_raw.set_autoload(nvme == Some(Reap::Raw));
    let skel = open.load().map_err(|error| refusal("loading the probes", &error))?;
    let maps = &skel.maps;
    let write = |map: &dyn MapCore, key: u32, value: &[u8]| {
        map.update(&key.to_ne_bytes(), value, MapFlags::ANY)
            .map_err(|error| refusal("writing the tables of interrupts", &error))
    };
    for (at, device) in (0..).zip(&places.devices) {
        write(&maps.devices, at, device.as_bytes())?;
    }
    for (at, queue) in (0..).zip(&places.queues) {
        write(&maps.queues, at, queue.as_bytes())?;
    }
    for (irq, place) in places.numbers() {
        write(&maps.vector_places, irq, &place.to_ne_bytes())?;
    }
    Ok(skel)
}

fn size(open: &mut OpenInterruptsSkel<'_>, places: &Places, cpus: u32) -> libbpf_rs::Result<()> {
    let (all, devices) = (places.all.len().max(1) as u32, places.devices.len() as u32);
    let numbers = places.numbers().map(|(irq, _)| irq + 1).max().unwrap_or(1);
    let maps = &mut open.maps;
    maps.vector_places.set_max_entries(numbers)?;
    maps.vectors.set_max_entries(all)?;
    maps.vector_cpus.set_max_entries(all * cpus)?;
    maps.queues.set_max_entries(places.queues.len().max(1) as u32)?;
    maps.completions.set_max_entries(devices * cpus)?;
    maps.softirqs.set_max_entries(cpus)?;
    maps.frames.set_max_entries(cpus)
}
