//! `biopsy.latency/1`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{groups, line, object, times};
use crate::analyze::counting::Counting;
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use crate::analyze::layers::{self, Layer};
use crate::analyze::op::{KernelClass, Op};
use crate::analyze::operations::TotalClass;
use crate::analyze::parts::Parts;
use crate::analyze::sharing::ProcessIos;
use crate::analyze::stage::Stage;
use crate::envelope::Envelope;
use crate::hist::Histogram;

/// The view as one line. `command_status` is there when a command was measured.
pub fn render(envelope: &Envelope, summary: &LatencySummary, command_status: Option<i32>) -> Vec<u8> {
    let mut all = value(envelope, summary);
    if let Some(status) = command_status {
        all.insert("command_status".to_string(), json!(status));
    }
    line(all)
}

/// The object, for results that contain it.
pub fn value(envelope: &Envelope, summary: &LatencySummary) -> Map<String, Value> {
    let mut all = object("biopsy.latency/1", envelope);
    all.insert("devices".to_string(), summary.devices.iter().map(|of| device(summary, of)).collect());
    all.insert("groups".to_string(), json!([]));
    if let Some(of) = &summary.groups {
        groups::insert(&mut all, of);
    }
    all.insert("kernel_classes".to_string(), mapping(Counting::Requests));
    all
}

/// Which classes each field of `/sys/block/D/stat` counts.
fn mapping(counting: Counting) -> Value {
    let mut classes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for op in Op::ALL {
        classes.entry(counting.class(op).map_or("none", KernelClass::name)).or_default().push(op.name());
    }
    json!(classes)
}

fn stages(of: &BTreeMap<Stage, Histogram>) -> Value {
    Value::Object(of.iter().map(|(stage, hist)| (stage.name().to_string(), times(hist))).collect())
}

/// By stage and part.
fn parts(of: &Parts) -> Value {
    let mut all: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (part, hist) in of {
        all.entry(part.stage().name()).or_default().insert(part.name().to_string(), times(hist));
    }
    json!(all)
}

pub(super) fn of_op(latency: &OpLatency) -> Value {
    let mut one = json!({
        "ios": latency.ios, "bytes": latency.bytes, "request_stages": stages(&latency.request_stages),
    });
    let Value::Object(map) = &mut one else { return one };
    for (key, of) in [("parts", &latency.parts), ("request_parts", &latency.request_parts)] {
        if !of.is_empty() {
            map.insert(key.to_string(), parts(of));
        }
    }
    if let Some(bio) = &latency.bio {
        map.insert("bio".to_string(), times(bio));
    }
    // Absent is absent: nothing is known of operations where they are not followed.
    if let Some(unowned) = latency.unowned {
        map.insert("ios_without_operation".to_string(), json!(unowned));
    }
    if !latency.unowned_stages.is_empty() {
        map.insert("request_stages_without_operation".to_string(), stages(&latency.unowned_stages));
    }
    if let Some(bio) = &latency.unowned_bio {
        map.insert("bio_without_operation".to_string(), times(bio));
    }
    if let Some(unfetched) = latency.unfetched {
        map.insert("unfetched".to_string(), json!(unfetched));
    }
    if let Some(all) = &latency.operations {
        map.insert("operations".to_string(), json!(all.operations));
        map.insert("stages".to_string(), stages(&all.stages));
        map.insert("total".to_string(), times(&all.total));
        map.insert("by_total".to_string(), all.by_total.iter().map(class).collect());
        let left: Map<String, Value> =
            all.not_covered.iter().map(|(why, n)| (why.name().to_string(), json!(n))).collect();
        map.insert("not_covered".to_string(), Value::Object(left));
    }
    one
}

fn class(class: &TotalClass) -> Value {
    let sums: Map<String, Value> =
        class.sums_ns.iter().map(|(stage, sum)| (stage.name().to_string(), json!(sum))).collect();
    json!([class.lower_ns, class.upper_ns, class.operations, sums])
}

fn layer(layer: &Layer) -> Value {
    let mut one = Map::from_iter([("name".to_string(), json!(layer.name))]);
    if let Some(traced) = layer.traced {
        one.insert("ios".to_string(), json!(traced.ios));
        one.insert("bytes".to_string(), json!(traced.bytes));
        if let Some(mean) = traced.mean_ns {
            one.insert("mean_ns".to_string(), json!(mean));
        }
    }
    Value::Object(one)
}

/// A class of I/O, with the time in its layer where that can be said.
fn of_layered_op(summary: &LatencySummary, of: &DeviceLatency, op: Op, latency: &OpLatency) -> Value {
    let mut one = of_op(latency);
    if let (Some(Ok(inside)), Value::Object(map)) = (layers::inside(summary, of, op), &mut one) {
        let of_layer = json!({
            "ios": inside.ios, "mean_ns": inside.mean_ns(),
            "upper_mean_ns": inside.upper_mean_ns(), "lower_mean_ns": inside.lower_mean_ns(),
        });
        map.insert("layer".to_string(), of_layer);
    }
    one
}

/// The bios of one process; those of all that had no room have no pid.
fn process(row: &ProcessIos) -> Value {
    let mut one = json!({
        "relation": row.relation.name(), "bios": row.bios, "bytes": row.bytes,
    });
    if let (Some(pid), Value::Object(map)) = (row.pid, &mut one) {
        map.insert("pid".to_string(), json!(pid));
        map.insert("comm".to_string(), json!(row.comm));
        map.insert("selected".to_string(), json!(row.selected));
    }
    one
}

/// One device of the view.
pub(super) fn device(summary: &LatencySummary, device: &DeviceLatency) -> Value {
    let bracket = device.kernel_total();
    let classes: Option<Map<String, Value>> = device.kernel.as_ref().map(|classes| {
        classes
            .iter()
            .map(|(class, b)| {
                let of_class = json!({"min": b.min, "max": b.max, "seen": device.counted(*class)});
                (class.name().to_string(), of_class)
            })
            .collect()
    });
    let ops: Map<String, Value> = device
        .ops
        .iter()
        .map(|(op, l)| (op.name().to_string(), of_layered_op(summary, device, *op, l)))
        .collect();
    let queues: Vec<Value> = device
        .queues
        .iter()
        .map(|q| {
            json!({
                "queue": q.queue, "qid": q.qid, "type": q.kind, "cpus": q.cpus, "ios": q.ios,
                "request_stages": stages(&q.request_stages),
            })
        })
        .collect();
    let mut all = json!({
        "name": device.name,
        "ios": device.ios,
        "bytes": device.bytes,
        "lost_ios": device.lost_ios,
        "started_before": device.started_before,
        "kernel_ios_min": bracket.map(|b| b.min),
        "kernel_ios_max": bracket.map(|b| b.max),
        "kernel_ios": classes,
        "kernel_check": device.kernel_check().map(|ok| if ok { "ok" } else { "differs" }),
        "in_flight_start": device.in_flight_start,
        "in_flight_end": device.in_flight_end,
        "splits": device.splits,
        "merges": device.merges,
        "requeues": device.requeues,
        "retries": device.retries,
        "negative": device.negative,
        "vanished": device.vanished,
        "layers": layers::lower(summary, device).iter().map(layer).collect::<Vec<_>>(),
        "bio_based": device.bio_based,
        "ops": ops,
        "queues": queues,
        "ios_without_queue": device.ios_without_queue(),
    });
    let Value::Object(map) = &mut all else { return all };
    if let Some(disk) = &device.disk {
        map.insert("disk".to_string(), json!(disk));
    }
    if let Some(operations) = device.operations {
        map.insert("operations".to_string(), json!(operations));
    }
    if device.counting != Counting::Requests {
        map.insert("kernel_classes".to_string(), mapping(device.counting));
    }
    if !device.added_for.is_empty() {
        map.insert("added_for".to_string(), json!(device.added_for));
    }
    if let Some(rows) = &device.processes {
        map.insert("processes".to_string(), rows.iter().map(process).collect());
    }
    if let Some(rows) = &device.files {
        map.insert("files".to_string(), rows.iter().map(super::files::ios).collect());
    }
    if let Some(of_all) = device.all_ios {
        map.insert("all_ios_min".to_string(), json!(of_all.min));
        map.insert("all_ios_max".to_string(), json!(of_all.max));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ios_of_no_operation_have_keys_of_their_own_beside_those_of_all() {
        let stages = |times: &[u64]| BTreeMap::from([(Stage::Device, times.iter().copied().collect())]);
        let mut mixed = OpLatency {
            ios: 3,
            unowned: Some(2),
            request_stages: stages(&[5, 7, 11]),
            unowned_stages: stages(&[5, 11]),
            ..OpLatency::default()
        };
        let one = of_op(&mixed);
        assert_eq!(
            (&one["ios_without_operation"], &one["request_stages"]["device"]["sum_ns"]),
            (&json!(2), &json!(23))
        );
        let own = &one["request_stages_without_operation"];
        assert_eq!((&own["device"]["count"], &own["device"]["sum_ns"]), (&json!(2), &json!(16)));
        assert!(own.get("queue").is_none() && one.get("bio_without_operation").is_none());
        mixed.unowned_stages.clear();
        mixed.unowned_bio = Some(Histogram::from_iter([5]));
        let bio = of_op(&mixed);
        assert_eq!(bio["bio_without_operation"]["sum_ns"], 5);
        assert!(bio.get("request_stages_without_operation").is_none(), "absent is absent");
    }
}
