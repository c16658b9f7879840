//! Tests the jobs of `biopsy load`: every engine and direction, amounts, limits and job files. It runs the real binary
//! on real files.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::command::child::{signal, wait_for_writes};
use crate::command::job::{ENGINES, adds_up, biopsy, failed, number, run, started, trimmed, writing};
use crate::command::json;
use crate::disk::small::Small;
use crate::disk::{Dir, MIB};
use crate::support::patience::Patience;
use crate::support::skip::skipped;

fn job_file(dir: &Dir, text: &str) -> String {
    let path = dir.join("jobs.fio");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn every_engine_reads_and_writes() {
    let dir = Dir::new("engines");
    let path = dir.file("data", 4 * MIB);
    for engine in ENGINES {
        let direct = if engine == "mmap" { "--direct=0" } else { "--direct=1" };
        let how = ["--ioengine", engine, direct, "--runtime", "300ms", "--numjobs", "2"];
        for rw in ["read", "randread"] {
            let load = run(&[&[path.as_str(), "--rw", rw], &how[..]].concat());
            assert_eq!((load["engine"].as_str(), load["rw"].as_str()), (Some(engine), Some(rw)));
            assert_eq!(number(&load, "ios") * 4096, number(&load, "bytes"));
            assert!(number(&load, "ios") > 0);
            assert_eq!(load["jobs"].as_array().unwrap().len(), 2);
        }
        for (rw, share) in [("write", 0.0..=0.0), ("randwrite", 0.0..=0.0), ("randrw", 0.6..=0.8)] {
            let load = run(&writing(&path, &[&["--rw", rw, "--rwmixread", "70"], &how[..]].concat()));
            assert_eq!(number(&load, "ios") * 4096, number(&load, "bytes"));
            assert!(number(&load["directions"]["write"], "ios") > 0);
            let reads = load["directions"]["read"]["ios"].as_u64().unwrap_or(0);
            assert!(share.contains(&(reads as f64 / number(&load, "ios") as f64)), "{engine} {rw}: {load}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * MIB);
    }
}

#[test]
fn what_is_trimmed_reads_as_zeroes() {
    let dir = Dir::new("trim");
    let path = dir.file("data", 2 * MIB);
    let punch = ["--rw=trim", "--bs=64k", "--runtime=0", "--size=1m"];
    let Some(load) = trimmed(&writing(&path, &punch)) else { return };
    assert_eq!((number(&load, "ios"), number(&load, "bytes")), (16, MIB));
    let content = fs::read(&path).unwrap();
    let (trimmed, kept) = content.split_at(MIB as usize);
    assert!(trimmed.iter().all(|byte| *byte == 0) && kept.iter().all(|byte| *byte != 0));
}

/// As in fio, all of the time of a trim by its own system call is completion time, and trims run one at a time: so the
/// sum of their times is at most that of the run.
#[test]
fn a_trim_that_is_done_while_it_is_queued_counts_its_own_time() {
    let dir = Dir::new("trim-times");
    for engine in ["io_uring", "libaio", "psync"] {
        let path = dir.file("data", 16 * MIB);
        let how = ["--rw=randtrim", "--number_ios=100", "--iodepth=8", "--ioengine", engine];
        // One size, and several: a different loop submits these.
        for sizes in ["--bs=64k", "--bssplit=64k/50:128k/50"] {
            let Some(load) = trimmed(&writing(&path, &[&how[..], &[sizes]].concat())) else { return };
            let trims = &load["directions"]["trim"];
            assert_eq!((number(trims, "ios"), number(&trims["clat"], "count")), (100, 100), "{engine}");
            let sum = number(&trims["lat"], "sum_ns");
            assert_eq!(number(&trims["clat"], "sum_ns"), sum, "{engine}: {trims}");
            assert_eq!(trims["slat"]["count"].as_u64().unwrap_or(0), 0, "{engine}: {trims}");
            assert!(sum <= number(&load, "duration_ns"), "{engine}: {load}");
            let notes = load["missing"].as_array().unwrap();
            let said =
                |note: &&Value| note["why"].as_str().is_some_and(|why| why.contains("one after the other"));
            assert_eq!(notes.iter().filter(said).count(), usize::from(engine != "psync"), "{notes:?}");
        }
    }
}

#[test]
fn without_the_words_nothing_is_written() {
    let dir = Dir::new("refused");
    let (path, other) = (dir.file("data", MIB), dir.file("other", MIB));
    let before = fs::read(&path).unwrap();
    for (arguments, word) in [
        (vec![path.as_str()], "--write"),
        (vec![&path, "--write"], "--overwrite"),
        (vec![&path, "--overwrite", &path], "--write"),
        (vec![&path, "--write", "--overwrite", &other], "--overwrite"),
        (vec![&path, "--write", "--destroy-data-on", "data"], "--overwrite"),
        (vec![&path, "--write", "--overwrite", &path, "--readonly"], "readonly"),
    ] {
        for rw in ["write", "randrw", "trim", "trimwrite"] {
            let how = ["--rw", rw, "--iodepth=1", "--runtime", "100ms"];
            let output = biopsy(&[&arguments[..], &how].concat()).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(2 | 3)), "{arguments:?} {rw}: {error}");
            assert!(error.contains(word) && error.lines().count() == 1, "{error}");
            assert!(output.stdout.is_empty());
        }
    }
    assert!(before == fs::read(&path).unwrap());
}

#[test]
fn runs_that_follow_at_once_are_not_in_their_own_way() {
    let dir = Dir::new("follow");
    let path = dir.file("data", MIB);
    for _ in 0..10 {
        run(&writing(&path, &["--rw=randwrite", "--io_size=64k"]));
    }
}

#[test]
fn io_size_and_size_end_a_run() {
    let dir = Dir::new("amount");
    let path = dir.file("data", 4 * MIB);
    for (words, bytes) in [
        (vec!["--io_size=2m"], 2 * MIB),
        (vec!["--io_size=12m"], 12 * MIB),
        (vec!["--io_size=1m", "--numjobs=3"], 3 * MIB),
        (vec!["--size=50%", "--runtime=0"], 2 * MIB),
        (vec!["--size=1m", "--offset=2m", "--runtime=0"], MIB),
        (vec!["--size=1m", "--bs=64k", "--runtime=60s", "--time_based=0"], MIB),
    ] {
        for rw in ["--rw=read", "--rw=randread"] {
            let load = run(&[&[path.as_str(), rw], &words[..]].concat());
            assert_eq!(number(&load, "bytes"), bytes, "{words:?}");
            assert!(number(&load, "duration_ns") < 30_000_000_000);
        }
    }
}

/// The numbers that fio 3.33 counted in a file of 1 MiB with psync.
#[test]
fn a_size_that_is_no_whole_block_is_fios() {
    let dir = Dir::new("whole");
    let path = dir.file("data", MIB);
    for (how, ios) in [
        (&["--rw=read"][..], 3),
        (&["--rw=randread"], 3),
        (&["--rw=randread", "--norandommap", "0"], 2),
        (&["--rw=randread", "--random_distribution=normal:20"], 3),
        (&["--rw=read", "--offset=1044480"], 1),
    ] {
        let load = run(&[&[path.as_str(), "--size=10000", "--runtime=0"], how].concat());
        assert_eq!(number(&load, "ios"), ios, "{how:?}");
    }
}

#[test]
fn blocks_of_several_sizes_that_come_once_keep_their_shares() {
    let dir = Dir::new("mix");
    let path = dir.file("data", 32 * MIB);
    let once = ["--norandommap=0", "--runtime=0", "--time_based=0", "--bssplit=4k/10:1m/90"];
    let load = run(&[&[path.as_str()], &once[..]].concat());
    let (ios, bytes) = (number(&load, "ios"), number(&load, "bytes"));
    assert!(ios < 40 && bytes > 31 * MIB, "{load}");
    let note = format!("{} of {} bytes", 32 * MIB - bytes, 32 * MIB);
    let is_said = |note_of: &Value| note_of["why"].as_str().is_some_and(|why| why.starts_with(&note));
    assert!(bytes == 32 * MIB || load["missing"].as_array().unwrap().iter().any(is_said), "{load}");
}

#[test]
fn a_number_of_operations_ends_each_thread() {
    let dir = Dir::new("number");
    let path = dir.file("data", MIB);
    for (how, ios) in [
        (&["--number_ios=7"][..], 7),
        (&["--number_ios=7", "--numjobs=3", "--rw=read"], 21),
        (&["--number_ios=7", "--bssplit=4k/50:8k/50"], 7),
        (&["--number_ios=1k", "--rw=read", "--runtime=0"], 256),
    ] {
        assert_eq!(number(&run(&[&[path.as_str()], how].concat()), "ios"), ios, "{how:?}");
    }
}

#[test]
fn the_end_is_synced_where_it_was_written() {
    let dir = Dir::new("end-sync");
    let path = dir.file("data", MIB);
    for engine in ENGINES {
        let syncs = |how: &[&str]| {
            let how = [&["--runtime=0", "--ioengine", engine], how].concat();
            let load = run(&writing(&path, &how));
            load["jobs"][0]["syncs"]["count"].as_u64().unwrap_or(0)
        };
        assert_eq!(syncs(&["--rw=write", "--end_fsync=1"]), 1, "{engine}");
        assert_eq!(syncs(&["--rw=write", "--fsync_on_close=1", "--fsync=128"]), 3, "{engine}");
        assert_eq!(syncs(&["--rw=read", "--end_fsync=1"]), 0, "{engine}");
        assert_eq!(syncs(&["--rw=write"]), 0, "{engine}");
    }
}

#[test]
fn an_interrupt_ends_a_writing_run_with_what_was_measured() {
    let dir = Dir::new("interrupt");
    let path = dir.file("data", 4 * MIB);
    for engine in ENGINES {
        let direct = if engine == "mmap" { "--direct=0" } else { "--direct=1" };
        let how = ["--ioengine", engine, direct, "--rw=randrw", "--runtime=60s", "--verify=crc32c"];
        let child = started(&writing(&path, &how));
        wait_for_writes(&child);
        sleep(Duration::from_millis(300));
        signal(&child, libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
        let load = json(&output);
        adds_up(&load);
        assert!(
            number(&load, "ios") > 0 && number(&load, "duration_ns") < 30_000_000_000,
            "{engine}: {load}"
        );
    }
}

#[test]
fn a_full_file_system_is_counted_by_its_name() {
    let dir = Dir::new("full");
    for engine in ENGINES {
        let Some(small) = Small::new(&dir, engine) else { return };
        let path = small.file();
        let how = ["--direct=0", "--rw=write", "--runtime=0", "--ioengine", engine];
        let (load, error) = failed(&mut biopsy(&writing(&path, &how)));
        assert!(error.contains("768 of 1024 writes failed") && error.contains("no space left"), "{error}");
        adds_up(&load);
        assert_eq!((number(&load, "ios"), number(&load, "errors")), (256, 768), "{engine}");
        let failure = &load["failures"][0];
        assert_eq!((&failure["direction"], &failure["count"]), (&Value::from("write"), &Value::from(768)));
        assert_eq!(failure["errno"], libc::ENOSPC);
        assert_eq!(load["jobs"][0]["first_errno"], libc::ENOSPC);
        assert_eq!(load["failures"].as_array().unwrap().len(), 1);

        let Some(small) = Small::new(&dir, &format!("{engine}-stop")) else { return };
        let path = small.file();
        let (load, _) = failed(&mut biopsy(&writing(&path, &[&how[..], &["--on-error=stop"]].concat())));
        adds_up(&load);
        // The operations that were already in flight.
        assert!((1..=32).contains(&number(&load, "errors")), "{engine}: {}", load["errors"]);
    }
}

/// Below a file in memory there is no disk whose queues could be checked, and no write is made as a test.
#[test]
fn writes_that_cannot_be_polled_are_counted_by_their_error() {
    let dir = Dir::new("unpolled");
    let Some(small) = Small::new(&dir, "small") else { return };
    let path = format!("{}/data", small.0);
    fs::write(&path, [1; 65536]).unwrap();
    let how = ["--direct=0", "--hipri", "--runtime=0"];
    let (load, error) = failed(&mut biopsy(&writing(&path, &[&how[..], &["--rw=write"]].concat())));
    assert!(error.contains(&format!("writes of {path} failed: 16 of 16 writes failed")), "{error}");
    let kinds = load["failures"].as_array().unwrap();
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    assert_eq!((&kinds[0]["direction"], number(&kinds[0], "count")), (&Value::from("write"), 16));
    assert_eq!(kinds[0]["errno"], libc::EOPNOTSUPP);
    // A read can be made as a test.
    let output = biopsy(&[&[path.as_str()], &how[..]].concat()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.contains(&format!("reads of {path} cannot be polled")), "{error}");
}

#[test]
fn little_locked_memory_is_a_note_and_no_end() {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let dir = Dir::new("memlock");
    let path = dir.file("data", 4 * MIB);
    for (limit, bs, depth) in [(64 << 10, "4k", "32"), (8 << 20, "4k", "32"), (8 << 20, "1m", "32")] {
        let how = ["--rw=randrw", "--runtime=300ms", "--bs", bs, "--iodepth", depth];
        let mut command = biopsy(&writing(&path, &how));
        let before = move || -> io::Result<()> {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            // SAFETY: plain numbers, and a struct that lives until the call returns; a user who is not root has no such
            // capability to lose.
            unsafe {
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
                libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit);
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls and nothing else.
        unsafe { command.pre_exec(before) };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let load = json(&output);
        adds_up(&load);
        assert!(number(&load, "ios") > 0);
        let missing = load["missing"].as_array().unwrap();
        let noted = missing.iter().any(|line| line["why"].as_str().unwrap().contains("RLIMIT_MEMLOCK"));
        let fits = (limit, bs) == (8 << 20, "4k");
        assert_eq!(noted, !fits, "{limit} {bs}: {missing:?}");
    }
}

#[test]
fn sections_of_a_job_file_wait_for_each_other_and_end_each_other() {
    let dir = Dir::new("sections");
    let (first, second) = (dir.file("first", MIB), dir.file("second", MIB));
    let jobs = job_file(
        &dir,
        &format!(
            "[global]\ndirect=1\nioengine=libaio\niodepth=4\nbs=4k\n\
         [writer]\nfilename={first}\nrw=write\nverify=crc32c\n\
         [beside]\nfilename={second}\nrw=randread\ntime_based\nruntime=60\nstonewall\n\
         [short]\nfilename={second}\nrw=randread\ntime_based\nramp_time=500ms\nruntime=1\nexitall\nioengine=psync\n"
        ),
    );
    let patience = Patience::new(Duration::from_secs(30));
    let output = biopsy(&[&jobs, "--write", "--overwrite", &first]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Otherwise the section `beside` would run for a minute.
    patience.holds();
    let all = json(&output);
    let sections = all["sections"].as_array().unwrap();
    let names: Vec<_> = sections.iter().map(|each| each["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["writer", "beside", "short"]);
    sections.iter().for_each(adds_up);
    assert_eq!(sections.iter().map(|each| number(each, "ios")).sum::<u64>(), number(&all, "ios"));
    assert_eq!(number(&sections[0]["directions"]["write"], "bytes"), MIB);
    let (beside, short) = (&sections[1], &sections[2]);
    assert!((900_000_000..5_000_000_000).contains(&number(short, "duration_ns")), "{short}");
    // It also ran during the ramp of the section `short`.
    assert!((1_400_000_000..8_000_000_000).contains(&number(beside, "duration_ns")), "{beside}");
    let started = |section: &Value| number(&section["jobs"][0], "started_ms");
    assert!(started(beside) >= started(&sections[0]) + number(&sections[0], "duration_ns") / 1_000_000);
    assert!(started(short) >= started(beside) + 400, "the clock of a job starts after its ramp");
}

#[test]
fn a_job_file_that_writes_needs_the_same_words() {
    let dir = Dir::new("file-refused");
    let path = dir.file("data", MIB);
    let before = fs::read(&path).unwrap();
    let jobs = job_file(&dir, &format!("[w]\nfilename={path}\nrw=write\nbs=4k\n"));
    for (words, expected) in [(vec![], "--write"), (vec!["--write"], "--overwrite")] {
        let output = biopsy(&[&[jobs.as_str()], &words[..]].concat()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 3)) && error.contains(expected), "{error}");
    }
    assert!(before == fs::read(&path).unwrap());
}

#[test]
fn fio_s_own_converter_takes_the_buckets() {
    let dir = Dir::new("converter");
    if Command::new("fio_jsonplus_clat2csv").arg("--help").output().is_err() {
        skipped("fio_jsonplus_clat2csv is not installed");
        return;
    }
    let path = dir.file("data", 4 * MIB);
    let (result, table) = (dir.join("out.json"), dir.join("out.csv"));
    let status = Command::new(env!("CARGO_BIN_EXE_biopsy"))
        .args(["load", &path, "--write", "--overwrite", &path, "--rw=randrw", "--ioengine=libaio"])
        .args(["--runtime=300ms", "--output-format=json+", "-o", &result])
        .status()
        .unwrap();
    assert!(status.success());
    let output = Command::new("fio_jsonplus_clat2csv").args([&result, &table]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fio: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    let table = fs::read_to_string(dir.join("out_job0.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let heads = lines.next().unwrap();
    for direction in ["read", "write"] {
        let column = heads.iter().position(|head| *head == format!("{direction}_clat_ns_count")).unwrap();
        let ios: u64 = lines.clone().filter_map(|fields| fields[column].parse::<u64>().ok()).sum();
        assert!(ios > 0);
        assert_eq!(ios, number(&fio["jobs"][0][direction]["clat_ns"], "N"), "{direction}");
        assert_eq!(ios, number(&fio["jobs"][0][direction], "total_ios"), "{direction}");
    }
}

/// The result may not be written to a file of the load, or to a disk.
#[test]
fn the_result_is_not_written_onto_a_target() {
    let dir = Dir::new("onto");
    let path = dir.file("data", MIB);
    let before = fs::read(&path).unwrap();
    let output = biopsy(&[&path, "--runtime=100ms", "-o", &path]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("is a target of the load"), "{error}");
    assert!(before == fs::read(&path).unwrap());
}

/// A job with exitall ends the jobs that run in parallel, but not those that start later.
#[test]
fn exitall_spares_what_comes_behind_a_stonewall() {
    let dir = Dir::new("exitall");
    let path = dir.file("data", MIB);
    let jobs = job_file(
        &dir,
        &format!(
            "[global]\nfilename={path}\nrw=randread\ndirect=1\ntime_based\n\
         [a]\nruntime=1\nexitall\n[b]\nruntime=20\n[c]\nstonewall\nruntime=1\n"
        ),
    );
    let all = run(&[&jobs]);
    let sections = all["sections"].as_array().unwrap();
    assert!(number(&sections[1], "duration_ns") < 5_000_000_000, "{}", sections[1]);
    assert!(number(&sections[2], "ios") > 0, "{}", sections[2]);
}

/// How often each file is written and synced, as strace shows it. None: strace is not installed.
fn syncs_of(dir: &Dir, how: &[&str], files: [&str; 2]) -> Option<[(usize, usize); 2]> {
    let trace = dir.join("trace");
    let output = Command::new("strace")
        .args(["-f", "-y", "-o", &trace, "-e", "trace=pwrite64,fsync,fdatasync"])
        .arg(env!("CARGO_BIN_EXE_biopsy"))
        .arg("load")
        .args(how)
        .output();
    let Ok(output) = output else {
        skipped("strace is not installed");
        return None;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("ptrace") {
        skipped(format_args!("strace may not trace here: {error}"));
        return None;
    }
    assert!(output.status.success(), "{error}");
    let trace = fs::read_to_string(&trace).unwrap();
    Some(files.map(|file| {
        let name = format!("<{file}>");
        let count = |call: &str| {
            let calls = trace.lines().filter(|line| line.contains(&name) && line.contains(call));
            calls.filter(|line| !line.contains("resumed")).count()
        };
        (count("pwrite64("), count("sync("))
    }))
}

/// fio, too, counts the writes of all files together and syncs the files in turn.
#[test]
fn each_file_that_is_written_is_synced() {
    let dir = Dir::new("sync-files");
    let (p, q) = (dir.file("p", MIB), dir.file("q", MIB));
    for (every, each) in [("fsync=1", 8), ("fsync=2", 4), ("fdatasync=4", 2)] {
        let jobs = job_file(
            &dir,
            &format!(
                "[w]\nfilename={p}:{q}\nrw=randwrite\nbs=4k\nsize=64k\n{every}\nioengine=psync\ndirect=1\n"
            ),
        );
        // `size` is shared by the files of a job, as in fio.
        let words = [jobs.as_str(), "--write", "--overwrite", &p, "--overwrite", &q];
        let Some([first, second]) = syncs_of(&dir, &words, [&p, &q]) else { return };
        assert_eq!((first, second), ((8, each), (8, each)), "{every}");
    }
}

/// As in fio, the cache is dropped before each pass; otherwise all passes except the first would read memory.
#[test]
fn each_pass_reads_the_file_and_not_its_copy() {
    let dir = Dir::new("passes");
    let path = dir.file("data", 4 * MIB);
    let read = |invalidate: &str| {
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let how = ["--ioengine=psync", "--direct=0", "--bs=64k", "--rw=read", "--runtime=0", "--io_size=40m"];
        let output = Command::new("strace")
            .args(["-f", "-e", "trace=fadvise64"])
            .arg(env!("CARGO_BIN_EXE_biopsy"))
            .args(["load", &path, invalidate])
            .args(how)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let calls = String::from_utf8_lossy(&output.stderr).into_owned();
        Some(calls.lines().filter(|line| line.contains("POSIX_FADV_DONTNEED")).count())
    };
    let Some(dropped) = read("--invalidate=1") else {
        skipped("strace is not installed, or may not trace here");
        return;
    };
    assert_eq!(
        (dropped, read("--invalidate=0")),
        (10, Some(0)),
        "once before the run, and before nine more passes"
    );
}

#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    let output = biopsy(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
}

/// As fio 3.33 ran the same files.
#[test]
fn jobs_wait_for_each_other_and_end_their_group() {
    let dir = Dir::new("groups");
    let path = dir.file("data", MIB);
    let global = format!("[global]\nfilename={path}\nioengine=psync\nbs=4k\nrw=read\ntime_based\n");
    let sections = |text: &str| {
        let jobs = job_file(&dir, &format!("{global}{text}"));
        let output = biopsy(&[&jobs]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json(&output)["sections"].as_array().unwrap().clone()
    };
    let ms = |section: &Value| number(section, "duration_ns") / 1_000_000;
    let all_ms = |sections: &[Value]| sections.iter().map(ms).collect::<Vec<_>>();
    let near = |section: &Value, wanted: u64| (wanted - 50..wanted + 400).contains(&ms(section));
    let chain = sections(
        "[a]\nnumjobs=2\nruntime=500ms\n[b]\nwait_for=a\nruntime=300ms\n[c]\nwait_for=b\nruntime=300ms\n",
    );
    let started = |section: &Value| number(&section["jobs"][0], "started_ms");
    for pair in chain.windows(2) {
        assert!(started(&pair[1]) >= started(&pair[0]) + ms(&pair[0]), "{:?}", all_ms(&chain));
    }
    let groups = "[a]\nruntime=500ms\nexitall\nWHAT\n[b]\nruntime=30\n[c]\nnew_group\nruntime=1\n[d]\nstonewall\nruntime=500ms\n";
    let of = |what: &str| sections(&groups.replace("WHAT", what));
    let group = of("");
    assert!(near(&group[1], 500) && near(&group[2], 1000) && near(&group[3], 500), "{:?}", all_ms(&group));
    let running = of("exit_what=stonewall");
    assert!(near(&running[2], 500) && near(&running[3], 500), "{:?}", all_ms(&running));
    let all = of("exit_what=all");
    assert!(near(&all[2], 500) && number(&all[3], "ios") == 0, "{:?}", all_ms(&all));
    let jobs = job_file(&dir, &format!("{global}runtime=1\n[a]\nwait_for=b\n[b]\n"));
    refused(&[&jobs], "no other job above it has this name");
}

/// The second job writes where the first one reads back, and waits for it.
#[test]
fn a_job_waits_for_the_read_back_of_another() {
    let dir = Dir::new("waits-back");
    let path = dir.file("data", 4 * MIB);
    let jobs = job_file(
        &dir,
        &format!(
            "[global]\nfilename={path}\nrw=write\nbs=4k\nverify=crc32c\n[a]\nnumjobs=2\n[b]\nwait_for=a\nnumjobs=2\n"
        ),
    );
    let patience = Patience::new(Duration::from_secs(30));
    let output = biopsy(&[&jobs, "--write", "--overwrite", &path]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    patience.holds();
    for section in json(&output)["sections"].as_array().unwrap() {
        assert_eq!(section["read_back"], "whole", "{section}");
    }
}

#[test]
fn the_engine_null_moves_all_of_a_size_that_no_file_has() {
    for depth in ["1", "16"] {
        let words = ["x", "--ioengine=null", "--size=100g", "--bs=1m", "--iodepth", depth, "--runtime=0"];
        let load = run(&[&words[..], &["--norandommap=0", "--rw=randwrite"]].concat());
        assert_eq!((number(&load, "ios"), number(&load, "bytes")), (102_400, 100 << 30), "{load}");
        // As in fio, with a depth of 1 all of the time is completion time.
        let slat = load["directions"]["write"]["slat"]["count"].as_u64().unwrap_or(0);
        assert_eq!(slat > 0, depth != "1", "{load}");
    }
    refused(&["x", "--ioengine=null"], "add --size");
    refused(
        &["x", "--ioengine=null", "--size=1m", "--verify=crc32c", "--rw=write"],
        "the engine null transfers nothing",
    );
}

/// The reads stay below the minimum rate, so that the job ends after the two seconds that fio waits, and one cycle.
#[test]
fn a_job_below_its_least_rate_ends() {
    let dir = Dir::new("floor");
    let path = dir.file("data", MIB);
    let words = ["--ioengine=psync", "--rw=read", "--thinktime=100ms", "--runtime=20"];
    let slow = [&[path.as_str()], &words[..], &["--rate_iops_min=1000", "--rate_cycle=500"]].concat();
    let patience = Patience::new(Duration::from_secs(15));
    let (_, error) = failed(&mut biopsy(&slow));
    assert!(error.contains("reads/s are below rate_iops_min=1000"), "{error}");
    patience.holds();
    let words = ["--ioengine=psync", "--rw=read", "--rate_iops=500", "--rate_iops_min=300", "--runtime=4"];
    let load = run(&[&[path.as_str()], &words[..]].concat());
    assert!(number(&load, "duration_ns") >= 4_000_000_000, "{load}");
}

/// Checks the shares of the reads by size, and the times of each priority.
#[test]
fn operations_have_priorities_of_their_own() {
    let dir = Dir::new("priorities");
    let path = dir.file("data", 16 * MIB);
    let words = ["--rw=randread", "--bssplit=4k/50:8k/50", "--number_ios=2000", "--iodepth=8"];
    let best_effort = ["--cmdprio_bssplit=4k/40/2/1:4k/60/3/0:8k/10", "--cmdprio_class=2", "--cmdprio=7"];
    for engine in ["libaio", "io_uring"] {
        let load = run(&[&[path.as_str(), "--ioengine", engine], &words[..], &best_effort[..]].concat());
        let priorities = load["directions"]["read"]["priorities"].as_array().unwrap();
        let of = |class: u64, level: u64| {
            let is_one = |one: &&Value| (&one["class"], &one["level"]) == (&class.into(), &level.into());
            priorities.iter().find(is_one).map_or(0, |one| number(&one["lat"], "count"))
        };
        let found = [of(2, 1), of(3, 0), of(2, 7)];
        let near = |at: usize, wanted: u64| found[at].abs_diff(wanted) < 100;
        assert!(near(0, 400) && near(1, 600) && near(2, 100), "{engine}: {found:?}");
        let all: u64 = priorities.iter().map(|one| number(&one["lat"], "count")).sum();
        assert_eq!((all, priorities.len()), (2000, 4), "{engine}: the others have that of their thread");
        let plain = run(&[&[path.as_str(), "--ioengine", engine], &words[..]].concat());
        assert!(plain["directions"]["read"].get("priorities").is_none());
    }
    refused(&[&path, "--ioengine=psync", "--cmdprio_percentage=10"], "is not supported by psync");
    refused(&[&path, "--prioclass=4"], "4 is not from 0 to 3");
}
