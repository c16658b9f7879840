//! Reconstructs what processes ran, one program after the other, from the kernel's records. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::host::mapped::{MappedFiles, Mapping, fits, put_over};
use crate::wire::process_events::{Comm, ProcessChange, ProcessRecord};

/// Processes by id: those that run, as far as anything was recorded of them, and those that exited recently.
#[derive(Debug, Default)]
pub struct ProcessHistory {
    lives: HashMap<u32, Life>,
    /// Processes that were sampled, with the names of their threads at that time.
    sampled: HashMap<u32, Vec<Comm>>,
    /// Sampled processes that called exec or exited since the last query.
    changed: BTreeSet<u32>,
    /// Paths shared by all processes, each stored once.
    paths: HashSet<Arc<[u8]>>,
    /// Total over all `lives`; mappings shared by several processes count for each.
    mappings: usize,
    look: u64,
    /// Processes that exited in the previous lookup, and in the current one.
    over: [Vec<u32>; 2],
    lost: u64,
    /// Number of ids assigned to earlier programs.
    numbers: u32,
    /// Time of the record being applied, ns of CLOCK_MONOTONIC.
    at: u64,
    /// The lookup from which on exited processes may be searched, and whether there may be some.
    sweep_from: u64,
    unsure: bool,
}

#[derive(Debug)]
struct Life {
    parent: Option<u32>,
    /// None: it started before recording.
    threads: Option<u32>,
    programs: Vec<ExecImage>,
    /// The lookup in which it exited.
    ended: Option<u64>,
}

/// A program from an exec, or a fork, on; until the next exec, or until something else is mapped over an existing
/// mapping.
#[derive(Debug, Clone)]
struct ExecImage {
    /// Equal for parts of the same program.
    exec: u32,
    /// By address.
    code: Arc<Vec<Mapping>>,
    /// Its mappings from before recording, once they have been read; shared with processes forked since.
    before: Option<Arc<OnceLock<Before>>>,
    /// Names of its threads, since its exec or since recording began.
    names: Vec<Comm>,
    /// When something was mapped last, ns of CLOCK_MONOTONIC.
    at: u64,
    /// Replaces the process id once that denotes a later program.
    number: Option<u32>,
    /// Not returned yet, or changed since.
    new: bool,
}

/// Data of a process that started before recording.
#[derive(Debug, Clone, Default)]
pub struct Before {
    pub mappings: Vec<Mapping>,
    /// Names of all its threads; empty: unknown.
    pub names: Vec<Comm>,
}

/// A program whose mappings are to be kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub mappings: Vec<Mapping>,
    /// The process exited in it.
    pub ended: bool,
    /// When its last mapping was made, ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// An id of its own, and the thread names that occurred in it and in no other program of the process.
    pub earlier: Option<(u32, Vec<Comm>)>,
}

impl ExecImage {
    const MOST_CODE: usize = 4096;
    const MOST_NAMES: usize = 64;

    /// The program of a process that started before recording.
    fn unknown(at: u64) -> Self {
        Self {
            at,
            exec: 0,
            code: Arc::default(),
            before: Some(Arc::default()),
            names: Vec::new(),
            number: None,
            new: true,
        }
    }

    /// Whether one of its threads may have had this name: one did, or not all names are known.
    fn may_have(&self, name: &Comm) -> bool {
        let untold = |before: &Before| before.names.is_empty() || before.names.contains(name);
        self.names.contains(name)
            || self.before.as_ref().is_some_and(|before| before.get().is_none_or(untold))
    }

    fn mappings(&self) -> Vec<Mapping> {
        let read = self.before.as_ref().and_then(|before| before.get());
        let mut all = read.map(|before| before.mappings.clone()).unwrap_or_default();
        self.code.iter().for_each(|mapping| put_over(&mut all, mapping.clone()));
        all
    }
}

impl Life {
    const MOST_PROGRAMS: usize = 8;

    fn unknown(at: u64) -> Self {
        Self { parent: None, threads: None, programs: vec![ExecImage::unknown(at)], ended: None }
    }

    /// The programs, by exec, in which a thread may have had this name.
    fn programs_of(&self, name: &Comm) -> BTreeSet<u32> {
        let with = |has: &dyn Fn(&ExecImage) -> bool| -> BTreeSet<u32> {
            self.programs.iter().filter(|program| has(program)).map(|program| program.exec).collect()
        };
        let may = with(&|program| program.may_have(name));
        if may.is_empty() { with(&|_| true) } else { may }
    }

    fn mappings(&self) -> usize {
        self.programs.iter().map(|program| program.code.len()).sum()
    }

    fn begin(&mut self, program: ExecImage) {
        if self.programs.len() >= Self::MOST_PROGRAMS {
            self.programs.remove(0);
        }
        self.programs.push(program);
    }
}

impl ProcessHistory {
    /// Processes beyond this are counted as lost.
    const MOST: usize = 16_384;
    const MOST_MAPPINGS: usize = 500_000;
    const MOST_PATHS: usize = 65_536;
    /// Lookups between two searches for exited processes.
    const SWEEP_EVERY: u64 = 50;
    /// Per process.
    const MOST_NAMES: usize = 64;
    /// Above all ids that the kernel assigns.
    const FIRST_NUMBER: u32 = 1 << 31;

    /// Applies the next record, with its time in ns of CLOCK_MONOTONIC.
    pub fn apply(&mut self, at: u64, what: ProcessChange) {
        self.at = at;
        match what {
            ProcessChange::Fork { pid, parent } => self.fork(pid, parent),
            ProcessChange::Exit { pid, tid } => self.exit(pid, tid),
            ProcessChange::Name { pid, comm, exec } => self.name(pid, comm, exec),
            ProcessChange::Mapped { pid, mapping } => self.map(pid, mapping),
            ProcessChange::Lost(records) => self.lose(records),
            ProcessChange::Other => {}
        }
    }

    /// Counts missing records.
    pub fn lose(&mut self, records: u64) {
        self.lost = self.lost.saturating_add(records);
        // Exits may be among them.
        self.unsure |= records > 0;
    }

    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The history of a process, if there is room; an unknown process is taken to have started before recording.
    fn life(&mut self, pid: u32) -> Option<&mut Life> {
        // A process that is not in this PID namespace.
        if pid == 0 || pid == u32::MAX {
            return None;
        }
        let full = self.lives.len() >= Self::MOST || self.mappings >= Self::MOST_MAPPINGS;
        if full && !self.lives.contains_key(&pid) {
            self.lose(1);
            return None;
        }
        let at = self.at;
        Some(self.lives.entry(pid).or_insert_with(|| Life::unknown(at)))
    }

    fn fork(&mut self, pid: u32, parent: u32) {
        if pid == parent {
            let life = self.lives.get_mut(&pid);
            if let Some(threads) = life.and_then(|life| life.threads.as_mut()) {
                *threads += 1;
            }
            return;
        }
        self.forget(pid);
        let Some(Life { programs, .. }) = self.life(parent) else { return };
        let Some(program) = programs.last() else { return };
        let program = ExecImage { exec: 0, number: None, new: true, ..program.clone() };
        let added = program.code.len();
        if let Some(life) = self.life(pid) {
            *life = Life { parent: Some(parent), threads: Some(1), programs: vec![program], ended: None };
            self.mappings += added;
        }
    }

    fn exit(&mut self, pid: u32, tid: u32) {
        let Some(life) = self.lives.get_mut(&pid) else {
            if pid == tid {
                self.sampled.remove(&pid);
            }
            return;
        };
        let over = match &mut life.threads {
            Some(threads) => {
                *threads = threads.saturating_sub(1);
                *threads == 0
            }
            // The first thread may exit before the others; the threads were not counted.
            None => pid == tid,
        };
        if over {
            life.ended = Some(self.look);
            self.over[1].push(pid);
            self.change(pid);
        }
    }

    fn name(&mut self, pid: u32, comm: Comm, exec: bool) {
        let (before, at) = (self.mappings, self.at);
        let Some(life) = self.life(pid) else { return };
        let was = life.mappings();
        if exec {
            let number = life.programs.last().map_or(0, |last| last.exec + 1);
            let names = vec![comm];
            life.begin(ExecImage {
                exec: number,
                code: Arc::default(),
                before: None,
                names,
                at,
                number: None,
                new: true,
            });
            // Exec ends all other threads.
            life.threads = Some(1);
            life.ended = None;
        } else if let Some(last) = life.programs.last_mut()
            && last.names.len() < ExecImage::MOST_NAMES
            && !last.names.contains(&comm)
        {
            last.names.push(comm);
        }
        self.mappings = before - was + life.mappings();
        if exec {
            self.change(pid);
        }
    }

    fn map(&mut self, pid: u32, mut mapping: Mapping) {
        match self.paths.get(&mapping.path) {
            Some(path) => mapping.path = Arc::clone(path),
            None if self.paths.len() < Self::MOST_PATHS => _ = self.paths.insert(Arc::clone(&mapping.path)),
            None => {}
        }
        let before = self.mappings;
        let (full, at) = (before >= Self::MOST_MAPPINGS, self.at);
        let Some(life) = self.life(pid) else { return };
        let was = life.mappings();
        let Some(last) = life.programs.last_mut() else { return };
        if full || last.code.len() >= ExecImage::MOST_CODE {
            self.lose(1);
            return;
        }
        if fits(&last.code, &mapping) {
            put_over(Arc::make_mut(&mut last.code), mapping);
            (last.new, last.at) = (true, at);
        } else {
            let mut next = ExecImage { new: true, at, ..last.clone() };
            put_over(Arc::make_mut(&mut next.code), mapping);
            life.begin(next);
        }
        // A process that continues without its first thread.
        life.ended = None;
        self.mappings = before - was + life.mappings();
    }

    /// Parents of processes forked in these records whose mappings are in no record, and were not read.
    pub fn parents_to_read(&self, records: &[ProcessRecord]) -> BTreeSet<u32> {
        let forks = || {
            records.iter().filter_map(|record| match record.what {
                ProcessChange::Fork { pid, parent } if pid != parent => Some((pid, parent)),
                _ => None,
            })
        };
        let begun: HashSet<u32> = forks().map(|(pid, _)| pid).collect();
        let unread = |parent: &u32| {
            let last = self.lives.get(parent).map(|life| life.programs.last());
            match last {
                None => !begun.contains(parent),
                Some(last) => last
                    .and_then(|program| program.before.as_ref())
                    .is_some_and(|before| before.get().is_none()),
            }
        };
        forks().map(|(_, parent)| parent).filter(|&pid| pid != 0 && pid != u32::MAX).filter(unread).collect()
    }

    /// Sets the mappings and thread names of a process, read after the last applied record. Ignored if the process has
    /// called exec since recording began: the records are complete then.
    pub fn had(&mut self, pid: u32, read: Before) {
        let program = self.lives.get(&pid).and_then(|life| life.programs.last());
        if let Some(before) = program.and_then(|program| program.before.as_ref()) {
            let _first = before.set(read);
        }
    }

    /// Records that a process was sampled in a thread with this name.
    pub fn sampled(&mut self, pid: u32, comm: Comm) {
        if self.sampled.len() >= MappedFiles::MOST_PROCESSES && !self.sampled.contains_key(&pid) {
            return;
        }
        let names = self.sampled.entry(pid).or_default();
        if names.len() < Self::MOST_NAMES && !names.contains(&comm) {
            names.push(comm);
        }
    }

    fn change(&mut self, pid: u32) {
        if self.sampled.contains_key(&pid) {
            self.changed.insert(pid);
        }
    }

    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Whether the process has exited, by the records.
    pub fn is_over(&self, pid: u32) -> bool {
        self.lives.get(&pid).is_some_and(|life| life.ended.is_some())
    }

    /// The process that forked it.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        self.lives.get(&pid)?.parent
    }

    /// The programs of a sampled process that it no longer runs and that may have samples, oldest first: each is
    /// returned once. With `over` the process has exited, whatever the records say.
    pub fn due(&mut self, pid: u32, over: bool) -> Vec<Ran> {
        let (Some(life), Some(sampled)) = (self.lives.get_mut(&pid), self.sampled.get(&pid)) else {
            return Vec::new();
        };
        let over = over || life.ended.is_some();
        let Some(last) = life.programs.last().map(|last| last.exec) else { return Vec::new() };
        let of: Vec<(Comm, BTreeSet<u32>)> =
            sampled.iter().map(|name| (*name, life.programs_of(name))).collect();
        let mut all = Vec::new();
        let latest = life.programs.len() - 1;
        for (at, program) in life.programs.iter_mut().enumerate() {
            // If two programs use the same addresses, samples that may belong to either get no name.
            let sampled = of.iter().any(|(_, execs)| execs.contains(&program.exec));
            if !program.new || !sampled || at == latest && !over {
                continue;
            }
            program.new = false;
            let mappings = program.mappings();
            if mappings.is_empty() {
                continue;
            }
            let own = of.iter().filter(|(_, execs)| execs.len() == 1 && execs.contains(&program.exec));
            let own: Vec<Comm> = own.map(|(name, _)| *name).collect();
            let earlier = (program.exec != last && !own.is_empty()).then(|| {
                let number = *program.number.get_or_insert_with(|| {
                    self.numbers = self.numbers.wrapping_add(1);
                    Self::FIRST_NUMBER | self.numbers
                });
                (number, own)
            });
            all.push(Ran { mappings, ended: over && at == latest, at: program.at, earlier });
        }
        all
    }

    /// Drops processes that exited before this lookup: later samples of them have been handled by now.
    pub fn end_look(&mut self) {
        let look = self.look;
        self.over.swap(0, 1);
        for pid in std::mem::take(&mut self.over[1]) {
            if self.lives.get(&pid).and_then(|life| life.ended).is_some_and(|ended| ended < look) {
                self.forget(pid);
            }
        }
        if self.lives.is_empty() || self.paths.len() >= Self::MOST_PATHS {
            self.paths.clear();
        }
        self.look += 1;
    }

    fn forget(&mut self, pid: u32) {
        if let Some(life) = self.lives.remove(&pid) {
            self.mappings -= life.mappings();
        }
        self.sampled.remove(&pid);
    }

    /// Marks processes that exited without a record; done rarely, and only if there may be some.
    pub fn sweep(&mut self, lives: impl Fn(u32) -> bool) {
        if !self.unsure || self.look < self.sweep_from {
            return;
        }
        (self.unsure, self.sweep_from) = (false, self.look + Self::SWEEP_EVERY);
        let look = self.look;
        let mut gone = Vec::new();
        for (pid, life) in &mut self.lives {
            if life.ended.is_none() && !lives(*pid) {
                life.ended = Some(look);
                gone.push(*pid);
            }
        }
        gone.iter().for_each(|pid| self.change(*pid));
        self.over[1].extend(gone);
    }
}

#[cfg(test)]
#[path = "history/tests.rs"]
mod tests;
