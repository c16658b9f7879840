//! Submits single reads by io_uring, for tests that need what `biopsy load` does not do.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

pub use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode, types};

use super::disk::Disk;

const BLOCK: usize = 4096;
const GETEVENTS: u32 = 1;

#[repr(align(4096))]
struct Buffer([u8; BLOCK]);

/// An io_uring over a disk. All reads use one buffer, whose content is not used.
pub struct Ring {
    ring: IoUring,
    file: File,
    buffer: Box<Buffer>,
}

impl Ring {
    pub fn new(disk: &Disk) -> Self {
        let file =
            std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&disk.path).unwrap();
        Self { ring: IoUring::new(8).unwrap(), file, buffer: Box::new(Buffer([0; BLOCK])) }
    }

    /// Puts a read of the first block into the ring.
    pub fn submit(&self, flags: Flags) {
        self.submit_at(0, flags);
    }

    /// Puts a read of this block into the ring.
    pub fn submit_at(&self, block: u64, flags: Flags) {
        let buffer = self.buffer.0.as_ptr().cast_mut();
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), buffer, BLOCK as u32)
            .offset(block * BLOCK as u64)
            .build()
            .flags(flags);
        // SAFETY: only one thread submits, file and buffer live as long as the ring, and the bytes of the buffer are
        // never read.
        unsafe { self.ring.submission_shared().push(&read) }.unwrap();
    }

    /// Puts a NOP request into the ring; its result is 0.
    pub fn submit_nothing(&self) {
        // SAFETY: only one thread submits, and the request refers to no memory.
        unsafe { self.ring.submission_shared().push(&opcode::Nop::new().build()) }.unwrap();
    }

    /// Calls io_uring_enter to submit so many requests and to wait for so many results.
    pub fn enter(&self, submit: u32, wait: u32) {
        let flags = if wait > 0 { GETEVENTS } else { 0 };
        // SAFETY: no signal mask is passed.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(submit, wait, flags, None) }.unwrap();
    }

    /// Takes the available results of block reads, and returns their number.
    pub fn fetch(&self) -> u32 {
        self.fetch_of(BLOCK as i32)
    }

    /// Takes the available results, each of which must be `bytes`, and returns their number.
    pub fn fetch_of(&self, bytes: i32) -> u32 {
        // SAFETY: only one thread takes results.
        let results = unsafe { self.ring.completion_shared() };
        results.map(|result| assert_eq!(result.result(), bytes)).count() as u32
    }
}
