//! What crosses the line between kernel and user space. Pure.
//!
//! Each record is declared once, in `bpf/wire.h` and `bpf/wire/`; [`records`] has them as Rust. Bytes become values
//! here, and a record that is too short is an error value, never a panic.

/// Declares a struct, and implements `Count` for it field by field.
macro_rules! counted {
    ($(#[$of_struct:meta])* pub struct $name:ident { $($(#[$of_field:meta])* pub $field:ident: $type:ty,)+ }) => {
        $(#[$of_struct])*
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)+
        }

        impl $crate::wire::Count for $name {
            fn since(&self, earlier: &Self) -> Self {
                Self { $($field: $crate::wire::Count::since(&self.$field, &earlier.$field),)+ }
            }

            fn plus(&self, other: &Self) -> Self {
                Self { $($field: $crate::wire::Count::plus(&self.$field, &other.$field),)+ }
            }
        }
    };
}

pub mod blocked;
pub mod errors;
pub mod events;
pub mod files;
pub mod generator;
pub mod groups;
pub mod interrupts;
pub mod locks;
pub mod pagecache;
pub mod parts;
pub mod places;
pub mod process_events;
pub mod process_ios;
pub mod reading;
pub mod rows;
pub mod stacks;
pub mod submits;
pub mod threads;

/// The records, as `bpf/records.rs` writes them from the types of the kernel side: `bpf/wire.h` explains their fields.
pub mod records {
    use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

    use super::{Count, Record};

    include!(concat!(env!("OUT_DIR"), "/records.rs"));
}

use std::collections::HashMap;
use std::hash::Hash;
use std::iter;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::records::{WireBioIo, WireCounters, WireDevice, WireExtent, WireSlot};

use crate::hist::{BUCKETS, Histogram, MAX_BITS as HIST_MAX_BITS};

/// Stages in the order of `enum wire_stage`.
pub const STAGES: usize = 3;
/// Operations in the order of `enum wire_op`.
pub const OPS: usize = 8;
/// The operations that have a row per shard; the others have one row per device.
pub const OPS_SHARDED: usize = 2;
/// `MAX_DEVICES` of `bpf/owner.h`.
pub const MAX_DEVICES: usize = 256;
/// Several CPUs add to one row.
pub const SHARED_ROWS: u32 = 1;
/// Several CPUs add to one row of operations.
pub const SHARED_OPERATION_ROWS: u32 = 2;
/// It has no requests.
pub const BIO_BASED: u32 = 4;
/// A bio-based device that is traced stands on it.
pub const BELOW: u32 = 8;
/// Where the driver flushes first and then writes, the kernel counts a write with a flush ahead as two I/Os.
pub const FLUSHES_APART: u32 = 16;
/// Several CPUs add to one row of I/Os of no operation.
pub const SHARED_UNOWNED_ROWS: u32 = 32;
/// Only one partition of the disk is traced.
pub const PARTITION: u32 = 64;
/// Stages of an operation in the order of `enum wire_operation_stage`; their sum, the total, comes last.
pub const OPERATION_STAGES: usize = 6;
/// Which stages an operation has, `enum wire_cover`: all, all but reap, all but complete.
pub const COVERS: usize = 3;
/// Powers of two of an operation's total.
pub const TOTALS: usize = HIST_MAX_BITS as usize + 1;
/// Numbers of system calls that can be followed, and what they have to do with operations: `enum wire_call`.
pub const SYSCALLS: usize = 512;
pub const CALL_WAITS: u8 = 1;
pub const CALL_RING: u8 = 2;
pub const CALL_AIO: u8 = 3;
pub const CALL_AIO_FETCH: u8 = 4;
pub const CALL_COMMAND: u8 = 5;

/// A record that crosses from the kernel: any bytes of its length are one.
pub trait Record: Count + FromBytes + IntoBytes + Immutable + KnownLayout + Copy {
    /// Its name in C.
    const NAME: &'static str;

    /// # Errors
    /// When the bytes are not as many as the record has.
    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        Self::read_from_bytes(bytes).map_err(|_| Damaged::of::<Self>(bytes))
    }

    /// The same in place, for a record that is too large to be copied.
    ///
    /// # Errors
    /// When the bytes are not as many as the record has, or not aligned like it.
    fn view(bytes: &[u8]) -> Result<&Self, Damaged> {
        Self::ref_from_bytes(bytes).map_err(|_| Damaged::of::<Self>(bytes))
    }
}

/// What of a record is counted. Fields of 64 bits are: a narrower one says what something is, and keeps its value.
pub trait Count {
    /// What came since `earlier`. A counter that went back has nothing.
    fn since(&self, earlier: &Self) -> Self;

    /// Both together.
    fn plus(&self, other: &Self) -> Self;
}

impl Count for u64 {
    fn since(&self, earlier: &Self) -> Self {
        self.saturating_sub(*earlier)
    }

    fn plus(&self, other: &Self) -> Self {
        self.saturating_add(*other)
    }
}

impl<T: Count, const N: usize> Count for [T; N] {
    fn since(&self, earlier: &Self) -> Self {
        std::array::from_fn(|i| self[i].since(&earlier[i]))
    }

    fn plus(&self, other: &Self) -> Self {
        std::array::from_fn(|i| self[i].plus(&other[i]))
    }
}

macro_rules! not_counted {
    ($($narrow:ty)+) => {
        $(impl Count for $narrow {
            fn since(&self, _: &Self) -> Self {
                *self
            }

            fn plus(&self, _: &Self) -> Self {
                *self
            }
        })+
    };
}

not_counted!(u8 u16 u32);

impl<T: Count + Clone> Count for Option<T> {
    fn since(&self, earlier: &Self) -> Self {
        self.as_ref().map(|now| earlier.as_ref().map_or_else(|| now.clone(), |then| now.since(then)))
    }

    fn plus(&self, other: &Self) -> Self {
        match (self, other) {
            (Some(one), Some(two)) => Some(one.plus(two)),
            (one, two) => one.as_ref().or(two.as_ref()).cloned(),
        }
    }
}

/// By place; one that the other does not have stays as it is.
impl<T: Count + Clone> Count for Vec<T> {
    fn since(&self, earlier: &Self) -> Self {
        let then = earlier.iter().map(Some).chain(iter::repeat(None));
        self.iter()
            .zip(then)
            .map(|(now, then)| then.map_or_else(|| now.clone(), |then| now.since(then)))
            .collect()
    }

    fn plus(&self, other: &Self) -> Self {
        let (long, short) = if self.len() < other.len() { (other, self) } else { (self, other) };
        let both = long.iter().zip(short).map(|(one, two)| one.plus(two));
        both.chain(long[short.len()..].iter().cloned()).collect()
    }
}

impl<A: Count, B: Count> Count for (A, B) {
    fn since(&self, earlier: &Self) -> Self {
        (self.0.since(&earlier.0), self.1.since(&earlier.1))
    }

    fn plus(&self, other: &Self) -> Self {
        (self.0.plus(&other.0), self.1.plus(&other.1))
    }
}

impl Count for Histogram {
    fn since(&self, earlier: &Self) -> Self {
        Self::since(self, earlier)
    }

    fn plus(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.merge(other);
        both
    }
}

/// Bytes from the kernel that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged {
    /// The struct that was expected.
    pub what: &'static str,
    pub expected: usize,
    pub found: usize,
}

impl Damaged {
    /// Bytes that should have been a `T`.
    fn of<T: Record>(bytes: &[u8]) -> Self {
        Self { what: T::NAME, expected: size_of::<T>(), found: bytes.len() }
    }
}

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a {} of {} bytes came with {}", self.what, self.expected, self.found)
    }
}

impl std::error::Error for Damaged {}

/// The buckets of each lie one behind the other.
fn histograms<const N: usize>(extents: &[WireExtent; N], counts: &[u64]) -> [Histogram; N] {
    std::array::from_fn(|i| {
        let extent = &extents[i];
        let counts = &counts[i * BUCKETS..(i + 1) * BUCKETS];
        Histogram::from_parts(counts, extent.sum, !extent.not_min, extent.max)
    })
}

/// Adds and saturates: counters in damaged bytes can overflow.
fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// The name of a task: any bytes, up to the first zero.
pub fn task_name(comm: &[u8]) -> &[u8] {
    comm.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Each of `now` less what `earlier` has under the same key; one that is new stays as it is.
fn since_by_key<T: Clone, K: Eq + Hash>(
    now: &[T],
    earlier: &[T],
    key: impl Fn(&T) -> K,
    less: impl Fn(&T, &T) -> T,
) -> Vec<T> {
    let earlier: HashMap<K, &T> = earlier.iter().map(|row| (key(row), row)).collect();
    now.iter().map(|row| earlier.get(&key(row)).map_or_else(|| row.clone(), |then| less(row, then))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_counters_are_an_error_value() {
        assert!(WireCounters::decode(&[0; 79]).is_err());
    }
}
