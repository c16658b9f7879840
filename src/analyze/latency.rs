//! Summarizes where the time of block I/O was spent, per device, operation and queue.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::counting::{Bracket, Counting, KernelCount, all_ios, in_flight, kernel_brackets};
use super::files::{self, FileIos};
use super::groups::Groups;
use super::layers::{self, Inside, Layer};
use super::loss::unseen;
use super::op::{KernelClass, Op};
use super::operations::{self, OperationKeys, OperationLatency, StageChoice};
use super::parts::{self, Part, Parts};
use super::queues::{QueueLatency, queue_facts};
use super::sharing::{self, ProcessIos};
use super::stage::Stage;
use crate::envelope::View;
use crate::envelope::reading::without;
use crate::hist::Histogram;
use crate::host::select::is_head;
use crate::host::{BlockDevice, Host};
use crate::merge::{Merge, SaturatingSum as _, Summary, merge, merge_fields, on_host, row};
use crate::names::names;
use crate::wire::COVERS;
use crate::wire::parts::PartRow;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::IoRow;

/// The view of `biopsy latency`. Devices are sorted by I/Os, most first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LatencySummary {
    pub duration_ns: u64,
    /// How long operations that begin were followed: less than `duration_ns` where that cost more than the budget
    /// (`--max-cost`). Their counts, sums and histograms are those of this time. Absent where they are not followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations_followed_ns: Option<u64>,
    /// The share of `duration_ns` that this is. That of all other figures is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations_duty: Option<f64>,
    /// Operations with an I/O out when following ended for a while: they are in no figure of operations.
    #[serde(skip_serializing_if = "is_zero")]
    pub operations_cut: u64,
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
    const HAS_DURATION: bool = true;
}

merge!(LatencySummary {
    add: duration_ns operations_cut groups;
    both: operations_followed_ns;
    rows: devices;
    any: filtered;
    derived: kernel_classes operations_duty;
});

impl LatencySummary {
    /// The device with this name.
    pub fn device(&self, name: &str) -> Option<&DeviceLatency> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Computes the derived fields.
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
        self.operations_duty = self.operations_followed_ns.map(|ns| match self.duration_ns {
            0 => 1.0,
            whole => (ns as f64 / whole as f64).min(1.0),
        });
        self
    }

    /// The share of the time in which operations were followed, if not all of it.
    pub fn sliced(&self) -> Option<f64> {
        self.operations_duty.filter(|duty| *duty < 1.0)
    }

    /// I/Os of all devices; with stacked devices each layer counts.
    pub fn ios(&self) -> u64 {
        self.devices.iter().map(|device| device.ios).saturating_sum()
    }

    pub fn ios_per_second(&self) -> f64 {
        self.ios() as f64 * 1e9 / self.duration_ns.max(1) as f64
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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
    /// Not named by the user: it is shown as a layer of these.
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

impl Summary for LatencySummary {
    fn settle(&mut self) {
        self.devices.sort_by(|a, b| b.ios.cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
        for device in &mut self.devices {
            device.processes = device.processes.take().map(sharing::sorted);
            device.files.iter_mut().for_each(|files| files::settle(files));
        }
        self.groups.settle();
        *self = std::mem::take(self).derived();
    }

    fn name_host(&mut self, host: &str) {
        for device in &mut self.devices {
            let below = device.layers.iter_mut().map(|layer| &mut layer.name);
            let names = below.chain(&mut device.disk).chain(&mut device.added_for);
            names.chain([&mut device.name]).for_each(|name| on_host(host, name));
        }
        let grouped = self.groups.groups.iter_mut().filter_map(|group| group.by.device.as_mut());
        grouped.for_each(|name| on_host(host, name));
    }

    fn window(&mut self) -> Option<&mut u64> {
        // CPUs and nodes cannot carry their machine's name.
        let is_by_cpu = self.groups.cpus.is_some();
        (!is_by_cpu).then_some(&mut self.duration_ns)
    }

    fn part_of_window(&mut self) -> Option<&mut u64> {
        self.operations_followed_ns.as_mut()
    }
}

merge!(DeviceLatency {
    first: name disk in_flight_start added_for bio_based counting layers;
    last: in_flight_end;
    any: vanished;
    add: ios bytes lost_ios unseen started_before splits merges requeues retries negative flushed held_unknown ops;
    both: operations all_ios kernel;
    rows: queues;
    both_rows: processes files;
    derived: kernel_ios_min kernel_ios_max kernel_check kernel_classes ios_without_queue;
});
row!(DeviceLatency, String, |device| device.name.clone());

names! {
    /// Whether the kernel's counters agree.
    pub enum KernelCheck {
        Ok = "ok",
        Differs = "differs",
    }
}

/// One class of I/O on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct OpLatency {
    pub ios: u64,
    pub bytes: u64,
    /// I/Os that were timed, or were empty flushes, and belong to no operation that was followed; None where
    /// operations are not followed.
    #[serde(rename = "ios_without_operation", skip_serializing_if = "Option::is_none")]
    pub unowned: Option<u64>,
    /// I/Os like those, but not known whether of an operation: not all operations were followed when they came.
    #[serde(rename = "ios_unclassified", skip_serializing_if = "is_zero")]
    pub unclassified: u64,
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
    /// At the end: operations beside these whose result was ready and was not seen to be reaped. An iocb of
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

impl Serialize for OpLatency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for OpLatency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = OpLatency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of one class of I/O")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OpLatency, A::Error> {
                let mut operations = OperationKeys::default();
                // `operations` consumes its keys, so they are not left for the other `flatten`.
                let latency = OpLatency::deserialize(without(map, &mut operations))?;
                Ok(OpLatency { operations: operations.all(), ..latency })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

merge_fields!(OpLatency {
    add: ios bytes unclassified request_stages bio unowned_stages unowned_bio bios_ns operations request_parts undivided;
    both: unowned;
    last: unfetched;
    // Merged below.
    first: parts;
    derived: layer;
});

impl Merge for OpLatency {
    fn merge_with(&mut self, later: &Self) {
        // Parts belong to the operations that are shown.
        let shown = match (&self.operations, &later.operations) {
            (Some(mine), Some(theirs)) => mine.shown_with(theirs),
            _ => StageChoice::Both,
        };
        self.merge_fields(later);
        match shown {
            StageChoice::Both => self.parts.merge_with(&later.parts),
            StageChoice::First => {}
            StageChoice::Second => self.parts.clone_from(&later.parts),
        }
    }
}

names! {
    /// The unit in which the stages of an I/O class are counted.
    pub enum Unit {
        Operation = "operation",
        Io = "I/O",
        /// Write-back and read-ahead, for which no task waits, but also I/Os of page faults and kernel threads, for
        /// which a task may wait: so they are not called background I/O.
        UnownedIo = "I/O without operation",
    }
}

impl OpLatency {
    /// The stages to show first: those of operations if most I/Os belong to one, otherwise those of the I/Os.
    pub fn stages(&self) -> (Unit, &BTreeMap<Stage, Histogram>) {
        // For flushes it is not known which belong to an operation: then two operations must not represent thousands of
        // I/Os.
        let are_most = |operations: u64| match self.unowned {
            Some(unowned) => unowned < self.owned().unwrap_or(0),
            None => operations >= self.ios.saturating_sub(operations),
        };
        match &self.operations {
            Some(all) if !all.total.is_empty() && are_most(all.total.count()) => {
                (Unit::Operation, &all.stages)
            }
            _ => (Unit::Io, &self.request_stages),
        }
    }

    /// I/Os known to belong to an operation; None where operations are not followed.
    pub fn owned(&self) -> Option<u64> {
        Some(self.ios.saturating_sub(self.unowned?.saturating_add(self.unclassified)))
    }

    /// The parts of [`Self::stages`].
    pub fn parts(&self) -> &Parts {
        match self.stages().0 {
            Unit::Operation => &self.parts,
            Unit::Io | Unit::UnownedIo => &self.request_parts,
        }
    }

    /// A part of the operations' stages.
    pub fn part(&self, stage: Stage, part: Part) -> Option<&Histogram> {
        self.parts.get(&stage)?.get(&part)
    }

    /// Timed I/Os of no operation.
    pub fn unowned_timed(&self) -> u64 {
        let device = self.unowned_stages.get(&Stage::Device);
        device.or(self.unowned_bio.as_ref()).map_or(0, Histogram::count)
    }

    /// Mean of a stage over the I/Os of operations; None where none of them has it, or the owner of too many is
    /// unknown.
    pub fn owned_mean_ns(&self, stage: Stage) -> Option<f64> {
        // I/Os with unknown owner are like the others: nearly all of operations.
        let few = self.unowned.unwrap_or(0).saturating_mul(20) <= self.owned().unwrap_or(0);
        if self.unclassified > 0 && !few {
            return None;
        }
        let all = self.request_stages.get(&stage)?;
        let (n, sum) = self.unowned_stages.get(&stage).map_or((0, 0), |hist| (hist.count(), hist.sum()));
        let ios = all.count().saturating_sub(n);
        (ios > 0).then(|| all.sum().saturating_sub(sum) as f64 / ios as f64)
    }

    /// Whether only some of the timed I/Os belong to no operation, so that they need rows of their own.
    pub fn is_mixed(&self) -> bool {
        let all = self.request_stages.get(&Stage::Device).or(self.bio.as_ref()).map_or(0, Histogram::count);
        (1..all).contains(&self.unowned_timed())
    }

    /// The count in the unit of [`Self::stages`].
    pub fn count(&self) -> u64 {
        match (self.stages().0, &self.operations) {
            (Unit::Operation, Some(all)) => all.operations,
            _ => self.ios,
        }
    }
}

impl DeviceLatency {
    /// The disk whose queue serves the device: itself, or the disk of a partition.
    pub fn disk_name(&self) -> &str {
        self.disk.as_deref().unwrap_or(&self.name)
    }

    /// One stage over all operations; None where it has no key.
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
        self.ios_without_queue =
            self.ios.saturating_sub(self.queues.iter().map(|queue| queue.ios).saturating_sum());
    }

    /// I/Os of the classes that one kernel counter includes.
    pub fn counted(&self, class: KernelClass) -> u64 {
        self.ops
            .iter()
            .filter(|(op, _)| self.counting.class(**op) == Some(class))
            .map(|(_, l)| l.ios)
            .saturating_sum()
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

    /// I/Os, lost ones included, of the classes that the kernel counts: all but passthrough, on devices with requests.
    pub fn comparable(&self) -> u64 {
        let uncounted = self.ops.iter().filter(|(op, _)| self.counting.class(**op).is_none());
        self.ios.saturating_add(self.lost_ios).saturating_sub(uncounted.map(|(_, l)| l.ios).saturating_sum())
    }

    /// I/Os that the kernel certainly counted in the interval and for which no event came.
    pub fn uncounted(&self) -> u64 {
        self.kernel_total().map_or(0, |b| b.min.saturating_sub(self.comparable()))
    }

    /// Traced I/Os beyond what the kernel can have counted.
    pub fn excess(&self) -> u64 {
        let classes = self.kernel.iter().flatten();
        let by_class =
            classes.map(|(class, of)| self.counted(*class).saturating_sub(of.kernel.max)).saturating_sum();
        let whole = self.kernel_total().map_or(0, |b| self.comparable().saturating_sub(b.max));
        by_class.max(whole)
    }

    /// Hides the kernel's counts, which include all submitters.
    fn hide_kernel(&mut self) {
        self.all_ios = self.kernel_total();
        self.kernel = None;
        self.in_flight_start = None;
        self.in_flight_end = None;
    }

    /// Sum of the kernel's brackets over its classes.
    pub fn kernel_total(&self) -> Option<Bracket> {
        let all = || self.kernel.iter().flat_map(|classes| classes.values());
        let sum = |of: fn(&KernelCount) -> u64| all().map(of).saturating_sum();
        self.kernel.is_some().then(|| Bracket { min: sum(|of| of.kernel.min), max: sum(|of| of.kernel.max) })
    }
}

/// The interval between two readings.
pub fn summarize(host: &Host, start: &Reading, end: &Reading) -> LatencySummary {
    let operations_followed_ns =
        end.followed_ns.map(|end_ns| end_ns.saturating_sub(start.followed_ns.unwrap_or(0)));
    let mut devices: Vec<DeviceLatency> = end
        .devices
        .iter()
        .map(|last| {
            let first = start.device(&last.name);
            let mut device = device(host, first, last);
            if end.filtered {
                device.hide_kernel();
            }
            // The kernel has completed these I/Os, but their slots are still taken.
            let young = device.uncounted().min(last.young);
            device.unseen += young;
            device.lost_ios += young;
            device
        })
        .collect();
    devices.sort_by(|a, b| b.ios.cmp(&a.ios).then_with(|| a.name.cmp(&b.name)));
    let duration_ns = end.at_ns.saturating_sub(start.at_ns);
    LatencySummary {
        duration_ns,
        operations_followed_ns,
        operations_cut: end.cut.saturating_sub(start.cut),
        devices,
        filtered: end.filtered,
        ..LatencySummary::default()
    }
    .derived()
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
    // Also in an interval without operations: it adds nothing, and can be merged with others.
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
            entry.unclassified += row.unclassified;
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
        // Each is already in its class, except at the edges of an interval.
        let Some(entry) = Op::ALL.get(op).and_then(|op| out.ops.get_mut(op)) else { continue };
        if !last.bio_based {
            add_stages(&mut entry.unowned_stages, row);
        } else if !row.stages[1].is_empty() {
            entry.unowned_bio.get_or_insert_default().merge(&row.stages[1]);
        }
    }
    // Old kernels count passthrough as reads or writes, by a direction that the class does not record: nothing can be
    // compared.
    let held = last.kernel_after.as_ref().and_then(|counters| counters.passthrough) == Some(true);
    if held && out.ops.contains_key(&Op::Passthrough) {
        out.kernel = None;
    }
    for (number, op) in Op::ALL.into_iter().enumerate() {
        let rows =
            delta.each_operation().filter(|(_, of, _)| *of == number).map(|(cover, _, row)| (cover, row));
        if let Some(mut operations) = operations::summarize(rows) {
            // The programs count its bios as issued on entry: all their time is device time, except for what
            // blk-throttle delayed before.
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
            of_op.undivided = [
                unknown(delta.parts.get(number)),
                (0..COVERS).map(|cover| unknown(of_cover(cover))).saturating_sum(),
            ];
        }
    }
    out.operations = followed.then(|| {
        out.ops.values().filter_map(|op| op.operations.as_ref()).map(|all| all.operations).saturating_sum()
    });
    out
}

/// The devices below; for a multipath head, its paths instead, because these have the requests.
fn layers_of(host: &Host, device: &BlockDevice) -> Vec<Layer> {
    let below = |name: &String| match host.device(name) {
        Some(head) if is_head(host, head) => head.layers.clone(),
        _ => vec![name.clone()],
    };
    device.layers.iter().flat_map(below).map(|name| Layer::from(name.as_str())).collect()
}

/// The I/Os of a row that are not lost, and their stages.
pub(super) fn io_row(row: &IoRow) -> (u64, BTreeMap<Stage, Histogram>) {
    let mut stages = BTreeMap::new();
    add_stages(&mut stages, row);
    (counted(row), stages)
}

/// I/Os of a row that are not lost.
fn counted(row: &IoRow) -> u64 {
    row.stages[1].count() + row.further + row.untimed + row.never_issued
}

/// Adds the stages that have values; others get no key.
fn add_stages(stages: &mut BTreeMap<Stage, Histogram>, row: &IoRow) {
    for (stage, hist) in [Stage::Queue, Stage::Device, Stage::Complete].into_iter().zip(&row.stages) {
        if !hist.is_empty() {
            stages.entry(stage).or_default().merge(hist);
        }
    }
}

#[cfg(test)]
mod tests;
