//! The setup of a comparison: the load or the command, the host, its kernel and the device.

use std::collections::BTreeMap;
use std::slice;

use biopsy::envelope::Envelope;
use biopsy::experiment::compare::{PrintedMetric, SampleSource};
use biopsy::load::LoadSummary;
use biopsy::render::json;
use serde_json::Value;

use crate::load;

/// The run of a load in the form of a saved `biopsy load --json`.
pub fn of_load(envelope: &Envelope, run: &LoadSummary) -> SampleSource {
    let object = json::load::object(envelope, slice::from_ref(run), None, load::hostname());
    SampleSource::of("", &[Value::Object(object)]).unwrap_or_default()
}

/// The setup of a command.
pub fn of_command(
    envelope: &Envelope,
    command: &[String],
    printed: Option<&PrintedMetric>,
    device: Option<&str>,
) -> BTreeMap<String, String> {
    let all = [
        ("command", Some(command.join(" "))),
        ("value", printed.map(|printed| printed.path.clone())),
        ("kernel", Some(envelope.kernel.clone())),
        ("host", load::hostname()),
        ("device", device.map(str::to_string)),
    ];
    all.into_iter().filter_map(|(what, value)| Some((what.to_string(), value?))).collect()
}
