//! Describes what the lock probe cannot observe, and why.

use std::path::Path;

use crate::envelope::{Missing, Reason};
use crate::host::kernel;
use crate::wire::locks::LockEventSource;

pub fn gap(part: &str, reason: Reason, why: String, remedy: Option<&str>) -> Missing {
    Missing {
        part: Some(part.to_string()),
        reason,
        why,
        remedy: remedy.map(str::to_string),
        ..Missing::default()
    }
}

/// The gap of a measured cost: it excludes CPU sampling.
pub fn no_cost_of_samples() -> Missing {
    let why = "the cost excludes CPU sampling: its program restarts with every reading";
    gap("cost.spin", Reason::NotCounted, why.to_string(), None)
}

/// The gap if only some waiters are followed.
pub fn no_spin_of_some() -> Missing {
    let why = "CPU time spent spinning is sampled on the whole machine, not only for the selected processes";
    gap("spin", Reason::Filtered, why.to_string(), Some("leave out --pid, --comm and --cgroup"))
}

/// `has_releases`: the kernel has an event for releases.
pub fn no_holders(has_releases: bool) -> Missing {
    let (reason, why, remedy) = match has_releases {
        true => (
            Reason::Filtered,
            "lock holders are shown only if all waiters are measured",
            "leave out --pid, --comm and --cgroup",
        ),
        false => (
            Reason::NoEvent,
            "lock holders are unknown: this kernel has no event for the release of a lock \
             (contended_release)",
            "use Linux 7.2 or newer",
        ),
    };
    gap("holder", reason, why.to_string(), Some(remedy))
}

/// The gaps for waits without an event. `slow_path`: the slow path is probed.
pub fn waits(root: &Path, cpus_possible: u32, source: LockEventSource, slow_path: bool) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut add = |part: &str, reason: Reason, why: &str, remedy: Option<&str>| {
        missing.push(gap(part, reason, why.to_string(), remedy));
    };
    let is_paravirtual = kernel::has_paravirtual_spinlocks(root, cpus_possible);
    match (source, slow_path) {
        (LockEventSource::SlowPath, _) => add(
            "mutex, rwsem, rwlock and others",
            Reason::NoEvent,
            "this kernel has no lock contention events: only spinlock waits are measured, by probes on \
             their slow path",
            Some("use Linux 5.19 or newer"),
        ),
        (LockEventSource::Events, false) if !is_paravirtual => add(
            "pending-bit waiters",
            Reason::NoProbe,
            "the first waiter of a spinlock has no event on bare metal, and this kernel has no kprobes for \
             it: spinlock waits and counts are lower bounds",
            None,
        ),
        (LockEventSource::Events, _) => {}
    }
    if kernel::is_guest(root) && !is_paravirtual && source == LockEventSource::Events {
        add(
            "spinlocks by test-and-set",
            Reason::NoEvent,
            "in a guest without paravirtual spinlocks, waits for plain spinlocks have no event \
             (virt_spin_lock)",
            None,
        );
    }
    missing
}
