//! The clock of all stamps: CLOCK_MONOTONIC, the one that the kernel's own stamps use.

/// Nanoseconds since boot, as the block layer stamps them.
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. The call cannot fail: CLOCK_MONOTONIC is always
    // there. Static executables reach the vDSO too, so this is no system call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
