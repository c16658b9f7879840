//! The synchronous engines: each I/O is done when queued, by `pread` and `pwrite`, or `preadv2` and `pwritev2`.

use std::io;

use anyhow::Result;

use super::super::buffers::Slots;
use super::super::job::{self, Direction, Job};
use super::super::sequence::PlannedIo;
use super::trim::trim;
use super::{Engine, OpenTarget, rw_flags};

/// Results of operations that completed when queued.
#[derive(Debug)]
pub struct SyncResults {
    results: Vec<(u32, i32)>,
    /// Results since the last [`Self::taken`].
    new: u32,
}

impl SyncResults {
    /// Room for the results of all slots.
    pub fn new(depth: u32) -> Self {
        Self { results: Vec::with_capacity(depth as usize), new: 0 }
    }

    pub fn push(&mut self, slot: u32, result: i32) {
        self.results.push((slot, result));
        self.new += 1;
    }

    /// Results that are not reaped yet.
    pub fn len(&self) -> u32 {
        self.results.len() as u32
    }

    /// Results since the last call.
    pub fn taken(&mut self) -> u32 {
        std::mem::take(&mut self.new)
    }

    pub fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let reaped = self.len();
        self.results.drain(..).for_each(|(slot, result)| found(slot, result));
        reaped
    }
}

/// An engine that does an operation when it is queued.
pub trait Synchronous {
    fn slots(&self) -> &Slots;
    fn done(&self) -> &SyncResults;
    fn done_mut(&mut self) -> &mut SyncResults;
    fn place(&self, file: u16) -> &OpenTarget;

    /// Reads or writes: returns the bytes, or a negative errno.
    fn moved(&mut self, slot: u32, piece: &PlannedIo) -> i32;

    fn synced(&self, file: u16, data_only: bool) -> i32 {
        sync(self.place(file), data_only)
    }
}

impl<S: Synchronous> Engine for S {
    const IS_SYNCHRONOUS: bool = true;
    const SUBMITS_APART: bool = false;

    #[inline]
    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        let result = match piece.direction {
            Direction::Read | Direction::Write => self.moved(slot, piece),
            Direction::Trim => trim(self.place(piece.file), piece.offset, piece.bytes),
        };
        self.done_mut().push(slot, result);
    }

    fn queue_sync(&mut self, slot: u32, file: u16, data_only: bool) {
        let result = self.synced(file, data_only);
        self.done_mut().push(slot, result);
    }

    #[inline]
    fn enter(&mut self, _wait: u32, _timeout_ns: Option<u64>) -> io::Result<u32> {
        Ok(self.done_mut().taken())
    }

    #[inline]
    fn reap(&mut self, found: impl FnMut(u32, i32)) -> u32 {
        self.done_mut().reap(found)
    }

    fn in_flight(&self) -> u32 {
        self.done().len()
    }

    fn buffer(&self, slot: u32) -> *mut u8 {
        self.slots().at(slot)
    }
}

/// Calls a system call and returns its result as a completion would: a count, or a negative errno. Repeats a call that
/// a signal interrupted.
pub fn answer(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        let told = call();
        if told >= 0 {
            // The kernel transfers less than 2 GiB at once.
            return i32::try_from(told).unwrap_or(i32::MAX);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            errno => return -errno.unwrap_or(libc::EIO),
        }
    }
}

/// `fsync`, or `fdatasync`.
pub fn sync(place: &OpenTarget, data_only: bool) -> i32 {
    answer(|| {
        // SAFETY: they touch no memory.
        let done = unsafe { if data_only { libc::fdatasync(place.fd) } else { libc::fsync(place.fd) } };
        done as isize
    })
}

/// fio's `psync` and `pvsync2`.
#[derive(Debug)]
pub struct Sync {
    slots: Slots,
    places: Vec<OpenTarget>,
    /// The flags of `preadv2` and `pwritev2`, by direction; None: uses `pread` and `pwrite`.
    flags: Option<[libc::c_int; 3]>,
    done: SyncResults,
}

impl Sync {
    /// One buffer, on the given nodes. The targets must stay open while it lives. Also returns requested features that
    /// are not available.
    pub fn new(job: &Job, places: &[OpenTarget], nodes: &[u32]) -> Result<(Self, Vec<String>)> {
        let (slots, mut missing) = Slots::new(job, nodes)?;
        let polls = if job.hipri { libc::RWF_HIPRI } else { 0 };
        let of = |direction| rw_flags(job, direction) as libc::c_int | polls;
        let flags = (job.engine == job::Engine::Pvsync2).then(|| Direction::ALL.map(of));
        if job.hipri {
            missing.push(match flags {
                Some(_) => "hipri: Linux 5.19 and newer do not poll for synchronous I/O (RWF_HIPRI); use \
                     --ioengine io_uring for it"
                    .to_string(),
                None => format!("hipri: {} cannot poll; use --ioengine io_uring for it", job.engine.name()),
            });
        }
        let done = SyncResults::new(slots.depth());
        Ok((Self { slots, places: places.to_vec(), flags, done }, missing))
    }
}

impl Synchronous for Sync {
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
        &self.places[usize::from(file)]
    }

    #[inline]
    fn moved(&mut self, slot: u32, piece: &PlannedIo) -> i32 {
        let place = self.places[usize::from(piece.file)];
        let buffer = self.slots.room(slot, piece.bytes).cast::<libc::c_void>();
        // -1 would mean the file position.
        let Ok(offset) = libc::off_t::try_from(piece.offset) else { return -libc::EINVAL };
        let bytes = piece.bytes as usize;
        let vector = libc::iovec { iov_base: buffer, iov_len: bytes };
        let writes = piece.direction == Direction::Write;
        let flags = self.flags.map(|flags| flags[piece.direction.index()]);
        answer(|| {
            // SAFETY: the slot's buffer has room for the bytes, and nothing else uses it in the meantime.
            unsafe {
                match (flags, writes) {
                    (None, false) => libc::pread(place.fd, buffer, bytes, offset),
                    (None, true) => libc::pwrite(place.fd, buffer, bytes, offset),
                    (Some(flags), false) => libc::preadv2(place.fd, &raw const vector, 1, offset, flags),
                    (Some(flags), true) => libc::pwritev2(place.fd, &raw const vector, 1, offset, flags),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self, BLOCK, Disk, Scratch};
    use super::*;

    const BOTH: [job::Engine; 2] = [job::Engine::Psync, job::Engine::Pvsync2];

    fn engine(which: job::Engine, places: &[OpenTarget]) -> Sync {
        Sync::new(&tests::job(which, 1), places, &[]).unwrap().0
    }

    #[test]
    fn what_is_written_is_read_back() {
        for which in BOTH {
            let file = Scratch::filled(which.name(), 8 * BLOCK, 0);
            tests::writes_come_back(&mut engine(which, &[file.place()]), 1, 8);
            if let Some(disk) = Disk::filled(which.name(), 1 << 20, 0) {
                tests::writes_come_back(&mut engine(which, &[disk.place()]), 1, 8);
            }
        }
    }

    #[test]
    fn the_end_of_a_file_is_a_short_read() {
        for which in BOTH {
            let file = Scratch::filled(&format!("{}-end", which.name()), BLOCK + BLOCK / 2, 1);
            tests::the_end_is_short(&mut engine(which, &[file.place()]));
        }
    }

    #[test]
    fn an_error_is_a_result() {
        for which in BOTH {
            let closed = OpenTarget { fd: -1, is_device: false };
            tests::errors_are_results(&mut engine(which, &[closed]), -libc::EBADF);
            if let Some(disk) = Disk::filled("sync-misaligned", 1 << 20, 0) {
                let mut engine = engine(which, &[disk.place()]);
                assert_eq!(tests::one(&mut engine, Direction::Read, 1, BLOCK), -libc::EINVAL);
                assert_eq!(tests::one(&mut engine, Direction::Read, u64::MAX, BLOCK), -libc::EINVAL);
            }
        }
    }

    #[test]
    fn trims_and_syncs_go_the_same_way() {
        let file = Scratch::filled("sync-trims", 4 * BLOCK, 3);
        tests::trims_and_syncs(&mut engine(job::Engine::Psync, &[file.place()]), &file);
    }

    #[test]
    fn polling_that_nobody_does_is_named() {
        let hipri = |which| Job { hipri: true, ..tests::job(which, 1) };
        let missing = |which| Sync::new(&hipri(which), &[], &[]).unwrap().1;
        assert!(missing(job::Engine::Psync)[0].starts_with("hipri: psync cannot poll"));
        assert!(missing(job::Engine::Pvsync2)[0].contains("5.19"));
        let file = Scratch::filled("hipri", BLOCK, 9);
        let (mut engine, _) = Sync::new(&hipri(job::Engine::Pvsync2), &[file.place()], &[]).unwrap();
        // File systems that no longer support polling answer with an error, others read without polling.
        let result = tests::one(&mut engine, Direction::Read, 0, BLOCK);
        assert!([BLOCK as i32, -libc::EOPNOTSUPP].contains(&result), "{result}");
    }
}
