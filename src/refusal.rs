//! Why nothing (or nothing to be trusted) was measured, and the exit code that says so.
//!
//! Everything else is an `anyhow` error and ends with exit code 1. A refusal travels inside an
//! `anyhow::Error` and is found again by downcast in `tools/main.rs`.

use std::fmt;

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
}

impl Refusal {
    /// The exit code of the command-line contract.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(_) => 3,
            Self::Untrusted(_) => 4,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Refused(why) | Self::Untrusted(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}
