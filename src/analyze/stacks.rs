//! What the CPUs did: samples of kernel and user stacks, folded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::merge::{Merge, merge_fields};
use crate::symbols::{Addresses, Mapped, Names, UNKNOWN};
use crate::wire::blocked::NO_USER;
use crate::wire::stacks::{
    KERNEL_FAILED, KTHREAD, MAX_FRAMES, RING_POLLER, RING_WORKER, RawProfile, Sample, Sampler, Tally,
};

/// Where a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuClass {
    /// A task in user mode.
    User,
    /// A user task in the kernel, no interrupt in between.
    System,
    /// A worker thread of io_uring, no interrupt in between.
    #[serde(rename = "io-wq")]
    IoWq,
    /// A hard interrupt's frames are on the stack.
    Irq,
    /// Softirq frames are on the stack.
    Softirq,
    /// A kernel thread, no interrupt in between.
    Kthread,
    /// The idle task, doing nothing.
    Idle,
}

/// An on-CPU profile. Its JSON has no stacks: those are beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileSummary {
    /// `cycles` or `cpu-clock`.
    pub sampler: String,
    /// Set when the sampler cannot see everything (`cpu-clock` cannot fire with interrupts off).
    pub sampler_note: Option<String>,
    /// Samples per second and CPU that were asked for.
    pub frequency: u64,
    pub cpus: u32,
    pub duration_ns: u64,
    /// All samples, idle ones included: those taken, and what idle time would have given where an
    /// idle CPU is not sampled.
    pub samples: u64,
    pub lost: u64,
    /// Samples by class.
    pub classes: BTreeMap<CpuClass, u64>,
    /// Of the idle samples: those that were taken. A `cycles` sampler takes them where a CPU polls while idle.
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

/// Threads with the time of each.
fn most_first(by_thread: BTreeMap<(String, u32), u64>) -> Vec<(String, u32, u64)> {
    let mut all: Vec<_> = by_thread.into_iter().map(|((comm, pid), ns)| (comm, pid, ns)).collect();
    all.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, a.1).cmp(&(&b.0, b.1))));
    all
}

impl ProfileSummary {
    /// Whether the sampler cannot interrupt a hard interrupt, or code that keeps interrupts off.
    pub fn is_blind_to_interrupts(&self) -> bool {
        self.sampler_note.is_some()
    }

    /// CPU time of one class in nanoseconds: its share of the samples × the CPU time that passed. None without samples.
    pub fn class_ns(&self, class: CpuClass) -> Option<u64> {
        if self.samples == 0 {
            return None;
        }
        let share = *self.classes.get(&class).unwrap_or(&0) as f64 / self.samples as f64;
        Some((share * self.duration_ns as f64 * f64::from(self.cpus)) as u64)
    }
}

/// The addresses of a profile that need names.
pub fn addresses(raw: &RawProfile) -> Addresses {
    addresses_of(raw.samples.keys(), &raw.maps)
}

/// The same of stacks, with what their processes had mapped.
pub(crate) fn addresses_of<'a>(samples: impl Iterator<Item = &'a Sample>, maps: &Mapped) -> Addresses {
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

/// Folds and classifies the samples of a window.
///
/// With `cpu-clock` every sample counts 1. With `cycles` the kernel varies the period, so a sample
/// counts by its share of the mean period (at least 1). Idle time that the sampler did not see is
/// put in from the kernel's own account.
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

/// Idle time that the sampler did not see, in its units, from the kernel's own account of it.
///
/// An idle CPU has no cycles. And although the timer of `cpu-clock` should tick on it, there are
/// machines where it does not (a guest whose second CPU was parked gave not one sample). Without
/// this the busy samples would seem to stand for all of the time.
fn unseen_idle(raw: &RawProfile, classes: &BTreeMap<CpuClass, u64>) -> u64 {
    let wall = raw.duration_ns as f64 * f64::from(raw.cpus);
    let Some(idle) = raw.idle_ns.map(|ns| (ns as f64).min(wall * 0.999)) else { return 0 };
    let seen: u64 = classes.values().sum();
    let units = match raw.expected() {
        None => seen as f64 * idle / (wall - idle).max(1.0),
        Some(expected) => {
            let seen_idle = classes.get(&CpuClass::Idle).copied().unwrap_or(0);
            // Ticks are also missing where interrupts were off for long: those were not idle.
            let missing = expected.saturating_sub(seen + raw.lost);
            (idle / 1e9 * raw.frequency as f64 - seen_idle as f64).clamp(0.0, missing as f64)
        }
    };
    units.round() as u64
}

/// The mean period of samples whose period varies.
fn mean_period(raw: &RawProfile) -> Option<f64> {
    let sum = |pick: fn(&Tally) -> u64| raw.samples.values().map(|t| pick(t) as f64).sum::<f64>();
    let (samples, period) = (sum(|t| t.samples), sum(|t| t.period));
    (raw.sampler == Sampler::Cycles && samples > 0.0 && period > 0.0).then(|| period / samples)
}

/// What the CPU was doing. The frame nearest to the leaf decides: a softirq runs on top of the
/// interrupt that raised it, and another interrupt may come on top of that.
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

/// The interrupt that a sample fell into: hard or soft, and how many frames from the leaf on are its own. What lies
/// below was interrupted, and has nothing to do with it.
fn interrupting(sample: &Sample, names: &Names) -> Option<(CpuClass, usize)> {
    // A kernel address has one name; `first` is for the case that it had inlined ones.
    interrupting_frames(
        sample.kernel_lookups().map(|address| names.kernel(address).first().map_or("", String::as_str)),
    )
}

/// The same of the names of a stack's frames, leaf first; one that has none is empty.
pub(crate) fn interrupting_frames<'a>(frames: impl Iterator<Item = &'a str>) -> Option<(CpuClass, usize)> {
    let mut found: Option<(CpuClass, usize)> = None;
    for (i, name) in frames.enumerate() {
        // Called from there, the scheduler or a signal works for the task: the interrupt is over.
        // As the leaf it is where interrupts come on again, and a timer's tick that was due in the
        // handler falls: that is the handler's time.
        if i > 0 && INTERRUPT_OVER.contains(&name) {
            break;
        }
        match (interrupt(name), found) {
            (Some(class), None) => found = Some((class, i + 1)),
            // Its entry is several functions deep.
            (Some(class), Some((own, _))) if class == own => found = Some((class, i + 1)),
            // A softirq on the way out of an interrupt, or another interrupt below.
            (Some(_), Some(_)) => break,
            (None, _) => {}
        }
    }
    found
}

/// What stands in the place of the thread whom an interrupt came into.
const HARD_INTERRUPTS: &str = "[hard interrupts]";
const SOFTIRQS: &str = "[softirqs]";

/// The same by the class of [`interrupting_frames`].
pub(crate) fn interrupts(class: CpuClass) -> &'static str {
    if class == CpuClass::Irq { HARD_INTERRUPTS } else { SOFTIRQS }
}

/// What the kernel names io_uring's worker threads: threads of the process since 5.12, kernel threads before. They
/// never run in user mode, so that a process of such a name is mistaken for one in its system calls only.
const IO_WORKERS: [&[u8]; 2] = [RING_WORKER, b"io_wqe_worker-"];

/// The way out of an interrupt, with interrupts on.
const INTERRUPT_OVER: [&str; 6] = [
    "irqentry_exit",
    "irqentry_exit_to_user_mode",
    "exit_to_user_mode_loop",
    "irqentry_exit_cond_resched",
    "raw_irqentry_exit_cond_resched",
    "preempt_schedule_irq",
];

/// The kernel functions that stand between an interrupt and what it interrupts.
fn interrupt(name: &str) -> Option<CpuClass> {
    // Compilers add .constprop.0, .isra.0, .cold and the like.
    let name = name.split('.').next().unwrap_or(name);
    match name {
        // handle_softirqs since 6.10, __do_softirq before. The others only call them, but with
        // interrupts on, so that a sample can fall there.
        "handle_softirqs"
        | "__do_softirq"
        | "do_softirq"
        | "__irq_exit_rcu"
        | "irq_exit_rcu"
        | "run_ksoftirqd"
        | "do_softirq_post_smp_call_flush" => Some(CpuClass::Softirq),
        // Polled by the idle task in place of the interrupt: block completions of another CPU.
        "flush_smp_call_function_queue" | "__flush_smp_call_function_queue" => Some(CpuClass::Irq),
        // arm64: both are below every interrupt of the kernel and of user mode.
        "el1_interrupt" | "el0_interrupt" | "do_interrupt_handler" => Some(CpuClass::Irq),
        _ => {
            let entry = name.strip_prefix("asm_").or(name.strip_prefix("__")).unwrap_or(name);
            // Exceptions of the task itself (page faults, traps) are exc_*, and are its own time.
            let interrupt = entry == "common_interrupt" || entry.starts_with("sysvec_");
            interrupt.then_some(CpuClass::Irq)
        }
    }
}

/// Above the process whose ring they serve: who does what would block, and who submits in its stead (SQPOLL).
pub const RING_WORKERS: &str = "[io_uring workers]";
pub const RING_POLLERS: &str = "[io_uring sqpoll]";

/// What a thread that the kernel made for a process' ring stands under, by its name; None: it is none.
fn ring_part(comm: &[u8]) -> Option<&'static str> {
    if comm.starts_with(RING_WORKER) {
        return Some(RING_WORKERS);
    }
    comm.starts_with(RING_POLLER).then_some(RING_POLLERS)
}

/// Where the user's frames would stand.
pub const NOT_TAKEN: &str = "[user stack not taken]";

/// By process: the name of its first thread, as far as that was sampled.
fn leaders(raw: &RawProfile) -> BTreeMap<u32, &[u8]> {
    let first = raw.samples.keys().filter(|sample| sample.tid == sample.pid && sample.pid != 0);
    let sampled = first.map(|sample| (sample.pid, sample.comm_bytes()));
    // What was sampled is newer than what was read.
    raw.leaders.iter().map(|(pid, comm)| (*pid, comm.as_slice())).chain(sampled).collect()
}

/// `comm;root;...;leaf`, user frames below kernel frames. An interrupt stands by itself, without whom it came into.
/// What is done for a process' ring stands with that process, where its name (`leader`) is known.
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
    // A stack that could not be taken is still time: it must not look like a bare thread name.
    if sample.user().is_empty() && sample.kernel().is_empty() {
        frame(UNKNOWN, if sample.flags & (KERNEL_FAILED | KTHREAD) != 0 { KERNEL_MARK } else { "" });
    }
    out
}

/// Whose time it is, as labels below all frames, root first and not escaped: a thread, by its name; a process, with what
/// the kernel does for its ring; what a worker of a workqueue works on, for its own name says only on which CPU.
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

/// The disk that a worker writes back to: of that the kernel says the numbers alone, `flush-7:0`.
fn flushes(work: &[u8]) -> Option<(u32, u32)> {
    let numbers = std::str::from_utf8(work.strip_prefix(b"flush-")?).ok()?;
    let (major, minor) = numbers.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Workers of workqueues: of such without work, and what stands before the name of what they work on.
const IDLE_WORKERS: &str = "kworkers without work";
pub(crate) const WORKERS_FOR: &str = "kworkers for ";

/// The frames of a process' own code, root first, and what stands in the place of those that are not there; not escaped.
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

/// The frames of the kernel's side, root first.
fn kernel_frames<'a>(sample: &Sample, names: &'a Names) -> Vec<&'a str> {
    named(sample.kernel_lookups().rev().map(|address| names.kernel(address)))
}

/// Frames by name. A run of such as nobody can name is one: code without frame pointers gives chance addresses, a hundred
/// at a time, and of a kernel whose names may not be read none has a name. It says as much, and the picture stays readable.
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

/// Where frames would stand that are too many.
const TRUNCATED: &str = "[truncated]";

/// What ends a kernel's frame in folded text, and what other tools end frames in: inlined, compiled at run time, woken.
pub(crate) const KERNEL_MARK: &str = "_[k]";
pub(crate) const MARKS: [&str; 4] = [KERNEL_MARK, "_[i]", "_[j]", "_[w]"];

/// Appends a name as text that cannot break a folded line: `;` and line ends separate, control
/// characters and bidirectional overrides deceive, a mark at the end is one of ours, and the backslash
/// marks what was escaped.
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
