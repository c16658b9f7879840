//! Tests sweeps of `biopsy load` as a user runs them: the real binary on real files of a real disk.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::command::child::signal;
use crate::command::{biopsy, json, run};
use crate::disk::{Dir, MIB};

#[test]
fn every_point_is_a_row() {
    let dir = Dir::new("rows");
    let output =
        run(&[&dir.file("data", 8 * MIB), "--iodepth", "1..8", "--bs", "4k..8k", "--runtime", "50ms"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let points: Vec<String> = text
        .lines()
        .skip_while(|line| !line.starts_with("iodepth"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(points, ["1 4k", "1 8k", "2 4k", "2 8k", "4 4k", "4 8k", "8 4k", "8 8k"], "{text}");
    assert!(text.contains("8 points of 50.0 ms over iodepth × bs"), "{text}");
    assert!(text.contains("Kleinrock") || text.contains("none: "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100 || line.starts_with("target")), "{text}");
    assert!(output.stderr.is_empty());
}

#[test]
fn json_has_a_body_per_point() {
    let dir = Dir::new("json");
    let output = run(&[&dir.file("data", 8 * MIB), "--iodepth", "4,1", "--runtime", "50ms", "--json"]);
    let load = json(&output);
    assert_eq!((&load["schema"], output.status.code()), (&json!("biopsy.load/1"), Some(0)));
    let sweep = &load["sweep"];
    assert_eq!((&sweep["words"], &sweep["knee"]), (&json!(["iodepth"]), &Value::Null));
    let points = sweep["points"].as_array().unwrap();
    for (point, depth) in points.iter().zip([4, 1]) {
        assert_eq!(point["values"]["iodepth"], depth.to_string());
        assert_eq!((&point["iodepth"], &point["failed"]), (&json!(depth), &Value::Null));
        assert!(point["ios"].as_u64().unwrap() > 0);
        assert_eq!(point["latency"]["count"], point["ios"]);
    }
    let sum: u64 = points.iter().map(|point| point["duration_ns"].as_u64().unwrap()).sum();
    assert_eq!(load["duration_ns"], sum);
    assert_eq!(points.len(), 2);
}

#[test]
fn a_scratch_file_is_filled_once() {
    let dir = Dir::new("once");
    let words = ["--scratch", "--size", "8m", "--runtime", "30ms", "--json"];
    let filled = |more: &[&str]| -> Vec<bool> {
        let load = json(&run(&[&[dir.path()], &words[..], more].concat()));
        let points = load["sweep"]["points"].as_array().unwrap();
        points.iter().map(|point| point["fill"]["bytes"] == 8 << 20).collect()
    };
    assert_eq!(filled(&["--iodepth", "1,2,4"]), [true, false, false]);
    // A file that was written does not count as filled: a point that only reads gets a new file, a point that writes
    // keeps it.
    let turns = ["--rw", "randwrite,randread,randrw,read", "--write"];
    assert_eq!(filled(&turns), [true, true, false, false]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// With one node, no device is remote: that point says so, and the others are measured.
#[test]
fn placements_are_values_as_others() {
    let dir = Dir::new("placements");
    let file = dir.file("data", 8 * MIB);
    let words = [&file, "--numa", "local,none,remote", "--iodepth", "1..8", "--runtime", "30ms"];
    let load = json(&run(&[&words[..], &["--json"]].concat()));
    let sweep = &load["sweep"];
    assert_eq!(sweep["words"], json!(["numa", "iodepth"]));
    let points = sweep["points"].as_array().unwrap();
    assert_eq!(points.len(), 12);
    for (at, point) in points.iter().enumerate() {
        let wanted = ["local", "none", "remote"][at / 4];
        assert_eq!(point["values"]["numa"], wanted);
        let why = point["failed"].as_str().unwrap_or("");
        assert!(point["failed"].is_null() || wanted == "remote" && why.contains("--numa remote"), "{point}");
    }
    let text = String::from_utf8(run(&words).stdout).unwrap();
    let is_curves = |line: &str| line.starts_with("numa") && line.contains("best IOPS  at iodepth");
    assert!(text.lines().any(is_curves), "each has a curve of its own: {text}");
    // Without a word whose values have an order, there is a table but no knee.
    let plain = run(&[&file, "--numa", "local,none", "--smt=0,1", "--runtime", "30ms"]);
    let text = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(plain.status.code(), Some(0), "{}", String::from_utf8_lossy(&plain.stderr));
    assert!(text.contains("4 points of 30.0 ms over numa × smt") && !text.contains("knee"), "{text}");
}

#[test]
fn a_point_that_fails_leaves_the_others() {
    let dir = Dir::new("fails");
    let file = dir.file("data", 8 * MIB);
    let words = [&file, "--bs", "4m..16m", "--iodepth", "1", "--runtime", "30ms"];
    let output = run(&words);
    let (text, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("1 of 3 points failed, the first with bs 16m: block size 16777216"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(text.contains("\n8m ") && text.contains("\nfailed      bs 16m: block size"), "{text}");
    let load = json(&run(&[&words[..], &["--json"]].concat()));
    let points = load["sweep"]["points"].as_array().unwrap();
    assert!(points[1]["ios"].as_u64().unwrap() > 0);
    assert_eq!(points[2].get("ios"), None);
    assert!(points[2]["failed"].as_str().unwrap().starts_with("block size"));
}

#[test]
fn nothing_measured_is_refused_as_a_single_run_is() {
    let dir = Dir::new("nothing");
    let output = run(&[&format!("{}/none", dir.path()), "--iodepth", "1..8", "--runtime", "30ms"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains("does not exist") && error.lines().count() == 1, "{error}");
    assert!(output.stdout.is_empty());
}

#[test]
fn fios_formats_have_no_sweep() {
    let dir = Dir::new("formats");
    let file = dir.file("data", 8 * MIB);
    for format in [&["--minimal"][..], &["--output-format", "json"], &["--output-format=json+"]] {
        let output = run(&[&[file.as_str(), "--iodepth", "1..8"], format].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--iodepth has several values (1, 2, 4, 8)"), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_signal_ends_the_sweep_and_keeps_its_points() {
    let dir = Dir::new("signal");
    // 2.8 s in all; the test waits for the first half.
    let mut command =
        biopsy(&[&dir.file("data", 8 * MIB), "--iodepth", "1..64", "--runtime", "400ms", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1400));
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let load = json(&output);
    let points = load["sweep"]["points"].as_array().unwrap();
    assert!((1..7).contains(&points.len()) && load["sweep"]["asked"] == 7, "{}", points.len());
    let (last, before) = points.split_last().unwrap();
    assert_eq!(last["cut"], true);
    assert!(before.iter().all(|point| point["cut"] == false && point["ios"].as_u64().unwrap() > 0));
}
