//! What an NVMe drive reports about itself. A limit that it has not is null, and so is what it was not asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::nvme::identity::{Coalescing, Identity};
use crate::host::nvme::{Choice, Health, Use};

/// A namespace and its drive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriveRecord {
    pub max_transfer_bytes: Option<u64>,
    pub metadata_bytes: Option<u16>,
    pub formats: Option<Vec<Choice>>,
    pub coalescing: Option<Coalescing>,
    pub namespace: Option<NamespaceRecord>,
    pub health: Option<HealthRecord>,
}

/// How much of the namespace is in use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamespaceRecord {
    pub size_bytes: u64,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
}

/// See [`Health`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HealthRecord {
    pub critical_warning: u8,
    pub temperature_celsius: Option<i32>,
    pub warning_minutes: Option<u32>,
    pub critical_minutes: Option<u32>,
    /// Lightly, and heavily.
    pub throttle_transitions: [Option<u32>; 2],
    pub throttled_seconds: [Option<u32>; 2],
    pub percent_used: u8,
    pub percent_spare: u8,
    pub media_errors: u64,
}

impl DriveRecord {
    pub fn of(identity: &Identity) -> Self {
        let namespace = |of: Use| NamespaceRecord {
            size_bytes: of.size,
            capacity_bytes: of.capacity,
            used_bytes: of.used,
        };
        Self {
            max_transfer_bytes: identity.transfer_bytes,
            metadata_bytes: identity.metadata_bytes,
            formats: Some(identity.formats.clone()).filter(|all| !all.is_empty()),
            coalescing: identity.coalescing,
            namespace: identity.usage.map(namespace),
            health: identity.health.map(HealthRecord::of),
        }
    }
}

impl HealthRecord {
    fn of(health: Health) -> Self {
        Self {
            critical_warning: health.critical_warning,
            temperature_celsius: health.temperature,
            warning_minutes: health.warning_minutes,
            critical_minutes: health.critical_minutes,
            throttle_transitions: health.transitions,
            throttled_seconds: health.throttled_seconds,
            percent_used: health.percent_used,
            percent_spare: health.percent_spare,
            media_errors: health.media_errors,
        }
    }
}
