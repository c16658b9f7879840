//! One job: a thread on its CPU with its own ring, file table, buffers and histogram.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::pattern::Offsets;
use super::ring::{Ring, Session, Setup};
use super::{JobResult, cpus};
use crate::clock;
use crate::refusal::reason;

/// A job whose operations fail this often in a row ends: nothing but errors will come.
const ERRORS_IN_A_ROW: u32 = 1_000;
/// How often a job tells how far it is.
const PUBLISH_NS: u64 = 50_000_000;
/// An `io_uring_enter` that fails for want of memory is repeated this often.
const RETRIES: u32 = 1_000;

/// What one job is to do.
pub struct Plan<'a> {
    pub number: u32,
    /// None: not pinned.
    pub cpu: Option<u32>,
    pub file: BorrowedFd<'a>,
    pub setup: &'a Setup,
    pub offsets: Offsets,
    pub bs: u32,
    pub iodepth: u32,
    pub runtime_ns: u64,
}

/// Told by each worker once: whether it is set up.
#[derive(Debug, PartialEq, Eq)]
pub struct Ready(pub bool);

/// Holds the workers until all are set up, so that they begin together or not at all.
#[derive(Debug, Default)]
pub struct Gate {
    begin: Mutex<Option<bool>>,
    opened: Condvar,
}

impl Gate {
    /// Lets all workers go: to begin, or to return.
    pub fn open(&self, begin: bool) {
        *self.begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        self.opened.notify_all();
    }

    /// Waits; true: begin.
    fn pass(&self) -> bool {
        let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *begin {
                Some(answer) => return answer,
                None => begin = self.opened.wait(begin).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// What holds the workers at both ends of a run.
#[derive(Debug, Default)]
pub struct Gates {
    pub begin: Gate,
    /// A thread's end is also that of io_uring's workers behind it, whose CPU time is read before.
    pub end: Gate,
}

/// Operations so far, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Done(pub AtomicU64);

/// What one job did, with the stamps that the length of the run is made of.
pub struct Outcome {
    pub result: JobResult,
    pub first_submit_ns: u64,
    pub last_reap_ns: u64,
    pub missing: Vec<String>,
}

/// Sets up, waits for the others, drives the load, drains. `told` is dropped when nothing is in flight
/// any more.
pub fn run(
    plan: Plan<'_>,
    stop: &AtomicBool,
    gates: &Gates,
    told: Sender<Ready>,
    done: &Done,
) -> Result<Outcome> {
    let mut result = JobResult { number: plan.number, ..JobResult::default() };
    let mut missing = Vec::new();
    if let Some(cpu) = plan.cpu {
        match cpus::pin(cpu) {
            Ok(()) => result.cpu = Some(cpu),
            Err(e) => missing.push(format!("pinning to a CPU: {}", reason(&e))),
        }
    }
    // After pinning, so that ring and buffers are taken from the memory of the worker's node.
    let ring = Ring::new(plan.setup, plan.file, plan.iodepth, plan.bs);
    // The receiver is there as long as any worker is.
    let _received = told.send(Ready(ring.is_ok()));
    let (mut ring, unregistered) = ring?;
    missing.extend(unregistered);
    if !gates.begin.pass() {
        return Ok(Outcome { result, first_submit_ns: 0, last_reap_ns: 0, missing });
    }
    let (user_ns, system_ns) = cpus::thread_times_ns();
    let driven = drive(&mut ring.session(), plan, stop, done, &mut result);
    let (user_end_ns, system_end_ns) = cpus::thread_times_ns();
    result.user_ns = user_end_ns - user_ns;
    result.system_ns = system_end_ns - system_ns;
    drop(told);
    gates.end.pass();
    let (first_submit_ns, last_reap_ns) = driven.context("the load generator's ring failed")?;
    Ok(Outcome { result, first_submit_ns, last_reap_ns, missing })
}

/// The hot loop: per batch two clock reads and one system call, per operation no allocation, no lock
/// and nothing shared. Returns the stamps of the first submission and of the last completion.
fn drive(
    session: &mut Session<'_>,
    plan: Plan<'_>,
    stop: &AtomicBool,
    done: &Done,
    result: &mut JobResult,
) -> io::Result<(u64, u64)> {
    let Plan { mut offsets, iodepth, runtime_ns, .. } = plan;
    let mut submitted_ns = vec![0u64; iodepth as usize];
    let mut free: Vec<u32> = (0..iodepth).rev().collect();
    let begin = clock::now_ns();
    let deadline = begin.saturating_add(runtime_ns);
    let (mut last, mut publish) = (begin, begin + PUBLISH_NS);
    let (mut failures, mut retries) = (0u32, 0u32);
    let mut going = !stop.load(Ordering::Relaxed);
    while going || session.in_flight() > 0 {
        if going {
            let now = clock::now_ns();
            for slot in free.drain(..) {
                submitted_ns[slot as usize] = now;
                session.queue(slot, offsets.next());
            }
        }
        match session.enter() {
            Ok(taken) => {
                result.submits += u64::from(taken > 0);
                retries = 0;
            }
            // A signal: look at the stop flag. EBUSY: completions wait to be reaped.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && retries < RETRIES => retries += 1,
            Err(e) => return Err(e),
        }
        let now = clock::now_ns();
        let mut vanished = false;
        let reaped = session.reap(|slot, answer| {
            free.push(slot);
            if answer > 0 {
                result.latency.record(now - submitted_ns[slot as usize]);
                result.bytes += answer as u64;
                failures = 0;
                return;
            }
            // 0: the end of the file, where there was data when the run began.
            let errno = if answer == 0 { libc::ENODATA } else { -answer };
            result.errors += 1;
            result.first_errno.get_or_insert(errno);
            failures += 1;
            vanished |= matches!(errno, libc::ENODEV | libc::ENXIO);
        });
        if reaped > 0 {
            result.reaps += 1;
            last = now;
        }
        if now >= publish {
            done.0.store(result.latency.count(), Ordering::Relaxed);
            publish = now + PUBLISH_NS;
        }
        going &= now < deadline && !vanished && failures < ERRORS_IN_A_ROW && !stop.load(Ordering::Relaxed);
    }
    result.operations = result.latency.count();
    Ok((begin, last))
}
