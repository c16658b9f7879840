//! Holds what can be measured on this machine: plain data that `probe::preflight` fills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a program or a view works here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// It works, but without some parts.
    Degraded,
    Missing,
}

/// One BPF program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramState {
    pub name: String,
    /// The event to which it is attached.
    pub event: String,
    pub state: State,
    /// The kernel lacks or refuses it, and its view works without it: the reason says what is not measured.
    #[serde(default)]
    pub optional: bool,
    pub reason: Option<String>,
    pub remedy: Option<String>,
}

/// The result of the kernel's verifier for one BPF program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifiedProgram {
    /// The source name of the object that contains it.
    pub object: String,
    pub program: String,
    /// The number of instructions that the verifier processed; none if the kernel refused the program.
    pub instructions: Option<u64>,
    pub reason: Option<String>,
}

/// One command, and whether it works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ViewState {
    pub name: String,
    pub state: State,
    pub reason: Option<String>,
    pub remedy: Option<String>,
}

impl ViewState {
    /// Everything works; the list of views adds the name.
    pub fn ok() -> Self {
        Self { name: String::new(), state: State::Ok, reason: None, remedy: None }
    }

    pub fn degraded(reason: impl Into<String>, remedy: Option<String>) -> Self {
        Self { state: State::Degraded, reason: Some(reason.into()), remedy, ..Self::ok() }
    }

    pub fn missing(reason: Option<String>, remedy: Option<String>) -> Self {
        Self { state: State::Missing, reason, remedy, ..Self::ok() }
    }
}

/// The result of `biopsy check`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Abilities {
    /// The kernel has BTF for its own types.
    pub btf: bool,
    pub programs: Vec<ProgramState>,
    pub views: Vec<ViewState>,
}
