//! The drive's state around a load. Null means unknown, not zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analyze::cliff::{Cliff, cliff};
use crate::host::nvme::{Health, Use};
use crate::load::{BlockCounts, Drive};

/// Facts of a drive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriveFacts {
    /// What lay there before it was read.
    pub content: Option<ContentRecord>,
    /// How much of an NVMe namespace was in use before.
    pub namespace: Option<Use>,
    /// `[duration_ns, bytes]` of each interval of a job that only writes.
    pub written: Option<Vec<(u64, u64)>>,
    /// Where its writes became slow; null where they did not.
    pub write_cliff: Option<Cliff>,
    pub thermal: Option<Thermal>,
}

impl DriveFacts {
    pub fn of(drive: &Drive) -> Self {
        let content = |sampled: BlockCounts| ContentRecord {
            sampled,
            empty: sampled.empty(),
            empty_percent: sampled.empty_percent(),
        };
        let written: Vec<_> = drive.written.iter().map(|one| (one.duration_ns, one.bytes)).collect();
        Self {
            content: drive.sampled.map(content),
            namespace: drive.usage,
            written: Some(written).filter(|written| !written.is_empty()),
            write_cliff: cliff(&drive.written),
            thermal: drive.health.map(|(before, after)| Thermal::between(&before, &after)),
        }
    }
}

/// Sampled blocks of the target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContentRecord {
    #[serde(flatten)]
    pub sampled: BlockCounts,
    /// Zeros, and what was not written.
    pub empty: u64,
    pub empty_percent: Option<f64>,
}

/// Heat and throttling meanwhile. Counters are what they grew by; null is one of which the drive keeps no count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Thermal {
    pub celsius_before: Option<i32>,
    pub celsius_after: Option<i32>,
    /// The bits of the drive's critical warnings after the load.
    pub critical_warning: u8,
    /// Minutes above the warning and the critical temperature.
    pub warning_minutes: Option<u32>,
    pub critical_minutes: Option<u32>,
    /// Light and heavy throttling.
    pub t1: ThrottleLevel,
    pub t2: ThrottleLevel,
    /// See [`Health::suffered_since`].
    pub suffered: Option<bool>,
}

/// How often the drive lowered its speed so far, and for how long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThrottleLevel {
    pub entered: Option<u32>,
    pub seconds: Option<u32>,
}

impl Thermal {
    pub fn between(before: &Health, after: &Health) -> Self {
        let grown = |of: fn(&Health) -> Option<u32>| after.grown(before, of);
        Self {
            celsius_before: before.temperature,
            celsius_after: after.temperature,
            critical_warning: after.critical_warning,
            warning_minutes: grown(|h| h.warning_minutes),
            critical_minutes: grown(|h| h.critical_minutes),
            t1: ThrottleLevel {
                entered: grown(|h| h.transitions[0]),
                seconds: grown(|h| h.throttled_seconds[0]),
            },
            t2: ThrottleLevel {
                entered: grown(|h| h.transitions[1]),
                seconds: grown(|h| h.throttled_seconds[1]),
            },
            suffered: after.suffered_since(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::load::SeriesInterval;

    #[test]
    fn what_is_not_known_is_null() {
        let nothing = json!(DriveFacts::of(&Drive::default()));
        let null = json!({ "content": null, "namespace": null, "written": null, "write_cliff": null, "thermal": null });
        assert_eq!(nothing, null);
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
            sampled: Some(BlockCounts { samples: 64, zeros: 16, ..BlockCounts::default() }),
            health: Some((before, after)),
            written: vec![SeriesInterval { duration_ns: 100, bytes: 4096 }],
            ..Drive::default()
        };
        let keys = json!(DriveFacts::of(&drive));
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
        let thermal = |health: Health| json!(Thermal::between(&health, &health));
        let found = thermal(blind);
        let unknown = json!({ "entered": null, "seconds": null });
        assert_eq!((&found["t1"], &found["t2"]), (&unknown, &unknown));
        for key in ["suffered", "warning_minutes", "critical_minutes"] {
            assert_eq!(found[key], Value::Null, "{key}");
        }
        let minutes = Health { warning_minutes: Some(3), ..blind };
        let found = thermal(minutes);
        assert_eq!((&found["warning_minutes"], &found["suffered"]), (&json!(0), &Value::Null));
    }
}
