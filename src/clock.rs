//! The clock of all stamps: CLOCK_MONOTONIC, the one that the kernel's own stamps use; and beside it the one that goes
//! on while the machine is suspended, and a thread's own.

/// Nanoseconds since boot, as the block layer stamps them.
#[inline]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The same with the time in which the machine was suspended. No stamp of an I/O: it tells how long that was.
pub fn boot_ns() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread since it began; a system call.
pub fn thread_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process since it began; a system call.
pub fn process_ns() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Seconds by which local time is ahead of UTC at `unix_seconds`, by TZ or /etc/localtime; 0 if the C library cannot
/// read them.
pub fn local_offset(unix_seconds: i64) -> i32 {
    let seconds: libc::time_t = unix_seconds;
    // SAFETY: zeroed is a valid tm, and the call only reads the one and writes to the other.
    let east = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut tm).is_null() { 0 } else { tm.tm_gmtoff }
    };
    i32::try_from(east).unwrap_or(0)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result. The call cannot fail: these clocks are always there. Static
    // executables reach the vDSO too, so that those of the machine are no system calls.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
