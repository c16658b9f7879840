//! Maps the memory that the load generator's threads share with the latency programs.

use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};
use libbpf_rs::MapCore;

use crate::envelope::{Missing, Reason};
use crate::wire::generator::{GENERATOR_PLACES, WireGenerator};

/// The inode of the initial PID namespace, whose ids the programs see (PROC_PID_INIT_INO of the kernel, which never
/// changed).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// The mapped table `generators`. It outlives the probe.
pub struct Generators(NonNull<WireGenerator>);

// SAFETY: all of it consists of atomics, which may be used from any thread.
unsafe impl Send for Generators {}
// SAFETY: as above.
unsafe impl Sync for Generators {}

impl Generators {
    /// Maps the map of the same name, which has all its entries.
    pub fn map(map: &impl MapCore) -> Result<Self> {
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                GENERATOR_PLACES * size_of::<WireGenerator>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mapping the table of generators");
        }
        NonNull::new(base.cast()).map(Self).context("a mapping at address 0")
    }
}

impl Deref for Generators {
    type Target = [WireGenerator];

    fn deref(&self) -> &[WireGenerator] {
        // SAFETY: the mapping has this many entries, lives as long as `self`, and consists of atomics for which every
        // value is valid; other writers write whole words.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), GENERATOR_PLACES) }
    }
}

impl Drop for Generators {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length, and nothing borrows it any more. If this fails, the mapping
        // stays until the process ends.
        unsafe { libc::munmap(self.0.as_ptr().cast(), GENERATOR_PLACES * size_of::<WireGenerator>()) };
    }
}

/// Whether process ids here are those that the programs see.
pub fn knows_its_threads(root: &Path) -> bool {
    std::fs::read_link(root.join("proc/self/ns/pid")).is_ok_and(|link| link.as_os_str() == FIRST_PIDS)
}

/// The gap if the generator's own stamps are not used.
pub fn missing(why: &str) -> Missing {
    Missing {
        part: Some("generator-stamps".to_string()),
        reason: Reason::NotAvailable,
        why: format!(
            "operations of biopsy's own load begin and end with their system calls, not with the \
             generator's stamps: {why}"
        ),
        ..Missing::default()
    }
}
