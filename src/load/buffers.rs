//! Page-aligned anonymous memory: what direct I/O reads into and writes from.

use std::io;
use std::ptr::{self, NonNull};

/// Every buffer begins on a page: enough for the memory alignment of any device.
pub const PAGE: usize = 4096;

/// A private mapping that is there from the start: no page fault falls into the measurement.
#[derive(Debug)]
pub struct Buffers {
    base: NonNull<u8>,
    bytes: usize,
}

impl Buffers {
    /// `bytes` must be above 0.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Where it begins. The kernel may write behind the reference rules' back while I/O is in flight,
    /// so the ring uses this address and never a slice.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The bytes, for synchronous I/O.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, initialised (zeroed by the kernel) and borrowed
        // exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
