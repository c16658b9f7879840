//! Measures blocked time: attaches `bpf/blocked.bpf.c`, and at the end reads how long tasks slept, by stack.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, IterOpts, Link, MapHandle, OpenObject, ProgramInput};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::btf::KernelBtf;
use super::libbpf::{self, ProgramStats, refusal};
use super::maps::{entries, lookup};
use super::process_maps::ProcessMaps;
use super::self_interrupt::SelfInterrupts;
use super::skel::blocked::types::rodata;
use super::skel::blocked::{BlockedSkel, BlockedSkelBuilder, OpenBlockedSkel};
use super::spec::{Program, Reach, Spec};
pub use super::waits::Options as WaitOptions;
use super::waits::{self, PERIOD};
use super::{skel, trial};
use crate::clock::now_ns;
use crate::envelope::{Missing, Reason};
use crate::host::Host;
use crate::host::cgroups::Hierarchy;
use crate::host::processes;
use crate::host::sleeping::SleepingThread;
use crate::refusal::LockedMemory;
use crate::wire::Record;
use crate::wire::blocked::{RawBlocked, WaitScope, WireAsleep, WireSleeper, decode_stack};
use crate::wire::stacks::{MAX_FRAMES, is_of_ring};

/// Time between closing the interval and reading the tables: programs that had begun have ended by then.
const SETTLE: Duration = Duration::from_millis(2);

/// Room for threads in addition to the existing ones.
const MORE_THREADS: u32 = 16384;

/// What to record.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The filter, the budget for stacks, and the minimum length of a wait with a stack.
    pub waits: WaitOptions,
    /// Only sleeps that the kernel marks as waits for I/O, and uninterruptible sleeps.
    pub io_wait: bool,
    /// Take stacks as if no interrupt were available; for tests.
    pub from_outside: bool,
}

/// The attached probe. Dropping it detaches everything.
pub struct BlockedProbe {
    skel: BlockedSkel<'static>,
    links: Vec<Link>,
    /// None: this kernel does not let a program iterate over threads.
    look: Option<Link>,
    /// None: stacks are taken from outside the task, without user frames.
    self_interrupts: Option<SelfInterrupts>,
    maps: ProcessMaps,
    options: Options,
    cpus: u32,
    online: u32,
    began_ns: u64,
    stats: ProgramStats,
    missing: Vec<Missing>,
}

fn gap(part: &str, reason: Reason, why: &str, remedy: Option<&str>) -> Missing {
    Missing {
        part: Some(part.to_string()),
        reason,
        why: why.to_string(),
        remedy: remedy.map(str::to_string),
        ..Missing::default()
    }
}

impl BlockedProbe {
    /// Loads, attaches and begins the interval.
    pub fn attach(host: &Host, options: Options) -> Result<Self> {
        SPEC.permit(Path::new("/"))?;
        let btf = KernelBtf::read()?;
        let mut missing = Vec::new();
        if !splits(&btf) {
            missing.push(gap(
                "queue",
                Reason::NoAccount,
                "this kernel does not account run queue waits (CONFIG_SCHED_INFO): they count as blocked \
                 time",
                None,
            ));
        }
        let cpus = host.cpus_possible.max(1);
        let (skel, links) = load_what_is_taken(&btf, cpus, &options)?;
        let Optional { look, goes_on } = links;
        if look.is_none() {
            missing.push(gap(
                "open",
                Reason::Refused,
                "this kernel refuses a BPF thread iterator: waits in progress at the start or end of the run \
                 are not counted",
                None,
            ));
        }
        let self_interrupts =
            match goes_on.as_ref().map(|_| SelfInterrupts::open(&skel.maps.self_interrupts)).transpose() {
                Ok(Some(self_interrupts)) => Some(self_interrupts),
                none => {
                    let locked = none.as_ref().is_err_and(|error| error.is::<LockedMemory>());
                    let why = match none {
                        Err(error) => format!(": {error:#}"),
                        _ => format!(" ({GOES_ON})"),
                    };
                    let why =
                        format!("stacks have no user frames: no interrupt is available to take them in{why}");
                    missing.push(gap("user", Reason::Refused, &why, locked.then_some(LockedMemory::REMEDY)));
                    None
                }
            };
        let maps = ProcessMaps::follow(MapHandle::try_from(&skel.maps.waiters)?, waits::whose)?;
        let mut probe = Self {
            skel,
            // Attached first, so that no requested stack is missed.
            links: goes_on.into_iter().collect(),
            look,
            self_interrupts,
            maps,
            options,
            cpus,
            online: host.cpus_online.max(1),
            began_ns: 0,
            stats: ProgramStats::default(),
            missing,
        };
        probe.skel.progs.who_we_are.test_run(ProgramInput::default())?;
        let failed = |error: libbpf_rs::Error| refusal("attaching the probe of blocked time", &error);
        probe.links.push(probe.skel.progs.blocked_switch.attach().map_err(failed)?);
        probe.stats = probe.stats();
        probe.began_ns = now_ns();
        probe.run(true)?;
        probe.look()?;
        Ok(probe)
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Opens or closes the interval.
    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        Ok(())
    }

    /// Scans all threads once. At the end of the interval it returns those that sleep.
    fn look(&self) -> Result<Vec<WireAsleep>> {
        let mut asleep = Vec::new();
        let Some(link) = &self.look else { return Ok(asleep) };
        // The kernel writes whole records, as many as fit.
        let mut buffer = vec![WireAsleep::new_zeroed(); 64];
        let mut all = Iter::new(link)?;
        loop {
            match std::io::Read::read(&mut all, buffer.as_mut_bytes()) {
                Ok(0) => return Ok(asleep),
                Ok(bytes) => asleep.extend_from_slice(&buffer[..bytes / size_of::<WireAsleep>()]),
                // The kernel pauses after a million threads.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn stats(&self) -> ProgramStats {
        let progs = &self.skel.progs;
        let goes_on = self.self_interrupts.is_some().then(|| progs.blocked_goes_on.as_fd());
        waits::stats([progs.blocked_switch.as_fd()].into_iter().chain(goes_on))
    }

    /// Ends the interval, and returns all of its data.
    pub fn finish(mut self) -> Result<RawBlocked> {
        let ended_ns = now_ns();
        self.skel.maps.bss_data.as_mut().context("the object has data")?.ended = ended_ns;
        self.run(false)?;
        thread::sleep(SETTLE);
        let stats = self.stats();
        self.links.clear();
        // Immediately: the threads must still sleep in the same place.
        let asleep = frames(self.look()?);
        let followed = if self.options.io_wait { WaitScope::IoWait } else { WaitScope::OffCpu };
        let mut raw = RawBlocked {
            followed,
            duration_ns: ended_ns.saturating_sub(self.began_ns),
            cpus: self.online,
            least_ns: self.options.waits.min_block.as_nanos() as u64,
            program_runs: stats.runs - self.stats.runs,
            program_ns: stats.run_ns - self.stats.run_ns,
            map_bytes: libbpf::map_bytes(self.skel.object())
                + self.self_interrupts.as_ref().map_or(0, SelfInterrupts::bytes),
            ..RawBlocked::default()
        };
        // Only of this program: a wait whose interrupt program was skipped is counted, and only has no stack.
        raw.lost.missed = waits::stats([self.skel.progs.blocked_switch.as_fd()]).recursion_misses;
        let maps = &self.skel.maps;
        let rows = waits::read_rows(&maps.wait_rows, self.cpus + 1)?;
        let (own, open) = rows.split_at(self.cpus as usize);
        raw.count(own, open.first().context("the last row is that of the looks")?);
        waits::read_stacks(&maps.wait_stacks, &mut raw)?;
        waits::read_waiters(&maps.waiters, &mut raw)?;
        waits::read_waiters(&maps.waiter_names, &mut raw)?;
        for (thread, user) in asleep {
            let Some(value) = lookup(&maps.wait_stacks, thread.key.as_bytes())? else { continue };
            if let Some((sample, _)) = decode_stack(thread.key.as_bytes(), &value)? {
                raw.give_user(&sample, thread.took, &user);
            }
        }
        if self.look.is_none() {
            // Only threads that exited have added their waits.
            raw.processes.clear();
        } else {
            for (_, value) in entries(&maps.sleepers)? {
                if let Some((process, sum)) = WireSleeper::decode(&value)?.left() {
                    raw.processes.entry(process).or_default().add(sum);
                }
            }
        }
        raw.maps = self.maps.finish();
        let waited = raw.samples.keys().map(|sample| (sample.pid, sample.comm_bytes()));
        let waited = waited.chain(raw.bare.keys().map(|(pid, comm)| (*pid, comm.as_slice())));
        let of_rings: BTreeSet<u32> =
            waited.filter(|(_, comm)| is_of_ring(comm)).map(|(pid, _)| pid).collect();
        let named = |pid: u32| processes::name(Path::new("/"), pid).map(|name| (pid, name));
        raw.leaders = of_rings.into_iter().filter_map(named).collect();
        Ok(raw)
    }
}

/// The event of the interrupt in which stacks are taken.
const GOES_ON: &str = "irq_work_entry";

/// User frames of sleeping threads. Reading a process's memory may block for long, and its result is not worth delaying
/// the run. So a separate thread reads it, and this function waits for a limited time.
fn frames(threads: Vec<WireAsleep>) -> Vec<(WireAsleep, Vec<u64>)> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let (found, frames) = mpsc::channel();
    let follow = move || {
        for thread in threads {
            let WireAsleep { ip, sp, bp, switches, tid, .. } = thread;
            let entered = SleepingThread { pid: thread.key.pid, tid, ip, sp, bp, switches };
            let Some(frames) = entered.frames(Path::new("/"), MAX_FRAMES) else { continue };
            // The receiver has stopped waiting.
            if found.send((thread, frames)).is_err() {
                return;
            }
        }
    };
    if thread::Builder::new().name("biopsy-asleep".to_string()).spawn(follow).is_err() {
        return Vec::new();
    }
    let until = Instant::now() + PATIENCE;
    let next = || frames.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

/// Whether the kernel accounts the run-queue delay of a woken task.
fn splits(btf: &KernelBtf) -> bool {
    let wanted = [
        ("task_struct", "sched_info.run_delay"),
        ("task_struct", "sched_info.last_queued"),
        ("sched_entity", "cfs_rq"),
        ("cfs_rq", "rq"),
    ];
    btf.offsets(&wanted).len() == wanted.len()
}

/// Number of threads on the machine, from `/proc/loadavg`.
fn threads() -> Option<u32> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split('/').nth(1)?.parse().ok()
}

fn opened(btf: &KernelBtf, cpus: u32, options: &Options) -> Result<OpenBlockedSkel<'static>> {
    let mut open = BlockedSkelBuilder::default()
        .open(libbpf::object_place())
        .map_err(|error| refusal("opening the probe of blocked time", &error))?;
    size(&mut open, cpus, options).map_err(|error| refusal("sizing the tables of blocked time", &error))?;
    let filter = &options.waits.filter;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.cpus = cpus;
    config.filter_enabled = filter.kinds();
    config.unified_cgroups = Hierarchy::read(Path::new("/")).is_none_or(|hierarchy| hierarchy.unified).into();
    config.io_enabled = options.io_wait.into();
    config.own_process_enabled = options.waits.ours.into();
    config.has_state = btf.switch_tells_state().into();
    config.least_ns = options.waits.min_block.as_nanos() as u64;
    config.budget_ns = options.waits.budget_ns();
    config.period_ns = PERIOD.as_nanos() as u64;
    Ok(open)
}

/// Links of the programs that a kernel may refuse.
struct Optional {
    look: Option<Link>,
    goes_on: Option<Link>,
}

/// Loads as many programs as the kernel accepts: it may refuse the one that iterates over threads, or the interrupt's,
/// and accept the others.
fn load_what_is_taken(
    btf: &KernelBtf,
    cpus: u32,
    options: &Options,
) -> Result<(BlockedSkel<'static>, Optional)> {
    let has_interrupt = !options.from_outside && !is_realtime() && btf.event(GOES_ON, None).is_there();
    let mut refused = None;
    for goes_on in [true, false] {
        if goes_on && !has_interrupt {
            continue;
        }
        for look in [true, false] {
            libbpf::listen();
            match load(btf, cpus, options, look, goes_on) {
                Ok(skel) => {
                    let progs = &skel.progs;
                    let look = look.then(|| progs.blocked_look.attach_iter_with_opts(IterOpts::None).ok());
                    let goes_on = goes_on.then(|| progs.blocked_goes_on.attach().ok());
                    let links = Optional { look: look.flatten(), goes_on: goes_on.flatten() };
                    return Ok((skel, links));
                }
                Err(error) => refused = Some(error),
            }
        }
    }
    Err(refused.context("something was tried")?)
}

/// With PREEMPT_RT a thread runs irq_work instead of an interrupt, so that each stack would cost two context switches.
fn is_realtime() -> bool {
    fs::read_to_string("/sys/kernel/realtime").is_ok_and(|text| text.trim() == "1")
}

fn load(
    btf: &KernelBtf,
    cpus: u32,
    options: &Options,
    look: bool,
    goes_on: bool,
) -> Result<BlockedSkel<'static>> {
    let mut open = opened(btf, cpus, options)?;
    open.progs.blocked_switch.set_autoload(true);
    open.progs.blocked_goes_on.set_autoload(goes_on);
    open.progs.blocked_look.set_autoload(look);
    let skel = open.load().map_err(|error| refusal("loading the probe of blocked time", &error))?;
    let maps = &skel.maps;
    options.waits.filter.fill(&maps.filter_pids, &maps.filter_comms, &maps.filter_cgroups)?;
    Ok(skel)
}

pub const SPEC: Spec = Spec {
    programs: &[PROGRAMS],
    not_by_file: Some("with a BTF file the kernel types no arguments, so blocked tasks cannot be measured"),
    try_load: |names, btf| trial::load(opened(btf, 1, &Options::default())?, names),
    configure,
    ..Spec::of(&[skel::BLOCKED])
};

/// For reclaim, `flame` uses events that `locks` uses as well.
const PROGRAMS: &[Program] = &[
    Program::optional("blocked_switch", "sched_switch", "no off-CPU time"),
    Program::optional("blocked_goes_on", "irq_work_entry", "off-CPU stacks have no user frames"),
];

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    libbpf::with_constants(object, |constants: &mut rodata| {
        let config = &mut constants.config;
        config.cpus = 1;
        (config.period_ns, config.budget_ns) = (1, 1);
        config.filter_enabled = u32::MAX;
        config.has_state = btf.switch_tells_state().into();
    })
}

fn size(open: &mut OpenBlockedSkel<'_>, cpus: u32, options: &Options) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    let room = WaitOptions::room_for;
    let filter = &options.waits.filter;
    maps.wait_stacks.set_max_entries(options.waits.room.max(1))?;
    maps.wait_rows.set_max_entries(cpus + 1)?;
    maps.wait_scratch.set_max_entries(cpus + 1)?;
    maps.self_interrupts.set_max_entries(cpus)?;
    maps.sleepers.set_max_entries(2 * threads().unwrap_or(MORE_THREADS) + MORE_THREADS)?;
    maps.filter_pids.set_max_entries(room(filter.pids.len()))?;
    maps.filter_comms.set_max_entries(room(filter.comms.len()))?;
    maps.filter_cgroups.set_max_entries(room(filter.cgroups.len()))
}
