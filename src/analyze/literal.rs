//! Readings as literals, for the tests of the summaries.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::host::counters::Counters;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::Row;
use crate::wire::{OPS, OPS_SHARDED};

fn counters(reads: u64) -> Option<Counters> {
    Some(Counters { reads, discards: Some(0), flushes: None, iostats: Some(true), ..Counters::default() })
}

/// Its JSON, from which the same is read back.
pub fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(of: &T) -> Value {
    let value = serde_json::to_value(of).unwrap();
    assert_eq!(&serde_json::from_value::<T>(value.clone()).unwrap(), of);
    value
}

/// Reads of these lengths on `sda`, and the kernel's count of reads around them.
pub fn sample(reads: &[u64], before: u64, after: u64) -> DeviceSample {
    let mut rows = vec![Row::default(); 2 * OPS_SHARDED];
    rows[0].stages[1] = reads.iter().copied().collect();
    rows[0].bytes = reads.len() as u64 * 4096;
    DeviceSample {
        name: "sda".into(),
        hw_queues: 2,
        shards: 1,
        rows,
        rare: vec![Row::default(); OPS - OPS_SHARDED],
        kernel_before: counters(before),
        kernel_after: counters(after),
        ..DeviceSample::default()
    }
}

pub fn reading(at_ns: u64, device: DeviceSample) -> Reading {
    Reading { at_ns, devices: vec![device], ..Reading::default() }
}
