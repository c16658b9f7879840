//! Tests that `biopsy latency` counts exactly what the kernel counts, for every kind of I/O. Needs root and loop
//! devices.

use std::time::Duration;

use crate::live::ATTEMPTS;
use crate::live::disk::Disk;
use crate::live::view::{View, begun, brief, device, during, during_script, load, number, within_bounds};
use crate::support::patience::Patience;
use crate::support::scratch::Scratch;
use crate::support::tool::{binary, biopsy, finish, object, signal, stderr};
use serde_json::Value;

/// Before it begins, the generator tests whether the device can be read: one read of this many bytes.
const LOOK: u64 = 512;

/// Runs a load inside the window. Returns the exact row of its device and the generator's own result.
#[track_caller]
fn measured(disk: &Disk, workload: &[&str]) -> (Value, Value) {
    let scratch = Scratch::new("load");
    let result = scratch.path().join("load.json");
    let command = [
        &[binary(), "load", "--no-drive-check", disk.path.as_str(), "--json", "-o", result.to_str().unwrap()],
        workload,
    ];
    let view = during(&[disk], &[], &command.concat());
    let device = view.exact(disk).clone();
    assert_eq!(number(&device["merges"]), view.stat(disk).read_merges, "{}", brief(&device));
    (device, load(&result))
}

/// Checks that each operation is one I/O, plus the generator's test read; adjacent random reads of one batch are
/// sometimes merged.
#[track_caller]
fn one_each(device: &Value, load: &Value) {
    let begun = number(&device["ios"]) + number(&device["merges"]);
    assert_eq!(begun, number(&load["ios"]) + 1, "{}", brief(device));
    assert_eq!(number(&device["bytes"]), number(&load["bytes"]) + LOOK, "{}", brief(device));
    let stages = &device["ops"]["read"]["request_stages"];
    assert_eq!(stages["device"]["count"], device["ios"], "{}", brief(device));
}

#[test]
fn a_load_inside_the_window_is_counted_exactly() {
    let Some(disk) = Disk::new(64) else { return };
    for workload in [
        &["--iodepth", "1", "--runtime", "500ms"][..],
        &["--iodepth", "32", "--runtime", "500ms"],
        &["--iodepth", "512", "--runtime", "500ms"],
        &["--iodepth", "16", "--runtime", "500ms", "--numjobs", "3", "--bs", "16k"],
    ] {
        let (device, load) = measured(&disk, workload);
        one_each(&device, &load);
        assert_eq!(
            (&device["splits"], &device["retries"], &device["started_before"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert_eq!((&device["in_flight_start"], &device["in_flight_end"]), (&0.into(), &0.into()));
        let (ours, whole) = (&device["ops"]["read"]["request_stages"]["device"], &load["latency"]);
        println!("{workload:?}: {} I/Os, p50 {} of {} ns", device["ios"], ours["p50_ns"], whole["p50_ns"]);
        // A part is not longer than the whole, except by the width of a bucket.
        assert!(number(&ours["p50_ns"]) as f64 <= number(&whole["p50_ns"]) as f64 * 1.07, "{ours} {whole}");
        assert!(number(&ours["sum_ns"]) <= number(&whole["sum_ns"]) * 101 / 100 + 10_000_000);
    }
}

/// Stages that are left out cost nothing, and are listed as not requested.
#[test]
fn stages_that_are_left_out_are_not_attached() {
    let Some(disk) = Disk::new(64) else { return };
    let load = [binary(), "load", "--no-drive-check", disk.path.as_str(), "--runtime", "500ms"];
    for (stages, shown, left_out) in [
        ("device", &["device"][..], &["complete", "queue", "reap", "submit"][..]),
        ("queue,device", &["device", "queue"], &["complete", "reap", "submit"]),
    ] {
        let view = during(&[&disk], &["--stages", stages], &load);
        let device = view.device(&disk);
        let counted = (number(&device["ios"]), &device["kernel_check"]);
        assert_eq!(counted, (view.stat(&disk).ios(), &"ok".into()), "{}", brief(device));
        let read = &device["ops"]["read"];
        let keys: Vec<&String> = read["request_stages"].as_object().unwrap().keys().collect();
        assert_eq!(keys, shown, "{}", brief(device));
        assert_eq!(read["request_stages"]["device"]["count"], device["ios"]);
        assert!(read["stages"].is_null() && read["ios_without_operation"].is_null(), "{}", brief(device));
        let all = view.json["missing"].as_array().unwrap();
        let mut unasked: Vec<&str> = (all.iter().filter(|gap| gap["reason"] == "not-asked-for"))
            .map(|gap| gap["stage"].as_str().unwrap())
            .collect();
        unasked.sort_unstable();
        unasked.dedup();
        // Only NVMe drives have this stage for an I/O.
        assert_eq!(
            unasked,
            left_out.iter().copied().filter(|stage| *stage != "complete").collect::<Vec<_>>()
        );
        let programs = view.json["cost"]["programs"].as_array().unwrap();
        let has = |name: &str| programs.iter().any(|program| program["name"] == name);
        let expected = (true, false, false, stages != "device");
        assert_eq!((has("rq_issue"), has("sys_enter"), has("ring_complete"), has("bio_queue")), expected);
    }
    for words in [&["--detail"][..], &["--functions"], &["--by", "process"], &["--comm", "dd"]] {
        let refused = finish(biopsy(&[&["latency", "--stages", "device"], words].concat()).spawn().unwrap());
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("needs more stages"), "{}", stderr(&refused));
    }
}

/// Runs a load of one I/O per operation whose operations are followed in two slices: the first second and one 20 s
/// later. Checks that each I/O is counted and that a followed operation has all its stages.
#[track_caller]
fn followed_in_two_slices(disk: &Disk, workload: &[&str]) -> Value {
    let load = [binary(), "load", "--no-drive-check", disk.path.as_str(), "--runtime", "22500ms"];
    let view = during(&[disk], &["--max-cost", "0.001"], &[&load, workload].concat());
    let device = view.device(disk);
    assert_eq!(
        (number(&device["ios"]), &device["kernel_check"]),
        (view.stat(disk).ios(), &"ok".into()),
        "{}",
        brief(device)
    );
    let read = &device["ops"]["read"];
    assert_eq!(read["request_stages"]["device"]["count"], device["ios"], "{}", brief(device));
    let duty = view.json["operations_duty"].as_f64().unwrap();
    assert!((0.06..0.12).contains(&duty), "{duty}: two slices of 0.8 to 1.1 s in 22.5 s");
    let operations = number(&read["operations"]);
    // Only the load reads, with one I/O per operation: at the edges of a slice, no I/O may count as one without an
    // operation.
    let unclassified = number(&read["ios_unclassified"]);
    let owned = number(&device["ios"]) - unclassified - number(&read["ios_without_operation"]);
    let cut = view.json["operations_cut"].as_u64().unwrap_or(0);
    assert!(
        number(&read["ios_without_operation"]) <= 2,
        "the load's look, and one at an edge: {}",
        brief(device)
    );
    assert!((operations..=operations + cut + 2).contains(&owned), "{operations} + {cut}, {owned}");
    for stage in ["submit", "queue", "device", "reap"] {
        // One operation may be torn or lack its submission.
        let count = number(&read["stages"][stage]["count"]);
        assert!((operations - 3..=operations).contains(&count), "{count} {stage}: {}", brief(device));
    }
    read.clone()
}

#[test]
fn operations_are_followed_in_slices_within_a_budget() {
    let Some(disk) = Disk::new(64) else { return };
    let read = followed_in_two_slices(&disk, &["--iodepth", "4", "--rate-iops", "2000"]);
    let p50 = |stages: &str| number(&read[stages]["device"]["p50_ns"]);
    let (of_some, of_all) = (p50("stages"), p50("request_stages"));
    assert!(of_some <= of_all * 2 && of_all <= of_some * 2, "{of_some} and {of_all} ns");
}

/// 200 I/Os at once and then a pause of 300 ms, so that each slice has several bursts, and ends in or near one.
#[test]
fn bursts_that_are_shorter_than_a_slice_are_followed() {
    let Some(disk) = Disk::new(64) else { return };
    let workload = ["--iodepth", "16", "--thinktime", "300ms", "--thinktime-blocks", "200"];
    let read = followed_in_two_slices(&disk, &workload);
    assert!(number(&read["operations"]) >= 200, "{read}");
}

/// No file descriptor is available when the second slice begins: counts and request stages continue.
#[test]
fn a_slice_that_cannot_be_attached_is_named() {
    let Some(disk) = Disk::new(64) else { return };
    let before = disk.stat();
    let view = begun(&mut biopsy(&["latency", "--json", "--max-cost", "0.001", "-d", &disk.name]));
    let words = ["load", "--no-drive-check", &disk.path, "--rate-iops", "1000", "--runtime", "24s"];
    let driver = biopsy(&words).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(15));
    let usual = limit_descriptors(&view, 3);
    std::thread::sleep(Duration::from_secs(7));
    limit_descriptors(&view, usual);
    assert!(finish(driver).status.success());
    signal(&view, libc::SIGINT);
    let output = finish(view);
    let stat = disk.stat().since(before);
    let json = object(&output, "biopsy.latency/1");
    let row = device(&json, &disk);
    // A virtual machine may not deliver every completion event, see `view::during`.
    let counted = number(&row["ios"]) + number(&row["lost_ios"]);
    assert_eq!((counted, &row["kernel_check"]), (stat.ios(), &"ok".into()), "{}", brief(row));
    let read = &row["ops"]["read"];
    assert_eq!(read["request_stages"]["device"]["count"], row["ios"], "{}", brief(row));
    let gaps = json["missing"].as_array().unwrap();
    let named = gaps.iter().any(|gap| {
        gap["part"] == "operations" && gap["why"].as_str().unwrap().contains("could not be re-attached")
    });
    assert!(named, "{gaps:?}");
    let duty = json["operations_duty"].as_f64().unwrap();
    assert!((0.02..0.07).contains(&duty), "{duty}: one slice of about a second in 24 s");
}

/// Sets how many files a process may have open. Returns the previous limit.
fn limit_descriptors(of: &std::process::Child, most: u64) -> u64 {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let pid = libc::pid_t::try_from(of.id()).unwrap();
    // SAFETY: both pointers are to limits of this function, and the process is our child, which has not been waited
    // for.
    let status = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut before) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    let now = libc::rlimit { rlim_cur: most, ..before };
    // SAFETY: as above.
    let status = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &now, std::ptr::null_mut()) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    before.rlim_cur
}

#[test]
fn every_scheduler_is_counted_exactly() {
    let Some(mut disk) = Disk::new(64) else { return };
    for scheduler in disk.schedulers() {
        disk.set("scheduler", &scheduler);
        let (device, load) = measured(&disk, &["--iodepth", "64", "--runtime", "300ms", "--numjobs", "2"]);
        println!("{scheduler}: {} I/Os, {} merges", device["ios"], device["merges"]);
        one_each(&device, &load);
    }
}

/// Tags, their numbers and their requests change under a running load.
#[test]
fn the_scheduler_may_change_while_it_is_traced() {
    let Some(mut disk) = Disk::new(64) else { return };
    let now = disk.setting("scheduler");
    disk.set("scheduler", &now);
    let (biopsy, path, all) = (binary(), &disk.path, disk.schedulers().join(" "));
    let script = format!(
        "{biopsy} load --no-drive-check {path} --iodepth 64 --numjobs 2 --runtime 1500ms >/dev/null & \
         for i in 1 2; do for s in {all}; do echo $s > /sys/block/{}/queue/scheduler; sleep 0.1; done; done; wait $!",
        disk.name
    );
    // After the change, lost completions are not known by their tags any more, but only by the kernel's counter.
    let is_lost = |view: &View| number(&view.json["lost"]["probes"]["latency"]["uncounted"]) > 0;
    let mut views = (0..ATTEMPTS).map(|_| during_script(&[&disk], &[], &script));
    let view = views.find(|view| !is_lost(view)).expect("the kernel keeps its completions to itself");
    println!("{} I/Os", view.exact(&disk)["ios"]);
}

#[test]
fn a_load_that_runs_already_is_bracketed() {
    let Some(disk) = Disk::new(64) else { return };
    const DEPTH: u64 = 64;
    let depth = DEPTH.to_string();
    let words = ["load", "--no-drive-check", &disk.path, "--iodepth", &depth, "--runtime", "2500ms"];
    let driver = biopsy(&words).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // Completion events that the kernel did not deliver are lost I/Os, and no fault (see `view::during`).
    let view = during(&[&disk], &["--for", "500ms", "--max-loss", "5"], &[]);
    let finished = finish(driver);
    assert!(finished.status.success(), "{}", stderr(&finished));
    assert_eq!(view.output.status.code(), Some(0), "{} {:#}", stderr(&view.output), view.json["lost"]);
    let device = view.device(&disk);
    within_bounds(device);
    assert_eq!(device["kernel_check"], "ok", "{}", brief(device));
    assert!(number(&device["ios"]) > 100, "{}", brief(device));
    assert!(number(&device["started_before"]) <= DEPTH, "{}", brief(device));
    println!(
        "{} I/Os in [{}, {}], {} begun before",
        device["ios"], device["kernel_ios_min"], device["kernel_ios_max"], device["started_before"]
    );
}

/// Both disks have the same tags, but different sizes: each I/O is counted for its own disk.
#[test]
fn two_disks_with_equal_tags_are_kept_apart() {
    let (Some(one), Some(two)) = (Disk::new(64), Disk::new(64)) else { return };
    let scratch = Scratch::new("two");
    let results = ["one", "two"].map(|name| scratch.path().join(name));
    let biopsy = binary();
    let script = format!(
        "{biopsy} load --no-drive-check {} --bs 4k --runtime 800ms --json -o {} & first=$!; \
         {biopsy} load --no-drive-check {} --bs 32k --runtime 800ms --json -o {}; wait $first",
        one.path,
        results[0].display(),
        two.path,
        results[1].display()
    );
    let view = during_script(&[&one, &two], &[], &script);
    for (disk, result) in [&one, &two].into_iter().zip(&results) {
        one_each(view.exact(disk), &load(result));
    }
    // A view of one disk has nothing of the other.
    let view = during_script(&[&one], &[], &format!("dd if={} of=/dev/null bs=1M status=none", two.path));
    assert_eq!(view.json["devices"].as_array().unwrap().len(), 1);
    assert_eq!(view.exact(&one)["ios"], 0);
}

#[test]
fn page_cache_reads_are_counted_exactly() {
    let Some(disk) = Disk::new(32) else { return };
    let script = format!("dd if={} of=/dev/null bs=256k status=none", disk.path);
    let view = during_script(&[&disk], &[], &script);
    let device = view.exact(&disk);
    assert_eq!(device["ops"]["read"]["bytes"], disk.bytes, "{}", brief(device));
}

/// Writes, the flushes that they wait for, and operations that only wait for a flush: class by class as in `stat`.
#[test]
fn writes_and_flushes_are_counted_exactly() {
    let Some(disk) = Disk::new(32) else { return };
    let dd = format!("dd if=/dev/zero of={} bs=4k status=none", disk.path);
    for (name, script, writes) in [
        ("direct", format!("{dd} count=300 oflag=direct conv=fsync"), Some(300)),
        ("dsync", format!("{dd} count=100 oflag=direct,dsync"), Some(100)),
        ("sync", format!("{dd} count=50 oflag=sync"), Some(50)),
        ("write-back", format!("{dd} count=4000 conv=fsync"), None),
        ("many", (0..20).map(|i| format!("{dd} count=1 seek={i} conv=fsync;")).collect(), None),
        (
            "at once",
            (0..4).map(|i| format!("{dd} count=50 seek={} oflag=direct,dsync &", i * 50)).collect::<String>()
                + " wait",
            Some(200),
        ),
    ] {
        let view = during_script(&[&disk], &[], &script);
        let device = view.exact(&disk);
        let ios = |op: &str| device["ops"][op]["ios"].as_u64().unwrap_or(0);
        println!(
            "{name}: {} writes, {} with FUA, {} flushes, {} that only waited",
            ios("write"),
            ios("fua"),
            ios("flush"),
            ios("empty_flush")
        );
        if let Some(writes) = writes {
            assert_eq!(ios("write") + ios("fua"), writes, "{name}: {}", brief(device));
            let bytes = number(&device["bytes"]) - device["ops"]["read"]["bytes"].as_u64().unwrap_or(0);
            assert_eq!(bytes, writes * 4096, "{name}: {}", brief(device));
        }
        assert!(ios("flush") + ios("fua") > 0, "{name} flushed nothing: {}", brief(device));
        assert_eq!(device["ops"]["empty_flush"]["bytes"].as_u64().unwrap_or(0), 0);
    }
}

#[test]
fn discards_and_zeroes_are_counted_exactly() {
    let Some(disk) = Disk::new(32) else { return };
    let view = during_script(
        &[&disk],
        &[],
        &format!("blkdiscard -f {0}; blkdiscard -f -o 1M -l 2M {0}; blkdiscard -f -z {0}", disk.path),
    );
    assert_eq!(view.json["command_status"], 0, "{}", stderr(&view.output));
    let device = view.exact(&disk);
    assert_eq!(device["ops"]["discard"]["bytes"], disk.bytes + (2 << 20), "{}", brief(device));
    // tmpfs cannot zero a range in place: the kernel tries it once per loop device and then writes zeroes.
    let zeroes = |op: &str| device["ops"][op]["bytes"].as_u64().unwrap_or(0);
    let (tried, written) = (zeroes("write_zeroes"), zeroes("write"));
    assert!(tried == disk.bytes || written == disk.bytes, "{tried} {written}: {}", brief(device));
}

/// Sequential requests of one batch become one: there are fewer I/Os than operations, and the difference is merges.
#[test]
fn merged_operations_are_one_io() {
    let Some(mut disk) = Disk::new(64) else { return };
    for scheduler in disk.schedulers() {
        disk.set("scheduler", &scheduler);
        let (device, load) = measured(&disk, &["--rw", "read", "--iodepth", "32", "--runtime", "300ms"]);
        let merges = number(&device["merges"]);
        println!("{scheduler}: {} operations, {} I/Os, {merges} merges", load["ios"], device["ios"]);
        assert!(merges > 0, "{}", brief(&device));
        one_each(&device, &load);
    }
}

/// An operation that is larger than the device's largest request is several I/Os.
#[test]
fn split_operations_are_several_ios() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("max_sectors_kb", "64");
    let (device, load) = measured(&disk, &["--bs", "1m", "--iodepth", "4", "--runtime", "500ms"]);
    let operations = number(&load["ios"]);
    println!("{operations} operations, {} I/Os, {} splits", device["ios"], device["splits"]);
    assert_eq!(number(&device["ios"]), operations * 16 + 1);
    assert_eq!(number(&device["splits"]), operations * 15);
    assert_eq!(number(&device["bytes"]), number(&load["bytes"]) + LOOK);
}

/// Without the kernel's counters there is no check, but the count is still right.
#[test]
fn counters_that_are_off_are_no_check() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("iostats", "0");
    let scratch = Scratch::new("iostats");
    let result = scratch.path().join("load.json");
    let command = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--runtime",
        "500ms",
        "--json",
        "-o",
        result.to_str().unwrap(),
    ];
    let view = during(&[&disk], &[], &command);
    let device = view.device(&disk);
    assert_eq!(view.output.status.code(), Some(0), "{} {}", stderr(&view.output), brief(device));
    for key in ["kernel_check", "kernel_ios", "kernel_ios_min", "kernel_ios_max"] {
        assert_eq!(device[key], Value::Null, "{key}");
    }
    one_each(device, &load(&result));
    assert_eq!(view.stat(&disk).ios(), 0);
}

/// Intervals are separate windows: no I/O is counted twice or between two of them.
#[test]
fn intervals_share_out_every_io() {
    let Some(disk) = Disk::new(64) else { return };
    let (name, path) = (&disk.name, &disk.path);
    let words = [
        "latency",
        "-d",
        name,
        "--json",
        "0.2",
        "--",
        binary(),
        "load",
        "--no-drive-check",
        path,
        "--runtime",
        "900ms",
    ];
    // See `view::during`: an I/O whose completion event is not delivered is lost in exactly one window. Which one is
    // known only when its slot is used again, so that the bounds of each window are checked only if no I/O was lost.
    for _ in 0..crate::live::ATTEMPTS {
        let before = disk.stat();
        let output = crate::support::tool::run(&words);
        let made = disk.stat().since(before).ios();
        let views = crate::support::tool::objects(&output, "biopsy.latency/1");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(views.len() >= 4, "{}", views.len());
        let sum = |key: &str| views.iter().map(|view| number(&device(view, &disk)[key])).sum::<u64>();
        assert_eq!(sum("ios") + sum("lost_ios"), made);
        let status: Vec<&Value> = views.iter().map(|view| &view["command_status"]).collect();
        let (last, others) = status.split_last().unwrap();
        assert!(**last == 0 && others.iter().all(|status| status.is_null()), "{status:?}");
        if sum("lost_ios") == 0 {
            views.iter().for_each(|view| within_bounds(device(view, &disk)));
            return;
        }
    }
}

/// Attaching and detaching are fast; the bench checks the exact target.
#[test]
fn attaching_is_quick() {
    let Some(disk) = Disk::new(16) else { return };
    let patience = Patience::new(Duration::from_millis(2100));
    let output = crate::support::tool::run(&["latency", "-d", &disk.name, "--for", "100ms", "--json"]);
    patience.holds();
    let view = object(&output, "biopsy.latency/1");
    assert_eq!(device(&view, &disk)["ios"], 0);
}
