//! The result of a sweep: the figures of each point, and the knee.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Figures, LoadResult};
use crate::analyze::knee::Knee;
use crate::analyze::sweep::{Curve, Metric, Sweep, SweepPoint};

/// The sweep of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SweepRecord {
    /// Options with several values. One that several jobs sweep has a number from its second time on.
    pub words: Vec<String>,
    /// How many points there were to be.
    pub asked: usize,
    pub points: Vec<PointRecord>,
    /// Null where no curve shows anything.
    pub knee: Option<KneeRecord>,
}

/// A value for each option.
pub type OptionValues = BTreeMap<String, String>;

/// What a single run would be, with its values and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointRecord {
    pub values: OptionValues,
    pub failed: Option<String>,
    pub cut: bool,
    /// Absent as all figures are where it was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    #[serde(flatten)]
    pub figures: Figures,
}

/// The curves over one word.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeRecord {
    pub word: String,
    pub metric: Metric,
    pub curves: Vec<CurveRecord>,
}

/// What a curve shows, by the values of its word.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CurveRecord {
    /// The other words.
    pub values: OptionValues,
    pub best: Option<String>,
    pub enough: Option<String>,
    pub knee: Option<String>,
    pub more_beyond: Option<bool>,
}

impl LoadResult {
    pub fn of_sweep(sweep: &Sweep) -> Self {
        let sweep = Some(SweepRecord::of(sweep));
        Self { figures: Figures::None {}, sweep, precondition: None, hostname: None }
    }
}

impl SweepRecord {
    fn of(sweep: &Sweep) -> Self {
        let words = names(&sweep.words);
        Self {
            asked: sweep.asked,
            points: sweep.points.iter().map(|point| PointRecord::of(&words, point)).collect(),
            knee: KneeRecord::of(&words, sweep),
            words,
        }
    }
}

/// The options as unique keys.
fn names(words: &[String]) -> Vec<String> {
    let before = |at: usize| words[..at].iter().filter(|word| **word == words[at]).count();
    let name = |at: usize| match before(at) {
        0 => words[at].clone(),
        times => format!("{}.{}", words[at], times + 1),
    };
    (0..words.len()).map(name).collect()
}

impl PointRecord {
    fn of(words: &[String], point: &SweepPoint) -> Self {
        Self {
            values: words.iter().cloned().zip(point.values.iter().cloned()).collect(),
            failed: point.failed.clone(),
            cut: point.cut,
            duration_ns: (!point.loads.is_empty()).then(|| point.duration_ns()),
            figures: Figures::of(&point.loads),
        }
    }
}

impl KneeRecord {
    fn of(words: &[String], sweep: &Sweep) -> Option<Self> {
        let curves = sweep.curves().filter(|all| all.curves.iter().any(|curve| curve.knee.is_ok()))?;
        let value = |curve: &Curve, at: usize| {
            let point = curve.points.get(at).and_then(|at| sweep.points.get(*at));
            point.and_then(|point| point.values.get(curves.word)).cloned()
        };
        let others: Vec<&String> =
            words.iter().enumerate().filter(|(at, _)| *at != curves.word).map(|(_, word)| word).collect();
        let one = |curve: &Curve| {
            let knee = curve.knee.ok();
            let shown = |of: fn(Knee) -> Option<usize>| knee.and_then(of).and_then(|at| value(curve, at));
            CurveRecord {
                values: others.iter().copied().cloned().zip(curve.others.iter().cloned()).collect(),
                best: shown(|knee| Some(knee.best)),
                enough: shown(|knee| knee.enough),
                knee: shown(|knee| knee.knee),
                more_beyond: knee.map(|knee| knee.enough.is_none()),
            }
        };
        Some(Self {
            word: words.get(curves.word)?.clone(),
            metric: curves.metric,
            curves: curves.curves.iter().map(one).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::analyze::sweep::literal;

    const DEPTHS: [(&str, u64, u64); 5] =
        [("1", 10, 100), ("2", 20, 100), ("4", 40, 100), ("8", 78, 103), ("16", 80, 200)];

    fn shown(sweep: &Sweep) -> Value {
        json!(LoadResult::of_sweep(sweep))
    }

    #[test]
    fn points_are_what_a_single_run_is() {
        let sweep = literal("iodepth", &DEPTHS);
        let value = shown(&sweep);
        assert_eq!(value["sweep"]["words"], json!(["iodepth"]));
        let point = &value["sweep"]["points"][3];
        assert_eq!((&point["values"], &point["failed"]), (&json!({ "iodepth": "8" }), &Value::Null));
        let single = json!(LoadResult::of(&sweep.points[3].loads));
        assert!(single.as_object().unwrap().iter().all(|(key, value)| point[key] == *value));
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
