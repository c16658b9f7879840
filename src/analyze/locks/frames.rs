//! Stacks of waiters: which function waits, without what watches it and what takes the lock for it.

use std::collections::BTreeMap;

use super::Stack;
use crate::symbols::{Names, UNKNOWN};
use crate::wire::locks::{Reading, StackKey, StackSample};

/// The function outside the locking code that was waited longest in, where a stack has one.
pub fn caller(stacks: &[Stack]) -> Option<&str> {
    stacks.iter().find_map(|stack| stack.frames.iter().find(|frame| !is_locking(frame))).map(String::as_str)
}

/// All but the innermost are return addresses, behind the call.
pub fn lookups(ips: &[u64]) -> impl Iterator<Item = u64> + '_ {
    ips.iter().enumerate().map(|(i, ip)| if i > 0 { ip.saturating_sub(1) } else { *ip })
}

/// By lock, the one that waited longest first.
pub fn stacks_by_lock(start: &Reading, end: &Reading, names: &Names) -> BTreeMap<u64, Vec<Stack>> {
    // Different return addresses within the same functions are one stack to people.
    let mut merged: BTreeMap<u64, BTreeMap<Vec<String>, StackSample>> = BTreeMap::new();
    for (key, now) in &end.stacks {
        let then = start.stacks.get(key).copied().unwrap_or_default();
        let samples = now.samples.saturating_sub(then.samples);
        if samples == 0 {
            continue;
        }
        let sum = merged.entry(key.lock).or_default().entry(frames(key, names)).or_default();
        sum.contentions += now.contentions.saturating_sub(then.contentions);
        sum.wait_ns += now.wait_ns.saturating_sub(then.wait_ns);
        sum.samples += samples;
    }
    let stack = |(frames, sample): (Vec<String>, StackSample)| Stack {
        frames,
        contentions: (sample.contentions + 128) / 256,
        wait_ns: sample.wait_ns,
        samples: sample.samples,
    };
    let of_lock = |(lock, all): (u64, BTreeMap<Vec<String>, StackSample>)| {
        let mut all: Vec<Stack> = all.into_iter().map(stack).collect();
        all.sort_by(|a, b| (b.wait_ns, &a.frames).cmp(&(a.wait_ns, &b.frames)));
        (lock, all)
    };
    merged.into_iter().map(of_lock).collect()
}

/// Innermost first, without what stands there since the wait is watched.
fn frames(key: &StackKey, names: &Names) -> Vec<String> {
    let name = |address| match names.kernel(address) {
        [] => vec![UNKNOWN.to_string()],
        // Outermost first, where functions were inlined.
        names => names.iter().rev().cloned().collect(),
    };
    let all: Vec<String> = lookups(&key.ips).flat_map(name).collect();
    let own = all.iter().take_while(|frame| is_watching(frame)).count();
    let own = if own == all.len() { 0 } else { own };
    all[own..].to_vec()
}

/// Between the event and our program.
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

/// A function whose business is to take a lock.
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
            // `down` is a function itself, and the beginning of others'.
            if *prefix == "down" { name == "down" } else { name.starts_with(prefix) }
        })
}
