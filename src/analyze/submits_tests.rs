use super::super::latency::{DeviceLatency, OpLatency};
use super::super::operations::OperationLatency;
use super::super::trace::io::Route as TracedRoute;
use super::super::trace::operation::{OperationEnd, TracedOperation};
use super::*;
use crate::hist::Histogram;

fn names(all: &[(u64, &str)]) -> Names {
    Names { kernel: all.iter().map(|(ip, name)| (*ip, vec![name.to_string()])).collect(), ..Names::default() }
}

fn hist(times: &[u64]) -> Histogram {
    times.iter().copied().collect()
}

/// A device of this name with reads of these times in its stages, and in submission.
fn device(name: &str, queue: &[u64], of_device: &[u64], submit: &[u64]) -> DeviceLatency {
    let stages = |all: &[(Stage, &[u64])]| all.iter().map(|(stage, times)| (*stage, hist(times))).collect();
    let read = OpLatency {
        ios: of_device.len() as u64,
        request_stages: stages(&[(Stage::Queue, queue), (Stage::Device, of_device)]),
        operations: Some(OperationLatency {
            stages: stages(&[(Stage::Submit, submit), (Stage::Queue, queue), (Stage::Device, of_device)]),
            ..OperationLatency::default()
        }),
        ..OpLatency::default()
    };
    DeviceLatency {
        name: name.to_string(),
        ios: of_device.len() as u64,
        ops: [(Op::Read, read)].into(),
        ..DeviceLatency::default()
    }
}

fn io(stack: u32, stands_for: u64, queue: u64, of_device: u64, submit: Option<u64>) -> TracedIo {
    let end = |ns| OperationEnd {
        last: true,
        stages: Some(stages(&[(Stage::Submit, ns)])),
        ..OperationEnd::default()
    };
    TracedIo {
        queue: Some(0),
        op: Some(Op::Read),
        stages: stages(&[(Stage::Queue, queue), (Stage::Device, of_device)]),
        route: Some(TracedRoute { stack, stands_for }),
        operation: submit.map(|ns| TracedOperation { id: 1, end: Some(end(ns)) }),
        ..TracedIo::default()
    }
}

fn stages(all: &[(Stage, u64)]) -> crate::analyze::trace::io::Stages {
    crate::analyze::trace::io::Stages::of(all)
}

fn submits(all: &[(u32, Sample)]) -> Submits {
    Submits { stacks: all.iter().cloned().collect(), ..Submits::default() }
}

#[test]
fn exact_times_are_shared_as_the_stacks_took_theirs() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10, 30], &[100, 301], &[7])],
        ..LatencySummary::default()
    };
    let mut tally = Tally::default();
    // One of so many when the second was taken: it stands for three like it.
    tally.add("sda", &io(1, 1, 10, 100, Some(5)));
    tally.add("sda", &io(2, 3, 10, 100, None));
    let routes =
        submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[])), (2, Sample::new(5, 0, 0, b"a", &[20], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one"), (20, "two")]));
    let folded = |key: &str| summary.folded.get(key).copied();
    assert_eq!((folded("a;one_[k];[queue]"), folded("a;two_[k];[queue]")), (Some(10), Some(30)));
    assert_eq!((folded("a;one_[k];[device]"), folded("a;two_[k];[device]")), (Some(100), Some(301)));
    assert_eq!((folded("a;one_[k];[submit]"), folded("a;two_[k];[submit]")), (Some(7), None));
    assert_eq!(summary.folded.values().sum::<u64>(), 10 + 30 + 401 + 7);
    assert_eq!((summary.ios, summary.sampled, summary.no_stack_ns), (2, 2, 0));
    assert_eq!(summary.parts[&Part::Stage(Stage::Device)], 401);
}

#[test]
fn what_has_no_stack_says_so_and_is_in_the_sum() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10], &[100], &[]), device("sdb", &[1], &[2], &[])],
        ..LatencySummary::default()
    };
    let mut tally = Tally::default();
    tally.add("sda", &io(1, 1, 10, 100, None));
    // Of a stack that the table does not have, and without one.
    tally.add("sdb", &io(9, 1, 1, 2, None));
    tally.add("sdb", &TracedIo { route: None, ..io(1, 1, 1, 2, None) });
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!(summary.folded["[read: stack not taken];[device]"], 2);
    assert_eq!((summary.no_stack_ns, summary.folded.values().sum::<u64>()), (3, 113));
}

#[test]
fn kernel_threads_have_the_device_that_they_serve() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[1], &[4], &[]), device("lo;op", &[1], &[6], &[])],
        ..LatencySummary::default()
    };
    let mut tally = Tally::default();
    tally.add("sda", &io(1, 1, 1, 4, None));
    tally.add("lo;op", &io(2, 1, 1, 6, None));
    let worker = |comm: &[u8]| Sample::new(5, 0, KTHREAD, comm, &[10], &[]);
    let routes = submits(&[(1, worker(b"kworker/0:1H")), (2, worker(b"kworker/u4:2"))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "work")]));
    assert_eq!(summary.folded["kworkers for sda;work_[k];[device]"], 4);
    assert_eq!(summary.folded["kworkers for lo\\x3bop;work_[k];[device]"], 6);
}

/// Of a device without requests there is one time.
#[test]
fn a_bio_is_one_part() {
    let read = OpLatency { ios: 2, bio: Some(hist(&[50, 70])), ..OpLatency::default() };
    let md = DeviceLatency {
        name: "md0".into(),
        ios: 2,
        ops: [(Op::Read, read)].into(),
        ..DeviceLatency::default()
    };
    let latency = LatencySummary { devices: vec![md], ..LatencySummary::default() };
    let mut tally = Tally::default();
    tally.add(
        "md0",
        &TracedIo { queue: None, total_ns: Some(50), stages: stages(&[]), ..io(1, 1, 0, 0, None) },
    );
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!(summary.folded, BTreeMap::from([("a;one_[k];[bio]".to_string(), 120)]));
}

#[test]
fn shares_are_whole_and_add_up() {
    let shares = |all: &[u128]| (0..).zip(all.iter().copied()).collect::<BTreeMap<u32, u128>>();
    assert_eq!(shared_out(10, &shares(&[1, 1, 1])), [(0, 3), (1, 3), (2, 4)]);
    assert_eq!(shared_out(0, &shares(&[1, 2])), [(0, 0), (1, 0)]);
    let huge = shared_out(u64::MAX, &shares(&[u128::MAX / 4, u128::MAX / 2, 0]));
    assert_eq!(huge.iter().map(|(_, ns)| u128::from(*ns)).sum::<u128>(), u128::from(u64::MAX));
    assert_eq!(huge[2].1, 0);
}

#[test]
fn parts_are_frames() {
    for part in Stage::ALL.map(Part::Stage).into_iter().chain([Part::Bio]) {
        assert_eq!(Part::of_frame(&part.frame()), Some(part));
    }
    assert_eq!((Part::of_frame("queue"), Part::of_frame("[libc.so]+0x1")), (None, None));
}

#[test]
fn a_share_is_known_the_better_the_more_ios_it_is_from() {
    let mut tally = Tally::default();
    assert_eq!(tally.half_width(), None);
    (0..400).for_each(|_| tally.add("sda", &io(1, 1, 0, 100, None)));
    assert!((tally.half_width().unwrap() - 4.9).abs() < 1e-9);
    // One that stands for as much as all others leaves no more than four.
    tally.add("sda", &io(2, 400, 0, 100, None));
    assert!((tally.half_width().unwrap() - 49.0).abs() < 0.1);
}

/// It lies before the bio, in what its operation's submission took.
#[test]
fn what_the_stacks_took_is_left_out_of_submit() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10, 10, 10], &[100, 100, 100], &[50, 350, 50])],
        ..LatencySummary::default()
    };
    let mut tally = Tally::default();
    tally.add("sda", &io(1, 3, 10, 100, Some(350)));
    let routes =
        Submits { taken: 2, stack_ns: 600, ..submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]) };
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!((summary.folded["a;one_[k];[submit]"], summary.folded["a;one_[k];[queue]"]), (150, 30));
    assert_eq!((summary.stacks_ns, summary.parts[&Part::Stage(Stage::Submit)]), (300, 150));
    // Never more than there is.
    let slow = Submits { stack_ns: 60_000, ..routes };
    let summary = summarize(&latency, &tally, &slow, &Names::default());
    assert_eq!((summary.stacks_ns, summary.parts[&Part::Stage(Stage::Submit)]), (450, 0));
}
