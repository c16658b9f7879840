//! The load generator: jobs in, a summary out. The only room that speaks io_uring.
//!
//! An *operation* here is one io_uring request. Latency runs from just before the submission call
//! that carries the operation to the moment its completion is reaped.

use std::path::PathBuf;
use std::time::Duration;

use crate::hist::Histogram;

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
    pub user_ns: u64,
    pub system_ns: u64,
    /// Calls of `io_uring_enter` that submitted something.
    pub submits: u64,
    /// Looks at the completion queue that found something.
    pub reaps: u64,
    pub latency: Histogram,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSummary {
    /// As it was resolved, for reports.
    pub target: String,
    /// The block device below the target, as `/sys/block` names it; None where there is none (tmpfs).
    pub device: Option<String>,
    pub rw: Pattern,
    pub bs: u64,
    pub iodepth: u32,
    pub numjobs: u32,
    /// Bytes of the target that the offsets cover.
    pub size: u64,
    pub fill: Option<Fill>,
    /// First submission to last completion.
    pub duration_ns: u64,
    pub jobs: Vec<JobResult>,
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

    pub fn user_ns(&self) -> u64 {
        self.jobs.iter().map(|j| j.user_ns).sum()
    }

    pub fn system_ns(&self) -> u64 {
        self.jobs.iter().map(|j| j.system_ns).sum()
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
}
