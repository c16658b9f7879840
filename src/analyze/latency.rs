//! Where the time of block I/O went, per device, operation and queue.

use std::collections::BTreeMap;

use serde::Serialize;

use super::groups::Groups;
use super::operations::{self, OperationLatency};
use super::parts::{self, Parts};
use crate::envelope::{Lost, Missing};
use crate::hist::Histogram;
use crate::host::counters::Counters;
use crate::host::select::is_head;
use crate::host::{BlockDevice, Host};
use crate::wire::{DeviceSample, Reading, Row};

/// A part of an I/O's life, in the order in which it passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Submit,
    Queue,
    Device,
    Complete,
    Reap,
}

impl Stage {
    pub const ALL: [Self; 5] = [Self::Submit, Self::Queue, Self::Device, Self::Complete, Self::Reap];

    /// The word of the contract, the same in help, tables, JSON and HTML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Complete => "complete",
            Self::Reap => "reap",
        }
    }
}

/// Class of a block-layer request. The order is that of `enum biopsy_op` in `bpf/wire.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Read,
    Write,
    Fua,
    Flush,
    EmptyFlush,
    Discard,
    WriteZeroes,
    Passthrough,
}

impl Op {
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Fua,
        Self::Flush,
        Self::EmptyFlush,
        Self::Discard,
        Self::WriteZeroes,
        Self::Passthrough,
    ];

    /// The word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fua => "fua",
            Self::Flush => "flush",
            Self::EmptyFlush => "empty_flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::Passthrough => "passthrough",
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class; none counts passthrough, or (before 5.18,
    /// and where `queue/iostats_passthrough` says so) one that the class does not tell.
    pub fn kernel_class(self) -> Option<KernelClass> {
        match self {
            Self::Read => Some(KernelClass::Read),
            Self::Write | Self::Fua | Self::EmptyFlush | Self::WriteZeroes => Some(KernelClass::Write),
            Self::Flush => Some(KernelClass::Flush),
            Self::Discard => Some(KernelClass::Discard),
            Self::Passthrough => None,
        }
    }
}

/// A class of the kernel's own I/O counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelClass {
    Read,
    Write,
    Discard,
    Flush,
}

impl KernelClass {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }
}

/// What the kernel's counters allow: `min` between the inner readings, `max` between the outer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bracket {
    pub min: u64,
    pub max: u64,
}

impl Bracket {
    pub fn holds(self, seen: u64) -> bool {
        self.min <= seen && seen <= self.max
    }
}

/// The view of `biopsy latency`. Devices are sorted by I/Os, most first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatencySummary {
    pub duration_ns: u64,
    pub devices: Vec<DeviceLatency>,
    /// Only what some submitters handed in was followed.
    pub filtered: bool,
    /// None: nobody asked for groups.
    pub groups: Option<Groups>,
}

/// Who counts what: which of the kernel's counters an I/O of a device belongs to depends on its driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counting {
    /// The block layer counts requests.
    #[default]
    Requests,
    /// Device mapper counts every bio.
    Dm,
    /// The RAID drivers count bios with data; discards only in some of them.
    Md,
    /// zram counts reads and writes.
    Zram,
    /// A driver whose way of counting is not known.
    Unknown,
}

impl Counting {
    fn of(device: &BlockDevice) -> Self {
        match device.driver.as_deref() {
            _ if device.request_based => Self::Requests,
            Some("dm") => Self::Dm,
            Some("md") => Self::Md,
            Some("zram") => Self::Zram,
            _ => Self::Unknown,
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class on such a device.
    pub fn class(self, op: Op) -> Option<KernelClass> {
        match (self, op) {
            (Self::Requests | Self::Dm, _) => op.kernel_class(),
            (Self::Md, Op::Read | Op::Write | Op::Fua | Op::WriteZeroes) => op.kernel_class(),
            (Self::Zram, Op::Read | Op::Write | Op::Fua) => op.kernel_class(),
            _ => None,
        }
    }

    /// Whether the counters move although `queue/iostats` says 0: zram's always do, and dm's until
    /// 526d1006d4c4, in kernels that count bios when they begin; there the flag of both is 0 from the start.
    fn ignores_the_flag(self, sample: &DeviceSample) -> bool {
        self == Self::Zram || self == Self::Dm && sample.counted_at_start
    }

    fn counts(self, class: KernelClass) -> bool {
        Op::ALL.into_iter().any(|op| self.class(op) == Some(class))
    }
}

/// One block device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceLatency {
    pub name: String,
    /// I/Os (requests; on a bio-based device bios, counted as the kernel counts them) that completed in
    /// the window and are not in `lost`: timed ones and those
    /// that had started before the trace.
    pub ios: u64,
    pub bytes: u64,
    /// I/Os of this device that are lost (seen to complete, without a start).
    pub lost_ios: u64,
    /// Of `ios`: started before the trace, so counted and not timed.
    pub started_before: u64,
    /// Operations of applications that ended; None where they are not followed.
    pub operations: Option<u64>,
    /// With a filter, what the kernel counted of all submitters; None else, and where `kernel` would be.
    pub all_ios: Option<Bracket>,
    /// None: the kernel does not count this device (`iostats` off), its counter was not readable, or a
    /// filter was set, of which it does not know.
    pub kernel: Option<BTreeMap<KernelClass, Bracket>>,
    /// I/Os in flight as the kernel counted them when the probes were attached and detached.
    pub in_flight_start: Option<u64>,
    pub in_flight_end: Option<u64>,
    /// Bios that the block layer cut.
    pub splits: u64,
    /// Bios merged into a request, and requests merged into another.
    pub merges: u64,
    /// Requests that the driver gave back without having started them.
    pub requeues: u64,
    /// Requests that the driver gave back after the device had answered or timed out.
    pub retries: u64,
    /// Stages whose end lay before their begin: makes the run untrustworthy.
    pub negative: u64,
    /// It was there at the start and was gone at the end.
    pub vanished: bool,
    /// Lower devices, nearest first.
    pub layers: Vec<String>,
    /// Nobody named it: it is here as a layer of these.
    pub added_for: Vec<String>,
    /// It has no requests: `bio` stands for the stages.
    pub bio_based: bool,
    pub counting: Counting,
    pub ops: BTreeMap<Op, OpLatency>,
    pub queues: Vec<QueueLatency>,
}

/// One class of I/O on one device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpLatency {
    pub ios: u64,
    pub bytes: u64,
    /// I/Os that were timed and belong to no operation that was followed; None where operations are not
    /// followed.
    pub unowned: Option<u64>,
    /// Per I/O. A stage that cannot be seen has no key.
    pub request_stages: BTreeMap<Stage, Histogram>,
    /// Of a bio-based device: the whole time of each bio.
    pub bio: Option<Histogram>,
    /// Of a device with requests below a bio-based one: how many bios the requests carried, and the sum of
    /// their times from their own entry into the block layer to the end of their request.
    pub bios_ns: Option<(u64, u64)>,
    /// Per operation, of those whose last request was of this class; None where none ended or none
    /// is followed.
    pub operations: Option<OperationLatency>,
    /// Parts of stages, per operation and per I/O; empty where stages were not taken apart.
    pub parts: Parts,
    pub request_parts: Parts,
}

/// What the stages of a class of I/O are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Operation,
    Io,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Io => "I/O",
        }
    }
}

impl OpLatency {
    /// The stages to show first: those of the operations where most I/Os belong to one, else those of
    /// the I/Os.
    pub fn stages(&self) -> (Unit, &BTreeMap<Stage, Histogram>) {
        match &self.operations {
            Some(all) if self.unowned.is_none_or(|n| 2 * n < self.ios) && !all.total.is_empty() => {
                (Unit::Operation, &all.stages)
            }
            _ => (Unit::Io, &self.request_stages),
        }
    }

    /// The parts of [`Self::stages`].
    pub fn parts(&self) -> &Parts {
        match self.stages().0 {
            Unit::Operation => &self.parts,
            Unit::Io => &self.request_parts,
        }
    }

    /// How many of [`Self::stages`]' unit there are.
    pub fn count(&self) -> u64 {
        match (self.stages().0, &self.operations) {
            (Unit::Operation, Some(all)) => all.operations,
            _ => self.ios,
        }
    }
}

/// One hardware queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueLatency {
    /// Number of the hardware context, as in `/sys/block/D/mq/N`.
    pub queue: u32,
    /// NVMe queue id, `queue` + 1.
    pub qid: Option<u32>,
    /// `default`, `read` or `poll`.
    pub kind: String,
    /// CPU list as the kernel prints it.
    pub cpus: String,
    pub ios: u64,
    pub request_stages: BTreeMap<Stage, Histogram>,
}

impl DeviceLatency {
    /// All operations' histograms of one stage together; none where the stage has no key.
    pub fn stage(&self, stage: Stage) -> Option<Histogram> {
        let mut all: Option<Histogram> = None;
        for hist in self.ops.values().filter_map(|op| op.request_stages.get(&stage)) {
            all.get_or_insert_default().merge(hist);
        }
        all
    }

    /// I/Os of the operations that one kernel counter counts.
    pub fn counted(&self, class: KernelClass) -> u64 {
        self.ops.iter().filter(|(op, _)| self.counting.class(**op) == Some(class)).map(|(_, l)| l.ios).sum()
    }

    /// Whether the kernel's counters agree, class by class; None where they cannot be read.
    ///
    /// Lost I/Os have no class, so with losses only the sum can be compared.
    pub fn kernel_check(&self) -> Option<bool> {
        let classes = self.kernel.as_ref()?;
        let total = self.kernel_total()?.holds(self.comparable());
        Some(total && (self.lost_ios > 0 || classes.iter().all(|(class, b)| b.holds(self.counted(*class)))))
    }

    /// I/Os, lost ones included, of the classes that the kernel's counters count: all but passthrough,
    /// on devices with requests.
    pub fn comparable(&self) -> u64 {
        let uncounted = self.ops.iter().filter(|(op, _)| self.counting.class(**op).is_none());
        (self.ios + self.lost_ios).saturating_sub(uncounted.map(|(_, l)| l.ios).sum())
    }

    /// I/Os that the kernel certainly counted in the window and of which no event came at all.
    pub fn uncounted(&self) -> u64 {
        self.kernel_total().map_or(0, |b| b.min.saturating_sub(self.comparable()))
    }

    /// What the kernel counts is of all submitters.
    fn hide_kernel(&mut self) {
        self.all_ios = self.kernel_total();
        self.kernel = None;
        self.in_flight_start = None;
        self.in_flight_end = None;
    }

    /// Sum of the kernel's brackets over its classes.
    pub fn kernel_total(&self) -> Option<Bracket> {
        self.kernel.as_ref().map(|classes| {
            classes
                .values()
                .fold(Bracket::default(), |sum, b| Bracket { min: sum.min + b.min, max: sum.max + b.max })
        })
    }
}

/// The window between two readings.
pub fn summarize(host: &Host, start: &Reading, end: &Reading) -> LatencySummary {
    let mut devices: Vec<DeviceLatency> = end
        .devices
        .iter()
        .map(|last| {
            let first = start.devices.iter().find(|d| d.name == last.name);
            let mut device = device(host, first, last);
            if end.filtered {
                device.hide_kernel();
            }
            device
        })
        .collect();
    devices.sort_by(|a, b| b.ios.cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
    LatencySummary {
        duration_ns: end.at_ns.saturating_sub(start.at_ns),
        devices,
        filtered: end.filtered,
        groups: None,
    }
}

/// What was lost in the window, by kind.
///
/// `ios` holds what completed without stages although it should have them, issues whose completion was
/// never seen, and what only the kernel's counters know of (`uncounted`). Requests that were in flight when the trace began are no loss.
pub fn lost(summary: &LatencySummary, start: &Reading, end: &Reading) -> Lost {
    let mut kinds = BTreeMap::new();
    let mut add = |kind: &str, n: u64| *kinds.entry(kind.to_string()).or_insert(0) += n;
    for last in &end.devices {
        let delta = match start.devices.iter().find(|d| d.name == last.name) {
            Some(first) => last.since(first),
            None => last.clone(),
        };
        add("no_start", delta.each().map(|(_, _, row)| row.no_start).sum());
        add("slot", delta.counters.out_of_range);
        let counting = summary.devices.iter().find(|d| d.name == last.name).map(|d| d.counting);
        add("unseen_completion", unseen(counting.unwrap_or_default(), last, &delta));
        add("no_queue_start", delta.counters.no_queue_start);
        add("started_before", delta.each().map(|(_, _, row)| row.untimed).sum());
    }
    let missed = |reading: &Reading| -> u64 { reading.missed.values().sum() };
    add("missed", missed(end).saturating_sub(missed(start)));
    add("unfollowed_operations", end.unfollowed.saturating_sub(start.unfollowed));
    let uncounted: u64 = summary.devices.iter().map(DeviceLatency::uncounted).sum();
    add("uncounted", uncounted);
    // A completion that the kernel skipped leaves its slot behind, so it is in `unseen_completion`.
    let ios = LOSSES.iter().filter_map(|kind| kinds.get(*kind)).sum();
    Lost { ios, probes: BTreeMap::from([("latency".to_string(), kinds)]), ..Lost::default() }
}

fn device(host: &Host, first: Option<&DeviceSample>, last: &DeviceSample) -> DeviceLatency {
    let delta = first.map_or_else(|| last.clone(), |first| last.since(first));
    let facts = host.devices.iter().find(|d| d.name == last.name);
    let counting = facts.map(Counting::of).unwrap_or_default();
    let mut out = DeviceLatency {
        name: last.name.clone(),
        kernel: first.and_then(|first| kernel_brackets(counting, first, last)),
        in_flight_start: first.and_then(|d| d.kernel_after.as_ref()).map(in_flight),
        in_flight_end: last.kernel_after.as_ref().map(in_flight),
        lost_ios: delta.counters.out_of_range + unseen(counting, last, &delta),
        splits: delta.counters.splits,
        merges: delta.counters.merges,
        requeues: delta.counters.requeues,
        retries: delta.counters.retries,
        negative: delta.counters.negative,
        vanished: last.vanished,
        layers: facts.map(|d| layers_of(host, d)).unwrap_or_default(),
        added_for: last.added_for.clone(),
        bio_based: last.bio_based,
        counting,
        queues: (0..last.hw_queues).map(|queue| queue_facts(facts, queue)).collect(),
        ..DeviceLatency::default()
    };
    let followed = !delta.operations.is_empty();
    for (queue, op, row) in delta.each() {
        let ios = counted(row);
        out.lost_ios += row.no_start;
        out.started_before += row.untimed;
        out.ios += ios;
        out.bytes += row.bytes;
        if ios == 0 && row.bytes == 0 {
            continue;
        }
        let Some(op) = Op::ALL.get(op).copied() else { continue };
        let entry = out.ops.entry(op).or_default();
        entry.ios += ios;
        entry.bytes += row.bytes;
        if followed {
            *entry.unowned.get_or_insert(0) += row.unowned;
        }
        if last.bio_based {
            if !row.stages[1].is_empty() {
                entry.bio.get_or_insert_default().merge(&row.stages[1]);
            }
            continue;
        }
        add_stages(&mut entry.request_stages, row);
        if row.bios > 0 {
            let (bios, ns) = entry.bios_ns.get_or_insert_default();
            *bios += row.bios;
            *ns += row.bio_ns;
        }
        if let Some(of_queue) = queue.and_then(|q| out.queues.get_mut(q as usize)) {
            of_queue.ios += ios;
            add_stages(&mut of_queue.request_stages, row);
        }
    }
    out.queues.retain(|q| q.ios > 0);
    // As reads or as writes, by a direction that the class does not keep: there is nothing to compare.
    let held = last.kernel_after.as_ref().and_then(|counters| counters.passthrough) == Some(true);
    if held && out.ops.contains_key(&Op::Passthrough) {
        out.kernel = None;
    }
    for (number, op) in Op::ALL.into_iter().enumerate() {
        let rows =
            delta.each_operation().filter(|(_, of, _)| *of == number).map(|(cover, _, row)| (cover, row));
        if let Some(mut operations) = operations::summarize(rows) {
            // Its bios are issued as they enter, for the programs: their time is all in device.
            if last.bio_based {
                operations.leave_out(Stage::Queue);
            }
            out.ops.entry(op).or_default().operations = Some(operations);
        }
        if let Some(of_op) = out.ops.get_mut(&op) {
            of_op.request_parts = delta.parts.get(number).map(parts::summarize).unwrap_or_default();
            of_op.parts = delta.parts.get(Op::ALL.len() + number).map(parts::summarize).unwrap_or_default();
        }
    }
    out.operations = followed
        .then(|| out.ops.values().filter_map(|op| op.operations.as_ref()).map(|all| all.operations).sum());
    out
}

/// The devices below; where one of them is a multipath head, its paths, which have the requests.
fn layers_of(host: &Host, device: &BlockDevice) -> Vec<String> {
    let below = |name: &String| match host.device(name) {
        Some(head) if is_head(host, head) => head.layers.clone(),
        _ => vec![name.clone()],
    };
    device.layers.iter().flat_map(below).collect()
}

/// Stages that the devices of this run could have had and did not show, with the reason.
pub fn missing(summary: &LatencySummary) -> Vec<Missing> {
    let unfetched = |device: &&DeviceLatency| {
        let mut all = device.ops.values().filter_map(|op| op.operations.as_ref()).peekable();
        all.peek().is_some() && all.all(|operations| !operations.stages.contains_key(&Stage::Reap))
    };
    let of_device = |device: &DeviceLatency| {
        Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Reap.name().to_string()),
        reason: "polled".to_string(),
        why: "no task was seen to return from a system call with the results: the application polls its ring, so \
              nothing marks when it looks"
            .to_string(),
        ..Missing::default()
    }
    };
    let polled = summary.devices.iter().filter(unfetched).map(of_device);
    polled.chain(summary.devices.iter().filter_map(missing_submit)).collect()
}

/// A system call that waits and was throttled is not seen to hand its bios in.
fn missing_submit(device: &DeviceLatency) -> Option<Missing> {
    let without = |all: &OperationLatency| {
        all.total.count() - all.stages.get(&Stage::Submit).map_or(0, Histogram::count).min(all.total.count())
    };
    let held: u64 = device.ops.values().filter_map(|op| op.operations.as_ref()).map(without).sum();
    (held > 0).then(|| Missing {
        device: Some(device.name.clone()),
        stage: Some(Stage::Submit.name().to_string()),
        reason: "throttled".to_string(),
        included_in: Some(Stage::Queue.name().to_string()),
        why: format!(
            "blk-throttle held back {held} operations of system calls that wait, and no event tells when those \
             handed them in: their queue begins where the call was entered"
        ),
        ..Missing::default()
    })
}

/// Issues whose completion event never came: the slot was still taken when the tag was issued again
/// (`stale`), or it is at the end although the kernel has nothing in flight any more.
///
/// Measured on 6.18 in a VM whose second CPU was idle: for stretches of time the completions' events do
/// not run the program although the kernel counts the I/Os and counts no recursion miss. On virtio-blk perf
/// misses the same ones, on a loop device it does not.
fn unseen(counting: Counting, last: &DeviceSample, delta: &DeviceSample) -> u64 {
    // With iostats off the kernel does not count what is in flight either.
    let counted = last
        .kernel_before
        .as_ref()
        .filter(|counters| counters.iostats != Some(false) || counting.ignores_the_flag(last));
    let in_flight = counted.map_or(u64::MAX, in_flight);
    delta.counters.stale + last.held.saturating_sub(in_flight)
}

/// The I/Os of a row that are not lost, and their stages.
pub(super) fn io_row(row: &Row) -> (u64, BTreeMap<Stage, Histogram>) {
    let mut stages = BTreeMap::new();
    add_stages(&mut stages, row);
    (counted(row), stages)
}

/// I/Os of a row that are not lost.
fn counted(row: &Row) -> u64 {
    row.stages[1].count() + row.further + row.untimed + row.never_issued
}

/// A stage that saw nothing gets no key.
fn add_stages(stages: &mut BTreeMap<Stage, Histogram>, row: &Row) {
    for (stage, hist) in [Stage::Queue, Stage::Device, Stage::Complete].into_iter().zip(&row.stages) {
        if !hist.is_empty() {
            stages.entry(stage).or_default().merge(hist);
        }
    }
}

fn in_flight(counters: &Counters) -> u64 {
    match (counters.in_flight_reads, counters.in_flight_writes) {
        (Some(reads), Some(writes)) => reads + writes,
        _ => counters.in_flight,
    }
}

/// The kernel's counters around both readings: between the inner two the I/O was certainly traced,
/// outside the outer two it certainly was not.
fn kernel_brackets(
    counting: Counting,
    first: &DeviceSample,
    last: &DeviceSample,
) -> Option<BTreeMap<KernelClass, Bracket>> {
    let (a, b) = (first.kernel_before?, first.kernel_after?);
    let (c, d) = (last.kernel_before?, last.kernel_after?);
    let off = [a, b, c, d].iter().any(|counters| counters.iostats == Some(false));
    if counting == Counting::Unknown || off && !counting.ignores_the_flag(last) {
        return None;
    }
    // What is counted when it begins is seen here when it ends.
    let (begun, unended) =
        if last.counted_at_start { (in_flight(&a), in_flight(&c)) } else { Default::default() };
    let get = |counters: &Counters, class| match class {
        KernelClass::Read => Some(counters.reads),
        KernelClass::Write => Some(counters.writes),
        KernelClass::Discard => counters.discards,
        KernelClass::Flush => counters.flushes,
    };
    let bracket = |class| {
        let min = get(&c, class)?.saturating_sub(get(&b, class)? + unended);
        Some((class, Bracket { min, max: get(&d, class)?.saturating_sub(get(&a, class)?) + begun }))
    };
    let all = KernelClass::ALL.into_iter().filter(|class| counting.counts(*class));
    Some(all.filter_map(bracket).collect())
}

fn queue_facts(facts: Option<&BlockDevice>, queue: u32) -> QueueLatency {
    let known = facts.and_then(|d| d.queues.iter().find(|q| q.queue == queue));
    // The NVMe driver maps its poll queues last, and sysfs does not say which they are.
    let polled = facts.is_some_and(|d| {
        let all = d.queues.len() as u32;
        d.poll_queues.is_some_and(|n| n > 0 && n < all && queue >= all - n)
    });
    QueueLatency {
        queue,
        qid: known.and_then(|q| q.qid),
        kind: if polled { "poll" } else { "default" }.to_string(),
        cpus: known.map(|q| cpu_list(&q.cpus)).unwrap_or_default(),
        ..QueueLatency::default()
    }
}

/// `0-3,8`, as the kernel prints lists.
fn cpu_list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == cpu => *end = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let text: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    text.join(",")
}

/// Why a result must not be trusted, if it must not: `max_loss` in percent.
pub fn distrust(summary: &LatencySummary, lost: &Lost, max_loss: f64) -> Option<String> {
    let ios: u64 = summary.devices.iter().map(|d| d.ios).sum();
    let gone: Vec<&str> = summary.devices.iter().filter(|d| d.vanished).map(|d| d.name.as_str()).collect();
    if !gone.is_empty() {
        return Some(format!(
            "{} vanished while it was measured: the figures end there; run again on a device that stays",
            gone.join(", ")
        ));
    }
    let negative: u64 = summary.devices.iter().map(|d| d.negative).sum();
    if negative > 0 {
        return Some(format!(
            "{negative} I/Os ended before they began: the clocks of this machine's CPUs disagree, \
             so no stage can be trusted (see `dmesg | grep -i tsc`)"
        ));
    }
    let all = ios + lost.ios;
    let percent = if all == 0 { 0.0 } else { lost.ios as f64 * 100.0 / all as f64 };
    (percent > max_loss).then(|| {
        let kinds: Vec<String> = lost
            .probes
            .values()
            .flatten()
            .filter(|(kind, n)| **n > 0 && LOSSES.contains(&kind.as_str()))
            .map(|(kind, n)| format!("{} {n}", kind.replace('_', " ")))
            .collect();
        format!(
            "{} of {all} I/Os ({percent:.2} %) were lost ({}), more than --max-loss {max_loss} % allows: run longer \
             or with less load, or allow more",
            lost.ios,
            kinds.join(", ")
        )
    })
}

/// The kinds that add up to `lost.ios`; the others cost a stage or are no loss.
const LOSSES: [&str; 4] = ["no_start", "slot", "unseen_completion", "uncounted"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{OPS, OPS_SHARDED, WireCounters};

    fn hist(values: &[u64]) -> Histogram {
        let mut hist = Histogram::default();
        values.iter().for_each(|v| hist.record(*v));
        hist
    }

    fn counters(reads: u64) -> Option<Counters> {
        Some(Counters { reads, discards: Some(0), flushes: None, iostats: Some(true), ..Counters::default() })
    }

    fn sample(reads: &[u64], before: u64, after: u64) -> DeviceSample {
        let mut rows = vec![Row::default(); 2 * OPS_SHARDED];
        rows[0].stages[1] = hist(reads);
        rows[0].bytes = reads.len() as u64 * 4096;
        DeviceSample {
            name: "sda".into(),
            hw_queues: 2,
            shards: 1,
            rows,
            rare: vec![Row::default(); OPS - OPS_SHARDED],
            kernel_before: counters(before),
            kernel_after: counters(after),
            ..DeviceSample::default()
        }
    }

    fn reading(at_ns: u64, device: DeviceSample) -> Reading {
        Reading { at_ns, devices: vec![device], ..Reading::default() }
    }

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let start = reading(1_000, sample(&[100], 10, 12));
        let end = reading(5_000, sample(&[100, 200, 300], 14, 15));
        let summary = summarize(&Host::default(), &start, &end);
        let device = &summary.devices[0];
        assert_eq!((summary.duration_ns, device.ios, device.bytes), (4_000, 2, 8192));
        assert_eq!(device.ops[&Op::Read].request_stages[&Stage::Device].sum(), 500);
        assert_eq!(device.kernel.as_ref().unwrap()[&KernelClass::Read], Bracket { min: 2, max: 5 });
        assert!(!device.kernel.as_ref().unwrap().contains_key(&KernelClass::Flush));
    }

    #[test]
    fn a_stage_without_values_has_no_key() {
        let start = reading(0, sample(&[], 0, 0));
        let end = reading(1, sample(&[100], 1, 1));
        let device = summarize(&Host::default(), &start, &end).devices.remove(0);
        assert_eq!(device.ops[&Op::Read].request_stages.keys().collect::<Vec<_>>(), [&Stage::Device]);
        assert!(!device.ops.contains_key(&Op::Write));
        assert_eq!(device.queues.len(), 1);
    }

    #[test]
    fn counters_that_stand_still_are_no_check() {
        let mut off = sample(&[100], 1, 1);
        off.kernel_after.as_mut().unwrap().iostats = Some(false);
        let summary = summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, off));
        assert_eq!(summary.devices[0].kernel, None);
    }

    #[test]
    fn counters_that_hold_passthrough_are_no_check_where_there_was_any() {
        let check = |passthrough, ios: &[u64]| {
            let mut end = sample(&[100], 1, 1 + ios.len() as u64);
            end.rare[Op::Passthrough as usize - OPS_SHARDED].stages[1] = hist(ios);
            end.kernel_after.as_mut().unwrap().passthrough = passthrough;
            let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, end));
            let device = summarize(&Host::default(), &start, &end).devices.remove(0);
            (device.kernel_check(), device.uncounted())
        };
        assert_eq!(check(Some(true), &[50, 50]), (None, 0));
        assert_eq!(check(Some(true), &[]), (Some(true), 0));
        assert_eq!(check(Some(false), &[50, 50]), (Some(true), 0), "1 to 3, of which 1 was seen");
    }

    #[test]
    fn what_completes_without_a_start_is_lost_and_not_counted_twice() {
        let mut end = sample(&[100, 100], 3, 3);
        end.rows[0].no_start = 1;
        end.counters = WireCounters { out_of_range: 2, stale: 4, ..WireCounters::default() };
        // Two slots are taken and the kernel has one I/O in flight: one completion was not seen.
        end.held = 2;
        end.kernel_before.as_mut().unwrap().in_flight = 1;
        let (start, mut end) = (reading(0, sample(&[], 0, 0)), reading(1, end));
        end.missed.insert("rq_complete", 4);
        end.missed.insert("rq_issue", 8);
        let summary = summarize(&Host::default(), &start, &end);
        let lost = lost(&summary, &start, &end);
        assert_eq!((lost.ios, lost.probes["latency"]["missed"]), (1 + 2 + 4 + 1, 12));
        assert_eq!((summary.devices[0].ios, summary.devices[0].lost_ios), (2, 8));
        assert!(distrust(&summary, &lost, 0.1).unwrap().contains("8 of 10"));
        assert_eq!(distrust(&summary, &lost, 80.0), None);
    }

    #[test]
    fn what_only_the_kernel_counted_is_lost() {
        let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, sample(&[100, 100], 5, 5)));
        let summary = summarize(&Host::default(), &start, &end);
        assert_eq!(summary.devices[0].kernel_check(), Some(false));
        assert_eq!(lost(&summary, &start, &end).ios, 3);
    }

    #[test]
    fn cpu_lists_are_the_kernels() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[]), "");
    }
}
