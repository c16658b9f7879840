//! Summarizes the page cache and memory reclaim: sizes, who reclaimed pages, and at what cost.

pub mod moments;
pub mod paths;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use self::paths::PathSummary;
use super::counting::Bracket;
use super::memory_sample::MemorySample;
use super::onset::{NoOnset, Onset, onset};
use crate::hist::Histogram;
use crate::host::absence::Absence;
use crate::host::meminfo::Meminfo;
use crate::host::memory_reading::MemoryReading;
use crate::host::memory_surroundings::Surroundings;
use crate::host::pressure::Pressure;
use crate::host::vmstat::{NAMES, VmstatCounter};
use crate::host::zones::Zone;
use crate::merge::{Merge, Row, SaturatingSum as _, how, merge, merge_fields, row, weighted_known};
use crate::names::names;
use crate::wire::Count;
pub use crate::wire::pagecache::{ReadaheadSource, ReclaimKind};
use crate::wire::pagecache::{Reading, ReclaimSample};

/// Page size of the supported machines.
const PAGE_BYTES: u64 = 4096;

/// Maximum number of processes in JSON.
const MOST_RECLAIMERS: usize = 64;
/// Maximum kept while merging intervals, before these are chosen.
const MOST_MERGED: usize = 16 * MOST_RECLAIMERS;

/// A longer run keeps the samples of the last hour.
const MOST_MOMENTS: usize = 36_000;

/// The window between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PagecacheSummary {
    pub duration_ns: u64,
    /// At its end.
    #[serde(flatten)]
    pub memory: Meminfo,
    /// By the kernel's counters, at least.
    pub scanned_pages: Option<u64>,
    pub stolen_pages: Option<u64>,
    pub refault_pages: Option<u64>,
    /// Of the kernel's counters, by the keys of [`NAMES`]: how far each went. Levels of memory are none of these.
    pub counters: BTreeMap<String, Option<Bracket>>,
    /// Our counts beside the kernel's.
    pub checks: Vec<Check>,
    /// What is not there, and why.
    pub absent: Vec<Absence>,
    /// Time of waiting for memory.
    pub pressure: Pressure,
    /// Of the disks that stand beside memory, by their own counters; None where one of them has gone.
    pub ios: Option<u64>,
    /// kswapd, tasks for the machine and tasks at a group's limit; the others where there were any.
    pub reclaims: BTreeMap<ReclaimKind, ReclaimSummary>,
    /// Pages that reclaim took from the inactive lists of files to look at, by our own count.
    #[serde(rename = "seen")]
    pub scanned: ScannedPages,
    /// The most time first. JSON has the first ones.
    #[serde(serialize_with = "first")]
    pub reclaimers: Vec<ReclaimerSummary>,
    /// Those that JSON leaves out.
    pub more_reclaimers: usize,
    /// None where it cannot be seen.
    pub readahead: Option<Readahead>,
    pub nodes: Vec<NodeSummary>,
    /// The most time first.
    pub paths: Vec<PathSummary>,
    pub series: Vec<MemorySample>,
    /// When trouble began in the series; None: `absent` says why.
    pub onset: Option<Onset>,
    pub lru: Lru,
    pub lost: BTreeMap<String, u64>,
    /// Of one CPU: the reading of the kernel's counters. None for a window that is shorter than a step.
    pub series_cpu_percent: Option<f64>,
}

fn first<S: Serializer>(reclaimers: &[ReclaimerSummary], serializer: S) -> Result<S::Ok, S::Error> {
    reclaimers[..reclaimers.len().min(MOST_RECLAIMERS)].serialize(serializer)
}

merge!(Pressure { both: some_ns full_ns; });
merge_fields!(PagecacheSummary {
    first: lru series series_cpu_percent;
    last: memory;
    add: duration_ns pressure reclaims scanned lost;
    both: scanned_pages stolen_pages refault_pages ios readahead;
    both_each: counters;
    rows: checks reclaimers nodes paths;
    // Each interval's JSON has already left these out; see `settle`.
    most: more_reclaimers;
    each: absent;
    derived: onset;
});

impl Merge for PagecacheSummary {
    fn merge_with(&mut self, later: &Self) {
        let steps = |of: &Self| of.series.iter().map(|moment| moment.duration_ns).saturating_sum();
        self.series_cpu_percent =
            weighted_known(self.series_cpu_percent, steps(self), later.series_cpu_percent, steps(later));
        let begin_ns = self.duration_ns;
        let shifted =
            |moment: &MemorySample| MemorySample { at_ns: moment.at_ns.saturating_add(begin_ns), ..*moment };
        self.series.extend(later.series.iter().map(shifted));
        // A count of only one interval cannot be compared with the kernel's of both.
        let of_both = |check: &Check| later.checks.iter().any(|other| other.what == check.what);
        self.checks.retain(of_both);
        let checked: Vec<String> = self.checks.iter().map(Row::key).collect();
        self.merge_fields(later);
        self.checks.retain(|check| checked.contains(&check.what));
        self.bound();
    }
}

impl PagecacheSummary {
    /// Bounds the lists that grow with each interval.
    fn bound(&mut self) {
        if self.reclaimers.len() > MOST_MERGED {
            sort(&mut self.reclaimers);
            let more = self.reclaimers.len() - MOST_MERGED;
            self.more_reclaimers = self.more_reclaimers.saturating_add(more);
            self.reclaimers.truncate(MOST_MERGED);
        }
        if self.series.len() > MOST_MOMENTS {
            self.series.drain(..self.series.len() - MOST_MOMENTS);
            let why = format!("of a longer run, only the last {MOST_MOMENTS} samples are kept");
            how::each(&mut self.absent, &[Absence::new("series", why)]);
        }
    }
}

names! {
    /// How the kernel chooses the pages to reclaim.
    #[derive(Default)]
    pub enum Lru {
        #[default]
        TwoLists = "two lists",
        MultiGenerational = "multi-generational",
    }
}

/// One kind of reclaim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReclaimSummary {
    /// That began in the window.
    pub count: u64,
    /// Of those that ended in it.
    #[serde(rename = "histogram")]
    pub time: Histogram,
    /// How many these are, and their time.
    pub ended: u64,
    pub ns: u64,
    pub batches: u64,
    pub scanned_pages: u64,
    pub stolen_pages: u64,
    /// Of the scanned ones: those of files.
    pub scanned_file_pages: u64,
    pub stolen_file_pages: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
}

merge!(ReclaimSummary {
    add: count time ended ns batches scanned_pages stolen_pages scanned_file_pages stolen_file_pages throttled
        throttled_ns;
});

/// Pages of files, counted twice by different events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScannedPages {
    /// By what batches held whose fate was told (lru_shrink_inactive).
    #[serde(rename = "batch_file_pages")]
    pub in_batches: u64,
    /// By what was looked at to fill them (lru_isolate): with those that were skipped.
    #[serde(rename = "looked_at_file_pages")]
    pub looked_at: u64,
    /// Of those: taken into a batch.
    #[serde(rename = "taken_file_pages")]
    pub taken: u64,
}

merge!(ScannedPages { add: in_batches looked_at taken; });

/// Whose reclaim it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReclaimerSummary {
    pub kind: Option<ReclaimKind>,
    pub pid: u32,
    pub comm: String,
    /// None where the group is not known, or has gone.
    pub cgroup: Option<String>,
    pub count: u64,
    pub ns: u64,
    /// None where one before the window was as long: the longest in it is not known.
    pub max_ns: Option<u64>,
    pub stolen_pages: u64,
}

// The maximum since the probe began belongs to the interval in which it rose.
merge!(ReclaimerSummary { first: kind pid comm cgroup; add: count ns stolen_pages; most: max_ns; });
row!(ReclaimerSummary, (Option<ReclaimKind>, u32, String, Option<String>), |one| {
    (one.kind, one.pid, one.comm.clone(), one.cgroup.clone())
});

/// Pages that the kernel read before somebody asked for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Readahead {
    pub by: ReadaheadSource,
    pub calls: u64,
    /// With those that were in the cache already: windows overlap.
    pub asked_pages: u64,
    /// Pages that reads and faults wanted; None where they have no event.
    pub wanted_pages: Option<u64>,
    /// Of those: pages of mapped files that were in the cache, and were mapped because a neighbour was touched. Whether
    /// anybody touched them no event tells.
    pub mapped_pages: Option<u64>,
    /// What all disks read; None where the kernel does not count it.
    pub read_pages: Option<u64>,
    /// About so many were read and nobody had wanted them by the end: of the pages that were asked for no more than the
    /// disks read, less those that were wanted. What was wanted twice counts twice, and what others read past the cache
    /// can hide an overlap. None where one of the three is not known, or what was mapped alone decides whether there are
    /// any.
    pub unused_pages: Option<u64>,
}

// Pages read in one interval may be used in the next, so unused pages of intervals do not add up.
merge!(Readahead {
    first: by;
    add: calls asked_pages;
    both: wanted_pages mapped_pages read_pages;
    derived: unused_pages;
});

impl Readahead {
    /// See `unused_pages`.
    fn unused(&self) -> Option<u64> {
        let (wanted, mapped) = (self.wanted_pages?, self.mapped_pages?);
        let most = self.asked_pages.min(self.read_pages?);
        // The bounds if all mapped pages were used, and if none was.
        let (least, most) = (most.saturating_sub(wanted), most.saturating_sub(wanted.saturating_sub(mapped)));
        (least > 0 || most == 0).then_some(least)
    }

    /// Whether reads were followed but the number of unused pages is still unknown: see `mapped_pages`.
    pub fn is_hidden_by_mapping(&self) -> bool {
        self.unused_pages.is_none() && self.mapped_pages.is_some_and(|mapped| mapped > 0)
    }
}

/// One NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeSummary {
    pub node: u32,
    #[serde(flatten)]
    pub memory: Meminfo,
    pub zones: Vec<Zone>,
    pub scanned_pages: u64,
    pub stolen_pages: u64,
    /// Those that began on it.
    pub reclaims: BTreeMap<ReclaimKind, u64>,
}

merge!(NodeSummary { first: node; last: memory zones; add: scanned_pages stolen_pages reclaims; });
row!(NodeSummary, u32, |node| node.node);

impl PagecacheSummary {
    /// See [`crate::merge::Summary::settle`].
    pub fn settle(&mut self) {
        self.checks.iter_mut().for_each(Check::settle);
        let more = self.reclaimers.len().saturating_sub(MOST_RECLAIMERS);
        self.more_reclaimers = self.more_reclaimers.saturating_add(more);
        sort(&mut self.reclaimers);
        self.nodes.sort_by_key(|node| node.node);
        paths::settle(&mut self.paths, self.duration_ns);
        if let Some(ahead) = self.readahead.as_mut().filter(|ahead| ahead.read_pages.is_some()) {
            ahead.unused_pages = ahead.unused();
        }
        self.absent.retain(|absence| absence.what != ONSET);
        let onset = onset(&self.series);
        self.absent.extend(onset.as_ref().err().map(no_onset));
        self.onset = onset.ok();
    }

    pub fn seconds(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }

    /// I/Os of the disks that are recorded with the memory samples.
    pub fn ios_per_second(&self) -> f64 {
        let of_series = || self.series.iter().filter_map(|moment| moment.ios).saturating_sum();
        let ios = self.ios.unwrap_or_else(of_series);
        ios as f64 / self.seconds().max(1e-9)
    }

    pub fn reclaim(&self, kind: ReclaimKind) -> ReclaimSummary {
        self.reclaims.get(&kind).cloned().unwrap_or_default()
    }
}

/// A count of ours beside the kernel's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Check {
    pub what: String,
    pub seen: u64,
    pub kernel_min: u64,
    pub kernel_max: u64,
    /// The two have to be equal.
    pub exact: bool,
    pub holds: bool,
}

merge!(Check { first: what exact; add: seen kernel_min kernel_max; derived: holds; });
row!(Check, String, |check| check.what.clone());

impl Check {
    fn settle(&mut self) {
        let kernel = Bracket { min: self.kernel_min, max: self.kernel_max };
        self.holds = !self.exact || kernel.holds(self.seen);
    }

    fn new(what: &str, seen: u64, kernel: Bracket, exact: bool) -> Self {
        let Bracket { min: kernel_min, max: kernel_max } = kernel;
        let mut check = Self { what: what.to_string(), seen, kernel_min, kernel_max, exact, holds: false };
        check.settle();
        check
    }
}

/// By how much a counter grew, lower and upper bound; None where that is unknown.
fn bracket(start: &Reading, end: &Reading, counter: VmstatCounter) -> Option<Bracket> {
    let min = end.kernel_before.vmstat.since(&start.kernel_after.vmstat, counter)?;
    let max = end.kernel_after.vmstat.since(&start.kernel_before.vmstat, counter)?;
    Some(Bracket { min, max })
}

/// What happened between the two readings. `spins`: shares of spinning over time, if sampled.
pub fn summarize(surroundings: &Surroundings, start: &Reading, end: &Reading) -> PagecacheSummary {
    let duration_ns = end.at_ns.saturating_sub(start.at_ns);
    let deltas: BTreeMap<(ReclaimKind, u32), ReclaimSample> = end
        .reclaims
        .iter()
        .map(|(key, last)| {
            (*key, start.reclaims.get(key).map_or_else(|| last.clone(), |first| last.since(first)))
        })
        .collect();
    let mut absent = end.kernel_after.memory.absent();
    absent.extend(end.kernel_after.vmstat.absent());
    let less =
        |of: fn(&MemoryReading) -> Option<u64>| of(&end.kernel_before)?.checked_sub(of(&start.kernel_after)?);
    let scanned = scanned(start, end, &deltas);
    let reclaims = reclaims(&deltas);
    // Which of our counts equals the kernel's depends on the LRU. The multi-generational one counts isolated pages, or
    // all scanned ones, and counts a retried batch twice.
    let (lru, seen) = match surroundings.lru_gen {
        true => (Lru::MultiGenerational, scanned.taken),
        false => (Lru::TwoLists, scanned.looked_at),
    };
    let counted = |counter| bracket(start, end, counter);
    let of_pages = counted(VmstatCounter::ScanFile)
        .map(|kernel| Check::new("file pages scanned", seen, kernel, lru == Lru::TwoLists));
    let of_kswapd = counted(VmstatCounter::KswapdRuns)
        .map(|kernel| Check::new("runs of kswapd", reclaims[&ReclaimKind::Kswapd].count, kernel, true));
    let series = moments::moments(start, end);
    let onset = onset(&series);
    absent.extend(onset.as_ref().err().map(no_onset));
    let reclaimers = reclaimers(surroundings, start, end);
    let lost = end
        .lost
        .iter()
        .map(|(kind, n)| (kind.clone(), n.saturating_sub(start.lost.get(kind).copied().unwrap_or(0))))
        .collect();
    PagecacheSummary {
        duration_ns,
        memory: end.kernel_before.memory,
        scanned_pages: counted(VmstatCounter::ScanFile).map(|pages| pages.min),
        stolen_pages: counted(VmstatCounter::StealFile).map(|pages| pages.min),
        refault_pages: counted(VmstatCounter::RefaultFile).map(|pages| pages.min),
        counters: NAMES
            .iter()
            .take_while(|name| name.counter != VmstatCounter::FreePages)
            .map(|name| (name.key.to_string(), counted(name.counter)))
            .collect(),
        checks: of_pages.into_iter().chain(of_kswapd).collect(),
        absent,
        pressure: Pressure {
            some_ns: less(|reading| reading.pressure.some_ns),
            full_ns: less(|reading| reading.pressure.full_ns),
        },
        ios: less(|reading| reading.disks.map(|disks| disks.ios)),
        reclaims,
        scanned,
        more_reclaimers: reclaimers.len().saturating_sub(MOST_RECLAIMERS),
        reclaimers,
        readahead: readahead(start, end),
        nodes: nodes(surroundings, &deltas),
        paths: paths::followed(start, end, duration_ns),
        series,
        onset: onset.ok(),
        lru,
        lost,
        series_cpu_percent: moments::cpu_percent(start, end),
    }
}

/// The part of a summary that is absent where no onset was found.
const ONSET: &str = "onset";

fn no_onset(none: &NoOnset) -> Absence {
    Absence { what: ONSET.into(), why: none.why().to_string() }
}

fn reclaims(deltas: &BTreeMap<(ReclaimKind, u32), ReclaimSample>) -> BTreeMap<ReclaimKind, ReclaimSummary> {
    let usual = [ReclaimKind::Kswapd, ReclaimKind::Direct, ReclaimKind::Memcg];
    let mut all = BTreeMap::from(usual.map(|kind| (kind, ReclaimSummary::default())));
    for ((kind, _), sample) in deltas {
        let one = all.entry(*kind).or_default();
        one.count += sample.begun;
        one.time.merge(&sample.time);
        one.batches += sample.batches;
        one.scanned_pages += sample.scanned.iter().saturating_sum();
        one.stolen_pages += sample.reclaimed.iter().saturating_sum();
        one.scanned_file_pages += sample.scanned[1];
        one.stolen_file_pages += sample.reclaimed[1];
        one.throttled += sample.throttled;
        one.throttled_ns += sample.throttled_ns;
        (one.ended, one.ns) = (one.time.count(), one.time.sum());
    }
    // Reclaim that began on one node or in one interval may end, or be throttled, in another.
    all.retain(|kind, one| usual.contains(kind) || one.count > 0 || one.batches > 0);
    all
}

fn scanned(
    start: &Reading,
    end: &Reading,
    deltas: &BTreeMap<(ReclaimKind, u32), ReclaimSample>,
) -> ScannedPages {
    let mut all = ScannedPages {
        in_batches: deltas.values().map(|sample| sample.scanned[1]).saturating_sum(),
        ..ScannedPages::default()
    };
    for (kind, last) in &end.isolated {
        let delta = last.since(&start.isolated.get(kind).copied().unwrap_or_default());
        all.looked_at += delta.looked_at[1];
        all.taken += delta.taken[1];
    }
    all
}

fn reclaimers(surroundings: &Surroundings, start: &Reading, end: &Reading) -> Vec<ReclaimerSummary> {
    let mut all: Vec<ReclaimerSummary> = end
        .reclaimers
        .iter()
        .map(|(who, last)| {
            let first = start.reclaimers.get(who).copied().unwrap_or_default();
            let delta = last.since(&first);
            ReclaimerSummary {
                kind: who.kind,
                pid: who.pid,
                comm: String::from_utf8_lossy(&who.comm).into_owned(),
                cgroup: surroundings.cgroups.get(&who.cgroup).cloned(),
                count: delta.count,
                ns: delta.ns,
                max_ns: (last.max_ns > first.max_ns || first.count == 0).then_some(last.max_ns),
                stolen_pages: delta.pages,
            }
        })
        .filter(|one| one.count > 0)
        .collect();
    sort(&mut all);
    all
}

fn sort(reclaimers: &mut [ReclaimerSummary]) {
    reclaimers.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.pid, &a.comm).cmp(&(b.pid, &b.comm))));
}

fn readahead(start: &Reading, end: &Reading) -> Option<Readahead> {
    let delta = end.readahead?.since(&start.readahead.unwrap_or_default());
    let wanted = end.sees_reads.then_some(delta.wanted + delta.faulted + delta.mapped);
    let read = start.read_bytes.zip(end.read_bytes);
    let read_pages = read.and_then(|(before, now)| Some(now.checked_sub(before)? / PAGE_BYTES));
    let mut ahead = Readahead {
        by: end.readahead_by,
        calls: delta.calls,
        asked_pages: delta.asked,
        wanted_pages: wanted,
        mapped_pages: wanted.map(|_| delta.mapped),
        read_pages,
        unused_pages: None,
    };
    ahead.unused_pages = ahead.unused();
    Some(ahead)
}

fn nodes(
    surroundings: &Surroundings,
    deltas: &BTreeMap<(ReclaimKind, u32), ReclaimSample>,
) -> Vec<NodeSummary> {
    let mut all: BTreeMap<u32, NodeSummary> = BTreeMap::new();
    for (node, memory) in &surroundings.nodes {
        all.insert(*node, NodeSummary { node: *node, memory: *memory, ..NodeSummary::default() });
    }
    for zone in &surroundings.zones {
        let node =
            all.entry(zone.node).or_insert_with(|| NodeSummary { node: zone.node, ..NodeSummary::default() });
        node.zones.push(zone.clone());
    }
    for ((kind, number), sample) in deltas {
        // A node number that the kernel does not use.
        let Some(node) = all.get_mut(number) else { continue };
        node.scanned_pages += sample.scanned.iter().saturating_sum();
        node.stolen_pages += sample.reclaimed.iter().saturating_sum();
        if sample.begun > 0 {
            node.reclaims.insert(*kind, sample.begun);
        }
    }
    all.into_values().collect()
}
