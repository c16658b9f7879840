//! The libaio engine: Linux AIO through its system calls, without the library.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::super::buffers::Slots;
use super::super::job::{Direction, Job};
use super::super::sequence::PlannedIo;
use super::sync::SyncResults;
use super::trim::{one_by_one, trim};
use super::{Engine, OpenTarget, rw_flags};
use crate::refusal::{Refusal, reason};

/// `IOCB_CMD_*` of linux/aio_abi.h.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;

/// `struct iocb` of linux/aio_abi.h, on a little-endian machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_file: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32);

/// `struct aio_ring` of fs/aio.c. The kernel maps it at the address that is the context's id, and its events follow.
/// The reader moves the head.
#[repr(C)]
struct AioRing {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

/// `AIO_RING_MAGIC` of fs/aio.c.
const MAGIC: u32 = 0xa10a_10a1;

/// A context, and an iocb and a buffer per slot.
#[derive(Debug)]
pub struct Aio {
    context: libc::c_ulong,
    /// The context's ring has the expected layout, so that events can be read without a system call.
    visible: bool,
    iocbs: Vec<Iocb>,
    /// Not submitted yet.
    queued: Vec<*mut Iocb>,
    /// Submitted operations whose event was not fetched yet.
    outside: u32,
    events: Vec<IoEvent>,
    /// Number of fetched events that are not reaped yet.
    fetched: usize,
    done: SyncResults,
    slots: Slots,
    places: Vec<OpenTarget>,
    /// By direction.
    rw_flags: [u32; 3],
}

impl Aio {
    /// A context for the job's depth, with buffers on the given nodes. The targets must stay open while it lives. Also
    /// returns requested features that are not available.
    pub fn new(job: &Job, places: &[OpenTarget], nodes: &[u32]) -> Result<(Self, Vec<String>)> {
        let (slots, mut missing) = Slots::new(job, nodes)?;
        let depth = slots.depth();
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes the context's number to a variable of ours.
        if unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) } != 0 {
            return Err(unavailable(&io::Error::last_os_error()).into());
        }
        if job.hipri {
            missing.push("hipri: libaio cannot poll; use --ioengine io_uring for it".to_string());
        }
        if !job.direct && depth > 1 {
            missing.push(
                "iodepth: libaio does buffered reads and writes one after the other; use --direct 1 or \
                 --ioengine io_uring"
                    .to_string(),
            );
        }
        missing.extend(one_by_one(job));
        let shared = context as *const AioRing;
        // SAFETY: the kernel maps the ring there, at least a page, until the context is destroyed.
        let visible = unsafe {
            (*shared).magic == MAGIC
                && (*shared).incompatible == 0
                && (*shared).header_bytes as usize == size_of::<AioRing>()
        };
        let aio = Self {
            context,
            visible,
            iocbs: vec![Iocb::default(); depth as usize],
            queued: Vec::with_capacity(depth as usize),
            outside: 0,
            events: vec![IoEvent::default(); depth as usize],
            fetched: 0,
            done: SyncResults::new(depth),
            slots,
            places: places.to_vec(),
            rw_flags: Direction::ALL.map(|direction| rw_flags(job, direction)),
        };
        Ok((aio, missing))
    }

    #[inline]
    fn transfer(&mut self, slot: u32, piece: &PlannedIo, priority: Option<u16>) {
        /// `IOCB_FLAG_IOPRIO`.
        const PRIORITY: u32 = 2;
        let place = self.places[usize::from(piece.file)];
        let opcode = match piece.direction {
            Direction::Read => PREAD,
            Direction::Write => PWRITE,
            Direction::Trim => return self.done.push(slot, trim(&place, piece.offset, piece.bytes)),
        };
        let iocb = Iocb {
            data: slot.into(),
            rw_flags: self.rw_flags[piece.direction.index()],
            opcode,
            priority: priority.unwrap_or(0) as i16,
            flags: if priority.is_some() { PRIORITY } else { 0 },
            file: place.fd as u32,
            buffer: self.slots.room(slot, piece.bytes) as u64,
            bytes: piece.bytes.into(),
            // An offset beyond the largest file becomes negative, and the kernel refuses it.
            offset: piece.offset as i64,
            ..Iocb::default()
        };
        self.push(slot, iocb);
    }

    #[inline]
    fn push(&mut self, slot: u32, iocb: Iocb) {
        assert!(slot < self.slots.depth(), "slot {slot} of {}", self.slots.depth());
        let at = self.iocbs.as_mut_ptr().wrapping_add(slot as usize);
        // SAFETY: there is one per slot; the kernel copies those of a call before it returns.
        unsafe { *at = iocb };
        self.queued.push(at);
    }

    /// Submits what is queued. Returns how many the kernel took or refused at once.
    fn submit(&mut self) -> io::Result<u32> {
        let early = self.done.taken();
        let (mut first, mut no_room) = (0, None);
        while first < self.queued.len() {
            // SAFETY: the pointers are those of iocbs of ours, whose buffers live until the context is
            // destroyed.
            let taken = unsafe {
                let rest = self.queued.as_ptr().add(first);
                libc::syscall(libc::SYS_io_submit, self.context, self.queued.len() - first, rest)
            };
            if taken > 0 {
                first += taken as usize;
                self.outside += taken as u32;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // There will be room when results are fetched.
                Some(libc::EAGAIN) => {
                    no_room = Some(error);
                    break;
                }
                // The error belongs to the first iocb: after a success the kernel would have returned the count.
                errno => {
                    // SAFETY: as above; nothing else refers to it.
                    let slot = unsafe { (*self.queued[first]).data } as u32;
                    self.done.push(slot, -errno.unwrap_or(libc::EIO));
                    first += 1;
                }
            }
        }
        self.queued.drain(..first);
        // Refused operations are already counted in `first`.
        self.done.taken();
        match no_room {
            Some(error) if first == 0 && self.done.len() == 0 && self.outside == 0 => Err(error),
            _ => Ok(early + first as u32),
        }
    }

    /// Takes events directly from the mapped ring.
    fn look(&mut self) {
        if !self.visible {
            return;
        }
        let shared = self.context as *const AioRing;
        // SAFETY: the ring is mapped until the context is destroyed. The kernel fills an event before it moves the
        // tail. It does not write there again until the head has passed it, and only this thread moves the head.
        unsafe {
            let (events, count) = (shared.add(1).cast::<IoEvent>(), (*shared).events);
            let mut head = (*shared).head.load(Ordering::Relaxed);
            let tail = (*shared).tail.load(Ordering::Acquire);
            while head != tail && self.fetched < self.events.len() {
                self.events[self.fetched] = events.add(head as usize).read_volatile();
                self.fetched += 1;
                self.outside -= 1;
                head = if head + 1 >= count { 0 } else { head + 1 };
            }
            (*shared).head.store(head, Ordering::Release);
        }
    }

    /// Fetches events with a system call: at least `wait`, or those that arrive before the timeout.
    fn fetch(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<()> {
        let time = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        let until = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: there is room for as many events as requested: no more are in flight than there are slots.
        let found = unsafe {
            let room = self.events.len() - self.fetched;
            let into = self.events.as_mut_ptr().add(self.fetched);
            libc::syscall(libc::SYS_io_getevents, self.context, wait as libc::c_long, room, into, until)
        };
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        self.fetched += found as usize;
        self.outside -= found as u32;
        Ok(())
    }
}

impl Engine for Aio {
    const IS_SYNCHRONOUS: bool = false;
    const SUBMITS_APART: bool = true;

    fn trims_at_once(&self) -> bool {
        true
    }

    #[inline]
    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        self.transfer(slot, piece, None);
    }

    fn queue_with_priority(&mut self, slot: u32, piece: &PlannedIo, priority: u16) {
        self.transfer(slot, piece, Some(priority));
    }

    fn queue_sync(&mut self, slot: u32, file: u16, data_only: bool) {
        let iocb = Iocb {
            data: slot.into(),
            opcode: if data_only { FDSYNC } else { FSYNC },
            file: self.places[usize::from(file)].fd as u32,
            ..Iocb::default()
        };
        self.push(slot, iocb);
    }

    /// Submits everything queued with one call. A second call follows only if `wait` completions are not there yet, so
    /// with 0 none is made to fetch results.
    #[inline]
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let taken = self.submit()?;
        self.look();
        let there = self.fetched as u32 + self.done.len();
        let missing = wait.saturating_sub(there).min(self.outside);
        if missing > 0 || (!self.visible && self.outside > 0) {
            match self.fetch(missing, timeout_ns) {
                // A signal must not hide that operations were submitted.
                Err(e) if e.raw_os_error() == Some(libc::EINTR) && taken > 0 => {}
                told => told?,
            }
        }
        Ok(taken)
    }

    fn left(&self) -> u32 {
        self.queued.len() as u32
    }

    #[inline]
    fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let reaped = self.done.reap(&mut found) + self.fetched as u32;
        self.events[..self.fetched].iter().for_each(|event| found(event.data as u32, event.result as i32));
        self.fetched = 0;
        reaped
    }

    fn in_flight(&self) -> u32 {
        self.queued.len() as u32 + self.outside + self.fetched as u32 + self.done.len()
    }

    fn buffer(&self, slot: u32) -> *mut u8 {
        self.slots.at(slot)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours; the call waits for the operations in flight, so the buffers are free after it.
        if unsafe { libc::syscall(libc::SYS_io_destroy, self.context) } != 0 && self.outside > 0 {
            self.slots.keep();
        }
    }
}

fn unavailable(error: &io::Error) -> Refusal {
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            let most = fs::read_to_string("/proc/sys/fs/aio-max-nr").unwrap_or_default();
            format!(
                "no room for another libaio context (fs.aio-max-nr = {}): raise the limit with sysctl, or \
                 choose a smaller --iodepth or fewer --numjobs",
                most.trim()
            )
        }
        Some(libc::ENOSYS) => {
            "this kernel has no libaio system calls, or a system call filter hides them: use --ioengine \
             io_uring or psync"
                .to_string()
        }
        _ => format!("cannot set up libaio: {}; use --ioengine io_uring or psync", reason(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self, BLOCK, Disk, Scratch};
    use super::*;
    use crate::load::job;

    fn engine(depth: u32, places: &[OpenTarget]) -> Aio {
        Aio::new(&tests::job(job::Engine::Libaio, depth), places, &[]).unwrap().0
    }

    #[test]
    fn what_is_written_is_read_back_whether_or_not_the_ring_is_seen() {
        let disk = Disk::filled("aio", 1 << 20, 0);
        for visible in [true, false] {
            let file = Scratch::filled(&format!("aio-{visible}"), 200 * BLOCK, 0);
            for place in [Some(file.place()), disk.as_ref().map(Disk::place)].into_iter().flatten() {
                let mut engine = engine(64, &[place]);
                engine.visible &= visible;
                tests::writes_come_back(&mut engine, 64, 200);
            }
        }
    }

    #[test]
    fn a_priority_reaches_the_kernel() {
        let file = Scratch::filled("aio-priority", BLOCK, 1);
        tests::a_priority_reaches_the_kernel(engine(1, &[file.place()]));
    }

    /// Two reads of one batch; the first is much longer and on another disk.
    #[test]
    fn results_come_in_the_order_in_which_they_are_there() {
        const LONG: u32 = 32 << 20;
        let disk = |name, bytes| Disk::filled(name, bytes, 1);
        let (Some(slow), Some(fast)) = (disk("aio-slow", LONG as usize), disk("aio-fast", 1 << 20)) else {
            return;
        };
        let mut large = tests::job(job::Engine::Libaio, 2);
        large.set_bs(LONG.into());
        let (mut engine, _) = Aio::new(&large, &[slow.place(), fast.place()], &[]).unwrap();
        let mut turned = 0;
        for _ in 0..20 {
            for (file, bytes) in [(0, LONG), (1, BLOCK)] {
                let piece = PlannedIo { direction: Direction::Read, file, bytes, offset: 0 };
                engine.queue(file.into(), &piece);
            }
            let mut order = Vec::new();
            while engine.in_flight() > 0 {
                engine.enter(1, None).unwrap();
                engine.reap(|slot, result| order.push((slot, result)));
            }
            turned += u32::from(order[0].0 == 1);
            order.sort_unstable();
            assert_eq!(order, [(0, LONG as i32), (1, BLOCK as i32)]);
        }
        assert!(turned > 0, "20 reads of {LONG} bytes were as fast as one of {BLOCK}");
    }

    #[test]
    fn the_end_of_a_file_is_a_short_read() {
        let file = Scratch::filled("aio-end", BLOCK + BLOCK / 2, 1);
        tests::the_end_is_short(&mut engine(4, &[file.place()]));
    }

    #[test]
    fn an_error_is_a_result() {
        tests::errors_are_results(&mut engine(1, &[OpenTarget { fd: -1, is_device: false }]), -libc::EBADF);
        let Some(disk) = Disk::filled("aio-misaligned", 1 << 20, 0) else { return };
        let mut engine = engine(1, &[disk.place()]);
        assert_eq!(tests::one(&mut engine, Direction::Read, 1, BLOCK), -libc::EINVAL);
        assert_eq!(tests::one(&mut engine, Direction::Read, u64::MAX, BLOCK), -libc::EINVAL);
    }

    #[test]
    fn one_that_is_refused_keeps_none_of_its_batch_back() {
        let file = Scratch::filled("aio-batch", 8 * BLOCK, 1);
        let mut engine = engine(8, &[file.place(), OpenTarget { fd: -1, is_device: false }]);
        for slot in 0..8 {
            let (file, offset) = (u16::from(slot % 3 == 0), u64::from(slot * BLOCK));
            engine.queue(slot, &PlannedIo { direction: Direction::Read, file, bytes: BLOCK, offset });
        }
        assert_eq!(engine.enter(8, None).unwrap(), 8);
        let mut results = [0; 8];
        assert_eq!(engine.reap(|slot, result| results[slot as usize] = result), 8);
        let (bad, good) = (-libc::EBADF, BLOCK as i32);
        assert_eq!(results, [bad, good, good, bad, good, good, bad, good]);
        assert_eq!((engine.in_flight(), engine.enter(1, None).unwrap()), (0, 0), "nothing is waited for");
    }

    #[test]
    fn trims_and_syncs_go_the_same_way() {
        let file = Scratch::filled("aio-trims", 4 * BLOCK, 3);
        tests::trims_and_syncs(&mut engine(4, &[file.place()]), &file);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let odd = Job { hipri: true, direct: false, ..tests::job(job::Engine::Libaio, 4) };
        let (_, missing) = Aio::new(&odd, &[], &[]).unwrap();
        assert!(missing[0].starts_with("hipri: ") && missing[1].starts_with("iodepth: "), "{missing:?}");
        let why = |errno| unavailable(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(why(libc::EAGAIN).contains("fs.aio-max-nr"));
        assert!(why(libc::ENOSYS).contains("this kernel has no libaio"));
    }
}
