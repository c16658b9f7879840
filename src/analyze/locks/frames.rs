//! Stacks of lock waiters: removes the frames of the probe and finds the function that waits.

use std::collections::BTreeMap;

use super::{LockStack, Who};
use crate::analyze::stack_quality::ending;
use crate::analyze::stacks::{user_frames, who};
use crate::symbols::{Names, UNKNOWN};
use crate::wire::locks::Reading;
use crate::wire::locks::stacks::{StackKey, StackSample};

/// The function outside the locking code with the longest wait, if a stack has one.
pub fn caller(stacks: &[LockStack]) -> Option<&str> {
    stacks.iter().find_map(|stack| stack.frames.iter().find(|frame| !is_locking(frame))).map(String::as_str)
}

/// Stacks by lock, longest wait first.
pub fn stacks_by_lock(start: &Reading, end: &Reading, names: &Names) -> BTreeMap<u64, Vec<LockStack>> {
    // Different return addresses within the same functions are the same stack to users.
    let mut merged: BTreeMap<u64, BTreeMap<WaiterStack, StackSample>> = BTreeMap::new();
    let leader = |pid: u32| end.processes.get(&pid).map(|process| process.comm.as_slice());
    for (key, now) in &end.stacks {
        let then = start.stacks.get(key).copied().unwrap_or_default();
        let samples = now.samples.saturating_sub(then.samples);
        if samples == 0 {
            continue;
        }
        let sum =
            merged.entry(key.lock).or_default().entry(way(key, leader(key.stack.pid), names)).or_default();
        sum.contentions += now.contentions.saturating_sub(then.contentions);
        sum.wait_ns += now.wait_ns.saturating_sub(then.wait_ns);
        sum.samples += samples;
    }
    let stack = |((who, frames), sample): (WaiterStack, StackSample)| LockStack {
        who,
        frames,
        contentions: (sample.contentions + 128) / 256,
        wait_ns: sample.wait_ns,
        samples: sample.samples,
    };
    let of_lock = |(lock, all): (u64, BTreeMap<WaiterStack, StackSample>)| {
        let mut all: Vec<LockStack> = all.into_iter().map(stack).collect();
        all.sort_by(|a, b| (b.wait_ns, &a.frames, &a.who).cmp(&(a.wait_ns, &b.frames, &b.who)));
        (lock, all)
    };
    merged.into_iter().map(of_lock).collect()
}

/// The waiting thread, and its stack.
type WaiterStack = (Option<Who>, Vec<String>);

/// `leader`: the name of the process.
fn way(key: &StackKey, leader: Option<&[u8]>, names: &Names) -> WaiterStack {
    let of = |stack| Who {
        labels: who(stack, names, leader)
            .iter()
            .map(|label| String::from_utf8_lossy(label).into_owned())
            .collect(),
        frames: user_frames(stack, names).into_iter().map(str::to_string).collect(),
        is_cut: !stack.user().is_empty() && ending(stack, names).0.is_cut(),
    };
    (key.has_waiter().then(|| of(&key.stack)), frames(key, names))
}

/// Innermost first, without the frames that the probe itself added.
fn frames(key: &StackKey, names: &Names) -> Vec<String> {
    let name = |address| match names.kernel(address) {
        [] => vec![UNKNOWN.to_string()],
        // Outermost first, where functions were inlined.
        names => names.iter().rev().cloned().collect(),
    };
    let all: Vec<String> = key.stack.kernel_lookups().flat_map(name).collect();
    let own = all.iter().take_while(|frame| is_watching(frame)).count();
    let own = if own == all.len() { 0 } else { own };
    all[own..].to_vec()
}

/// Whether the frame is between the tracepoint and our program.
fn is_watching(frame: &str) -> bool {
    const PREFIXES: [&str; 8] =
        ["bpf_", "__bpf_", "__traceiter_", "trace_", "perf_", "kprobe_", "kretprobe_", "rethook_"];
    const WORDS: [&str; 6] = [
        "arch_rethook_trampoline",
        "arch_rethook_trampoline_callback",
        "__kretprobe_trampoline",
        "trampoline_handler",
        "__kretprobe_trampoline_handler",
        "get_perf_callchain",
    ];
    frame == UNKNOWN || PREFIXES.iter().any(|prefix| frame.starts_with(prefix)) || WORDS.contains(&frame)
}

/// Whether the function's purpose is to take a lock.
pub fn is_locking(frame: &str) -> bool {
    const PREFIXES: [&str; 25] = [
        "native_queued_spin_lock",
        "resilient_",
        "rqspinlock_",
        "__pv_queued_spin_lock",
        "queued_",
        "pv_",
        "_raw_spin_",
        "__raw_spin_",
        "_raw_read_",
        "_raw_write_",
        "__raw_callee_save",
        "mutex_",
        "__mutex_",
        "ww_mutex_",
        "__ww_mutex_",
        "down_",
        "__down_",
        "down",
        "rwsem_",
        "percpu_down_",
        "__percpu_down_",
        "percpu_rwsem_",
        "rt_mutex_",
        "__rt_mutex_",
        "rtlock_",
    ];
    let name = frame.split('.').next().unwrap_or(frame);
    is_watching(name)
        || PREFIXES.iter().any(|prefix| {
            // `down` is itself a function, and a prefix of unrelated ones.
            if *prefix == "down" { name == "down" } else { name.starts_with(prefix) }
        })
}
