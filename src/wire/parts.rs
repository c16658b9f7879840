//! Parts of stages.

use super::{COVERS, Damaged, Record, histograms};
use crate::hist::Histogram;

pub use super::records::WirePartRow;

/// Parts in the order of `enum wire_part`.
pub const PARTS: usize = 12;
/// What parts are counted by, `enum wire_part_unit`: I/Os, operations of each cover.
pub const PART_UNITS: usize = 1 + COVERS;

/// The parts of one class of I/Os or operations of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct PartRow {
    pub parts: [Histogram; PARTS],
    /// How many of them have a queue stage that could not be taken apart.
    pub unknown: u64,
}

impl PartRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let wire = WirePartRow::view(bytes)?;
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
