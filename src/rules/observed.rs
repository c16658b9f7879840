//! What the rules look at of locks, the page cache and threads: plain numbers, whoever measured them.

use crate::analyze::moment::Moment;

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
    /// As the locks view names it: `lru_lock of node 0`, `zone->lock of node 0 Normal`, `i_pages of ...`.
    pub name: String,
    pub kind: LockKind,
    /// Waits that were seen: at least so many.
    pub contentions: u64,
    /// Their time, of all waiters: at least.
    pub wait_ns: u64,
    pub max_wait_ns: u64,
    /// The function that most of the wait was in, where it is known.
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

/// What read-ahead did, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readahead {
    pub asked_pages: u64,
    pub used_pages: u64,
    /// Dropped from the cache before anybody used them.
    pub thrown_away_pages: u64,
}

/// The page cache over a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageCache {
    pub duration_ns: u64,
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// Pages that reclaim looked at, over the whole window; None where the kernel's counter was not read.
    pub scanned_pages: Option<u64>,
    /// None: the events of reclaim were not seen.
    pub reclaims: Option<Reclaims>,
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
