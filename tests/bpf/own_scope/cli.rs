//! Tests the command line around running probes: signals, windows, commands and pipes. Needs root and loop devices.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::live::disk::Disk;
use crate::live::view::{begun, number};
use crate::support::patience::Patience;
use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{
    binary, biopsy, finish, object, objects, one_error, quiet, refused, run, signal, stderr,
};

const LATENCY: &str = "biopsy.latency/1";

#[test]
fn the_first_signal_ends_with_a_result() {
    let Some(disk) = Disk::new(16) else { return };
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let child = begun(&mut biopsy(&["latency", "-d", &disk.name, "--json"]));
        signal(&child, number);
        let patience = Patience::new(Duration::from_secs(2));
        let output = finish(child);
        patience.holds();
        quiet(&output);
        let view = object(&output, LATENCY);
        assert!(view.get("command_status").is_none(), "there was no command");
    }
    let child = begun(&mut biopsy(&["latency", "-d", &disk.name, "--all"]));
    signal(&child, libc::SIGINT);
    let output = finish(child);
    quiet(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&disk.name) && !text.contains('\x1b'), "{text}");
}

/// While a command ignores signals, the first signal has no effect; the second ends biopsy at once.
#[test]
fn the_second_signal_ends_at_once() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("stubborn");
    let pid = scratch.path().join("pid");
    let script = format!("trap '' INT TERM; echo $$ > {}; exec sleep 60", pid.display());
    let words = ["latency", "-d", &disk.name, "--json", "--", "sh", "-c", &script];
    let mut child = begun(biopsy(&words).stdout(Stdio::null()).stderr(Stdio::null()));
    while !std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')) {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, libc::SIGINT);
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, libc::SIGINT);
    let patience = Patience::new(Duration::from_secs(1));
    let status = loop {
        let status = child.try_wait().unwrap();
        if status.is_some() || patience.is_over() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let stubborn: libc::pid_t = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    // SAFETY: the pid is that of the command started here, which ignores every other signal.
    unsafe { libc::kill(stubborn, libc::SIGKILL) };
    assert_eq!(status.and_then(|status| status.code()), Some(130));
}

#[test]
fn a_command_is_measured_until_it_ends() {
    let Some(disk) = Disk::new(16) else { return };
    let latency = |words: &[&str]| run(&[&["latency", "-d", &disk.name, "--json", "--"], words].concat());
    // The command's output is not part of the JSON.
    let output = latency(&["sh", "-c", "echo said; echo {}; exit 7"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), "said\n{}\n"));
    assert_eq!(object(&output, LATENCY)["command_status"], 7);
    let output = latency(&["sh", "-c", "kill -9 $$"]);
    assert_eq!(object(&output, LATENCY)["command_status"], 137);
    let output = latency(&["sleep", "0.3"]);
    let view = object(&output, LATENCY);
    assert_eq!(view["command_status"], 0);
    assert!((300_000_000..2_000_000_000).contains(&number(&view["duration_ns"])), "{}", view["duration_ns"]);
    // Without --json the command and biopsy share stdout.
    let output = run(&["latency", "-d", &disk.name, "--", "echo", "said"]);
    quiet(&output);
    assert!(output.stdout.starts_with(b"said\n"));
    refused(&latency(&["/nonexistent/command"]), 3, &["cannot run '/nonexistent/command'", "after --"]);
    refused(&latency(&["/"]), 3, &["cannot run '/'"]);
}

/// If the window ends first, the command goes on and has no status yet.
#[test]
fn a_command_may_outlast_the_window() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("outlasts");
    let pid = scratch.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid.display());
    let words = ["latency", "-d", &disk.name, "--json", "--for", "200ms", "--", "sh", "-c", &script];
    let output = biopsy(&words).stderr(Stdio::null()).spawn().unwrap();
    let output = finish(output);
    let pid = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    // SAFETY: the command still runs, as it sleeps for longer than the test waits, so that its id is its own.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0, "the command of the view has ended");
    let view = object(&output, LATENCY);
    assert!(view.get("command_status").is_none(), "{view}");
}

#[test]
fn the_window_is_as_long_as_it_was_asked_for() {
    let Some(disk) = Disk::new(16) else { return };
    let output = run(&["latency", "-d", &disk.path, "--json", "--for", "400ms"]);
    quiet(&output);
    let length = number(&object(&output, LATENCY)["duration_ns"]);
    assert!((390_000_000..1_400_000_000).contains(&length), "{length}");
}

/// Intervals are printed as iostat does it; the last line is the last interval.
#[test]
fn intervals_are_one_object_per_line() {
    let Some(disk) = Disk::new(16) else { return };
    let latency = |words: &[&str]| run(&[&["latency", "-d", &disk.name], words].concat());
    let output = latency(&["--json", "0.2", "3"]);
    quiet(&output);
    let views = objects(&output, LATENCY);
    assert_eq!(views.len(), 3);
    for view in &views {
        let length = number(&view["duration_ns"]);
        assert!((150_000_000..1_200_000_000).contains(&length), "{length}");
    }
    let starts: Vec<&str> = views.iter().map(|view| view["start"].as_str().unwrap()).collect();
    assert!(starts.is_sorted() && starts[0] < starts[2], "{starts:?}");
    // --for ends the intervals and cuts the last one.
    let output = latency(&["--json", "--for", "500ms", "0.2"]);
    assert_eq!(objects(&output, LATENCY).len(), 3);
    let output = latency(&["--long", "--all", "0.1", "2"]);
    quiet(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches(&format!("check {}:", disk.name)).count(), 2, "{text}");
    assert_eq!(
        text.matches("not measured: complete").count(),
        1,
        "only the first says what is always so: {text}"
    );
    // Without --long: rows on stdout, everything else on stderr.
    let output = latency(&["0.1", "2"]);
    let said = stderr(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches(" no I/O\n").count(), 2, "{text}");
    assert!(
        text.contains("device") && said.contains("missed 0 I/Os") && said.contains("cost "),
        "{text}{said}"
    );
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let Some(disk) = Disk::new(16) else { return };
    for words in
        [&["--for", "100ms"][..], &["--for", "100ms", "--json"], &["0.1", "--json"], &["0.1", "--all"]]
    {
        let mut child = biopsy(&[&["latency", "-d", &disk.name], words].concat()).spawn().unwrap();
        drop(child.stdout.take());
        quiet(&finish(child));
    }
    // A reader that takes one line and exits.
    let script = format!("{} latency -d {} --json 0.1 | head -n1", binary(), disk.name);
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    quiet(&output);
    object(&output, LATENCY);
}

#[test]
fn a_kernel_without_types_is_refused() {
    let Some(disk) = Disk::new(16) else { return };
    let hidden = |words: &str| {
        let script = format!("mount -t tmpfs none /sys/kernel/btf && exec {} {words}", binary());
        Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap()
    };
    let check = hidden("check --json");
    if check.status.code() != Some(0) {
        skipped(format_args!("{}", stderr(&check).trim()));
        return;
    }
    let check = object(&check, "biopsy.check/1");
    if check["views"].as_array().unwrap().iter().any(|v| v["name"] == "latency" && v["state"] == "ok") {
        skipped("its types are in /boot as well");
        return;
    }
    let scratch = Scratch::new("btf");
    let report = scratch.path().join("report.html");
    for words in ["latency --for 60s", "diagnose --no-load --for 60s"] {
        let output = hidden(&format!("{words} -d {} -o {}", disk.name, report.display()));
        refused(&output, 3, &["no BTF", "CONFIG_DEBUG_INFO_BTF"]);
    }
    refused(&hidden(&format!("diagnose {} -o {}", disk.path, report.display())), 3, &["no BTF"]);
    assert!(!report.exists());
    assert_eq!(hidden("devices").status.code(), Some(0));
}

/// `diagnose` ends in a verdict and a report, with a load of its own and with the load that is already there.
#[test]
fn diagnose_ends_in_a_verdict_and_a_report() {
    let Some(disk) = Disk::new(64) else { return };
    let scratch = Scratch::new("verdict");
    let report = scratch.path().join("report.html");
    let name = report.to_str().unwrap();
    let output = run(&["diagnose", &disk.path, "--runtime", "2s", "--json", "-o", name]);
    let value = diagnosed(&output, &report);
    assert_eq!(value["latency"]["devices"][0]["name"], disk.name.as_str());
    let (load, device) = (&value["load"], &value["latency"]["devices"][0]);
    assert_eq!(device["operations"], load["ios"]);
    assert!(number(&device["ios"]) > 1000);
    // The other views ran for as long as the load.
    let threads = &value["threads"];
    assert!(number(&threads["rounds"]) > 0 && number(&threads["samples"]) > 0, "{threads}");
    let series = value["locks"]["pagecache"]["series"].as_array().unwrap();
    let read: u64 = series.iter().filter_map(|moment| moment["read_bytes"].as_u64()).sum();
    let all = number(&device["bytes"]);
    assert!(read > all / 2 && read < all + all / 10, "{read} of {all}");
    // The experiment tried other depths, and one more job if its thread left the CPU no time.
    let arms = value["experiment"]["arms"].as_array().unwrap();
    let depths: Vec<u64> = arms.iter().map(|arm| number(&arm["iodepth"])).take(3).collect();
    assert_eq!(depths, [16, 32, 64]);
    assert!(arms.iter().all(|arm| arm["blocks"].as_array().unwrap().len() == 6), "{arms:?}");
    // No regime is decided if the interval of the gain includes all of them: on a busy machine the blocks differ that
    // much.
    let gain = |key: &str| arms[2]["ratio"][key].as_f64().unwrap();
    let is_undecided = gain("low") < 1.05 && gain("high") > 1.5;
    assert_eq!(value["experiment"]["regime"].is_null(), is_undecided, "{}", value["experiment"]);
    let page = std::fs::read_to_string(&report).unwrap();
    for section in ["Other depths", "Memory and page cache", "Threads"].map(|what| format!("<h2>{what}</h2>"))
    {
        assert!(page.contains(&section), "{section}");
    }

    std::fs::remove_file(&report).unwrap();
    let words = ["diagnose", "--no-load", "-d", &disk.name, "--for", "300ms", "--json", "-o", name];
    let value = diagnosed(&run(&words), &report);
    assert!(value.get("load").is_none_or(|load| load.is_null()), "{}", value["load"]);

    std::fs::remove_file(&report).unwrap();
    let words = ["diagnose", "-d", &disk.name, "--json", "-o", name, "--", "sh", "-c", "exit 7"];
    assert_eq!(diagnosed(&run(&words), &report)["command_status"], 7);

    // The text goes to stdout: one screen that ends with the path of the report, and all the rest with -v.
    let words =
        ["diagnose", &disk.path, "--runtime", "300ms", "--no-experiment", "--max-loss", "100", "-o", name];
    let text = |more: &[&str]| {
        let output = run(&[&words[..], more].concat());
        quiet(&output);
        String::from_utf8(output.stdout).unwrap()
    };
    let brief = text(&[]);
    let lines: Vec<&str> = brief.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= 14 && lines.iter().all(|line| line.chars().count() <= 80), "{brief}");
    assert!(lines[0].starts_with(&disk.name) && lines[0].ends_with(", device"), "{brief}");
    assert!(lines.last().unwrap().contains("report: "), "{brief}");
    assert!(brief.contains("\n  device "), "{brief}");
    assert!(!brief.contains("Where the time goes"), "{brief}");
    let whole = text(&["-v"]);
    assert_eq!(
        whole.lines().last().unwrap(),
        format!("report: {}", report.canonicalize().unwrap().display())
    );
    assert!(whole.contains("\nWhere the time goes") && !whole.contains("Other depths"), "{whole}");
}

/// Without -o the report's name contains the device and the time, and an earlier report is kept.
#[test]
fn a_report_without_a_name_overwrites_none_and_a_warning_can_be_an_exit_code() {
    let Some(disk) = Disk::new(64) else { return };
    let scratch = Scratch::new("unnamed");
    let words = ["diagnose", &disk.path, "--runtime", "300ms", "--no-experiment", "--max-loss", "100"];
    let run = |level: &str| {
        let mut command = biopsy(&[&words[..], &["--fail-on", level]].concat());
        finish(command.current_dir(scratch.path()).spawn().unwrap())
    };
    // There is always a verdict, which is at least a warning.
    one_error(&run("warning"), 10, &["--fail-on warning", "biopsy explain"]);
    quiet(&run("critical"));
    let names: Vec<String> = scratch
        .path()
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let rest = name.strip_prefix(&format!("biopsy-{}-20", disk.name));
        assert!(rest.is_some_and(|rest| rest.ends_with(".html")), "{name}");
    }
}

/// The JSON of a run that may have lost a few I/Os, after a check of its report.
#[track_caller]
fn diagnosed(output: &std::process::Output, report: &std::path::Path) -> serde_json::Value {
    let value = object(output, "biopsy.diagnose/1");
    if output.status.code() != Some(0) {
        assert_eq!(output.status.code(), Some(4), "{}", stderr(output));
        assert!(number(&value["lost"]["ios"]) > 0, "{}", value["lost"]);
    }
    let verdict = &value["verdict"];
    assert!(verdict["id"].is_string() && verdict["sentence"].is_string(), "{verdict}");
    let page = std::fs::read_to_string(report).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    value
}
