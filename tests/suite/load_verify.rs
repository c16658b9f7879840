//! Tests `biopsy load --verify`: what was written is read back, and what was not is reported. It runs the real binary
//! on real files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::command::child::{signal, threads, wait_for, wait_for_writes};
use crate::command::job::{ENGINES, biopsy, failed, number, run, started, trimmed, writing};
use crate::command::json;
use crate::disk::small::Small;
use crate::disk::{Dir, MIB};

#[test]
fn what_every_engine_wrote_is_read_back() {
    let dir = Dir::new("verify");
    let path = dir.file("data", MIB);
    for engine in ENGINES {
        let direct = if engine == "mmap" { "--direct=0" } else { "--direct=1" };
        for rw in ["write", "randwrite", "randrw"] {
            let before = fs::read(&path).unwrap();
            let how = ["--ioengine", engine, direct, "--runtime=0", "--verify=crc32c", "--rw", rw];
            let load = run(&writing(&path, &how));
            let written = number(&load["directions"]["write"], "ios");
            assert_eq!(number(&load, "verified"), written, "{engine} {rw}: {load}");
            if rw != "randrw" {
                assert_eq!((written, number(&load, "bytes")), (256, MIB), "{engine} {rw}");
            }
            assert!(before != fs::read(&path).unwrap());
        }
    }
}

/// Another process (this one) changes one byte after it was written and before it is read back.
#[test]
fn a_changed_byte_is_found() {
    let dir = Dir::new("changed");
    for (engine, name) in [("io_uring", "ring"), ("psync", "call")] {
        let path = dir.file(name, MIB);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let first = || {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, 0).unwrap();
            block
        };
        let before = first();
        drop(File::open(&path).unwrap());
        // Closed while the load checks which processes have the file open.
        drop(file);
        let rate =
            ["--rw=write", "--rate_iops=200", "--rate_process=linear", "--verify=crc32c", "--runtime=0"];
        let child = started(&writing(&path, &[&rate[..], &["--ioengine", engine]].concat()));
        wait_for("the writer", || threads(&child) > 1);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let first = || {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, 0).unwrap();
            block
        };
        wait_for("the first write", || first() != before);
        file.write_all_at(&[!first()[100]], 100).unwrap();
        file.sync_all().unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{error}");
        let words = ["1 of 256 blocks", "not read back as written", "offset 0 differs", "from its byte 100"];
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        let load = json(&output);
        assert_eq!((&load["errors"], &load["verified"]), (&Value::from(1), &Value::from(255)), "{error}");
        assert_eq!(load["failures"][0]["errno"], libc::EILSEQ);
        assert_eq!(load["failures"][0]["direction"], "read");
        assert!(load["jobs"][0]["mismatch"].as_str().unwrap().contains("offset 0 "));
    }
}

/// With each engine that has several I/Os in flight, and several passes over a few blocks: a trim that came after its
/// write would leave zeros.
#[test]
fn what_is_trimmed_is_written_then_at_any_depth() {
    let dir = Dir::new("trimwrite");
    for engine in ["io_uring", "libaio"] {
        let path = dir.file("data", MIB);
        let pairs =
            ["--rw=trimwrite", "--bs=4k", "--size=64k", "--iodepth=8", "--runtime=0", "--io_size=480k"];
        let engine = ["--ioengine", engine, "--verify", "crc32c"];
        let Some(load) = trimmed(&writing(&path, &[&pairs[..], &engine].concat())) else { return };
        // As fio counts: four passes of 480 KiB are 512 KiB, half of it trims.
        let of = |direction: &str| number(&load["directions"][direction], "ios");
        assert_eq!((of("trim"), of("write"), number(&load, "verified")), (64, 64, 64), "{load}");
        let content = fs::read(&path).unwrap();
        let empty = content.chunks(4096).filter(|block| block.iter().all(|byte| *byte == 0)).count();
        assert_eq!(empty, 0, "{load}");
    }
}

#[test]
fn each_block_comes_once_where_it_is_asked_for() {
    let dir = Dir::new("once");
    let path = dir.file("data", 4 * MIB);
    let once = ["--rw=randwrite", "--norandommap=0", "--time_based=0", "--runtime=0", "--verify=crc32c"];
    let load = run(&writing(&path, &once));
    assert_eq!(number(&load["directions"]["write"], "ios"), 1024);
    // Each block has the header of a write, which it did not have before.
    let content = fs::read(&path).unwrap();
    let first = &content[..8];
    assert!(content.chunks(4096).all(|block| &block[..8] == first));
    let offsets: std::collections::BTreeSet<&[u8]> =
        content.chunks(4096).map(|block| &block[8..16]).collect();
    assert_eq!(offsets.len(), 1024);
}

/// Threads that share a region and end at different times: none may read back what another one has trimmed meanwhile.
#[test]
fn threads_read_back_when_none_writes_any_more() {
    let dir = Dir::new("together");
    let path = dir.file("data", MIB);
    let how = ["--rw=trimwrite", "--bs=4k", "--numjobs=4", "--verify=crc32c", "--runtime=300ms"];
    for _ in 0..5 {
        let Some(load) = trimmed(&writing(&path, &how)) else { return };
        assert_eq!(load["read_back"], "whole");
        assert!(number(&load, "verified") > 0);
    }
}

/// The same with sections that write one file.
#[test]
fn sections_read_back_when_none_writes_any_more() {
    let dir = Dir::new("sections");
    let path = dir.file("data", MIB);
    let jobs = dir.join("jobs.fio");
    // The second section goes on trimming while the first one would read back.
    let text = format!(
        "[global]\nfilename={path}\nrw=trimwrite\nbs=4k\niodepth=4\ndirect=1\nverify=crc32c\nioengine=io_uring\n\
         [short]\nnumber_ios=64\n[long]\ntime_based\nruntime=1\n"
    );
    fs::write(&jobs, text).unwrap();
    let Some(all) = trimmed(&[&jobs, "--write", "--overwrite", &path]) else { return };
    let sections = all["sections"].as_array().unwrap();
    assert!(sections.iter().all(|section| number(section, "verified") > 0), "{all}");
}

/// A section with exitall does not wait for the others, which it ends, before it reads back.
#[test]
fn a_section_with_exitall_reads_back_what_it_wrote_and_ends_the_others() {
    let dir = Dir::new("exitall");
    let path = dir.file("data", MIB);
    let jobs = dir.join("jobs.fio");
    let text = format!(
        "[global]\nfilename={path}\nrw=write\nbs=4k\ndirect=1\nverify=crc32c\nioengine=io_uring\n\
         [short]\nexitall\n[long]\ntime_based\nruntime=50\n"
    );
    fs::write(&jobs, text).unwrap();
    let all = run(&[&jobs, "--write", "--overwrite", &path]);
    let sections = all["sections"].as_array().unwrap();
    assert_eq!(number(&sections[0], "verified"), 256, "{all}");
    assert!(number(&sections[1], "duration_ns") < 20_000_000_000, "{all}");
}

/// A block whose write failed is not an error of the read-back.
#[test]
fn what_was_never_written_is_not_read_back() {
    let dir = Dir::new("unwritten");
    for engine in ENGINES {
        let Some(small) = Small::new(&dir, engine) else { return };
        let path = small.file();
        let how =
            ["--direct=0", "--rw=write", "--bs=64k", "--runtime=0", "--verify=crc32c", "--ioengine", engine];
        let (load, error) = failed(&mut biopsy(&writing(&path, &how)));
        assert!(error.contains("of 64 writes failed") && error.contains("no space left"), "{error}");
        let (written, failed) = (number(&load, "ios"), number(&load, "errors"));
        assert_eq!(written + failed, 64, "{engine}: {load}");
        assert_eq!(load["failures"].as_array().unwrap().len(), 1, "{load}");
        assert_eq!(load["mismatch"], Value::Null);
        let short = number(&load["directions"]["write"], "short");
        assert_eq!(
            (number(&load, "verified"), number(&load, "not_read_back")),
            (written - short, failed + short)
        );
    }
}

#[test]
fn an_interrupt_before_the_read_back_is_said() {
    let dir = Dir::new("unread");
    let path = dir.file("data", 4 * MIB);
    let how = ["--rw=randwrite", "--runtime=60s", "--verify=crc32c"];
    for as_json in [true, false] {
        let mut command = crate::command::biopsy(&writing(&path, &how));
        command.args(as_json.then_some("--json")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_for_writes(&child);
        sleep(Duration::from_millis(300));
        signal(&child, libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        if as_json {
            let load = json(&output);
            assert_eq!((&load["verified"], &load["read_back"]), (&Value::Null, &Value::from("nothing")));
        } else {
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("nothing was read back") && !text.contains(", verified"), "{text}");
        }
    }
}
