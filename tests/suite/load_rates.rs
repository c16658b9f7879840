//! Tests when the I/Os of `biopsy load` begin: rates, think times and ramps. It runs the real binary on real files.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::child::{signal, threads, wait_for};
use crate::command::job::{adds_up, biopsy, failed, number, run, started, writing};
use crate::command::{self, json};
use crate::disk::{Dir, MIB};
use crate::witness::undisturbed;

#[test]
fn the_ramp_is_not_counted() {
    let dir = Dir::new("ramp");
    let path = dir.file("data", 4 * MIB);
    let rate = ["--rate_iops=400", "--rate_process=linear", "--ramp_time=1s", "--runtime=1s"];
    let begin = Instant::now();
    let load = undisturbed(&dir, || run(&[&[path.as_str()], &rate[..]].concat()));
    assert!(begin.elapsed() >= Duration::from_secs(2));
    assert!((380..=420).contains(&number(&load, "ios")), "{load}");
    assert!((900_000_000..1_300_000_000).contains(&number(&load, "duration_ns")), "{load}");
}

/// With a limit that every I/O meets, the full depth is found; with one that no I/O meets, even one at a time is too
/// slow.
#[test]
fn the_depth_is_found_at_which_latencies_stay_within_a_bound() {
    let dir = Dir::new("latency-target");
    let path = dir.file("data", 4 * MIB);
    let words = [path.as_str(), "--iodepth=8", "--latency_window=100ms", "--runtime=60"];
    let begin = Instant::now();
    let load = run(&[&words[..], &["--latency_target=10s"]].concat());
    assert!(begin.elapsed() < Duration::from_secs(30), "it ends when the depth was found: 1, 2, 4, 8, 8");
    assert_eq!(number(&load, "latency_depth"), 8, "{load}");
    let last_window = 90_000_000..400_000_000;
    assert!(last_window.contains(&number(&load, "duration_ns")), "{load}");
    assert_eq!(load["in_flight"]["max"], 8, "{load}");
    let as_fio = ["--latency_target=10s", "--latency_percentile=99.5", "--output-format=json"];
    let fio = json(&command::run(&[&words[..], &as_fio[..]].concat()));
    let job = &fio["jobs"][0];
    assert_eq!((number(job, "latency_depth"), number(job, "latency_target")), (8, 10_000_000_000), "{job}");
    assert_eq!((number(job, "latency_window"), &job["latency_percentile"]), (100_000, &99.5.into()), "{job}");
    let (load, error) = failed(&mut biopsy(&[&words[..], &["--latency_target=0.01"]].concat()));
    assert!(error.contains("one at a time") && error.contains("took at most 10ns"), "{error}");
    assert!(load["latency_depth"].is_null(), "none was found: {load}");
    let refused = |more: &[&str], why: &str| {
        command::refused(command::run(&[&words[..1], more].concat()), 2, &[why]);
    };
    refused(&["--latency_target=1ms"], "needs a latency_window");
    let target = ["--latency_target=1ms", "--latency_window=1s"];
    refused(&[&target[..], &["--timestamps=off"]].concat(), "timestamps=every");
    refused(&[&target[..], &["--latency_percentile=0"]].concat(), "not a percentage");
    refused(&[&target[..], &["--rate_iops=100"]].concat(), "latency_target with a rate");
    refused(&[&target[..], &["--numjobs=2"]].concat(), "latency_target with numjobs");
}

/// If no result comes for a long time after the ramp, the interval still begins at the end of the ramp, where the
/// deadline counts from.
#[test]
fn rare_results_make_the_counted_run_no_shorter() {
    let dir = Dir::new("ramp-rare");
    let path = dir.file("data", 4 * MIB);
    let thought = ["--ioengine=psync", "--thinktime=700ms", "--thinktime_blocks=10"];
    let rare = ["--rate_iops=2", "--rate_process=poisson"];
    for how in [&thought[..], &rare[..]] {
        let ramp = ["--ramp_time=500ms", "--runtime=2s"];
        let load = undisturbed(&dir, || run(&[&[path.as_str()], how, &ramp[..]].concat()));
        assert!((2_000_000_000..2_300_000_000).contains(&number(&load, "duration_ns")), "{load}");
    }
}

/// As in fio 3.33, `number_ios` starts again after the ramp; `size` and `io_size` do not.
#[test]
fn a_number_of_operations_counts_behind_the_ramp() {
    let dir = Dir::new("ramp-number");
    let path = dir.file("data", 8 * MIB);
    let paced = ["--rate_iops=500", "--rate_process=linear", "--ramp_time=500ms", "--runtime=0"];
    for how in [
        &["--number_ios=100"][..],
        &["--number_ios=300", "--ioengine=psync"],
        &["--number_ios=300", "--rw=read", "--ioengine=libaio"],
        &["--number_ios=100", "--bssplit=4k/50:8k/50"],
        &["--number_ios=100", "--numjobs=2"],
    ] {
        let load = run(&[&[path.as_str()], how, &paced[..]].concat());
        let threads = load["jobs"].as_array().unwrap().len() as u64;
        let most: u64 = how[0].trim_start_matches("--number_ios=").parse().unwrap();
        assert_eq!(number(&load, "ios"), threads * most, "{how:?}");
    }
    // At full speed, with many I/Os in flight at the end of the ramp.
    let fast = ["--number_ios=100", "--ramp_time=100ms", "--runtime=0", "--io_size=1t"];
    assert_eq!(number(&run(&[&[path.as_str()], &fast[..]].concat()), "ios"), 100);
    for how in ["--io_size=2m", "--size=2m"] {
        let load = undisturbed(&dir, || run(&[&[path.as_str(), how], &paced[..]].concat()));
        assert!(number(&load, "ios").abs_diff(512 - 250) < 15, "{how}: {load}");
    }
}

/// As in fio, nothing is counted; here it is reported.
#[test]
fn a_ramp_that_outlasts_the_run_is_said() {
    let dir = Dir::new("ramp-only");
    let path = dir.file("data", MIB);
    let once = ["--runtime=0", "--ramp_time=20s", "--numjobs=2"];
    let (load, error) = failed(&mut biopsy(&[&[path.as_str()], &once[..]].concat()));
    assert!(error.contains("ended before its ramp of 20s") && error.contains("--ramp_time"), "{error}");
    assert_eq!((number(&load, "ios"), number(&load, "errors")), (0, 0));
    assert_eq!((&load["iops"], &load["bytes_per_second"]), (&Value::Null, &Value::Null));
    let notes = load["missing"].as_array().unwrap();
    let said =
        |note: &&Value| note["why"].as_str().is_some_and(|why| why.starts_with("figures of 2 of 2 threads"));
    assert_eq!(notes.iter().filter(said).count(), 1, "{notes:?}");
    let output =
        Command::new(env!("CARGO_BIN_EXE_biopsy")).args(["load", &path]).args(once).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("missing: figures of 2 of 2 threads: they ended before the ramp of 20s"), "{text}");

    // A user who stops the run during the ramp knows that, so that it is not reported.
    let child = started(&[&path, "--ramp_time=20s", "--runtime=1s"]);
    sleep(Duration::from_millis(700));
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(number(&json(&output), "ios"), 0);
}

#[test]
fn a_rate_is_kept() {
    let dir = Dir::new("rate");
    let path = dir.file("data", 4 * MIB);
    for engine in ["io_uring", "libaio", "psync"] {
        for process in ["linear", "poisson"] {
            let how = ["--ioengine", engine, "--rate_iops=500", "--rate_process", process, "--runtime=2s"];
            let load = undisturbed(&dir, || run(&[&[path.as_str()], &how[..]].concat()));
            let slack = if process == "linear" { 25.0 } else { 80.0 };
            let iops = load["iops"].as_f64().unwrap();
            assert!((iops - 500.0).abs() <= slack, "{engine} {process}: {iops}");
        }
    }
}

/// A late I/O counts from when it was due: if the process is stopped for 500 ms, 250 I/Os are due meanwhile, and their
/// latencies decrease evenly from 500 ms. A generator that counts only from the submission would not see this.
#[test]
fn a_standstill_is_in_the_latencies_of_all_that_was_due() {
    let dir = Dir::new("omission");
    let path = dir.file("data", 4 * MIB);
    for engine in ["io_uring", "libaio", "psync"] {
        let how = ["--ioengine", engine, "--rate_iops=500", "--rate_process=linear", "--runtime=3s"];
        let output = undisturbed(&dir, || {
            let child = started(&[&[path.as_str()], &how[..]].concat());
            wait_for("the reader", || threads(&child) > 1);
            sleep(Duration::from_millis(1_000));
            signal(&child, libc::SIGSTOP);
            sleep(Duration::from_millis(500));
            signal(&child, libc::SIGCONT);
            child.wait_with_output().unwrap()
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let load = json(&output);
        adds_up(&load);
        assert!((1_425..=1_575).contains(&number(&load, "ios")), "{engine}: {}", load["ios"]);
        let max = number(&load["latency"], "max_ns");
        assert!((450_000_000..900_000_000).contains(&max), "{engine}: {max}");
        let buckets = load["latency"]["buckets"].as_array().unwrap();
        let beyond = |ns: u64| -> u64 {
            let late = buckets.iter().filter(|bucket| bucket[0].as_u64().unwrap() >= ns);
            late.map(|bucket| bucket[2].as_u64().unwrap()).sum()
        };
        // The I/Os that were due in the first 400 and in the first 250 ms of the stop.
        assert!((150..=350).contains(&beyond(100_000_000)), "{engine}: {}", beyond(100_000_000));
        assert!((90..=260).contains(&beyond(250_000_000)), "{engine}: {}", beyond(250_000_000));
    }
}

/// Each direction of a mix has its own rate, and neither waits for the other.
#[test]
fn a_mix_has_a_rate_for_each_direction() {
    let dir = Dir::new("mixed-rates");
    let path = dir.file("data", 4 * MIB);
    let how = ["--rw=randrw", "--rate_iops=1000,500", "--rate_process=linear", "--runtime=1s", "--iodepth=8"];
    let load = run(&writing(&path, &how));
    let ios = |direction: &str| number(&load["directions"][direction], "ios");
    let (reads, writes, never) = (ios("read"), ios("write"), number(&load, "never_began"));
    // A busy machine falls behind: the I/Os that were due are those that began and those that never did.
    assert!((1_490..=1_510).contains(&(reads + writes + never)), "{load}");
    assert!(reads <= 1_010 && writes <= 510 && reads + writes > 150, "{load}");
    if never == 0 {
        assert!(reads >= 990 && writes >= 490, "{load}");
    }
}

/// As in fio, think time begins after the result of the last I/O; at a depth above 1, after all I/Os in flight.
#[test]
fn thought_begins_when_nothing_is_on_its_way() {
    let dir = Dir::new("thought");
    let path = dir.file("data", 4 * MIB);
    for (engine, depth) in [("libaio", "1"), ("io_uring", "8"), ("psync", "1")] {
        let how =
            ["--ioengine", engine, "--iodepth", depth, "--thinktime=20ms", "--number_ios=21", "--runtime=0"];
        let load = run(&[&[path.as_str()], &how[..]].concat());
        let alone = if depth == "1" { 20 } else { 13 };
        assert!(number(&load, "duration_ns") >= alone * 20_000_000, "{engine}: {}", load["duration_ns"]);
    }
}

/// If the process is stopped until the end, some I/Os never begin: they are in no latency, so they are reported.
#[test]
fn what_was_due_and_never_began_is_said() {
    let dir = Dir::new("never");
    let path = dir.file("data", 4 * MIB);
    let how = ["--rate_iops=1000", "--rate_process=linear", "--runtime=2s", "--iodepth=8"];
    let stopped = |as_json: bool| {
        let mut command = crate::command::biopsy(&[&[path.as_str()], &how[..]].concat());
        command.args(as_json.then_some("--json")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for("the reader", || threads(&child) > 1);
        sleep(Duration::from_secs(1));
        signal(&child, libc::SIGSTOP);
        // The stop lasts until after the end, even if the run began late.
        sleep(Duration::from_millis(2_500));
        signal(&child, libc::SIGCONT);
        child.wait_with_output().unwrap()
    };
    let load = json(&stopped(true));
    let (ios, never) = (number(&load, "ios"), number(&load, "never_began"));
    assert_eq!(ios + never, 2_000, "{load}");
    assert!((800..2_000).contains(&never), "{never}");
    let text = String::from_utf8(stopped(false).stdout).unwrap();
    assert!(text.contains("that were due never started: their wait is in no latency"), "{text}");
    // Nothing is reported for a run without a rate.
    let load = run(&[&path, "--runtime=100ms"]);
    assert_eq!(load["never_began"], Value::Null);
}
