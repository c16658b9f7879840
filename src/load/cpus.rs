//! Which CPUs this process may use, pinning, and a thread's own CPU time.

use std::io;

/// Room for 8192 CPUs; `libc::cpu_set_t` ends at 1024 and the kernel refuses a mask that is too short.
type Mask = [u64; 128];

/// The CPUs that this process may run on, ascending. Empty where the kernel does not tell.
pub fn allowed() -> Vec<u32> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the kernel writes at most the size that is given, into a mask of that size.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if got < 0 {
        return Vec::new();
    }
    (0..mask.len() as u32 * 64).filter(|cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// Binds the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    let mut mask: Mask = [0; 128];
    let word = mask.get_mut(cpu as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (cpu % 64);
    // SAFETY: the kernel reads at most the size that is given, from a mask of that size.
    match unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// User and system time of the calling thread in nanoseconds. The sum is exact; kernels with tick
/// accounting split it by sampling.
pub fn thread_times_ns() -> (u64, u64) {
    // SAFETY: zeroed is a valid rusage, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_allowed_cpu() {
        let all = allowed();
        assert!(!all.is_empty());
        std::thread::spawn(move || {
            for cpu in all {
                pin(cpu).unwrap();
                assert_eq!(allowed(), [cpu]);
            }
        })
        .join()
        .unwrap();
    }
}
