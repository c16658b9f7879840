//! Summarizes lock waits: which locks, which threads, and how long.

mod frames;
pub mod holders;
#[cfg(test)]
mod tests;
pub mod trust;
pub mod waits;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

pub(in crate::analyze) use self::frames::is_locking;
use self::frames::{caller, stacks_by_lock};
use self::holders::{Holder, Waiter};
use super::stacks::addresses_of;
use crate::envelope::Missing;
use crate::hist::Histogram;
use crate::host::Host;
use crate::merge::{Merge, merge, merge_fields, row, weighted_known};
use crate::names::names;
use crate::symbols::{Addresses, Names};
use crate::wire::Count as _;
pub use crate::wire::locks::WireLockKind;
use crate::wire::locks::{LockEventSource, LockSample, Reading, RecognisedBy, SpinSample, WireLockCpu};
pub use crate::wire::stacks::Sampler;

/// The window between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LockSummary {
    pub duration_ns: u64,
    #[serde(rename = "seen_by")]
    pub source: LockEventSource,
    #[serde(flatten)]
    pub events: Events,
    /// The one that was waited for longest first; those without room of their own are in one per kind, at the end.
    pub locks: Vec<LockRow>,
    /// Locks of other devices than those that were asked for.
    pub left_out: LeftOut,
    /// The one that waited longest first.
    #[serde(rename = "by_process")]
    pub processes: Vec<ProcessRow>,
    /// Waits of processes that found no room among those.
    pub other_processes: u64,
    /// By CPU on which waits ended; those without any are left out.
    pub by_cpu: Vec<CpuWaits>,
    pub by_node: Vec<NodeWaits>,
    pub stacks: StackSampling,
    /// None where no sampler ran, or no sample was taken in the window.
    pub spin: Option<SpinShare>,
    /// None where the slow path was not probed beside the events.
    pub slow_path: Option<SlowPath>,
    /// Tasks that slept for a lock when the window ended, the longest wait first; None: not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Vec<Waiter>>,
    /// Releases of locks that are with no lock's holder; None: this kernel does not say who releases one.
    pub lost_releases: Option<u64>,
}

merge_fields!(LockSummary {
    first: source;
    last: waiting;
    add: duration_ns events other_processes left_out stacks spin;
    rows: locks processes by_cpu by_node;
    both: slow_path lost_releases;
});

impl Merge for LockSummary {
    fn merge_with(&mut self, later: &Self) {
        let (ns, later_ns) = (self.duration_ns, later.duration_ns);
        let percent = |of: fn(&SpinShare) -> f64| {
            weighted_known(self.spin.as_ref().map(of), ns, later.spin.as_ref().map(of), later_ns)
        };
        let percents =
            [percent(|spin| spin.cpu_percent), percent(|spin| spin.low), percent(|spin| spin.high)];
        self.merge_fields(later);
        if let (Some(spin), [Some(cpu_percent), Some(low), Some(high)]) = (&mut self.spin, percents) {
            *spin = SpinShare { cpu_percent, low, high, ..*spin };
        }
    }
}

impl LockSummary {
    /// See [`crate::merge::Summary::settle`].
    pub fn settle(&mut self) {
        self.events.settle();
        self.stacks.estimated = self.stacks.is_estimated();
        if let Some(slow) = &mut self.slow_path {
            slow.pending_bit_waiters = slow.calls.saturating_sub(slow.events);
        }
        for row in &mut self.locks {
            row.max_wait_ns = row.wait.max();
            row.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.wait_ns));
            if row.by == By::Caller
                && let Some(frame) = row.caller()
            {
                row.name = taken_in(frame);
            }
        }
        // Rows of a whole kind are at the end.
        let order = |row: &LockRow| {
            let wait = row.address.is_some().then_some(std::cmp::Reverse(row.wait_ns));
            (wait.is_none(), wait, row.address.clone(), row.kind)
        };
        self.locks.sort_by_cached_key(order);
        sort(&mut self.processes);
        self.by_cpu.sort_by_key(|of| of.cpu);
        self.by_node.sort_by_key(|of| of.node);
    }
}

/// Number of waits, and their time together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Waits {
    pub contentions: u64,
    pub wait_ns: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuWaits {
    pub cpu: u32,
    #[serde(flatten)]
    pub waits: Waits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeWaits {
    pub node: u32,
    #[serde(flatten)]
    pub waits: Waits,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LeftOut {
    pub locks: u64,
    pub wait_ns: u64,
}

merge!(Waits { add: contentions wait_ns; });
merge!(CpuWaits { first: cpu; add: waits; });
row!(CpuWaits, u32, |of| of.cpu);
merge!(NodeWaits { first: node; add: waits; });
row!(NodeWaits, u32, |of| of.node);
// Whether two intervals left out the same locks is not known, so the maximum is a lower bound.
merge!(LeftOut { most: locks; add: wait_ns; });

/// The kernel's events, which its own trigger counts as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Events {
    pub begins: Begins,
    /// Waits that ended, of all kinds; of them those that spin to the end.
    pub contentions: u64,
    pub wait_ns: u64,
    pub spin_contentions: u64,
    pub spin_wait_ns: u64,
}

/// Begins of waits, and what came of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Begins {
    pub total: u64,
    /// Those that were seen; a wait of a mutex that spins first and sleeps then has two.
    pub by_kind: BTreeMap<WireLockKind, u64>,
    pub repeats: u64,
    /// Of others than those who were asked for.
    pub filtered: u64,
    /// Ends without a begin: mostly of waits that began before the window.
    pub unmatched_ends: u64,
    /// Waits that had begun and had not ended when the window did.
    pub unended: u64,
    /// Without an end, although another wait was seen in their place.
    pub abandoned: u64,
    /// For which there was no place.
    pub unkept: u64,
    /// Begins and ends that the kernel did not run the program for.
    pub missed: u64,
    pub missed_ends: u64,
}

merge!(Events { add: begins contentions wait_ns spin_contentions spin_wait_ns; });
merge!(Begins {
    add: total by_kind repeats filtered unmatched_ends abandoned unkept missed missed_ends;
    derived: unended;
});

impl Events {
    /// Computes the waits that had begun and not ended.
    fn settle(&mut self) {
        let begins = &mut self.begins;
        let over = [self.contentions, begins.repeats, begins.filtered, begins.abandoned, begins.unkept];
        begins.unended = over.iter().fold(begins.total, |left, n| left.saturating_sub(*n));
    }

    /// Begins of waits for plain spinlocks.
    pub fn spins(&self) -> u64 {
        self.begins.by_kind.get(&WireLockKind::Spin).copied().unwrap_or(0)
    }

    /// Known begins that are missing from the waits.
    pub fn lost(&self) -> u64 {
        self.begins.missed.saturating_add(self.begins.unkept)
    }
}

names! {
    /// How a lock was recognised.
    #[derive(Default, PartialOrd, Ord)]
    pub enum By {
        /// The struct around it points back to itself.
        Structure = "structure",
        /// The kernel's symbol table has it.
        Symbol = "symbol",
        /// By the slab cache of the object that contains it.
        Slab = "slab",
        /// By the function that waits for it.
        Caller = "caller",
        /// Not recognised: an address, or many locks together.
        #[default]
        Nothing = "nothing",
    }
}

/// One lock, or those of a kind that found no room.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LockRow {
    pub name: String,
    #[serde(rename = "recognised_by")]
    pub by: By,
    pub kind: WireLockKind,
    /// In hexadecimal digits. None: of many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub device: Option<String>,
    pub node: Option<u32>,
    pub cgroup: Option<String>,
    pub pid: Option<u32>,
    pub contentions: u64,
    pub wait_ns: u64,
    pub max_wait_ns: Option<u64>,
    /// Some wanted to share it, some gave up.
    #[serde(rename = "shared")]
    pub reads: u64,
    #[serde(rename = "gave_up")]
    pub failed: u64,
    pub wait: Histogram,
    /// Who let go of it; None: nobody was seen to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The one that waited longest first. JSON has the first ones.
    #[serde(serialize_with = "first")]
    pub stacks: Vec<LockStack>,
}

merge_fields!(LockRow {
    first: name by kind address device node cgroup pid;
    add: contentions wait_ns reads failed wait holder;
    rows: stacks;
    derived: max_wait_ns;
});

impl Merge for LockRow {
    fn merge_with(&mut self, later: &Self) {
        self.merge_fields(later);
        // Other intervals may have different stacks each time, so the list must be bounded.
        if self.stacks.len() > MOST_MERGED {
            self.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.wait_ns));
            self.stacks.truncate(MOST_MERGED);
        }
        // One interval may have recognised what another did not.
        if later.by < self.by {
            let LockRow { name, by, device, node, cgroup, pid, .. } = later.clone();
            (self.name, self.by, self.device, self.node) = (name, by, device, node);
            (self.cgroup, self.pid) = (cgroup, pid);
        }
    }
}

/// Address and kind; for rows without an address their name.
type LockKey = (Option<String>, WireLockKind, Option<String>);

row!(LockRow, LockKey, |row| {
    let name = row.address.is_none().then(|| row.name.clone());
    (row.address.clone(), row.kind, name)
});

/// Stacks per lock in JSON, those with the longest wait.
const MOST_STACKS: usize = 16;
/// Stacks kept while merging intervals, before these are chosen.
const MOST_MERGED: usize = 4 * MOST_STACKS;

fn first<S: Serializer>(stacks: &[LockStack], serializer: S) -> Result<S::Ok, S::Error> {
    stacks[..stacks.len().min(MOST_STACKS)].serialize(serializer)
}

impl LockRow {
    /// The function outside the locking code with the longest wait, if a stack has one.
    pub fn caller(&self) -> Option<&str> {
        caller(&self.stacks)
    }
}

/// A way to wait for a lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LockStack {
    /// None where that was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<Who>,
    /// Names of the kernel's functions, the innermost first.
    pub frames: Vec<String>,
    /// Estimates where stacks were sampled.
    pub contentions: u64,
    pub wait_ns: u64,
    /// How many were taken.
    pub samples: u64,
}

merge!(LockStack { first: who frames; add: contentions wait_ns samples; });
row!(LockStack, (Option<Who>, Vec<String>), |stack| (stack.who.clone(), stack.frames.clone()));

/// Who waits in a stack. All of it is written by strangers, and not escaped.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Who {
    /// Whose time it is, root first.
    pub labels: Vec<String>,
    /// Of user mode, root first.
    pub frames: Vec<String>,
    /// They are cut within a program.
    pub is_cut: bool,
}

/// Who waited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProcessRow {
    pub pid: u32,
    /// Written by strangers.
    pub comm: String,
    #[serde(flatten)]
    pub waits: Waits,
    /// None where one before the window was as long: the longest in it is not known.
    pub max_wait_ns: Option<u64>,
}

// The maximum since the probe began belongs to the interval in which it rose.
merge!(ProcessRow { first: pid comm; add: waits; most: max_wait_ns; });
row!(ProcessRow, (u32, String), |row| (row.pid, row.comm.clone()));

/// How the stacks were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StackSampling {
    pub taken: u64,
    /// Of this many waits.
    pub of: u64,
    /// See [`Self::is_estimated`].
    pub estimated: bool,
    pub failed: u64,
    pub full: u64,
    /// Of those that were taken: without who waited, for whom there was no room.
    pub without_who: u64,
    pub over_budget: u64,
    /// What they took.
    pub ns: u64,
    /// Shorter waits were left to chance, in proportion to their length: the highest that it came to on any CPU.
    pub threshold_ns: u64,
}

merge!(StackSampling {
    add: taken of failed full without_who over_budget ns;
    most: threshold_ns;
    derived: estimated;
});

impl StackSampling {
    /// Whether the numbers of stacks are estimates.
    pub fn is_estimated(&self) -> bool {
        self.taken < self.of
    }
}

/// CPU time spent waiting, of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpinShare {
    /// The lower bound.
    pub cpu_percent: f64,
    pub sampler: Sampler,
    pub samples: u64,
    pub lost: u64,
    /// In the loops that wait, percent; more is certain not to be seen where the sampler sees everything.
    pub low: f64,
    /// With what falls where interrupts come on again, which may be waits with interrupts off.
    pub high: f64,
}

// Percentages are weighted by the lengths of the intervals.
merge!(SpinShare { first: cpu_percent sampler low high; add: samples lost; });

/// Entries into the slow path of spinlocks against the events of waits for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SlowPath {
    #[serde(rename = "slow_path_calls")]
    pub calls: u64,
    pub events: u64,
    /// Of those: without an event, who spun on the pending bit (or by test-and-set).
    pub pending_bit_waiters: u64,
}

merge!(SlowPath { add: calls events; derived: pending_bit_waiters; });

/// The addresses of a reading to symbolize.
pub fn addresses(reading: &Reading) -> Addresses {
    addresses_of(reading.stacks.keys().map(|key| &key.stack), &reading.maps)
}

/// The waits between two readings. `devices`: locks of other devices are left out; empty: all are included.
pub fn summarize(
    host: &Host,
    start: &Reading,
    end: &Reading,
    names: &Names,
    devices: &[String],
) -> LockSummary {
    let rows: Vec<WireLockCpu> = end
        .cpus
        .iter()
        .enumerate()
        .map(|(cpu, row)| row.since(start.cpus.get(cpu).unwrap_or(&WireLockCpu::default())))
        .collect();
    let waits = |row: &WireLockCpu| Waits { contentions: row.contentions, wait_ns: row.wait_ns };
    let by_cpu: Vec<CpuWaits> = (0..)
        .zip(&rows)
        .map(|(cpu, row)| CpuWaits { cpu, waits: waits(row) })
        .filter(|of| of.waits.contentions > 0)
        .collect();
    let mut by_node: BTreeMap<u32, Waits> = BTreeMap::new();
    for CpuWaits { cpu, waits } in &by_cpu {
        let Some(node) = host.nodes.iter().find(|node| node.cpus.contains(cpu)) else { continue };
        let sum = by_node.entry(node.node).or_default();
        sum.contentions += waits.contentions;
        sum.wait_ns += waits.wait_ns;
    }
    let mut summary = LockSummary {
        duration_ns: end.at_ns.saturating_sub(start.at_ns),
        source: end.source,
        events: events(&rows, start, end),
        processes: processes(start, end),
        other_processes: rows.iter().map(|row| row.other_processes).sum(),
        by_cpu,
        by_node: by_node.into_iter().map(|(node, waits)| NodeWaits { node, waits }).collect(),
        stacks: sampling(&rows),
        spin: end.spin.and_then(|spin| share(&spin, start.spin.as_ref())),
        ..LockSummary::default()
    };
    summary.slow_path = (end.slow_path && end.source == LockEventSource::Events).then(|| {
        let calls = rows.iter().map(|row| row.slow_calls).sum();
        let events = summary.events.spins();
        SlowPath { calls, events, pending_bit_waiters: calls.saturating_sub(events) }
    });
    summary.waiting = holders::waiting(end);
    summary.lost_releases = end.holders.is_some().then(|| {
        let missed = |reading: &Reading| reading.missed.get("lock_release").copied().unwrap_or(0);
        let without_room: u64 = rows.iter().map(|row| row.other_holders).sum();
        without_room + missed(end).saturating_sub(missed(start))
    });
    let all = locks(start, end, names);
    let of_others = |row: &LockRow| {
        !devices.is_empty() && row.device.as_ref().is_some_and(|device| !devices.contains(device))
    };
    let (others, ours): (Vec<LockRow>, Vec<LockRow>) = all.into_iter().partition(of_others);
    summary.left_out =
        LeftOut { locks: others.len() as u64, wait_ns: others.iter().map(|row| row.wait_ns).sum() };
    summary.locks = ours;
    summary
}

impl LockSummary {
    pub fn seconds(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    pub fn contentions_per_second(&self) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { self.events.contentions as f64 / self.seconds() }
    }
}

/// The part that reports that a guest may take plain spinlocks without any event.
pub const TEST_AND_SET: &str = "spinlocks by test-and-set";

/// The gaps of the measurement, without those that this interval has disproved.
pub fn missing(all: &[Missing], summary: &LockSummary) -> Vec<Missing> {
    let was_seen = |gap: &&Missing| gap.part.as_deref() == Some(TEST_AND_SET) && summary.events.spins() > 0;
    all.iter().filter(|gap| !was_seen(gap)).cloned().collect()
}

fn events(rows: &[WireLockCpu], start: &Reading, end: &Reading) -> Events {
    let sum = |of: fn(&WireLockCpu) -> u64| rows.iter().map(of).sum();
    let missed = |names: [&str; 2]| {
        let of = |reading: &Reading| names.iter().filter_map(|name| reading.missed.get(name)).sum::<u64>();
        of(end).saturating_sub(of(start))
    };
    let of_kind = |kind: WireLockKind| rows.iter().map(|row| row.begins[kind as usize]).sum::<u64>();
    let by_kind = WireLockKind::ALL.map(|kind| (kind, of_kind(kind))).into_iter().filter(|(_, n)| *n > 0);
    let begins = Begins {
        total: WireLockKind::ALL.map(of_kind).iter().sum(),
        by_kind: by_kind.collect(),
        repeats: sum(|row| row.repeats),
        filtered: sum(|row| row.filtered),
        unmatched_ends: sum(|row| row.unmatched),
        unended: 0,
        abandoned: sum(|row| row.abandoned),
        unkept: sum(|row| row.unkept),
        missed: missed(["lock_begin", "slow_begin"]),
        missed_ends: missed(["lock_end", "slow_end"]),
    };
    let mut events = Events {
        begins,
        contentions: sum(|row| row.contentions),
        wait_ns: sum(|row| row.wait_ns),
        spin_contentions: sum(|row| row.spin_contentions),
        spin_wait_ns: sum(|row| row.spin_wait_ns),
    };
    events.settle();
    events
}

fn sampling(rows: &[WireLockCpu]) -> StackSampling {
    let sum = |of: fn(&WireLockCpu) -> u64| rows.iter().map(of).sum();
    let mut sampling = StackSampling {
        taken: sum(|row| row.stacks),
        of: sum(|row| row.contentions),
        failed: sum(|row| row.stacks_failed),
        full: sum(|row| row.stacks_full),
        without_who: sum(|row| row.other_waiters),
        over_budget: sum(|row| row.stacks_over),
        ns: sum(|row| row.budget.stack_ns),
        threshold_ns: rows.iter().map(|row| row.budget.most_threshold).max().unwrap_or(0),
        estimated: false,
    };
    sampling.estimated = sampling.is_estimated();
    sampling
}

/// None where the sampler did not run in between: that must not look like zero.
fn share(end: &SpinSample, start: Option<&SpinSample>) -> Option<SpinShare> {
    let less = |of: fn(&SpinSample) -> u64| of(end).saturating_sub(start.map_or(0, of));
    // A tick represents a period of one CPU, whether idle CPUs tick or not.
    let ticks = end.frequency as f64 * less(|sample| sample.duration_ns) as f64 / 1e9;
    if ticks <= 0.0 {
        return None;
    }
    let percent = |samples: u64| 100.0 * samples as f64 / ticks;
    let low = percent(less(|sample| sample.waiting));
    let unlocking = match end.sampler {
        Sampler::CpuClock => percent(less(|sample| sample.unlocking)),
        // This sampler also fires while interrupts are off.
        Sampler::Cycles => 0.0,
    };
    Some(SpinShare {
        cpu_percent: low,
        sampler: end.sampler,
        samples: less(|sample| sample.samples),
        lost: less(|sample| sample.lost),
        low,
        high: low + unlocking,
    })
}

/// The maximum since the probe began belongs to this interval if it rose in it, or if there was nothing before.
/// Otherwise the interval's maximum is unknown: None.
fn longest(now_ns: u64, then_ns: u64, count_then: u64) -> Option<u64> {
    (now_ns > then_ns || count_then == 0).then_some(now_ns)
}

fn processes(start: &Reading, end: &Reading) -> Vec<ProcessRow> {
    let row = |(pid, now): (&u32, &crate::wire::locks::ProcessSample)| {
        let then = start.processes.get(pid).cloned().unwrap_or_default();
        let contentions = now.contentions.saturating_sub(then.contentions);
        (contentions > 0).then(|| ProcessRow {
            pid: *pid,
            comm: String::from_utf8_lossy(&now.comm).into_owned(),
            waits: Waits { contentions, wait_ns: now.wait_ns.saturating_sub(then.wait_ns) },
            max_wait_ns: longest(now.max_wait_ns, then.max_wait_ns, then.contentions),
        })
    };
    let mut all: Vec<ProcessRow> = end.processes.iter().filter_map(row).collect();
    sort(&mut all);
    all
}

fn sort(processes: &mut [ProcessRow]) {
    processes.sort_by_key(|row| (std::cmp::Reverse(row.waits.wait_ns), row.pid));
}

fn locks(start: &Reading, end: &Reading, names: &Names) -> Vec<LockRow> {
    let mut stacks = stacks_by_lock(start, end, names);
    let mut all: Vec<LockRow> = Vec::new();
    for (address, now) in &end.locks {
        let new = start.locks.get(address).map_or_else(|| now.clone(), |then| now.since(then));
        if new.wait.is_empty() {
            continue;
        }
        let stacks = stacks.remove(address).unwrap_or_default();
        all.push(row(*address, new, stacks, start, end));
    }
    all.sort_by(|a, b| (b.wait_ns, &a.address).cmp(&(a.wait_ns, &b.address)));
    for (kind, now) in WireLockKind::ALL.into_iter().zip(&end.others) {
        let new = start.others.get(kind as usize).map_or_else(|| now.clone(), |then| now.since(then));
        if new.wait.is_empty() {
            continue;
        }
        let mut row = row(0, new, Vec::new(), start, end);
        row.name = format!("other locks ({})", kind.name());
        (row.kind, row.address) = (kind, None);
        all.push(row);
    }
    all
}

fn row(address: u64, sample: LockSample, stacks: Vec<LockStack>, start: &Reading, end: &Reading) -> LockRow {
    let known = end.names.get(&address);
    let (name, by) = name_of(address, &stacks, end);
    LockRow {
        name,
        by,
        kind: WireLockKind::of(sample.flags),
        address: Some(format!("{address:#x}")),
        device: known.and_then(|known| known.device.clone()),
        node: known.and_then(|known| known.node),
        cgroup: known.and_then(|known| known.cgroup.clone()),
        pid: known.and_then(|known| known.pid),
        contentions: sample.wait.count(),
        wait_ns: sample.wait.sum(),
        max_wait_ns: sample.wait.max(),
        reads: sample.reads,
        failed: sample.failed,
        wait: sample.wait,
        holder: holders::holder(address, start, end),
        stacks,
    }
}

fn taken_in(caller: &str) -> String {
    format!("lock taken in {caller}")
}

/// A lock's name, and how it was recognised.
fn name_of(address: u64, stacks: &[LockStack], end: &Reading) -> (String, By) {
    match (end.names.get(&address), caller(stacks)) {
        // A slab cache has many objects, so the caller is added.
        (Some(known), caller) if known.by == RecognisedBy::Slab => match caller {
            Some(frame) => (format!("{}, taken in {frame}", known.name), By::Slab),
            None => (known.name.clone(), By::Slab),
        },
        (Some(known), _) if known.by == RecognisedBy::Symbol => (known.name.clone(), By::Symbol),
        (Some(known), _) => (known.name.clone(), By::Structure),
        (None, Some(frame)) => (taken_in(frame), By::Caller),
        (None, None) => (format!("lock at {address:#x}"), By::Nothing),
    }
}
