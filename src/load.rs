//! The load generator: it runs jobs and returns a summary of each. Only this room uses io_uring.
//!
//! An *operation* is one read, write or trim of a job: an io_uring request, a libaio iocb, a blocking system call, or a
//! copy from or to a mapping. Latency (fio's `lat`) starts just before the operation is submitted, or when it was due
//! if a rate is set. It ends when the thread checks for completions and finds this one. The clock is read once before a
//! batch is queued and once per check, so all operations of a batch share a stamp. The clock is CLOCK_MONOTONIC, read
//! through the time stamp counter where that can be trusted ([`ClockQuality`] gives the error bound).
//!
//! [`prepare()`] opens or creates the targets and checks everything that can be checked before the run; every target
//! that is written passes the [`guard`]. [`PreparedJobs::run`] runs the jobs.

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
pub use precondition::{
    MOST_ROUNDS, PreconditionEnd, PreconditionResult, Preconditioning, WriteRound, precondition,
};
pub use prepare::{Phase, PreparedJobs, Progress, Rates, ScratchFiles, prepare, prepare_again};
pub use sampled::BlockCounts;
pub use scaling::{DriveScaling, Scaling, measure as measure_scaling};
pub use scratch::default_bytes as default_scratch_bytes;
pub use series::SeriesInterval;
pub use stamps::ClockQuality;
pub use steady::{MOST_RANGE, MOST_SLOPE, RoundTrend};
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

/// What one thread transferred in one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    /// Operations that succeeded, short ones included.
    pub operations: u64,
    pub bytes: u64,
    /// Operations that moved fewer bytes than requested.
    pub short: u64,
    /// fio's terms: from the start to the end of the submission (`slat`), from there to the completion (`clat`), and
    /// the sum of both (`lat`; with a rate, from when the operation was due). Only timed operations are counted; `slat`
    /// and `clat` may have fewer than `lat`.
    pub slat: Histogram,
    pub clat: Histogram,
    pub lat: Histogram,
}

impl Transfer {
    /// Adds the transfers of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.short += other.short;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
    }
}

/// Latencies of one thread, one direction and one I/O priority.
#[derive(Debug, Clone, PartialEq)]
pub struct ServedLatencies {
    pub direction: Direction,
    /// None: the priority of the thread.
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

/// What a thread transferred in one interval of its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferSample {
    /// Length of the interval: that of the job's logs (500 ms), plus the thread's delay.
    pub duration_ns: u64,
    /// Operations that succeeded in the interval, by direction; so are `bytes`.
    pub operations: [u64; 3],
    pub bytes: [u64; 3],
    /// How many of them were timed, and the sum of their latencies.
    pub timed: [u64; 3],
    pub latency_ns: [u64; 3],
}

impl Failures {
    /// The error in words, for a sentence. `ended` of the failures found the end of the target.
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

/// The result of one thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobResult {
    /// The thread's number within its job.
    pub number: u32,
    /// The CPU that the thread was pinned to.
    pub cpu: Option<u32>,
    /// The NUMA node of its buffers.
    pub node: Option<u32>,
    /// Wall clock at its first submission after the ramp, in milliseconds since 1970.
    pub started_ms: Option<u64>,
    /// By direction.
    pub transfers: [Transfer; 3],
    /// Latencies by I/O priority; empty where no operation has its own.
    pub priorities: Vec<ServedLatencies>,
    /// Durations of fsync and fdatasync calls.
    pub syncs: Histogram,
    pub failures: Vec<Failures>,
    /// By direction: failures with ENODATA because the target ended before its size at the start of the run. All other
    /// ENODATA came from the device.
    pub ended: [u64; 3],
    /// The device was removed: at the end of the run its size was 0.
    pub vanished: bool,
    /// Linux errno of the first error.
    pub first_errno: Option<i32>,
    /// Blocks that were read back as written; None where nothing was read back.
    pub verified: Option<u64>,
    /// Writes that were not read back because they had failed or were short.
    pub skipped: u64,
    /// The run ended before all writes were read back.
    pub cut: bool,
    /// The first block that did not match.
    pub mismatch: Option<String>,
    /// The job ended because this rate was below its minimum.
    pub too_slow: Option<String>,
    /// With `latency_target`: the queue depth that was found, or the last one tried.
    pub latency_depth: Option<u32>,
    pub depth_is_found: bool,
    /// Operations that were due within the measured time and never began; None without a rate.
    pub never_began: Option<u64>,
    /// From the first submission to the last completion, or to the end of the runtime if that is later; without the
    /// ramp.
    pub duration_ns: u64,
    /// CPU time of the thread itself. io_uring's worker threads are in [`LoadSummary::ring_workers`].
    pub user_ns: u64,
    pub system_ns: u64,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    /// Operations per submitting call.
    pub submitted: Histogram,
    /// Completions per check that found any.
    pub reaped: Histogram,
    /// Operations in flight right after a submitting call, weighted by the number that it submitted; empty where not
    /// measured.
    pub depths: Histogram,
    /// Consecutive intervals from the first submission on, without the ramp and without the incomplete one at the end;
    /// empty for a run shorter than one interval, or where not measured.
    pub samples: Vec<TransferSample>,
}

impl JobResult {
    /// CPU time of the thread.
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

    /// Latencies of all directions.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.transfers.iter().for_each(|transfer| all.merge(&transfer.lat));
        all
    }

    /// Calls that submitted something.
    pub fn submits(&self) -> u64 {
        self.submitted.count()
    }

    /// Checks that found a completion.
    pub fn reaps(&self) -> u64 {
        self.reaped.count()
    }
}

/// A worker that uses this share of its CPU is limited by it. Not 1.0: interrupt time on that CPU is not charged to the
/// worker, and the run's first and last milliseconds are not busy.
pub const WORKER_SATURATED: f64 = 0.90;
/// Above this share of user time, a saturated thread is limited by its own code, not by the kernel.
pub const USER_SHARE: f64 = 0.5;

/// The load's own threads are the limit: half of them or more are saturated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLimit {
    pub saturated: usize,
    /// Of the CPU time of all its threads, that in user space.
    pub user_share: f64,
}

impl OwnLimit {
    /// The id of the finding that `diagnose` reports for it.
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

/// Latencies of one direction by I/O priority over these threads. As in fio, empty with fewer than two priorities.
pub fn served<'a>(
    jobs: impl IntoIterator<Item = &'a JobResult>,
    direction: Direction,
) -> Vec<ServedLatencies> {
    let mut all: Vec<ServedLatencies> = Vec::new();
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
    /// How much of what was written was read back.
    pub enum ReadBack {
        /// All writes that did not fail.
        Whole = "whole",
        /// The run ended before all of it was read back.
        Part = "part",
        Nothing = "nothing",
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// The job as requested.
    pub job: Job,
    /// The resolved target, for reports.
    pub target: String,
    /// The block device of the target, by its name in `/sys/block`; None where there is none (tmpfs).
    pub device: Option<String>,
    /// Bytes of the target that the offsets cover.
    pub size: u64,
    pub fill: Option<Fill>,
    /// From the first submission to the last completion, or to the end of the runtime.
    pub duration_ns: u64,
    pub jobs: Vec<JobResult>,
    /// None: not measured; `missing` gives the reason.
    pub ring_workers: Option<RingWorkers>,
    pub drive: Drive,
    /// The clock quality of the worst thread.
    pub clock: Option<ClockQuality>,
    /// Requested flags and registrations that are not available, each with the reason.
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

    /// The transfers of all threads in one direction.
    pub fn transfer(&self, direction: Direction) -> Transfer {
        let mut all = Transfer::default();
        self.jobs.iter().for_each(|job| all.merge(&job.transfers[direction.index()]));
        all
    }

    /// Latencies of one direction by I/O priority over all threads; empty with fewer than two priorities.
    pub fn priorities(&self, direction: Direction) -> Vec<ServedLatencies> {
        served(&self.jobs, direction)
    }

    /// Blocks that were read back as written; None where nothing was read back.
    pub fn verified(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|job| job.verified).reduce(|a, b| a + b)
    }

    /// How much of what was written was read back; None where that was not requested.
    pub fn read_back(&self) -> Option<ReadBack> {
        let looks = self.job.verify && self.job.do_verify && self.job.rw.has(Direction::Write);
        let is_whole = |job: &JobResult| job.verified.is_some() && !job.cut;
        looks.then(|| match self.verified() {
            None => ReadBack::Nothing,
            Some(_) if self.jobs.iter().all(is_whole) => ReadBack::Whole,
            Some(_) => ReadBack::Part,
        })
    }

    /// Writes that were not read back because they had failed or were short.
    pub fn skipped(&self) -> u64 {
        self.jobs.iter().map(|job| job.skipped).sum()
    }

    /// Operations that were due and never began; None without a rate.
    pub fn never_began(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|job| job.never_began).reduce(|a, b| a + b)
    }

    /// The first block that did not match.
    pub fn mismatch(&self) -> Option<&str> {
        self.jobs.iter().find_map(|job| job.mismatch.as_deref())
    }

    /// The failures of all threads, by direction, most frequent first.
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

    /// Operations that failed because the target had become shorter.
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

    /// A CPU time as a percentage of one CPU; None before anything ran.
    pub fn cpu_percent(&self, ns: u64) -> Option<f64> {
        (self.duration_ns > 0).then(|| ns as f64 * 100.0 / self.duration_ns as f64)
    }

    /// Latencies of all threads.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.jobs.iter().for_each(|j| all.merge(&j.latency()));
        all
    }

    /// CPU time of the thread and of all threads pinned to the same CPU: together they cannot use more than that CPU.
    pub fn used_on_cpu_of(&self, job: &JobResult) -> u64 {
        match job.cpu {
            Some(cpu) => self.jobs.iter().filter(|other| other.cpu == Some(cpu)).map(JobResult::cpu_ns).sum(),
            None => job.cpu_ns(),
        }
    }

    /// CPUs that the threads can use: each pinned CPU once, and one per unpinned thread.
    pub fn cpus(&self) -> usize {
        let pinned: BTreeSet<u32> = self.jobs.iter().filter_map(|job| job.cpu).collect();
        pinned.len() + self.jobs.iter().filter(|job| job.cpu.is_none()).count()
    }

    /// None where the threads had CPU time left, or polled.
    pub fn own_limit(&self) -> Option<OwnLimit> {
        // Threads that poll or wait for a rate are always busy, whatever the device does.
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

    /// Why the figures must not be trusted: operations failed, or a block did not match. The summary still has what was
    /// measured before, so print it first.
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
        // An operation that failed before the read-back is the cause.
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

    /// The first rate below its minimum.
    pub fn too_slow(&self) -> Option<&str> {
        self.jobs.iter().find_map(|job| job.too_slow.as_deref())
    }

    /// How many threads ended during their ramp, so that none of their I/Os is counted.
    pub fn ended_in_the_ramp(&self) -> usize {
        let is_one = |job: &&JobResult| job.duration_ns == 0 && job.operations() == 0 && job.errors() == 0;
        if self.job.ramp_time.is_zero() { 0 } else { self.jobs.iter().filter(is_one).count() }
    }

    /// Why a load that ran to its end has no figures: its ramp was never over.
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

    /// The sentence for blocks that did not match; None where all match.
    fn not_read_back(&self) -> Option<String> {
        let first = self.jobs.iter().find_map(|job| job.mismatch.as_deref())?;
        let differ: u64 = self
            .failures()
            .iter()
            .filter(|failures| (failures.direction, failures.errno) == (Direction::Read, libc::EILSEQ))
            .map(|failures| failures.count)
            .sum();
        // `failures` has only the mismatches; verified blocks are counted separately.
        let all = differ + self.verified().unwrap_or(0);
        Some(format!(
            "{differ} of {all} blocks of {} were not read back as written (first: {first}); check that no \
             other process writes there and see the kernel log, and do not rely on it until the cause is \
             known",
            self.target
        ))
    }

    /// The sentence for failed operations, `errno` first.
    fn failed(&self, errno: i32) -> String {
        let failures = self.failures();
        let first = failures.iter().find(|failures| failures.errno == errno);
        let direction = first.map_or(Direction::Read, |first| first.direction);
        let name = self.device.as_deref().unwrap_or(&self.target);
        let what = match errno {
            // A removed disk has size 0: reads find the end, and writes find no space.
            _ if self.jobs.iter().any(|job| job.vanished) => format!("device {name} vanished during the run"),
            libc::ENODEV | libc::ENXIO => format!("device {name} vanished during the run"),
            // A disk returns ENODATA for a medium error.
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
