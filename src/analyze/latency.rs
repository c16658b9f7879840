//! Where the time of block I/O went, per device, operation and queue.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::counting::{Bracket, Counting, KernelCount, all_ios, in_flight, kernel_brackets};
use super::files::{self, FileIos};
use super::groups::Groups;
use super::layers::{self, Inside, Layer};
use super::loss::unseen;
use super::op::{KernelClass, Op};
use super::operations::{self, OperationLatency};
use super::parts::{self, Part, Parts};
use super::queues::{QueueLatency, queue_facts};
use super::sharing::{self, ProcessIos};
use super::stage::Stage;
use crate::envelope::View;
use crate::hist::Histogram;
use crate::host::select::is_head;
use crate::host::{BlockDevice, Host};
use crate::names::names;
use crate::wire::COVERS;
use crate::wire::parts::PartRow;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::Row;

/// The view of `biopsy latency`. Devices are sorted by I/Os, most first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatencySummary {
    pub duration_ns: u64,
    pub devices: Vec<DeviceLatency>,
    /// Only the I/Os of some submitters were followed.
    pub filtered: bool,
    #[serde(flatten)]
    pub groups: Groups,
    /// Which classes each field of `/sys/block/D/stat` counts where the block layer counts requests.
    pub kernel_classes: BTreeMap<String, Vec<Op>>,
}

impl View for LatencySummary {
    const SCHEMA: &'static str = "biopsy.latency/1";
}

impl LatencySummary {
    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<&DeviceLatency> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Fills the fields that follow from others.
    pub fn derived(mut self) -> Self {
        let of_ops = |device: &DeviceLatency| -> Vec<Option<Inside>> {
            let inside = |op: &Op| layers::inside(&self, device, *op)?.ok();
            device.ops.keys().map(inside).collect()
        };
        let layers: Vec<_> =
            self.devices.iter().map(|device| (layers::lower(&self, device), of_ops(device))).collect();
        for (device, (lower, inside)) in self.devices.iter_mut().zip(layers) {
            device.layers = lower;
            device.ops.values_mut().zip(inside).for_each(|(of, inside)| of.layer = inside);
            device.derive();
        }
        self.kernel_classes = Counting::Requests.classes();
        self
    }

    /// Of all devices, each layer's own included.
    pub fn ios(&self) -> u64 {
        self.devices.iter().map(|device| device.ios).sum()
    }

    pub fn ios_per_second(&self) -> f64 {
        self.ios() as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}

/// One block device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceLatency {
    pub name: String,
    /// Of a partition: its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// I/Os (requests; on a bio-based device bios, counted as the kernel counts them) that completed in
    /// the window and are not in `lost`: timed ones and those
    /// that had started before the trace.
    pub ios: u64,
    pub bytes: u64,
    /// I/Os of this device that are lost: seen to complete without a start, or not seen to complete.
    pub lost_ios: u64,
    /// Of these: their completion was not seen.
    #[serde(rename = "unseen_completions")]
    pub unseen: u64,
    /// Of `ios`: started before the trace, so counted and not timed.
    pub started_before: u64,
    /// Operations of applications that ended; None where they are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// With a filter, what the kernel counted of all submitters; None else, and where `kernel` would be.
    #[serde(flatten, with = "all_ios")]
    #[schemars(with = "all_ios::Form")]
    pub all_ios: Option<Bracket>,
    /// None: the kernel does not count this device (`iostats` off), its counter was not readable, or a
    /// filter was set, of which it does not know.
    #[serde(rename = "kernel_ios")]
    pub kernel: Option<BTreeMap<KernelClass, KernelCount>>,
    /// Of all its classes.
    pub kernel_ios_min: Option<u64>,
    pub kernel_ios_max: Option<u64>,
    pub kernel_check: Option<KernelCheck>,
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
    /// Writes that waited for a flush of the drive after their data.
    pub flushed: u64,
    /// Bios that blk-throttle's worker brought, and of which no operation is known.
    pub held_unknown: u64,
    /// It was there at the start and was gone at the end.
    pub vanished: bool,
    /// Lower devices, nearest first.
    pub layers: Vec<Layer>,
    /// Nobody named it: it is here as a layer of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added_for: Vec<String>,
    /// Bios by process, the most bytes first; None: they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessIos>>,
    /// The measured bios by file, the most bytes first; None: they were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileIos>>,
    /// It has no requests: `bio` stands for the stages.
    pub bio_based: bool,
    pub counting: Counting,
    /// Like those of the summary, where the block layer does not count requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_classes: BTreeMap<String, Vec<Op>>,
    pub ops: BTreeMap<Op, OpLatency>,
    pub queues: Vec<QueueLatency>,
    /// I/Os of the classes that are not counted by queue (all but reads and writes), and all without requests.
    pub ios_without_queue: u64,
}

names! {
    /// Whether the kernel's counters agree.
    pub enum KernelCheck {
        Ok = "ok",
        Differs = "differs",
    }
}

/// One class of I/O on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpLatency {
    pub ios: u64,
    pub bytes: u64,
    /// I/Os that were timed, or were empty flushes, and belong to no operation that was followed; None where
    /// operations are not followed.
    #[serde(rename = "ios_without_operation", skip_serializing_if = "Option::is_none")]
    pub unowned: Option<u64>,
    /// Per I/O. A stage that cannot be seen has no key.
    pub request_stages: BTreeMap<Stage, Histogram>,
    /// Of a bio-based device: the whole time of each bio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bio: Option<Histogram>,
    /// Of `request_stages` and `bio` what `unowned` I/Os have, to the nanosecond; what is left is that of the
    /// operations' I/Os. Of an interval these were read a moment before those.
    #[serde(rename = "request_stages_without_operation", skip_serializing_if = "BTreeMap::is_empty")]
    pub unowned_stages: BTreeMap<Stage, Histogram>,
    #[serde(rename = "bio_without_operation", skip_serializing_if = "Option::is_none")]
    pub unowned_bio: Option<Histogram>,
    /// Of a device with requests below a bio-based one: how many bios the requests carried, and the sum of
    /// their times from their own entry into the block layer to the end of their request.
    #[serde(rename = "carried_bios", skip_serializing_if = "Option::is_none")]
    pub bios_ns: Option<(u64, u64)>,
    /// Per operation, of those whose last request with data was of this class (an empty flush: that had none);
    /// None where none ended or none is followed.
    #[serde(flatten)]
    pub operations: Option<OperationLatency>,
    /// At the end: operations beside these whose result was there and that nobody was seen to fetch. An iocb of
    /// several I/Os is one as soon as one of them has ended. None where that was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfetched: Option<u64>,
    /// Parts of stages, per operation and per I/O; empty where stages were not taken apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: Parts,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub request_parts: Parts,
    /// I/Os, and operations, with a queue stage that could not be taken apart.
    pub undivided: [u64; 2],
    /// The time between this device and those below it; None where that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<Inside>,
}

names! {
    /// What the stages of a class of I/O are counted by.
    pub enum Unit {
        Operation = "operation",
        Io = "I/O",
        /// Write-back and read-ahead that nobody waits for any more; but also page faults and the work of kernel
        /// threads, for which somebody may wait: no word for what goes on in the background would be true of all.
        UnownedIo = "I/O of no operation",
    }
}

impl OpLatency {
    /// The stages to show first: those of the operations where most I/Os belong to one, else those of
    /// the I/Os.
    pub fn stages(&self) -> (Unit, &BTreeMap<Stage, Histogram>) {
        // Of flushes it is not known which belong to one: then two operations do not speak for thousands of I/Os.
        let are_most = |operations: u64| match self.unowned {
            Some(unowned) => 2 * unowned < self.ios,
            None => 2 * operations >= self.ios,
        };
        match &self.operations {
            Some(all) if !all.total.is_empty() && are_most(all.total.count()) => {
                (Unit::Operation, &all.stages)
            }
            _ => (Unit::Io, &self.request_stages),
        }
    }

    /// The parts of [`Self::stages`].
    pub fn parts(&self) -> &Parts {
        match self.stages().0 {
            Unit::Operation => &self.parts,
            Unit::Io | Unit::UnownedIo => &self.request_parts,
        }
    }

    /// Of operations.
    pub fn part(&self, stage: Stage, part: Part) -> Option<&Histogram> {
        self.parts.get(&stage)?.get(&part)
    }

    /// Timed I/Os of no operation.
    pub fn unowned_timed(&self) -> u64 {
        let device = self.unowned_stages.get(&Stage::Device);
        device.or(self.unowned_bio.as_ref()).map_or(0, Histogram::count)
    }

    /// Mean of a stage of the I/Os that belong to an operation; None where none of them has it.
    pub fn owned_mean_ns(&self, stage: Stage) -> Option<f64> {
        let all = self.request_stages.get(&stage)?;
        let (n, sum) = self.unowned_stages.get(&stage).map_or((0, 0), |hist| (hist.count(), hist.sum()));
        let ios = all.count().saturating_sub(n);
        (ios > 0).then(|| all.sum().saturating_sub(sum) as f64 / ios as f64)
    }

    /// Whether those are only some of the I/Os that were timed, so that they need rows of their own to be seen.
    pub fn is_mixed(&self) -> bool {
        let all = self.request_stages.get(&Stage::Device).or(self.bio.as_ref()).map_or(0, Histogram::count);
        (1..all).contains(&self.unowned_timed())
    }

    /// How many of [`Self::stages`]' unit there are.
    pub fn count(&self) -> u64 {
        match (self.stages().0, &self.operations) {
            (Unit::Operation, Some(all)) => all.operations,
            _ => self.ios,
        }
    }
}

impl DeviceLatency {
    /// The disk whose queue serves it: itself, or of a partition the disk that it lies on.
    pub fn disk_name(&self) -> &str {
        self.disk.as_deref().unwrap_or(&self.name)
    }

    /// All operations' histograms of one stage together; none where the stage has no key.
    pub fn stage(&self, stage: Stage) -> Option<Histogram> {
        let mut all: Option<Histogram> = None;
        for hist in self.ops.values().filter_map(|op| op.request_stages.get(&stage)) {
            all.get_or_insert_default().merge(hist);
        }
        all
    }

    /// The names of its layers, separated by commas.
    pub fn below(&self) -> String {
        let names: Vec<&str> = self.layers.iter().map(|layer| layer.name.as_str()).collect();
        names.join(", ")
    }

    pub fn stands_on(&self, name: &str) -> bool {
        self.layers.iter().any(|layer| layer.name == name)
    }

    fn derive(&mut self) {
        let total = self.kernel_total();
        (self.kernel_ios_min, self.kernel_ios_max) = (total.map(|b| b.min), total.map(|b| b.max));
        self.kernel_check =
            self.kernel_check().map(|ok| if ok { KernelCheck::Ok } else { KernelCheck::Differs });
        if let Some(mut classes) = self.kernel.take() {
            classes.iter_mut().for_each(|(class, of)| of.seen = self.counted(*class));
            self.kernel = Some(classes);
        }
        if self.counting != Counting::Requests {
            self.kernel_classes = self.counting.classes();
        }
        self.ios_without_queue = self.ios.saturating_sub(self.queues.iter().map(|queue| queue.ios).sum());
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
        Some(
            total
                && (self.lost_ios > 0
                    || classes.iter().all(|(class, of)| of.kernel.holds(self.counted(*class)))),
        )
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

    /// I/Os that were seen beyond what the kernel can have counted.
    pub fn excess(&self) -> u64 {
        let classes = self.kernel.iter().flatten();
        let by_class =
            classes.map(|(class, of)| self.counted(*class).saturating_sub(of.kernel.max)).sum::<u64>();
        let whole = self.kernel_total().map_or(0, |b| self.comparable().saturating_sub(b.max));
        by_class.max(whole)
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
                .map(|of| of.kernel)
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
            let first = start.device(&last.name);
            let mut device = device(host, first, last);
            if end.filtered {
                device.hide_kernel();
            }
            // The kernel has completed these, and here they are still out.
            let young = device.uncounted().min(last.young);
            device.unseen += young;
            device.lost_ios += young;
            device
        })
        .collect();
    devices.sort_by(|a, b| b.ios.cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
    let duration_ns = end.at_ns.saturating_sub(start.at_ns);
    LatencySummary { duration_ns, devices, filtered: end.filtered, ..LatencySummary::default() }.derived()
}

fn device(host: &Host, first: Option<&DeviceSample>, last: &DeviceSample) -> DeviceLatency {
    let delta = first.map_or_else(|| last.clone(), |first| last.since(first));
    let facts = host.device(&last.name);
    let counting = facts.map(Counting::of).unwrap_or_default();
    let unseen = unseen(counting, last, &delta);
    let mut out = DeviceLatency {
        name: last.name.clone(),
        disk: last.disk.clone(),
        kernel: first.and_then(|first| kernel_brackets(counting, first, last)),
        in_flight_start: first.and_then(|d| d.kernel_after.as_ref()).map(in_flight),
        in_flight_end: last.kernel_after.as_ref().map(in_flight),
        lost_ios: delta.counters.out_of_range + unseen,
        unseen,
        splits: delta.counters.splits,
        merges: delta.counters.merges,
        requeues: delta.counters.requeues,
        retries: delta.counters.retries,
        negative: delta.counters.negative,
        vanished: last.vanished,
        layers: facts.map(|d| layers_of(host, d)).unwrap_or_default(),
        added_for: last.added_for.clone(),
        processes: delta.processes.clone().map(sharing::sorted),
        files: delta.files.as_deref().map(files::by_file),
        bio_based: last.bio_based,
        counting,
        queues: (0..last.hw_queues).map(|queue| queue_facts(facts, queue)).collect(),
        held_unknown: delta.counters.held_unknown,
        ..DeviceLatency::default()
    };
    let followed = !delta.operations.is_empty();
    for (queue, op, row) in delta.each() {
        let ios = counted(row);
        out.lost_ios += row.no_start;
        out.flushed += row.flushed;
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
    for (op, row) in delta.each_unowned() {
        // Each is in its class already, but for the edges of an interval.
        let Some(entry) = Op::ALL.get(op).and_then(|op| out.ops.get_mut(op)) else { continue };
        if !last.bio_based {
            add_stages(&mut entry.unowned_stages, row);
        } else if !row.stages[1].is_empty() {
            entry.unowned_bio.get_or_insert_default().merge(&row.stages[1]);
        }
    }
    // As reads or as writes, by a direction that the class does not keep: there is nothing to compare.
    let held = last.kernel_after.as_ref().and_then(|counters| counters.passthrough) == Some(true);
    if held && out.ops.contains_key(&Op::Passthrough) {
        out.kernel = None;
    }
    for (number, op) in Op::ALL.into_iter().enumerate() {
        let rows =
            delta.each_operation().filter(|(_, of, _)| *of == number).map(|(cover, _, row)| (cover, row));
        if let Some(mut operations) = operations::summarize(rows) {
            // Its bios are issued as they enter, for the programs: their time is all in device, but for what
            // blk-throttle held before.
            if last.bio_based {
                operations.leave_out_if_nothing(Stage::Queue);
            }
            out.ops.entry(op).or_default().operations = Some(operations);
        }
        if let Some(of_op) = out.ops.get_mut(&op) {
            of_op.unfetched = last.unfetched.and_then(|all| all.get(number).copied());
            of_op.request_parts = delta.parts.get(number).map(parts::summarize).unwrap_or_default();
            let of_cover = |cover| delta.parts.get((1 + cover) * Op::ALL.len() + number);
            let shown = of_op.operations.as_ref().and_then(|all| of_cover(all.cover));
            of_op.parts = shown.map(parts::summarize).unwrap_or_default();
            let unknown = |parts: Option<&PartRow>| parts.map_or(0, |parts| parts.unknown);
            of_op.undivided =
                [unknown(delta.parts.get(number)), (0..COVERS).map(|cover| unknown(of_cover(cover))).sum()];
        }
    }
    out.operations = followed
        .then(|| out.ops.values().filter_map(|op| op.operations.as_ref()).map(|all| all.operations).sum());
    out
}

/// The devices below; where one of them is a multipath head, its paths, which have the requests.
fn layers_of(host: &Host, device: &BlockDevice) -> Vec<Layer> {
    let below = |name: &String| match host.device(name) {
        Some(head) if is_head(host, head) => head.layers.clone(),
        _ => vec![name.clone()],
    };
    device.layers.iter().flat_map(below).map(|name| Layer::from(name.as_str())).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::files::{File, FileKind};
    use super::super::groups::{Cgroup, CpuPair, Dimension, Group, Process, Values};
    use super::super::literal::{json, reading, sample};
    use super::super::operations::{NotCovered, TotalClass};
    use super::super::sharing::Relation;
    use super::*;
    use crate::wire::rows::OperationRow;
    use crate::wire::{OPS, OPS_SHARDED};

    /// Empty flushes, of which it is not known which belong to an operation.
    #[test]
    fn two_operations_do_not_speak_for_thousands() {
        let with = |operations: u64, unowned| {
            let mut counts = [0; crate::hist::BUCKETS];
            counts[crate::hist::index(100)] = operations;
            let total = Histogram::from_parts(&counts, 100 * operations, 100, 100);
            let operations = Some(OperationLatency { total, ..OperationLatency::default() });
            OpLatency { ios: 1_000, unowned, operations, ..OpLatency::default() }.stages().0
        };
        assert_eq!((with(2, None), with(500, None)), (Unit::Io, Unit::Operation));
        assert_eq!(
            (with(2, Some(499)), with(2, Some(500))),
            (Unit::Operation, Unit::Io),
            "a few of many I/Os each"
        );
    }

    #[test]
    fn a_window_is_the_difference_of_two_readings() {
        let start = reading(1_000, sample(&[100], 10, 12));
        let end = reading(5_000, sample(&[100, 200, 300], 14, 15));
        let summary = summarize(&Host::default(), &start, &end);
        let device = &summary.devices[0];
        assert_eq!((summary.duration_ns, device.ios, device.bytes), (4_000, 2, 8192));
        assert_eq!(device.ops[&Op::Read].request_stages[&Stage::Device].sum(), 500);
        assert_eq!(device.kernel.as_ref().unwrap()[&KernelClass::Read].kernel, Bracket { min: 2, max: 5 });
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

    /// Of three reads two belong to no operation, and of one write none does.
    fn mixed() -> DeviceSample {
        let mut last = sample(&[100, 200, 300], 4, 4);
        last.rows[0].stages[0] = [10, 20, 30].into_iter().collect();
        last.rows[0].unowned = 2;
        last.rows[1].stages[1] = [50].into_iter().collect();
        last.operations = vec![OperationRow::default(); COVERS * OPS];
        last.operation_shards = 1;
        last.unowned_shards = 2;
        last.unowned = vec![Row::default(); 2 * OPS_SHARDED + OPS - OPS_SHARDED];
        // On two CPUs, one each.
        for (shard, times) in [[10, 100], [30, 300]].into_iter().enumerate() {
            let row = &mut last.unowned[shard * OPS_SHARDED];
            row.stages[0] = [times[0]].into_iter().collect();
            row.stages[1] = [times[1]].into_iter().collect();
        }
        last
    }

    /// Since a moment at which nothing had come yet.
    fn whole(last: DeviceSample) -> DeviceLatency {
        let mut first = last.clone();
        for row in first.rows.iter_mut().chain(&mut first.unowned) {
            *row = Row::default();
        }
        summarize(&Host::default(), &reading(0, first), &reading(1, last)).devices.remove(0)
    }

    #[test]
    fn ios_of_no_operation_have_stages_of_their_own_and_stay_among_all() {
        let device = whole(mixed());
        let read = &device.ops[&Op::Read];
        assert_eq!((read.ios, read.unowned, read.unowned_timed()), (3, Some(2), 2));
        let sums = |of: &BTreeMap<Stage, Histogram>| of.values().map(Histogram::sum).collect::<Vec<_>>();
        assert_eq!(sums(&read.request_stages), [60, 600]);
        assert_eq!(sums(&device.queues[0].request_stages), [60, 650]);
        assert_eq!(sums(&read.unowned_stages), [40, 400]);
        assert!(read.is_mixed() && !read.unowned_stages.contains_key(&Stage::Complete));
        assert_eq!(
            (read.owned_mean_ns(Stage::Queue), read.owned_mean_ns(Stage::Device)),
            (Some(20.0), Some(200.0))
        );
        let write = &device.ops[&Op::Write];
        assert_eq!((write.unowned, write.unowned_timed(), write.is_mixed()), (Some(0), 0, false));
        assert!(write.unowned_stages.is_empty(), "none is not zero");
        assert_eq!(write.owned_mean_ns(Stage::Device), Some(50.0));
        assert_eq!(super::super::invariants::sums::counts_agree(&device), Ok(()));
    }

    #[test]
    fn an_interval_has_its_own_ios_of_no_operation() {
        let mut then = mixed();
        then.unowned[OPS_SHARDED] = Row::default();
        then.rows[0].unowned = 1;
        then.rows[0].stages[0] = [10, 20].into_iter().collect();
        then.rows[0].stages[1] = [100, 200].into_iter().collect();
        let device = summarize(&Host::default(), &reading(0, then), &reading(1, mixed())).devices.remove(0);
        let read = &device.ops[&Op::Read];
        assert_eq!((read.unowned, read.unowned_stages[&Stage::Device].sum()), (Some(1), 300));
        assert!(!read.is_mixed(), "it is all that came");
    }

    #[test]
    fn where_operations_are_not_followed_no_io_is_of_none() {
        let mut last = mixed();
        (last.operations, last.unowned) = (Vec::new(), Vec::new());
        let device = whole(last);
        let read = &device.ops[&Op::Read];
        assert_eq!((read.unowned, read.unowned_stages.len(), read.unowned_bio.is_none()), (None, 0, true));
    }

    #[test]
    fn a_bio_of_no_operation_has_its_whole_time() {
        let mut last = mixed();
        last.bio_based = true;
        let device = whole(last);
        let read = &device.ops[&Op::Read];
        assert_eq!((read.bio.as_ref().unwrap().sum(), read.unowned_bio.as_ref().unwrap().sum()), (600, 400));
        assert!(read.unowned_stages.is_empty() && read.is_mixed());
    }

    /// Rare classes have a row per device, not per queue.
    #[test]
    fn queues_and_the_rest_add_up_to_the_ios() {
        let mut last = sample(&[100, 100], 2, 2);
        last.rare[0].stages[1] = [100, 200, 300].into_iter().collect();
        let device =
            summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, last)).devices.remove(0);
        assert_eq!((device.ios, device.queues[0].ios, device.ios_without_queue), (5, 2, 3));
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
            end.rare[Op::Passthrough as usize - OPS_SHARDED].stages[1] = ios.iter().copied().collect();
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
    fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
        let hist = |ns: u64| Histogram::from_iter([ns; 3]);
        let stages = |ns| BTreeMap::from([(Stage::Queue, hist(10)), (Stage::Device, hist(ns))]);
        let class =
            TotalClass { lower_ns: 0, upper_ns: 2, operations: 3, sums_ns: [(Stage::Device, 300)].into() };
        let operations = OperationLatency {
            operations: 4,
            stages: stages(200),
            total: hist(210),
            by_total: vec![class],
            not_covered: BTreeMap::from([(NotCovered::Torn, 1)]),
            sums_ns: BTreeMap::from([(Stage::Device, 600)]),
            ..OperationLatency::default()
        };
        let read = OpLatency {
            ios: 3,
            bytes: 12_288,
            unowned: Some(1),
            request_stages: stages(100),
            unowned_stages: BTreeMap::from([(Stage::Device, hist(100))]),
            bios_ns: Some((4, 500)),
            operations: Some(operations),
            unfetched: Some(0),
            parts: BTreeMap::from([(Stage::Submit, BTreeMap::from([(Part::Batch, hist(1))]))]),
            request_parts: BTreeMap::from([(Stage::Queue, BTreeMap::from([(Part::Alloc, hist(2))]))]),
            undivided: [1, 2],
            ..OpLatency::default()
        };
        let upper = OpLatency {
            ios: 4,
            bytes: 12_288,
            bio: Some(hist(400)),
            unowned_bio: Some(hist(5)),
            bios_ns: Some((4, 1_600)),
            ..OpLatency::default()
        };
        let file = |kind| File { kind, device: "8:1".to_string(), inode: None, path: None };
        let regular = File { inode: Some(9), path: Some("/a".to_string()), ..file(FileKind::Regular) };
        let row = |file, others| FileIos { file, others, bios: 32, bytes: 4096, sampled: 2, share: 0.5 };
        let bracket = |min, max| Bracket { min, max };
        let disk = DeviceLatency {
            name: "sda".to_string(),
            ios: 3,
            bytes: 12_288,
            operations: Some(4),
            kernel: Some(BTreeMap::from([(KernelClass::Read, bracket(3, 5).into())])),
            added_for: vec!["dm-0".to_string()],
            processes: Some(vec![
                ProcessIos { pid: Some(7), comm: "dd".to_string(), bios: 3, ..ProcessIos::default() },
                ProcessIos { bios: 1, relation: Relation::Other, ..ProcessIos::default() },
            ]),
            files: Some(vec![
                row(Some(regular.clone()), false),
                row(Some(file(FileKind::RawDevice)), false),
                row(None, true),
            ]),
            ops: BTreeMap::from([(Op::Read, read.clone())]),
            queues: vec![QueueLatency {
                queue: 1,
                ios: 2,
                request_stages: stages(7),
                ..QueueLatency::default()
            }],
            ..DeviceLatency::default()
        };
        let dm = DeviceLatency {
            name: "dm-0".to_string(),
            disk: Some("dm".to_string()),
            ios: 4,
            bytes: 12_288,
            all_ios: Some(bracket(4, 6)),
            layers: vec!["sda".into(), "sdb".into()],
            bio_based: true,
            counting: Counting::Md,
            ops: BTreeMap::from([(Op::Read, upper)]),
            ..DeviceLatency::default()
        };
        let unseen = DeviceLatency { name: "sdb".to_string(), ..DeviceLatency::default() };
        let by = Values {
            size: Some((4096, 8192)),
            process: Some(Process { pid: 7, comm: "dd".to_string() }),
            cgroup: Some(Cgroup::Id(9)),
            file: Some(regular),
            ..Values::default()
        };
        let groups = Groups {
            by: vec![Dimension::Size, Dimension::Cpu],
            most: Some(512),
            groups: vec![Group { by, other: true, latency: read }],
            cpus: Some(vec![CpuPair { submit_cpu: 0, completion_cpu: 1, ios: 1 }]),
            nodes: Some(Vec::new()),
        };
        let devices = vec![disk, dm, unseen];
        let summary =
            LatencySummary { duration_ns: 5, devices, filtered: true, groups, ..LatencySummary::default() };
        let mut value = json(&summary.derived());
        assert_eq!(value["groups"][0]["by"]["cgroup"], 9);
        assert_eq!(value["groups"][0]["by"]["size"], json!([4096, 8192]));
        assert_eq!(value["cpus"], json!([{"submit_cpu": 0, "completion_cpu": 1, "ios": 1}]));
        let [sda, dm] = [0, 1].map(|at| value["devices"][at].take());
        assert_eq!(sda["kernel_ios"], json!({"read": {"min": 3, "max": 5, "seen": 3}}));
        assert_eq!((&sda["kernel_check"], &sda["ios_without_queue"]), (&json!("ok"), &json!(1)));
        assert_eq!(sda["ops"]["read"]["by_total"], json!([[0, 2, 3, {"device": 300}]]));
        assert_eq!(sda["ops"]["read"]["parts"]["submit"]["batch"]["sum_ns"], 3);
        assert_eq!(sda["files"][1]["file"], json!({"kind": "raw_device", "device": "8:1"}));
        assert_eq!(sda["files"][2]["others"], true);
        assert!(sda.get("kernel_classes").is_none() && sda.get("all_ios_min").is_none());
        assert!(sda["processes"][1].get("pid").is_none() && sda.get("disk").is_none());
        assert_eq!((&dm["kernel_ios"], &dm["all_ios_max"]), (&Value::Null, &json!(6)));
        assert_eq!(dm["layers"][0], json!({"name": "sda", "ios": 3, "bytes": 12_288, "mean_ns": 110.0}));
        assert_eq!(dm["ops"]["read"]["layer"]["mean_ns"], 275.0);
        assert!(dm["ops"]["read"].get("operations").is_none(), "they are not followed");
        assert_eq!(dm["kernel_classes"]["none"], json!(["flush", "empty_flush", "discard", "passthrough"]));
    }
}
