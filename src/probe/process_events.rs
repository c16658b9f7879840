//! Finds what processes have mapped, even those that live only milliseconds: from `/proc` while they run, and from the
//! kernel's records of forks, execs and mappings if they have exited, or run another program, by the next lookup.

mod history;
mod ring;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::perf_event;
use crate::clock::now_ns;
use crate::host::mapped::{self, MappedFiles, NoRecords, mappings};
use crate::refusal::LockedMemory;
use crate::wire::process_events::{Comm, ProcessRecord, comm};
use crate::wire::task_name;
use history::{Before, ProcessHistory};
use ring::EventRing;

/// Follows all processes of this machine from `open` until it is dropped.
#[derive(Debug, Default)]
pub struct ProcessEvents {
    /// One per CPU; empty if the kernel gives no records.
    rings: Vec<EventRing>,
    /// Why there are no rings.
    no_records: Option<NoRecords>,
    /// Records later than the last lookup: other CPUs may have earlier ones that are not read yet.
    pending: Vec<ProcessRecord>,
    history: ProcessHistory,
}

impl ProcessEvents {
    /// The longest time between two calls of [`ProcessEvents::drain`] or [`ProcessEvents::look`]: the rings have room
    /// for this long.
    pub const DRAIN_EVERY: Duration = Duration::from_millis(20);

    /// Starts recording. If perf events are refused, only `/proc` is read, and the [`MappedFiles`] has the reason.
    pub fn open() -> Self {
        match rings() {
            Ok(rings) => Self { rings, ..Self::default() },
            Err(why) => Self { no_records: Some(why), ..Self::default() },
        }
    }

    /// Memory of the rings.
    pub fn bytes(&self) -> u64 {
        self.rings.iter().map(EventRing::bytes).sum()
    }

    /// Records the mappings of processes that were sampled since the last lookup, each with the name that its thread
    /// had then, and for processes of earlier lookups the changes since. To be called after the samples were read, so
    /// that the records cover them.
    pub fn look(&mut self, mapped: &mut MappedFiles, sampled: impl IntoIterator<Item = (u32, Comm)>) {
        self.take();
        mapped.lose(self.history.take_lost());
        mapped.set_no_records(self.no_records);
        let mut wanted = BTreeSet::new();
        for (pid, comm) in sampled {
            self.history.sampled(pid, comm);
            wanted.insert(pid);
        }
        // In this order: first what a process ran before, then what it runs now.
        for pid in self.history.take_changed().union(&wanted) {
            self.give(mapped, *pid, false);
        }
        for pid in wanted {
            // The process id may have been reused.
            if self.history.is_over(pid) {
                continue;
            }
            match mapped.read(Path::new("/"), pid) {
                // Not accessible, or over the quota. Any other error means that it exited since the records were read.
                Err(error)
                    if !matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded) =>
                {
                    self.give(mapped, pid, true);
                }
                _ => {}
            }
        }
        self.history.end_look();
    }

    fn give(&mut self, mapped: &mut MappedFiles, pid: u32, over: bool) {
        let programs = self.history.due(pid, over);
        if programs.is_empty() {
            return;
        }
        // A process that was started in a container has the same root directory as its parent.
        let parent = self.history.parent(pid).map(|parent| mapped::folder(parent).join("root"));
        let roots: Vec<PathBuf> = [PathBuf::from("/")].into_iter().chain(parent).collect();
        let roots: Vec<&Path> = roots.iter().map(PathBuf::as_path).collect();
        for program in programs {
            let as_of = now_unix_ns() - i128::from(now_ns().saturating_sub(program.at));
            match program.earlier {
                Some((number, names)) => {
                    mapped.forget(pid, &program.mappings);
                    let numbers: BTreeSet<u32> =
                        names.iter().map(|name| mapped.ran(pid, task_name(name), number)).collect();
                    for number in numbers {
                        // No live process has such an id.
                        mapped.record(&roots, number, program.mappings.clone(), number != pid, as_of);
                    }
                }
                None => mapped.record(&roots, pid, program.mappings, program.ended, as_of),
            }
        }
    }

    /// Takes the records of all CPUs in the order of their times.
    fn take(&mut self) {
        if self.rings.is_empty() {
            return;
        }
        // Everything that happened before now is in the rings. Records that arrive while they are read may have a cause
        // on a CPU whose ring was read already.
        let mut until = now_ns();
        self.drain();
        // The mappings of a parent that started before recording are in no record.
        let unknown = self.history.parents_to_read(&self.pending);
        let mut read: Vec<(u32, Before)> = Vec::new();
        if !unknown.is_empty() {
            for pid in unknown {
                read.push((pid, before(&mapped::folder(pid))));
            }
            // Execs up to here are known when the mappings read from `/proc` are used.
            until = now_ns();
            self.drain();
        }
        self.pending.sort_by_key(|record| record.at);
        let known = self.pending.partition_point(|record| record.at <= until);
        self.pending.drain(..known).for_each(|record| self.history.apply(record.at, record.what));
        for (pid, read) in read {
            self.history.had(pid, read);
        }
        self.history.sweep(|pid| mapped::folder(pid).exists());
    }

    /// Empties the rings; the records wait for the next lookup.
    pub fn drain(&mut self) {
        for ring in &mut self.rings {
            let damaged = ring.take(&mut self.pending);
            self.history.lose(damaged);
        }
    }
}

fn now_unix_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

/// The mappings and thread names of a process, as far as it still runs.
fn before(folder: &Path) -> Before {
    /// With more threads than this, any name is taken to be possible.
    const MOST_THREADS: usize = 256;
    let maps = fs::read(folder.join("maps"));
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    let names: Option<Vec<Comm>> = threads
        .take(MOST_THREADS + 1)
        .map(|thread| fs::read(thread.path().join("comm")).ok())
        .map(|name| Some(comm(name?.strip_suffix(b"\n")?)))
        .collect();
    let names = names.filter(|names| names.len() <= MOST_THREADS).unwrap_or_default();
    Before { mappings: maps.map(|text| mappings(&text)).unwrap_or_default(), names }
}

/// One ring per CPU, or none: records of some CPUs would give incomplete processes.
fn rings() -> Result<Vec<EventRing>, NoRecords> {
    // Records have process ids of this PID namespace, samples those of the initial one.
    if !outermost() {
        return Err(NoRecords::PidNamespace);
    }
    let cpus = perf_event::online().map_err(|_| NoRecords::Refused)?;
    let mut events = Vec::with_capacity(cpus.len());
    for cpu in cpus {
        match perf_event::process_events(cpu) {
            Ok(event) => events.push(event),
            // The CPU went offline after the list was read.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(_) => return Err(NoRecords::Refused),
        }
    }
    let page = perf_event::page_bytes();
    let bytes = ring_bytes(events.len(), page);
    let map = |bytes| events.iter().map(|event| EventRing::map(event.as_fd(), bytes)).collect();
    map_largest(map, bytes, page).map_err(|error| match error.is::<LockedMemory>() {
        true => NoRecords::LockedMemory,
        false => NoRecords::Refused,
    })
}

/// Maps all rings, and halves their size while the limit of locked memory is exceeded, down to a page each.
fn map_largest<T>(map: impl Fn(usize) -> Result<T>, mut bytes: usize, page: usize) -> Result<T> {
    loop {
        match map(bytes) {
            Err(error) if error.is::<LockedMemory>() && bytes > page => bytes /= 2,
            mapped => return mapped,
        }
    }
}

/// Whether this process is in the initial PID namespace.
fn outermost() -> bool {
    /// `PROC_PID_INIT_INO`.
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST)
}

/// Bytes of records per CPU, a power of two of pages.
///
/// At most twice what one CPU can start in [`ProcessEvents::DRAIN_EVERY`]: a process with few libraries makes 700 bytes
/// of records and at least half a millisecond of work. All rings together take at most half of the kernel's default
/// RLIMIT_MEMLOCK, so that io_uring programs of the same user without CAP_IPC_LOCK have the other half
/// ([`LockedMemory`]). The minimum is a page each: from 512 CPUs on they take more than half.
fn ring_bytes(cpus: usize, page: usize) -> usize {
    const MOST: usize = 64 << 10;
    /// `MLOCK_LIMIT` since Linux 5.16.
    const DEFAULT_MEMLOCK: usize = 8 << 20;
    // Each ring has a page before the data.
    let share = (DEFAULT_MEMLOCK / 2 / cpus.max(1)).saturating_sub(page);
    1 << share.min(MOST).max(page).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_their_machine() {
        let page = 4 << 10;
        for (cpus, bytes) in
            [(0, 64), (2, 64), (60, 64), (64, 32), (128, 16), (256, 8), (512, 4), (usize::MAX, 4)]
        {
            assert_eq!(ring_bytes(cpus, page), bytes << 10, "{cpus} CPUs");
            assert!(cpus > 512 || (ring_bytes(cpus, page) + page) * cpus <= 4 << 20, "{cpus} CPUs");
        }
        assert_eq!(ring_bytes(2, 64 << 10), 64 << 10, "one page");
        assert_eq!(ring_bytes(512, 64 << 10), 64 << 10, "one page");
    }

    /// The kernel's answer is that of mmap with too much locked memory: all rings get smaller, and none is refused.
    #[test]
    fn rings_are_as_large_as_the_limit_of_locked_memory_allows() {
        let limit =
            |most: usize| move |bytes| if bytes <= most { Ok(bytes) } else { Err(LockedMemory.into()) };
        assert_eq!(map_largest(limit(usize::MAX), 65536, 4096).unwrap(), 65536);
        assert_eq!(map_largest(limit(20000), 65536, 4096).unwrap(), 16384);
        assert_eq!(map_largest(limit(4096), 65536, 4096).unwrap(), 4096);
        assert!(map_largest(limit(4095), 65536, 4096).unwrap_err().is::<LockedMemory>());
        let other = |_| Err::<(), _>(std::io::Error::from_raw_os_error(libc::ENODEV).into());
        assert!(!map_largest(other, 65536, 4096).unwrap_err().is::<LockedMemory>(), "asked once");
    }
}
