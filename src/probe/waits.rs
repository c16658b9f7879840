//! What the programs of blocked tasks and those of reclaim have in common: their constants, their tables, and the
//! memory maps of the processes that they meet.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::births::Births;
use super::filter::{COMM_BYTES, Filter};
use super::libbpf::{self, element};
use crate::host::mapped::Mapped;
use crate::wire::births;
use crate::wire::blocked::{RawBlocked, WireWaitProcess, WireWaitsRow, decode_process, decode_stack};

/// The stacks' budget is kept over so long.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Distinct stacks that are kept, where nobody says otherwise. Each takes 2 KiB.
pub const ROOM: u32 = 8192;

/// How often new processes are looked for: one that ends before is named by the kernel's records alone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to look at.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose time.
    pub filter: Filter,
    /// What stacks may cost, in percent of each CPU; 0: none are taken.
    pub max_cost: f64,
    /// Waits that are shorter have no stacks; they are counted.
    pub min_block: Duration,
    /// Take the user's side of stacks.
    pub user_stacks: bool,
    /// Distinct stacks that are kept.
    pub room: u32,
    /// Our own threads as well; for tests.
    pub ours: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            max_cost: 1.0,
            min_block: Duration::ZERO,
            user_stacks: true,
            room: ROOM,
            ours: false,
        }
    }
}

impl Options {
    /// What the stacks of one CPU may take of a period, ns.
    pub fn budget_ns(&self) -> u64 {
        (PERIOD.as_nanos() as f64 * self.max_cost.clamp(0.0, 100.0) / 100.0) as u64
    }

    /// The same for at least one element: a map cannot be empty.
    pub fn room_for(n: usize) -> u32 {
        n.max(1) as u32
    }
}

/// Writes the names of a filter; before anything is attached.
pub fn fill(
    filter: &Filter,
    pids: &impl MapCore,
    comms: &impl MapCore,
    cgroups: &impl MapCore,
) -> Result<()> {
    for pid in &filter.pids {
        pids.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)?;
    }
    for comm in &filter.comms {
        let mut bytes = [0; COMM_BYTES];
        let name = &comm.as_bytes()[..comm.len().min(COMM_BYTES - 1)];
        bytes[..name.len()].copy_from_slice(name);
        comms.update(&bytes, &[1], MapFlags::ANY)?;
    }
    for cgroup in &filter.cgroups {
        cgroups.update(&cgroup.to_ne_bytes(), &[1], MapFlags::ANY)?;
    }
    Ok(())
}

/// The table's stacks.
pub fn read_stacks(stacks: &impl MapCore, raw: &mut RawBlocked) -> Result<()> {
    for key in stacks.keys() {
        let Some(value) = stacks.lookup(&key, MapFlags::ANY)? else { continue };
        if let Some((sample, waits)) = decode_stack(&key, &value)? {
            // Two keys may differ in what a sample does not hold: the order of names' leftovers.
            raw.samples.entry(sample).or_default().add(waits);
        }
    }
    Ok(())
}

/// Who waited how long.
pub fn read_processes(processes: &impl MapCore, raw: &mut RawBlocked) -> Result<()> {
    for key in processes.keys() {
        let Some(value) = processes.lookup(&key, MapFlags::ANY)? else { continue };
        if let Some((process, sum)) = decode_process(&key, &value)? {
            raw.processes.entry(process).or_default().add(sum);
        }
    }
    Ok(())
}

/// Rows by their place.
pub fn read_rows(rows: &impl MapCore, number: u32) -> Result<Vec<WireWaitsRow>> {
    (0..number).map(|place| Ok(WireWaitsRow::decode(&element(rows, place)?)?)).collect()
}

/// Runs, run time and skipped runs of programs, all in one.
pub fn stats<'a>(programs: impl IntoIterator<Item = BorrowedFd<'a>>) -> libbpf::ProgramStats {
    let mut all = libbpf::ProgramStats::default();
    for program in programs {
        let Ok(one) = libbpf::program_stats(&program) else { continue };
        all.runs += one.runs;
        all.run_ns += one.run_ns;
        all.recursion_misses += one.recursion_misses;
    }
    all
}

/// Follows the memory maps of processes. Dropping it ends its thread.
#[derive(Debug)]
pub struct ProcessMaps {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Mapped>>,
}

/// Whose an element of a table is, by the element's key: a process, and a name of its threads.
pub type Whose = fn(&MapHandle, &[u8]) -> Option<(u32, [u8; 16])>;

impl ProcessMaps {
    /// Of those that come into this table, from now on.
    pub fn follow(processes: MapHandle, whose: Whose) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let mut known = Known { births: Births::open(LOOK_EVERY), ..Known::default() };
        let run = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK_EVERY) {
                known.look(&processes, whose);
            }
            known.look(&processes, whose);
            // Who called exec between its last wait and that look.
            known.births.look(&mut known.mapped, []);
            known.mapped
        };
        let thread = thread::Builder::new()
            .name("biopsy-maps".to_string())
            .spawn(run)
            .context("the thread that reads memory maps cannot be started")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// What was read, by process.
    pub fn finish(mut self) -> Mapped {
        self.end()
    }

    fn end(&mut self) -> Mapped {
        drop(self.stop.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for ProcessMaps {
    fn drop(&mut self) {
        let _unwanted = self.end();
    }
}

/// Of `wait_processes`.
pub fn whose(_: &MapHandle, key: &[u8]) -> Option<(u32, [u8; 16])> {
    WireWaitProcess::decode(key).ok().map(|process| (process.pid, process.comm))
}

#[derive(Debug, Default)]
struct Known {
    mapped: Mapped,
    births: Births,
    keys: HashSet<Vec<u8>>,
    /// Under each of their names: who has another has called exec.
    seen: HashSet<(u32, [u8; 16])>,
}

impl Known {
    fn look(&mut self, processes: &MapHandle, whose: Whose) {
        let mut new = Vec::new();
        for key in processes.keys() {
            if !self.keys.insert(key.clone()) {
                continue;
            }
            let Some((pid, comm)) = whose(processes, &key) else { continue };
            if self.seen.insert((pid, comm)) {
                new.push((pid, births::comm(&comm)));
            }
        }
        self.births.look(&mut self.mapped, new);
    }
}
