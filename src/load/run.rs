//! Runs prepared jobs: starts all their threads together, and jobs behind a stonewall when those above them are over.

use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::drive::{WriteTracker, health_before};
use super::guard::GuardedTarget;
use super::job::{Job, Placement};
use super::prepare::{Phase, PreparedJob, PreparedJobs, Progress, Rates};
use super::ring_workers::{self, Meter};
use super::worker::{
    self, Control, Ends, Gates, Meeting, Ready, ThreadOutcome, ThreadPlan, ThreadProgress, circles,
};
use super::{JobResult, LoadSummary, RingWorkers, SeriesInterval, cpus};
use crate::clock;
use crate::refusal::{Refusal, reason};
use crate::wire::generator::WireGenerator;

/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The result of a round of jobs: per job the outcomes and the bytes written per interval; and the CPU time of
/// io_uring's workers.
type RoundResult = (Vec<(Vec<ThreadOutcome>, Vec<SeriesInterval>)>, Result<RingWorkers, &'static str>);

impl PreparedJobs {
    /// Runs the load until its time is over or `stop` is set, then drains. Returns a summary per job.
    ///
    /// Failed operations are reported in the summaries, not as an error: print what was measured, then call
    /// [`LoadSummary::untrusted`]. In `places` the threads publish their submit and reap stamps for the latency
    /// programs; empty: no program reads them.
    ///
    /// Scratch files are deleted when the jobs are dropped, which causes I/O of its own.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        progress: &dyn Fn(Progress),
        places: &[WireGenerator],
    ) -> Result<Vec<LoadSummary>> {
        let mut jobs = std::mem::take(&mut self.jobs);
        let summaries = self.rounds(&mut jobs, stop, progress, places);
        if summaries.is_err() && !self.begun.get() {
            jobs.iter().flat_map(|job| &job.opened).for_each(|one| one.undo());
        }
        self.jobs = jobs;
        summaries
    }

    /// Runs all jobs, those behind a stonewall when the others have ended.
    fn rounds(
        &self,
        jobs: &mut [PreparedJob],
        stop: &AtomicBool,
        progress: &dyn Fn(Progress),
        places: &[WireGenerator],
    ) -> Result<Vec<LoadSummary>> {
        let mut summaries = Vec::with_capacity(jobs.len());
        let exitall = jobs.iter().any(|job| job.job.exitall);
        let mut all_over = false;
        let mut rest = jobs;
        let mut said = Vec::new();
        while !rest.is_empty() {
            let behind = rest.iter().skip(1).position(|job| job.job.stonewall);
            let (round, later) = rest.split_at_mut(behind.map_or(rest.len(), |n| n + 1));
            // Earlier events do not belong to this round.
            if let Some(health_of) = self.health_of {
                health_before(round, health_of, &mut said);
            }
            let round = &*round;
            let its: Vec<&Job> = round.iter().map(|job| &job.job).collect();
            let control = Control::new(&its, exitall);
            if all_over {
                (0..its.len()).for_each(|job| control.exit(job).store(true, Ordering::Relaxed));
            }
            let (outcomes, ring_workers) = self.round(round, stop, &control, progress, places)?;
            all_over |= control.is_all_over();
            for (job, (outcomes, written)) in round.iter().zip(outcomes) {
                summaries.push(self.summary(job, outcomes, written, ring_workers, round.len() == 1));
            }
            rest = later;
        }
        Ok(summaries)
    }

    /// Same as [`PreparedJobs::run`], where there is one job.
    pub fn run_one(
        &mut self,
        stop: &AtomicBool,
        progress: &dyn Fn(Progress),
        places: &[WireGenerator],
    ) -> Result<LoadSummary> {
        self.run(stop, progress, places)?.pop().context("a job has a summary")
    }

    /// Sets another seed, and so another order of blocks, for the next run of random jobs.
    pub fn reseed(&mut self, seed: u64) {
        self.jobs.iter_mut().for_each(|job| job.job.seed = seed);
    }

    fn summary(
        &self,
        job: &PreparedJob,
        outcomes: Vec<ThreadOutcome>,
        written: Vec<SeriesInterval>,
        ring_workers: Result<RingWorkers, &'static str>,
        alone: bool,
    ) -> LoadSummary {
        // A thread that ended during its ramp has no measured time either.
        let is_counted = |outcome: &&ThreadOutcome| {
            let (first, last) = (outcome.first_submit_ns, outcome.last_reap_ns);
            first > 0 && (job.job.ramp_time.is_zero() || last > first)
        };
        let begun = || outcomes.iter().filter(is_counted);
        let first = begun().map(|o| o.first_submit_ns).min().unwrap_or(0);
        let last = begun().map(|o| o.last_reap_ns).max().unwrap_or(0);
        let mut missing = self.missing.clone();
        missing.extend(job.setup.iter().flat_map(|setup| setup.missing.clone()));
        match ring_workers {
            Err(why) => missing.push(format!(
                "CPU time of io_uring's worker threads is missing from the CPU figures: {why}"
            )),
            Ok(workers) if !alone && workers.threads > 0 => missing.push(
                "CPU time of io_uring's worker threads is missing from the CPU figures: parallel jobs \
                 share these threads"
                    .to_string(),
            ),
            Ok(_) => {}
        }
        let (drive, unseen) = job.drive(written, self.health_of);
        let clock = outcomes.iter().filter_map(|outcome| outcome.clock).max_by_key(|clock| clock.error_ns);
        let vanished = job.opened.iter().any(|one| is_gone(one));
        let mut jobs = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            for line in outcome.missing {
                if !missing.contains(&line) {
                    missing.push(line);
                }
            }
            jobs.push(JobResult { vanished, ..outcome.result });
        }
        missing.extend(unseen);
        let mut summary = LoadSummary {
            job: job.job.clone(),
            target: job.target(),
            device: job.device().map(str::to_string),
            size: job.size(),
            fill: job.fill,
            duration_ns: last.saturating_sub(first),
            jobs,
            ring_workers: ring_workers.ok().filter(|workers| alone || workers.threads == 0),
            drive,
            clock,
            missing,
        };
        let ended = summary.ended_in_the_ramp();
        if ended > 0 {
            let (all, ramp) = (summary.jobs.len(), job.job.ramp_time);
            summary.missing.push(format!(
                "figures of {ended} of {all} threads: they ended before the ramp of {ramp:?}, so nothing \
                 of them was counted"
            ));
        }
        summary
    }

    /// Runs jobs concurrently.
    fn round(
        &self,
        jobs: &[PreparedJob],
        stop: &AtomicBool,
        control: &Control,
        progress: &dyn Fn(Progress),
        shared: &[WireGenerator],
    ) -> Result<RoundResult> {
        let threads: usize = jobs.iter().map(|job| job.job.numjobs as usize).sum();
        let done: Vec<ThreadProgress> = (0..threads).map(|_| ThreadProgress::default()).collect();
        let runtime_ns = jobs.iter().map(|job| total_ns(&job.job)).max().unwrap_or(u64::MAX);
        let gates = Gates::default();
        let (meetings, circle) = meetings(jobs, control);
        let own: Vec<Meeting> = jobs.iter().map(|job| Meeting::new(job.job.numjobs)).collect();
        thread::scope(|scope| {
            let (told, tellings) = mpsc::channel();
            let mut workers = Vec::with_capacity(threads);
            let mut done_of = done.iter();
            let mut before = 0;
            for (place, ((job, circle), own)) in jobs.iter().zip(circle).zip(&own).enumerate() {
                let ends = Ends { stop, exit: control.exit(place) };
                for (number, done) in (0..job.job.numjobs).zip(&mut done_of) {
                    let plan = ThreadPlan {
                        job: &job.job,
                        number,
                        cpus: cpus_of(job, before + number as usize, number as usize),
                        places: &job.places,
                        regions: &job.regions[number as usize],
                        others: &meetings[circle],
                        own,
                        control,
                        place,
                        round_ns: 0,
                        setup: job.setup.as_ref(),
                        run: self.run,
                        counter: self.counter,
                        shared,
                    };
                    let (gates, told) = (&gates, told.clone());
                    let worker = thread::Builder::new().name(format!("load-{number}"));
                    match worker.spawn_scoped(scope, move || worker::run(plan, ends, gates, told, done)) {
                        Ok(worker) => workers.push(worker),
                        Err(error) => {
                            gates.begin.open(false);
                            return Err(Refusal::Refused(format!(
                                "cannot start thread {number} of the load: {}; choose fewer --numjobs",
                                reason(&error)
                            ))
                            .into());
                        }
                    }
                }
                before += job.job.numjobs as usize;
            }
            drop(told);
            // Waits for all workers, so that each failure is reported before any worker begins.
            let all_ready = workers.iter().filter(|_| tellings.recv() != Ok(Ready(true))).count() == 0;
            let mut meter = Meter::begin(Path::new(ring_workers::TASKS));
            self.begun.set(self.begun.get() || all_ready);
            gates.begin.open(all_ready);
            let mut rest = done.as_slice();
            let mut writers: Vec<WriteTracker<'_>> = Vec::with_capacity(jobs.len());
            for job in jobs {
                let (its, others) = rest.split_at(job.job.numjobs as usize);
                writers.push(WriteTracker::new(job, its));
                rest = others;
            }
            watch(&tellings, &done, runtime_ns, &mut meter, &mut writers, progress);
            // Nothing is in flight any more, and no worker thread has exited.
            meter.look();
            gates.end.open(true);
            // All threads are joined before the first error is returned.
            let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            let outcomes: Result<Vec<ThreadOutcome>> = joined
                .into_iter()
                .map(|end| end.map_err(|_| anyhow!("a worker of the load panicked"))?)
                .collect();
            let mut outcomes = outcomes?.into_iter();
            let of_job = |(job, writer): (&PreparedJob, WriteTracker<'_>)| {
                let its: Vec<ThreadOutcome> = outcomes.by_ref().take(job.job.numjobs as usize).collect();
                let end = its.iter().map(|outcome| outcome.last_reap_ns).min().unwrap_or(0);
                (its, writer.until(end))
            };
            let by_job = jobs.iter().zip(writers).map(of_job).collect();
            Ok((by_job, meter.end()))
        })
    }
}

/// Groups jobs that write the same bytes, so that they wait for each other before they read back. Returns the meetings,
/// and the index of each job's meeting.
fn meetings(jobs: &[PreparedJob], control: &Control) -> (Vec<Meeting>, Vec<usize>) {
    let written: Vec<Vec<WrittenRange>> = jobs.iter().map(written).collect();
    let meet = |first: usize, second: usize| {
        written[first].iter().any(|one| written[second].iter().any(|other| one.overlaps(other)))
    };
    let circle = circles(jobs.len(), meet);
    let threads = |of: usize| {
        // A job that waits for another joins when it begins.
        let its = (0..jobs.len()).filter(|at| circle[*at] == of && !control.waits(*at));
        its.map(|at| jobs[at].job.numjobs).sum()
    };
    ((0..jobs.len()).map(|of| Meeting::new(threads(of))).collect(), circle)
}

/// A part of a file that a thread may write.
struct WrittenRange {
    file: (u64, u64),
    begin: u64,
    end: u64,
}

impl WrittenRange {
    fn overlaps(&self, other: &Self) -> bool {
        self.file == other.file && self.begin < other.end && other.begin < self.end
    }
}

/// The parts that the threads of a job may write; empty for a job that only reads.
fn written(job: &PreparedJob) -> Vec<WrittenRange> {
    let threads = job.regions.iter().filter(|_| job.job.rw.writes());
    let parts = threads.flat_map(|regions| job.opened.iter().zip(regions));
    parts
        .filter_map(|(one, region)| {
            let file = one.file.metadata().ok()?;
            let (begin, end) = (region.begin, region.begin + region.bytes);
            Some(WrittenRange { file: (file.dev(), file.ino()), begin, end })
        })
        .collect()
}

/// Whether a disk was removed: its size is 0.
fn is_gone(one: &GuardedTarget) -> bool {
    let is_disk = one.file.metadata().is_ok_and(|file| file.file_type().is_block_device());
    is_disk && one.bytes > 0 && (&one.file).seek(SeekFrom::End(0)).is_ok_and(|bytes| bytes == 0)
}

/// The maximum duration of a job; `u64::MAX` without a limit.
fn total_ns(job: &super::Job) -> u64 {
    let before = nanoseconds(job.ramp_time).saturating_add(nanoseconds(job.startdelay));
    job.runtime.map_or(u64::MAX, |time| nanoseconds(time).saturating_add(before))
}

/// Nanoseconds of a user-defined time.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The CPUs of a thread: `number` counts within its job, `index` over all jobs that run concurrently.
fn cpus_of(job: &PreparedJob, index: usize, number: usize) -> Vec<u32> {
    let place = match job.job.placement {
        Placement::Cpus { split: false, .. } | Placement::Nodes(_) => return job.cpus.clone(),
        Placement::Cpus { split: true, .. } => number,
        // Concurrent jobs share one order.
        _ => index,
    };
    job.cpus.get(place % job.cpus.len().max(1)).into_iter().copied().collect()
}

/// Reports progress until the last worker has dropped its end of the channel.
fn watch(
    tellings: &mpsc::Receiver<Ready>,
    done: &[ThreadProgress],
    runtime_ns: u64,
    meter: &mut Meter,
    writers: &mut [WriteTracker<'_>],
    progress: &dyn Fn(Progress),
) {
    let begin = clock::now_ns();
    let mut then = ThreadTotals::now(done);
    let mut look = begin + ring_workers::EVERY_NS;
    while tellings.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
        let now_seen = ThreadTotals::now(done);
        let now = now_seen.at_ns;
        let rates = (now_seen.operations > 0).then(|| now_seen.since(&then));
        progress(Progress {
            phase: Phase::Run,
            done: (now - begin).min(runtime_ns),
            total: runtime_ns,
            rates,
        });
        then = now_seen;
        writers.iter_mut().for_each(|writer| writer.look(now));
        if now >= look {
            meter.look();
            look = now + ring_workers::EVERY_NS;
        }
    }
}

/// Totals of all threads at one time.
struct ThreadTotals {
    at_ns: u64,
    operations: u64,
    bytes: u64,
    submits: u64,
    cpu_ns: u64,
}

impl ThreadTotals {
    fn now(done: &[ThreadProgress]) -> Self {
        let sum =
            |of: fn(&ThreadProgress) -> &AtomicU64| done.iter().map(|d| of(d).load(Ordering::Relaxed)).sum();
        let usage = cpus::process_usage();
        Self {
            at_ns: clock::now_ns(),
            operations: sum(|done| &done.operations),
            bytes: sum(|done| &done.bytes),
            submits: sum(|done| &done.submits),
            cpu_ns: usage.user_ns + usage.system_ns,
        }
    }

    /// The totals fall when a ramp ends; the rates of that interval are 0.
    fn since(&self, then: &Self) -> Rates {
        let operations = self.operations.saturating_sub(then.operations);
        let bytes = self.bytes.saturating_sub(then.bytes);
        let duration_ns = (self.at_ns - then.at_ns).max(1);
        let seconds = duration_ns as f64 / 1e9;
        let submits = self.submits.saturating_sub(then.submits);
        Rates {
            operations,
            bytes,
            duration_ns,
            iops: operations as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            ios_per_submit: (submits > 0).then(|| operations as f64 / submits as f64),
            cpu_percent: self.cpu_ns.saturating_sub(then.cpu_ns) as f64 / seconds / 1e7,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::io;
    use std::sync::Arc;

    use super::super::drive::HealthOf;
    use super::*;
    use crate::host::nvme::Health;
    use crate::load::guard::Permission;
    use crate::load::{Job, Target, prepare};

    thread_local! {
        /// How often the drive's health was read.
        static ASKED: Cell<u32> = const { Cell::new(0) };
    }

    /// A drive whose throttle count rises by one at each read.
    fn ailing(_disk: &str) -> Option<io::Result<Health>> {
        let times = ASKED.get();
        ASKED.set(times + 1);
        Some(Ok(Health { transitions: [Some(times), None], ..Health::default() }))
    }

    /// Runs jobs that read a small file each, as if it were on an NVMe drive. `stonewalls` says for each job whether it
    /// waits for those above it.
    fn run(test: &str, stonewalls: &[bool], health_of: HealthOf) -> Vec<LoadSummary> {
        let directory = std::env::temp_dir().join(format!("biopsy-run-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let job = |(number, stonewall): (usize, &bool)| {
            let path = directory.join(number.to_string());
            fs::write(&path, [1; 8192]).unwrap();
            Job { stonewall: *stonewall, ..Job::fio_defaults(Target::Existing(path)) }
        };
        let jobs: Vec<Job> = stonewalls.iter().enumerate().map(job).collect();
        let stop = AtomicBool::new(false);
        let mut prepared = prepare(&jobs, &Permission::default(), &stop, &|_| ()).unwrap();
        for job in &mut prepared.jobs {
            Arc::get_mut(&mut job.opened[0]).unwrap().device = Some("nvme0n1".to_string());
        }
        prepared.health_of = Some(health_of);
        let summaries = prepared.run(&stop, &|_| (), &[]).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        summaries
    }

    #[test]
    fn the_health_before_a_section_is_that_of_its_own_beginning() {
        let seen: Vec<_> = run("health", &[false, false, true], ailing)
            .iter()
            .map(|summary| {
                summary.drive.health.map(|(before, after)| (before.transitions[0], after.transitions[0]))
            })
            .collect();
        // The first two run concurrently.
        let expected = [(0, 2), (1, 3), (4, 5)].map(|(before, after)| Some((Some(before), Some(after))));
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_drive_that_cannot_be_asked_is_named_once() {
        let summaries =
            run("mute", &[false, true], |_| Some(Err(io::Error::from_raw_os_error(libc::EACCES))));
        let is_named = |summary: &LoadSummary| {
            assert_eq!(summary.drive.health, None);
            summary.missing.iter().any(|why| why.contains("thermal throttling") && why.contains("root"))
        };
        assert_eq!(summaries.iter().map(is_named).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let then = ThreadTotals { at_ns: 0, operations: 100, bytes: 1_000, submits: 10, cpu_ns: 0 };
        let now = ThreadTotals {
            at_ns: 500_000_000,
            operations: 1_100,
            bytes: 9_000,
            submits: 260,
            cpu_ns: 250_000_000,
        };
        let expected = Rates {
            operations: 1_000,
            bytes: 8_000,
            duration_ns: 500_000_000,
            iops: 2_000.0,
            bytes_per_second: 16_000.0,
            ios_per_submit: Some(4.0),
            cpu_percent: 50.0,
        };
        assert_eq!(now.since(&then), expected);
        let idle = ThreadTotals { at_ns: 1_000_000_000, ..now };
        assert_eq!(idle.since(&ThreadTotals { at_ns: 500_000_000, ..idle }).ios_per_submit, None);
    }
}
