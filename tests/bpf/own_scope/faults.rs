//! Tests lost events and killed processes. Needs root and loop devices.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::live::disk::Disk;
use crate::live::view::{begun, brief, during, ids, number};
use crate::support::patience::wait_for;
use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{binary, biopsy, finish, one_error, signal};

/// An I/O whose issue was not seen has *no start*; it never gets the old start of another request.
#[test]
fn a_lost_issue_is_lost_and_not_slow() {
    let Some(disk) = Disk::new(64) else { return };
    let begin = Instant::now();
    let load = [binary(), "load", "--no-drive-check", &disk.path, "--iodepth", "16", "--runtime", "700ms"];
    // The load's result is not used.
    let command = [&load[..], &["-o", "/dev/null"]].concat();
    let view = during(&[&disk], &["--fault-drop-issue", "50"], &command);
    one_error(&view.output, 4, &["more than --max-loss 0.1 % allows"]);
    let (device, lost) = (view.device(&disk), &view.json["lost"]);
    let (ios, gone) = (number(&device["ios"]), number(&lost["ios"]));
    assert_eq!(number(&lost["probes"]["latency"]["no_start"]), gone, "{lost}");
    assert_eq!(number(&device["lost_ios"]), gone, "{}", brief(device));
    assert_eq!(ios + gone, view.stat(&disk).ios(), "{}", brief(device));
    assert_eq!(device["kernel_check"], "ok");
    // One of 50, except for the slots that were never used before.
    assert!((ios / 70..=ios / 40).contains(&gone), "{gone} of {ios}");
    let times = &device["ops"]["read"]["request_stages"]["device"];
    assert_eq!(number(&times["count"]) + number(&device["started_before"]), ios, "{}", brief(device));
    let longest = Duration::from_nanos(number(&times["max_ns"]));
    println!("{gone} of {ios} issues were dropped; the longest I/O took {longest:?}");
    // A stale start would be as old as the last use of the tag: up to the whole run.
    assert!(longest < begin.elapsed() && longest.as_nanos() < 500_000_000, "{longest:?}");

    // With a limit above the loss the exit code is 0.
    let view = during(&[&disk], &["--fault-drop-issue", "50", "--max-loss", "5"], &command);
    assert_eq!(view.output.status.code(), Some(0));
}

/// Starts a process that traces for a minute. Returns it with the ids of its BPF objects.
fn tracer(disk: &Disk, words: &[&str]) -> (Child, Vec<(&'static str, String)>) {
    let child = begun(&mut biopsy(&[&["latency", "-d", &disk.name, "--for", "60s"], words].concat()));
    let held = ids(&child);
    for kind in ["prog", "link", "map"] {
        assert!(held.iter().any(|(k, _)| *k == kind), "no {kind} in {held:?}");
    }
    (child, held)
}

/// Waits until the kernel has freed all of these objects, which it does in a worker.
#[track_caller]
fn gone(held: &[(&str, String)]) {
    for (kind, id) in held {
        let gone = || {
            let shown = Command::new("bpftool").args([kind, "show", "id", id]).output().unwrap();
            !shown.status.success()
        };
        wait_for(&format!("the kernel to free {kind} {id}"), Duration::from_secs(10), gone);
    }
}

/// Whether bpftool is installed.
fn can_look() -> bool {
    let found = Command::new("bpftool").arg("version").output().is_ok_and(|o| o.status.success());
    if !found {
        skipped("bpftool is not installed");
    }
    found
}

#[test]
fn nothing_stays_in_the_kernel() {
    let Some(disk) = Disk::new(16) else { return };
    if !can_look() {
        return;
    }
    let (child, held) = tracer(&disk, &[]);
    println!("{held:?}");
    signal(&child, libc::SIGINT);
    assert_eq!(finish(child).status.code(), Some(0));
    gone(&held);

    let (child, held) = tracer(&disk, &[]);
    signal(&child, libc::SIGKILL);
    finish(child);
    gone(&held);

    // Killed during a load of its own, with the sampler attached.
    let scratch = Scratch::new("killed");
    let words = ["diagnose", &disk.path, "--runtime", "60s"];
    let child = begun(biopsy(&words).current_dir(scratch.path()));
    let held = ids(&child);
    signal(&child, libc::SIGKILL);
    finish(child);
    gone(&held);
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "a part of a report");
}

/// A file is complete or does not exist.
#[test]
fn a_killed_run_leaves_no_part_of_a_file() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("part");
    let (new, old) = (scratch.path().join("new"), scratch.path().join("old"));
    std::fs::write(&old, "precious").unwrap();
    for path in [&new, &old] {
        let (child, _) = tracer(&disk, &["-o", path.to_str().unwrap()]);
        signal(&child, libc::SIGKILL);
        finish(child);
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read(&old).unwrap(), b"precious");
    assert_eq!(scratch.path().read_dir().unwrap().count(), 1);

    // The same run, ended by a signal that it handles, replaces the file.
    let (child, _) = tracer(&disk, &["-o", old.to_str().unwrap()]);
    signal(&child, libc::SIGTERM);
    let output = finish(child);
    crate::support::tool::quiet(&output);
    assert!(output.stdout.is_empty());
    let text = std::fs::read_to_string(&old).unwrap();
    assert!(!text.contains("precious") && text.ends_with('\n'), "{text}");
}
