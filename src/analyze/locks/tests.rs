use std::collections::{BTreeMap, HashMap};

use serde_json::json;

use super::trust;
use super::*;
use crate::analyze::fixtures::{json, not_doubled};
use crate::analyze::pressure::PressureSummary;
use crate::wire::locks::stacks::{StackKey, StackSample};
use crate::wire::locks::{KINDS, LockName, ProcessSample};
use crate::wire::stacks::Sample;

fn waits(times: &[u64], flags: u32) -> LockSample {
    let mut wait = Histogram::default();
    times.iter().for_each(|ns| wait.record(*ns));
    LockSample { flags, wait, ..LockSample::default() }
}

fn names(all: &[(u64, &str)]) -> Names {
    let kernel: HashMap<u64, Vec<String>> =
        all.iter().map(|(address, name)| (*address, vec![(*name).to_string()])).collect();
    Names { kernel, ..Names::default() }
}

fn stack(lock: u64, ips: &[u64], contentions: u64, wait_ns: u64) -> (StackKey, StackSample) {
    let sample = StackSample { contentions: contentions * 256, wait_ns, samples: contentions };
    (StackKey { lock, stack: Sample::new(0, 0, 0, b"", ips, &[]) }, sample)
}

const SYMBOLS: &[(u64, &str)] = &[
    (10, "bpf_trace_run2"),
    (19, "__traceiter_contention_end"),
    (29, "__pv_queued_spin_lock_slowpath"),
    (39, "_raw_spin_lock_irqsave"),
    (49, "folio_lruvec_lock_irqsave"),
    (59, "shrink_lruvec"),
    (69, "down_timeout_of_something"),
];

/// Three locks: one known by its structs, one by its caller, one unknown.
fn reading() -> Reading {
    let own = |name: &str, device: Option<&str>| LockName {
        name: name.to_string(),
        by: RecognisedBy::Structure,
        device: device.map(str::to_string),
        node: None,
        cgroup: None,
        pid: None,
    };
    let mut row =
        WireLockCpu { contentions: 6, wait_ns: 360, stacks: 3, repeats: 1, ..WireLockCpu::default() };
    row.begins[WireLockKind::Spin as usize] = 5;
    row.begins[WireLockKind::Mutex as usize] = 2;
    Reading {
        at_ns: 2_000_000_000,
        cpus: vec![WireLockCpu::default(), row],
        locks: BTreeMap::from([
            (0x100, waits(&[10, 20], 1)),
            (0x200, waits(&[100, 200], 1)),
            (0x300, waits(&[30], 32)),
        ]),
        others: (0..KINDS).map(|kind| if kind == 3 { waits(&[5], 2) } else { waits(&[], 0) }).collect(),
        stacks: BTreeMap::from([
            stack(0x200, &[10, 20, 30, 40, 50, 60], 1, 200),
            stack(0x200, &[10, 20, 30, 40, 50], 1, 100),
        ]),
        names: BTreeMap::from([(0x100, own("i_pages of sda", Some("sda")))]),
        processes: BTreeMap::from([
            (7, ProcessSample { comm: b"fio".to_vec(), contentions: 6, wait_ns: 360, max_wait_ns: 200 }),
            (8, ProcessSample::default()),
        ]),
        ..Reading::default()
    }
}

fn summary(devices: &[&str]) -> LockSummary {
    let devices: Vec<String> = devices.iter().map(|name| (*name).to_string()).collect();
    let start = Reading { at_ns: 1_000_000_000, ..Reading::default() };
    summarize(&Host::default(), &start, &reading(), &names(SYMBOLS), &devices)
}

#[test]
fn a_lock_is_named_by_its_place_else_by_who_takes_it() {
    let summary = summary(&[]);
    let all: Vec<_> = summary.locks.iter().map(|row| (row.name.as_str(), row.by.name())).collect();
    assert_eq!(
        all,
        [
            ("lock taken in folio_lruvec_lock_irqsave", "caller"),
            ("i_pages of sda", "structure"),
            ("lock at 0x300", "nothing"),
            ("other locks (rwsem)", "nothing"),
        ]
    );
    assert_eq!(summary.locks[2].kind.name(), "mutex");
    assert_eq!((&summary.locks[3].address, summary.locks[3].wait.sum()), (&None, 5));
    assert_eq!(summary.by_cpu, [CpuWaits { cpu: 1, waits: Waits { contentions: 6, wait_ns: 360 } }]);
    assert_eq!(summary.processes.len(), 1, "who did not wait is no waiter");
    assert_eq!(summary.duration_ns, 1_000_000_000);
}

/// Frames of our own program are not part of the wait.
#[test]
fn stacks_begin_where_the_wait_is() {
    let summary = summary(&[]);
    let stacks = &summary.locks[0].stacks;
    assert_eq!(stacks.len(), 2);
    assert_eq!(stacks[0].frames[0], "__pv_queued_spin_lock_slowpath");
    assert_eq!(stacks[0].frames.last().unwrap(), "shrink_lruvec");
    assert_eq!((stacks[0].wait_ns, stacks[0].contentions), (200, 1));
    assert!(summary.stacks.is_estimated(), "3 of 6");
    assert!(!is_locking("folio_lruvec_lock") && is_locking("down") && !is_locking("downgrade"));
}

#[test]
fn locks_of_other_devices_are_left_out_and_counted() {
    let summary = summary(&["sdb"]);
    assert_eq!((summary.left_out.locks, summary.left_out.wait_ns), (1, 30));
    assert_eq!(summary.locks.len(), 3);
    assert_eq!(self::summary(&["sda"]).left_out.locks, 0);
}

#[test]
fn a_window_has_what_came_in_it() {
    let end = reading();
    let nothing = summarize(&Host::default(), &end, &end, &names(SYMBOLS), &[]);
    assert_eq!(nothing.locks, []);
    assert_eq!((nothing.events.begins.total, nothing.events.contentions), (0, 0));
    assert!(nothing.processes.is_empty() && nothing.by_cpu.is_empty());
    assert_eq!(nothing.contentions_per_second(), 0.0);
}

/// 199 samples a second for two seconds: 398 are the whole time of one CPU.
#[test]
fn time_behind_a_spinlock_is_a_range_where_the_sampler_sees_no_more() {
    let mut end = reading();
    let sample = SpinSample {
        sampler: Sampler::CpuClock,
        frequency: 199,
        cpus: 4,
        duration_ns: 2_000_000_000,
        samples: 1592,
        waiting: 398,
        unlocking: 199,
        lost: 0,
    };
    end.spin = Some(sample);
    let spin =
        |end: &Reading| summarize(&Host::default(), &Reading::default(), end, &names(&[]), &[]).spin.unwrap();
    assert_eq!((spin(&end).low, spin(&end).high), (100.0, 150.0));
    end.spin = Some(SpinSample { sampler: Sampler::Cycles, ..sample });
    assert_eq!((spin(&end).low, spin(&end).high), (100.0, 100.0));
    // The sampler could not be restarted, and took no samples since.
    let start = Reading { spin: end.spin, ..Reading::default() };
    assert_eq!(summarize(&Host::default(), &start, &end, &names(&[]), &[]).spin, None);
}

/// 200 ns before the interval, and 160 ns in it: the interval's maximum is unknown.
#[test]
fn the_longest_wait_of_a_process_is_of_the_window() {
    let at = |contentions, wait_ns, max_wait_ns| {
        let process = ProcessSample { comm: b"fio".to_vec(), contentions, wait_ns, max_wait_ns };
        Reading { processes: BTreeMap::from([(7, process)]), ..Reading::default() }
    };
    let longest = |start: &Reading, end: &Reading| {
        summarize(&Host::default(), start, end, &names(&[]), &[]).processes[0].max_wait_ns
    };
    let end = at(6, 360, 200);
    assert_eq!(longest(&Reading::default(), &end), Some(200));
    assert_eq!(longest(&at(4, 200, 200), &end), None);
    assert_eq!(longest(&at(4, 160, 100), &end), Some(200));
}

#[test]
fn waits_of_processes_without_a_row_are_counted() {
    let mut end = reading();
    end.cpus[1].other_processes = 3;
    let summary = summarize(&Host::default(), &Reading::default(), &end, &names(&[]), &[]);
    assert_eq!(summary.other_processes, 3);
    assert_eq!(trust::lost(&summary).probes["locks"]["waits_of_other_processes"], 3);
}

#[test]
fn entries_without_an_event_are_pending_bit_waiters() {
    let mut end = reading();
    end.cpus[1].slow_calls = 9;
    let slow =
        |end: &Reading| summarize(&Host::default(), &Reading::default(), end, &names(&[]), &[]).slow_path;
    assert_eq!(slow(&end), None, "nobody probed it");
    end.slow_path = true;
    assert_eq!(slow(&end), Some(SlowPath { calls: 9, events: 5, pending_bit_waiters: 4 }));
    end.source = LockEventSource::SlowPath;
    assert_eq!(slow(&end), None, "the probe is the event");
}

#[test]
fn what_was_not_seen_is_lost_and_too_much_of_it_is_not_trusted() {
    let mut end = reading();
    end.missed = BTreeMap::from([("lock_begin", 2), ("lock_end", 1)]);
    let summary = summarize(&Host::default(), &Reading::default(), &end, &names(&[]), &[]);
    let lost = trust::lost(&summary);
    assert_eq!((lost.events, lost.probes["locks"]["missed_ends"]), (2, 1));
    assert!(trust::distrust(&summary, 30.0).is_none());
    assert!(trust::distrust(&summary, 10.0).unwrap().starts_with("2 of 9 waits (22.22 %)"));
    assert!(trust::distrust(&self::summary(&[]), 0.0).is_none());
}

#[test]
fn a_gap_that_was_none_is_not_told() {
    let gap = |part: &str| Missing { part: Some(part.to_string()), ..Missing::default() };
    let all = [gap(TEST_AND_SET), gap("holder")];
    assert_eq!(missing(&all, &summary(&[])), [gap("holder")]);
    assert_eq!(missing(&all, &LockSummary::default()).len(), 2);
}

#[test]
fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
    let waits = Waits { contentions: 3, wait_ns: 30 };
    let stack =
        LockStack { frames: vec!["f".to_string()], contentions: 1, wait_ns: 7, samples: 1, who: None };
    let who = Some(Who { labels: vec!["fio".to_string()], ..Who::default() });
    let holder =
        Holder { releases: 2, holds: 1, hold_ns: 9, max_hold_ns: Some(9), pid: 5, ..Holder::default() };
    let row = LockRow {
        name: "inode lock".to_string(),
        by: By::Slab,
        kind: WireLockKind::PercpuRwsem,
        address: Some("0x100".to_string()),
        contentions: 3,
        wait_ns: 30,
        max_wait_ns: Some(10),
        reads: 1,
        wait: Histogram::from_iter([10; 3]),
        holder: Some(holder),
        stacks: vec![LockStack { who, ..stack.clone() }, stack],
        ..LockRow::default()
    };
    let begins = Begins {
        total: 4,
        by_kind: BTreeMap::from([(WireLockKind::Spin, 4)]),
        unended: 1,
        ..Begins::default()
    };
    let summary = LockSummary {
        duration_ns: 5,
        source: LockEventSource::SlowPath,
        events: Events { begins, contentions: 3, wait_ns: 30, ..Events::default() },
        locks: vec![row],
        left_out: LeftOut { locks: 1, wait_ns: 2 },
        processes: vec![ProcessRow { pid: 7, comm: "fio".to_string(), waits, max_wait_ns: None }],
        by_cpu: vec![CpuWaits { cpu: 1, waits }],
        by_node: vec![NodeWaits { node: 0, waits }],
        stacks: StackSampling { taken: 1, of: 3, estimated: true, ..StackSampling::default() },
        spin: Some(SpinShare {
            cpu_percent: 1.5,
            sampler: Sampler::CpuClock,
            samples: 9,
            lost: 0,
            low: 1.5,
            high: 2.5,
        }),
        slow_path: Some(SlowPath { calls: 9, events: 4, pending_bit_waiters: 5 }),
        waiting: Some(vec![Waiter { tid: 8, address: "0x100".to_string(), ns: 6, ..Waiter::default() }]),
        ..LockSummary::default()
    };
    let all = json(&summary);
    assert_eq!(
        (&all["seen_by"], &all["contentions"], &all["wait_ns"]),
        (&json!("slow-path"), &json!(3), &json!(30))
    );
    let expected = json!({"total": 4, "by_kind": {"spin": 4}, "repeats": 0, "filtered": 0, "unmatched_ends": 0, "unended": 1});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&all["begins"][key], value, "{key}");
    }
    assert_eq!(all["left_out"], json!({"locks": 1, "wait_ns": 2}));
    let process = json!({"pid": 7, "comm": "fio", "contentions": 3, "wait_ns": 30, "max_wait_ns": null});
    assert_eq!(all["by_process"], json!([process]));
    assert_eq!(all["by_cpu"], json!([{"cpu": 1, "contentions": 3, "wait_ns": 30}]));
    assert_eq!(all["by_node"], json!([{"node": 0, "contentions": 3, "wait_ns": 30}]));
    assert_eq!((&all["stacks"]["estimated"], &all["stacks"]["of"]), (&json!(true), &json!(3)));
    assert_eq!((&all["spin"]["cpu_percent"], &all["spin"]["sampler"]), (&json!(1.5), &json!("cpu-clock")));
    assert_eq!(all["slow_path"], json!({"slow_path_calls": 9, "events": 4, "pending_bit_waiters": 5}));
    let lock = &all["locks"][0];
    let expected = json!({
        "name": "inode lock", "kind": "percpu-rwsem", "recognised_by": "slab", "address": "0x100", "device": null,
        "node": null, "cgroup": null, "pid": null, "contentions": 3, "wait_ns": 30, "max_wait_ns": 10, "shared": 1,
        "gave_up": 0,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&lock[key], value, "{key}");
    }
    assert_eq!((&lock["wait"]["sum_ns"], &lock["holder"]["max_hold_ns"]), (&json!(30), &json!(9)));
    assert_eq!(lock["stacks"][1], json!({"frames": ["f"], "contentions": 1, "wait_ns": 7, "samples": 1}));
    assert_eq!((&all["waiting"][0]["wait_ns"], &all["waiting"][0]["kind"]), (&json!(6), &json!("spin")));
}

/// Two equal intervals have doubled counts over doubled time.
#[test]
fn intervals_are_merged() {
    let mut locks = summary(&[]);
    let spin =
        SpinShare { cpu_percent: 3.0, sampler: Sampler::Cycles, samples: 5, lost: 1, low: 3.0, high: 4.0 };
    locks.spin = Some(spin);
    let both = PressureSummary { locks: Some(locks), pagecache: None };
    let same = ["cpu", "pid", "max_wait_ns", "cpu_percent", "low", "high", "threshold_ns", "locks"];
    assert_eq!(not_doubled(&both, &same), Vec::<String>::new());
}
