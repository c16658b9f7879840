//! Tests fio's words for amount and rate, and fio's logs. It runs the real binary on real files.

use std::fs;

use serde_json::Value;

use crate::command::job::{adds_up, biopsy, number, run, writing};
use crate::command::json;
use crate::disk::{Dir, MIB};
use crate::witness::undisturbed;

/// The sections of the result of a job file.
#[track_caller]
fn sections(dir: &Dir, jobs: &str, words: &[&str]) -> Vec<Value> {
    let path = dir.join("jobs.fio");
    fs::write(&path, jobs).unwrap();
    let output = biopsy(&[&[path.as_str()], words].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let load = json(&output);
    let sections = load["sections"].as_array().cloned().unwrap_or_else(|| vec![load]);
    sections.iter().for_each(adds_up);
    sections
}

#[test]
fn a_rate_of_bytes_is_kept_whatever_the_sizes() {
    let dir = Dir::new("bytes");
    let path = dir.file("data", 4 * MIB);
    for sizes in ["--bs=4k", "--bssplit=4k/50:16k/50"] {
        for process in ["linear", "poisson"] {
            let how = [sizes, "--rate=4m", "--runtime=2s", "--ioengine=psync", "--rate_process", process];
            let load = undisturbed(&dir, || run(&[&[path.as_str()], &how[..]].concat()));
            let per_second = load["bytes_per_second"].as_f64().unwrap() / MIB as f64;
            let slack = if process == "linear" { 0.1 } else { 0.6 };
            assert!((per_second - 4.0).abs() < slack, "{sizes} {process}: {per_second}");
        }
    }
    let output = biopsy(&[&path, "--rate=1m", "--rate_iops=5"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("--rate and rate_iops"), "{error}");
}

/// The numbers that fio 3.33 counted.
#[test]
fn loops_do_all_of_it_again() {
    let dir = Dir::new("loops");
    let path = dir.file("data", 8 * MIB);
    for (how, ios) in [
        (&["--number_ios=10"][..], 30),
        (&["--io_size=64k"], 48),
        (&["--size=64k"], 48),
        (&["--size=64k", "--norandommap=0"], 48),
        (&["--size=64k", "--rw=read", "--ioengine=psync"], 48),
        (&["--size=64k", "--bssplit=4k/50:8k/50", "--number_ios=5"], 15),
        (&["--size=64k", "--time_based", "--runtime=0.05", "--rate_iops=10000", "--number_ios=2"], 0),
    ] {
        let load = run(&[&[path.as_str(), "--loops=3"], how].concat());
        // With time_based the run goes on until its time is over.
        if ios > 0 {
            assert_eq!(number(&load, "ios"), ios, "{how:?}");
        } else {
            assert!(number(&load, "ios") > 6, "{load}");
        }
    }
}

/// The second loop is cut short: the blocks that it did not write are from the first one.
#[test]
fn all_loops_are_read_back() {
    let dir = Dir::new("loops-back");
    let path = dir.file("data", MIB);
    for how in [
        &["--rw=write"][..],
        &["--rw=randwrite", "--norandommap=0"],
        &["--rw=write", "--bssplit=4k/50:8k/50"],
    ] {
        let cut = [
            "--loops=100",
            "--rate_iops=1000",
            "--rate_process=linear",
            "--runtime=380ms",
            "--verify=crc32c",
        ];
        let load = run(&writing(&path, &[&cut[..], how].concat()));
        let (written, blocks) = (number(&load["directions"]["write"], "bytes"), MIB / 4096);
        assert!(written > MIB && written < 4 * MIB, "{how:?}: {written}");
        let verified = number(&load, "verified");
        assert!(
            verified == blocks || how.len() > 1 && (150..blocks).contains(&verified),
            "{how:?}: {verified}"
        );
        assert_eq!(load["read_back"], "whole");
    }
}

#[test]
fn a_job_may_begin_later_and_have_several_files() {
    let dir = Dir::new("later");
    let jobs = format!(
        "[global]\ndirectory={}\nsize=64k\nrw=write\n[now]\nnrfiles=4\n[later]\nstartdelay=1500ms\nioengine=sync\n",
        dir.path()
    );
    let sections = sections(&dir, &jobs, &["--write"]);
    let begun = |at: usize| number(&sections[at]["jobs"][0], "started_ms");
    // The first section may begin late on a busy machine.
    assert!((1_000..10_000).contains(&(begun(1) - begun(0))), "{sections:?}");
    assert!(number(&sections[1], "duration_ns") < 1_500_000_000, "the delay is no part of it");
    for file in 0..4 {
        assert_eq!(fs::metadata(dir.join(&format!("now.0.{file}"))).unwrap().len(), 16 << 10);
    }
    assert_eq!(number(&sections[0], "bytes"), 64 << 10);
    assert_eq!(sections[1]["engine"], "psync");
}

#[test]
fn random_offsets_keep_to_blockalign() {
    let dir = Dir::new("align");
    let path = dir.join("new");
    let jobs = format!(
        "[w]\nfilename={path}\nsize=1m\nrw=randwrite\nbs=4k\nblockalign=64k\nnorandommap\nio_size=4m\n"
    );
    sections(&dir, &jobs, &["--write"]);
    let content = fs::read(&path).unwrap();
    for (number, block) in content.chunks(4096).enumerate() {
        let is_written = block.iter().any(|byte| *byte != 0);
        assert_eq!(is_written, number % 16 == 0, "block {number}");
    }
}

/// As in fio, the words of the file itself have priority.
#[test]
fn a_job_file_includes_others_and_has_words_beside_it() {
    let dir = Dir::new("include");
    let path = dir.file("data", MIB);
    fs::write(dir.join("common.fio"), format!("filename={path}\nbs=8k\n")).unwrap();
    let jobs = "[global]\ninclude common.fio\n[a]\n[b]\nbs=16k\n";
    let all = sections(&dir, jobs, &["--rw=randread", "--number_ios=4", "--bs=4k"]);
    let seen: Vec<_> = all.iter().map(|each| (number(each, "ios"), number(each, "bytes") >> 10)).collect();
    assert_eq!(seen, [(4, 32), (4, 64)]);
    fs::write(dir.join("common.fio"), "include common.fio\n").unwrap();
    let output = biopsy(&[&dir.join("jobs.fio")]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("included through 16 nested files"), "{error}");
    // A file that is included many times is read many times.
    fs::write(dir.join("common.fio"), format!("# {}\n", "x".repeat(100_000))).unwrap();
    fs::write(dir.join("jobs.fio"), format!("[global]\n{}[a]\n", "include common.fio\n".repeat(12))).unwrap();
    let output = biopsy(&[&dir.join("jobs.fio")]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && error.contains("jobs.fio:12: the included files"), "{error}");
}

#[test]
fn fio_s_logs_have_a_line_per_interval() {
    let dir = Dir::new("logs");
    let path = dir.file("data", MIB);
    let prefix = dir.join("p");
    let logs = ["--write_bw_log", &prefix, "--write_iops_log", &prefix, "--write_lat_log", &prefix];
    let how = ["--log_avg_msec=100", "--runtime=1s", "--numjobs=2", "--percentile_list=50:99.9"];
    let load = run(&[&[path.as_str()], &logs[..], &how].concat());
    for thread in 1..=2 {
        for kind in ["bw", "iops", "lat"] {
            let text = fs::read_to_string(format!("{prefix}_{kind}.{thread}.log")).unwrap();
            let lines: Vec<Vec<u64>> =
                text.lines().map(|line| line.split(", ").map(|n| n.parse().unwrap()).collect()).collect();
            assert!((4..=10).contains(&lines.len()), "{kind}: {text}");
            assert!(lines.iter().all(|line| line.len() == 5 && line[2..] == [0, 0, 0] && line[1] > 0));
            assert!(lines.windows(2).all(|pair| pair[0][0] + 100 <= pair[1][0] + 1), "{text}");
            if kind == "iops" {
                let mean = lines.iter().map(|line| line[1]).sum::<u64>() as f64 / lines.len() as f64;
                let each = load["jobs"][thread - 1]["directions"]["read"]["iops"].as_f64().unwrap();
                assert!((mean / each - 1.0).abs() < 0.5, "{mean} {each}");
            }
        }
    }
    let output = crate::command::biopsy(&[
        &path,
        "--output-format=json",
        "--runtime=200ms",
        "--percentile_list=99:50",
    ])
    .output()
    .unwrap();
    let fio = json(&output);
    let read = &fio["jobs"][0]["read"];
    let percentiles: Vec<_> = read["clat_ns"]["percentile"].as_object().unwrap().keys().collect();
    assert_eq!(percentiles, ["50.000000", "99.000000"]);
    // If the kernel counts the I/Os of the disk.
    if let Some(disk) = fio["disk_util"].as_array().and_then(|disks| disks.first()) {
        assert!(number(disk, "read_ios") > 0 && disk["util"].as_f64().unwrap() > 0.0, "{disk}");
    }
}

#[test]
fn what_the_kernel_may_not_know_is_an_error_by_its_name_or_done() {
    let dir = Dir::new("uncached");
    let path = dir.file("data", MIB);
    for engine in ["io_uring", "libaio", "pvsync2"] {
        let how = ["--direct=0", "--uncached=1", "--number_ios=100", "--ioengine", engine];
        let output = biopsy(&[&[path.as_str()], &how[..]].concat()).output().unwrap();
        let error = String::from_utf8(output.stderr.clone()).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!(number(&json(&output), "ios"), 100),
            code => assert!(code == Some(4) && error.contains("not supported"), "{error}"),
        }
    }
}
