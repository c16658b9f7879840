//! Decodes rows: completed I/Os of one class, and completed operations.

use super::{DamagedRecord, OPERATION_STAGES, Record, STAGES, histograms, sum};
use crate::hist::{BUCKETS, Histogram};

pub use super::records::{WireBounds, WireOperationRow, WireRow, WireTotal};

counted! {
    /// One row: completed I/Os of one class on one device and shard.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct IoRow {
        pub bytes: u64,
        pub untimed: u64,
        pub no_start: u64,
        pub never_issued: u64,
        /// Timed, or an empty flush, and part of no operation that was followed.
        pub unowned: u64,
        /// Timed, or an empty flush, and it is unknown whether it belongs to an operation: not all were followed when
        /// it was submitted.
        pub unclassified: u64,
        /// Parts of timed bios, beyond the first of each, that the kernel counts as separate I/Os.
        pub further: u64,
        /// Below a bio-based device: bios, and their total time since their own entry.
        pub bios: u64,
        pub bio_ns: u64,
        /// Timed I/Os that waited for a flush after their data.
        pub flushed: u64,
        /// By `enum wire_stage`: queue, device, complete. For a bio-based device the whole time of its bios, as the
        /// device stage.
        pub stages: [Histogram; STAGES],
    }
}

impl IoRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let wire = WireRow::view(bytes)?;
        Ok(Self {
            bytes: wire.bytes,
            untimed: wire.untimed,
            no_start: wire.no_start,
            never_issued: wire.never_issued,
            unowned: wire.unowned,
            unclassified: wire.unclassified,
            further: wire.further,
            bios: wire.bios,
            bio_ns: wire.bio_ns,
            flushed: wire.flushed,
            stages: histograms(&wire.extents, &wire.counts),
        })
    }
}

counted! {
    /// Completed operations of one class with the same cover.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct OperationRow {
        /// Operations whose stamps come from several parts, so without stages.
        pub torn: u64,
        /// Operations without an observed fetch and without `complete`, so without stages.
        pub bare: u64,
        /// By `enum wire_operation_stage`: submit, queue, device, complete, reap, total.
        pub stages: [Histogram; OPERATION_STAGES],
        /// By the highest bit of the total: number of operations, and the sum of each stage.
        pub by_total: Vec<(u64, [u64; OPERATION_STAGES - 1])>,
    }
}

impl OperationRow {
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let wire = WireOperationRow::view(bytes)?;
        Ok(Self {
            torn: wire.torn,
            bare: wire.bare,
            stages: std::array::from_fn(|i| {
                let bounds = &wire.bounds[i];
                let counts = &wire.counts[i * BUCKETS..(i + 1) * BUCKETS];
                let sum = sum(wire.by_total.iter().map(|class| class.sums[i]));
                Histogram::from_parts(counts, sum, !bounds.not_min, bounds.max)
            }),
            by_total: wire
                .by_total
                .iter()
                .map(|class| (class.operations, std::array::from_fn(|i| class.sums[i])))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_row_is_an_error_value() {
        let error = IoRow::decode(&[0; 100]).unwrap_err();
        assert_eq!(error.found, 100);
        assert!(error.to_string().contains("row"));
        assert!(IoRow::decode(&[]).is_err());
    }

    #[test]
    fn an_all_zero_row_is_empty() {
        let bytes = vec![0u8; size_of::<WireRow>()];
        assert_eq!(IoRow::decode(&bytes).unwrap(), IoRow::default());
    }
}
