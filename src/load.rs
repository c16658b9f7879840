//! The load generator: jobs in, a summary out. The only room that speaks io_uring.
//!
//! An *operation* here is one io_uring request. Latency runs from just before the submission call
//! that carries the operation to the moment its completion is reaped: CLOCK_MONOTONIC is read once
//! before the requests of a batch are queued and once when a batch of completions is found, so that
//! all operations of a batch share a stamp.
//!
//! [`prepare`] opens or makes the target and checks everything that can be checked beforehand,
//! [`Prepared::run`] drives it.

mod buffers;
mod cpus;
mod direct;
mod guard;
mod pattern;
mod prepare;
mod ring;
mod ring_workers;
mod scratch;
mod worker;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use prepare::{Phase, Prepared, Progress, prepare};
pub use scratch::default_bytes as default_scratch_bytes;

use crate::hist::Histogram;
use crate::refusal::{Refusal, reason};

/// Which offsets, in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Ascending, wrapping at the end; with several jobs each starts at its own share.
    Read,
    /// Uniform over all aligned blocks.
    RandRead,
}

impl Pattern {
    /// fio's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::RandRead => "randread",
        }
    }
}

/// What to run. Sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub target: Target,
    pub rw: Pattern,
    /// Completions are polled for, on queues that the device must have for that. A worker that polls is busy
    /// all the time, which no rule of a diagnosis expects.
    pub hipri: bool,
    pub bs: u64,
    pub iodepth: u32,
    pub numjobs: u32,
    pub runtime: Duration,
    /// How much of the target is read; None: all of it.
    pub size: Option<u64>,
    /// Seed of the offsets: the same seed gives the same order per job.
    pub seed: u64,
}

/// Where to read.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A device or file that is there; it is opened read-only and never written.
    Existing(PathBuf),
    /// A scratch file in this directory: created, filled with incompressible bytes, synced, unlinked
    /// while open, read. `bytes` is its size.
    Scratch { directory: PathBuf, bytes: u64 },
}

/// Making the scratch file, timed apart from the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    pub bytes: u64,
    pub duration_ns: u64,
}

/// One worker's share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobResult {
    pub number: u32,
    /// The CPU it was pinned to.
    pub cpu: Option<u32>,
    pub operations: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Linux errno of the first error.
    pub first_errno: Option<i32>,
    /// CPU time of its own thread: what io_uring's workers did for it is in [`LoadSummary::ring_workers`].
    pub user_ns: u64,
    pub system_ns: u64,
    /// Calls of `io_uring_enter` that submitted something.
    pub submits: u64,
    /// Looks at the completion queue that found something.
    pub reaps: u64,
    pub latency: Histogram,
}

/// What io_uring's own worker threads did: operations that would have blocked where they were submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingWorkers {
    /// How many used a CPU at all.
    pub threads: u32,
    /// They run in the kernel only.
    pub system_ns: u64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// As it was resolved, for reports.
    pub target: String,
    /// The block device below the target, as `/sys/block` names it; None where there is none (tmpfs).
    pub device: Option<String>,
    pub rw: Pattern,
    /// Completions were polled for.
    pub hipri: bool,
    pub bs: u64,
    pub iodepth: u32,
    pub numjobs: u32,
    /// Bytes of the target that the offsets cover.
    pub size: u64,
    pub fill: Option<Fill>,
    /// First submission to last completion.
    pub duration_ns: u64,
    pub jobs: Vec<JobResult>,
    /// None: not known, and `missing` says why.
    pub ring_workers: Option<RingWorkers>,
    /// Flags and registrations that were asked for and are not there, each with the reason.
    pub missing: Vec<String>,
}

impl LoadSummary {
    pub fn operations(&self) -> u64 {
        self.jobs.iter().map(|j| j.operations).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.jobs.iter().map(|j| j.bytes).sum()
    }

    pub fn errors(&self) -> u64 {
        self.jobs.iter().map(|j| j.errors).sum()
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
        self.jobs.iter().map(|j| j.submits).sum()
    }

    pub fn reaps(&self) -> u64 {
        self.jobs.iter().map(|j| j.reaps).sum()
    }

    /// A CPU time of all workers as a share of one CPU; None before anything ran.
    pub fn cpu_percent(&self, ns: u64) -> Option<f64> {
        (self.duration_ns > 0).then(|| ns as f64 * 100.0 / self.duration_ns as f64)
    }

    /// All workers' latencies.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.jobs.iter().for_each(|j| all.merge(&j.latency));
        all
    }

    /// Operations per second; None before anything ran.
    pub fn iops(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.operations() as f64 * 1e9 / self.duration_ns as f64)
    }

    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.bytes() as f64 * 1e9 / self.duration_ns as f64)
    }

    /// Why the figures must not be trusted: operations failed. What was measured up to there is in
    /// the summary all the same, so print it first.
    pub fn untrusted(&self) -> Option<Refusal> {
        let errno = self.jobs.iter().find_map(|j| j.first_errno)?;
        let name = self.device.as_deref().unwrap_or(&self.target);
        let what = match errno {
            libc::ENODEV | libc::ENXIO => format!("device {name} vanished during the run"),
            libc::ENODATA => format!("{} became shorter during the run", self.target),
            libc::EIO => format!("device {name} vanished or fails"),
            _ => format!("reads of {} failed", self.target),
        };
        let (errors, all) = (self.errors(), self.errors() + self.operations());
        Some(Refusal::Untrusted(format!(
            "{what}: {errors} of {all} reads failed (first: {}); see the kernel log, and repeat the run when it \
             is back",
            reason(&io::Error::from_raw_os_error(errno))
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(errors: u64, first_errno: Option<i32>) -> LoadSummary {
        let job = JobResult { operations: 9, errors, first_errno, ..JobResult::default() };
        LoadSummary {
            target: "/dev/sda1".to_string(),
            device: Some("sda".to_string()),
            rw: Pattern::Read,
            hipri: false,
            bs: 4096,
            iodepth: 1,
            numjobs: 1,
            size: 1 << 20,
            fill: None,
            duration_ns: 1_000_000_000,
            jobs: vec![job],
            ring_workers: None,
            missing: Vec::new(),
        }
    }

    #[test]
    fn failed_reads_make_the_run_untrustworthy() {
        assert_eq!(summary(0, None).untrusted(), None);
        let Some(Refusal::Untrusted(why)) = summary(1, Some(libc::ENODEV)).untrusted() else {
            panic!("a vanished device must not go unnoticed");
        };
        assert!(why.starts_with("device sda vanished during the run: 1 of 10 reads failed"), "{why}");
    }
}
