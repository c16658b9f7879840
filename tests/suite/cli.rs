//! Tests the messages and exit codes of the real binary that any user meets, with and without rights. Tests that need
//! probes are in tests/bpf/own_scope/cli.rs; tests of `load` alone are in load.rs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Output;

use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{
    NOBODY, binary, biopsy, finish, forget_copy, is_root, object, quiet, refused, run, signal, stderr,
    without_rights,
};

#[test]
fn a_device_that_is_not_there_is_named() {
    let names = ["nosuch", "/dev/nosuch", "999:999", "", "../sda", "/dev/disk/by-id/nosuch"];
    for name in names {
        for verb in [&["latency"][..], &["devices"], &["diagnose", "--no-load"]] {
            let output = run(&[verb, &["-d", name]].concat());
            refused(&output, 3, &[&format!("no block device '{name}'"), "biopsy devices"]);
        }
    }
    // A wrong device spoils the others: nothing is measured.
    refused(&run(&["devices", "-d", "nosuch", "-d", "also"]), 3, &["'nosuch'"]);
}

#[test]
fn what_is_no_device_is_called_what_it_is() {
    let scratch = Scratch::new("kinds");
    scratch.write("file", b"x");
    let (directory, file) = (scratch.path().to_str().unwrap(), scratch.path().join("file"));
    for verb in ["latency", "devices"] {
        refused(&run(&[verb, "-d", directory]), 3, &["is a directory, not a block device"]);
        refused(&run(&[verb, "-d", file.to_str().unwrap()]), 3, &["is a regular file"]);
        refused(&run(&[verb, "-d", "/dev/null"]), 3, &["is a character device"]);
    }
}

/// Names come from users and scripts; none of their bytes may reach the terminal as a control sequence.
#[test]
fn names_are_shown_harmless() {
    let wild = "no\x1b[2J\r\n\u{202e}such";
    refused(&run(&["latency", "-d", wild]), 3, &["no block device"]);
    refused(&run(&["explain", wild]), 2, &["no finding"]);
    refused(&run(&["diagnose", wild]), 3, &["does not exist"]);
    refused(&run(&["latency", "--for", wild]), 2, &["--for"]);
    // An argument that is no number is a device, as for iostat.
    for words in [["latency", "nosuch"], ["trace", "/dev/nosuch"], ["devices", "nosuch"]] {
        refused(&run(&words), 3, &["no block device"]);
    }
    refused(&run(&["check", "-o", &format!("/nonexistent/{wild}")]), 2, &["cannot write"]);
}

#[test]
fn targets_of_diagnose_that_cannot_be_driven_are_named() {
    let scratch = Scratch::new("diagnose");
    let report = scratch.path().join("report.html");
    let report = report.to_str().unwrap();
    let diagnose = |words: &[&str]| run(&[&["diagnose", "-o", report], words].concat());
    refused(&diagnose(&["/dev/null"]), 2, &["/dev/null is a character device"]);
    refused(&diagnose(&["/nonexistent"]), 3, &["/nonexistent does not exist: name a directory on a disk"]);
    // Only `load` has that option.
    assert!(!stderr(&diagnose(&["/nonexistent"])).contains("--scratch"));
    refused(&diagnose(&["/proc/version"]), 3, &["no direct I/O"]);
    if fs::write("/dev/shm/biopsy-test-cli", [0; 8192]).is_ok() {
        // tmpfs: newer kernels accept O_DIRECT and read from memory.
        let (file, directory) =
            (diagnose(&["/dev/shm/biopsy-test-cli"]), diagnose(&["/dev/shm", "--size", "1m"]));
        fs::remove_file("/dev/shm/biopsy-test-cli").unwrap();
        refused(&file, 3, &["no direct I/O (O_DIRECT)", "choose a path on a disk"]);
        refused(&directory, 3, &["/dev/shm", "no direct I/O"]);
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "a report about nothing");
}

#[test]
fn a_file_that_is_no_btf_is_named() {
    let scratch = Scratch::new("btf");
    let wrong = scratch.path().join("wrong\x1b[31m");
    fs::write(&wrong, "text").unwrap();
    for file in [wrong.to_str().unwrap(), "/dev/null"] {
        refused(
            &run(&["latency", "--btf", file, "--for", "1s"]),
            2,
            &["is not the BTF of a kernel", "pahole"],
        );
    }
    let absent = run(&["latency", "--btf", "/nonexistent/file", "--for", "1s"]);
    refused(&absent, 2, &["/nonexistent/file, does not exist", "pahole"]);
}

#[test]
fn a_wrong_command_line_is_one_sentence() {
    let scratch = Scratch::new("usage");
    for (words, said) in [
        (&["diagnose", "--size", "0"][..], "a size must be above 0"),
        (&["diagnose", "--bs", "0"], "a size must be above 0"),
        (&["diagnose", "--size", "4y"], "unknown unit"),
        (&["diagnose", "--iodepth", "0"], "--iodepth"),
        (&["diagnose", "--freq", "0"], "--freq"),
        (&["diagnose", "--no-load", "."], "cannot be used with"),
        (&["diagnose", "-d", "loop0", "--bs", "8k"], "name a target to drive"),
        // Its value is the default one.
        (&["diagnose", "-d", "loop0", "--bs", "4k"], "name a target to drive"),
        (&["diagnose", "--no-load", "--for", "1s", "--runtime", "3s"], "are the same here"),
        (&["diagnose", "--iodepth", "4", "--", "true"], "cannot be used with"),
        (&["diagnose", ".", "--", "true"], "cannot be used with"),
        (&["diagnose", "-o", "-", "--json"], "both want stdout"),
        (&["latency", "--for", "0"], "a time must be above 0"),
        (&["latency", "0.01"], "the shortest interval is 100ms"),
        (&["latency", "1", "0"], "COUNT"),
        (&["latency", "1x"], "INTERVAL"),
        (&["latency", "loop0", "1", "2", "3"], "unexpected argument '3'"),
        (&["latency", "-d"], "--device"),
        (&["latency", "--cgroup", ""], "--cgroup"),
        (&["trace", "--cgroup="], "--cgroup"),
        (&["latncy"], "similar subcommands exist: 'lat', 'latency'"),
        (&["load"], "<TARGET>"),
        (&["explain", "nosuch"], "no finding is named 'nosuch': use one of "),
        (&["schema", "trace"], "there is no JSON Schema of 'trace': these views have one: check, compare, "),
    ] {
        refused(&finish(biopsy(words).current_dir(scratch.path()).spawn().unwrap()), 2, &[said]);
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "a report about nothing");
}

#[test]
fn a_block_that_the_disk_does_not_have_is_a_usage_error() {
    let output = run(&["diagnose", "--bs", "1000", "-o", "/dev/null", binary()]);
    if output.status.code() == Some(3) {
        skipped(format_args!("{}", stderr(&output).trim()));
        return;
    }
    refused(&output, 2, &["1000 is not a multiple of", "choose --bs"]);
}

/// Help and version are not errors.
#[test]
fn help_goes_to_stdout() {
    for words in [
        &["--help"][..],
        &["--version"],
        &["latency", "--help"],
        &["help", "latency"],
        &["lat", "-h"],
        &["version"],
    ] {
        let output = run(words);
        quiet(&output);
        assert!(!output.stdout.is_empty());
    }
    assert_eq!(run(&[]).status.code(), Some(2));
}

/// The version has what a bug report needs.
#[test]
fn version_says_which_biopsy_it_is() {
    let output = run(&["version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["biopsy", "commit", "libbpf", "features", "kernel"], "{text}");
    assert!(text.contains(env!("CARGO_PKG_VERSION")) && text.contains("BPF objects"), "{text}");
}

/// Errors are printed even with -q.
#[test]
fn quiet_is_for_notes_alone() {
    refused(&run(&["-q", "latency", "-d", "nosuch"]), 3, &["no block device"]);
    refused(&run(&["check", "-q", "-v"]), 2, &["cannot be used with"]);
}

/// `-o` is opened first: if it cannot be written, nothing is measured, made or removed.
#[test]
fn an_output_that_cannot_be_written_is_refused_at_once() {
    let scratch = Scratch::new("output");
    let directory = scratch.path().to_str().unwrap();
    let missing = format!("{directory}/missing/result");
    for verb in
        [&["check"][..], &["devices"], &["latency", "--for", "60s"], &["load", binary()], &["diagnose"]]
    {
        refused(&run(&[verb, &["-o", &missing]].concat()), 2, &["cannot write", "missing/result", "with -o"]);
        refused(&run(&[verb, &["-o", directory]].concat()), 2, &["cannot write", "is a directory"]);
        refused(&run(&[verb, &["-o", ""]].concat()), 2, &["--output"]);
    }
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}

#[test]
fn an_output_file_gets_what_stdout_would() {
    let scratch = Scratch::new("result");
    let path = scratch.path().join("result");
    let name = path.to_str().unwrap();
    let written = run(&["devices", "--json", "-o", name]);
    quiet(&written);
    assert!(written.stdout.is_empty());
    let first = fs::read(&path).unwrap();
    object(&Output { stdout: first, ..written }, "biopsy.devices/1");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777 & !0o044, 0o600);

    // An existing file is overwritten in place: it stays the same file with the same permissions.
    fs::write(&path, [b'x'; 1 << 20]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&path).unwrap();
    let written = run(&["check", "--json", "-o", name]);
    quiet(&written);
    object(&Output { stdout: fs::read(&path).unwrap(), ..written }, "biopsy.check/1");
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));

    quiet(&run(&["check", "-o", "/dev/null"]));
    assert!(!run(&["check", "-o", "-"]).stdout.is_empty());
}

#[test]
fn a_full_disk_is_named_in_words() {
    if !std::path::Path::new("/dev/full").exists() {
        skipped("there is no /dev/full here");
        return;
    }
    // If the disk is full, the result goes to stdout, so that the user need not measure again.
    let mut output = run(&["devices", "--json", "-o", "/dev/full"]);
    object(&output, "biopsy.devices/1");
    output.stdout.clear();
    refused(&output, 1, &["cannot write /dev/full", "No space left on device", "-o", "is on stdout"]);
    let mut command = biopsy(&["explain"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    refused(&output, 1, &["cannot write to stdout", "No space left on device", "-o"]);
}

/// A run without a result does not change the old file.
#[test]
fn an_old_result_outlives_a_failure() {
    let scratch = Scratch::new("kept");
    scratch.write("old", b"precious");
    let old = scratch.path().join("old");
    let name = old.to_str().unwrap();
    refused(&run(&["load", "/nonexistent", "-o", name]), 3, &[]);
    refused(&run(&["diagnose", "/nonexistent", "-o", name]), 3, &[]);
    refused(&run(&["devices", "-d", "nosuch", "-o", name]), 3, &[]);
    refused(&run(&["latency", "-d", "nosuch", "-o", name]), 3, &[]);
    assert_eq!(fs::read(&old).unwrap(), b"precious");
}

#[test]
fn a_closed_stdout_ends_quietly() {
    for words in [
        &["check"][..],
        &["check", "--json"],
        &["devices"],
        &["devices", "--json"],
        &["explain"],
        &["--help"],
    ] {
        let mut child = biopsy(words).spawn().unwrap();
        drop(child.stdout.take());
        quiet(&finish(child));
    }
}

#[test]
fn json_is_one_object_and_nothing_else() {
    for (words, schema) in
        [(["check", "--json"], "biopsy.check/1"), (["devices", "--json"], "biopsy.devices/1")]
    {
        let output = run(&words);
        quiet(&output);
        object(&output, schema);
    }
}

#[test]
fn text_has_no_colour_outside_a_terminal() {
    for words in [&["check"][..], &["devices"], &["explain"], &["explain", "device-bound"]] {
        let output = run(words);
        quiet(&output);
        assert!(!output.stdout.contains(&0x1b) && output.stdout.ends_with(b"\n"));
    }
    assert!(run(&["check", "--color", "always"]).stdout.contains(&0x1b));
}

/// Without any capability, commands that need none work, and the others name what they need.
#[test]
fn without_rights_the_probes_are_refused_and_the_rest_works() {
    let scratch = Scratch::new("rights");
    // A folder that a user without rights owns.
    let own = scratch.path().join("own");
    fs::create_dir(&own).unwrap();
    let (file, report) = (own.join("data"), own.join("report.html"));
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    if is_root() {
        let id = NOBODY.parse().unwrap();
        [&own, &file].into_iter().for_each(|path| chown(path, Some(id), Some(id)).unwrap());
    }
    let (own, file, report) = (own.to_str().unwrap(), file.to_str().unwrap(), report.to_str().unwrap());
    let run = |words: &[&str]| finish(without_rights(words).current_dir(own).spawn().unwrap());

    let check = run(&["check", "--json"]);
    let devices = run(&["devices", "--json"]);
    let explain = run(&["explain", "split-io"]);
    let load = run(&["load", file, "--runtime", "200ms", "--json"]);
    let latency = run(&["latency", "--for", "1s", "-o", report]);
    let no_load = run(&["diagnose", "--no-load", "--for", "1s", "-o", report]);
    let diagnose = run(&["diagnose", file, "--runtime", "1s", "-o", report]);
    forget_copy();

    quiet(&check);
    let check = object(&check, "biopsy.check/1");
    let state = |view: &str| {
        let views = check["views"].as_array().unwrap();
        views.iter().find(|v| v["name"] == view).unwrap()["state"].as_str().unwrap().to_string()
    };
    assert_eq!(["latency", "diagnose", "devices", "check"].map(state), ["missing", "missing", "ok", "ok"]);
    quiet(&devices);
    object(&devices, "biopsy.devices/1");
    quiet(&explain);
    for refusal in [&latency, &no_load] {
        refused(refusal, 3, &["run as root", "CAP_BPF and CAP_PERFMON"]);
    }
    assert!(!fs::exists(report).unwrap(), "a report about nothing");
    if load.status.code() == Some(3) && stderr(&load).contains("direct I/O") {
        skipped(format_args!("the rest of without_rights: {}", stderr(&load).trim()));
        return;
    }
    assert!(object(&load, "biopsy.load/1")["ios"].as_u64().unwrap() > 0);
    quiet(&load);
    refused(&diagnose, 3, &["run as root", "CAP_BPF and CAP_PERFMON"]);
}

/// The second Ctrl-C does not wait for anything.
#[test]
fn a_second_signal_ends_at_once() {
    let scratch = Scratch::new("second");
    let words = ["load", scratch.path().to_str().unwrap(), "--scratch", "--size", "64m", "--runtime", "60s"];
    let child = biopsy(&words).spawn().unwrap();
    // The process is stopped so that both signals are pending when it continues.
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, libc::SIGSTOP);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGCONT] {
        signal(&child, number);
    }
    let output = finish(child);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(130), 0), "{}", stderr(&output));
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}
