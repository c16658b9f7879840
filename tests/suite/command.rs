//! Runs `biopsy load` as a command and reads its output.

pub mod child;
pub mod job;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub fn biopsy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biopsy"));
    command.arg("load").args(arguments).stdin(Stdio::null());
    command
}

pub fn run(arguments: &[&str]) -> Output {
    biopsy(arguments).output().unwrap()
}

/// The only JSON object on stdout, with any exit code.
#[track_caller]
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Checks that a command was refused: one sentence on stderr that contains `words`, nothing on stdout, this exit code.
#[track_caller]
pub fn refused(output: Output, code: i32, words: &[&str]) {
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert!(!error.contains("os error"), "{error}");
    assert!(output.stdout.is_empty());
}
