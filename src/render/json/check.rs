//! `biopsy.check/1`.

use serde_json::json;

use super::{line, object};
use crate::envelope::Envelope;
use crate::host::abilities::{Abilities, VerifiedProgram};
use crate::host::rights::Rights;

/// One line per program.
pub fn programs(programs: &[VerifiedProgram]) -> Vec<u8> {
    programs.iter().flat_map(|program| format!("{}\n", json!(program)).into_bytes()).collect()
}

/// What can be measured here, as one line.
pub fn render(envelope: &Envelope, rights: &Rights, abilities: &Abilities) -> Vec<u8> {
    let mut all = object("biopsy.check/1", envelope);
    all.insert("btf".to_string(), json!(abilities.btf));
    all.insert("rights".to_string(), json!(rights));
    all.insert("programs".to_string(), json!(abilities.programs));
    all.insert("views".to_string(), json!(abilities.views));
    line(all)
}
