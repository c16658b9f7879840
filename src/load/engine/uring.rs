//! A minimal io_uring: the two queues shared with the kernel, and the system calls around them.
//!
//! Entries are written in place, and a single store publishes a whole batch. A single store also returns all results of
//! one check. An operation costs nothing more here.

pub mod abi;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use abi::{Completion, CqOffsets, Entry, Params, Probe, ProbedOperation, Registration, SqOffsets};

/// Value of [`Registration`]'s offset that lets the kernel choose a place.
const ANY_PLACE: u32 = u32::MAX;

/// Memory that is shared with the kernel.
struct SharedMemory {
    base: NonNull<u8>,
    bytes: usize,
}

impl SharedMemory {
    fn map(fd: &OwnedFd, what: i64, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                what,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// A pointer to `count` values, `offset` bytes from the start. Checks that they lie inside the mapping.
    fn at<T>(&self, offset: u32, count: u32) -> io::Result<*mut T> {
        let end = count as usize * size_of::<T>() + offset as usize;
        if end > self.bytes || !(offset as usize).is_multiple_of(align_of::<T>()) {
            return Err(io::Error::other("the kernel placed a queue outside of its memory"));
        }
        Ok(self.base.as_ptr().wrapping_add(offset as usize).cast())
    }

    fn word(&self, offset: u32) -> io::Result<u32> {
        // SAFETY: inside the mapping and aligned; the kernel writes it once, before it is mapped.
        Ok(unsafe { self.at::<u32>(offset, 1)?.read() })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of the mapping, and everything that refers to it ends with it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A number in shared memory.
struct SharedNumber(NonNull<AtomicU32>);

impl SharedNumber {
    fn new(memory: &SharedMemory, offset: u32) -> io::Result<Self> {
        let place = NonNull::new(memory.at::<AtomicU32>(offset, 1)?);
        Ok(Self(place.ok_or_else(|| io::Error::other("a mapping at address 0"))?))
    }

    #[inline(always)]
    fn get(&self) -> &AtomicU32 {
        // SAFETY: it lies inside a mapping of the ring that owns it, and both sides use it as an atomic.
        unsafe { self.0.as_ref() }
    }
}

/// The submission queue: entries before `written` are ready, those before `shown` are published. The kernel had taken
/// those before `taken` at the last check.
struct Submissions<const MORE: usize> {
    entries: *mut Entry<MORE>,
    mask: u32,
    room: u32,
    written: u32,
    shown: u32,
    taken: u32,
    /// Where `written` has to stop, as of the last check.
    end: u32,
    head: SharedNumber,
    tail: SharedNumber,
    flags: SharedNumber,
}

/// The completion queue: results before `there` had arrived at the last check, those before `seen` were returned to the
/// kernel.
struct CompletionQueue<const MORE: usize> {
    entries: *const Completion<MORE>,
    mask: u32,
    seen: u32,
    there: u32,
    head: SharedNumber,
    tail: SharedNumber,
}

/// A ring whose entries and results have the given extra bytes and words after their common fields. It may only be used
/// by one thread, which registers it for itself.
pub struct Uring<const ENTRY_MORE: usize = { abi::USUAL }, const RESULT_MORE: usize = { abi::NOTHING }> {
    submissions: Submissions<ENTRY_MORE>,
    completions: CompletionQueue<RESULT_MORE>,
    /// How calls name the ring: its descriptor, or its index in the thread's table.
    name: i32,
    call_flags: u32,
    features: u32,
    // Declared after what refers to it, so it is dropped later.
    _memory: Vec<SharedMemory>,
    fd: OwnedFd,
}

impl<const ENTRY_MORE: usize, const RESULT_MORE: usize> Uring<ENTRY_MORE, RESULT_MORE> {
    /// Room for at least this many entries. `idle_ms` is how long the SQPOLL thread polls before it sleeps, if the
    /// flags request one.
    pub fn new(entries: u32, flags: u32, idle_ms: u32) -> io::Result<Self> {
        let wide = |bytes: usize, usual: usize, flag: u32| if bytes > usual { flag } else { 0 };
        let flags = flags
            | wide(size_of::<Entry<ENTRY_MORE>>(), size_of::<Entry<{ abi::USUAL }>>(), abi::SETUP_SQE128)
            | wide(
                size_of::<Completion<RESULT_MORE>>(),
                size_of::<Completion<{ abi::NOTHING }>>(),
                abi::SETUP_CQE32,
            );
        let mut params = Params { flags, sq_thread_idle: idle_ms, ..Params::default() };
        // SAFETY: the kernel reads and writes the parameters only.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, &raw mut params) };
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just created it, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };

        let SqOffsets { array, .. } = params.sq_off;
        let CqOffsets { cqes, .. } = params.cq_off;
        let count = |entries: u32, each: usize| entries as usize * each;
        let listed = flags & abi::SETUP_NO_SQARRAY == 0;
        let numbers = if listed { array as usize + count(params.sq_entries, size_of::<u32>()) } else { 0 };
        let results = cqes as usize + count(params.cq_entries, size_of::<Completion<RESULT_MORE>>());
        let (mut memory, places) = if params.features & abi::FEAT_SINGLE_MMAP != 0 {
            (vec![SharedMemory::map(&fd, abi::OFF_SQ_RING, numbers.max(results))?], (0, 0))
        } else {
            let submissions = SharedMemory::map(&fd, abi::OFF_SQ_RING, numbers)?;
            (vec![submissions, SharedMemory::map(&fd, abi::OFF_CQ_RING, results)?], (0, 1))
        };
        let own =
            SharedMemory::map(&fd, abi::OFF_SQES, count(params.sq_entries, size_of::<Entry<ENTRY_MORE>>()))?;
        let submissions = Submissions::new(&memory[places.0], &own, &params, listed)?;
        let completions = CompletionQueue::new(&memory[places.1], &params)?;
        memory.push(own);
        let name = fd.as_raw_fd();
        Ok(Self {
            submissions,
            completions,
            name,
            call_flags: 0,
            features: params.features,
            _memory: memory,
            fd,
        })
    }

    /// The next entry, which must be written completely: it has stale content.
    ///
    /// # Panics
    ///
    /// Where more entries are queued than there is room for.
    ///
    /// # Safety
    ///
    /// What the entry refers to must live until its result has arrived.
    #[inline(always)]
    pub unsafe fn next(&mut self) -> *mut Entry<ENTRY_MORE> {
        let queue = &mut self.submissions;
        if queue.written == queue.end {
            queue.make_room();
        }
        let place = queue.entries.wrapping_add((queue.written & queue.mask) as usize);
        queue.written = queue.written.wrapping_add(1);
        place
    }

    /// How many entries [`Uring::show`] will publish.
    #[inline]
    pub fn new_entries(&self) -> u32 {
        self.submissions.written.wrapping_sub(self.submissions.shown)
    }

    /// Publishes the queued entries to the kernel. Returns how many it has not taken yet.
    #[inline]
    pub fn show(&mut self) -> u32 {
        let queue = &mut self.submissions;
        queue.tail.get().store(queue.written, Ordering::Release);
        queue.shown = queue.written;
        queue.look();
        self.queued()
    }

    /// The same number as [`Uring::show`] returned, or as of the last call.
    #[inline]
    pub fn queued(&self) -> u32 {
        self.submissions.written.wrapping_sub(self.submissions.taken)
    }

    /// Whether the SQPOLL thread sleeps: check after [`Uring::show`].
    #[inline]
    pub fn sleeps(&self) -> bool {
        // The kernel thread checks the tail once more after it has set the flag.
        fence(Ordering::SeqCst);
        self.submissions.flags.get().load(Ordering::Relaxed) & abi::SQ_NEED_WAKEUP != 0
    }

    /// Checks for results. Returns how many are waiting.
    #[inline]
    pub fn look(&mut self) -> u32 {
        let queue = &mut self.completions;
        queue.there = queue.tail.get().load(Ordering::Acquire);
        queue.there.wrapping_sub(queue.seen)
    }

    /// The results of the last check that are not returned yet.
    #[inline(always)]
    pub fn results(&mut self) -> Results<'_, RESULT_MORE> {
        let CompletionQueue { entries, mask, seen, there, .. } = self.completions;
        Results { queue: &mut self.completions, entries, mask, at: seen, there }
    }

    /// Operations without a returned result: each entry has one result.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.submissions.written.wrapping_sub(self.completions.seen)
    }

    /// Submits the published entries and waits for `wait` results; with a timeout, where the kernel supports it (Linux
    /// 5.11), not longer. Elsewhere a call with a timeout does not wait. Returns how many entries were taken; None:
    /// timed out.
    #[inline]
    pub fn enter(
        &mut self,
        queued: u32,
        wait: u32,
        flags: u32,
        timeout_ns: Option<u64>,
    ) -> io::Result<Option<u32>> {
        let taken = match timeout_ns.filter(|_| wait > 0) {
            None => self.call(queued, wait, flags, ptr::null(), 0),
            Some(ns) if self.has_timeouts() => {
                let time = abi::Time {
                    seconds: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
                    nanoseconds: (ns % 1_000_000_000) as i64,
                };
                let time = (&raw const time) as u64;
                let arguments = abi::WaitArguments { time, ..abi::WaitArguments::default() };
                let bytes = size_of::<abi::WaitArguments>();
                self.call(queued, wait, flags | abi::ENTER_EXT_ARG, (&raw const arguments).cast(), bytes)
            }
            Some(_) => self.call(queued, 0, flags, ptr::null(), 0),
        };
        self.submissions.look();
        self.look();
        match taken {
            Ok(taken) => Ok(Some(taken)),
            Err(e) if e.raw_os_error() == Some(libc::ETIME) => Ok(None),
            Err(e) => Err(e),
        }
    }

    #[inline]
    fn call(&self, queued: u32, wait: u32, flags: u32, what: *const u8, bytes: usize) -> io::Result<u32> {
        let flags = flags | self.call_flags;
        // SAFETY: the arguments are null, or what the flags require and alive during the call; entries refer to live
        // memory, as `next` requires.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_uring_enter, self.name, queued, wait, flags, what, bytes) };
        if taken < 0 { Err(io::Error::last_os_error()) } else { Ok(taken as u32) }
    }

    /// The kernel's features: `FEAT_*`.
    pub fn features(&self) -> u32 {
        self.features
    }

    /// Whether waits can have a timeout.
    pub fn has_timeouts(&self) -> bool {
        self.features & abi::FEAT_EXT_ARG != 0
    }

    /// # Safety
    ///
    /// `what` must point to `count` values of the type that the operation takes.
    unsafe fn register<T>(&self, operation: u32, what: *const T, count: usize) -> io::Result<u32> {
        let fd = self.fd.as_raw_fd();
        let count = u32::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the caller guarantees it.
        let done = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, what, count) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done as u32) }
    }

    /// Registers files; entries can then refer to them by index.
    pub fn register_files(&self, files: &[RawFd]) -> io::Result<()> {
        // SAFETY: a list of descriptors.
        unsafe { self.register(abi::REGISTER_FILES, files.as_ptr(), files.len()) }.map(|_| ())
    }

    pub fn unregister_files(&self) -> io::Result<()> {
        // SAFETY: it takes nothing.
        unsafe { self.register::<u8>(abi::UNREGISTER_FILES, ptr::null(), 0) }.map(|_| ())
    }

    /// Registers buffers; entries can then refer to them by index.
    ///
    /// # Safety
    ///
    /// They must stay mapped as long as the ring exists.
    pub unsafe fn register_buffers(&self, buffers: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: a list of mapped memory ranges.
        unsafe { self.register(abi::REGISTER_BUFFERS, buffers.as_ptr(), buffers.len()) }.map(|_| ())
    }

    /// Registers the ring in the calling thread's table, so that calls need not look up its descriptor (Linux 5.18).
    pub fn register_ring(&mut self) -> io::Result<()> {
        let mut place = Registration { offset: ANY_PLACE, reserved: 0, data: self.fd.as_raw_fd() as u64 };
        // SAFETY: one registration, into which the kernel writes the index that it has chosen.
        unsafe { self.register(abi::REGISTER_RING_FDS, &raw mut place, 1) }?;
        self.name = place.offset as i32;
        self.call_flags = abi::ENTER_REGISTERED_RING;
        Ok(())
    }

    /// Whether the kernel supports the operation.
    pub fn has(&self, opcode: u8) -> bool {
        let mut probe = Probe {
            last: 0,
            count: 0,
            reserved: 0,
            reserved_too: [0; 3],
            operations: [ProbedOperation::default(); abi::PROBED],
        };
        // SAFETY: a probe with room for so many operations.
        let told = unsafe { self.register(abi::REGISTER_PROBE, &raw mut probe, abi::PROBED) };
        told.is_ok() && probe.operations[usize::from(opcode)].flags & abi::OP_SUPPORTED != 0
    }
}

impl<const ENTRY_MORE: usize, const RESULT_MORE: usize> Drop for Uring<ENTRY_MORE, RESULT_MORE> {
    fn drop(&mut self) {
        // Otherwise the thread's table would keep the ring open.
        if self.call_flags & abi::ENTER_REGISTERED_RING != 0 {
            let place = Registration { offset: self.name as u32, reserved: 0, data: 0 };
            // SAFETY: one registration, in the table of this thread: a ring is never sent to another.
            let _gone = unsafe { self.register(abi::UNREGISTER_RING_FDS, &raw const place, 1) };
        }
    }
}

/// Iterates over results: `user_data` and the result code.
pub struct Results<'a, const MORE: usize> {
    queue: &'a mut CompletionQueue<MORE>,
    entries: *const Completion<MORE>,
    mask: u32,
    at: u32,
    there: u32,
}

impl<const MORE: usize> Iterator for Results<'_, MORE> {
    type Item = (u64, i32);

    #[inline(always)]
    fn next(&mut self) -> Option<(u64, i32)> {
        if self.at == self.there {
            return None;
        }
        // SAFETY: the mask keeps the index inside the queue, and the kernel does not write there again until the result
        // is returned.
        let Completion { user_data, result, .. } =
            unsafe { self.entries.wrapping_add((self.at & self.mask) as usize).read() };
        self.at = self.at.wrapping_add(1);
        Some((user_data, result))
    }
}

impl<const MORE: usize> Results<'_, MORE> {
    /// Returns the results that were taken out: otherwise the kernel would count them as still available and not wait
    /// for others.
    #[inline(always)]
    pub fn end(self) {
        self.queue.seen = self.at;
        self.queue.head.get().store(self.at, Ordering::Release);
    }
}

impl<const MORE: usize> Submissions<MORE> {
    fn new(memory: &SharedMemory, entries: &SharedMemory, params: &Params, listed: bool) -> io::Result<Self> {
        let at = &params.sq_off;
        if listed {
            // The index array maps each slot of the queue to the entry of the same number, once and for all.
            let numbers = memory.at::<u32>(at.array, params.sq_entries)?;
            for number in 0..params.sq_entries {
                // SAFETY: inside the mapping, and the kernel reads only up to the tail.
                unsafe { numbers.wrapping_add(number as usize).write(number) };
            }
        }
        let queue = Self {
            entries: entries.at(0, params.sq_entries)?,
            mask: memory.word(at.ring_mask)?,
            room: params.sq_entries,
            written: 0,
            shown: 0,
            taken: 0,
            end: params.sq_entries,
            head: SharedNumber::new(memory, at.head)?,
            tail: SharedNumber::new(memory, at.tail)?,
            flags: SharedNumber::new(memory, at.flags)?,
        };
        in_range(queue.mask, params.sq_entries)?;
        Ok(queue)
    }

    /// Reads how far the kernel has taken entries.
    #[inline(always)]
    fn look(&mut self) {
        self.taken = self.head.get().load(Ordering::Acquire);
        self.end = self.taken.wrapping_add(self.room);
    }

    #[cold]
    fn make_room(&mut self) {
        self.look();
        assert!(self.written != self.end, "the queue has room for {} operations", self.room);
    }
}

impl<const MORE: usize> CompletionQueue<MORE> {
    fn new(memory: &SharedMemory, params: &Params) -> io::Result<Self> {
        let at = &params.cq_off;
        let queue = Self {
            entries: memory.at(at.cqes, params.cq_entries)?,
            mask: memory.word(at.ring_mask)?,
            seen: 0,
            there: 0,
            head: SharedNumber::new(memory, at.head)?,
            tail: SharedNumber::new(memory, at.tail)?,
        };
        in_range(queue.mask, params.cq_entries)?;
        Ok(queue)
    }
}

/// Checks that masked indices stay below the count.
fn in_range(mask: u32, entries: u32) -> io::Result<()> {
    let fits = mask < entries;
    fits.then_some(())
        .ok_or_else(|| io::Error::other("the kernel's mask of a queue is larger than the queue"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::{Head, Rest, Verb};

    fn ring(entries: u32, flags: u32) -> Option<Uring> {
        let made = Uring::new(entries, flags, 0);
        if let Err(e) = &made {
            eprintln!("skipped: no ring with flags {flags:#x} here: {e}");
        }
        made.ok()
    }

    fn nothing(user_data: u64) -> Entry<{ abi::USUAL }> {
        let rest = Rest { user_data, ..Rest::default() };
        Entry { head: Head { verb: Verb::default(), offset: 0, rest }, more: [0; abi::USUAL] }
    }

    /// Queues NOPs with these numbers.
    fn queue(ring: &mut Uring, numbers: std::ops::Range<u64>) {
        for number in numbers {
            // SAFETY: it refers to nothing, and the slot is inside the queue.
            unsafe { ring.next().write(nothing(number)) };
        }
    }

    fn results(ring: &mut Uring) -> Vec<(u64, i32)> {
        let mut results = ring.results();
        let found = results.by_ref().collect();
        results.end();
        found
    }

    #[test]
    fn each_entry_comes_back_also_where_the_queue_begins_anew() {
        for flags in [0, abi::SETUP_NO_SQARRAY, abi::SETUP_SINGLE_ISSUER | abi::SETUP_DEFER_TASKRUN] {
            // The kernel rounds five up to eight, and three batches of three do not end at the queue's end.
            let Some(mut ring) = ring(5, flags) else { continue };
            let _older_kernel = ring.register_ring();
            for first in (0..30).step_by(3) {
                queue(&mut ring, first..first + 3);
                assert_eq!((ring.new_entries(), ring.show(), ring.new_entries()), (3, 3, 0));
                assert_eq!(ring.look(), 0, "nothing is done before the call");
                assert_eq!(ring.enter(3, 3, abi::ENTER_GETEVENTS, None).unwrap(), Some(3));
                assert_eq!(ring.queued(), 0);
                assert_eq!(results(&mut ring), [(first, 0), (first + 1, 0), (first + 2, 0)]);
                assert_eq!(results(&mut ring), [], "they were given back");
            }
        }
    }

    #[test]
    fn wide_entries_and_results_keep_their_place() {
        let Ok(mut ring) = Uring::<{ abi::COMMAND }, { abi::ANSWER }>::new(2, 0, 0) else {
            eprintln!("skipped: no wide entries here (Linux 5.19)");
            return;
        };
        for number in 0..7 {
            let rest = Rest { user_data: number, ..Rest::default() };
            let head = Head { verb: Verb::default(), offset: 0, rest };
            // SAFETY: it refers to nothing, and the slot is inside the queue.
            unsafe { ring.next().write(Entry { head, more: [0; abi::COMMAND] }) };
            ring.show();
            assert_eq!(ring.enter(1, 1, abi::ENTER_GETEVENTS, None).unwrap(), Some(1));
            let mut results = ring.results();
            assert_eq!((results.next(), results.next()), (Some((number, 0)), None));
            results.end();
            assert_eq!(ring.in_flight(), 0);
        }
    }

    #[test]
    #[should_panic(expected = "room for 4 operations")]
    fn more_than_there_is_room_for_is_no_silent_loss() {
        match ring(4, 0) {
            Some(mut ring) => queue(&mut ring, 0..5),
            None => panic!("room for 4 operations"),
        }
    }

    #[test]
    fn operations_that_the_kernel_has_are_known() {
        let Some(ring) = ring(1, 0) else { return };
        assert!(ring.has(abi::OP_READ) && !ring.has(u8::MAX));
    }

    /// A thread's table has room for 16 rings.
    #[test]
    fn a_ring_that_ends_leaves_the_table() {
        for _ in 0..40 {
            let Some(mut ring) = ring(1, 0) else { return };
            if let Err(e) = ring.register_ring() {
                assert_eq!(e.raw_os_error(), Some(libc::EINVAL), "before Linux 5.18 there is no table");
            }
        }
    }
}
