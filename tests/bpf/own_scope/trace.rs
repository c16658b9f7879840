//! Tests the lines of `biopsy trace`: as many as the kernel counted, each with its operation, and a count of the I/Os
//! that are not printed. Needs root, loop and zram devices.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::live::aio::Aio;
use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::view::{begun, brief, load, number};
use crate::live::zram::Zram;
use crate::support::patience::Patience;
use crate::support::scratch::Scratch;
use crate::support::tool::{binary, biopsy, finish, go, one_error, prepared, run, signal, stderr};
use serde_json::Value;

/// The output of one run.
struct Traced {
    lines: Vec<Value>,
    summary: Value,
    output: Output,
}

impl Traced {
    #[track_caller]
    fn new(output: Output) -> Self {
        let text = std::str::from_utf8(&output.stdout).expect("JSON is text");
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let mut lines: Vec<Value> = text.lines().map(parse).collect();
        let summary = lines.pop().unwrap_or_else(|| panic!("{}", stderr(&output)));
        assert_eq!(summary["summary"], true, "{summary}");
        for line in lines.iter().chain([&summary]) {
            assert_eq!(line["schema"], "biopsy.trace/1");
        }
        assert_eq!(number(&summary["shown"]), lines.len() as u64);
        Self { lines, summary, output }
    }

    fn device(&self) -> &Value {
        &self.summary["devices"][0]
    }

    fn lost(&self, kind: &str) -> u64 {
        number(&self.summary["lost"]["probes"]["trace"][kind])
    }

    /// Checks that nothing was lost, and that the lines are the I/Os that the kernel counted.
    #[track_caller]
    fn exact(&self) {
        assert_eq!(self.output.status.code(), Some(0), "{}", stderr(&self.output));
        assert_eq!(self.summary["lost"]["ios"], 0, "{}", self.summary["lost"]);
        assert_eq!(self.summary["lost"]["events"], 0, "{}", self.summary["lost"]);
        let device = self.device();
        assert_eq!(device["kernel_check"], "ok", "{}", brief(device));
        assert_eq!(device["kernel_ios_min"], device["kernel_ios_max"], "{}", brief(device));
        assert_eq!(self.lines.len() as u64, number(&device["kernel_ios_min"]), "{}", brief(device));
        let numbers: BTreeSet<u64> = self.lines.iter().map(|line| number(&line["io"])).collect();
        assert_eq!(numbers.len(), self.lines.len(), "a number stands twice");
        assert_eq!(self.summary["matched"], self.lines.len(), "{}", self.summary["matched"]);
    }

    /// Checks that each I/O of one of two submitters is there once, and none of others: as many as `dd` counted.
    #[track_caller]
    fn only(&self, blocks: u64, bytes: u64) {
        assert_eq!(self.output.status.code(), Some(0), "{}", stderr(&self.output));
        assert_eq!(self.summary["lost"]["events"], 0, "{}", self.summary["lost"]);
        let offsets: BTreeSet<u64> = self.lines.iter().map(|line| number(&line["offset"])).collect();
        assert_eq!(offsets, (0..blocks).map(|block| block * bytes).collect());
        assert!(self.lines.iter().all(|line| line["bytes"] == bytes), "{:?}", self.lines[0]);
        let device = self.device();
        assert_eq!((self.lines.len() as u64, number(&device["ios"])), (blocks, blocks), "{}", brief(device));
        assert_eq!(self.summary["matched"], blocks);
        assert!(number(&device["all_ios_max"]) > blocks, "nobody else was there: {}", brief(device));
    }

    /// The operations of all lines, each once, with the stages of its last I/O.
    fn operations(&self) -> BTreeMap<u64, &Value> {
        let own = self.lines.iter().map(|line| &line["operation"]).filter(|o| o["last"] == true);
        let merged = self.lines.iter().filter_map(|line| line["merged_operations"].as_array()).flatten();
        let mut all = BTreeMap::new();
        for operation in own.chain(merged) {
            let twice = all.insert(number(&operation["id"]), operation);
            assert!(twice.is_none(), "{operation} is the last of two I/Os");
        }
        all
    }

    /// Checks that the lines and the view's own tables agree, to the nanosecond.
    #[track_caller]
    fn agrees(&self, op: &str) {
        let row = &self.device()["ops"][op];
        for (stage, times) in row["request_stages"].as_object().unwrap() {
            let mut all = self.lines.iter().filter(|line| line["op"] == op);
            let sum: u64 = all.by_ref().filter_map(|line| line["request_stages"][stage].as_u64()).sum();
            assert_eq!(sum, number(&times["sum_ns"]), "{stage}");
            let none = self.lines.iter().filter(|line| line["op"] == op && is_of_none(line));
            let sum: u64 = none.filter_map(|line| line["request_stages"][stage].as_u64()).sum();
            let own = &row["request_stages_without_operation"][stage]["sum_ns"];
            assert_eq!(sum, own.as_u64().unwrap_or(0), "{stage} of no operation");
        }
        for line in &self.lines {
            if let Some(total) = line["request_total_ns"].as_u64() {
                assert_eq!(sum(&line["request_stages"]), total, "{line}");
            }
        }
        let operations = self.operations();
        assert_eq!(operations.len() as u64, number(&row["operations"]), "{}", brief(self.device()));
        for (id, operation) in &operations {
            assert_eq!(sum(&operation["stages"]), number(&operation["total_ns"]), "{id}: {operation}");
        }
        // The table is of the operations that have all the stages that most of them have.
        let stages = |row: &Value| row["stages"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let covered = operations.values().filter(|operation| stages(operation) == stages(row));
        let total: u64 = covered.map(|operation| number(&operation["total_ns"])).sum();
        assert_eq!(total, number(&row["total"]["sum_ns"]));
        assert_eq!(
            (number(&self.summary["ios_without_end"]), number(&self.summary["operations_without_io"])),
            (0, 0)
        );
    }
}

fn is_of_none(line: &Value) -> bool {
    line["operation"].is_null() && line["merged_operations"].is_null()
}

fn sum(stages: &Value) -> u64 {
    stages.as_object().unwrap().values().map(number).sum()
}

/// Traces a disk while a command runs. It is run again if the kernel did not deliver a completion event (see
/// live::view).
#[track_caller]
fn during(disk: &Disk, options: &[&str], command: &[&str]) -> Traced {
    for _ in 0..crate::live::ATTEMPTS {
        let words = [&["trace", "--json", "-d", &disk.name], options, &["--"], command].concat();
        let traced = Traced::new(run(&words));
        if number(&traced.summary["lost"]["probes"]["latency"]["unseen_completion"]) == 0 {
            return traced;
        }
        println!("again: the kernel kept completions to itself");
    }
    panic!("the kernel keeps its completions to itself");
}

#[track_caller]
fn during_script(disk: &Disk, options: &[&str], script: &str) -> Traced {
    during(disk, options, &["sh", "-ec", script])
}

fn reads(disk: &Disk, count: u32) -> String {
    format!("dd if={} of=/dev/null iflag=direct bs=4k count={count} status=none", disk.path)
}

#[test]
fn each_request_of_io_uring_is_a_line() {
    let Some(disk) = Disk::new(64) else { return };
    for workload in [&["--iodepth", "1"][..], &["--iodepth", "32"], &["--iodepth", "256", "--numjobs", "2"]] {
        let scratch = Scratch::new("trace");
        let result = scratch.path().join("load.json");
        let words = [
            "load",
            "--no-drive-check",
            &disk.path,
            "--runtime",
            "50ms",
            "--json",
            "-o",
            result.to_str().unwrap(),
        ];
        let traced = during(&disk, &[], &[&[binary()], &words[..], workload].concat());
        traced.exact();
        traced.agrees("read");
        // Before it begins, the generator tests by one read() whether the device can be read. Two reads of adjacent
        // blocks may share an I/O.
        assert_eq!(traced.operations().len() as u64, number(&load(&result)["ios"]) + 1, "{workload:?}");
        let rings: Vec<&Value> =
            traced.lines.iter().filter(|line| line["operation"]["kind"] == "io_uring").collect();
        assert_eq!(rings.len() + 1, traced.lines.len(), "{workload:?}");
        // The generator uses the index of the slot as user_data.
        let data: BTreeSet<u64> = rings.iter().map(|line| number(&line["operation"]["user_data"])).collect();
        assert!(data.len() > 1 || workload[1] == "1", "{workload:?}: {data:?}");
        for line in rings {
            assert_eq!((&line["op"], &line["queue"]), (&"read".into(), &0.into()));
            let (offset, bytes) = (number(&line["offset"]), number(&line["bytes"]));
            let merged = line["merged_operations"].as_array().map_or(0, Vec::len) as u64;
            assert_eq!((offset % 4096, bytes), (0, 4096 * (1 + merged)), "{line}");
            assert!(offset < disk.bytes, "{line}");
            let comm = line["owner"]["comm"].as_str().unwrap();
            assert!(comm.starts_with("load-") || comm.starts_with("iou-wrk"), "{line}");
            assert!(number(&line["owner"]["tid"]) > number(&line["owner"]["pid"]), "{line}");
            assert!(line["submit_cpu"].is_u64() && line["completion_cpu"].is_u64(), "{line}");
            assert_eq!((&line["operation"]["ios"], &line["operation"]["last"]), (&1.into(), &true.into()));
            let keys: Vec<&String> = line["operation"]["stages"].as_object().unwrap().keys().collect();
            assert_eq!(keys, ["complete", "device", "queue", "reap", "submit"], "{line}");
        }
    }
}

#[test]
fn a_system_call_that_waits_is_an_operation_of_its_own_kind() {
    let Some(disk) = Disk::new(64) else {
        return;
    };
    let traced = during_script(&disk, &[], &reads(&disk, 200));
    traced.exact();
    traced.agrees("read");
    let offsets: BTreeSet<u64> = traced.lines.iter().map(|line| number(&line["offset"])).collect();
    assert_eq!(offsets, (0..200).map(|block| block * 4096).collect());
    for line in &traced.lines {
        assert_eq!((&line["operation"]["kind"], &line["owner"]["comm"]), (&"call".into(), &"dd".into()));
        assert!(line["operation"]["user_data"].is_null() && line["operation"]["opcode"].is_null(), "{line}");
        let flags = line["flags"].as_array().unwrap();
        assert!(flags.contains(&"sync".into()), "{line}");
    }
}

/// Pages that are written when the last user closes the disk are waited for in no call that is followed.
#[test]
fn lines_of_no_operation_add_up_to_its_rows() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!(
        "dd if=/dev/zero of={0} bs=64k seek=512 count=200 conv=notrunc status=none &
         dd if=/dev/zero of={0} bs=4k count=300 oflag=direct conv=notrunc status=none
         wait",
        disk.path
    );
    let traced = during_script(&disk, &[], &script);
    traced.exact();
    traced.agrees("write");
    let none = traced.lines.iter().filter(|line| line["op"] == "write" && is_of_none(line)).count() as u64;
    let row = &traced.device()["ops"]["write"];
    assert_eq!(none, number(&row["request_stages_without_operation"]["device"]["count"]));
    assert!(none > 0 && number(&row["operations"]) >= 300, "{}", brief(traced.device()));
}

#[test]
fn libaio_has_its_own_word_for_an_operation() {
    let Some(disk) = Disk::new(64) else { return };
    let child = begun(&mut biopsy(&["trace", "--json", "-d", &disk.name]));
    let mut aio = Aio::new(&disk, 8);
    for _ in 0..10 {
        aio.submit();
        aio.fetch();
    }
    signal(&child, libc::SIGINT);
    let traced = Traced::new(finish(child));
    let aio: Vec<&Value> = traced.lines.iter().filter(|line| line["operation"]["kind"] == "aio").collect();
    // The kernel does not deliver every completion event.
    let unseen = number(&traced.summary["lost"]["ios"]);
    assert!(aio.len() as u64 <= 80 && aio.len() as u64 + unseen >= 80, "{}", aio.len());
    for line in aio {
        let data = number(&line["operation"]["user_data"]);
        assert_eq!(number(&line["offset"]), data * 7 * 4096, "{line}");
    }
}

/// The parts of a split name the same operation, and one of them ends it.
#[test]
fn parts_name_their_operation() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("max_sectors_kb", "128");
    let script = format!("dd if={} of=/dev/null iflag=direct bs=1M count=20 status=none", disk.path);
    let traced = during_script(&disk, &[], &script);
    traced.exact();
    traced.agrees("read");
    let mut parts: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for line in &traced.lines {
        parts.entry(number(&line["operation"]["id"])).or_default().push(line);
    }
    assert_eq!(parts.len(), 20);
    for lines in parts.values() {
        assert_eq!(lines.iter().map(|line| number(&line["bytes"])).sum::<u64>(), 1 << 20, "{lines:?}");
        assert!(lines.iter().all(|line| number(&line["operation"]["ios"]) == 8), "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line["operation"]["last"] == true).count(), 1, "{lines:?}");
    }
}

/// Operations that share a request are on its line.
#[test]
fn merged_operations_stand_on_one_line() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("scheduler", "mq-deadline");
    let load = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--rw",
        "read",
        "--iodepth",
        "64",
        "--runtime",
        "50ms",
        "-o",
    ];
    let traced = during(&disk, &[], &[&load[..], &["/dev/null"]].concat());
    traced.exact();
    let shared = traced.lines.iter().filter(|line| !line["merged_operations"].is_null()).count();
    assert!(shared > 0, "nothing merged: {}", brief(traced.device()));
    let (shown, unshown) =
        (traced.operations().len() as u64, number(&traced.summary["operations_without_io"]));
    assert_eq!(shown + unshown, number(&traced.device()["ops"]["read"]["operations"]));
    assert!(unshown * 100 <= shown, "{unshown} of {shown} are not shown");
}

#[test]
fn writes_and_flushes_say_what_they_are() {
    let Some(disk) = Disk::new(64) else { return };
    let script =
        format!("dd if=/dev/zero of={} bs=64k count=20 conv=fsync status=none; blkdiscard {0}", disk.path);
    let traced = during_script(&disk, &[], &script);
    traced.exact();
    let of = |op: &str| traced.lines.iter().filter(|line| line["op"] == op).collect::<Vec<_>>();
    let written: u64 = of("write").iter().map(|line| number(&line["bytes"])).sum();
    assert_eq!(written, 20 << 16, "{:?}", of("write"));
    assert!(!of("flush").is_empty() && !of("discard").is_empty());
    assert!(of("flush").iter().all(|line| line["offset"].is_null()), "{:?}", of("flush"));
    assert!(of("discard").iter().all(|line| number(&line["bytes"]) > 0), "{:?}", of("discard"));
    // The cgroup of a task of ours has a path here, if the kernel charges I/O at all.
    let owner = &of("write")[0]["owner"];
    assert!(
        owner["cgroup_id"].is_null() || owner["cgroup"].as_str().is_some_and(|p| p.starts_with('/')),
        "{owner}"
    );
}

#[test]
fn only_what_is_asked_for_comes() {
    let Some(disk) = Disk::new(64) else { return };
    let all = |traced: &Traced| number(&traced.device()["ios"]);
    let traced = during_script(&disk, &["--op", "write,discard"], &reads(&disk, 100));
    assert_eq!((traced.lines.len(), all(&traced), number(&traced.summary["matched"])), (0, 100, 0));

    // Each CPU counts for itself.
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let traced = during_script(&disk, &["--every", "10"], &reads(&disk, 2000));
    assert_eq!((all(&traced), number(&traced.summary["matched"])), (2000, 2000));
    assert!((traced.lines.len() as u64).abs_diff(200) <= cpus, "{}", traced.lines.len());

    let script = format!("{}; {}", reads(&disk, 500), reads(&disk, 500).replace("bs=4k", "bs=1M count=60 #"));
    let traced = during_script(&disk, &["--slower-than", "60us"], &script);
    let shown = traced.lines.len() as u64;
    assert_eq!(shown, number(&traced.summary["matched"]));
    assert!(shown > 0 && shown < all(&traced), "{shown} of {}", all(&traced));
    assert!(traced.lines.iter().all(|line| number(&line["request_total_ns"]) >= 60_000));
}

#[test]
fn the_slowest_come_at_the_end() {
    let Some(disk) = Disk::new(64) else { return };
    let load = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--iodepth",
        "8",
        "--runtime",
        "500ms",
        "-o",
        "/dev/null",
    ];
    let traced = during(&disk, &["--top", "7"], &load);
    let took: Vec<u64> = traced.lines.iter().map(|line| number(&line["request_total_ns"])).collect();
    assert_eq!(took.len(), 7);
    assert!(took.is_sorted_by(|a, b| a >= b), "{took:?}");
    let longest = number(&traced.device()["ops"]["read"]["request_stages"]["device"]["max_ns"]);
    assert!(took[0] >= longest, "{took:?} and not {longest}");
    // Most I/Os were dropped in the kernel.
    assert_eq!(traced.summary["matched"], traced.device()["ios"]);
    assert!(traced.lines.iter().all(|line| line["operation"]["total_ns"].is_u64()), "{:?}", traced.lines[0]);
}

/// With a ring of one page, every I/O that does not fit is counted.
#[test]
fn what_finds_no_room_is_counted() {
    let Some(disk) = Disk::new(64) else { return };
    let load = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--iodepth",
        "32",
        "--runtime",
        "400ms",
        "-o",
        "/dev/null",
    ];
    let options = ["--fault-ring-bytes", "4096"];
    let traced = during(&disk, &options, &load);
    one_error(&traced.output, 4, &["reader was too slow", "--max-loss 0.1 % allows"]);
    let (shown, lost) = (traced.lines.len() as u64, traced.lost("io_ring_full"));
    println!("{shown} shown, {lost} lost");
    assert!(shown > 0 && lost > 0);
    assert_eq!(shown + lost, number(&traced.device()["kernel_ios_min"]), "{}", brief(traced.device()));
    assert_eq!(traced.device()["kernel_ios_min"], traced.device()["kernel_ios_max"]);
    let events = lost + traced.lost("operation_ring_full");
    assert_eq!(number(&traced.summary["lost"]["events"]), events, "{}", traced.summary["lost"]);
    let allowed = during(&disk, &[&options[..], &["--max-loss", "100"]].concat(), &load);
    assert_eq!(allowed.output.status.code(), Some(0));
}

/// With a reader that does not read, the load goes on, the window ends in time, and the counts are right.
#[test]
fn a_slow_reader_costs_lines_and_nothing_else() {
    let Some(disk) = Disk::new(64) else { return };
    let words = ["trace", "--json", "-d", &disk.name, "--for", "700ms", "--fault-ring-bytes", "65536"];
    let mut child = begun(&mut biopsy(&words));
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
    // The load runs for half a second.
    let patience = Patience::new(Duration::from_secs(5));
    assert!(Command::new(load[0]).args(&load[1..]).stdout(Stdio::null()).status().unwrap().success());
    patience.holds();
    std::thread::sleep(Duration::from_millis(700));
    assert!(child.try_wait().unwrap().is_none(), "it ended without a reader");
    let traced = Traced::new(finish(child));
    let length = number(&traced.summary["duration_ns"]);
    assert!((690_000_000..1_500_000_000).contains(&length), "{length}");
    let shown = traced.lines.len() as u64 + traced.lost("io_ring_full");
    assert!(traced.lost("io_ring_full") > 0, "{}", traced.summary["lost"]);
    assert_eq!(shown, number(&traced.device()["ios"]), "{}", brief(traced.device()));
}

#[test]
fn a_reader_that_goes_ends_it_quietly() {
    let Some(disk) = Disk::new(64) else { return };
    let load: Child = biopsy(&["load", "--no-drive-check", &disk.path, "--runtime", "3s", "-o", "/dev/null"])
        .spawn()
        .unwrap();
    let mut child = biopsy(&["trace", "-d", &disk.name]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let header = lines.next().unwrap().unwrap();
    assert!(header.contains("user_data") && lines.next().unwrap().unwrap().contains("read"), "{header}");
    drop(lines);
    let patience = Patience::new(Duration::from_secs(2));
    let output = finish(child);
    patience.holds();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    signal(&load, libc::SIGINT);
    finish(load);
}

/// The text has one line per I/O and a separate footer, and a hostile name moves no cursor.
#[test]
fn names_of_strangers_stay_names() {
    let Some(disk) = Disk::new(64) else { return };
    let scratch = Scratch::new("names");
    let hostile = "d\u{1b}[2J\"\n\u{202e}";
    let program = scratch.path().join(hostile);
    std::os::unix::fs::symlink("/bin/dd", &program).unwrap();
    let source = format!("if={}", disk.path);
    let dd = [program.to_str().unwrap(), &source, "of=/dev/null", "iflag=direct", "count=3", "status=none"];
    let traced = during(&disk, &[], &dd);
    assert!(traced.lines.iter().all(|line| line["owner"]["comm"] == hostile), "{:?}", traced.lines);
    let output = run(&[&["trace", "-d", &disk.name, "--"], &dd[..]].concat());
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!text.contains(['\u{1b}', '\u{202e}']) && text.contains("d\\u{1b}[2J\""), "{text}");
    let footer = stderr(&output);
    if footer.contains("check ") && !footer.contains("unseen completion") {
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(footer.contains("3 of 3 I/Os shown") && footer.contains("missed 0 I/Os"), "{footer}");
    }
}

/// I/Os in flight at the start are shown as such.
#[test]
fn a_load_that_runs_already_is_shown_to_the_last_io() {
    let Some(disk) = Disk::new(64) else { return };
    let load = biopsy(&[
        "load",
        "--no-drive-check",
        &disk.path,
        "--iodepth",
        "8",
        "--runtime",
        "3s",
        "-o",
        "/dev/null",
    ]);
    let load = { load }.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut child = biopsy(&["trace", "--json", "-d", &disk.name, "--for", "400ms"]).spawn().unwrap();
    let mut text = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut text).unwrap();
    let ended = finish(child);
    signal(&load, libc::SIGINT);
    finish(load);
    let traced = Traced::new(Output { stdout: text, ..ended });
    let lost = traced.lost("io_ring_full");
    let shown = traced.lines.len() as u64;
    assert_eq!(shown + lost, number(&traced.device()["ios"]), "{}", brief(traced.device()));
    let before = traced.lines.iter().filter(|line| line["started_before"] == true).count() as u64;
    let all = number(&traced.device()["started_before"]);
    assert!(before <= all && before + lost >= all, "{before} of {all}");
    let without = number(&traced.summary["ios_without_end"]);
    assert!(without <= 64 + traced.lost("operation_ring_full"), "{without}");
}

/// A filter by pid leaves one of two processes, and the trace ends when it exits.
#[test]
fn a_filter_by_process_leaves_its_lines_only() {
    let Some(disk) = Disk::new(64) else { return };
    let mut mine = prepared(&reads(&disk, 700));
    let mut other = prepared(&reads(&disk, 1500).replace("bs=4k", "bs=8k"));
    let pid = mine.id();
    let child = begun(&mut biopsy(&["trace", "--json", "-d", &disk.name, "-p", &pid.to_string()]));
    go(&mut other);
    go(&mut mine);
    assert!(other.wait().unwrap().success() && mine.wait().unwrap().success());
    let output = finish(child);
    assert!(stderr(&output).contains("process of -p has ended"), "{}", stderr(&output));
    let traced = Traced::new(output);
    traced.only(700, 4096);
    for line in &traced.lines {
        assert_eq!((&line["owner"]["pid"], &line["owner"]["comm"]), (&pid.into(), &"dd".into()), "{line}");
    }
}

#[test]
fn a_filter_by_name_leaves_its_lines_only() {
    let Some(disk) = Disk::new(64) else { return };
    let scratch = Scratch::new("comm");
    let copy = scratch.path().join("mine");
    std::fs::copy("/bin/dd", &copy).unwrap();
    let mine = reads(&disk, 500).replace("dd if", &format!("{} if", copy.display())).replace("4k", "8k");
    let traced = during_script(&disk, &["--comm", "mine"], &format!("{} & {mine}; wait", reads(&disk, 2000)));
    traced.only(500, 8192);
    assert!(traced.lines.iter().all(|line| line["owner"]["comm"] == "mine"), "{:?}", traced.lines[0]);
}

#[test]
fn a_filter_by_cgroup_leaves_its_lines_only() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = Group::new("biopsy-trace") else { return };
    let mine = reads(&disk, 600).replace("4k", "16k");
    let script = format!("{} & {}; wait", reads(&disk, 2000), group.within(&mine));
    let traced = during_script(&disk, &["--cgroup", &group.name()], &script);
    traced.only(600, 16384);
    let name = group.name();
    assert!(traced.lines.iter().all(|line| line["owner"]["cgroup"] == name), "{:?}", traced.lines[0]);
}

/// The selections are applied one after the other: class and time, then every Nth of those, then the slowest.
#[test]
fn choices_are_made_one_after_the_other() {
    let Some(disk) = Disk::new(64) else { return };
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let script = format!(
        "{}; {}; {}",
        reads(&disk, 500),
        reads(&disk, 500).replace("bs=4k", "bs=1M count=60 #"),
        "dd if=/dev/zero of=DISK oflag=direct bs=1M count=30 status=none".replace("DISK", &disk.path)
    );
    let took = |traced: &Traced| -> Vec<u64> {
        traced.lines.iter().map(|line| number(&line["request_total_ns"])).collect()
    };
    let run = |options: &[&str]| {
        let traced = during_script(&disk, options, &script);
        assert_eq!(traced.output.status.code(), Some(0), "{}", stderr(&traced.output));
        let matched = number(&traced.summary["matched"]);
        (traced, matched)
    };
    let (traced, _) = run(&[]);
    let mut times = took(&traced);
    times.sort_unstable();
    // A fifth of the I/Os are large; the limit is about the median of their times.
    let long = (times[times.len() * 9 / 10] / 1000).max(1);
    let (slower, long) = (format!("{long}us"), long * 1000);
    let (traced, matched) = run(&["--slower-than", &slower, "--every", "5"]);
    assert!((traced.lines.len() as u64).abs_diff(matched / 5) <= cpus, "{} of {matched}", traced.lines.len());
    assert!(matched > 0 && matched < number(&traced.device()["ios"]), "{matched}");
    assert!(took(&traced).iter().all(|ns| *ns >= long));
    // Fewer I/Os than rows: all of them, in order.
    let (traced, matched) = run(&["--slower-than", &slower, "--top", "100000", "--op", "read"]);
    assert_eq!(traced.lines.len() as u64, matched);
    assert!(took(&traced).is_sorted_by(|a, b| a >= b) && took(&traced).iter().all(|ns| *ns >= long));
    assert!(traced.lines.iter().all(|line| line["op"] == "read"));
    let (traced, matched) = run(&["--every", "5", "--top", "100000"]);
    assert_eq!(matched, number(&traced.device()["ios"]));
    assert!((traced.lines.len() as u64).abs_diff(matched / 5) <= cpus, "{} of {matched}", traced.lines.len());
    assert!(took(&traced).is_sorted_by(|a, b| a >= b));
    let (traced, _) = run(&["--slower-than", "1us", "--every", "2", "--top", "4", "--op", "read,write"]);
    assert_eq!(traced.lines.len(), 4);
    assert!(took(&traced).is_sorted_by(|a, b| a >= b));
    // No I/O is that slow: an empty result is valid too.
    let (traced, matched) = run(&["--slower-than", "10s", "--every", "2", "--top", "4"]);
    assert_eq!((traced.lines.len(), matched), (0, 0));
}

/// Under load either signal stops the trace, which then empties its rings; every I/O of the window has its line.
#[test]
fn a_signal_ends_it_with_the_last_line() {
    let Some(disk) = Disk::new(64) else { return };
    let load = biopsy(&[
        "load",
        "--no-drive-check",
        &disk.path,
        "--iodepth",
        "32",
        "--runtime",
        "20s",
        "-o",
        "/dev/null",
    ])
    .spawn();
    let load = load.unwrap();
    for number_of_signal in [libc::SIGINT, libc::SIGTERM] {
        let scratch = Scratch::new("signal");
        let file = scratch.path().join("lines");
        let words = ["trace", "--json", "-d", &disk.name, "--max-loss", "100", "-o", file.to_str().unwrap()];
        let child = begun(&mut biopsy(&words));
        std::thread::sleep(Duration::from_millis(150));
        let patience = Patience::new(Duration::from_secs(5));
        signal(&child, number_of_signal);
        let output = finish(child);
        patience.holds();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let traced = Traced::new(Output { stdout: std::fs::read(&file).unwrap(), ..output });
        let shown = traced.lines.len() as u64 + traced.lost("io_ring_full");
        assert_eq!(shown, number(&traced.device()["ios"]), "{}", brief(traced.device()));
        assert!(shown > 1000, "{shown}");
    }
    signal(&load, libc::SIGINT);
    finish(load);
}

/// The trace of a script on a zram device: one line per bio, as many as the kernel counted.
#[track_caller]
fn bios(zram: &Zram, options: &[&str], script: &str) -> Traced {
    let before = zram.stat();
    let words = [&["trace", "--json", "-d", &zram.name], options, &["--", "sh", "-ec", script]].concat();
    let traced = Traced::new(run(&words));
    let counted = zram.stat().since(before);
    assert_eq!(traced.output.status.code(), Some(0), "{}", stderr(&traced.output));
    assert_eq!(traced.summary["command_status"], 0);
    assert_eq!(traced.summary["lost"]["events"], 0, "{}", traced.summary["lost"]);
    // The device below has lines only if it is named.
    assert_eq!(traced.summary["devices"].as_array().unwrap().len(), 1);
    let gaps: Vec<&str> = traced.summary["missing"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|gap| gap["stage"].as_str())
        .collect();
    assert_eq!(gaps, ["queue", "device", "complete"]);
    if options.is_empty() {
        let device = traced.device();
        assert_eq!(device["kernel_check"], "ok", "{}", brief(device));
        let of = |op: &str| {
            let lines = traced.lines.iter().filter(|line| line["op"] == op);
            lines.map(|line| line["counted"].as_u64().unwrap_or(1)).sum::<u64>()
        };
        assert_eq!((of("read"), of("write")), (counted.reads, counted.writes), "{}", brief(device));
        let (lines, ios) = (traced.summary["matched"].clone(), number(&device["ios"]));
        assert_eq!((lines, ios), (traced.lines.len().into(), traced.lines.len() as u64));
        // The lines and the view's own tables agree, to the nanosecond.
        for (op, row) in device["ops"].as_object().unwrap() {
            let lines = traced.lines.iter().filter(|line| line["op"] == op.as_str());
            let sum: u64 = lines.map(|line| number(&line["bio_ns"])).sum();
            assert_eq!(sum, number(&row["bio"]["sum_ns"]), "{op}");
        }
    }
    for line in &traced.lines {
        assert_eq!(line["request_stages"], serde_json::json!({}), "{line}");
        assert!(line["queue"].is_null() && line["request_total_ns"].is_null(), "{line}");
        assert!(line["completion_cpu"].is_u64() && line["submit_cpu"].is_u64(), "{line}");
    }
    traced
}

/// On a device without requests there is one line per bio, with its whole time instead of the stages.
#[test]
fn bios_of_a_device_without_requests_are_lines() {
    let Some(zram) = Zram::new(64) else { return };
    let path = &zram.path;
    let script = format!(
        "dd if=/dev/urandom of={path} bs=64k count=200 oflag=direct status=none
         dd if={path} of=/dev/null bs=4k count=500 iflag=direct status=none
         blkdiscard -f -o 0 -l 1M {path}"
    );
    let traced = bios(&zram, &[], &script);
    let of = |op: &str| traced.lines.iter().filter(|line| line["op"] == op).collect::<Vec<_>>();
    for (op, blocks, bytes) in [("write", 200, 65536), ("read", 500, 4096)] {
        let lines = of(op);
        let offsets: BTreeSet<u64> = lines.iter().map(|line| number(&line["offset"])).collect();
        assert_eq!((offsets, lines.len()), ((0..blocks).map(|n| n * bytes).collect(), blocks as usize));
        for line in lines {
            assert_eq!((&line["bytes"], &line["owner"]["comm"]), (&bytes.into(), &"dd".into()), "{line}");
            let operation = &line["operation"];
            assert_eq!((&operation["kind"], &operation["last"]), (&"call".into(), &true.into()), "{line}");
            let stages: Vec<&String> = operation["stages"].as_object().unwrap().keys().collect();
            assert_eq!(stages, ["device", "reap", "submit"], "{line}");
            assert_eq!(operation["stages"]["device"], line["bio_ns"], "{line}");
            assert_eq!(sum(&operation["stages"]), number(&operation["total_ns"]), "{line}");
            assert!(line["flags"].as_array().unwrap().contains(&"sync".into()), "{line}");
        }
    }
    assert_eq!(of("discard").iter().map(|line| number(&line["bytes"])).sum::<u64>(), 1 << 20);
    let text = run(&[
        "trace",
        "-d",
        &zram.name,
        "--",
        "dd",
        &format!("if={path}"),
        "of=/dev/null",
        "bs=4k",
        "count=3",
        "iflag=direct",
        "status=none",
    ]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert_eq!(
        text.lines()
            .filter(|line| line.contains(&format!(" {}  ", zram.name)) && line.contains(" read "))
            .count(),
        3,
        "{text}"
    );
}

#[test]
fn choices_and_filters_hold_for_bios() {
    let Some(zram) = Zram::new(64) else { return };
    let scratch = Scratch::new("bios");
    let result = scratch.path().join("load.json");
    let load_words = format!(
        "{} load --no-drive-check {} --iodepth 32 --numjobs 2 --runtime 50ms --json -o {}",
        binary(),
        zram.path,
        result.display()
    );
    let traced = bios(&zram, &[], &load_words);
    let rings: Vec<&Value> =
        traced.lines.iter().filter(|line| line["operation"]["kind"] == "io_uring").collect();
    assert_eq!(rings.len() as u64, number(&load(&result)["ios"]));
    let data: BTreeSet<u64> = rings.iter().map(|line| number(&line["operation"]["user_data"])).collect();
    assert!(data.len() > 1, "{data:?}");
    let traced = bios(&zram, &["--top", "9"], &load_words);
    let took: Vec<u64> = traced.lines.iter().map(|line| number(&line["bio_ns"])).collect();
    assert!(took.len() == 9 && took.is_sorted_by(|a, b| a >= b), "{took:?}");
    assert_eq!(took[0], number(&traced.device()["ops"]["read"]["bio"]["max_ns"]));
    let dd = |bytes: &str, count: u32| {
        format!("dd if={} of=/dev/null bs={bytes} count={count} iflag=direct status=none", zram.path)
    };
    let traced = bios(&zram, &["--every", "10"], &dd("4k", 1000));
    assert!((90..=110).contains(&traced.lines.len()), "{}", traced.lines.len());
    let copy = scratch.path().join("mine");
    std::fs::copy("/bin/dd", &copy).unwrap();
    let mine = dd("8k", 300).replace("dd if", &format!("{} if", copy.display()));
    let words = ["trace", "--json", "-d", &zram.name, "--comm", "mine", "--", "sh", "-ec"];
    let traced = Traced::new(run(&[&words[..], &[&format!("{} & {mine}; wait", dd("4k", 900))]].concat()));
    traced.only(300, 8192);
    assert!(traced.lines.iter().all(|line| line["owner"]["comm"] == "mine"));
}
