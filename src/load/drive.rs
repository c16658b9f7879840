//! Reads the state of the drive before and after a run: sampled content, namespace usage, health and writes.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::guard::GuardedTarget;
use super::job::{Direction, Engine, Pattern, Target};
use super::prepare::{PreparedJob, PreparedJobs};
use super::sampled::{BlockCounts, sample};
use super::sequence::Region;
use super::series::{Series, SeriesInterval};
use super::worker::ThreadProgress;
use crate::clock;
use crate::host::nvme::{Health, Namespace, Use};
use crate::refusal::reason;

/// State of the drive. With several devices, only the samples and the writes cover all; everything else is from the
/// first device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Drive {
    /// What was on the target before it was read; None where not sampled.
    pub sampled: Option<BlockCounts>,
    /// How much of the namespace was in use before the run.
    pub usage: Option<Use>,
    /// Before the job (and the jobs that run with it), and after.
    pub health: Option<(Health, Health)>,
    /// Bytes written per interval, for a job that only writes and bypasses the page cache.
    pub written: Vec<SeriesInterval>,
}

impl PreparedJobs {
    /// Samples what the jobs are about to read: some blocks of each target, and the usage of an NVMe namespace. Jobs
    /// behind a stonewall are left out, because jobs before them may write what they read.
    pub fn sample(&mut self, stop: &AtomicBool) {
        let later = self.jobs.iter().skip(1).position(|job| job.job.stonewall).map_or(usize::MAX, |n| n + 1);
        let first = self.jobs.iter_mut().take(later);
        for job in first.filter(|job| job.job.rw.has(Direction::Read) && !job.job.moves_nothing()) {
            match job.sampled(stop) {
                Ok(sampled) => job.drive.sampled = sampled,
                Err(why) => job.missing.push(format!("content before the load: {why}")),
            }
            match job.namespace().map(|namespace| namespace.and_then(|namespace| namespace.usage())) {
                Some(Ok(usage)) => job.drive.usage = usage,
                Some(Err(error)) => job.missing.push(no_answer("use of the namespace", &error)),
                None => {}
            }
        }
    }

    /// The samples, each with its target.
    pub fn samples(&self) -> impl Iterator<Item = (String, BlockCounts)> {
        self.jobs.iter().filter_map(|job| Some((job.target(), job.drive.sampled?)))
    }

    /// Reads the drive's health before and after each job.
    pub fn watch_health(&mut self) {
        self.health_of = Some(health_of);
    }
}

/// Reads the health of the drive with this kernel name; None if it is not an NVMe drive.
pub(super) type HealthOf = fn(&str) -> Option<io::Result<Health>>;

fn health_of(disk: &str) -> Option<io::Result<Health>> {
    Namespace::open(Path::new("/"), disk).map(|namespace| namespace.and_then(|namespace| namespace.health()))
}

/// Reads the drive health of jobs that are about to begin. An error message in `said` is not repeated: of several jobs
/// on a drive only the first reports it.
pub(super) fn health_before(jobs: &mut [PreparedJob], health_of: HealthOf, said: &mut Vec<String>) {
    for job in jobs {
        // Other drives have no such log, so nothing is missing there.
        match job.device().and_then(health_of) {
            Some(Ok(health)) => job.drive.health = Some((health, health)),
            Some(Err(error)) => {
                let why = no_answer("thermal throttling", &error);
                if !said.contains(&why) {
                    job.missing.push(why.clone());
                    said.push(why);
                }
            }
            None => {}
        }
    }
}

impl PreparedJob {
    /// The drive's state when the job is over, and what is missing from it.
    pub(super) fn drive(
        &self,
        written: Vec<SeriesInterval>,
        health_of: Option<HealthOf>,
    ) -> (Drive, Vec<String>) {
        let (mut drive, mut missing) = (Drive { written, ..self.drive.clone() }, self.missing.clone());
        if let Some((before, _)) = drive.health {
            drive.health = match health_of.zip(self.device()).and_then(|(of, disk)| of(disk)) {
                Some(Ok(after)) => Some((before, after)),
                Some(Err(error)) => {
                    missing.push(no_answer("thermal throttling", &error));
                    None
                }
                None => None,
            };
        }
        (drive, missing)
    }

    fn namespace(&self) -> Option<io::Result<Namespace>> {
        Namespace::open(Path::new("/"), self.device()?)
    }

    /// None where this run filled the target, so that its content is known.
    fn sampled(&self, stop: &AtomicBool) -> Result<Option<BlockCounts>, String> {
        let mut regions: Vec<(&GuardedTarget, Region)> = Vec::new();
        for (at, (opened, target)) in self.opened.iter().zip(&self.job.targets).enumerate() {
            if let Target::Scratch { .. } = target {
                continue;
            }
            if self.job.engine == Engine::IoUringCmd {
                return Err(format!(
                    "{} takes only commands; name its block device to have it sampled",
                    opened.name
                ));
            }
            if opened.is_device && !self.job.direct {
                return Err(format!(
                    "blocks of {} are not sampled, as that would fill the page cache",
                    opened.name
                ));
            }
            for region in self.regions.iter().filter_map(|regions| regions.get(at)) {
                // Most threads share one region.
                if !regions.iter().any(|(one, known)| std::ptr::eq(*one, opened.as_ref()) && known == region)
                {
                    regions.push((opened, *region));
                }
            }
        }
        if regions.is_empty() {
            return Ok(None);
        }
        let sampled = sample(&regions, self.job.direct, stop).map_err(|error| reason(&error))?;
        // Where only the file system was asked and it has data everywhere, the samples say nothing.
        Ok((sampled.samples > sampled.unread).then_some(sampled))
    }

    /// Whether the job's throughput consists only of direct writes to the target.
    pub(super) fn only_writes(&self) -> bool {
        matches!(self.job.rw, Pattern::Write | Pattern::RandWrite)
            && self.job.direct
            && !self.job.moves_nothing()
    }
}

fn no_answer(what: &str, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; run as root",
        _ => "",
    };
    format!("{what}: the drive cannot be queried: {}{remedy}", reason(error))
}

/// Tracks the bytes that a job writes while it runs.
pub(super) struct WriteTracker<'a> {
    /// The job's threads; empty unless the job only writes.
    done: &'a [ThreadProgress],
    begin_ns: u64,
    at_ns: u64,
    bytes: u64,
    series: Series,
}

impl<'a> WriteTracker<'a> {
    pub fn new(job: &PreparedJob, done: &'a [ThreadProgress]) -> Self {
        let now = clock::now_ns();
        let done = if job.only_writes() { done } else { &[] };
        Self { done, begin_ns: now, at_ns: now, bytes: 0, series: Series::default() }
    }

    /// Adds what was written since the last call.
    pub fn look(&mut self, now: u64) {
        if self.done.is_empty() {
            return;
        }
        let bytes: u64 = self.done.iter().map(|done| done.bytes.load(Ordering::Relaxed)).sum();
        match bytes.checked_sub(self.bytes) {
            // Until the first write completes, the threads have not begun.
            Some(_) if self.bytes == 0 && bytes == 0 => self.begin_ns = now,
            Some(grown) => self.series.add(SeriesInterval { duration_ns: now - self.at_ns, bytes: grown }),
            // The count fell because a ramp ended; writes of the ramp do not count.
            None => (self.begin_ns, self.series) = (now, Series::default()),
        }
        (self.at_ns, self.bytes) = (now, bytes);
    }

    /// All intervals up to when the first thread was done: after that fewer threads wrote.
    pub fn until(self, end_ns: u64) -> Vec<SeriesInterval> {
        let mut at = self.begin_ns;
        let is_before = |one: &SeriesInterval| {
            at += one.duration_ns;
            at <= end_ns
        };
        self.series.intervals().into_iter().take_while(is_before).collect()
    }
}
