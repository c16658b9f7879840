//! Tests `biopsy compare`: what it refuses, how it compares kept results, and that settings are restored after every
//! way to end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::disk::{Dir, MIB};
use crate::guard::machine::Disk;
use crate::support::patience::Patience;
use crate::support::tool::{biopsy, finish, object, one_error, quiet, refused, run, signal, stderr};

/// Lets only one test run at a time, across all processes: each start restores what killed comparisons left on any
/// disk.
fn alone() -> File {
    let lock = File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare.lock")).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    lock
}

/// The queue of a test disk, with settings that differ from all defaults.
struct Queue(PathBuf);

const FILES: [&str; 3] = ["read_ahead_kb", "nomerges", "rq_affinity"];

impl Queue {
    fn of(disk: &Disk) -> Self {
        let queue = Self(Path::new("/sys/block").join(&disk.name).join("queue"));
        for (file, value) in FILES.iter().zip(["68", "1", "2"]) {
            queue.set(file, value);
        }
        queue
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }

    fn get(&self) -> [String; 3] {
        FILES.map(|file| fs::read_to_string(self.0.join(file)).unwrap().trim().to_string())
    }

    fn is_as_it_was(&self) -> bool {
        self.get() == ["68", "1", "2"]
    }
}

/// A running comparison that has changed settings.
fn started(disk: &Disk, queue: &Queue) -> Child {
    let vary = ["--vary", "read_ahead=0,256", "--vary", "nomerges=0,2", "--rounds", "200"];
    let load = ["--", "load", disk.path.to_str().unwrap(), "--runtime", "50ms", "--iodepth", "1"];
    let child = biopsy(&[&["compare"][..], &vary, &load].concat()).spawn().unwrap();
    until("it changes the settings", || {
        queue.get()[..2].iter().all(|now| ["0", "256", "2"].contains(&now.as_str()))
    });
    // Each value is tried once at the start; then the first arm runs.
    std::thread::sleep(Duration::from_millis(300));
    child
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Patience::new(Duration::from_secs(30));
    while !is_so() {
        assert!(!patience.is_over(), "waited for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process that restores the settings.
fn watcher(tool: &Child) -> i32 {
    let children = format!("/proc/{0}/task/{0}/children", tool.id());
    let children = fs::read_to_string(children).unwrap();
    let name = |id: &&str| fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let found = children.split_whitespace().find(|id| name(id).contains("setting-watcher"));
    found.expect("a watcher").parse().unwrap()
}

fn kill(process: i32) {
    // SAFETY: this is the child of a child of ours that still runs, so that its id is its own.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
}

fn left(disk: &Disk) -> PathBuf {
    PathBuf::from(format!("/run/biopsy/compare-{}.json", disk.name))
}

/// Whether neither old values nor a lock file is left.
fn nothing_is_left(disk: &Disk) -> bool {
    !left(disk).exists() && !left(disk).with_extension("lock").exists()
}

#[test]
fn settings_come_back_after_a_signal() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let tool = started(&disk, &queue);
        signal(&tool, number);
        let output = finish(tool);
        assert!(queue.is_as_it_was(), "{:?} after signal {number}", queue.get());
        quiet(&output);
        assert!(nothing_is_left(&disk));
    }
    // The second signal ends it at once, and the watcher restores the settings.
    let tool = started(&disk, &queue);
    signal(&tool, libc::SIGSTOP);
    signal(&tool, libc::SIGINT);
    signal(&tool, libc::SIGTERM);
    signal(&tool, libc::SIGCONT);
    finish(tool);
    until("the settings come back", || queue.is_as_it_was() && nothing_is_left(&disk));
}

#[test]
fn settings_come_back_when_the_tool_or_its_watcher_is_killed() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    // SIGABRT is the end of a panic that cannot unwind.
    for end in [libc::SIGKILL, libc::SIGABRT] {
        let tool = started(&disk, &queue);
        signal(&tool, end);
        assert_eq!(finish(tool).status.signal(), Some(end));
        until("the watcher restores", || queue.is_as_it_was() && nothing_is_left(&disk));
    }

    let tool = started(&disk, &queue);
    let first = watcher(&tool);
    kill(first);
    until("another watcher is there", || {
        let children = format!("/proc/{0}/task/{0}/children", tool.id());
        let children = fs::read_to_string(children).unwrap();
        children.split_whitespace().any(|id| id != first.to_string())
    });
    signal(&tool, libc::SIGKILL);
    finish(tool);
    until("the second watcher restores", || queue.is_as_it_was() && nothing_is_left(&disk));
}

#[test]
fn settings_come_back_by_the_next_comparison_when_both_were_killed() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    for by_restore in [true, false] {
        let tool = started(&disk, &queue);
        // Stopped, so that it does not start another watcher.
        signal(&tool, libc::SIGSTOP);
        kill(watcher(&tool));
        signal(&tool, libc::SIGKILL);
        finish(tool);
        assert!(left(&disk).exists() && !queue.is_as_it_was(), "{:?}", queue.get());
        let output = match by_restore {
            true => run(&["compare", "--restore"]),
            false => run(&[
                &["compare", "--vary", "iodepth=1,2", "--rounds", "1"][..],
                &["--", "load", disk.path.to_str().unwrap(), "--runtime", "50ms"],
            ]
            .concat()),
        };
        assert!(
            stderr(&output).contains(&format!("restored the settings of {}", disk.name)),
            "{}",
            stderr(&output)
        );
        assert!(queue.is_as_it_was() && nothing_is_left(&disk), "{:?}", queue.get());
    }
    let again = run(&["compare", "--restore"]);
    assert_eq!(again.status.code(), Some(0));
    assert!(!stderr(&again).contains(&disk.name), "{}", stderr(&again));
}

#[test]
fn a_value_that_another_process_sets_meanwhile_is_left() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let tool = started(&disk, &queue);
    // Otherwise the tool would set its own value again.
    signal(&tool, libc::SIGSTOP);
    queue.set("read_ahead_kb", "512");
    signal(&tool, libc::SIGKILL);
    let output = finish(tool);
    until("the watcher restores", || !left(&disk).exists());
    assert_eq!(queue.get(), ["512", "1", "2"]);
    let said = stderr(&output);
    assert!(said.contains("read_ahead_kb to 512: it is not restored"), "{said}");
}

/// The queue of a detached device stays in sysfs, and accepts settings that no disk uses.
#[test]
fn a_loop_device_that_is_detached_ends_the_comparison() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let words =
        ["compare", "-d", &disk.name, "--vary", "nomerges=0,2", "--rounds", "200", "--", "sleep", "0.1"];
    let tool = biopsy(&words).spawn().unwrap();
    until("rounds begin", || left(&disk).exists() && ["0", "2"].contains(&queue.get()[1].as_str()));
    std::thread::sleep(Duration::from_millis(500));
    disk.detach();
    let output = finish(tool);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains(&format!("{} is gone, with its settings", disk.name)), "{said}");
    assert!(said.contains("compare again when it is back"), "{said}");
    assert!(nothing_is_left(&disk));
    refused(&run(&words), 3, &["has no size"]);
}

#[test]
fn a_second_comparison_on_a_disk_is_refused() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let tool = started(&disk, &queue);
    let second = ["compare", "--vary", "rq_affinity=0,1", "--", "load", disk.path.to_str().unwrap()];
    refused(&run(&second), 3, &["another comparison is running on", &disk.name]);
    signal(&tool, libc::SIGTERM);
    finish(tool);
    assert!(queue.is_as_it_was());
    // Even if the first comparison changes no setting.
    let words =
        ["compare", "--vary", "iodepth=1,2", "--rounds", "200", "--", "load", disk.path.to_str().unwrap()];
    let tool = biopsy(&words).spawn().unwrap();
    until("it runs", || left(&disk).with_extension("lock").exists());
    refused(&run(&second), 3, &["another comparison is running on", &disk.name]);
    signal(&tool, libc::SIGTERM);
    finish(tool);
    assert!(queue.is_as_it_was() && nothing_is_left(&disk));
}

/// A change of a queue's limits may raise the read-ahead; the other arm must not see that, and it must be restored.
#[test]
fn a_read_ahead_that_another_setting_changes_comes_back() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let load = ["--rounds", "2", "--", "load", disk.path.to_str().unwrap(), "--runtime", "50ms"];
    for vary in [&["max_sectors=64,128"][..], &["iostats=0,1"], &["read_ahead=0,256", "max_sectors=64,128"]] {
        let vary: Vec<&str> = vary.iter().flat_map(|vary| ["--vary", vary]).collect();
        quiet(&run(&[&["compare"][..], &vary, &load].concat()));
        assert!(queue.is_as_it_was(), "{vary:?}: {:?}", queue.get());
    }
}

/// 0 cannot be set, and setting one form clears the other one for good.
#[test]
fn the_unused_form_of_a_limit_is_refused() {
    let _alone = alone();
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap().trim().to_string();
    let unused = ["dirty_bytes", "dirty_ratio"].into_iter().find(|name| read(name) == "0").unwrap();
    let before = [read("dirty_bytes"), read("dirty_ratio")];
    let vary = format!("sysctl:vm.{unused}=1000000,2000000");
    let output = run(&["compare", "--vary", &vary, "--", "true"]);
    if crate::support::tool::is_root() {
        refused(&output, 3, &[unused, "is 0 because its other form"]);
    }
    assert_eq!([read("dirty_bytes"), read("dirty_ratio")], before);
}

#[test]
fn a_result_is_not_written_onto_what_is_compared() {
    let _alone = alone();
    let dir = Dir::new("beside");
    let file = dir.file("data", MIB);
    let live = ["compare", "--vary", "iodepth=1,2", "-o", &file, "--", "load", &file];
    refused(&run(&live), 2, &["is a target of the load", "another file"]);
    let page = ["compare", "--vary", "iodepth=1,2", "--html", &file, "--", "load", &file];
    refused(&run(&page), 2, &["is a target of the load"]);
    refused(&run(&["compare", &file, &file, "-o", &file]), 2, &["is one of the results"]);
    assert_eq!(fs::metadata(&file).unwrap().len(), MIB);
}

#[test]
fn what_the_kernel_refuses_is_said_before_the_first_round() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let path = disk.path.to_str().unwrap();
    let vary = |key: &str| run(&["compare", "--vary", "read_ahead=0,256", "--vary", key, "--", "load", path]);
    refused(
        &vary("scheduler=none,nosuch"),
        3,
        &["scheduler=nosuch: the kernel refuses it", "it takes", "none"],
    );
    refused(&vary("nomerges=1,7"), 3, &["nomerges=7"]);
    refused(&vary("sysctl:vm.nosuch=1,2"), 3, &["this kernel has no sysctl:vm.nosuch"]);
    assert!(queue.is_as_it_was(), "{:?}", queue.get());
    let dry = run(&["compare", "--vary", "nomerges=1,7", "--dry-run", "--", "load", path]);
    quiet(&dry);
    let text = String::from_utf8(dry.stdout).unwrap();
    assert!(text.contains(&format!("echo '7' >/sys/block/{}/queue/nomerges\n", disk.name)), "{text}");
    assert!(queue.is_as_it_was());
    // The load refuses a disk that is written to, before any setting is changed.
    let writes = ["compare", "--vary", "nomerges=0,2", "--", "load", path, "--rw", "randwrite"];
    refused(&run(&writes), 2, &["--write"]);
    assert!(queue.is_as_it_was());
}

#[test]
fn words_that_do_not_go_together_are_refused() {
    let _alone = alone();
    for (words, said) in [
        (&["compare"][..], "nothing to compare"),
        (&["compare", "--vary", "bs=4k,8k"], "nothing to compare"),
        (&["compare", "--vary", "bs=4k", "--", "load", "x"], "--vary has one value"),
        (&["compare", "--vary", "bs", "--", "load", "x"], "has no values"),
        (&["compare", "--vary", "nosuch=1,2", "--", "load", "x"], "'nosuch' cannot be varied"),
        (&["compare", "--vary", "bs=4k,8k", "--", "true"], "bs is a load option"),
        (&["compare", "--vary", "bs=4k,x", "--", "load", "x"], "--bs"),
        (&["compare", "--vary", "bs=4k,8k", "--", "load", "x", "--iodepth", "1,2"], "vary it with --vary"),
        (&["compare", "--vary", "bs=4k,8k", "--", "load", "x", "y"], "compare runs one job"),
        (&["compare", "--vary", "bs=4k,8k", "--", "load", "x", "--json"], "give them before --"),
        (
            &["compare", "--vary", "bs=4k,8k", "--metric", "elapsed_ns", "--", "load", "x"],
            "is not measured here",
        ),
        (&["compare", "--vary", "sysctl:vm/../x=1,2", "--", "true"], "is not the name of a sysctl"),
        (&["compare", "--vary", "scheduler=none,none", "--", "true"], "name it with -d"),
    ] {
        let code = if said.contains("-d") { &[2, 3][..] } else { &[2] };
        let output = run(words);
        assert!(code.contains(&output.status.code().unwrap()), "{words:?}: {output:?}");
        one_error(&output, output.status.code().unwrap(), &[said]);
    }
}

/// A read of 1 MiB from the page cache takes longer than one of 4 KiB. No setting is changed, and no rights are needed.
#[test]
fn words_of_the_load_are_compared_without_any_right() {
    let _alone = alone();
    let dir = Dir::new("compare");
    let file = dir.file("data", 8 * MIB);
    let words = [
        "compare",
        "--vary",
        "bs=4k,1m",
        "--rounds",
        "4",
        "--metric",
        "mean_ns",
        "--fail-if-worse",
        "--json",
    ];
    let load = [
        "--",
        "load",
        &file,
        "--runtime",
        "100ms",
        "--direct",
        "0",
        "--ioengine",
        "psync",
        "--iodepth",
        "1",
        "--invalidate",
        "0",
    ];
    let output = run(&[&words[..], &load].concat());
    one_error(&output, 11, &["bs=1m is worse than bs=4k", "× mean latency"]);
    let found = object(&output, "biopsy.compare/1");
    assert_eq!(found["rounds"].as_array().unwrap().len(), 8);
    let primary = &found["metrics"][0];
    assert_eq!((&primary["name"], &primary["verdict"]), (&"mean_ns".into(), &"worse".into()));
    assert!(primary["ratio_low"].as_f64().unwrap() > 1.0 && primary["blocks"] == 4, "{primary}");
    assert_eq!((&found["arms"][1]["name"], &found["end"]), (&"bs=1m".into(), &"planned".into()));
}

#[test]
fn a_command_is_compared_by_its_time() {
    let _alone = alone();
    let sysctl = fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let vary = format!("sysctl:vm.swappiness={0},{0}", sysctl.trim());
    let words = ["compare", "--vary", &vary, "--rounds", "3", "--json", "--", "sleep", "0.1"];
    let output = run(&words);
    if crate::support::tool::is_root() {
        quiet(&output);
        let found = object(&output, "biopsy.compare/1");
        let ms = found["metrics"][0]["a"].as_f64().unwrap() / 1e6;
        assert!(ms >= 100.0 && found["metrics"][0]["name"] == "elapsed_ns", "{found}");
        assert_eq!(
            found["arms"][1]["name"].as_str().unwrap(),
            format!("{} (2)", vary.split(',').next().unwrap())
        );
    } else {
        refused(&output, 3, &["run as root"]);
    }
    refused(&run(&["compare", "--vary", "sysctl:vm.nosuch=1,2", "--", "true"]), 3, &["sysctl:vm.nosuch"]);
}

/// The second command prints twice the number after twice the time: the number decides, and the time is shown.
#[test]
fn a_command_is_compared_by_what_it_prints() {
    let _alone = alone();
    let dir = Dir::new("printed");
    let kept = dir.join("kept.json");
    // The first command prints 100, the other one 200 under the same key.
    let command = |number: u32| format!("echo note; echo '{{\"jobs\": [{{\"rate\": {number}.5}}]}}'");
    let before = |number: u32, more: &[&str]| {
        let (value, shell) = (["--value", "jobs.0.rate"], ["--", "sh", "-c"]);
        let command = command(number);
        run(&[&["compare", "--rounds", "3"][..], &value, more, &shell, &[&command]].concat())
    };
    let none = serde_json::json!({"schema": "biopsy.compare/1", "arms": [{"name": "x", "settings": {}}], "setup": {},
        "rounds": (0..3).map(|block| serde_json::json!({"arm": 0, "block": block, "values": {"value": 100.5,
            "value_less_is_better": 100.5}})).collect::<Vec<_>>()});
    fs::write(&kept, none.to_string()).unwrap();
    let across = ["--before", &kept, "--across"];
    let output = before(200, &across);
    quiet(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("now is better than ") && text.contains("2.00 × jobs.0.rate (2.00 to 2.00"),
        "{text}"
    );
    let less = before(200, &[&across[..], &["--less-is-better", "--fail-if-worse"]].concat());
    one_error(&less, 11, &["now is worse than", "× jobs.0.rate"]);
    let wrong =
        ["compare", "--before", &kept, "--across", "--value", "jobs.x", "--", "sh", "-c", &command(1)];
    refused(&run(&wrong), 3, &["'sh' has no value: its JSON has no x in jobs.x, where there is 0 to 0"]);
    let silent = ["compare", "--before", &kept, "--across", "--value", "x", "--", "true"];
    refused(&run(&silent), 3, &["'true' has no value: it prints no JSON"]);
    // A process that the command leaves behind keeps the pipe open: biopsy does not wait for it.
    let begin = Instant::now();
    let left = "echo '{\"x\":1}'; sleep 20 2>/dev/null &";
    let left = ["compare", "--before", &kept, "--across", "--value", "x", "--", "sh", "-c", left];
    refused(&run(&left), 3, &["keeps its output open"]);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    let load = ["compare", "--vary", "bs=4k,8k", "--value", "x", "--", "load", "x"];
    refused(&run(&load), 2, &["--value needs a COMMAND"]);
    let metric = ["compare", "--vary", "sysctl:vm.swappiness=1,2", "--metric", "value", "--", "true"];
    refused(&run(&metric), 2, &["value is not measured here"]);
}

/// Ctrl-C does not wait for a command that takes an hour.
#[test]
fn a_stop_ends_the_command() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let queue = Queue::of(&disk);
    let vary = ["compare", "--vary", "nomerges=0,2", "-d", &disk.name, "--", "sleep", "3600"];
    let tool = biopsy(&vary).spawn().unwrap();
    until("the settings are tried", || left(&disk).exists());
    std::thread::sleep(Duration::from_millis(500));
    signal(&tool, libc::SIGINT);
    let output = finish(tool);
    assert!(queue.is_as_it_was(), "{:?}", queue.get());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("Nothing was compared: "), "{text}");
    assert!(text.contains("sleep 3600: 0 rounds in ") && text.contains(", stopped\n"), "{text}");
}

/// JSON of `biopsy load` and of fio, with several runs in one file.
#[test]
fn kept_results_are_compared_where_they_are_alike() {
    let _alone = alone();
    let dir = Dir::new("kept");
    let write = |name: &str, kernel: &str, iops: &[u32]| {
        let line = |iops: &u32| {
            format!(
                "{{\"schema\": \"biopsy.load/1\", \"kernel\": \"{kernel}\", \"device\": \"vda\", \"rw\": \"read\", \
                 \"iops\": {iops}, \"bytes_per_second\": {iops}, \"ios\": 10, \"latency\": {{}}}}\n"
            )
        };
        let path = dir.join(name);
        fs::write(&path, iops.iter().map(line).collect::<String>()).unwrap();
        path
    };
    let (a, b) = (write("a", "6.1", &[100, 101, 99]), write("b", "6.1", &[50, 51, 49]));
    let found = run(&["compare", &a, &b]);
    quiet(&found);
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(text.starts_with(&format!("{b} is worse than {a}: 0.500 × IOPS (0.4")), "{text}");
    one_error(&run(&["compare", &a, &b, "--fail-if-worse"]), 11, &["is worse than"]);
    let newer = write("newer", "6.12", &[100]);
    refused(&run(&["compare", &a, &newer]), 3, &["differ in kernel (6.1, 6.12)", "--across"]);
    let across = run(&["compare", &a, &newer, "--across", "--json"]);
    assert_eq!(object(&across, "biopsy.compare/1")["differences"][0]["what"], "kernel");
    for (content, said) in
        [("", ""), ("{}", "has nothing to compare"), ("{\"a\":", "is not JSON"), ("\u{1b}", "")]
    {
        let wrong = dir.join("wrong");
        fs::write(&wrong, content).unwrap();
        let output = run(&["compare", &a, &wrong]);
        assert!([1, 3].contains(&output.status.code().unwrap()), "{output:?}");
        one_error(&output, output.status.code().unwrap(), &[said]);
    }
    refused(&run(&["compare", &a, &dir.join("nosuch")]), 3, &["cannot read", "no such file"]);
    refused(&run(&["compare", &a]), 2, &["2 values required"]);
}

/// Results that `load` and `compare` wrote, against the same load now; another load is refused before its second round.
#[test]
fn rounds_of_now_are_compared_with_a_kept_result() {
    let _alone = alone();
    let dir = Dir::new("before");
    let file = dir.file("data", 8 * MIB);
    let words =
        ["--runtime", "50ms", "--direct", "0", "--ioengine", "psync", "--iodepth", "1", "--invalidate", "0"];
    let load = [&["load", &file][..], &words].concat();
    let kept = dir.join("kept.json");
    let runs: Vec<u8> = (0..3).flat_map(|_| run(&[&load[..], &["--json"]].concat()).stdout).collect();
    fs::write(&kept, runs).unwrap();
    let compared = dir.join("compared.json");
    let live = run(&[
        &["compare", "--vary", "iodepth=1,1", "--rounds", "3", "-o", &compared, "--json", "--"],
        &load[..],
    ]
    .concat());
    quiet(&live);
    for before in [&kept, &compared] {
        let output =
            run(&[&["compare", "--before", before, "--rounds", "4", "--json", "--"], &load[..]].concat());
        quiet(&output);
        let found = object(&output, "biopsy.compare/1");
        assert_eq!(
            (&found["arms"][1]["name"], &found["is_paired"]),
            (&"now".into(), &false.into()),
            "{found}"
        );
        assert_eq!(found["differences"], serde_json::json!([]), "{found}");
        assert!(!found["notes"].to_string().contains("quantiles"), "{found}");
        assert_eq!(found["rounds"].as_array().unwrap().len(), 7, "three kept ones, four of now");
        let metric = |name: &str| {
            found["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name).cloned()
        };
        assert!(metric("iops").unwrap()["ratio_low"].as_f64().is_some_and(|low| low > 0.0), "{found}");
        assert!(metric("p50_ns").is_some(), "quantiles of one kind are compared: {found}");
        assert_eq!(found["arms"][1]["settings"]["block size"], "4096", "{found}");
    }
    let other = [&["compare", "--before", &kept, "--"], &load[..], &["--bs", "8k"]].concat();
    refused(&run(&other), 3, &["differ in block size (4096, 8192)", "--across"]);
    refused(&run(&["compare", "--before", &kept, "--", "true"]), 3, &["has no elapsed time", "--metric"]);
    refused(
        &run(&[&["compare", "--before", &kept, "-o", &kept, "--"], &load[..]].concat()),
        2,
        &["is the saved result"],
    );
    refused(&run(&["compare", "--before", &kept]), 2, &["nothing to compare"]);
}

/// From the page or the JSON of a report; a line that `diagnose` does not write is refused.
#[test]
fn the_comparison_of_a_report_is_run() {
    let _alone = alone();
    let dir = Dir::new("report");
    let file = dir.file("it's data", MIB);
    let target = file.replace('\'', "'\\''");
    let report = |line: &str| {
        let verdict = serde_json::json!({ "compare": line });
        let findings = [serde_json::json!({ "check": "biopsy latency -d vda 1" })];
        serde_json::json!({ "schema": "biopsy.diagnose/1", "verdict": verdict, "findings": findings })
            .to_string()
    };
    let write = |content: &str| {
        let path = dir.join("report");
        fs::write(&path, content).unwrap();
        path
    };
    let line = format!("biopsy compare --vary iodepth=1,2 -- load '{target}' --rw read");
    let page =
        format!("<p>x</p>\n<script type=\"application/json\" id=\"biopsy\">{}</script>\n", report(&line));
    for content in [report(&line), page] {
        let output = run(&["compare", "--from-report", &write(&content), "--dry-run"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(stderr(&output), format!("runs: {line}\n"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("# iodepth=2\n# a load of 1s on ") && text.contains(" --iodepth 2\n"),
            "{text}"
        );
    }
    // The verdict has no comparison, but another finding has one.
    let second =
        report("x").replace("\"x\"", "null").replace("biopsy latency -d vda 1", &line.replace('\\', r"\\"));
    let output = run(&["compare", "--from-report", &write(&second), "--dry-run"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), format!("runs: {line}\n")));
    let written = format!("{line} --write --overwrite '{target}'");
    refused(
        &run(&["compare", "--from-report", &write(&report(&written))]),
        3,
        &["that biopsy diagnose does not write"],
    );
    let none = report("x").replace("\"x\"", "null");
    let none = run(&["compare", "--from-report", &write(&none)]);
    refused(&none, 3, &["has no comparison", "check it with biopsy latency -d vda 1"]);
    for wrong in ["", "{}", "{\"schema\": \"biopsy.load/1\"}", "<p>", "\u{1b}"] {
        refused(
            &run(&["compare", "--from-report", &write(wrong)]),
            3,
            &["is not a report of biopsy diagnose"],
        );
    }
    refused(&run(&["compare", "--from-report", &dir.join("nosuch")]), 3, &["cannot read", "no such file"]);
    refused(&run(&["compare", "--from-report", "x", "--vary", "a=1,2"]), 2, &["cannot be used with"]);
}

/// Without a tool on the other end of its stdin, the watcher ends at once.
#[test]
fn the_watcher_ends_without_a_tool() {
    let _alone = alone();
    let mut child = Command::new(env!("CARGO_BIN_EXE_biopsy"))
        .args(["setting-watcher", "/nonexistent/x"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!((said.as_str(), child.wait().unwrap().code()), ("", Some(0)));
}
