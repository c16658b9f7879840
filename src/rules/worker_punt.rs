//! Finding: io_uring punts operations to worker threads, because they would have blocked.

use std::collections::BTreeMap;

use super::facts::percent;
use super::inputs::ThreadRow;
use super::numbers;
use super::pagecache::{self, SAMPLES};
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity};
use crate::units::{figure, in_percent};

/// Average number of workers that run or wait for a disk.
pub const WORKERS: f64 = 1.0;

/// Share of the active threads from which on it is a warning.
pub const MOST: f64 = 0.5;

/// CPUs used by a load's own workers, if threads were not sampled.
pub const CPUS: f64 = 0.25;

/// Worker names: before 5.12, and since.
const NAMES: [&str; 2] = ["io_wqe_worker", "iou-wrk"];

/// Functions in which idle workers sleep.
const IDLE: &[&str] = &["io_wqe_worker", "io_wq_worker"];

const WORKER_CPUS: Number = Number::new("worker_cpus", "CPUs that io_uring's workers use");
const WORKER_SHARE_PERCENT: Number =
    Number::new("worker_share_percent", "workers' share of the threads at work");
const WORKER_THREADS: Number = Number::new("worker_threads", "io_uring's worker threads");
const WORKERS_RUNNING: Number = Number::new("workers_running", "running workers, on average");
const WORKERS_WAITING: Number = Number::new("workers_waiting", "waiting workers, on average");

pub const RULE: Rule = Rule { id: "worker-punt", page: PAGE, find };

const PAGE: &str = "\
io_uring hands blocking operations to worker threads.

An operation that can start without blocking needs no thread. One that cannot (the page is not
cached, no request is free, the file system must read its metadata) goes to a worker of the ring,
which sleeps. Each such operation costs a wake-up, and a ring may have hundreds of workers.

How it is computed
  workers = mean number of threads named io_wqe_worker-* (before Linux 5.12) or iou-wrk-* that run
  or are in uninterruptible sleep, but not idle. Found from 1 on, with at least 10 samples. A
  warning if they are at least 50 % of all such threads, else a note. Always a note if
  pagecache-storm or tag-starvation is found.
  If threads were not sampled: the CPU time of the workers of biopsy's own load, a note from
  0.25 CPUs on.
  From: threads.threads[].comm, .state, .wchan, .average_threads; load.ring_workers.

When it is wrong
  - Some operations always go to a worker: fsync, and buffered writes on many file systems.
  - A thread can have any name.
  - Sleeping workers cost little compared with a slow device.

What to do
  - They wait for a page of the cache: use O_DIRECT.
  - They wait for a request (blk_mq_get_tag): less depth, or more requests (queue/nr_requests).
  - On files: a file system with RWF_NOWAIT support, and blocks allocated in advance.
  - Fewer workers: IORING_REGISTER_IOWQ_MAX_WORKERS.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    match s.threads {
        Some(_) => sampled(s),
        None => by_load(s),
    }
    .into_iter()
    .collect()
}

fn is_worker(row: &ThreadRow) -> bool {
    // psn prints names as in /proc/PID/stat, with a parenthesis.
    NAMES.iter().any(|name| row.comm.trim_start_matches('(').starts_with(name))
}

fn at_work(row: &ThreadRow) -> bool {
    matches!(row.state, 'R' | 'D')
        && !(row.state == 'D' && row.wchan.as_deref().is_some_and(|at| IDLE.contains(&at)))
}

fn sampled(s: &Summaries<'_>) -> Option<Finding> {
    let threads = s.threads?;
    let of = |state: char| {
        let rows = threads.rows.iter().filter(|row| is_worker(row) && at_work(row) && row.state == state);
        rows.map(|row| row.average_threads).sum::<f64>()
    };
    let workers = pagecache::sampled(threads, |row| is_worker(row) && at_work(row))?;
    if workers < WORKERS {
        return None;
    }
    let all: f64 = threads.rows.iter().filter(|row| at_work(row)).map(|row| row.average_threads).sum();
    let (running, waiting) = (of('R'), of('D'));
    let share = workers / all;
    let places = places(&threads.rows);
    let mut evidence = vec![
        format!("on average {} of them run and {} wait", figure(running), figure(waiting)),
        format!("that is {} of the threads at work (at least {SAMPLES} samples)", in_percent(share)),
    ];
    evidence.extend(places.iter().map(|(place, threads)| format!("{} wait in {place}", figure(*threads))));
    Some(Finding {
        id: RULE.id,
        subject: "io_uring".to_string(),
        severity: if share >= MOST { Severity::Warning } else { Severity::Note },
        confidence: 0.8,
        sentence: format!(
            "io_uring keeps {} worker threads busy with operations that would block.",
            figure(workers)
        ),
        numbers: BTreeMap::from([
            (numbers::WORKERS, workers),
            (WORKERS_RUNNING, running),
            (WORKERS_WAITING, waiting),
            (WORKER_SHARE_PERCENT, percent(share)),
        ]),
        evidence,
        advice: advice(places.first().map(|(place, _)| place.as_str())),
        check: "biopsy load TARGET --direct 1 --runtime 10s".to_string(),
        worth: None,
    })
}

/// Functions in which workers wait, with the number of workers.
fn places(rows: &[ThreadRow]) -> Vec<(String, f64)> {
    let mut places: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_worker(row) && at_work(row) && row.state == 'D') {
        if let Some(wchan) = row.wchan.as_deref().filter(|wchan| !matches!(*wchan, "" | "0")) {
            *places.entry(wchan).or_default() += row.average_threads;
        }
    }
    let mut places: Vec<(String, f64)> = places.into_iter().map(|(at, n)| (at.to_string(), n)).collect();
    places.sort_by(|a, b| b.1.total_cmp(&a.1));
    places.truncate(2);
    places
}

fn advice(place: Option<&str>) -> String {
    let first = match place {
        Some(place) if place.contains("page_bit") || place.contains("folio") || place.contains("filemap") => {
            "They wait for pages of the page cache: use O_DIRECT, which needs none. "
        }
        Some(place) if place.contains("get_tag") => {
            "They wait for a free request: less depth, or more requests (queue/nr_requests). "
        }
        _ => "Use O_DIRECT, and less depth than the device has requests. ",
    };
    format!("{first}Fewer of them: IORING_REGISTER_IOWQ_MAX_WORKERS.")
}

fn by_load(s: &Summaries<'_>) -> Option<Finding> {
    let load = s.load.filter(|load| load.duration_ns > 0)?;
    let workers = load.ring_workers.filter(|workers| workers.threads > 0)?;
    let cpus = workers.system_ns as f64 / load.duration_ns as f64;
    (cpus >= CPUS).then(|| Finding {
        id: RULE.id,
        subject: "io_uring".to_string(),
        severity: Severity::Note,
        confidence: 0.7,
        sentence: format!(
            "io_uring's worker threads use {} CPUs for operations that would block.",
            figure(cpus)
        ),
        numbers: BTreeMap::from([(WORKER_CPUS, cpus), (WORKER_THREADS, f64::from(workers.threads))]),
        evidence: vec![format!("{} worker threads used a CPU", workers.threads)],
        advice: advice(None),
        check: super::command::load(load, load.job.iodepth, load.job.numjobs),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::RingWorkers;
    use crate::rules::fixtures::{Case, SECOND};
    use crate::rules::inputs::ThreadsInput;

    fn row(comm: &str, state: char, wchan: &str, average_threads: f64) -> ThreadRow {
        ThreadRow {
            comm: comm.into(),
            state,
            wchan: Some(wchan.into()),
            samples: (average_threads * 100.0).round() as u64,
            average_threads,
            ..ThreadRow::default()
        }
    }

    fn found(rows: Vec<ThreadRow>) -> Vec<Finding> {
        let mut case = Case::new(1_000, 32);
        case.threads = Some(ThreadsInput { rounds: 100, rows });
        find(&case.summaries())
    }

    #[test]
    fn workers_have_two_sides() {
        assert!(found(vec![row("iou-wrk-*", 'D', "folio_wait_bit_common", 0.99)]).is_empty());
        let one =
            found(vec![row("iou-wrk-*", 'D', "folio_wait_bit_common", 0.7), row("iou-wrk-*", 'R', "0", 0.3)]);
        assert_eq!((one[0].severity, one[0].numbers["workers_waiting"]), (Severity::Warning, 0.7));
        assert!(one[0].advice.contains("O_DIRECT, which needs none"), "{}", one[0].advice);
        let tags = found(vec![row("iou-wrk-*", 'D', "blk_mq_get_tag", 2.0)]);
        assert!(tags[0].advice.contains("nr_requests"));
        let mut few = row("iou-wrk-*", 'R', "0", 3.0);
        few.samples = 9;
        assert!(found(vec![few]).is_empty());
    }

    #[test]
    fn idle_workers_and_others_are_none() {
        assert!(found(vec![row("iou-wrk-*", 'S', "io_wq_worker", 64.0)]).is_empty());
        assert!(found(vec![row("(io_wqe_worker-*)", 'D', "io_wqe_worker", 64.0)]).is_empty());
        assert!(found(vec![row("kworker/*:*", 'R', "0", 3.0)]).is_empty());
        let some = found(vec![row("iou-wrk-*", 'R', "0", 1.0), row("fio", 'R', "0", 1.1)]);
        assert_eq!(some[0].severity, Severity::Note, "less than half");
    }

    #[test]
    fn a_load_of_our_own_tells_without_samples() {
        let mut case = Case::new(1_000, 32);
        for (system_ns, count) in [(SECOND / 4, 1), (SECOND / 4 - 1, 0)] {
            case.load.as_mut().unwrap().ring_workers = Some(RingWorkers { threads: 3, system_ns });
            assert_eq!(find(&case.summaries()).len(), count, "{system_ns}");
        }
        case.load = None;
        assert!(find(&case.summaries()).is_empty());
    }
}
