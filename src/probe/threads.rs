//! Samples what all threads are doing, many times a second: with `bpf/threads.bpf.c` or, if that is not permitted, from
//! the files of `/proc`.

mod files;
pub(super) mod kernel;

pub use kernel::{SPEC, VIEW};

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::files::Files;
use self::kernel::KernelSampler;
use super::Probe;
use super::permit;
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing, Reason};
use crate::refusal::Refusal;
use crate::wire::Count as _;
use crate::wire::threads::{Loss, Reading, Sighting, ThreadSamples, ThreadTally};

/// Default samples per second.
pub const HZ: u32 = 10;

/// The same from files, where a thread costs a hundred times as much as with the program.
pub const HZ_FILES: u32 = 2;

/// Upper bound on the delay of a stop.
///
/// At most 200 ms lie between two samples at random times within consecutive tenths of a second, and each additional
/// sleep costs half as much as a sample of a thousand threads.
const LONGEST_NAP: Duration = Duration::from_millis(200);

/// What to sample, and how often.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Samples per second; None: the default.
    pub hz: Option<u32>,
    /// Include sleeping threads, whatever they wait for.
    pub sleepers: bool,
    /// Count processes separately.
    pub by_process: bool,
    pub by_cgroup: bool,
    /// Find the disk that a thread waits for, from the bios that it submits.
    pub by_device: bool,
    /// Only threads of these processes; empty: all.
    pub pids: Vec<u32>,
    /// Only threads with these names, or names with each number as `*`; empty: all.
    pub comms: Vec<String>,
    /// Only threads in these cgroups, by id; empty: all.
    pub cgroups: Vec<u64>,
    /// The same by path.
    pub cgroup_paths: Vec<String>,
    /// Only threads that wait for one of these disks, major << 20 | minor; empty: all.
    pub devices: Vec<u32>,
    /// The block controller is in the unified hierarchy (v2).
    pub unified_cgroups: bool,
    /// Measure the programs with the kernel's statistics, during some of the samples.
    pub cost: bool,
}

impl Options {
    fn wants(&self, sighting: &Sighting, pid: u32) -> bool {
        if !self.pids.is_empty() && !self.pids.contains(&pid) {
            return false;
        }
        if !self.devices.is_empty()
            && !self.devices.contains(&sighting.device)
            && !self.devices.contains(&sighting.lower)
        {
            return false;
        }
        if self.filters_cgroups() {
            let by_path = sighting
                .cgroup_path
                .as_deref()
                .is_some_and(|path| self.cgroup_paths.iter().any(|wanted| is_below(path, wanted)));
            if !by_path && !self.cgroups.contains(&sighting.cgroup) {
                return false;
            }
        }
        if self.comms.is_empty() {
            return true;
        }
        let comm = String::from_utf8_lossy(sighting.comm_bytes());
        self.comms.iter().any(|wanted| *wanted == comm || *wanted == folded(&comm))
    }

    fn filters_cgroups(&self) -> bool {
        !self.cgroups.is_empty() || !self.cgroup_paths.is_empty()
    }

    /// Whether cgroups are to be read at all.
    fn reads_cgroups(&self) -> bool {
        self.by_cgroup || self.filters_cgroups()
    }
}

/// Whether a cgroup equals another or is below it.
fn is_below(path: &str, top: &str) -> bool {
    let top = top.trim_end_matches('/');
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A name with each number as `*`, so that threads of a pool share one name.
fn folded(comm: &str) -> String {
    crate::wire::threads::fold_numbers(comm)
}

enum ThreadReader {
    Kernel(Box<KernelSampler>),
    Files(Files),
}

/// Collects the results of samples.
struct ThreadInterval {
    tally: ThreadTally,
    rounds: u64,
    samples: u64,
    /// Losses in the intervals before this one.
    loss: Loss,
}

/// The probe. Dropping it leaves nothing behind.
pub struct ThreadProbe {
    source: ThreadReader,
    options: Options,
    hz: u32,
    missing: Vec<Missing>,
    window: RefCell<ThreadInterval>,
    start: Reading,
    began: Instant,
    /// Number of the next sample's period.
    period: u64,
    /// When the next sample is due.
    due: Instant,
    chance: u64,
    cpu_ns: u64,
    /// Set at the end, so that processing the samples is not included.
    ended: RefCell<Option<(u64, u64)>>,
}

impl ThreadProbe {
    /// Loads the programs, or else opens the files. `root` is the root of procfs: `/` for this machine.
    ///
    /// Refused if the options need programs that this kernel or these rights do not allow.
    pub fn attach(root: &Path, options: Options) -> Result<Self> {
        let mut probe = Self::prepare(root, options)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but the interval begins at [`Self::begin`].
    pub fn prepare(root: &Path, options: Options) -> Result<Self> {
        let kernel = permit::permit(root).and_then(|()| KernelSampler::load(&options));
        let mut missing = Vec::new();
        let source = match kernel {
            Ok(kernel) => {
                missing.extend(kernel.missing());
                ThreadReader::Kernel(Box::new(kernel))
            }
            Err(error) => {
                let why = error.to_string();
                if options.by_device {
                    let what = "only BPF programs can find the device that a thread waits for";
                    return Err(Refusal::Refused(format!("{what}: {why}")).into());
                }
                missing.extend(files::missing(&why));
                ThreadReader::Files(Files::new(root))
            }
        };
        if options.reads_cgroups() && !options.unified_cgroups {
            missing.push(Missing {
                part: Some("cgroup".to_string()),
                reason: Reason::OneHierarchy,
                why: "cgroups are those of the block controller: with one hierarchy per controller, a \
                    thread's memory cgroup may differ"
                    .to_string(),
                remedy: Some(
                    "boot with the unified hierarchy (systemd.unified_cgroup_hierarchy=1)".to_string(),
                ),
                ..Missing::default()
            });
        }
        let default = if matches!(source, ThreadReader::Kernel(_)) { HZ } else { HZ_FILES };
        let hz = options.hz.unwrap_or(default).max(1);
        let now = now_ns();
        let began = Instant::now();
        let window =
            ThreadInterval { tally: ThreadTally::new(now), rounds: 0, samples: 0, loss: Loss::default() };
        Ok(Self {
            source,
            options,
            hz,
            missing,
            window: RefCell::new(window),
            start: Reading { at_ns: now, ..Reading::default() },
            began,
            period: 0,
            due: began,
            // Not zero, which xorshift would repeat.
            chance: now | 1,
            cpu_ns: process_cpu_ns(),
            ended: RefCell::new(None),
        })
    }

    /// Samples per second.
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// Whether programs take the samples, not files.
    pub fn is_kernel(&self) -> bool {
        matches!(self.source, ThreadReader::Kernel(_))
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn length(&self) -> Duration {
        Duration::from_secs(1) / self.hz
    }

    /// A random time in this period, so that periodic activity is sampled evenly.
    fn within(&mut self, period: u64) -> Instant {
        // xorshift
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let part = (self.chance >> 11) as f64 / (1u64 << 53) as f64;
        self.began + self.length().mul_f64(period as f64 + part)
    }

    /// Takes one sample, and sets when the next one is due.
    fn round(&mut self, now: Instant) {
        let length = self.length();
        let at = (now - self.began).as_nanos() / length.as_nanos().max(1);
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        let late = now - self.due >= length / 10;
        let window = self.window.get_mut();
        // Periods between the one that was due and this one.
        window.tally.loss().missed += at.saturating_sub(self.period);
        window.tally.loss().late += u64::from(late);
        window.tally.begin_round();
        window.rounds += 1;
        let options = &self.options;
        let mut found = 0;
        let mut add = |tally: &mut ThreadTally, mut sighting: Sighting, pid: u32, stack: &[u64]| {
            if !options.wants(&sighting, pid) {
                return;
            }
            if options.by_process {
                sighting.pid = pid;
            }
            if !options.by_cgroup {
                (sighting.cgroup, sighting.cgroup_path) = (0, None);
            }
            found += 1;
            tally.add(sighting, stack);
        };
        match &mut self.source {
            ThreadReader::Kernel(kernel) => kernel.round(&mut window.tally, &mut add),
            ThreadReader::Files(files) => files.round(options, &mut window.tally, &mut add),
        }
        window.samples += found;
        self.period = at.max(self.period) + 1;
        self.due = self.within(self.period);
    }

    /// Cost of the programs only, for a process with other probes.
    pub fn programs(&self) -> Cost {
        match &self.source {
            ThreadReader::Kernel(kernel) => kernel.cost(),
            ThreadReader::Files(_) => Cost::default(),
        }
    }

    /// Cost since the start: the CPU time of this whole process, in which the programs run as well. It excludes the
    /// program at each bio, which [`Self::missing`] reports.
    pub fn cost(&self) -> Cost {
        let (at_ns, cpu_ns) = self.ended.borrow().unwrap_or_else(|| (now_ns(), process_cpu_ns()));
        let wall = at_ns.saturating_sub(self.start.at_ns);
        let used = cpu_ns.saturating_sub(self.cpu_ns);
        let mut cost = self.programs();
        cost.cpu_percent = (wall > 0).then(|| used as f64 / wall as f64 * 100.0);
        cost
    }
}

impl Probe for ThreadProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        let now = now_ns();
        self.window.get_mut().tally = ThreadTally::new(now);
        self.start.at_ns = now;
        self.began = Instant::now();
        self.cpu_ns = process_cpu_ns();
        self.due = self.within(0);
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.due {
            self.round(now);
        }
    }

    /// The interval since the last reading.
    fn read(&self) -> Result<Reading> {
        let now = now_ns();
        let mut window = self.window.borrow_mut();
        let tally = std::mem::replace(&mut window.tally, ThreadTally::new(now));
        let sampled: ThreadSamples = tally.finish(now);
        window.loss = window.loss.plus(&sampled.loss);
        Ok(Reading {
            at_ns: now,
            rounds: window.rounds,
            samples: window.samples,
            loss: window.loss,
            window: Arc::new(sampled),
        })
    }

    fn detach(&mut self) -> Result<Reading> {
        let reading = self.read()?;
        *self.ended.borrow_mut() = Some((reading.at_ns, process_cpu_ns()));
        if let ThreadReader::Kernel(kernel) = &mut self.source {
            kernel.detach();
        }
        Ok(reading)
    }

    fn nap(&self) -> Duration {
        LONGEST_NAP.min(self.due.saturating_duration_since(Instant::now()))
    }
}

/// CPU time of all threads of this process, in user and system mode.
fn process_cpu_ns() -> u64 {
    // SAFETY: a struct of integers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the result; the call cannot fail with this constant.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_named_is_wanted() {
        let mut comm = [0; 16];
        comm[..15].copy_from_slice(b"io_wqe_worker-7");
        let sighting = Sighting { comm, device: 5, lower: 7, cgroup: 3, ..Sighting::default() };
        let wants = |options: Options| options.wants(&sighting, 10);
        assert!(wants(Options::default()));
        assert!(wants(Options { pids: vec![10], ..Options::default() }));
        assert!(!wants(Options { pids: vec![11], ..Options::default() }));
        assert!(wants(Options { comms: vec!["io_wqe_worker-*".into()], ..Options::default() }));
        assert!(wants(Options { comms: vec!["io_wqe_worker-7".into()], ..Options::default() }));
        assert!(!wants(Options { comms: vec!["io_wqe_worker".into()], ..Options::default() }));
        assert!(wants(Options { devices: vec![7], ..Options::default() }));
        assert!(!wants(Options { devices: vec![6], ..Options::default() }));
        assert!(!wants(Options { cgroups: vec![4], ..Options::default() }));
    }

    #[test]
    fn a_cgroup_is_below_its_folders_only() {
        assert!(is_below("/a/b", "/a") && is_below("/a", "/a") && is_below("/a", "/"));
        assert!(!is_below("/ab", "/a") && !is_below("/", "/a"));
    }
}
