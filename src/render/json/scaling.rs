//! How drives went alone and all at once, as `diagnose` nests it.

use serde_json::{Value, json};

use crate::load::Scaling;

/// Rates are null where a run was cut short or had errors.
pub fn body(scaling: &Scaling) -> Value {
    let drives = scaling.drives.iter().map(|drive| {
        json!({
            "target": drive.target,
            "device": drive.device,
            "alone_bytes_per_second": drive.alone,
            "together_bytes_per_second": drive.together,
        })
    });
    json!({
        "each_ns": scaling.each_ns,
        "worker_percent": 100.0 * scaling.worker_busy,
        "machine_percent": scaling.machine_busy.map(|busy| 100.0 * busy),
        "drives": drives.collect::<Vec<_>>(),
    })
}
