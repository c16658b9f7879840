//! What processes have mapped, also of those that live only milliseconds: by `/proc` while they live, and by the
//! kernel's own records of forks, execs and mappings where they have ended, or run another program, by the next look.

mod lives;
mod ring;

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::perf_event;
use crate::clock::now_ns;
use crate::host::mapped::{self, Mapped, mappings};
use crate::wire::births::{Comm, Record, comm};
use crate::wire::task_name;
use lives::{Before, Lives};
use ring::Ring;

/// Follows all processes of this machine from `open` until it is dropped.
#[derive(Debug, Default)]
pub struct Births {
    /// One for each CPU; none where the kernel gives no records.
    rings: Vec<Ring>,
    /// Later than the last look's time: what other CPUs have of before is not known yet.
    pending: Vec<Record>,
    lives: Lives,
}

impl Births {
    /// Begins to record. Where perf events are refused `/proc` is all that is looked at.
    ///
    /// `every`: the time between two looks, which the rings must hold.
    pub fn open(every: Duration) -> Self {
        Self { rings: rings(every).unwrap_or_default(), ..Self::default() }
    }

    /// Memory of the rings.
    pub fn bytes(&self) -> u64 {
        self.rings.iter().map(Ring::bytes).sum()
    }

    /// Takes what is mapped in processes that were sampled since the last look, each with the name that its thread had
    /// then, and of those of earlier looks what the records have since; after the samples were taken from their own
    /// place, so that the records go as far.
    pub fn look(&mut self, mapped: &mut Mapped, sampled: impl IntoIterator<Item = (u32, Comm)>) {
        self.take();
        mapped.lose(self.lives.take_lost());
        let mut wanted = BTreeSet::new();
        for (pid, comm) in sampled {
            self.lives.sampled(pid, comm);
            wanted.insert(pid);
        }
        // In this order: what a process ran before it runs what it does now.
        for pid in self.lives.take_changed().union(&wanted) {
            self.give(mapped, *pid, false);
        }
        for pid in wanted {
            // The number may be another process' by now.
            if self.lives.is_over(pid) {
                continue;
            }
            match mapped.read(Path::new("/"), pid) {
                // Not ours to see, or nobody's: else it has ended since the records were taken.
                Err(error)
                    if !matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded) =>
                {
                    self.give(mapped, pid, true);
                }
                _ => {}
            }
        }
        self.lives.end_look();
    }

    fn give(&mut self, mapped: &mut Mapped, pid: u32, over: bool) {
        let programs = self.lives.due(pid, over);
        if programs.is_empty() {
            return;
        }
        // Who was started in a container has its files where its parent has them.
        let parent = self.lives.parent(pid).map(|parent| mapped::folder(parent).join("root"));
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
                        // Nobody who lives has such a number.
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
        // What happened before now is in the rings; what comes while they are read may have a cause on a CPU whose ring
        // was read already.
        let mut until = now_ns();
        self.drain();
        // Who forks has its mappings in no record when it began before us.
        let unknown = self.lives.parents_to_read(&self.pending);
        let mut read: Vec<(u32, Before)> = Vec::new();
        if !unknown.is_empty() {
            for pid in unknown {
                read.push((pid, before(&mapped::folder(pid))));
            }
            // An exec up to here is known when the reading is believed.
            until = now_ns();
            self.drain();
        }
        self.pending.sort_by_key(|record| record.at);
        let known = self.pending.partition_point(|record| record.at <= until);
        self.pending.drain(..known).for_each(|record| self.lives.apply(record.at, record.what));
        for (pid, read) in read {
            self.lives.had(pid, read);
        }
        self.lives.sweep(|pid| mapped::folder(pid).exists());
    }

    fn drain(&mut self) {
        for ring in &mut self.rings {
            let damaged = ring.take(&mut self.pending);
            self.lives.lose(damaged);
        }
    }
}

fn now_unix_ns() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

/// What a process has mapped and its threads are called, as far as it lives yet.
fn before(folder: &Path) -> Before {
    /// Who has more threads may have any name.
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

/// A ring for each CPU, or none: half of the records would give half of a process.
fn rings(every: Duration) -> Option<Vec<Ring>> {
    // The records have the numbers of processes as we see them, the samples those of the machine.
    if !outermost() {
        return None;
    }
    let cpus = perf_event::online().ok()?;
    let bytes = ring_bytes(cpus.len(), every);
    let mut events = Vec::with_capacity(cpus.len());
    for cpu in cpus {
        match perf_event::births(cpu) {
            Ok(event) => events.push(event),
            // It went offline after the list was read.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(_) => return None,
        }
    }
    let map =
        || events.iter().map(|event| Ring::map(event.as_fd(), bytes).ok()).collect::<Option<Vec<Ring>>>();
    perf_event::nobodys(map).or_else(map)
}

/// Whether we are in the pid namespace that the machine began with.
fn outermost() -> bool {
    /// `PROC_PID_INIT_INO`.
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST)
}

/// Room for what one CPU can start between two looks: a process with few libraries is 700 bytes of records and half
/// a millisecond of work at least. A power of two.
fn ring_bytes(cpus: usize, every: Duration) -> usize {
    const LEAST: usize = 32 << 10;
    const MOST: usize = 256 << 10;
    const OF_ALL: usize = 32 << 20;
    let wanted = usize::try_from(every.as_millis()).unwrap_or(MOST).saturating_mul(2 << 10);
    let share = OF_ALL / cpus.max(1);
    wanted.min(share).clamp(LEAST, MOST).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_their_machine() {
        assert_eq!(ring_bytes(2, Duration::from_millis(20)), 64 << 10);
        assert_eq!(ring_bytes(2, Duration::from_millis(100)), 256 << 10);
        assert_eq!(ring_bytes(512, Duration::from_millis(100)), 64 << 10);
        assert_eq!(ring_bytes(usize::MAX, Duration::MAX), 32 << 10);
    }
}
