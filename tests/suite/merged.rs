//! Tests that several intervals, and several recordings, are merged into one result.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};

use crate::replay::{fed, second};
use crate::support::scratch::Scratch;
use crate::support::tool::{biopsy, one_error, quiet, refused, run};
use biopsy::envelope::Envelope;
use biopsy::recording::folder::{Folder, MANIFEST, table};
use biopsy::recording::manifest::Manifest;
use biopsy::render::json;
use serde_json::Value;

/// JSON of consecutive seconds, the first of them `from`, with so many reads in each.
fn lines(from: u64, all: &[u64]) -> Vec<u8> {
    let line = |(at, ios): (u64, &u64)| {
        let (envelope, summary) = second(*ios);
        let start = format!("2026-11-28T20:00:{at:02}.000Z");
        json::view(&Envelope { start, ..envelope }, &summary, None)
    };
    (from..).zip(all).flat_map(line).collect()
}

/// Makes a recording of a machine.
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

/// The name and I/Os of each device, and the length in seconds.
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
    // Also without --merge, and with a packed recording.
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
    refused(
        &output,
        2,
        &["are of different machines and lengths: choose the same length with --from and --to"],
    );
}

/// The same time of a machine is refused, so that each I/O is counted once.
#[test]
fn the_same_time_is_refused() {
    let scratch = Scratch::new("merged-twice");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    let two = record(&scratch, "two", "web1", &lines(1, &[500]));
    let plain = scratch.path().join("plain.ndjson");
    fs::write(&plain, lines(0, &[3])).unwrap();
    // The lines of a recording, whether its own or printed ones, do not say which machine they are of.
    let own = one.join(table("latency"));
    for [a, b] in [
        [&one, &two],
        [&one, &one],
        [&plain, &plain],
        [&one, &own],
        [&own, &one],
        [&two, &own],
        [&plain, &one],
    ] {
        let output = run(&["latency", "-i", text(a), "-i", text(b)]);
        refused(&output, 2, &["are of the same machine and time, or do not name their machine"]);
    }
    // Lines of another kernel or of another time are accepted.
    let other =
        String::from_utf8(lines(0, &[3, 500])).unwrap().replace(r#""kernel":"""#, r#""kernel":"7.0""#);
    fs::write(&plain, other).unwrap();
    assert_eq!(shown(&[&one, &plain]).0.len(), 2);
    fs::write(&plain, lines(2, &[3, 500])).unwrap();
    assert_eq!(shown(&[&plain, &one]).0.len(), 2);
}

/// Any input takes bounded memory, even if each interval has other rows.
#[test]
fn what_grows_with_each_interval_is_bounded() {
    let scratch = Scratch::new("merged-growth");
    let path = scratch.path().join("locks.ndjson");
    let lock = |number: u64| {
        format!(
            r#"{{"name":"inode","kind":"mutex","address":"ffff{number:012x}","contentions":1,"wait_ns":9,"wait":{{"count":2,"sum_ns":1099511627777,"min_ns":0,"max_ns":1099511627776,"buckets":[[0,1,1],[1065151889408,1099511627776,1]]}}}}"#
        )
    };
    // Merges a file of so many intervals. Returns the peak memory of that, in MB.
    let merged = |intervals: u64| {
        let mut file = fs::File::create(&path).unwrap();
        for at in 0..intervals {
            let (minute, second) = (at / 60, at % 60);
            let locks: Vec<String> = (at * 5_000..(at + 1) * 5_000).map(lock).collect();
            let line = format!(
                r#"{{"schema":"biopsy.locks/1","start":"2026-11-28T20:{minute:02}:{second:02}.000Z","duration_ns":1000000000,"seen_by":"events","left_out":{{}},"by_process":[],"other_processes":0,"by_cpu":[],"by_node":[],"stacks":{{}},"locks":[{}]}}"#,
                locks.join(",")
            );
            writeln!(file, "{line}").unwrap();
        }
        let (output, resident) = measured(&["locks", "--merge", "--json", "-i", text(&path)]);
        (output, resident >> 10)
    };
    let (output, resident) = merged(8);
    quiet(&output);
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["locks"].as_array().unwrap().len(), 40_000);
    assert!(resident < 160, "{resident} MB");
    let (output, resident) = merged(90);
    refused(
        &output,
        1,
        &["locks.ndjson: with 2026-11-28T20:", "choose fewer intervals with --from and --to"],
    );
    assert!(resident < 256, "{resident} MB");
}

/// The output of a run, and its peak resident memory in KiB.
fn measured(words: &[&str]) -> (Output, i64) {
    let mut child = biopsy(words).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    let mut status = 0;
    // SAFETY: an rusage consists of numbers; both are written by the call, for a child that nothing else waits for.
    let resident = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage), child.id() as i32);
        usage.ru_maxrss
    };
    // Lets the standard library find out that the child is gone.
    assert!(child.wait().is_err());
    (Output { status: ExitStatus::from_raw(status), stdout, stderr }, resident)
}

/// If one input is damaged, nothing is shown: a partial sum would be wrong.
#[test]
fn nothing_is_shown_of_a_damaged_one() {
    let scratch = Scratch::new("merged-damaged");
    let one = record(&scratch, "one", "web1", &lines(0, &[3, 500]));
    let all = lines(10, &[3, 500]);
    let cut = record(&scratch, "cut", "web1", &all[..all.len() - 9]);
    let output = run(&["latency", "-i", text(&one), "-i", text(&cut), "--json"]);
    one_error(&output, 1, &["cut: line 2: it is truncated"]);
    assert!(output.stdout.is_empty());
    fs::write(one.join(MANIFEST), "{").unwrap();
    refused(&run(&["latency", "-i", text(&one), "--merge"]), 1, &["one: manifest.json"]);
    // Only a recording describes the machine, and these are none.
    let plain = scratch.path().join("plain.ndjson");
    fs::write(&plain, lines(0, &[3])).unwrap();
    refused(&run(&["diagnose", "-i", text(&plain)]), 2, &["plain.ndjson is not a recording"]);
    refused(&run(&["report", "-i", "/nonexistent"]), 2, &["cannot read /nonexistent"]);
    refused(&run(&["diagnose", "-i", text(&cut), "-d", "sda"]), 2, &["--input"]);
}
