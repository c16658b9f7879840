//! The interface of I/O engines: how one thread submits operations to the kernel and reaps them.

pub mod aio;
pub mod command;
pub mod mapping;
pub mod null;
pub mod sync;
#[cfg(test)]
pub(super) mod tests;
pub mod trim;
pub mod uring;

use std::io;
use std::os::fd::RawFd;

use super::job::{Direction, Job};
use super::sequence::PlannedIo;

/// An open target.
#[derive(Debug, Clone, Copy)]
pub struct OpenTarget {
    pub fd: RawFd,
    /// A block device (trimmed by BLKDISCARD), not a file (trimmed by a punched hole).
    pub is_device: bool,
}

/// `RWF_*` flags of linux/fs.h for the operations of a direction.
pub fn rw_flags(job: &Job, direction: Direction) -> u32 {
    const RWF_ATOMIC: u32 = 0x40;
    const RWF_DONTCACHE: u32 = 0x80;
    let flag = |is_on: bool, flag: u32| if is_on { flag } else { 0 };
    flag(job.uncached, RWF_DONTCACHE) | flag(job.atomic && direction == Direction::Write, RWF_ATOMIC)
}

/// One thread's queue of operations. A slot is a number below the depth and has its own buffer. It can be queued again
/// after it was reaped.
pub trait Engine {
    /// An I/O is complete when [`Engine::queue`] returns; there is no separate submission.
    const IS_SYNCHRONOUS: bool;
    /// Submitting and waiting are separate calls anyway.
    const SUBMITS_APART: bool;

    /// A trim is complete when [`Engine::queue`] returns, because a blocking system call does it.
    fn trims_at_once(&self) -> bool {
        Self::IS_SYNCHRONOUS
    }

    /// Queues a read, write or trim. Synchronous engines do it here.
    fn queue(&mut self, slot: u32, piece: &PlannedIo);

    /// Same as [`Engine::queue`], with an I/O priority for this operation, for engines that support it.
    fn queue_with_priority(&mut self, slot: u32, piece: &PlannedIo, _priority: u16) {
        self.queue(slot, piece);
    }

    /// Queues an fsync, or with `data_only` an fdatasync, of a file.
    fn queue_sync(&mut self, slot: u32, file: u16, data_only: bool);

    /// Submits what is queued and waits for `wait` completions (0: does not wait) or the timeout; it may return
    /// earlier. Returns how many operations the kernel took.
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32>;

    /// How many of the last queued operations the kernel has not taken: [`Engine::enter`] took only some, usually for
    /// lack of memory. The next call submits them.
    fn left(&self) -> u32 {
        0
    }

    /// Calls `found` with slot and result (bytes, or a negative errno) of every available completion; returns their
    /// number.
    fn reap(&mut self, found: impl FnMut(u32, i32)) -> u32;

    /// Operations that were queued and not reaped.
    fn in_flight(&self) -> u32;

    /// Address of the slot's buffer, which must not be touched while the slot is queued.
    fn buffer(&self, slot: u32) -> *mut u8;
}
