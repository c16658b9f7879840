//! What the kernel's own counters say of the same I/Os.

use std::collections::BTreeMap;

use serde::Serialize;

use super::op::{KernelClass, Op};
use crate::host::BlockDevice;
use crate::host::counters::Counters;
use crate::wire::reading::DeviceSample;

/// What the kernel's counters allow: `min` between the inner readings, `max` between the outer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bracket {
    pub min: u64,
    pub max: u64,
}

impl Bracket {
    pub fn holds(self, seen: u64) -> bool {
        self.min <= seen && seen <= self.max
    }
}

/// Who counts what: which of the kernel's counters an I/O of a device belongs to depends on its driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counting {
    /// The block layer counts requests.
    #[default]
    Requests,
    /// Device mapper counts every bio.
    Dm,
    /// The RAID drivers count bios with data; discards only in some of them.
    Md,
    /// zram counts reads and writes.
    Zram,
    /// A driver whose way of counting is not known.
    Unknown,
}

impl Counting {
    pub(super) fn of(device: &BlockDevice) -> Self {
        match device.driver.as_deref() {
            _ if device.request_based => Self::Requests,
            Some("dm") => Self::Dm,
            Some("md") => Self::Md,
            Some("zram") => Self::Zram,
            _ => Self::Unknown,
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class on such a device.
    pub fn class(self, op: Op) -> Option<KernelClass> {
        match (self, op) {
            (Self::Requests | Self::Dm, _) => op.kernel_class(),
            (Self::Md, Op::Read | Op::Write | Op::Fua | Op::WriteZeroes) => op.kernel_class(),
            (Self::Zram, Op::Read | Op::Write | Op::Fua) => op.kernel_class(),
            _ => None,
        }
    }

    /// Whether the counters move although `queue/iostats` says 0: zram's always do. dm's do until
    /// 526d10061bc2 (6.5), which is known here of kernels that count bios when they begin (before 6.3); there the
    /// flag of both is 0 from the start.
    pub(super) fn ignores_the_flag(self, sample: &DeviceSample) -> bool {
        self == Self::Zram || self == Self::Dm && sample.counted_at_start
    }

    fn counts(self, class: KernelClass) -> bool {
        Op::ALL.into_iter().any(|op| self.class(op) == Some(class))
    }
}

pub(super) fn in_flight(counters: &Counters) -> u64 {
    match (counters.in_flight_reads, counters.in_flight_writes) {
        (Some(reads), Some(writes)) => reads + writes,
        _ => counters.in_flight,
    }
}

/// The kernel's counters around both readings: between the inner two the I/O was certainly traced,
/// outside the outer two it certainly was not.
pub(super) fn kernel_brackets(
    counting: Counting,
    first: &DeviceSample,
    last: &DeviceSample,
) -> Option<BTreeMap<KernelClass, Bracket>> {
    let (a, b) = (first.kernel_before?, first.kernel_after?);
    let (c, d) = (last.kernel_before?, last.kernel_after?);
    let off = [a, b, c, d].iter().any(|counters| counters.iostats == Some(false));
    if counting == Counting::Unknown || off && !counting.ignores_the_flag(last) {
        return None;
    }
    // What is counted when it begins is seen here when it ends.
    let (begun, unended) =
        if last.counted_at_start { (in_flight(&a), in_flight(&c)) } else { Default::default() };
    let get = |counters: &Counters, class| match class {
        KernelClass::Read => Some(counters.reads),
        KernelClass::Write => Some(counters.writes),
        KernelClass::Discard => counters.discards,
        KernelClass::Flush => counters.flushes,
    };
    let bracket = |class| {
        let min = get(&c, class)?.saturating_sub(get(&b, class)? + unended);
        Some((class, Bracket { min, max: get(&d, class)?.saturating_sub(get(&a, class)?) + begun }))
    };
    let all = KernelClass::ALL.into_iter().filter(|class| counting.counts(*class));
    Some(all.filter_map(bracket).collect())
}
