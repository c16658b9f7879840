//! The memory that a perf event of one CPU and we have in common.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use perf_event_open_sys::bindings::perf_event_mmap_page;

use crate::probe::perf_event;
use crate::wire::process_events::{Record, next};

/// Records of one CPU, from when it was made until it is dropped.
#[derive(Debug)]
pub struct Ring {
    page: NonNull<perf_event_mmap_page>,
    mapped: usize,
    /// Of the page in front.
    head: usize,
    bytes: usize,
    taken: Vec<u8>,
}

// SAFETY: the memory is ours alone until it is dropped, and no thread's own.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps `bytes`, a power of two of pages. The event lives as long as the memory, so that it costs no descriptor.
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

    /// Takes all that is there. Gives how many records were damaged, and so lost.
    pub fn take(&mut self, records: &mut Vec<Record>) -> u64 {
        let page = self.page.as_ptr();
        // SAFETY: both are words of the mapped page, aligned, and changed by the kernel and us as atomics are.
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
        // What goes over the end goes on at the start.
        let at = from as usize % self.bytes;
        let first = len.min(self.bytes - at);
        self.taken.clear();
        // SAFETY: both parts lie in the mapped data, and the kernel writes there again after `data_tail` has moved.
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

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and nobody has a reference into it.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.mapped) };
    }
}
