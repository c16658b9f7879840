//! Tests of the latency summary with literal readings.

use serde_json::{Value, json};

use super::super::files::{FileKind, IoFile};
use super::super::fixtures::{json, reading, sample};
use super::super::groups::{Cgroup, CpuPair, Dimension, Group, GroupValues, Process};
use super::super::operations::{NotCovered, TotalClass};
use super::super::sharing::Relation;
use super::*;
use crate::wire::rows::OperationRow;
use crate::wire::{OPS, OPS_SHARDED};

/// Empty flushes, whose operations are unknown.
#[test]
fn two_operations_do_not_speak_for_thousands() {
    let with = |operations: u64, unowned| {
        let mut counts = [0; crate::hist::BUCKETS];
        counts[crate::hist::index(100)] = operations;
        let total = Histogram::from_parts(&counts, 100 * operations, 100, 100);
        let operations = Some(OperationLatency { total, ..OperationLatency::default() });
        OpLatency { ios: 1_000, unowned, operations, ..OpLatency::default() }.stages().0
    };
    assert_eq!((with(2, None), with(500, None)), (Unit::Io, Unit::Operation));
    assert_eq!(
        (with(2, Some(499)), with(2, Some(500))),
        (Unit::Operation, Unit::Io),
        "a few of many I/Os each"
    );
}

#[test]
fn a_window_is_the_difference_of_two_readings() {
    let start = reading(1_000, sample(&[100], 10, 12));
    let end = reading(5_000, sample(&[100, 200, 300], 14, 15));
    let summary = summarize(&Host::default(), &start, &end);
    let device = &summary.devices[0];
    assert_eq!((summary.duration_ns, device.ios, device.bytes), (4_000, 2, 8192));
    assert_eq!(device.ops[&Op::Read].request_stages[&Stage::Device].sum(), 500);
    assert_eq!(device.kernel.as_ref().unwrap()[&KernelClass::Read].kernel, Bracket { min: 2, max: 5 });
    assert!(!device.kernel.as_ref().unwrap().contains_key(&KernelClass::Flush));
}

#[test]
fn a_stage_without_values_has_no_key() {
    let start = reading(0, sample(&[], 0, 0));
    let end = reading(1, sample(&[100], 1, 1));
    let device = summarize(&Host::default(), &start, &end).devices.remove(0);
    assert_eq!(device.ops[&Op::Read].request_stages.keys().collect::<Vec<_>>(), [&Stage::Device]);
    assert!(!device.ops.contains_key(&Op::Write));
    assert_eq!(device.queues.len(), 1);
}

/// Two of three reads belong to no operation; the one write does.
fn mixed() -> DeviceSample {
    let mut last = sample(&[100, 200, 300], 4, 4);
    last.rows[0].stages[0] = [10, 20, 30].into_iter().collect();
    last.rows[0].unowned = 2;
    last.rows[1].stages[1] = [50].into_iter().collect();
    last.operations = vec![OperationRow::default(); COVERS * OPS];
    last.operation_shards = 1;
    last.unowned_shards = 2;
    last.unowned = vec![IoRow::default(); 2 * OPS_SHARDED + OPS - OPS_SHARDED];
    // On two CPUs, one each.
    for (shard, times) in [[10, 100], [30, 300]].into_iter().enumerate() {
        let row = &mut last.unowned[shard * OPS_SHARDED];
        row.stages[0] = [times[0]].into_iter().collect();
        row.stages[1] = [times[1]].into_iter().collect();
    }
    last
}

/// The interval since an empty first reading.
fn whole(last: DeviceSample) -> DeviceLatency {
    let mut first = last.clone();
    for row in first.rows.iter_mut().chain(&mut first.unowned) {
        *row = IoRow::default();
    }
    summarize(&Host::default(), &reading(0, first), &reading(1, last)).devices.remove(0)
}

#[test]
fn ios_of_no_operation_have_stages_of_their_own_and_stay_among_all() {
    let device = whole(mixed());
    let read = &device.ops[&Op::Read];
    assert_eq!((read.ios, read.unowned, read.unowned_timed()), (3, Some(2), 2));
    let sums = |of: &BTreeMap<Stage, Histogram>| of.values().map(Histogram::sum).collect::<Vec<_>>();
    assert_eq!(sums(&read.request_stages), [60, 600]);
    assert_eq!(sums(&device.queues[0].request_stages), [60, 650]);
    assert_eq!(sums(&read.unowned_stages), [40, 400]);
    assert!(read.is_mixed() && !read.unowned_stages.contains_key(&Stage::Complete));
    assert_eq!(
        (read.owned_mean_ns(Stage::Queue), read.owned_mean_ns(Stage::Device)),
        (Some(20.0), Some(200.0))
    );
    let write = &device.ops[&Op::Write];
    assert_eq!((write.unowned, write.unowned_timed(), write.is_mixed()), (Some(0), 0, false));
    assert!(write.unowned_stages.is_empty(), "none is not zero");
    assert_eq!(write.owned_mean_ns(Stage::Device), Some(50.0));
    assert_eq!(super::super::invariants::sums::counts_agree(&device), Ok(()));
}

#[test]
fn an_interval_has_its_own_ios_of_no_operation() {
    let mut then = mixed();
    then.unowned[OPS_SHARDED] = IoRow::default();
    then.rows[0].unowned = 1;
    then.rows[0].stages[0] = [10, 20].into_iter().collect();
    then.rows[0].stages[1] = [100, 200].into_iter().collect();
    let device = summarize(&Host::default(), &reading(0, then), &reading(1, mixed())).devices.remove(0);
    let read = &device.ops[&Op::Read];
    assert_eq!((read.unowned, read.unowned_stages[&Stage::Device].sum()), (Some(1), 300));
    assert!(!read.is_mixed(), "it is all that came");
}

#[test]
fn where_operations_are_not_followed_no_io_is_of_none() {
    let mut last = mixed();
    (last.operations, last.unowned) = (Vec::new(), Vec::new());
    let device = whole(last);
    let read = &device.ops[&Op::Read];
    assert_eq!((read.unowned, read.unowned_stages.len(), read.unowned_bio.is_none()), (None, 0, true));
}

#[test]
fn a_bio_of_no_operation_has_its_whole_time() {
    let mut last = mixed();
    last.bio_based = true;
    let device = whole(last);
    let read = &device.ops[&Op::Read];
    assert_eq!((read.bio.as_ref().unwrap().sum(), read.unowned_bio.as_ref().unwrap().sum()), (600, 400));
    assert!(read.unowned_stages.is_empty() && read.is_mixed());
}

/// Rare classes have a row per device, not per queue.
#[test]
fn queues_and_the_rest_add_up_to_the_ios() {
    let mut last = sample(&[100, 100], 2, 2);
    last.rare[0].stages[1] = [100, 200, 300].into_iter().collect();
    let device =
        summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, last)).devices.remove(0);
    assert_eq!((device.ios, device.queues[0].ios, device.ios_without_queue), (5, 2, 3));
}

#[test]
fn counters_that_stand_still_are_no_check() {
    let mut off = sample(&[100], 1, 1);
    off.kernel_after.as_mut().unwrap().iostats = Some(false);
    let summary = summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(1, off));
    assert_eq!(summary.devices[0].kernel, None);
}

#[test]
fn counters_that_hold_passthrough_are_no_check_where_there_was_any() {
    let check = |passthrough, ios: &[u64]| {
        let mut end = sample(&[100], 1, 1 + ios.len() as u64);
        end.rare[Op::Passthrough as usize - OPS_SHARDED].stages[1] = ios.iter().copied().collect();
        end.kernel_after.as_mut().unwrap().passthrough = passthrough;
        let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, end));
        let device = summarize(&Host::default(), &start, &end).devices.remove(0);
        (device.kernel_check(), device.uncounted())
    };
    assert_eq!(check(Some(true), &[50, 50]), (None, 0));
    assert_eq!(check(Some(true), &[]), (Some(true), 0));
    assert_eq!(check(Some(false), &[50, 50]), (Some(true), 0), "1 to 3, of which 1 was seen");
}

#[test]
fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
    let hist = |ns: u64| Histogram::from_iter([ns; 3]);
    let stages = |ns| BTreeMap::from([(Stage::Queue, hist(10)), (Stage::Device, hist(ns))]);
    let class =
        TotalClass { lower_ns: 0, upper_ns: 2, operations: 3, sums_ns: [(Stage::Device, 300)].into() };
    let operations = OperationLatency {
        operations: 4,
        stages: stages(200),
        total: hist(210),
        by_total: vec![class],
        not_covered: BTreeMap::from([(NotCovered::Torn, 1)]),
        sums_ns: BTreeMap::from([(Stage::Device, 600)]),
        ..OperationLatency::default()
    };
    let read = OpLatency {
        ios: 3,
        bytes: 12_288,
        unowned: Some(1),
        request_stages: stages(100),
        unowned_stages: BTreeMap::from([(Stage::Device, hist(100))]),
        bios_ns: Some((4, 500)),
        operations: Some(operations),
        unfetched: Some(0),
        parts: BTreeMap::from([(Stage::Submit, BTreeMap::from([(Part::Batch, hist(1))]))]),
        request_parts: BTreeMap::from([(Stage::Queue, BTreeMap::from([(Part::Alloc, hist(2))]))]),
        undivided: [1, 2],
        ..OpLatency::default()
    };
    let upper = OpLatency {
        ios: 4,
        bytes: 12_288,
        bio: Some(hist(400)),
        unowned_bio: Some(hist(5)),
        bios_ns: Some((4, 1_600)),
        ..OpLatency::default()
    };
    let file = |kind| IoFile { kind, device: "8:1".to_string(), inode: None, path: None };
    let regular = IoFile { inode: Some(9), path: Some("/a".to_string()), ..file(FileKind::Regular) };
    let row = |file, others| FileIos { file, others, bios: 32, bytes: 4096, sampled: 2, share: 0.5 };
    let bracket = |min, max| Bracket { min, max };
    let disk = DeviceLatency {
        name: "sda".to_string(),
        ios: 3,
        bytes: 12_288,
        operations: Some(4),
        kernel: Some(BTreeMap::from([(KernelClass::Read, bracket(3, 5).into())])),
        added_for: vec!["dm-0".to_string()],
        processes: Some(vec![
            ProcessIos { pid: Some(7), comm: "dd".to_string(), bios: 3, ..ProcessIos::default() },
            ProcessIos { bios: 1, relation: Relation::Other, ..ProcessIos::default() },
        ]),
        files: Some(vec![
            row(Some(regular.clone()), false),
            row(Some(file(FileKind::RawDevice)), false),
            row(None, true),
        ]),
        ops: BTreeMap::from([(Op::Read, read.clone())]),
        queues: vec![QueueLatency { queue: 1, ios: 2, request_stages: stages(7), ..QueueLatency::default() }],
        ..DeviceLatency::default()
    };
    let dm = DeviceLatency {
        name: "dm-0".to_string(),
        disk: Some("dm".to_string()),
        ios: 4,
        bytes: 12_288,
        all_ios: Some(bracket(4, 6)),
        layers: vec!["sda".into(), "sdb".into()],
        bio_based: true,
        counting: Counting::Md,
        ops: BTreeMap::from([(Op::Read, upper)]),
        ..DeviceLatency::default()
    };
    let unseen = DeviceLatency { name: "sdb".to_string(), ..DeviceLatency::default() };
    let by = GroupValues {
        size: Some((4096, 8192)),
        process: Some(Process { pid: 7, comm: "dd".to_string() }),
        cgroup: Some(Cgroup::Id(9)),
        file: Some(regular),
        ..GroupValues::default()
    };
    let groups = Groups {
        by: vec![Dimension::Size, Dimension::Cpu],
        most: Some(512),
        groups: vec![Group { by, other: true, latency: read }],
        cpus: Some(vec![CpuPair { submit_cpu: 0, completion_cpu: 1, ios: 1 }]),
        nodes: Some(Vec::new()),
    };
    let devices = vec![disk, dm, unseen];
    let summary =
        LatencySummary { duration_ns: 5, devices, filtered: true, groups, ..LatencySummary::default() };
    let mut value = json(&summary.derived());
    assert_eq!(value["groups"][0]["by"]["cgroup"], 9);
    assert_eq!(value["groups"][0]["by"]["size"], json!([4096, 8192]));
    assert_eq!(value["cpus"], json!([{"submit_cpu": 0, "completion_cpu": 1, "ios": 1}]));
    let [sda, dm] = [0, 1].map(|at| value["devices"][at].take());
    assert_eq!(sda["kernel_ios"], json!({"read": {"min": 3, "max": 5, "seen": 3}}));
    assert_eq!((&sda["kernel_check"], &sda["ios_without_queue"]), (&json!("ok"), &json!(1)));
    assert_eq!(sda["ops"]["read"]["by_total"], json!([[0, 2, 3, {"device": 300}]]));
    assert_eq!(sda["ops"]["read"]["parts"]["submit"]["batch"]["sum_ns"], 3);
    assert_eq!(sda["files"][1]["file"], json!({"kind": "raw_device", "device": "8:1"}));
    assert_eq!(sda["files"][2]["others"], true);
    assert!(sda.get("kernel_classes").is_none() && sda.get("all_ios_min").is_none());
    assert!(sda["processes"][1].get("pid").is_none() && sda.get("disk").is_none());
    assert_eq!((&dm["kernel_ios"], &dm["all_ios_max"]), (&Value::Null, &json!(6)));
    assert_eq!(dm["layers"][0], json!({"name": "sda", "ios": 3, "bytes": 12_288, "mean_ns": 110.0}));
    assert_eq!(dm["ops"]["read"]["layer"]["mean_ns"], 275.0);
    assert!(dm["ops"]["read"].get("operations").is_none(), "they are not followed");
    assert_eq!(dm["kernel_classes"]["none"], json!(["flush", "empty_flush", "discard", "passthrough"]));
}

/// Two intervals merge to the whole one; where each read the kernel's counters itself, the bounds are wider.
#[test]
fn intervals_are_merged_to_their_window() {
    let [a, b, c] = [(&[100][..], 10), (&[100, 200, 300], 12), (&[100, 200, 300, 900], 13)]
        .map(|(times, kernel)| sample(times, kernel, kernel));
    let of = |from: &DeviceSample, to: &DeviceSample, at| {
        summarize(&Host::default(), &reading(at, from.clone()), &reading(at + 1_000, to.clone()))
    };
    let mut merged = of(&a, &b, 0);
    merged.merge_with(&of(&b, &c, 1_000));
    merged.settle();
    let whole = summarize(&Host::default(), &reading(0, a), &reading(2_000, c));
    assert_eq!(json(&merged), json(&whole));
    assert_eq!(merged.devices[0].ios, 3);
    merged.name_host("web1");
    assert_eq!(merged.devices[0].name, "web1:sda");
}

/// Sums are over operations with the same stages: those of an interval with other stages are only counted.
#[test]
fn operations_with_other_stages_are_not_covered() {
    let of = |stages: &[Stage], n: u64| {
        let each: Histogram = (0..n).map(|_| 10).collect();
        let total: Histogram = (0..n).map(|_| 10 * stages.len() as u64).collect();
        OperationLatency {
            operations: n,
            stages: stages.iter().map(|stage| (*stage, each.clone())).collect(),
            total,
            sums_ns: stages.iter().map(|stage| (*stage, 10 * n)).collect(),
            ..OperationLatency::default()
        }
    };
    let merged = |mut first: OperationLatency, second: &OperationLatency| {
        first.merge_with(second);
        let sum: u64 = first.stages.values().map(Histogram::sum).sum();
        assert_eq!(sum, first.total.sum());
        (first.operations, first.total.count(), first.sums_ns[&Stage::Device], first.not_covered)
    };
    let (all, no_reap) = (of(&[Stage::Device, Stage::Reap], 2), of(&[Stage::Device], 3));
    let more = BTreeMap::from([(NotCovered::MoreStages, 2)]);
    assert_eq!(merged(all.clone(), &no_reap), (5, 3, 50, more));
    let less = BTreeMap::from([(NotCovered::Reap, 3)]);
    assert_eq!(merged(no_reap, &of(&[Stage::Device, Stage::Reap], 4)), (7, 4, 70, less));
    assert_eq!(merged(all, &OperationLatency::default()), (2, 2, 20, BTreeMap::new()));
}
