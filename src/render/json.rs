//! JSON of the contract: integers in nanoseconds and bytes, unit in the key, absent is absent.

pub mod fio;
pub mod flame;
pub mod load;
pub mod trace;

use schemars::SchemaGenerator;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::analyze::load::LoadResult;
use crate::analyze::{check, devices, errors, interrupts, latency, pressure, system, threads, top};
use crate::envelope::{Envelope, Framed, View};
use crate::recording::manifest::Manifest;
use crate::rules::summary::DiagnosisSummary;

/// A view's name, and what makes its schema.
type Schema = (&'static str, fn() -> Value);

/// The views with a schema.
const SCHEMAS: &[Schema] = &[
    ("check", schema_of::<check::CheckSummary>),
    ("devices", schema_of::<devices::DevicesSummary>),
    ("diagnose", schema_of::<DiagnosisSummary>),
    ("errors", schema_of::<errors::ErrorSummary>),
    ("host", schema_of::<devices::HostSummary>),
    ("interrupts", schema_of::<interrupts::InterruptSummary>),
    ("latency", schema_of::<latency::LatencySummary>),
    ("load", schema_of::<LoadResult>),
    ("locks", schema_of::<pressure::PressureSummary>),
    ("record", schema_of::<Manifest>),
    ("system", schema_of::<system::SystemSummary>),
    ("threads", schema_of::<threads::ThreadSummary>),
    ("top", schema_of::<top::Line>),
];

/// The views that [`schema`] knows.
pub fn schemas() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}

/// The JSON Schema of a view's object.
pub fn schema(view: &str) -> Option<Value> {
    SCHEMAS.iter().find(|(name, _)| *name == view).map(|(_, of)| of())
}

fn schema_of<V: View>() -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<Framed<V>>().to_value();
    schema["properties"]["command_status"] = json!({
        "type": "integer", "description": "How the measured command ended; there is none without one.",
    });
    schema
}

/// A view as one line of JSON. `command_status` is there when a command was measured.
pub fn view<V: View>(envelope: &Envelope, view: &V, command_status: Option<i32>) -> Vec<u8> {
    line(view_object(envelope, view, command_status))
}

/// The same as an object.
pub fn view_object<V: View>(
    envelope: &Envelope,
    view: &V,
    command_status: Option<i32>,
) -> Map<String, Value> {
    let mut all = Framed::object(envelope, view).unwrap_or_default();
    all.extend(command_status.map(|status| ("command_status".to_string(), json!(status))));
    all
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

/// One line for each.
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
        let seen = top::Line {
            duration_ns: 2_000_000_000,
            cpu: Some(top::Shares { cpus: 2, ..top::Shares::default() }),
            devices: vec![top::Disk {
                name: "vd\n\"a".to_string(),
                moved: top::Moved { reads: 4, ..Default::default() },
            }],
            ..top::Line::default()
        };
        let envelope =
            Envelope { version: "1".to_string(), duration_ns: 2_000_000_000, ..Envelope::default() };
        let bytes = view(&envelope, &seen, Some(7));
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&object["schema"], &object["memory"]), (&json!("biopsy.top/1"), &Value::Null));
        assert_eq!((&object["tasks"]["running"], &object["command_status"]), (&Value::Null, &json!(7)));
        assert_eq!(serde_json::from_value::<top::Line>(object.clone()).unwrap(), seen);
        assert_eq!(serde_json::from_value::<Envelope>(object).unwrap(), envelope);
    }

    #[test]
    fn a_schema_has_the_keys_of_the_view_and_of_the_envelope() {
        for name in schemas() {
            let schema = schema(name).unwrap();
            for key in ["schema", "version", "missing", "cost", "command_status"] {
                assert!(schema["properties"].get(key).is_some(), "{name} {key}");
            }
            // Each type that it names is in it.
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
