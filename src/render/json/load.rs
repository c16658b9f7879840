//! `biopsy.load/1`.

use serde_json::{Map, Value, json};

use super::times;
use crate::envelope::{Envelope, Missing};
use crate::load::{JobResult, LoadSummary};

/// The object with its envelope.
pub fn object(envelope: &Envelope, load: &LoadSummary) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    envelope.missing.extend(missing(load));
    let mut object = super::object("biopsy.load/1", &envelope);
    object.extend(body(load));
    object
}

/// What the generator did without, as the envelope says it.
pub fn missing(load: &LoadSummary) -> Vec<Missing> {
    load.missing
        .iter()
        .map(|why| Missing {
            device: load.device.clone(),
            reason: "fallback".to_string(),
            why: why.clone(),
            ..Missing::default()
        })
        .collect()
}

/// Everything but the envelope, for objects that contain a load.
pub fn body(load: &LoadSummary) -> Map<String, Value> {
    let (submits, reaps) = (load.submits(), load.reaps());
    let value = json!({
        "target": load.target,
        "device": load.device,
        "rw": load.rw.name(),
        "hipri": load.hipri,
        "bs": load.bs,
        "iodepth": load.iodepth,
        "numjobs": load.numjobs,
        "size": load.size,
        "fill": load.fill.map(|fill| json!({ "bytes": fill.bytes, "duration_ns": fill.duration_ns })),
        "ios": load.operations(),
        "bytes": load.bytes(),
        "iops": load.iops(),
        "bytes_per_second": load.bytes_per_second(),
        "user_cpu_percent": load.cpu_percent(load.user_ns()),
        "system_cpu_percent": load.cpu_percent(load.system_ns()),
        "user_ns": load.user_ns(),
        "system_ns": load.system_ns(),
        "ring_workers": load.ring_workers.map(|w| json!({ "threads": w.threads, "system_ns": w.system_ns })),
        "submits": submits,
        "ios_per_submit": ratio(load.operations() + load.errors(), submits),
        "reaps": reaps,
        "ios_per_reap": ratio(load.operations() + load.errors(), reaps),
        "latency": times(&load.latency()),
        "errors": load.errors(),
        "jobs": load.jobs.iter().map(job).collect::<Vec<_>>(),
    });
    match value {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

fn job(job: &JobResult) -> Value {
    json!({
        "number": job.number,
        "cpu": job.cpu,
        "ios": job.operations,
        "bytes": job.bytes,
        "errors": job.errors,
        "first_errno": job.first_errno,
        "user_ns": job.user_ns,
        "system_ns": job.system_ns,
        "submits": job.submits,
        "ios_per_submit": ratio(job.operations + job.errors, job.submits),
        "reaps": job.reaps,
        "ios_per_reap": ratio(job.operations + job.errors, job.reaps),
        "latency": times(&job.latency),
    })
}

/// None where nothing was counted: a ratio of nothing is no number.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hist::Histogram;
    use crate::load::Pattern;

    #[test]
    fn a_run_without_operations_has_nulls_and_no_zero_rates() {
        let load = LoadSummary {
            target: "/dev/sda".to_string(),
            device: Some("sda".to_string()),
            rw: Pattern::RandRead,
            hipri: false,
            bs: 4096,
            iodepth: 32,
            numjobs: 1,
            size: 1 << 30,
            fill: None,
            duration_ns: 0,
            jobs: vec![JobResult { latency: Histogram::default(), ..JobResult::default() }],
            ring_workers: None,
            missing: vec!["registered buffers: too little".to_string()],
        };
        let value = Value::Object(object(&Envelope::default(), &load));
        assert_eq!(value["schema"], "biopsy.load/1");
        assert_eq!(value["ios"], 0);
        for key in [
            "iops",
            "bytes_per_second",
            "user_cpu_percent",
            "ios_per_submit",
            "ios_per_reap",
            "fill",
            "ring_workers",
        ] {
            assert_eq!(value[key], Value::Null, "{key}");
        }
        assert_eq!(value["latency"]["min_ns"], Value::Null);
        assert_eq!(value["missing"][0]["why"], "registered buffers: too little");
    }
}
