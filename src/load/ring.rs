//! The io_uring engine: one thread's ring, its buffers and its files.

mod setup;

use std::io;
use std::ptr;

use anyhow::Result;

use super::buffers::Slots;
use super::engine::uring::Uring;
use super::engine::uring::abi::{self, Rest, Verb};
use super::engine::{Engine, OpenTarget, rw_flags, trim};
use super::job::{Direction, Job};
use super::sequence::PlannedIo;
use crate::refusal::reason;
use setup::unavailable;

pub use setup::Setup;

/// A registered buffer is at most 1 GiB (since the first io_uring).
const MAX_REGISTERED: usize = 1 << 30;

/// A ring, the files that it reads and writes, and a buffer per slot.
pub struct Ring {
    uring: Uring,
    slots: Slots,
    places: Vec<OpenTarget>,
    /// By file and direction.
    verbs: Vec<[Verb; 3]>,
    /// By direction.
    rw_flags: [u32; 3],
    /// By slot.
    drafts: Vec<EntryTemplate>,
    /// `fd` is an index into the registered files, not a descriptor.
    fixed_files: bool,
    nop: bool,
    polled: bool,
    fetched: bool,
    /// Results of operations that were done synchronously when queued.
    at_once: Vec<(u32, i32)>,
}

/// The last entry of a slot, on a cache line of its own: the next one mostly differs only in its offset.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct EntryTemplate {
    rest: Rest,
    verb: Verb,
    kind: EntryKind,
}

/// Everything that determines the entry of an I/O, except for the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryKind(u64);

impl EntryKind {
    /// No I/O.
    const NONE: Self = Self(u64::MAX);

    #[inline(always)]
    fn of(piece: &PlannedIo) -> Self {
        Self(u64::from(piece.bytes) | u64::from(piece.file) << 32 | (piece.direction.index() as u64) << 48)
    }
}

impl Ring {
    /// Sets up a ring of the job's depth on the calling thread, which must be the one that uses it. The targets must
    /// stay open while the ring lives. Also returns what could not be registered.
    pub fn new(setup: &Setup, job: &Job, places: &[OpenTarget]) -> Result<(Self, Vec<String>)> {
        let depth = job.iodepth;
        let mut uring = setup.open(depth).map_err(|e| unavailable(&e))?;
        let (slots, mut missing) = Slots::new(job, &job.memory_nodes)?;
        missing.extend(trim::one_by_one(job));
        let mut fixed_files = false;
        // On such kernels the SQPOLL thread answers EBADF for unregistered files. As in fio, they are then registered
        // without being requested.
        let must = setup.fetched && !setup.any_file;
        if job.registerfiles || must {
            let descriptors: Vec<i32> = places.iter().map(|place| place.fd).collect();
            match uring.register_files(&descriptors) {
                Ok(()) => fixed_files = true,
                Err(e) if must => return Err(setup::needs_files(&e).into()),
                Err(e) => missing
                    .push(format!("registered file: {}; the kernel looks it up per operation", reason(&e))),
            }
        }
        let (stride, bytes) = (slots.stride(), slots.stride() * depth as usize);
        let per_buffer = (MAX_REGISTERED / stride).clamp(1, depth as usize);
        let mut fixed_buffers = false;
        if job.fixedbufs {
            match register_memory(&uring, &slots, per_buffer * stride, bytes) {
                Ok(()) => fixed_buffers = true,
                Err(e) => missing.push(not_registered(&e, bytes)),
            }
        }
        // Since 5.18; without it every call looks up the ring's descriptor. The loss is too small to report.
        let _older_kernel = uring.register_ring();
        let draft = |slot: u32| {
            let buffer = if fixed_buffers { slot as usize / per_buffer } else { 0 };
            let (address, buffer) = (slots.at(slot) as u64, buffer as u16);
            let rest = Rest { address, buffer, user_data: slot.into(), ..Rest::default() };
            EntryTemplate { rest, verb: Verb::default(), kind: EntryKind::NONE }
        };
        let drafts = (0..depth).map(draft).collect();
        let opcodes = match (job.nop, fixed_buffers) {
            (true, _) => [abi::OP_NOP; 3],
            // The ring has no operation for a trim.
            (false, true) => [abi::OP_READ_FIXED, abi::OP_WRITE_FIXED, abi::OP_NOP],
            (false, false) => [abi::OP_READ, abi::OP_WRITE, abi::OP_NOP],
        };
        let verb = |(number, place): (usize, &OpenTarget)| {
            opcodes.map(|opcode| match fixed_files {
                // A NOP has its own flag for registered files.
                true if job.nop => Verb { opcode, fd: number as i32, ..Verb::default() },
                true => Verb { opcode, flags: abi::SQE_FIXED_FILE, priority: 0, fd: number as i32 },
                false => Verb { opcode, fd: place.fd, ..Verb::default() },
            })
        };
        let mut ring = Self {
            verbs: places.iter().enumerate().map(verb).collect(),
            rw_flags: Direction::ALL.map(|direction| rw_flags(job, direction)),
            drafts,
            uring,
            slots,
            places: places.to_vec(),
            fixed_files,
            nop: job.nop,
            polled: setup.polled,
            fetched: setup.fetched,
            at_once: Vec::with_capacity(depth as usize),
        };
        if job.nop {
            ring.pass_for_reads(fixed_buffers).map_err(|e| unavailable(&e))?;
        }
        Ok((ring, missing))
    }

    /// Makes NOPs look up file and buffer as reads do, where the kernel supports it: then they cost what every request
    /// costs before it reaches a device.
    fn pass_for_reads(&mut self, fixed_buffers: bool) -> io::Result<()> {
        let flag = |asked: bool, flag: u32| if asked { flag } else { 0 };
        let op_flags = abi::NOP_FILE
            | flag(self.fixed_files, abi::NOP_FIXED_FILE)
            | flag(fixed_buffers, abi::NOP_FIXED_BUFFER);
        self.drafts.iter_mut().for_each(|draft| draft.rest.op_flags = op_flags);
        self.queue(0, &PlannedIo { direction: Direction::Read, file: 0, bytes: 0, offset: 0 });
        let mut answer = 0;
        while self.in_flight() > 0 {
            match self.enter(1, None) {
                Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(e),
                _ => {}
            }
            self.reap(|_, result| answer = result);
        }
        // Kernels since 6.10 refuse unknown flags; older ones ignore them.
        if answer != 0 {
            self.drafts.iter_mut().for_each(|draft| draft.rest.op_flags = 0);
        }
        Ok(())
    }

    /// Rewrites the slot's entry for this I/O.
    #[inline(never)]
    fn queue_anew(&mut self, slot: u32, piece: &PlannedIo) {
        if piece.direction == Direction::Trim && !self.nop {
            let result = trim::trim(&self.places[usize::from(piece.file)], piece.offset, piece.bytes);
            return self.at_once.push((slot, result));
        }
        let bytes = piece.bytes;
        assert!(bytes as usize <= self.slots.stride() || self.nop, "{bytes} bytes are above the slot's room");
        let verb = self.verbs[usize::from(piece.file)][piece.direction.index()];
        let draft = &mut self.drafts[slot as usize];
        (draft.verb, draft.rest.bytes, draft.kind) = (verb, bytes, EntryKind::of(piece));
        if !self.nop {
            draft.rest.op_flags = self.rw_flags[piece.direction.index()];
        }
        push(&mut self.uring, verb, piece.offset, &draft.rest);
    }

    /// With SQPOLL the kernel thread takes what is queued: a call only wakes it, or waits.
    fn enter_fetched(&mut self, queued: u32, wait: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        let wait = if self.uring.look() < wait { wait } else { 0 };
        let sleeps = self.uring.sleeps();
        if wait > 0 || timeout_ns.is_some() || (queued > 0 && sleeps) {
            let wakes = if sleeps { abi::ENTER_SQ_WAKEUP } else { 0 };
            self.uring.enter(queued, wait, abi::ENTER_GETEVENTS | wakes, timeout_ns)?;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After a hard error operations may still be in flight.
        if self.in_flight() > 0 {
            return self.slots.keep();
        }
        // When a ring is closed, a kernel worker releases its files some milliseconds later, and the next user of the
        // device would find it busy. A failure costs only that.
        if self.fixed_files {
            let _late = self.uring.unregister_files();
        }
    }
}

impl Engine for Ring {
    const IS_SYNCHRONOUS: bool = false;
    const SUBMITS_APART: bool = false;

    fn trims_at_once(&self) -> bool {
        !self.nop
    }

    #[inline(always)]
    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        let Self { drafts, uring, .. } = self;
        let draft = &drafts[slot as usize];
        if draft.kind != EntryKind::of(piece) {
            return self.queue_anew(slot, piece);
        }
        push(uring, draft.verb, piece.offset, &draft.rest);
    }

    fn queue_with_priority(&mut self, slot: u32, piece: &PlannedIo, priority: u16) {
        if piece.direction == Direction::Trim {
            return self.queue(slot, piece);
        }
        let verb = &mut self.verbs[usize::from(piece.file)][piece.direction.index()];
        let plain = std::mem::replace(&mut verb.priority, priority);
        self.queue_anew(slot, piece);
        self.verbs[usize::from(piece.file)][piece.direction.index()].priority = plain;
        // The slot's next operation has no priority.
        self.drafts[slot as usize].kind = EntryKind::NONE;
    }

    fn queue_sync(&mut self, slot: u32, file: u16, data_only: bool) {
        let verb = self.verbs[usize::from(file)][Direction::Write.index()];
        let rest = Rest {
            op_flags: if data_only { abi::FSYNC_DATASYNC } else { 0 },
            user_data: slot.into(),
            ..Rest::default()
        };
        let flags = if self.fixed_files { abi::SQE_FIXED_FILE } else { 0 };
        push(&mut self.uring, Verb { opcode: abi::OP_FSYNC, flags, ..verb }, 0, &rest);
    }

    #[inline]
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let new = self.uring.new_entries();
        let queued = self.uring.show();
        let done = self.at_once.len() as u32;
        // Synchronous results are there already, and waiting for more than is in flight would never end.
        let wait = wait.min(self.in_flight()).saturating_sub(done);
        // A polling wait has no timeout.
        let wait = if self.polled && !self.fetched && timeout_ns.is_some() { 0 } else { wait };
        if self.fetched {
            return self.enter_fetched(queued, wait, timeout_ns).map(|()| new);
        }
        if queued == 0 && self.in_flight() == done {
            return Ok(0);
        }
        // With DEFER_TASKRUN completions arrive only on a call with GETEVENTS. It is made only where nothing else is to
        // be done: a call that only submits must take no longer than that.
        let looks = wait > 0 || self.polled || queued == 0;
        let flags = if looks { abi::ENTER_GETEVENTS } else { 0 };
        let taken = self.uring.enter(queued, wait, flags, timeout_ns)?;
        // On a timeout, everything queued had been taken before the wait began.
        Ok(taken.unwrap_or_else(|| queued - self.uring.queued()))
    }

    #[inline]
    fn left(&self) -> u32 {
        // The SQPOLL thread takes them by itself.
        if self.fetched { 0 } else { self.uring.queued() }
    }

    #[inline]
    fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let mut reaped = 0;
        let mut results = self.uring.results();
        let mut at_once = self.at_once.iter();
        // A single call site of `found`, so that it is inlined into the loop.
        while let Some((slot, result)) =
            results.next().map(|(slot, result)| (slot as u32, result)).or_else(|| at_once.next().copied())
        {
            found(slot, result);
            reaped += 1;
        }
        results.end();
        self.at_once.clear();
        reaped
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        self.uring.in_flight() + self.at_once.len() as u32
    }

    #[inline]
    fn buffer(&self, slot: u32) -> *mut u8 {
        self.slots.at(slot)
    }
}

#[inline(always)]
fn push(uring: &mut Uring, verb: Verb, offset: u64, rest: &Rest) {
    // SAFETY: buffer and file outlive the operation: the ring keeps the memory mapped while anything is in flight, and
    // no reference to it exists meanwhile. The part after the head of an entry is zero from the start.
    unsafe {
        let head = &raw mut (*uring.next()).head;
        (&raw mut (*head).verb).write(verb);
        (&raw mut (*head).offset).write(offset);
        ptr::copy_nonoverlapping(rest, &raw mut (*head).rest, 1);
    }
}

/// Registers the memory in parts of `piece` bytes: few large buffers, because each has its own table in the kernel.
fn register_memory(uring: &Uring, memory: &Slots, piece: usize, bytes: usize) -> io::Result<()> {
    let pieces: Vec<libc::iovec> = (0..bytes)
        .step_by(piece)
        .map(|begin| libc::iovec {
            iov_base: memory.base().wrapping_add(begin).cast(),
            iov_len: piece.min(bytes - begin),
        })
        .collect();
    // SAFETY: the pieces lie inside the mapping, which is unmapped only when nothing is in flight.
    unsafe { uring.register_buffers(&pieces) }
}

fn not_registered(error: &io::Error, bytes: usize) -> String {
    let why = match error.raw_os_error() {
        // EPERM is the answer of old kernels to an RLIMIT_MEMLOCK of 0.
        Some(libc::ENOMEM | libc::EPERM) => {
            format!("{bytes} bytes are above the limit of locked memory (RLIMIT_MEMLOCK, ulimit -l)")
        }
        _ => reason(error),
    };
    format!("registered buffers: {why}; the kernel pins the pages per operation")
}

#[cfg(test)]
mod tests {
    use super::setup::Delivery;
    use super::*;
    use crate::load::Target;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn job(depth: u32, bs: u64) -> Job {
        let mut job = Job { iodepth: depth, ..Job::new(Target::Existing(PathBuf::from("/dev/null"))) };
        job.set_bs(bs);
        job
    }

    fn setup(delivery: Delivery, no_array: bool, fetched: bool) -> Setup {
        Setup { delivery, no_array, polled: false, fetched, any_file: true, missing: Vec::new() }
    }

    fn piece(direction: Direction, offset: u64, bytes: u32) -> PlannedIo {
        PlannedIo { direction, file: 0, bytes, offset }
    }

    #[test]
    fn a_priority_reaches_the_kernel() {
        use crate::load::engine::tests::{BLOCK, Scratch, a_priority_reaches_the_kernel, job};
        let file = Scratch::filled("ring-priority", BLOCK, 1);
        let job = job(crate::load::Engine::IoUring, 1);
        let (ring, _) = Ring::new(&Setup::probe(&job).unwrap(), &job, &[file.place()]).unwrap();
        a_priority_reaches_the_kernel(ring);
    }

    /// Reads `count` blocks of this test's own executable.
    fn read_all(setup: &Setup, job: &Job, count: u32) -> Vec<i32> {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let place = OpenTarget { fd: file.as_raw_fd(), is_device: false };
        let (mut ring, _) = Ring::new(setup, job, &[place]).unwrap();

        let bs = job.largest_block() as u32;
        let (mut results, mut free, mut queued) = (Vec::new(), (0..job.iodepth).collect::<Vec<_>>(), 0);
        while queued < count || ring.in_flight() > 0 {
            while queued < count {
                let Some(slot) = free.pop() else { break };
                ring.queue(slot, &piece(Direction::Read, u64::from(queued * bs), bs));
                queued += 1;
            }
            ring.enter(1, None).unwrap();
            let reaped = ring.reap(|slot, result| {
                assert!(!free.contains(&slot), "slot {slot} came twice");
                free.push(slot);
                results.push(result);
            });
            assert!(reaped > 0);
        }
        results
    }

    #[test]
    fn every_delivery_brings_each_slot_back_once() {
        if Setup::probe(&job(1, 4096)).is_err() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        for (delivery, no_array) in [
            (Delivery::Deferred, true),
            (Delivery::Deferred, false),
            (Delivery::Cooperative, false),
            (Delivery::Plain, false),
        ] {
            // A depth that is not a power of two, because the kernel rounds its queues up.
            let setup = setup(delivery, no_array, false);
            if setup.open(3).is_ok() {
                assert_eq!(read_all(&setup, &job(3, 4096), 10), [4096; 10], "{delivery:?}");
            }
        }
        let setup = setup(Delivery::Plain, false, true);
        if setup.open(3).is_ok() {
            assert_eq!(read_all(&setup, &job(3, 4096), 100), [4096; 100], "by the kernel's thread");
        }
    }

    #[test]
    fn files_and_buffers_need_no_registration() {
        let Ok(setup) = Setup::probe(&job(1, 4096)) else { return };
        let job = Job { registerfiles: false, fixedbufs: false, ..job(4, 8192) };
        assert_eq!(read_all(&setup, &job, 9), [8192; 9]);
    }

    #[test]
    fn a_thread_that_takes_registered_files_only_gets_them_unasked() {
        let old = Setup { any_file: false, ..setup(Delivery::Plain, false, true) };
        if let Err(e) = old.open(3) {
            return eprintln!("skipped: no thread of the kernel's here: {e}");
        }
        let job = Job { registerfiles: false, ..job(3, 4096) };
        assert_eq!(read_all(&old, &job, 9), [4096; 9]);
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let place = |fd| OpenTarget { fd, is_device: false };
        let registered =
            |setup: &Setup| Ring::new(setup, &job, &[place(file.as_raw_fd())]).unwrap().0.fixed_files;
        assert!(registered(&old));
        assert!(
            !registered(&Setup { any_file: true, ..old.clone() }),
            "who did not ask for it has it only there"
        );
        assert!(!registered(&Setup { fetched: false, ..old.clone() }));
        let why = Ring::new(&old, &job, &[place(i32::MAX)]).err().unwrap().to_string();
        assert!(why.contains("sqthread_poll needs registered files"), "{why}");
    }

    #[test]
    fn what_is_written_is_read_and_what_is_trimmed_is_gone() {
        let Ok(setup) = Setup::probe(&job(1, 4096)) else { return };
        let path = std::env::temp_dir().join(format!("biopsy-ring-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let place = OpenTarget { fd: file.as_raw_fd(), is_device: false };
        let (mut ring, _) = Ring::new(&setup, &job(2, 4096), &[place]).unwrap();

        let fill = |ring: &Ring, slot, byte| {
            // SAFETY: nothing is in flight in this slot, whose buffer is 4096 bytes long.
            unsafe { ring.buffer(slot).write_bytes(byte, 4096) };
        };
        let first = |ring: &Ring, slot| {
            // SAFETY: as above.
            unsafe { *ring.buffer(slot) }
        };
        let run = |ring: &mut Ring, slot, what: Option<PlannedIo>| {
            match what {
                Some(piece) => ring.queue(slot, &piece),
                None => ring.queue_sync(slot, 0, true),
            }
            let mut answer = None;
            while ring.in_flight() > 0 {
                ring.enter(1, None).unwrap();
                ring.reap(|_, result| answer = Some(result));
            }
            answer.unwrap()
        };
        fill(&ring, 0, 7);
        assert_eq!(run(&mut ring, 0, Some(piece(Direction::Write, 8192, 4096))), 4096);
        assert_eq!(run(&mut ring, 1, None), 0);
        assert_eq!(run(&mut ring, 1, Some(piece(Direction::Read, 8192, 4096))), 4096);
        assert_eq!(first(&ring, 1), 7);
        fill(&ring, 1, 9);
        assert_eq!(run(&mut ring, 1, Some(piece(Direction::Read, 8192, 512))), 512);
        // SAFETY: nothing is in flight in this slot.
        assert_eq!(unsafe { (*ring.buffer(1).add(511), *ring.buffer(1).add(512)) }, (7, 9));
        let trimmed = run(&mut ring, 0, Some(piece(Direction::Trim, 8192, 4096)));
        if trimmed == -libc::EOPNOTSUPP {
            eprintln!("skipped: this file system makes no holes");
            return;
        }
        assert_eq!(trimmed, 4096);
        assert_eq!(run(&mut ring, 1, Some(piece(Direction::Read, 8192, 4096))), 4096);
        assert_eq!(first(&ring, 1), 0);
        assert_eq!(run(&mut ring, 1, Some(piece(Direction::Read, 1 << 20, 4096))), 0, "behind the end");
    }

    #[test]
    fn requests_for_nothing_come_back_whatever_they_look_up() {
        if Setup::probe(&job(1, 4096)).is_err() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        for (registerfiles, fixedbufs) in [(true, true), (false, true), (true, false), (false, false)] {
            let job = Job { nop: true, registerfiles, fixedbufs, ..job(3, 4096) };
            let setup = Setup::probe(&job).unwrap();
            assert_eq!(read_all(&setup, &job, 10), [0; 10], "files {registerfiles}, buffers {fixedbufs}");
        }
    }

    #[test]
    fn a_wait_ends_when_its_time_is_over() {
        let Ok(setup) = Setup::probe(&job(1, 4096)) else { return };
        // Nothing is written to the pipe, so the read waits.
        let (reader, _writer) = std::io::pipe().unwrap();
        let place = OpenTarget { fd: reader.as_raw_fd(), is_device: false };
        let (mut ring, _) = Ring::new(&setup, &job(1, 4096), &[place]).unwrap();

        ring.queue(0, &piece(Direction::Read, u64::MAX, 4096));
        let begin = std::time::Instant::now();
        assert_eq!(ring.enter(1, Some(20_000_000)).unwrap(), 1);
        let passed = begin.elapsed().as_millis();
        assert!(!ring.uring.has_timeouts() || (20..2_000).contains(&passed), "{passed} ms");
        assert_eq!(ring.reap(|_, _| ()), 0);
    }
}
