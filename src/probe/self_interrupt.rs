//! Lets programs request interrupts on their own CPU. There is a perf event per CPU that programs write records to, and
//! whose ring nothing reads. Each record requests a wakeup of the reader, which the kernel delivers in an interrupt of
//! that CPU as soon as interrupts are enabled; see `bpf/blocked.bpf.c`.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::perf_event;

/// The events, until they are dropped.
#[derive(Debug)]
pub struct SelfInterrupts(Vec<SelfInterrupt>);

impl SelfInterrupts {
    /// Opens the events on all online CPUs, and puts them into the programs' table.
    ///
    /// # Errors
    /// When perf events are refused, or the memory of their rings ([`LockedMemory`](crate::refusal::LockedMemory)).
    pub fn open(table: &impl MapCore) -> Result<Self> {
        let mut self_interrupts = Vec::new();
        for cpu in perf_event::online()? {
            let event = match perf_event::self_interrupt(cpu) {
                // The CPU went offline after the list was read.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                event => event?,
            };
            // The mapping keeps the event alive, so it costs no descriptor.
            let self_interrupt = SelfInterrupt::map(event.as_fd())?;
            let event = event.as_raw_fd() as u32;
            table
                .update(&cpu.to_ne_bytes(), &event.to_ne_bytes(), MapFlags::ANY)
                .context("an event of perf cannot be given to a program")?;
            self_interrupts.push(self_interrupt);
        }
        Ok(Self(self_interrupts))
    }

    /// Memory of the rings.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|self_interrupt| self_interrupt.mapped as u64).sum()
    }
}

#[derive(Debug)]
struct SelfInterrupt {
    place: NonNull<libc::c_void>,
    mapped: usize,
}

// SAFETY: nothing accesses the memory, and it belongs to no thread.
unsafe impl Send for SelfInterrupt {}

impl SelfInterrupt {
    fn map(event: BorrowedFd<'_>) -> Result<Self> {
        // A header and the smallest possible ring. A read-only ring overwrites its oldest records, and is never full.
        let mapped = 2 * perf_event::page_bytes();
        Ok(Self { place: perf_event::map_ring(event, mapped, libc::PROT_READ)?, mapped })
    }
}

impl Drop for SelfInterrupt {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference into it exists.
        unsafe { libc::munmap(self.place.as_ptr(), self.mapped) };
    }
}
