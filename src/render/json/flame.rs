//! Renders `biopsy.flame/1`.

use serde_json::{Map, Value, json};

use crate::analyze::flame::{FlameSummary, Submitter, What};
use crate::analyze::flame_diff::Comparison;
use crate::analyze::profile::Place;
use crate::envelope::Envelope;
use crate::render::text;

/// Number of heaviest frames.
const MOST_FRAMES: usize = 100;

/// One object. `product`: path and format of the written stacks; None: nothing was written.
pub fn render(
    envelope: &Envelope,
    summary: &FlameSummary,
    product: Option<(&str, &str)>,
    status: Option<i32>,
) -> Vec<u8> {
    let mut all = super::object("biopsy.flame/1", envelope);
    let mut add = |key: &str, value: Value| drop(all.insert(key.to_string(), value));
    add("what", json!(summary.what));
    add("unit", json!(summary.profile.unit));
    add("total", json!(summary.profile.total()));
    add("stacks", json!(summary.profile.stacks().len()));
    add("measured", json!(summary.measured));
    if summary.what == Some(What::Io) {
        add("devices", json!(summary.devices));
        add("handed_in", summary.submitters().iter().take(MOST_FRAMES).map(submitter).collect());
    }
    add("source", json!(text::flame::source(&summary.source)));
    add("notes", json!(text::notes::all(summary)));
    let frame = |heavy: crate::analyze::flame::Heavy| json!({"frame": heavy.name, "area": heavy.area.name(), "own": heavy.own, "total": heavy.total});
    add("frames", summary.heaviest(MOST_FRAMES).into_iter().map(frame).collect());
    add("unnamed", summary.unnamed.iter().map(unnamed).collect());
    add("product", product.map_or(Value::Null, written));
    if let Some(recorded) = &summary.recorded {
        add("recording", json!({"file": recorded.file, "values": recorded.values}));
        // Unknown is neither zero nor now.
        let unknown = [
            ("start", envelope.start.is_empty()),
            ("kernel", envelope.kernel.is_empty()),
            ("duration_ns", envelope.duration_ns == 0),
            ("lost", summary.what.is_none()),
            ("cost", summary.what.is_none()),
            ("measured", summary.what.is_none()),
        ];
        unknown.into_iter().filter(|(_, unknown)| *unknown).for_each(|(key, _)| add(key, Value::Null));
    }
    all.extend(status.map(|status| ("command_status".to_string(), status.into())));
    super::line(all)
}

/// Path and format of a written file.
fn written((path, format): (&str, &str)) -> Value {
    json!({"path": path, "format": format})
}

/// Data to symbolize a frame elsewhere: `addr2line -e FILE ADDRESS`, with the file of that build-id.
fn unnamed((frame, place): (&String, &Place)) -> Value {
    let build_id = place.build_id.as_ref().map(ToString::to_string);
    json!({"frame": frame, "file": *place.file, "build_id": build_id, "offset": place.offset, "address": place.address})
}

fn submitter(row: &Submitter) -> Value {
    let stages: Map<String, Value> =
        row.parts.iter().map(|(part, ns)| (part.name().to_string(), json!(ns))).collect();
    json!({"who": row.who, "function": row.function, "total": row.total, "stages": stages})
}

/// A comparison of two profiles: the frames that changed most. `files`: before and after; `product` as in [`render`].
pub fn difference(
    envelope: &Envelope,
    comparison: &Comparison,
    files: [&str; 2],
    product: Option<(&str, &str)>,
) -> Vec<u8> {
    let mut all = super::object("biopsy.flame/1", envelope);
    let mut add = |key: &str, value: Value| drop(all.insert(key.to_string(), value));
    add("what", json!("difference"));
    add("a", json!(files[0]));
    add("b", json!(files[1]));
    add("unit", json!(comparison.unit));
    add("basis", json!(comparison.basis));
    add("all", json!(comparison.all));
    add("changes", comparison.changes.iter().take(MOST_FRAMES).map(|change| json!(change)).collect());
    let names = |found: Vec<&crate::analyze::flame_diff::Change>| {
        found.into_iter().map(|change| json!(change.name)).collect::<Value>()
    };
    add("appeared", names(comparison.appeared()));
    add("vanished", names(comparison.vanished()));
    add("product", product.map_or(Value::Null, written));
    super::line(all)
}
