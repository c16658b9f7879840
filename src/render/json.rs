//! Renders the documented JSON: integers in nanoseconds and bytes, the unit in the key, missing values without a key.

pub mod fio;
pub mod flame;
pub mod load;
pub mod trace;

use schemars::SchemaGenerator;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::analyze::load::LoadResult;
use crate::analyze::{check, devices, errors, interrupts, latency, overhead, pressure, system, threads, top};
use crate::envelope::{Envelope, FramedView, OutputLine, View};
use crate::experiment::compare::Comparison;
use crate::recording::manifest::Manifest;
use crate::rules::summary::DiagnosisSummary;

/// A view's name, and the function that generates its schema.
type Schema = (&'static str, fn() -> Value);

/// The views with a schema.
const SCHEMAS: &[Schema] = &[
    ("check", schema_of::<check::CheckSummary>),
    ("compare", schema_of::<Comparison>),
    ("devices", schema_of::<devices::DevicesSummary>),
    ("diagnose", schema_of::<DiagnosisSummary>),
    ("errors", schema_of::<errors::ErrorSummary>),
    ("overhead", schema_of::<overhead::OverheadSummary>),
    ("host", schema_of::<devices::HostSummary>),
    ("interrupts", schema_of::<interrupts::InterruptSummary>),
    ("latency", schema_of::<latency::LatencySummary>),
    ("load", schema_of::<LoadResult>),
    ("locks", schema_of::<pressure::PressureSummary>),
    ("record", schema_of::<Manifest>),
    ("system", schema_of::<system::SystemSummary>),
    ("threads", schema_of::<threads::ThreadSummary>),
    ("top", schema_of::<top::TopInterval>),
];

/// The view names that [`schema`] accepts.
pub fn schemas() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}

/// The JSON Schema of a view's object.
pub fn schema(view: &str) -> Option<Value> {
    SCHEMAS.iter().find(|(name, _)| *name == view).map(|(_, of)| of())
}

fn schema_of<V: View>() -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<FramedView<V>>().to_value();
    schema["properties"]["command_status"] = json!({
        "type": "integer", "description": "How the measured command ended; there is none without one.",
    });
    schema
}

/// A view as one line of JSON. `command_status` is set when a command was measured.
pub fn view<V: View>(envelope: &Envelope, view: &V, command_status: Option<i32>) -> Vec<u8> {
    // Cannot fail: map keys are text, and it writes to memory.
    let mut bytes = serde_json::to_vec(&OutputLine::new(envelope, view, command_status)).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The view as an object.
pub fn view_object<V: View>(
    envelope: &Envelope,
    view: &V,
    command_status: Option<i32>,
) -> Map<String, Value> {
    // Parses the line: a second serializer of every view would add a megabyte to the executable.
    serde_json::from_slice(&self::view(envelope, view, command_status)).unwrap_or_default()
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

/// One line per item.
pub fn lines<T: Serialize>(all: &[T]) -> Vec<u8> {
    all.iter().flat_map(|one| format!("{}\n", json!(one)).into_bytes()).collect()
}

/// One line of JSON, with its newline.
pub fn line(object: Map<String, Value>) -> Vec<u8> {
    let mut bytes = Value::Object(object).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_read_back_from_its_object() {
        let seen = top::TopInterval {
            duration_ns: 2_000_000_000,
            cpu: Some(top::CpuShares { cpus: 2, ..top::CpuShares::default() }),
            devices: vec![top::Disk {
                name: "vd\n\"a".to_string(),
                moved: top::DiskTransfers { reads: 4, ..Default::default() },
            }],
            ..top::TopInterval::default()
        };
        let envelope =
            Envelope { version: "1".to_string(), duration_ns: 2_000_000_000, ..Envelope::default() };
        let bytes = view(&envelope, &seen, Some(7));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&object["schema"], &object["memory"]), (&json!("biopsy.top/1"), &Value::Null));
        assert_eq!((&object["tasks"]["running"], &object["command_status"]), (&Value::Null, &json!(7)));
        assert_eq!(serde_json::from_value::<top::TopInterval>(object.clone()).unwrap(), seen);
        assert_eq!(serde_json::from_value::<Envelope>(object).unwrap(), envelope);
    }

    fn keys<T: schemars::JsonSchema>() -> Vec<String> {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
        schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }

    /// The assumption of [`OutputLine`] and its reader.
    fn keys_are_told_apart<V: View>() {
        let envelope = keys::<Envelope>();
        let both: Vec<String> = keys::<V>().into_iter().filter(|key| envelope.contains(key)).collect();
        let wanted: &[&str] = if V::HAS_DURATION { &["duration_ns"] } else { &[] };
        assert_eq!(both, wanted, "{}", V::SCHEMA);
    }

    #[test]
    fn a_view_has_no_key_of_the_envelope_but_its_duration() {
        keys_are_told_apart::<check::CheckSummary>();
        keys_are_told_apart::<Comparison>();
        keys_are_told_apart::<devices::DevicesSummary>();
        keys_are_told_apart::<devices::HostSummary>();
        keys_are_told_apart::<DiagnosisSummary>();
        keys_are_told_apart::<errors::ErrorSummary>();
        keys_are_told_apart::<interrupts::InterruptSummary>();
        keys_are_told_apart::<latency::LatencySummary>();
        keys_are_told_apart::<LoadResult>();
        keys_are_told_apart::<overhead::OverheadSummary>();
        keys_are_told_apart::<pressure::PressureSummary>();
        keys_are_told_apart::<Manifest>();
        keys_are_told_apart::<system::SystemSummary>();
        keys_are_told_apart::<threads::ThreadSummary>();
        keys_are_told_apart::<top::TopInterval>();
        keys_are_told_apart::<crate::analyze::trace::TraceSummary>();
    }

    #[test]
    fn each_key_of_the_envelope_is_there_once_also_where_nothing_was_measured() {
        let envelope = Envelope { duration_ns: 7, ..Envelope::default() };
        let some = pressure::PressureSummary {
            locks: Some(crate::analyze::locks::LockSummary { duration_ns: 7, ..Default::default() }),
            pagecache: None,
        };
        for seen in [pressure::PressureSummary::default(), some] {
            let line = String::from_utf8(view(&envelope, &seen, None)).unwrap();
            assert_eq!(line.matches("\"duration_ns\":7").count(), 1, "{line}");
            let read: FramedView<pressure::PressureSummary> = serde_json::from_str(&line).unwrap();
            assert_eq!((read.envelope.duration_ns, &read.view), (7, &seen));
        }
    }

    #[test]
    fn a_schema_has_the_keys_of_the_view_and_of_the_envelope() {
        for name in schemas() {
            let schema = schema(name).unwrap();
            for key in ["schema", "version", "missing", "cost", "command_status"] {
                assert!(schema["properties"].get(key).is_some(), "{name} {key}");
            }
            // The schema defines each type that it references.
            let text = schema.to_string();
            for pointer in text.split(r##""$ref":"#"##).skip(1) {
                let pointer = pointer.split('"').next().unwrap();
                assert!(schema.pointer(pointer).is_some(), "{name}: {pointer}");
            }
        }
        let top = schema("top").unwrap();
        assert_eq!(top["title"], "biopsy.top/1");
        assert!(top["properties"]["devices"].is_object() && top["$defs"]["Missing"].is_object());
    }
}
