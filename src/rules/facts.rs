//! Device figures shared by several rules, each computed in one place.

use std::collections::BTreeMap;

use super::Summaries;
use crate::analyze::counting::Bracket;
use crate::analyze::latency::DeviceLatency;
use crate::analyze::op::Op;
use crate::analyze::parts::Part;
use crate::analyze::sharing::{ProcessIos, Relation};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::host::BlockDevice;
use crate::load::LoadSummary;
use crate::merge::SaturatingSum as _;
use crate::units::{count, figure, in_percent};

/// Fewer I/Os are not enough for a finding: there is not even a 99th percentile.
pub const MIN_IOS: u64 = 100;

/// Share of lost I/Os above which a device's stages support no finding. The same share of disagreement with the
/// kernel's own counter counts likewise. Losing 1 % of the I/Os changes a mean or ratio by about as much, unless just
/// the slowest ones are lost; above it no finding is reliable.
pub const MAX_LOSS: f64 = 0.01;

/// Share of lost I/Os above which a finding mentions it and has a lower confidence: the default of `--max-loss`, above
/// which the exit code is 4.
pub const NOTED_LOSS: f64 = 0.001;

/// Factor on a finding's confidence above [`NOTED_LOSS`].
pub const NOTED_CONFIDENCE: f64 = 0.8;

/// The trace must cover this share of the load before its operations are compared with the device's I/Os.
const MIN_COVERED: f64 = 0.99;

/// A device with this share of its tags in use is full: I/Os in the queue wait for it.
pub const FULL: f64 = 0.80;

/// Share of a device's I/Os from which on other processes matter: one of twenty.
pub const FOREIGN: f64 = 0.05;

/// Up to this depth no device with internal parallelism is busy, whatever its latency suggests.
pub const SHALLOW: f64 = 4.0;

/// I/Os per operation from which on most I/Os share their operation with others.
const SEVERAL: f64 = 1.5;

/// Ratio of median to minimum device time below which I/Os hardly wait for each other.
pub const QUEUEING_RATIO: f64 = 2.0;

/// A device with an I/O in it for less than this share of the time is mostly idle.
pub const BUSY: f64 = 0.5;

/// One device as the rules see it. With a load of our own only reads count, because only reads are ours; otherwise
/// everything counts.
#[derive(Debug)]
pub struct DeviceView<'a> {
    pub device: &'a DeviceLatency,
    /// None: not among the host's facts.
    pub disk: Option<&'a BlockDevice>,
    pub ios: u64,
    pub bytes: u64,
    pub stages: BTreeMap<Stage, Histogram>,
    /// Length of the load, or of the interval if the load is not ours.
    pub duration_ns: u64,
    /// The share of the time in which operations were followed, if not all of it; otherwise None.
    pub sliced: Option<f64>,
}

impl DeviceView<'_> {
    /// Sum of all measured stages.
    pub fn stages_ns(&self) -> u64 {
        self.stages.values().map(Histogram::sum).saturating_sum()
    }

    /// A stage's share of the measured time; None where the stage has no key.
    pub fn share(&self, stage: Stage) -> Option<f64> {
        let all = self.stages_ns();
        let hist = self.stages.get(&stage)?;
        (all > 0).then(|| hist.sum() as f64 / all as f64)
    }

    /// Mean number of I/Os in the device: Little's law in its exact form, the sum of all times in it divided by the
    /// elapsed time.
    pub fn in_device(&self) -> Option<f64> {
        let hist = self.stages.get(&Stage::Device)?;
        (self.duration_ns > 0).then(|| hist.sum() as f64 / self.duration_ns as f64)
    }

    /// I/Os per second.
    pub fn rate(&self) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { self.ios as f64 * 1e9 / self.duration_ns as f64 }
    }

    /// Ratio of median to minimum device time. The fastest I/O met a (nearly) empty device, so this shows how much of
    /// the median is waiting inside the device. None below two I/Os.
    pub fn median_to_minimum(&self) -> Option<f64> {
        let hist = self.stages.get(&Stage::Device)?;
        let (median, min) = (hist.quantile(0.5)?, hist.min()?);
        (min > 0).then(|| median as f64 / min as f64)
    }

    /// Tags of the hardware queues with I/O: the maximum number of I/Os in the device.
    pub fn tags(&self) -> Option<u32> {
        let disk = self.disk?;
        let used: Vec<u32> = self.device.queues.iter().filter(|q| q.ios > 0).map(|q| q.queue).collect();
        let tags = disk
            .queues
            .iter()
            .filter(|q| used.is_empty() || used.contains(&q.queue))
            .fold(0u32, |sum, q| sum.saturating_add(q.tags));
        (tags > 0).then_some(tags)
    }

    /// Maximum number of requests on the queues with I/O, waiting ones included: with a scheduler `nr_requests` per
    /// queue, without one at most the queue's tags.
    pub fn requests(&self) -> Option<u64> {
        let disk = self.disk?;
        let each = u64::from(disk.requests?);
        let used: Vec<u32> = self.device.queues.iter().filter(|q| q.ios > 0).map(|q| q.queue).collect();
        let of_queue = |tags: u32| if self.scheduler().is_some() { each } else { each.min(u64::from(tags)) };
        let all = disk.queues.iter().filter(|q| used.is_empty() || used.contains(&q.queue));
        let sum = all.map(|q| of_queue(q.tags)).saturating_sum();
        (sum > 0).then_some(sum)
    }

    /// Mean number of I/Os in the block layer and the device: Little's law in its exact form.
    pub fn in_block_layer(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.stages_ns() as f64 / self.duration_ns as f64)
    }

    /// Followed operations and the sum of their times, scaled up to the whole interval if operations were followed only
    /// part of the time.
    pub fn operations(&self) -> (u64, u64) {
        let all = self.device.ops.values().filter_map(|op| op.operations.as_ref());
        let (count, ns) = all.fold((0u64, 0u64), |(count, ns), of| {
            (of.total.count().saturating_add(count), of.total.sum().saturating_add(ns))
        });
        let whole = |of: u64| self.sliced.map_or(of, |duty| (of as f64 / duty.max(1e-6)) as u64);
        (whole(count), whole(ns))
    }

    /// A stage's share of the operations' time; None if no operation has it.
    pub fn operation_share(&self, stage: Stage) -> Option<f64> {
        let all = || self.device.ops.values().filter_map(|op| op.operations.as_ref());
        let total: u64 = all().map(|of| of.total.sum()).saturating_sum();
        let found: Vec<u64> = all().filter_map(|of| of.stages.get(&stage).map(Histogram::sum)).collect();
        (!found.is_empty() && total > 0).then(|| found.iter().saturating_sum() as f64 / total as f64)
    }

    /// The measured stages with their shares of the operations' time (of the I/Os' if operations are not followed),
    /// largest first; and whether they are of operations.
    pub fn largest_stages(&self) -> (Vec<(Stage, f64)>, bool) {
        let sorted = |share: &dyn Fn(Stage) -> Option<f64>| {
            let shares = Stage::ALL.into_iter().filter_map(|stage| Some((stage, share(stage)?)));
            let mut shares: Vec<(Stage, f64)> = shares.collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            shares
        };
        let of_operations = sorted(&|stage| self.operation_share(stage));
        // A few operations are not representative if most I/Os belong to none.
        let ops = || self.device.ops.values();
        let ios = ops().map(|of| of.ios.saturating_sub(of.unclassified)).saturating_sum();
        let unowned = ops().filter_map(|of| of.unowned).saturating_sum();
        match of_operations.is_empty() || unowned >= ios.div_ceil(2).max(1) {
            true => (sorted(&|stage| self.share(stage)), false),
            false => (of_operations, true),
        }
    }

    /// The content of the submit stage if operations have several I/Os each (an fsync, a copy): an operation has the
    /// stages of the I/O that finishes last.
    pub fn earlier_ios_line(&self) -> Option<String> {
        let followed = self
            .device
            .ops
            .values()
            .filter_map(|of| Some((of.owned()?, of.operations.as_ref()?.total.count())));
        let (ios, operations) =
            followed.fold((0u64, 0u64), |sum, of| (sum.0.saturating_add(of.0), sum.1.saturating_add(of.1)));
        let each = ios as f64 / operations.max(1) as f64;
        (each >= SEVERAL).then(|| {
            format!(
                "an operation has {} I/Os on average: its wait for the earlier ones counts as submit",
                figure(each)
            )
        })
    }

    /// Hardware queues with I/O: at most this many CPUs handle completions.
    pub fn active_queues(&self) -> usize {
        self.device.queues.iter().filter(|q| q.ios > 0).count().max(1)
    }

    /// The active I/O scheduler, if any.
    pub fn scheduler(&self) -> Option<&str> {
        self.disk?.scheduler.as_deref().filter(|name| *name != "none" && !name.is_empty())
    }

    /// Whether this machine's CPUs do the device's work.
    pub fn is_loop(&self) -> bool {
        self.disk.is_some_and(|disk| disk.driver.as_deref() == Some("loop"))
    }

    /// Why the stages of this device support no finding; None if they do.
    pub fn doubt(&self, s: &Summaries<'_>) -> Option<String> {
        doubt(s, self.device)
    }

    /// Whether there is enough I/O, and no doubt.
    pub fn sound(&self, s: &Summaries<'_>) -> bool {
        self.ios >= MIN_IOS && self.doubt(s).is_none()
    }
}

/// The disk with that name in the host's facts.
pub fn disk<'a>(s: &Summaries<'a>, name: &str) -> Option<&'a BlockDevice> {
    s.host.device(name)
}

/// Devices below `name`, nearest first, from the trace's and the host's layers.
pub fn below(s: &Summaries<'_>, name: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut look = vec![name.to_string()];
    while let Some(at) = look.pop() {
        let traced = s.latency.device(&at).into_iter().flat_map(|d| &d.layers).map(|layer| &layer.name);
        let known = disk(s, &at).into_iter().flat_map(|d| &d.layers);
        for lower in traced.chain(known) {
            // The names come from sysfs, which may be inconsistent: a cycle must terminate.
            if lower != name && !found.contains(lower) {
                found.push(lower.clone());
                look.push(lower.clone());
            }
        }
    }
    found
}

/// The load, if its I/O comes to this device: its target, or one below it.
pub fn driven<'a>(s: &Summaries<'a>, name: &str) -> Option<&'a LoadSummary> {
    s.load.filter(|load| {
        let target = load.device.as_deref();
        target.is_some_and(|target| target == name || below(s, target).iter().any(|lower| lower == name))
    })
}

/// The devices that the run is about: the load's target, or the devices below it if the target itself has no requests
/// (dm, md); without a load of our own, every device with I/O.
pub fn device_views<'a>(s: &Summaries<'a>) -> Vec<DeviceView<'a>> {
    let Some(load) = s.load else {
        let devices = s.latency.devices.iter().filter(|device| !is_layer(s, device));
        return devices.map(|d| device_view(s, d)).collect();
    };
    let Some(target) = &load.device else {
        return Vec::new();
    };
    if let Some(device) = s.latency.device(target).filter(|device| !is_layer(s, device)) {
        return vec![device_view(s, device)];
    }
    let lower = below(s, target);
    s.latency.devices.iter().filter(|d| lower.contains(&d.name)).map(|d| device_view(s, d)).collect()
}

/// Whether the run is about the I/O of this process.
pub fn is_examined(s: &Summaries<'_>, row: &ProcessIos) -> bool {
    match row.relation {
        Relation::Kernel => false,
        Relation::Own => s.load.is_some(),
        Relation::Command => true,
        Relation::Other | Relation::Unknown => {
            s.load.is_none() && !s.command && (!s.latency.filtered || row.selected)
        }
    }
}

/// Whether traced devices below it do all its work and have the stages, which bios lack.
fn is_layer(s: &Summaries<'_>, device: &DeviceLatency) -> bool {
    let is_traced = |lower: &String| s.latency.device(lower).is_some_and(|lower| lower.ios > 0);
    device.bio_based && below(s, &device.name).iter().any(is_traced)
}

/// One device as the rules see it. Without requests, the whole time of a bio is its device stage.
pub fn device_view<'a>(s: &Summaries<'a>, device: &'a DeviceLatency) -> DeviceView<'a> {
    let ours = |op: &Op| s.load.is_none() || *op == Op::Read;
    let mut stages: BTreeMap<Stage, Histogram> = BTreeMap::new();
    let (mut ios, mut bytes) = (0u64, 0u64);
    for (_, latency) in device.ops.iter().filter(|(op, _)| ours(op)) {
        ios = ios.saturating_add(latency.ios);
        bytes = bytes.saturating_add(latency.bytes);
        for (stage, hist) in &latency.request_stages {
            stages.entry(*stage).or_default().merge(hist);
        }
        if let Some(bio) = &latency.bio {
            stages.entry(Stage::Device).or_default().merge(bio);
        }
    }
    let duration_ns = s.load.map_or(s.latency.duration_ns, |load| load.duration_ns);
    let sliced = s.latency.sliced();
    DeviceView { device, disk: disk(s, &device.name), ios, bytes, stages, duration_ns, sliced }
}

/// Whether the stages were split into parts (`--detail`).
pub fn has_parts(s: &Summaries<'_>) -> bool {
    let ops = s.latency.devices.iter().flat_map(|device| device.ops.values());
    ops.into_iter().any(|of| !of.parts.is_empty() || !of.request_parts.is_empty())
}

/// Whether (nearly) all I/Os of the device were measured: without a filter, or if other processes had few. Only then
/// the kernel's counters of the device describe them.
pub fn has_all_ios(s: &Summaries<'_>, device: &DeviceLatency) -> bool {
    let nearly_all = |all: &Bracket| device.ios as f64 >= all.max as f64 * (1.0 - FOREIGN);
    !s.latency.filtered || device.all_ios.as_ref().is_some_and(nearly_all)
}

/// Why there are no parts: the reason if they were requested, otherwise how to request them.
pub fn why_no_parts<'a>(s: &Summaries<'a>) -> &'a str {
    let refused = s.envelope.missing.iter().find(|missing| missing.part.as_deref() == Some("detail"));
    refused.map_or("--detail measures them", |missing| missing.why.as_str())
}

/// The parts of the queue stage of a device's I/Os, longest first, as shares of that stage; for operations if those
/// have parts. Empty without `--detail`.
pub fn queue_parts(p: &DeviceView<'_>) -> Vec<(Part, f64)> {
    let (mut sums, mut all) = (BTreeMap::<Part, u64>::new(), 0u64);
    for of in p.device.ops.values() {
        all = all.saturating_add(of.stages().1.get(&Stage::Queue).map_or(0, Histogram::sum));
        for (part, hist) in of.parts().get(&Stage::Queue).into_iter().flatten() {
            let sum = sums.entry(*part).or_default();
            *sum = sum.saturating_add(hist.sum());
        }
    }
    let mut shares: Vec<(Part, f64)> =
        sums.into_iter().filter(|_| all > 0).map(|(part, ns)| (part, ns as f64 / all as f64)).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// A line of evidence with the parts of the queue stage; None without `--detail`.
pub fn queue_parts_line(p: &DeviceView<'_>) -> Option<String> {
    let shares: Vec<String> = queue_parts(p)
        .iter()
        .map(|(part, share)| format!("{} {}", part.name(), in_percent(*share)))
        .collect();
    (!shares.is_empty())
        .then(|| format!("parts of the queue stage of {}: {}", p.device.name, shares.join(", ")))
}

/// `lost / (kept + lost)`, as documented.
pub fn loss(kept: u64, lost: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (kept as f64 + lost as f64) }
}

/// Lost I/Os that are not attributed to a device: any device may have lost them.
pub fn unattributed_lost(s: &Summaries<'_>) -> u64 {
    s.envelope.lost.ios.saturating_sub(s.latency.devices.iter().map(|d| d.lost_ios).saturating_sum())
}

/// Evidence that lowers the confidence for this device without ruling findings out: a tolerable loss of I/Os, or its
/// removal.
pub fn noted(s: &Summaries<'_>, name: &str) -> Vec<String> {
    let Some(device) = s.latency.device(name) else { return Vec::new() };
    let lost = device.lost_ios.saturating_add(unattributed_lost(s));
    let share = loss(device.ios, lost);
    let lost = (share > NOTED_LOSS).then(|| {
        format!(
            "up to {} of {} I/Os of {name} were missed ({:.2} %) and are not in the figures",
            count(lost),
            count(device.ios.saturating_add(lost)),
            share * 100.0
        )
    });
    let gone = device
        .vanished
        .then(|| format!("{name} vanished before the end: rates over the whole interval are too low"));
    lost.into_iter().chain(gone).collect()
}

fn doubt(s: &Summaries<'_>, device: &DeviceLatency) -> Option<String> {
    let name = &device.name;
    if device.negative > 0 {
        let what = match device.negative {
            1 => format!("1 stage of {name} ends before it begins"),
            n => format!("{} stages of {name} end before they begin", count(n)),
        };
        return Some(format!("{what}, so its times cannot be trusted"));
    }
    let lost = device.lost_ios.saturating_add(unattributed_lost(s));
    let share = loss(device.ios, lost);
    if share > MAX_LOSS {
        return Some(format!(
            "up to {} of {} I/Os of {name} were missed ({:.2} %, above {:.1} %)",
            count(lost),
            count(device.ios.saturating_add(lost)),
            share * 100.0,
            MAX_LOSS * 100.0
        ));
    }
    let bracket = device.kernel_total()?;
    // Only classes that the kernel counts.
    let classes = device.kernel.as_ref()?;
    let read = |op: &Op| op.kernel_class().is_some_and(|class| classes.contains_key(&class));
    let seen: u64 = device.ops.iter().filter(|(op, _)| read(op)).map(|(_, l)| l.ios).saturating_sum();
    let off = bracket.min.saturating_sub(seen.saturating_add(lost)).max(seen.saturating_sub(bracket.max));
    (off as f64 > seen.max(bracket.min) as f64 * MAX_LOSS).then(|| {
        format!(
            "{} I/Os of {name} were measured but the kernel counted {} to {}, so I/Os were missed or \
             counted twice",
            count(seen),
            count(bracket.min),
            count(bracket.max)
        )
    })
}

/// Whether the trace covers the whole load, so that the two may be compared.
pub fn covered(s: &Summaries<'_>) -> bool {
    s.load.is_some_and(|load| s.latency.duration_ns as f64 >= load.duration_ns as f64 * MIN_COVERED)
}

/// Whether its tags are (nearly) all in use.
pub fn full(p: &DeviceView<'_>) -> bool {
    match (p.in_device(), p.tags()) {
        (Some(held), Some(tags)) => held >= f64::from(tags) * FULL,
        _ => false,
    }
}

/// How many I/Os the load may have in flight on this device.
pub fn depth(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<f64> {
    let load = s.load?;
    let operations = load.operations().max(1);
    let parts = (p.ios as f64 / operations as f64).max(1.0);
    Some(f64::from(load.job.iodepth) * f64::from(load.job.numjobs) * parts)
}

/// The device stage's share of the operation as the generator measured it; None where an operation is not one I/O of
/// this device.
pub fn operation_share(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<f64> {
    // The paths of a multipath drive, and the devices below a volume, carry the operations of the driven device.
    let (load, name) = (s.load?, &p.device.name);
    let target = load.device.as_ref()?;
    if target != name && !below(s, target).contains(name) {
        return None;
    }
    let parts = p.ios as f64 / load.operations().max(1) as f64;
    let device = p.stages.get(&Stage::Device)?.mean()?;
    let whole = load.latency().mean().filter(|mean| *mean > 0.0)?;
    (0.9..1.1).contains(&parts).then(|| (device / whole).min(1.0))
}

/// A share as percent.
pub fn percent(share: f64) -> f64 {
    share * 100.0
}
