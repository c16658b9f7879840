//! fio's `null` engine: each operation completes at once with all its bytes, without a system call.

use std::io;

use anyhow::Result;

use super::super::buffers::Slots;
use super::super::job::Job;
use super::super::sequence::PlannedIo;
use super::Engine;
use super::sync::SyncResults;

/// As in fio, with a depth of 1 (`ALONE`) an operation is over when it is queued, and its whole latency is completion
/// latency.
#[derive(Debug)]
pub struct Null<const ALONE: bool> {
    slots: Slots,
    done: SyncResults,
}

impl<const ALONE: bool> Null<ALONE> {
    pub fn new(job: &Job, nodes: &[u32]) -> Result<(Self, Vec<String>)> {
        let (slots, missing) = Slots::new(job, nodes)?;
        let done = SyncResults::new(slots.depth());
        Ok((Self { slots, done }, missing))
    }
}

impl<const ALONE: bool> Engine for Null<ALONE> {
    const IS_SYNCHRONOUS: bool = ALONE;
    const SUBMITS_APART: bool = !ALONE;

    #[inline]
    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        self.done.push(slot, piece.bytes as i32);
    }

    fn queue_sync(&mut self, slot: u32, _file: u16, _data_only: bool) {
        self.done.push(slot, 0);
    }

    #[inline]
    fn enter(&mut self, _wait: u32, _timeout_ns: Option<u64>) -> io::Result<u32> {
        Ok(self.done.taken())
    }

    #[inline]
    fn reap(&mut self, found: impl FnMut(u32, i32)) -> u32 {
        self.done.reap(found)
    }

    fn in_flight(&self) -> u32 {
        self.done.len()
    }

    fn buffer(&self, slot: u32) -> *mut u8 {
        self.slots.at(slot)
    }
}
