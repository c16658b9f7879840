//! Tests `biopsy compare` with probes on a loop device: the stages add up to what the load itself measures.

use serde_json::Value;

use crate::live::disk::Disk;
use crate::support::tool::{object, quiet, run};

fn compare(disk: &Disk, options: &[&str]) -> Value {
    let words = ["compare", "--vary", "iodepth=1,16", "--rounds", "4", "--json"];
    let load = ["--", "load", &disk.path, "--runtime", "200ms"];
    let output = run(&[&words[..], options, &load].concat());
    quiet(&output);
    object(&output, "biopsy.compare/1")
}

#[test]
fn stages_add_up_to_the_latency_of_the_load() {
    let Some(disk) = Disk::new(64) else { return };
    let found = compare(&disk, &["--stages"]);
    let stages = found["stages"].as_array().unwrap();
    let names: Vec<&str> = stages.iter().map(|one| one["stage"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["submit", "queue", "device"]) && names.ends_with(&["all"]), "{names:?}");
    assert_eq!(found["stages_per"], "operation");
    let ns = |of: &Value, key: &str| of[key].as_f64().unwrap();
    let (all, parts) = stages.split_last().unwrap();
    let sum: f64 = parts.iter().map(|one| ns(one, "difference_ns")).sum();
    assert!((sum - ns(all, "difference_ns")).abs() < 1.0, "{stages:?}");
    // In each round the stages and the load use the same stamps, but the stages are only of the operations that have
    // all of them: most of them on a busy machine.
    for round in found["rounds"].as_array().unwrap() {
        let sum: f64 = round["stages"].as_array().unwrap().iter().map(|one| ns(one, "mean_ns")).sum();
        let ratio = sum / ns(&round["values"], "mean_ns");
        assert!((0.9..1.1).contains(&ratio), "{ratio}: {round}");
    }
    assert!(ns(all, "difference_ns") > 0.0, "16 in flight wait for each other: {all}");
}

#[test]
fn stacks_of_both_are_one_picture() {
    let Some(disk) = Disk::new(64) else { return };
    let page = std::env::temp_dir().join(format!("biopsy-compare-{}.html", std::process::id()));
    let found = compare(&disk, &["--stacks", "--html", page.to_str().unwrap()]);
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    let notes = found["notes"].to_string();
    assert!(!notes.contains("no flame graph"), "{notes}");
    assert!(
        text.contains("<h2>Stacks on the CPU</h2>") && text.contains("iodepth=16 against iodepth=1"),
        "no graph"
    );
    // The load's own system call is in both arms.
    assert!(
        text.contains("io_uring_enter") && text.contains("samples per million I/Os"),
        "no stacks of the load"
    );
}

#[test]
fn no_probe_is_on_without_being_asked_for() {
    let Some(disk) = Disk::new(64) else { return };
    let found = compare(&disk, &[]);
    assert!(found.get("stages").is_none() && found["missing"].as_array().unwrap().is_empty(), "{found}");
}
