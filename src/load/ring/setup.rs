//! Finds the best io_uring setup that the kernel supports, by trying setups in order.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use super::super::engine::uring::{Uring, abi};
use super::super::job::Job;
use crate::refusal::{Refusal, reason};

/// How long the SQPOLL thread polls before it sleeps, in ms: fio's and the kernel's default.
const SQ_IDLE_MS: u32 = 1_000;

/// How often, and how long each time, to wait for memory for a ring.
const WAITS_FOR_MEMORY: u32 = 25;
const WAIT_FOR_MEMORY: Duration = Duration::from_millis(20);

/// How completions are delivered, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// DEFER_TASKRUN: only in the thread's own `io_uring_enter`; no interruption, no shared lists (6.1).
    Deferred,
    /// COOP_TASKRUN: at the next system call instead of by an inter-processor interrupt (5.19).
    Cooperative,
    /// As in the first io_uring.
    Plain,
}

/// The kernel's io_uring features; found once, used by every thread.
#[derive(Debug, Clone)]
pub struct Setup {
    pub(super) delivery: Delivery,
    /// The kernel takes the entries in order, without an index array (6.6).
    pub(super) no_array: bool,
    /// The submitter polls the device's poll queues; no interrupt delivers completions.
    pub(super) polled: bool,
    /// A kernel thread (SQPOLL) takes the entries ...
    pub(super) fetched: bool,
    /// ... even if their files are not registered (5.11).
    pub(super) any_file: bool,
    /// Requested features that are not available.
    pub missing: Vec<String>,
}

impl Setup {
    /// Creates a small ring and closes it.
    pub fn probe(job: &Job) -> Result<Self, Refusal> {
        let mut setup = Self {
            delivery: Delivery::Plain,
            no_array: false,
            polled: job.hipri,
            fetched: job.sqthread_poll,
            any_file: true,
            missing: Vec::new(),
        };
        // With SQPOLL the kernel thread also completes: nothing is left to defer.
        let ladder: &[(Delivery, bool, &str)] = if setup.fetched {
            &[(Delivery::Plain, true, "NO_SQARRAY (Linux 6.6)"), (Delivery::Plain, false, "")]
        } else {
            &[
                (Delivery::Deferred, true, "NO_SQARRAY (Linux 6.6)"),
                (Delivery::Deferred, false, "SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1)"),
                (Delivery::Cooperative, false, "COOP_TASKRUN (Linux 5.19)"),
                (Delivery::Plain, false, ""),
            ]
        };
        let mut last = io::Error::from_raw_os_error(libc::EINVAL);
        for (delivery, no_array, flags) in ladder {
            (setup.delivery, setup.no_array) = (*delivery, *no_array);
            match setup.open(1) {
                Ok(ring) => {
                    setup.any_file = ring.features() & abi::FEAT_SQPOLL_NONFIXED != 0;
                    return Ok(setup);
                }
                // EINVAL is the kernel's answer to unknown flags.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    setup.missing.push(format!("io_uring flags {flags}: this kernel does not know them"));
                    last = e;
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                    return Err(setup.forbidden(&e));
                }
                Err(e) => return Err(unavailable(&e)),
            }
        }
        Err(unavailable(&last))
    }

    /// Distinguishes a user who may not create any ring from one who may not use SQPOLL.
    fn forbidden(&self, error: &io::Error) -> Refusal {
        let plain = Self { delivery: Delivery::Plain, no_array: false, fetched: false, ..self.clone() };
        match plain.open(1) {
            Ok(ring) if self.fetched => not_fetched(ring.features()),
            _ => unavailable(error),
        }
    }

    /// Opens a ring. The memory of a closed ring stays charged to its user for some milliseconds, so too little memory
    /// is retried.
    pub(super) fn open(&self, depth: u32) -> io::Result<Uring> {
        for _ in 0..WAITS_FOR_MEMORY {
            match self.open_now(depth) {
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) => thread::sleep(WAIT_FOR_MEMORY),
                opened => return opened,
            }
        }
        self.open_now(depth)
    }

    fn open_now(&self, depth: u32) -> io::Result<Uring> {
        let flag = |asked: bool, flag: u32| if asked { flag } else { 0 };
        let delivery = match self.delivery {
            Delivery::Deferred => abi::SETUP_SINGLE_ISSUER | abi::SETUP_DEFER_TASKRUN,
            Delivery::Cooperative => abi::SETUP_COOP_TASKRUN,
            Delivery::Plain => 0,
        };
        let flags = delivery
            | flag(self.polled, abi::SETUP_IOPOLL)
            | flag(self.fetched, abi::SETUP_SQPOLL)
            | flag(self.no_array, abi::SETUP_NO_SQARRAY);
        // The SQPOLL thread reports late which entries it has taken, when some of them are already complete.
        Uring::new(if self.fetched { 2 * depth } else { depth }, flags, SQ_IDLE_MS)
    }
}

/// Why SQPOLL is forbidden although a ring is not, judged by the kernel's features. The version number does not tell,
/// as stable kernels have backported io_uring (5.10.162 has that of 5.15).
fn not_fetched(features: u32) -> Refusal {
    let lacks = |feature: u32| features & feature == 0;
    Refusal::Refused(if lacks(abi::FEAT_SQPOLL_NONFIXED) {
        "sqthread_poll needs CAP_SYS_ADMIN on this kernel, as before Linux 5.11: run as root, or leave it out"
            .to_string()
    } else if lacks(abi::FEAT_RSRC_TAGS) {
        "sqthread_poll needs CAP_SYS_NICE on this kernel, as in Linux 5.11 and 5.12: run as root or with that right, or \
         leave it out"
            .to_string()
    } else {
        // Since 5.16: `security_uring_sqpoll`.
        "sqthread_poll is forbidden by a security module: allow it there (SELinux: io_uring sqpoll), or \
         leave it out"
            .to_string()
    })
}

/// The job's files must be registered, and registering failed.
pub(super) fn needs_files(error: &io::Error) -> Refusal {
    Refusal::Refused(format!(
        "sqthread_poll needs registered files on this kernel, as before Linux 5.11, and they cannot be registered: {}; \
         leave it out",
        reason(error)
    ))
}

pub(super) fn unavailable(error: &io::Error) -> Refusal {
    let switch = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    Refusal::Refused(match (error.raw_os_error(), switch.trim()) {
        (Some(libc::EPERM | libc::EACCES), value @ ("1" | "2")) => format!(
            "io_uring is disabled here (kernel.io_uring_disabled = {value}): set it to 0 with sysctl to drive a load"
        ),
        (Some(libc::EPERM | libc::EACCES), _) => {
            "io_uring is forbidden here, as by a container's system call filter: run outside of it, or \
             allow io_uring_setup in its seccomp profile"
                .to_string()
        }
        (Some(libc::ENOSYS), _) => {
            "this kernel has no io_uring, or a system call filter hides it: Linux 5.10 or newer is needed"
                .to_string()
        }
        (Some(libc::ENOMEM), _) => {
            "no memory for the io_uring queues: choose a smaller --iodepth or raise RLIMIT_MEMLOCK (ulimit -l)"
                .to_string()
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            "no file descriptors left for io_uring: choose fewer --numjobs or raise ulimit -n".to_string()
        }
        _ => format!("cannot set up io_uring: {}; see `biopsy check`", reason(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_no_thread_of_the_kernel_s_hears_which_right_it_takes() {
        let why = |features| not_fetched(features).to_string();
        // The features that 5.10, 5.11, 5.12 and 5.13 report.
        assert!(why(0x7f).contains("CAP_SYS_ADMIN") && why(0x7f).contains("before Linux 5.11"));
        for features in [0x1ff, 0x3ff] {
            assert!(why(features).contains("CAP_SYS_NICE"), "{features:#x}");
        }
        assert!(why(0x7ff).contains("security module") && !why(0x7ff).contains("CAP_"));
    }

    #[test]
    fn a_disabled_ring_is_told_from_a_missing_one() {
        let why = |errno| unavailable(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(why(libc::ENOSYS).contains("this kernel has no io_uring"));
        assert!(why(libc::EPERM).contains("io_uring"));
        assert!(why(libc::ENOMEM).contains("--iodepth"));
    }
}
