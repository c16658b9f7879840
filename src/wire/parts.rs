//! Decodes parts of stages.

use super::{COVERS, DamagedRecord, Record, histograms};
use crate::hist::Histogram;

pub use super::records::WirePartRow;

/// Parts in the order of `enum wire_part`.
pub const PARTS: usize = 12;
/// Units that have parts, `enum wire_part_unit`: I/Os, and operations of each cover.
pub const PART_UNITS: usize = 1 + COVERS;

counted! {
    /// The parts of one class of I/Os or operations of one device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct PartRow {
        pub parts: [Histogram; PARTS],
        /// How many of them have a queue stage that could not be broken down.
        pub unknown: u64,
    }
}

impl PartRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let wire = WirePartRow::view(bytes)?;
        Ok(Self { parts: histograms(&wire.extents, &wire.counts), unknown: wire.unknown })
    }
}
