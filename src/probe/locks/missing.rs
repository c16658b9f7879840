//! Describes what the lock probe cannot observe, and why.

use std::path::Path;

use crate::envelope::{Missing, Reason};
use crate::host::kernel;
use crate::wire::locks::Source;

pub fn gap(part: &str, reason: Reason, why: String, remedy: Option<&str>) -> Missing {
    Missing {
        part: Some(part.to_string()),
        reason,
        why,
        remedy: remedy.map(str::to_string),
        ..Missing::default()
    }
}

/// Added to a measured cost.
pub fn no_cost_of_samples() -> Missing {
    let why = "what it costs to take samples of the CPUs is not in the cost: their program begins anew with every \
               reading";
    gap("cost.spin", Reason::NotCounted, why.to_string(), None)
}

/// The gap if only some waiters are followed.
pub fn no_spin_of_some() -> Missing {
    let why = "what the CPUs spend spinning is sampled of the whole machine, and not of whom was asked for";
    gap("spin", Reason::Filtered, why.to_string(), Some("leave --pid, --comm and --cgroup out"))
}

/// `has_releases`: the kernel has an event for releases.
pub fn no_holders(has_releases: bool) -> Missing {
    let (reason, why, remedy) = match has_releases {
        true => (
            Reason::Filtered,
            "lock holders are shown only where all waiters are followed",
            "leave --pid, --comm and --cgroup out",
        ),
        false => (
            Reason::NoEvent,
            "who held a lock is not known: this kernel does not say who releases one (contended_release)",
            "use Linux 7.2 or newer",
        ),
    };
    gap("holder", reason, why.to_string(), Some(remedy))
}

/// Waits that have no event. `slow_path`: the slow path is probed.
pub fn waits(root: &Path, cpus_possible: u32, source: Source, slow_path: bool) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut add = |part: &str, reason: Reason, why: &str, remedy: Option<&str>| {
        missing.push(gap(part, reason, why.to_string(), remedy));
    };
    let is_paravirtual = kernel::has_paravirtual_spinlocks(root, cpus_possible);
    match (source, slow_path) {
        (Source::SlowPath, _) => add(
            "mutex, rwsem, rwlock and others",
            Reason::NoEvent,
            "this kernel has no events of lock contention: only waits for spinlocks are seen, by probes on their \
             slow path",
            Some("use Linux 5.19 or newer"),
        ),
        (Source::Events, false) if !is_paravirtual => add(
            "pending-bit waiters",
            Reason::NoProbe,
            "the first to wait for a spinlock has no event on a machine of its own, and this kernel has no kprobes \
             to see it by: waits and counts of spinlocks are lower bounds",
            None,
        ),
        (Source::Events, _) => {}
    }
    if kernel::is_guest(root) && !is_paravirtual && source == Source::Events {
        add(
            "spinlocks by test-and-set",
            Reason::NoEvent,
            "in a guest without paravirtual spinlocks waits for plain spinlocks have no event at all (virt_spin_lock)",
            None,
        );
    }
    missing
}
