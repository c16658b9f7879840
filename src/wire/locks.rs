//! Decodes lock waits, and holds all of them at one point in time.

pub mod stacks;

use std::collections::BTreeMap;

use self::stacks::{StackKey, StackSample};
use super::stacks::{Sampler, WireBudget};
use super::{Count, DamagedRecord, Record};
use crate::hist::{BUCKETS, Histogram};
use crate::host::mapped::MappedFiles;
use crate::names::names;

pub use super::records::{
    WireLock, WireLockCpu, WireLockHolder, WireLockProcess, WireLockRecent, WireLockRecentProcess,
    WireLockWaiter, WireNvmePlaces, WireWaits,
};

/// `LOCK_KINDS`.
pub const KINDS: usize = 7;
/// `LOCK_PLACES` and `LOCK_PROCESS_PLACES`, per CPU.
pub const PLACES: u32 = 128;
pub const PROCESS_PLACES: u32 = 32;
/// `PEEK_BYTES`.
pub const PEEK_BYTES: usize = 1024;
/// `LOCK_SPIN` and the other flags of contention_begin.
pub const SPIN: u32 = 1;
pub const READ: u32 = 2;
pub const WRITE: u32 = 4;
pub const RT: u32 = 8;
pub const PERCPU: u32 = 16;
pub const MUTEX: u32 = 32;

names! {
    /// `enum wire_lock_kind`.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum WireLockKind {
        #[default]
        Spin = "spin",
        Rwlock = "rwlock",
        Mutex = "mutex",
        Rwsem = "rwsem",
        PercpuRwsem = "percpu-rwsem",
        RtMutex = "rt-mutex",
        Semaphore = "semaphore",
    }
}

impl WireLockKind {
    /// Whether a waiter spins on its CPU.
    pub fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::Rwlock)
    }

    /// The kind that an event's flags denote, like `kind_of` in the kernel.
    pub fn of(flags: u32) -> Self {
        let shares = flags & (READ | WRITE) != 0;
        match flags {
            _ if flags & RT != 0 => Self::RtMutex,
            _ if flags & PERCPU != 0 => Self::PercpuRwsem,
            _ if flags & MUTEX != 0 => Self::Mutex,
            _ if flags & SPIN != 0 => {
                if shares {
                    Self::Rwlock
                } else {
                    Self::Spin
                }
            }
            _ if shares => Self::Rwsem,
            _ => Self::Semaphore,
        }
    }
}

counted! {
    /// Completed waits for one lock or for several.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct LockSample {
        /// Of these: acquisitions that failed.
        pub failed: u64,
        /// Of these: acquisitions for reading.
        pub reads: u64,
        /// Flags of all its events.
        pub flags: u32,
        /// Number of waits, their total time and the longest, ns.
        pub wait: Histogram,
    }
}

impl WireLock {
    pub fn decode(bytes: &[u8]) -> Result<LockSample, DamagedRecord> {
        // Not copied: it has 9.5 KB, and a reading has up to a thousand.
        let wire = Self::view(bytes)?;
        let counts: [u64; BUCKETS] = std::array::from_fn(|i| wire.waits[i].count);
        let sum = super::sum(wire.waits.iter().map(|waits| waits.sum));
        Ok(LockSample {
            failed: wire.failed,
            reads: wire.reads,
            flags: wire.flags,
            wait: Histogram::from_parts(&counts, sum, !wire.not_min, wire.max),
        })
    }
}

impl WireLockRecent {
    /// None: the cache slot is empty.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok((wire.lock != 0 && wire.count > 0).then_some(wire))
    }
}

impl WireLockRecentProcess {
    /// With the process id; None: the cache slot is empty.
    pub fn decode(bytes: &[u8]) -> Result<Option<(u32, Self)>, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok((wire.pid != 0).then(|| (wire.pid - 1, wire)))
    }
}

impl LockSample {
    /// Adds the contents of a CPU's cache slot.
    pub fn add(&mut self, recent: &WireLockRecent) {
        self.failed = self.failed.saturating_add(recent.failed);
        self.reads = self.reads.saturating_add(recent.reads);
        self.flags |= recent.flags;
        let WireLockRecent { bucket, count, sum, not_min, max, .. } = *recent;
        self.wait.merge(&Histogram::of_bucket(bucket, count, sum, !not_min, max));
    }

    /// Keeps every value at least as high as before: waits that were written back from a CPU's cache to the row between
    /// reading the two are in neither.
    pub fn hold(&mut self, earlier: &Self) {
        self.failed = self.failed.max(earlier.failed);
        self.reads = self.reads.max(earlier.reads);
        self.flags |= earlier.flags;
        self.wait.hold(&earlier.wait);
    }
}

impl WireLockCpu {
    /// The difference to `earlier`; thresholds keep their current values.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = Count::since(self, earlier);
        Self { budget: WireBudget { stack_ns: less.budget.stack_ns, ..self.budget }, ..less }
    }
}

/// A process that waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSample {
    pub comm: Vec<u8>,
    pub contentions: u64,
    pub wait_ns: u64,
    pub max_wait_ns: u64,
}

impl WireLockProcess {
    pub fn decode(bytes: &[u8]) -> Result<ProcessSample, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok(ProcessSample {
            comm: super::task_name(&wire.comm).to_vec(),
            contentions: wire.contentions,
            wait_ns: wire.wait.sum,
            max_wait_ns: wire.wait.max,
        })
    }
}

impl ProcessSample {
    /// Adds the contents of a CPU's cache slot.
    pub fn add(&mut self, recent: &WireLockRecentProcess) {
        self.contentions = self.contentions.saturating_add(recent.contentions);
        self.wait_ns = self.wait_ns.saturating_add(recent.sum);
        self.max_wait_ns = self.max_wait_ns.max(recent.max);
    }

    /// Like [`LockSample::hold`].
    pub fn hold(&mut self, earlier: &Self) {
        self.contentions = self.contentions.max(earlier.contentions);
        self.wait_ns = self.wait_ns.max(earlier.wait_ns);
        self.max_wait_ns = self.max_wait_ns.max(earlier.max_wait_ns);
    }
}

/// Holder of a lock that other threads slept on, counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HolderSample {
    pub releases: u64,
    /// Of the releases: those with a known hold time, and of these those with only a lower bound.
    pub holds: u64,
    pub at_least: u64,
    pub hold_ns: u64,
    pub max_hold_ns: u64,
    /// Hold time of the last release; None: unknown.
    pub last_hold_ns: Option<u64>,
    /// The last holder: its process, and its thread's name, which is untrusted.
    pub pid: u32,
    pub comm: Vec<u8>,
}

impl WireLockHolder {
    pub fn decode(bytes: &[u8]) -> Result<HolderSample, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok(HolderSample {
            releases: wire.releases,
            holds: wire.holds,
            at_least: wire.at_least,
            hold_ns: wire.hold_ns,
            max_hold_ns: wire.max_hold_ns,
            last_hold_ns: (wire.last_hold_ns > 0).then_some(wire.last_hold_ns),
            pid: wire.pid,
            comm: super::task_name(&wire.comm).to_vec(),
        })
    }
}

/// A thread that sleeps on a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaiterSample {
    pub lock: u64,
    /// CLOCK_MONOTONIC.
    pub began_ns: u64,
    pub flags: u32,
    pub pid: u32,
    pub tid: u32,
    pub comm: Vec<u8>,
}

impl WireLockWaiter {
    pub fn decode(bytes: &[u8]) -> Result<WaiterSample, DamagedRecord> {
        let wire = <Self as Record>::decode(bytes)?;
        Ok(WaiterSample {
            lock: wire.lock,
            began_ns: wire.began,
            flags: wire.flags,
            pid: wire.pid,
            tid: wire.tid,
            comm: super::task_name(&wire.comm).to_vec(),
        })
    }
}

/// How a lock was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecognisedBy {
    /// The struct that contains it points back to itself.
    Structure,
    /// Its address is in the kernel's symbol table.
    Symbol,
    /// The slab allocator knows the kind of the object that contains it.
    Slab,
}

/// Description of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockName {
    /// For display; parts of it (paths, processes) are untrusted.
    pub name: String,
    pub by: RecognisedBy,
    /// The disk that it belongs to.
    pub device: Option<String>,
    pub node: Option<u32>,
    /// Path of the memory cgroup that it belongs to.
    pub cgroup: Option<String>,
    /// The process that it belongs to.
    pub pid: Option<u32>,
}

/// Samples of where the CPUs spin, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpinSample {
    pub sampler: Sampler,
    pub frequency: u64,
    pub cpus: u32,
    /// Length of sampling.
    pub duration_ns: u64,
    pub samples: u64,
    /// Samples in the slow path of a lock, waiting.
    pub waiting: u64,
    /// Samples where interrupts are enabled again after a spinlock: a timer that was due while they were off fires
    /// there.
    pub unlocking: u64,
    pub lost: u64,
}

names! {
    /// How begins of waits are detected.
    #[derive(Default)]
    pub enum LockEventSource {
        /// `contention_begin` and `contention_end`.
        #[default]
        Events = "events",
        /// Only probes on the slow path of spinlocks.
        SlowPath = "slow-path",
    }
}

/// Everything at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub source: LockEventSource,
    pub cpus: Vec<WireLockCpu>,
    /// By address.
    pub locks: BTreeMap<u64, LockSample>,
    /// By kind: locks that had no room.
    pub others: Vec<LockSample>,
    pub stacks: BTreeMap<StackKey, StackSample>,
    /// Mappings of the processes that waited, if user stacks are taken.
    pub maps: MappedFiles,
    /// By process id.
    pub processes: BTreeMap<u32, ProcessSample>,
    /// Holders that released locks, by lock address; None: this kernel has no event for it.
    pub holders: Option<BTreeMap<u64, HolderSample>>,
    /// Threads that sleep on a lock right now; None: not scanned.
    pub waiting: Option<Vec<WaiterSample>>,
    /// Names of the locks, by address.
    pub names: BTreeMap<u64, LockName>,
    pub spin: Option<SpinSample>,
    /// The slow path is probed, in addition to the events or instead of them.
    pub slow_path: bool,
    /// Runs that the kernel skipped, by program.
    pub missed: BTreeMap<&'static str, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn counters_in_damaged_bytes_stay_at_the_most() {
        let recent =
            WireLockRecent { failed: u64::MAX, reads: u64::MAX, count: u64::MAX, ..Default::default() };
        let mut lock = LockSample::default();
        (0..2).for_each(|_| lock.add(&recent));
        assert_eq!((lock.failed, lock.reads, lock.wait.count()), (u64::MAX, u64::MAX, u64::MAX));
        let recent = WireLockRecentProcess { contentions: u64::MAX, sum: u64::MAX, ..Default::default() };
        let mut process = ProcessSample::default();
        (0..2).for_each(|_| process.add(&recent));
        assert_eq!((process.contentions, process.wait_ns), (u64::MAX, u64::MAX));
    }

    #[test]
    fn flags_name_the_kind() {
        let kinds = [1, 3, 5, 32, 33, 2, 4, 18, 20, 8, 10, 0].map(|flags| WireLockKind::of(flags).name());
        assert_eq!(
            kinds,
            [
                "spin",
                "rwlock",
                "rwlock",
                "mutex",
                "mutex",
                "rwsem",
                "rwsem",
                "percpu-rwsem",
                "percpu-rwsem",
                "rt-mutex",
                "rt-mutex",
                "semaphore"
            ]
        );
    }

    #[test]
    fn what_a_cpu_keeps_is_added_and_nothing_goes_backwards() {
        let recent = |bucket: u32, count: u64| WireLockRecent {
            lock: 9,
            count,
            sum: 7 * count,
            not_min: !7,
            max: 7,
            reads: 1,
            flags: READ,
            bucket,
            ..WireLockRecent::default()
        };
        let mut sample = LockSample { flags: SPIN, ..LockSample::default() };
        sample.wait.record(5);
        let row = sample.clone();
        sample.add(&recent(7, 3));
        assert_eq!((sample.wait.count(), sample.wait.sum(), sample.wait.min()), (4, 26, Some(5)));
        assert_eq!((sample.wait.max(), sample.reads, sample.flags), (Some(7), 1, SPIN | READ));
        // The slot was written back after reading the row and before reading the slot.
        let mut later = row;
        later.hold(&sample);
        assert_eq!(later, sample);
        let mut more = sample.clone();
        more.add(&recent(8, 1));
        let whole = more.clone();
        more.hold(&sample);
        assert_eq!(more, whole);
        // No such bucket exists in the kernel: nothing is counted twice or out of range.
        more.add(&recent(u32::MAX, 1));
        assert_eq!(more.wait, whole.wait);

        let bytes = |wire: WireLockRecent| wire.as_bytes().to_vec();
        assert!(WireLockRecent::decode(&bytes(recent(1, 0))).unwrap().is_none());
        assert_eq!(WireLockRecent::decode(&bytes(recent(1, 2))).unwrap().unwrap().count, 2);
        assert!(WireLockRecent::decode(&[0; 63]).is_err());
        let place = WireLockRecentProcess { pid: 1, contentions: 2, sum: 3, max: 2, pad: 0 };
        let (pid, place) = WireLockRecentProcess::decode(place.as_bytes()).unwrap().unwrap();
        let mut process =
            ProcessSample { contentions: 1, wait_ns: 9, max_wait_ns: 9, ..ProcessSample::default() };
        process.add(&place);
        assert_eq!((pid, process.contentions, process.wait_ns, process.max_wait_ns), (0, 3, 12, 9));
        assert!(WireLockRecentProcess::decode(&[0; 32]).unwrap().is_none());
    }

    #[test]
    fn a_lock_is_decoded_to_its_histogram() {
        let mut bytes = vec![0; size_of::<WireLock>()];
        let mut put = |field: usize, value: u64| {
            bytes[field * 8..field * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(0, !5);
        put(1, 7);
        put(6 + 2 * 5, 1);
        put(6 + 2 * 5 + 1, 5);
        put(6 + 2 * 7, 1);
        put(6 + 2 * 7 + 1, 7);
        let sample = WireLock::decode(&bytes).unwrap();
        assert_eq!((sample.wait.count(), sample.wait.sum(), sample.wait.max()), (2, 12, Some(7)));
        assert!(WireLock::decode(&bytes[1..]).is_err());
    }
}
