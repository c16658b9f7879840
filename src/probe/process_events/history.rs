//! What processes ran, one program after the other, as the kernel's records tell it. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::host::mapped::{Mapped, Mapping, fits, put_over};
use crate::wire::process_events::{Comm, Happened, Record};

/// Processes by number: those that live, as far as anything was recorded of them, and those that ended of late.
#[derive(Debug, Default)]
pub struct ProcessHistory {
    lives: HashMap<u32, Life>,
    /// Processes of which there are samples, and what their threads were called then.
    sampled: HashMap<u32, Vec<Comm>>,
    /// Sampled ones that called exec or ended since they were asked for.
    changed: BTreeSet<u32>,
    /// The same path in every process is kept once.
    paths: HashSet<Arc<[u8]>>,
    /// Of all of `lives`; what several have in common counts for each.
    mappings: usize,
    look: u64,
    /// Who ended in the look before this one, and in this one.
    over: [Vec<u32>; 2],
    lost: u64,
    /// Numbers that were given to earlier programs.
    numbers: u32,
    /// When what is taken in happened, ns of CLOCK_MONOTONIC.
    at: u64,
    /// The look from which on the dead may be looked for, and whether there may be some.
    sweep_from: u64,
    unsure: bool,
}

#[derive(Debug)]
struct Life {
    parent: Option<u32>,
    /// None: it began before the records.
    threads: Option<u32>,
    programs: Vec<Program>,
    /// The look in which it ended.
    ended: Option<u64>,
}

/// From an exec on, or from what it was forked with; up to the next exec, or until something else is mapped where
/// something was.
#[derive(Debug, Clone)]
struct Program {
    /// Equal for programs that are parts of one.
    exec: u32,
    /// By address.
    code: Arc<Vec<Mapping>>,
    /// What it had mapped before there were records, when somebody has read it; shared with who was forked since.
    before: Option<Arc<OnceLock<Before>>>,
    /// What threads were called in it, since its exec or since there are records.
    names: Vec<Comm>,
    /// When something was mapped last, ns of CLOCK_MONOTONIC.
    at: u64,
    /// What stands for it in place of the process' number, when that has come to stand for a later program.
    number: Option<u32>,
    /// Not given, or changed since it was.
    new: bool,
}

/// What was read of a process that began before the records.
#[derive(Debug, Clone, Default)]
pub struct Before {
    pub mappings: Vec<Mapping>,
    /// Of all its threads; empty: not known.
    pub names: Vec<Comm>,
}

/// A program to be kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub mappings: Vec<Mapping>,
    /// The process ended in it.
    pub ended: bool,
    /// When the last of it was mapped, ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// A number of its own, and what threads were called in it and in no other program of the process.
    pub earlier: Option<(u32, Vec<Comm>)>,
}

impl Program {
    const MOST_CODE: usize = 4096;
    const MOST_NAMES: usize = 64;

    /// Of a process that began before the records.
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

    /// Whether a thread may have been called so in it: it was, or nobody knows all names.
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
        Self { parent: None, threads: None, programs: vec![Program::unknown(at)], ended: None }
    }

    /// In which programs, by exec, a thread may have been called so.
    fn programs_of(&self, name: &Comm) -> BTreeSet<u32> {
        let with = |has: &dyn Fn(&Program) -> bool| -> BTreeSet<u32> {
            self.programs.iter().filter(|program| has(program)).map(|program| program.exec).collect()
        };
        let may = with(&|program| program.may_have(name));
        if may.is_empty() { with(&|_| true) } else { may }
    }

    fn mappings(&self) -> usize {
        self.programs.iter().map(|program| program.code.len()).sum()
    }

    fn begin(&mut self, program: Program) {
        if self.programs.len() >= Self::MOST_PROGRAMS {
            self.programs.remove(0);
        }
        self.programs.push(program);
    }
}

impl ProcessHistory {
    /// More processes are counted as lost.
    const MOST: usize = 16_384;
    const MOST_MAPPINGS: usize = 500_000;
    const MOST_PATHS: usize = 65_536;
    /// Looks from one search for the dead to the next.
    const SWEEP_EVERY: u64 = 50;
    /// Of a process.
    const MOST_NAMES: usize = 64;
    /// Above all that the kernel gives.
    const FIRST_NUMBER: u32 = 1 << 31;

    /// Takes in the next thing that happened, and when: ns of CLOCK_MONOTONIC.
    pub fn apply(&mut self, at: u64, what: Happened) {
        self.at = at;
        match what {
            Happened::Fork { pid, parent } => self.fork(pid, parent),
            Happened::Exit { pid, tid } => self.exit(pid, tid),
            Happened::Name { pid, comm, exec } => self.name(pid, comm, exec),
            Happened::Mapped { pid, mapping } => self.map(pid, mapping),
            Happened::Lost(records) => self.lose(records),
            Happened::Other => {}
        }
    }

    /// Counts records that are missing.
    pub fn lose(&mut self, records: u64) {
        self.lost = self.lost.saturating_add(records);
        // Among them may be ends.
        self.unsure |= records > 0;
    }

    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The life of a process, with room for it; where it is not known, one that began before.
    fn life(&mut self, pid: u32) -> Option<&mut Life> {
        // Who is in no pid namespace of ours.
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
        let program = Program { exec: 0, number: None, new: true, ..program.clone() };
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
            // The first thread may end before the others; nobody counted them.
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
            life.begin(Program {
                exec: number,
                code: Arc::default(),
                before: None,
                names,
                at,
                number: None,
                new: true,
            });
            // All others have ended.
            life.threads = Some(1);
            life.ended = None;
        } else if let Some(last) = life.programs.last_mut()
            && last.names.len() < Program::MOST_NAMES
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
        if full || last.code.len() >= Program::MOST_CODE {
            self.lose(1);
            return;
        }
        if fits(&last.code, &mapping) {
            put_over(Arc::make_mut(&mut last.code), mapping);
            (last.new, last.at) = (true, at);
        } else {
            let mut next = Program { new: true, at, ..last.clone() };
            put_over(Arc::make_mut(&mut next.code), mapping);
            life.begin(next);
        }
        // A process that goes on without its first thread.
        life.ended = None;
        self.mappings = before - was + life.mappings();
    }

    /// Parents of those that were forked by these records whose mappings are in no record, and were not read.
    pub fn parents_to_read(&self, records: &[Record]) -> BTreeSet<u32> {
        let forks = || {
            records.iter().filter_map(|record| match record.what {
                Happened::Fork { pid, parent } if pid != parent => Some((pid, parent)),
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

    /// What a process has mapped and its threads are called, read when it had done all that was taken in. Of who has called exec since the records
    /// began, they have it all.
    pub fn had(&mut self, pid: u32, read: Before) {
        let program = self.lives.get(&pid).and_then(|life| life.programs.last());
        if let Some(before) = program.and_then(|program| program.before.as_ref()) {
            let _first = before.set(read);
        }
    }

    /// There is a sample of a process, in which a thread is called so.
    pub fn sampled(&mut self, pid: u32, comm: Comm) {
        if self.sampled.len() >= Mapped::MOST_PROCESSES && !self.sampled.contains_key(&pid) {
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

    /// By the records the process has ended.
    pub fn is_over(&self, pid: u32) -> bool {
        self.lives.get(&pid).is_some_and(|life| life.ended.is_some())
    }

    /// Who forked it.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        self.lives.get(&pid)?.parent
    }

    /// The programs of a sampled process that it runs no more, oldest first, of which there may be samples: each once.
    /// With `over` it has ended, whatever the records say.
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
            // What of another program might be of this one would get no name, where both have the same addresses.
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

    /// Drops who ended before this look: a sample of it that came after the last one has been asked for by now.
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

    /// Ends those that have ended without a record; now and then, and only if there may be some.
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
