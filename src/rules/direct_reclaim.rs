//! Finding: tasks that allocate memory must reclaim it from the page cache themselves, and wait meanwhile.

use std::collections::BTreeMap;

use super::facts::percent;
use super::inputs::{Reclaim, Reclaimer, Reclaims};
use super::pagecache::{self, DIRECT, SAMPLES};
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::merge::SaturatingSum as _;
use crate::units::{count, figure, in_percent, time};

/// Average number of threads in direct reclaim.
pub const SOME: f64 = 0.1;
pub const MANY: f64 = 0.5;

/// Fewer reclaims are not enough for a finding.
pub const LEAST: u64 = 100;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const DIRECT_RECLAIMS: Number = Number::new("direct_reclaims", "reclaims by tasks that found no free memory");
const MEMCG_RECLAIMS: Number =
    Number::new("memcg_reclaims", "reclaims by tasks whose memory cgroup was at its limit");
const RECLAIM_SHARE_PERCENT: Number =
    Number::new("reclaim_share_percent", "share of the threads at work that reclaim");
const THREADS_IN_RECLAIM: Number = Number::new("threads_in_reclaim", "threads in reclaim, on average");

pub const RULE: Rule = Rule { id: "direct-reclaim", page: PAGE, find };

const PAGE: &str = "\
Tasks must reclaim memory themselves and wait for it.

While kswapd keeps memory free, no task waits. If it does not, or a memory cgroup is at its limit
(kswapd does not reclaim for those), the task that needs a page reclaims one. Its read or write then
takes as long as the reclaim.

How it is computed
  threads_in_reclaim = time in direct reclaim and in memory cgroup reclaim / interval. With at least
  100 reclaims, a note from 0.1 on and a warning from 0.5 on. Without reclaim events: by thread
  samples with try_to_free_pages or try_to_free_mem_cgroup_pages on the stack (at least 10 samples).
  Always a note if pagecache-storm is found, or if biopsy's own load reads directly: then other
  tasks reclaim. The kind of reclaim with more time is named, and the task with the most.
  From: locks.pagecache.reclaims.direct, .memcg, .kswapd, .reclaimers; threads.threads[].stack,
  .average_threads.

When it is wrong
  - Reclaim by unrelated tasks counts, whatever they need the memory for.
  - Reclaim time contains waiting for a CPU and throttling while the disk writes.
  - A memory cgroup may be small on purpose.

What to do
  - O_DIRECT, which needs no page.
  - Cgroup: raise memory.max or memory.high (v1: memory.limit_in_bytes).
  - Machine: start kswapd earlier (sysctl vm.watermark_scale_factor=200, vm.min_free_kbytes), and
    allow less dirty memory (vm.dirty_bytes).
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    counted(s).or_else(|| sampled(s)).into_iter().collect()
}

fn counted(s: &Summaries<'_>) -> Option<Finding> {
    let pagecache = s.pagecache.filter(|of| of.duration_ns > 0)?;
    let Reclaims { kswapd, direct, memcg } = pagecache.reclaims?;
    let threads = |of: Reclaim| of.ns as f64 / pagecache.duration_ns as f64;
    let both = threads(direct) + threads(memcg);
    if both < SOME || direct.count.saturating_add(memcg.count) < LEAST {
        return None;
    }
    let line = |what: &str, of: Reclaim| {
        (of.count > 0).then(|| {
            let mean = time(of.ns / of.count);
            format!(
                "{} reclaims {what}, {mean} each: {} threads on average",
                count(of.count),
                figure(threads(of))
            )
        })
    };
    let evidence = [
        line("by tasks that found no free memory", direct),
        line("by tasks whose memory cgroup was at its limit", memcg),
        line("by kswapd, without a waiting process", kswapd),
    ];
    let mut evidence: Vec<String> = evidence.into_iter().flatten().collect();
    evidence.extend(most(&pagecache.reclaimers));
    let mut finding = finding(s, both, memcg.ns > direct.ns, 0.85, evidence);
    finding.subject = subject(&pagecache.reclaimers).unwrap_or(finding.subject);
    finding.numbers.extend([(DIRECT_RECLAIMS, direct.count as f64), (MEMCG_RECLAIMS, memcg.count as f64)]);
    Some(finding)
}

/// The process that did most of it.
fn most(reclaimers: &[Reclaimer]) -> Option<String> {
    let first = reclaimers.first()?;
    let all: u64 = reclaimers.iter().map(|one| one.reclaim.ns).saturating_sum();
    let group = first.cgroup.as_ref().map_or(String::new(), |group| format!(" in {group}"));
    Some(format!(
        "most of it by {} ({}){group}: {} times, {} of the reclaim time",
        first.comm,
        first.pid,
        count(first.reclaim.count),
        in_percent(first.reclaim.ns as f64 / all.max(1) as f64)
    ))
}

/// The memory cgroup that nearly all of it was in.
fn subject(reclaimers: &[Reclaimer]) -> Option<String> {
    let first = reclaimers.first().filter(|first| first.memcg)?;
    let ns = |of: &dyn Fn(&&Reclaimer) -> bool| -> u64 {
        reclaimers.iter().filter(of).map(|one| one.reclaim.ns).saturating_sum()
    };
    let mine = ns(&|one| one.memcg && one.cgroup == first.cgroup);
    let group = first.cgroup.as_ref().filter(|_| mine as f64 >= 0.9 * ns(&|_| true) as f64)?;
    Some(format!("memory cgroup {group}"))
}

fn sampled(s: &Summaries<'_>) -> Option<Finding> {
    if s.pagecache.is_some_and(|of| of.reclaims.is_some()) {
        return None;
    }
    let threads = s.threads?;
    let both =
        pagecache::sampled(threads, |row| pagecache::is_in(row, DIRECT)).filter(|both| *both >= SOME)?;
    let memcg = pagecache::sampled(threads, |row| pagecache::is_in(row, &DIRECT[1..])).unwrap_or(0.0);
    let evidence = vec![format!(
        "{} threads on average have direct reclaim on their stacks (at least {SAMPLES} samples)",
        figure(both)
    )];
    Some(finding(s, both, memcg > both / 2.0, 0.7, evidence))
}

fn finding(
    s: &Summaries<'_>,
    threads: f64,
    cgroup: bool,
    confidence: f64,
    mut evidence: Vec<String>,
) -> Finding {
    let others = s.load.is_some_and(|load| load.job.direct);
    if others {
        evidence.push("the load reads past the page cache: other processes reclaim".to_string());
    }
    // All active threads: reclaim takes a part of their time.
    let active = s.threads.map(|of| {
        let rows = of.rows.iter().filter(|row| matches!(row.state, 'R' | 'D'));
        rows.map(|row| row.average_threads).sum::<f64>()
    });
    let share = active.filter(|active| *active > threads).map(|active| threads / active);
    let mut numbers = BTreeMap::from([(THREADS_IN_RECLAIM, threads)]);
    numbers.extend(share.map(|share| (RECLAIM_SHARE_PERCENT, percent(share))));
    evidence.extend(share.map(|share| format!("that is {} of the threads at work", in_percent(share))));
    let (who, remedy) = match cgroup {
        true => (
            "in a memory cgroup that is at its limit",
            "Raise the limit of the memory cgroup (memory.max, memory.high); file I/O with O_DIRECT needs no pages.",
        ),
        false => (
            "that find no free memory",
            "Let kswapd start earlier (sysctl vm.watermark_scale_factor=200); file I/O with O_DIRECT needs \
             no pages.",
        ),
    };
    Finding {
        id: RULE.id,
        subject: if cgroup { "memory cgroup" } else { "memory" }.to_string(),
        severity: if threads >= MANY && !others { Severity::Warning } else { Severity::Note },
        confidence,
        sentence: format!(
            "Tasks {who} must reclaim it themselves: on average, {} threads do so.",
            figure(threads)
        ),
        numbers,
        evidence,
        advice: remedy.to_string(),
        check: "biopsy locks --for 10s".to_string(),
        // A share that rounds to 0 gains nothing, and neither does a load that needs no pages.
        worth: share.filter(|share| !others && *share >= 0.05).map(|share| Worth {
            metric: "iops_ratio".to_string(),
            low: 1.0,
            high: (1.0 / (1.0 - share)).min(MAX_WORTH),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::{Case, SECOND};
    use crate::rules::inputs::{PageCache, ThreadRow, ThreadsInput};

    fn case(direct: Reclaim, memcg: Reclaim) -> Case {
        let mut case = Case::new(1_000, 32);
        case.load = None;
        let kswapd = Reclaim { count: 7, ns: SECOND };
        case.pagecache = Some(PageCache {
            duration_ns: SECOND,
            reclaims: Some(Reclaims { kswapd, direct, memcg }),
            ..PageCache::default()
        });
        case
    }

    #[test]
    fn who_reclaims_is_named() {
        let mut case = case(NONE, Reclaim { count: 200, ns: SECOND });
        let reclaimer = |comm: &str, ns, cgroup: &str| Reclaimer {
            comm: comm.to_string(),
            pid: 7,
            cgroup: Some(cgroup.to_string()),
            memcg: true,
            reclaim: Reclaim { count: 100, ns },
        };
        let all = vec![reclaimer("fio", 9 * SECOND, "/jobs"), reclaimer("dd", SECOND, "/other")];
        case.pagecache.as_mut().unwrap().reclaimers = all;
        let found = &find(&case.summaries())[0];
        assert_eq!((found.subject.as_str(), found.severity), ("memory cgroup /jobs", Severity::Warning));
        let who = "most of it by fio (7) in /jobs: 100 times, 90 % of the reclaim time";
        assert!(found.evidence.iter().any(|line| line == who), "{:?}", found.evidence);
        case.pagecache.as_mut().unwrap().reclaimers[0].reclaim.ns = 8 * SECOND;
        assert_eq!(find(&case.summaries())[0].subject, "memory cgroup", "no group has nearly all");
        // Reclaim by other processes does not affect a direct load.
        case.load = Case::new(1_000, 32).load;
        let found = &find(&case.summaries())[0];
        assert_eq!((found.severity, found.worth.is_none()), (Severity::Note, true));
    }

    const NONE: Reclaim = Reclaim { count: 0, ns: 0 };

    #[test]
    fn the_time_and_the_number_of_reclaims_have_two_sides() {
        let found = |count, ns| find(&case(Reclaim { count, ns }, NONE).summaries());
        assert!(found(100, SECOND / 10 - 1).is_empty());
        assert!(found(99, SECOND).is_empty());
        let some = found(100, SECOND / 10);
        assert_eq!((some[0].severity, some[0].subject.as_str()), (Severity::Note, "memory"));
        assert_eq!(some[0].numbers["threads_in_reclaim"], 0.1);
        assert_eq!(found(100, SECOND / 2 - 1)[0].severity, Severity::Note);
        assert_eq!(found(100, SECOND / 2)[0].severity, Severity::Warning);
        assert!(find(&case(NONE, NONE).summaries()).is_empty(), "kswapd is nobody's wait");
    }

    #[test]
    fn a_limit_is_told_from_a_machine_without_memory() {
        let memcg = Reclaim { count: 5_000, ns: 3 * SECOND };
        let found = find(&case(Reclaim { count: 10, ns: SECOND }, memcg).summaries());
        assert_eq!(found[0].subject, "memory cgroup");
        assert!(found[0].advice.contains("memory.max"), "{}", found[0].advice);
        assert_eq!(found[0].evidence.len(), 3, "{:?}", found[0].evidence);
        assert!(found[0].evidence[1].starts_with("5,000 reclaims by tasks whose memory cgroup"));
    }

    #[test]
    fn stacks_stand_in_where_no_event_was_seen() {
        let mut case = Case::new(1_000, 32);
        case.load = None;
        let row = |function: &str, samples, average_threads| ThreadRow {
            comm: "reader".into(),
            state: 'R',
            stack: vec!["vfs_read".into(), function.into()],
            samples,
            average_threads,
            ..ThreadRow::default()
        };
        let rows =
            |samples, average| vec![row("try_to_free_pages+0x1/0x2", samples, average), row("x", 90, 0.4)];
        case.threads = Some(ThreadsInput { rounds: 100, rows: rows(10, 0.1) });
        let found = find(&case.summaries());
        assert_eq!((found[0].confidence, found[0].numbers["reclaim_share_percent"].round()), (0.7, 20.0));
        assert_eq!(found[0].worth.as_ref().unwrap().high, 1.25);
        for (samples, average) in [(9, 0.5), (10, 0.099)] {
            case.threads = Some(ThreadsInput { rounds: 100, rows: rows(samples, average) });
            assert!(find(&case.summaries()).is_empty(), "{samples} {average}");
        }
        case.threads = Some(ThreadsInput { rounds: 100, rows: rows(50, 0.5) });
        case.pagecache = Some(PageCache {
            duration_ns: SECOND,
            reclaims: Some(Reclaims::default()),
            ..PageCache::default()
        });
        assert!(find(&case.summaries()).is_empty(), "events were seen, and there were none");
    }
}
