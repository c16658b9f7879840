//! Tests `--by` and the filters: I/Os by the process that submitted them, and by their properties. Needs root and loop
//! devices.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::time::Duration;

use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::mounted::Mounted;
use crate::live::view::{begun, brief, during_script, during_work_with, number};
use crate::support::patience::Patience;
use crate::support::skip::skipped;
use crate::support::tool::{biopsy, finish, go, object, prepared, quiet, refused, run, signal, stderr};
use serde_json::{Value, json};

const LATENCY: &str = "biopsy.latency/1";
const DIAGNOSE: &str = "biopsy.diagnose/1";

/// A command that makes `count` reads of so many bytes, each an operation of its own.
fn reads(disk: &Disk, bytes: &str, count: u32) -> String {
    format!("dd if={} of=/dev/null iflag=direct bs={bytes} count={count} status=none", disk.path)
}

fn writes(disk: &Disk, bytes: &str, count: u32) -> String {
    format!("dd if=/dev/zero of={} oflag=direct bs={bytes} count={count} status=none", disk.path)
}

/// The groups of a view, after a check that they sum up to the devices' counts, and that the stages of each group's
/// operations add up.
#[track_caller]
fn groups(view: &Value) -> Vec<Value> {
    let all = view["groups"].as_array().unwrap().clone();
    let devices = view["devices"].as_array().unwrap();
    let sum = |rows: &[Value], key: &str| rows.iter().filter_map(|row| row[key].as_u64()).sum::<u64>();
    for key in ["ios", "bytes", "operations"] {
        assert_eq!(sum(&all, key), sum(devices, key), "{key}: {}", brief(view));
    }
    let ops: Vec<Value> =
        devices.iter().flat_map(|device| device["ops"].as_object().unwrap().values()).cloned().collect();
    assert_eq!(sum(&all, "ios_without_operation"), sum(&ops, "ios_without_operation"));
    for stage in ["queue", "device", "complete"] {
        let total = |rows: &[Value], key: &str| -> u64 {
            rows.iter().filter_map(|row| row["request_stages"][stage][key].as_u64()).sum()
        };
        for key in ["count", "sum_ns"] {
            assert_eq!(total(&all, key), total(&ops, key), "{key} of {stage}: {}", brief(view));
        }
    }
    for group in all.iter().filter(|group| !group["operations"].is_null()) {
        let stages = group["stages"].as_object().unwrap();
        let sum: u64 = stages.values().map(|times| number(&times["sum_ns"])).sum();
        assert_eq!(sum, number(&group["total"]["sum_ns"]), "{}", brief(group));
        for (stage, times) in stages {
            assert_eq!(times["count"], group["total"]["count"], "{stage}: {}", brief(group));
        }
    }
    all
}

/// The only group with this `by`.
#[track_caller]
fn group<'a>(groups: &'a [Value], by: &Value) -> &'a Value {
    let found: Vec<&Value> = groups.iter().filter(|group| group["by"] == *by).collect();
    assert_eq!(found.len(), 1, "{by} of {}", groups.iter().map(brief).collect::<String>());
    found[0]
}

/// The I/Os and operations of a group.
fn counts(group: &Value) -> (u64, u64) {
    (number(&group["ios"]), group["operations"].as_u64().unwrap_or(0))
}

/// Of two processes at the same time each has its own count, without the I/Os of the other.
#[test]
fn each_process_has_its_own_ios() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!(
        "{} & echo $! >&2; {} & echo $! >&2; wait",
        reads(&disk, "4k", 1500),
        writes(&disk, "4k", 700)
    );
    let view = during_script(&[&disk], &["--by", "process,op"], &script);
    view.exact(&disk);
    let pids: Vec<u32> = stderr(&view.output).lines().filter_map(|line| line.parse().ok()).collect();
    let groups = groups(&view.json);
    assert_eq!(view.json["by"], json!(["process", "op"]));
    let process = |pid: u32| json!({"pid": pid, "comm": "dd"});
    let reader = group(&groups, &json!({"process": process(pids[0]), "op": "read"}));
    let writer = group(&groups, &json!({"process": process(pids[1]), "op": "write"}));
    assert_eq!((counts(reader), counts(writer)), ((1500, 1500), (700, 700)));
    assert_eq!(number(&writer["bytes"]), 700 * 4096);
    assert_eq!(groups.len(), 2);
}

/// Neither the choice of words nor their order changes a sum.
#[test]
fn every_word_tells_ios_apart() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(other) = Disk::new(64) else { return };
    let script = format!(
        "{}; {}; {}; sync {}",
        reads(&disk, "4k", 300),
        reads(&disk, "64k", 100),
        writes(&other, "16k", 50),
        other.path
    );
    let disks = [&disk, &other];
    let by = |words: &str| {
        let view = during_script(&disks, &["--by", words], &script);
        view.exact(&disk);
        groups(&view.json)
    };
    let sizes = by("size");
    assert_eq!(counts(group(&sizes, &json!({"size": [4096, 8192]}))), (300, 300));
    assert_eq!(counts(group(&sizes, &json!({"size": [65536, 131072]}))), (100, 100));
    let devices = by("op,device");
    let read = json!({"device": disk.name, "op": "read"});
    assert_eq!(counts(group(&devices, &read)), (400, 400));
    assert_eq!(counts(group(&devices, &json!({"device": other.name, "op": "write"}))).0, 50);
    let queues = by("queue");
    assert!(queues.iter().all(|group| group["by"]["queue"].is_u64()));
    let every = by("device,op,queue,size,cpu,process,cgroup,file");
    let known = every.iter().filter(|group| group["by"].as_object().unwrap().len() == 8);
    let of_known: u64 = known.map(|group| number(&group["ios"])).sum();
    // The flushes of sync belong to the device itself.
    assert!((450..=453).contains(&of_known), "{every:?}");
    let view =
        during_script(&disks, &["--by", "stage,file,cgroup,process,cpu,size,queue,op,device"], &script);
    let all = view.json["groups"].as_array().unwrap();
    let of_stage = |stage: Value| -> u64 {
        all.iter().filter(|group| group["by"]["stage"] == stage).map(|group| number(&group["ios"])).sum()
    };
    // Each group has one row for each of its stages. A group that only waited for a flush has the stages of its
    // operation, the fsync of sync.
    let waits = all.iter().filter(|group| {
        group["by"]["stage"] == "queue" && group["by"]["op"] == "empty_flush" && group["operations"] == 1
    });
    assert_eq!(waits.count(), 1, "{all:?}");
    assert_eq!(of_stage(json!("queue")), 450 + 1, "{all:?}");
    let devices = view.json["devices"].as_array().unwrap();
    let ios: u64 = devices.iter().map(|device| number(&device["ios"])).sum();
    assert_eq!(of_stage(json!("device")) + of_stage(Value::Null), ios, "{all:?}");
}

/// The CPU is the one on which the I/O was submitted, and the matrix has each I/O once.
#[test]
fn a_pinned_load_is_its_cpus() {
    let Some(disk) = Disk::new(64) else { return };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let last = cpus - 1;
    let script =
        format!("taskset -c 0 {}; taskset -c {last} {}", reads(&disk, "4k", 400), reads(&disk, "4k", 900));
    let view = during_script(&[&disk], &["--by", "cpu"], &script);
    view.exact(&disk);
    let groups = groups(&view.json);
    if last > 0 {
        assert_eq!(counts(group(&groups, &json!({"cpu": 0}))).0, 400);
        assert_eq!(counts(group(&groups, &json!({"cpu": last}))).0, 900);
    }
    for (key, place) in [("cpus", "submit_cpu"), ("nodes", "submit_node")] {
        let pairs = view.json[key].as_array().unwrap();
        let all: u64 = pairs.iter().map(|pair| number(&pair["ios"])).sum();
        assert_eq!(all, 1300, "{pairs:?}");
        assert!(pairs.iter().all(|pair| pair[place].is_u64()), "{pairs:?}");
    }
    let from_last = view.json["cpus"].as_array().unwrap().iter();
    let from_last = from_last.filter(|pair| pair["submit_cpu"] == last);
    let expected = if last > 0 { 900 } else { 1300 };
    assert_eq!(from_last.map(|pair| number(&pair["ios"])).sum::<u64>(), expected);
}

/// With a filter by pid only the I/O of that process is counted, and the measurement ends when it exits.
#[test]
fn a_filter_by_process_sees_that_process_only() {
    let Some(disk) = Disk::new(64) else { return };
    for by in [&[][..], &["--by", "process"]] {
        let mut mine = prepared(&reads(&disk, "4k", 800));
        let mut other = prepared(&reads(&disk, "4k", 2500));
        let pid = mine.id().to_string();
        let words = [&["latency", "-d", &disk.name, "--json", "-p", &pid], by].concat();
        let child = begun(&mut biopsy(&words));
        let before = disk.stat();
        go(&mut other);
        go(&mut mine);
        for dd in [&mut mine, &mut other] {
            assert!(dd.wait().unwrap().success());
        }
        let counted = disk.stat().since(before).reads;
        let output = finish(child);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("process of -p has ended"), "{}", stderr(&output));
        let view = object(&output, LATENCY);
        let device = &view["devices"][0];
        assert_eq!((number(&device["ios"]), number(&device["operations"])), (800, 800), "{}", brief(device));
        assert_eq!(number(&device["started_before"]), 0);
        // The kernel counts the I/O of all processes, so that its count is no bound and is printed separately.
        assert!(device["kernel_ios_min"].is_null() && device["kernel_check"].is_null(), "{}", brief(device));
        assert!(device["in_flight_start"].is_null());
        assert_eq!(counted, 3300);
        assert!(number(&device["all_ios_max"]) >= 800 && number(&device["all_ios_max"]) <= 3300);
        let gaps = view["missing"].as_array().unwrap();
        assert!(
            gaps.iter().any(|gap| gap["part"] == "kernel_ios" && gap["reason"] == "filtered"),
            "{gaps:?}"
        );
        if !by.is_empty() {
            let groups = groups(&view);
            let by = json!({"process": {"pid": pid.parse::<u32>().unwrap(), "comm": "dd"}});
            assert_eq!(counts(group(&groups, &by)), (800, 800));
            assert_eq!(groups.len(), 1);
        }
    }
}

/// A filter by the name of the thread works also if bios of another one come first, and with --for.
#[test]
fn a_filter_by_name_sees_that_name_only() {
    let Some(disk) = Disk::new(64) else { return };
    let copy = std::env::temp_dir().join(format!("by-name-{}", std::process::id() % 10000));
    std::fs::copy("/bin/dd", &copy).unwrap();
    let (name, path) = (copy.file_name().unwrap().to_str().unwrap(), copy.to_str().unwrap());
    let script = format!(
        "{} & {}; wait",
        reads(&disk, "4k", 2000),
        reads(&disk, "8k", 600).replace("dd if", &format!("{path} if"))
    );
    let view = during_script(&[&disk], &["--comm", name], &script);
    std::fs::remove_file(&copy).unwrap();
    let device = view.device(&disk);
    assert_eq!((number(&device["ios"]), number(&device["bytes"])), (600, 600 * 8192), "{}", brief(device));
    crate::live::view::holds(device);
}

/// A flush belongs to no process, but the process that waits for it is known: with a filter, the writes and the fsync
/// of one process have their stages, and the flushes are left out.
#[test]
fn a_filter_knows_who_waits_for_a_flush() {
    let Some(disk) = Disk::new(64) else { return };
    let synced = format!("{} oflag=direct conv=fsync", writes(&disk, "4k", 50));
    let script = format!("for i in 1 2 3 4; do {synced}; done & sh -c '{synced}'; wait");
    for options in [&["--comm", "dd"][..], &["--comm", "dd", "--by", "op"], &["--comm", "dd", "--detail"]] {
        let view = during_script(&[&disk], options, &script);
        let device = view.device(&disk);
        let ops = device["ops"].as_object().unwrap();
        assert_eq!(ops.keys().collect::<Vec<_>>(), ["empty_flush", "write"], "{}", brief(device));
        let of = |op: &str, key: &str| number(&ops[op][key]);
        assert_eq!((of("write", "ios"), of("write", "operations")), (250, 250), "{}", brief(device));
        assert_eq!((of("empty_flush", "ios"), of("empty_flush", "operations")), (5, 5), "{}", brief(device));
        let flush = ops["empty_flush"]["stages"].as_object().unwrap();
        assert_eq!(
            flush.keys().collect::<Vec<_>>(),
            ["device", "queue", "reap", "submit"],
            "{}",
            brief(device)
        );
    }
}

/// If the process makes no I/O, the view says so, with the I/O of the others.
#[test]
fn a_filter_that_nothing_passes_is_an_answer() {
    let Some(disk) = Disk::new(64) else { return };
    let own = std::process::id().to_string();
    for filter in [["-p", &own], ["--comm", "nobody"]] {
        let words = ["latency", "-d", &disk.name, filter[0], filter[1], "--", "sh", "-c"];
        let output = run(&[&words[..], &[&reads(&disk, "4k", 321)]].concat());
        quiet(&output);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("None of the 321 I/Os on the traced devices passes the filter"), "{text}");
        assert!(text.contains("not measured: check against the kernel's I/O counts"), "{text}");
    }
    let output = run(&["latency", "-d", &disk.name, "-p", &own, "--for", "100ms"]);
    quiet(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("No I/O completed on the traced devices, from any process."), "{text}");
}

#[test]
fn what_is_not_there_is_refused() {
    let Some(disk) = Disk::new(16) else { return };
    let latency = |words: &[&str]| run(&[&["latency", "-d", &disk.name, "--for", "60s"], words].concat());
    let mut gone = Command::new("true").spawn().unwrap();
    let pid = gone.id().to_string();
    gone.wait().unwrap();
    refused(&latency(&["-p", &pid]), 3, &["no process", &pid]);
    refused(&latency(&["--cgroup", "no/such"]), 3, &["no cgroup 'no/such'"]);
    refused(&latency(&["--comm", "a name of 16 byte"]), 2, &["15 bytes"]);
    refused(&latency(&["--by", "colour"]), 2, &["colour"]);
    refused(&latency(&["-p", "0"]), 2, &["--pid"]);
}

/// The measurement ends soon after the process, even with a longer --for, and no probe stays attached.
#[test]
fn a_process_that_ends_in_mid_run_ends_the_measurement() {
    let Some(disk) = Disk::new(16) else { return };
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let child = begun(&mut biopsy(&["latency", "-d", &disk.name, "--json", "-p", &pid, "--for", "60s"]));
    let patience = Patience::new(Duration::from_secs(3));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let output = finish(child);
    patience.holds();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    object(&output, LATENCY);
    // A signal works as without a filter.
    let own = std::process::id().to_string();
    let child = begun(&mut biopsy(&["latency", "-d", &disk.name, "--json", "-p", &own]));
    signal(&child, libc::SIGINT);
    quiet(&finish(child));
}

/// Each cgroup has its I/O under its path; a filter includes the cgroups below it.
#[test]
fn cgroups_have_their_ios() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(upper) = Group::new("biopsy-test") else { return };
    let lower = upper.below("lower");
    let script = format!(
        "{} & {} & {}; wait",
        upper.within(&reads(&disk, "4k", 400)),
        lower.within(&reads(&disk, "4k", 700)),
        reads(&disk, "4k", 1000)
    );
    let view = during_script(&[&disk], &["--by", "cgroup"], &script);
    view.exact(&disk);
    let groups = groups(&view.json);
    assert_eq!(counts(group(&groups, &json!({"cgroup": upper.name()}))), (400, 400));
    assert_eq!(counts(group(&groups, &json!({"cgroup": lower.name()}))), (700, 700));
    let relative = lower.name();
    for (name, ios) in [
        (upper.name().as_str(), 1100),
        (upper.path().to_str().unwrap(), 1100),
        (relative.trim_start_matches('/'), 700),
    ] {
        let view = during_script(&[&disk], &["--cgroup", name], &script);
        let device = view.device(&disk);
        assert_eq!(number(&device["ios"]), ios, "{name}: {}", brief(device));
        crate::live::view::holds(device);
    }
}

#[test]
fn a_cgroup_that_is_deleted_ends_the_measurement_and_keeps_its_name() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = Group::new("biopsy-gone") else { return };
    let name = group.name();
    let words = ["latency", "-d", &disk.name, "--json", "--by", "cgroup", "--cgroup", &name, "--for", "60s"];
    let child = begun(&mut biopsy(&words));
    let script = group.within(&reads(&disk, "4k", 250));
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    drop(group);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("cgroup of --cgroup is gone"), "{}", stderr(&output));
    let view = object(&output, LATENCY);
    let groups = groups(&view);
    assert_eq!((groups.len(), counts(&groups[0])), (1, (250, 250)));
    assert_eq!(groups[0]["by"], json!({"cgroup": name}));
}

/// If there are more processes than rows, the rest is counted together and marked.
#[test]
fn what_finds_no_room_is_in_the_others() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!("for n in $(seq 560); do {}; done", reads(&disk, "4k", 1));
    let view = during_script(&[&disk], &["--by", "process"], &script);
    view.exact(&disk);
    let groups = groups(&view.json);
    let most = number(&view.json["groups_max"]);
    assert_eq!(groups.len() as u64, most.min(560));
    let others: Vec<&Value> = groups.iter().filter(|group| group["other"] == true).collect();
    assert_eq!(others.len(), 1);
    assert_eq!(counts(others[0]), (560 - (most - 1), 560 - (most - 1)));
    assert_eq!(others[0]["by"], json!({}));
    assert!(groups.iter().filter(|group| group["other"].is_null()).all(|group| counts(group) == (1, 1)));
}

/// Each interval has its own groups, and together they have all I/Os. An I/O at the edge of two intervals may be in one
/// of them for its device and in the other for its group, as the two are not read at the same time.
#[test]
fn intervals_share_out_the_groups() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!("{}; sleep 0.5; {}", reads(&disk, "4k", 300), reads(&disk, "8k", 200));
    let words = ["latency", "-d", &disk.name, "--json", "--by", "size", "0.2", "--", "sh", "-c", &script];
    let output = run(&words);
    quiet(&output);
    let views = crate::support::tool::objects(&output, LATENCY);
    assert!(views.len() > 2, "{}", views.len());
    let mut all = std::collections::BTreeMap::new();
    let groups = |view: &Value| view["groups"].as_array().unwrap().clone();
    for group in views.iter().flat_map(groups) {
        *all.entry(number(&group["by"]["size"][0])).or_insert(0) += number(&group["ios"]);
    }
    assert_eq!(all.into_iter().collect::<Vec<_>>(), [(4096, 300), (8192, 200)]);
    assert!(groups(&views[0]).len() <= 1, "the second size came later");
}

/// Groups use the memory that the tables of all disks, of operations and of their parts leave.
#[test]
fn the_maps_of_groups_keep_to_their_bound() {
    if let Some(why) = crate::support::tool::no_tracing() {
        skipped(why);
        return;
    }
    for words in [&["--by", "device"][..], &["--by", "process", "--detail"]] {
        let output = run(&[&["latency", "--json", "--for", "300ms"], words].concat());
        let view = object(&output, LATENCY);
        let bytes = number(&view["cost"]["map_bytes"]);
        assert!(bytes <= 64 << 20, "{words:?}: {bytes} for {} groups", view["groups_max"]);
    }
}

/// The JSON of a file.
fn by_file(path: &Path, name: &str) -> Value {
    let data = std::fs::metadata(path).unwrap();
    let device = format!("{}:{}", libc::major(data.dev()), libc::minor(data.dev()));
    json!({"file": {"kind": "regular", "device": device, "inode": data.ino(), "path": name}})
}

fn of_disk(disk: &Disk, kind: &str) -> Value {
    let device = std::fs::metadata(&disk.path).unwrap().rdev();
    let device = format!("{}:{}", libc::major(device), libc::minor(device));
    json!({"file": {"kind": kind, "device": device}})
}

/// Direct reads of two files, buffered reads of a third, and reads of the device itself: each has its own count and
/// name, also if no process has the file open any more or if it was deleted.
#[test]
fn each_file_has_its_own_ios() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(mounted) = Mounted::new(&disk) else { return };
    let names = ["direct one", "direct\u{1b}two", "buffered", "deleted"];
    let paths = names.map(|name| mounted.file(name, 1 << 20));
    mounted.again();
    let deleted = File::open(&paths[3]).unwrap();
    let by_deleted = by_file(&paths[3], &format!("{} (deleted)", paths[3].display()));
    std::fs::remove_file(&paths[3]).unwrap();
    let read = |path: &str, words: &str| format!("dd if='{path}' of=/dev/null status=none {words}");
    let text = |path: &PathBuf| path.to_str().unwrap().to_string();
    let script = [
        read(&text(&paths[0]), "iflag=direct bs=4k count=200"),
        read(&text(&paths[1]), "iflag=direct bs=16k count=40"),
        read(&text(&paths[2]), "bs=64k"),
        read(
            &format!("/proc/{}/fd/{}", std::process::id(), deleted.as_raw_fd()),
            "iflag=direct bs=4k count=30",
        ),
        reads(&disk, "4k", 100),
    ]
    .join("; ");
    let view = during_script(&[&disk], &["--by", "file"], &script);
    view.exact(&disk);
    let groups = groups(&view.json);
    let of = |path: &PathBuf| group(&groups, &by_file(path, &text(path)));
    assert_eq!(counts(of(&paths[0])), (200, 200));
    assert_eq!(counts(of(&paths[1])), (40, 40));
    assert_eq!(number(&of(&paths[2])["bytes"]), 1 << 20);
    assert_eq!(counts(group(&groups, &by_deleted)), (30, 30));
    assert_eq!(number(&group(&groups, &of_disk(&disk, "raw_device"))["operations"]), 100);
    let sum: u64 =
        groups.iter().filter(|group| group["by"] == json!({})).map(|one| number(&one["ios"])).sum();
    assert!(sum <= 4, "{sum} of no file: {groups:?}");
    // The same files by the bios of each process, which are few enough to be counted one by one.
    let value =
        object(&run(&["diagnose", "--json", "-o", "/dev/null", "--", "sh", "-ec", &script]), DIAGNOSE);
    let devices = value["latency"]["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["name"] == disk.name.as_str()).unwrap();
    let rows = device["files"].as_array().unwrap();
    let row = |file: &Value| {
        rows.iter().find(|row| row["file"] == file["file"]).unwrap_or_else(|| panic!("{rows:?}"))
    };
    let bios = |file: &Value| (number(&row(file)["bios"]), number(&row(file)["sampled_bios"]));
    let named = |path: &PathBuf| by_file(path, &text(path));
    assert_eq!(bios(&named(&paths[0])), (200, 200));
    assert_eq!((bios(&named(&paths[1])), bios(&by_deleted)), ((40, 40), (30, 30)));
    assert_eq!(bios(&of_disk(&disk, "raw_device")), (100, 100));
    // The same files by `biopsy trace`.
    let lines = run(&["trace", "--json", "--files", "-d", &disk.name, "--", "sh", "-ec", &script]).stdout;
    let lines: Vec<Value> =
        String::from_utf8(lines).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    let of = |file: &Value| lines.iter().filter(|line| line["file"] == file["file"]).count();
    assert_eq!((of(&named(&paths[0])), of(&named(&paths[1])), of(&by_deleted)), (200, 40, 30));
    assert_eq!(of(&of_disk(&disk, "raw_device")), 100);
    // A file name may contain any character.
    let words = ["latency", "-d", &disk.name, "--all", "--by", "file", "--", "sh", "-c", &script];
    let text = String::from_utf8(run(&words).stdout).unwrap();
    assert!(text.contains("direct\\u{1b}two") && !text.contains('\u{1b}'), "{text}");
    assert!(text.contains("[raw device]"), "{text}");
}

/// A buffer of direct I/O may be mapped from another file; the I/O belongs to the file that is read. Write-back belongs
/// to the file that was written.
#[test]
fn a_buffer_is_no_file_of_its_io() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(mounted) = Mounted::new(&disk) else { return };
    let (read, mapped) = (mounted.file("read", 1 << 20), mounted.file("mapped", 1 << 20));
    let written = mounted.file("written", 4096);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&read).unwrap();
    let raw = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&disk.path).unwrap();
    let buffer = OpenOptions::new().read(true).write(true).open(&mapped).unwrap();
    let view = during_work_with(&disk, &["--by", "file,op"], || {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is long enough; only the kernel writes to it, and it is unmapped at the
        // end.
        unsafe {
            let at =
                libc::mmap(ptr::null_mut(), 1 << 20, protection, libc::MAP_SHARED, buffer.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            for n in 0..50 {
                for from in [&file, &raw] {
                    assert_eq!(libc::pread(from.as_raw_fd(), at, 4096, n * 4096), 4096);
                }
            }
            libc::munmap(at, 1 << 20);
        }
        std::fs::write(&written, vec![8; 1 << 20]).unwrap();
        File::open(&written).unwrap().sync_all().unwrap();
    });
    let groups = groups(&view.json);
    let of = |mut by: Value, op: &str| {
        by["op"] = json!(op);
        group(&groups, &by).clone()
    };
    let name = |path: &PathBuf| by_file(path, path.to_str().unwrap());
    assert_eq!(counts(&of(name(&read), "read")), (50, 50));
    assert_eq!(number(&of(of_disk(&disk, "raw_device"), "read")["operations"]), 50);
    assert_eq!(number(&of(name(&written), "write")["bytes"]), 1 << 20);
    // The new blocks of a file that grew are in the journal.
    assert!(number(&of(of_disk(&disk, "journal"), "write")["ios"]) > 0);
    let reads_of_buffer = groups.iter().filter(|group| {
        group["by"]["op"] == "read" && group["by"]["file"]["inode"] == name(&mapped)["file"]["inode"]
    });
    // The first page fault of the buffer's own file, with read-ahead.
    assert!(reads_of_buffer.map(|group| number(&group["ios"])).sum::<u64>() <= 8, "{groups:?}");
}
