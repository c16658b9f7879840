//! Tests that a partition is measured by itself, exactly as the kernel counts it. Needs root and loop devices.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::live::ATTEMPTS;
use crate::live::disk::{Disk, Stat};
use crate::live::view::{begun, brief, holds, number};
use crate::support::patience::Patience;
use crate::support::skip::skipped;
use crate::support::tool::{biopsy, finish, object, one_error, refused, run, stderr};
use serde_json::Value;

const LATENCY: &str = "biopsy.latency/1";

/// A disk with two adjacent partitions.
struct Partitioned {
    disk: Disk,
    names: [String; 2],
}

impl Partitioned {
    const FIRST_SECTOR: u64 = 2048;
    const SECTORS: u64 = 32768;

    fn new() -> Option<Self> {
        let disk = Disk::new(64)?;
        let names = [1, 2].map(|number| format!("{}p{number}", disk.name));
        for (at, name) in (0..).zip(&names) {
            let first = (Self::FIRST_SECTOR + at * Self::SECTORS).to_string();
            let words = [disk.path.as_str(), &(at + 1).to_string(), &first, &Self::SECTORS.to_string()];
            let made = Command::new("addpart").args(words).output();
            if !made.is_ok_and(|made| made.status.success()) || !Path::new("/dev").join(name).exists() {
                skipped("no partition can be made here");
                return None;
            }
        }
        let _none = Command::new("udevadm").args(["settle", "--timeout=2"]).output();
        Some(Self { disk, names })
    }

    fn remove(&self, number: &str) {
        let _gone = Command::new("delpart").args([&self.disk.path, number]).output();
    }
}

impl Drop for Partitioned {
    fn drop(&mut self) {
        self.remove("1");
        self.remove("2");
    }
}

/// The row of the device while a script runs, all of whose I/Os lie in the window, after a check that it counts what
/// the kernel counted for NAME.
#[track_caller]
fn exact(name: &str, options: &[&str], script: &str) -> (Value, Stat) {
    for attempt in 1.. {
        let before = Stat::read(name);
        let words =
            [&["latency", "--json", "--max-cost", "0"], options, &["--", "sh", "-ec", script]].concat();
        let output = run(&words);
        let stat = Stat::read(name).since(before);
        let view = object(&output, LATENCY);
        if view["lost"]["probes"]["latency"]["unseen_completion"] != 0 && attempt < ATTEMPTS {
            continue;
        }
        assert_eq!(
            (&view["command_status"], &view["lost"]["ios"]),
            (&0.into(), &0.into()),
            "{}",
            view["lost"]
        );
        let [row] = view["devices"].as_array().unwrap().as_slice() else { panic!("one device: {view}") };
        assert_eq!(
            (row["name"].as_str(), &row["kernel_check"]),
            (Some(name), &"ok".into()),
            "{}",
            brief(row)
        );
        assert_eq!(number(&row["ios"]), stat.ios(), "{stat:?} {}", brief(row));
        for key in ["kernel_ios_min", "kernel_ios_max"] {
            assert_eq!(number(&row[key]), stat.ios(), "{key} {stat:?} {}", brief(row));
        }
        for (class, counted) in [("read", stat.reads), ("write", stat.writes), ("discard", stat.discards)] {
            assert_eq!(number(&row["kernel_ios"][class]["seen"]), counted, "{class} {stat:?} {}", brief(row));
        }
        holds(row);
        return (row.clone(), stat);
    }
    unreachable!("it returns at the last attempt")
}

fn reads(path: &str, count: u32, skip: u32) -> String {
    format!("dd if={path} of=/dev/null bs=4k count={count} skip={skip} iflag=direct status=none")
}

#[test]
fn each_partition_has_its_own_direct_ios() {
    let Some(all) = Partitioned::new() else { return };
    let [first, second] = &all.names;
    // I/Os in the range of the first partition, but through the disk: they belong to the disk, as in the kernel's
    // counters.
    let script = format!(
        "{} & {} & {} & dd if=/dev/zero of=/dev/{first} bs=64k count=40 oflag=direct conv=fsync status=none; wait",
        reads(&format!("/dev/{first}"), 500, 0),
        reads(&format!("/dev/{second}"), 300, 0),
        reads(&all.disk.path, 100, 1024),
    );
    let number_of = |name: &str| fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
    let (row, stat) = exact(first, &["-d", first], &script);
    assert_eq!(row["disk"], all.disk.name.as_str());
    assert_eq!((stat.reads, number(&row["ops"]["read"]["ios"])), (500, 500), "{}", brief(&row));
    assert_eq!(number(&row["ops"]["read"]["bytes"]), 500 << 12);
    assert_eq!(number(&row["ops"]["write"]["ios"]), 40, "{}", brief(&row));
    assert_eq!(number(&row["ops"]["read"]["request_stages"]["queue"]["count"]), 500);
    assert!(row["ops"].get("flush").is_none(), "a flush of the drive is the disk's: {}", brief(&row));
    let (_, stat) = exact(second, &["-d", number_of(second).trim()], &script);
    assert_eq!(stat.ios(), 300);
    let (row, stat) = exact(&all.disk.name, &["-d", &all.disk.name], &script);
    assert_eq!(stat.reads, 900);
    assert!(row.get("disk").is_none());
}

#[test]
fn buffered_and_merged_ios_are_the_partitions_too() {
    let Some(mut all) = Partitioned::new() else { return };
    if all.disk.schedulers().iter().any(|name| name == "mq-deadline") {
        all.disk.set("scheduler", "mq-deadline");
    }
    let [first, second] = all.names.each_ref().map(|name| format!("/dev/{name}"));
    let script = format!(
        "for d in {first} {second}; do
             {{ dd if=/dev/zero of=$d bs=4k count=1500 conv=fsync status=none
                blockdev --flushbufs $d
                dd if=$d of=/dev/null bs=4k count=1500 status=none; }} &
         done; wait"
    );
    let (row, stat) = exact(&all.names[0], &["-d", &first], &script);
    assert!(stat.reads > 0 && stat.writes > 0, "{stat:?}");
    // Read-ahead goes on past the end.
    assert!(number(&row["ops"]["read"]["bytes"]) >= 1500 << 12, "{}", brief(&row));
    let (_, of_disk) = exact(&all.disk.name, &["-d", &all.disk.name], &script);
    assert!(of_disk.ios() > stat.ios());
}

#[test]
fn a_filter_and_a_partition_leave_what_passes_both() {
    let Some(all) = Partitioned::new() else { return };
    let [first, second] = all.names.each_ref().map(|name| format!("/dev/{name}"));
    let other = reads(&first, 70, 0).replacen("dd", "./dd2", 1);
    let script = format!(
        "cd $(mktemp -d); cp $(command -v dd) dd2; {}; {}; {other}; rm dd2",
        reads(&first, 50, 0),
        reads(&second, 60, 0)
    );
    let output = run(&[
        "latency",
        "--json",
        "--max-cost",
        "0",
        "-d",
        &first,
        "--comm",
        "dd",
        "--",
        "sh",
        "-ec",
        &script,
    ]);
    let view = object(&output, LATENCY);
    let row = &view["devices"][0];
    assert_eq!(
        (row["name"].as_str(), number(&row["ios"])),
        (Some(all.names[0].as_str()), 50),
        "{}",
        brief(row)
    );
}

#[test]
fn a_trace_has_the_lines_of_the_partition() {
    let Some(all) = Partitioned::new() else { return };
    let [first, second] = all.names.each_ref().map(|name| format!("/dev/{name}"));
    let script = format!("{} & {}; wait", reads(&first, 40, 0), reads(&second, 60, 0));
    let output = run(&["trace", "--json", "-d", &second, "--", "sh", "-ec", &script]);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!(lines.len(), 60, "{summary}");
    let begin = Partitioned::FIRST_SECTOR + Partitioned::SECTORS;
    for line in &lines {
        assert_eq!(line["device"], all.names[1].as_str());
        assert!(number(&line["offset"]) >= begin << 9, "offsets are the disk's: {line}");
    }
    assert_eq!(summary["devices"][0]["disk"], all.disk.name.as_str());
}

#[test]
fn views_without_partitions_say_so() {
    let Some(all) = Partitioned::new() else { return };
    let first = &all.names[0];
    let of =
        |words: &[&str]| -> Output { run(&[words, &["-d", first, "--for", "300ms", "--json"]].concat()) };
    for (verb, figures) in
        [("interrupts", "interrupts"), ("locks", "locks and page cache"), ("threads", "threads")]
    {
        let output = of(&[verb]);
        let line = format!(
            "biopsy: {first} is a partition of {}: {figures} are those of the whole disk\n",
            all.disk.name
        );
        assert!(stderr(&output).contains(&line), "{verb}: {}", stderr(&output));
    }
    let output = of(&["diagnose"]);
    let view = object(&output, "biopsy.diagnose/1");
    let row = &view["latency"]["devices"][0];
    assert_eq!((&row["name"], &row["disk"]), (&first.as_str().into(), &all.disk.name.as_str().into()));
    assert_eq!(view["interrupts"]["devices"][0]["name"], all.disk.name.as_str());
    let missing = view["missing"].as_array().unwrap();
    assert!(missing.iter().any(|gap| gap["device"] == first.as_str() && gap["reason"] == "partition"));
    assert!(stderr(&output).contains("tags, queues, interrupts and locks are those of the whole disk"));
}

#[test]
fn what_overlaps_or_is_not_there_is_refused() {
    let Some(all) = Partitioned::new() else { return };
    let (disk, [first, second]) = (&all.disk.name, &all.names);
    let remedy = format!("name {disk}, or one of its partitions");
    for verb in [&["latency"][..], &["trace"], &["top", "--plain"], &["flame", "--io"], &["diagnose"]] {
        for pair in [[disk, first], [first, disk], [first, second]] {
            let output = run(&[verb, &["-d", pair[0], "-d", pair[1], "--for", "1s"]].concat());
            one_error(&output, 2, &[&remedy]);
        }
    }
    for name in
        [format!("{disk}p99"), format!("/dev/{disk}p99"), format!("{first}\x1b[2J"), format!("../{first}")]
    {
        let output = run(&["latency", "-d", &name, "--for", "1s"]);
        refused(&output, 3, &["`biopsy devices` lists them"]);
        assert!(!stderr(&output).contains('\x1b'));
    }
}

#[test]
fn a_partition_that_vanishes_ends_the_view() {
    let Some(all) = Partitioned::new() else { return };
    let second = &all.names[1];
    let child = begun(&mut biopsy(&["latency", "--json", "-d", second, "--for", "60s"]));
    let patience = Patience::new(Duration::from_secs(10));
    all.remove("2");
    let output = finish(child);
    patience.holds();
    let view = object(&output, LATENCY);
    assert_eq!(view["devices"][0]["vanished"], true, "{}", stderr(&output));
}
