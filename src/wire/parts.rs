//! Parts of stages: the mirror of `struct wire_part_row`.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{COVERS, Damaged, WireExtent, histograms};
use crate::hist::{BUCKETS, Histogram};

/// Parts in the order of `enum wire_part`.
pub const PARTS: usize = 12;
/// What parts are counted by, `enum wire_part_unit`: I/Os, operations of each cover.
pub const PART_UNITS: usize = 1 + COVERS;

/// `struct wire_part_row`.
#[repr(C)]
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout)]
pub struct WirePartRow {
    pub extents: [WireExtent; PARTS],
    pub lock: u64,
    pub unknown: u64,
    pub counts: [u64; PARTS * BUCKETS],
}

const _: () = assert!(size_of::<WirePartRow>() == 304 + 12 * 8 * 592);

/// The parts of one class of I/Os or operations of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct PartRow {
    pub parts: [Histogram; PARTS],
    /// How many of them have a queue stage that could not be taken apart.
    pub unknown: u64,
}

impl PartRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let wire = WirePartRow::ref_from_bytes(bytes)
            .map_err(|_| Damaged::of::<WirePartRow>("row of parts", bytes))?;
        Ok(Self { parts: histograms(&wire.extents, &wire.counts), unknown: wire.unknown })
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            parts: std::array::from_fn(|i| self.parts[i].since(&earlier.parts[i])),
            unknown: self.unknown.saturating_sub(earlier.unknown),
        }
    }
}
