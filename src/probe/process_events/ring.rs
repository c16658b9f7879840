//! Reads the memory that the kernel shares for a perf event of one CPU.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::probe::perf_event;
use crate::wire::process_events::{ProcessRecord, next};

/// The records of one CPU, from its creation until it is dropped.
#[derive(Debug)]
pub struct EventRing {
    page: NonNull<perf_event_mmap_page>,
    mapped: usize,
    /// Size of the page before the data.
    head: usize,
    bytes: usize,
    taken: Vec<u8>,
}

// SAFETY: the memory belongs to this value alone until it is dropped, and to no particular thread.
unsafe impl Send for EventRing {}

impl EventRing {
    /// Maps `bytes`, a power of two of pages. The mapping keeps the event alive, so it costs no descriptor.
    ///
    /// # Errors
    /// Those of [`perf_event::map_ring`].
    pub fn map(event: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let head = perf_event::page_bytes();
        let mapped = head + bytes;
        let page = perf_event::map_ring(event, mapped, libc::PROT_READ | libc::PROT_WRITE)?.cast();
        Ok(Self { page, mapped, head, bytes, taken: Vec::new() })
    }

    pub fn bytes(&self) -> u64 {
        self.mapped as u64
    }

    /// Takes all available records. Returns how many were damaged, and so lost.
    pub fn take(&mut self, records: &mut Vec<ProcessRecord>) -> u64 {
        let page = self.page.as_ptr();
        // SAFETY: both are aligned words of the mapped page, accessed atomically by the kernel and this process.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head).load(Ordering::Acquire),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let from = tail.load(Ordering::Relaxed);
        let len = usize::try_from(head.wrapping_sub(from)).unwrap_or(usize::MAX).min(self.bytes);
        if len == 0 {
            return 0;
        }
        // Data beyond the end continues at the start.
        let at = from as usize % self.bytes;
        let first = len.min(self.bytes - at);
        self.taken.clear();
        // SAFETY: both parts lie in the mapped data, and the kernel overwrites them only after `data_tail` has moved.
        unsafe {
            let data = page.cast::<u8>().add(self.head);
            self.taken.extend_from_slice(std::slice::from_raw_parts(data.add(at), first));
            self.taken.extend_from_slice(std::slice::from_raw_parts(data, len - first));
        }
        tail.store(head, Ordering::Release);
        let mut rest = self.taken.as_slice();
        let mut damaged = 0;
        while let Some(record) = next(&mut rest) {
            match record {
                Ok(record) => records.push(record),
                Err(_) => damaged += 1,
            }
        }
        damaged
    }
}

impl Drop for EventRing {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference into it exists.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}
