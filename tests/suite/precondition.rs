//! Tests the preconditioning of a drive by `biopsy load`, as a user runs it: the real binary on real files of a real
//! disk.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::command::child::signal;
use crate::command::{biopsy, refused, run};
use crate::disk::{Dir, MIB};

/// The result of a successful run.
#[track_caller]
fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    crate::command::json(output)
}

const SHORT: [&str; 4] = ["--precondition", "--precondition-round", "300ms", "--runtime=500ms"];

/// Checks what must hold for every preconditioning, with any result.
#[track_caller]
fn adds_up(done: &Value, area: u64) {
    assert_eq!(done["area_bytes"], area);
    assert_eq!(done["fill"]["bytes"], area);
    let rounds = done["rounds"].as_array().unwrap();
    assert!((5..=25).contains(&rounds.len()), "{done}");
    for round in rounds {
        let (ios, bytes) = (round["ios"].as_u64().unwrap(), round["bytes"].as_u64().unwrap());
        // A busy disk may do nothing for a whole round, as the rounds are so short.
        assert!(bytes == ios * 4096 && round["iops"].as_f64().is_some(), "{round}");
        assert!(round["duration_ns"].as_u64().unwrap() >= 300_000_000, "{round}");
    }
    assert!(rounds.iter().any(|round| round["ios"].as_u64() > Some(0)), "{done}");
    let window = &done["window"];
    let small = |key: &str, most: f64| window[key].as_f64().unwrap() <= most;
    let steady = small("range_percent", 20.0) && small("slope_percent", 10.0);
    assert_eq!(done["steady"], steady, "{done}");
    assert_eq!(done["end"], if steady { "steady" } else { "rounds" }, "{done}");
    assert!(steady || rounds.len() == 25, "{done}");
}

#[test]
fn a_scratch_file_is_prepared_and_then_read() {
    let dir = Dir::new("scratch");
    let load = json(&run(&[&[dir.path(), "--scratch", "--size", "16m", "--json"], &SHORT[..]].concat()));
    assert_eq!(load["schema"], "biopsy.load/1");
    adds_up(&load["precondition"], 16 << 20);
    assert!(load["ios"].as_u64().unwrap() > 0 && load["rw"] == "randread" && load["errors"] == 0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_file_is_written_only_where_it_was_allowed() {
    let dir = Dir::new("file");
    let file = dir.file("kept", 4 * MIB);
    let before = fs::read(&file).unwrap();
    let arguments = [&[file.as_str(), "--json"], &SHORT[..]].concat();
    refused(run(&arguments), 2, &["add --write"]);
    refused(run(&[&arguments[..], &["--write"]].concat()), 2, &["--overwrite", "is there already"]);
    refused(run(&[&arguments[..], &["--write", "--readonly"]].concat()), 2, &["--readonly forbids it"]);
    assert_eq!(fs::read(&file).unwrap(), before, "not a byte was written");

    // The second half of the file.
    let half =
        [&["--offset", "2m", "--size", "2m", "--write", "--overwrite", &file], &arguments[..]].concat();
    let load = json(&run(&half));
    adds_up(&load["precondition"], 2 << 20);
    let after = fs::read(&file).unwrap();
    assert_eq!(after[..2 << 20], before[..2 << 20], "what the load does not use stays");
    let blocks = after[2 << 20..].chunks(4096).zip(before[2 << 20..].chunks(4096));
    let changed = blocks.filter(|(now, then)| now != then).count();
    assert_eq!(changed, 512, "every block of the area was written");
}

#[test]
fn a_sweep_is_prepared_once() {
    let dir = Dir::new("sweep");
    let words = ["--scratch", "--size", "8m", "--iodepth", "1,8", "--json"];
    let load = json(&run(&[&[dir.path()], &words[..], &SHORT[..]].concat()));
    adds_up(&load["precondition"], 8 << 20);
    let points = load["sweep"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|point| point.get("precondition").is_none() && point["failed"].is_null()));
}

#[test]
fn a_job_file_is_prepared_and_has_no_such_word() {
    let dir = Dir::new("jobfile");
    let file = dir.file("data", 4 * MIB);
    let jobs = dir.join("jobs.fio");
    fs::write(&jobs, format!("[a]\nfilename={file}\nrw=randread\nbs=4k\ndirect=1\nruntime=300ms\n")).unwrap();
    let words =
        ["--precondition", "--precondition-round", "300ms", "--write", "--overwrite", &file, "--json"];
    let load = json(&run(&[&[jobs.as_str()], &words[..]].concat()));
    adds_up(&load["precondition"], 4 << 20);
    fs::write(&jobs, format!("[a]\nfilename={file}\nprecondition=1\n")).unwrap();
    refused(run(&[jobs.as_str()]), 2, &["precondition", ":3"]);
}

#[test]
fn what_has_no_time_is_said_not_to_be_steady() {
    let dir = Dir::new("limit");
    let words =
        ["--scratch", "--size", "8m", "--precondition", "--precondition-limit", "1s", "--runtime", "300ms"];
    let output = run(&[&[dir.path()], &words[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (text, warned) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(
        text.contains("steady      no, not steady after 0 rounds, and the time limit was reached"),
        "{text}"
    );
    assert!(warned.contains("preconditioning ended not steady after 0 rounds"), "{warned}");
    assert!(text.contains("IOPS        "), "the load ran: {text}");
}

#[test]
fn an_interrupt_ends_it_and_says_so() {
    let dir = Dir::new("interrupt");
    let words = ["--scratch", "--size", "8m", "--precondition", "--runtime", "60s"];
    let mut child = biopsy(&[&[dir.path()], &words[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    signal(&child, libc::SIGINT);
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(3), "{said}");
    assert!(said.contains("after 8388608 of 8388608 bytes: the load did not run"), "{said}");
}

#[test]
fn its_words_go_with_it_alone() {
    for word in ["--precondition-round", "--precondition-limit"] {
        let output = run(&["/dev/null", word, "1s"]);
        assert_eq!(output.status.code(), Some(2));
    }
}

/// A target's content is checked before it is read.
#[test]
fn a_file_without_content_is_called_out() {
    let dir = Dir::new("content");
    let words = ["--runtime", "200ms", "--json"];
    let content = |path: &str| {
        let output = run(&[&[path], &words[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (json(&output)["content"].clone(), said)
    };

    let (full, said) = content(&dir.file("full", 4 * MIB));
    assert_eq!((&full["samples"], &full["empty"]), (&Value::from(64), &Value::from(0)), "{full}");
    assert_eq!(said, "");

    let zeros = dir.join("zeros");
    fs::write(&zeros, vec![0; 4 << 20]).unwrap();
    File::open(&zeros).unwrap().sync_all().unwrap();
    let (zeros, said) = content(&zeros);
    assert_eq!(
        (&zeros["zeros"], &zeros["empty_percent"]),
        (&Value::from(64), &Value::from(100.0)),
        "{zeros}"
    );
    assert!(said.contains("64 of 64 sampled blocks of "), "{said}");

    // The first half of the file is a hole.
    let half = dir.join("half");
    let file = File::create(&half).unwrap();
    file.set_len(4 << 20).unwrap();
    file.write_all_at(&[7; 2 << 20], 2 << 20).unwrap();
    file.sync_all().unwrap();
    let (half, said) = content(&half);
    assert_eq!((&half["holes"], &half["empty_percent"]), (&Value::from(32), &Value::from(50.0)), "{half}");
    assert!(said.contains("(50 %) are empty"), "{said}");

    let unwritten = dir.join("unwritten");
    let file = File::create(&unwritten).unwrap();
    // SAFETY: the descriptor is open, and the rest are plain numbers.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 4 << 20) }, 0);
    file.sync_all().unwrap();
    let (unwritten, _) = content(&unwritten);
    assert_eq!(unwritten["empty"], 64, "{unwritten}");
    // A file system without a map of extents has holes instead.
    let (extents, holes) = (&unwritten["unwritten"], &unwritten["holes"]);
    assert_eq!(extents.as_u64().unwrap() + holes.as_u64().unwrap(), 64, "{unwritten}");

    // With buffered reads, only what the file system reports is known.
    let buffered = |name: &str| {
        let file = dir.join(name);
        json(&run(&[&[file.as_str(), "--direct", "0"], &words[..]].concat()))["content"].clone()
    };
    let half = buffered("half");
    assert_eq!((&half["holes"], &half["unread"]), (&Value::from(32), &Value::from(32)), "{half}");
    assert!(buffered("zeros").is_null(), "{}", buffered("zeros"));

    let blind = run(&[&[dir.join("zeros").as_str(), "--no-drive-check"], &words[..]].concat());
    assert!(json(&blind)["content"].is_null() && blind.stderr.is_empty());
}

#[test]
fn a_load_that_writes_has_a_series() {
    let dir = Dir::new("series");
    let words = ["--scratch", "--size", "16m", "--rw", "randwrite", "--runtime", "1500ms", "--json"];
    let load = json(&run(&[&[dir.path()], &words[..]].concat()));
    let written = load["written"].as_array().unwrap();
    assert!((5..=15).contains(&written.len()), "{written:?}");
    let sum = |at: usize| written.iter().map(|one| one[at].as_u64().unwrap()).sum::<u64>();
    assert!(sum(0) <= load["duration_ns"].as_u64().unwrap() + 100_000_000, "{written:?}");
    let all = load["bytes"].as_u64().unwrap();
    assert!(sum(1) <= all && sum(1) > all / 4, "{} of {all}", sum(1));
    assert!(load["content"].is_null() && load.get("write_cliff").is_some());
}
