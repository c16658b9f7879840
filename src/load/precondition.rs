//! Preconditions a drive: writes it before the measurement, so that it is not measured fresh out of the box.
//!
//! First it fills the area that the jobs use, sequentially and in large blocks. Then it writes blocks of the jobs' own
//! size at random over the area, in consecutive rounds, until their IOPS are steady ([`RoundTrend`]), [`MOST_ROUNDS`]
//! are over, or the time is over. Each phase is a load of its own, which opens its targets through the guard.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::guard::Permission;
use super::job::{BlockSizes, Direction, Engine, Extent, Job, OnError, Pattern, Target};
use super::prepare::{self, Phase, PreparedJobs, Progress, ScratchFiles};
use super::run::nanoseconds;
use super::steady::RoundTrend;
use super::{Fill, SeriesInterval};
use crate::clock;
use crate::names::names;
use crate::refusal::Refusal;

/// SNIA's limit: a drive that is not steady by then is not waited for.
pub const MOST_ROUNDS: usize = 25;
/// Drives write at least this much at once.
const PHYSICAL: u64 = 4096;
/// Block size and queue depth of the fill.
const FILL_BYTES: u64 = 1 << 20;
const FILL_DEPTH: u32 = 8;
/// Commands that bypass the block layer are not split: every drive accepts this size.
const COMMAND_BYTES: u64 = 128 << 10;
/// Queue depth of the random writes.
const DEPTH: u32 = 32;
/// Block size of the random writes where the jobs move no data.
const USUAL_BYTES: u64 = 4096;
/// Through the page cache, writeback has to be forced: fsync after this many writes.
const SYNC_EVERY: u32 = 64;

/// Options of preconditioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preconditioning {
    /// Length of a round of random writes.
    pub round: Duration,
    /// Time limit of the whole preconditioning.
    pub limit: Duration,
}

/// One round of random writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteRound {
    pub operations: u64,
    pub bytes: u64,
    pub duration_ns: u64,
}

impl WriteRound {
    /// None for a round of length 0.
    pub fn iops(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.operations as f64 * 1e9 / self.duration_ns as f64)
    }
}

names! {
    /// Why it ended.
    pub enum PreconditionEnd {
        Steady = "steady",
        /// [`MOST_ROUNDS`] were over first.
        Rounds = "rounds",
        /// The time was over first.
        Time = "time",
    }
}

/// What was done before the load. With several targets all figures are sums.
#[derive(Debug, Clone, PartialEq)]
pub struct PreconditionResult {
    pub targets: Vec<String>,
    /// Bytes to fill.
    pub area: u64,
    pub fill: Fill,
    /// The fill per interval; empty where several targets were filled at once.
    pub written: Vec<SeriesInterval>,
    /// Largest block of the fill.
    pub fill_block: u64,
    /// Block sizes of the random writes, for the first target.
    pub block_sizes: BlockSizes,
    pub rounds: Vec<WriteRound>,
    /// The last rounds; None where there were too few.
    pub window: Option<RoundTrend>,
    pub end: PreconditionEnd,
    pub duration_ns: u64,
}

/// Fills what the jobs of these runs use, then writes it at random until that is steady. The scratch files of the runs
/// stay in `scratch` for later use.
pub fn precondition(
    runs: &[Vec<Job>],
    asked: &Preconditioning,
    permission: &Permission,
    scratch: &mut ScratchFiles,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<PreconditionResult> {
    let begin = clock::now_ns();
    let left = || asked.limit.saturating_sub(Duration::from_nanos(clock::now_ns() - begin));
    if permission.readonly {
        let why = "--precondition writes, and --readonly forbids it: leave out one of them";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let areas = areas(runs, permission, scratch, stop, progress)?;
    let area: u64 = areas.iter().map(Area::bytes).sum();

    let jobs: Vec<Job> = areas.iter().map(|area| area.fill(left())).collect();
    let fill_block = jobs.iter().map(Job::largest_block).max().unwrap_or(0);
    let moved = RefCell::new(0);
    let report = |now: Progress| {
        let mut moved = moved.borrow_mut();
        *moved += now.rates.map_or(0, |rates| rates.bytes);
        progress(Progress { phase: Phase::Fill, done: area.min(*moved), total: area, rates: None });
    };
    let filling = clock::now_ns();
    let loads = phase(&jobs, permission, scratch, stop, stop, &report)?;
    let fill = Fill {
        bytes: loads.iter().map(|load| load.bytes()).sum(),
        duration_ns: loads.iter().map(|load| load.duration_ns).max().unwrap_or(0),
    };
    let written = match loads.as_slice() {
        [load] => load.drive.written.clone(),
        _ => Vec::new(),
    };
    let mut done = PreconditionResult {
        targets: loads.into_iter().map(|load| load.target).collect(),
        area,
        fill,
        written,
        fill_block,
        block_sizes: areas.first().map(|area| area.sizes.clone()).context("a job has a target")?,
        rounds: Vec::new(),
        window: None,
        end: PreconditionEnd::Time,
        duration_ns: 0,
    };
    done.targets.dedup();
    if stop.load(Ordering::Relaxed) {
        return Err(stopped(&done));
    }

    if fill.bytes >= area && !left().is_zero() {
        let jobs: Vec<Job> = areas.iter().map(|area| area.random(left())).collect();
        let rounds = RefCell::new(Rounds::new(asked.round));
        let over = AtomicBool::new(false);
        let report = |now: Progress| {
            let mut rounds = rounds.borrow_mut();
            rounds.add(&now);
            if stop.load(Ordering::Relaxed) || rounds.end().is_some() {
                over.store(true, Ordering::Relaxed);
            }
            progress(now);
        };
        phase(&jobs, permission, scratch, stop, &over, &report)?;
        let rounds = rounds.into_inner();
        done.window = rounds.window();
        done.end = rounds.end().unwrap_or(PreconditionEnd::Time);
        done.rounds = rounds.whole;
    }
    if stop.load(Ordering::Relaxed) {
        return Err(stopped(&done));
    }
    done.duration_ns = clock::now_ns() - filling;
    scratch.as_filled();
    Ok(done)
}

/// Runs one phase. A failure ends it, because the content of the target is then unknown.
fn phase(
    jobs: &[Job],
    permission: &Permission,
    scratch: &mut ScratchFiles,
    stop: &AtomicBool,
    over: &AtomicBool,
    report: &dyn Fn(Progress),
) -> Result<Vec<super::LoadSummary>> {
    let quiet = |_| {};
    let mut prepared = prepare::prepare_again(jobs, permission, scratch, stop, &quiet)?;
    let loads = prepared.run(over, report, &[])?;
    match loads.iter().find_map(super::LoadSummary::untrusted) {
        Some(why) => Err(Refusal::Untrusted(format!("during preconditioning, {why}")).into()),
        None => Ok(loads),
    }
}

fn stopped(done: &PreconditionResult) -> anyhow::Error {
    let rounds = match done.rounds.len() {
        0 => String::new(),
        1 => " and 1 round of random writes".to_string(),
        n => format!(" and {n} rounds of random writes"),
    };
    Refusal::Refused(format!(
        "stopped during preconditioning of {}, after {} of {} bytes{rounds}: the load did not run, and \
         nothing was measured",
        done.targets.join(", "),
        done.fill.bytes,
        done.area
    ))
    .into()
}

/// Collects the rounds.
#[derive(Debug)]
struct Rounds {
    length_ns: u64,
    whole: Vec<WriteRound>,
    now: WriteRound,
}

impl Rounds {
    fn new(length: Duration) -> Self {
        let now = WriteRound { operations: 0, bytes: 0, duration_ns: 0 };
        Self { length_ns: nanoseconds(length).max(1), whole: Vec::new(), now }
    }

    fn add(&mut self, progress: &Progress) {
        // After its runtime the load only waits for what is in flight.
        let runs = progress.phase == Phase::Run && progress.done < progress.total;
        let Some(rates) = progress.rates.filter(|_| runs && self.end().is_none()) else { return };
        self.now.operations += rates.operations;
        self.now.bytes += rates.bytes;
        self.now.duration_ns += rates.duration_ns;
        if self.now.duration_ns >= self.length_ns {
            self.whole.push(self.now);
            self.now = WriteRound { operations: 0, bytes: 0, duration_ns: 0 };
        }
    }

    fn window(&self) -> Option<RoundTrend> {
        let iops: Vec<f64> = self.whole.iter().filter_map(WriteRound::iops).collect();
        RoundTrend::of(&iops)
    }

    /// None while more rounds follow.
    fn end(&self) -> Option<PreconditionEnd> {
        match self.window() {
            Some(window) if window.is_steady() => Some(PreconditionEnd::Steady),
            _ if self.whole.len() >= MOST_ROUNDS => Some(PreconditionEnd::Rounds),
            _ => None,
        }
    }
}

/// A part of a target that jobs use.
#[derive(Debug, Clone, PartialEq)]
struct Area {
    target: Target,
    /// Number among the unnamed files in the same directory.
    number: usize,
    begin: u64,
    end: u64,
    /// The target's logical block.
    block: u64,
    /// Block sizes of the random writes.
    sizes: BlockSizes,
    like: Job,
}

impl Area {
    fn bytes(&self) -> u64 {
        self.end - self.begin
    }

    /// The settings that both phases share: the jobs' own path to the target, and nothing that slows it down.
    fn job(&self, runtime: Duration) -> Job {
        let like = &self.like;
        Job {
            name: "precondition".to_string(),
            engine: match like.engine {
                Engine::Psync | Engine::Pvsync2 | Engine::Mmap | Engine::Null => Engine::Libaio,
                engine => engine,
            },
            runtime: Some(runtime),
            size: Some(Extent::Bytes(self.bytes())),
            offset: Extent::Bytes(self.begin),
            direct: like.direct,
            fdatasync: if like.direct { 0 } else { SYNC_EVERY },
            refill_buffers: true,
            placement: like.placement.clone(),
            memory_nodes: like.memory_nodes.clone(),
            seed: like.seed,
            on_error: OnError::Stop,
            registerfiles: matches!(like.engine, Engine::IoUring | Engine::IoUringCmd),
            fixedbufs: matches!(like.engine, Engine::IoUring | Engine::IoUringCmd),
            ..Job::new(self.target.clone())
        }
    }

    fn fill(&self, runtime: Duration) -> Job {
        let most = if self.like.engine == Engine::IoUringCmd { COMMAND_BYTES } else { FILL_BYTES };
        let mut job = Job { rw: Pattern::Write, iodepth: FILL_DEPTH, time_based: false, ..self.job(runtime) };
        // Most drives with 512-byte blocks use 4 KiB internally, which should not be written in parts.
        let whole = |bytes: u64| bytes.is_multiple_of(PHYSICAL);
        let unit =
            if whole(self.begin) && whole(self.bytes()) { self.block.max(PHYSICAL) } else { self.block };
        job.set_bs(fill_block(self.bytes(), unit, most));
        job
    }

    fn random(&self, runtime: Duration) -> Job {
        let mut job = Job { rw: Pattern::RandWrite, iodepth: DEPTH, ..self.job(runtime) };
        job.bs[Direction::Write.index()] = self.sizes.clone();
        job
    }
}

/// The largest block up to `most` that divides the area, so that its end is written too.
fn fill_block(bytes: u64, block: u64, most: u64) -> u64 {
    let block = block.max(1);
    let blocks = bytes / block;
    let divisor = (1..=(most / block).max(1)).rev().find(|n| blocks.is_multiple_of(*n));
    divisor.unwrap_or(1) * block
}

/// The areas that the jobs of all runs use, every byte once. Refusals of the runs are found here, before anything is
/// written. A refused run has no area; if all are refused, the first refusal is returned.
fn areas(
    runs: &[Vec<Job>],
    permission: &Permission,
    scratch: &mut ScratchFiles,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<Vec<Area>> {
    let mut found: Vec<Area> = Vec::new();
    let mut refusal = None;
    let mut seen: Vec<&[Job]> = Vec::new();
    for run in runs {
        // Most points of a sweep use the same areas.
        if seen.iter().any(|other| use_the_same(other, run)) {
            continue;
        }
        seen.push(run);
        match prepare::prepare_again(run, permission, scratch, stop, progress) {
            Ok(prepared) => add(&mut found, &prepared),
            Err(error) => _ = refusal.get_or_insert(error),
        }
    }
    match refusal {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

fn use_the_same(one: &[Job], other: &[Job]) -> bool {
    let same = |(one, other): (&Job, &Job)| {
        one.targets == other.targets
            && (one.offset, one.size, one.offset_increment)
                == (other.offset, other.size, other.offset_increment)
            && (one.numjobs == other.numjobs || one.offset_increment == Extent::Bytes(0))
            && (one.filesize, one.direct, one.engine) == (other.filesize, other.direct, other.engine)
            && one.bs == other.bs
            && one.rw == other.rw
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

fn add(found: &mut Vec<Area>, prepared: &PreparedJobs) {
    let mut nameless = 0;
    for one in &prepared.jobs {
        let job = &one.job;
        for (at, target) in job.targets.iter().enumerate() {
            let number = match target {
                Target::Scratch { .. } => {
                    nameless += 1;
                    nameless
                }
                Target::Existing(_) => 0,
            };
            let way = if job.rw.has(Direction::Write) { Direction::Write } else { Direction::Read };
            for region in one.regions.iter().filter_map(|regions| regions.get(at)) {
                let area = Area {
                    target: target.clone(),
                    number,
                    begin: region.begin,
                    end: region.begin + region.bytes,
                    block: region.block.into(),
                    sizes: match job.rw.has(way) {
                        true => job.bs[way.index()].clone(),
                        false => BlockSizes::fixed(USUAL_BYTES.max(region.block.into()).min(region.bytes)),
                    },
                    like: job.clone(),
                };
                join(found, area);
            }
        }
    }
}

/// Merges an area with those that it overlaps. An unnamed file is one area, because each job opens its own.
fn join(found: &mut Vec<Area>, mut area: Area) {
    let nameless = matches!(area.target, Target::Scratch { .. });
    let touches = |one: &Area, area: &Area| {
        one.target == area.target
            && one.number == area.number
            && (nameless || one.begin <= area.end && area.begin <= one.end)
    };
    // The merged area may overlap several.
    while let Some(at) = found.iter().position(|one| touches(one, &area)) {
        let one = found.remove(at);
        area = Area { begin: one.begin.min(area.begin), end: one.end.max(area.end), ..one };
    }
    found.push(area);
}

#[cfg(test)]
mod tests {
    use super::super::prepare::Rates;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn area(begin: u64, end: u64) -> Area {
        let target = Target::Existing("/dev/a".into());
        Area {
            target: target.clone(),
            number: 0,
            begin,
            end,
            block: 512,
            sizes: BlockSizes::fixed(8192),
            like: Job::new(target),
        }
    }

    fn progress(operations: u64, duration_ns: u64) -> Progress {
        let rates = Rates {
            operations,
            bytes: operations * 4096,
            duration_ns,
            iops: 0.0,
            bytes_per_second: 0.0,
            ios_per_submit: None,
            cpu_percent: 0.0,
        };
        Progress { phase: Phase::Run, done: 0, total: 1, rates: Some(rates) }
    }

    #[test]
    fn the_fill_writes_all_of_the_area_in_blocks_as_large_as_can_be() {
        assert_eq!(fill_block(1 << 30, 512, MIB), MIB);
        // A typical 1 TB drive: not a multiple of 1 MiB.
        let drive = 1_000_204_886_016;
        let block = fill_block(drive, 512, MIB);
        assert!(drive % block == 0 && block > 256 << 10, "{block}");
        assert_eq!(fill_block(12_288, 4096, MIB), 12_288);
        assert_eq!(fill_block(4096 * 1009, 4096, MIB), 4096, "of a prime");
        assert_eq!(fill_block(1 << 30, 512, COMMAND_BYTES), COMMAND_BYTES);
    }

    #[test]
    fn overlapping_areas_are_written_once() {
        let mut found = Vec::new();
        for (begin, end) in [(0, 10), (20, 30), (40, 50), (8, 22), (60, 70)] {
            join(&mut found, area(begin, end));
        }
        let mut parts: Vec<_> = found.iter().map(|area| (area.begin, area.end)).collect();
        parts.sort_unstable();
        assert_eq!(parts, [(0, 30), (40, 50), (60, 70)]);
        let other = Area { target: Target::Existing("/dev/b".into()), ..area(0, 10) };
        join(&mut found, other);
        assert_eq!(found.len(), 4);
        // An unnamed file has one area, and each job has its own file.
        let nameless = Target::Scratch { directory: "/tmp".into(), bytes: 100 };
        let mut found = Vec::new();
        for (number, begin, end) in [(1, 0, 10), (1, 90, 100), (2, 0, 10)] {
            join(&mut found, Area { target: nameless.clone(), number, ..area(begin, end) });
        }
        let parts: Vec<_> = found.iter().map(|area| (area.begin, area.end)).collect();
        assert_eq!(parts, [(0, 100), (0, 10)]);
    }

    #[test]
    fn phases_keep_the_way_to_the_target_and_nothing_that_makes_them_slow() {
        let mut of = area(MIB, 65 * MIB);
        of.like = Job {
            engine: Engine::Psync,
            thinktime: Duration::from_secs(1),
            fsync: 1,
            verify: true,
            numjobs: 9,
            ..of.like
        };
        let (fill, random) = (of.fill(Duration::from_secs(9)), of.random(Duration::from_secs(9)));
        for job in [&fill, &random] {
            assert_eq!((job.offset, job.size), (Extent::Bytes(MIB), Some(Extent::Bytes(64 * MIB))));
            assert_eq!((job.engine, job.numjobs, job.fsync, job.verify), (Engine::Libaio, 1, 0, false));
            assert!(job.thinktime.is_zero() && job.direct && job.fdatasync == 0);
            assert_eq!(super::super::unsupported(job), None);
        }
        assert_eq!((fill.rw, fill.largest_block(), fill.time_based), (Pattern::Write, MIB, false));
        assert_eq!((random.rw, random.largest_block(), random.time_based), (Pattern::RandWrite, 8192, true));
    }

    #[test]
    fn rounds_end_when_they_are_steady_or_many() {
        let mut rounds = Rounds::new(Duration::from_secs(1));
        for _ in 0..4 {
            (0..10).for_each(|_| rounds.add(&progress(100, 100_000_000)));
        }
        assert_eq!((rounds.whole.len(), rounds.end()), (4, None));
        (0..9).for_each(|_| rounds.add(&progress(100, 100_000_000)));
        assert_eq!(rounds.whole.len(), 4, "half a round is none");
        rounds.add(&progress(100, 100_000_000));
        assert_eq!((rounds.whole.len(), rounds.end()), (5, Some(PreconditionEnd::Steady)));
        assert_eq!(rounds.whole[4].iops(), Some(1000.0));
        rounds.add(&progress(1, 1_000_000_000));
        assert_eq!(rounds.whole.len(), 5, "nothing is added behind the end");

        let mut late = Rounds::new(Duration::from_secs(1));
        late.add(&Progress { done: 9, total: 9, ..progress(0, 2_000_000_000) });
        assert_eq!(late.whole, [], "who waits for the last ones does no round of none");

        let mut wild = Rounds::new(Duration::from_secs(1));
        (0..99).for_each(|n| wild.add(&progress(100 + 100 * (n % 2), 1_000_000_000)));
        assert_eq!((wild.whole.len(), wild.end()), (MOST_ROUNDS, Some(PreconditionEnd::Rounds)));
    }
}
