//! Folds and classifies on-CPU samples of kernel and user stacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::merge::{Merge, merge_fields};
use crate::symbols::{Addresses, MappedFiles, Names, UNKNOWN};
use crate::wire::blocked::NO_USER;
use crate::wire::stacks::{
    KERNEL_FAILED, KTHREAD, MAX_FRAMES, RING_POLLER, RING_WORKER, RawProfile, Sample, SampleTotal, Sampler,
};

/// CPU class of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuClass {
    /// A task in user mode.
    User,
    /// A user task in the kernel, not interrupted.
    System,
    /// An io_uring worker thread, not interrupted.
    #[serde(rename = "io-wq")]
    IoWq,
    /// Hard interrupt frames are on the stack.
    Irq,
    /// Softirq frames are on the stack.
    Softirq,
    /// A kernel thread, not interrupted.
    Kthread,
    /// The idle task, doing nothing.
    Idle,
}

/// An on-CPU profile. Its JSON has no stacks: they are reported separately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileSummary {
    /// `cycles` or `cpu-clock`.
    pub sampler: String,
    /// Set when the sampler has a blind spot (`cpu-clock` cannot fire with interrupts off).
    pub sampler_note: Option<String>,
    /// Requested samples per second and CPU.
    pub frequency: u64,
    pub cpus: u32,
    pub duration_ns: u64,
    /// All samples, idle ones included: those taken, plus those that idle time would have given where an idle CPU is
    /// not sampled.
    pub samples: u64,
    pub lost: u64,
    /// Samples by class.
    pub classes: BTreeMap<CpuClass, u64>,
    /// Idle samples that were actually taken. A `cycles` sampler takes them where a CPU polls while idle.
    pub idle_seen: u64,
    /// `comm;frame;...;leaf` → samples, without the idle ones. Kernel frames end in `_[k]`.
    #[serde(skip)]
    pub folded: BTreeMap<String, u64>,
    /// CPU time in ns per thread name and pid, from the samples, most first.
    pub top: Vec<(String, u32, u64)>,
}

merge_fields!(ProfileSummary {
    first: sampler sampler_note frequency cpus;
    add: duration_ns samples lost classes idle_seen folded;
    first: top;
});

impl Merge for ProfileSummary {
    fn merge_with(&mut self, later: &Self) {
        self.merge_fields(later);
        let mut by_thread = BTreeMap::new();
        for (comm, pid, ns) in std::mem::take(&mut self.top).into_iter().chain(later.top.iter().cloned()) {
            u64::merge_with(by_thread.entry((comm, pid)).or_default(), &ns);
        }
        self.top = most_first(by_thread);
    }
}

/// Sorts threads by time, most first.
fn most_first(by_thread: BTreeMap<(String, u32), u64>) -> Vec<(String, u32, u64)> {
    let mut all: Vec<_> = by_thread.into_iter().map(|((comm, pid), ns)| (comm, pid, ns)).collect();
    all.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, a.1).cmp(&(&b.0, b.1))));
    all
}

impl ProfileSummary {
    /// Whether the sampler cannot interrupt hard interrupts, or code with interrupts disabled.
    pub fn is_blind_to_interrupts(&self) -> bool {
        self.sampler_note.is_some()
    }

    /// CPU time of one class in ns: its share of the samples × the total CPU time. None without samples.
    pub fn class_ns(&self, class: CpuClass) -> Option<u64> {
        if self.samples == 0 {
            return None;
        }
        let share = *self.classes.get(&class).unwrap_or(&0) as f64 / self.samples as f64;
        Some((share * self.duration_ns as f64 * f64::from(self.cpus)) as u64)
    }
}

/// The addresses of a profile to symbolize.
pub fn addresses(raw: &RawProfile) -> Addresses {
    addresses_of(raw.samples.keys(), &raw.maps)
}

/// The addresses of stacks, with the mappings of their processes.
pub(crate) fn addresses_of<'a>(samples: impl Iterator<Item = &'a Sample>, maps: &MappedFiles) -> Addresses {
    let mut out = Addresses { maps: maps.clone(), ..Addresses::default() };
    for sample in samples {
        out.kernel.extend(sample.kernel_lookups());
        out.disks.extend(sample.work().as_deref().and_then(flushes));
        if !sample.user().is_empty() {
            let program = maps.programs().of(sample.pid, sample.comm_bytes());
            out.user.entry(program).or_default().extend(sample.user_lookups());
        }
    }
    out
}

/// Folds and classifies the samples of an interval.
///
/// With `cpu-clock` every sample counts 1. With `cycles` the kernel varies the period, so a sample counts relative to
/// the mean period (at least 1). Idle time that was not sampled is added from the kernel's accounting.
pub fn summarize(raw: &RawProfile, names: &Names) -> ProfileSummary {
    let mut summary = ProfileSummary {
        sampler: raw.sampler.name().to_string(),
        sampler_note: raw.sampler.note().map(str::to_string),
        frequency: raw.frequency,
        cpus: raw.cpus,
        duration_ns: raw.duration_ns,
        lost: raw.lost,
        ..ProfileSummary::default()
    };
    let mean = mean_period(raw);
    let mut by_thread: BTreeMap<(String, u32), u64> = BTreeMap::new();
    let leaders = leaders(raw);
    for (sample, tally) in &raw.samples {
        let units = match mean {
            Some(mean) => (tally.period as f64 / mean).round().max(1.0) as u64,
            None => tally.samples,
        };
        let class = classify(sample, names);
        *summary.classes.entry(class).or_default() += units;
        if class != CpuClass::Idle {
            let key = fold_as(sample, names, leaders.get(&sample.pid).copied());
            *summary.folded.entry(key).or_default() += units;
            let comm = String::from_utf8_lossy(sample.comm_bytes()).into_owned();
            *by_thread.entry((comm, sample.pid)).or_default() += units;
        }
    }
    let wall = raw.duration_ns as f64 * f64::from(raw.cpus);
    summary.idle_seen = summary.classes.get(&CpuClass::Idle).copied().unwrap_or(0);
    let unseen = unseen_idle(raw, &summary.classes);
    if unseen > 0 {
        *summary.classes.entry(CpuClass::Idle).or_default() += unseen;
    }
    summary.samples = summary.classes.values().sum();
    let unit_ns = if summary.samples == 0 { 0.0 } else { wall / summary.samples as f64 };
    by_thread.values_mut().for_each(|units| *units = (*units as f64 * unit_ns) as u64);
    summary.top = most_first(by_thread);
    summary
}

/// Idle time that was not sampled, in samples, from the kernel's accounting.
///
/// An idle CPU has no cycles. And although the timer of `cpu-clock` should tick on it, it does not on some machines (a
/// guest with a parked second CPU gave no sample at all). Without this the busy samples would seem to represent all of
/// the time.
fn unseen_idle(raw: &RawProfile, classes: &BTreeMap<CpuClass, u64>) -> u64 {
    let wall = raw.duration_ns as f64 * f64::from(raw.cpus);
    let Some(idle) = raw.idle_ns.map(|ns| (ns as f64).min(wall * 0.999)) else { return 0 };
    let seen: u64 = classes.values().sum();
    let units = match raw.expected() {
        None => seen as f64 * idle / (wall - idle).max(1.0),
        Some(expected) => {
            let seen_idle = classes.get(&CpuClass::Idle).copied().unwrap_or(0);
            // Ticks are also missing while interrupts are off for long: that time was not idle.
            let missing = expected.saturating_sub(seen + raw.lost);
            (idle / 1e9 * raw.frequency as f64 - seen_idle as f64).clamp(0.0, missing as f64)
        }
    };
    units.round() as u64
}

/// Mean period of samples whose period varies.
fn mean_period(raw: &RawProfile) -> Option<f64> {
    let sum = |pick: fn(&SampleTotal) -> u64| raw.samples.values().map(|t| pick(t) as f64).sum::<f64>();
    let (samples, period) = (sum(|t| t.samples), sum(|t| t.period));
    (raw.sampler == Sampler::Cycles && samples > 0.0 && period > 0.0).then(|| period / samples)
}

/// Classifies a sample. The frame nearest to the leaf decides: a softirq runs on top of the interrupt that raised it,
/// and another interrupt may come on top of that.
fn classify(sample: &Sample, names: &Names) -> CpuClass {
    if let Some((class, _)) = interrupting(sample, names) {
        return class;
    }
    if sample.pid == 0 {
        return CpuClass::Idle;
    }
    let in_kernel = !sample.kernel().is_empty() || sample.flags & KERNEL_FAILED != 0;
    match sample.flags & KTHREAD != 0 {
        _ if in_kernel && IO_WORKERS.iter().any(|name| sample.comm_bytes().starts_with(name)) => {
            CpuClass::IoWq
        }
        true => CpuClass::Kthread,
        false if in_kernel => CpuClass::System,
        false => CpuClass::User,
    }
}

/// The interrupt that a sample fell into, hard or soft, and how many frames from the leaf belong to it. The frames
/// below were interrupted and are unrelated.
fn interrupting(sample: &Sample, names: &Names) -> Option<(CpuClass, usize)> {
    // A kernel address has one name; `first` covers inlined functions.
    interrupting_frames(
        sample.kernel_lookups().map(|address| names.kernel(address).first().map_or("", String::as_str)),
    )
}

/// Same as [`interrupting`], from the names of a stack's frames, leaf first; a frame without a name is empty.
pub(crate) fn interrupting_frames<'a>(frames: impl Iterator<Item = &'a str>) -> Option<(CpuClass, usize)> {
    let mut found: Option<(CpuClass, usize)> = None;
    for (i, name) in frames.enumerate() {
        // When one of these calls the scheduler or handles a signal, it works for the task: the interrupt is over. As
        // the leaf it is where interrupts are enabled again, and a timer tick that was due in the handler falls there:
        // that is the handler's time.
        if i > 0 && INTERRUPT_OVER.contains(&name) {
            break;
        }
        match (interrupt(name), found) {
            (Some(class), None) => found = Some((class, i + 1)),
            // The entry of an interrupt is several functions deep.
            (Some(class), Some((own, _))) if class == own => found = Some((class, i + 1)),
            // A softirq on the exit of an interrupt, or another interrupt below.
            (Some(_), Some(_)) => break,
            (None, _) => {}
        }
    }
    found
}

/// Labels that replace the interrupted thread.
const HARD_INTERRUPTS: &str = "[hard interrupts]";
const SOFTIRQS: &str = "[softirqs]";

/// The label of a class that [`interrupting_frames`] returns.
pub(crate) fn interrupts(class: CpuClass) -> &'static str {
    if class == CpuClass::Irq { HARD_INTERRUPTS } else { SOFTIRQS }
}

/// Names of io_uring's worker threads: threads of the process since 5.12, kernel threads before. They never run in user
/// mode, so a process with such a name is mistaken for one only in its system calls.
const IO_WORKERS: [&[u8]; 2] = [RING_WORKER, b"io_wqe_worker-"];

/// The exit path of an interrupt, with interrupts enabled.
const INTERRUPT_OVER: [&str; 6] = [
    "irqentry_exit",
    "irqentry_exit_to_user_mode",
    "exit_to_user_mode_loop",
    "irqentry_exit_cond_resched",
    "raw_irqentry_exit_cond_resched",
    "preempt_schedule_irq",
];

/// The class of kernel functions between an interrupt and the interrupted code.
fn interrupt(name: &str) -> Option<CpuClass> {
    // Compilers add .constprop.0, .isra.0, .cold and the like.
    let name = name.split('.').next().unwrap_or(name);
    match name {
        // handle_softirqs since 6.10, __do_softirq before. The others only call them, but with interrupts on, so
        // samples can fall there.
        "handle_softirqs"
        | "__do_softirq"
        | "do_softirq"
        | "__irq_exit_rcu"
        | "irq_exit_rcu"
        | "run_ksoftirqd"
        | "do_softirq_post_smp_call_flush" => Some(CpuClass::Softirq),
        // Run by the idle task instead of an interrupt: block completions from another CPU.
        "flush_smp_call_function_queue" | "__flush_smp_call_function_queue" => Some(CpuClass::Irq),
        // arm64: one of these is below every interrupt, from kernel or user mode.
        "el1_interrupt" | "el0_interrupt" | "do_interrupt_handler" => Some(CpuClass::Irq),
        _ => {
            let entry = name.strip_prefix("asm_").or(name.strip_prefix("__")).unwrap_or(name);
            // Exceptions of the task itself (page faults, traps) are exc_*, and count as its own time.
            let interrupt = entry == "common_interrupt" || entry.starts_with("sysvec_");
            interrupt.then_some(CpuClass::Irq)
        }
    }
}

/// Labels above the process whose ring the threads serve: workers run operations that would block, pollers submit on
/// its behalf (SQPOLL).
pub const RING_WORKERS: &str = "[io_uring workers]";
pub const RING_POLLERS: &str = "[io_uring sqpoll]";

/// The label of a thread that serves a process's ring, by its name; None for other threads.
fn ring_part(comm: &[u8]) -> Option<&'static str> {
    if comm.starts_with(RING_WORKER) {
        return Some(RING_WORKERS);
    }
    comm.starts_with(RING_POLLER).then_some(RING_POLLERS)
}

/// Stands for the missing user frames.
pub const NOT_TAKEN: &str = "[user stack not taken]";

/// By process: the name of its first thread, if sampled.
fn leaders(raw: &RawProfile) -> BTreeMap<u32, &[u8]> {
    let first = raw.samples.keys().filter(|sample| sample.tid == sample.pid && sample.pid != 0);
    let sampled = first.map(|sample| (sample.pid, sample.comm_bytes()));
    // A sampled name is newer than one that was read.
    raw.leaders.iter().map(|(pid, comm)| (*pid, comm.as_slice())).chain(sampled).collect()
}

/// `comm;root;...;leaf`, user frames below kernel frames. An interrupt has its own stack, without the interrupted
/// thread. Threads that serve a process's ring are under that process, if its name (`leader`) is known.
pub(crate) fn fold_as(sample: &Sample, names: &Names, leader: Option<&[u8]>) -> String {
    let mut out = String::with_capacity(256);
    if let Some((class, own)) = interrupting(sample, names) {
        out.push_str(interrupts(class));
        let addresses: Vec<u64> = sample.kernel_lookups().take(own).collect();
        for address in addresses.iter().rev() {
            let name = names.kernel(*address).first().map_or(UNKNOWN, String::as_str);
            out.push(';');
            escape(name.as_bytes(), &mut out);
            out.push_str(KERNEL_MARK);
        }
        return out;
    }
    for name in who(sample, names, leader)
        .into_iter()
        .chain(user_frames(sample, names).into_iter().map(|name| name.into()))
    {
        if !out.is_empty() {
            out.push(';');
        }
        escape(&name, &mut out);
    }
    let mut frame = |name: &str, suffix: &str| {
        out.push(';');
        escape(name.as_bytes(), &mut out);
        out.push_str(suffix);
    };
    if sample.kernel().len() == MAX_FRAMES {
        frame(TRUNCATED, KERNEL_MARK);
    }
    kernel_frames(sample, names).into_iter().for_each(|name| frame(name, KERNEL_MARK));
    // A stack that could not be taken still has time: it must not look like a bare thread name.
    if sample.user().is_empty() && sample.kernel().is_empty() {
        frame(UNKNOWN, if sample.flags & (KERNEL_FAILED | KTHREAD) != 0 { KERNEL_MARK } else { "" });
    }
    out
}

/// The owner of a sample, as labels below all frames, root first and not escaped: a thread, by its name; a process,
/// with the kernel threads of its ring; for a kworker the work that it does, because its own name only says on which
/// CPU.
pub(crate) fn who(sample: &Sample, names: &Names, leader: Option<&[u8]>) -> Vec<Vec<u8>> {
    let comm = sample.comm_bytes();
    match (sample.work(), leader.zip(ring_part(comm))) {
        (Some(work), _) if work.is_empty() => vec![IDLE_WORKERS.into()],
        (Some(work), _) => {
            let disk = flushes(&work).and_then(|numbers| names.disks.get(&numbers));
            let disk = disk.map_or(work.as_slice(), String::as_bytes);
            vec![[WORKERS_FOR.as_bytes(), disk].concat()]
        }
        (None, Some((leader, part))) => vec![leader.to_vec(), part.into()],
        (None, None) => vec![comm.to_vec()],
    }
}

/// The device number in a writeback worker's description, which has numbers only: `flush-7:0`.
fn flushes(work: &[u8]) -> Option<(u32, u32)> {
    let numbers = std::str::from_utf8(work.strip_prefix(b"flush-")?).ok()?;
    let (major, minor) = numbers.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Labels of kworkers: for those without known work, and the prefix for those with it.
const IDLE_WORKERS: &str = "kworkers without work";
pub(crate) const WORKERS_FOR: &str = "kworkers for ";

/// The user frames of a sample, root first, and a placeholder for missing ones; not escaped.
pub(crate) fn user_frames<'a>(sample: &Sample, names: &'a Names) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    if sample.flags & NO_USER != 0 {
        all.push(NOT_TAKEN);
    }
    if sample.user().len() == MAX_FRAMES {
        all.push(TRUNCATED);
    }
    let program = names.programs.of(sample.pid, sample.comm_bytes());
    all.extend(named(sample.user_lookups().rev().map(|address| names.user(program, address))));
    all
}

/// The kernel frames, root first.
fn kernel_frames<'a>(sample: &Sample, names: &'a Names) -> Vec<&'a str> {
    named(sample.kernel_lookups().rev().map(|address| names.kernel(address)))
}

/// Frames by name. A run of unknown frames becomes one: code without frame pointers yields random addresses, a hundred
/// at a time, and without readable kernel symbols no kernel frame has a name. One frame says as much, and the flame
/// graph stays readable.
fn named<'a>(addresses: impl Iterator<Item = &'a [String]>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for names in addresses {
        match names {
            [] => all.push(UNKNOWN),
            names => all.extend(names.iter().map(String::as_str)),
        }
    }
    all.dedup_by(|a, b| *a == UNKNOWN && *b == UNKNOWN);
    all
}

/// Stands for frames beyond the maximum depth.
const TRUNCATED: &str = "[truncated]";

/// Suffix of kernel frames in folded text, and the suffixes that other tools use: inlined, JIT-compiled, woken.
pub(crate) const KERNEL_MARK: &str = "_[k]";
pub(crate) const MARKS: [&str; 4] = [KERNEL_MARK, "_[i]", "_[j]", "_[w]"];

/// Appends a name escaped, so that it cannot break a folded line: `;` and line ends are separators, control characters
/// and bidirectional overrides deceive, a suffix at the end would be taken for one of ours, and the backslash marks an
/// escape.
pub(crate) fn escape(name: &[u8], out: &mut String) {
    let poses = MARKS.iter().any(|mark| name.ends_with(mark.as_bytes()));
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            let hidden = matches!(c as u32, 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb);
            match c {
                ';' | '\\' => _ = write!(out, "\\x{:02x}", c as u32),
                c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", c as u32),
                c if c.is_control() || hidden => out.extend(c.escape_unicode()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            _ = write!(out, "\\x{byte:02x}");
        }
    }
    if poses {
        out.pop();
        _ = write!(out, "\\x{:02x}", b']');
    }
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
