//! Computes a line of the live view: the machine's activity between two readings of its counters.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Missing, Reason, View};
use crate::host::activity::{Activity, Memory};
use crate::host::counters::Counters;
use crate::host::cpu_time::{CpuTime, TICK_NS};
use crate::merge::{Merge, Summary, merge, merge_fields, row};

/// Index of each kernel column in the shares: user, nice, system, idle, iowait, irq, softirq, steal.
const BELONGS: [usize; 8] = [0, 0, 1, 2, 3, 4, 5, 6];

/// Columns that may go back: the kernel computes idle time as a remainder, which may turn out smaller.
const MAY_GO_BACK: [usize; 2] = [3, 4];

const SECTOR: u64 = 512;
const PAGE: u64 = 4096;

/// CPU time of all CPUs that were there at both readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuShares {
    pub cpus: usize,
    /// They add up to 1.
    pub share: CpuSplit,
    /// The time that passed less what the kernel accounts for, as a share: ticks are counted whole, so a short
    /// interval has some. Below zero where the kernel counted more.
    pub unaccounted_share: f64,
    /// Of that, what whole ticks explain.
    pub error_share: f64,
}

impl CpuShares {
    /// Merges two intervals of given lengths.
    fn with(&self, ns: u64, later: &Self, later_ns: u64) -> Self {
        let wall = |of: &Self, ns: u64| ns as f64 * of.cpus as f64;
        // Shares refer to the time that the kernel accounts for.
        let all = |of: &Self, ns: u64| wall(of, ns) * (1.0 - of.unaccounted_share);
        let mean = |a: f64, of_a: f64, b: f64, of_b: f64| {
            (a * of_a + b * of_b) / (of_a + of_b).max(f64::MIN_POSITIVE)
        };
        let by_wall = |a: f64, b: f64| mean(a, wall(self, ns), b, wall(later, later_ns));
        let share = |of: fn(&CpuSplit) -> f64| {
            mean(of(&self.share), all(self, ns), of(&later.share), all(later, later_ns))
        };
        Self {
            cpus: self.cpus.min(later.cpus),
            share: CpuSplit {
                user: share(|of| of.user),
                system: share(|of| of.system),
                idle: share(|of| of.idle),
                iowait: share(|of| of.iowait),
                irq: share(|of| of.irq),
                softirq: share(|of| of.softirq),
                steal: share(|of| of.steal),
            },
            unaccounted_share: by_wall(self.unaccounted_share, later.unaccounted_share),
            // An upper bound: consecutive intervals share a reading.
            error_share: by_wall(self.error_share, later.error_share),
        }
    }
}

impl CpuShares {
    fn is_finite(&self) -> bool {
        let CpuSplit { user, system, idle, iowait, irq, softirq, steal } = self.share;
        let shares = [user, system, idle, iowait, irq, softirq, steal];
        shares.into_iter().chain([self.unaccounted_share, self.error_share]).all(f64::is_finite)
    }
}

/// What CPU time is split into, in the order of the view. All of it is in one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuSplit {
    pub user: f64,
    pub system: f64,
    pub idle: f64,
    pub iowait: f64,
    pub irq: f64,
    pub softirq: f64,
    pub steal: f64,
}

impl CpuSplit {
    fn of([user, system, idle, iowait, irq, softirq, steal]: [f64; 7]) -> Self {
        Self { user, system, idle, iowait, irq, softirq, steal }
    }

    /// Whole percentages that add up to 100: those that lose most by truncation get the remaining points.
    pub fn percent(&self) -> [u32; 7] {
        let Self { user, system, idle, iowait, irq, softirq, steal } = *self;
        let exact = [user, system, idle, iowait, irq, softirq, steal].map(|share| share * 100.0);
        let mut whole = exact.map(|percent| percent as u32);
        let mut order: Vec<usize> = (0..whole.len()).collect();
        order.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()).then(a.cmp(b)));
        let left = 100u32.saturating_sub(whole.iter().fold(0, |all, percent| all.saturating_add(*percent)));
        order.into_iter().take(left as usize).for_each(|at| whole[at] += 1);
        whole
    }
}

/// I/Os and bytes in the interval, and per second of the time that the machine ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiskTransfers {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// None: this kernel does not count them (discards since 4.18, flushes since 5.5), or one of the disks lacks them.
    pub discards: Option<u64>,
    pub discarded_bytes: Option<u64>,
    /// Flush commands that the disk got.
    pub flushes: Option<u64>,
    pub reads_per_second: f64,
    pub writes_per_second: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
}

impl DiskTransfers {
    fn plus(self, other: Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            reads: self.reads.saturating_add(other.reads),
            writes: self.writes.saturating_add(other.writes),
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
            discards: both(self.discards, other.discards),
            discarded_bytes: both(self.discarded_bytes, other.discarded_bytes),
            flushes: both(self.flushes, other.flushes),
            ..Self::default()
        }
    }

    fn rated(self, duration_ns: u64) -> Self {
        Self {
            reads_per_second: per_second(self.reads, duration_ns),
            writes_per_second: per_second(self.writes, duration_ns),
            read_bytes_per_second: per_second(self.read_bytes, duration_ns),
            written_bytes_per_second: per_second(self.written_bytes, duration_ns),
            ..self
        }
    }
}

/// One disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    pub name: String,
    #[serde(flatten)]
    pub moved: DiskTransfers,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tasks {
    /// At the end of the interval.
    pub running: Option<u64>,
    pub blocked: Option<u64>,
    /// Processes and threads that were made in the interval.
    pub new: Option<u64>,
}

/// Swapped in the interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Paging {
    pub in_bytes: u64,
    pub out_bytes: u64,
}

/// One line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopInterval {
    /// In which the machine ran.
    pub duration_ns: u64,
    /// In which it was suspended, besides.
    pub suspended_ns: u64,
    pub tasks: Tasks,
    /// None: no CPU was there at both readings.
    pub cpu: Option<CpuShares>,
    /// At the end of the interval.
    pub memory: Option<Memory>,
    pub paging: Option<Paging>,
    pub interrupts: Option<u64>,
    pub interrupts_per_second: Option<f64>,
    pub context_switches: Option<u64>,
    pub context_switches_per_second: Option<f64>,
    pub devices: Vec<Disk>,
    /// Of the disks that stand on none of the others.
    pub total: DiskTransfers,
    /// CPUs and disks that were not there all the time, and what else is not in the line. In JSON it is the envelope's.
    #[serde(skip)]
    pub missing: Vec<Missing>,
}

merge!(DiskTransfers {
    add: reads writes read_bytes written_bytes;
    both: discards discarded_bytes flushes;
    derived: reads_per_second writes_per_second read_bytes_per_second written_bytes_per_second;
});
merge!(Disk { first: name; add: moved; });
row!(Disk, String, |disk| disk.name.clone());
merge!(Tasks { last: running blocked; both: new; });
merge!(Paging { add: in_bytes out_bytes; });
merge_fields!(TopInterval {
    first: cpu;
    last: memory;
    add: duration_ns suspended_ns tasks total;
    both: paging interrupts context_switches;
    rows: devices;
    each: missing;
    derived: interrupts_per_second context_switches_per_second;
});

impl Merge for TopInterval {
    fn merge_with(&mut self, later: &Self) {
        let cpu = self.cpu.as_ref().zip(later.cpu.as_ref());
        let cpu = cpu.map(|(mine, theirs)| mine.with(self.duration_ns, theirs, later.duration_ns));
        // Values of a damaged line may add up to infinity, which JSON does not have.
        let cpu = cpu.filter(CpuShares::is_finite);
        self.merge_fields(later);
        self.cpu = cpu;
    }
}

impl Summary for TopInterval {
    fn settle(&mut self) {
        let ns = self.duration_ns;
        let rate = |n: Option<u64>| n.map(|n| per_second(n, ns));
        self.interrupts_per_second = rate(self.interrupts);
        self.context_switches_per_second = rate(self.context_switches);
        self.devices.iter_mut().for_each(|disk| disk.moved = disk.moved.rated(ns));
        self.devices.sort_by(|a, b| a.name.cmp(&b.name));
        self.total = self.total.rated(ns);
    }

    /// Nothing to prefix: CPUs and memory belong to a whole machine.
    fn name_host(&mut self, _: &str) {}

    fn window(&mut self) -> Option<&mut u64> {
        None
    }
}

impl View for TopInterval {
    const SCHEMA: &'static str = "biopsy.top/1";
    const HAS_DURATION: bool = true;
}

/// Rate over the time that the machine ran.
pub fn per_second(n: u64, duration_ns: u64) -> f64 {
    if duration_ns == 0 { 0.0 } else { n as f64 * 1e9 / duration_ns as f64 }
}

/// The line between two readings. `total` names the disks included in its sums.
pub fn line(from: &Activity, to: &Activity, total: &[String]) -> TopInterval {
    let duration_ns = to.clocks.at_ns.saturating_sub(from.clocks.at_ns);
    let with_suspension = to.clocks.boot_ns.saturating_sub(from.clocks.boot_ns);
    let suspended = with_suspension.saturating_sub(duration_ns);
    let mut line = TopInterval {
        duration_ns,
        // The clocks are read one after the other, so small differences are noise.
        suspended_ns: if suspended >= 1_000_000 { suspended } else { 0 },
        tasks: Tasks { running: to.running, blocked: to.blocked, new: grown(from.processes, to.processes) },
        memory: to.memory,
        paging: from.swapped.zip(to.swapped).and_then(|(a, b)| {
            let pages = |from: u64, to: u64| to.checked_sub(from)?.checked_mul(PAGE);
            Some(Paging { in_bytes: pages(a.0, b.0)?, out_bytes: pages(a.1, b.1)? })
        }),
        interrupts: grown(from.interrupts, to.interrupts),
        context_switches: grown(from.context_switches, to.context_switches),
        ..TopInterval::default()
    };
    let rate = |n: Option<u64>| n.map(|n| per_second(n, duration_ns));
    line.interrupts_per_second = rate(line.interrupts);
    line.context_switches_per_second = rate(line.context_switches);
    line.cpu = cpus(from, to, duration_ns, &mut line.missing);
    disks(from, to, total, &mut line);
    if line.suspended_ns > 0 {
        let seconds = line.suspended_ns as f64 / 1e9;
        let why =
            format!("the machine was suspended for {seconds:.1} s of the interval, which rates leave out");
        line.missing.push(Missing { reason: Reason::Suspended, why, ..Missing::default() });
    }
    line
}

/// None where one is unknown, or where the counter went back: then it restarted from an unknown value.
fn grown(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    to?.checked_sub(from?)
}

fn cpus(from: &Activity, to: &Activity, duration_ns: u64, missing: &mut Vec<Missing>) -> Option<CpuShares> {
    let (mut sums, mut count) = ([0u64; 7], 0usize);
    for cpu in from.cpus.keys().chain(to.cpus.keys()).copied().collect::<BTreeSet<u32>>() {
        let why = match (from.cpus.get(&cpu), to.cpus.get(&cpu)) {
            (Some(a), Some(b)) => match times(a, b) {
                Some(times) => {
                    sums.iter_mut().zip(times).for_each(|(sum, ns)| *sum = sum.saturating_add(ns));
                    count += 1;
                    continue;
                }
                None => "its counters went backwards",
            },
            (None, _) => "it came online",
            (_, None) => "it went offline",
        };
        let why = format!("CPU {cpu} is missing from the shares of CPU time: {why}");
        missing.push(Missing {
            part: Some("cpu".to_string()),
            reason: Reason::LeftOut,
            why,
            ..Missing::default()
        });
    }
    let all: f64 = sums.iter().map(|ns| *ns as f64).sum();
    let wall = duration_ns as f64 * count as f64;
    (all > 0.0 && wall > 0.0).then(|| CpuShares {
        cpus: count,
        share: CpuSplit::of(sums.map(|ns| ns as f64 / all)),
        unaccounted_share: 1.0 - all / wall,
        // Each column is truncated at both ends.
        error_share: (BELONGS.len() as u64 * TICK_NS) as f64 * count as f64 / wall,
    })
}

/// None where a column went back that never may.
fn times(from: &CpuTime, to: &CpuTime) -> Option<[u64; 7]> {
    let mut times = [0u64; 7];
    for (column, belongs) in BELONGS.into_iter().enumerate() {
        let (a, b) = (from.columns[column], to.columns[column]);
        let ns = if MAY_GO_BACK.contains(&column) { b.saturating_sub(a) } else { b.checked_sub(a)? };
        times[belongs] = times[belongs].checked_add(ns)?;
    }
    Some(times)
}

fn disks(from: &Activity, to: &Activity, total: &[String], line: &mut TopInterval) {
    let mut all: Option<DiskTransfers> = None;
    for name in from.disks.keys().chain(to.disks.keys()).collect::<BTreeSet<&String>>() {
        let why = match (from.disks.get(name), to.disks.get(name)) {
            (Some(a), Some(b)) => match moved(a, b) {
                Some(moved) => {
                    if total.contains(name) {
                        all = Some(all.map_or(moved, |all| all.plus(moved)));
                    }
                    line.devices.push(Disk { name: name.clone(), moved: moved.rated(line.duration_ns) });
                    if to.disks[name].iostats == Some(false) {
                        "the kernel does not count its I/O (queue/iostats is 0)"
                    } else {
                        continue;
                    }
                }
                None => "it is another device than before: its counters went backwards",
            },
            (None, _) => "it appeared during the interval",
            (_, None) => "it is gone",
        };
        line.missing.push(Missing {
            device: Some(name.clone()),
            reason: Reason::LeftOut,
            why: format!("{name} is missing from the line: {why}"),
            ..Missing::default()
        });
    }
    line.total = all.unwrap_or_default().rated(line.duration_ns);
}

fn moved(from: &Counters, to: &Counters) -> Option<DiskTransfers> {
    let bytes = |from: u64, to: u64| to.checked_sub(from)?.checked_mul(SECTOR);
    Some(DiskTransfers {
        reads: to.reads.checked_sub(from.reads)?,
        writes: to.writes.checked_sub(from.writes)?,
        read_bytes: bytes(from.read_sectors, to.read_sectors)?,
        written_bytes: bytes(from.write_sectors, to.write_sectors)?,
        discards: grown(from.discards, to.discards),
        discarded_bytes: from.discard_sectors.zip(to.discard_sectors).and_then(|(a, b)| bytes(a, b)),
        flushes: grown(from.flushes, to.flushes),
        ..DiskTransfers::default()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::host::activity::Clocks;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn shares_that_are_no_numbers_are_not_known() {
        let shares = |user, unaccounted_share| CpuShares {
            cpus: 2,
            share: CpuSplit { user, ..CpuSplit::default() },
            unaccounted_share,
            error_share: 0.0,
        };
        let line = |cpu| TopInterval { duration_ns: SECOND, cpu: Some(cpu), ..TopInterval::default() };
        let mut merged = line(shares(0.5, 0.0));
        merged.merge_with(&line(shares(0.5, 0.0)));
        assert_eq!(merged.cpu.as_ref().map(|cpu| cpu.share.user), Some(0.5));
        merged.merge_with(&line(shares(1e300, -1e300)));
        assert_eq!(merged.cpu, None);
        let all = CpuSplit { user: f64::MAX, system: f64::MAX, idle: -1.0, ..CpuSplit::default() };
        assert_eq!(all.percent()[..3], [u32::MAX, u32::MAX, 0]);
    }

    /// Ticks of a CPU, in the kernel's order.
    fn cpu(ticks: [u64; 8]) -> CpuTime {
        CpuTime { columns: ticks.map(|n| n * TICK_NS), guest_ns: None }
    }

    fn at(second: u64, cpus: &[(u32, [u64; 8])]) -> Activity {
        Activity {
            clocks: Clocks { at_ns: second * SECOND, boot_ns: second * SECOND },
            cpus: cpus.iter().map(|(number, ticks)| (*number, cpu(*ticks))).collect(),
            ..Activity::default()
        }
    }

    fn disk(reads: u64, read_sectors: u64) -> Counters {
        Counters { reads, read_sectors, ..Counters::default() }
    }

    #[test]
    fn shares_add_up_and_so_do_whole_percent() {
        let from = at(1, &[(0, [0; 8]), (1, [0; 8])]);
        // Source T's buffered run: fractions of a percent, which rounding each share separately would lose.
        let to = at(2, &[(0, [1, 2, 70, 20, 4, 1, 1, 1]), (1, [1, 0, 95, 0, 4, 0, 0, 0])]);
        let line = line(&from, &to, &[]);
        let cpu = line.cpu.unwrap();
        assert_eq!((cpu.cpus, cpu.unaccounted_share.abs() < 1e-12), (2, true));
        assert_eq!(cpu.share, CpuSplit::of([0.02, 0.825, 0.1, 0.04, 0.005, 0.005, 0.005]));
        assert_eq!(cpu.share.percent().iter().sum::<u32>(), 100);
        assert_eq!(cpu.share.percent(), [2, 83, 10, 4, 1, 0, 0], "the largest rest first, then by place");
    }

    #[test]
    fn whole_percent_of_thirds_are_a_hundred() {
        let third = 1.0 / 3.0;
        let share = CpuSplit::of([third, third, third, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(share.percent(), [34, 33, 33, 0, 0, 0, 0]);
    }

    /// Two intervals merge to their whole, whatever their lengths.
    #[test]
    fn intervals_are_merged() {
        let with = |second, ticks, reads| {
            let mut at = at(second, &[(0, ticks)]);
            at.disks.insert("sda".into(), disk(reads, 8 * reads));
            at
        };
        let a = with(1, [0; 8], 0);
        let b = with(2, [10, 0, 40, 50, 0, 0, 0, 0], 7);
        let c = with(5, [40, 0, 60, 250, 40, 5, 5, 0], 100);
        let total = ["sda".to_string()];
        let mut merged = line(&a, &b, &total);
        merged.merge_with(&line(&b, &c, &total));
        merged.settle();
        let whole = line(&a, &c, &total);
        let [mine, theirs] = [&merged, &whole].map(|line| line.cpu.clone().unwrap());
        assert!((mine.share.idle - theirs.share.idle).abs() < 1e-12, "{mine:?} {theirs:?}");
        assert!((mine.unaccounted_share - theirs.unaccounted_share).abs() < 1e-12);
        assert_eq!(TopInterval { cpu: None, ..merged }, TopInterval { cpu: None, ..whole });
    }

    #[test]
    fn a_cpu_that_comes_or_goes_is_left_out_and_named() {
        let hundred = [100, 0, 0, 0, 0, 0, 0, 0];
        let from = at(1, &[(0, [0; 8]), (1, [0; 8]), (3, [50, 0, 0, 0, 0, 0, 0, 0])]);
        let to = at(2, &[(0, hundred), (2, hundred), (3, [10, 0, 0, 0, 0, 0, 0, 0])]);
        let line = line(&from, &to, &[]);
        assert_eq!(line.cpu.as_ref().map(|cpu| (cpu.cpus, cpu.share.user)), Some((1, 1.0)));
        let why: Vec<&str> = line.missing.iter().map(|missing| missing.why.as_str()).collect();
        assert!(why[0].starts_with("CPU 1 ") && why[0].ends_with("it went offline"), "{why:?}");
        assert!(why[1].starts_with("CPU 2 ") && why[1].ends_with("it came online"), "{why:?}");
        assert!(why[2].starts_with("CPU 3 ") && why[2].ends_with("its counters went backwards"), "{why:?}");
    }

    #[test]
    fn idle_time_that_shrinks_is_none() {
        let line = line(
            &at(1, &[(0, [0, 0, 0, 500, 300, 0, 0, 0])]),
            &at(2, &[(0, [60, 0, 40, 499, 290, 0, 0, 0])]),
            &[],
        );
        assert_eq!(line.cpu.unwrap().share.percent(), [60, 40, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn disks_count_once_and_only_while_they_are_there() {
        let (mut from, mut to) = (at(1, &[]), at(3, &[]));
        from.disks = BTreeMap::from([
            ("a".into(), disk(10, 100)),
            ("b".into(), disk(5, 5)),
            ("dm".into(), disk(0, 0)),
        ]);
        to.disks = BTreeMap::from([
            ("a".into(), disk(30, 500)),
            ("b".into(), disk(4, 9)),
            ("dm".into(), disk(20, 400)),
            ("new".into(), disk(99, 99)),
        ]);
        let total = ["a", "b", "new"].map(str::to_string);
        let line = line(&from, &to, &total);
        assert_eq!((line.total.reads, line.total.read_bytes, line.total.written_bytes), (20, 400 * 512, 0));
        assert_eq!(line.total.reads_per_second, 10.0);
        assert_eq!(line.devices.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["a", "dm"]);
        let named: Vec<&str> = line.missing.iter().filter_map(|missing| missing.device.as_deref()).collect();
        assert_eq!(named, ["b", "new"]);
    }

    #[test]
    fn a_suspended_machine_did_nothing_meanwhile() {
        let (from, mut to) = (at(1, &[]), at(2, &[]));
        to.clocks.boot_ns += 3_600 * SECOND;
        let seen = line(&from, &to, &[]);
        assert_eq!((seen.duration_ns, seen.suspended_ns), (SECOND, 3_600 * SECOND));
        assert_eq!(seen.missing[0].reason, Reason::Suspended);
        to.clocks.boot_ns = to.clocks.at_ns + 900_000;
        assert_eq!(line(&from, &to, &[]).suspended_ns, 0, "the clocks are read one after the other");
    }

    fn adds_up(share: &CpuSplit) -> bool {
        let CpuSplit { user, system, idle, iowait, irq, softirq, steal } = share;
        (user + system + idle + iowait + irq + softirq + steal - 1.0).abs() < 1e-9
    }

    /// Columns so large that their sum overflows: shares are still shares.
    #[test]
    fn garbage_of_any_size_adds_up() {
        let huge = |n: u64| CpuTime { columns: [n; 8], guest_ns: None };
        let (mut from, mut to) = (at(1, &[]), at(2, &[]));
        (from.cpus, to.cpus) = (BTreeMap::from([(0, huge(0))]), BTreeMap::from([(0, huge(u64::MAX / 3))]));
        let cpu = line(&from, &to, &[]).cpu.unwrap();
        assert!(adds_up(&cpu.share), "{cpu:?}");
    }

    #[test]
    fn what_is_not_told_or_went_back_is_absent() {
        let (mut from, mut to) = (at(1, &[]), at(2, &[]));
        (from.processes, to.processes) = (Some(10), Some(17));
        (from.interrupts, to.interrupts) = (Some(10), Some(9));
        (from.swapped, to.swapped) = (Some((1, 1)), Some((3, 1)));
        let seen = line(&from, &to, &[]);
        assert_eq!((seen.tasks.new, seen.interrupts, seen.context_switches), (Some(7), None, None));
        assert_eq!((seen.paging, seen.cpu), (Some(Paging { in_bytes: 8192, out_bytes: 0 }), None));
        assert_eq!(line(&to, &from, &[]).duration_ns, 0);
        assert_eq!(per_second(5, 0), 0.0);
    }

    proptest! {
        #[test]
        fn any_counters_never_panic(
            ticks in proptest::collection::vec(any::<[u64; 8]>(), 4), clocks: [u64; 4], counts: [u64; 6],
        ) {
            let activity = |n: usize| Activity {
                clocks: Clocks { at_ns: clocks[n], boot_ns: clocks[n + 2] },
                cpus: (0..2u32)
                    .map(|cpu| (cpu, CpuTime { columns: ticks[n * 2 + cpu as usize], guest_ns: None }))
                    .collect(),
                interrupts: Some(counts[n]),
                swapped: Some((counts[n + 2], counts[n + 4])),
                disks: BTreeMap::from([("a".into(), disk(counts[n], counts[n + 2]))]),
                ..Activity::default()
            };
            let seen = line(&activity(0), &activity(1), &["a".to_string()]);
            if let Some(cpu) = seen.cpu {
                prop_assert!(adds_up(&cpu.share), "{cpu:?}");
                prop_assert_eq!(cpu.share.percent().iter().sum::<u32>(), 100);
            }
        }
    }
}
