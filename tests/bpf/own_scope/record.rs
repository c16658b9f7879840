//! Tests recordings of a live machine: they count what the kernel counts, survive every way to end, and are read
//! without rights. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use crate::live::ATTEMPTS;
use crate::live::disk::{Disk, Stat};
use crate::live::mounted::Mounted;
use crate::support::patience::wait_for;
use crate::support::programs;
use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{
    biopsy, finish, forget_copy, objects, one_error, quiet, run, signal, stderr, without_rights,
};
use parquet::file::reader::SerializedFileReader;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

const VIEWS: [&str; 6] = ["latency", "interrupts", "locks", "threads", "errors", "top"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap()
}

/// The JSON lines of a view of a recording.
fn read(view: &str, path: &Path) -> Vec<Value> {
    let output = run(&[view, "-i", text(path), "--json"]);
    quiet(&output);
    objects(&output, &format!("biopsy.{view}/1"))
}

/// Starts a recorder and waits until its manifest exists.
fn begun(words: &[&str], folder: &Path) -> Child {
    let mut child = biopsy(words).spawn().unwrap();
    wait_for("the recording", PATIENCE, || {
        folder.join("manifest.json").exists() || child.try_wait().unwrap().is_some()
    });
    child
}

/// Records while the command in `words` runs, and counts the kernel's I/Os. It is run again if the kernel did not
/// deliver a completion event (see `live::view`).
fn recorded(disk: &Disk, folder: &Path, words: &[&str]) -> (Output, u64) {
    for _ in 0..ATTEMPTS {
        let before = Stat::read(&disk.name);
        let output = finish(biopsy(words).spawn().unwrap());
        let ios = Stat::read(&disk.name).since(before).ios();
        let lost = manifest(folder)["views"]["latency"]["lost"]["ios"].as_u64().unwrap();
        if lost == 0 {
            return (output, ios);
        }
        println!("again: the kernel kept {lost} completions to itself");
        fs::remove_dir_all(folder).unwrap();
    }
    panic!("the kernel keeps its completions to itself");
}

#[test]
fn a_recording_counts_what_the_kernel_counts() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record");
    let folder = scratch.path().join("run.biopsy");
    let input = format!("if={}", disk.path);
    let dd = ["dd", &input, "of=/dev/null", "bs=4k", "count=2000", "iflag=direct", "status=none"];
    let words = [
        &["record", "-d", &disk.name, "-o", text(&folder), "--label", "ticket=42", "0.1", "--", "sh", "-c"][..],
        &[&format!("sleep 0.3; {}; sleep 0.3; exit 3", dd.join(" "))],
    ];
    let (output, ios) = recorded(&disk, &folder, &words.concat());
    let said = stderr(&output);
    // A busy machine misses scans of threads and lock waits: then the exit code is 4.
    let is_doubted = output.status.code() == Some(4) && !said.contains("latency: ");
    assert!(is_doubted || output.status.code() == Some(0) && said.lines().count() == 1, "{said}");
    assert!(said.contains("biopsy: recorded ") && said.contains("biopsy latency -i "), "{said}");
    assert!(ios >= 2000);
    let lines = read("latency", &folder);
    assert!(lines.len() >= 6, "{}", lines.len());
    let of_disk = |line: &Value| {
        let devices = line["devices"].as_array().unwrap();
        devices
            .iter()
            .filter(|device| device["name"] == disk.name.as_str())
            .map(|d| d["ios"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(lines.iter().map(of_disk).sum::<u64>(), ios, "as the kernel counts");
    let written = manifest(&folder);
    assert_eq!((&written["ended"], &written["command_status"]), (&"command".into(), &3.into()));
    assert_eq!((&written["labels"]["ticket"], &written["interval_ns"]), (&"42".into(), &100_000_000.into()));
    for view in VIEWS {
        let recorded = &written["views"][view];
        assert_eq!(recorded["intervals"], read(view, &folder).len(), "{view}");
        let bytes = fs::metadata(folder.join(format!("{view}.ndjson.zst"))).unwrap().len();
        assert_eq!((&recorded["bytes"], &recorded["error"]), (&bytes.into(), &Value::Null), "{view}");
    }
    assert_eq!(written["views"]["system"]["intervals"], written["views"]["top"]["intervals"]);
    // The intervals of both views end at the same times.
    let ends = |view| -> Vec<i64> { read(view, &folder).iter().map(end_ms).collect() };
    for (one, other) in ends("latency").iter().zip(ends("errors")) {
        assert!((one - other).abs() < 100, "{one} and {other}");
    }
    // A user without rights can read the packed file.
    quiet(&run(&["pack", text(&folder)]));
    let packed = scratch.path().join("run.biopsy.tar");
    let by_root = run(&["latency", "-i", text(&folder), "--json"]);
    let child =
        without_rights(&["latency", "-i", "-", "--json"]).stdin(fs::File::open(&packed).unwrap()).spawn();
    let by_nobody = finish(child.unwrap());
    forget_copy();
    quiet(&by_nobody);
    assert_eq!(by_nobody.stdout, by_root.stdout);
    is_diagnosed(&folder, &packed, &disk.name, ios);
    shows_the_machine(&folder, &packed, &disk.name);
}

/// Checks that the recorded machine is shown as text and is the same byte for byte.
fn shows_the_machine(folder: &Path, packed: &Path, disk: &str) {
    let host = fs::read_to_string(folder.join("host.json")).unwrap();
    for verb in ["devices", "check"] {
        let line = host.lines().find(|line| line.contains(&format!("\"biopsy.{verb}/1\""))).unwrap();
        let json = run(&[verb, "-i", text(packed), "--json"]);
        quiet(&json);
        assert_eq!(String::from_utf8_lossy(&json.stdout).trim_end(), line);
        let words = run(&[verb, "-i", text(folder)]);
        quiet(&words);
        let named = if verb == "devices" { disk } else { "latency" };
        assert!(String::from_utf8_lossy(&words.stdout).contains(named), "{verb}");
    }
    one_error(&run(&["devices", "-i", "/dev/null"]), 2, &["is not a recording of biopsy record"]);
}

/// Checks that the same rules are applied to the recording, as a folder or packed, and that the report is written.
fn is_diagnosed(folder: &Path, packed: &Path, disk: &str, ios: u64) {
    let page = folder.with_extension("html");
    let report = run(&["report", "-i", text(folder), "-o", text(&page)]);
    quiet(&report);
    let json = |path| {
        let output = run(&["diagnose", "-i", text(path), "--json"]);
        quiet(&output);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let found = json(folder);
    let devices = found["latency"]["devices"].as_array().unwrap();
    let of_disk = devices.iter().find(|device| device["name"] == disk).unwrap();
    assert_eq!((&of_disk["ios"], &of_disk["kernel_check"]), (&ios.into(), &"ok".into()));
    assert!(found["verdict"]["id"].is_string() && found["interrupts"].is_object(), "{}", found["verdict"]);
    assert_eq!(
        found["host"]["cpus_online"].as_u64(),
        std::thread::available_parallelism().ok().map(|n| n.get() as u64)
    );
    // The other data that a verdict needs.
    assert!(found["cpu"]["samples"].as_u64() > Some(0) && found["cpu"]["forks"].as_u64() > Some(0));
    assert!(found["cpu"]["time"]["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.contains(disk) && html.contains(r#"on the CPU"#));
    assert_eq!(json(packed)["verdict"], found["verdict"]);
    let brief = run(&["diagnose", "-i", text(packed)]);
    quiet(&brief);
    let lines = String::from_utf8_lossy(&brief.stdout).lines().filter(|line| !line.is_empty()).count();
    assert!((3..=14).contains(&lines), "{lines}");
}

/// The time at which an interval ended, in ms of the day.
fn end_ms(line: &Value) -> i64 {
    let start = line["start"].as_str().unwrap();
    let number = |from: usize, length: usize| start[from..from + length].parse::<i64>().unwrap();
    let at = ((number(11, 2) * 60 + number(14, 2)) * 60 + number(17, 2)) * 1000 + number(20, 3);
    at + line["duration_ns"].as_i64().unwrap() / 1_000_000
}

/// Each round kills the recorder at another time.
#[test]
fn a_recorder_that_is_killed_leaves_what_it_had_recorded() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-killed");
    let rounds = if std::env::var_os("BIOPSY_ALL").is_some() { 200 } else { 20 };
    let mut seen = 0;
    for round in 0..rounds {
        let folder = scratch.path().join(format!("run{round}"));
        let words =
            ["record", "-d", &disk.name, "--with", "latency,top", "-o", text(&folder), "--for", "20s", "0.1"];
        let mut child = begun(&words, &folder);
        // The low digits of the clock are random enough.
        let ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        std::thread::sleep(Duration::from_micros(u64::from(ns / 1_000 % 500_000)));
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
        assert_eq!(manifest(&folder)["ended"], Value::Null);
        for view in ["latency", "top"] {
            let output = run(&[view, "-i", text(&folder), "--json"]);
            let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
            seen += lines.len();
            let said = stderr(&output);
            let is_whole = output.status.success() && said.is_empty();
            let is_named = said.contains("it is empty") || said.contains("is damaged or truncated");
            assert!(is_whole || output.status.code() == Some(1) && is_named, "{said}");
            assert!(is_whole || !said.contains("empty") || lines.is_empty(), "{said}");
        }
    }
    assert!(seen > rounds, "some had recorded something: {seen}");
}

/// The folded stacks of a recording, or of one of its intervals; empty if nothing ran on a CPU.
fn stacks(path: &Path) -> BTreeMap<String, u64> {
    let output = run(&["flame", "-i", text(path), "--folded", "-o", "-"]);
    let said = stderr(&output);
    if !output.status.success() {
        assert!(said.contains("it has no stack") || said.contains("the CPUs were idle"), "{said}");
    }
    let line = |line: &str| {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        (stack.to_string(), samples.parse().unwrap())
    };
    String::from_utf8(output.stdout).unwrap().lines().map(line).collect()
}

/// The profile files of the intervals.
fn profiles(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("stacks")).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    all.retain(|path| path.extension().is_some_and(|ending| ending == "gz"));
    all.sort();
    all
}

/// A program that computes on CPU 0 for the given CPU time.
const BURN: &str = "#define _GNU_SOURCE\n#include <sched.h>\n#include <stdlib.h>\n#include <time.h>\n\
    volatile unsigned long sink;\n\
    __attribute__((noinline)) void burn_here(void) { for (int i = 0; i < 100000; i++) sink += i; }\n\
    int main(int n, char **of) { cpu_set_t cpus; CPU_ZERO(&cpus); CPU_SET(0, &cpus);\n\
    sched_setaffinity(0, sizeof(cpus), &cpus);\n\
    while (clock() < atof(of[1]) * CLOCKS_PER_SEC) burn_here(); return 0; }\n";

#[test]
fn stacks_of_all_intervals_are_the_cpu_time_of_the_command() {
    let programs = programs::Folder::new("record-stacks");
    programs.compile("burn-recorded", BURN, &["-O1", "-g", "-fno-omit-frame-pointer"]);
    let burn = programs.path("burn-recorded");
    let folder = programs.path("run.biopsy");
    let words = ["record", "--with", "stacks,top", "-o", text(&folder), "0.2", "--", text(&burn), "1.6"];
    let output = finish(biopsy(&words).spawn().unwrap());
    if output.status.code() == Some(3) {
        return skipped(stderr(&output));
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let files = profiles(&folder);
    let recorded = &manifest(&folder)["views"]["stacks"];
    assert_eq!(
        (recorded["intervals"].as_u64(), &recorded["error"]),
        (Some(files.len() as u64), &Value::Null)
    );
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!((recorded["bytes"].as_u64(), recorded["lost"]["samples"].as_u64()), (Some(bytes), Some(0)));
    // On a busy machine the lookup of names may take so long that intervals are skipped.
    assert!(files.len() >= 3 && files[0].ends_with("stacks/000000.pb.gz"), "{files:?}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.join("stacks")), mode(&files[0])), (0o700, 0o600));

    let whole = stacks(&folder);
    let mut sum: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, samples) in files.iter().flat_map(|file| stacks(file)) {
        *sum.entry(stack).or_default() += samples;
    }
    assert_eq!(sum, whole, "the intervals together");
    let own = |all: &BTreeMap<String, u64>| -> u64 {
        all.iter().filter(|(stack, _)| stack.starts_with("burn-recorded;")).map(|(_, n)| n).sum()
    };
    let named: u64 = whole.iter().filter(|(stack, _)| stack.contains(";burn_here")).map(|(_, n)| n).sum();
    // 1.6 s of CPU time.
    let expected = 1.6 * 99.0;
    assert!((own(&whole) as f64 - expected).abs() * 4.0 < expected, "{} of {expected} samples", own(&whole));
    assert!(named * 10 > own(&whole) * 8, "{named} of {} have the function's name", own(&whole));

    // Intervals by their start, as a folder and packed.
    quiet(&run(&["pack", text(&folder)]));
    let packed = programs.path("run.biopsy.tar");
    assert_eq!(stacks(&packed), whole);
    let half = |words: &[&str]| {
        let all = [&["flame", "-i", text(&packed), "--folded", "-o", "-"], words].concat();
        let output = run(&all);
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum::<u64>()
    };
    assert_eq!(half(&["--to", "700ms"]) + half(&["--from", "700ms"]), whole.values().sum::<u64>());
}

#[test]
fn a_recorder_that_is_killed_leaves_whole_profiles() {
    let scratch = Scratch::new("record-stacks-killed");
    let mut seen = 0;
    for round in 0..8 {
        let folder = scratch.path().join(format!("run{round}"));
        let mut child =
            begun(&["record", "--with", "stacks", "-o", text(&folder), "--for", "20s", "0.1"], &folder);
        // The first lookup of names takes long.
        wait_for("an interval", PATIENCE, || {
            !profiles(&folder).is_empty() || child.try_wait().unwrap().is_some()
        });
        if child.try_wait().unwrap().is_some_and(|status| status.code() == Some(3)) {
            return skipped("stacks are refused here");
        }
        let ns = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
        std::thread::sleep(Duration::from_micros(u64::from(ns / 1_000 % 400_000)));
        signal(&child, libc::SIGKILL);
        child.wait().unwrap();
        let files = profiles(&folder);
        // Each interval by itself, and all together.
        files.iter().for_each(|file| _ = stacks(file));
        stacks(&folder);
        seen += files.len();
    }
    assert!(seen >= 8, "each had recorded something: {seen}");
}

/// A small file system in memory.
struct Small(PathBuf);

impl Small {
    fn new(scratch: &Scratch, kib: u32) -> Option<Self> {
        let at = scratch.path().join("small");
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        let made =
            mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "biopsy-test"]).arg(&at).status();
        if !made.is_ok_and(|status| status.success()) {
            skipped("a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_leaves_what_was_recorded() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-full");
    let Some(small) = Small::new(&scratch, 128) else { return };
    let folder = small.0.join("run");
    let words = [
        "record",
        "-d",
        &disk.name,
        "--with",
        "latency,locks,top",
        "-o",
        text(&folder),
        "--for",
        "60s",
        "0.1",
    ];
    let output = finish(biopsy(&words).spawn().unwrap());
    one_error(
        &output,
        1,
        &["cannot write", "free some space", "the part recorded before can be read", "No space left"],
    );
    for view in ["latency", "locks", "top"] {
        assert!(read(view, &folder).len() > 3, "{view}");
    }
    // There may have been no space for the `ended` entry.
    assert!([&Value::Null, &"error".into()].contains(&&manifest(&folder)["ended"]));
}

/// Neither the name of the process, nor that of its file, nor that of the host.
#[test]
fn redacted_names_are_in_no_file() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-redact");
    let (folder, secret) = (scratch.path().join("run"), scratch.path().join("customer-db"));
    fs::copy("/bin/dd", &secret).unwrap();
    let input = format!("if={}", disk.path);
    let dd = [text(&secret), &input, "of=/dev/null", "bs=4k", "count=2000", "iflag=direct", "status=none"];
    let words = ["record", "-d", &disk.name, "--redact", "-o", text(&folder), "0.1", "--"];
    let output = finish(biopsy(&[&words[..], &dd].concat()).spawn().unwrap());
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    assert!(stderr(&output).contains("stacks are not recorded: --redact"), "{}", stderr(&output));
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut redacted = 0;
    for entry in fs::read_dir(&folder).unwrap().flatten() {
        let bytes = fs::read(entry.path()).unwrap();
        let is_packed = entry.path().extension().is_some_and(|kind| kind == "zst");
        let bytes = if is_packed { zstd::decode_all(&bytes[..]).unwrap() } else { bytes };
        let all = String::from_utf8(bytes).unwrap();
        for name in ["customer-db", text(scratch.path()), &format!("\"{}\"", host.trim())] {
            assert!(!all.contains(name), "{name} in {}", entry.path().display());
        }
        redacted += usize::from(all.contains("process-") || all.contains("host-"));
    }
    assert!(redacted >= 3, "{redacted}");
    assert!(manifest(&folder)["host"].as_str().unwrap().starts_with("host-"));
    // On a fast machine dd ends within the first interval.
    assert!(!read("latency", &folder).is_empty() && !folder.join("stacks").exists());
    let refused =
        run(&["record", "--redact", "--with", "latency,trace", "-o", text(&folder.with_extension("2"))]);
    one_error(&refused, 2, &["leave trace out of --with, or leave out --redact"]);
}

#[test]
fn a_command_that_is_not_there_ends_it() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-command");
    let folder = scratch.path().join("run");
    let words =
        ["record", "-d", &disk.name, "--with", "latency,top", "-o", text(&folder), "--", "nosuchcommand"];
    one_error(&finish(biopsy(&words).spawn().unwrap()), 3, &["cannot run 'nosuchcommand'"]);
    assert!(!folder.exists(), "nothing stays");
}

#[test]
fn a_recording_ends_at_its_size_and_by_a_signal() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-ends");
    let folder = scratch.path().join("size");
    let words = [
        "record",
        "-d",
        &disk.name,
        "--with",
        "latency,top",
        "-o",
        text(&folder),
        "--max-size",
        "8k",
        "--for",
        "60s",
        "0.1",
    ];
    let output = finish(biopsy(&words).spawn().unwrap());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(manifest(&folder)["ended"], "size");
    let bytes: u64 = ["latency", "top"]
        .map(|view| manifest(&folder)["views"][view]["bytes"].as_u64().unwrap())
        .iter()
        .sum();
    assert!((8 << 10..64 << 10).contains(&bytes), "{bytes}");

    let folder = scratch.path().join("signal");
    let words = ["record", "--with", "top", "-o", text(&folder), "--at", "/1s", "0.1"];
    let child = begun(&words, &folder);
    std::thread::sleep(Duration::from_millis(400));
    signal(&child, libc::SIGINT);
    assert!(finish(child).status.success());
    let written = manifest(&folder);
    assert_eq!(written["ended"], "signal");
    let began = written["clocks"]["start"]["realtime_ns"].as_u64().unwrap();
    assert!(began % 1_000_000_000 < 200_000_000, "on the second: {began}");
    assert!(written["clocks"]["end"]["monotonic_ns"].is_u64());
}

#[test]
fn the_flight_recorder_writes_what_it_holds() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("flight");
    let into = scratch.path().join("dumps");
    let words = [
        "record",
        "-d",
        &disk.name,
        "--with",
        "latency,stacks,top,trace",
        "--keep-last",
        "500ms",
        "--when",
        "mean>1us",
        "-o",
        text(&into),
        "--for",
        "20s",
        "0.1",
    ];
    let child = biopsy(&words).spawn().unwrap();
    let dumps = || -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            fs::read_dir(&into).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        all.retain(|path| path.join("manifest.json").exists());
        all
    };
    // The signal handler is installed before the folder is made.
    wait_for("the folder", PATIENCE, || into.exists());
    signal(&child, libc::SIGUSR1);
    wait_for("a dump", PATIENCE, || !dumps().is_empty());
    let first = dumps().remove(0);
    assert_eq!(
        (&manifest(&first)["trigger"], &manifest(&first)["ended"]),
        (&"SIGUSR1".into(), &"dump".into())
    );
    let dd = Command::new("dd")
        .args([
            &format!("if={}", disk.path),
            "of=/dev/null",
            "bs=4k",
            "count=100",
            "iflag=direct",
            "status=none",
        ])
        .status();
    assert!(dd.is_ok_and(|status| status.success()));
    wait_for("another", PATIENCE, || dumps().len() == 2);
    let second = dumps().into_iter().find(|path| *path != first).unwrap();
    let why = manifest(&second)["trigger"].as_str().unwrap().to_string();
    assert!(why.starts_with("mean>1us: ") && why.ends_with(&format!(" of {} read", disk.name)), "{why}");
    let lines = read("latency", &second);
    // The I/Os that ended within the 500 ms before the last one, and the last one.
    assert!((1..=7).contains(&lines.len()), "{}", lines.len());
    let ios: u64 = lines
        .iter()
        .flat_map(|line| line["devices"].as_array().unwrap())
        .map(|d| d["ios"].as_u64().unwrap())
        .sum();
    assert_eq!(ios, 100);
    assert_eq!(
        read("top", &second).len() as u64,
        manifest(&second)["views"]["top"]["intervals"].as_u64().unwrap()
    );
    // Of so few I/Os each is among the slowest.
    let trace = &manifest(&second)["views"]["trace"];
    assert_eq!((column(&second, "device_ns").len(), &trace["lost"]["events"]), (100, &0.into()));
    assert!(column(&second, "comm").iter().all(|comm| comm == "\"dd\""));
    let slowest = column(&second, "device_ns").iter().map(|ns| ns.parse::<u64>().unwrap()).max().unwrap();
    let max_ns = lines.iter().flat_map(|line| line["devices"].as_array().unwrap()).map(|device| {
        let ops = device["ops"].as_object().unwrap().values();
        ops.map(|op| op["request_stages"]["device"]["max_ns"].as_u64().unwrap_or(0)).max().unwrap_or(0)
    });
    assert_eq!(max_ns.max(), Some(slowest), "as the histogram of the same interval has it");
    let held = profiles(&second);
    assert_eq!(manifest(&second)["views"]["stacks"]["intervals"].as_u64(), Some(held.len() as u64));
    assert!((1..=7).contains(&held.len()) && held[0].ends_with("stacks/000000.pb.gz"), "{held:?}");
    assert!(!stacks(&second).is_empty(), "dd was on a CPU, and so was the recorder");
    signal(&child, libc::SIGTERM);
    let ended = finish(child);
    assert!(ended.status.success() && stderr(&ended).contains("wrote 2 recordings"), "{}", stderr(&ended));
}

/// A column of all parts, in their order, without nulls.
fn column(folder: &Path, name: &str) -> Vec<String> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(folder.join("io")).unwrap().flatten().map(|e| e.path()).collect();
    parts.sort();
    let rows = parts.iter().flat_map(|part| {
        let reader = SerializedFileReader::new(fs::File::open(part).unwrap()).unwrap();
        reader.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    let value = |row: parquet::record::Row| {
        let (_, field) = row.get_column_iter().find(|(own, _)| *own == name).unwrap();
        (*field != parquet::record::Field::Null).then(|| field.to_string())
    };
    rows.filter_map(value).collect()
}

#[test]
fn each_io_is_a_row() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-trace");
    let folder = scratch.path().join("run");
    let input = format!("if={}", disk.path);
    let words = [
        "record",
        "-d",
        &disk.name,
        "--with",
        "trace,latency",
        "-o",
        text(&folder),
        "--",
        "dd",
        &input,
        "of=/dev/null",
        "bs=4k",
        "count=3000",
        "iflag=direct",
        "status=none",
    ];
    let (output, ios) = recorded(&disk, &folder, &words);
    assert!(output.status.success(), "{}", stderr(&output));
    let ios = ios as usize;
    let of = |name| column(&folder, name);
    assert_eq!((of("ended").len(), of("device_ns").len(), of("submit_ns").len()), (ios, ios, 3000));
    let reads = of("comm").iter().filter(|comm| **comm == "\"dd\"").count();
    assert_eq!(reads, 3000);
    let bytes: u64 = of("bytes").iter().map(|bytes| bytes.parse::<u64>().unwrap()).sum();
    assert!(bytes >= 3000 * 4096);
    // The same I/Os as those in the summary of the run, to the nanosecond.
    let lines = zstd::decode_all(fs::File::open(folder.join("trace.ndjson.zst")).unwrap()).unwrap();
    let summary: Value = serde_json::from_slice(&lines).unwrap();
    let sum = |stage: &str| -> u64 {
        let device = &summary["devices"][0];
        assert_eq!((&device["name"], &summary["shown"]), (&disk.name.as_str().into(), &ios.into()));
        let ops = device["ops"].as_object().unwrap().values();
        ops.map(|op| op["request_stages"][stage]["sum_ns"].as_u64().unwrap()).sum()
    };
    assert_eq!(of("device_ns").iter().map(|ns| ns.parse::<u64>().unwrap()).sum::<u64>(), sum("device"));
    let device_ns = |line: &Value| -> u64 {
        let ops = line["devices"][0]["ops"].as_object().unwrap().values();
        ops.map(|op| op["request_stages"]["device"]["sum_ns"].as_u64().unwrap_or(0)).sum()
    };
    let latency = read("latency", &folder);
    assert_eq!(latency.iter().map(device_ns).sum::<u64>(), sum("device"), "of the same programs");
    let recorded = &manifest(&folder)["views"]["trace"];
    let length = fs::metadata(folder.join("io/part-000000.parquet")).unwrap().len();
    assert!(recorded["bytes"].as_u64().unwrap() > length && length < 24 * ios as u64 + 4096, "{length}");
    quiet(&run(&["pack", text(&folder)]));
    let packed = fs::read(scratch.path().join("run.tar")).unwrap();
    assert!(String::from_utf8_lossy(&packed).contains("run/io/part-000000.parquet"));
}

/// A second copy of the programs would double the cost per I/O.
#[test]
fn latency_and_each_io_share_their_programs() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("record-shared");
    let programs = |with: &str| {
        let folder = scratch.path().join(with);
        let words = [
            "record",
            "-d",
            &disk.name,
            "--with",
            with,
            "--no-cost",
            "-o",
            text(&folder),
            "--for",
            "20s",
            "0.1",
        ];
        let child = begun(&words, &folder);
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
        let links = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        let n =
            links.filter(|link| text(link).contains("bpf_link") || text(link).contains("bpf-raw-tp")).count();
        signal(&child, libc::SIGINT);
        let ended = finish(child);
        assert!(ended.status.success(), "{}", stderr(&ended));
        n
    };
    let alone = programs("trace");
    assert!(alone > 3, "{alone}");
    assert_eq!([programs("latency"), programs("latency,trace")], [alone, alone]);
}

#[test]
fn each_io_is_not_recorded_onto_the_disk_that_is_traced() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(mounted) = Mounted::new(&disk) else { return };
    let folder = mounted.file("there", 1).with_file_name("run");
    let words = ["record", "-d", &disk.name, "--with", "trace", "-o", text(&folder), "--for", "200ms"];
    let refused = finish(biopsy(&words).spawn().unwrap());
    one_error(&refused, 2, &[&format!("is on {}, which is traced", disk.name), "--onto-traced"]);
    assert!(!folder.exists(), "nothing stays");
    let told = finish(biopsy(&[&words[..], &["--onto-traced"]].concat()).spawn().unwrap());
    assert!(told.status.success() && folder.join("io").exists(), "{}", stderr(&told));
}
