//! Literal readings for the tests of the summaries.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::host::counters::Counters;
use crate::merge::Summary;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::IoRow;
use crate::wire::{OPS, OPS_SHARDED};

fn counters(reads: u64) -> Option<Counters> {
    Some(Counters { reads, discards: Some(0), flushes: None, iostats: Some(true), ..Counters::default() })
}

/// Serializes to JSON, and checks that it reads back equal.
pub fn json<T: Serialize + DeserializeOwned + PartialEq + Debug>(of: &T) -> Value {
    let value = serde_json::to_value(of).unwrap();
    assert_eq!(&serde_json::from_value::<T>(value.clone()).unwrap(), of);
    value
}

/// Reads with these latencies on `sda`, and the kernel's count of reads around them.
pub fn sample(reads: &[u64], before: u64, after: u64) -> DeviceSample {
    let mut rows = vec![IoRow::default(); 2 * OPS_SHARDED];
    rows[0].stages[1] = reads.iter().copied().collect();
    rows[0].bytes = reads.len() as u64 * 4096;
    DeviceSample {
        name: "sda".into(),
        hw_queues: 2,
        shards: 1,
        rows,
        rare: vec![IoRow::default(); OPS - OPS_SHARDED],
        kernel_before: counters(before),
        kernel_after: counters(after),
        ..DeviceSample::default()
    }
}

pub fn reading(at_ns: u64, device: DeviceSample) -> Reading {
    Reading { at_ns, devices: vec![device], ..Reading::default() }
}

/// Merges a summary with itself, as an equal following interval: all counts and times must double, and the keys in
/// `same` must not change. Returns the keys that fail.
pub fn not_doubled<S: Summary + Clone + Serialize>(one: &S, same: &[&str]) -> Vec<String> {
    let mut twice = one.clone();
    twice.merge_with(one);
    twice.settle();
    let mut wrong = Vec::new();
    let [one, twice] = [one, &twice].map(|all| serde_json::to_value(all).unwrap());
    compare("", &one, &twice, same, &mut wrong);
    wrong
}

/// Keys of a histogram that do not change, and its buckets, whose third number is a count.
const OF_HISTOGRAM: [&str; 7] = ["min_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p50", "buckets"];

fn compare(key: &str, one: &Value, twice: &Value, same: &[&str], wrong: &mut Vec<String>) {
    match (one, twice) {
        (Value::Object(one), Value::Object(twice)) => {
            for (key, value) in one {
                compare(key, value, twice.get(key).unwrap_or(&Value::Null), same, wrong);
            }
        }
        (Value::Array(one), Value::Array(twice)) if one.len() == twice.len() => {
            one.iter().zip(twice).for_each(|(one, twice)| compare(key, one, twice, same, wrong));
        }
        (Value::Number(one), Value::Number(twice)) if !OF_HISTOGRAM.contains(&key) => {
            let [one, twice] = [one, twice].map(|n| n.as_f64().unwrap());
            let expected = if same.contains(&key) { one } else { 2.0 * one };
            if (twice - expected).abs() > 1e-9 * expected.abs() {
                wrong.push(format!("{key}: {one}, {twice}"));
            }
        }
        (one, twice) if one != twice && !OF_HISTOGRAM.contains(&key) => {
            wrong.push(format!("{key}: {one}, {twice}"))
        }
        _ => {}
    }
}
