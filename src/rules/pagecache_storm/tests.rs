//! Tests both sides of each threshold, and the two separate runs of source T's storm (tests/cases).

use super::*;
use crate::analyze::memory_sample::MemorySample;
use crate::findings::Diagnosis;
use crate::rules::cases::{Dstat, recorded};
use crate::rules::diagnose;
use crate::rules::fixtures::{Case, SECOND};
use crate::rules::inputs::{
    Contention, LockKind, Locks, PageCache, Reclaim, Reclaims, Spin, ThreadRow, ThreadsInput,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const G: u64 = 1024;

/// Rows of psn: samples, threads, name, state, wchan, and the decisive functions of the stack.
type Psn = (u64, f64, &'static str, char, &'static str, &'static [&'static str]);

fn threads(rounds: u64, rows: &[Psn]) -> ThreadsInput {
    let row = |(samples, average_threads, comm, state, wchan, stack): &Psn| ThreadRow {
        comm: comm.to_string(),
        state: *state,
        wchan: Some(wchan.to_string()),
        stack: stack.iter().map(ToString::to_string).collect(),
        samples: *samples,
        average_threads: *average_threads,
    };
    ThreadsInput { rounds, rows: rows.iter().map(row).collect() }
}

/// T's machine: 16 cores with two threads each, 256 GB, one drive without measured stages.
fn of_t(moments: Vec<MemorySample>) -> Case {
    let mut case = Case::new(1_000, 32);
    (case.load, case.profile) = (None, None);
    case.latency.devices.clear();
    (case.host.cpus_online, case.host.cpus_possible) = (32, 32);
    case.host.memory_bytes = Some(256 * GIB);
    let duration_ns = moments.iter().map(|moment| moment.duration_ns).sum();
    case.pagecache = Some(PageCache { duration_ns, moments, ..PageCache::default() });
    case
}

fn verdict(case: &Case) -> Diagnosis {
    diagnose(&case.summaries())
}

fn ids(case: &Case) -> Vec<(&'static str, Severity)> {
    verdict(case).findings.iter().map(|finding| (finding.id, finding.severity)).collect()
}

/// T's run without read-ahead, where the part that T omitted takes this many seconds.
fn read_ahead_off(seconds: u64) -> Case {
    let mut case = recorded("t-read-ahead-off");
    for (moment, at) in case.pagecache.as_mut().unwrap().moments[5..].iter_mut().zip(6 + seconds..) {
        moment.at_ns = at * SECOND;
    }
    case
}

fn moments(case: &mut Case) -> &mut Vec<MemorySample> {
    &mut case.pagecache.as_mut().unwrap().moments
}

#[test]
fn t_with_read_ahead_is_a_storm_by_its_threads() {
    let case = recorded("t-read-ahead-on");
    let found = verdict(&case).findings;
    let storm = &found[0];
    assert_eq!((storm.severity, storm.confidence), (Severity::Critical, SAMPLED));
    // 7.89 + 6.47 + 0.61 threads reclaim, 0.61 of 32 CPUs were observed spinning, and system time is 99.4 % of all
    // CPUs.
    assert!(storm.evidence[0].starts_with("15.0 threads are in reclaim"), "{:?}", storm.evidence);
    assert!(
        storm.evidence[1].starts_with("threads spin on at least 2 % of the CPUs"),
        "{:?}",
        storm.evidence
    );
    assert!((storm.numbers["spin_low_percent"] - 100.0 * 0.61 / 32.0).abs() < 0.01);
    assert_eq!((storm.numbers["spin_high_percent"] * 10.0).round(), 994.0);
    assert!(!storm.numbers.contains_key("onset_ns"), "five seconds show none");
    assert!(storm.evidence.iter().any(|line| line.contains("47.9 threads run and 11.6 wait")), "{storm:?}");
}

#[test]
fn t_with_read_ahead_is_a_storm_by_what_dstat_and_the_first_psn_say() {
    let found = verdict(&recorded("t-read-ahead-on-wchan")).findings;
    let storm = &found[0];
    assert_eq!(storm.confidence, INFERRED);
    // 99.4 % of 32 CPUs for 3,239 MiB a second: 38 µs a page.
    assert!(storm.evidence[1].contains("uses 38.4 µs of CPU time per page"), "{:?}", storm.evidence);
    let rate = storm.numbers["read_bytes_per_second"] / MIB as f64;
    assert!((2953.0..3593.0).contains(&rate), "{rate}");
    let punt = found.iter().find(|finding| finding.id == "worker-punt").unwrap();
    assert_eq!(punt.severity, Severity::Note);
    let workers = |key| (punt.numbers[key] * 100.0f64).round() / 100.0;
    assert_eq!(workers("workers_waiting"), 59.55);
    assert_eq!(workers("workers_running"), 24.03);
    assert!(punt.evidence.iter().any(|line| line == "59.5 wait in wait_on_page_bit_common"), "{punt:?}");
}

/// Without evidence that it reads through the cache there is no finding.
#[test]
fn t_with_read_ahead_without_threads_is_not_judged() {
    let mut case = recorded("t-read-ahead-on");
    case.threads = None;
    assert_eq!(ids(&case)[0].0, "inconclusive");
}

#[test]
fn t_without_read_ahead_is_a_storm_that_begins_where_free_memory_ends() {
    // T says 60 seconds, of which its own figures allow 7: the onset is after them in either case.
    for left_out in [60, 7] {
        let case = read_ahead_off(left_out);
        let found = verdict(&case).findings;
        let storm = &found[0];
        assert_eq!(
            (storm.id, storm.severity, storm.confidence),
            ("pagecache-storm", Severity::Critical, INFERRED)
        );
        // The second with 1,341 MiB: the first on its low plateau.
        assert_eq!(storm.numbers["onset_ns"] as u64, (6 + left_out) * SECOND, "{left_out}");
        assert_eq!(storm.numbers["onset_after_ns"] as u64, 5 * SECOND);
        let onset = pagecache::onset(&case.summaries()).unwrap();
        let moved: Vec<Signal> = onset.moved.iter().map(|one| one.signal).collect();
        assert_eq!(moved, [Signal::Free, Signal::System, Signal::Throughput]);
        let system = onset.of(Signal::System).unwrap();
        assert_eq!((system.before.mean.round(), system.after.mean.round()), (21.0, 82.0));
        let worth = storm.worth.as_ref().unwrap();
        assert!(worth.low > 1.2 && worth.low < 1.51 && worth.high > 1.51 && worth.high < 2.0, "{worth:?}");
    }
}

/// The seconds that T omitted, filled in from its own figures: 4 GiB less free memory in each, all else as before.
#[test]
fn the_onset_stays_where_the_seconds_left_out_are_filled_in() {
    let mut case = read_ahead_off(7);
    let last = moments(&mut case)[4];
    for n in 1..=7u64 {
        let next = MemorySample {
            at_ns: (5 + n) * SECOND,
            free_bytes: last.free_bytes.map(|bytes| bytes - 4 * n * GIB),
            file_bytes: last.file_bytes.map(|bytes| bytes + 4 * n * GIB),
            ..last
        };
        moments(&mut case).insert(4 + n as usize, next);
    }
    let storm = &verdict(&case).findings[0];
    assert_eq!((storm.id, storm.numbers["onset_ns"] as u64), ("pagecache-storm", 13 * SECOND));
    assert_eq!(storm.numbers["onset_after_ns"] as u64, 12 * SECOND);
}

#[test]
fn t_before_its_storm_and_with_direct_io_has_none() {
    let mut before = recorded("t-read-ahead-off");
    moments(&mut before).truncate(5);
    let mut long = recorded("t-direct");
    let four = moments(&mut long).clone();
    *moments(&mut long) =
        (0..60).map(|at| MemorySample { at_ns: (at as u64 + 1) * SECOND, ..four[at % 4] }).collect();
    before.threads.clone_from(&long.threads);
    // All ten disks: 27 % usr, 73 % sys, 32 run, 11.1M direct reads a second.
    let all = (1..=30).map(|at| Dstat(at, 32, 0, 73, 0, 0, 249 * G, 41, 406, 11_100_000, 42 * 1024).moment());
    for case in [before, long, of_t(all.collect())] {
        assert_eq!(ids(&case), [("inconclusive", Severity::Warning)]);
    }
}

/// A machine with everything measured, and without a problem.
fn clean() -> Case {
    let mut case = Case::new(15_000, 32);
    let line = |at| MemorySample {
        scanned_pages: Some(0),
        spin_percent: Some((0.1, 0.4)),
        dirty_bytes: Some(MIB),
        ..Dstat(at, 2, 0, 10, 80, 5, 8 * G, G, 200, 15_000, 60).moment()
    };
    case.pagecache = Some(PageCache {
        reclaimers: Vec::new(),
        duration_ns: 60 * SECOND,
        moments: (1..=60).map(line).collect(),
        scanned_pages: Some(0),
        refault_pages: None,
        stolen_pages: None,
        reclaims: Some(Reclaims::default()),
        readahead: Some(Default::default()),
    });
    case.locks = Some(Locks {
        duration_ns: 60 * SECOND,
        locks: vec![Contention {
            name: "lru_lock of node 0".into(),
            contentions: 5_000,
            wait_ns: 5_000_000,
            max_wait_ns: 20_000,
            ..Contention::default()
        }],
        spin: Some(Spin { low_percent: 0.1, high_percent: 0.4, sampler: "cycles".into() }),
        spins: None,
        lost: 0,
    });
    case.threads =
        Some(threads(600, &[(600, 1.0, "fio", 'R', "0", &[]), (60, 0.1, "fio", 'D', "io_schedule", &[])]));
    case
}

const NEW: [&str; 6] =
    ["pagecache-storm", "direct-reclaim", "lock-contention", "readahead", "worker-punt", "flush-bound"];

#[test]
fn a_clean_machine_has_nothing() {
    let found = ids(&clean());
    assert!(found.iter().all(|(id, _)| !NEW.contains(id)), "{found:?}");
    let idle = of_t((1..=60).map(|at| Dstat(at, 0, 0, 0, 100, 0, 249 * G, 41, 406, 0, 0).moment()).collect());
    assert_eq!(ids(&idle)[0].0, "inconclusive");
}

/// Reclaim and spinning, both counted, of two CPUs for a second.
fn counted(scanned_pages: u64, low_percent: f64) -> Case {
    let mut case = clean();
    let pagecache = case.pagecache.as_mut().unwrap();
    (pagecache.duration_ns, pagecache.scanned_pages) = (SECOND, Some(scanned_pages));
    pagecache.moments.clear();
    case.locks.as_mut().unwrap().spin =
        Some(Spin { low_percent, high_percent: 60.0, sampler: "cycles".into() });
    case
}

#[test]
fn both_reclaim_and_spinning_are_needed() {
    assert!(pagecache_storm_stands(&counted(10_000, 10.0)));
    assert!(!pagecache_storm_stands(&counted(9_999, 90.0)), "spinning alone");
    assert!(!pagecache_storm_stands(&counted(10_000_000, 9.9)), "reclaim alone");
    let found = find(&counted(10_000, 10.0).summaries());
    assert_eq!((found[0].confidence, found[0].severity), (COUNTED, Severity::Critical));
    assert_eq!(found[0].numbers["reclaimed_pages_per_second"], 10_000.0);
    assert!(
        found[0].evidence[1].contains("10 % to 60 % of the time of all CPUs (cycles)"),
        "{:?}",
        found[0].evidence
    );
}

fn pagecache_storm_stands(case: &Case) -> bool {
    !find(&case.summaries()).is_empty()
}

#[test]
fn waits_for_the_locks_of_the_cache_are_spinning_too() {
    let waits = |wait_ns: u64| {
        let mut case = counted(50_000, 1.0);
        let locks = case.locks.as_mut().unwrap();
        locks.duration_ns = SECOND;
        (locks.locks[0].wait_ns, locks.locks[0].contentions) = (wait_ns, 10_000);
        case
    };
    assert!(pagecache_storm_stands(&waits(SECOND / 5)), "a tenth of two CPUs");
    assert!(!pagecache_storm_stands(&waits(SECOND / 5 - 10)));
    let found = ids(&waits(SECOND));
    assert_eq!(found[0], ("pagecache-storm", Severity::Critical));
    assert!(found.contains(&("lock-contention", Severity::Note)), "a symptom: {found:?}");
}

#[test]
fn other_locks_are_another_matter() {
    let others = |mine: u64| {
        let mut case = counted(50_000, 40.0);
        let lock = |name: &str, kind, wait_ns| Contention {
            name: name.into(),
            kind,
            contentions: 10_000,
            wait_ns,
            ..Contention::default()
        };
        case.locks.as_mut().unwrap().locks = vec![
            lock("run-queue lock of CPU 1", LockKind::Spin, 500_000_000),
            lock("lru_lock of node 0", LockKind::Spin, mine),
            lock("inode rwsem", LockKind::Sleep, 9_000_000_000),
        ];
        case
    };
    assert!(pagecache_storm_stands(&others(500_000_000)));
    assert!(!pagecache_storm_stands(&others(499_000_000)));
    let found = ids(&others(0));
    assert!(
        found.iter().all(|(id, _)| *id != "pagecache-storm")
            && found.contains(&("lock-contention", Severity::Warning)),
        "{found:?}"
    );
}

/// The whole chain at once: the storm comes first, before its symptoms and other confident findings.
#[test]
fn the_storm_comes_before_its_symptoms() {
    let mut case = counted(500_000, 50.0);
    case.worker(20, 79);
    case.locks.as_mut().unwrap().locks[0].wait_ns = 60 * SECOND;
    case.pagecache.as_mut().unwrap().reclaims =
        Some(Reclaims { direct: Reclaim { count: 10_000, ns: 5 * SECOND }, ..Reclaims::default() });
    case.threads = Some(threads(100, &[(4_000, 40.0, "iou-wrk-*", 'D', "folio_wait_bit_common", &[])]));
    let found = ids(&case);
    assert_eq!(found[0], ("pagecache-storm", Severity::Critical));
    for symptom in ["lock-contention", "direct-reclaim", "worker-punt"] {
        assert!(found.contains(&(symptom, Severity::Note)), "{symptom}: {found:?}");
    }
    assert!(found.contains(&("submit-cpu-bound", Severity::Warning)), "{found:?}");
    // Without the spinning they stand on their own.
    case.locks = None;
    case.profile = None;
    let found = ids(&case);
    assert!(found.contains(&("worker-punt", Severity::Warning)), "{found:?}");
    case.load.as_mut().unwrap().job.direct = false;
    let found = ids(&case);
    assert!(found.contains(&("direct-reclaim", Severity::Warning)), "{found:?}");
}

/// A storm in the last third, which the mean over the interval would not show.
#[test]
fn what_began_late_is_judged_from_there() {
    let mut case = clean();
    let pagecache = case.pagecache.as_mut().unwrap();
    for (at, moment) in pagecache.moments.iter_mut().enumerate() {
        let storm = at >= 54;
        moment.read_bytes = Some(if storm { 30 * MIB } else { 60 * MIB });
        moment.scanned_pages = Some(if storm { 40_000 } else { 0 });
        moment.spin_percent = Some(if storm { (30.0, 50.0) } else { (0.0, 1.0) });
    }
    pagecache.scanned_pages = Some(6 * 40_000);
    case.locks.as_mut().unwrap().spin =
        Some(Spin { low_percent: 3.0, high_percent: 6.0, sampler: "cycles".into() });
    let found = find(&case.summaries());
    assert_eq!((found[0].numbers["onset_ns"] as u64, found[0].confidence), (55 * SECOND, COUNTED));
    assert_eq!(found[0].numbers["spin_low_percent"].round(), 30.0);
    assert!(found[0].sentence.ends_with("since second 55.0."), "{}", found[0].sentence);
    let worth = found[0].worth.as_ref().unwrap();
    assert!(worth.low > 1.9 && worth.high < 2.1, "{worth:?}");
}

/// Both sides of each limit of samples and inference, with T's own figures.
#[test]
fn what_is_sampled_or_inferred_has_two_sides() {
    let with = |change: &dyn Fn(&mut Case)| {
        let mut case = recorded("t-read-ahead-on-wchan");
        change(&mut case);
        pagecache_storm_stands(&case)
    };
    let each = |case: &mut Case, change: &dyn Fn(&mut MemorySample)| {
        case.pagecache.as_mut().unwrap().moments.iter_mut().for_each(change);
    };
    assert!(with(&|_| ()));
    assert!(with(&|case| each(case, &|moment| moment.system_percent = Some(90.0))));
    assert!(!with(&|case| each(case, &|moment| moment.system_percent = Some(89.9))));
    // 20 µs of 0.99 x 32 CPUs: 1.584M pages a second.
    let pages = |n: u64| {
        move |case: &mut Case| {
            each(case, &|moment| {
                (moment.read_bytes, moment.system_percent) = (Some(n * 4096), Some(99.0));
            })
        }
    };
    assert!(with(&pages(1_583_000)) && !with(&pages(1_585_000)));
    assert!(with(&|case| each(case, &|moment| moment.free_bytes = Some(12 * GIB))));
    assert!(!with(&|case| each(case, &|moment| moment.free_bytes = Some(14 * GIB))), "5 % of 259 GiB");
    let waiting = |threads: f64| {
        move |case: &mut Case| {
            let rows = &mut case.threads.as_mut().unwrap().rows;
            rows.retain(|row| row.state == 'R' || row.samples > 4_000);
            rows[0].average_threads = threads;
        }
    };
    assert!(with(&waiting(1.0)) && !with(&waiting(0.99)));
    // The cache grows by more than half of the reads: there was room.
    let grows = |part: f64| {
        move |case: &mut Case| {
            for (at, moment) in case.pagecache.as_mut().unwrap().moments.iter_mut().enumerate() {
                moment.read_bytes = Some(3_000 * MIB);
                moment.file_bytes = Some(240 * GIB + (at as f64 * part * (3_000 * MIB) as f64) as u64);
            }
        }
    };
    assert!(with(&grows(0.49)) && !with(&grows(0.51)));
    // Spinning was measured, and there is none.
    assert!(!with(&|case| case.locks = Some(Locks { spin: Some(Spin::default()), ..Locks::default() })));

    let stacks = |reclaim: f64, kernel: f64| {
        let mut case = recorded("t-read-ahead-on");
        let rows = &mut case.threads.as_mut().unwrap().rows;
        rows[3].average_threads = reclaim;
        rows.remove(4);
        each(&mut case, &|moment| moment.system_percent = Some(kernel));
        // Less than an eighth of the rate, and no other evidence.
        each(&mut case, &|moment| moment.file_bytes = None);
        each(&mut case, &|moment| moment.read_bytes = Some(0));
        pagecache_storm_stands(&case)
    };
    // With kswapd's 0.61: a tenth of 32 CPUs.
    assert!(stacks(2.6, 90.0) && !stacks(2.58, 90.0) && !stacks(2.6, 89.0));
}

/// With a profile alone, as taken by diagnose.
#[test]
fn a_profile_alone_can_show_it() {
    use crate::analyze::stacks::CpuClass;
    use crate::rules::fixtures::profile;
    let with = |slow: u64, reclaim: u64| {
        let mut case = Case::new(15_000, 32);
        let mut seen = profile(&[(CpuClass::System, 500)]);
        seen.folded = [
            ("fio;vfs_read_[k];shrink_lruvec_[k];native_queued_spin_lock_slowpath_[k]".to_string(), slow),
            ("fio;vfs_read_[k];shrink_lruvec_[k];folio_isolate_lru_[k]".to_string(), reclaim - slow),
            ("fio;vfs_read_[k];copy_to_user_[k]".to_string(), 500 - reclaim),
        ]
        .into();
        case.profile = Some(seen);
        find(&case.summaries())
    };
    // Half of two CPUs is busy: a tenth of all is a fifth of the busy time.
    assert_eq!(with(100, 400).first().map(|found| found.confidence), Some(SAMPLED));
    assert!(with(99, 400).is_empty());
    let mut few = Case::new(15_000, 32);
    let mut seen = profile(&[(CpuClass::System, 500)]);
    seen.folded = [
        ("fio;shrink_lruvec_[k];folio_isolate_lru_[k]".to_string(), 49),
        ("fio;other_[k];native_queued_spin_lock_slowpath_[k]".to_string(), 451),
    ]
    .into();
    few.profile = Some(seen);
    assert!(find(&few.summaries()).is_empty(), "9.8 % in reclaim: the spinning is another's");
}
