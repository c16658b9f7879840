//! How an I/O reaches the kernel: one way per engine, driven by one thread.

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
use super::sequence::Piece;

/// A file that is open for what the job does with it.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub fd: RawFd,
    /// A block device (trimmed by BLKDISCARD) and no file (by a punched hole).
    pub is_device: bool,
}

/// `RWF_*` of linux/fs.h for the operations of a direction.
pub fn rw_flags(job: &Job, direction: Direction) -> u32 {
    const RWF_ATOMIC: u32 = 0x40;
    const RWF_DONTCACHE: u32 = 0x80;
    let flag = |is_on: bool, flag: u32| if is_on { flag } else { 0 };
    flag(job.uncached, RWF_DONTCACHE) | flag(job.atomic && direction == Direction::Write, RWF_ATOMIC)
}

/// One thread's queue of operations. A slot is a number below the depth, and has a buffer of its own; it is
/// queued again after it was reaped.
pub trait Engine {
    /// An I/O is over when [`Engine::queue`] returns: there is no submission apart from it.
    const IS_SYNCHRONOUS: bool;
    /// To submit and to wait are two calls anyway.
    const SUBMITS_APART: bool;

    /// A trim is over when [`Engine::queue`] returns: a system call of its own does it, and waits.
    fn trims_at_once(&self) -> bool {
        Self::IS_SYNCHRONOUS
    }

    /// Takes a read, write or trim. Synchronous engines do it here.
    fn queue(&mut self, slot: u32, piece: &Piece);

    /// As [`Engine::queue`], with an I/O priority of its own, for engines that have it.
    fn queue_with_priority(&mut self, slot: u32, piece: &Piece, _priority: u16) {
        self.queue(slot, piece);
    }

    /// Takes an fsync, or with `data_only` an fdatasync, of a file.
    fn queue_sync(&mut self, slot: u32, file: u16, data_only: bool);

    /// Hands over what is queued and waits until `wait` results are there (0: does not wait), or the time is
    /// over; it may come back earlier. Returns how many operations the kernel took.
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32>;

    /// How many of the last that were queued the kernel has not taken: [`Engine::enter`] took only some of them, for
    /// want of memory as a rule. The next call hands them over.
    fn left(&self) -> u32 {
        0
    }

    /// Calls `found` with slot and result (bytes, or a negative errno) of every result that is there; returns
    /// their number.
    fn reap(&mut self, found: impl FnMut(u32, i32)) -> u32;

    /// Operations that were queued and not reaped.
    fn in_flight(&self) -> u32;

    /// Where the slot's bytes lie: not to be touched while the slot is queued.
    fn buffer(&self, slot: u32) -> *mut u8;
}
