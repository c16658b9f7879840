//! The holders of locks, and the waits that have not ended.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{WireLockKind, longest, name_of};
use crate::merge::merge;
use crate::wire::locks::{HolderSample, Reading};

/// Who let go of a lock that others slept for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Holder {
    /// How often it was released while a task slept for it.
    pub releases: u64,
    /// Of them: how often it is known how long it was held.
    pub holds: u64,
    /// Of those: whoever had it did so before the first waiter queued up, and only the time from then on is known.
    pub at_least: u64,
    /// Of the holds together; and the longest, None where one before the window was as long.
    pub hold_ns: u64,
    pub max_hold_ns: Option<u64>,
    /// Who released it last, and how long that one is known to have had it.
    pub pid: u32,
    /// Written by strangers.
    pub comm: String,
    pub last_hold_ns: Option<u64>,
}

merge!(Holder {
    add: releases holds at_least hold_ns;
    most: max_hold_ns;
    last: pid comm last_hold_ns;
});

impl Holder {
    /// None where no hold was timed.
    pub fn mean_ns(&self) -> Option<u64> {
        self.hold_ns.checked_div(self.holds)
    }

    fn since(now: &HolderSample, then: &HolderSample) -> Self {
        let holds = now.holds.saturating_sub(then.holds);
        Self {
            releases: now.releases.saturating_sub(then.releases),
            holds,
            at_least: now.at_least.saturating_sub(then.at_least),
            hold_ns: now.hold_ns.saturating_sub(then.hold_ns),
            max_hold_ns: longest(now.max_hold_ns, then.max_hold_ns, then.holds).filter(|_| holds > 0),
            pid: now.pid,
            comm: String::from_utf8_lossy(&now.comm).into_owned(),
            last_hold_ns: now.last_hold_ns,
        }
    }
}

/// The holder that was observed to release this lock in the interval.
pub(super) fn holder(lock: u64, start: &Reading, end: &Reading) -> Option<Holder> {
    let now = end.holders.as_ref()?.get(&lock)?;
    let none = HolderSample::default();
    let then = start.holders.as_ref().and_then(|all| all.get(&lock)).unwrap_or(&none);
    Some(Holder::since(now, then)).filter(|holder| holder.releases > 0)
}

/// A thread that sleeps until it has a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Waiter {
    pub pid: u32,
    pub tid: u32,
    /// Written by strangers.
    pub comm: String,
    /// The lock's name, which has parts that strangers write, its kind and its address in hexadecimal digits.
    pub lock: String,
    pub kind: WireLockKind,
    pub address: String,
    /// Up to the end of the window.
    #[serde(rename = "wait_ns")]
    pub ns: u64,
}

pub(super) fn waiting(end: &Reading) -> Option<Vec<Waiter>> {
    let row = |waiter: &crate::wire::locks::WaiterSample| Waiter {
        pid: waiter.pid,
        tid: waiter.tid,
        comm: String::from_utf8_lossy(&waiter.comm).into_owned(),
        lock: name_of(waiter.lock, &[], end).0,
        kind: WireLockKind::of(waiter.flags),
        address: format!("{:#x}", waiter.lock),
        ns: end.at_ns.saturating_sub(waiter.began_ns),
    };
    let mut all: Vec<Waiter> = end.waiting.as_ref()?.iter().map(row).collect();
    all.sort_by_key(|waiter| (std::cmp::Reverse(waiter.ns), waiter.tid));
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::locks::{LockName, MUTEX, RecognisedBy, WaiterSample};

    #[test]
    fn a_holder_is_that_of_the_window() {
        let sample = |releases, hold_ns| HolderSample {
            releases,
            holds: releases - 1,
            hold_ns,
            max_hold_ns: 900,
            comm: b"dd".to_vec(),
            pid: 5,
            ..HolderSample::default()
        };
        let reading =
            |sample| Reading { holders: Some(BTreeMap::from([(0x100, sample)])), ..Reading::default() };
        let (start, end) = (reading(sample(3, 1_000)), reading(sample(5, 1_900)));
        let found = holder(0x100, &start, &end).unwrap();
        assert_eq!((found.releases, found.holds, found.mean_ns()), (2, 2, Some(450)));
        assert_eq!((found.comm.as_str(), found.pid), ("dd", 5));
        assert_eq!(found.max_hold_ns, None, "it may have been before");
        let none = Reading { holders: Some(BTreeMap::new()), ..Reading::default() };
        assert_eq!(holder(0x100, &none, &end).unwrap().max_hold_ns, Some(900));
        assert_eq!(holder(0x100, &end, &end), None, "nobody released it in between");
        assert_eq!(holder(0x200, &start, &end), None);
        assert_eq!(holder(0x100, &start, &Reading::default()), None, "the kernel does not say");
        assert_eq!(Holder::default().mean_ns(), None);
    }

    #[test]
    fn who_waits_longest_is_first_and_its_lock_has_a_name() {
        let waiter = |tid, lock, began_ns| WaiterSample {
            lock,
            began_ns,
            flags: MUTEX,
            tid,
            pid: 1,
            comm: b"sync".to_vec(),
        };
        let name = LockName {
            name: "mutex of a pipe".to_string(),
            by: RecognisedBy::Structure,
            device: None,
            node: None,
            cgroup: None,
            pid: None,
        };
        let end = Reading {
            at_ns: 1_000,
            waiting: Some(vec![waiter(2, 0x200, 900), waiter(1, 0x100, 400)]),
            names: BTreeMap::from([(0x100, name)]),
            ..Reading::default()
        };
        let all = waiting(&end).unwrap();
        assert_eq!(
            (all[0].lock.as_str(), all[0].ns, all[0].kind),
            ("mutex of a pipe", 600, WireLockKind::Mutex)
        );
        assert_eq!((all[1].lock.as_str(), all[1].ns), ("lock at 0x200", 100));
        assert_eq!(waiting(&Reading::default()), None);
    }
}
