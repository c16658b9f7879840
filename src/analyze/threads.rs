//! Summarizes what the threads were doing: samples of all rounds, grouped by chosen columns.

mod rows;
pub mod trust;

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analyze::stacks;
use crate::envelope::View;
use crate::host::syscalls;
use crate::merge::{Merge, Row as _, Summary, how, merge, merge_fields, row, weighted};
use crate::names::names;
use crate::symbols::{Addresses, Names, Scheduler, UNKNOWN};
use crate::wire::threads::{Call, Loss, MAX_FRAMES, Sighting, ThreadSamples, fold_numbers};

use self::rows::BatchCounts;

names! {
    /// Columns to group threads by.
    #[derive(PartialOrd, Ord)]
    pub enum GroupColumn {
        Comm = "comm",
        State = "state",
        Syscall = "syscall",
        Wchan = "wchan",
        Kstack = "kstack",
        Cgroup = "cgroup",
        Pid = "pid",
        Device = "device",
    }
}

impl GroupColumn {
    /// The default columns.
    pub const USUAL: [Self; 4] = [Self::Comm, Self::State, Self::Syscall, Self::Wchan];
}

names! {
    /// What sampled the threads: a program, or reads of /proc.
    pub enum ThreadSampler {
        Bpf = "bpf",
        Proc = "proc",
    }
}

/// Resolves the numbers in the samples.
#[derive(Debug, Clone, Copy)]
pub struct Meaning<'a> {
    pub names: &'a Names,
    pub scheduler: &'a Scheduler,
    /// By id.
    pub cgroups: &'a BTreeMap<u64, String>,
    /// Names of disks by major << 20 | minor.
    pub devices: &'a BTreeMap<u32, String>,
}

/// How many threads, on average over the rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadShare {
    pub samples: u64,
    pub average_threads: f64,
    /// Half of the interval in which the average is with 95 % certainty, by the spread among parts of the window; None
    /// where there were too few rounds to tell.
    pub error: Option<f64>,
}

// Intervals are too short to estimate the error, and so is their sum.
merge!(ThreadShare { add: samples; derived: average_threads error; });

impl ThreadShare {
    fn settle(&mut self, rounds: u64) {
        self.average_threads = self.samples as f64 / rounds.max(1) as f64;
    }
}

/// Threads that are alike. A column that was not asked for, or that nobody knows, is None.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadGroup {
    pub comm: Option<String>,
    pub state: Option<char>,
    pub syscall: Option<String>,
    pub wchan: Option<String>,
    pub cgroup: Option<String>,
    pub pid: Option<u32>,
    pub device: Option<String>,
    /// The kernel stack that most of them have, outermost first; empty where none was taken.
    pub stack: Vec<String>,
    /// Samples that have it.
    pub stack_samples: u64,
    #[serde(flatten)]
    pub share: ThreadShare,
}

/// The columns of a row except for the stack.
type RowKey = (
    Option<String>,
    Option<char>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<u32>,
    Option<String>,
);

impl ThreadGroup {
    fn key(&self) -> RowKey {
        let Self { comm, state, syscall, wchan, cgroup, pid, device, .. } = self.clone();
        (comm, state, syscall, wchan, cgroup, pid, device)
    }
}

impl Merge for ThreadGroup {
    fn merge_with(&mut self, later: &Self) {
        let Self {
            comm: _,
            state: _,
            syscall: _,
            wchan: _,
            cgroup: _,
            pid: _,
            device: _,
            stack,
            stack_samples,
            share,
        } = self;
        // The counts of an interval's other stacks are unknown.
        match *stack == later.stack {
            true => stack_samples.merge_with(&later.stack_samples),
            false if later.stack_samples > *stack_samples => {
                stack.clone_from(&later.stack);
                *stack_samples = later.stack_samples;
            }
            false => {}
        }
        share.merge_with(&later.share);
    }
}

/// What threads do that do not simply sleep, each in one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Classes {
    /// None: the two are not told apart, and are in `runnable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_cpu: Option<ThreadShare>,
    /// Could run and waits for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue: Option<ThreadShare>,
    pub runnable: ThreadShare,
    /// Waits for I/O, as the kernel accounts it (`in_iowait`). None: not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_wait: Option<ThreadShare>,
    /// Waits for something else without being interruptible.
    pub uninterruptible: ThreadShare,
    /// Everything else: sleeps, was stopped, has ended.
    pub other: ThreadShare,
}

// An interval without threads distinguishes all classes.
merge!(Classes { add: runnable uninterruptible other; both: on_cpu run_queue io_wait; });

impl Classes {
    fn shares(&mut self) -> impl Iterator<Item = &mut ThreadShare> {
        let Self { on_cpu, run_queue, runnable, io_wait, uninterruptible, other } = self;
        on_cpu.iter_mut().chain(run_queue).chain(io_wait).chain([runnable, uninterruptible, other])
    }
}

/// A place where threads wait for I/O.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wait {
    /// Outermost first.
    pub stack: Vec<String>,
    pub wchan: Option<String>,
    /// Those of them whose disk is known.
    pub devices: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub share: ThreadShare,
}

merge!(Wait { first: stack wchan; add: devices share; });
row!(Wait, (Vec<String>, Option<String>), |wait| (wait.stack.clone(), wait.wchan.clone()));

/// A window of rounds, grouped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadSummary {
    pub duration_ns: u64,
    pub rounds: u64,
    pub samples: u64,
    /// All threads that were counted, on average over the rounds.
    pub average_threads: f64,
    /// Threads of the machine, on average over the rounds.
    pub looked_at: f64,
    pub columns: Vec<GroupColumn>,
    #[serde(rename = "threads")]
    pub rows: Vec<ThreadGroup>,
    #[serde(rename = "states")]
    pub classes: Classes,
    /// Where threads wait for I/O, most first.
    #[serde(rename = "io_waits")]
    pub waits: Vec<Wait>,
    /// `comm;frame;...;leaf` → samples. Not in the JSON, which it would multiply.
    #[serde(skip)]
    pub folded: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub loss: Loss,
    /// Rounds per second.
    pub hz: u32,
    /// None: not recorded.
    pub source: Option<ThreadSampler>,
}

merge_fields!(ThreadSummary {
    first: columns hz source looked_at rows;
    add: duration_ns rounds samples classes loss folded;
    rows: waits;
    derived: average_threads;
});

impl Merge for ThreadSummary {
    fn merge_with(&mut self, later: &Self) {
        let threads = weighted(Some(self.looked_at), self.rounds, Some(later.looked_at), later.rounds);
        self.merge_fields(later);
        self.looked_at = threads.unwrap_or_default();
        // With the stack as a column, a row must not merge different stacks.
        let by_stack = self.columns.contains(&GroupColumn::Kstack);
        let key = |row: &ThreadGroup| (row.key(), by_stack.then(|| row.stack.clone()));
        how::rows_by(&mut self.rows, &later.rows, key);
    }
}

impl Summary for ThreadSummary {
    fn settle(&mut self) {
        let rounds = self.rounds;
        self.average_threads = self.samples as f64 / rounds.max(1) as f64;
        let rows = self.rows.iter_mut().map(|row| &mut row.share);
        let waits = self.waits.iter_mut().map(|wait| &mut wait.share);
        rows.chain(waits).chain(self.classes.shares()).for_each(|share| share.settle(rounds));
        sort(&mut self.rows, &mut self.waits);
    }

    /// Nothing to prefix: threads belong to a whole machine.
    fn name_host(&mut self, _: &str) {}

    fn window(&mut self) -> Option<&mut u64> {
        None
    }
}

merge!(Loss { add: late missed cut damaged unkept no_stack unread; });

impl View for ThreadSummary {
    const SCHEMA: &'static str = "biopsy.threads/1";
    const HAS_DURATION: bool = true;
}

/// The addresses of an interval to symbolize.
pub fn addresses(sampled: &ThreadSamples) -> Addresses {
    let mut out = Addresses::default();
    for stack in &sampled.stacks {
        out.kernel.extend(stack.iter().map(|ip| inside(*ip)));
    }
    out
}

/// All frames of a sleeping thread are return addresses: they belong to the call before them.
fn inside(address: u64) -> u64 {
    address.saturating_sub(1)
}

/// Groups the samples of an interval.
pub fn summarize(sampled: &ThreadSamples, meaning: &Meaning<'_>, columns: &[GroupColumn]) -> ThreadSummary {
    let stacks: Vec<NamedStack> = sampled.stacks.iter().map(|stack| named(stack, meaning)).collect();
    let of = |sighting: &Sighting| {
        let at = (sighting.stack as usize).checked_sub(1);
        at.and_then(|at| stacks.get(at))
    };
    let mut rows: BTreeMap<ThreadKey, (BatchCounts, HashMap<u32, u64>)> = BTreeMap::new();
    let mut waits: BTreeMap<WaitPlace, (BatchCounts, ByDevice)> = BTreeMap::new();
    let mut classes: BTreeMap<StateClass, BatchCounts> = BTreeMap::new();
    let mut folded = BTreeMap::new();
    for (at, batch) in sampled.batches.iter().enumerate() {
        for (place, n) in &batch.counts {
            let Some(sighting) = sampled.sightings.get(*place as usize) else { continue };
            let stack = of(sighting);
            let wchan = wchan(sighting, stack);
            let class = class_of(sighting);
            classes.entry(class).or_default().add(at, *n);
            if class == StateClass::IoWait {
                let key = (sighting.stack, wchan.clone());
                let (counted, devices) = waits.entry(key).or_default();
                counted.add(at, *n);
                if let Some(name) = device(sighting, meaning) {
                    *devices.entry(name).or_default() += n;
                }
            }
            *folded.entry(fold(sighting, stack)).or_default() += n;
            let key = ThreadKey::of(sighting, wchan, stack, meaning, columns);
            let (counted, by_stack) = rows.entry(key).or_default();
            counted.add(at, *n);
            *by_stack.entry(sighting.stack).or_default() += n;
        }
    }
    let frames = |place: u32| {
        let stack = (place as usize).checked_sub(1).and_then(|at| stacks.get(at));
        stack.map_or_else(Vec::new, |stack| stack.frames.clone())
    };
    let row = |(key, (counted, by_stack)): (ThreadKey, (BatchCounts, HashMap<u32, u64>))| {
        let most = by_stack
            .iter()
            .filter(|(place, _)| **place > 0)
            .max_by_key(|(place, n)| (**n, u32::MAX - **place));
        ThreadGroup {
            comm: key.comm,
            state: key.state,
            syscall: key.syscall,
            wchan: key.wchan,
            cgroup: key.cgroup,
            pid: key.pid,
            device: key.device,
            stack: key.kstack.unwrap_or_else(|| most.map_or_else(Vec::new, |(place, _)| frames(*place))),
            stack_samples: most.map_or(0, |(_, n)| *n),
            share: counted.share(sampled),
        }
    };
    let mut rows: Vec<ThreadGroup> = rows.into_iter().map(row).collect();
    let wait = |((place, wchan), (counted, devices)): (WaitPlace, (BatchCounts, ByDevice))| Wait {
        stack: frames(place),
        wchan,
        devices,
        share: counted.share(sampled),
    };
    let mut waits: Vec<Wait> = waits.into_iter().map(wait).collect();
    sort(&mut rows, &mut waits);
    let on_average = |n: u64| if sampled.rounds == 0 { 0.0 } else { n as f64 / sampled.rounds as f64 };
    ThreadSummary {
        duration_ns: sampled.to_ns.saturating_sub(sampled.from_ns),
        rounds: sampled.rounds,
        samples: sampled.samples(),
        average_threads: on_average(sampled.samples()),
        looked_at: on_average(sampled.looked_at),
        columns: columns.to_vec(),
        rows,
        classes: classes_of(sampled, &classes),
        waits,
        folded,
        loss: sampled.loss,
        ..ThreadSummary::default()
    }
}

/// Most samples first.
fn sort(rows: &mut [ThreadGroup], waits: &mut [Wait]) {
    rows.sort_by_cached_key(|row| (std::cmp::Reverse(row.share.samples), row.key()));
    waits.sort_by_cached_key(|wait| (std::cmp::Reverse(wait.share.samples), wait.key()));
}

/// The stack's index + 1, and the name of the function that threads wait in.
type WaitPlace = (u32, Option<String>);
/// Samples by the disk that they wait for.
type ByDevice = BTreeMap<String, u64>;

/// A stack with names, outermost first.
#[derive(Debug, Clone, Default, PartialEq)]
struct NamedStack {
    frames: Vec<String>,
    wchan: Option<String>,
}

fn named(stack: &[u64], meaning: &Meaning<'_>) -> NamedStack {
    let name = |address: u64| meaning.names.kernel(inside(address)).first().map_or(UNKNOWN, String::as_str);
    let scheduler = meaning.scheduler;
    let waits = |address: &&u64| {
        if scheduler.ranges.is_empty() {
            return !SCHEDULER.contains(&bare(name(**address)));
        }
        !scheduler.ranges.iter().any(|(start, end)| (*start..*end).contains(*address))
    };
    let mut frames: Vec<String> = Vec::with_capacity(stack.len() + 1);
    if stack.len() == MAX_FRAMES {
        frames.push("[truncated]".to_string());
    }
    frames.extend(stack.iter().rev().map(|address| name(*address).to_string()));
    let wchan = stack.iter().find(waits).map(|address| name(*address)).filter(|name| *name != UNKNOWN);
    NamedStack { frames, wchan: wchan.map(str::to_string) }
}

/// Removes compiler suffixes: .constprop.0, .isra.0, .cold and the like.
fn bare(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Functions of the scheduler, for kernels that do not report where it is; a thread never waits for these themselves.
const SCHEDULER: [&str; 13] = [
    "__schedule",
    "schedule",
    "schedule_idle",
    "schedule_preempt_disabled",
    "schedule_timeout",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "io_schedule",
    "io_schedule_timeout",
    "preempt_schedule",
    "preempt_schedule_common",
    "bit_wait_io",
    "do_nanosleep",
];

/// The function in which a thread waits; None for a runnable one.
fn wchan(sighting: &Sighting, stack: Option<&NamedStack>) -> Option<String> {
    if sighting.state == 'R' {
        return None;
    }
    match stack {
        Some(stack) => stack.wchan.clone(),
        None => sighting.wchan.as_deref().map(str::to_string),
    }
}

fn device(sighting: &Sighting, meaning: &Meaning<'_>) -> Option<String> {
    let number = sighting.device;
    let unnamed = || format!("{}:{}", number >> 20, number & 0xf_ffff);
    (number > 0).then(|| meaning.devices.get(&number).cloned().unwrap_or_else(unnamed))
}

/// The columns of a row.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct ThreadKey {
    comm: Option<String>,
    state: Option<char>,
    syscall: Option<String>,
    wchan: Option<String>,
    kstack: Option<Vec<String>>,
    cgroup: Option<String>,
    pid: Option<u32>,
    device: Option<String>,
}

impl ThreadKey {
    fn of(
        sighting: &Sighting,
        wchan: Option<String>,
        stack: Option<&NamedStack>,
        meaning: &Meaning<'_>,
        columns: &[GroupColumn],
    ) -> Self {
        let mut key = Self::default();
        for column in columns {
            match column {
                GroupColumn::Comm => key.comm = Some(comm(sighting)),
                GroupColumn::State => key.state = Some(sighting.state),
                GroupColumn::Syscall => key.syscall = call(sighting),
                GroupColumn::Wchan => key.wchan.clone_from(&wchan),
                GroupColumn::Kstack => {
                    key.kstack = Some(stack.map_or_else(Vec::new, |stack| stack.frames.clone()))
                }
                GroupColumn::Cgroup => key.cgroup = cgroup(sighting, meaning),
                GroupColumn::Pid => key.pid = Some(sighting.pid),
                GroupColumn::Device => key.device = device(sighting, meaning),
            }
        }
        key
    }
}

fn comm(sighting: &Sighting) -> String {
    fold_numbers(&String::from_utf8_lossy(sighting.comm_bytes()))
}

/// The name of the system call; None: in none, or unknown.
fn call(sighting: &Sighting) -> Option<String> {
    match sighting.call {
        Call::Unknown if sighting.on_cpu == Some(true) => Some("[on CPU]".to_string()),
        Call::Unknown | Call::None => None,
        Call::Number(number) => {
            Some(syscalls::name(number).map_or_else(|| number.to_string(), str::to_string))
        }
        Call::Compat(number) => Some(format!("[32-bit] {number}")),
    }
}

/// A removed group keeps its number.
fn cgroup(sighting: &Sighting, meaning: &Meaning<'_>) -> Option<String> {
    match (&sighting.cgroup_path, sighting.cgroup) {
        (Some(path), _) => Some(path.to_string()),
        (None, 0) => None,
        (None, id) => Some(meaning.cgroups.get(&id).cloned().unwrap_or_else(|| format!("[gone {id}]"))),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StateClass {
    OnCpu,
    RunQueue,
    Runnable,
    IoWait,
    Uninterruptible,
    Other,
}

fn class_of(sighting: &Sighting) -> StateClass {
    match (sighting.state, sighting.on_cpu, sighting.in_iowait) {
        ('R', Some(true), _) => StateClass::OnCpu,
        ('R', Some(false), _) => StateClass::RunQueue,
        ('R', None, _) => StateClass::Runnable,
        (_, _, Some(true)) => StateClass::IoWait,
        ('D', ..) => StateClass::Uninterruptible,
        _ => StateClass::Other,
    }
}

fn classes_of(sampled: &ThreadSamples, counted: &BTreeMap<StateClass, BatchCounts>) -> Classes {
    let share = |classes: &[StateClass]| {
        let mut all = BatchCounts::default();
        classes.iter().filter_map(|class| counted.get(class)).for_each(|one| all.merge(one));
        all.share(sampled)
    };
    // /proc reports neither of the two.
    let told = !counted.contains_key(&StateClass::Runnable)
        && sampled.sightings.iter().all(|sighting| sighting.in_iowait.is_some());
    Classes {
        on_cpu: told.then(|| share(&[StateClass::OnCpu])),
        run_queue: told.then(|| share(&[StateClass::RunQueue])),
        runnable: share(&[StateClass::OnCpu, StateClass::RunQueue, StateClass::Runnable]),
        io_wait: told.then(|| share(&[StateClass::IoWait])),
        uninterruptible: share(&[StateClass::Uninterruptible]),
        other: share(&[StateClass::Other]),
    }
}

/// `comm;outermost;...;leaf`.
fn fold(sighting: &Sighting, stack: Option<&NamedStack>) -> String {
    let mut out = String::with_capacity(256);
    stacks::escape(comm(sighting).as_bytes(), &mut out);
    let mut frame = |name: &str, suffix: &str| {
        out.push(';');
        stacks::escape(name.as_bytes(), &mut out);
        out.push_str(suffix);
    };
    match stack {
        Some(stack) => stack.frames.iter().for_each(|name| frame(name, "_[k]")),
        None if sighting.on_cpu == Some(true) => frame("[on CPU]", ""),
        None if sighting.state == 'R' => frame("[runnable]", ""),
        None => frame(sighting.wchan.as_deref().unwrap_or(UNKNOWN), "_[k]"),
    }
    out
}

#[cfg(test)]
mod tests;
