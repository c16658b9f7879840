//! What can be measured on this machine, as printed by `biopsy check`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::invariants::Invariant;
use super::overhead::OverheadSummary;
use crate::envelope::View;
use crate::host::abilities::Abilities;
use crate::host::rights::Rights;

/// The view of `biopsy check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckSummary {
    #[serde(flatten)]
    pub abilities: Abilities,
    pub rights: Rights,
    /// With `--self-test` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_test: Option<Vec<Invariant>>,
    /// With `--measure-cost` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<OverheadSummary>,
}

impl View for CheckSummary {
    const SCHEMA: &'static str = "biopsy.check/1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::invariants::{FigureValue, Outcome};
    use crate::host::abilities::{ProgramState, State, ViewState};
    use serde_json::json;

    #[test]
    fn it_is_read_back_with_its_self_test() {
        let numbers = [("seen_ios", FigureValue::Count(7)), ("cpu_percent", FigureValue::Measure(2.0))];
        let tested = Invariant {
            name: "sums".into(),
            state: Outcome::NotTested,
            numbers: numbers.map(|(key, number)| (key.to_string(), number)).into(),
            why: Some("too few".to_string()),
        };
        let program = ProgramState {
            name: "on_issue".to_string(),
            event: "block_rq_issue".to_string(),
            state: State::Degraded,
            optional: false,
            reason: Some("no event".to_string()),
            remedy: Some("a newer kernel".to_string()),
        };
        let view = ViewState { name: "latency".to_string(), ..ViewState::missing(None, None) };
        let summary = CheckSummary {
            abilities: Abilities { btf: true, programs: vec![program], views: vec![view] },
            rights: Rights {
                lockdown: Some("none".to_string()),
                kptr_restrict: Some(1),
                ..Rights::default()
            },
            self_test: Some(vec![tested]),
            overhead: Some(OverheadSummary::default()),
        };
        let value = json!(summary);
        assert_eq!(
            value["self_test"],
            json!([{
                "name": "sums", "state": "not_tested", "numbers": { "seen_ios": 7, "cpu_percent": 2.0 },
                "why": "too few",
            }])
        );
        assert_eq!(
            (&value["programs"][0]["state"], &value["views"][0]["reason"]),
            (&json!("degraded"), &json!(null))
        );
        let back: CheckSummary = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(json!(back), value);
        let without = json!(CheckSummary { self_test: None, overhead: None, ..summary });
        assert!(without.get("self_test").is_none() && without["rights"]["btf"] == json!(false), "{without}");
    }
}
