//! What the rules look at of locks, the page cache and threads: plain numbers, whoever measured them.

use crate::analyze::locks::{By, LockSummary};
use crate::analyze::memory_sample::MemorySample;
use crate::analyze::pagecache::{Kind, PagecacheSummary};
use crate::analyze::threads::ThreadSummary;

/// How waiters pass the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockKind {
    /// On a CPU, in a loop: spinlocks and rwlocks.
    #[default]
    Spin,
    /// Off the CPU: mutexes, semaphores and the like.
    Sleep,
}

/// One lock that was waited for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contention {
    /// As the locks view names it: `lru_lock of node 0`, `zone lock of node 0, zone Normal`, `i_pages of ...`.
    pub name: String,
    pub kind: LockKind,
    /// Waits that were seen: at least so many.
    pub contentions: u64,
    /// Their time, of all waiters: at least.
    pub wait_ns: u64,
    pub max_wait_ns: u64,
    /// The function that most of the wait was in, where that is known and not the lock's name itself.
    pub caller: Option<String>,
}

/// CPU time of spinning, in percent of all CPUs together: at least, and at most.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spin {
    pub low_percent: f64,
    pub high_percent: f64,
    /// What it was measured by.
    pub sampler: String,
}

/// Locks over a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Locks {
    pub duration_ns: u64,
    /// Those with the most wait first.
    pub locks: Vec<Contention>,
    /// None: nobody sampled.
    pub spin: Option<Spin>,
    /// Waits for spinlocks and rwlocks, the first waiter's too; None: the slow path was not probed.
    pub spins: Option<u64>,
    /// Waits of which the begin or the end was not seen.
    pub lost: u64,
}

/// How often, and for how long in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaim {
    pub count: u64,
    pub ns: u64,
}

/// Who reclaimed memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaims {
    /// The node's own thread.
    pub kswapd: Reclaim,
    /// Tasks that wanted memory, and there was none.
    pub direct: Reclaim,
    /// Tasks whose cgroup was at its limit.
    pub memcg: Reclaim,
}

/// A task that reclaimed itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimer {
    /// Written by strangers.
    pub comm: String,
    pub pid: u32,
    /// Its memory cgroup; None: not known.
    pub cgroup: Option<String>,
    /// For the limit of its group, and not for the machine.
    pub memcg: bool,
    pub reclaim: Reclaim,
}

/// What read-ahead did, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readahead {
    pub asked_pages: u64,
    /// Of those, about so many that were read and nobody had wanted by the end.
    pub unused_pages: u64,
}

/// The page cache over a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageCache {
    pub duration_ns: u64,
    /// In the order of time.
    pub moments: Vec<MemorySample>,
    /// Pages that reclaim looked at, over the whole window; None where the kernel's counter was not read.
    pub scanned_pages: Option<u64>,
    /// Pages of files that came back after they were evicted, likewise. The moments have those of swap as well.
    pub refault_pages: Option<u64>,
    /// Pages of files that reclaim took, likewise.
    pub stolen_pages: Option<u64>,
    /// None: the events of reclaim were not seen.
    pub reclaims: Option<Reclaims>,
    /// Tasks, the most time first.
    pub reclaimers: Vec<Reclaimer>,
    /// None: nobody counted.
    pub readahead: Option<Readahead>,
}

/// Threads of one name, in one state at one place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadRow {
    /// With its numbers folded: `iou-wrk-*`.
    pub comm: String,
    /// As /proc has it: `R`, `D`, `S`.
    pub state: char,
    /// The function that it sleeps in.
    pub wchan: Option<String>,
    /// Kernel functions that it is in, from the outermost on; empty where they were not looked at.
    pub stack: Vec<String>,
    pub samples: u64,
    /// Samples by rounds.
    pub average_threads: f64,
}

/// What threads were doing, sampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Threads {
    pub rounds: u64,
    pub rows: Vec<ThreadRow>,
}

impl Locks {
    /// `cpus`: of the machine, over which spinning is spread.
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
            let kind = of.kind.filter(|kind| matches!(kind, Kind::Direct | Kind::Memcg))?;
            Some(Reclaimer {
                comm: of.comm.clone(),
                pid: of.pid,
                cgroup: of.cgroup.clone(),
                memcg: kind == Kind::Memcg,
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
                kswapd: reclaim(Kind::Kswapd),
                direct: reclaim(Kind::Direct),
                memcg: reclaim(Kind::Memcg),
            }),
            reclaimers: summary.reclaimers.iter().filter_map(reclaimer).collect(),
            readahead: summary.readahead.and_then(unused),
        }
    }
}

impl From<&ThreadSummary> for Threads {
    fn from(summary: &ThreadSummary) -> Self {
        let row = |row: &crate::analyze::threads::Row| ThreadRow {
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
