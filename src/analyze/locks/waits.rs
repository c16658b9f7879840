//! Lock waits as stacks: the lock at the root, then the waiting thread, and the waiting function as the leaf.

use super::{LockRow, LockStack, LockSummary};
use crate::analyze::blocked::NO_STACK;
use crate::analyze::profile::{Area, Profile, Unit};
use crate::analyze::stacks::{NOT_TAKEN, interrupting_frames, interrupts};
use crate::merge::SaturatingSum as _;

/// The waits of an interval by stack. Each lock's exact counts are divided among its stacks in proportion to the
/// samples.
#[derive(Debug, Clone)]
pub struct WaitProfiles {
    /// Number of waits.
    pub counts: Profile,
    /// Time of waits, ns.
    pub times: Profile,
    /// The part of `times` with stacks whose user frames are cut within a program.
    pub cut_ns: u64,
    /// The part of `times` with stacks for whose waiter there was no room.
    pub no_user_ns: u64,
}

impl WaitProfiles {
    pub fn of(summary: &LockSummary) -> Self {
        let (counts, times) = (Profile::new(Unit::Samples), Profile::new(Unit::Nanoseconds));
        let mut all = Self { counts, times, cut_ns: 0, no_user_ns: 0 };
        for row in &summary.locks {
            add(row, row.wait.count(), |stack| stack.contentions, &mut all.counts);
            for (stack, ns) in add(row, row.wait.sum(), |stack| stack.wait_ns, &mut all.times) {
                let Some(who) = stack.who.as_ref().filter(|_| interrupt_of(stack).is_none()) else {
                    continue;
                };
                all.cut_ns = all.cut_ns.saturating_add(if who.is_cut { ns } else { 0 });
                all.no_user_ns += if who.frames.iter().any(|frame| frame == NOT_TAKEN) { ns } else { 0 };
            }
        }
        all
    }
}

/// Divides the row's total among its stacks.
fn add<'a>(
    row: &'a LockRow,
    all: u64,
    of: impl Fn(&LockStack) -> u64,
    profile: &mut Profile,
) -> Vec<(&'a LockStack, u64)> {
    let lock = profile.frame(row.name.as_str(), Area::Label);
    let taken: u64 = row.stacks.iter().map(&of).saturating_sum();
    if taken == 0 {
        let none = profile.frame(NO_STACK, Area::Label);
        profile.add(&[lock, none], all);
        return Vec::new();
    }
    let part = |stack: &'a LockStack| {
        let part = u128::from(of(stack)) * u128::from(all) / u128::from(taken);
        (stack, part as u64)
    };
    let mut parts: Vec<(&LockStack, u64)> = row.stacks.iter().map(part).collect();
    // Rounding loses less than one per stack.
    let left = all.saturating_sub(parts.iter().map(|(_, part)| part).saturating_sum());
    parts.iter_mut().take(1).for_each(|(_, part)| *part = part.saturating_add(left));
    for (stack, part) in &parts {
        let ids = path(lock, stack, profile);
        profile.add(&ids, *part);
    }
    parts
}

fn interrupt_of(stack: &LockStack) -> Option<(crate::analyze::stacks::CpuClass, usize)> {
    interrupting_frames(stack.frames.iter().map(String::as_str))
}

/// Root first. An interrupt that waits has its own stack, without the interrupted thread.
fn path(lock: u32, stack: &LockStack, profile: &mut Profile) -> Vec<u32> {
    let mut ids = vec![lock];
    let interrupt = interrupt_of(stack);
    match (interrupt, &stack.who) {
        (Some((class, _)), _) => ids.push(profile.frame(interrupts(class), Area::Label)),
        (None, Some(who)) => {
            ids.extend(who.labels.iter().map(|name| profile.frame(name.as_str(), Area::Label)));
            ids.extend(who.frames.iter().map(|name| profile.frame(name.as_str(), Area::User)));
        }
        (None, None) => {}
    }
    let own = interrupt.map_or(stack.frames.len(), |(_, own)| own);
    let frames = stack.frames[..own].iter().rev();
    ids.extend(frames.map(|name| profile.frame(name.as_str(), Area::of_kernel(name))));
    ids
}

#[cfg(test)]
mod tests {
    use super::super::Who;
    use super::*;

    #[test]
    fn an_interrupt_that_waits_stands_by_itself() {
        let frames =
            ["_raw_spin_lock", "rcu_core", "handle_softirqs", "sysvec_apic_timer_interrupt", "do_munmap"];
        let stack = LockStack {
            frames: frames.map(str::to_string).to_vec(),
            wait_ns: 10,
            who: Some(who()),
            ..LockStack::default()
        };
        let row = LockRow {
            name: "a".to_string(),
            wait: [10].into_iter().collect(),
            stacks: vec![stack],
            ..LockRow::default()
        };
        let WaitProfiles { times, cut_ns, .. } =
            WaitProfiles::of(&LockSummary { locks: vec![row], ..LockSummary::default() });
        let names = |ids: &[u32]| -> Vec<String> {
            ids.iter().map(|id| times.frames()[*id as usize].name.clone()).collect()
        };
        let path = names(&times.stacks()[0].frames);
        assert_eq!(path, ["a", "[softirqs]", "handle_softirqs", "rcu_core", "_raw_spin_lock"]);
        assert_eq!((times.total(), cut_ns), (10, 0), "nor are its frames of user mode");
    }

    fn who() -> Who {
        let strings = |all: &[&str]| all.iter().map(|name| (*name).to_string()).collect();
        Who { labels: strings(&["fio"]), frames: strings(&["main", "pread"]), is_cut: true }
    }

    #[test]
    fn who_waits_stands_between_the_lock_and_the_kernel() {
        let stack = |who: Option<Who>, wait_ns| LockStack {
            who,
            frames: ["_raw_spin_lock", "do_munmap"].map(str::to_string).to_vec(),
            wait_ns,
            ..LockStack::default()
        };
        let bare = Who { labels: vec![String::new()], frames: vec![NOT_TAKEN.to_string()], is_cut: false };
        let row = LockRow {
            name: "a".to_string(),
            wait: [40].into_iter().collect(),
            stacks: vec![stack(Some(who()), 15), stack(Some(bare), 4), stack(None, 1)],
            ..LockRow::default()
        };
        let all = WaitProfiles::of(&LockSummary { locks: vec![row], ..LockSummary::default() });
        let line = |s: &crate::analyze::profile::Stack| {
            (all.times.named(s).map(|f| f.name.as_str()).collect::<Vec<_>>().join(";"), s.value)
        };
        let lines: Vec<_> = all.times.stacks().iter().map(line).collect();
        assert_eq!(lines[0], ("a;fio;main;pread;do_munmap;_raw_spin_lock".to_string(), 30));
        assert_eq!(lines[1], (format!("a;;{NOT_TAKEN};do_munmap;_raw_spin_lock"), 8));
        assert_eq!(lines[2], ("a;do_munmap;_raw_spin_lock".to_string(), 2));
        assert_eq!((all.cut_ns, all.no_user_ns), (30, 8));
    }

    #[test]
    fn stacks_share_what_was_counted_of_their_lock() {
        let stack = |frame: &str, contentions, wait_ns| LockStack {
            who: None,
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
        let WaitProfiles { counts, times, .. } = WaitProfiles::of(&summary);
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
