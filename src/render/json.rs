//! JSON of the contract: integers in nanoseconds and bytes, unit in the key, absent is absent.

pub mod check;
pub mod devices;
pub mod diagnose;
pub mod drive;
pub mod experiment;
mod files;
pub mod fio;
pub mod flame;
pub mod groups;
pub mod interrupts;
pub mod latency;
pub mod load;
pub mod locks;
pub mod pagecache;
pub mod precondition;
pub mod scaling;
pub mod sweep;
pub mod threads;
pub mod timeline;
pub mod top;
pub mod trace;

use serde_json::{Map, Value, json};

use crate::envelope::Envelope;
use crate::hist::Histogram;

/// A histogram of times.
pub fn times(hist: &Histogram) -> Value {
    json!({
        "count": hist.count(),
        "sum_ns": hist.sum(),
        "min_ns": hist.min(),
        "max_ns": hist.max(),
        "p50_ns": hist.quantile(0.5),
        "p90_ns": hist.quantile(0.9),
        "p99_ns": hist.quantile(0.99),
        "p999_ns": hist.quantile(0.999),
        "p9999_ns": hist.quantile(0.9999),
        "buckets": hist.buckets().map(|(lower, upper, n)| json!([lower, upper, n])).collect::<Vec<_>>(),
    })
}

/// A histogram of counts.
pub fn counts(hist: &Histogram) -> Value {
    json!({
        "count": hist.count(),
        "sum": hist.sum(),
        "min": hist.min(),
        "max": hist.max(),
        "p50": hist.quantile(0.5),
        "p90": hist.quantile(0.9),
        "p99": hist.quantile(0.99),
        "p999": hist.quantile(0.999),
        "p9999": hist.quantile(0.9999),
        "buckets": hist.buckets().map(|(lower, upper, n)| json!([lower, upper, n])).collect::<Vec<_>>(),
    })
}

/// An object of `schema` with the envelope's keys; the view adds its own.
pub fn object(schema: &str, envelope: &Envelope) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("schema".to_string(), json!(schema));
    if let Ok(Value::Object(keys)) = serde_json::to_value(envelope) {
        object.extend(keys);
    }
    object
}

/// One line of JSON, with its newline.
pub fn line(object: Map<String, Value>) -> Vec<u8> {
    let mut bytes = Value::Object(object).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
