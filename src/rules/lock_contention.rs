//! Finding: lock contention costs CPUs or threads.

use std::collections::BTreeMap;

use super::facts::{self, percent};
use super::inputs::{Contention, LockKind, Locks};
use super::numbers;
use super::pagecache;
use super::{Rule, Summaries};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Number, Severity, Worth};
use crate::units::{count, figure, in_percent, time};

/// Share of all CPUs spent waiting for one spinning lock.
pub const SPUN: f64 = 0.05;

/// Share of all CPUs spent spinning for any lock.
pub const SPUN_IN_ALL: f64 = 0.10;

/// Average number of threads that sleep for one lock.
pub const ASLEEP: f64 = 1.0;

/// Share of the operations' time in waits for one such lock, from which on the lock is their limit.
pub const OF_OPERATIONS: f64 = 0.4;

/// The submit stage must have at least this much of the wait; otherwise it is not the operations that wait. Not 1.0,
/// because waits of other threads count too.
pub const IN_SUBMIT: f64 = 0.8;

/// Fewer waits are not enough for a finding.
pub const LEAST: u64 = 100;

/// Maximum number of locks named.
const MOST: usize = 3;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const CONTENTIONS: Number = Number::new("contentions", "waits for the lock, at least");
const MAX_WAIT_NS: Number = Number::new("max_wait_ns", "longest wait for the lock");
const SPIN_PERCENT: Number = Number::new("spin_percent", "spinning on the lock, of all CPUs, at least");
const OF_OPERATIONS_PERCENT: Number =
    Number::new("of_operations_percent", "lock wait, share of the operations' time");
const THREADS_WAITING: Number = Number::new("threads_waiting", "threads that wait for the lock, on average");
const WAIT_NS: Number = Number::new("wait_ns", "total wait time for the lock, at least");

/// The subject if the lock is unknown.
const NAMELESS: &str = "kernel";

pub const RULE: Rule = Rule { id: "lock-contention", page: PAGE, find };

const PAGE: &str = "\
A contended kernel lock burns CPU time or stalls threads.

How it is computed
  - Spinning locks (spinlock, rwlock): spin_percent = wait time / (interval x CPUs), found from 5 %
    on.
  - Sleeping locks (mutex, semaphore): threads_waiting = wait time / interval, a note from 1 on. A
    warning if the waits are 40 % of the operations' time or more, and the operations' submit stage
    is long enough to contain 80 % of them (of_operations_percent).
  Each needs at least 100 waits. At most three locks are named: spinning ones first, the longest
  wait first.
  If no spinning lock is found, but at least 10 % of all CPUs spin by samples (the low end of the
  range), the sleeping lock with the most waiters is named, since they spin before they sleep; else
  the kernel as a whole. Not if fewer than 100 waits were counted.
  Locks of the page cache, and the kernel as a whole, are a note if pagecache-storm is found.
  From: locks.locks[].wait_ns, .contentions, .kind; locks.spin, locks.slow_path;
  latency.devices[].ops.*.stages.submit, .total.

When it is wrong
  - Wait times are lower bounds: the first waiter of a spinlock has no event, nor has a waiter that
    a hypervisor puts to sleep. The evidence counts waits that were missed.
  - Many waits may be one long one: see max_wait_ns.
  - A contended mutex may just order the work and cost nothing.
  - A name that comes from the caller, not from the lock's address, may combine several locks.

What to do
  Let fewer threads take the lock at once: fewer threads or workers per device, file or ring. Or use
  more locks: one ring, file or memory cgroup per thread; more hardware queues, no scheduler.
  O_DIRECT avoids the locks of the page cache; larger operations take locks less often.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let Some(locks) = s.locks.filter(|locks| locks.duration_ns > 0) else {
        return Vec::new();
    };
    let mut found: Vec<(f64, Finding)> =
        locks.locks.iter().filter_map(|lock| judge(s, locks, lock)).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let spun = found.iter().any(|(_, finding)| finding.numbers.contains_key(&SPIN_PERCENT));
    let mut found: Vec<Finding> = found.into_iter().take(MOST).map(|(_, finding)| finding).collect();
    if spun {
        return found;
    }
    // A thread that waits for a mutex or semaphore first spins while the owner runs: such a lock has a name.
    match (nameless(locks), found.first_mut()) {
        (Some(spinning), Some(lock)) if lock.severity == Severity::Note => {
            (lock.severity, lock.confidence) = (Severity::Warning, 0.65);
            lock.evidence.push(spinning.sentence.trim_end_matches('.').to_string());
        }
        (spinning, _) => found.extend(spinning),
    }
    found
}

fn judge(s: &Summaries<'_>, locks: &Locks, lock: &Contention) -> Option<(f64, Finding)> {
    let threads = lock.wait_ns as f64 / locks.duration_ns as f64;
    let of_cpus = (threads / pagecache::cpus(s)).min(1.0);
    let spins = lock.kind == LockKind::Spin;
    let enough = if spins { of_cpus >= SPUN } else { threads >= ASLEEP };
    if !enough || lock.contentions < LEAST {
        return None;
    }
    let mut evidence = vec![format!(
        "{} waits for it, {} each on average, {} at most",
        count(lock.contentions),
        time(lock.wait_ns / lock.contentions),
        time(lock.max_wait_ns)
    )];
    evidence.extend(lock.caller.as_ref().map(|caller| format!("most of the wait time is in {caller}")));
    if locks.lost > 0 {
        evidence.push(format!(
            "{} waits for locks were missed, so these figures are lower bounds",
            count(locks.lost)
        ));
    }
    let mut numbers = BTreeMap::from([
        (CONTENTIONS, lock.contentions as f64),
        (WAIT_NS, lock.wait_ns as f64),
        (MAX_WAIT_NS, lock.max_wait_ns as f64),
        (THREADS_WAITING, threads),
    ]);
    let of_operations = if spins { None } else { of_operations(s, threads) };
    numbers.extend(of_operations.map(|share| (OF_OPERATIONS_PERCENT, percent(share))));
    let is_limit = spins || of_operations.is_some();
    let sentence = if let Some(share) = of_operations {
        format!(
            "Operations wait for {} for {} of their time: {} threads on average.",
            lock.name,
            in_percent(share),
            figure(threads)
        )
    } else if spins {
        numbers.insert(SPIN_PERCENT, percent(of_cpus));
        format!("CPUs spin on {} for at least {} of the time of all CPUs.", lock.name, in_percent(of_cpus))
    } else {
        format!("On average, {} threads wait for {}.", figure(threads), lock.name)
    };
    let gain = (1.0 / (1.0 - of_cpus.min(0.9))).min(MAX_WORTH);
    let finding = Finding {
        id: RULE.id,
        subject: lock.name.clone(),
        severity: if is_limit { Severity::Warning } else { Severity::Note },
        confidence: if is_limit { 0.8 } else { 0.5 },
        sentence,
        numbers,
        evidence,
        advice: match pagecache::is_its_lock(&lock.name) {
            true => "Use O_DIRECT, which takes no page cache locks, or fewer concurrent readers.",
            false => "Let fewer threads take it at once, or give each thread its own ring, file or queue.",
        }
        .to_string(),
        check: "biopsy locks --for 10s".to_string(),
        worth: spins.then(|| Worth { metric: "iops_ratio".to_string(), low: 1.0, high: gain }),
    };
    Some((if is_limit { threads } else { 0.0 }, finding))
}

/// Waits for a sleeping lock as a share of the operations' time, if the operations are what waits and if that is most
/// of their time.
fn of_operations(s: &Summaries<'_>, threads: f64) -> Option<f64> {
    let window = s.latency.duration_ns.max(1) as f64;
    let (mut all, mut submit) = (0.0, 0.0);
    for p in facts::device_views(s) {
        let in_flight = p.operations().1 as f64 / window;
        all += in_flight;
        submit += in_flight * p.operation_share(Stage::Submit).unwrap_or(0.0);
    }
    let share = (threads / all).min(1.0);
    (all > 0.0 && share >= OF_OPERATIONS && submit >= threads * IN_SUBMIT).then_some(share)
}

/// Whether it is about spinning for an unknown lock.
pub fn is_nameless(finding: &Finding) -> bool {
    finding.subject == NAMELESS
}

/// Spinning for an unknown lock.
fn nameless(locks: &Locks) -> Option<Finding> {
    let spin = locks.spin.as_ref()?;
    let (low, high) = (spin.low_percent / 100.0, spin.high_percent / 100.0);
    // Few long waits: a spinning CPU, or the one with the lock, was not running. A hypervisor causes that.
    let few = locks.spins.is_some_and(|waits| waits < LEAST);
    (low >= SPUN_IN_ALL && !few).then(|| Finding {
        id: RULE.id,
        subject: NAMELESS.to_string(),
        severity: Severity::Warning,
        confidence: 0.6,
        sentence: format!(
            "CPUs spin on locks for {} to {} of the time of all CPUs.",
            in_percent(low),
            in_percent(high)
        ),
        numbers: BTreeMap::from([
            (numbers::SPIN_LOW_PERCENT, percent(low)),
            (numbers::SPIN_HIGH_PERCENT, percent(high)),
        ]),
        evidence: vec![
            format!("sampled in the slow paths of locks, by {}", spin.sampler),
            "no single lock has that much wait time by its events, which miss the first waiter".to_string(),
        ],
        advice:
            "Look for the callers in the profile: biopsy diagnose --no-load -o report.html has a flame graph."
                .to_string(),
        check: "biopsy locks --for 10s".to_string(),
        worth: Some(Worth {
            metric: "iops_ratio".to_string(),
            low: 1.0,
            high: (1.0 / (1.0 - low.min(0.9))).min(MAX_WORTH),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, SECOND, hist};
    use crate::rules::inputs::Spin;

    fn lock(kind: LockKind, contentions: u64, wait_ns: u64) -> Contention {
        let name = "uring_lock of ring 3 of fio".to_string();
        Contention { name, kind, contentions, wait_ns, max_wait_ns: 5_000, ..Contention::default() }
    }

    /// Two CPUs, one second.
    fn found(locks: Vec<Contention>) -> Vec<Finding> {
        let mut case = Case::new(1_000, 32);
        case.locks = Some(Locks { duration_ns: SECOND, locks, ..Locks::default() });
        find(&case.summaries())
    }

    #[test]
    fn a_spinning_lock_has_two_sides() {
        let one = found(vec![lock(LockKind::Spin, 100, SECOND / 10)]);
        assert_eq!((one[0].severity, one[0].numbers["spin_percent"]), (Severity::Warning, 5.0));
        assert_eq!(one[0].evidence[0], "100 waits for it, 1.00 ms each on average, 5.00 µs at most");
        assert!(found(vec![lock(LockKind::Spin, 100, SECOND / 10 - 1_000)]).is_empty());
        assert!(found(vec![lock(LockKind::Spin, 99, SECOND)]).is_empty());
        let worth = found(vec![lock(LockKind::Spin, 100, 100 * SECOND)]).remove(0).worth.unwrap();
        assert_eq!((worth.low, worth.high), (1.0, 2.0), "more than there is changes nothing");
    }

    #[test]
    fn a_lock_that_is_slept_for_is_a_note() {
        let one = found(vec![lock(LockKind::Sleep, 100, SECOND)]);
        assert_eq!((one[0].severity, one[0].numbers["threads_waiting"]), (Severity::Note, 1.0));
        assert!(found(vec![lock(LockKind::Sleep, 100, SECOND - 1)]).is_empty());
    }

    /// Eight threads that write to one file through the cache: they spin for its lock before they sleep.
    #[test]
    fn a_sleeping_lock_is_named_for_the_spinning_that_has_no_name() {
        let mut case = Case::new(1_000, 32);
        let spin = Some(Spin { low_percent: 22.0, high_percent: 29.0, sampler: "samples".to_string() });
        let locks = vec![lock(LockKind::Sleep, 1_000, 35 * SECOND / 10)];
        case.locks = Some(Locks { duration_ns: SECOND, spin: spin.clone(), locks, ..Locks::default() });
        let one = find(&case.summaries());
        assert_eq!((one.len(), one[0].severity, one[0].confidence), (1, Severity::Warning, 0.65));
        assert!(
            one[0].sentence.starts_with("On average, 3.50 threads wait for uring_lock"),
            "{}",
            one[0].sentence
        );
        assert!(one[0].evidence.iter().any(|line| line.contains("22 % to 29 %")), "{:?}", one[0].evidence);
        case.locks = Some(Locks { duration_ns: SECOND, spin, ..Locks::default() });
        assert_eq!(find(&case.summaries())[0].subject, NAMELESS);
    }

    /// Eight threads that write to one file: six of them wait for its lock.
    #[test]
    fn a_lock_that_the_operations_wait_for_is_a_limit() {
        let with = |submit: u64, device: u64| {
            let mut case = Case::new(8_000, 1);
            case.load = None;
            case.read().operations = Some(OperationLatency {
                operations: 8_000,
                total: hist(8_000, submit + device, submit + device),
                stages: BTreeMap::from([
                    (Stage::Submit, hist(8_000, submit, submit)),
                    (Stage::Device, hist(8_000, device, device)),
                ]),
                ..OperationLatency::default()
            });
            case.locks = Some(Locks {
                duration_ns: SECOND,
                locks: vec![lock(LockKind::Sleep, 8_000, 6 * SECOND)],
                ..Locks::default()
            });
            case
        };
        let one = diagnose(&with(750_000, 250_000).summaries()).findings.remove(0);
        assert_eq!((one.id, one.severity), (RULE.id, Severity::Warning), "{one:?}");
        assert!(one.sentence.contains("75 % of their time: 6.00 threads on average"), "{}", one.sentence);
        let is_limit = |case: &Case| find(&case.summaries())[0].severity > Severity::Note;
        assert!(!is_limit(&with(250_000, 750_000)), "the submit stage is too short for it");
        assert!(!is_limit(&with(1_000_000, 1_000_000)), "more than half of the time is something else");
        let mut unknown = with(750_000, 250_000);
        unknown.read().operations = None;
        assert!(!is_limit(&unknown));
    }

    #[test]
    fn the_worst_are_named_and_no_more_than_three() {
        let many = (1..=5).map(|n| {
            let name = format!("lock {n}");
            Contention { name, ..lock(LockKind::Spin, 1_000, n * SECOND / 10) }
        });
        let names: Vec<String> = found(many.collect()).into_iter().map(|finding| finding.subject).collect();
        assert_eq!(names, ["lock 5", "lock 4", "lock 3"]);
    }

    #[test]
    fn spinning_without_a_name_is_said_of_the_kernel() {
        let spin = |low_percent, spins| {
            let mut case = Case::new(1_000, 32);
            let spin = Spin { low_percent, high_percent: 40.0, sampler: "cycles".into() };
            case.locks = Some(Locks { duration_ns: SECOND, spin: Some(spin), spins, ..Locks::default() });
            find(&case.summaries())
        };
        assert_eq!(spin(10.0, None)[0].subject, "kernel");
        assert_eq!(spin(10.0, Some(100)).len(), 1);
        assert!(spin(9.9, None).is_empty());
        assert!(spin(10.0, Some(99)).is_empty(), "few waits");
        let mut named = Case::new(1_000, 32);
        named.locks = Some(Locks {
            duration_ns: SECOND,
            locks: vec![lock(LockKind::Spin, 1_000, SECOND)],
            spin: Some(Spin { low_percent: 50.0, high_percent: 60.0, sampler: "cycles".into() }),
            spins: None,
            lost: 7,
        });
        let found = find(&named.summaries());
        assert_eq!(found.len(), 1, "it has a name");
        assert!(found[0].evidence.iter().any(|line| line.starts_with("7 waits for locks were missed")));
    }

    #[test]
    fn nothing_was_followed_or_nothing_was_waited_for() {
        assert!(find(&Case::new(1_000, 32).summaries()).is_empty());
        assert!(found(Vec::new()).is_empty());
    }
}
