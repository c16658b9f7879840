//! `biopsy.load/1` of a sweep: a body per point, and the knee.

use serde_json::{Map, Value, json};

use super::load::{body_all, missing};
use crate::analyze::knee::Knee;
use crate::analyze::sweep::{Curve, Metric, Point, Sweep};
use crate::envelope::Envelope;

/// The object with its envelope.
pub fn object(envelope: &Envelope, sweep: &Sweep) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    for line in sweep.points.iter().flat_map(|point| &point.loads).flat_map(missing) {
        if !envelope.missing.contains(&line) {
            envelope.missing.push(line);
        }
    }
    let mut object = super::object("biopsy.load/1", &envelope);
    let words = names(&sweep.words);
    object.insert(
        "sweep".to_string(),
        json!({
            "words": words,
            "asked": sweep.asked,
            "points": sweep.points.iter().map(|one| point(&words, one)).collect::<Vec<_>>(),
            "knee": knee(&words, sweep),
        }),
    );
    object
}

/// The words as keys: one that several jobs sweep has a number from its second time on.
fn names(words: &[String]) -> Vec<String> {
    let before = |at: usize| words[..at].iter().filter(|word| **word == words[at]).count();
    let name = |at: usize| match before(at) {
        0 => words[at].clone(),
        times => format!("{}.{}", words[at], times + 1),
    };
    (0..words.len()).map(name).collect()
}

fn values<'a>(words: impl Iterator<Item = &'a String>, values: &[String]) -> Value {
    Value::Object(words.cloned().zip(values.iter().map(|value| json!(value))).collect())
}

/// What a single run would be, between its values and what was wrong with it.
fn point(words: &[String], point: &Point) -> Value {
    let mut object = Map::new();
    object.insert("values".to_string(), values(words.iter(), &point.values));
    object.insert("failed".to_string(), json!(point.failed));
    object.insert("cut".to_string(), json!(point.cut));
    if !point.loads.is_empty() {
        object.insert("duration_ns".to_string(), json!(point.duration_ns()));
        object.extend(body_all(&point.loads));
    }
    Value::Object(object)
}

/// Null where no curve shows anything.
fn knee(words: &[String], sweep: &Sweep) -> Value {
    let Some(curves) = sweep.curves().filter(|curves| curves.curves.iter().any(|curve| curve.knee.is_ok()))
    else {
        return Value::Null;
    };
    let value = |curve: &Curve, at: usize| {
        let point = curve.points.get(at).and_then(|at| sweep.points.get(*at));
        point.and_then(|point| point.values.get(curves.word)).cloned()
    };
    let others = || words.iter().enumerate().filter(|(at, _)| *at != curves.word).map(|(_, word)| word);
    let one = |curve: &Curve| {
        let seen =
            |of: fn(Knee) -> Option<usize>| curve.knee.ok().and_then(of).and_then(|at| value(curve, at));
        json!({
            "values": values(others(), &curve.others),
            "best": seen(|knee| Some(knee.best)),
            "enough": seen(|knee| knee.enough),
            "knee": seen(|knee| knee.knee),
            "more_beyond": curve.knee.ok().map(|knee| knee.enough.is_none()),
        })
    };
    json!({
        "word": words.get(curves.word),
        "metric": match curves.metric {
            Metric::Iops => "iops",
            Metric::BytesPerSecond => "bytes_per_second",
        },
        "curves": curves.curves.iter().map(one).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::sweep::literal;
    use crate::envelope::Missing;

    const DEPTHS: [(&str, u64, u64); 5] =
        [("1", 10, 100), ("2", 20, 100), ("4", 40, 100), ("8", 78, 103), ("16", 80, 200)];

    fn shown(sweep: &Sweep) -> Value {
        Value::Object(object(&Envelope::default(), sweep))
    }

    #[test]
    fn points_are_what_a_single_run_is() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep
            .points
            .iter_mut()
            .for_each(|point| point.loads[0].missing = vec!["huge pages: none".to_string()]);
        let value = shown(&sweep);
        assert_eq!(value["schema"], "biopsy.load/1");
        assert_eq!(value["sweep"]["words"], json!(["iodepth"]));
        let point = &value["sweep"]["points"][3];
        assert_eq!((&point["values"], &point["failed"]), (&json!({ "iodepth": "8" }), &Value::Null));
        let single = super::super::load::body(&sweep.points[3].loads[0]);
        assert!(single.iter().all(|(key, value)| point[key] == *value));
        assert_eq!(point.get("schema"), None);
        let why = Missing { why: "huge pages: none".to_string(), ..Missing::default() };
        assert_eq!(value["missing"].as_array().map(Vec::len), Some(1), "said once, not by every point");
        assert_eq!(value["missing"][0]["why"], why.why);
        assert_eq!(
            value["sweep"]["knee"],
            json!({ "word": "iodepth", "metric": "iops", "curves": [
                { "values": {}, "best": "16", "enough": "8", "knee": "8", "more_beyond": false },
            ] })
        );
    }

    #[test]
    fn what_is_not_seen_is_null() {
        let line = shown(&literal("numjobs", &DEPTHS[..4]));
        let curve = &line["sweep"]["knee"]["curves"][0];
        assert_eq!((&curve["enough"], &curve["more_beyond"]), (&Value::Null, &json!(true)));
        let few = shown(&literal("iodepth", &DEPTHS[..3]));
        assert_eq!(few["sweep"]["knee"], Value::Null);
        let unordered = shown(&literal("rwmixread", &DEPTHS));
        assert_eq!(unordered["sweep"]["knee"], Value::Null);
    }

    #[test]
    fn a_point_that_was_not_run_says_why_and_has_no_figures() {
        let mut sweep = literal("bs", &[("4k", 10, 100), ("8k", 10, 100)]);
        sweep.points[1].loads.clear();
        sweep.points[1].failed = Some("no memory".to_string());
        let value = shown(&sweep);
        let failed = json!({ "values": { "bs": "8k" }, "failed": "no memory", "cut": false });
        assert_eq!(value["sweep"]["points"][1], failed);
    }

    #[test]
    fn a_word_that_two_jobs_sweep_has_two_keys() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.words.push("iodepth".to_string());
        sweep.points.iter_mut().for_each(|point| point.values.push("2".to_string()));
        let value = shown(&sweep);
        assert_eq!(value["sweep"]["points"][2]["values"], json!({ "iodepth": "4", "iodepth.2": "2" }));
        assert_eq!(value["sweep"]["knee"], Value::Null);
    }
}
