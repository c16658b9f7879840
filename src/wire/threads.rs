//! Decodes sampled threads, and holds all samples of one interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zerocopy::FromBytes;

use super::{DamagedRecord, task_name};

pub use super::records::WireThread;

/// The most frames per record (`THREAD_FRAMES`).
pub const MAX_FRAMES: usize = 127;

pub const ON_CPU: u32 = 1;
pub const IN_IOWAIT: u32 = 2;
pub const KERNEL: u32 = 4;
pub const COMPAT: u32 = 8;
pub const SYSCALL: u32 = 16;
pub const NO_STACK: u32 = 32;
pub const BEHIND: u32 = 64;

/// The thread that the sampler displaced from its CPU: of the threads that wait for that CPU, the one that left it
/// last. A thread that was woken during the sample, on a CPU that was idle before, is wrongly taken for it too.
pub fn displaced<'a>(round: impl Iterator<Item = &'a WireThread>) -> Option<u32> {
    let behind = round.filter(|thread| thread.flags & BEHIND != 0);
    behind.max_by_key(|thread| thread.last_ran).map(|thread| thread.tid)
}

/// CPUs on which a thread of this sample was seen.
///
/// A sample takes some tens of microseconds. In that time a CPU may switch from one thread to the next, and both were
/// running when they were examined. At any one time there is only one: the first one seen; the other was about to run.
#[derive(Debug, Default)]
pub struct BusyCpus(HashSet<u32>);

impl BusyCpus {
    /// Whether the thread counts as running: it was on a CPU, and no thread was seen there before.
    pub fn gives(&mut self, thread: &WireThread) -> bool {
        thread.flags & ON_CPU != 0 && (thread.letter() != 'R' || self.0.insert(thread.cpu))
    }
}

impl WireThread {
    /// Decodes a record of the ring buffer: its header, and its stack, leaf first.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Vec<u64>), DamagedRecord> {
        let damaged = || DamagedRecord::of::<Self>(bytes);
        let (head, rest) = Self::read_from_prefix(bytes).map_err(|_| damaged())?;
        if head.frames as usize > MAX_FRAMES || rest.len() != 8 * head.frames as usize {
            return Err(damaged());
        }
        // `chunks_exact(8)` yields slices of 8 bytes, so the default is never taken.
        let word = |c: &[u8]| u64::from_ne_bytes(c.try_into().unwrap_or_default());
        Ok((head, rest.chunks_exact(8).map(word).collect()))
    }

    /// The letter that `ps` shows, computed like the kernel's own `task_state_index`.
    pub fn letter(&self) -> char {
        /// TASK_UNINTERRUPTIBLE | TASK_NOLOAD, TASK_RTLOCK_WAIT, TASK_FROZEN, and the reported states.
        const IDLE: u32 = 0x402;
        const RTLOCK: u32 = 0x1000;
        const FROZEN: u32 = 0x8000;
        const REPORTED: u32 = 0x7f;
        let state = match self.state {
            state if state & IDLE == IDLE => return 'I',
            // A wait for a PREEMPT_RT lock, or in the freezer, is reported as uninterruptible.
            RTLOCK | FROZEN => 2,
            state => state,
        };
        let bits = (state | self.exit_state) & REPORTED;
        ['R', 'S', 'D', 'T', 't', 'X', 'Z', 'P'][(u32::BITS - bits.leading_zeros()) as usize]
    }
}

/// The system call that a thread is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// A thread on a CPU may just have left it; or biopsy may not read it.
    #[default]
    Unknown,
    /// No system call: a kernel thread, or a thread that an interrupt or fault took out of user mode.
    None,
    Number(u32),
    /// Of a 32-bit program, which has other system call numbers.
    Compat(u32),
}

/// Properties that samples have in common that are counted together.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sighting {
    /// Up to the first zero byte. Any bytes: a thread names itself.
    pub comm: [u8; 16],
    /// As `ps` shows it.
    pub state: char,
    /// None: unknown.
    pub on_cpu: Option<bool>,
    /// Waits for I/O, as the kernel accounts it.
    pub in_iowait: Option<bool>,
    pub call: Call,
    /// Index of its stack in the interval's list, + 1; 0: none.
    pub stack: u32,
    /// The kernel's own wait channel, if there is no stack.
    pub wchan: Option<Arc<str>>,
    /// The process; 0 if not requested.
    pub pid: u32,
    pub cgroup: u64,
    /// The cgroup if only its path is known.
    pub cgroup_path: Option<Arc<str>>,
    /// Major << 20 | minor of the disk that it waits for, and of the lowest disk below it; 0: unknown.
    pub device: u32,
    pub lower: u32,
}

impl Sighting {
    /// The bytes of the thread's name.
    pub fn comm_bytes(&self) -> &[u8] {
        task_name(&self.comm)
    }
}

/// Replaces each number in a name by `*`, so that the threads of a pool share one name: `io_wqe_worker-*`.
pub fn fold_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    // In the files of /proc a worker's name is followed by its work, truncated at any point.
    let name = match name.strip_prefix("kworker/").and_then(|rest| rest.find(['-', '+'])) {
        Some(at) => &name[..at + "kworker/".len()],
        None => name,
    };
    for c in name.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('*') {
            out.push('*');
        }
    }
    out
}

/// Consecutive samples: `counts` by index of the sighting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    pub rounds: u64,
    pub counts: HashMap<u32, u64>,
}

/// At this many batches, pairs of batches are merged. So there are always between half of it and this many, and their
/// spread gives the sampling error even for states that last longer than a sample.
pub const MOST_BATCHES: usize = 32;

/// The most different sightings and stacks that are kept per interval; further ones are only counted.
pub const MOST_KEPT: usize = 1 << 16;

counted! {
    /// What was not seen although it was looked for.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Loss {
        /// Rounds that started late by at least a tenth of their period.
        #[serde(rename = "late_rounds")]
        pub late: u64,
        /// Rounds that were skipped, because the previous one was not finished or the sampler did not run.
        #[serde(rename = "missed_rounds")]
        pub missed: u64,
        /// Threads that a round found but had no room for.
        pub cut: u64,
        /// Records that could not be decoded.
        pub damaged: u64,
        /// Samples of sightings beyond those that are kept.
        pub unkept: u64,
        /// Samples without the requested stack: it could not be taken, or could not be kept.
        pub no_stack: u64,
        /// Threads whose files biopsy may not read, or that ended in between.
        pub unread: u64,
    }
}

impl Loss {
    /// Samples that are in no row.
    pub fn samples(&self) -> u64 {
        self.cut.saturating_add(self.damaged).saturating_add(self.unkept)
    }

    /// In the order of their names in the output.
    pub fn kinds(&self) -> [(&'static str, u64); 7] {
        [
            ("late_rounds", self.late),
            ("missed_rounds", self.missed),
            ("cut", self.cut),
            ("damaged", self.damaged),
            ("unkept", self.unkept),
            ("no_stack", self.no_stack),
            ("unread", self.unread),
        ]
    }
}

/// All samples of one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadSamples {
    pub from_ns: u64,
    pub to_ns: u64,
    pub rounds: u64,
    /// Existing threads, summed over all samples, including those that were skipped.
    pub looked_at: u64,
    pub sightings: Vec<Sighting>,
    /// Leaf first.
    pub stacks: Vec<Box<[u64]>>,
    pub batches: Vec<Batch>,
    pub loss: Loss,
}

impl ThreadSamples {
    /// Number of samples in rows.
    pub fn samples(&self) -> u64 {
        self.batches.iter().flat_map(|batch| batch.counts.values()).sum()
    }
}

/// Builds a [`ThreadSamples`].
#[derive(Debug, Default)]
pub struct ThreadTally {
    sampled: ThreadSamples,
    by_sighting: HashMap<Sighting, u32>,
    by_stack: HashMap<Box<[u64]>, u32>,
    /// Number of samples in a full batch.
    batch_rounds: u64,
}

impl ThreadTally {
    pub fn new(from_ns: u64) -> Self {
        let sampled = ThreadSamples { from_ns, ..ThreadSamples::default() };
        Self { sampled, batch_rounds: 1, ..Self::default() }
    }

    /// Begins another sample.
    pub fn begin_round(&mut self) {
        let batches = &mut self.sampled.batches;
        if batches.last().is_none_or(|batch| batch.rounds >= self.batch_rounds) {
            if batches.len() == MOST_BATCHES {
                self.batch_rounds *= 2;
                *batches = batches.chunks(2).map(together).collect();
            }
            batches.push(Batch::default());
        }
        if let Some(batch) = batches.last_mut() {
            batch.rounds += 1;
        }
        self.sampled.rounds += 1;
    }

    /// Adds a thread of this sample, with its kernel stack.
    pub fn add(&mut self, mut sighting: Sighting, stack: &[u64]) {
        if !stack.is_empty() {
            sighting.stack = self.place_of(stack);
            if sighting.stack == 0 {
                self.sampled.loss.no_stack += 1;
            }
        }
        let next = self.sampled.sightings.len();
        let place = match self.by_sighting.get(&sighting) {
            Some(place) => *place,
            None if next >= MOST_KEPT => {
                self.sampled.loss.unkept += 1;
                return;
            }
            None => {
                self.sampled.sightings.push(sighting.clone());
                self.by_sighting.insert(sighting, next as u32);
                next as u32
            }
        };
        if let Some(batch) = self.sampled.batches.last_mut() {
            *batch.counts.entry(place).or_default() += 1;
        }
    }

    /// The index of a stack + 1; 0: no room.
    fn place_of(&mut self, stack: &[u64]) -> u32 {
        if let Some(place) = self.by_stack.get(stack) {
            return *place;
        }
        if self.sampled.stacks.len() >= MOST_KEPT {
            return 0;
        }
        self.sampled.stacks.push(stack.into());
        let place = self.sampled.stacks.len() as u32;
        self.by_stack.insert(stack.into(), place);
        place
    }

    pub fn loss(&mut self) -> &mut Loss {
        &mut self.sampled.loss
    }

    pub fn look_at(&mut self, threads: u64) {
        self.sampled.looked_at += threads;
    }

    /// Ends the interval.
    pub fn finish(mut self, to_ns: u64) -> ThreadSamples {
        self.sampled.to_ns = to_ns;
        self.sampled
    }
}

fn together(batches: &[Batch]) -> Batch {
    let mut all = Batch::default();
    for batch in batches {
        all.rounds += batch.rounds;
        for (place, n) in &batch.counts {
            *all.counts.entry(*place).or_default() += n;
        }
    }
    all
}

/// A reading of the probe: the interval since the previous reading, and the losses of the whole run.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub at_ns: u64,
    pub window: Arc<ThreadSamples>,
    /// Since the start.
    pub rounds: u64,
    pub samples: u64,
    pub loss: Loss,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn workers_of_the_kernel_are_one_whatever_they_do() {
        for name in ["kworker/0:1H", "kworker/12:0H-kblockd", "kworker/3:7H+lo"] {
            assert_eq!(fold_numbers(name), "kworker/*:*H", "{name}");
        }
        assert_eq!(fold_numbers("iou-wrk-12"), "iou-wrk-*");
    }

    fn record(frames: u32, addresses: &[u64]) -> Vec<u8> {
        let words = [10u32, 11, 2, 0, IN_IOWAIT, 17, frames, 0, 0, 0];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(99u64.to_ne_bytes());
        bytes.extend(b"reader\0\xff\xff\xff\xff\xff\xff\xff\xff\xff");
        bytes.extend(addresses.iter().flat_map(|address| address.to_ne_bytes()));
        bytes
    }

    #[test]
    fn the_thread_that_left_the_samplers_cpu_last_was_displaced() {
        let thread = |tid, flags, last_ran| WireThread { tid, flags, last_ran, ..WireThread::default() };
        let round = [thread(1, BEHIND, 50), thread(2, BEHIND, 70), thread(3, 0, 90), thread(4, ON_CPU, 95)];
        assert_eq!(displaced(round.iter()), Some(2));
        assert_eq!(displaced(round[2..].iter()), None, "the CPU was idle");
    }

    #[test]
    fn of_two_threads_on_a_cpu_the_second_waited_for_it() {
        let thread = |tid, cpu| WireThread { tid, cpu, flags: ON_CPU | KERNEL, ..WireThread::default() };
        let mut taken = BusyCpus::default();
        let given = [thread(1, 0), thread(2, 1), thread(3, 1)].map(|thread| taken.gives(&thread));
        assert_eq!(given, [true, true, false]);
        assert!(BusyCpus::default().gives(&thread(3, 1)), "another round");
        assert!(!BusyCpus::default().gives(&WireThread { flags: KERNEL, ..thread(3, 1) }), "it was on none");
    }

    #[test]
    fn a_record_is_a_thread_with_its_stack() {
        let (head, stack) = WireThread::decode(&record(2, &[1, 2])).unwrap();
        assert_eq!((head.pid, head.tid, head.letter(), head.syscall, head.cgroup), (10, 11, 'D', 17, 7));
        assert_eq!(stack, [1, 2]);
        assert_eq!(task_name(&head.comm), b"reader");
        assert!(WireThread::decode(&record(3, &[1, 2])).is_err());
        assert!(WireThread::decode(&record(128, &[0; 128])).is_err());
        assert!(WireThread::decode(&[0; 71]).is_err());
    }

    #[test]
    fn states_have_the_letters_of_ps() {
        let of = |state, exit_state| WireThread { state, exit_state, ..WireThread::default() }.letter();
        let all = [(0, 0), (1, 0), (2, 0), (0x102, 0), (0x402, 0), (4, 0), (8, 0), (0x1000, 0), (0x8000, 0)];
        assert_eq!(all.map(|(state, exit)| of(state, exit)), ['R', 'S', 'D', 'D', 'I', 'T', 't', 'D', 'D']);
        // TASK_DEAD, and a zombie that its parent has not reaped.
        assert_eq!([of(0x80, 0x20), of(0x80, 0x10), of(0x40, 0)], ['Z', 'X', 'P']);
        // Interruptible and freezable (6.1).
        assert_eq!(of(0x2001, 0), 'S');
    }

    #[test]
    fn many_rounds_are_few_batches_that_lose_nothing() {
        let mut tally = ThreadTally::new(5);
        for round in 0..1000u64 {
            tally.begin_round();
            for _ in 0..round % 3 {
                tally.add(Sighting { state: 'D', ..Sighting::default() }, &[1, 2]);
            }
        }
        let sampled = tally.finish(9);
        assert_eq!((sampled.from_ns, sampled.to_ns, sampled.rounds), (5, 9, 1000));
        assert_eq!(sampled.samples(), 999);
        assert_eq!(sampled.batches.iter().map(|batch| batch.rounds).sum::<u64>(), 1000);
        assert!((MOST_BATCHES / 2..=MOST_BATCHES).contains(&sampled.batches.len()));
        assert_eq!((sampled.sightings.len(), sampled.stacks.len()), (1, 1));
    }

    #[test]
    fn what_is_beyond_the_room_is_counted() {
        let mut tally = ThreadTally::new(0);
        tally.begin_round();
        for pid in 0..MOST_KEPT as u32 + 3 {
            tally.add(Sighting { pid, ..Sighting::default() }, &[u64::from(pid)]);
        }
        let sampled = tally.finish(1);
        assert_eq!((sampled.samples(), sampled.loss.unkept, sampled.loss.no_stack), (MOST_KEPT as u64, 3, 3));
    }

    proptest! {
        #[test]
        fn every_state_has_a_letter(state: u32, exit_state: u32) {
            WireThread { state, exit_state, ..WireThread::default() }.letter();
        }
    }
}
