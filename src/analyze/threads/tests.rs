use serde_json::json;

use super::*;
use crate::analyze::fixtures::{json, not_doubled};
use crate::wire::threads::ThreadTally;

const WAIT: u64 = 0xffff_0001;
const SCHEDULE: u64 = 0xffff_1001;
const IO_SCHEDULE: u64 = 0xffff_1101;
const READ: u64 = 0xffff_0101;

fn names() -> Names {
    let all = [
        (WAIT, "wait_on_page_bit_common"),
        (SCHEDULE, "__schedule"),
        (IO_SCHEDULE, "io_schedule"),
        (READ, "generic_file_read_iter"),
    ];
    Names {
        kernel: all.into_iter().map(|(at, name)| (at - 1, vec![name.to_string()])).collect(),
        ..Names::default()
    }
}

fn scheduler() -> Scheduler {
    Scheduler { ranges: vec![(0xffff_1000, 0xffff_2000)] }
}

fn with(sampled: &ThreadSamples, columns: &[GroupColumn], scheduler: &Scheduler) -> ThreadSummary {
    let cgroups = BTreeMap::from([(3, "/a".to_string())]);
    let devices = BTreeMap::from([(259 << 20, "nvme0n1".to_string())]);
    let meaning = Meaning { names: &names(), scheduler, cgroups: &cgroups, devices: &devices };
    summarize(sampled, &meaning, columns)
}

fn summary(sampled: &ThreadSamples, columns: &[GroupColumn]) -> ThreadSummary {
    with(sampled, columns, &scheduler())
}

fn thread(comm: &str, state: char) -> Sighting {
    let mut name = [0; 16];
    name[..comm.len()].copy_from_slice(comm.as_bytes());
    Sighting {
        comm: name,
        state,
        on_cpu: Some(false),
        in_iowait: Some(state == 'D'),
        call: Call::None,
        ..Sighting::default()
    }
}

/// Source T's run with read-ahead: on average 59.41 workers wait for pages and 23.92 are in transit.
fn storm() -> ThreadSamples {
    let mut tally = ThreadTally::new(0);
    for round in 0..100u64 {
        tally.begin_round();
        let waiting = 59 + u64::from(round % 100 < 41);
        let running = 23 + u64::from(round % 100 < 92);
        for n in 0..waiting {
            // Each has a number of its own in its name.
            let name = format!("io_wqe_worker-{}", n % 16);
            tally.add(thread(&name, 'D'), &[SCHEDULE, IO_SCHEDULE, WAIT, READ]);
        }
        for n in 0..running {
            let on_cpu = Some(n < 2);
            tally.add(Sighting { on_cpu, ..thread(&format!("io_wqe_worker-{n}"), 'R') }, &[]);
        }
    }
    tally.finish(10_000_000_000)
}

#[test]
fn the_table_of_source_t_can_be_read_off() {
    let summary = summary(&storm(), &GroupColumn::USUAL);
    let rows: Vec<_> = summary
        .rows
        .iter()
        .filter(|row| row.syscall.is_none())
        .map(|row| {
            let average = (row.share.average_threads * 100.0).round() / 100.0;
            (row.comm.as_deref().unwrap(), row.state.unwrap(), row.wchan.as_deref(), average)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("io_wqe_worker-*", 'D', Some("wait_on_page_bit_common"), 59.41),
            ("io_wqe_worker-*", 'R', None, 23.92),
        ]
    );
    assert_eq!(summary.rounds, 100);
    assert_eq!(summary.rows[0].share.samples, 5941);
    assert_eq!(summary.rows[0].stack.last().unwrap(), "__schedule", "outermost first");
    assert_eq!(summary.rows[0].stack_samples, 5941);
}

#[test]
fn waiting_for_io_is_not_waiting_for_a_cpu() {
    let classes = summary(&storm(), &GroupColumn::USUAL).classes;
    let averages = [classes.io_wait, classes.run_queue, classes.on_cpu]
        .map(|share| (share.unwrap().average_threads * 100.0).round() / 100.0);
    assert_eq!(averages, [59.41, 21.92, 2.0]);
    assert_eq!((classes.runnable.samples, classes.uninterruptible.samples), (2392, 0));
    let waits = summary(&storm(), &GroupColumn::USUAL).waits;
    assert_eq!((waits.len(), waits[0].share.samples), (1, 5941));
    assert_eq!(waits[0].wchan.as_deref(), Some("wait_on_page_bit_common"));
}

/// Computed by hand: 30 batches alternating between 1 and 3 have a mean of 2 and a standard error of sqrt(30/29/30).
#[test]
fn the_error_is_that_of_the_batches() {
    let mut tally = ThreadTally::new(0);
    for round in 0..30 {
        tally.begin_round();
        for _ in 0..1 + 2 * (round % 2) {
            tally.add(thread("a", 'D'), &[]);
        }
    }
    let share = summary(&tally.finish(1), &GroupColumn::USUAL).rows[0].share;
    let expected = (1.96 + 2.83 / 29.0) * (30.0f64 / 29.0 / 30.0).sqrt();
    assert_eq!((share.samples, share.average_threads), (60, 2.0));
    assert!((share.error.unwrap() - expected).abs() < 1e-9, "{share:?} {expected}");
    // A constant has no error, and with too few rounds the error is unknown.
    let mut steady = ThreadTally::new(0);
    (0..7).for_each(|_| {
        steady.begin_round();
        steady.add(thread("a", 'D'), &[]);
    });
    assert_eq!(summary(&steady.finish(1), &GroupColumn::USUAL).rows[0].share.error, None);
}

/// Without the kernel's section markers the scheduler's functions are recognised by their names.
#[test]
fn a_place_is_the_first_frame_outside_of_the_scheduler() {
    let mut tally = ThreadTally::new(0);
    tally.begin_round();
    tally.add(thread("a", 'D'), &[SCHEDULE, IO_SCHEDULE, WAIT]);
    tally.add(thread("b", 'D'), &[SCHEDULE, IO_SCHEDULE]);
    tally.add(thread("c", 'D'), &[SCHEDULE, 0x1234]);
    // A thread that waits for a CPU was only interrupted there.
    tally.add(thread("d", 'R'), &[SCHEDULE, READ]);
    let sampled = tally.finish(1);
    for scheduler in [scheduler(), Scheduler::default()] {
        let rows = with(&sampled, &[GroupColumn::Comm, GroupColumn::Wchan], &scheduler).rows;
        let of =
            |comm: &str| rows.iter().find(|row| row.comm.as_deref() == Some(comm)).unwrap().wchan.clone();
        assert_eq!(of("a").as_deref(), Some("wait_on_page_bit_common"));
        assert_eq!([of("b"), of("c"), of("d")], [None, None, None]);
    }
}

#[test]
fn threads_are_counted_apart_by_what_is_asked_for() {
    let mut tally = ThreadTally::new(0);
    tally.begin_round();
    let base = thread("fio", 'D');
    let one = Sighting { pid: 7, cgroup: 3, device: 259 << 20, call: Call::Number(17), ..base };
    tally.add(one.clone(), &[SCHEDULE, WAIT]);
    tally.add(Sighting { pid: 8, cgroup: 4, device: 7 << 20 | 3, ..one.clone() }, &[SCHEDULE, READ]);
    tally.add(Sighting { call: Call::Compat(3), ..one }, &[]);
    let sampled = tally.finish(1);
    let all = summary(&sampled, &GroupColumn::ALL).rows;
    assert_eq!(all.len(), 3);
    let row = all.iter().find(|row| row.pid == Some(8)).unwrap();
    assert_eq!(
        (row.cgroup.as_deref(), row.device.as_deref(), row.syscall.as_deref()),
        (Some("[gone 4]"), Some("7:3"), Some("pread64"))
    );
    assert_eq!(row.stack, ["generic_file_read_iter", "__schedule"]);
    let of = |column| summary(&sampled, &[column]).rows.len();
    let counts = [
        of(GroupColumn::Pid),
        of(GroupColumn::Cgroup),
        of(GroupColumn::Device),
        of(GroupColumn::Syscall),
        of(GroupColumn::Kstack),
    ];
    assert_eq!(counts, [2, 2, 2, 2, 3]);
    assert_eq!(summary(&sampled, &[GroupColumn::Cgroup]).rows[0].cgroup.as_deref(), Some("/a"));
    assert_eq!(summary(&sampled, &[GroupColumn::Comm]).rows[0].pid, None);
}

#[test]
fn folded_stacks_hold_every_sample_and_no_escape_sequence() {
    let mut tally = ThreadTally::new(0);
    tally.begin_round();
    tally.add(thread("a;b\x1b[2J 7", 'D'), &[SCHEDULE, WAIT]);
    tally.add(Sighting { on_cpu: Some(true), ..thread("c", 'R') }, &[]);
    let summary = summary(&tally.finish(1), &GroupColumn::USUAL);
    let lines: Vec<&str> = summary.folded.keys().map(String::as_str).collect();
    assert_eq!(lines, ["a\\x3bb\\x1b[*J *;wait_on_page_bit_common_[k];__schedule_[k]", "c;[on CPU]"]);
    assert_eq!(summary.folded.values().sum::<u64>(), summary.samples);
}

/// What /proc cannot tell: which thread is on a CPU, and which waits for I/O.
#[test]
fn what_is_not_told_is_absent() {
    let mut tally = ThreadTally::new(0);
    tally.begin_round();
    let seen = |state| Sighting { on_cpu: None, in_iowait: None, ..thread("a", state) };
    tally.add(seen('R'), &[]);
    tally.add(Sighting { wchan: Some("folio_wait_bit_common".into()), ..seen('D') }, &[]);
    let summary = summary(&tally.finish(1), &GroupColumn::USUAL);
    assert_eq!(
        (summary.classes.on_cpu, summary.classes.run_queue, summary.classes.io_wait),
        (None, None, None)
    );
    assert_eq!((summary.classes.runnable.samples, summary.classes.uninterruptible.samples), (1, 1));
    assert!(summary.rows.iter().any(|row| row.wchan.as_deref() == Some("folio_wait_bit_common")));
}

#[test]
fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
    let share = ThreadShare { samples: 4, average_threads: 0.4, error: None };
    let row = ThreadGroup {
        state: Some('D'),
        pid: Some(7),
        stack: vec!["a".to_string(), "b".to_string()],
        stack_samples: 3,
        share,
        ..ThreadGroup::default()
    };
    let wait = Wait {
        stack: vec!["a".to_string()],
        devices: BTreeMap::from([("sda".to_string(), 2)]),
        share,
        ..Wait::default()
    };
    let summary = ThreadSummary {
        duration_ns: 5,
        rounds: 10,
        samples: 4,
        average_threads: 0.4,
        columns: vec![GroupColumn::State, GroupColumn::Comm],
        rows: vec![row],
        classes: Classes { io_wait: Some(share), ..Classes::default() },
        waits: vec![wait],
        loss: Loss { late: 1, missed: 2, cut: 3, ..Loss::default() },
        hz: 10,
        source: Some(ThreadSampler::Proc),
        ..ThreadSummary::default()
    };
    let all = json(&summary);
    for (key, value) in [("rounds", 10), ("late_rounds", 1), ("missed_rounds", 2), ("samples", 4), ("hz", 10)]
    {
        assert_eq!(all[key], value, "{key}");
    }
    assert_eq!((&all["columns"], &all["source"]), (&json!(["state", "comm"]), &json!("proc")));
    let row = json!({
        "comm": null, "state": "D", "syscall": null, "wchan": null, "cgroup": null, "pid": 7, "device": null,
        "stack": ["a", "b"], "stack_samples": 3, "samples": 4, "average_threads": 0.4, "error": null,
    });
    assert_eq!(all["threads"], json!([row]));
    let wait = json!({
        "wchan": null, "stack": ["a"], "devices": {"sda": 2}, "samples": 4, "average_threads": 0.4, "error": null,
    });
    assert_eq!(all["io_waits"], json!([wait]));
    let states: Vec<&String> = all["states"].as_object().unwrap().keys().collect();
    assert_eq!(
        states,
        ["io_wait", "other", "runnable", "uninterruptible"],
        "what is not told apart has no key"
    );
}

/// Two equal intervals have the same averages.
#[test]
fn intervals_are_merged() {
    let one = summary(&storm(), &GroupColumn::USUAL);
    // The error of a merged average is unknown.
    let same = ["average_threads", "looked_at", "hz", "error"];
    let wrong = not_doubled(&one, &same);
    assert!(!wrong.is_empty() && wrong.iter().all(|key| key.starts_with("error: ")), "{wrong:?}");
}

fn merged(a: &ThreadSummary, b: &ThreadSummary) -> ThreadSummary {
    let mut all = a.clone();
    all.merge_with(b);
    all.settle();
    all
}

/// /proc tells neither which threads run nor which wait for I/O, and an interval without threads must not hide that.
#[test]
fn classes_that_one_interval_does_not_tell_are_told_of_none() {
    let of_files = |ns: u64, rounds: &[&[char]]| {
        let mut tally = ThreadTally::new(ns);
        for round in rounds {
            tally.begin_round();
            for state in *round {
                tally.add(Sighting { on_cpu: None, in_iowait: None, ..thread("a", *state) }, &[]);
            }
        }
        summary(&tally.finish(ns + 10), &GroupColumn::USUAL)
    };
    let all = merged(&of_files(0, &[&[]]), &of_files(10, &[&['R', 'D']]));
    let whole = of_files(0, &[&[], &['R', 'D']]);
    assert_eq!(all.classes, whole.classes);
}

#[test]
fn merged_rows_stand_in_the_order_of_their_window() {
    let of = |rounds: &[&[&str]]| {
        let mut tally = ThreadTally::new(0);
        for round in rounds {
            tally.begin_round();
            round.iter().for_each(|n| {
                tally.add(thread(n, 'D'), &[]);
            });
        }
        summary(&tally.finish(10), &GroupColumn::USUAL)
    };
    let short =
        |s: &ThreadSummary| s.rows.iter().map(|r| (r.comm.clone(), r.share.samples)).collect::<Vec<_>>();
    assert_eq!(short(&merged(&of(&[&["b"]]), &of(&[&["a"]]))), short(&of(&[&["b"], &["a"]])));
}

/// Rows that differ only by their stacks stay separate.
#[test]
fn rows_by_stack_are_merged_by_stack() {
    let row = |frame: &str, samples| ThreadGroup {
        stack: vec![frame.to_string()],
        stack_samples: samples,
        share: ThreadShare { samples, ..ThreadShare::default() },
        ..ThreadGroup::default()
    };
    let of = |columns: &[GroupColumn], rows: Vec<ThreadGroup>| ThreadSummary {
        columns: columns.to_vec(),
        rounds: 1,
        rows,
        ..ThreadSummary::default()
    };
    let merged = |columns: &[GroupColumn]| {
        let mut first = of(columns, vec![row("a", 3), row("b", 2)]);
        first.merge_with(&of(columns, vec![row("b", 5), row("a", 1)]));
        first.settle();
        first.rows.iter().map(|row| (row.stack[0].clone(), row.share.samples)).collect::<Vec<_>>()
    };
    assert_eq!(merged(&[GroupColumn::Kstack]), [("b".to_string(), 7), ("a".to_string(), 4)]);
}
