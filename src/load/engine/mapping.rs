//! fio's `mmap` engine: a read copies from a mapping of the target, a write copies to it.
//!
//! If the target has become shorter, or a page cannot be read, a copy raises SIGBUS, which would end the process. A
//! check beforehand is not safe, as the file may shrink during the copy. So a signal handler maps anonymous memory over
//! the missing pages. The copy then continues, its result is an error, and the file is mapped there again.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use anyhow::Result;

use super::super::buffers::Slots;
use super::super::job::{Advice, Direction, Job};
use super::super::sequence::PlannedIo;
use super::OpenTarget;
use super::sync::{SyncResults, Synchronous, answer, sync};
use crate::refusal::{Refusal, reason};

/// A target, mapped as a whole.
#[derive(Debug)]
struct Region {
    place: OpenTarget,
    /// Null where the target is empty.
    base: *mut u8,
    /// Size of the target when it was mapped.
    bytes: u64,
    protection: libc::c_int,
    /// Errno of a failed attempt to map a part of it again.
    broken: Option<i32>,
}

impl Region {
    fn new(place: OpenTarget, writes: bool) -> io::Result<Self> {
        let bytes = size(&place)?;
        let protection = libc::PROT_READ | if writes { libc::PROT_WRITE } else { 0 };
        let mut region = Self { place, base: ptr::null_mut(), bytes, protection, broken: None };
        let length = usize::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        if length > 0 {
            region.base = map(ptr::null_mut(), length, protection, libc::MAP_SHARED, (place.fd, 0))?;
        }
        Ok(region)
    }

    fn advise(&self, advice: libc::c_int) {
        if !self.base.is_null() {
            // SAFETY: advice about a mapping of our own.
            unsafe { libc::madvise(self.base.cast(), self.bytes as usize, advice) };
        }
    }

    /// Address of the range, and how many of its bytes are mapped.
    #[inline]
    fn part(&self, offset: u64, bytes: u32) -> (*mut u8, usize) {
        let there = self.bytes.saturating_sub(offset).min(bytes.into()) as usize;
        if there == 0 {
            return (ptr::null_mut(), 0);
        }
        // SAFETY: the offset lies inside the mapping.
        (unsafe { self.base.add(offset as usize) }, there)
    }

    /// Copies between a buffer and the mapping, whose pages are `window`. Returns the bytes, or a negative errno.
    fn copy(&mut self, (from, to, bytes): (*const u8, *mut u8, usize), window: CopyRange) -> i32 {
        if let Some(errno) = self.broken {
            return -errno;
        }
        WINDOW.set(window);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: both are as long; a mapping is no memory that Rust knows of, and the handler replaces a missing page.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
        compiler_fence(Ordering::SeqCst);
        if WINDOW.replace(CopyRange::NONE).length == window.length {
            return bytes as i32;
        }
        self.repair(window)
    }

    /// Maps the target again where the handler put anonymous memory. Returns the result of the copy: 0 at the end of a
    /// shortened target, as a read would, otherwise a negative errno.
    #[cold]
    fn repair(&mut self, window: CopyRange) -> i32 {
        let offset = window.begin - self.base as usize;
        let again = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = self.base.wrapping_add(offset);
        let mapped = map(at, window.length, self.protection, again, (self.place.fd, offset as u64));
        self.broken = mapped.err().map(|e| e.raw_os_error().unwrap_or(libc::EIO));
        match size(&self.place) {
            Ok(now) if now < self.bytes => 0,
            _ if is_full(&self.place, window.length as u64) => -libc::ENOSPC,
            _ => -libc::EIO,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.base.is_null() {
            // SAFETY: a mapping of our own, to which nothing refers any more.
            unsafe { libc::munmap(self.base.cast(), self.bytes as usize) };
        }
    }
}

/// Maps a part of a file.
fn map(
    at: *mut u8,
    bytes: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    (fd, offset): (libc::c_int, u64),
) -> io::Result<*mut u8> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: with MAP_FIXED it replaces a part of a mapping of our own, else the kernel chooses the place.
    let base = unsafe { libc::mmap(at.cast(), bytes, protection, flags, fd, offset) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Size of a file or device in bytes.
fn size(place: &OpenTarget) -> io::Result<u64> {
    // SAFETY: it only moves the file position, which is not used.
    let end = unsafe { libc::lseek(place.fd, 0, libc::SEEK_END) };
    u64::try_from(end).map_err(|_| io::Error::last_os_error())
}

/// Whether the file system has no room for this many bytes, so that a missing block cannot be allocated.
fn is_full(place: &OpenTarget, bytes: u64) -> bool {
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: zeroed is a valid statvfs, and the call only writes to it.
    let (answer, found) = unsafe { (libc::fstatvfs(place.fd, found.as_mut_ptr()), found.assume_init()) };
    // SAFETY: it only asks.
    let is_root = unsafe { libc::geteuid() } == 0;
    let free = if is_root { found.f_bfree } else { found.f_bavail };
    // A file system without a limit reports no blocks.
    answer == 0 && !place.is_device && found.f_blocks > 0 && free.saturating_mul(found.f_frsize) < bytes
}

fn page() -> usize {
    // SAFETY: it only asks.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The pages of a mapping that this thread copies from or to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CopyRange {
    begin: usize,
    /// 0: no copy is running, or the handler has replaced pages.
    length: usize,
}

impl CopyRange {
    const NONE: Self = Self { begin: 0, length: 0 };

    /// The pages of these bytes.
    fn of(at: *const u8, bytes: usize, page: usize) -> Self {
        let begin = at as usize & !(page - 1);
        Self { begin, length: (at as usize + bytes).next_multiple_of(page) - begin }
    }
}

thread_local! {
    /// Has no destructor and a constant initial value, so that a signal handler may use it.
    static WINDOW: Cell<CopyRange> = const { Cell::new(CopyRange::NONE) };
}

/// The previous SIGBUS action, for every SIGBUS that is not caused by a copy.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler once per process. It stays installed, because other handlers may have been chained on top of
/// it.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Option<i32>> = OnceLock::new();
    let failed = INSTALLED.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeroed is a valid sigaction, and the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0 {
                return io::Error::last_os_error().raw_os_error();
            }
            BEFORE.get_or_init(|| before.assume_init());
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_bus_error as *const () as usize;
            // Runs on the thread's signal stack, which the Rust runtime uses for stack overflows.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
                return io::Error::last_os_error().raw_os_error();
            }
        }
        None
    });
    failed.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

/// Async-signal-safe: uses only system calls, a thread-local and errno.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes what SA_SIGINFO promises.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let window = WINDOW.get();
    // Codes up to 0: another process sent the signal, and there is no address.
    if code > 0 && at.wrapping_sub(window.begin) < window.length {
        // SAFETY: errno is thread-local. The replaced pages belong to a mapping that this thread copies from or to, and
        // no reference points to them.
        unsafe {
            let errno = *libc::__errno_location();
            let memory = libc::mmap(
                window.begin as *mut c_void,
                window.length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            );
            *libc::__errno_location() = errno;
            if memory != libc::MAP_FAILED {
                WINDOW.set(CopyRange { length: 0, ..window });
                return;
            }
        }
    }
    pass_on(signal, code, info, context);
}

/// Acts as if the handler were not installed.
fn pass_on(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if handler == libc::SIG_IGN && code <= 0 {
        return;
    }
    // SAFETY: the address is that of a handler which the process had installed, with the signature that its flags
    // state.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            // The kernel does not ignore a fault either. When this handler returns, the fault happens again, and a
            // signal that was sent is raised again.
            libc::signal(signal, libc::SIG_DFL);
            if code <= 0 {
                libc::raise(signal);
            }
        } else if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) {
            type Long = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Long>(handler)(signal, info, context);
        } else {
            type Short = extern "C" fn(libc::c_int);
            std::mem::transmute::<usize, Short>(handler)(signal);
        }
    }
}

/// Mappings of the job's targets, and buffers to copy to and from.
#[derive(Debug)]
pub struct MappingEngine {
    slots: Slots,
    regions: Vec<Region>,
    page: usize,
    /// Drops the pages from the page cache after each operation.
    direct: bool,
    done: SyncResults,
}

impl MappingEngine {
    /// Maps all targets with their current sizes: files to be written must have their full length, and be open for
    /// reading and writing. The targets must stay open while it lives. Also returns requested features that are not
    /// available.
    pub fn new(job: &Job, places: &[OpenTarget], nodes: &[u32]) -> Result<(Self, Vec<String>)> {
        let failed = |e: &io::Error| {
            Refusal::Refused(format!(
                "cannot map the target into memory: {}; use --ioengine psync for it",
                reason(e)
            ))
        };
        install().map_err(|e| failed(&e))?;
        let (slots, mut missing) = Slots::new(job, nodes)?;
        let writes = job.rw.has(Direction::Write);
        let regions = places.iter().map(|place| {
            // The handler maps normal pages.
            if in_huge_pages(place) {
                return Err(io::Error::other("its file system has only huge pages"));
            }
            Region::new(*place, writes)
        });
        let regions = regions.collect::<io::Result<Vec<_>>>().map_err(|e| failed(&e))?;
        let advice = match job.advice {
            Advice::Random => Some(libc::MADV_RANDOM),
            Advice::ByPattern if job.rw.is_random() => Some(libc::MADV_RANDOM),
            Advice::ByPattern | Advice::Sequential => Some(libc::MADV_SEQUENTIAL),
            Advice::Nothing => None,
        };
        advice.into_iter().for_each(|advice| regions.iter().for_each(|region| region.advise(advice)));
        if job.hipri {
            missing.push("hipri: mmap cannot poll; use --ioengine io_uring for it".to_string());
        }
        if job.direct {
            missing.push(
                "direct: a mapping goes through the page cache; each block is written back and dropped from it after \
                 its operation"
                    .to_string(),
            );
        }
        let done = SyncResults::new(slots.depth());
        Ok((Self { slots, regions, page: page(), direct: job.direct, done }, missing))
    }
}

impl Synchronous for MappingEngine {
    fn slots(&self) -> &Slots {
        &self.slots
    }

    fn done(&self) -> &SyncResults {
        &self.done
    }

    fn done_mut(&mut self) -> &mut SyncResults {
        &mut self.done
    }

    fn place(&self, file: u16) -> &OpenTarget {
        &self.regions[usize::from(file)].place
    }

    #[inline]
    fn moved(&mut self, slot: u32, piece: &PlannedIo) -> i32 {
        let buffer = self.slots.room(slot, piece.bytes);
        let region = &mut self.regions[usize::from(piece.file)];
        let (at, bytes) = region.part(piece.offset, piece.bytes);
        let writes = piece.direction == Direction::Write;
        if bytes == 0 {
            // Same as a read at the end of a file, and a write at the end of a device.
            return if writes && piece.bytes > 0 { -libc::ENOSPC } else { 0 };
        }
        let window = CopyRange::of(at, bytes, self.page);
        let copy = if writes { (buffer.cast_const(), at, bytes) } else { (at.cast_const(), buffer, bytes) };
        let told = region.copy(copy, window);
        if !self.direct || told < 0 {
            return told;
        }
        let file_offset = (window.begin - region.base as usize) as libc::off_t;
        let written = if writes { written_back(window) } else { 0 };
        // SAFETY: what was written is on the target, so only copies are dropped.
        unsafe {
            libc::madvise(window.begin as *mut c_void, window.length, libc::MADV_DONTNEED);
            let length = window.length as libc::off_t;
            libc::posix_fadvise(region.place.fd, file_offset, length, libc::POSIX_FADV_DONTNEED);
        }
        if written < 0 { written } else { told }
    }

    /// msync does an fdatasync of the mapped range; it has no equivalent of fsync.
    fn synced(&self, file: u16, data_only: bool) -> i32 {
        let region = &self.regions[usize::from(file)];
        let whole = CopyRange::of(region.base, region.bytes as usize, self.page);
        if data_only && whole.length > 0 { written_back(whole) } else { sync(&region.place, data_only) }
    }
}

fn written_back(window: CopyRange) -> i32 {
    // SAFETY: whole pages of a mapping of our own.
    answer(|| unsafe { libc::msync(window.begin as *mut c_void, window.length, libc::MS_SYNC) as isize })
}

fn in_huge_pages(place: &OpenTarget) -> bool {
    // SAFETY: zeroed is a valid statfs, and the call only writes to it.
    unsafe {
        let mut fs: libc::statfs = std::mem::zeroed();
        libc::fstatfs(place.fd, &raw mut fs) == 0 && fs.f_type == libc::HUGETLBFS_MAGIC
    }
}

#[cfg(test)]
mod tests {
    use super::super::Engine;
    use super::super::tests::{self, BLOCK, Disk, Scratch, one};
    use super::*;
    use crate::load::job;
    use std::time::{Duration, Instant};

    fn engine(direct: bool, places: &[OpenTarget]) -> MappingEngine {
        let job = Job { direct, ..tests::job(job::Engine::Mmap, 1) };
        MappingEngine::new(&job, places, &[]).unwrap().0
    }

    #[test]
    fn what_is_written_is_read_back() {
        let disk = Disk::filled("mmap", 1 << 20, 0);
        for direct in [false, true] {
            let file = Scratch::filled(&format!("mmap-{direct}"), 8 * BLOCK, 0);
            for place in [Some(file.place()), disk.as_ref().map(Disk::place)].into_iter().flatten() {
                tests::writes_come_back(&mut engine(direct, &[place]), 1, 8);
            }
        }
    }

    #[test]
    fn the_end_of_a_file_is_a_short_read_and_no_place_to_write() {
        let file = Scratch::filled("mmap-end", BLOCK + BLOCK / 2, 1);
        let mut engine = engine(false, &[file.place()]);
        tests::the_end_is_short(&mut engine);
        assert_eq!(one(&mut engine, Direction::Write, BLOCK.into(), BLOCK), BLOCK as i32 / 2);
        assert_eq!(one(&mut engine, Direction::Write, 2 * u64::from(BLOCK), BLOCK), -libc::ENOSPC);
        assert_eq!(one(&mut engine, Direction::Read, u64::MAX, BLOCK), 0);
        assert_eq!(file.bytes().len(), (BLOCK + BLOCK / 2) as usize);
    }

    #[test]
    fn nothing_to_map_is_an_end_and_no_error() {
        let file = Scratch::filled("mmap-empty", 0, 1);
        let mut engine = engine(true, &[file.place()]);
        assert_eq!(one(&mut engine, Direction::Read, 0, BLOCK), 0);
        for data_only in [false, true] {
            engine.queue_sync(0, 0, data_only);
            assert_eq!(tests::only_result(&mut engine), 0);
        }
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error_and_no_end_of_the_process() {
        for direct in [false, true] {
            let file = Scratch::filled(&format!("mmap-shrinks-{direct}"), 64 * BLOCK, 1);
            let mut engine = engine(direct, &[file.place()]);
            assert_eq!(one(&mut engine, Direction::Read, 0, BLOCK), BLOCK as i32);
            file.set_len(2 * u64::from(BLOCK));
            for direction in [Direction::Read, Direction::Write] {
                for block in [2, 3, 63] {
                    assert_eq!(one(&mut engine, direction, block * u64::from(BLOCK), BLOCK), 0, "its end");
                }
                assert_eq!(one(&mut engine, direction, BLOCK.into(), BLOCK), BLOCK as i32, "still there");
            }
            // The file is extended again: the same mapping shows the new content, and writes reach the file.
            file.set_len(64 * u64::from(BLOCK));
            tests::writes_come_back(&mut engine, 1, 64);
            drop(engine);
            assert!(file.bytes()[2 * BLOCK as usize..].iter().any(|byte| *byte != 0));
        }
    }

    #[test]
    fn a_file_that_shrinks_and_grows_all_the_time_ends_nothing() {
        let file = Scratch::filled("mmap-races", 16 * BLOCK, 1);
        let mut large = tests::job(job::Engine::Mmap, 1);
        large.set_bs(u64::from(15 * BLOCK));
        let (mut engine, _) = MappingEngine::new(&large, &[file.place()], &[]).unwrap();
        let until = Instant::now() + Duration::from_millis(300);
        let (mut read, mut failed) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < until {
                    file.set_len(u64::from(BLOCK));
                    file.set_len(16 * u64::from(BLOCK));
                }
            });
            while Instant::now() < until {
                match one(&mut engine, Direction::Read, BLOCK.into(), 15 * BLOCK) {
                    // The file may have grown again before its size is checked.
                    errno if [0, -libc::EIO].contains(&errno) => failed += 1,
                    bytes => {
                        assert_eq!(bytes, 15 * BLOCK as i32);
                        read += 1;
                    }
                }
            }
        });
        assert!(read + failed > 0);
        println!("{read} read, {failed} failed");
    }

    /// A SIGBUS not caused by a copy ends the process, as it does without a mapping.
    #[test]
    fn another_bus_error_is_passed_on() {
        install().unwrap();
        let file = Scratch::filled("mmap-others", BLOCK, 1);
        let other = Region::new(file.place(), false).unwrap();
        file.set_len(0);
        let by = |death: &dyn Fn()| {
            // SAFETY: the child only touches memory, sends itself a signal or ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    // No core file with the child's memory.
                    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                    death();
                    libc::_exit(0);
                }
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                (libc::WIFSIGNALED(status), libc::WTERMSIG(status))
            }
        };
        let touch = || {
            // SAFETY: it is mapped, and the signal that follows is what is tested.
            let _byte = unsafe { other.base.read_volatile() };
        };
        assert_eq!(by(&touch), (true, libc::SIGBUS));
        // The runtime's own handler lets the first one pass, because it has no address.
        let sent = || {
            // SAFETY: they end the child.
            let _told = unsafe { (libc::raise(libc::SIGBUS), libc::raise(libc::SIGBUS)) };
        };
        assert_eq!(by(&sent), (true, libc::SIGBUS));
    }

    #[test]
    fn trims_and_syncs_go_the_same_way() {
        for direct in [false, true] {
            let file = Scratch::filled(&format!("mmap-trims-{direct}"), 4 * BLOCK, 3);
            tests::trims_and_syncs(&mut engine(direct, &[file.place()]), &file);
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_and_what_differs_is_named() {
        let job = Job { hipri: true, ..tests::job(job::Engine::Mmap, 1) };
        let why = MappingEngine::new(&job, &[OpenTarget { fd: -1, is_device: false }], &[]).unwrap_err();
        assert!(matches!(why.downcast_ref(), Some(Refusal::Refused(why)) if why.contains("psync")), "{why}");
        let (_, missing) = MappingEngine::new(&job, &[], &[]).unwrap();
        assert!(missing[0].starts_with("hipri: ") && missing[1].starts_with("direct: "), "{missing:?}");
    }
}
