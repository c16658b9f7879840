//! Reads by io_uring, one by one, where `biopsy load` does not do what a test wants.

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

/// A ring over a disk. What is read lands in one buffer, and nobody looks at it.
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

    /// Puts a read into the ring.
    pub fn submit(&self, flags: Flags) {
        self.submit_at(0, flags);
    }

    /// The same of this block.
    pub fn submit_at(&self, block: u64, flags: Flags) {
        let buffer = self.buffer.0.as_ptr().cast_mut();
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), buffer, BLOCK as u32)
            .offset(block * BLOCK as u64)
            .build()
            .flags(flags);
        // SAFETY: one thread submits, and file and buffer live as long as the ring; the buffer's bytes are
        // never looked at.
        unsafe { self.ring.submission_shared().push(&read) }.unwrap();
    }

    /// Puts a request into the ring that does nothing; its result is 0 bytes.
    pub fn submit_nothing(&self) {
        // SAFETY: one thread submits, and the request refers to no memory.
        unsafe { self.ring.submission_shared().push(&opcode::Nop::new().build()) }.unwrap();
    }

    /// Calls the kernel: with what is in the ring, and to wait.
    pub fn enter(&self, submit: u32, wait: u32) {
        let flags = if wait > 0 { GETEVENTS } else { 0 };
        // SAFETY: no signal mask is given.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(submit, wait, flags, None) }.unwrap();
    }

    /// How many results were there, of blocks that were read.
    pub fn fetch(&self) -> u32 {
        self.fetch_of(BLOCK as i32)
    }

    /// How many results were there, all of which are this.
    pub fn fetch_of(&self, bytes: i32) -> u32 {
        // SAFETY: one thread fetches.
        let results = unsafe { self.ring.completion_shared() };
        results.map(|result| assert_eq!(result.result(), bytes)).count() as u32
    }
}
