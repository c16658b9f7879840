//! The operation of an I/O, as far as it is known.

use super::io::StageTimes;

/// One operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracedOperation {
    /// Unique in the run.
    pub id: u64,
    /// None: it had not ended when the I/O was returned, or its event was lost.
    pub end: Option<OperationEnd>,
}

/// Facts that are known when an operation has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationEnd {
    pub kind: SubmitMethod,
    /// The application's `user_data`; None for a system call, which has none.
    pub user_data: Option<u64>,
    /// For io_uring.
    pub opcode: Option<u32>,
    /// Number of its I/Os that completed.
    pub ios: u32,
    /// This I/O was the last of them, so the operation's stages belong to it.
    pub last: bool,
    /// They add up to the total. None where parts that ended at the same time mixed their stamps.
    pub stages: Option<StageTimes>,
    pub total_ns: Option<u64>,
}

/// How an operation is submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SubmitMethod {
    /// A blocking system call.
    #[default]
    Call,
    Ring,
    Aio,
}

impl SubmitMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Ring => "io_uring",
            Self::Aio => "aio",
        }
    }
}
