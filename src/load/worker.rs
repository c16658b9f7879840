//! Runs one thread of a job: pins it, and gives it its own engine, buffers and counts.

mod cache;
mod control;
mod cycle;
mod depth_search;
mod floor;
mod free;
mod gate;
mod priorities;
mod source;
mod syncs;
mod unwritten;
mod verification;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};

use super::engine::OpenTarget;
use super::engine::aio::Aio;
use super::engine::command::Commands;
use super::engine::mapping::MappingEngine;
use super::engine::null::Null;
use super::engine::sync::Sync;
use super::job::{self, Job};
use super::ring::{Ring, Setup};
use super::sequence::Region;
use super::stamps::{ClockQuality, Stamps};
use super::submit_stamps::SubmitStamps;
use super::tally::Tally;
use super::{JobResult, cpus};
use crate::refusal::{Refusal, reason};
use crate::wire::generator::WireGenerator;
use cycle::{Cycle, ERRORS_IN_A_ROW};

pub use control::Control;
use control::Turn;
pub use gate::{Gates, Meeting, circles};

/// The plan of one thread.
pub struct ThreadPlan<'a> {
    pub job: &'a Job,
    /// Number within its job.
    pub number: u32,
    /// The CPUs that it may run on; empty: not pinned.
    pub cpus: Vec<u32>,
    pub places: &'a [OpenTarget],
    /// What it may use of each target.
    pub regions: &'a [Region],
    /// The threads that write to the same bytes, of all jobs and of its own job; they finish before any reads back.
    pub others: &'a Meeting,
    pub own: &'a Meeting,
    /// Controls when its job begins and ends; `place` is its index there.
    pub control: &'a Control,
    pub place: usize,
    /// When its round began.
    pub round_ns: u64,
    /// For io_uring.
    pub setup: Option<&'a Setup>,
    /// Id of the run in the content that it writes.
    pub run: u64,
    /// The time stamp counter is used as clock.
    pub counter: bool,
    /// Where it publishes its stamps for the latency programs; empty: no program reads them.
    pub shared: &'a [WireGenerator],
}

/// Sent by each worker once: whether it is set up.
#[derive(Debug, PartialEq, Eq)]
pub struct Ready(pub bool);

/// Progress of one thread, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadProgress {
    pub operations: AtomicU64,
    pub bytes: AtomicU64,
    /// Calls that submitted something.
    pub submits: AtomicU64,
}

impl ThreadProgress {
    fn store(&self, tally: &Tally) {
        self.operations.store(tally.operations(), Ordering::Relaxed);
        self.bytes.store(tally.bytes(), Ordering::Relaxed);
        self.submits.store(tally.submits(), Ordering::Relaxed);
    }
}

/// Flags that end a thread early.
#[derive(Debug, Clone, Copy)]
pub struct Ends<'a> {
    /// Set by the user.
    pub stop: &'a AtomicBool,
    /// Set when another job ends and `exitall` ends this one.
    pub exit: &'a AtomicBool,
}

impl Ends<'_> {
    fn reached(self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.exit.load(Ordering::Relaxed)
    }
}

/// The result of one thread, with the stamps that give the length of the run.
pub struct ThreadOutcome {
    pub result: JobResult,
    /// 0: it did not begin.
    pub first_submit_ns: u64,
    pub last_reap_ns: u64,
    pub clock: Option<ClockQuality>,
    pub missing: Vec<String>,
}

/// Sets up, waits for the others, runs the load, drains. `told` is dropped when nothing is in flight any more.
pub fn run(
    mut plan: ThreadPlan<'_>,
    ends: Ends<'_>,
    gates: &Gates,
    told: Sender<Ready>,
    done: &ThreadProgress,
) -> Result<ThreadOutcome> {
    let mut result = JobResult { number: plan.number, ..JobResult::default() };
    let mut missing = Vec::new();
    if !plan.cpus.is_empty() {
        match cpus::pin(&plan.cpus) {
            Ok(()) if plan.cpus.len() == 1 => {
                // Memory is allocated on the node of the thread that touches it first.
                (result.cpu, result.node) = (plan.cpus.first().copied(), cpus::node());
            }
            Ok(()) => {}
            Err(e) => missing.push(format!("pinning to a CPU: {}", reason(&e))),
        }
    }
    if plan.job.rate.is_some() || !plan.job.thinktime.is_zero() {
        cpus::wake_in_time();
    }
    // After pinning, so that ring and buffers are allocated on the thread's node.
    let way = ThreadEngine::new(&plan);
    let mut stamps = Stamps::new(plan.counter);
    // The receiver lives as long as any thread.
    let _received = told.send(Ready(way.is_ok()));
    let (mut way, lacking) = way?;
    missing.extend(lacking);
    if !gates.begin.pass() {
        return Ok(ThreadOutcome { result, first_submit_ns: 0, last_reap_ns: 0, clock: None, missing });
    }
    plan.round_ns = stamps.now_ns();
    let turn = Turn(plan.control, plan.place);
    plan.control.wait(plan.place, plan.job.numjobs, plan.others, || ends.reached());
    let submit_stamps = SubmitStamps::new(plan.shared);
    if submit_stamps.is_none() && !plan.shared.is_empty() {
        missing.push(
            "the generator's stamps in the traced stages: another thread uses the slot; stages begin and \
             end with the system calls"
                .to_string(),
        );
    }
    let mut cycle = Cycle::new(plan, stamps, submit_stamps, ends, done);
    let driven = match &mut way {
        ThreadEngine::Ring(ring) => cycle.run(ring),
        ThreadEngine::Aio(aio) => cycle.run(aio),
        ThreadEngine::Sync(sync) => cycle.run(sync),
        ThreadEngine::Mapping(mapping) => cycle.run(mapping),
        ThreadEngine::Commands(commands) => cycle.run(commands),
        ThreadEngine::Null(null) => cycle.run(null),
        ThreadEngine::NullAlone(null) => cycle.run(null),
    };
    if cycle.gave_up() {
        missing.push(format!("the rest of the run: {ERRORS_IN_A_ROW} operations in a row failed"));
    }
    missing.extend(cycle.too_slow.as_ref().map(|why| format!("the rest of the run: {why}")));
    let (first_submit_ns, last_reap_ns, clock) = (cycle.first, cycle.last, cycle.stamps.quality());
    cycle.finish(&mut result);
    drop(turn);
    drop(told);
    gates.end.pass();
    driven.context("the load generator's engine failed")?;
    Ok(ThreadOutcome { result, first_submit_ns, last_reap_ns, clock: Some(clock), missing })
}

/// The engine of a thread.
enum ThreadEngine {
    Ring(Ring),
    Aio(Aio),
    Sync(Sync),
    Mapping(MappingEngine),
    Commands(Commands),
    Null(Null<false>),
    NullAlone(Null<true>),
}

impl ThreadEngine {
    /// Must be called on the thread that uses it. Also returns requested features that are not available.
    fn new(plan: &ThreadPlan<'_>) -> Result<(Self, Vec<String>)> {
        if let Some(priority) = plan.job.priority {
            cpus::set_io_priority(priority).map_err(|error| {
                let (name, why) = (job::priority_name(priority), reason(&error));
                Refusal::Refused(format!("I/O priority {name}: {why}; choose another --prioclass"))
            })?;
        }
        let (job, places, nodes) = (plan.job, plan.places, &plan.job.memory_nodes);
        Ok(match job.engine {
            job::Engine::IoUring => {
                let setup = plan.setup.context("io_uring was set up")?;
                let (ring, missing) = Ring::new(setup, job, places)?;
                (Self::Ring(ring), missing)
            }
            job::Engine::Libaio => {
                let (aio, missing) = Aio::new(job, places, nodes)?;
                (Self::Aio(aio), missing)
            }
            job::Engine::Psync | job::Engine::Pvsync2 => {
                let (sync, missing) = Sync::new(job, places, nodes)?;
                (Self::Sync(sync), missing)
            }
            job::Engine::Mmap => {
                let (mapping, missing) = MappingEngine::new(job, places, nodes)?;
                (Self::Mapping(mapping), missing)
            }
            job::Engine::Null if job.iodepth > 1 => {
                let (null, missing) = Null::new(job, nodes)?;
                (Self::Null(null), missing)
            }
            job::Engine::Null => {
                let (null, missing) = Null::new(job, nodes)?;
                (Self::NullAlone(null), missing)
            }
            job::Engine::IoUringCmd => {
                let (commands, missing) = Commands::new(job, places, nodes)?;
                (Self::Commands(commands), missing)
            }
        })
    }
}
