//! Time in functions of the LRU lists, and the part of it spent waiting for spinlocks.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::merge::{merge, row};
use crate::names::names;
use crate::symbols::Names;
use crate::wire::Count;
use crate::wire::pagecache::{Follower, PathSample, Reading};
use crate::wire::stacks::{RawProfile, Sample};

names! {
    /// How the time of a function is measured.
    #[derive(Default, Hash)]
    pub enum TimingMethod {
        Fentry = "fentry",
        Kprobe = "kprobe",
        /// From the stacks of CPU samples.
        #[default]
        Sampled = "sampled",
    }
}

/// One function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathSummary {
    pub function: String,
    pub source: TimingMethod,
    /// None of samples.
    pub calls: Option<u64>,
    /// Time within it, also of what it calls; with a function that follows it goes on while the task sleeps.
    pub ns: u64,
    /// Waits for spinlocks within it; None of samples.
    pub spins: Option<u64>,
    /// Time of those: at least, and at most. A sampler that interrupts cannot stop cannot see into waits with
    /// interrupts off; what falls on the moment when they come on again may have been one.
    pub spin_ns: (u64, u64),
    /// Time of waiting for each unit of time that is not; at least, and at most. None where there is none of that.
    pub spin_ratio: Option<(f64, f64)>,
    /// Of one CPU.
    pub cpu_percent: Option<f64>,
    /// The samples that it comes from.
    pub samples: Option<u64>,
}

merge!(PathSummary {
    first: function source;
    add: ns spin_ns;
    both: calls spins samples;
    derived: spin_ratio cpu_percent;
});
row!(PathSummary, (String, TimingMethod), |path| (path.function.clone(), path.source));

/// Computes what follows from merged counts, and sorts.
pub fn settle(all: &mut [PathSummary], duration_ns: u64) {
    for path in all.iter_mut() {
        path.spin_ratio = spin_ratio(path.ns, path.spin_ns);
        path.cpu_percent = (duration_ns > 0).then(|| 100.0 * path.ns as f64 / duration_ns as f64);
    }
    sort(all);
}

fn sort(all: &mut [PathSummary]) {
    all.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.function.cmp(&b.function)));
}

/// Ratio of waiting time to the remaining time of a function.
fn spin_ratio(ns: u64, spin_ns: (u64, u64)) -> Option<(f64, f64)> {
    let of = |spin: u64| {
        let useful = ns.checked_sub(spin).filter(|useful| *useful > 0)?;
        Some(spin as f64 / useful as f64)
    };
    Some((of(spin_ns.0)?, of(spin_ns.1)?))
}

/// Functions that are searched in samples, of all kernel versions.
pub const FUNCTIONS: [&str; 15] = [
    "folio_lruvec_lock",
    "folio_lruvec_lock_irq",
    "folio_lruvec_lock_irqsave",
    "shrink_lruvec",
    "shrink_folio_list",
    "shrink_page_list",
    "isolate_lru_folios",
    "isolate_lru_pages",
    "folio_batch_move_lru",
    "pagevec_lru_move_fn",
    "lru_add_drain",
    "shrink_inactive_list",
    "evict_folios",
    "shrink_active_list",
    "move_folios_to_lru",
];

/// Functions in which a CPU waits for a spinlock.
const SLOW_PATHS: [&str; 4] = [
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "pv_wait_node",
];

/// Functions in which interrupts are enabled again after a lock that was taken with them off.
const INTERRUPTS_ON: [&str; 4] = [
    "_raw_spin_unlock_irq",
    "_raw_spin_unlock_irqrestore",
    "__raw_spin_unlock_irq",
    "__raw_spin_unlock_irqrestore",
];

/// Measured by programs on the functions.
pub fn followed(start: &Reading, end: &Reading, duration_ns: u64) -> Vec<PathSummary> {
    let mut all: Vec<PathSummary> = end.paths.iter().map(|last| path(start, last, duration_ns)).collect();
    sort(&mut all);
    all
}

fn path(start: &Reading, last: &PathSample, duration_ns: u64) -> PathSummary {
    let first = start.paths.iter().find(|path| path.function == last.function);
    let delta = last.counts.since(&first.map(|path| path.counts).unwrap_or_default());
    // A slow path consists of waiting only.
    let spin = is_wait(last.function);
    let spin_ns = if spin { delta.ns } else { delta.spin_ns };
    PathSummary {
        function: last.function.to_string(),
        source: match last.by {
            Follower::Fentry => TimingMethod::Fentry,
            Follower::Kprobe => TimingMethod::Kprobe,
        },
        calls: Some(delta.calls),
        ns: delta.ns,
        spins: Some(if spin { delta.calls } else { delta.spins }),
        spin_ns: (spin_ns, spin_ns),
        spin_ratio: spin_ratio(delta.ns, (spin_ns, spin_ns)),
        cpu_percent: (duration_ns > 0).then(|| 100.0 * delta.ns as f64 / duration_ns as f64),
        samples: None,
    }
}

/// Whether a CPU waits for a spinlock in this function.
pub fn is_wait(function: &str) -> bool {
    SLOW_PATHS.contains(&function)
}

/// Measured from CPU samples.
pub fn sampled(raw: &RawProfile, names: &Names) -> Vec<PathSummary> {
    let mut found: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for (sample, tally) in &raw.samples {
        let stack = StackFacts::of(sample, names);
        for function in &stack.functions {
            let sums = found.entry(function).or_default();
            sums[0] += tally.samples;
            sums[1] += if stack.waits { tally.samples } else { 0 };
            sums[2] += if stack.waits || stack.may_wait { tally.samples } else { 0 };
        }
    }
    let unit_ns = if raw.frequency == 0 { 0.0 } else { 1e9 / raw.frequency as f64 };
    let ns = |samples: u64| (samples as f64 * unit_ns) as u64;
    let mut all: Vec<PathSummary> = found
        .into_iter()
        .map(|(function, [samples, least, most])| PathSummary {
            function: function.to_string(),
            source: TimingMethod::Sampled,
            calls: None,
            ns: ns(samples),
            spins: None,
            spin_ns: (ns(least), ns(most)),
            spin_ratio: spin_ratio(ns(samples), (ns(least), ns(most))),
            cpu_percent: (raw.duration_ns > 0)
                .then(|| 100.0 * samples as f64 * unit_ns / raw.duration_ns as f64),
            samples: Some(samples),
        })
        .collect();
    all.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.function.cmp(&b.function)));
    all
}

/// The relevant facts of a sample's kernel stack.
struct StackFacts {
    /// Each once.
    functions: BTreeSet<&'static str>,
    waits: bool,
    may_wait: bool,
}

impl StackFacts {
    fn of(sample: &Sample, names: &Names) -> Self {
        let mut stack = Self { functions: BTreeSet::new(), waits: false, may_wait: false };
        for (depth, address) in sample.kernel_lookups().enumerate() {
            for name in names.kernel(address) {
                // Compilers add .constprop.0, .isra.0 and the like.
                let name = name.split('.').next().unwrap_or(name);
                stack.functions.extend(FUNCTIONS.iter().find(|known| **known == name));
                stack.waits |= SLOW_PATHS.contains(&name);
                stack.may_wait |= depth == 0 && INTERRUPTS_ON.contains(&name);
            }
        }
        stack
    }
}
