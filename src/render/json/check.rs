//! `biopsy.check/1`.

use serde_json::{Map, Value, json};

use super::{line, object};
use crate::analyze::invariants::Invariant;
use crate::envelope::Envelope;
use crate::host::abilities::{Abilities, VerifiedProgram};
use crate::host::rights::Rights;

/// One line per program.
pub fn programs(programs: &[VerifiedProgram]) -> Vec<u8> {
    programs.iter().flat_map(|program| format!("{}\n", json!(program)).into_bytes()).collect()
}

/// What can be measured here, as one line; with a self-test, what became of it.
pub fn render(
    envelope: &Envelope,
    rights: &Rights,
    abilities: &Abilities,
    self_test: Option<&[Invariant]>,
) -> Vec<u8> {
    let mut all = object("biopsy.check/1", envelope);
    all.insert("btf".to_string(), json!(abilities.btf));
    all.insert("rights".to_string(), json!(rights));
    all.insert("programs".to_string(), json!(abilities.programs));
    all.insert("views".to_string(), json!(abilities.views));
    if let Some(tested) = self_test {
        all.insert("self_test".to_string(), tested.iter().map(invariant).collect());
    }
    line(all)
}

fn invariant(one: &Invariant) -> Value {
    let numbers: Map<String, Value> = one.numbers.iter().map(|(key, n)| (key.clone(), json!(n))).collect();
    json!({"name": one.name, "state": one.state, "numbers": numbers, "why": one.why})
}
