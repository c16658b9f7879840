//! Properties of the diagnosis over random runs: there is always an answer, and noise never makes another one surer.

use super::literal::{Case, profile};
use super::*;
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::load::random::below;

const CASES: u64 = 10_000;

/// Findings that are about the noise itself: adding noise may make them. So is any about all CPUs together.
const OF_THE_NOISE: [&str; 6] =
    ["cpu-contention", "cpu-steal", "foreign-io", "inconclusive", "largest-stage", "not-enough-io"];

struct Random(u64);

impl Random {
    /// From 0 to less than `bound`.
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

/// A run of one second on one disk. The stages fit the depth and the rate, the rest is independent.
fn case(random: &mut Random) -> Case {
    let depth = random.one_of(&[1, 2, 4, 8, 16, 32, 64, 128]);
    let ios = random.one_of(&[120, 1_000, 20_000, 60_000, 300_000]);
    let mut case = Case::new(ios, depth);
    let total = 1_000_000_000 * u64::from(depth) / ios;
    let queue = random.below(100);
    let crowding = random.one_of(&[1, 3, 10]);
    case.stage(Stage::Queue, total * queue / 100, total * queue / 200);
    case.stage(Stage::Device, total * (100 - queue) / 100, total * (100 - queue) / 100 / crowding);
    let (user, system) = (random.below(50), random.below(50));
    case.worker(user, system);
    let busy = random.below(800);
    case.profile = Some(profile(&[
        (CpuClass::System, busy / 2),
        (CpuClass::User, busy / 4),
        (CpuClass::Irq, busy / 8),
        (CpuClass::Softirq, busy / 8),
    ]));
    if random.is_one_in(3) {
        case.profile = None;
    }
    if random.is_one_in(4) {
        case.disk().scheduler = Some("mq-deadline".into());
    }
    if random.is_one_in(8) {
        case.latency.devices[0].requeues = random.below(ios);
    }
    if random.is_one_in(2) {
        case.at_twice_the_depth(0.95 + random.below(100) as f64 / 100.0);
    }
    if random.is_one_in(4) {
        case.load = None;
        case.experiment = None;
    }
    case
}

/// Confidence of each limit that is more than a note, by id and subject.
fn limits(case: &Case) -> Vec<(&'static str, String, f64)> {
    let found = diagnose(&case.summaries()).findings;
    let limits = found.into_iter().filter(|one| one.severity > Severity::Note);
    limits
        .filter(|one| !OF_THE_NOISE.contains(&one.id) && one.subject != "all CPUs")
        .map(|one| (one.id, one.subject, one.confidence))
        .collect()
}

fn never_surer(what: &str, seed: u64, before: &Case, after: &Case) {
    let (was, is) = (limits(before), limits(after));
    for (id, subject, confidence) in &is {
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
            // A second device in doubt does not keep the first one from an answer.
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

/// Others write to the device: the load's own reads are as they were.
#[test]
fn the_io_of_others_makes_no_other_limit_surer() {
    for seed in 0..CASES {
        let random = &mut Random(seed);
        let before = case(random);
        // Without a load of our own all I/O is what the diagnosis is about.
        if before.load.is_none() {
            continue;
        }
        let mut after = case(&mut Random(seed));
        let mut of = after.latency.devices[0].ops[&Op::Read].clone();
        of.ios = 1 + random.below(after.latency.devices[0].ios);
        of.bytes = of.ios * 4096;
        after.latency.devices[0].ios += of.ios;
        after.latency.devices[0].queues[0].ios += of.ios;
        // The driver refuses the others' requests as often.
        let requeues = before.latency.devices[0].requeues as f64 / before.latency.devices[0].ios as f64;
        after.latency.devices[0].requeues = (requeues * after.latency.devices[0].ios as f64).ceil() as u64;
        after.latency.devices[0].ops.insert(Op::Write, of);
        never_surer("the I/O of others", seed, &before, &after);
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
