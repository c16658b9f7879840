//! Waits for locks as stacks: the lock below, the function that waits on top.

use super::{LockRow, LockSummary};
use crate::analyze::blocked::NO_STACK;
use crate::analyze::profile::{Area, Profile, Unit};
use crate::analyze::stacks::{interrupting_frames, interrupts};

/// How many waits there were, and how long they took, ns: each lock has what was counted of it exactly, which its stacks
/// share as they were sampled.
pub fn profiles(summary: &LockSummary) -> (Profile, Profile) {
    let (mut counts, mut times) = (Profile::new(Unit::Samples), Profile::new(Unit::Nanoseconds));
    for row in &summary.locks {
        add(row, row.wait.count(), |stack| stack.contentions, &mut counts);
        add(row, row.wait.sum(), |stack| stack.wait_ns, &mut times);
    }
    (counts, times)
}

fn add(row: &LockRow, all: u64, of: impl Fn(&super::Stack) -> u64, profile: &mut Profile) {
    let lock = profile.frame(row.name.as_str(), Area::Label);
    let taken: u64 = row.stacks.iter().map(&of).sum();
    let mut left = all;
    for stack in &row.stacks {
        let part = u128::from(of(stack)) * u128::from(all) / u128::from(taken.max(1));
        let part = (part as u64).min(left);
        left -= part;
        let ids = path(lock, stack, profile);
        profile.add(&ids, part);
    }
    let Some(first) = row.stacks.first().filter(|_| taken > 0) else {
        let none = profile.frame(NO_STACK, Area::Label);
        return profile.add(&[lock, none], all);
    };
    // What is lost by rounding down is less than one for each stack.
    let ids = path(lock, first, profile);
    profile.add(&ids, left);
}

/// Root first. An interrupt that waits stands by itself: whom it came into has nothing to do with it.
fn path(lock: u32, stack: &super::Stack, profile: &mut Profile) -> Vec<u32> {
    let mut ids = vec![lock];
    let interrupt = interrupting_frames(stack.frames.iter().map(String::as_str));
    ids.extend(interrupt.map(|(class, _)| profile.frame(interrupts(class), Area::Label)));
    let own = interrupt.map_or(stack.frames.len(), |(_, own)| own);
    let frames = stack.frames[..own].iter().rev();
    ids.extend(frames.map(|name| profile.frame(name.as_str(), Area::of_kernel(name))));
    ids
}

#[cfg(test)]
mod tests {
    use super::super::{LockRow, Stack};
    use super::*;

    #[test]
    fn an_interrupt_that_waits_stands_by_itself() {
        let frames =
            ["_raw_spin_lock", "rcu_core", "handle_softirqs", "sysvec_apic_timer_interrupt", "do_munmap"];
        let stack =
            Stack { frames: frames.map(str::to_string).to_vec(), contentions: 1, wait_ns: 10, samples: 1 };
        let row = LockRow {
            name: "a".to_string(),
            wait: [10].into_iter().collect(),
            stacks: vec![stack],
            ..LockRow::default()
        };
        let (_, times) = profiles(&LockSummary { locks: vec![row], ..LockSummary::default() });
        let names = |ids: &[u32]| -> Vec<String> {
            ids.iter().map(|id| times.frames()[*id as usize].name.clone()).collect()
        };
        let path = names(&times.stacks()[0].frames);
        assert_eq!(path, ["a", "[softirqs]", "handle_softirqs", "rcu_core", "_raw_spin_lock"]);
        assert_eq!(times.total(), 10);
    }

    #[test]
    fn stacks_share_what_was_counted_of_their_lock() {
        let stack = |frame: &str, contentions, wait_ns| Stack {
            frames: vec!["_raw_spin_lock".to_string(), frame.to_string()],
            contentions,
            wait_ns,
            samples: 1,
        };
        let lock = |name: &str, waits: &[u64], stacks| LockRow {
            name: name.to_string(),
            wait: waits.iter().copied().collect(),
            stacks,
            ..LockRow::default()
        };
        let summary = LockSummary {
            locks: vec![
                lock("lru_lock", &[100, 100, 100], vec![stack("shrink", 2, 400), stack("add", 1, 200)]),
                lock("bare", &[7], Vec::new()),
            ],
            ..LockSummary::default()
        };
        let (counts, times) = profiles(&summary);
        assert_eq!((counts.total(), times.total()), (4, 307));
        let lines: Vec<_> = times
            .stacks()
            .iter()
            .map(|s| (times.named(s).map(|f| f.name.as_str()).collect::<Vec<_>>().join(";"), s.value))
            .collect();
        assert_eq!(
            lines,
            [
                ("lru_lock;shrink;_raw_spin_lock".to_string(), 200),
                ("lru_lock;add;_raw_spin_lock".to_string(), 100),
                (format!("bare;{NO_STACK}"), 7),
            ]
        );
    }
}
