//! `biopsy.top/1`.

use serde_json::{Map, Value, json};

use super::object;
use crate::analyze::top::{Line, Moved, TIMES};
use crate::envelope::Envelope;

/// One line of the view as one line of JSON.
pub fn render(envelope: &Envelope, line: &Line) -> Vec<u8> {
    let mut all = object("biopsy.top/1", envelope);
    let mut add = |key: &str, value: Value| all.insert(key.to_string(), value);
    let per_second = |n: Option<u64>| json!(n.map(|n| line.per_second(n)));
    add("suspended_ns", json!(line.suspended_ns));
    add("tasks", json!({"running": line.running, "blocked": line.blocked, "new": line.new}));
    add("cpu", json!(line.cpu.as_ref().map(|cpu| {
        let share: Map<String, Value> =
            TIMES.iter().zip(cpu.of).map(|(name, share)| (name.to_string(), json!(share))).collect();
        json!({"cpus": cpu.cpus, "share": share, "unaccounted_share": cpu.unaccounted, "error_share": cpu.error})
    })));
    add(
        "memory",
        json!(line.memory.map(|memory| json!({
            "total_bytes": memory.total, "used_bytes": memory.used(), "free_bytes": memory.free,
            "buffers_bytes": memory.buffers, "cached_bytes": memory.cached,
        }))),
    );
    add("paging", json!(line.paged.map(|(paged_in, out)| json!({"in_bytes": paged_in, "out_bytes": out}))));
    add("interrupts", json!(line.interrupts));
    add("interrupts_per_second", per_second(line.interrupts));
    add("context_switches", json!(line.context_switches));
    add("context_switches_per_second", per_second(line.context_switches));
    add("total", Value::Object(moved(line, &line.total)));
    let disks = line.disks.iter().map(|(name, of)| {
        let mut one = moved(line, of);
        one.insert("name".to_string(), json!(name));
        Value::Object(one)
    });
    add("devices", disks.collect());
    super::line(all)
}

fn moved(line: &Line, of: &Moved) -> Map<String, Value> {
    let all = [
        ("reads", json!(of.reads)),
        ("writes", json!(of.writes)),
        ("read_bytes", json!(of.read_bytes)),
        ("written_bytes", json!(of.written_bytes)),
        ("reads_per_second", json!(line.per_second(of.reads))),
        ("writes_per_second", json!(line.per_second(of.writes))),
        ("read_bytes_per_second", json!(line.per_second(of.read_bytes))),
        ("written_bytes_per_second", json!(line.per_second(of.written_bytes))),
    ];
    all.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::top::Shares;

    #[test]
    fn a_line_is_one_object_and_what_is_not_known_is_null() {
        let seen = Line {
            duration_ns: 2_000_000_000,
            cpu: Some(Shares { of: [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], cpus: 2, ..Shares::default() }),
            disks: vec![("vd\n\"a".to_string(), Moved { reads: 4, ..Moved::default() })],
            ..Line::default()
        };
        let bytes = render(&Envelope::default(), &seen);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        let object: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!((&object["schema"], &object["memory"]), (&json!("biopsy.top/1"), &Value::Null));
        assert_eq!(object["cpu"]["share"].as_object().unwrap().len(), 7);
        assert_eq!(object["devices"][0]["reads_per_second"], json!(2.0));
        assert_eq!(object["tasks"]["running"], Value::Null);
    }
}
