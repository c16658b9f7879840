//! Classes of I/O: those of requests, and those of the kernel's own counters.

use crate::names::names;

names! {
    /// Class of a block-layer request. The order is that of `enum wire_op` in `bpf/wire.h`.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Op {
        Read = "read",
        Write = "write",
        Fua = "fua",
        Flush = "flush",
        EmptyFlush = "empty_flush",
        Discard = "discard",
        WriteZeroes = "write_zeroes",
        Passthrough = "passthrough",
    }
}

impl Op {
    /// The field of `/sys/block/D/stat` that counts this class. Passthrough has none; before 5.18, and where
    /// `queue/iostats_passthrough` is set, it is in a field that the class does not tell.
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

/// The classes as a bit mask; all if none is named.
pub fn mask(ops: &[Op]) -> u32 {
    if ops.is_empty() { u32::MAX } else { ops.iter().fold(0, |mask, op| mask | 1 << *op as u32) }
}

names! {
    /// A class of the kernel's own I/O counters.
    #[derive(PartialOrd, Ord)]
    pub enum KernelClass {
        Read = "read",
        Write = "write",
        Discard = "discard",
        Flush = "flush",
    }
}
