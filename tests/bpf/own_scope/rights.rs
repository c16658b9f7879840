//! Tests what biopsy can do with each set of rights, and what it reports as missing. Needs root and loop devices.

use std::process::{Child, Command, Output, Stdio};

use crate::live::disk::Disk;
use crate::live::view::{brief, device, holds, number, within_bounds};
use crate::support::scratch::Scratch;
use crate::support::tool::{
    as_nobody, biopsy, finish, forget_copy, object, one_error, refused, stderr, with_rights, without_rights,
};
use serde_json::Value;

const TRACE: &[&str] = &["bpf", "perfmon"];

fn run(capabilities: &[&str], words: &[&str]) -> Output {
    finish(with_rights(capabilities, words).spawn().unwrap())
}

/// The entries of `missing` about a part.
fn missing<'a>(value: &'a Value, part: &str) -> Vec<&'a Value> {
    value["missing"].as_array().unwrap().iter().filter(|m| m["part"] == part).collect()
}

/// The state of a view or program in `check`.
fn state<'a>(check: &'a Value, kind: &str, name: &str) -> &'a str {
    let all = check[kind].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {check}"));
    found["state"].as_str().unwrap()
}

/// A load on a disk that runs as root until it is dropped.
struct Load(Child);

impl Load {
    fn on(disk: &Disk) -> Self {
        let words = ["load", "--no-drive-check", &disk.path, "--iodepth", "8", "--runtime", "60s"];
        Self(biopsy(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// One test, since all rows of the table share a copy of the executable that every user can read.
#[test]
fn each_row_of_the_table_is_what_it_says() {
    let Some(disk) = Disk::new(64) else { return };
    nobody_traces_without_both(&disk);
    nobody_works_without_probes(&disk);
    bpf_and_perfmon_trace(&disk);
    names_need_syslog_and_ptrace(&disk);
    forget_copy();
}

/// With CAP_BPF or CAP_PERFMON alone, or neither: one sentence, and `check` says it too.
fn nobody_traces_without_both(disk: &Disk) {
    for rights in [&[][..], &["bpf"], &["perfmon"]] {
        for words in [
            &["latency", "-d", &disk.name, "--for", "60s"][..],
            &["diagnose", "--no-load", "-d", &disk.name, "--for", "60s", "-o", "/dev/null"],
            &["check", "--self-test", "-d", &disk.name],
        ] {
            refused(&run(rights, words), 3, &["CAP_BPF and CAP_PERFMON", "setcap"]);
        }
        let check = object(&run(rights, &["check", "--json"]), "biopsy.check/1");
        assert_eq!(state(&check, "views", "latency"), "missing", "{rights:?}");
        assert_eq!((check["rights"]["bpf"].as_bool(), check["rights"]["perfmon"].as_bool()), {
            let has = |name| Some(rights.contains(&name));
            (has("bpf"), has("perfmon"))
        });
    }
}

/// Without rights, commands that need no probe work.
fn nobody_works_without_probes(disk: &Disk) {
    for words in [&["check"][..], &["check", "--json"], &["devices", "--all"], &["explain", "device-bound"]] {
        let output = finish(without_rights(words).spawn().unwrap());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{words:?}");
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
    // A file of the user's own, in a directory that every user can write to.
    let words = ["load", "/var/tmp", "--scratch", "--size", "4m", "--runtime", "200ms", "--json"];
    let output = finish(without_rights(&words).spawn().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(number(&object(&output, "biopsy.load/1")["ios"]) > 0);
    refused(&finish(without_rights(&["load", &disk.path]).spawn().unwrap()), 3, &["no permission to read"]);
}

/// With CAP_BPF and CAP_PERFMON: the whole view of a disk that the user may not even open, without the cost of the
/// programs.
fn bpf_and_perfmon_trace(disk: &Disk) {
    let check = object(&run(TRACE, &["check", "--json"]), "biopsy.check/1");
    assert_eq!(state(&check, "views", "latency"), "ok", "{check}");
    for program in ["rq_issue", "rq_complete", "sys_enter", "ring_complete", "on_cpu"] {
        assert_eq!(state(&check, "programs", program), "ok");
    }
    assert_eq!(check["rights"]["sys_admin"], false);

    let load = Load::on(disk);
    let output = run(TRACE, &["latency", "-d", &disk.name, "--for", "1s", "--json", "--max-loss", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let view = object(&output, "biopsy.latency/1");
    let row = device(&view, disk);
    within_bounds(row);
    holds(row);
    assert!(number(&row["ops"]["read"]["operations"]) > 1000, "{}", brief(row));
    let stages: Vec<&String> = row["ops"]["read"]["stages"].as_object().unwrap().keys().collect();
    assert_eq!(stages, ["complete", "device", "queue", "reap", "submit"]);
    assert!(view["cost"]["ns_per_io"].is_null() && view["cost"]["cpu_percent"].is_null(), "{}", view["cost"]);
    let cost = missing(&view, "cost");
    assert!(cost.len() == 1 && cost[0]["why"].as_str().unwrap().contains("CAP_SYS_ADMIN"), "{cost:?}");
    let text = run(TRACE, &["latency", "-d", &disk.name, "--for", "300ms", "--max-loss", "100"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("cost not measured (see below)"), "{text}");

    // The self-test watches root's load, and says which rights the rest of it needs.
    let output = run(TRACE, &["check", "--self-test", "-d", &disk.name, "--for", "1s", "--json"]);
    drop(load);
    if output.status.code() != Some(0) {
        // Events that a virtual machine does not deliver are not tested here.
        one_error(&output, 4, &["loss"]);
    }
    let check = object(&output, "biopsy.check/1");
    for (name, wanted) in [
        ("kernel-counters", "pass"),
        ("stage-sums", "pass"),
        ("generator-count", "not_tested"),
        ("cost", "not_tested"),
        ("detached", "not_tested"),
    ] {
        assert_eq!(state(&check, "self_test", name), wanted, "{}", check["self_test"]);
    }
}

/// CAP_SYSLOG and CAP_SYS_PTRACE are needed for names in the profile; without them the missing right is named.
fn names_need_syslog_and_ptrace(disk: &Disk) {
    let scratch = Scratch::new("rights");
    let load = Load::on(disk);
    // On some kernels (6.18) CAP_PERFMON is enough for that.
    let maps = format!("/proc/{}/maps", load.0.id());
    let readable =
        as_nobody(&mut Command::new("setpriv"), TRACE).args(["head", "-c1", &maps]).output().unwrap();
    let diagnosed = |more: &[&str]| {
        let rights = [TRACE, more].concat();
        let words = ["diagnose", "--no-load", "-d", &disk.name, "--for", "1s", "--json", "-o", "/dev/null"];
        let all = [&words[..], &["--max-loss", "100"]].concat();
        let output = finish(with_rights(&rights, &all).current_dir(scratch.path()).spawn().unwrap());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        object(&output, "biopsy.diagnose/1")
    };
    let bare = diagnosed(&[]);
    let remedy = |value: &Value, part: &str| {
        let mut all = missing(value, part);
        // The profile is of the whole machine: processes of other tests exit or call exec in its window, and no right
        // helps with that.
        all.retain(|gap| !["ended", "lost", "ambiguous"].map(Value::from).contains(&gap["reason"]));
        assert!(all.len() <= 1, "{all:?}");
        all.first().map(|gap| gap["remedy"].as_str().unwrap_or_else(|| panic!("{gap}")).to_string())
    };
    assert!(remedy(&bare, "kernel-symbols").is_some_and(|r| r.contains("CAP_SYSLOG")), "{}", bare["missing"]);
    match remedy(&bare, "user-symbols") {
        None => assert!(readable.status.success(), "{}", bare["missing"]),
        Some(remedy) => assert!(!readable.status.success() && remedy.contains("CAP_SYS_PTRACE"), "{remedy}"),
    }
    let named = diagnosed(&["syslog", "sys_ptrace"]);
    assert_eq!(remedy(&named, "user-symbols"), None, "{}", named["missing"]);
    match std::fs::read_to_string("/proc/sys/kernel/kptr_restrict") {
        Ok(level) if level.trim() == "2" => println!("kptr_restrict hides the kernel's names from everybody"),
        _ => assert_eq!(remedy(&named, "kernel-symbols"), None, "{}", named["missing"]),
    }
}
