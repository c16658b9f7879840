//! Why nothing (or nothing to be trusted) was measured, and the exit code that says so.
//!
//! Everything else is an `anyhow` error and ends with exit code 1. A refusal travels inside an
//! `anyhow::Error` and is found again by downcast in `tools/main.rs`.

use std::fmt;
use std::io;

/// A command that ends without a result, or with one that must not be trusted.
///
/// Each message is one sentence that names the thing and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The command line is wrong in a way that only a look at the machine shows. Exit code 2.
    Usage(String),
    /// Rights, BTF, a probe or a device is missing: nothing was measured. Exit code 3.
    Refused(String),
    /// Measured, but not to be trusted: loss over the limit, a device vanished. Exit code 4.
    Untrusted(String),
    /// What the command line asked to be told of by the exit code was found. Exit code 10.
    Found(String),
    /// A comparison found an arm to be worse, and was to be told of it by the exit code. Exit code 11.
    Worse(String),
}

impl Refusal {
    /// The exit code of the command-line contract.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::Untrusted(_) => 4,
            Self::Found(_) => 10,
            Self::Worse(_) => 11,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Errors of other crates are quoted in it.
            Self::Usage(why)
            | Self::Refused(why)
            | Self::Untrusted(why)
            | Self::Found(why)
            | Self::Worse(why) => f.write_str(&plain(why)),
        }
    }
}

impl std::error::Error for Refusal {}

/// A message without the numbers that Rust appends to the texts of system errors: `(os error 28)` says
/// nothing that the words before it do not say.
pub fn plain(message: &str) -> String {
    const MARK: &str = " (os error ";
    let mut parts = message.split(MARK);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => out.push_str(rest),
            _ => out.extend([MARK, part]),
        }
    }
    out
}

/// A system error as part of a sentence.
pub fn reason(error: &io::Error) -> String {
    plain(&error.to_string()).to_lowercase()
}

/// The kernel refused to map a ring: too much memory is locked already.
///
/// `perf_mmap` charges a ring to `locked_vm` of the real user, up to `kernel.perf_event_mlock_kb` for each online CPU,
/// and the rest to `pinned_vm` of the process, up to RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK. The first
/// charge is made with CAP_IPC_LOCK, too, and io_uring checks the same `locked_vm` against RLIMIT_MEMLOCK for
/// processes without CAP_IPC_LOCK. So rings must be small, or they stop other io_uring programs of the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedMemory;

impl LockedMemory {
    pub const REMEDY: &str = "give biopsy CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK (ulimit -l) or \
                              kernel.perf_event_mlock_kb";
}

impl fmt::Display for LockedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the limit of locked memory has no room for perf's ring buffers")
    }
}

impl std::error::Error for LockedMemory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_has_a_number_for_what_it_says_in_words() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(full.to_string().ends_with("(os error 28)"), "{full}");
        assert_eq!(reason(&full), "no space left on device");
        let quoted = Refusal::Refused(format!("writing a ({full}) and b failed: {full}: make room"));
        assert_eq!(
            quoted.to_string(),
            "writing a (No space left on device) and b failed: No space left on device: make room"
        );
        for kept in ["", " (os error ", "a (os error x) b", "(os error 5)", "a (os error 5"] {
            assert_eq!(plain(kept), kept);
        }
    }
}
