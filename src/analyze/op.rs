//! Classes of I/O: those of requests, and those of the kernel's own counters.

use serde::Serialize;

/// Class of a block-layer request. The order is that of `enum wire_op` in `bpf/wire.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Read,
    Write,
    Fua,
    Flush,
    EmptyFlush,
    Discard,
    WriteZeroes,
    Passthrough,
}

impl Op {
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Fua,
        Self::Flush,
        Self::EmptyFlush,
        Self::Discard,
        Self::WriteZeroes,
        Self::Passthrough,
    ];

    /// The word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fua => "fua",
            Self::Flush => "flush",
            Self::EmptyFlush => "empty_flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::Passthrough => "passthrough",
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class; none counts passthrough, or (before 5.18,
    /// and where `queue/iostats_passthrough` says so) one that the class does not tell.
    pub fn kernel_class(self) -> Option<KernelClass> {
        match self {
            Self::Read => Some(KernelClass::Read),
            Self::Write | Self::Fua | Self::EmptyFlush | Self::WriteZeroes => Some(KernelClass::Write),
            Self::Flush => Some(KernelClass::Flush),
            Self::Discard => Some(KernelClass::Discard),
            Self::Passthrough => None,
        }
    }
}

/// The classes as a bit each; all where none is named.
pub fn mask(ops: &[Op]) -> u32 {
    if ops.is_empty() { u32::MAX } else { ops.iter().fold(0, |mask, op| mask | 1 << *op as u32) }
}

/// A class of the kernel's own I/O counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelClass {
    Read,
    Write,
    Discard,
    Flush,
}

impl KernelClass {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }
}
