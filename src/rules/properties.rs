//! Property tests of the diagnosis over random runs: there is always an answer, and noise never raises the confidence
//! of another finding.

use std::collections::BTreeMap;

use super::fixtures::{Case, SECOND, hist, profile};
use super::*;
use crate::analyze::counting::Bracket;
use crate::analyze::cpu::{CpuRow, TIMES};
use crate::analyze::latency::OpLatency;
use crate::analyze::op::Op;
use crate::analyze::rates::RateInterval;
use crate::analyze::sharing::{ProcessIos, Relation};
use crate::analyze::stage::Stage;
use crate::load::random::below;

pub const CASES: u64 = 10_000;

/// Findings that are about the noise itself: adding noise may cause them. So may any about all CPUs together.
const OF_THE_NOISE: [&str; 6] =
    ["cpu-contention", "cpu-steal", "foreign-io", "inconclusive", "largest-stage", "not-enough-io"];

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.0, bound)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn is_one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A random run on one disk. The stages match the depth and the rate, the rest is independent. It lasts `parts` tenths
/// of a second: with fewer, all counts and times shrink in proportion.
fn case_of(random: &mut Random, parts: u64) -> Case {
    let depth = random.one_of(&[1, 2, 4, 8, 16, 32, 64, 128]);
    let per_second = random.one_of(&[1_000, 20_000, 60_000, 300_000]);
    let (ios, part) = (per_second * parts / 10, SECOND * parts / 10);
    let mut case = Case::new(ios, depth);
    let total = SECOND * u64::from(depth) / per_second;
    (case.envelope.duration_ns, case.latency.duration_ns) = (part, part);
    case.load.as_mut().unwrap().duration_ns = part;
    case.loaded().lat = hist(ios, total, total / 5);
    let queue = random.below(100);
    let crowding = random.one_of(&[1, 3, 10]);
    case.stage(Stage::Queue, total * queue / 100, total * queue / 200);
    case.stage(Stage::Device, total * (100 - queue) / 100, total * (100 - queue) / 100 / crowding);
    let job = &mut case.load.as_mut().unwrap().jobs[0];
    (job.user_ns, job.system_ns) = (random.below(50) * part / 100, random.below(50) * part / 100);
    let busy = random.below(800);
    let mut seen = profile(&[
        (CpuClass::System, busy / 2),
        (CpuClass::User, busy / 4),
        (CpuClass::Irq, busy / 8),
        (CpuClass::Softirq, busy / 8),
    ]);
    seen.duration_ns = part;
    case.profile = Some(seen);
    if random.is_one_in(3) {
        case.profile = None;
    }
    if random.is_one_in(4) {
        case.disk().scheduler = Some("mq-deadline".into());
    }
    if random.is_one_in(8) {
        case.latency.devices[0].requeues = random.below(per_second) * parts / 10;
    }
    if random.is_one_in(2) {
        case.at_twice_the_depth(0.95 + random.below(100) as f64 / 100.0);
    }
    // With fewer I/Os too few interrupts are timed.
    if random.is_one_in(3) && per_second >= 20_000 {
        interrupts(random, &mut case, parts);
    }
    if random.is_one_in(3) {
        case.cpu = Some(cpus(random.below(20), random.below(100), part));
    }
    if random.is_one_in(2) {
        case.load = None;
        case.experiment = None;
        case.command = random.is_one_in(2);
        case.latency.filtered = !case.command && random.is_one_in(2);
        others_or_none(random, &mut case, parts);
    }
    case
}

fn case(random: &mut Random) -> Case {
    case_of(random, 10)
}

/// The one-second run of that seed.
pub fn random_case(seed: u64) -> Case {
    case(&mut Random(seed))
}

/// Adds what only a run without our own load has: rate samples, processes, flushes.
fn others_or_none(random: &mut Random, case: &mut Case, parts: u64) {
    let device = &case.latency.devices[0];
    let (ios, bytes) = (device.ios, device.ops[&Op::Read].bytes);
    let (spread, follows) = (random.one_of(&[0, 1, 5, 30]), random.is_one_in(2));
    if random.is_one_in(2) {
        // 30 samples a second: enough for the rules.
        let each = ios / (3 * parts);
        let window = |at: u64| {
            let share = 1.0 + (at % 5) as f64 * spread as f64 / 400.0;
            RateInterval {
                seconds: 1.0 / 30.0,
                ios: if follows { (each as f64 * share) as u64 } else { each },
                bytes: if follows { (each as f64 * share) as u64 * 4096 } else { each * 4096 },
                in_flight: 8.0 * share * share,
                busy_seconds: 1.0 / 30.0,
            }
        };
        let windows = (0..3 * parts).map(window).collect();
        case.rates = vec![DeviceRates { device: "vda".into(), busy: 1.0, windows }];
    }
    let own = ProcessIos {
        pid: Some(1),
        comm: "own".into(),
        relation: if case.command { Relation::Command } else { Relation::Other },
        selected: true,
        bios: ios,
        bytes,
    };
    if case.command || random.is_one_in(2) {
        case.latency.devices[0].processes = Some(vec![own]);
    }
    if case.latency.filtered {
        case.latency.devices[0].all_ios = Some(Bracket { min: ios, max: ios });
    }
    if random.is_one_in(3) {
        let flushes = random.one_of(&[200, 2_000, 20_000]) * parts / 10;
        let each = SECOND * parts / 10 * random.below(100) / 100 / flushes;
        let of = |ios: u64, bytes: u64| OpLatency {
            ios,
            bytes,
            request_stages: BTreeMap::from([(Stage::Device, hist(ios, each, each))]),
            ..OpLatency::default()
        };
        let device = &mut case.latency.devices[0];
        device.ops.insert(Op::Flush, of(flushes, 0));
        device.ops.insert(Op::Write, of(flushes, flushes * 4096));
        device.ios += 2 * flushes;
    }
}

/// One vector with a share of one CPU, with or without softirqs.
fn interrupts(random: &mut Random, case: &mut Case, parts: u64) {
    let ios = case.latency.devices[0].ios;
    let carried = random.one_of(&[1, 2, 10]);
    let count = (ios / carried).max(1);
    let handler = SECOND * parts / 10 * random.below(90) / 100 / count;
    case.interrupt(41, &[(0, count)], handler, carried);
    let soft = random.below(90) as f64;
    if random.is_one_in(2) {
        case.soft(soft, ios / 2);
    }
    case.interrupts.as_mut().unwrap().duration_ns = SECOND * parts / 10;
}

/// Two CPUs with these percentages of steal, and of idle in the rest.
fn cpus(stolen: u64, idle: u64, wall_ns: u64) -> CpuSummary {
    let row = |cpus: Vec<u32>| {
        let wall_ns = wall_ns * cpus.len() as u64;
        let at = |name: &str| TIMES.iter().position(|time| *time == name).unwrap();
        let mut times = [0; 7];
        times[at("steal")] = wall_ns * stolen / 100;
        times[at("idle")] = (wall_ns - times[at("steal")]) * idle / 100;
        times[at("user")] = wall_ns - times[at("steal")] - times[at("idle")];
        CpuRow { cpus, wall_ns, times, ..CpuRow::default() }
    };
    CpuSummary {
        duration_ns: wall_ns,
        cpus: vec![row(vec![0]), row(vec![1])],
        all: Some(row(vec![0, 1])),
        ..CpuSummary::default()
    }
}

/// Confidence of each limit above a note, by id and subject.
fn limits(case: &Case) -> Vec<(&'static str, String, f64)> {
    let found = diagnose(&case.summaries()).findings;
    let limits = found.into_iter().filter(|one| one.severity > Severity::Note);
    limits
        .filter(|one| !OF_THE_NOISE.contains(&one.id) && one.subject != "all CPUs")
        .map(|one| (one.id, one.subject, one.confidence))
        .collect()
}

fn never_surer(what: &str, seed: u64, before: &Case, after: &Case) {
    never_surer_but(&[], what, seed, before, after);
}

/// `but`: findings whose confidence may rise.
fn never_surer_but(but: &[&str], what: &str, seed: u64, before: &Case, after: &Case) {
    let (was, is) = (limits(before), limits(after));
    for (id, subject, confidence) in is.iter().filter(|(id, _, _)| !but.contains(id)) {
        let then = was.iter().find(|(of, about, _)| of == id && about == subject).map_or(0.0, |one| one.2);
        assert!(*confidence <= then + 1e-9, "seed {seed}: {what} makes {id} surer: {then} to {confidence}");
    }
}

#[test]
fn there_is_always_an_answer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let mut case = case(random);
        if random.is_one_in(3) {
            // Doubt about a second device does not prevent an answer for the first.
            case.twin("vdb");
            case.latency.devices[1].negative = 1;
        }
        if random.is_one_in(3) {
            case.latency.devices[0].lost_ios = case.latency.devices[0].ios / 200;
            case.latency.devices[0].vanished = random.is_one_in(2);
        }
        let found = diagnose(&case.summaries()).findings;
        assert!(found.first().is_some_and(|first| first.id != "inconclusive"), "seed {seed}: {found:?}");
        assert!(found.iter().all(|one| (0.0..=1.0).contains(&one.confidence)), "seed {seed}: {found:?}");
        assert!(
            found.iter().flat_map(|one| one.numbers.values()).all(|n| n.is_finite()),
            "seed {seed}: {found:?}"
        );
    }
}

/// Other processes write to the device: the diagnosed I/O does not change.
#[test]
fn the_io_of_others_makes_no_other_limit_surer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let before = case(random);
        let mut after = case(&mut Random(seed));
        let ios = 1 + random.below(after.latency.devices[0].ios);
        let (bytes, command) = (ios * 4096, after.command);
        let device = &mut after.latency.devices[0];
        let other = |selected| ProcessIos {
            pid: Some(4711),
            comm: "other".into(),
            relation: Relation::Other,
            selected,
            bios: ios,
            bytes,
        };
        if after.latency.filtered {
            // They are not measured.
            device.all_ios = device.all_ios.map(|all| Bracket { min: all.min + ios, max: all.max + ios });
            device.processes.iter_mut().for_each(|rows| rows.push(other(false)));
        } else if before.load.is_some() || command {
            let mut of = device.ops[&Op::Read].clone();
            (of.ios, of.bytes) = (ios, bytes);
            of.request_stages.clear();
            // The driver refuses the others' requests equally often.
            let requeues = device.requeues as f64 / device.ios as f64;
            device.ios += ios;
            device.queues[0].ios += ios;
            device.requeues = (requeues * device.ios as f64).ceil() as u64;
            device.ops.entry(Op::Discard).or_insert(of);
            device.processes.iter_mut().for_each(|rows| rows.push(other(true)));
            // Rate samples include them.
            for window in after.rates.iter_mut().flat_map(|rates| &mut rates.windows) {
                window.ios += ios / 30;
                window.bytes += bytes / 30;
                window.in_flight += 4.0;
            }
        } else {
            // Without a load or a command the diagnosis covers all I/O.
            continue;
        }
        // That the rate followed the I/Os in flight speaks against device-bound. The samples cover all processes, so
        // other processes can hide it.
        let but: &[&str] = if before.rates.is_empty() { &[] } else { &["device-bound"] };
        never_surer_but(but, "the I/O of others", seed, &before, &after);
    }
}

#[test]
fn noise_on_the_cpus_makes_no_other_limit_surer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let before = case(random);
        let mut after = case(&mut Random(seed));
        let Some(profile) = &mut after.profile else { continue };
        let idle = profile.classes[&CpuClass::Idle];
        let noise = random.below(idle + 1);
        profile.classes.insert(CpuClass::Idle, idle - noise);
        *profile.classes.entry(CpuClass::User).or_default() += noise;
        profile.folded.insert("make;cc1".into(), noise);
        never_surer("CPU noise", seed, &before, &after);
    }
}

#[test]
fn lost_ios_make_no_limit_surer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let before = case(random);
        let mut after = case(&mut Random(seed));
        after.latency.devices[0].lost_ios = random.below(after.latency.devices[0].ios);
        never_surer("loss", seed, &before, &after);
    }
}

#[test]
fn stolen_time_makes_no_other_limit_surer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let before = case(random);
        let mut after = case(&mut Random(seed));
        let percent = |time: &str| {
            let at = TIMES.iter().position(|name| *name == time).unwrap();
            before.cpu.as_ref().map(|cpu| cpu.cpus[0].times[at] * 100 / SECOND)
        };
        let stolen = (percent("steal").unwrap_or(0) + random.below(50)).min(99);
        // No more of the rest is idle than before.
        let idle = percent("idle").unwrap_or(100).min(100 - stolen) * random.below(100) / 100;
        after.cpu = Some(cpus(stolen, idle, SECOND));
        never_surer("stolen time", seed, &before, &after);
    }
}

#[test]
fn half_of_the_interval_makes_no_limit_surer() {
    for seed in 0..CASES {
        // Half a second has too few rate samples for the evidence against a limit.
        let (before, after) = (case_of(&mut Random(seed), 20), case(&mut Random(seed)));
        never_surer("half of the interval", seed, &before, &after);
    }
}

/// The cases without an answer: no I/O, too little, too much missed.
#[test]
fn too_little_io_is_the_only_reason_for_no_answer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let mut case = case(random);
        let few = random.below(facts::MIN_IOS);
        let device = &mut case.latency.devices[0];
        device.ops.retain(|op, _| *op == Op::Read);
        device.ios = few;
        device.requeues = 0;
        let read = device.ops.get_mut(&Op::Read).unwrap();
        (read.ios, read.bytes) = (few, few * 4096);
        read.request_stages.values_mut().for_each(|times| *times = hist(few.max(1), 100_000, 100_000));
        if let Some(load) = &mut case.load {
            load.jobs[0].transfers[0].operations = few;
            load.jobs[0].transfers[0].lat = hist(few.max(1), 100_000, 100_000);
        }
        (case.interrupts, case.experiment) = (None, None);
        case.rates.clear();
        let found = diagnose(&case.summaries()).findings;
        let limits = ["inconclusive", "not-enough-io", "cpu-contention", "cpu-steal"];
        assert!(limits.contains(&found[0].id), "seed {seed}: {few} I/Os: {found:?}");
    }
}
