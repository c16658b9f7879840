//! Prepares jobs for the run: checks everything, opens the targets and creates files.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

use super::buffers::PAGE;
use super::drive::{Drive, HealthOf};
use super::engine::{Engine, OpenTarget};
use super::guard::{GuardedTarget, Permission};
use super::job::{self, Advice, Direction, Extent, Job, Placement, Target};
use super::placement::{self, Topology};
use super::random::seeded;
use super::ring::{Ring, Setup};
use super::sequence::{PlannedIo, Region, RegionTarget, Sequence, cut, region};
use super::targets::Targets;
use super::{Fill, cpus, direct, scratch, stamps};
use crate::clock;
use crate::host::{Host, cpu};
use crate::refusal::Refusal;

/// The phase in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The scratch file is filled; progress in bytes.
    Fill,
    /// The load runs; progress in nanoseconds.
    Run,
}

/// Progress of a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    pub phase: Phase,
    pub done: u64,
    pub total: u64,
    /// Rates since the last report; None before the load runs.
    pub rates: Option<Rates>,
}

/// Current rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The counts behind them.
    pub operations: u64,
    pub bytes: u64,
    pub duration_ns: u64,
    pub iops: f64,
    pub bytes_per_second: f64,
    /// None where nothing was submitted.
    pub ios_per_submit: Option<f64>,
    /// User and system time of the whole process, in percent of one CPU.
    pub cpu_percent: f64,
}

/// A job whose targets are open, checked and filled.
#[derive(Debug)]
pub struct PreparedJob {
    pub job: Job,
    /// Kept open while it runs.
    pub opened: Vec<Arc<GuardedTarget>>,
    pub places: Vec<OpenTarget>,
    /// What each thread may use of each target.
    pub regions: Vec<Vec<Region>>,
    /// In the order in which its threads get them.
    pub cpus: Vec<u32>,
    /// None: its engine is not io_uring.
    pub setup: Option<Setup>,
    pub fill: Option<Fill>,
    /// What is known of the drive so far, and what could not be read.
    pub drive: Drive,
    pub missing: Vec<String>,
}

/// Jobs that are ready to run.
#[derive(Debug)]
pub struct PreparedJobs {
    pub(super) jobs: Vec<PreparedJob>,
    /// Id of the run in the content that it writes.
    pub(super) run: u64,
    /// The time stamp counter can be used.
    pub(super) counter: bool,
    /// Reads the health of a drive; None: it is not read.
    pub(super) health_of: Option<HealthOf>,
    pub(super) missing: Vec<String>,
    /// A thread has begun to run the load, so created files stay.
    pub(super) begun: Cell<bool>,
}

/// Opens and checks the targets, or creates and fills scratch files; changes no existing data.
///
/// Every refusal that can be known before the run is found here, those without any I/O first.
pub fn prepare(
    jobs: &[Job],
    permission: &Permission,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<PreparedJobs> {
    prepare_again(jobs, permission, &mut ScratchFiles::default(), stop, progress)
}

/// Same as [`prepare`], for one of several runs: a scratch file is created and filled by the first run that needs it.
pub fn prepare_again(
    jobs: &[Job],
    permission: &Permission,
    scratch: &mut ScratchFiles,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<PreparedJobs> {
    scratch.0.iter_mut().for_each(|file| file.taken = false);
    if jobs.is_empty() {
        return Err(Refusal::Usage("no job: name a target".to_string()).into());
    }
    waitable(jobs)?;
    enough_memory(jobs)?;
    let mut missing = Vec::new();
    let counter = stamps::counter_is_trusted(Path::new("/"));
    if let Err(why) = counter {
        missing.push(format!("time stamp counter: {why}; clock_gettime is used"));
    }
    // Without sysfs all CPUs are equal.
    let host = Host::read(Path::new("/")).unwrap_or_default();
    let mut targets = Targets::default();
    let mut all = || -> Result<Vec<PreparedJob>> {
        targets.open(jobs, permission)?;
        // Before anything is filled.
        for job in jobs {
            for one in job.targets.iter().filter_map(|target| targets.get(target, job)) {
                (0..job.numjobs).try_for_each(|number| region(job, one.whole(), number).map(|_| ()))?;
            }
        }
        targets
            .fill(stop, &|done, total| progress(Progress { phase: Phase::Fill, done, total, rates: None }))?;
        let mut before = 0;
        let one = |job: &Job| {
            // Threads of different jobs use different sequences, as those of one job do.
            let seed = if before == 0 { job.seed } else { seeded(job.seed, before) };
            before += job.numjobs;
            let job = Job { seed, ..job.clone() };
            prepare_job(&job, &targets, scratch, &host, stop, progress)
        };
        jobs.iter().map(one).collect()
    };
    let prepared = all();
    if prepared.is_err() {
        // Nothing will be written to the created files.
        targets.undo();
    }
    let jobs = prepared?;
    let begun = Cell::new(false);
    Ok(PreparedJobs { jobs, run: clock::now_ns(), counter: counter.is_ok(), health_of: None, missing, begun })
}

/// The scratch files of consecutive runs. Each job of a run has its own.
#[derive(Debug, Default)]
pub struct ScratchFiles(Vec<ScratchFile>);

#[derive(Debug)]
struct ScratchFile {
    directory: PathBuf,
    opened: Arc<GuardedTarget>,
    /// In use by a job of this run.
    taken: bool,
    /// Its content is no longer that of the fill.
    written: bool,
}

impl ScratchFiles {
    /// Takes a file that fits the job. A job that only reads gets one with its original content. A job that trims uses
    /// it for the last time, because blocks without content are read without any I/O.
    fn take(&mut self, directory: &Path, bytes: u64, job: &Job) -> Option<Arc<GuardedTarget>> {
        let writes = job.rw.writes();
        let serves = |file: &&mut ScratchFile| {
            !file.taken
                && file.directory == directory
                && file.opened.bytes == bytes
                && (writes || !file.written)
        };
        if job.rw.has(Direction::Trim) {
            let at = self.0.iter_mut().position(|file| serves(&file))?;
            return Some(self.0.remove(at).opened);
        }
        let file = self.0.iter_mut().find(serves)?;
        file.taken = true;
        file.written |= writes;
        Some(Arc::clone(&file.opened))
    }

    /// Marks all as filled: what is in them by now is as good as the original content.
    pub(super) fn as_filled(&mut self) {
        self.0.iter_mut().for_each(|file| file.written = false);
    }

    /// Keeps a file that was created for the job, if it can serve another.
    fn keep(&mut self, directory: &Path, opened: &Arc<GuardedTarget>, job: &Job) {
        if !job.rw.has(Direction::Trim) {
            self.0.push(ScratchFile {
                directory: directory.to_path_buf(),
                opened: Arc::clone(opened),
                taken: true,
                written: job.rw.writes(),
            });
        }
    }
}

/// As in fio, a job can only wait for a job above it.
fn waitable(jobs: &[Job]) -> Result<(), Refusal> {
    for (at, job) in jobs.iter().enumerate() {
        let Some(waited) = &job.wait_for else { continue };
        if !jobs[..at].iter().any(|before| before.name == *waited && before.name != job.name) {
            return Err(Refusal::Usage(format!(
                "wait_for={} of job {}: no other job above it has this name; name one",
                waited.escape_debug(),
                job.name.escape_debug()
            )));
        }
    }
    Ok(())
}

fn prepare_job(
    job: &Job,
    targets: &Targets,
    scratch_files: &mut ScratchFiles,
    host: &Host,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<PreparedJob> {
    let setup = match job.engine {
        job::Engine::IoUring => Some(Setup::probe(job)?),
        _ => None,
    };
    // Refusals that need no access to the target.
    if let Placement::Cpus { .. } | Placement::Nodes(_) = job.placement {
        placement::cpus(&job.placement, job.smt, &topology(host, None))?;
    }
    let mut fill = None;
    let mut opened = Vec::new();
    for target in &job.targets {
        let one = match target {
            Target::Existing(_) => targets.get(target, job).context("every target was opened")?,
            Target::Scratch { directory, bytes } => match scratch_files.take(directory, *bytes, job) {
                Some(file) => file,
                None => {
                    let (file, facts) = scratch::create(directory, *bytes)?;
                    let name = format!("scratch file in {}", directory.display());
                    // Before it is filled.
                    region(
                        job,
                        RegionTarget { name: &name, bytes: *bytes, block: facts.block, is_device: false },
                        0,
                    )?;
                    pollable(job, facts.device.as_deref(), &name)?;
                    let report =
                        |done, total| progress(Progress { phase: Phase::Fill, done, total, rates: None });
                    fill = Some(scratch::fill(&file, directory, *bytes, &facts, stop, &report)?);
                    let opened = Arc::new(GuardedTarget::scratch(file, name, *bytes, facts));
                    scratch_files.keep(directory, &opened, job);
                    opened
                }
            },
        };
        region(job, one.whole(), 0)?;
        pollable(job, one.device.as_deref(), &one.name)?;
        opened.push(one);
    }
    let places: Vec<OpenTarget> =
        opened.iter().map(|one| OpenTarget { fd: one.file.as_raw_fd(), is_device: one.is_device }).collect();
    if let Some(setup) = setup.as_ref().filter(|_| job.hipri && !job.rw.writes()) {
        for (file, one) in opened.iter().enumerate() {
            try_polled(setup, &places, file as u16, job, &one.name)?;
        }
    }
    let of_thread = |number| -> Result<Vec<Region>, Refusal> {
        opened.iter().map(|one| region(job, one.whole(), number)).collect()
    };
    let regions = (0..job.numjobs).map(of_thread).collect::<Result<Vec<_>, _>>()?;
    let used: u64 = regions.first().into_iter().flatten().map(|region| region.moved).sum();
    let io_size = job.io_size.or(job.io_share.map(|share| Extent::Percent(share).of(used).max(1)));
    for (one, region) in opened.iter().zip(regions.first().into_iter().flatten()).filter(|_| !job.direct) {
        advise(&one.file, job, region);
    }
    let mut missing: Vec<String> = opened.iter().filter_map(|one| cut(job, one.whole())).collect();
    let uncovered = regions.first().map_or(0, |regions| Sequence::new(job, regions, 0).uncovered());
    if uncovered > 0 {
        missing.push(format!(
            "{uncovered} of {used} bytes: blocks of several sizes that are used once each leave them out, \
             so that each size keeps its share"
        ));
    }
    let device = opened.first().and_then(|one| one.device.as_deref());
    let cpus = placement::cpus(&job.placement, job.smt, &topology(host, device))?;
    Ok(PreparedJob {
        job: Job { io_size, ..job.clone() },
        places,
        regions,
        cpus,
        setup,
        fill,
        drive: Drive::default(),
        missing,
        opened,
    })
}

/// Advises the page cache of the access pattern and drops its pages; otherwise reads would be served from it. A failure
/// is ignored.
fn advise(file: &File, job: &Job, region: &Region) {
    let tell = |advice| {
        // SAFETY: the descriptor is open, and the rest are plain numbers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), region.begin as i64, region.bytes as i64, advice) }
    };
    if job.invalidate {
        tell(libc::POSIX_FADV_DONTNEED);
    }
    match (job.advice, job.rw.is_random()) {
        (Advice::Nothing, _) => 0,
        (Advice::Random, _) | (Advice::ByPattern, true) => tell(libc::POSIX_FADV_RANDOM),
        (Advice::Sequential, _) | (Advice::ByPattern, false) => tell(libc::POSIX_FADV_SEQUENTIAL),
    };
}

/// The machine's topology as seen from a disk.
fn topology(host: &Host, disk: Option<&str>) -> Topology {
    let allowed = cpus::allowed();
    let device = disk.and_then(|name| host.device(name));
    Topology {
        cores: cpu::cores(Path::new("/"), &allowed),
        allowed,
        nodes: host.nodes.clone(),
        device_node: device.and_then(|device| device.numa_node),
        queues: device
            .map(|device| device.queues.iter().map(|q| q.cpus.clone()).collect())
            .unwrap_or_default(),
    }
}

/// Refuses polling where sysfs says that the driver has no poll queues. Older kernels accept polled operations anyway
/// and complete them by interrupts.
fn pollable(job: &Job, device: Option<&str>, target: &str) -> Result<(), Refusal> {
    match device {
        Some(disk) if job.hipri && !direct::has_poll_queues(Path::new("/"), disk) => {
            Err(unpollable(job, target))
        }
        _ => Ok(()),
    }
}

/// Tries one polled read: some file systems cannot poll although the device could, and only the first read shows that.
fn try_polled(setup: &Setup, places: &[OpenTarget], file: u16, job: &Job, target: &str) -> Result<()> {
    let (mut ring, _) = Ring::new(setup, job, places)?;
    let mut answer = 0;
    let bytes = u32::try_from(job.smallest_block()).unwrap_or(0);
    ring.queue(0, &PlannedIo { direction: Direction::Read, file, bytes, offset: 0 });
    while ring.in_flight() > 0 {
        match ring.enter(1, None) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => return Err(e.into()),
            _ => ring.reap(|_, result| answer = result),
        };
    }
    if answer == -libc::EOPNOTSUPP { Err(unpollable(job, target).into()) } else { Ok(()) }
}

fn unpollable(job: &Job, target: &str) -> Refusal {
    let mut directions = job.directions();
    let what = match (directions.next(), directions.next()) {
        (Some(direction), None) => direction.plural(),
        _ => "operations",
    };
    Refusal::Refused(format!(
        "{what} of {target} cannot be polled: no device below it has poll queues (EOPNOTSUPP); give the \
         driver some (nvme.poll_queues=N at boot or module load), or leave out --hipri"
    ))
}

impl PreparedJobs {
    /// The whole disk below the first target; None where there is none.
    pub fn device(&self) -> Option<&str> {
        self.jobs.first()?.device()
    }

    /// The whole disks below the targets of all jobs, each once.
    pub fn devices(&self) -> Vec<String> {
        let opened = self.jobs.iter().flat_map(|job| &job.opened);
        let names: BTreeSet<&String> = opened.filter_map(|one| one.device.as_ref()).collect();
        names.into_iter().cloned().collect()
    }

    /// The targets, for reports.
    pub fn target(&self) -> String {
        self.jobs.first().map(PreparedJob::target).unwrap_or_default()
    }
}

impl PreparedJob {
    /// The whole disk below the first target; None where there is none.
    pub fn device(&self) -> Option<&str> {
        self.opened.first()?.device.as_deref()
    }

    /// The targets, for reports.
    pub fn target(&self) -> String {
        let names: Vec<&str> = self.opened.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    }

    /// Bytes that the offsets cover.
    pub fn size(&self) -> u64 {
        // Threads share the range, unless each begins elsewhere.
        self.regions.first().map_or(0, |regions| regions.iter().map(|region| region.bytes).sum())
    }
}

/// Refuses buffers that would push the machine into reclaim, because all buffers are pinned memory.
fn enough_memory(jobs: &[Job]) -> Result<(), Refusal> {
    let slots = |job: &Job| u64::from(job.iodepth) * u64::from(job.numjobs);
    let stride = |job: &Job| job.largest_block().checked_next_multiple_of(PAGE as u64).unwrap_or(u64::MAX);
    let bytes = jobs.iter().fold(0u64, |sum, job| sum.saturating_add(stride(job).saturating_mul(slots(job))));
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
