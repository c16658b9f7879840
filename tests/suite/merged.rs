//! Several intervals, and several recordings, as one result.

use std::fs;
use std::path::{Path, PathBuf};

use crate::replay::{fed, second};
use crate::support::scratch::Scratch;
use crate::support::tool::{one_error, quiet, refused, run};
use biopsy::envelope::Envelope;
use biopsy::recording::folder::{Folder, MANIFEST, table};
use biopsy::recording::manifest::Manifest;
use biopsy::render::json;
use serde_json::Value;

/// Seconds from that one on, with so many reads in each.
fn lines(from: u64, all: &[u64]) -> Vec<u8> {
    let line = |(at, ios): (u64, &u64)| {
        let (envelope, summary) = second(*ios);
        let start = format!("2026-11-28T20:00:{at:02}.000Z");
        json::view(&Envelope { start, ..envelope }, &summary, None)
    };
    (from..).zip(all).flat_map(line).collect()
}

/// A recording of a machine.
fn record(scratch: &Scratch, name: &str, host: &str, lines: &[u8]) -> PathBuf {
    let path = scratch.path().join(name);
    let mut folder = Folder::create(&path).unwrap();
    let manifest = Manifest { host: Some(host.to_string()), ..Manifest::default() };
    folder.write(MANIFEST, &json::view(&Envelope::default(), &manifest, None)).unwrap();
    folder.write(&table("latency"), &zstd::encode_all(lines, 1).unwrap()).unwrap();
    folder.keep();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Name and I/Os of each device, and the length in seconds.
fn shown(paths: &[&Path]) -> (Vec<(String, u64)>, u64) {
    let inputs = paths.iter().flat_map(|path| ["-i", text(path)]);
    let words: Vec<&str> = ["latency", "--json", "--merge"].into_iter().chain(inputs).collect();
    let output = run(&words);
    quiet(&output);
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let device = |d: &Value| (d["name"].as_str().unwrap().to_string(), d["ios"].as_u64().unwrap());
    let all = line["devices"].as_array().unwrap().iter().map(device).collect();
    assert_eq!(line["duration_ns"].as_u64().unwrap() % 1_000_000_000, 0);
    (all, line["duration_ns"].as_u64().unwrap() / 1_000_000_000)
}

const DEVICE: &str = "sda\x1b[31m<b>";

#[test]
fn intervals_of_a_machine_are_one_result() {
    let scratch = Scratch::new("merged");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    assert_eq!(shown(&[&one]), (vec![(DEVICE.to_string(), 503)], 2));
    let two = record(&scratch, "two", "web1", &lines(10, &[7]));
    assert_eq!(shown(&[&two, &one]), (vec![(DEVICE.to_string(), 510)], 3));
    // Without --merge as well, and packed.
    quiet(&run(&["pack", text(&two)]));
    let packed = scratch.path().join("two.tar");
    let merged = run(&["latency", "-i", text(&one), "-i", text(&packed)]);
    quiet(&merged);
    assert!(String::from_utf8_lossy(&merged.stdout).contains("510"), "one table of both");
    let parts = run(&["latency", "-i", text(&one), "--merge", "--from", "1s", "--json"]);
    quiet(&parts);
    assert_eq!(parts.stdout, lines(1, &[500]), "one interval is itself");
    let piped = fed(&["latency", "-i", "-", "--merge", "--json"], &lines(0, &[3, 500]));
    assert_eq!(piped.stdout, run(&["latency", "-i", text(&one), "--merge", "--json"]).stdout);
}

#[test]
fn machines_stand_side_by_side() {
    let scratch = Scratch::new("merged-machines");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    let two = record(&scratch, "two", "web2", &lines(0, &[7, 8]));
    let named = |host: &str, ios| (format!("{host}:{DEVICE}"), ios);
    assert_eq!(shown(&[&two, &one]), (vec![named("web1", 503), named("web2", 15)], 2));
    let longer = record(&scratch, "longer", "web3", &lines(0, &[7, 8, 9]));
    let output = run(&["latency", "-i", text(&one), "-i", text(&longer)]);
    refused(&output, 2, &["one is longer: choose the same length with --from and --to"]);
}

/// An I/O is counted once.
#[test]
fn the_same_time_is_refused() {
    let scratch = Scratch::new("merged-twice");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    let two = record(&scratch, "two", "web1", &lines(1, &[500]));
    let plain = scratch.path().join("plain.ndjson");
    fs::write(&plain, lines(0, &[3])).unwrap();
    for [a, b] in [[&one, &two], [&one, &one], [&plain, &plain]] {
        let output = run(&["latency", "-i", text(a), "-i", text(b)]);
        refused(&output, 2, &["are of the same machine and time"]);
    }
}

/// A part of a sum is no sum.
#[test]
fn nothing_is_shown_of_a_damaged_one() {
    let scratch = Scratch::new("merged-damaged");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    let all = lines(10, &[3, 500]);
    let cut = record(&scratch, "cut", "web1", &all[..all.len() - 9]);
    let output = run(&["latency", "-i", text(&one), "-i", text(&cut), "--json"]);
    one_error(&output, 1, &["cut: line 2: it is cut off"]);
    assert!(output.stdout.is_empty());
    fs::write(one.join(MANIFEST), "{").unwrap();
    refused(&run(&["latency", "-i", text(&one), "--merge"]), 1, &["one: manifest.json"]);
    // Who alone says what the machine is.
    let plain = scratch.path().join("plain.ndjson");
    fs::write(&plain, lines(0, &[3])).unwrap();
    refused(&run(&["diagnose", "-i", text(&plain)]), 2, &["plain.ndjson is no recording"]);
    refused(&run(&["report", "-i", "/nonexistent"]), 2, &["cannot read /nonexistent"]);
    refused(&run(&["diagnose", "-i", text(&cut), "-d", "sda"]), 2, &["--input"]);
}
