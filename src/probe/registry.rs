//! All objects of programs that the executable holds, in the order in which `biopsy check` lists their programs.

use super::spec::{Program, Spec};
use super::{blocked, cost, interrupts, latency, locks, pagecache, reclaim, stacks, threads};

pub static PROBES: &[Spec] = &[
    latency::SPEC,
    interrupts::SPEC,
    locks::SPEC,
    pagecache::SPEC,
    pagecache::PATHS,
    cost::SPEC,
    stacks::SPEC,
    threads::SPEC,
    blocked::SPEC,
    reclaim::SPEC,
];

/// The programs of an object.
pub fn programs(spec: &Spec) -> impl Iterator<Item = &'static Program> {
    spec.programs.iter().copied().flatten()
}
