//! Summarizes CPU time by the kernel's accounting and the hardware counters, and computes the cost per I/O.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::envelope::{Missing, Reason};
use crate::host::cpu_counters::{CounterEvent, CounterMode, Counters, CpuWindow};
use crate::host::cpu_time::{COLUMNS, CpuTime, NoWakeups, TICK_NS};
use crate::merge::{merge, row};
use crate::wire::stacks::Sampler;

/// The columns of CPU time. iowait is part of idle, and guest time is part of user: both are reported separately.
pub const TIMES: [&str; 7] = ["user", "nice", "system", "irq", "softirq", "steal", "idle"];

const IDLE: usize = 3;
const IOWAIT: usize = 4;

/// Each column is truncated to whole ticks at both ends: it can be off by one tick in either direction.
const ERROR_NS: u64 = COLUMNS.len() as u64 * TICK_NS;

/// The time of some CPUs: one, those of a core, of a socket, or all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuRow {
    pub cpus: Vec<u32>,
    /// Where all of them are in one.
    pub socket: Option<u32>,
    /// The window's length, once for each CPU: what the rest is a share of.
    pub wall_ns: u64,
    /// In the order of [`TIMES`].
    #[serde(flatten, with = "times")]
    #[schemars(with = "times::Form")]
    pub times: [u64; 7],
    /// Of the idle time: while a task waited for I/O. None where the kernel's counter went back, which it may.
    pub iowait_ns: Option<u64>,
    /// Of the user time: in virtual machines.
    pub guest_ns: Option<u64>,
    /// The wall time without all of `times`; below zero where the kernel counted more.
    pub unaccounted_ns: i64,
    /// How much of `unaccounted_ns` is explained by whole ticks and by the time that reading took.
    pub error_ns: u64,
    pub cycles: Option<u64>,
    pub instructions: Option<u64>,
}

/// Serializes [`CpuRow::times`] with a key each.
mod times {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Form {
        user_ns: u64,
        nice_ns: u64,
        system_ns: u64,
        irq_ns: u64,
        softirq_ns: u64,
        steal_ns: u64,
        idle_ns: u64,
    }

    pub fn serialize<S: Serializer>(times: &[u64; 7], serializer: S) -> Result<S::Ok, S::Error> {
        let [user_ns, nice_ns, system_ns, irq_ns, softirq_ns, steal_ns, idle_ns] = *times;
        Form { user_ns, nice_ns, system_ns, irq_ns, softirq_ns, steal_ns, idle_ns }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u64; 7], D::Error> {
        let of = Form::deserialize(deserializer)?;
        Ok([of.user_ns, of.nice_ns, of.system_ns, of.irq_ns, of.softirq_ns, of.steal_ns, of.idle_ns])
    }
}

impl CpuRow {
    /// Names and shares of the wall time, 0 to 1; with the last one, `unaccounted`, they add up to 1.
    pub fn shares(&self) -> Vec<(&'static str, f64)> {
        let share = |ns: f64| ns / self.wall_ns.max(1) as f64;
        let times = TIMES.iter().zip(self.times).map(|(name, ns)| (*name, share(ns as f64)));
        times.chain([("unaccounted", share(self.unaccounted_ns as f64))]).collect()
    }

    /// One of these shares, by its name in [`TIMES`].
    pub fn share(&self, time: &str) -> f64 {
        let at = TIMES.iter().position(|name| *name == time);
        at.map_or(0.0, |at| self.times[at] as f64 / self.wall_ns.max(1) as f64)
    }

    fn sum(rows: &[&CpuRow]) -> Option<CpuRow> {
        let first = rows.first()?;
        let all = |pick: fn(&CpuRow) -> Option<u64>| {
            rows.iter().try_fold(0u64, |sum, row| sum.checked_add(pick(row)?))
        };
        let mut times = [0u64; 7];
        for row in rows {
            times.iter_mut().zip(row.times).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
        }
        Some(CpuRow {
            cpus: rows.iter().flat_map(|row| &row.cpus).copied().collect(),
            socket: first.socket.filter(|_| rows.iter().all(|row| row.socket == first.socket)),
            wall_ns: rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.wall_ns)),
            times,
            iowait_ns: all(|row| row.iowait_ns),
            guest_ns: all(|row| row.guest_ns),
            unaccounted_ns: rows.iter().fold(0, |sum: i64, row| sum.saturating_add(row.unaccounted_ns)),
            error_ns: rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.error_ns)),
            cycles: all(|row| row.cycles),
            instructions: all(|row| row.instructions),
        })
    }
}

/// Sums over all CPUs, of what was counted in the window. What did not count on each of them is None.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CounterTotals {
    /// `cycles`, or `cpu-clock` where the processor's counters do not answer; None where nothing counted.
    pub counter: Option<String>,
    pub user_cycles: Option<u64>,
    pub kernel_cycles: Option<u64>,
    pub user_instructions: Option<u64>,
    pub kernel_instructions: Option<u64>,
    pub frontend_stalls: Option<u64>,
    pub backend_stalls: Option<u64>,
    /// Cycles of physical cores, at least and at most: threads of one core run at the same time or not. Equal where
    /// a core has one thread.
    pub core_cycles: Option<(u64, u64)>,
    /// Time by `cpu-clock`, of all CPUs.
    pub clock_ns: Option<u64>,
    /// The least share of the window, 0 to 1, in which a counter had its place in the processor. Below 1 the counts
    /// are extrapolated from it.
    pub counted_share: Option<f64>,
    /// Events that are not known, and why.
    #[serde(skip)]
    pub refused: Vec<(CounterEvent, String)>,
}

merge!(CpuRow {
    first: cpus;
    last: socket;
    add: wall_ns times;
    both: iowait_ns guest_ns cycles instructions;
    add: unaccounted_ns;
    most: error_ns;
});

row!(CpuRow, Vec<u32>, |row| row.cpus.clone());

merge!(CounterTotals {
    first: counter;
    both: user_cycles kernel_cycles user_instructions kernel_instructions frontend_stalls backend_stalls;
    both: core_cycles clock_ns;
    least: counted_share;
    each: refused;
});

merge!(CpuSummary {
    add: duration_ns;
    first: interrupts_timed;
    rows: cpus cores sockets;
    both: all;
    each: left_out;
    both: context_switches processes wakeups;
    first: no_wakeups;
    add: counted;
});

impl CpuSummary {
    /// Removes a CPU that was not online all the time, also from its core and socket, as in a single interval.
    pub(crate) fn settle(&mut self) {
        let mut gone: BTreeSet<u32> = self.left_out.iter().map(|gone| gone.cpu).collect();
        for row in self.cpus.iter().filter(|row| row.wall_ns < self.duration_ns) {
            let new = row.cpus.iter().copied().filter(|cpu| gone.insert(*cpu));
            self.left_out
                .extend(new.map(|cpu| CpuLeftOut { cpu, why: "it was offline in an interval".into() }));
        }
        if gone.is_empty() {
            return;
        }
        self.cpus.retain(|row| row.cpus.iter().all(|cpu| !gone.contains(cpu)));
        let there: BTreeMap<u32, &CpuRow> =
            self.cpus.iter().flat_map(|row| row.cpus.iter().map(move |cpu| (*cpu, row))).collect();
        for rows in [&mut self.cores, &mut self.sockets] {
            *rows = regrouped(rows, &there);
        }
        self.all = CpuRow::sum(&self.cpus.iter().collect::<Vec<_>>());
    }
}

/// Regroups rows of the same core or socket whose CPUs differed between intervals, with the CPUs that were online all
/// the time.
fn regrouped(rows: &[CpuRow], there: &BTreeMap<u32, &CpuRow>) -> Vec<CpuRow> {
    let mut groups: Vec<BTreeSet<u32>> = Vec::new();
    let mut of_cpu: BTreeMap<u32, usize> = BTreeMap::new();
    for row in rows {
        let known = row.cpus.iter().find_map(|cpu| of_cpu.get(cpu)).copied();
        let group = known.unwrap_or_else(|| {
            groups.push(BTreeSet::new());
            groups.len() - 1
        });
        for cpu in row.cpus.iter().filter(|cpu| there.contains_key(cpu)) {
            if *of_cpu.entry(*cpu).or_insert(group) == group {
                groups[group].insert(*cpu);
            }
        }
    }
    let row_of = |cpus: &BTreeSet<u32>| CpuRow::sum(&cpus.iter().map(|cpu| there[cpu]).collect::<Vec<_>>());
    groups.iter().filter_map(row_of).collect()
}

impl CounterTotals {
    pub fn cycles(&self) -> Option<u64> {
        self.user_cycles?.checked_add(self.kernel_cycles?)
    }

    pub fn instructions(&self) -> Option<u64> {
        self.user_instructions?.checked_add(self.kernel_instructions?)
    }
}

/// A CPU without a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct CpuLeftOut {
    pub cpu: u32,
    pub why: Cow<'static, str>,
}

/// The CPUs of a window. Its JSON has the rows: [`CounterTotals`] and [`PerIo`] are beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuSummary {
    pub duration_ns: u64,
    /// None: nobody can tell whether interrupts are timed or found by ticks.
    pub interrupts_timed: Option<bool>,
    /// One row per CPU that was there from start to end.
    pub cpus: Vec<CpuRow>,
    pub cores: Vec<CpuRow>,
    /// CPUs whose socket is not known are in none.
    pub sockets: Vec<CpuRow>,
    pub all: Option<CpuRow>,
    pub left_out: Vec<CpuLeftOut>,
    /// Of the whole machine; the kernel does not tell them by CPU.
    #[serde(skip)]
    pub context_switches: Option<u64>,
    /// Processes and threads that were made.
    #[serde(skip)]
    pub processes: Option<u64>,
    #[serde(skip)]
    pub wakeups: Option<u64>,
    #[serde(skip)]
    pub no_wakeups: Option<String>,
    #[serde(skip)]
    pub counted: CounterTotals,
}

impl CpuSummary {
    /// Whether a core has more than one thread.
    pub fn smt(&self) -> bool {
        self.cores.iter().any(|core| core.cpus.len() > 1)
    }

    /// What is not known about the CPUs, for the envelope.
    pub fn missing(&self) -> Vec<Missing> {
        let missing = |part: &str, reason: Reason, why: String, remedy: Option<&str>| Missing {
            part: Some(part.to_string()),
            reason,
            why,
            remedy: remedy.map(str::to_string),
            ..Missing::default()
        };
        let mut out = Vec::new();
        for (event, why) in &self.counted.refused {
            let why = match (event, self.counted.counter.as_deref()) {
                (CounterEvent::Cycles | CounterEvent::Instructions, Some("cpu-clock")) => format!(
                    "only CPU time, no cycles per I/O and no instructions per cycle: {why} (counter: \
                     cpu-clock)"
                ),
                _ => format!("{} were not counted: {why}", event.name()),
            };
            out.push(missing(event.name(), Reason::NotAvailable, why, None));
        }
        if let Some(why) = &self.no_wakeups {
            let switch = why.contains("sched_schedstats").then_some("sysctl kernel.sched_schedstats=1");
            out.push(missing(
                "wakeups",
                Reason::NotTold,
                format!("wake-ups were not counted: {why}"),
                switch,
            ));
        }
        if self.context_switches.is_none() {
            let why = "context switches were not counted: /proc/stat has no count of them that grew";
            out.push(missing("context_switches", Reason::NotTold, why.to_string(), None));
        }
        for CpuLeftOut { cpu, why } in &self.left_out {
            let why = format!("CPU {cpu} is missing from the table of CPU time: {why}");
            out.push(missing("cpu_time", Reason::NotTold, why, None));
        }
        out
    }
}

/// The difference between the two readings, by CPU, core and socket.
pub fn summarize(window: &CpuWindow) -> CpuSummary {
    let (start, end) = (&window.start, &window.end);
    let duration_ns = end.at_ns.saturating_sub(start.at_ns);
    // Each timestamp is the midpoint of its reading.
    let stamps_ns = start.took_ns.saturating_add(end.took_ns) / 2;
    let (cycles, instructions) = (
        by_cpu(&window.counters, CounterEvent::Cycles),
        by_cpu(&window.counters, CounterEvent::Instructions),
    );
    let mut rows: BTreeMap<u32, CpuRow> = BTreeMap::new();
    let mut left_out = Vec::new();
    for cpu in start.cpus.keys().chain(end.cpus.keys()).copied().collect::<BTreeSet<u32>>() {
        let row = match (start.cpus.get(&cpu), end.cpus.get(&cpu)) {
            (Some(a), Some(b)) => row(a, b, duration_ns).ok_or("its counters in the kernel went backwards"),
            (None, _) => Err("it came online during the run"),
            (_, None) => Err("it went offline during the run"),
        };
        match row {
            Err(why) => left_out.push(CpuLeftOut { cpu, why: why.into() }),
            Ok(row) => {
                _ = rows.insert(
                    cpu,
                    CpuRow {
                        cpus: vec![cpu],
                        socket: window.topology.sockets.get(&cpu).copied(),
                        error_ns: ERROR_NS.saturating_add(stamps_ns),
                        cycles: cycles.get(&cpu).copied(),
                        instructions: instructions.get(&cpu).copied(),
                        ..row
                    },
                )
            }
        }
    }
    let cores: Vec<CpuRow> = window
        .topology
        .cores
        .iter()
        .filter_map(|core| CpuRow::sum(&core.iter().filter_map(|cpu| rows.get(cpu)).collect::<Vec<_>>()))
        .collect();
    let numbers: BTreeSet<u32> = rows.values().filter_map(|row| row.socket).collect();
    let of_socket = |number: &u32| {
        CpuRow::sum(&rows.values().filter(|row| row.socket == Some(*number)).collect::<Vec<_>>())
    };
    let (wakeups, no_wakeups) = match wakeups(window) {
        Ok(woken) => (Some(woken), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let grown = |a: Option<u64>, b: Option<u64>| b?.checked_sub(a?);
    CpuSummary {
        duration_ns,
        interrupts_timed: window.interrupts_timed,
        sockets: numbers.iter().filter_map(of_socket).collect(),
        all: CpuRow::sum(&rows.values().collect::<Vec<_>>()),
        counted: counted(window, &cores),
        cores,
        cpus: rows.into_values().collect(),
        left_out,
        context_switches: grown(start.context_switches, end.context_switches),
        processes: grown(start.processes, end.processes),
        wakeups,
        no_wakeups,
    }
}

/// One CPU's time; None where a counter went back that never may.
fn row(start: &CpuTime, end: &CpuTime, wall_ns: u64) -> Option<CpuRow> {
    let grown = |i: usize| end.columns[i].checked_sub(start.columns[i]);
    // iowait may be recounted as idle time later. Only their sum never decreases.
    let resting = |time: &CpuTime| time.columns[IDLE].checked_add(time.columns[IOWAIT]);
    let idle = resting(end)?.checked_sub(resting(start)?)?;
    let times = [grown(0)?, grown(1)?, grown(2)?, grown(5)?, grown(6)?, grown(7)?, idle];
    let all = times.iter().try_fold(0u64, |sum, ns| sum.checked_add(*ns))?;
    Some(CpuRow {
        wall_ns,
        times,
        iowait_ns: grown(IOWAIT).filter(|waited| *waited <= idle),
        guest_ns: end.guest_ns.zip(start.guest_ns).and_then(|(b, a)| b.checked_sub(a)),
        unaccounted_ns: i64::try_from(i128::from(wall_ns) - i128::from(all)).ok()?,
        ..CpuRow::default()
    })
}

/// Wake-ups of the CPUs that were online at both ends. The counters have 32 bits.
fn wakeups(window: &CpuWindow) -> Result<u64, NoWakeups> {
    let (start, end) = (window.start.wakeups.as_ref(), window.end.wakeups.as_ref());
    let (start, end) = (start.map_err(|why| *why)?, end.map_err(|why| *why)?);
    let both = end.iter().filter_map(|(cpu, b)| Some(b.wrapping_sub(*start.get(cpu)?)));
    Ok(both.map(u64::from).sum())
}

/// A multiplexed count, scaled up to the whole time; None where the counter never ran.
fn extrapolated(value: u64, enabled_ns: u64, running_ns: u64) -> Option<u64> {
    if running_ns == 0 {
        return None;
    }
    if running_ns >= enabled_ns {
        return Some(value);
    }
    u64::try_from(u128::from(value) * u128::from(enabled_ns) / u128::from(running_ns)).ok()
}

/// Both modes of an event on each CPU that has them.
fn by_cpu(counters: &Counters, event: CounterEvent) -> BTreeMap<u32, u64> {
    let on = |cpu: u32| sum(counters, event, &[CounterMode::User, CounterMode::Kernel], &[cpu]);
    counters.cpus.iter().filter_map(|cpu| Some((*cpu, on(*cpu)?))).collect()
}

/// An event's count on these CPUs in these modes; None where one of them has none.
fn sum(counters: &Counters, event: CounterEvent, sides: &[CounterMode], cpus: &[u32]) -> Option<u64> {
    let mut all = 0u64;
    for cpu in cpus {
        for side in sides {
            let is = |count: &&crate::host::cpu_counters::Count| {
                (count.cpu, count.event, count.side) == (*cpu, event, *side)
            };
            let count = counters.counts.iter().find(is)?;
            all = all.checked_add(extrapolated(count.value, count.enabled_ns, count.running_ns)?)?;
        }
    }
    (!cpus.is_empty()).then_some(all)
}

fn counted(window: &CpuWindow, cores: &[CpuRow]) -> CounterTotals {
    let counters = &window.counters;
    let of = |event, side| sum(counters, event, &[side], &counters.cpus);
    let user_cycles = of(CounterEvent::Cycles, CounterMode::User);
    let kernel_cycles = of(CounterEvent::Cycles, CounterMode::Kernel);
    let clock_ns = of(CounterEvent::CpuClock, CounterMode::Both);
    let counter = match (user_cycles.and(kernel_cycles), clock_ns) {
        (Some(_), _) => Some(CounterEvent::Cycles),
        (None, Some(_)) => Some(CounterEvent::CpuClock),
        (None, None) => None,
    };
    let mut refused = counters.refused.clone();
    for event in [
        CounterEvent::Cycles,
        CounterEvent::Instructions,
        CounterEvent::FrontendStalls,
        CounterEvent::BackendStalls,
    ] {
        let never = counters.counts.iter().any(|count| count.event == event && count.running_ns == 0);
        if never && refused.iter().all(|(known, _)| *known != event) {
            refused.push((event, "all hardware counters were in use by others".to_string()));
        }
    }
    let share = |count: &crate::host::cpu_counters::Count| {
        (count.enabled_ns > 0).then(|| (count.running_ns as f64 / count.enabled_ns as f64).min(1.0))
    };
    CounterTotals {
        counter: counter.map(|event| event.name().to_string()),
        user_cycles,
        kernel_cycles,
        user_instructions: of(CounterEvent::Instructions, CounterMode::User),
        kernel_instructions: of(CounterEvent::Instructions, CounterMode::Kernel),
        frontend_stalls: of(CounterEvent::FrontendStalls, CounterMode::Both),
        backend_stalls: of(CounterEvent::BackendStalls, CounterMode::Both),
        core_cycles: core_cycles(&by_cpu(counters, CounterEvent::Cycles), cores, &counters.cpus),
        clock_ns,
        counted_share: counters.counts.iter().filter_map(share).reduce(f64::min),
        refused,
    }
}

/// Cycles of cores, lower and upper bound. Threads of a core that ran at the same time shared its cycles: it had at
/// least as many as its busiest thread, and at most their sum.
fn core_cycles(cycles: &BTreeMap<u32, u64>, cores: &[CpuRow], cpus: &[u32]) -> Option<(u64, u64)> {
    let all = cores.iter().flat_map(|core| &core.cpus).collect::<BTreeSet<_>>();
    if cpus.is_empty() || cpus.iter().any(|cpu| !all.contains(cpu)) {
        return None;
    }
    let mut sums = (0u64, 0u64);
    for core in cores {
        let threads: Option<Vec<u64>> = core.cpus.iter().map(|cpu| cycles.get(cpu).copied()).collect();
        let threads = threads?;
        sums.0 = sums.0.checked_add(threads.iter().copied().max()?)?;
        sums.1 = sums.1.checked_add(threads.iter().try_fold(0u64, |sum, n| sum.checked_add(*n))?)?;
    }
    Some(sums)
}

/// What falls on one I/O, of everything that ran on the machine. None: not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PerIo {
    #[serde(rename = "cycles_per_io")]
    pub cycles: Option<f64>,
    #[serde(rename = "core_cycles_per_io")]
    pub core_cycles: Option<(f64, f64)>,
    #[serde(rename = "instructions_per_io")]
    pub instructions: Option<f64>,
    #[serde(rename = "context_switches_per_io")]
    pub context_switches: Option<f64>,
    #[serde(rename = "wakeups_per_io")]
    pub wakeups: Option<f64>,
    pub instructions_per_cycle: Option<f64>,
    pub user_instructions_per_cycle: Option<f64>,
    pub kernel_instructions_per_cycle: Option<f64>,
    /// Of all cycles, 0 to 1.
    #[serde(rename = "stalled_frontend_share")]
    pub frontend_stalls: Option<f64>,
    #[serde(rename = "stalled_backend_share")]
    pub backend_stalls: Option<f64>,
}

/// Divides the counts by the number of I/Os.
pub fn per_io(cpu: &CpuSummary, ios: u64) -> PerIo {
    let io = |n: Option<u64>| n.filter(|_| ios > 0).map(|n| n as f64 / ios as f64);
    let counted = &cpu.counted;
    let cycles = counted.cycles();
    let ratio = |a: Option<u64>, b: Option<u64>| Some(a? as f64 / b.filter(|b| *b > 0)? as f64);
    PerIo {
        cycles: io(cycles),
        core_cycles: counted.core_cycles.and_then(|(low, high)| Some((io(Some(low))?, io(Some(high))?))),
        instructions: io(counted.instructions()),
        context_switches: io(cpu.context_switches),
        wakeups: io(cpu.wakeups),
        instructions_per_cycle: ratio(counted.instructions(), cycles),
        user_instructions_per_cycle: ratio(counted.user_instructions, counted.user_cycles),
        kernel_instructions_per_cycle: ratio(counted.kernel_instructions, counted.kernel_cycles),
        frontend_stalls: ratio(counted.frontend_stalls, cycles),
        backend_stalls: ratio(counted.backend_stalls, cycles),
    }
}

/// The classes that share the kernel-mode cycles.
const KERNEL: [CpuClass; 5] =
    [CpuClass::System, CpuClass::IoWq, CpuClass::Irq, CpuClass::Softirq, CpuClass::Kthread];

/// Cycles of one class per I/O: user mode as counted, kernel mode in proportion to the samples. An idle CPU has no
/// cycles, except for one that polls while idle: the samples triggered by cycles show it.
pub fn cycles_per_io(cpu: &CpuSummary, profile: &ProfileSummary, class: CpuClass, ios: u64) -> Option<f64> {
    let counted = &cpu.counted;
    if ios == 0 {
        return None;
    }
    if class == CpuClass::User {
        return Some(counted.user_cycles? as f64 / ios as f64);
    }
    let samples = |class: &CpuClass| profile.classes.get(class).copied().unwrap_or(0);
    let idle = if profile.sampler == Sampler::Cycles.name() { profile.idle_seen } else { 0 };
    let all: u64 = KERNEL.iter().map(samples).sum::<u64>() + idle;
    if all == 0 || !KERNEL.contains(&class) {
        return None;
    }
    Some(counted.kernel_cycles? as f64 * samples(&class) as f64 / all as f64 / ios as f64)
}

#[cfg(test)]
#[path = "cpu_tests.rs"]
mod tests;
