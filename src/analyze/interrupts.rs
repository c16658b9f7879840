//! Counts interrupts by queue and CPU, and how many I/Os each one completed.

pub mod posted;
#[cfg(test)]
mod tests;
pub mod trust;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::posted::PostedMsi;
use super::counting::{Bracket, kernel_interrupts, kernel_ios};
use crate::envelope::View;
use crate::hist::{Histogram, counts};
use crate::host::counters::Counters;
use crate::host::interrupts::Interrupts;
use crate::host::nvme::identity::Coalescing;
use crate::host::{BlockDevice, Host, Vector};
use crate::merge::{
    Merge, SaturatingSum as _, Summary, merge, merge_fields, row, sum_if_known, weighted_known,
};
use crate::names::names;
use crate::wire::Count as _;
use crate::wire::interrupts::{
    COUNTED_NONE, DeviceSample, InterruptSource, NAME_EVERY, QUEUE_BY_NAME, QUEUE_BY_REAP, QUEUE_POLLED,
    Reading, SoftirqSample, VectorSample, WireCompletions,
};

/// The window between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InterruptSummary {
    pub duration_ns: u64,
    /// One of this many interrupts was timed.
    pub timed_one_of: u32,
    /// By number.
    pub vectors: Vec<VectorSummary>,
    pub polled: Vec<PollSummary>,
    pub softirq: Softirq,
    pub ipi: Ipi,
    /// None where none was notified.
    #[serde(rename = "posted_msi")]
    pub posted: Option<PostedMsi>,
    /// The one with the most I/Os first.
    pub devices: Vec<DeviceInterrupts>,
    /// Tasks that interrupts came into, the most frequent first: a sample of the timed ones.
    #[serde(rename = "interrupted_tasks")]
    pub tasks: Vec<Task>,
    /// One of this many timed interrupts of tasks is in the list.
    #[serde(rename = "interrupted_tasks_one_of")]
    pub tasks_one_of: u32,
}

impl View for InterruptSummary {
    const SCHEMA: &'static str = "biopsy.interrupts/1";
    const HAS_DURATION: bool = true;
}

merge_fields!(InterruptSummary {
    first: timed_one_of tasks_one_of;
    add: duration_ns softirq ipi posted;
    rows: vectors polled devices tasks;
});

impl Merge for InterruptSummary {
    fn merge_with(&mut self, later: &Self) {
        // The samples behind the estimates are gone, so each estimate is weighted by its time.
        let known = |softirq: &Softirq, percent: Option<f64>| percent.or((softirq.runs == 0).then_some(0.0));
        let (ns, later_ns) = (self.duration_ns, later.duration_ns);
        let together = |mine: Option<f64>, theirs: Option<f64>| {
            weighted_known(known(&self.softirq, mine), ns, known(&later.softirq, theirs), later_ns)
        };
        let cpu_percent = together(self.softirq.cpu_percent, later.softirq.cpu_percent);
        let by_name = |all: &Self| -> BTreeMap<String, Option<f64>> {
            // Of equal names the first counts.
            all.devices.iter().rev().map(|device| (device.name.clone(), device.soft_percent)).collect()
        };
        let (mine, theirs) = (by_name(self), by_name(later));
        let of = |all: &BTreeMap<String, Option<f64>>, name: &str| all.get(name).copied().flatten();
        let names = self.devices.iter().chain(&later.devices).map(|device| &device.name);
        let soft: BTreeMap<String, Option<f64>> =
            names.map(|name| (name.clone(), together(of(&mine, name), of(&theirs, name)))).collect();
        self.merge_fields(later);
        self.softirq.cpu_percent = cpu_percent.filter(|_| self.softirq.runs > 0);
        for device in &mut self.devices {
            device.soft_percent = soft.get(&device.name).copied().flatten().filter(|_| self.softirq.runs > 0);
        }
    }
}

impl Summary for InterruptSummary {
    fn settle(&mut self) {
        let (ns, ios, seconds) = (self.duration_ns, self.ios(), self.seconds());
        self.vectors =
            std::mem::take(&mut self.vectors).into_iter().map(|vector| vector.derived(ns)).collect();
        self.vectors.sort_by_key(|vector| vector.irq);
        for vector in &mut self.vectors {
            vector.by_cpu.sort_by_key(|of| of.cpu);
        }
        let vectors = &self.vectors;
        self.devices.iter_mut().for_each(|device| device.derive(vectors));
        sort(&mut self.devices, &mut self.tasks);
        self.posted =
            self.posted.and_then(|posted| PostedMsi::new(posted.notifications, posted.msis, ios, seconds));
    }

    /// Nothing to prefix: vectors and CPUs are numbers of a whole machine.
    fn name_host(&mut self, _: &str) {}

    fn window(&mut self) -> Option<&mut u64> {
        None
    }
}

merge!(Task { first: comm; add: samples; });
row!(Task, String, |task| task.comm.clone());
merge!(Ipi { add: completions; });
merge_fields!(VectorSummary {
    first: irq name device devices queue qid queue_known_by;
    last: cpus allowed;
    add: interrupts unhandled threaded carried handler apart interrupted;
    both: kernel;
    rows: by_cpu;
    derived: per_second cpu_percent;
});

impl Merge for VectorSummary {
    fn merge_with(&mut self, later: &Self) {
        // The driver's pointer is known from the first completion on.
        if self.queue_known_by != Some(KnownBy::Pointer) && later.queue.is_some() {
            self.queue = later.queue;
            self.queue_known_by = later.queue_known_by;
        }
        self.merge_fields(later);
    }
}

row!(VectorSummary, u32, |vector| vector.irq);
merge!(CpuInterrupts { first: cpu; add: interrupts; });
row!(CpuInterrupts, u32, |of| of.cpu);
merge!(InterruptedContexts { add: idle kernel user; });
merge!(CompletionCounts { add: completions empty per_interrupt; });
merge!(PollSummary { first: device devices queue; add: polls completions per_poll; });
row!(PollSummary, (Option<String>, u32), |polled| (polled.device.clone(), polled.queue));
// Figures derived from samples are weighted by the caller, which knows the interval's length.
merge_fields!(Softirq { first: mean_ns cpu_percent; add: runs deferred completions; });

impl Merge for Softirq {
    fn merge_with(&mut self, later: &Self) {
        let mean_ns = weighted_known(self.mean_ns, self.runs, later.mean_ns, later.runs);
        self.merge_fields(later);
        self.mean_ns = mean_ns;
    }
}

merge!(DeviceInterrupts {
    first: name shares_vectors_with;
    last: coalescing;
    any: vanished;
    add: ios passthrough completed elsewhere;
    both: kernel_ios;
    derived: interrupts ios_per_interrupt hard_percent soft_percent busiest;
});
row!(DeviceInterrupts, String, |device| device.name.clone());
merge!(CompletionContexts { add: interrupt softirq remote_softirq task; });

/// A task that interrupts came into.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Task {
    /// Written by strangers.
    pub comm: String,
    pub samples: u64,
}

/// I/Os that another CPU completed after an IPI.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ipi {
    pub completions: u64,
}

/// One vector.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VectorSummary {
    pub irq: u32,
    /// What the driver called it.
    pub name: Option<String>,
    /// The first of those whose function has it, traced or not: namespaces of one controller share theirs.
    pub device: Option<String>,
    pub devices: Vec<String>,
    /// Hardware queue that it serves; None of admin and configuration vectors.
    pub queue: Option<u32>,
    pub qid: Option<u32>,
    /// None without a queue.
    pub queue_known_by: Option<KnownBy>,
    /// Where the interrupt controller delivers it, and where it may.
    pub cpus: Vec<u32>,
    #[serde(rename = "allowed_cpus")]
    pub allowed: Vec<u32>,
    pub interrupts: u64,
    /// None: no time passed.
    pub per_second: Option<f64>,
    /// The kernel's own count; None where it cannot be told.
    #[serde(flatten, with = "kernel_interrupts")]
    #[schemars(with = "kernel_interrupts::Form")]
    pub kernel: Option<Bracket>,
    /// By CPU that it came to; those without any are left out.
    pub by_cpu: Vec<CpuInterrupts>,
    /// The handler said that it was not its own.
    pub unhandled: u64,
    /// The handler left the work to its thread.
    pub threaded: u64,
    /// What they carried; None where the driver says neither by pointer nor by name what it serves.
    #[serde(flatten)]
    pub carried: Option<CompletionCounts>,
    /// Time of the handler, of a sample, ns.
    pub handler: Histogram,
    /// From an interrupt to the next one of this vector, of a sample, ns.
    pub apart: Histogram,
    /// Time in its handler, of one CPU; estimated from the sample. None without one.
    pub cpu_percent: Option<f64>,
    /// What those of the sample came into.
    pub interrupted: InterruptedContexts,
}

names! {
    /// Whether the queue of a vector is known by the driver's own pointer.
    pub enum KnownBy {
        Pointer = "pointer",
        Name = "name",
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuInterrupts {
    pub cpu: u32,
    pub interrupts: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InterruptedContexts {
    pub idle: u64,
    pub kernel: u64,
    pub user: u64,
}

impl VectorSummary {
    /// Computes the derived fields.
    pub fn derived(mut self, duration_ns: u64) -> Self {
        let mean = self.handler.mean().filter(|_| duration_ns > 0);
        self.cpu_percent = mean.map(|mean| 100.0 * mean * self.interrupts as f64 / duration_ns as f64);
        self.per_second = (duration_ns > 0).then(|| self.interrupts as f64 / (duration_ns as f64 / 1e9));
        self.device = self.devices.first().cloned();
        self
    }
}

/// Completion entries of a vector's interrupts, or of a queue's polls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompletionCounts {
    pub completions: u64,
    /// Interrupts that brought none. Where a softirq completes what an interrupt announces, one that comes before
    /// that softirq has run takes over what both bring: then those are counted that the handler said were not its own.
    pub empty: u64,
    /// Of each interrupt, up to the next one of the vector.
    #[serde(rename = "completions_per_interrupt", with = "counts")]
    #[schemars(with = "counts::Form")]
    pub per_interrupt: Histogram,
}

impl CompletionCounts {
    fn of(sample: &VectorSample, joined: Attribution) -> Self {
        let nothing = || sample.carried.buckets().find(|(lower, ..)| *lower == 0).map_or(0, |(_, _, n)| n);
        let empty = if joined == Attribution::ByName { sample.unhandled } else { nothing() };
        Self { completions: sample.completions, empty, per_interrupt: sample.carried.clone() }
    }
}

/// One poll queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PollSummary {
    /// The first of these.
    pub device: Option<String>,
    pub devices: Vec<String>,
    pub queue: u32,
    /// Those that found something; others have no event.
    pub polls: u64,
    pub completions: u64,
    #[serde(rename = "completions_per_poll", with = "counts")]
    #[schemars(with = "counts::Form")]
    pub per_poll: Histogram,
}

/// Softirqs of the block layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Softirq {
    pub runs: u64,
    /// Of those by ksoftirqd.
    pub deferred: u64,
    /// Of devices with one queue.
    pub completions: u64,
    /// Estimated from a sample, of one CPU.
    pub cpu_percent: Option<f64>,
    /// Mean of the sample.
    pub mean_ns: Option<f64>,
}

/// One traced device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceInterrupts {
    pub name: String,
    pub ios: u64,
    #[serde(flatten, with = "kernel_ios")]
    #[schemars(with = "kernel_ios::Form")]
    pub kernel_ios: Option<Bracket>,
    /// Passthrough commands, which are in `ios` and in no counter of the kernel's.
    pub passthrough: u64,
    /// Of the vectors of its queues; None without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<u64>,
    /// What its vectors carried, per interrupt: also of devices that share them. Where that is not known, its I/Os
    /// that were not completed by a task.
    pub ios_per_interrupt: Option<f64>,
    pub shares_vectors_with: Vec<String>,
    pub completed: CompletionContexts,
    /// Entries reaped neither by an interrupt of their queue nor by a poll of a poll queue.
    #[serde(rename = "reaped_elsewhere")]
    pub elsewhere: u64,
    /// Hard interrupts, of one CPU; None where none was timed.
    #[serde(rename = "hard_cpu_percent")]
    pub hard_percent: Option<f64>,
    /// Its part of the softirqs by I/Os; None where none was timed.
    #[serde(rename = "soft_cpu_percent")]
    pub soft_percent: Option<f64>,
    pub busiest: Option<Busiest>,
    /// How the drive holds interrupts back to collect completions; None where it was not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    pub vanished: bool,
}

/// Where the I/Os of a device completed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompletionContexts {
    pub interrupt: u64,
    /// Of a device with one queue: which CPU asked for it is not known.
    pub softirq: u64,
    /// Of a device with several queues, by an IPI of another CPU: else its handlers complete by themselves.
    pub remote_softirq: u64,
    /// The rest: in a task that polled, in a handler's thread, in a worker of the driver, or in an interrupt that is
    /// not followed.
    pub task: u64,
}

/// How unevenly a device's interrupts lie on CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Busiest {
    pub cpu: u32,
    /// Of all its interrupts, 0 to 1.
    pub share: f64,
    /// CPUs that its vectors are delivered to.
    pub cpus: u32,
}

impl InterruptSummary {
    pub fn seconds(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    pub fn ios(&self) -> u64 {
        self.devices.iter().map(|device| device.ios).saturating_sum()
    }

    /// Records that one of `timed_one_of` interrupts was timed.
    pub fn timed_one_of(self, timed_one_of: u32) -> Self {
        Self { timed_one_of, tasks_one_of: if timed_one_of > 1 { NAME_EVERY } else { 1 }, ..self }
    }

    /// 0 for an empty interval.
    pub fn ios_per_second(&self) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { self.ios() as f64 / self.seconds() }
    }
}

/// What happened between the two readings.
pub fn summarize(host: &Host, start: &Reading, end: &Reading) -> InterruptSummary {
    let duration_ns = end.at_ns.saturating_sub(start.at_ns);
    let traced: Vec<&BlockDevice> =
        end.devices.iter().filter_map(|device| host.device(&device.name)).collect();
    let mut vectors = Vec::new();
    let mut polled = Vec::new();
    for (place, last) in &end.places {
        let first = start.places.iter().find(|(known, _)| known == place).map(|(_, sample)| sample);
        let delta = first.map_or_else(|| last.clone(), |first| last.since(first));
        match place {
            InterruptSource::Vector(irq) => vectors.push(vector(host, start, end, *irq, &delta)),
            InterruptSource::Poll(number, queue) => polled.push(PollSummary {
                device: sharing(&traced, end, *number).into_iter().next(),
                devices: sharing(&traced, end, *number),
                queue: *queue,
                polls: delta.interrupts,
                completions: delta.completions,
                per_poll: delta.carried,
            }),
        }
    }
    vectors.sort_by_key(|vector| vector.irq);
    let softirqs = softirqs(start, end);
    let mut softirq = softirq(&softirqs, duration_ns);
    let mut devices: Vec<DeviceInterrupts> =
        end.devices.iter().map(|last| device(start, last, &vectors)).collect();
    share(&mut devices, &softirq, softirqs.others);
    for device in &mut devices {
        let identity = host.device(&device.name).and_then(|facts| facts.identity.as_ref());
        device.coalescing = identity.and_then(|identity| identity.coalescing);
    }
    let ios = devices.iter().map(|device| device.ios).saturating_sum();
    let mut tasks: Vec<Task> = end
        .tasks
        .iter()
        .map(|(name, n)| {
            let before = start.tasks.get(name).copied().unwrap_or(0);
            let comm = String::from_utf8_lossy(name).into_owned();
            Task { comm, samples: n.saturating_sub(before) }
        })
        .filter(|task| task.samples > 0)
        .collect();
    sort(&mut devices, &mut tasks);
    let sum = |of: fn(&CompletionContexts) -> u64| {
        devices.iter().map(|device| of(&device.completed)).saturating_sum()
    };
    softirq.completions = sum(|completed| completed.softirq);
    InterruptSummary {
        duration_ns,
        vectors,
        polled,
        softirq,
        ipi: Ipi { completions: sum(|completed| completed.remote_softirq) },
        posted: posted(start, end, ios, duration_ns),
        devices,
        tasks,
        ..InterruptSummary::default()
    }
}

fn sort(devices: &mut [DeviceInterrupts], tasks: &mut [Task]) {
    devices.sort_by(|a, b| b.ios.cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
    tasks.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.comm.cmp(&b.comm)));
}

fn vector(host: &Host, start: &Reading, end: &Reading, irq: u32, delta: &VectorSample) -> VectorSummary {
    let of = |device: &&BlockDevice| device.vectors.iter().any(|vector| vector.irq == irq);
    let owners: Vec<&BlockDevice> = host.devices.iter().filter(of).collect();
    let facts: Vector = owners
        .first()
        .and_then(|device| device.vectors.iter().find(|vector| vector.irq == irq))
        .cloned()
        .unwrap_or_default();
    let queue = delta.queue.or(facts.queue);
    let known_by = if delta.queue.is_some() { KnownBy::Pointer } else { KnownBy::Name };
    let by_cpu = |(cpu, interrupts)| CpuInterrupts { cpu, interrupts };
    VectorSummary {
        irq,
        name: facts.name,
        devices: owners.iter().map(|device| device.name.clone()).collect(),
        queue,
        qid: facts.qid,
        queue_known_by: queue.map(|_| known_by),
        cpus: facts.cpus,
        allowed: facts.allowed,
        interrupts: delta.interrupts,
        kernel: bracket(start, end, |later, earlier| later.total_since(earlier, irq))
            .filter(|_| !were_restarted(start, end, &owners)),
        by_cpu: (0..).zip(delta.by_cpu.iter().copied()).filter(|(_, n)| *n > 0).map(by_cpu).collect(),
        unhandled: delta.unhandled,
        threaded: delta.threaded,
        carried: owners
            .iter()
            .find_map(|device| joined(end, device, irq))
            .map(|by| CompletionCounts::of(delta, by)),
        handler: delta.handler.clone(),
        apart: delta.apart.clone(),
        interrupted: InterruptedContexts {
            idle: delta.interrupted[0],
            kernel: delta.interrupted[1],
            user: delta.interrupted[2],
        },
        ..VectorSummary::default()
    }
    .derived(end.at_ns.saturating_sub(start.at_ns))
}

/// Whether any vector of these drives restarted at zero. A reset restarts all of them, but it does not show on vectors
/// that have counted more since than before.
fn were_restarted(start: &Reading, end: &Reading, drives: &[&BlockDevice]) -> bool {
    let (Some(first), Some(last)) = (&start.kernel_before, &end.kernel_after) else { return false };
    let mut vectors = drives.iter().flat_map(|drive| &drive.vectors);
    vectors.any(|vector| last.restarted_since(first, vector.irq))
}

/// How completions are attributed to a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attribution {
    ByPointer,
    ByName,
}

/// None where they are not attributed.
fn joined(end: &Reading, device: &BlockDevice, irq: u32) -> Option<Attribution> {
    let sample = end.devices.iter().find(|sample| sample.name == device.name)?;
    let is_its = |place: u32| {
        let place = end.places.get(place.saturating_sub(1) as usize);
        place.is_some_and(|(place, _)| *place == InterruptSource::Vector(irq))
    };
    sample.queues.iter().find_map(|queue| match queue.kind {
        QUEUE_BY_REAP | QUEUE_POLLED => Some(Attribution::ByPointer),
        QUEUE_BY_NAME if is_its(queue.place) => Some(Attribution::ByName),
        _ => None,
    })
}

/// The device with this number, and those that share its PCI function.
fn sharing(traced: &[&BlockDevice], end: &Reading, number: u32) -> Vec<String> {
    let Some(sample) = end.devices.get(number as usize) else { return Vec::new() };
    let function = traced.iter().find(|d| d.name == sample.name).and_then(|d| d.pci_address.as_ref());
    let shares = |device: &&&BlockDevice| {
        device.name == sample.name || function.is_some() && device.pci_address.as_ref() == function
    };
    traced.iter().filter(shares).map(|device| device.name.clone()).collect()
}

/// Everything between the inner readings was counted, nothing outside the outer ones.
fn bracket(
    start: &Reading,
    end: &Reading,
    since: impl Fn(&Interrupts, &Interrupts) -> Option<u64>,
) -> Option<Bracket> {
    let (a, b) = (start.kernel_before.as_ref()?, start.kernel_after.as_ref()?);
    let (c, d) = (end.kernel_before.as_ref()?, end.kernel_after.as_ref()?);
    Some(Bracket { min: since(c, b)?, max: since(d, a)? })
}

fn softirqs(start: &Reading, end: &Reading) -> SoftirqSample {
    let mut all = SoftirqSample::default();
    for (cpu, last) in end.softirqs.iter().enumerate() {
        let delta = start.softirqs.get(cpu).map_or(*last, |first| last.since(first));
        all.runs += delta.runs;
        all.deferred += delta.deferred;
        all.timed += delta.timed;
        all.timed_ns += delta.timed_ns;
        all.others += delta.others;
    }
    all
}

fn softirq(all: &SoftirqSample, duration_ns: u64) -> Softirq {
    let mean_ns = (all.timed > 0).then(|| all.timed_ns as f64 / all.timed as f64);
    let percent = |mean: f64| 100.0 * mean * all.runs as f64 / duration_ns as f64;
    Softirq {
        runs: all.runs,
        deferred: all.deferred,
        cpu_percent: mean_ns.filter(|_| duration_ns > 0).map(percent),
        mean_ns,
        ..Softirq::default()
    }
}

/// All I/Os that the kernel counted; None where it does not count, or counted passthrough commands as reads or writes.
fn counted_ios(first: &DeviceSample, last: &DeviceSample, passthrough: u64) -> Option<Bracket> {
    let (a, b) = (first.kernel_before?, first.kernel_after?);
    let (c, d) = (last.kernel_before?, last.kernel_after?);
    let unsure = |of: &Counters| of.iostats == Some(false) || of.passthrough == Some(true) && passthrough > 0;
    if [a, b, c, d].iter().any(unsure) {
        return None;
    }
    let all = |of: &Counters| of.reads + of.writes + of.discards.unwrap_or(0) + of.flushes.unwrap_or(0);
    Some(Bracket { min: all(&c).saturating_sub(all(&b)), max: all(&d).saturating_sub(all(&a)) })
}

fn device(start: &Reading, last: &DeviceSample, vectors: &[VectorSummary]) -> DeviceInterrupts {
    let first = start.devices.iter().find(|device| device.name == last.name);
    let mut sum = WireCompletions::default();
    for (cpu, row) in last.by_cpu.iter().enumerate() {
        let then = first.and_then(|device| device.by_cpu.get(cpu)).copied().unwrap_or_default();
        for (op, n) in row.ios.iter().enumerate() {
            sum.ios[op] += n.saturating_sub(then.ios[op]);
        }
        for (context, n) in row.contexts.iter().enumerate() {
            sum.contexts[context] += n.saturating_sub(then.contexts[context]);
        }
    }
    let ios: u64 = sum.ios.iter().saturating_sum();
    let passthrough = sum.ios[COUNTED_NONE];
    let elsewhere = |of: &DeviceSample| of.queues.iter().map(|queue| queue.elsewhere).saturating_sum();
    let in_task = ios.saturating_sub(sum.contexts.iter().saturating_sum());
    let mut device = DeviceInterrupts {
        name: last.name.clone(),
        ios,
        kernel_ios: first.and_then(|first| counted_ios(first, last, passthrough)),
        passthrough,
        completed: CompletionContexts {
            interrupt: sum.contexts[0],
            softirq: sum.contexts[1],
            remote_softirq: sum.contexts[2],
            task: in_task,
        },
        elsewhere: elsewhere(last).saturating_sub(first.map_or(0, elsewhere)),
        vanished: last.vanished,
        ..DeviceInterrupts::default()
    };
    device.derive(vectors);
    device
}

impl DeviceInterrupts {
    /// Computes what follows from the vectors of all devices.
    fn derive(&mut self, vectors: &[VectorSummary]) {
        let mine = || vectors.iter().filter(|vector| vector.devices.contains(&self.name));
        let by_queue = mine().any(|vector| vector.queue.is_some());
        // Where queues have their own vectors, the others belong to the admin queue or to configuration changes.
        let of_queues: Vec<&VectorSummary> =
            mine().filter(|vector| vector.queue.is_some() || !by_queue).collect();
        let interrupts: u64 = of_queues.iter().map(|vector| vector.interrupts).saturating_sum();
        // A busy vector without a timed interrupt makes the sum unknown.
        let busy = of_queues.iter().filter(|vector| vector.interrupts > 0);
        let hard_percent: Option<f64> = busy.map(|vector| vector.cpu_percent).sum();
        let mut others: Vec<String> = mine().flat_map(|vector| vector.devices.clone()).collect();
        others.sort();
        others.dedup();
        others.retain(|name| *name != self.name);
        self.interrupts = (!of_queues.is_empty()).then_some(interrupts);
        self.ios_per_interrupt = per_interrupt(&of_queues, interrupts, self.ios, self.completed.task);
        self.hard_percent = hard_percent.filter(|_| interrupts > 0);
        self.busiest = busiest(&of_queues, interrupts);
        self.shares_vectors_with = others;
    }
}

fn busiest(vectors: &[&VectorSummary], interrupts: u64) -> Option<Busiest> {
    let mut by_cpu: BTreeMap<u32, u64> = BTreeMap::new();
    for of in vectors.iter().flat_map(|vector| &vector.by_cpu) {
        let all = by_cpu.entry(of.cpu).or_default();
        *all = all.saturating_add(of.interrupts);
    }
    let (cpu, most) = by_cpu.iter().max_by_key(|(cpu, n)| (**n, std::cmp::Reverse(**cpu)))?;
    let mut reached: Vec<u32> =
        vectors.iter().flat_map(|vector| vector.cpus.iter().copied()).chain(by_cpu.keys().copied()).collect();
    reached.sort_unstable();
    reached.dedup();
    (interrupts > 0).then(|| Busiest {
        cpu: *cpu,
        share: *most as f64 / interrupts as f64,
        cpus: reached.len() as u32,
    })
}

/// Divides the softirq time among the devices by completions; `others` are completions of disks that are not traced.
fn share(devices: &mut [DeviceInterrupts], softirq: &Softirq, others: u64) {
    let in_softirqs = |device: &DeviceInterrupts| device.completed.softirq + device.completed.remote_softirq;
    let all = devices.iter().map(in_softirqs).sum::<u64>() + others;
    for device in devices {
        let mine = in_softirqs(device) as f64;
        device.soft_percent =
            softirq.cpu_percent.filter(|_| all > 0).map(|percent| percent * mine / all as f64);
    }
}

/// Completions per interrupt on the vectors of a device's queues.
fn per_interrupt(vectors: &[&VectorSummary], interrupts: u64, ios: u64, in_task: u64) -> Option<f64> {
    let carried: Option<u64> =
        sum_if_known(vectors.iter().map(|vector| vector.carried.as_ref().map(|carried| carried.completions)));
    let brought = carried.unwrap_or(ios.saturating_sub(in_task));
    (interrupts > 0).then(|| brought as f64 / interrupts as f64)
}

fn posted(start: &Reading, end: &Reading, ios: u64, duration_ns: u64) -> Option<PostedMsi> {
    let (first, last) = (start.kernel_after.as_ref()?, end.kernel_before.as_ref()?);
    let notifications = last.named_since(first, "PMN")?;
    PostedMsi::new(notifications, last.messages_since(first), ios, duration_ns as f64 / 1e9)
}
