//! What a load shows of the drive below, as keys of its object. Null is not known, and no zero.

use serde_json::{Map, Value, json};

use crate::analyze::cliff::cliff;
use crate::host::nvme::Health;
use crate::load::{Drive, Interval};

/// The keys.
pub fn keys(drive: &Drive) -> Map<String, Value> {
    let content = drive.sampled.map(|sampled| {
        json!({
            "samples": sampled.samples,
            "empty": sampled.empty(),
            "empty_percent": sampled.empty_percent(),
            "zeros": sampled.zeros,
            "holes": sampled.holes,
            "unwritten": sampled.unwritten,
            "unreadable": sampled.unreadable,
            "unread": sampled.unread,
        })
    });
    let usage = drive.usage.map(|usage| {
        json!({
            "size_bytes": usage.size,
            "capacity_bytes": usage.capacity,
            "used_bytes": usage.used,
        })
    });
    let written = drive.written.iter().map(|one| json!([one.duration_ns, one.bytes]));
    let values = [
        ("content", content),
        ("namespace", usage),
        ("written", (!drive.written.is_empty()).then(|| written.collect())),
        ("write_cliff", write_cliff(&drive.written)),
        ("thermal", drive.health.map(|(before, after)| thermal(&before, &after))),
    ];
    values.into_iter().map(|(key, value)| (key.to_string(), json!(value))).collect()
}

/// Where writes became slow; None where they did not.
pub fn write_cliff(written: &[Interval]) -> Option<Value> {
    let found = cliff(written)?;
    Some(json!({
        "after_bytes": found.after_bytes,
        "after_ns": found.after_ns,
        "before_bytes_per_second": found.before,
        "behind_bytes_per_second": found.behind,
    }))
}

/// Counters as what they grew by; null is one of which the drive keeps no count.
fn thermal(before: &Health, after: &Health) -> Value {
    let grown = |of: fn(&Health) -> Option<u32>| after.grown(before, of);
    json!({
        "celsius_before": before.temperature,
        "celsius_after": after.temperature,
        "critical_warning": after.critical_warning,
        "warning_minutes": grown(|h| h.warning_minutes),
        "critical_minutes": grown(|h| h.critical_minutes),
        "t1": { "entered": grown(|h| h.transitions[0]), "seconds": grown(|h| h.throttled_seconds[0]) },
        "t2": { "entered": grown(|h| h.transitions[1]), "seconds": grown(|h| h.throttled_seconds[1]) },
        "suffered": after.suffered_since(before),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Sampled;

    #[test]
    fn what_is_not_known_is_null() {
        let nothing = keys(&Drive::default());
        assert_eq!(nothing.len(), 5);
        assert!(nothing.values().all(Value::is_null), "{nothing:?}");
    }

    #[test]
    fn counters_are_what_they_grew_by() {
        let before = Health {
            transitions: [Some(7), Some(2)],
            throttled_seconds: [Some(0); 2],
            temperature: Some(40),
            ..Health::default()
        };
        let after = Health {
            transitions: [Some(10), Some(2)],
            throttled_seconds: [Some(12), Some(0)],
            temperature: None,
            ..before
        };
        let drive = Drive {
            sampled: Some(Sampled { samples: 64, zeros: 16, ..Sampled::default() }),
            health: Some((before, after)),
            written: vec![Interval { duration_ns: 100, bytes: 4096 }],
            ..Drive::default()
        };
        let keys = keys(&drive);
        assert_eq!(keys["content"]["empty_percent"], 25.0);
        assert_eq!(keys["thermal"]["t1"], json!({ "entered": 3, "seconds": 12 }));
        assert_eq!(
            (&keys["thermal"]["celsius_after"], &keys["thermal"]["suffered"]),
            (&Value::Null, &json!(true))
        );
        assert_eq!(keys["thermal"]["t2"], json!({ "entered": 0, "seconds": 0 }));
        assert_eq!((&keys["written"], &keys["write_cliff"]), (&json!([[100, 4096]]), &Value::Null));
    }

    #[test]
    fn what_the_drive_does_not_count_is_null_and_no_zero() {
        let blind = Health { temperature: Some(40), ..Health::default() };
        let thermal = |health: Health| keys(&Drive { health: Some((health, health)), ..Drive::default() });
        let found = &thermal(blind)["thermal"];
        let unknown = json!({ "entered": null, "seconds": null });
        assert_eq!((&found["t1"], &found["t2"]), (&unknown, &unknown));
        for key in ["suffered", "warning_minutes", "critical_minutes"] {
            assert_eq!(found[key], Value::Null, "{key}");
        }
        let minutes = Health { warning_minutes: Some(3), ..blind };
        let found = &thermal(minutes)["thermal"];
        assert_eq!((&found["warning_minutes"], &found["suffered"]), (&json!(0), &Value::Null));
    }
}
