//! Tests `biopsy devices` as a program, on the machine that runs the tests.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::scratch::Scratch;
use serde_json::Value;

fn biopsy(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_biopsy")).args(args).output().unwrap()
}

fn object(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sysfs(name: &str, attribute: &str) -> Option<String> {
    let value = fs::read_to_string(Path::new("/sys/block").join(name).join(attribute)).ok()?;
    Some(value.trim().to_string())
}

fn disks() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/block").unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// A disk that is always shown, if this machine has one.
fn some_disk() -> Option<String> {
    let object = object(&biopsy(&["devices", "--json"]));
    Some(object["devices"].as_array().unwrap().first()?["name"].as_str().unwrap().to_string())
}

#[test]
fn json_has_the_envelope_and_the_kernels_own_numbers() {
    let present = disks();
    let output = biopsy(&["devices", "--all", "--json"]);
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "one object, one line");
    let object = object(&output);
    assert_eq!(object["schema"], "biopsy.devices/1");
    for key in ["version", "kernel", "start", "duration_ns", "lost", "cost", "missing", "devices", "warnings"]
    {
        assert!(object.get(key).is_some(), "{key}");
    }
    let start = object["start"].as_str().unwrap();
    assert!(start.len() == "2026-11-20T18:00:00.000Z".len() && start.ends_with('Z'), "{start}");
    // Other tests make and remove loop devices.
    let devices = object["devices"].as_array().unwrap();
    for device in devices.iter().filter(|device| device["driver"] != "loop") {
        let name = device["name"].as_str().unwrap();
        let Some(sectors) = sysfs(name, "size") else {
            continue;
        };
        assert_eq!(device["size_bytes"], sectors.parse::<u64>().unwrap() * 512, "{name}");
        let queues = fs::read_dir(format!("/sys/block/{name}/mq")).map_or(0, Iterator::count);
        assert_eq!(device["queues"].as_array().unwrap().len(), queues, "{name}");
        if let Some(number) = sysfs(name, "dev") {
            assert_eq!(format!("{}:{}", device["major"], device["minor"]), number, "{name}");
        }
        if let Some(limit) = sysfs(name, "queue/max_sectors_kb") {
            assert_eq!(device["max_request_bytes"], limit.parse::<u64>().unwrap() * 1024, "{name}");
        }
        for key in
            ["model", "serial", "firmware", "numa_node", "pci_address", "root_complex", "link", "vectors"]
        {
            assert!(device.get(key).is_some(), "{name} has no key {key}");
        }
    }
    for name in present.intersection(&disks()) {
        assert!(devices.iter().any(|device| device["name"] == **name), "{name} is missing");
    }
}

#[test]
fn a_filter_shows_one_device_however_it_is_named() {
    let Some(name) = some_disk() else {
        return;
    };
    let mut texts = vec![name.clone()];
    texts.extend(sysfs(&name, "dev"));
    let node = format!("/dev/{name}");
    let scratch = Scratch::new("link");
    if Path::new(&node).exists() {
        let link = scratch.path().join("a link");
        std::os::unix::fs::symlink(&node, &link).unwrap();
        texts.extend([node, link.display().to_string()]);
    }
    for text in texts {
        let object = object(&biopsy(&["devices", "--json", "-d", &text, "-d", &name]));
        let names: Vec<&Value> = object["devices"].as_array().unwrap().iter().map(|d| &d["name"]).collect();
        assert_eq!(names, [name.as_str()], "{text}");
    }
}

#[test]
fn text_names_every_device_that_is_not_empty() {
    let output = biopsy(&["devices"]);
    assert!(output.status.success() && output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    if let Some(name) = some_disk() {
        assert!(text.lines().any(|line| line.starts_with(&name)), "{text}");
    }
    let before = disks();
    let all = String::from_utf8(biopsy(&["devices", "--all"]).stdout).unwrap();
    for name in before.intersection(&disks()) {
        assert!(all.contains(name), "{name} is not in\n{all}");
    }
}

#[test]
fn nobody_needs_rights_to_look() {
    // The build directory may be closed to other users: the program is copied to an open one.
    let scratch = Scratch::new("nobody");
    let copy = scratch.path().join("biopsy");
    fs::copy(env!("CARGO_BIN_EXE_biopsy"), &copy).unwrap();
    for path in [scratch.path(), &copy] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let is_root = fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t0\t");
    let mut command = if is_root { Command::new("setpriv") } else { Command::new(&copy) };
    if is_root {
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all"])
            .arg(&copy);
    }
    let sizes = |object: &Value| -> BTreeSet<String> {
        let devices =
            object["devices"].as_array().unwrap().iter().filter(|device| device["driver"] != "loop");
        devices
            .map(|device| format!("{} {} {}", device["name"], device["size_bytes"], device["queues"]))
            .collect()
    };
    let seen = sizes(&object(&command.args(["devices", "--all", "--json"]).output().unwrap()));
    assert_eq!(seen, sizes(&object(&biopsy(&["devices", "--all", "--json"]))));
}

#[test]
fn bad_input_is_one_sentence_and_leaves_nothing() {
    let scratch = Scratch::new("refused");
    let product = scratch.path().join("out.txt");
    let product = product.to_str().unwrap();
    for (device, what) in
        [("no-such-disk", "no block device"), ("/", "is a directory"), ("/dev/null", "character")]
    {
        let output = biopsy(&["devices", "-d", device, "-o", product]);
        assert_eq!(output.status.code(), Some(3), "{device}");
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.contains(what) && why.contains("`biopsy devices`") && why.lines().count() == 1, "{why}");
        assert!(output.stdout.is_empty());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
    let output = biopsy(&["devices", "-o", "/no/such/directory/x"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_gets_what_stdout_would() {
    let scratch = Scratch::new("file");
    let product = scratch.path().join("out.txt");
    let output = biopsy(&["devices", "-o", product.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(fs::read(product).unwrap(), biopsy(&["devices"]).stdout);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biopsy"));
    command.args(["devices", "--all", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The reader has exited before the program starts to write.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command.stdout(writer).spawn().unwrap();
    let mut why = String::new();
    child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(why, "");
}
