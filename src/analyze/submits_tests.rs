use super::super::latency::{DeviceLatency, OpLatency};
use super::super::operations::OperationLatency;
use super::super::trace::io::Route as TracedRoute;
use super::super::trace::operation::{OperationEnd, SubmitMethod, TracedOperation};
use super::*;
use crate::hist::Histogram;
use crate::wire::files::FILE_REGULAR;
use crate::wire::stacks::WORK;

fn names(all: &[(u64, &str)]) -> Names {
    Names { kernel: all.iter().map(|(ip, name)| (*ip, vec![name.to_string()])).collect(), ..Names::default() }
}

fn hist(times: &[u64]) -> Histogram {
    times.iter().copied().collect()
}

/// A device with reads of these times in its stages, and in submission.
fn device(name: &str, queue: &[u64], of_device: &[u64], submit: &[u64]) -> DeviceLatency {
    let stages = |all: &[(Stage, &[u64])]| all.iter().map(|(stage, times)| (*stage, hist(times))).collect();
    let read = OpLatency {
        ios: of_device.len() as u64,
        request_stages: stages(&[(Stage::Queue, queue), (Stage::Device, of_device)]),
        operations: Some(OperationLatency {
            stages: stages(&[(Stage::Submit, submit), (Stage::Queue, queue), (Stage::Device, of_device)]),
            sums_ns: [(Stage::Submit, submit.iter().sum()), (Stage::Queue, queue.iter().sum())].into(),
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
        route: Some(TracedRoute { stack, stands_for, ..TracedRoute::default() }),
        operation: submit.map(|ns| TracedOperation { id: 1, end: Some(end(ns)) }),
        ..TracedIo::default()
    }
}

fn stages(all: &[(Stage, u64)]) -> crate::analyze::trace::io::StageTimes {
    crate::analyze::trace::io::StageTimes::of(all)
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
    let mut tally = SubmitTally::default();
    // The second was sampled one in three, so it counts three times.
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
    assert_eq!(summary.parts[&TimePart::Stage(Stage::Device)], 401);
}

#[test]
fn what_has_no_stack_says_so_and_is_in_the_sum() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10], &[100], &[]), device("sdb", &[1], &[2], &[])],
        ..LatencySummary::default()
    };
    let mut tally = SubmitTally::default();
    tally.add("sda", &io(1, 1, 10, 100, None));
    // A stack that the table does not have, and none.
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
    let mut tally = SubmitTally::default();
    tally.add("sda", &io(1, 1, 1, 4, None));
    tally.add("lo;op", &io(2, 1, 1, 6, None));
    let worker = |comm: &[u8]| Sample::new(5, 0, KTHREAD, comm, &[10], &[]);
    let routes = submits(&[(1, worker(b"kworker/0:1H")), (2, worker(b"kworker/u4:2"))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "work")]));
    assert_eq!(summary.folded["kworkers for sda;work_[k];[device]"], 4);
    assert_eq!(summary.folded["kworkers for lo\\x3bop;work_[k];[device]"], 6);
}

/// A loop device's worker reads the file on the disk below: that counts for the loop device. Writeback that names no
/// disk counts for the disk of its I/O.
#[test]
fn a_worker_of_another_disk_serves_that_one() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[1, 1], &[4, 6], &[]), device("loop0", &[1], &[6], &[])],
        ..LatencySummary::default()
    };
    let mut tally = SubmitTally::default();
    tally.add("sda", &io(1, 1, 1, 4, None));
    tally.add("sda", &io(2, 1, 1, 6, None));
    let worker = |work: &str| {
        let mut bytes = [0; 32];
        bytes[..work.len()].copy_from_slice(work.as_bytes());
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        Sample::new(5, 0, KTHREAD | WORK, b"kworker/u4:2", &[10], &words)
    };
    let routes = submits(&[(1, worker("loop0")), (2, worker("ext4-rsv-conversion"))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "work")]));
    assert_eq!(summary.folded["kworkers for loop0;work_[k];[device]"], 4);
    assert_eq!(summary.folded["kworkers for sda;work_[k];[device]"], 6);
}

/// A device without requests has a single time.
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
    let mut tally = SubmitTally::default();
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
    for part in Stage::ALL.map(TimePart::Stage).into_iter().chain([TimePart::Bio]) {
        assert_eq!(TimePart::of_frame(&part.frame()), Some(part));
    }
    assert_eq!((TimePart::of_frame("queue"), TimePart::of_frame("[libc.so]+0x1")), (None, None));
}

#[test]
fn a_share_is_known_the_better_the_more_ios_it_is_from() {
    let mut tally = SubmitTally::default();
    assert_eq!(tally.half_width(0, 0), None);
    (0..400).for_each(|_| tally.add("sda", &io(1, 1, 0, 100, None)));
    // All have the same stack; another one may have been missed.
    assert!((tally.half_width(0, 400).unwrap() - 0.75).abs() < 1e-9);
    // One in ten is not represented.
    assert!((tally.half_width(40, 400).unwrap() - 10.75).abs() < 1e-9);
    // One with the weight of all others leaves an effective sample of four.
    tally.add("sda", &io(2, 400, 0, 100, None));
    assert!((tally.half_width(0, 400).unwrap() - 75.2).abs() < 0.1);
    // Two stacks with equal shares.
    let mut tally = SubmitTally::default();
    (0..400).for_each(|i| tally.add("sda", &io(i % 2, 1, 0, 100, None)));
    assert!((tally.half_width(0, 400).unwrap() - 4.9).abs() < 1e-9);
    // A few with the weight of a hundred others each: the smaller share is as uncertain as those few.
    let mut tally = SubmitTally::default();
    (0..10).for_each(|_| tally.add("sda", &io(1, 1, 0, 10_000, None)));
    (0..10_000).for_each(|_| tally.add("sda", &io(2, 1, 0, 100, None)));
    assert!((tally.half_width(0, 10_010).unwrap() - 5.125).abs() < 0.01);
    // As many lost as received.
    tally.lose(10_010);
    assert!((tally.half_width(0, 20_020).unwrap() - 55.125).abs() < 0.01);
}

/// Taking the stack falls before the bio, into the submission of its operation; each stack takes its own time.
#[test]
fn what_the_stacks_took_is_left_out_of_submit() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10, 10, 10], &[100, 100, 100], &[1_050, 8_050, 50])],
        ..LatencySummary::default()
    };
    let took = |stack, took_ns| {
        let mut io = io(stack, 1, 10, 100, Some(took_ns + 50));
        io.route.as_mut().unwrap().took_ns = took_ns;
        io
    };
    let mut tally = SubmitTally::default();
    tally.add("sda", &took(1, 1_000));
    tally.add("sda", &took(2, 8_000));
    let sample = |ip| Sample::new(5, 0, 0, b"a", &[ip], &[]);
    let routes = submits(&[(1, sample(10)), (2, sample(20))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "brief"), (20, "deep")]));
    assert_eq!((summary.folded["a;brief_[k];[submit]"], summary.folded["a;deep_[k];[submit]"]), (75, 75));
    assert_eq!((summary.stacks_ns, summary.parts[&TimePart::Stage(Stage::Submit)]), (9_000, 150));
    // The subtraction is limited to the total.
    tally.add("sda", &took(2, 60_000));
    let summary = summarize(&latency, &tally, &routes, &Names::default());
    assert_eq!((summary.stacks_ns, summary.parts[&TimePart::Stage(Stage::Submit)]), (9_150, 0));
}

/// A split bio has one stack, taken once, and its parts are not independent samples.
#[test]
fn the_parts_of_a_bio_have_one_stack() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10; 8], &[100; 8], &[2_500])],
        ..LatencySummary::default()
    };
    let mut tally = SubmitTally::default();
    for i in 0..8 {
        let mut part = io(1, 1, 10, 100, Some(2_500));
        let route = part.route.as_mut().unwrap();
        (route.took_ns, route.part) = (2_000, i != 7);
        part.operation.as_mut().unwrap().end.as_mut().unwrap().last = i == 7;
        tally.add("sda", &part);
    }
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!((summary.stacks_ns, summary.parts[&TimePart::Stage(Stage::Submit)]), (2_000, 500));
    // As wide as for a single one.
    assert!(summary.half_width.unwrap() > 90.0, "{:?}", summary.half_width);
}

/// An operation whose bio was merged has no I/O of its own, but its times are included.
#[test]
fn operations_that_were_merged_stand_with_the_first() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10], &[100], &[5, 6, 7])],
        ..LatencySummary::default()
    };
    let mut first = io(1, 1, 10, 100, Some(5));
    let other = |ns| io(1, 1, 0, 0, Some(ns)).operation.unwrap();
    first.merged = vec![other(6), other(7)];
    let mut tally = SubmitTally::default();
    tally.add("sda", &first);
    assert_eq!(tally.times.values().flat_map(HashMap::values).sum::<u128>(), 10 + 100 + 18);
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!(summary.folded["a;one_[k];[submit]"], 18);
}

/// Its time is not divided among those that found room.
#[test]
fn a_stack_without_room_stands_as_such() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[10, 10], &[100, 900], &[])],
        ..LatencySummary::default()
    };
    let mut tally = SubmitTally::default();
    tally.add("sda", &io(1, 1, 10, 100, None));
    tally.add("sda", &io(NO_ROOM, 1, 10, 900, None));
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    let folded = |key: &str| summary.folded[key];
    assert_eq!((folded("a;one_[k];[device]"), folded("[read: no room for the stack];[device]")), (100, 900));
    assert_eq!(summary.sampled, 1);
}

/// `complete` of an operation lasts until after its I/O has ended; an I/O of no operation has its own. Neither counts
/// twice.
#[test]
fn complete_is_the_operations_where_there_is_one() {
    let mut sda = device("sda", &[10, 10], &[100, 100], &[5]);
    let read = sda.ops.get_mut(&Op::Read).unwrap();
    read.request_stages.insert(Stage::Complete, hist(&[3, 4]));
    read.operations.as_mut().unwrap().sums_ns.insert(Stage::Complete, 70);
    read.unowned = Some(1);
    read.unowned_stages.insert(Stage::Complete, hist(&[4]));
    let latency = LatencySummary { devices: vec![sda], ..LatencySummary::default() };

    let times = |complete| stages(&[(Stage::Queue, 10), (Stage::Device, 100), (Stage::Complete, complete)]);
    let mut owned = TracedIo { stages: times(3), ..io(1, 1, 10, 100, Some(5)) };
    let end = owned.operation.as_mut().unwrap().end.as_mut().unwrap();
    end.stages = Some(stages(&[(Stage::Submit, 5), (Stage::Complete, 70)]));
    let alone = TracedIo { stages: times(4), ..io(2, 1, 10, 100, None) };
    let mut tally = SubmitTally::default();
    tally.add("sda", &owned);
    tally.add("sda", &alone);
    let routes =
        submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[])), (2, Sample::new(5, 0, 0, b"a", &[20], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one"), (20, "two")]));
    assert_eq!(summary.parts[&TimePart::Stage(Stage::Complete)], 74);
    let folded = |key: &str| summary.folded.get(key).copied();
    assert_eq!((folded("a;one_[k];[complete]"), folded("a;two_[k];[complete]")), (Some(70), Some(4)));
    assert_eq!(summary.folded.values().sum::<u64>(), 20 + 200 + 5 + 74);
}

/// Where operations are not followed at all, `complete` is that of the I/Os.
#[test]
fn complete_is_the_ios_where_no_operation_is_followed() {
    let mut sda = device("sda", &[10], &[100], &[]);
    let read = sda.ops.get_mut(&Op::Read).unwrap();
    read.operations = None;
    read.request_stages.insert(Stage::Complete, hist(&[3]));
    let latency = LatencySummary { devices: vec![sda], ..LatencySummary::default() };
    let mut tally = SubmitTally::default();
    let times = stages(&[(Stage::Queue, 10), (Stage::Device, 100), (Stage::Complete, 3)]);
    tally.add("sda", &TracedIo { stages: times, ..io(1, 1, 10, 100, None) });
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
    assert_eq!(summary.folded["a;one_[k];[complete]"], 3);
    assert_eq!(summary.no_stack_ns, 0);
}

/// They are threads of the process, even where the kernel marks them as its own (before 5.12).
#[test]
fn workers_of_a_ring_stand_with_its_process() {
    let latency =
        LatencySummary { devices: vec![device("sda", &[1], &[4], &[])], ..LatencySummary::default() };
    let mut tally = SubmitTally::default();
    tally.add("sda", &io(1, 1, 1, 4, None));
    let mut routes = submits(&[(1, Sample::new(5, 6, KTHREAD, b"iou-wrk-5", &[10], &[]))]);
    let device = |routes: &Submits| {
        let all = summarize(&latency, &tally, routes, &names(&[(10, "work")])).folded;
        all.into_keys().find(|key| key.ends_with("[device]")).unwrap()
    };
    assert_eq!(device(&routes), "iou-wrk-5;work_[k];[device]");
    routes.leaders.insert(5, b"a;b".to_vec());
    assert_eq!(device(&routes), "a\\x3bb;[io_uring workers];work_[k];[device]");
}

/// Requests in the plug were delayed meanwhile, and so were as many later ones of the same call.
#[test]
fn what_a_stack_held_up_is_left_out() {
    let latency = LatencySummary {
        devices: vec![device("sda", &[4_000; 5], &[100; 5], &[3_000; 5])],
        ..LatencySummary::default()
    };
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    for (kind, submit) in [
        (SubmitMethod::Aio, 15_000 - 5 * 500),
        (SubmitMethod::Ring, 15_000 - 5 * 500),
        (SubmitMethod::Call, 15_000 - 500),
    ] {
        let mut taken = io(1, 5, 4_000, 100, Some(3_000));
        let route = taken.route.as_mut().unwrap();
        (route.plugged, route.took_ns) = (4, 500);
        let end = taken.operation.as_mut().unwrap().end.as_mut().unwrap();
        (end.kind, end.ios) = (kind, 1);
        let mut tally = SubmitTally::default();
        tally.add("sda", &taken);
        let summary = summarize(&latency, &tally, &routes, &names(&[(10, "one")]));
        let part = |stage| summary.parts[&TimePart::Stage(stage)];
        assert_eq!((part(Stage::Submit), part(Stage::Queue)), (submit, 20_000 - 4 * 500));
        assert_eq!(part(Stage::Device), 500);
        assert_eq!(summary.stacks_ns, 35_000 - part(Stage::Submit) - part(Stage::Queue));
    }
}

#[test]
fn a_file_is_a_frame_above_the_task() {
    let latency =
        LatencySummary { devices: vec![device("sda", &[30], &[300], &[])], ..LatencySummary::default() };
    let file = |inode| Some(WireFile { inode, device: 8 << 20, kind: FILE_REGULAR });
    let mut tally = SubmitTally::default();
    tally.add("sda", &TracedIo { file: file(1), ..io(1, 1, 10, 100, None) });
    tally.add("sda", &TracedIo { file: file(2), ..io(1, 1, 20, 100, None) });
    tally.add("sda", &io(1, 1, 0, 100, None));
    let routes = submits(&[(1, Sample::new(5, 0, 0, b"a", &[10], &[]))]);
    let files = BTreeMap::from([(file(1).unwrap(), "/x;y".to_string())]);
    let summary = summarize(&latency, &tally, &Submits { files, ..routes }, &names(&[(10, "one")]));
    let folded = |key: &str| summary.folded.get(key).copied();
    assert_eq!(
        (folded("a;/x\\x3by;one_[k];[queue]"), folded("a;/x\\x3by;one_[k];[device]")),
        (Some(10), Some(100))
    );
    assert_eq!(folded("a;[inode 2] 8:0;one_[k];[device]"), Some(100));
    assert_eq!(folded("a;one_[k];[device]"), Some(100), "its file is not known");
}
