//! CPU figures shared by several rules: is a CPU the limit, and which one?

use std::collections::{BTreeMap, BTreeSet};

use super::Summaries;
use super::facts;
use crate::analyze::sharing::ProcessIos;
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::load::{LoadSummary, WORKER_SATURATED};
use crate::units::in_percent;

/// A thread cannot use more than one CPU; sampling noise may add a little.
const MOST_OF_A_THREAD: f64 = 1.02;

/// A worker below `WORKER_SATURATED` that used at least this much counts as limited if interrupts take the rest.
pub const WORKER_BUSY: f64 = 0.70;

/// A machine whose CPUs are busy to this share has no CPU time left.
pub const MACHINE_SATURATED: f64 = 0.95;

/// The I/O must have this share of the busy time before a busy machine is attributed to it.
pub const IO_SHARE: f64 = 0.70;

/// With more than this share of the busy time in interrupts, completion is the cause.
pub const INTERRUPT_SHARE: f64 = 0.5;

/// Threads below this share of a CPU do not explain why it is busy.
const BUSY_THREAD: f64 = 0.05;

/// With fewer samples a profile is noise: a share of 10 % would be off by 3 points.
pub const MIN_SAMPLES: u64 = 100;

/// A profile that lost more than this share is not used.
pub const MAX_SAMPLE_LOSS: f64 = 0.01;

/// Prefixes of kernel functions of the block layer, its drivers and their callers.
const IO_FRAMES: &[&str] = &[
    "submit_bio",
    "__submit_bio",
    "blk_",
    "__blk_",
    "bio_",
    "__bio_",
    "blkdev_",
    "__blkdev_",
    "iomap_dio",
    "__iomap_dio",
    "io_submit",
    "io_issue",
    "io_read",
    "__io_read",
    "nvme_",
    "virtblk_",
    "scsi_",
    "loop_",
    "submit_bh",
];

/// Prefixes of kernel functions that read and write files, through the page cache or directly.
const FILE_FRAMES: &[&str] = &[
    "filemap_",
    "generic_file_",
    "generic_perform_write",
    "page_cache_",
    "vfs_copy_file_range",
    "ext4_",
    "xfs_",
    "btrfs_",
    "f2fs_",
    "iomap_",
    "dax_iomap_",
];

/// A thread with this share of its CPU time in I/O counts as doing I/O.
pub const IO_THREAD: f64 = 0.05;

/// A thread with this share of its CPU time in I/O is limited by it.
pub const THREAD_IO_SHARE: f64 = 0.5;

/// Functions of the I/O schedulers, and block layer functions that run only with an active scheduler.
const ELEVATOR_FRAMES: &[&str] = &[
    "dd_",
    "__dd_",
    "deadline_",
    "bfq_",
    "__bfq_",
    "kyber_",
    "blk_mq_sched_",
    "__blk_mq_sched_",
    "elv_",
    "__blk_mq_do_dispatch_sched",
    "blk_mq_do_dispatch_sched",
];

/// Functions between an interrupt and the interrupted code.
const INTERRUPT_FRAMES: &[&str] = &[
    "asm_common_interrupt",
    "common_interrupt",
    "asm_sysvec_",
    "sysvec_",
    "handle_softirqs",
    "__do_softirq",
    "run_ksoftirqd",
    "el1_interrupt",
    "el0_interrupt",
];

/// From these functions on a stack is the driver's work, whatever called it.
const DRIVER_FRAMES: &[&str] =
    &["blk_mq_dispatch_rq_list", "blk_mq_request_issue_directly", "__blk_mq_issue_directly"];

/// The profile, if it is good enough for a finding.
pub fn profile<'a>(s: &Summaries<'a>) -> Option<&'a ProfileSummary> {
    s.profile.filter(|p| {
        p.samples >= MIN_SAMPLES
            && p.duration_ns > 0
            && p.cpus > 0
            && facts::loss(p.samples, p.lost) <= MAX_SAMPLE_LOSS
    })
}

/// CPU time of some classes, in CPUs: 1.0 is one CPU all the time.
pub fn cpus(profile: &ProfileSummary, classes: &[CpuClass]) -> f64 {
    let samples: u64 = classes.iter().filter_map(|class| profile.classes.get(class)).sum();
    samples as f64 / profile.samples as f64 * f64::from(profile.cpus)
}

/// Busy share of all CPUs together, 0 to 1.
pub fn machine_busy(profile: &ProfileSummary) -> f64 {
    1.0 - cpus(profile, &[CpuClass::Idle]) / f64::from(profile.cpus)
}

/// Hard and soft interrupt time, in CPUs.
pub fn interrupt_cpus(profile: &ProfileSummary) -> f64 {
    cpus(profile, &[CpuClass::Irq, CpuClass::Softirq])
}

/// Share of the interrupt time spent on block I/O: stacks with both an interrupt frame and one of the block layer or
/// its drivers. None without any such stack.
pub fn interrupt_io_share(profile: &ProfileSummary) -> Option<f64> {
    let interrupt = |stack: &str| kernel_frames(stack).any(|frame| begins(frame, INTERRUPT_FRAMES));
    let all = folded_share(profile, interrupt);
    let io = folded_share(profile, |stack| {
        interrupt(stack) && kernel_frames(stack).any(|frame| begins(frame, IO_FRAMES))
    });
    (all > 0.0).then(|| io / all)
}

/// Share of the busy samples whose stack satisfies `matches`.
fn folded_share(profile: &ProfileSummary, matches: impl Fn(&str) -> bool) -> f64 {
    let all: u64 = profile.folded.values().sum();
    let hits: u64 = profile.folded.iter().filter(|(stack, _)| matches(stack)).map(|(_, n)| n).sum();
    if all == 0 { 0.0 } else { hits as f64 / all as f64 }
}

/// Kernel frames of a folded stack, outermost first. The first element is the thread's name, which may look like a
/// function and must not count as one.
fn kernel_frames(stack: &str) -> impl Iterator<Item = &str> {
    stack.split(';').skip(1).filter_map(|frame| frame.strip_suffix("_[k]"))
}

fn begins(frame: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| frame.starts_with(prefix))
}

/// Share of the busy samples in the I/O scheduler. A stack counts if no driver frame follows a scheduler frame: the
/// scheduler dispatches, but the driver's work is not its cost.
pub fn elevator_share(profile: &ProfileSummary) -> f64 {
    folded_share(profile, |stack| {
        let mut inside = false;
        for frame in kernel_frames(stack) {
            if begins(frame, DRIVER_FRAMES) || frame.ends_with("queue_rq") {
                inside = false;
            } else if begins(frame, ELEVATOR_FRAMES) {
                inside = true;
            }
        }
        inside
    })
}

/// Share of the busy samples in one of these kernel functions, or in functions that they call.
pub fn within(profile: &ProfileSummary, functions: &[&str]) -> f64 {
    folded_share(profile, |stack| kernel_frames(stack).any(|frame| functions.contains(&frame)))
}

/// Share of the busy samples in kernel functions that satisfy `matches`, without their callees.
pub fn leaves(profile: &ProfileSummary, matches: impl Fn(&str) -> bool) -> f64 {
    let leaf = |stack: &str| {
        stack.rsplit(';').next().and_then(|frame| frame.strip_suffix("_[k]")).is_some_and(&matches)
    };
    folded_share(profile, |stack| stack.contains(';') && leaf(stack))
}

/// CPU usage of the load's workers. Workers pinned to one CPU share it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workers {
    pub count: usize,
    /// CPUs that they can use: fewer than workers if some are pinned to the same CPU.
    pub cpus: usize,
    /// User + system time over the run, as a share of those CPUs.
    pub busy: f64,
    /// Workers on a CPU of which its workers use at least `WORKER_SATURATED`.
    pub saturated: usize,
    /// User time's share of the workers' CPU time.
    pub user: f64,
    /// Additional CPUs used by io_uring's worker threads, for operations that would have blocked.
    pub rings: f64,
}

impl Workers {
    /// At least half of them, so that one straggler does not decide.
    pub fn limited(&self) -> bool {
        self.saturated * 2 >= self.count
    }
}

/// `750 ns in user space and 1556 ns in the kernel`: the load's CPU time per operation.
pub fn per_operation(load: &LoadSummary, operations: u64) -> String {
    let per = |ns: u64| ns as f64 / operations as f64;
    let rings = load.ring_workers.is_some_and(|rings| rings.threads > 0);
    format!(
        "{:.0} ns in user space and {:.0} ns in the kernel{}",
        per(load.user_ns()),
        per(load.system_ns()),
        if rings { ", with io_uring's worker threads" } else { "" }
    )
}

/// None without a load of our own.
pub fn workers(s: &Summaries<'_>) -> Option<Workers> {
    let load = s.load.filter(|l| l.duration_ns > 0 && !l.jobs.is_empty())?;
    let duration = load.duration_ns as f64;
    let cpus = load.cpus();
    let of_cpu = |j: &&crate::load::JobResult| load.used_on_cpu_of(j) as f64 / duration;
    let rings = load.ring_workers.map_or(0, |rings| rings.system_ns);
    let used = load.user_ns() + load.system_ns() - rings;
    Some(Workers {
        count: load.jobs.len(),
        cpus,
        busy: load.jobs.iter().map(|j| j.cpu_ns()).sum::<u64>() as f64 / duration / cpus as f64,
        saturated: load.jobs.iter().filter(|j| of_cpu(j) >= WORKER_SATURATED).count(),
        user: if used == 0 { 0.0 } else { load.user_ns() as f64 / used as f64 },
        rings: rings as f64 / duration,
    })
}

/// A process that uses as much CPU time as one thread can.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyThread {
    pub comm: String,
    pub pid: u32,
    /// Of one CPU.
    pub share: f64,
    /// The part of that in the block layer and in file I/O.
    pub io: f64,
}

/// Which CPU is the limit.
#[derive(Debug, Clone, PartialEq)]
pub enum Saturation {
    /// The load's workers use all of their CPUs.
    Workers(Workers),
    /// The workers and the interrupts together do, if the interrupts run on the workers' CPUs.
    WithInterrupts(Workers, f64),
    /// The loop driver's kernel thread.
    LoopThread(f64),
    /// A thread of another load, mostly in reads and writes in the kernel.
    Thread(BusyThread),
    /// All CPUs are busy, and with I/O.
    Machine(f64),
}

impl Saturation {
    /// The load's workers, if they are the limit.
    pub fn workers(&self) -> Option<&Workers> {
        match self {
            Self::Workers(workers) | Self::WithInterrupts(workers, _) => Some(workers),
            _ => None,
        }
    }
}

/// The CPU that is the limit, if any.
pub fn saturation(s: &Summaries<'_>) -> Option<Saturation> {
    let profile = profile(s);
    if let Some(workers) = workers(s) {
        if workers.limited() {
            return Some(Saturation::Workers(workers));
        }
        let interrupts = profile.map_or(0.0, interrupt_cpus) / workers.cpus as f64;
        if workers.busy >= WORKER_BUSY && workers.busy + interrupts >= WORKER_SATURATED {
            return Some(Saturation::WithInterrupts(workers, interrupts));
        }
    }
    let profile = profile?;
    let kthreads = cpus(profile, &[CpuClass::Kthread]);
    // The loop driver serves a cgroup's requests from one work item: it cannot use a second CPU.
    if on_loop(s) && kthreads >= WORKER_SATURATED {
        return Some(Saturation::LoopThread(kthreads));
    }
    if s.load.is_none()
        && let Some(thread) = busiest_of_io(s, profile)
        // Samples identify the process: more CPU time than one thread can use means several threads, none of which need
        // be saturated.
        && (WORKER_SATURATED..=MOST_OF_A_THREAD).contains(&thread.share)
        && thread.io >= THREAD_IO_SHARE
    {
        return Some(Saturation::Thread(thread));
    }
    let busy = machine_busy(profile);
    (busy >= MACHINE_SATURATED && io_share(s, profile) >= IO_SHARE).then_some(Saturation::Machine(busy))
}

/// The process with the most CPU time among those that do the I/O, or among all if these are unknown.
pub fn busiest_of_io(s: &Summaries<'_>, profile: &ProfileSummary) -> Option<BusyThread> {
    let does_io = |pid: u32| processes(s).any(|row| row.pid == Some(pid));
    let are_known = s.latency.devices.iter().any(|device| device.processes.is_some());
    let (comm, pid, ns) = profile.top.iter().find(|(_, pid, _)| !are_known || does_io(*pid))?;
    Some(BusyThread {
        comm: comm.clone(),
        pid: *pid,
        share: *ns as f64 / profile.duration_ns as f64,
        io: thread_io_share(profile, comm),
    })
}

/// The processes whose I/O is examined.
fn processes<'a>(s: &Summaries<'a>) -> impl Iterator<Item = &'a ProcessIos> {
    let rows = s.latency.devices.iter().flat_map(|device| device.processes.iter().flatten());
    rows.filter(move |row| facts::is_examined(s, row))
}

/// Busy share of all CPUs if nothing is left, whatever uses it.
pub fn nothing_left(s: &Summaries<'_>) -> Option<f64> {
    profile(s).map(machine_busy).filter(|busy| *busy >= MACHINE_SATURATED)
}

/// Whether completion, not submission, uses the CPU time.
pub fn interrupts_dominate(s: &Summaries<'_>) -> bool {
    profile(s).is_some_and(|profile| {
        let busy = machine_busy(profile) * f64::from(profile.cpus);
        busy > 0.0 && interrupt_cpus(profile) > busy * INTERRUPT_SHARE
    })
}

fn on_loop(s: &Summaries<'_>) -> bool {
    facts::device_views(s).iter().any(|p| p.ios > 0 && p.is_loop())
}

/// Share of the busy CPU time of the processes that do the I/O, including their computation: the generator's own time
/// if known. Kernel threads and interrupts count as I/O. None without a profile.
pub fn own_share_of_busy(s: &Summaries<'_>) -> Option<f64> {
    let profile = profile(s)?;
    if workers(s).is_some() {
        return Some(io_share(s, profile));
    }
    let threads = io_threads(s, profile);
    Some(folded_share(profile, |stack| threads.contains(thread(stack))))
}

/// Share of the busy CPU time for I/O: the generator's own time if known, otherwise stacks in the block layer. Kernel
/// threads and interrupts count as I/O.
fn io_share(s: &Summaries<'_>, profile: &ProfileSummary) -> f64 {
    let busy = machine_busy(profile) * f64::from(profile.cpus);
    if busy <= 0.0 {
        return 0.0;
    }
    let kernel = cpus(profile, &[CpuClass::Kthread, CpuClass::Irq, CpuClass::Softirq]);
    match workers(s) {
        Some(workers) => ((workers.busy * workers.cpus as f64 + workers.rings + kernel) / busy).min(1.0),
        None => folded_share(profile, |stack| kernel_frames(stack).any(|frame| begins(frame, IO_FRAMES))),
    }
}

/// The thread name at the start of a folded stack.
fn thread(stack: &str) -> &str {
    stack.split(';').next().unwrap_or("")
}

/// Names of the threads whose I/O is examined, and of those with at least [`IO_THREAD`] of their CPU time in I/O: their
/// computation belongs to it.
fn io_threads<'a>(s: &Summaries<'a>, profile: &'a ProfileSummary) -> BTreeSet<&'a str> {
    let mut samples: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (stack, n) in &profile.folded {
        let of_thread = samples.entry(thread(stack)).or_default();
        // An interrupt runs on the stack of the interrupted thread.
        let is_interrupt = kernel_frames(stack).any(|frame| begins(frame, INTERRUPT_FRAMES));
        let is_io = !is_interrupt
            && kernel_frames(stack).any(|frame| begins(frame, IO_FRAMES) || begins(frame, FILE_FRAMES));
        of_thread.0 += n;
        of_thread.1 += if is_io { *n } else { 0 };
    }
    let does_io = |(all, io): &(u64, u64)| *io as f64 >= *all as f64 * IO_THREAD;
    let by_samples = samples.into_iter().filter(|(_, of)| does_io(of)).map(|(name, _)| name);
    by_samples.chain(processes(s).map(|row| row.comm.as_str())).collect()
}

/// Share of a thread name's samples in the block layer or file I/O.
fn thread_io_share(profile: &ProfileSummary, comm: &str) -> f64 {
    let mine = |stack: &str| stack.split(';').next() == Some(comm);
    let all = folded_share(profile, mine);
    let io = folded_share(profile, |stack| {
        mine(stack)
            && kernel_frames(stack).any(|frame| begins(frame, IO_FRAMES) || begins(frame, FILE_FRAMES))
    });
    if all == 0.0 { 0.0 } else { io / all }
}

/// Same for threads without I/O, summed by name: `other threads, of one CPU: rustc 85 %, make 12 %`.
pub fn others_line(s: &Summaries<'_>) -> Option<String> {
    let profile = profile(s)?;
    let own = io_threads(s, profile);
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, _, ns) in profile.top.iter().filter(|(name, _, _)| !own.contains(name.as_str())) {
        *by_name.entry(name).or_default() += ns;
    }
    let mut names: Vec<(&str, f64)> =
        by_name.into_iter().map(|(name, ns)| (name, ns as f64 / profile.duration_ns as f64)).collect();
    names.retain(|(_, share)| *share >= BUSY_THREAD);
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    let names: Vec<String> =
        names.iter().take(3).map(|(name, share)| format!("{name} {}", in_percent(*share))).collect();
    (!names.is_empty()).then(|| format!("other threads, in % of one CPU: {}", names.join(", ")))
}

/// `busiest threads, of one CPU each: qemu (4711) 78 %, rustc (815) 12 %`; None without a profile.
pub fn busiest_line(s: &Summaries<'_>) -> Option<String> {
    let profile = profile(s)?;
    let share = |ns: u64| ns as f64 / profile.duration_ns as f64;
    let threads = profile.top.iter().filter(|(_, _, ns)| share(*ns) >= BUSY_THREAD).take(3);
    let threads: Vec<String> =
        threads.map(|(name, pid, ns)| format!("{name} ({pid}) {}", in_percent(share(*ns)))).collect();
    (!threads.is_empty()).then(|| format!("busiest threads, in % of one CPU each: {}", threads.join(", ")))
}

/// The functions with the most busy samples, with their shares: `_raw_spin_lock 12 %`.
pub fn hottest(profile: &ProfileSummary, most: usize) -> Vec<String> {
    let mut leaves: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, n) in &profile.folded {
        let leaf = stack.rsplit(';').next().unwrap_or(stack);
        *leaves.entry(leaf.strip_suffix("_[k]").unwrap_or(leaf)).or_default() += n;
    }
    let all: u64 = leaves.values().sum();
    let mut sorted: Vec<(&str, u64)> = leaves.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    sorted
        .into_iter()
        .take(most)
        .map(|(leaf, n)| format!("{leaf} {}", in_percent(n as f64 / all.max(1) as f64)))
        .collect()
}
