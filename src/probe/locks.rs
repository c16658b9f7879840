//! Measures lock contention: attaches `bpf/locks.bpf.c`, reads what it counted, names the locks, detaches.

mod memory;
mod missing;
mod names;
mod object;
mod percpu_cache;
mod spin;

pub use object::{SPEC, VIEW};

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Iter, IterOpts, Link, MapCore, MapFlags, MapHandle, ProgramInput};

use self::memory::{KernelMemory, Layout, Memory};
use self::names::{KernelFacts, Namer};
use self::object::ProgramSet;
use self::spin::{Functions, Spinning};
use super::Probe;
use super::btf::KernelBtf;
use super::cost::{Beside, CostMeter, MeteredProgram, metered};
use super::filter::Filter;
use super::libbpf::{self, refusal};
use super::maps::{array, each_entry, element, entries, lookup};
use super::process_maps::ProcessMaps;
use super::skel::locks::LocksSkel;
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing, Reason};
use crate::host::cgroups::Hierarchy;
use crate::host::kallsyms::Kallsyms;
use crate::host::mapped::MappedFiles;
use crate::host::mounts;
use crate::host::{Host, block};
use crate::refusal::Refusal;
use crate::wire::Record;
use crate::wire::locks::stacks::{StackSample, Whos, WireLockWho, decode_stack};
use crate::wire::locks::{
    HolderSample, LockEventSource, LockName, LockSample, ProcessSample, Reading, WaiterSample, WireLock,
    WireLockCpu, WireLockHolder, WireLockKind, WireLockProcess, WireLockRecent, WireLockRecentProcess,
    WireLockWaiter, WireNvmePlaces,
};
use crate::wire::stacks::KTHREAD;

/// Functions of the slow path of spinlocks: on bare metal, and in a guest with paravirtual spinlocks.
const SLOW_PATHS: [&str; 2] = ["native_queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath"];

/// The budget for stacks applies to each period of this length.
const PERIOD: Duration = Duration::from_millis(100);

/// How often new locks are named: the objects that contain them may be gone at the end of the interval.
const NAME_EVERY: Duration = Duration::from_millis(500);

/// How often processes are looked up again between readings.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Attempts to name a lock: the struct around a new lock may not be complete yet.
const TRIES: u8 = 2;

/// Maximum processes whose names are looked up at once.
const MOST_LOOKED_AT: usize = 512;

/// Default number of locks that have their own rows.
pub const ROOM: u32 = 1024;

/// User stacks that are kept, if they are requested, at 1 KiB each.
const WHO_ROOM: u32 = 8192;
/// Kernel stacks that are kept with user stacks, at 512 bytes each.
const STACK_ROOM: u32 = 16384;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The threads whose waits are measured.
    pub filter: Filter,
    /// CPU budget for stacks of waits, in percent of each CPU; 0: no stacks.
    pub max_cost: f64,
    /// Locks with their own rows; all others of a kind share one row.
    pub room: u32,
    /// With the stacks, record the waiting thread and its user frames.
    pub waiters: bool,
    /// Sample where the CPUs spin.
    pub spin: bool,
    /// Measure the probe's cost with the kernel's program statistics.
    pub cost: bool,
    /// Do not use the events, as on a kernel without them.
    pub no_events: bool,
}

/// The attached probe. Dropping it detaches everything.
pub struct LockProbe {
    skel: LocksSkel<'static>,
    links: Vec<Link>,
    /// The programs that were loaded.
    wanted: ProgramSet,
    /// The slow path is probed.
    slow_path: bool,
    /// All waits are followed, without a filter.
    is_whole: bool,
    cpus: u32,
    online: u32,
    root: PathBuf,
    disks: Vec<String>,
    /// Functions in which CPUs spin, to be sampled; the inner option is None if the kernel hides symbols.
    spins: Option<Option<Functions>>,
    spinning: RefCell<Option<Spinning>>,
    names: RefCell<Names>,
    last: RefCell<Last>,
    meter: Option<CostMeter>,
    /// Mappings of waiting processes; None: waiting threads are not requested.
    maps: Option<ProcessMaps>,
    missing: Vec<Missing>,
    start: Reading,
}

/// Total time of spinning waits, for a reader outside the probe.
#[derive(Debug)]
pub struct SpinClock {
    rows: MapHandle,
    possible: u32,
    online: u32,
}

impl SpinClock {
    /// Time of the waits that have ended since the probe began, divided by the number of CPUs, ns.
    pub fn read(&self) -> Option<u64> {
        let mut sum = 0;
        for cpu in 0..self.possible {
            sum += WireLockCpu::decode(&element(&self.rows, cpu).ok()?).ok()?.spin_wait_ns;
        }
        Some(sum / u64::from(self.online))
    }
}

/// The rows of the last reading.
#[derive(Debug, Default)]
struct Last {
    locks: BTreeMap<u64, LockSample>,
    processes: BTreeMap<u32, ProcessSample>,
}

impl Last {
    /// Keeps every row at least as high as before, so that consecutive intervals add up to the whole.
    fn hold(&mut self, locks: &mut BTreeMap<u64, LockSample>, processes: &mut BTreeMap<u32, ProcessSample>) {
        for (lock, sample) in &self.locks {
            locks.entry(*lock).or_default().hold(sample);
        }
        for (pid, sample) in &self.processes {
            processes.entry(*pid).or_insert_with(|| sample.clone()).hold(sample);
        }
        self.locks.clone_from(locks);
        self.processes.clone_from(processes);
    }
}

/// The lock names found so far.
#[derive(Debug, Default)]
struct Names {
    layout: Option<Layout>,
    known: KernelFacts,
    memory_groups: Option<Hierarchy>,
    by_lock: BTreeMap<u64, LockName>,
    /// Process names, as of the last lookup.
    processes: BTreeMap<u32, Vec<u8>>,
    tries: BTreeMap<u64, u8>,
    looked: Option<Instant>,
    /// Rows of locks and processes at the last lookup between readings.
    rows: u64,
    /// When processes with a name were last looked up again.
    looked_again: Option<Instant>,
    /// Processes that were gone when they were looked up.
    exited: BTreeSet<u32>,
}

impl Names {
    /// Whether the lock has no name, and may get one.
    fn is_new(&self, lock: u64) -> bool {
        !self.by_lock.contains_key(&lock) && self.tries.get(&lock).is_none_or(|tried| *tried < TRIES)
    }

    /// Looks up the names of these processes, of [`MOST_LOOKED_AT`] at most. Those that have exited keep theirs.
    fn look_up(&mut self, root: &Path, pids: impl Iterator<Item = u32>) {
        let pids: Vec<u32> = pids.filter(|pid| !self.exited.contains(pid)).take(MOST_LOOKED_AT).collect();
        for pid in pids {
            let Ok(mut comm) = fs::read(root.join(format!("proc/{pid}/comm"))) else {
                self.exited.insert(pid);
                continue;
            };
            comm.truncate(comm.iter().rposition(|byte| *byte == b'\n').unwrap_or(comm.len()));
            self.processes.insert(pid, comm);
        }
    }
}

impl percpu_cache::CacheEntry for WireLockRecent {
    type Key = u64;

    fn key(&self) -> u64 {
        self.lock
    }

    fn follows(&self, earlier: &Self) -> bool {
        (self.lock, self.bucket) == (earlier.lock, earlier.bucket)
            && self.count >= earlier.count
            && self.sum >= earlier.sum
    }
}

impl percpu_cache::CacheEntry for (u32, WireLockRecentProcess) {
    type Key = u32;

    fn key(&self) -> u32 {
        self.0
    }

    fn follows(&self, (pid, earlier): &Self) -> bool {
        self.0 == *pid && self.1.contentions >= earlier.contentions && self.1.sum >= earlier.sum
    }
}

impl LockProbe {
    /// Loads and attaches, and opens the interval. `root` is the root of sysfs and procfs: `/` for this machine.
    ///
    /// Refused when rights or BTF are missing, or there is neither an event nor a probe for waits.
    pub fn attach(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        let mut probe = Self::prepare(host, root, options)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but nothing is counted before [`Self::begin`].
    pub fn prepare(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        SPEC.permit(root)?;
        let btf = KernelBtf::read()?;
        let symbols = Kallsyms::read(root);
        let has_events = btf.event("contention_begin", None).is_there() && !options.no_events;
        let slow_paths: Vec<&str> = match has_kprobes(root) {
            true => SLOW_PATHS.into_iter().filter(|name| symbols.has_function(name)).collect(),
            false => Vec::new(),
        };
        if !has_events && slow_paths.is_empty() {
            let why = "this kernel has neither lock contention events (Linux 5.19) nor kprobes for the \
                slow path of spinlocks: use a newer kernel, or one with CONFIG_KPROBE_EVENTS";
            return Err(Refusal::Refused(why.to_string()).into());
        }
        let source = if has_events { LockEventSource::Events } else { LockEventSource::SlowPath };
        let mut missing = options.filter.missing_of_locks();
        let beside = if has_events { Beside::Locks } else { Beside::Ios };
        let meter = if options.cost { CostMeter::beside(beside) } else { None };
        if options.cost && meter.is_none() {
            missing.push(super::cost::missing());
        }
        // With a filter, other waiters may have been in the queue unnoticed.
        let has_releases = has_events && btf.event("contended_release", None).is_there();
        let holders = has_releases && options.filter.is_empty();
        if !holders {
            missing.push(missing::no_holders(has_releases));
        }
        let spin = options.spin && options.filter.is_empty();
        if options.spin && !spin {
            missing.push(missing::no_spin_of_some());
        }
        let wanted = ProgramSet {
            source,
            slow_path: !slow_paths.is_empty(),
            holders,
            slab: btf.has_function("bpf_get_kmem_cache"),
            nvme: root.join("sys/module/nvme").exists(),
        };
        let skel = object::load(host, wanted, options)?;
        let maps = match options.waiters {
            true => Some(ProcessMaps::follow(MapHandle::try_from(&skel.maps.lock_whos)?, whose)?),
            false => None,
        };
        let functions = Functions::new(&symbols);
        if symbols.is_empty() {
            missing.push(missing::gap(
                "names",
                Reason::Refused,
                "the kernel hides its symbols: locks and stacks have no function names".to_string(),
                Some("run as root, with kernel.kptr_restrict at 0 or 1"),
            ));
        }
        let names = Names {
            known: KernelFacts {
                symbols: symbols.variables(),
                mounts: mounts::mounts(root),
                ..KernelFacts::default()
            },
            memory_groups: Hierarchy::of_controller(root, "memory"),
            ..Names::default()
        };
        let mut probe = Self {
            skel,
            links: Vec::new(),
            wanted,
            slow_path: false,
            is_whole: options.filter.is_empty(),
            cpus: host.cpus_possible.max(1),
            online: host.cpus_online.max(1),
            root: root.to_path_buf(),
            disks: host.devices.iter().map(|device| device.name.clone()).collect(),
            spins: spin.then_some(functions),
            spinning: RefCell::new(None),
            names: RefCell::new(names),
            last: RefCell::default(),
            meter,
            maps,
            missing,
            start: Reading::default(),
        };
        probe.attach_programs(&slow_paths).map_err(|error| refusal("attaching the probes", &error))?;
        let unseen = missing::waits(root, host.cpus_possible, source, probe.slow_path);
        probe.missing.extend(unseen);
        // Before the interval, so that its cost is not included.
        probe.known_devices();
        Ok(probe)
    }

    fn attach_programs(&mut self, slow_paths: &[&str]) -> libbpf_rs::Result<()> {
        let programs = &self.skel.progs;
        match self.wanted.source {
            LockEventSource::Events => {
                // Ends are attached first: the start of a wait in progress is not recorded.
                self.links.push(programs.lock_end.attach()?);
                self.links.push(programs.lock_begin.attach()?);
                if self.wanted.holders {
                    self.links.push(programs.lock_release.attach()?);
                }
                // In addition to the events, if the kernel allows it.
                for name in slow_paths {
                    if let Ok(link) = programs.slow_call.attach_kprobe(false, name) {
                        self.links.push(link);
                        self.slow_path = true;
                    }
                }
            }
            LockEventSource::SlowPath => {
                for name in slow_paths {
                    self.links.push(programs.slow_end.attach_kprobe(true, name)?);
                    self.links.push(programs.slow_begin.attach_kprobe(false, name)?);
                }
                self.slow_path = true;
            }
        }
        Ok(())
    }

    fn sample(&mut self, functions: Option<Functions>) {
        let begun = match functions {
            Some(functions) => Spinning::attach(functions).map_err(|error| format!("{error:#}")),
            None => Err("the kernel hides its symbols".to_string()),
        };
        match begun {
            Ok(spinning) => {
                *self.spinning.borrow_mut() = Some(spinning);
                if self.meter.is_some() {
                    self.missing.push(missing::no_cost_of_samples());
                }
            }
            Err(why) => {
                let why = format!("CPU time spent spinning was not sampled: {why}");
                self.missing.push(missing::gap("spin", Reason::Refused, why, None));
            }
        }
    }

    /// Opens or closes the interval for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        Ok(())
    }

    /// Total time of spinning waits; None if only the waits of some tasks are followed.
    pub fn spin_clock(&self) -> Option<SpinClock> {
        let rows = MapHandle::try_from(&self.skel.maps.lock_cpus).ok()?;
        self.is_whole.then_some(SpinClock { rows, possible: self.cpus, online: self.online })
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The cost of the probes so far, for an interval with this many contentions per second.
    pub fn cost(&self, contentions_per_second: f64) -> Cost {
        let bytes = libbpf::map_bytes(self.skel.object());
        let mut cost = self.meter.as_ref().map_or_else(
            || Cost { map_bytes: bytes, ..Cost::default() },
            |m| m.cost(bytes, contentions_per_second),
        );
        // The meter counted contentions instead of I/Os.
        cost.ns_per_contention = cost.ns_per_io.take();
        cost.attach_ns_per_contention = cost.attach_ns_per_io.take();
        cost.ios = None;
        cost
    }

    fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let programs = &self.skel.progs;
        let mut all = match self.wanted.source {
            LockEventSource::Events => {
                vec![metered("lock_begin", &programs.lock_begin), metered("lock_end", &programs.lock_end)]
            }
            LockEventSource::SlowPath => {
                vec![metered("slow_begin", &programs.slow_begin), metered("slow_end", &programs.slow_end)]
            }
        };
        if self.wanted.holders {
            all.push(metered("lock_release", &programs.lock_release));
        }
        if self.wanted.source == LockEventSource::Events && self.slow_path {
            all.push(metered("slow_call", &programs.slow_call));
        }
        all
    }

    /// Runs that the kernel skipped, by program.
    fn missed(&self) -> BTreeMap<&'static str, u64> {
        let of = |program: &MeteredProgram<'_>| {
            libbpf::program_stats(&program.fd).ok().map(|stats| (program.name, stats.recursion_misses))
        };
        self.metered().iter().filter_map(of).collect()
    }

    fn rows(&self) -> Result<Vec<WireLockCpu>> {
        let row = |cpu| Ok(WireLockCpu::decode(&element(&self.skel.maps.lock_cpus, cpu)?)?);
        (0..self.cpus).map(row).collect()
    }

    /// Number of completed waits.
    fn contentions(&self) -> u64 {
        self.rows().unwrap_or_default().iter().map(|row| row.contentions).sum()
    }

    /// `waiting`: threads that sleep on a lock, whose locks are named as well.
    fn reading(&self, waiting: Option<Vec<WaiterSample>>) -> Result<Reading> {
        let maps = &self.skel.maps;
        let at_ns = now_ns();
        let places = || -> Result<Vec<Option<WireLockRecent>>> {
            array(&maps.recent_locks, |_, place| Ok(WireLockRecent::decode(place)?))
        };
        let row = |lock: u64| -> Result<Option<LockSample>> {
            // An entry may be missing briefly while another CPU writes it.
            let value = lookup(&maps.locks, &lock.to_ne_bytes())?;
            Ok(value.map(|value| WireLock::decode(&value)).transpose()?)
        };
        let before = places()?;
        let mut locks = BTreeMap::new();
        each_entry(&maps.locks, |key, value| {
            locks.insert(address(key)?, WireLock::decode(value)?);
            Ok(())
        })?;
        for recent in percpu_cache::settle(before, &mut locks, &places, &row)? {
            if let Some(sample) = locks.get_mut(&recent.lock) {
                sample.add(&recent);
            }
        }
        let other = |kind| Ok(WireLock::decode(&element(&maps.other_locks, kind)?)?);
        let others = (0..WireLockKind::ALL.len() as u32).map(other).collect::<Result<Vec<LockSample>>>()?;
        // Right after the locks: while the interval is open, waits go on between reading the tables.
        let cpus = self.rows()?;
        let places = || -> Result<Vec<Option<(u32, WireLockRecentProcess)>>> {
            array(&maps.recent_processes, |_, place| Ok(WireLockRecentProcess::decode(place)?))
        };
        let row = |pid: u32| -> Result<Option<ProcessSample>> {
            let value = lookup(&maps.lock_processes, &pid.to_ne_bytes())?;
            Ok(value.map(|value| WireLockProcess::decode(&value)).transpose()?)
        };
        let before = places()?;
        let mut processes = BTreeMap::new();
        each_entry(&maps.lock_processes, |key, value| {
            processes.insert(process(key)?, WireLockProcess::decode(value)?);
            Ok(())
        })?;
        for (pid, recent) in percpu_cache::settle(before, &mut processes, &places, &row)? {
            if let Some(sample) = processes.get_mut(&pid) {
                sample.add(&recent);
            }
        }
        self.name_processes(&mut processes);
        // Last, since there are the most of them, and they are estimates.
        let mut stacks: BTreeMap<_, StackSample> = BTreeMap::new();
        let all = entries(&maps.lock_stacks)?;
        // After the stacks: each refers to a waiter, which was added before it.
        let whos = self.whos()?;
        for (key, value) in all {
            let (key, sample) = decode_stack(&key, &value, &whos)?;
            let sum = stacks.entry(key).or_default();
            sum.contentions += sample.contentions;
            sum.wait_ns += sample.wait_ns;
            sum.samples += sample.samples;
        }
        let waited_for = waiting.iter().flatten().map(|waiter| (waiter.lock, waiter.flags));
        self.name_locks(locks.iter().map(|(lock, sample)| (*lock, sample.flags)).chain(waited_for));
        self.last.borrow_mut().hold(&mut locks, &mut processes);
        Ok(Reading {
            at_ns,
            source: self.wanted.source,
            cpus,
            locks,
            others,
            stacks,
            maps: MappedFiles::default(),
            processes,
            holders: if self.wanted.holders { Some(self.released()?) } else { None },
            waiting,
            names: self.names.borrow().by_lock.clone(),
            spin: None,
            slow_path: self.slow_path,
            missed: self.missed(),
        })
    }

    /// Waiting threads of which stacks were taken.
    fn whos(&self) -> Result<Whos> {
        let all = entries(&self.skel.maps.lock_whos)?;
        all.iter().map(|(key, value)| Ok(WireLockWho::decode(key, value)?)).collect()
    }

    fn released(&self) -> Result<BTreeMap<u64, HolderSample>> {
        let all = entries(&self.skel.maps.lock_holders)?;
        all.iter().map(|(key, value)| Ok((address(key)?, WireLockHolder::decode(value)?))).collect()
    }

    /// Threads that sleep on a lock right now; None if the kernel does not allow the scan.
    fn waiting(&self) -> Option<Vec<WaiterSample>> {
        let map = &self.skel.maps.lock_waiters;
        if self.wanted.source == LockEventSource::SlowPath {
            return None;
        }
        // Read all keys first: after a deletion the kernel restarts the iteration.
        for (key, _) in entries(map).ok()? {
            let _gone = map.delete(&key);
        }
        let link = self.skel.progs.waiting.attach_iter_with_opts(IterOpts::None).ok()?;
        // Reading runs the program; it writes no output.
        Iter::new(&link).ok()?.read_to_end(&mut Vec::new()).ok()?;
        let all = entries(map).ok()?;
        Some(all.iter().filter_map(|(_, value)| WireLockWaiter::decode(value).ok()).collect())
    }

    /// Names what was added since the last look, because a process or the object around a lock may be gone at the end of
    /// the interval.
    fn name_new(&self) {
        let rows = self.skel.maps.bss_data.as_ref().map_or(0, |data| data.rows_added);
        let mut names = self.names.borrow_mut();
        names.looked = Some(Instant::now());
        // In a long interval, a process may call exec and exit.
        if names.looked_again.is_none_or(|then| then.elapsed() >= LOOK_AGAIN) {
            names.looked_again = Some(Instant::now());
            let named: Vec<u32> = names.processes.keys().copied().collect();
            names.look_up(&self.root, named.into_iter());
        }
        if names.rows == rows {
            return;
        }
        names.rows = rows;
        let maps = &self.skel.maps;
        let pids = maps.lock_processes.keys().filter_map(|key| process(&key).ok());
        let new: Vec<u32> = pids.filter(|pid| !names.processes.contains_key(pid)).collect();
        names.look_up(&self.root, new.into_iter());
        let locks = maps.locks.keys().filter_map(|key| address(&key).ok());
        let new: Vec<u64> = locks.filter(|lock| names.is_new(*lock)).collect();
        drop(names);
        let flags = |lock: u64| {
            let row = lookup(&maps.locks, &lock.to_ne_bytes()).ok()??;
            Some((lock, WireLock::view(&row).ok()?.flags))
        };
        self.name_locks(new.into_iter().filter_map(flags));
    }

    /// Sets the names of processes. Those with further waits are looked up again: a process may have called exec since, and
    /// its row has the name of the thread that waited first.
    fn name_processes(&self, processes: &mut BTreeMap<u32, ProcessSample>) {
        let mut names = self.names.borrow_mut();
        let last = &self.last.borrow().processes;
        let waited = processes.iter().filter(|(pid, sample)| {
            last.get(pid).is_none_or(|earlier| earlier.contentions != sample.contentions)
        });
        let waited: Vec<u32> = waited.map(|(pid, _)| *pid).collect();
        // Another process may have the id of one that has exited.
        for pid in &waited {
            names.exited.remove(pid);
        }
        names.look_up(&self.root, waited.into_iter());
        names.looked_again = Some(Instant::now());
        for (pid, sample) in processes {
            if let Some(comm) = names.processes.get(pid) {
                sample.comm.clone_from(comm);
            }
        }
    }

    /// Names those of the locks, given with their flags, that have no name yet.
    fn name_locks(&self, locks: impl Iterator<Item = (u64, u32)>) {
        let mut names = self.names.borrow_mut();
        let names = &mut *names;
        let new: BTreeMap<u64, WireLockKind> = locks
            .filter(|(lock, _)| names.is_new(*lock))
            .map(|(lock, flags)| (lock, WireLockKind::of(flags)))
            .collect();
        if new.is_empty() {
            return;
        }
        if let Some(hierarchy) = &names.memory_groups {
            names.known.groups.extend(hierarchy.paths());
        }
        names.known.mounts = mounts::mounts(&self.root);
        names.known.devices = block::by_number(&self.root);
        let Some(layout) = names.layout.as_ref() else { return };
        let kernel = KernelMemory::new(&self.skel, self.wanted.slab);
        let namer = Namer::new(&kernel, layout, &names.known);
        for (lock, kind) in new {
            match namer.name(lock, kind) {
                Some(name) => drop(names.by_lock.insert(lock, name)),
                None => *names.tries.entry(lock).or_default() += 1,
            }
        }
    }

    /// Offsets from the NVMe driver's BTF; empty if the driver is not loaded, or has no BTF.
    fn nvme_places(&self) -> WireNvmePlaces {
        let program = &self.skel.progs.nvme_layout;
        if !self.wanted.nvme || program.test_run(ProgramInput::default()).is_err() {
            return WireNvmePlaces::default();
        }
        let found = self.skel.maps.bss_data.as_ref().map(|data| data.nvme_places);
        found.map_or_else(WireNvmePlaces::default, |found| WireNvmePlaces {
            size: found.size,
            sq_lock: found.sq_lock,
            cq_poll_lock: found.cq_poll_lock,
            dev: found.dev,
            qid: found.qid,
            queues: found.queues,
            instance: found.instance,
            known: found.known,
        })
    }

    /// Finds the request queues of the disks, since elevators do not point back to their disks.
    fn known_devices(&self) {
        let mut names = self.names.borrow_mut();
        let names = &mut *names;
        let Ok(btf) = KernelBtf::read() else { return };
        let mut layout = Layout::read(&btf);
        layout.add_nvme(self.nvme_places());
        let layout = &*names.layout.insert(layout);
        let kernel = KernelMemory::new(&self.skel, self.wanted.slab);
        let mut queues = BTreeMap::new();
        let namer = Namer::new(&kernel, layout, &names.known);
        if let Some(task) = kernel.current() {
            for disk in &self.disks {
                let folder = self.root.join("sys/block").join(disk);
                // Opens only a path (O_PATH): the directory's inode leads to the disk.
                let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(folder);
                let Ok(folder) = opened else { continue };
                queues.extend(namer.queue_by_descriptor(task, folder.as_raw_fd() as u64));
            }
        }
        names.known.queues = queues;
    }
}

impl Probe for LockProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.start = self.reading(None)?;
        self.run(true)?;
        self.start.at_ns = now_ns();
        // Takes longer than the rest; its samples have their own duration.
        if let Some(functions) = self.spins.take() {
            self.sample(functions);
        }
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        if let Some(mut meter) = self.meter.take() {
            if Instant::now() >= meter.due() {
                meter.tick(&self.metered(), &|| self.contentions());
            }
            self.meter = Some(meter);
        }
        let due = self.names.borrow().looked.is_none_or(|then| then.elapsed() >= NAME_EVERY);
        if due {
            self.name_new();
        }
    }

    fn read(&self) -> Result<Reading> {
        let mut reading = self.reading(self.waiting())?;
        reading.spin = self.spinning.borrow_mut().as_mut().and_then(|spinning| spinning.read(false));
        Ok(reading)
    }

    fn detach(&mut self) -> Result<Reading> {
        if let Some(mut meter) = self.meter.take() {
            meter.end(&self.metered(), &|| self.contentions());
            self.meter = Some(meter);
        }
        let waiting = self.waiting();
        let end_ns = now_ns();
        self.run(false)?;
        let missed = self.missed();
        let spin = self.spinning.borrow_mut().as_mut().and_then(|spinning| spinning.read(true));
        let mut reading = Reading { at_ns: end_ns, missed, spin, ..self.reading(waiting)? };
        reading.maps = self.maps.take().map(ProcessMaps::finish).unwrap_or_default();
        self.links.clear();
        Ok(reading)
    }
}

/// Process of an entry of `lock_whos`; None: a kernel thread without user memory.
fn whose(whos: &MapHandle, key: &[u8]) -> Option<(u32, [u8; 16])> {
    let value = whos.lookup(key, MapFlags::ANY).ok()??;
    let (key, who) = WireLockWho::decode(key, &value).ok()?;
    (key.flags & KTHREAD == 0).then_some((key.pid, who.comm))
}

fn process(key: &[u8]) -> Result<u32> {
    Ok(u32::from_ne_bytes(key.try_into().context("a process id has four bytes")?))
}

fn address(key: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(key.try_into().context("an address has eight bytes")?))
}

/// Whether programs can be attached with kprobes; otherwise the kernel has no such perf event type.
fn has_kprobes(root: &Path) -> bool {
    root.join("sys/bus/event_source/devices/kprobe").exists()
}
