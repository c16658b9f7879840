//! `groups` of `biopsy.latency/1`, and the matrices of CPUs and nodes.

use serde_json::{Map, Value as Json, json};

use super::files::file;
use super::latency::of_op;
use crate::analyze::groups::{Dimension, Group, Groups, Pair, Value};
use crate::analyze::stage::Stage;

/// Adds the keys.
pub fn insert(all: &mut Map<String, Json>, groups: &Groups) {
    let by: Vec<&str> = groups.by.iter().map(|dimension| dimension.name()).collect();
    all.insert("by".to_string(), json!(by));
    all.insert("groups_max".to_string(), json!(groups.most));
    let rows = match groups.by.contains(&Dimension::Stage) {
        true => groups.groups.iter().flat_map(by_stage).collect(),
        false => groups.groups.iter().map(|group| Json::Object(row(group))).collect(),
    };
    all.insert("groups".to_string(), Json::Array(rows));
    if groups.by.contains(&Dimension::Cpu) {
        all.insert("cpus".to_string(), pairs(&groups.cpus, "cpu"));
        all.insert("nodes".to_string(), pairs(&groups.nodes, "node"));
    }
}

fn pairs(pairs: &[Pair], what: &str) -> Json {
    let pair = |pair: &Pair| {
        let keys = [
            (format!("submit_{what}"), json!(pair.submit)),
            (format!("completion_{what}"), json!(pair.completion)),
            ("ios".to_string(), json!(pair.ios)),
        ];
        Json::Object(Map::from_iter(keys))
    };
    pairs.iter().map(pair).collect()
}

fn row(group: &Group) -> Map<String, Json> {
    let by = group.by.iter().map(|(dimension, of)| (dimension.name().to_string(), value(of)));
    let mut row = match of_op(&group.latency) {
        Json::Object(row) => row,
        _ => Map::new(),
    };
    row.insert("by".to_string(), Json::Object(by.collect()));
    if group.other {
        row.insert("other".to_string(), json!(true));
    }
    row
}

/// The group once for each of its stages, and of each time only that; once as it is where it has none.
fn by_stage(group: &Group) -> Vec<Json> {
    let whole = row(group);
    let has = |key: &str, stage: Stage| whole.get(key).and_then(|stages| stages.get(stage.name())).is_some();
    let of_stage = |stage: Stage| {
        let mut one = whole.clone();
        for key in ["total", "by_total"] {
            one.remove(key);
        }
        for key in ["stages", "request_stages"] {
            if let Some(Json::Object(stages)) = one.get_mut(key) {
                stages.retain(|name, _| name == stage.name());
            }
        }
        if let Some(Json::Object(by)) = one.get_mut("by") {
            by.insert(Dimension::Stage.name().to_string(), json!(stage.name()));
        }
        Json::Object(one)
    };
    let seen = |stage: &Stage| has("stages", *stage) || has("request_stages", *stage);
    let rows: Vec<Json> = Stage::ALL.into_iter().filter(seen).map(of_stage).collect();
    if rows.is_empty() { vec![Json::Object(whole.clone())] } else { rows }
}

fn value(of: &Value) -> Json {
    match of {
        Value::Device(name) => json!(name),
        Value::Op(op) => json!(op.name()),
        Value::Queue(number) | Value::Cpu(number) => json!(number),
        Value::Size(lower, upper) => json!([lower, upper]),
        Value::Process { pid, comm } => json!({"pid": pid, "comm": comm}),
        Value::Cgroup { path: Some(path), .. } => json!(path),
        Value::Cgroup { id, path: None } => json!(id),
        Value::File(of) => file(of),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::latency::OpLatency;
    use crate::hist::Histogram;

    fn groups(by: &[Dimension]) -> Groups {
        let hist = Histogram::from_iter([5]);
        let latency = OpLatency {
            ios: 1,
            bytes: 4096,
            request_stages: BTreeMap::from([(Stage::Queue, hist.clone()), (Stage::Device, hist)]),
            ..OpLatency::default()
        };
        let values = vec![
            (Dimension::Size, Value::Size(4096, 8192)),
            (Dimension::Process, Value::Process { pid: 7, comm: "dd".into() }),
            (Dimension::Cgroup, Value::Cgroup { id: 9, path: None }),
        ];
        let one = Group { by: values, other: false, latency };
        let cpus = vec![Pair { submit: 0, completion: 1, ios: 1 }];
        Groups { by: by.to_vec(), most: 512, groups: vec![one], cpus, nodes: vec![] }
    }

    fn rendered(by: &[Dimension]) -> Json {
        let mut all = Map::new();
        insert(&mut all, &groups(by));
        Json::Object(all)
    }

    #[test]
    fn a_group_carries_its_values_and_all_of_a_row() {
        let all = rendered(&[Dimension::Size, Dimension::Cpu]);
        let by = json!({"size": [4096, 8192], "process": {"pid": 7, "comm": "dd"}, "cgroup": 9});
        let group = &all["groups"][0];
        assert_eq!((&group["by"], &group["ios"], &group["bytes"]), (&by, &json!(1), &json!(4096)));
        assert_eq!(group["request_stages"]["device"]["sum_ns"], 5);
        assert_eq!(all["by"], json!(["size", "cpu"]));
        assert_eq!(all["cpus"], json!([{"submit_cpu": 0, "completion_cpu": 1, "ios": 1}]));
        assert!(group.get("other").is_none() && group.get("operations").is_none());
    }

    #[test]
    fn a_stage_makes_a_row_of_its_own() {
        let all = rendered(&[Dimension::Process, Dimension::Stage]);
        let rows = all["groups"].as_array().unwrap();
        let stages: Vec<&str> = rows.iter().map(|row| row["by"]["stage"].as_str().unwrap()).collect();
        assert_eq!(stages, ["queue", "device"]);
        assert_eq!(rows[0]["request_stages"].as_object().unwrap().keys().collect::<Vec<_>>(), ["queue"]);
        assert!(all.get("cpus").is_none(), "nobody asked for CPUs");
        let mut timeless = groups(&[Dimension::Stage]);
        timeless.groups[0].latency.request_stages.clear();
        let mut all = Map::new();
        insert(&mut all, &timeless);
        assert_eq!((all["groups"].as_array().unwrap().len(), &all["groups"][0]["ios"]), (1, &json!(1)));
    }
}
