use serde_json::{Value, json};

use super::precondition::tests::steady;
use super::*;
use crate::analyze::sweep::{Sweep, SweepPoint, literal};
use crate::hist::Histogram;
use crate::host::nvme::{Health, Use};
use crate::load::{
    BlockCounts, BlockShare, BlockSizes, ClockQuality, Direction, Drive, Failures, Fill, Job, JobResult,
    Pattern, RingWorkers, SeriesInterval, Target, Timestamps, Transfer,
};

/// A load without any measurement.
pub fn idle() -> LoadSummary {
    LoadSummary {
        job: Job::new(Target::Existing("/dev/sda".into())),
        target: "/dev/sda".to_string(),
        device: Some("sda".to_string()),
        size: 1 << 30,
        fill: None,
        duration_ns: 0,
        jobs: vec![JobResult::default()],
        ring_workers: None,
        drive: Default::default(),
        clock: None,
        missing: vec!["registered buffers: too little".to_string()],
    }
}

#[test]
fn a_run_without_operations_has_nulls_and_no_zero_rates() {
    let value = json!(LoadResult::of(&[idle()]));
    assert_eq!(value["ios"], 0);
    for key in [
        "iops",
        "bytes_per_second",
        "user_cpu_percent",
        "ios_per_submit",
        "ios_per_reap",
        "fill",
        "ring_workers",
        "rwmixread",
        "in_flight",
        "syncs",
        "never_began",
        "read_back",
    ] {
        assert_eq!(value[key], Value::Null, "{key}");
    }
    assert_eq!(value["latency"]["min_ns"], Value::Null);
    assert_eq!(value["directions"]["read"]["lat"], Value::Null);
    assert_eq!(value["directions"].get("write"), None, "a direction that the pattern has not");
}

/// Half reads and half writes of 4 KiB for 2 s by two threads.
pub fn mixed(stonewall: bool) -> LoadSummary {
    let mut job = JobResult {
        duration_ns: 2_000_000_000,
        submitted: Histogram::from_iter([4; 5]),
        failures: vec![Failures { direction: Direction::Write, errno: libc::ENOSPC, count: 2 }],
        ..JobResult::default()
    };
    for direction in [Direction::Read, Direction::Write] {
        job.transfers[direction.index()] = Transfer {
            operations: 9,
            bytes: 9 << 12,
            slat: Histogram::from_iter([100; 3]),
            lat: Histogram::from_iter([900; 9]),
            ..Transfer::default()
        };
    }
    let pattern = Job { rw: Pattern::RandReadWrite, stonewall, ..idle().job };
    LoadSummary { job: pattern, duration_ns: 2_000_000_000, jobs: vec![job.clone(), job], ..idle() }
}

#[test]
fn directions_have_their_own_figures() {
    let value = json!(LoadResult::of(&[mixed(false)]));
    let write = &value["directions"]["write"];
    assert_eq!((&write["ios"], &write["iops"]), (&json!(18), &json!(9.0)));
    assert_eq!((&write["slat"]["count"], &write["lat"]["count"]), (&json!(6), &json!(18)));
    assert_eq!(write["clat"], Value::Null, "these times were not measured");
    assert_eq!(value["jobs"][1]["directions"]["read"]["ios"], 9);
    assert_eq!(
        value["failures"],
        json!([{ "direction": "write", "errno": 28, "error": "no space left on device", "count": 4 }])
    );
    assert_eq!(value["submitted"]["p50"], 4);
    assert_eq!(value["block_sizes"]["read"][0]["low_bytes"], 4096);
}

#[test]
fn sections_stand_beside_their_totals() {
    let value = json!(LoadResult::of(&[mixed(false), mixed(false), mixed(true)]));
    assert_eq!(value["sections"].as_array().unwrap().len(), 3);
    assert_eq!(value["sections"][2]["ios"], 36);
    assert_eq!(value["ios"], 108);
    assert_eq!(value["iops"], 27.0, "the first two ran at the same time");
    assert_eq!(value["directions"]["read"]["iops"], 13.5);
    assert_eq!(json!(LoadResult::of(&[])), json!({}), "nothing was run");
}

/// A load with every measurement.
pub fn full(stonewall: bool) -> LoadSummary {
    let mut load = mixed(stonewall);
    (load.job.verify, load.job.timestamps) = (true, Timestamps::Sampled(4));
    load.job.bs[1] = BlockSizes(vec![BlockShare { low: 512, high: 4096, percent: 33.3 }]);
    for (number, job) in (0..).zip(&mut load.jobs) {
        (job.number, job.cpu, job.node) = (number, Some(3), Some(0));
        (job.started_ms, job.first_errno) = (Some(1_700_000_000_123), Some(libc::ENOSPC));
        (job.verified, job.skipped, job.mismatch) = (Some(7), 1, Some("the block at offset 0".to_string()));
        (job.never_began, job.user_ns, job.system_ns) = (Some(2), 1_100_000_001, 700_000_000);
        (job.context_switches, job.major_faults, job.minor_faults) = (11, 12, 13);
        job.reaped = Histogram::from_iter([1, 2, 7]);
        (job.depths, job.syncs) = (Histogram::from_iter([32; 2_000]), Histogram::from_iter([90_000]));
        job.transfers[0].clat = Histogram::from_iter(1..3_000);
        job.transfers[1].short = 3;
        job.failures.insert(0, Failures { direction: Direction::Read, errno: libc::ENODATA, count: 1 });
        job.ended[0] = 1;
    }
    let interval = |bytes: u64| SeriesInterval { duration_ns: 100_000_000, bytes };
    let cool = Health { temperature: Some(40), transitions: [Some(7), None], ..Health::default() };
    let hot = Health { temperature: Some(81), transitions: [Some(9), None], critical_warning: 2, ..cool };
    load.drive = Drive {
        sampled: Some(BlockCounts { samples: 64, zeros: 15, unread: 1, ..BlockCounts::default() }),
        usage: Some(Use { size: 3 << 40, capacity: 2 << 40, used: 1 << 40 }),
        health: Some((cool, hot)),
        written: [vec![interval(512 << 20); 24], vec![interval(128 << 20); 40]].concat(),
    };
    load.fill = Some(Fill { bytes: 1 << 30, duration_ns: 5 });
    load.ring_workers = Some(RingWorkers { threads: 2, system_ns: 77 });
    load.clock = Some(ClockQuality { counter: true, error_ns: Some(40), cost_ns: 8.25 });
    load
}

/// A sweep with a point of each kind.
pub fn swept() -> Sweep {
    let mut sweep = literal(
        "iodepth",
        &[("1", 10, 100), ("2", 20, 100), ("4", 40, 100), ("8", 78, 103), ("16", 80, 200)],
    );
    let point = |loads, failed: Option<&str>| SweepPoint {
        loads,
        failed: failed.map(str::to_string),
        cut: true,
        ..sweep.points[0].clone()
    };
    let more = [point(vec![full(false), full(true)], None), point(Vec::new(), Some("no memory"))];
    sweep.points.extend(more);
    sweep
}

#[test]
fn each_form_is_read_back() {
    let done = steady();
    for result in [
        LoadResult::of(&[full(false)]),
        LoadResult::of(&[idle()]),
        LoadResult::of(&[full(false), full(false), full(true)]).after(Some(&done)),
        LoadResult::of_sweep(&swept()).after(Some(&done)),
    ] {
        let value = json!(result);
        let back: LoadResult = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(back, result);
        assert_eq!(json!(back), value);
    }
    let one = json!(LoadResult::of(&[full(false)]));
    for (key, value) in one.as_object().unwrap() {
        assert!(!value.is_null(), "{key} is to be set");
    }
}

#[test]
fn what_is_damaged_is_an_error_of_its_form() {
    let error = |loads: &[LoadSummary], change: fn(&mut Value)| {
        let mut value = json!(LoadResult::of(loads));
        change(&mut value);
        serde_json::from_value::<LoadResult>(value).unwrap_err().to_string()
    };
    let one = [full(false)];
    let wrong = error(&one, |value| value["engine"] = json!("sync"));
    assert!(wrong.contains("unknown variant `sync`"), "{wrong}");
    let wrong = error(&one, |value| _ = value.as_object_mut().unwrap().remove("name"));
    assert!(wrong.contains("missing field `name`"), "{wrong}");
    let wrong = error(&[idle(), idle()], |value| value["sections"][1]["size"] = json!(-1));
    assert!(wrong.contains("-1"), "{wrong}");
    let wrong = error(&one, |value| value["in_flight"]["count"] = json!(1));
    assert!(wrong.contains("do not belong together"), "{wrong}");
}
