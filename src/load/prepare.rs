//! From a job to a summary: everything is checked and made first, then all workers begin together.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::buffers::PAGE;
use super::pattern::Offsets;
use super::ring::{Ring, Setup};
use super::ring_workers::{self, Meter};
use super::worker::{self, Done, Gates, Outcome, Plan, Ready};
use super::{Fill, Job, LoadSummary, RingWorkers, Target, cpus, direct, guard, scratch};
use crate::clock;
use crate::refusal::{Refusal, reason};

/// How often the caller hears how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The scratch file is filled; in bytes.
    Fill,
    /// The load runs; in nanoseconds.
    Run,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    pub done: u64,
    pub total: u64,
    /// Operations per second since the last report; None where nothing runs yet.
    pub iops: Option<f64>,
}

/// A job whose target is open, checked and filled.
#[derive(Debug)]
pub struct Prepared {
    job: Job,
    file: File,
    target: String,
    device: Option<String>,
    blocks: u64,
    fill: Option<Fill>,
    setup: Setup,
}

/// Opens and checks the target, or makes and fills the scratch file; changes nothing that was there.
///
/// Every refusal that can be known before the run is found here, those without any I/O first.
pub fn prepare(job: &Job, stop: &AtomicBool, progress: &dyn Fn(Progress)) -> Result<Prepared> {
    enough_memory(job)?;
    let setup = Setup::probe(job.hipri)?;
    let (file, target, device, blocks, fill);
    match &job.target {
        Target::Existing(path) => {
            let opened = guard::existing(path)?;
            blocks = guard::blocks(&opened.name, opened.bytes, opened.block, job.size, job.bs)?;
            pollable(job, opened.device.as_deref(), &opened.name)?;
            (file, target, device, fill) = (opened.file, opened.name, opened.device, None);
        }
        Target::Scratch { directory, bytes } => {
            let facts;
            (file, facts) = scratch::create(directory, *bytes)?;
            target = format!("scratch file in {}", directory.display());
            blocks = guard::blocks(&target, *bytes, facts.block, job.size, job.bs)?;
            pollable(job, facts.device.as_deref(), &target)?;
            let report = |done, total| progress(Progress { phase: Phase::Fill, done, total, iops: None });
            fill = Some(scratch::fill(&file, directory, *bytes, &facts, stop, &report)?);
            device = facts.device;
        }
    }
    if job.hipri {
        try_polled(&setup, &file, job, &target)?;
    }
    Ok(Prepared { job: job.clone(), file, target, device, blocks, fill, setup })
}

/// Whether the driver has poll queues, where sysfs tells. Older kernels take polled reads all the same,
/// and bring them by interrupts.
fn pollable(job: &Job, device: Option<&str>, target: &str) -> Result<(), Refusal> {
    match device {
        Some(disk) if job.hipri && !direct::has_poll_queues(Path::new("/"), disk) => Err(unpollable(target)),
        _ => Ok(()),
    }
}

/// Some file systems cannot poll although the device below could, and only the first read tells.
fn try_polled(setup: &Setup, file: &File, job: &Job, target: &str) -> Result<()> {
    let bs = u32::try_from(job.bs).context("the block size was checked")?;
    let (mut ring, _) = Ring::new(setup, file.as_fd(), 1, bs)?;
    let mut session = ring.session();
    let mut answer = 0;
    session.queue(0, 0);
    while session.in_flight() > 0 {
        match session.enter() {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => return Err(e.into()),
            _ => session.reap(|_, result| answer = result),
        };
    }
    if answer == -libc::EOPNOTSUPP { Err(unpollable(target).into()) } else { Ok(()) }
}

fn unpollable(target: &str) -> Refusal {
    Refusal::Refused(format!(
        "reads of {target} cannot be polled, since nothing below it has poll queues (EOPNOTSUPP): give the driver \
         some (nvme.poll_queues=N when the machine starts, or when the module is loaded), or leave out --hipri"
    ))
}

impl Prepared {
    /// The whole disk below the target; None where there is none.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Bytes that the offsets cover.
    pub fn size(&self) -> u64 {
        self.blocks * self.job.bs
    }

    /// What is read, for reports.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Making the scratch file; None for a target that was there.
    pub fn fill(&self) -> Option<Fill> {
        self.fill
    }

    /// Drives the load until its time is over or `stop` is set, then drains.
    ///
    /// Failed reads are in the summary and no error here: print what was measured, then ask
    /// [`LoadSummary::untrusted`].
    pub fn run(self, stop: &AtomicBool, progress: &dyn Fn(Progress)) -> Result<LoadSummary> {
        let size = self.size();
        let (outcomes, ring_workers) = self.drive(stop, progress)?;
        let first = outcomes.iter().map(|o| o.first_submit_ns).min().unwrap_or(0);
        let last = outcomes.iter().map(|o| o.last_reap_ns).max().unwrap_or(0);
        let mut missing = self.setup.missing;
        if let Err(why) = ring_workers {
            missing
                .push(format!("CPU time of io_uring's worker threads: {why}; it is not in the CPU figures"));
        }
        let mut jobs = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            for line in outcome.missing {
                if !missing.contains(&line) {
                    missing.push(line);
                }
            }
            jobs.push(outcome.result);
        }
        Ok(LoadSummary {
            target: self.target,
            device: self.device,
            rw: self.job.rw,
            hipri: self.job.hipri,
            bs: self.job.bs,
            iodepth: self.job.iodepth,
            numjobs: self.job.numjobs,
            size,
            fill: self.fill,
            duration_ns: last.saturating_sub(first),
            jobs,
            ring_workers: ring_workers.ok(),
            missing,
        })
    }

    fn drive(
        &self,
        stop: &AtomicBool,
        progress: &dyn Fn(Progress),
    ) -> Result<(Vec<Outcome>, Result<RingWorkers, &'static str>)> {
        let job = &self.job;
        let cpus = cpus::allowed();
        let bs = u32::try_from(job.bs).context("the block size was checked")?;
        let runtime_ns = u64::try_from(job.runtime.as_nanos()).unwrap_or(u64::MAX);
        let done: Vec<Done> = (0..job.numjobs).map(|_| Done::default()).collect();
        let gates = Gates::default();
        thread::scope(|scope| {
            let (told, tellings) = mpsc::channel();
            let mut workers = Vec::with_capacity(done.len());
            for (number, done) in (0..job.numjobs).zip(&done) {
                let plan = Plan {
                    number,
                    cpu: cpus.get(number as usize % cpus.len().max(1)).copied(),
                    file: self.file.as_fd(),
                    setup: &self.setup,
                    offsets: Offsets::new(job.rw, job.bs, self.blocks, number, job.numjobs, job.seed),
                    bs,
                    iodepth: job.iodepth,
                    runtime_ns,
                };
                let (gates, told) = (&gates, told.clone());
                let worker = thread::Builder::new().name(format!("load-{number}"));
                match worker.spawn_scoped(scope, move || worker::run(plan, stop, gates, told, done)) {
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
            drop(told);
            // All of them, so that each failure is heard before anybody begins.
            let all_ready = workers.iter().filter(|_| tellings.recv() != Ok(Ready(true))).count() == 0;
            let mut meter = Meter::begin(Path::new(ring_workers::TASKS));
            gates.begin.open(all_ready);
            watch(&tellings, &done, runtime_ns, &mut meter, progress);
            // Nothing is in flight any more, and no worker's thread has ended.
            meter.look();
            gates.end.open(true);
            // All are joined before the first error is looked at.
            let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            let outcomes: Result<_> = joined
                .into_iter()
                .map(|end| end.map_err(|_| anyhow!("a worker of the load panicked"))?)
                .collect();
            Ok((outcomes?, meter.end()))
        })
    }
}

/// Reports until the last worker has dropped its end of the channel.
fn watch(
    tellings: &mpsc::Receiver<Ready>,
    done: &[Done],
    runtime_ns: u64,
    meter: &mut Meter,
    progress: &dyn Fn(Progress),
) {
    let begin = clock::now_ns();
    let (mut then, mut before) = (begin, 0);
    let mut look = begin + ring_workers::EVERY_NS;
    while tellings.recv_timeout(PROGRESS_EVERY) == Err(RecvTimeoutError::Timeout) {
        let now = clock::now_ns();
        let operations: u64 = done.iter().map(|d| d.0.load(Ordering::Relaxed)).sum();
        let iops = (operations - before) as f64 * 1e9 / (now - then).max(1) as f64;
        let elapsed = (now - begin).min(runtime_ns);
        progress(Progress {
            phase: Phase::Run,
            done: elapsed,
            total: runtime_ns,
            iops: (operations > 0).then_some(iops),
        });
        (then, before) = (now, operations);
        if now >= look {
            meter.look();
            look = now + ring_workers::EVERY_NS;
        }
    }
}

/// All buffers are pinned memory: refuse what would push the machine into reclaim, which is not what
/// is to be measured.
fn enough_memory(job: &Job) -> Result<(), Refusal> {
    let slots = u64::from(job.iodepth) * u64::from(job.numjobs);
    let bytes = job.bs.next_multiple_of(PAGE as u64).saturating_mul(slots);
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    match available {
        Some(available) if bytes > available / 2 => Err(Refusal::Usage(format!(
            "the buffers need {bytes} bytes (bs x iodepth x numjobs), more than half of the {available} bytes of \
             available memory: choose a smaller --bs, --iodepth or --numjobs"
        ))),
        _ => Ok(()),
    }
}

/// `MemAvailable` of `/proc/meminfo` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
    }
}
