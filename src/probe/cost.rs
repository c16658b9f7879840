//! Measures the cost of the probes with the kernel's own program statistics.
//!
//! The statistics themselves take two clock reads per run, so they are enabled only a tenth of the time. They are
//! enabled half of the time until they have covered enough I/Os, as a load may be short or begin late, and less often
//! if counting I/Os takes long. While they are enabled, an empty program runs at the same events: its measured run time
//! is the overhead of the statistics, and is subtracted from every run of the other programs. The speed of a shared
//! machine varies by a factor of two within minutes; the ratio within one slice does not.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::libbpf::{self, ProgramStats};
use super::skel::BASELINE;
use super::skel::baseline::{BaselineSkel, BaselineSkelBuilder};
use super::spec::Spec;
use crate::envelope::{Cost, Missing, ProgramCost, Reason};
use crate::probe::btf_file;

pub const SPEC: Spec = Spec::of(&[BASELINE]);

/// How long the statistics are enabled, once per [`period`].
const SLICE: Duration = Duration::from_millis(100);
/// Overhead that a tracepoint adds to a program per run, in nanoseconds: measured on 6.18 (tp_btf, empty).
const ATTACH_NS_PER_RUN: f64 = 17.0;

/// At most this fraction of the time (1/50) is spent on counting I/Os: their rows are read at both ends of a slice, and
/// a machine with many CPUs and devices has hundreds of MiB of them.
const COUNTING_SHARE: u32 = 50;

/// Slices become rarer the longer a run lasts, down to one per this time. Each enables and disables the statistics and
/// attaches the empty program, which took 1.7 % of a CPU in a recorder of five views with one or more slices per
/// second.
const RAREST: Duration = Duration::from_secs(10);
const RARER: u32 = 20;

/// Time between the starts of two slices, given the I/Os in slices so far, the time that counting took in the last one,
/// and the length of the run.
fn period(ios: u64, counting: Duration, lasted: Duration) -> Duration {
    let wanted = if ios < Cost::LEAST_IOS { 2 * SLICE } else { 10 * SLICE };
    wanted.max((lasted / RARER).min(RAREST)).max(counting * COUNTING_SHARE)
}

/// Counts I/Os, and measures how long that takes.
fn timed(ios: &dyn Fn() -> u64) -> (u64, Duration) {
    let begin = Instant::now();
    (ios(), begin.elapsed())
}

/// One of the probe's programs.
pub struct MeteredProgram<'a> {
    pub name: &'static str,
    pub fd: BorrowedFd<'a>,
}

/// The events of the empty program. They must be the probe's own events: with others its caches would be colder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Beside {
    #[default]
    Ios,
    Locks,
    Switches,
}

/// The empty program, loaded and not attached.
pub struct Baseline(BaselineSkel<'static>, Beside);

/// While this lives, the statistics are enabled and the empty program runs.
pub struct Counting {
    _stats: OwnedFd,
    _link: Link,
}

impl Baseline {
    /// None if the statistics cannot be enabled (no CAP_SYS_ADMIN, or before 5.8).
    pub fn load() -> Option<Self> {
        Self::beside(Beside::Ios)
    }

    /// Like [`Self::load`], but at other events.
    pub fn beside(what: Beside) -> Option<Self> {
        drop(libbpf::enable_stats().ok()?);
        let mut open = BaselineSkelBuilder::default().open(libbpf::object_place()).ok()?;
        open.progs.baseline.set_autoload(what == Beside::Ios);
        open.progs.lock_baseline.set_autoload(what == Beside::Locks);
        open.progs.switch_baseline.set_autoload(what == Beside::Switches);
        Some(Self(open.load().ok()?, what))
    }

    fn program(&self) -> &libbpf_rs::ProgramMut<'static> {
        match self.1 {
            Beside::Ios => &self.0.progs.baseline,
            Beside::Locks => &self.0.progs.lock_baseline,
            Beside::Switches => &self.0.progs.switch_baseline,
        }
    }

    /// Enables the statistics and attaches the empty program.
    pub fn count(&self) -> Option<Counting> {
        let link = self.program().attach().ok()?;
        Some(Counting { _stats: libbpf::enable_stats().ok()?, _link: link })
    }

    /// Statistics of the empty program so far.
    pub fn stats(&self) -> Option<ProgramStats> {
        libbpf::program_stats(self.program()).ok()
    }
}

/// Reads the clock at each event that begins or ends a stage, and does nothing else: the minimum cost of any tool that
/// takes timestamps at these events. Dropping it detaches.
pub struct ClockReads {
    _links: Vec<Link>,
    _skel: BaselineSkel<'static>,
}

impl ClockReads {
    /// Attaches to `block_bio_queue` (if requested), `block_rq_issue` and `block_rq_complete`.
    pub fn attach(queue: bool) -> libbpf_rs::Result<Self> {
        let mut open = BaselineSkelBuilder::default().open(libbpf::object_place())?;
        open.progs.baseline.set_autoload(false);
        open.progs.clock_queue.set_autoload(queue);
        open.progs.clock_issue.set_autoload(true);
        open.progs.clock_complete.set_autoload(true);
        let skel = open.load()?;
        let progs = &skel.progs;
        let mut links = vec![progs.clock_issue.attach()?, progs.clock_complete.attach()?];
        if queue {
            links.push(progs.clock_queue.attach()?);
        }
        Ok(Self { _links: links, _skel: skel })
    }
}

/// Id, name and statistics of every loaded program on this machine, of this process and others.
pub fn all_programs() -> Vec<(u32, String, ProgramStats)> {
    ProgInfoIter::default()
        .map(|info| {
            let name = info.name.to_string_lossy().into_owned();
            let stats = ProgramStats {
                runs: info.run_cnt,
                run_ns: info.run_time_ns,
                recursion_misses: info.recursion_misses,
            };
            (info.id, name, stats)
        })
        .collect()
}

/// Enables and disables the statistics, and adds up their results.
pub struct CostMeter {
    beside: Beside,
    /// Loaded at the first slice: loading takes as long as for a probe, which must not wait for it.
    baseline: Option<Baseline>,
    slice: Option<Slice>,
    began: Instant,
    next: Instant,
    /// Runs and ns per program, in the order of the metered programs.
    totals: Vec<(&'static str, u64, u64)>,
    baseline_total: (u64, u64),
    /// I/Os counted within slices.
    ios: Option<u64>,
    /// How long counting took in the last slice.
    counting: Duration,
    last: Option<Shares>,
}

/// Run time of one program minus the overhead of the statistics, ns. A program at every system call runs with warm
/// caches and may measure less than the empty one, which runs only at I/Os; that must not reduce the cost of the other
/// programs.
fn net(runs: u64, ns: u64, baseline: f64) -> f64 {
    (ns as f64 - baseline * runs as f64).max(0.0)
}

/// The cost of the programs in the last slice.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    /// Number of the slice, from 1 on.
    pub number: u64,
    /// Run time and call overhead, as a fraction of one CPU.
    pub programs: Vec<(&'static str, f64)>,
}

impl Shares {
    fn new(
        number: u64,
        elapsed: Duration,
        empty: &ProgramStats,
        each: &[(&'static str, ProgramStats)],
    ) -> Self {
        let baseline = empty.run_ns as f64 / empty.runs.max(1) as f64;
        let share = |of: &ProgramStats| {
            let taken = net(of.runs, of.run_ns, baseline) + ATTACH_NS_PER_RUN * of.runs as f64;
            taken / elapsed.as_nanos().max(1) as f64
        };
        Self { number, programs: each.iter().map(|(name, of)| (*name, share(of))).collect() }
    }
}

struct Slice {
    _statistics: Counting,
    started: Instant,
    ios: u64,
    /// How long counting took.
    counting: Duration,
    programs: Vec<ProgramStats>,
    baseline: ProgramStats,
}

impl CostMeter {
    /// None if the statistics cannot be enabled (no CAP_SYS_ADMIN, or before 5.8).
    pub fn new() -> Option<Self> {
        Self::beside(Beside::Ios)
    }

    /// Like [`Self::new`], but with the empty program at other events.
    pub fn beside(beside: Beside) -> Option<Self> {
        drop(libbpf::enable_stats().ok()?);
        Some(Self {
            beside,
            baseline: None,
            slice: None,
            began: Instant::now(),
            next: Instant::now(),
            totals: Vec::new(),
            baseline_total: (0, 0),
            ios: None,
            counting: Duration::ZERO,
            last: None,
        })
    }

    /// Begins or ends a slice when it is due. `ios` returns the number of I/Os so far; it is called only at the ends of
    /// slices.
    pub fn tick(&mut self, programs: &[MeteredProgram<'_>], ios: &dyn Fn() -> u64) {
        match &self.slice {
            Some(slice) if slice.started.elapsed() >= SLICE => self.end(programs, ios),
            None if Instant::now() >= self.next => self.begin(programs, ios),
            _ => {}
        }
    }

    /// Makes the next slice begin now.
    pub fn hurry(&mut self) {
        self.next = Instant::now();
    }

    /// The costs in the last slice; None: there was no slice.
    pub fn shares(&self) -> Option<&Shares> {
        self.last.as_ref()
    }

    /// When `tick` is due next.
    pub fn due(&self) -> Instant {
        self.slice.as_ref().map_or(self.next, |slice| slice.started + SLICE)
    }

    fn begin(&mut self, programs: &[MeteredProgram<'_>], ios: &dyn Fn() -> u64) {
        self.next = Instant::now() + period(self.ios.unwrap_or(0), self.counting, self.began.elapsed());
        if self.baseline.is_none() {
            self.baseline = Baseline::beside(self.beside);
        }
        let Some(empty) = &self.baseline else { return };
        let Some(statistics) = empty.count() else { return };
        // At both ends of a slice, before reading the programs' statistics: it takes long if there are many rows.
        let (counted, counting) = timed(ios);
        // The statistics advance only while a process enables them, so the order of these reads matters little. Another
        // process may have them enabled, so all are read anyway.
        let Some(baseline) = empty.stats() else { return };
        let Ok(programs) = programs.iter().map(|p| libbpf::program_stats(&p.fd)).collect() else { return };
        self.slice = Some(Slice {
            _statistics: statistics,
            started: Instant::now(),
            ios: counted,
            counting,
            programs,
            baseline,
        });
    }

    /// Ends an open slice.
    pub fn end(&mut self, programs: &[MeteredProgram<'_>], ios: &dyn Fn() -> u64) {
        let Some(slice) = self.slice.take() else { return };
        let (counted, counting) = timed(ios);
        let counted = counted.saturating_sub(slice.ios);
        self.counting = slice.counting + counting;
        let Some(baseline) = self.baseline.as_ref().and_then(Baseline::stats) else { return };
        let Ok(now): Result<Vec<_>, _> = programs.iter().map(|p| libbpf::program_stats(&p.fd)).collect()
        else {
            return;
        };
        if self.totals.is_empty() {
            self.totals = programs.iter().map(|p| (p.name, 0, 0)).collect();
        }
        let mut each = Vec::with_capacity(now.len());
        for ((total, then), now) in self.totals.iter_mut().zip(&slice.programs).zip(&now) {
            let since = now.since(then);
            total.1 += since.runs;
            total.2 += since.run_ns;
            each.push((total.0, since));
        }
        let empty = baseline.since(&slice.baseline);
        self.baseline_total.0 += empty.runs;
        self.baseline_total.1 += empty.run_ns;
        let number = self.last.as_ref().map_or(0, |last| last.number) + 1;
        self.last = Some(Shares::new(number, slice.started.elapsed(), &empty, &each));
        let ios = self.ios.unwrap_or(0) + counted;
        self.ios = Some(ios);
        self.next = slice.started + period(ios, self.counting, self.began.elapsed());
    }

    /// Costs by name of the programs that ran; instances loaded for several functions count as one.
    fn programs(&self) -> Vec<ProgramCost> {
        let mut all: Vec<ProgramCost> = Vec::new();
        for &(name, runs, ns) in self.totals.iter().filter(|(_, runs, _)| *runs > 0) {
            match all.iter_mut().find(|known| known.name == name) {
                Some(known) => (known.runs, known.ns) = (known.runs + runs, known.ns + ns),
                None => all.push(ProgramCost { name: name.to_string(), runs, ns }),
            }
        }
        all
    }

    /// The cost. `ios_per_second` converts the cost per I/O to a percentage of one CPU.
    pub fn cost(&self, map_bytes: u64, ios_per_second: f64) -> Cost {
        let mut cost = Cost { map_bytes, ios: self.ios, programs: self.programs(), ..Cost::default() };
        let (baseline_runs, baseline_ns) = self.baseline_total;
        let Some(ios) = self.ios.filter(|_| cost.saw_enough() && baseline_runs > 0) else { return cost };
        let baseline = baseline_ns as f64 / baseline_runs as f64;
        let runs: u64 = self.totals.iter().map(|t| t.1).sum();
        let net = self.totals.iter().map(|(_, runs, ns)| net(*runs, *ns, baseline)).sum::<f64>() / ios as f64;
        let attach = ATTACH_NS_PER_RUN * runs as f64 / ios as f64;
        cost.baseline_ns_per_run = Some(baseline);
        cost.ns_per_io = Some(net);
        cost.attach_ns_per_io = Some(attach);
        cost.cpu_percent = Some((net + attach) * ios_per_second / 1e9 * 100.0);
        cost
    }
}

/// Why the cost is unknown.
pub fn missing() -> Missing {
    Missing {
        part: Some("cost".to_string()),
        reason: Reason::Refused,
        why: if btf_file::path().is_some() {
            "with a BTF file there is no empty program to measure the cost of the statistics themselves"
                .to_string()
        } else {
            "the kernel's program statistics need CAP_SYS_ADMIN and Linux 5.8".to_string()
        },
        remedy: btf_file::path().is_none().then(|| "run as root".to_string()),
        ..Missing::default()
    }
}

/// The descriptor of a loaded program, for metering.
pub fn metered<'a>(name: &'static str, program: &'a impl AsFd) -> MeteredProgram<'a> {
    MeteredProgram { name, fd: program.as_fd() }
}

/// Keeps the kernel's program statistics enabled while it lives.
pub struct Statistics {
    _stats: std::os::fd::OwnedFd,
}

impl Statistics {
    /// None if the kernel does not allow it.
    pub fn on() -> Option<Self> {
        Some(Self { _stats: libbpf::enable_stats().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_several_functions_is_one() {
        let meter = CostMeter {
            beside: Beside::Ios,
            baseline: None,
            slice: None,
            began: Instant::now(),
            next: Instant::now(),
            totals: vec![("enter", 1, 20), ("exit", 1, 30), ("idle", 0, 0), ("enter", 3, 40)],
            baseline_total: (0, 0),
            ios: None,
            counting: Duration::ZERO,
            last: None,
        };
        let programs: Vec<_> =
            meter.programs().into_iter().map(|program| (program.name, program.runs, program.ns)).collect();
        assert_eq!(programs, [("enter".to_string(), 4, 60), ("exit".to_string(), 1, 30)]);
    }

    #[test]
    fn a_program_that_reads_as_less_than_the_empty_one_takes_its_calls() {
        let stats = |runs, run_ns| ProgramStats { runs, run_ns, recursion_misses: 0 };
        let each =
            [("sys_enter", stats(1_000, 40_000)), ("rq_issue", stats(100, 26_800)), ("idle", stats(0, 0))];
        let shares = Shares::new(1, Duration::from_millis(1), &stats(10, 680), &each).programs;
        assert_eq!(shares, [("sys_enter", 0.017), ("rq_issue", 0.0217), ("idle", 0.0)]);
    }

    #[test]
    fn a_load_that_is_short_or_begins_late_meets_a_slice() {
        let period = |ios, lasted| period(ios, Duration::from_millis(1), Duration::from_secs(lasted));
        assert_eq!(period(0, 0), Duration::from_millis(200));
        assert_eq!(period(Cost::LEAST_IOS - 1, 4), Duration::from_millis(200));
        assert_eq!(period(Cost::LEAST_IOS, 20), Duration::from_secs(1));
        assert_eq!([period(0, 60), period(Cost::LEAST_IOS, 60)], [Duration::from_secs(3); 2]);
        assert_eq!(period(0, 86_400), Duration::from_secs(10));
    }

    /// Two slices; the second is due when counting in the first makes up a fiftieth of the time.
    #[test]
    fn where_counting_takes_long_it_is_rare() {
        let slow = Duration::from_millis(300);
        assert_eq!(period(0, slow, SLICE), Duration::from_secs(15));
        assert_eq!(period(Cost::LEAST_IOS, slow, SLICE), Duration::from_secs(15));
        let Some(mut meter) = CostMeter::new() else { return };
        let count = || {
            std::thread::sleep(Duration::from_millis(20));
            0
        };
        let began = Instant::now();
        meter.tick(&[], &count);
        if meter.slice.is_none() {
            return;
        }
        std::thread::sleep(SLICE);
        meter.tick(&[], &count);
        assert!(meter.slice.is_none() && meter.due() >= began + Duration::from_secs(2));
    }
}
