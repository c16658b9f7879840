//! Inputs of the rules about locks, the page cache and threads: plain numbers, independent of the probe.

use crate::analyze::locks::{By, LockSummary};
use crate::analyze::memory_sample::MemorySample;
use crate::analyze::pagecache::{PagecacheSummary, ReclaimKind};
use crate::analyze::threads::ThreadSummary;

/// How waiters spend the wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockKind {
    /// On a CPU, in a loop: spinlocks and rwlocks.
    #[default]
    Spin,
    /// Off the CPU: mutexes, semaphores and the like.
    Sleep,
}

/// One contended lock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contention {
    /// As named in the locks view: `lru_lock of node 0`, `zone lock of node 0, zone Normal`, `i_pages of ...`.
    pub name: String,
    pub kind: LockKind,
    /// Observed waits, a lower bound.
    pub contentions: u64,
    /// Their time, summed over all waiters, a lower bound.
    pub wait_ns: u64,
    pub max_wait_ns: u64,
    /// The function with most of the wait, if known and not already the lock's name.
    pub caller: Option<String>,
}

/// CPU time of spinning, in percent of all CPUs together: lower and upper bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spin {
    pub low_percent: f64,
    pub high_percent: f64,
    /// How it was measured.
    pub sampler: String,
}

/// Locks over an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Locks {
    pub duration_ns: u64,
    /// Longest total wait first.
    pub locks: Vec<Contention>,
    /// None: not sampled.
    pub spin: Option<Spin>,
    /// Waits for spinlocks and rwlocks, including the first waiter's; None: the slow path was not probed.
    pub spins: Option<u64>,
    /// Waits whose begin or end was missed.
    pub lost: u64,
}

/// Count and total time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaim {
    pub count: u64,
    pub ns: u64,
}

/// Reclaim by kind of task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaims {
    /// The node's own thread.
    pub kswapd: Reclaim,
    /// Tasks that allocated memory when none was free.
    pub direct: Reclaim,
    /// Tasks whose cgroup was at its limit.
    pub memcg: Reclaim,
}

/// A task that did reclaim itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimer {
    /// An untrusted string.
    pub comm: String,
    pub pid: u32,
    /// Its memory cgroup; None: unknown.
    pub cgroup: Option<String>,
    /// Because of its group's limit, not the machine's.
    pub memcg: bool,
    pub reclaim: Reclaim,
}

/// Read-ahead, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readahead {
    pub asked_pages: u64,
    /// Estimate of those that were read but not used by the end.
    pub unused_pages: u64,
}

/// The page cache over an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageCache {
    pub duration_ns: u64,
    /// In time order.
    pub moments: Vec<MemorySample>,
    /// Pages scanned by reclaim over the whole interval; None where the kernel's counter was not read.
    pub scanned_pages: Option<u64>,
    /// Refaulted file pages, likewise. The samples' refaults include swap.
    pub refault_pages: Option<u64>,
    /// File pages stolen by reclaim, likewise.
    pub stolen_pages: Option<u64>,
    /// None: reclaim events were not traced.
    pub reclaims: Option<Reclaims>,
    /// Tasks, most time first.
    pub reclaimers: Vec<Reclaimer>,
    /// None: not counted.
    pub readahead: Option<Readahead>,
}

/// Threads with the same name, state and wait function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadRow {
    /// With its digits replaced: `iou-wrk-*`.
    pub comm: String,
    /// As in /proc: `R`, `D`, `S`.
    pub state: char,
    /// The function that it sleeps in.
    pub wchan: Option<String>,
    /// Kernel functions on its stack, outermost first; empty if not sampled.
    pub stack: Vec<String>,
    pub samples: u64,
    /// Samples divided by rounds.
    pub average_threads: f64,
}

/// Samples of threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadsInput {
    pub rounds: u64,
    pub rows: Vec<ThreadRow>,
}

impl Locks {
    /// `cpus`: CPUs of the machine, over which spinning is averaged.
    pub fn of(summary: &LockSummary, cpus: u32) -> Self {
        let contention = |row: &crate::analyze::locks::LockRow| Contention {
            name: row.name.clone(),
            kind: if row.kind.spins() { LockKind::Spin } else { LockKind::Sleep },
            contentions: row.wait.count(),
            wait_ns: row.wait.sum(),
            max_wait_ns: row.wait.max().unwrap_or(0),
            caller: row.caller().filter(|_| row.by != By::Caller).map(str::to_string),
        };
        let of_all = |percent: f64| percent / f64::from(cpus.max(1));
        Self {
            duration_ns: summary.duration_ns,
            locks: summary.locks.iter().map(contention).collect(),
            spin: summary.spin.map(|spin| Spin {
                low_percent: of_all(spin.low),
                high_percent: of_all(spin.high),
                sampler: spin.sampler.name().to_string(),
            }),
            spins: summary.slow_path.map(|slow| slow.calls.max(summary.events.spins())),
            lost: summary.events.lost().saturating_add(summary.events.begins.abandoned),
        }
    }
}

impl From<&PagecacheSummary> for PageCache {
    fn from(summary: &PagecacheSummary) -> Self {
        let reclaim = |kind| {
            let of = summary.reclaims.get(&kind);
            of.map_or(Reclaim::default(), |of| Reclaim { count: of.count, ns: of.time.sum() })
        };
        let reclaimer = |of: &crate::analyze::pagecache::ReclaimerSummary| {
            let kind = of.kind.filter(|kind| matches!(kind, ReclaimKind::Direct | ReclaimKind::Memcg))?;
            Some(Reclaimer {
                comm: of.comm.clone(),
                pid: of.pid,
                cgroup: of.cgroup.clone(),
                memcg: kind == ReclaimKind::Memcg,
                reclaim: Reclaim { count: of.count, ns: of.ns },
            })
        };
        let unused = |ahead: crate::analyze::pagecache::Readahead| {
            let unused_pages = ahead.unused_pages?;
            Some(Readahead { asked_pages: ahead.asked_pages, unused_pages })
        };
        Self {
            duration_ns: summary.duration_ns,
            moments: summary.series.clone(),
            scanned_pages: summary.scanned_pages,
            refault_pages: summary.refault_pages,
            stolen_pages: summary.stolen_pages,
            reclaims: Some(Reclaims {
                kswapd: reclaim(ReclaimKind::Kswapd),
                direct: reclaim(ReclaimKind::Direct),
                memcg: reclaim(ReclaimKind::Memcg),
            }),
            reclaimers: summary.reclaimers.iter().filter_map(reclaimer).collect(),
            readahead: summary.readahead.and_then(unused),
        }
    }
}

impl From<&ThreadSummary> for ThreadsInput {
    fn from(summary: &ThreadSummary) -> Self {
        let row = |row: &crate::analyze::threads::ThreadGroup| ThreadRow {
            comm: row.comm.clone().unwrap_or_default(),
            state: row.state.unwrap_or('?'),
            wchan: row.wchan.clone(),
            stack: row.stack.clone(),
            samples: row.share.samples,
            average_threads: row.share.average_threads,
        };
        Self { rounds: summary.rounds, rows: summary.rows.iter().map(row).collect() }
    }
}

#[cfg(test)]
mod tests;
