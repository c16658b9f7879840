//! Tests that the keys of every view's JSON are those of `tests/golden/VIEW.keys`: readers of `--json` rely on them.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::live::disk::Disk;
use crate::support::tool::{biopsy, finish, quiet, stderr};
use serde_json::Value;

/// The keys below these are names of this machine or run; all of them count as one key.
const NAMED: [&str; 10] =
    ["probes", "sockets", "classes", "numbers", "ops", "parts", "by_total", "buckets", "refused", "limits"];

/// Views that can be read back by `-i`.
const REPLAYED: [&str; 6] = ["latency", "interrupts", "locks", "threads", "errors", "top"];

/// A line for each key with the type of its value: `.devices[].ops.*.ios number`.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(values) => {
            values.iter().for_each(|value| keys(value, &format!("{path}[]"), found));
            "array"
        }
        Value::Object(map) => {
            let parent = path.rsplit('.').next().unwrap_or_default();
            for (key, value) in map {
                let key = if NAMED.contains(&parent) { "*" } else { key };
                keys(value, &format!("{path}.{key}"), found);
            }
            "object"
        }
    };
    found.insert(format!("{path} {kind}"));
}

/// Whether a line of the golden file is not printed any more: its object is there, but the key is not, or has another
/// type. An object in an empty list is not there, and a value that was not measured is null.
fn is_gone(line: &str, found: &BTreeSet<String>) -> bool {
    let (path, _) = line.rsplit_once(' ').expect("a key and its type");
    let Some((parent, _)) = path.rsplit_once('.') else { return !found.contains(line) };
    found.contains(&format!("{parent} object"))
        && !path.ends_with("[]")
        && !path.ends_with('*')
        && !found.contains(line)
        && !found.contains(&format!("{path} null"))
        // A run of a second may see no contended lock; then there is no cost.
        && !path.ends_with("ns_per_contention")
}

/// Checks that `-i` prints the same JSON again, byte for byte, and shows it as text.
fn is_shown_again(view: &str, printed: &[u8]) {
    let again = |words: &[&str]| {
        let mut child = biopsy(words).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(printed).unwrap();
        finish(child)
    };
    let json = again(&[view, "-i", "-", "--json"]);
    quiet(&json);
    let [one, two] = [printed, &json.stdout].map(String::from_utf8_lossy);
    assert_eq!(one, two, "{view}");
    let plain: &[&str] = if view == "top" { &["top", "--plain", "-i", "-"] } else { &[view, "-i", "-"] };
    let text = again(plain);
    assert!(text.status.success() && text.stdout.len() > 100, "{view}: {}", stderr(&text));
}

fn printed(words: &[&str]) -> BTreeSet<String> {
    let output = finish(biopsy(words).spawn().unwrap());
    assert!(matches!(output.status.code(), Some(0 | 4)), "{words:?}: {}", stderr(&output));
    if REPLAYED.contains(&words[0]) {
        is_shown_again(words[0], &output.stdout);
    }
    let mut found = BTreeSet::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        keys(&serde_json::from_str(line).unwrap(), "", &mut found);
    }
    assert!(found.len() > 1, "{words:?}");
    found
}

#[test]
fn every_view_keeps_its_keys() {
    let Some(disk) = Disk::new(64) else { return };
    let input = format!("if={}", disk.path);
    let reads = ["-d", &disk.name, "--", "dd", &input, "of=/dev/null", "bs=4k", "count=4000", "iflag=direct"];
    let views: [(&str, &[&str], &[&str]); 11] = [
        ("devices", &["devices", "--json"], &[]),
        ("check", &["check", "--json"], &[]),
        ("latency", &["latency", "0.2", "--json", "--detail", "--by", "process,file,op"], &reads),
        ("interrupts", &["interrupts", "--json"], &reads),
        ("locks", &["locks", "--json", "--for", "1s"], &[]),
        ("threads", &["threads", "--json", "--for", "1s"], &[]),
        ("errors", &["errors", "--json"], &reads),
        ("top", &["top", "--json", "--for", "2s", "1"], &[]),
        ("trace", &["trace", "--json", "--files"], &reads),
        ("load", &["load", "--json", "--runtime", "500ms", &disk.path], &[]),
        ("diagnose", &["diagnose", "--json", "-o", "/dev/null", "--runtime", "1s", &disk.path], &[]),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut gone = Vec::new();
    for (view, words, more) in views {
        let found = printed(&[words, more].concat());
        let golden = std::fs::read_to_string(folder.join(format!("{view}.keys"))).unwrap();
        gone.extend(
            golden.lines().filter(|line| is_gone(line, &found)).map(|line| format!("{view}: {line}")),
        );
    }
    assert!(gone.is_empty(), "not printed any more:\n{}", gone.join("\n"));
}

/// Tests that a removed key is found.
#[test]
fn a_key_that_is_gone_is_found() {
    let mut found = BTreeSet::new();
    keys(
        &serde_json::json!({"a": [{"b": 1, "c": null}], "d": [], "probes": {"x": {"e": 1}}}),
        "",
        &mut found,
    );
    let gone = |line: &str| is_gone(line, &found);
    assert!(!gone(".a[].b number") && gone(".a[].b string") && gone(".a[].x number") && gone(".x number"));
    assert!(!gone(".a[].c number") && !gone(".d[].e number"));
    assert!(!gone(".probes.*.e number") && gone(".probes.*.f number"));
}
