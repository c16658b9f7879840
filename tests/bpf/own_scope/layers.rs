//! Tests devices without requests and stacked devices. Needs root, zram and loop devices.

use crate::live::disk::{Disk, Stat};
use crate::live::view::{brief, during_script, holds, load, number, within_bounds};
use crate::live::zram::Zram;
use crate::support::scratch::Scratch;
use crate::support::tool::{binary, object, run};
use serde_json::Value;

fn row<'a>(view: &'a Value, name: &str) -> &'a Value {
    let all = view["devices"].as_array().unwrap();
    all.iter().find(|device| device["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// The exact row of a zram device while a script runs, all of whose I/Os lie in the window, and the kernel's counters.
#[track_caller]
fn exact(zram: &Zram, script: &str) -> (Value, Stat) {
    let before = zram.stat();
    let output = run(&["latency", "--json", "--max-cost", "0", "-d", &zram.name, "--", "sh", "-ec", script]);
    let stat = zram.stat().since(before);
    let view = object(&output, "biopsy.latency/1");
    let device = row(&view, &zram.name);
    assert_eq!((&view["command_status"], &view["lost"]["ios"]), (&0.into(), &0.into()), "{}", view["lost"]);
    assert_eq!(device["kernel_check"], "ok", "{}", brief(device));
    // zram does not count discards.
    assert_eq!(
        (number(&device["kernel_ios"]["read"]["seen"]), number(&device["kernel_ios"]["write"]["seen"])),
        (stat.reads, stat.writes),
        "{}",
        brief(device)
    );
    holds(device);
    (view, stat)
}

#[test]
fn bios_are_counted_as_the_kernel_counts_them() {
    let Some(zram) = Zram::new(64) else { return };
    let path = &zram.path;
    let script = format!(
        "dd if=/dev/urandom of={path} bs=64k count=200 oflag=direct status=none
         dd if={path} of=/dev/null bs=4k count=500 iflag=direct status=none
         blkdiscard -f -o 0 -l 1M {path}"
    );
    let (view, stat) = exact(&zram, &script);
    let device = row(&view, &zram.name);
    assert_eq!((stat.reads, stat.writes), (500, 200));
    assert_eq!(device["bio_based"], true);
    for (op, ios, bytes) in [("write", 200, 200 << 16), ("read", 500, 500 << 12)] {
        let row = &device["ops"][op];
        assert_eq!((number(&row["ios"]), number(&row["bytes"])), (ios, bytes), "{}", brief(device));
        assert_eq!((number(&row["bio"]["count"]), number(&row["operations"])), (ios, ios));
        assert_eq!(row["request_stages"], serde_json::json!({}));
        let stages: Vec<&String> = row["stages"].as_object().unwrap().keys().collect();
        assert_eq!(stages, ["device", "reap", "submit"]);
        // The device stage of an operation is the time of its bio.
        assert_eq!(row["stages"]["device"]["sum_ns"], row["bio"]["sum_ns"]);
    }
    assert!(number(&device["ops"]["discard"]["ios"]) > 0, "{}", brief(device));
    assert_eq!(device["kernel_classes"]["none"][2], "discard", "{}", device["kernel_classes"]);
    let missing: Vec<&str> = view["missing"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|m| m["reason"] == "bio-based" && m["included_in"] == "bio")
        .map(|m| m["stage"].as_str().unwrap())
        .collect();
    assert_eq!(missing, ["queue", "device", "complete"]);
}

#[test]
fn io_uring_requests_on_bios_are_operations() {
    let Some(zram) = Zram::new(64) else { return };
    for workload in ["--iodepth 1", "--iodepth 32 --numjobs 2", "--iodepth 128 --bs 64k"] {
        let scratch = Scratch::new("layers");
        let result = scratch.path().join("load.json");
        let script = format!(
            "{} load --no-drive-check {} {workload} --runtime 500ms --json -o {}",
            binary(),
            zram.path,
            result.display()
        );
        let (view, stat) = exact(&zram, &script);
        let (device, load) = (row(&view, &zram.name), load(&result));
        // One more read for each job: the generator's test read.
        let read = &device["ops"]["read"];
        assert_eq!(number(&read["ios"]), stat.reads);
        assert!(number(&read["operations"]) > number(&load["ios"]), "{}", brief(device));
        assert_eq!(read["ios_without_operation"], 0, "{}", brief(device));
        println!("{workload}: {} I/Os, p50 {} ns", read["ios"], read["bio"]["p50_ns"]);
    }
}

/// If no traced device has requests, the tables of requests are empty.
#[test]
fn parts_of_operations_on_bios_are_known() {
    let Some(zram) = Zram::new(64) else { return };
    let script =
        format!("{} load --no-drive-check {} --iodepth 8 --runtime 300ms -o /dev/null", binary(), zram.path);
    let output = run(&["latency", "--detail", "--json", "-d", &zram.name, "--", "sh", "-ec", &script]);
    let view = object(&output, "biopsy.latency/1");
    let read = &row(&view, &zram.name)["ops"]["read"];
    let operations = number(&read["total"]["count"]);
    assert!(operations > 1000, "{operations}");
    assert_eq!(number(&read["parts"]["submit"]["batch"]["count"]), operations, "{}", read["parts"]);
}

#[test]
fn bios_are_counted_from_the_middle_of_a_load() {
    let Some(zram) = Zram::new(64) else { return };
    let mut running = std::process::Command::new(binary())
        .args([
            "load",
            "--no-drive-check",
            &zram.path,
            "--runtime",
            "4s",
            "--iodepth",
            "16",
            "--numjobs",
            "2",
            "--json",
        ])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let output = run(&["latency", "--json", "--max-cost", "0", "-d", &zram.name, "--for", "1s"]);
    running.wait().unwrap();
    let view = object(&output, "biopsy.latency/1");
    let device = row(&view, &zram.name);
    within_bounds(device);
    assert!(number(&device["ios"]) > 1000 && device["negative"] == 0, "{}", brief(device));
}

/// The time that a loop device takes longer than the zram device below it is that of the loop driver, for each I/O.
#[test]
fn the_time_in_a_layer_is_a_difference() {
    let Some(zram) = Zram::new(64) else { return };
    let disk = Disk::over(&zram.path, 64 << 20);
    let script = format!(
        "dd if=/dev/urandom of={0} bs=4k count=300 oflag=direct status=none
         dd if={0} of=/dev/null bs=4k count=300 iflag=direct status=none",
        disk.path
    );
    let view = during_script(&[&disk], &[], &script);
    let (upper, lower) = (row(&view.json, &disk.name), row(&view.json, &zram.name));
    assert_eq!((&upper["kernel_check"], &lower["kernel_check"]), (&"ok".into(), &"ok".into()));
    assert_eq!(lower["added_for"][0], disk.name.as_str());
    assert!(upper.get("added_for").is_none());
    let layer = &upper["layers"][0];
    assert_eq!((&layer["name"], &layer["ios"]), (&zram.name.as_str().into(), &lower["ios"]));
    for op in ["read", "write"] {
        let (above, below) = (&upper["ops"][op], &lower["ops"][op]);
        assert_eq!((&above["ios"], &below["ios"]), (&300.into(), &300.into()), "{}", brief(lower));
        let stages = above["request_stages"].as_object().unwrap().values();
        let sum: u64 = stages.map(|stage| number(&stage["sum_ns"])).sum();
        let expected = (sum - number(&below["bio"]["sum_ns"])) as f64 / 300.0;
        let mean = above["layer"]["mean_ns"].as_f64().unwrap();
        assert!((mean - expected).abs() < 1.0 && mean > 0.0, "{mean} {expected}");
        // The operations are the loop device's; on the device below they are I/Os of the loop driver.
        assert_eq!((&above["operations"], &below["ios_without_operation"]), (&300.into(), &300.into()));
    }
    // With another process' I/O on the lower device, the difference is not the time of one I/O any more.
    let other = format!("{script}; dd if={} of=/dev/null bs=4k count=1 iflag=direct status=none", zram.path);
    let view = during_script(&[&disk], &[], &other);
    let upper = row(&view.json, &disk.name);
    assert!(upper["ops"]["read"].get("layer").is_none() && upper["ops"]["write"].get("layer").is_some());
    let why = view.json["missing"].as_array().unwrap().iter().find(|m| m["part"] == "layer");
    assert_eq!(why.unwrap()["reason"], "not-one-to-one");
}

/// A trace of a disk with requests has no cost for devices without them.
#[test]
fn bios_cost_nothing_where_they_are_not_traced() {
    let Some(disk) = Disk::new(64) else { return };
    let load = format!("{} load --no-drive-check {} --runtime 1s", binary(), disk.path);
    let view = during_script(&[&disk], &[], &load);
    let programs = view.json["cost"]["programs"].as_array().unwrap();
    let names: Vec<&str> = programs.iter().map(|program| program["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"bio_queue") && !names.contains(&"bio_complete"), "{names:?}");
}
