//! Reads the CPUs that this process may use, pins threads, and reads a thread's CPU time.

use std::io;

use crate::clock;

/// Sets the I/O priority (class and level) of the calling thread.
pub fn set_io_priority(priority: u16) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: numbers only; 0 is the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, libc::c_int::from(priority)) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for 8192 CPUs; `libc::cpu_set_t` ends at 1024 and the kernel refuses a mask that is too short.
type Mask = [u64; 128];

/// The CPUs that this process may run on, ascending. Empty if the kernel does not report them.
pub fn allowed() -> Vec<u32> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the kernel writes at most the size that is given, into a mask of that size.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    if got < 0 {
        return Vec::new();
    }
    (0..mask.len() as u32 * 64).filter(|cpu| mask[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// Pins the calling thread to these CPUs.
pub fn pin(cpus: &[u32]) -> io::Result<()> {
    let mut mask: Mask = [0; 128];
    for cpu in cpus {
        let word = mask.get_mut(*cpu as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads at most the size that is given, from a mask of that size.
    match unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes the calling thread's timers expire on time; by default they may be up to 50 µs late.
pub fn wake_in_time() {
    let (ns, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: plain numbers. It cannot fail, and without it wake-ups are only late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, unused, unused, unused) };
}

/// The NUMA node of the CPU that the calling thread runs on.
pub fn node() -> Option<u32> {
    let (mut cpu, mut node): (libc::c_uint, libc::c_uint) = (0, 0);
    // SAFETY: the call writes to the two numbers; the third argument is unused since Linux 2.6.24.
    let done = unsafe {
        libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null::<libc::c_void>())
    };
    (done == 0).then_some(node)
}

/// CPU usage of a thread or process. The sum of the two times is exact; kernels with tick accounting split it by
/// sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    /// Voluntary and involuntary.
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
}

/// Usage of the calling thread since it began.
pub fn usage() -> Usage {
    // The kernel updates the CPU time only at a tick, up to 10 ms ago, unless the thread's clock is read first.
    clock::thread_ns();
    usage_of(libc::RUSAGE_THREAD)
}

/// Usage of the whole process since it began.
pub fn process_usage() -> Usage {
    usage_of(libc::RUSAGE_SELF)
}

fn usage_of(whom: libc::c_int) -> Usage {
    // SAFETY: zeroed is a valid rusage, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whom, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
        major_faults: usage.ru_majflt as u64,
        minor_faults: usage.ru_minflt as u64,
    }
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
                pin(&[cpu]).unwrap();
                assert_eq!(allowed(), [cpu]);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_cpu_time_of_a_thread_is_up_to_date() {
        for _ in 0..100 {
            let before = clock::thread_ns();
            while clock::thread_ns() < before + 100_000 {}
            let usage = usage();
            // Both times are truncated to whole microseconds.
            assert!(usage.user_ns + usage.system_ns + 2_000 >= before + 100_000);
        }
    }
}
