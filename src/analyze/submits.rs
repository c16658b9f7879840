//! Attributes the time of I/Os to the call path of their submission, by stage.
//!
//! Stacks are taken for some I/Os, times for all. So the total time of each stage and I/O class is exact. It is divided
//! among the stacks of that class in proportion to the times of the I/Os with a stack. An I/O sampled one in N counts N
//! times.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::blocked::watched;
use super::confidence::widest;
use super::files::IoFile;
use super::latency::LatencySummary;
use super::op::Op;
use super::stack_quality::ending;
use super::stacks::{WORKERS_FOR, addresses_of, escape, fold_as};
use super::stage::Stage;
use super::trace::io::{Route, TracedIo};
use super::trace::operation::SubmitMethod;
use crate::symbols::{Addresses, Names};
use crate::wire::events::NO_ROOM;
use crate::wire::files::WireFile;
use crate::wire::stacks::{KTHREAD, Sample};
use crate::wire::submits::Submits;

/// The leaf of a stack: the part of the I/O time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimePart {
    Stage(Stage),
    /// The whole time, on a device without requests.
    Bio,
}

impl TimePart {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.name(),
            Self::Bio => "bio",
        }
    }

    /// Whether the stage belongs to an operation, which may have several I/Os. `complete` lasts until the operation has
    /// ended, which is after its I/O; an I/O of no operation has its own.
    fn is_of_operation(self) -> bool {
        matches!(self, Self::Stage(Stage::Submit | Stage::Complete | Stage::Reap))
    }

    /// The name as a frame.
    pub fn frame(self) -> String {
        format!("[{}]", self.name())
    }

    /// The part of a frame's name, if it is one.
    pub fn of_frame(text: &str) -> Option<Self> {
        let name = text.strip_prefix('[')?.strip_suffix(']')?;
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == name).map(Self::Stage);
        stage.or((name == Self::Bio.name()).then_some(Self::Bio))
    }
}

/// The unit of an exact time: a device and part, and for I/Os also a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct TimeClass {
    device: String,
    op: Option<Op>,
    part: TimePart,
}

/// Identifies a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Origin {
    /// The id of the stack.
    stack: u32,
    /// Set where files are frames.
    file: Option<WireFile>,
}

/// Accumulates the I/Os with a stack.
#[derive(Debug, Clone, Default)]
pub struct SubmitTally {
    /// By class and stack: ns × number of I/Os represented.
    times: HashMap<TimeClass, HashMap<Origin, u128>>,
    /// Delay caused by taking stacks, ns, by class: of the operation itself and of later ones in the same call, and of
    /// requests in the plug.
    later: BTreeMap<TimeClass, u64>,
    /// Timed I/Os with a stack, and those of them that are not further parts of a split bio.
    ios: u64,
    bios: u64,
    /// Of `ios`: those whose stack found no room.
    no_room: u64,
    /// Weight of each stack, ns: sum, and sum of squares.
    weights: HashMap<Origin, (f64, f64)>,
    /// I/Os with a stack whose event was lost.
    lost: u64,
}

impl SubmitTally {
    /// Counts I/Os with a stack whose event was lost.
    pub fn lose(&mut self, ios: u64) {
        self.lost += ios;
    }

    /// Adds an I/O of the device; one without a stack or times is ignored.
    pub fn add(&mut self, device: &str, io: &TracedIo) {
        let (Some(route), Some(op)) = (io.route, io.op) else { return };
        let origin = Origin { stack: route.stack, file: io.file };
        let mut all = None;
        let mut add = |op: Option<Op>, part: TimePart, ns: u64| {
            *all.get_or_insert(0.0) += ns as f64 * route.stands_for as f64;
            let class = TimeClass { device: device.to_string(), op, part };
            let sum = self.times.entry(class).or_default().entry(origin).or_default();
            *sum += u128::from(ns) * u128::from(route.stands_for);
        };
        match io.queue {
            Some(_) => {
                for (stage, ns) in io.stages.iter() {
                    match TimePart::Stage(stage) {
                        part if !part.is_of_operation() => add(Some(op), part, ns),
                        part if io.operation.is_none() => add(None, part, ns),
                        _ => {}
                    }
                }
            }
            None => io.total_ns.into_iter().for_each(|ns| add(Some(op), TimePart::Bio, ns)),
        }
        // The operation's own stages come with the I/O that ended it.
        let end = io.operation.and_then(|operation| operation.end).filter(|end| end.last);
        // Merged operations have no I/O of their own, so their stages come here too.
        let merged = io.merged.iter().filter_map(|operation| operation.end);
        for stages in end.into_iter().chain(merged).filter_map(|end| end.stages) {
            for (stage, ns) in stages.iter().filter(|(stage, _)| TimePart::Stage(*stage).is_of_operation()) {
                // Taking the stack falls between the call's entry and the bio.
                let ours = if stage == Stage::Submit { route.took_ns } else { 0 };
                add(None, TimePart::Stage(stage), ns.saturating_sub(ours));
            }
        }
        self.note_later(device, op, io, route);
        if let Some(all) = all {
            self.ios += 1;
            self.bios += u64::from(!route.part);
            self.no_room += u64::from(route.stack == NO_ROOM);
            let (sum, squares) = self.weights.entry(origin).or_default();
            *sum += all;
            *squares += all * all;
        }
    }

    /// Records the delay caused by taking this I/O's stack. Operations submitted together begin together. On average as
    /// many of them come after a bio as before it.
    fn note_later(&mut self, device: &str, op: Op, io: &TracedIo, route: Route) {
        if route.part {
            return;
        }
        let class = |op, part| TimeClass { device: device.to_string(), op, part: TimePart::Stage(part) };
        let plugged = u64::from(route.plugged);
        if let Some(operation) = io.operation {
            let batch = operation.end.filter(|end| end.kind != SubmitMethod::Call);
            let behind = batch.map_or(0, |end| plugged / u64::from(end.ios.max(1)));
            *self.later.entry(class(None, Stage::Submit)).or_default() += (1 + behind) * route.took_ns;
        }
        if plugged > 0 {
            *self.later.entry(class(Some(op), Stage::Queue)).or_default() += plugged * route.took_ns;
        }
    }

    /// Half-width of the 95 % confidence interval of a stack's share, in percent of all time, for the worst set of
    /// stacks ([`widest`]). The variance of a stack's weight is its sum of squares; the parts of a split bio count as
    /// one I/O. A stack that was never sampled may have a share of up to 3/n (Hanley 1983). `over` bios of `ios` I/Os
    /// are not represented by any sample, and neither are lost ones; their share may belong to any stack.
    fn half_width(&self, over: u64, ios: u64) -> Option<f64> {
        let all = |pick: fn(&(f64, f64)) -> f64| self.weights.values().map(pick).sum::<f64>();
        let (sum, squares) = (all(|weights| weights.0), all(|weights| weights.1));
        if self.bios == 0 || sum <= 0.0 {
            return None;
        }
        let parts = self.ios as f64 / self.bios as f64;
        let as_many = sum * sum / squares / parts;
        let widest = widest(self.weights.values().copied().collect());
        let chance = (1.96 * (widest * parts).sqrt() / sum).max(3.0 / as_many);
        let over = over as f64 * parts / ios.max(1) as f64;
        let lost = self.lost as f64 / (self.lost + self.ios) as f64;
        Some(100.0 * (chance + over + lost).min(1.0))
    }
}

/// Time of I/Os by call path and stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubmitSummary {
    /// `comm;frame;...;leaf;[stage]` to ns. The sum is that of the exact times of all stages.
    pub folded: BTreeMap<String, u64>,
    /// Exact times by part.
    pub parts: BTreeMap<TimePart, u64>,
    /// I/Os in the interval, and those with a stack.
    pub ios: u64,
    pub sampled: u64,
    /// Half-width of the 95 % confidence interval of a share, in percent of all; None without a stack.
    pub half_width: Option<f64>,
    /// The part of `folded` for classes in which no I/O has a stack.
    pub no_stack_ns: u64,
    /// Time of stacks whose user frames are cut within a program.
    pub cut_ns: u64,
    /// Tracing overhead, subtracted from submit and queue: the time of taking the stacks.
    pub stacks_ns: u64,
    /// Number of distinct stacks.
    pub distinct: usize,
}

/// The addresses to symbolize.
pub fn addresses(submits: &Submits) -> Addresses {
    addresses_of(submits.stacks.values(), &submits.maps)
}

/// Divides the exact times of `latency` among the stacks.
pub fn summarize(
    latency: &LatencySummary,
    tally: &SubmitTally,
    submits: &Submits,
    names: &Names,
) -> SubmitSummary {
    let mut summary = SubmitSummary {
        ios: latency.ios(),
        sampled: tally.ios - tally.no_room,
        half_width: tally.half_width(submits.over, latency.ios()),
        distinct: submits.stacks.len(),
        ..SubmitSummary::default()
    };
    let mut ways: HashMap<u32, FoldedStack> = HashMap::new();
    let none = HashMap::new();
    let disks: HashSet<&str> = latency.devices.iter().map(|device| device.name.as_str()).collect();
    for (class, counted) in exact(latency) {
        let stacks_ns = tally.later.get(&class).copied().unwrap_or(0).min(counted);
        summary.stacks_ns += stacks_ns;
        let total = counted - stacks_ns;
        *summary.parts.entry(class.part).or_default() += total;
        let times = tally.times.get(&class).unwrap_or(&none);
        let is_known = |stack: u32| stack == NO_ROOM || submits.stacks.contains_key(&stack);
        let known = times.iter().filter(|(origin, _)| is_known(origin.stack));
        let shares: BTreeMap<Origin, u128> = known.map(|(origin, ns)| (*origin, *ns)).collect();
        let frame = class.part.frame();
        let mut add = |key: String, ns: u64| {
            if ns > 0 {
                *summary.folded.entry(key).or_default() += ns;
            }
        };
        let op = class.op.map_or("operations", Op::name);
        if shares.values().all(|ns| *ns == 0) {
            add(format!("[{op}: stack not taken];{frame}"), total);
            summary.no_stack_ns += total;
            continue;
        }
        for (Origin { stack, file }, ns) in shared_out(total, &shares) {
            if stack == NO_ROOM {
                add(format!("[{op}: no room for the stack];{frame}"), ns);
                continue;
            }
            let way = ways.entry(stack).or_insert_with(|| {
                let sample = &submits.stacks[&stack];
                FoldedStack::of(sample, submits.leaders.get(&sample.pid), names)
            });
            let key = with_file(way.key(&class.device, &disks), file, submits);
            add(format!("{key};{frame}"), ns);
            if way.is_cut {
                summary.cut_ns += ns;
            }
        }
    }
    summary
}

/// Inserts a frame for the file above the task.
fn with_file(key: String, file: Option<WireFile>, submits: &Submits) -> String {
    let label = file.and_then(|file| {
        let path = submits.files.get(&file).map(String::as_str);
        IoFile::new(&file, path).map(|file| file.label())
    });
    let Some(label) = label else { return key };
    let (task, frames) = key.split_once(';').unwrap_or((&key, ""));
    let mut out = format!("{task};");
    escape(label.as_bytes(), &mut out);
    if !frames.is_empty() {
        out.push(';');
        out.push_str(frames);
    }
    out
}

/// A stack with names.
struct FoldedStack {
    folded: String,
    /// A kernel thread, which works for the device's users.
    kernel: bool,
    is_cut: bool,
}

impl FoldedStack {
    /// `leader`: the name of the process whose ring an io_uring thread serves.
    fn of(sample: &Sample, leader: Option<&Vec<u8>>, names: &Names) -> Self {
        Self {
            folded: fold_as(&watched(sample, names), names, leader.map(Vec::as_slice)),
            kernel: sample.flags & KTHREAD != 0 && !sample.is_of_ring(),
            is_cut: !sample.user().is_empty() && ending(sample, names).0.is_cut(),
        }
    }

    /// Appends the device to a kernel thread's name: `kworker/0:1H` alone says nothing, and one thread serves all
    /// devices. A worker of another of the `disks`, such as a loop device's worker that submits to the disk below,
    /// serves that disk.
    fn key(&self, device: &str, disks: &HashSet<&str>) -> String {
        let parts = self.folded.split_once(';').filter(|_| self.kernel);
        let Some((thread, frames)) = parts else { return self.folded.clone() };
        let work = thread.strip_prefix(WORKERS_FOR);
        if work.is_some_and(|work| disks.contains(work)) {
            return self.folded.clone();
        }
        let is_worker = work.is_some() || thread.starts_with("kworker/");
        let mut key = if is_worker { "kworkers" } else { thread }.to_string();
        key.push_str(" for ");
        escape(device.as_bytes(), &mut key);
        key.push(';');
        key.push_str(frames);
        key
    }
}

/// Exact times of all I/Os and operations.
fn exact(latency: &LatencySummary) -> BTreeMap<TimeClass, u64> {
    let mut all = BTreeMap::new();
    for device in &latency.devices {
        let mut add = |op: Option<Op>, part: TimePart, ns: u64| {
            let class = TimeClass { device: device.name.clone(), op, part };
            *all.entry(class).or_insert(0) += ns;
        };
        for (op, times) in &device.ops {
            let is_followed = times.unowned.is_some();
            for (stage, hist) in &times.request_stages {
                match TimePart::Stage(*stage) {
                    part if !part.is_of_operation() => add(Some(*op), part, hist.sum()),
                    part if !is_followed => add(None, part, hist.sum()),
                    part => add(None, part, times.unowned_stages.get(stage).map_or(0, |hist| hist.sum())),
                }
            }
            if let Some(bio) = &times.bio {
                add(Some(*op), TimePart::Bio, bio.sum());
            }
            for (stage, ns) in times.operations.iter().flat_map(|operations| &operations.sums_ns) {
                if TimePart::Stage(*stage).is_of_operation() {
                    add(None, TimePart::Stage(*stage), *ns);
                }
            }
        }
    }
    all.retain(|_, ns| *ns > 0);
    all
}

/// Divides `total` in proportion to the shares, exact to the nanosecond. At least one share must be above 0.
fn shared_out<K: Copy>(total: u64, shares: &BTreeMap<K, u128>) -> Vec<(K, u64)> {
    let sum: u128 = shares.values().sum();
    let (mut seen, mut given) = (0u128, 0u64);
    let mut out = Vec::with_capacity(shares.len());
    for (key, share) in shares {
        seen += share;
        // Products of 2^64 and 2^84 overflow integers; the last value is exact by itself.
        let until = if seen == sum { total } else { (total as f64 * (seen as f64 / sum as f64)) as u64 };
        let until = until.clamp(given, total);
        out.push((*key, until - given));
        given = until;
    }
    out
}

#[cfg(test)]
#[path = "submits_tests.rs"]
mod tests;
