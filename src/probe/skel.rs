//! The generated skeletons, and the proof that both sides of the line mean the same.

#[allow(warnings, clippy::all, missing_docs)]
mod generated {
    pub mod latency {
        include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
    }
    pub mod baseline {
        include!(concat!(env!("OUT_DIR"), "/baseline.skel.rs"));
    }
}

pub use generated::{baseline, latency};

use crate::wire::{WireCounters, WireDevice, WireExtent, WireOperationRow, WireRow, WireSlot, WireTotal};

/// Compares a mirror with the type that clang saw: size, and offset of each named field.
macro_rules! same_layout {
    ($rust:ty, $clang:ty: $($field:ident)+) => {
        const _: () = {
            assert!(size_of::<$rust>() == size_of::<$clang>());
            $(assert!(std::mem::offset_of!($rust, $field) == std::mem::offset_of!($clang, $field));)+
        };
    };
}

same_layout!(WireExtent, latency::types::wire_extent: sum not_min max);
same_layout!(WireRow, latency::types::wire_row: bytes untimed no_start never_issued unowned extents counts);
same_layout!(WireTotal, latency::types::wire_total: operations sums);
same_layout!(WireOperationRow, latency::types::wire_operation_row: torn extents by_total counts);
same_layout!(WireDevice, latency::types::wire_device:
    major first_minor slot_base slots_per_queue hw_queues row_base shards rare_row_base flags
    operation_row_base operation_shards);
same_layout!(WireCounters, latency::types::wire_counters:
    splits merges requeues retries negative out_of_range stale no_queue_start);
same_layout!(WireSlot, latency::types::wire_slot: request queued issued reaped state used);
