//! The load generator: jobs in, a summary out. The only room that speaks io_uring.
//!
//! An *operation* here is one read, write or trim of a job: a request of io_uring, an iocb of libaio, a system
//! call that waits, or a copy from or to a mapping. Latency (fio's `lat`) runs from just before the operation is
//! handed over, or from when it was due where a rate is asked for, to the look that finds its result. The clock
//! is read once before the operations of a batch are queued and once for each look at the results, so that all
//! operations of a batch share a stamp. It is CLOCK_MONOTONIC, told by the time stamp counter where that can be
//! trusted ([`ClockQuality`] says how far the two came apart).
//!
//! [`prepare()`] opens or makes the targets and checks everything that can be checked beforehand: what is written
//! passes the [`guard`]. [`Prepared::run`] drives them.

mod buffers;
mod content;
mod cpus;
mod direct;
mod drive;
mod engine;
pub mod guard;
mod job;
pub mod jobfile;
pub mod options;
mod pace;
mod placement;
mod precondition;
mod prepare;
pub(crate) mod random;
mod ring;
mod ring_workers;
mod run;
mod sampled;
mod scaling;
mod scratch;
pub mod sections;
mod sequence;
mod series;
mod stamps;
mod steady;
mod submit_stamps;
mod tally;
mod targets;
mod unsupported;
mod worker;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;

pub use drive::Drive;
pub use guard::Permission;
pub use job::{
    Advice, Arrivals, BlockShare, BlockSizes, Direction, Distribution, Engine, ExitWhat, Extent, Job,
    LatencyTarget, Logs, OnError, Pattern, Placement, PriorityShare, Rate, Target, Timestamps, io_priority,
    priority_name,
};
pub use precondition::{End, MOST_ROUNDS, Preconditioned, Preconditioning, Round, precondition};
pub use prepare::{Phase, Prepared, Progress, Rates, ScratchFiles, prepare, prepare_again};
pub use sampled::Sampled;
pub use scaling::{Scaled, Scaling, measure as measure_scaling};
pub use scratch::default_bytes as default_scratch_bytes;
pub use series::Interval;
pub use stamps::ClockQuality;
pub use steady::{MOST_RANGE, MOST_SLOPE, Window};
pub use unsupported::unsupported;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hist::Histogram;
use crate::names::names;
use crate::refusal::{Refusal, reason};

/// Making the scratch file, timed apart from the load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fill {
    pub bytes: u64,
    pub duration_ns: u64,
}

/// What one thread moved in one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    /// That succeeded, those that moved fewer bytes than they were asked to among them.
    pub operations: u64,
    pub bytes: u64,
    /// Those that moved fewer.
    pub short: u64,
    /// fio's words: from the beginning of the submission to its end (`slat`), from there to the result
    /// (`clat`), and both together (`lat`; with a rate from when it was due). They have the operations whose
    /// times were taken, `slat` and `clat` perhaps fewer than `lat`.
    pub slat: Histogram,
    pub clat: Histogram,
    pub lat: Histogram,
}

impl Transfer {
    /// Adds what another thread moved.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.short += other.short;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
    }
}

/// What one thread did in one direction with one I/O priority.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    pub direction: Direction,
    /// None: that of the thread.
    pub priority: Option<u16>,
    pub clat: Histogram,
    pub lat: Histogram,
}

/// Operations that failed alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failures {
    pub direction: Direction,
    /// Linux errno; ENODATA also for the end of a file that was longer when the run began, as
    /// [`JobResult::ended`] tells.
    pub errno: i32,
    pub count: u64,
}

/// What a thread moved in an interval of its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Length of the interval: that of the job's logs (500 ms), and what the thread was late by.
    pub duration_ns: u64,
    /// By direction, as are the bytes: operations that succeeded in it.
    pub operations: [u64; 3],
    pub bytes: [u64; 3],
    /// Those of them whose latency was taken, and its sum.
    pub timed: [u64; 3],
    pub latency_ns: [u64; 3],
}

impl Failures {
    /// The error in words, for a sentence; so many of them `ended` behind the last byte of the target.
    pub fn error(&self, ended: u64) -> String {
        match self.errno {
            libc::ENODATA if ended >= self.count => "the file ended early".to_string(),
            libc::ENODATA if ended > 0 => {
                format!("the file ended early ({ended} of them), or no data available")
            }
            libc::EILSEQ => "not what was written there".to_string(),
            errno => reason(&io::Error::from_raw_os_error(errno)),
        }
    }
}

/// One thread's share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobResult {
    /// Among the threads of its job.
    pub number: u32,
    /// The CPU it was pinned to.
    pub cpu: Option<u32>,
    /// The NUMA node that its buffers are on.
    pub node: Option<u32>,
    /// Wall clock at its first submission, without the ramp: milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// By direction.
    pub transfers: [Transfer; 3],
    /// Its times by I/O priority; empty where operations have none of their own.
    pub priorities: Vec<Served>,
    /// fsync and fdatasync calls, and how long they took.
    pub syncs: Histogram,
    pub failures: Vec<Failures>,
    /// Of those with ENODATA, by direction: found the target's end where there was data when the run began. The
    /// others are the device's answer.
    pub ended: [u64; 3],
    /// The device had no bytes left at the end of the run: it was removed.
    pub vanished: bool,
    /// Linux errno of the first error.
    pub first_errno: Option<i32>,
    /// Writes that were read back as they were written; None where nobody looked.
    pub verified: Option<u64>,
    /// Writes that were not read back, as they had failed or were short.
    pub skipped: u64,
    /// The run was ended before all that was written was read back.
    pub cut: bool,
    /// The first block that was not read back so.
    pub mismatch: Option<String>,
    /// The rate that was below the least one that the job accepts: it ended there.
    pub too_slow: Option<String>,
    /// With `latency_target`: the queue depth that was found, or else tried last.
    pub latency_depth: Option<u32>,
    pub depth_is_found: bool,
    /// Operations that were due within the time that is counted and never began; None where no rate was asked for.
    pub never_began: Option<u64>,
    /// From its first submission to its last result, or to the end of its time if that is later; without the ramp.
    pub duration_ns: u64,
    /// CPU time of its own thread: what io_uring's workers did for it is in [`LoadSummary::ring_workers`].
    pub user_ns: u64,
    pub system_ns: u64,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    /// Operations per call that submitted some.
    pub submitted: Histogram,
    /// Operations per look at the results that found some.
    pub reaped: Histogram,
    /// Operations in flight right after a call that submitted some, counted once for each that it submitted;
    /// empty where nobody looked.
    pub depths: Histogram,
    /// One interval after the other from the first submission on, without the ramp and without what is left at
    /// the end; empty for a run that is shorter than one, or where nobody looked.
    pub samples: Vec<Sample>,
}

impl JobResult {
    /// CPU time of its thread.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    pub fn operations(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.operations).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.bytes).sum()
    }

    pub fn errors(&self) -> u64 {
        self.failures.iter().map(|failures| failures.count).sum()
    }

    /// All directions' latencies.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.transfers.iter().for_each(|transfer| all.merge(&transfer.lat));
        all
    }

    /// Calls that submitted something.
    pub fn submits(&self) -> u64 {
        self.submitted.count()
    }

    /// Looks at the results that found something.
    pub fn reaps(&self) -> u64 {
        self.reaped.count()
    }
}

/// A worker that used this share of its CPU is limited by it. Not 1.0: what interrupts take on that
/// CPU is not charged to the worker, and the run's first and last milliseconds are not busy.
pub const WORKER_SATURATED: f64 = 0.90;
/// Above this share of user time a saturated thread is busy with itself and not with the kernel.
pub const USER_SHARE: f64 = 0.5;

/// The load's own threads are the limit: half of them or more are saturated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLimit {
    pub saturated: usize,
    /// Of the CPU time of all its threads, that in user space.
    pub user_share: f64,
}

impl OwnLimit {
    /// The id of the finding that `diagnose` would have for it.
    pub fn id(&self) -> &'static str {
        if self.user_share > USER_SHARE { "generator-bound" } else { "submit-cpu-bound" }
    }
}

/// What io_uring's own worker threads did: operations that would have blocked where they were submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RingWorkers {
    /// How many used a CPU at all.
    pub threads: u32,
    /// They run in the kernel only.
    pub system_ns: u64,
}

/// The times of a direction by I/O priority, of these threads together; as in fio, only where there are two or more.
pub fn served<'a>(jobs: impl IntoIterator<Item = &'a JobResult>, direction: Direction) -> Vec<Served> {
    let mut all: Vec<Served> = Vec::new();
    for one in jobs.into_iter().flat_map(|job| &job.priorities).filter(|one| one.direction == direction) {
        match all.iter_mut().find(|other| other.priority == one.priority) {
            Some(other) => {
                other.clat.merge(&one.clat);
                other.lat.merge(&one.lat);
            }
            None => all.push(one.clone()),
        }
    }
    all.sort_by_key(|one| one.priority);
    if all.len() < 2 { Vec::new() } else { all }
}

names! {
    /// How far what was written was looked at.
    pub enum ReadBack {
        /// All but what had failed.
        Whole = "whole",
        /// The run was ended before.
        Part = "part",
        Nothing = "nothing",
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// As it was asked for.
    pub job: Job,
    /// What was read or written, as it was resolved, for reports.
    pub target: String,
    /// The block device below the target, as `/sys/block` names it; None where there is none (tmpfs).
    pub device: Option<String>,
    /// Bytes of the target that the offsets cover.
    pub size: u64,
    pub fill: Option<Fill>,
    /// First submission to last completion, or to the end of the time that it had.
    pub duration_ns: u64,
    pub jobs: Vec<JobResult>,
    /// None: not known, and `missing` says why.
    pub ring_workers: Option<RingWorkers>,
    pub drive: Drive,
    /// What the times are worth: that of the worst thread.
    pub clock: Option<ClockQuality>,
    /// Flags and registrations that were asked for and are not there, each with the reason.
    pub missing: Vec<String>,
}

impl LoadSummary {
    pub fn operations(&self) -> u64 {
        self.jobs.iter().map(JobResult::operations).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.jobs.iter().map(JobResult::bytes).sum()
    }

    pub fn errors(&self) -> u64 {
        self.jobs.iter().map(JobResult::errors).sum()
    }

    /// What all threads moved in one direction.
    pub fn transfer(&self, direction: Direction) -> Transfer {
        let mut all = Transfer::default();
        self.jobs.iter().for_each(|job| all.merge(&job.transfers[direction.index()]));
        all
    }

    /// The times of a direction by I/O priority, all threads together; empty where they had fewer than two.
    pub fn priorities(&self, direction: Direction) -> Vec<Served> {
        served(&self.jobs, direction)
    }

    /// Writes that were read back as they were written; None where nobody looked.
    pub fn verified(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|job| job.verified).reduce(|a, b| a + b)
    }

    /// How far what was written was read back; None where that was not asked for.
    pub fn read_back(&self) -> Option<ReadBack> {
        let looks = self.job.verify && self.job.do_verify && self.job.rw.has(Direction::Write);
        let is_whole = |job: &JobResult| job.verified.is_some() && !job.cut;
        looks.then(|| match self.verified() {
            None => ReadBack::Nothing,
            Some(_) if self.jobs.iter().all(is_whole) => ReadBack::Whole,
            Some(_) => ReadBack::Part,
        })
    }

    /// Writes that were not read back, as they had failed or were short.
    pub fn skipped(&self) -> u64 {
        self.jobs.iter().map(|job| job.skipped).sum()
    }

    /// Operations that were due and never began; None where no rate was asked for.
    pub fn never_began(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|job| job.never_began).reduce(|a, b| a + b)
    }

    /// The first block that was not read back so.
    pub fn mismatch(&self) -> Option<&str> {
        self.jobs.iter().find_map(|job| job.mismatch.as_deref())
    }

    /// All threads' failures, by direction and then the most frequent first.
    pub fn failures(&self) -> Vec<Failures> {
        let mut all: Vec<Failures> = Vec::new();
        for one in self.jobs.iter().flat_map(|job| &job.failures).filter(|failures| failures.count > 0) {
            match all.iter_mut().find(|known| (known.direction, known.errno) == (one.direction, one.errno)) {
                Some(known) => known.count += one.count,
                None => all.push(*one),
            }
        }
        all.sort_by_key(|failures| (failures.direction.index(), Reverse(failures.count), failures.errno));
        all
    }

    /// How many failed since the target had become shorter.
    pub fn ended(&self, direction: Direction) -> u64 {
        self.jobs.iter().map(|job| job.ended[direction.index()]).sum()
    }

    /// User time of the jobs' threads.
    pub fn user_ns(&self) -> u64 {
        self.jobs.iter().map(|j| j.user_ns).sum()
    }

    /// System time of the jobs' threads and of io_uring's workers.
    pub fn system_ns(&self) -> u64 {
        let own: u64 = self.jobs.iter().map(|j| j.system_ns).sum();
        own + self.ring_workers.map_or(0, |workers| workers.system_ns)
    }

    pub fn submits(&self) -> u64 {
        self.jobs.iter().map(JobResult::submits).sum()
    }

    pub fn reaps(&self) -> u64 {
        self.jobs.iter().map(JobResult::reaps).sum()
    }

    /// A CPU time of all workers as a share of one CPU; None before anything ran.
    pub fn cpu_percent(&self, ns: u64) -> Option<f64> {
        (self.duration_ns > 0).then(|| ns as f64 * 100.0 / self.duration_ns as f64)
    }

    /// All workers' latencies.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.jobs.iter().for_each(|j| all.merge(&j.latency()));
        all
    }

    /// CPU time of a thread and of all that are pinned to the same CPU: together they cannot use more than that CPU.
    pub fn used_on_cpu_of(&self, job: &JobResult) -> u64 {
        match job.cpu {
            Some(cpu) => self.jobs.iter().filter(|other| other.cpu == Some(cpu)).map(JobResult::cpu_ns).sum(),
            None => job.cpu_ns(),
        }
    }

    /// CPUs that the threads can use: those that some are pinned to, and one for each of the others.
    pub fn cpus(&self) -> usize {
        let pinned: BTreeSet<u32> = self.jobs.iter().filter_map(|job| job.cpu).collect();
        pinned.len() + self.jobs.iter().filter(|job| job.cpu.is_none()).count()
    }

    /// None where the threads had time left, or were busy by looking for results.
    pub fn own_limit(&self) -> Option<OwnLimit> {
        // Those are busy all the time whatever the device does.
        let looks = self.job.hipri || self.job.rate.is_some();
        if looks || self.jobs.is_empty() {
            return None;
        }
        let busy = |job: &&JobResult| {
            job.duration_ns > 0
                && self.used_on_cpu_of(job) as f64 >= WORKER_SATURATED * job.duration_ns as f64
        };
        let saturated = self.jobs.iter().filter(busy).count();
        let all: u64 = self.jobs.iter().map(JobResult::cpu_ns).sum();
        (2 * saturated >= self.jobs.len() && all > 0)
            .then(|| OwnLimit { saturated, user_share: self.user_ns() as f64 / all as f64 })
    }

    /// Operations per second; None before anything ran.
    pub fn iops(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.operations() as f64 * 1e9 / self.duration_ns as f64)
    }

    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.bytes() as f64 * 1e9 / self.duration_ns as f64)
    }

    /// Why the figures must not be trusted: operations failed, or what was written was not read back. What was
    /// measured up to there is in the summary all the same, so print it first.
    pub fn untrusted(&self) -> Option<Refusal> {
        let mut errnos = self.jobs.iter().filter_map(|job| job.first_errno);
        let Some(first) = errnos.next() else {
            let too_slow = self.too_slow()?;
            return Some(Refusal::Untrusted(format!(
                "job {} ended early: {too_slow}; set a lower rate, or find what slows it down",
                self.job.name.escape_debug()
            )));
        };
        let differs = self.not_read_back();
        // What failed before anything was read back is the cause.
        let cause =
            std::iter::once(first).chain(errnos).find(|errno| *errno != libc::EILSEQ || differs.is_none());
        Some(Refusal::Untrusted(match (cause, differs) {
            (Some(errno), None) => self.failed(errno),
            (Some(errno), Some(differs)) => format!("{}; also, {differs}", self.failed(errno)),
            (None, differs) => differs.unwrap_or_else(|| self.failed(first)),
        }))
    }

    /// With `latency_target`: the queue depth, and whether it was found or only tried last.
    pub fn latency_depth(&self) -> Option<(u32, bool)> {
        self.jobs.iter().find_map(|job| Some((job.latency_depth?, job.depth_is_found)))
    }

    /// The first rate that was below the least one.
    pub fn too_slow(&self) -> Option<&str> {
        self.jobs.iter().find_map(|job| job.too_slow.as_deref())
    }

    /// How many threads were over before their ramp was, so that nothing of them is counted.
    pub fn ended_in_the_ramp(&self) -> usize {
        let is_one = |job: &&JobResult| job.duration_ns == 0 && job.operations() == 0 && job.errors() == 0;
        if self.job.ramp_time.is_zero() { 0 } else { self.jobs.iter().filter(is_one).count() }
    }

    /// Why there are no figures although the load ran to its end: nothing of a ramp is counted.
    pub fn uncounted(&self) -> Option<Refusal> {
        let all = !self.jobs.is_empty() && self.ended_in_the_ramp() == self.jobs.len();
        all.then(|| {
            Refusal::Untrusted(format!(
                "the load on {} ended before its ramp of {:?}, so nothing was counted: choose a shorter \
                 --ramp_time, or a larger --size or --io_size",
                self.target, self.job.ramp_time
            ))
        })
    }

    /// The sentence for blocks that are not what was written; None where all of them are.
    fn not_read_back(&self) -> Option<String> {
        let first = self.jobs.iter().find_map(|job| job.mismatch.as_deref())?;
        let differ: u64 = self
            .failures()
            .iter()
            .filter(|failures| (failures.direction, failures.errno) == (Direction::Read, libc::EILSEQ))
            .map(|failures| failures.count)
            .sum();
        // Those that are right were counted apart.
        let all = differ + self.verified().unwrap_or(0);
        Some(format!(
            "{differ} of {all} blocks of {} were not read back as written (first: {first}); check that no \
             other process writes there and see the kernel log, and do not rely on it until the cause is \
             known",
            self.target
        ))
    }

    /// The sentence for operations that failed, `errno` first.
    fn failed(&self, errno: i32) -> String {
        let failures = self.failures();
        let first = failures.iter().find(|failures| failures.errno == errno);
        let direction = first.map_or(Direction::Read, |first| first.direction);
        let name = self.device.as_deref().unwrap_or(&self.target);
        let what = match errno {
            // A disk that is removed has no bytes any more: reads find its end, and writes no room.
            _ if self.jobs.iter().any(|job| job.vanished) => format!("device {name} vanished during the run"),
            libc::ENODEV | libc::ENXIO => format!("device {name} vanished during the run"),
            // A disk answers so where its medium cannot be read.
            libc::ENODATA if direction == Direction::Read => {
                let why = match (self.ended(direction), first.map_or(0, |first| first.count)) {
                    (0, _) => "cannot be read everywhere",
                    (ended, count) if ended >= count => "became shorter during the run",
                    _ => "cannot be read everywhere, and became shorter during the run",
                };
                format!("{} {why}", self.target)
            }
            libc::EIO => format!("device {name} vanished or fails"),
            _ => format!("{} of {} failed", direction.plural(), self.target),
        };
        let one_kind = failures.iter().all(|failures| failures.direction == direction);
        let (done, noun) = match one_kind {
            true => (self.transfer(direction).operations, direction.plural()),
            false => (self.operations(), "operations"),
        };
        let errors = self.errors();
        let in_words = || reason(&io::Error::from_raw_os_error(errno));
        let reason = first.map_or_else(in_words, |first| first.error(self.ended(direction)));
        format!(
            "{what}: {errors} of {} {noun} failed (first: {reason}); see the kernel log, and repeat the run when the \
             cause is gone",
            done + errors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(failures: Vec<Failures>) -> LoadSummary {
        let first_errno = failures.first().map(|first| first.errno);
        let mut job = JobResult { first_errno, failures, ..JobResult::default() };
        for direction in [Direction::Read, Direction::Write] {
            job.transfers[direction.index()].operations = 9;
        }
        LoadSummary {
            job: Job { rw: Pattern::ReadWrite, iodepth: 1, ..Job::new(Target::Existing("/dev/sda1".into())) },
            target: "/dev/sda1".to_string(),
            device: Some("sda".to_string()),
            size: 1 << 20,
            fill: None,
            duration_ns: 1_000_000_000,
            jobs: vec![job],
            ring_workers: None,
            drive: Default::default(),
            clock: None,
            missing: Vec::new(),
        }
    }

    fn untrusted(summary: &LoadSummary) -> String {
        match summary.untrusted() {
            Some(Refusal::Untrusted(why)) => why,
            other => panic!("what failed must not go unnoticed: {other:?}"),
        }
    }

    #[test]
    fn failed_operations_make_the_run_untrustworthy() {
        assert_eq!(summary(Vec::new()).untrusted(), None);
        let begin = |failures: &[(Direction, i32, u64)], wanted: &str| {
            let failures =
                failures.iter().map(|&(direction, errno, count)| Failures { direction, errno, count });
            let why = untrusted(&summary(failures.collect()));
            assert!(why.starts_with(wanted), "{why}");
        };
        use Direction::{Read, Trim, Write};
        begin(
            &[(Read, libc::ENODEV, 1)],
            "device sda vanished during the run: 1 of 10 reads failed (first: no such",
        );
        begin(
            &[(Read, libc::ENODATA, 1)],
            "/dev/sda1 cannot be read everywhere: 1 of 10 reads failed (first: no data",
        );
        begin(&[(Write, libc::ENODATA, 2)], "writes of /dev/sda1 failed: 2 of 11 writes failed");
        begin(
            &[(Write, libc::ENOSPC, 3)],
            "writes of /dev/sda1 failed: 3 of 12 writes failed (first: no space",
        );
        begin(&[(Trim, libc::EOPNOTSUPP, 4)], "trims of /dev/sda1 failed: 4 of 4 trims failed");
        begin(
            &[(Write, libc::ENOSPC, 1), (Read, libc::EIO, 1)],
            "writes of /dev/sda1 failed: 2 of 20 operations failed (first: no space",
        );
    }

    #[test]
    fn a_target_that_ended_is_told_from_one_that_cannot_be_read() {
        let said = |direction, ended| {
            let failures = vec![Failures { direction, errno: libc::ENODATA, count: 2 }];
            let mut load = LoadSummary { target: "/data/file".to_string(), ..summary(failures) };
            load.jobs[0].ended[direction.index()] = ended;
            untrusted(&load)
        };
        for (direction, ended, wanted) in [
            (
                Direction::Read,
                2,
                "/data/file became shorter during the run: 2 of 11 reads failed (first: the file ended early)",
            ),
            (
                Direction::Read,
                0,
                "/data/file cannot be read everywhere: 2 of 11 reads failed (first: no data available)",
            ),
            (
                Direction::Read,
                1,
                "/data/file cannot be read everywhere, and became shorter during the run: 2 of 11 reads failed \
                 (first: the file ended early (1 of them), or no data available)",
            ),
            (
                Direction::Write,
                2,
                "writes of /data/file failed: 2 of 11 writes failed (first: the file ended",
            ),
        ] {
            let why = said(direction, ended);
            assert!(why.starts_with(wanted), "{why}");
        }
    }

    #[test]
    fn a_device_without_bytes_vanished() {
        let kind = |direction, errno| Failures { direction, errno, count: 2 };
        let mut load =
            summary(vec![kind(Direction::Write, libc::ENOSPC), kind(Direction::Read, libc::ENODATA)]);
        assert!(untrusted(&load).starts_with("writes of /dev/sda1 failed: 4 of 22 operations failed"));
        load.jobs[0].vanished = true;
        let why = untrusted(&load);
        assert!(why.starts_with("device sda vanished during the run: 4 of 22 operations failed"), "{why}");
    }

    #[test]
    fn threads_without_time_left_are_the_limit() {
        let mut load = summary(Vec::new());
        let mut with = |user_ns, system_ns| {
            (load.jobs[0].user_ns, load.jobs[0].system_ns, load.jobs[0].duration_ns) =
                (user_ns, system_ns, 1_000);
            load.own_limit().map(|limit| limit.id())
        };
        assert_eq!(with(400, 490), None);
        assert_eq!(with(400, 500), Some("submit-cpu-bound"));
        assert_eq!(with(600, 380), Some("generator-bound"));
        load.job.hipri = true;
        assert_eq!(load.own_limit(), None, "who polls is busy all the time");
    }

    #[test]
    fn blocks_that_are_not_what_was_written_are_named_as_that() {
        let mut summary =
            summary(vec![Failures { direction: Direction::Read, errno: libc::EILSEQ, count: 2 }]);
        let why = untrusted(&summary);
        assert!(
            why.starts_with("reads of /dev/sda1 failed: 2 of 11 reads failed"),
            "the device says so: {why}"
        );
        summary.jobs[0].mismatch = Some("the block at offset 8192 has only zeros".to_string());
        let why = untrusted(&summary);
        assert!(
            why.starts_with("2 of 2 blocks of /dev/sda1 were not read back"),
            "other reads are no blocks of it: {why}"
        );
        summary.jobs[0]
            .failures
            .insert(0, Failures { direction: Direction::Write, errno: libc::ENOSPC, count: 3 });
        summary.jobs[0].first_errno = Some(libc::ENOSPC);
        let why = untrusted(&summary);
        assert!(
            why.starts_with(
                "writes of /dev/sda1 failed: 5 of 23 operations failed (first: no space left on device)"
            ) && why.contains("; also, 2 of 2 blocks"),
            "the first cause comes first: {why}"
        );
        summary.jobs[0].failures.remove(0);
        summary.jobs[0].first_errno = Some(libc::EILSEQ);
        summary.jobs[0].verified = Some(7);
        let why = untrusted(&summary);
        assert!(
            why.starts_with(
                "2 of 9 blocks of /dev/sda1 were not read back as written (first: the block at offset 8192 has only \
                 zeros); "
            ),
            "{why}"
        );
    }
}
