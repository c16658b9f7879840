//! Drops a thread's data from the page cache between passes.

use std::os::fd::RawFd;

use super::super::job::{Direction, Job};
use super::ThreadPlan;

/// The page cache of a thread's regions. As in fio, it is dropped before each pass over them except for the first;
/// otherwise a run of many passes would measure memory. Before the first pass it was dropped during preparation.
#[derive(Debug)]
pub struct Cache {
    /// Descriptor, first byte and length.
    parts: Vec<(RawFd, i64, i64)>,
    /// Bytes of a pass.
    pass: u64,
    /// Bytes left in this pass.
    left: u64,
}

impl Cache {
    /// None where nothing is read through the page cache, or its content is to be kept.
    pub fn new(plan: &ThreadPlan<'_>) -> Option<Self> {
        let Job { direct, invalidate, rw, .. } = plan.job;
        if *direct || plan.job.moves_nothing() || !*invalidate || !rw.has(Direction::Read) {
            return None;
        }
        let pass = plan.regions.iter().map(|region| region.bytes).sum();
        let part = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let both = plan.places.iter().zip(plan.regions);
        let parts = both.map(|(place, region)| (place.fd, part(region.begin), part(region.bytes))).collect();
        Some(Self { parts, pass, left: pass })
    }

    /// Advances by `bytes`. True: a pass begins with them.
    pub fn begins(&mut self, bytes: u32) -> bool {
        let begins = self.left < bytes.into();
        if begins {
            self.left = self.pass;
        }
        self.left = self.left.saturating_sub(bytes.into());
        begins
    }

    /// Mapped pages stay, as with fio's mmap. A failure is ignored: the same call would have failed before the run.
    pub fn forget(&self) {
        for (fd, begin, bytes) in &self.parts {
            // SAFETY: the descriptor is open while the thread runs, and the rest are plain numbers.
            unsafe { libc::posix_fadvise(*fd, *begin, *bytes, libc::POSIX_FADV_DONTNEED) };
        }
    }
}
