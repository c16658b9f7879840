//! What must hold of every measurement, whatever was measured: the answer to hardware that no test of ours
//! has seen. `biopsy check --self-test` shows all of it, the tests use the parts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::latency::{Bracket, DeviceLatency, KernelClass, LatencySummary, Op, Stage};
use super::operations::{self, OperationLatency};
use crate::envelope::{Cost, Lost};
use crate::hist::{Histogram, MAX_BITS};
use crate::load::LoadSummary;
use crate::wire::{DeviceSample, Reading};

/// Share of the I/Os up to which events that the kernel kept to itself do not fail the test: the default of
/// `--max-loss`. They are counted as lost all the same.
pub const MAX_LOSS: f64 = 0.001;

/// Below this many I/Os nothing is said of the cost: the caches are cold.
const LEAST_IOS: u64 = 1000;

const NOT_FOLLOWED: &str = "operations are not followed on this kernel";

/// How a test of an invariant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    Fail,
    NotTested,
}

/// A figure of an invariant; the unit is in its key.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    Count(u64),
    Measure(f64),
}

/// One thing that must hold, and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Invariant {
    pub name: &'static str,
    pub state: Outcome,
    /// In the order in which a reader wants them.
    pub numbers: Vec<(String, Number)>,
    /// What is broken, or why it was not tested; with `Pass` what the numbers do not say.
    pub why: Option<String>,
}

/// A run that is put to the test. Its load lies inside the window.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    pub summary: &'a LatencySummary,
    pub start: &'a Reading,
    pub end: &'a Reading,
    pub lost: &'a Lost,
    pub cost: &'a Cost,
    /// Why there is no cost, where the kernel does not give it.
    pub no_cost: Option<&'a str>,
    /// The kernel counts the runs that it skips.
    pub misses_counted: bool,
    /// The load; or why there was none, so that only I/O of others was seen.
    pub load: Result<&'a LoadSummary, &'a str>,
    /// What the probes held in the kernel, and what of it was still there after their end; or why that is
    /// not known.
    pub left: Result<Left, &'a str>,
}

/// Programs, links and maps of a run in the kernel's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    pub held: u64,
    pub left: u64,
}

/// All invariants, in the order in which a doubt in one makes the next ones moot.
pub fn all(m: &Measured<'_>) -> Vec<Invariant> {
    vec![
        kernel_counters(m),
        loss(m),
        generator_count(m),
        generator_time(m),
        stage_order(m),
        stage_sums(m),
        histograms(m),
        slots(m),
        misses(m),
        cost(m),
        detached(m),
    ]
}

impl Measured<'_> {
    fn ios(&self) -> u64 {
        self.summary.devices.iter().map(|d| d.ios).sum()
    }

    /// What came in the window, device by device.
    fn deltas(&self) -> impl Iterator<Item = DeviceSample> {
        self.end.devices.iter().map(|last| {
            match self.start.devices.iter().find(|first| first.name == last.name) {
                Some(first) => last.since(first),
                None => last.clone(),
            }
        })
    }

    /// A result that needs I/O: what no I/O was there to break is not tested.
    fn of_ios(
        &self,
        name: &'static str,
        numbers: Vec<(String, Number)>,
        broken: Option<String>,
    ) -> Invariant {
        match (self.ios() + self.lost.ios, broken) {
            (_, Some(why)) => fail(name, numbers, why),
            (0, None) => not_tested(name, "no I/O was seen"),
            (_, None) => pass(name, numbers),
        }
    }
}

fn pass(name: &'static str, numbers: Vec<(String, Number)>) -> Invariant {
    Invariant { name, state: Outcome::Pass, numbers, why: None }
}

fn fail(name: &'static str, numbers: Vec<(String, Number)>, why: String) -> Invariant {
    Invariant { name, state: Outcome::Fail, numbers, why: Some(why) }
}

fn not_tested(name: &'static str, why: &str) -> Invariant {
    Invariant { name, state: Outcome::NotTested, numbers: Vec::new(), why: Some(why.to_string()) }
}

fn figure(key: &str, count: u64) -> (String, Number) {
    (key.to_string(), Number::Count(count))
}

/// The kernel's own counters: c − b ≤ seen + lost ≤ d − a, class by class.
fn kernel_counters(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "kernel-counters";
    let mut classes: BTreeMap<KernelClass, (Bracket, u64)> = BTreeMap::new();
    let mut broken = Vec::new();
    let mut lost = 0;
    for device in &m.summary.devices {
        let Some(brackets) = &device.kernel else {
            let why = format!(
                "the kernel does not count the I/O of {0}: echo 1 > /sys/block/{0}/queue/iostats",
                device.name
            );
            return not_tested(NAME, &why);
        };
        lost += device.lost_ios;
        for (class, bracket) in brackets {
            let seen = device.counted(*class);
            let (sum, all) = classes.entry(*class).or_default();
            (sum.min, sum.max, *all) = (sum.min + bracket.min, sum.max + bracket.max, *all + seen);
            // What is lost has no class.
            if seen > bracket.max || seen + device.lost_ios < bracket.min {
                broken.push(format!(
                    "{}: {seen} of class {} seen and {} lost of all classes, where the kernel counted {} to {}",
                    device.name,
                    class.name(),
                    device.lost_ios,
                    bracket.min,
                    bracket.max
                ));
            }
        }
        let whole = device.kernel_total().unwrap_or_default();
        if broken.is_empty() && !whole.holds(device.comparable()) {
            broken.push(format!(
                "{}: {} I/Os seen or lost, where the kernel counted {} to {}",
                device.name,
                device.comparable(),
                whole.min,
                whole.max
            ));
        }
    }
    let used = classes.iter().filter(|(_, (bracket, seen))| bracket.max + seen > 0);
    let mut numbers: Vec<_> = used
        .flat_map(|(class, (bracket, seen))| {
            [("min", bracket.min), ("seen", *seen), ("max", bracket.max)]
                .map(|(what, n)| figure(&format!("{}_{what}", class.name()), n))
        })
        .collect();
    numbers.push(figure("lost", lost));
    m.of_ios(NAME, numbers, broken.into_iter().next())
}

/// What has no stages is little, and all of it is named.
fn loss(m: &Measured<'_>) -> Invariant {
    let kinds = m.lost.probes.values().flatten().filter(|(_, n)| **n > 0);
    let numbers: Vec<_> =
        [figure("lost", m.lost.ios)].into_iter().chain(kinds.map(|(kind, n)| figure(kind, *n))).collect();
    let broken = too_many(m, m.lost.ios).map(|share| format!("{share} of the I/Os are lost"));
    m.of_ios("loss", numbers, broken)
}

/// Operations of the generator = operations seen.
fn generator_count(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "generator-count";
    let load = match m.load {
        Ok(load) => load,
        Err(why) => return not_tested(NAME, &format!("no load of our own: {why}")),
    };
    let made = load.operations() + load.errors();
    let Some(seen) = operations_seen(m.summary) else {
        return not_tested(NAME, NOT_FOLLOWED);
    };
    let unfollowed = m.end.unfollowed.saturating_sub(m.start.unfollowed);
    let untimed: u64 = m.summary.devices.iter().map(|d| d.started_before).sum();
    let merges: u64 = m.summary.devices.iter().map(|d| d.merges).sum();
    // Each I/O without times has taken an operation with it, and those that were merged into it.
    let spare = m.lost.ios + untimed + unfollowed + if m.lost.ios + untimed > 0 { merges } else { 0 };
    let numbers = vec![
        figure("made", made),
        figure("seen", seen),
        figure("of_others", seen.saturating_sub(made)),
        figure("lost_ios", m.lost.ios),
        figure("merges", merges),
        figure("unfollowed", unfollowed),
    ];
    if made == 0 {
        return not_tested(NAME, "the generator ended before its first read");
    }
    if seen + spare < made {
        let why =
            format!("{} reads of the generator were neither seen nor named as lost", made - seen - spare);
        return fail(NAME, numbers, why);
    }
    pass(NAME, numbers)
}

/// What the kernel sees of an operation lies within what the generator sees of it.
fn generator_time(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "generator-time";
    let Ok(load) = m.load else { return not_tested(NAME, "no load of our own") };
    match operations_seen(m.summary) {
        None => return not_tested(NAME, NOT_FOLLOWED),
        Some(seen) if seen > load.operations() => {
            return not_tested(NAME, "reads of others were seen beside the generator's");
        }
        Some(_) => {}
    }
    let reads = m.summary.devices.iter().filter_map(|d| d.ops.get(&Op::Read)?.operations.as_ref());
    let seen: u64 = reads.map(|all| all.total.sum()).sum();
    let whole = load.latency().sum();
    let numbers = vec![figure("generator_ns", whole), figure("seen_ns", seen)];
    if seen > whole {
        let why = format!("{} ns more were measured than the reads took", seen - whole);
        return fail(NAME, numbers, why);
    }
    m.of_ios(NAME, numbers, None)
}

/// Reads as applications see them; None where they are not followed.
fn operations_seen(summary: &LatencySummary) -> Option<u64> {
    let reads = |device: &DeviceLatency| {
        device.ops.get(&Op::Read).and_then(|op| op.operations.as_ref()).map_or(0, |all| all.operations)
    };
    summary.devices.iter().map(|device| device.operations.map(|_| reads(device))).sum()
}

/// No stage ends before it begins.
fn stage_order(m: &Measured<'_>) -> Invariant {
    let negative: u64 = m.summary.devices.iter().map(|d| d.negative).sum();
    let broken = (negative > 0).then(|| {
        format!("{negative} I/Os ended before they began: the CPUs' clocks disagree (dmesg | grep -i tsc)")
    });
    m.of_ios("stage-order", vec![figure("ios", m.ios()), figure("negative", negative)], broken)
}

/// The stages of operations add up to their totals, to the nanosecond: in each cover, and in each power of
/// two of the total.
fn stage_sums(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "stage-sums";
    if m.summary.devices.iter().all(|device| device.operations.is_none()) {
        return not_tested(NAME, NOT_FOLLOWED);
    }
    let (mut count, mut stages_ns, mut total_ns, mut classes) = (0, 0, 0, 0);
    let mut broken = None;
    for delta in m.deltas() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            let rows = delta.each_operation().filter(|(_, of, _)| *of == number);
            for covered in operations::by_cover(rows.map(|(cover, _, row)| (cover, row))) {
                count += covered.operations;
                stages_ns += covered.stages.values().map(Histogram::sum).sum::<u64>();
                total_ns += covered.total.sum();
                classes += covered.by_total.len() as u64;
                let place = || format!("{} of {}", op.name(), delta.name);
                broken = broken.or(add_up(&covered).err().map(|why| format!("{}: {why}", place())));
            }
        }
    }
    if count == 0 && broken.is_none() {
        return not_tested(NAME, "no operation ended");
    }
    let numbers = vec![
        figure("operations", count),
        figure("stages_ns", stages_ns),
        figure("total_ns", total_ns),
        figure("classes", classes),
    ];
    match broken {
        Some(why) => fail(NAME, numbers, why),
        None => pass(NAME, numbers),
    }
}

/// Each histogram agrees with itself, and holds each I/O but those whose absence is named.
fn histograms(m: &Measured<'_>) -> Invariant {
    let (mut device_count, mut queue_count, mut named) = (0, 0, 0);
    let mut broken = None;
    for (device, delta) in m.summary.devices.iter().filter_map(|device| {
        let delta = m.deltas().find(|delta| delta.name == device.name)?;
        Some((device, delta))
    }) {
        let place = |why: String| format!("{}: {why}", device.name);
        broken = broken.or(counts_agree(device).err().map(place));
        let (with_device, with_queue) = stage_counts(device);
        device_count += with_device;
        queue_count += with_queue;
        let absent = delta.counters.no_queue_start;
        named += absent;
        // Without the event (a path of a multipath drive) no stamp is there at all.
        if with_queue == 0 {
            continue;
        }
        // An issue without the stamp is counted when it is issued: what was still out at the end, or lost, is
        // in no histogram.
        let out = device.in_flight_end.unwrap_or(0)
            + device.kernel_total().map_or(0, |b| b.max - b.min)
            + device.lost_ios;
        let without = with_device.saturating_sub(with_queue);
        if !(without..=without + out).contains(&absent) && broken.is_none() {
            broken = Some(place(format!(
                "{without} I/Os have no queue stage, and {absent} are named as having none"
            )));
        }
    }
    let numbers = vec![
        figure("ios", m.ios()),
        figure("device_stage", device_count),
        figure("queue_stage", queue_count),
        figure("no_queue_start", named),
        figure("started_before", m.summary.devices.iter().map(|d| d.started_before).sum()),
    ];
    m.of_ios("histograms", numbers, broken)
}

/// I/Os that carry a bio: how many have a device stage, and how many a queue stage.
fn stage_counts(device: &DeviceLatency) -> (u64, u64) {
    let with_bio = [Op::Read, Op::Write, Op::Fua, Op::Discard, Op::WriteZeroes];
    let count = |stage| {
        let of = |op| device.ops.get(op)?.request_stages.get(&stage).map(Histogram::count);
        with_bio.iter().filter_map(of).sum()
    };
    (count(Stage::Device), count(Stage::Queue))
}

/// Every slot belongs to one request at a time, and every request finds one.
fn slots(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "slots";
    let (mut outside, mut stale) = (0, 0);
    for delta in m.deltas() {
        outside += delta.counters.out_of_range;
        stale += delta.counters.stale;
    }
    let unlearned = missed(m).find(|(name, _)| *name == UNLEARNED).map_or(0, |(_, n)| n);
    let numbers =
        vec![figure("out_of_range", outside), figure("stale", stale), figure("unlearned", unlearned)];
    let broken = if outside + unlearned > 0 {
        Some("requests found no place in the tables: their I/Os are lost".to_string())
    } else {
        too_many(m, stale).map(|share| {
            format!(
                "{share} of the I/Os were issued again before their completion was seen: events are missing"
            )
        })
    };
    let mut tested = m.of_ios(NAME, numbers, broken);
    if stale > 0 && tested.state == Outcome::Pass {
        tested.why =
            Some("completions that the kernel did not tell the probes of are counted as lost".to_string());
    }
    tested
}

/// Not a program: addresses that found no place in the table.
const UNLEARNED: &str = "unlearned";

/// Runs that the kernel skipped, by program.
fn misses(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "misses";
    if !m.misses_counted {
        return not_tested(NAME, "this kernel does not count the runs that it skips (before 6.1)");
    }
    let by_program: Vec<_> = missed(m).filter(|(name, _)| *name != UNLEARNED).collect();
    let sum = by_program.iter().map(|(_, n)| n).sum();
    let mut numbers = vec![figure("programs", by_program.len() as u64), figure("missed", sum)];
    numbers.extend(by_program.iter().filter(|(_, n)| *n > 0).map(|(name, n)| figure(name, *n)));
    let broken = too_many(m, sum)
        .map(|share| format!("the kernel skipped runs of the probes, {share} as many as I/Os"));
    m.of_ios(NAME, numbers, broken)
}

fn missed<'a>(m: &Measured<'a>) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
    let then = &m.start.missed;
    m.end.missed.iter().map(|(name, n)| (*name, n.saturating_sub(then.get(name).copied().unwrap_or(0))))
}

/// As a share of the I/Os, where it is above the limit.
fn too_many(m: &Measured<'_>, n: u64) -> Option<String> {
    let share = n as f64 / (m.ios() + m.lost.ios).max(1) as f64;
    (share > MAX_LOSS).then(|| format!("{:.2} %", share * 100.0))
}

/// The probes' own cost is known, and the programs that count ran.
fn cost(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "cost";
    if let Some(why) = m.no_cost {
        return not_tested(NAME, why);
    }
    if m.ios() < LEAST_IOS {
        return not_tested(NAME, "too few I/Os were seen");
    }
    let runs = |name: &str| m.cost.programs.iter().find(|p| p.name == name).map_or(0, |p| p.runs);
    let mut numbers: Vec<(String, Number)> = [
        ("ns_per_io", m.cost.ns_per_io),
        ("attach_ns_per_io", m.cost.attach_ns_per_io),
        ("cpu_percent", m.cost.cpu_percent),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_string(), Number::Measure(value?))))
    .collect();
    numbers.push(figure("map_bytes", m.cost.map_bytes));
    numbers.push(figure("issue_runs", runs("rq_issue")));
    numbers.push(figure("completion_runs", runs("rq_complete")));
    let broken = if m.cost.ns_per_io.is_none() {
        Some("the kernel's program statistics gave no figure")
    } else if runs("rq_issue") == 0 || runs("rq_complete") == 0 {
        Some("programs without which no I/O is seen have no statistics")
    } else {
        None
    };
    match broken {
        Some(why) => fail(NAME, numbers, why.to_string()),
        None => pass(NAME, numbers),
    }
}

/// Nothing of the probes stays in the kernel.
fn detached(m: &Measured<'_>) -> Invariant {
    const NAME: &str = "detached";
    match m.left {
        Err(why) => not_tested(NAME, why),
        Ok(Left { held, left }) => {
            let numbers = vec![figure("held", held), figure("left", left)];
            match left {
                0 => pass(NAME, numbers),
                _ => fail(NAME, numbers, "programs, links or maps are still in the kernel".to_string()),
            }
        }
    }
}

/// Σ of the stages = the total, over the same operations, in all and in each power of two.
pub fn add_up(all: &OperationLatency) -> Result<(), String> {
    let n = all.total.count();
    let left: u64 = all.not_covered.values().sum();
    if n + left != all.operations {
        return Err(format!("{n} operations have stages and {left} are named, of {}", all.operations));
    }
    for (stage, hist) in &all.stages {
        agrees(hist).map_err(|why| format!("{}: {why}", stage.name()))?;
        if hist.count() != n {
            return Err(format!("{} operations have {} and {n} a total", hist.count(), stage.name()));
        }
        let of_classes: u64 = all.by_total.iter().filter_map(|class| class.sums_ns.get(stage)).sum();
        if of_classes != hist.sum() {
            let (name, sum) = (stage.name(), hist.sum());
            return Err(format!("{name} is {sum} ns, and {of_classes} ns over the classes of the total"));
        }
    }
    agrees(&all.total).map_err(|why| format!("total: {why}"))?;
    let stages: u64 = all.stages.values().map(Histogram::sum).sum();
    if stages != all.total.sum() {
        return Err(format!("the stages add up to {stages} ns and the total is {} ns", all.total.sum()));
    }
    let in_classes: u64 = all.by_total.iter().map(|class| class.operations).sum();
    if in_classes != n {
        return Err(format!("{in_classes} operations are in classes of the total, of {n}"));
    }
    for class in &all.by_total {
        let sum: u128 = class.sums_ns.values().map(|ns| u128::from(*ns)).sum();
        let each = u128::from(class.operations);
        // The highest class has no upper bound.
        let above = class.upper_ns <= 1 << MAX_BITS && sum >= each * u128::from(class.upper_ns);
        if sum < each * u128::from(class.lower_ns) || above {
            return Err(format!(
                "{each} operations of {} to {} ns took {sum} ns together",
                class.lower_ns, class.upper_ns
            ));
        }
    }
    Ok(())
}

/// Classes of I/O, queues and the device tell the same counts, and every histogram agrees with itself.
pub fn counts_agree(device: &DeviceLatency) -> Result<(), String> {
    let same = |what: &str, found: u64, wanted: u64| {
        if found == wanted { Ok(()) } else { Err(format!("{found} {what}, of {wanted}")) }
    };
    same("I/Os are in classes", device.ops.values().map(|op| op.ios).sum(), device.ios)?;
    same("bytes are in classes", device.ops.values().map(|op| op.bytes).sum(), device.bytes)?;
    // A bio-based device has no queues, and the other classes have no row per queue.
    if !device.bio_based {
        let queued = [Op::Read, Op::Write].iter().filter_map(|op| device.ops.get(op)).map(|op| op.ios).sum();
        same("I/Os are in queues", device.queues.iter().map(|queue| queue.ios).sum(), queued)?;
    }
    let of_ops = device.ops.values().map(|op| &op.request_stages);
    let of_queues = device.queues.iter().map(|queue| &queue.request_stages);
    for (stage, hist) in of_ops.chain(of_queues).flatten() {
        agrees(hist).map_err(|why| format!("{}: {why}", stage.name()))?;
    }
    Ok(())
}

/// Sum and extremes are kept apart from the buckets, and must be possible beside them: an addition that got
/// lost shows here.
pub fn agrees(hist: &Histogram) -> Result<(), String> {
    let (mut least, mut most) = (0u128, 0u128);
    let mut endless = false;
    let (mut first, mut last) = (None, None);
    for (lower, upper, n) in hist.buckets() {
        least += u128::from(lower) * u128::from(n);
        most += u128::from(upper - 1) * u128::from(n);
        // The last bucket holds everything above it as well.
        endless |= upper == 1 << MAX_BITS;
        first.get_or_insert((lower, upper));
        last = Some((lower, upper));
    }
    let (Some(first), Some(last), Some(min), Some(max)) = (first, last, hist.min(), hist.max()) else {
        return if hist.sum() == 0 { Ok(()) } else { Err(format!("{} ns in no value", hist.sum())) };
    };
    let sum = u128::from(hist.sum());
    if sum < least || sum > most && !endless {
        return Err(format!("the values add up to {sum} ns, and the buckets to {least} to {most} ns"));
    }
    if min < first.0 || min >= first.1 && !endless || max < last.0 || max >= last.1 && !endless {
        return Err(format!(
            "{min} to {max} ns are the extremes of buckets from {} to {} ns",
            first.0, last.1
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "invariants_tests.rs"]
mod tests;
