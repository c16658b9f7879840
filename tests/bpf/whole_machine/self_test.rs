//! Tests `biopsy check --self-test` and its invariants on test disks. Needs root and loop devices.

use std::collections::BTreeMap;
use std::process::Output;

use crate::live::disk::Disk;
use crate::support::tool::{object, one_error, refused, run, stderr};
use serde_json::Value;

/// The result of each invariant.
#[track_caller]
fn states(output: &Output) -> (BTreeMap<String, String>, Value) {
    let check = object(output, "biopsy.check/1");
    let tested = check["self_test"].as_array().unwrap_or_else(|| panic!("{}", stderr(output)));
    let word = |value: &Value| value.as_str().unwrap().to_string();
    let states = tested.iter().map(|one| (word(&one["name"]), word(&one["state"]))).collect();
    (states, check)
}

fn number(check: &Value, name: &str, key: &str) -> u64 {
    let tested = check["self_test"].as_array().unwrap();
    let one = tested.iter().find(|one| one["name"] == name).unwrap();
    one["numbers"][key].as_u64().unwrap_or_else(|| panic!("{key} of {one}"))
}

const ALL: [&str; 11] = [
    "cost",
    "detached",
    "generator-count",
    "generator-time",
    "histograms",
    "kernel-counters",
    "loss",
    "misses",
    "slots",
    "stage-order",
    "stage-sums",
];

/// All invariants pass, the load is as large as reported, and nothing is written.
///
/// See `view::during`: a virtual machine may not deliver every completion event; on a busy host it did not in each of
/// nine runs of 900,000 reads. The test is not repeated for that: the counts must be consistent even then.
#[test]
fn a_sound_machine_passes() {
    let Some(disk) = Disk::new(64) else { return };
    let before = disk.stat();
    let output = run(&["check", "--self-test", "-d", &disk.path, "--json"]);
    let stat = disk.stat().since(before);
    let (states, check) = states(&output);
    assert_eq!(states.keys().collect::<Vec<_>>(), ALL);
    assert!(states.values().all(|state| state == "pass"), "{} {}", check["self_test"], stderr(&output));
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let made = number(&check, "generator-count", "made");
    println!("{made} reads: {}", check["self_test"]);
    let lost = number(&check, "generator-count", "lost_ios");
    if lost > 0 {
        assert_eq!(number(&check, "loss", "unseen_completion"), lost, "of no other kind");
    }
    assert!(lost < made / 1000, "{lost} of {made}");
    let seen = number(&check, "generator-count", "seen");
    // A lost I/O may have carried the reads that were merged into it.
    let merges = if lost > 0 { number(&check, "generator-count", "merges") } else { 0 };
    assert!((made - lost - merges..=made - lost).contains(&seen), "{seen} of {made}");
    assert_eq!(number(&check, "stage-sums", "operations"), seen);
    assert_eq!(number(&check, "stage-sums", "stages_ns"), number(&check, "stage-sums", "total_ns"));
    assert!(
        number(&check, "generator-time", "seen_ns") > number(&check, "generator-time", "generator_ns") / 2
    );
    assert!(number(&check, "detached", "held") > 20, "programs, links and maps");
    // The generator makes one test read before the window.
    assert_eq!(stat.reads + stat.read_merges, made + 1);
    assert_eq!((stat.writes, stat.discards, stat.flushes), (0, 0, 0));
    assert!((2_900_000_000..6_000_000_000).contains(&check["duration_ns"].as_u64().unwrap()));
    // The output of a plain `check` is there too.
    assert!(check["programs"].is_array() && check["views"].is_array() && check["rights"].is_object());
}

#[test]
fn the_text_says_what_was_done() {
    let Some(disk) = Disk::new(16) else { return };
    let output = run(&["check", "--self-test", "-d", &disk.name, "--for", "300ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("random reads of {} at depth 32", disk.path)), "{text}");
    assert!(text.contains("nothing was written") && text.contains(" passed, "), "{text}");
    for name in ALL {
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// The result is one sentence and exit code 4, and the figures are still printed.
#[test]
fn a_machine_that_loses_events_fails() {
    let Some(disk) = Disk::new(16) else { return };
    let words = ["check", "--self-test", "-d", &disk.name, "--for", "500ms", "--json"];
    let measure = || {
        let output = run(&[&words[..], &["--fault-drop-issue", "50"]].concat());
        let (states, check) = states(&output);
        (output, states, check)
    };
    // An I/O whose issue is dropped and whose completion event is not delivered is not counted at all.
    let hides = |check: &Value| check["self_test"].to_string().contains("unseen_completion");
    let mut measured = measure();
    for _ in 1..crate::live::ATTEMPTS {
        if hides(&measured.2) {
            measured = measure();
        }
    }
    let (output, states, check) = measured;
    assert_eq!(states["loss"], "fail", "{}", check["self_test"]);
    // The lost I/Os are counted: the sums still agree with the kernel's.
    assert_eq!(states["kernel-counters"], "pass", "{}", check["self_test"]);
    assert_eq!(states["generator-count"], "pass", "{}", check["self_test"]);
    one_error(&output, 4, &["the self-test of", &disk.name, "loss", "run it again"]);
}

/// The cost is that of the self-test's own load: its rate and CPU time with and without the probes, in pairs of phases.
#[test]
fn the_cost_for_its_load_is_measured() {
    let Some(disk) = Disk::new(64) else { return };
    let words = ["check", "--self-test", "-d", &disk.name, "--for", "300ms", "--measure-cost", "--json"];
    let before = disk.stat();
    let output = run(&words);
    let stat = disk.stat().since(before);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let (_, check) = states(&output);
    let overhead = &check["overhead"];
    let figure = |key: &str| overhead[key].as_f64().unwrap_or_else(|| panic!("{key} of {overhead}"));
    assert!(figure("pairs") >= 6.0 && overhead["pairs_without_io"] == 0, "{overhead}");
    // The load runs through all phases: what the kernel counted is at least that of the phases, and nothing is written.
    let phases = figure("pairs") * figure("phase_ns") / 1e9;
    let rates = [figure("iops_without"), figure("iops_with")];
    assert!(rates.iter().all(|rate| *rate > 1_000.0), "{overhead}");
    let least = phases * (rates[0] + rates[1]) / 2.0;
    assert!((stat.reads + stat.read_merges) as f64 > least, "{stat:?} {overhead}");
    assert_eq!((stat.writes, stat.discards, stat.flushes), (0, 0, 0));
    let lost = &overhead["iops_lost_percent"];
    assert!(lost["low"].is_number() && lost["median"].is_number(), "{overhead}");
    assert!(
        lost["low"].as_f64() <= lost["median"].as_f64() && lost["median"].as_f64() <= lost["high"].as_f64()
    );
    // Of the whole machine, so that other processes can hide it in single pairs.
    assert!(overhead["cpu_ns_per_io"]["high"].as_f64().is_some_and(|ns| ns > 0.0), "{overhead}");
}

/// A disk that is too small for a read cannot be driven: the existing I/O is watched, and the output says so.
#[test]
fn a_device_that_cannot_be_read_is_watched() {
    let Some(disk) = Disk::new(0) else { return };
    let output = run(&["check", "--self-test", "-d", &disk.name, "--for", "200ms", "--json"]);
    let (states, check) = states(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(states["generator-count"], "not_tested");
    assert_eq!(states["kernel-counters"], "not_tested", "{}", check["self_test"]);
    let why = check["self_test"].as_array().unwrap().iter().find(|one| one["name"] == "generator-count");
    assert!(why.unwrap()["why"].as_str().unwrap().contains("is empty"), "{}", check["self_test"]);
    let output = run(&["check", "--self-test", "-d", &disk.name, "--for", "200ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("only I/O of other processes") && text.contains("not tested"), "{text}");
}

#[test]
fn it_needs_a_device_that_is_there() {
    refused(&run(&["check", "--self-test"]), 2, &["--device"]);
    refused(&run(&["check", "-d", "sda"]), 2, &["--self-test"]);
    refused(&run(&["check", "--self-test", "-d", "nosuch"]), 3, &["no block device 'nosuch'"]);
}
