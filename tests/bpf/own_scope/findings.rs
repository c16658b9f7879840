//! Tests that the verdict names causes that are created on purpose. Needs root and loop devices.

use std::fs;
use std::process::Command;

use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::zram::Zram;
use crate::support::scratch::Scratch;
use crate::support::tool::{binary, biopsy, finish, object, stderr};
use serde_json::Value;

/// The JSON of `diagnose`. It is run again if the kernel did not deliver a completion event (see live::view), since a
/// finding that depends on lost I/Os is withheld.
#[track_caller]
fn diagnosed(words: &[&str]) -> Value {
    let scratch = Scratch::new("findings");
    let all = [&["diagnose", "--json", "--max-loss", "100", "-o", "report.html"], words].concat();
    let mut value = Value::Null;
    for _ in 0..crate::live::ATTEMPTS {
        let output = finish(biopsy(&all).current_dir(scratch.path()).spawn().unwrap());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        value = object(&output, "biopsy.diagnose/1");
        let lost = value["lost"]["ios"].as_u64().unwrap();
        if lost == 0 {
            break;
        }
        println!("{lost} I/Os lost: again");
    }
    value
}

/// The JSON of `diagnose` with biopsy's own load, with biopsy in this cgroup.
#[track_caller]
fn driven_within(group: &Group, disk: &Disk, options: &str) -> Value {
    let scratch = Scratch::new("findings");
    let load = format!("{} diagnose {} {options} --max-loss 100 --json -o report.html", binary(), disk.path);
    let output =
        Command::new("sh").args(["-c", &group.within(&load)]).current_dir(scratch.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    object(&output, "biopsy.diagnose/1")
}

fn finding<'a>(value: &'a Value, id: &str) -> Option<&'a Value> {
    value["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id)
}

#[track_caller]
fn number(finding: &Value, key: &str) -> f64 {
    finding["numbers"][key].as_f64().unwrap_or_else(|| panic!("{key}: {finding}"))
}

fn ids(value: &Value) -> Vec<String> {
    let all = value["findings"].as_array().unwrap();
    all.iter().map(|finding| format!("{}: {}", finding["id"], finding["sentence"])).collect()
}

/// With four requests for 64 reads at once the load starves; with enough requests the same load does not.
#[test]
fn few_requests_starve_a_deep_load() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("scheduler", "mq-deadline");
    let load = [&disk.path.clone(), "--iodepth", "64", "--runtime", "1s"];
    let tags: u32 =
        fs::read_to_string(format!("/sys/block/{}/mq/0/nr_tags", disk.name)).unwrap().trim().parse().unwrap();
    disk.set("nr_requests", "4");
    let value = diagnosed(&load);
    let found = finding(&value, "tag-starvation").unwrap_or_else(|| panic!("{tags} tags: {:?}", ids(&value)));
    println!("{found}");
    assert_eq!((number(found, "nr_requests"), number(found, "requests")), (4.0, 4.0));
    assert!(number(found, "waiting_ios") > 30.0, "one submitter has sixty reads behind it: {found}");
    disk.set("nr_requests", "256");
    let value = diagnosed(&load);
    assert!(finding(&value, "tag-starvation").is_none(), "{:?}", ids(&value));
}

/// A cgroup that may make so many reads per second from the disk. None: it cannot be made, and the test is skipped.
fn limited(disk: &Disk, per_second: u32) -> Option<Group> {
    Group::new("biopsy-findings").filter(|group| group.limit_reads(disk, per_second))
}

/// The load waits in blk-throttle, which delays it before the first event of the block layer.
#[test]
fn a_cgroups_limit_is_named() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = limited(&disk, 300) else { return };
    let value = driven_within(&group, &disk, "--iodepth 4 --runtime 3s");
    assert_eq!(value["verdict"]["id"], "throttled", "{:?}", ids(&value));
    let found = finding(&value, "throttled").unwrap();
    println!("{found}");
    assert_eq!(number(found, "limit_ios_per_second"), 300.0);
    assert!(number(found, "held_percent") > 50.0, "{found}");
    // The limit of a cgroup that the load is not in is not reported.
    let value = diagnosed(&[&disk.path, "--iodepth", "4", "--runtime", "500ms"]);
    assert!(finding(&value, "throttled").is_none(), "{:?}", ids(&value));
}

/// The load gets a fifth of a CPU.
#[test]
fn a_cpu_quota_is_named() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = Group::with_cpu_quota("biopsy-quota", 20_000) else { return };
    let value = driven_within(&group, &disk, "--iodepth 64 --runtime 2s");
    let found = finding(&value, "cpu-quota").unwrap_or_else(|| panic!("{:?}", ids(&value)));
    println!("{found}");
    assert_eq!((number(found, "quota_cpus"), &found["severity"]), (0.2, &"warning".into()), "{found}");
    // Outside the cgroup its quota is not reported.
    let value = diagnosed(&[&disk.path, "--iodepth", "4", "--runtime", "500ms"]);
    assert!(finding(&value, "cpu-quota").is_none(), "{:?}", ids(&value));
}

/// A limit on another process' I/O is found by what its operations waited for, and not by their rate, since the window
/// is longer.
#[test]
fn a_limit_that_holds_others_is_named() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = limited(&disk, 300) else { return };
    let load =
        format!("{} load --no-drive-check {} --iodepth 4 --runtime 1s -o /dev/null", binary(), disk.path);
    let script = format!("sleep 0.5; exec {}", group.within(&load));
    let value = diagnosed(&["-d", &disk.name, "--", "sh", "-c", &script]);
    assert_eq!(value["verdict"]["id"], "throttled", "{:?}", ids(&value));
    let found = finding(&value, "throttled").unwrap();
    println!("{found}");
    assert_eq!(number(found, "limit_ios_per_second"), 300.0);
    assert!(number(found, "held_percent") > 50.0, "{found}");
}

/// A device that a process reads only now and then is not what the process waits for; under load it is not idle.
#[test]
fn an_idle_disk_is_not_to_blame() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!(
        "for i in $(seq 100); do dd if={} of=/dev/null bs=4k count=4 skip=$((i * 4)) iflag=direct status=none; sleep 0.01; done",
        disk.path
    );
    let value = diagnosed(&["-d", &disk.name, "--", "sh", "-c", &script]);
    assert_eq!(value["verdict"]["id"], "not-enough-io", "{:?}", ids(&value));
    println!("{}", value["verdict"]);
    let load = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--iodepth",
        "32",
        "--runtime",
        "500ms",
        "-o",
        "/dev/null",
    ];
    let value = diagnosed(&[&["-d", disk.name.as_str(), "--"], &load[..]].concat());
    assert!(finding(&value, "not-enough-io").is_none(), "{:?}", ids(&value));
}

/// Blocks that were never written are read from the disk as any others; reads of written blocks are no finding.
#[test]
fn reads_of_what_was_never_written_are_named() {
    let Some(disk) = Disk::new(64) else { return };
    let load = [disk.path.as_str(), "--runtime", "500ms"];
    let value = diagnosed(&load);
    let found = finding(&value, "deallocated-read").unwrap_or_else(|| panic!("{:?}", ids(&value)));
    println!("{found}");
    assert_eq!(
        (found["severity"].as_str(), number(found, "zero_percent")),
        (Some("warning"), 100.0),
        "{found}"
    );
    assert!(number(found, "device_read_percent") >= 95.0, "{found}");
    assert_eq!(number(found, "sampled_blocks"), value["load"]["content"]["samples"].as_f64().unwrap());
    fs::write(&disk.path, vec![0xa5; 64 << 20]).unwrap();
    let value = diagnosed(&load);
    assert!(finding(&value, "deallocated-read").is_none(), "{:?}", ids(&value));
}

/// A process that reads a disk again and again until this is dropped.
struct Reader(std::process::Child);

impl Reader {
    fn new(disk: &Disk) -> Self {
        let script = format!("exec fio --name=other --filename={} {NEIGHBOUR}", disk.path);
        Self(Command::new("sh").args(["-c", &script]).spawn().unwrap())
    }
}

const NEIGHBOUR: &str = "--rw=randread --bs=64k --direct=1 --ioengine=psync --thread --time_based --runtime=120 \
                         --output=/dev/null";

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The I/O of a command includes that of its children, and of grandchildren whose parent has exited. The I/O of other
/// processes on the same device is counted as theirs; that on another device is not traced.
#[test]
fn a_command_is_told_from_its_neighbours() {
    let (Some(disk), Some(other)) = (Disk::new(64), Disk::new(64)) else { return };
    let _readers = (Reader::new(&disk), Reader::new(&other));
    let dd = |count: u32| format!("dd if={} of=/dev/null bs=4k count={count} iflag=direct 2>&-", disk.path);
    let orphan = format!("(sh -c 'sleep 0.3; {}' &)", dd(700));
    let value = diagnosed(&["--", "sh", "-c", &format!("{orphan}; {}; sleep 2", dd(900))]);
    let devices = value["latency"]["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["name"] == disk.name.as_str()).unwrap();
    let rows = device["processes"].as_array().unwrap();
    let of = |relation: &'static str| rows.iter().filter(move |row| row["relation"] == relation);
    let mut counts: Vec<(u64, u64)> = of("command")
        .filter(|row| row["comm"] == "dd")
        .map(|row| (row["bios"].as_u64().unwrap(), row["bytes"].as_u64().unwrap()))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [(700, 700 << 12), (900, 900 << 12)], "{rows:?}");
    let fio: Vec<&Value> = of("other").filter(|row| row["comm"] == "fio").collect();
    assert_eq!(fio.len(), 1, "{rows:?}");
    // The stages are of the command's I/O only; every bio is one I/O here.
    assert_eq!(device["ios"], 1600, "{rows:?}");
    assert_eq!(device["ops"]["read"]["operations"], 1600, "{}", device["ops"]);
    // Every bio of 64 KiB of the other reader is one I/O as well.
    let all: u64 = rows.iter().map(|row| row["bios"].as_u64().unwrap()).sum();
    let [min, max] = ["all_ios_min", "all_ios_max"].map(|key| device[key].as_u64().unwrap());
    assert!((min.saturating_sub(4)..=max + 4).contains(&all), "{all} bios, {min} to {max} I/Os: {rows:?}");
    assert_eq!(value["verdict"]["id"], "foreign-io", "{:?}", ids(&value));
    assert!(value["verdict"]["sentence"].as_str().unwrap().contains("fio ("), "{:?}", ids(&value));
    let subjects = value["findings"].as_array().unwrap().iter().map(|finding| &finding["subject"]);
    assert!(subjects.clone().all(|subject| *subject != other.name.as_str()), "{:?}", ids(&value));
}

/// A disk without requests is driven and traced like any other; its device stage is the whole time of a bio.
#[test]
fn a_disk_without_requests_has_a_verdict() {
    let Some(zram) = Zram::new(64) else { return };
    fs::write(&zram.path, vec![0xa5; 64 << 20]).unwrap();
    let dd = ["dd", &format!("if={}", zram.path), "of=/dev/null", "bs=4k", "count=8000", "iflag=direct"];
    for value in [
        diagnosed(&[&zram.path, "--runtime", "1s"]),
        diagnosed(&[&["-d", zram.name.as_str(), "--"], &dd[..]].concat()),
    ] {
        println!("{}", value["verdict"]);
        assert_ne!(value["verdict"]["id"], "inconclusive", "{:?}", ids(&value));
        let devices = value["latency"]["devices"].as_array().unwrap();
        let device = devices.iter().find(|device| device["name"] == zram.name.as_str()).unwrap();
        let operations = value["load"]["ios"].as_u64().unwrap_or(8000);
        assert_eq!(device["ops"]["read"]["operations"], operations, "{}", device["ops"]);
    }
}
