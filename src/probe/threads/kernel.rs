//! Samples threads with a program: all threads in one run if the kernel has open-coded iterators, else one run per
//! thread.

use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Iter, IterOpts, Link, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder};

use crate::envelope::{Cost, Missing, ProgramCost, Reason};
use crate::host::abilities::{ProgramState, State, ViewState};
use crate::host::rights::Rights;
use crate::probe::btf::KernelBtf;
use crate::probe::btf_file;
use crate::probe::libbpf::{self, ProgramStats, refusal};
use crate::probe::skel::threads::types::rodata;
use crate::probe::skel::threads::{ThreadsSkel, ThreadsSkelBuilder};
use crate::probe::spec::{self, Here, Reach, Spec, View};
use crate::probe::{cost, permit, skel};
use crate::refusal::{Refusal, plain};
use crate::wire::threads::{
    BusyCpus, COMPAT, Call, IN_IOWAIT, KERNEL, NO_STACK, ON_CPU, SYSCALL, Sighting, ThreadTally, WireThread,
    displaced,
};

use super::Options;

/// Room for the threads of one sample that are not skipped: ten thousand with stacks of usual depth.
const RING_BYTES: u32 = 4 << 20;

/// The kernel's statistics are enabled for one in this many samples: of the first ones, and later. Toggling them
/// patches the kernel's code, which stops all CPUs.
const MEASURE_EVERY: u64 = 10;
const MEASURE_FIRST: u64 = 50;
const MEASURE_LATER: u64 = 100;

/// Adds a thread of a sample to the tally.
pub type Add<'a> = dyn FnMut(&mut ThreadTally, Sighting, u32, &[u64]) + 'a;

/// A decoded record of the ring buffer.
type DecodedRecord = Result<(WireThread, Vec<u64>), crate::wire::DamagedRecord>;

pub struct KernelSampler {
    skel: ThreadsSkel<'static>,
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<DecodedRecord>>>,
    /// None: all threads in one run.
    iterator: Option<Link>,
    bios: Option<Link>,
    buffer: Vec<u8>,
    /// Runs and time of the two programs while the statistics were enabled. None: not requested.
    measured: Option<[(u64, u64); 2]>,
    can_measure: bool,
    rounds: u64,
    /// Runs that failed.
    failed: u64,
}

impl KernelSampler {
    /// Loads the variant that this kernel accepts.
    pub fn load(options: &Options) -> Result<Self> {
        if btf_file::path().is_some() {
            return Err(Refusal::Refused(NOT_BY_FILE.to_string()).into());
        }
        let btf = KernelBtf::read()?;
        let loops = btf.iterates_tasks();
        // A kernel may have the iterator and still refuse the program: then the other variant is tried.
        match Self::load_with(options, &btf, loops) {
            Err(_) if loops => Self::load_with(options, &btf, false),
            loaded => loaded,
        }
    }

    fn load_with(options: &Options, btf: &KernelBtf, loops: bool) -> Result<Self> {
        let failed = |error: libbpf_rs::Error| refusal("starting the thread sampler", &error);
        let skel = loaded(options, btf, loops)?;
        let found = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.thread_ring, move |bytes: &[u8]| {
                into.borrow_mut().push(WireThread::decode(bytes));
                0
            })
            .map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        let iterator = match loops {
            true => None,
            false => Some(skel.progs.sample_thread.attach_iter_with_opts(IterOpts::None).map_err(failed)?),
        };
        let bios = match options.by_device {
            true => Some(skel.progs.note_bio.attach().map_err(failed)?),
            false => None,
        };
        let can_measure = libbpf::enable_stats().is_ok();
        Ok(Self {
            skel,
            ring,
            found,
            iterator,
            bios,
            buffer: vec![0; 1 << 16],
            measured: options.cost.then_some([(0, 0); 2]),
            can_measure,
            rounds: 0,
            failed: 0,
        })
    }

    /// What cannot be measured, and why.
    pub fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        if self.measured.is_some() && !self.can_measure {
            missing.push(cost::missing());
        }
        if self.bios.is_some() && self.measured.is_some() {
            missing.push(Missing {
                part: Some("cost".to_string()),
                reason: Reason::NotCounted,
                why: "the CPU share covers only this process: the program at each submitted bio runs in \
                    the submitting tasks"
                    .to_string(),
                ..Missing::default()
            });
        }
        if self.bios.is_none() {
            missing.push(Missing {
                part: Some("device".to_string()),
                reason: Reason::NotAskedFor,
                why: "the device column is off by default, as it needs one more probe per bio".to_string(),
                remedy: Some("use -d DEV or -G device".to_string()),
                ..Missing::default()
            });
        }
        missing
    }

    /// Samples all threads once.
    pub fn round(&mut self, tally: &mut ThreadTally, add: &mut Add<'_>) {
        let every = if self.rounds < MEASURE_FIRST { MEASURE_EVERY } else { MEASURE_LATER };
        let measure = self.measured.is_some() && self.can_measure && self.rounds.is_multiple_of(every);
        let statistics = if measure { libbpf::enable_stats().ok() } else { None };
        let before = statistics.as_ref().map(|_| self.stats());
        let (passed, cut) = self.counters();
        if self.run().is_err() {
            self.failed += 1;
            tally.loss().missed += 1;
        }
        if let (Some(before), Some(totals)) = (before, &mut self.measured) {
            let after = stats(&self.skel, self.iterator.is_some());
            for ((total, before), after) in totals.iter_mut().zip(before).zip(after) {
                total.0 += after.runs.saturating_sub(before.runs);
                total.1 += after.run_ns.saturating_sub(before.run_ns);
            }
        }
        drop(statistics);
        self.rounds += 1;
        // Reads everything that the ring buffer holds; only the callback could fail.
        let _all = self.ring.consume();
        let found = std::mem::take(&mut *self.found.borrow_mut());
        let (now_passed, now_cut) = self.counters();
        let cut = now_cut - cut;
        tally.loss().cut += cut;
        tally.look_at(now_passed - passed + cut + found.len() as u64);
        // A thread that would run now, if the sampler did not occupy its CPU.
        let displaced = displaced(found.iter().flatten().map(|(head, _)| head));
        let mut taken = BusyCpus::default();
        for record in &found {
            match record {
                Ok((head, stack)) => {
                    tally.loss().no_stack += u64::from(head.flags & NO_STACK != 0);
                    match displaced == Some(head.tid) {
                        true => {
                            let flags = (head.flags & !SYSCALL) | ON_CPU;
                            let head = WireThread { flags, ..*head };
                            add(tally, sighting(&head, taken.gives(&head)), head.pid, &[]);
                        }
                        false => add(tally, sighting(head, taken.gives(head)), head.pid, stack),
                    }
                }
                Err(_) => tally.loss().damaged += 1,
            }
        }
        // Reuses the memory for the next sample.
        let mut empty = found;
        empty.clear();
        *self.found.borrow_mut() = empty;
    }

    fn run(&mut self) -> Result<()> {
        let Some(link) = &self.iterator else {
            self.skel.progs.sample_threads.test_run(ProgramInput::default())?;
            return Ok(());
        };
        let mut all = Iter::new(link)?;
        loop {
            match all.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                // The kernel pauses after a million threads.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn counters(&self) -> (u64, u64) {
        self.skel.maps.bss_data.as_ref().map_or((0, 0), |data| (data.passed, data.cut))
    }

    fn stats(&self) -> [ProgramStats; 2] {
        stats(&self.skel, self.iterator.is_some())
    }

    pub fn detach(&mut self) {
        self.iterator = None;
        self.bios = None;
    }

    /// The programs' own figures, without the share of a CPU.
    pub fn cost(&self) -> Cost {
        let name = if self.skel.progs.sample_threads.autoload() { "sample_threads" } else { "sample_thread" };
        let of = |name: &str, (runs, ns): (u64, u64)| ProgramCost { name: name.to_string(), runs, ns };
        let totals = self.measured.unwrap_or_default();
        let programs = [of(name, totals[0]), of("note_bio", totals[1])];
        Cost {
            // A ring buffer's size is its number of entries, whose value size is 0.
            map_bytes: libbpf::map_bytes(self.skel.object()) + u64::from(RING_BYTES),
            programs: programs.into_iter().filter(|program| program.runs > 0).collect(),
            ..Cost::default()
        }
    }
}

/// The selected programs, loaded and not attached.
fn loaded(options: &Options, btf: &KernelBtf, loops: bool) -> Result<ThreadsSkel<'static>> {
    libbpf::listen();
    let failed = |error: libbpf_rs::Error| refusal("loading the thread sampler", &error);
    let mut open = ThreadsSkelBuilder::default().open(libbpf::object_place()).map_err(failed)?;
    let told = open.maps.rodata_data.as_mut().context("the object has constants")?;
    told.config.sleepers_enabled = options.sleepers.into();
    told.config.stacks_enabled = 1;
    told.config.cgroups_enabled = options.reads_cgroups().into();
    told.config.unified_cgroups = options.unified_cgroups.into();
    told.config.devices_enabled = options.by_device.into();
    if options.by_device {
        told.arguments.bio_queue = btf.arguments()?.bio_queue;
    }
    open.progs.sample_threads.set_autoload(loops);
    open.progs.sample_thread.set_autoload(!loops);
    open.progs.note_bio.set_autoload(options.by_device);
    open.maps.thread_ring.set_max_entries(RING_BYTES).map_err(failed)?;
    if !options.by_device {
        open.maps.handed_bios.set_max_entries(1).map_err(failed)?;
    }
    if !loops {
        open.maps.known_tasks.set_max_entries(1).map_err(failed)?;
    }
    open.load().map_err(failed)
}

pub const SPEC: Spec =
    Spec { not_by_file: Some(NOT_BY_FILE), state: Some(state), configure, ..Spec::of(&[skel::THREADS]) };

pub const VIEW: View = View { name: "threads", state: view };

fn view(here: &Here<'_>) -> ViewState {
    let by_program = here.programs.iter().find(|program| program.event == EVENT);
    let Some(program) = by_program.filter(|program| program.state == State::Missing) else {
        return ViewState::ok();
    };
    let less = "read from /proc: fewer columns, no kernel stacks, more CPU time";
    let reason = program.reason.as_ref().map(|reason| format!("{less}: {reason}"));
    ViewState { reason, ..ViewState::degraded("", program.remedy.clone()) }
}

const NOT_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, so no BPF program can list the threads";

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    let arguments = btf.arguments()?;
    libbpf::with_constants(object, |constants: &mut rodata| {
        constants.config.stacks_enabled = 1;
        constants.config.cgroups_enabled = 1;
        constants.config.devices_enabled = 1;
        constants.arguments.bio_queue = arguments.bio_queue;
    })
}

/// Whether a program can sample threads here; none is attached. The kernel decides which of the two variants is used.
fn state(rights: &Rights) -> ProgramState {
    let missing = if btf_file::path().is_some() {
        (NOT_BY_FILE.to_string(), None)
    } else if !rights.btf {
        (permit::NO_BTF_HERE.to_string(), Some(permit::NO_BTF_REMEDY))
    } else if rights.locked_down() {
        (permit::LOCKED.to_string(), Some(permit::LOCKED_REMEDY))
    } else if !rights.can_trace() {
        (permit::RIGHTS.to_string(), Some(permit::RIGHTS_REMEDY))
    } else {
        match try_load() {
            Ok(name) => return spec::state(name, EVENT, None),
            Err(error) => (plain(&error.to_string()), None),
        }
    };
    spec::state("sample_threads", EVENT, Some(missing))
}

/// The event of its programs.
pub const EVENT: &str = "iter/task";

/// Loads the sampling program and closes it; returns the variant that this kernel accepts.
fn try_load() -> Result<&'static str> {
    let btf = KernelBtf::read()?;
    let options = Options::default();
    if btf.iterates_tasks() && loaded(&options, &btf, true).is_ok() {
        return Ok("sample_threads");
    }
    loaded(&options, &btf, false).map(|_| "sample_thread")
}

/// Statistics of the sampling program, and of the program at bios.
fn stats(skel: &ThreadsSkel<'_>, iterates: bool) -> [ProgramStats; 2] {
    let progs = &skel.progs;
    let sampler = match iterates {
        true => libbpf::program_stats(&progs.sample_thread),
        false => libbpf::program_stats(&progs.sample_threads),
    };
    let bios = if progs.note_bio.autoload() { libbpf::program_stats(&progs.note_bio).ok() } else { None };
    [sampler.unwrap_or_default(), bios.unwrap_or_default()]
}

/// A thread that was on a CPU when it was examined has no known system call, even if another thread counts as running
/// on that CPU.
fn sighting(head: &WireThread, on_cpu: bool) -> Sighting {
    let has = |flag| head.flags & flag != 0;
    Sighting {
        comm: head.comm,
        state: head.letter(),
        on_cpu: Some(on_cpu),
        in_iowait: Some(has(IN_IOWAIT)),
        call: match () {
            () if has(KERNEL) => Call::None,
            () if has(ON_CPU) => Call::Unknown,
            () if !has(SYSCALL) => Call::None,
            () if has(COMPAT) => Call::Compat(head.syscall),
            () => Call::Number(head.syscall),
        },
        device: head.device,
        lower: head.lower,
        cgroup: head.cgroup,
        ..Sighting::default()
    }
}
