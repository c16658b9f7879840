//! The operation that an I/O belongs to, as far as it is known.

use super::io::Stages;

/// One operation, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracedOperation {
    /// Unique in the run.
    pub id: u64,
    /// None: it had not ended when the I/O was shown, or its event is lost.
    pub end: Option<OperationEnd>,
}

/// What is known when an operation has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationEnd {
    pub kind: Kind,
    /// What the application gave it; None for a system call, which has no such thing.
    pub user_data: Option<u64>,
    /// Of io_uring.
    pub opcode: Option<u32>,
    /// I/Os that finished for it.
    pub ios: u32,
    /// This I/O was the last of them, and the operation's stages are its.
    pub last: bool,
    /// They add up to the total. None where parts that ended at one moment left a mixture of stamps.
    pub stages: Option<Stages>,
    pub total_ns: Option<u64>,
}

/// What hands an operation over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// A system call that returns with the result.
    #[default]
    Call,
    Ring,
    Aio,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Ring => "io_uring",
            Self::Aio => "aio",
        }
    }
}
