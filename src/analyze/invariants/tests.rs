use std::collections::BTreeMap;

use super::probes::UNLEARNED;
use super::sums::agrees;
use super::*;
use crate::analyze::latency::summarize;
use crate::analyze::loss::lost;
use crate::envelope::ProgramCost;
use crate::hist::{self, Histogram};
use crate::host::Host;
use crate::host::counters::Counters;
use crate::load::{Direction, Job, JobResult, Target, Transfer};
use crate::wire::rows::{IoRow, OperationRow};
use crate::wire::{COVERS, OPERATION_STAGES, OPS, OPS_SHARDED, TOTALS};

/// Reads of one disk, with all stages; a test modifies `end`.
struct World {
    start: Reading,
    end: Reading,
    cost: Cost,
    load: Option<LoadSummary>,
    misses_counted: bool,
    own_stamps: bool,
    left: Result<KernelObjects, &'static str>,
}

const READS: u64 = 2000;
/// Submit, queue, device, complete, reap and the total.
const TIMES: [u64; OPERATION_STAGES] = [10, 100, 1000, 20, 5, 1135];

fn times(ns: u64, n: u64) -> Histogram {
    (0..n).map(|_| ns).collect()
}

fn counters(reads: u64) -> Option<Counters> {
    Some(Counters { reads, discards: Some(0), flushes: Some(0), iostats: Some(true), ..Counters::default() })
}

fn sample(reads: u64) -> DeviceSample {
    let mut row = IoRow { bytes: reads * 4096, ..IoRow::default() };
    row.stages[0] = times(TIMES[1], reads);
    row.stages[1] = times(TIMES[2], reads);
    let mut operations =
        vec![
            OperationRow { by_total: vec![Default::default(); TOTALS], ..OperationRow::default() };
            COVERS * OPS
        ];
    operations[0].stages = TIMES.map(|ns| times(ns, reads));
    let total = operations[0].stages[OPERATION_STAGES - 1].max().unwrap_or(1);
    let mut sums = [0; OPERATION_STAGES - 1];
    sums.iter_mut().zip(TIMES).for_each(|(sum, ns)| *sum = ns * reads);
    operations[0].by_total[total.ilog2() as usize] = (reads, sums);
    let mut rows = vec![IoRow::default(); OPS_SHARDED];
    rows[0] = row;
    DeviceSample {
        name: "sda".into(),
        hw_queues: 1,
        shards: 1,
        rows,
        rare: vec![IoRow::default(); OPS - OPS_SHARDED],
        operations,
        operation_shards: 1,
        kernel_before: counters(reads),
        kernel_after: counters(reads),
        ..DeviceSample::default()
    }
}

impl World {
    fn new() -> Self {
        let reading = |at_ns, reads| Reading {
            at_ns,
            devices: vec![sample(reads)],
            missed: BTreeMap::from([("rq_issue", 0), ("rq_complete", 0), (UNLEARNED, 0)]),
            ..Reading::default()
        };
        let ran = |name: &str| ProgramCost { name: name.into(), runs: READS / 10, ns: 50_000 };
        let mut job = JobResult::default();
        job.transfers[Direction::Read.index()] =
            Transfer { operations: READS, lat: times(1200, READS), ..Transfer::default() };
        Self {
            start: reading(0, 0),
            end: reading(1_000_000_000, READS),
            cost: Cost {
                ns_per_io: Some(300.0),
                ios: Some(READS / 10),
                programs: vec![ran("rq_issue"), ran("rq_complete")],
                ..Cost::default()
            },
            load: Some(LoadSummary {
                job: Job::new(Target::Existing("/dev/sda".into())),
                target: "/dev/sda".into(),
                device: Some("sda".into()),
                size: 1 << 30,
                fill: None,
                duration_ns: 900_000_000,
                jobs: vec![job],
                ring_workers: None,
                drive: Default::default(),
                clock: None,
                missing: Vec::new(),
            }),
            misses_counted: true,
            own_stamps: false,
            left: Ok(KernelObjects { held: 20, left: 0 }),
        }
    }

    fn device(&mut self) -> &mut DeviceSample {
        &mut self.end.devices[0]
    }

    fn test(&self) -> Vec<Invariant> {
        let summary = summarize(&Host::default(), &self.start, &self.end);
        let lost = lost(&summary, &self.start, &self.end);
        all(&TestedRun {
            summary: &summary,
            start: &self.start,
            end: &self.end,
            lost: &lost,
            cost: &self.cost,
            no_cost: None,
            misses_counted: self.misses_counted,
            own_stamps: self.own_stamps,
            load: self.load.as_ref().ok_or("it cannot be opened"),
            left: self.left,
        })
    }

    /// The invariants with this outcome.
    fn in_state(&self, state: Outcome) -> Vec<Cow<'static, str>> {
        self.test().into_iter().filter(|one| one.state == state).map(|one| one.name).collect()
    }

    fn failed(&self) -> Vec<Cow<'static, str>> {
        self.in_state(Outcome::Fail)
    }
}

fn number(tested: &[Invariant], name: &str, key: &str) -> u64 {
    let one = tested.iter().find(|one| one.name == name).unwrap();
    match one.numbers.iter().find(|(of, _)| of == key) {
        Some((_, FigureValue::Count(n))) => *n,
        other => panic!("{name}: {other:?} {:?}", one.numbers),
    }
}

#[test]
fn a_sound_run_passes_with_its_numbers() {
    let world = World::new();
    let tested = world.test();
    assert!(tested.iter().all(|one| one.state == Outcome::Pass), "{tested:#?}");
    assert_eq!(number(&tested, "kernel-counters", "read_seen"), READS);
    assert_eq!(number(&tested, "generator-count", "made"), READS);
    assert_eq!(number(&tested, "stage-sums", "stages_ns"), 1135 * READS);
    assert_eq!(number(&tested, "stage-sums", "total_ns"), 1135 * READS);
    assert_eq!(number(&tested, "histograms", "queue_stage"), READS);
    assert_eq!(number(&tested, "detached", "held"), 20);
}

#[test]
fn one_io_beside_the_kernels_counters_fails() {
    for (reads, writes) in [(READS - 1, 0), (READS - 1, 1)] {
        let mut world = World::new();
        let DeviceSample { kernel_before, kernel_after, .. } = world.device();
        for counters in [kernel_before, kernel_after] {
            let counters = counters.as_mut().unwrap();
            (counters.reads, counters.writes) = (reads, writes);
        }
        assert_eq!(world.failed(), ["kernel-counters"], "{reads} {writes}");
    }
    // An I/O that only the kernel knows of is reported as lost; but the count is wrong.
    let mut world = World::new();
    let DeviceSample { kernel_before, kernel_after, .. } = world.device();
    for counters in [kernel_before, kernel_after] {
        counters.as_mut().unwrap().reads += 1;
    }
    assert_eq!(world.failed(), ["kernel-counters"]);
    assert_eq!(number(&world.test(), "loss", "uncounted"), 1);
    let mut off = World::new();
    off.device().kernel_after.as_mut().unwrap().iostats = Some(false);
    assert_eq!(off.in_state(Outcome::NotTested), ["kernel-counters"]);
}

/// Counts of all I/Os and of those without an operation must agree.
#[test]
fn an_io_of_no_operation_that_is_in_one_row_alone_fails() {
    let world = |own: &[u64]| {
        let mut world = World::new();
        for device in [&mut world.start.devices[0], &mut world.end.devices[0]] {
            device.unowned_shards = 1;
            device.unowned = vec![IoRow::default(); OPS];
        }
        let device = world.device();
        device.rows[0].unowned = 3;
        device.unowned[0].stages[1] = own.iter().copied().collect();
        world.failed()
    };
    assert!(world(&[TIMES[2]; 3]).is_empty(), "{:?}", world(&[TIMES[2]; 3]));
    assert_eq!(world(&[TIMES[2]; 2]), ["histograms"]);
    assert_eq!(world(&[TIMES[2], TIMES[2], 1]), ["histograms"], "no I/O took 1 ns");
}

#[test]
fn a_lost_io_is_in_the_books() {
    let mut world = World::new();
    world.device().rows[0].no_start = 1;
    let kernel = READS + 1;
    world.device().kernel_before.as_mut().unwrap().reads = kernel;
    world.device().kernel_after.as_mut().unwrap().reads = kernel;
    assert!(world.failed().is_empty(), "{:#?}", world.test());
}

#[test]
fn a_read_of_the_generator_that_nobody_saw_fails() {
    let mut world = World::new();
    world.load.as_mut().unwrap().jobs[0].transfers[0].operations = READS + 1;
    assert_eq!(world.failed(), ["generator-count"]);
    world.end.unfollowed = 1;
    assert!(world.failed().is_empty(), "named as not followed");
    world.end.unfollowed = 0;
    // A lost I/O may hide several reads; without one, merges are no explanation.
    world.device().counters.merges = 5;
    world.load.as_mut().unwrap().jobs[0].transfers[0].operations = READS + 3;
    assert_eq!(world.failed(), ["generator-count"]);
    world.device().rows[0].no_start = 1;
    world.device().kernel_before.as_mut().unwrap().reads += 1;
    world.device().kernel_after.as_mut().unwrap().reads += 1;
    assert!(world.failed().is_empty(), "{:#?}", world.test());
    world.load.as_mut().unwrap().jobs[0].transfers[0].operations = READS + 7;
    assert_eq!(world.failed(), ["generator-count"]);
    let mut world = World::new();
    // Reads of other processes, with which the times cannot be compared.
    world.load.as_mut().unwrap().jobs[0].transfers[0].operations = READS - 7;
    assert_eq!(number(&world.test(), "generator-count", "of_others"), 7);
    assert_eq!(world.in_state(Outcome::NotTested), ["generator-time"]);
}

/// Nothing explains an operation counted twice: each needs a read of its own, which may be merged or lost.
#[test]
fn an_operation_that_is_counted_twice_fails() {
    let mut world = World::new();
    let twice = sample(READS + 3).operations;
    world.device().operations = twice;
    assert_eq!(world.failed(), ["generator-count"]);
    assert_eq!(number(&world.test(), "generator-count", "could_be"), READS);
    world.device().counters.merges = 2;
    assert_eq!(world.failed(), ["generator-count"]);
    world.device().counters.merges = 3;
    assert!(world.failed().is_empty(), "{:#?}", world.test());
}

#[test]
fn what_was_measured_lies_within_what_the_generator_saw() {
    let mut world = World::new();
    world.load.as_mut().unwrap().jobs[0].transfers[0].lat = times(1134, READS);
    assert_eq!(world.failed(), ["generator-time"]);
}

#[test]
fn the_generator_s_own_stamps_give_the_same_sum_on_both_sides() {
    let mut world = World { own_stamps: true, ..World::new() };
    assert_eq!(world.failed(), ["generator-time"], "1200 ns each, and 1135 seen");
    world.load.as_mut().unwrap().jobs[0].transfers[0].lat = times(1135, READS);
    assert!(world.failed().is_empty(), "{:#?}", world.test());
    world.load.as_mut().unwrap().jobs[0].transfers[0].lat = times(1200, READS);
    world.device().rows[0].no_start = 1;
    world.device().kernel_before.as_mut().unwrap().reads += 1;
    world.device().kernel_after.as_mut().unwrap().reads += 1;
    assert!(world.failed().is_empty(), "with a loss they are not of the same I/Os: {:#?}", world.test());
}

#[test]
fn without_a_load_only_the_generator_is_not_tested() {
    let mut world = World::new();
    world.load = None;
    assert!(world.failed().is_empty());
    assert_eq!(world.in_state(Outcome::NotTested), ["generator-count", "generator-time"]);
    let tested = world.test();
    let count = tested.iter().find(|one| one.name == "generator-count").unwrap();
    assert_eq!(count.why.as_deref(), Some("no load was driven: it cannot be opened"));
}

#[test]
fn a_negative_stage_fails() {
    let mut world = World::new();
    world.device().counters.negative = 1;
    assert_eq!(world.failed(), ["stage-order"]);
}

/// One nanosecond, in the sums of any cover or class.
#[test]
fn stages_that_do_not_add_up_fail() {
    let mut world = World::new();
    world.device().operations[0].stages[4].record(7);
    assert_eq!(world.failed(), ["stage-sums"]);
    let mut world = World::new();
    world.device().operations[0].by_total[10].1[2] += 1;
    assert_eq!(world.failed(), ["stage-sums"]);
    let mut world = World::new();
    world.device().operations[0].by_total[10].0 -= 1;
    assert_eq!(world.failed(), ["stage-sums"]);
    // In a rare cover, which no view shows.
    let mut world = World::new();
    let few = &mut world.device().operations[OPS_SHARDED];
    few.stages[2] = times(100, 1);
    few.stages[5] = times(101, 1);
    few.by_total[6] = (1, [0, 0, 100, 0, 0]);
    // One more than the reads: it shares one.
    world.device().counters.merges = 1;
    assert_eq!(world.failed(), ["stage-sums"]);
}

#[test]
fn a_class_holds_totals_of_its_own_size_only() {
    let mut world = World::new();
    let row = &mut world.device().operations[0];
    row.by_total.swap(10, 12);
    assert_eq!(world.failed(), ["stage-sums"]);
}

#[test]
fn an_addition_that_got_lost_shows_in_the_histogram() {
    let good = times(1000, 50);
    let counts = |n: u64| {
        let mut counts = vec![0; hist::BUCKETS];
        counts[hist::index(1000)] = n;
        counts
    };
    assert_eq!(agrees(&good), Ok(()));
    assert_eq!(agrees(&Histogram::from_parts(&counts(50), 50_000, 1000, 1000)), Ok(()));
    assert!(agrees(&Histogram::from_parts(&counts(50), 47_000, 1000, 1000)).is_err(), "three sums short");
    assert!(agrees(&Histogram::from_parts(&counts(46), 50_000, 1000, 1000)).is_err(), "four counts short");
    assert!(
        agrees(&Histogram::from_parts(&counts(50), 50_000, 100, 1000)).is_err(),
        "a minimum of no bucket"
    );
    let long = times(1 << 50, 3);
    assert_eq!(agrees(&long), Ok(()), "the last bucket is endless");
    let mut world = World::new();
    world.device().rows[0].stages[1] = Histogram::from_parts(&counts(READS), READS * 900, 900, 1000);
    assert_eq!(world.failed(), ["histograms"]);
}

#[test]
fn an_absent_queue_stage_is_named() {
    let mut world = World::new();
    world.device().rows[0].stages[0] = times(TIMES[1], READS - 3);
    assert_eq!(world.failed(), ["histograms"]);
    world.device().counters.no_queue_start = 3;
    assert!(world.failed().is_empty());
    world.device().counters.no_queue_start = 4;
    assert_eq!(world.failed(), ["histograms"], "four are named and three are absent");
    world.device().kernel_after.as_mut().unwrap().in_flight = 1;
    assert!(world.failed().is_empty(), "one is still out");
}

#[test]
fn conflicts_and_misses_fail_above_the_limit() {
    let mut world = World::new();
    world.device().counters.out_of_range = 1;
    assert!(world.failed().contains(&"slots".into()));
    let with_stale = |n| {
        let mut world = World::new();
        world.device().counters.stale = n;
        // The kernel counted them.
        world.device().kernel_before.as_mut().unwrap().reads += n;
        world.device().kernel_after.as_mut().unwrap().reads += n;
        world
    };
    let few = with_stale(2);
    assert!(few.failed().is_empty(), "{:#?}", few.test());
    let tested = few.test();
    assert!(tested.iter().find(|one| one.name == "slots").unwrap().why.is_some(), "and it says so");
    assert_eq!(with_stale(3).failed(), ["loss", "slots"], "3 of 2,003 are above 0.1 %");

    let mut world = World::new();
    world.end.missed.insert("rq_complete", 2);
    assert!(world.failed().is_empty());
    assert_eq!(number(&world.test(), "misses", "rq_complete"), 2);
    world.end.missed.insert("rq_complete", 3);
    assert_eq!(world.failed(), ["misses"]);
    world.misses_counted = false;
    assert_eq!(world.in_state(Outcome::NotTested), ["misses"]);
    world.end.missed = BTreeMap::from([(UNLEARNED, 1)]);
    assert_eq!(world.failed(), ["slots"]);
}

#[test]
fn a_cost_that_is_not_known_fails_where_it_should_be() {
    let mut world = World::new();
    world.cost.ns_per_io = None;
    assert_eq!(world.failed(), ["cost"]);
    let mut world = World::new();
    world.cost.programs.pop();
    assert_eq!(world.failed(), ["cost"]);
    let mut never = World::new();
    never.cost = Cost::default();
    assert_eq!(never.failed(), ["cost"]);
}

/// Issue events come from all devices of the machine.
#[test]
fn a_cost_that_saw_few_of_the_ios_is_not_tested() {
    let mut world = World::new();
    world.cost.ns_per_io = None;
    world.cost.programs[0].runs = 1908;
    world.cost.ios = Some(Cost::LEAST_IOS - 1);
    assert_eq!((world.failed(), world.in_state(Outcome::NotTested)), (vec![], vec!["cost".into()]));
    world.cost.programs.clear();
    world.cost.ios = Some(0);
    assert_eq!((world.failed(), world.in_state(Outcome::NotTested)), (vec![], vec!["cost".into()]));
}

#[test]
fn what_stays_in_the_kernel_fails() {
    let mut world = World::new();
    world.left = Ok(KernelObjects { held: 20, left: 1 });
    assert_eq!(world.failed(), ["detached"]);
    world.left = Err("no rights");
    assert_eq!(world.in_state(Outcome::NotTested), ["detached"]);
}

#[test]
fn an_idle_device_tests_nothing() {
    let mut world = World::new();
    world.end = Reading { at_ns: 1_000_000_000, ..world.start.clone() };
    world.load = None;
    assert_eq!(world.in_state(Outcome::Pass), ["detached"]);
    assert!(world.failed().is_empty());
}
