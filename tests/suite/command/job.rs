//! Runs `biopsy load` for its JSON result: the words that allow writing, and what must hold for every result.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::json;
use crate::support::skip::skipped;

pub const ENGINES: [&str; 5] = ["io_uring", "libaio", "psync", "pvsync2", "mmap"];

pub fn biopsy(arguments: &[&str]) -> Command {
    let mut command = super::biopsy(arguments);
    command.arg("--json");
    command
}

/// The arguments that allow a load to write `path`, and those of the load.
pub fn writing<'a>(path: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&[path, "--write", "--overwrite", path], arguments].concat()
}

/// The result of a run without errors.
#[track_caller]
pub fn run(arguments: &[&str]) -> Value {
    let output = biopsy(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let load = json(&output);
    adds_up(&load);
    assert_eq!((&load["errors"], &load["failures"]), (&Value::from(0), &Value::from(Vec::<u8>::new())));
    load
}

/// The result of a run that trims. None: the file system has no holes.
#[track_caller]
pub fn trimmed(arguments: &[&str]) -> Option<Value> {
    let output = biopsy(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("not supported") {
        skipped(format_args!("this file system has no holes: {error}"));
        return None;
    }
    assert!(output.status.success(), "{error}");
    let load = json(&output);
    adds_up(&load);
    Some(load)
}

/// The result of a run with failed operations, and the sentence that reports them.
#[track_caller]
pub fn failed(command: &mut Command) -> (Value, String) {
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    (json(&output), error)
}

#[track_caller]
pub fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

/// Checks that directions and threads each sum up to the total.
#[track_caller]
pub fn adds_up(load: &Value) {
    let directions = || load["directions"].as_object().unwrap().values();
    for key in ["ios", "bytes"] {
        assert_eq!(directions().map(|each| number(each, key)).sum::<u64>(), number(load, key), "{load}");
        let threads = load["jobs"].as_array().unwrap().iter();
        assert_eq!(threads.map(|each| number(each, key)).sum::<u64>(), number(load, key), "{load}");
    }
    assert_eq!(load["latency"]["count"], load["ios"]);
    for each in directions() {
        assert_eq!(each["lat"]["count"].as_u64().unwrap_or(0), number(each, "ios"), "{each}");
    }
}

pub fn started(arguments: &[&str]) -> Child {
    biopsy(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}
