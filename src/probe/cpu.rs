//! Measures what the CPUs do in an interval: the kernel's CPU accounts at its start and end, and a few perf counters
//! per CPU.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::perf_event::{self, Counter};
use crate::clock;
use crate::host::cpu_counters::{Count, CounterEvent, CounterMode, Counters, CpuWindow};
use crate::host::cpu_time::{CpuReading, Topology, interrupts_timed};

/// An event in one mode; true if it is in one group with the previous event and counts at the same times.
type EventRequest = (CounterEvent, CounterMode, bool);

/// Events for a processor with counters. Cycles are first, as the others are useless without them. User and kernel mode
/// are separate, as the classes of CPU work are. In each mode instructions are grouped with the cycles.
const PROCESSOR: [&[EventRequest]; 3] = [
    &[
        (CounterEvent::Cycles, CounterMode::User, false),
        (CounterEvent::Instructions, CounterMode::User, true),
        (CounterEvent::Cycles, CounterMode::Kernel, false),
        (CounterEvent::Instructions, CounterMode::Kernel, true),
    ],
    &[(CounterEvent::FrontendStalls, CounterMode::Both, false)],
    &[(CounterEvent::BackendStalls, CounterMode::Both, false)],
];

/// The same for a processor (or a virtual one) that has cycles and no instructions.
const CYCLES_ALONE: [&[EventRequest]; 3] = [
    &[(CounterEvent::Cycles, CounterMode::User, false), (CounterEvent::Cycles, CounterMode::Kernel, false)],
    PROCESSOR[1],
    PROCESSOR[2],
];

/// Events that every machine has. The kernel's clock is the same in every mode.
const SOFTWARE: [&[EventRequest]; 1] = [&[(CounterEvent::CpuClock, CounterMode::Both, false)]];

/// One open counter.
#[derive(Debug)]
struct Open {
    cpu: u32,
    event: CounterEvent,
    side: CounterMode,
    counter: Counter,
}

/// The accounts of all CPUs at one point in time, and the value of each counter, or why it has none.
#[derive(Debug, Clone)]
pub struct Reading {
    accounts: CpuReading,
    counters: Vec<Result<[u64; 3], String>>,
}

/// Measures all CPUs. It needs no BPF, and none of it runs per I/O.
#[derive(Debug)]
pub struct CpuProbe {
    root: PathBuf,
    start: Reading,
    cpus: Vec<u32>,
    counters: Vec<Open>,
    refused: Vec<(CounterEvent, String)>,
    /// See [`interrupts_timed`]: a property of the kernel, whose configuration is long to read.
    interrupts_timed: Option<bool>,
}

impl CpuProbe {
    /// Opens the counters that this machine has. Those that it lacks are named in the result, and are no failure.
    pub fn attach(root: &Path) -> Self {
        let accounts = CpuReading::read(root, clock::now_ns);
        let mut probe = Self {
            root: root.to_path_buf(),
            start: Reading { accounts, counters: Vec::new() },
            cpus: Vec::new(),
            counters: Vec::new(),
            refused: Vec::new(),
            interrupts_timed: interrupts_timed(root),
        };
        match perf_event::online() {
            Err(error) => probe.refused.push((CounterEvent::Cycles, format!("{error:#}"))),
            Ok(cpus) => {
                probe.cpus = cpus;
                let sets: [&[&[EventRequest]]; 3] = [&PROCESSOR, &CYCLES_ALONE, &SOFTWARE];
                let _ = sets.iter().any(|sets| probe.open(sets));
            }
        }
        probe.begin();
        probe
    }

    /// Restarts the interval. Opening counters takes time on a large machine; from here on accounts and counters cover
    /// the same interval.
    pub fn begin(&mut self) {
        self.start = self.read();
    }

    pub fn start(&self) -> &Reading {
        &self.start
    }

    pub fn read(&self) -> Reading {
        let counters =
            self.counters.iter().map(|open| open.counter.read().map_err(|error| error.to_string()));
        // Counters first, as at the end: so both intervals have the same length.
        let counters = counters.collect();
        Reading { accounts: CpuReading::read(&self.root, clock::now_ns), counters }
    }

    /// Opens the first of the sets, and those of the others that are available; false if the first is not.
    fn open(&mut self, sets: &[&[EventRequest]]) -> bool {
        for (i, set) in sets.iter().enumerate() {
            match open_set(set, &self.cpus, self.counters.len()) {
                Ok(opened) => self.counters.extend(opened),
                Err((event, why)) => {
                    if self.refused.iter().all(|(known, _)| *known != event) {
                        self.refused.push((event, why));
                    }
                    if i == 0 {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Ends the interval and closes the counters.
    pub fn finish(self) -> CpuWindow {
        self.window(&self.start, &self.read())
    }

    /// The difference between two readings.
    pub fn window(&self, from: &Reading, to: &Reading) -> CpuWindow {
        let mut refused = self.refused.clone();
        let mut unread = BTreeMap::new();
        let mut counts = Vec::with_capacity(self.counters.len());
        for ((open, end), start) in self.counters.iter().zip(&to.counters).zip(&from.counters) {
            match (end, start) {
                (Ok(end), Ok(start)) => {
                    let [value, enabled_ns, running_ns] =
                        [0, 1, 2].map(|i: usize| end[i].saturating_sub(start[i]));
                    let Open { cpu, event, side, .. } = *open;
                    counts.push(Count { cpu, event, side, value, enabled_ns, running_ns });
                }
                (Err(error), _) | (_, Err(error)) => _ = unread.insert(open.event, error.clone()),
            }
        }
        refused.extend(unread);
        let topology = Topology::read(&self.root, &to.accounts.cpus.keys().copied().collect::<Vec<_>>());
        CpuWindow {
            start: from.accounts.clone(),
            end: to.accounts.clone(),
            topology,
            interrupts_timed: self.interrupts_timed,
            counters: Counters { cpus: self.cpus.clone(), counts, refused },
        }
    }
}

/// Opens a set on every CPU, or returns the event that failed and why: a subset of the CPUs would be taken for all.
fn open_set(set: &[EventRequest], cpus: &[u32], have: usize) -> Result<Vec<Open>, (CounterEvent, String)> {
    // The first events may still be available on their own.
    let last = set.last().map_or(CounterEvent::Cycles, |(event, ..)| *event);
    // Descriptors are also needed by the load, the command, and the files that are read later.
    if open_files().is_some_and(|limit| have + cpus.len() * set.len() > limit / 2) {
        return Err((
            last,
            "counters on all CPUs need more than half of the allowed open files (ulimit -n)".to_string(),
        ));
    }
    let mut opened: Vec<Open> = Vec::with_capacity(cpus.len() * set.len());
    for &cpu in cpus {
        for &(event, side, together) in set {
            let leader = opened.last().filter(|_| together).map(|open| &open.counter);
            let counter = match Counter::open(event, side, cpu, leader) {
                // Too many events for one group: ungrouped they can still count.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) && together => {
                    Counter::open(event, side, cpu, None)
                }
                other => other,
            };
            let counter = counter.map_err(|error| (event, explain(&error)))?;
            opened.push(Open { cpu, event, side, counter });
        }
    }
    Ok(opened)
}

/// Why a counter is unavailable.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {
            "hardware counters are not available, as in most virtual machines".to_string()
        }
        Some(libc::EPERM | libc::EACCES) => format!(
            "hardware counters are not allowed ({error}): run as root, or give biopsy CAP_PERFMON (see \
             kernel.perf_event_paranoid)"
        ),
        Some(libc::ENOSYS) => "this kernel has no perf events".to_string(),
        _ => format!("a counter cannot be opened ({error})"),
    }
}

/// The limit on this process's open files; None: unknown.
fn open_files() -> Option<usize> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Counts the kernel's clock through the code path of cycles: it must show the time that passed, on every CPU,
    /// whatever ran there.
    #[test]
    fn a_software_clock_counts_the_time_that_passed() {
        let Ok(cpus) = perf_event::online() else { return };
        let before = Instant::now();
        let accounts = CpuReading::read(Path::new("/"), clock::now_ns);
        let mut probe = CpuProbe {
            root: "/".into(),
            start: Reading { accounts, counters: Vec::new() },
            cpus,
            counters: Vec::new(),
            refused: Vec::new(),
            interrupts_timed: None,
        };
        if !probe.open(&SOFTWARE) {
            println!("skipped: {:?}", probe.refused);
            return;
        }
        probe.begin();
        let inside = Instant::now();
        while inside.elapsed() < Duration::from_millis(200) {
            std::hint::black_box(0u64.wrapping_mul(3));
        }
        let least = inside.elapsed();
        let cpus = probe.cpus.len();
        let window = probe.finish();
        // The interval began after `before` and ended before now: bounds that hold on a busy machine too.
        let most = before.elapsed();
        println!("{window:?}");
        assert_eq!(window.counters.counts.len(), cpus);
        for count in &window.counters.counts {
            assert_eq!((count.event, count.side), (CounterEvent::CpuClock, CounterMode::Both));
            assert!(count.running_ns <= count.enabled_ns);
            for ns in [count.value, count.enabled_ns] {
                // The clocks of perf and of the process differ by less than 1 %.
                assert!(ns as f64 >= least.as_nanos() as f64 * 0.99, "{ns} ns of at least {least:?}");
                assert!(ns as f64 <= most.as_nanos() as f64 * 1.01, "{ns} ns of at most {most:?}");
            }
        }
    }

    /// A missing event must not fail the run.
    #[test]
    fn whatever_this_machine_has_is_used() {
        let window = CpuProbe::attach(Path::new("/")).finish();
        println!("{window:?}");
        let has = |event| window.counters.counts.iter().any(|count| count.event == event);
        let refused = window
            .counters
            .refused
            .iter()
            .any(|(event, why)| *event == CounterEvent::Cycles && !why.is_empty());
        assert!(has(CounterEvent::Cycles) || refused, "absent without a reason");
        assert!(!(has(CounterEvent::Cycles) && has(CounterEvent::CpuClock)));
    }

    #[test]
    fn refusals_name_the_reason() {
        let why = |errno| explain(&io::Error::from_raw_os_error(errno));
        assert!(why(libc::ENOENT).contains("virtual machines") && why(libc::EOPNOTSUPP) == why(libc::ENOENT));
        assert!(why(libc::EACCES).contains("CAP_PERFMON"));
        assert!(why(libc::EMFILE).contains("cannot be opened"));
    }

    #[test]
    fn more_counters_than_files_are_not_opened() {
        let limit = open_files().expect("a limit that is a number");
        let (event, why) = open_set(PROCESSOR[0], &[0], limit).unwrap_err();
        assert!(event == CounterEvent::Instructions && why.contains("open files"), "{why}");
    }
}
