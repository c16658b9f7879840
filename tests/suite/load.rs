//! Tests `biopsy load` as a user runs it: the real binary on real files of a real disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::command::child::{signal, threads, wait_for};
use crate::command::{biopsy, json, refused, run};
use crate::disk::{Dir, MIB};
use crate::support::seccomp::forbid;
use crate::support::skip::skipped;

fn entries(dir: &Dir) -> usize {
    fs::read_dir(dir.path()).unwrap().count()
}

/// Starts a load and waits until its worker has read for a while.
fn started(arguments: &[&str]) -> Child {
    let child = biopsy(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the reader", || threads(&child) > 1);
    std::thread::sleep(Duration::from_millis(500));
    child
}

/// Runs a load with `before` called between fork and exec.
fn run_after(arguments: &[&str], before: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Output {
    let mut command = biopsy(arguments);
    // SAFETY: the closures of this file make system calls and nothing else.
    unsafe { command.pre_exec(before) };
    command.output().unwrap()
}

/// Drops a capability of root for good. Other users do not have it, and the call fails for them, which does not matter.
fn drop_capability(number: libc::c_ulong) {
    // SAFETY: a prctl operation with plain numbers.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
}

#[test]
fn a_scratch_run_adds_up_and_leaves_nothing() {
    let dir = Dir::new("scratch");
    let output =
        run(&[dir.path(), "--scratch", "--size", "64m", "--runtime", "1s", "--numjobs", "2", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let load = json(&output);
    assert_eq!(load["schema"], "biopsy.load/1");
    let number = |key: &str| load[key].as_u64().unwrap_or_else(|| panic!("{key}: {}", load[key]));
    assert!(number("ios") > 0);
    assert_eq!(number("ios") * 4096, number("bytes"));
    assert_eq!(load["latency"]["count"], load["ios"]);
    assert_eq!(load["errors"], 0);
    assert_eq!(load["fill"]["bytes"], 64 << 20);
    // The run waits for the last completion, which a busy disk may delay.
    assert!((1_000_000_000..20_000_000_000).contains(&number("duration_ns")), "{}", number("duration_ns"));
    assert!(number("submits") <= number("ios") && number("reaps") <= number("ios"));
    let rate = number("ios") as f64 * 1e9 / number("duration_ns") as f64;
    assert!((load["iops"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
    let jobs = load["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs.iter().map(|j| j["ios"].as_u64().unwrap()).sum::<u64>(), number("ios"));
    assert_eq!(entries(&dir), 0);
}

#[test]
fn text_names_every_figure() {
    let dir = Dir::new("text");
    let workload = ["--rw", "read", "--bs", "64k", "--iodepth", "4", "--runtime", "300ms"];
    let output = run(&[&[dir.path(), "--scratch", "--size", "16m"], &workload[..]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in ["target", "fill", "IOPS", "bandwidth", "per submit", "per reap", "CPU", "p99.9", "latency"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    assert!(output.stderr.is_empty(), "no progress where stderr is no terminal");
}

#[test]
fn what_is_read_stays_as_it_was() {
    let dir = Dir::new("unchanged");
    let path = dir.file("data", 4 * MIB);
    let (before, mtime) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().mtime_nsec());
    symlink(&path, dir.join("link")).unwrap();
    let load = json(&run(&[&dir.join("link"), "--runtime", "200ms", "--json"]));
    assert_eq!(load["target"].as_str(), fs::canonicalize(&path).unwrap().to_str());
    assert_eq!(load["fill"], Value::Null);
    assert!(load["ios"].as_u64().unwrap() > 0);
    assert!(before == fs::read(&path).unwrap());
    assert_eq!(mtime, fs::metadata(&path).unwrap().mtime_nsec());
}

#[test]
fn an_early_end_is_a_result() {
    let dir = Dir::new("sigint");
    let child = started(&[dir.path(), "--scratch", "--size", "16m", "--runtime", "60s", "--json"]);
    signal(&child, libc::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let load = json(&output);
    assert!(load["ios"].as_u64().unwrap() > 0);
    assert!(load["duration_ns"].as_u64().unwrap() < 30_000_000_000);
    assert_eq!(entries(&dir), 0);
}

#[test]
fn even_sigkill_leaves_nothing() {
    let dir = Dir::new("sigkill");
    let child = started(&[dir.path(), "--scratch", "--size", "16m", "--runtime", "60s"]);
    assert_eq!(entries(&dir), 0, "the file has no name while it is read");
    signal(&child, libc::SIGKILL);
    child.wait_with_output().unwrap();
    assert_eq!(entries(&dir), 0);
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let dir = Dir::new("closed");
    let path = dir.file("data", MIB);
    let mut command = biopsy(&[&path, "--runtime", "200ms"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn targets_that_cannot_be_read_are_named() {
    let dir = Dir::new("targets");
    refused(run(&[&dir.join("nothing")]), 3, &["nothing does not exist", "--scratch"]);
    refused(run(&[&dir.join("nothing"), "--scratch"]), 3, &["nothing does not exist: name a directory"]);
    refused(run(&[dir.path()]), 2, &["is a directory", "--scratch"]);
    refused(run(&["/dev/null"]), 2, &["/dev/null is a character device"]);
    // Not in the directory of the build, since the path of a socket must be short.
    let socket = std::env::temp_dir().join(format!("biopsy-load-{}.socket", std::process::id()));
    let _listener = UnixListener::bind(&socket).unwrap();
    refused(run(&[socket.to_str().unwrap()]), 2, &["is a socket"]);
    fs::remove_file(&socket).unwrap();
    let fifo = std::ffi::CString::new(dir.join("fifo")).unwrap();
    // SAFETY: a C string and a mode.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    refused(run(&[&dir.join("fifo")]), 2, &["is a FIFO"]);
    File::create(dir.join("empty")).unwrap();
    refused(run(&[&dir.join("empty")]), 2, &["is empty"]);
    refused(run(&[&dir.file("data", MIB), "--scratch"]), 2, &["is not a directory", "--scratch"]);
    refused(run(&["/proc/version"]), 3, &["no direct I/O"]);
    // tmpfs: newer kernels accept O_DIRECT and read from memory.
    if Path::new("/dev/shm").is_dir() {
        refused(run(&["/dev/shm", "--scratch", "--size", "1m"]), 3, &["/dev/shm", "no direct I/O"]);
    }
}

/// The disk of the build machine may have poll queues; a loop device never has.
#[test]
fn what_cannot_be_polled_is_refused() {
    let dir = Dir::new("unpollable");
    let Some(device) = loop_device(&dir.file("data", MIB)) else { return };
    let output = run(&[&device, "--hipri", "--runtime", "100ms"]);
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    let named = format!("reads of {device} cannot be polled");
    refused(output, 3, &[&named, "EOPNOTSUPP", "--hipri"]);
}

#[test]
fn sizes_that_do_not_fit_are_named() {
    let dir = Dir::new("sizes");
    let file = &dir.file("data", MIB);
    refused(run(&[file, "--bs", "1000"]), 2, &["1000 is not a multiple of", "--bs"]);
    refused(run(&[file, "--bs", "2m"]), 2, &["above the 1048576 bytes", "--bs"]);
    refused(run(&[file, "--size", "2m"]), 2, &["--size 2097152", "leave it out"]);
    refused(run(&[file, "--size", "2k"]), 2, &["above the 2048 bytes"]);
    refused(run(&[file, "--bs", "1g", "--iodepth", "4096", "--numjobs", "64"]), 2, &["memory", "--iodepth"]);
    let space = ["too little space", "needs 1099512701517824", "available", "--size", "another directory"];
    refused(run(&[dir.path(), "--scratch", "--size", "1000t"]), 3, &space);
    refused(run(&[file, "--size", "0"]), 2, &["'--size <SIZE>': a size must be above 0"]);
    refused(run(&[file, "--bs", "0"]), 2, &["'--bs <SIZE>': a size must be above 0"]);
    refused(run(&[file, "-o", "/nonexistent/x"]), 2, &["cannot write /nonexistent/x", "-o"]);
    assert_eq!(entries(&dir), 1);
}

#[test]
fn missing_permission_is_named() {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    let dir = Dir::new("permission");
    let (path, sealed) = (dir.file("data", MIB), dir.join("sealed"));
    fs::create_dir(&sealed).unwrap();
    for closed in [&path, &sealed] {
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let like_others = || {
        drop_capability(CAP_DAC_OVERRIDE);
        drop_capability(CAP_DAC_READ_SEARCH);
        Ok(())
    };
    refused(run_after(&[&path], like_others), 3, &["no permission to read", "root"]);
    let scratch = [sealed.as_str(), "--scratch", "--size", "1m"];
    refused(run_after(&scratch, like_others), 3, &["no permission", "sealed"]);
}

#[test]
fn io_uring_that_is_forbidden_or_absent_is_named() {
    let dir = Dir::new("seccomp");
    let path = dir.file("data", MIB);
    for (errno, word) in [(libc::EPERM, "io_uring"), (libc::ENOSYS, "this kernel has no io_uring")] {
        let forbid = move || forbid(libc::SYS_io_uring_setup, &[], errno);
        refused(run_after(&[&path], forbid), 3, &[word]);
    }
}

#[test]
fn too_little_locked_memory_costs_the_registration_only() {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let dir = Dir::new("memlock");
    let path = dir.file("data", 4 * MIB);
    let limit = || {
        drop_capability(CAP_IPC_LOCK);
        let limit = libc::rlimit { rlim_cur: 65536, rlim_max: 65536 };
        // SAFETY: the struct lives until the call returns.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
        Ok(())
    };
    let load = json(&run_after(&[&path, "--runtime", "200ms", "--json"], limit));
    assert!(load["ios"].as_u64().unwrap() > 0);
    let why = load["missing"][0]["why"].as_str().unwrap();
    assert!(why.contains("registered buffers") && why.contains("RLIMIT_MEMLOCK"), "{why}");
}

#[test]
fn a_file_that_shrinks_ends_the_run_with_what_was_measured() {
    let dir = Dir::new("shrinks");
    let path = dir.file("data", 8 * MIB);
    let child = started(&[&path, "--runtime", "60s", "--json"]);
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("became shorter during the run") && error.lines().count() == 1, "{error}");
    let load = json(&output);
    assert!(load["ios"].as_u64().unwrap() > 0);
    assert!(load["errors"].as_u64().unwrap() >= 1_000);
    assert!(load["duration_ns"].as_u64().unwrap() < 30_000_000_000);
}

/// Reads of a loop device that take several bios cannot be submitted without blocking. The kernel gives them to worker
/// threads, whose CPU time belongs to the load.
#[test]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells its CPU time")]
fn the_cpu_time_of_io_uring_s_workers_is_counted() {
    let dir = Dir::new("workers");
    let path = dir.file("disk", 64 * MIB);
    let Some(device) = loop_device(&path) else { return };
    // The load's result, and the CPU time of all its threads by the kernel.
    let run = |runtime: &str| -> (Value, u64) {
        let words = ["--bs", "4m", "--iodepth", "8", "--runtime", runtime, "--no-drive-check", "--json"];
        let mut command = biopsy(&[&[device.as_str()], &words[..]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut status) = (Vec::new(), 0);
        child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        // SAFETY: zeroed is a valid rusage, both structs live across the call, and the child was started here and is
        // waited for only here.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage);
            usage
        };
        assert_eq!(status, 0);
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        (serde_json::from_slice(&stdout).unwrap(), ns(usage.ru_utime) + ns(usage.ru_stime))
    };
    // The main thread does the set-up, which is nearly all of so short a run.
    let (_, set_up) = run("1ms");
    let (load, kernel) = run("1s");
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"));
    let (all, rings) = (number(&load, "system_ns"), &load["ring_workers"]);
    if number(rings, "threads") == 0 {
        skipped("this kernel submits large reads of a loop device without its worker threads");
        return;
    }
    assert!(number(rings, "system_ns") > 0, "{rings}");
    assert_eq!(all, number(&load["jobs"][0], "system_ns") + number(rings, "system_ns"));
    // The kernel's total for the process also includes the main thread and the set-up.
    let told = all + number(&load, "user_ns");
    assert!(told <= kernel + 10_000_000, "{told} of {kernel} ns");
    // What a thread has run since its last tick (at least 100 per second) is not in its account yet; on a busy machine
    // that is a large part of the little that it runs.
    let unaccounted = (number(rings, "threads") + 1) * 10_000_000;
    assert!(
        (told + unaccounted) * 10 >= kernel.saturating_sub(set_up) * 7,
        "{told} of {kernel} ns, {set_up} to set up, {unaccounted} at most unaccounted: {rings}"
    );
}

/// Makes a loop device over a file. None: it cannot be made, and the test is skipped.
fn loop_device(path: &str) -> Option<String> {
    let made = Command::new("losetup").args(["-f", "--show", path]).output();
    let Some(made) = made.ok().filter(|output| output.status.success()) else {
        skipped("no loop device can be made here (root and losetup are needed)");
        return None;
    };
    Some(String::from_utf8(made.stdout).unwrap().trim().to_string())
}

/// A trim is a system call of its own that waits: its time is in `clat`, and it has no submission time.
#[test]
fn trims_of_a_device_take_their_time_in_clat() {
    let dir = Dir::new("trims");
    let Some(device) = loop_device(&dir.file("disk", 8 * MIB)) else { return };
    let name = device.trim_start_matches("/dev/");
    let trims = ["--write", "--destroy-data-on", name, "--rw=trim", "--bs=64k", "--iodepth=4", "--runtime=0"];
    let outputs = ["io_uring", "libaio"].map(|engine| {
        let how = ["--output-format=json", "--ioengine", engine];
        run(&[&[device.as_str()], &trims[..], &how[..]].concat())
    });
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    for output in outputs {
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("not supported") || error.contains("cannot be examined") {
            skipped(&error);
            return;
        }
        assert!(output.status.success(), "{error}");
        let trim = &json(&output)["jobs"][0]["trim"];
        assert_eq!((&trim["total_ios"], &trim["clat_ns"]["N"]), (&128.into(), &128.into()), "{trim}");
        assert_eq!(trim["slat_ns"]["N"], 0, "{trim}");
        assert!(
            trim["clat_ns"]["min"].as_u64() > Some(500)
                && trim["clat_ns"]["percentile"]["50.000000"].is_u64(),
            "{trim}"
        );
    }
}

/// A loop device whose backing file is cut returns EIO, as a drive that was removed does.
#[test]
fn a_device_that_fails_ends_the_run_with_what_was_measured() {
    let dir = Dir::new("vanishes");
    let path = dir.file("disk", 8 * MIB);
    let Some(device) = loop_device(&path) else { return };
    let child = started(&[&device, "--runtime", "60s", "--json"]);
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let output = child.wait_with_output().unwrap();
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{error}");
    let name = device.strip_prefix("/dev/").unwrap();
    assert!(error.contains(name) && error.contains("vanished"), "{error}");
    let load = json(&output);
    assert_eq!(load["device"], name);
    assert!(load["ios"].as_u64().unwrap() > 0);
}

/// The numbers of the 4 KiB blocks that have changed in a file of [`Dir::file`].
fn changed(path: &str) -> Vec<u64> {
    let now = fs::read(path).unwrap();
    let as_made = |(at, byte): (usize, &u8)| *byte == (at % 4096 % 255 + 1) as u8;
    let blocks = now.chunks(4096).zip(0..);
    blocks.filter(|(block, _)| !block.iter().enumerate().all(as_made)).map(|(_, number)| number).collect()
}

#[test]
fn nothing_is_written_behind_a_filesize() {
    let dir = Dir::new("filesize");
    for rw in ["write", "randwrite"] {
        let path = dir.file(rw, 4 * MIB);
        let part = ["--filesize=1m", "--numjobs=2", "--offset_increment=512k", "--runtime=0"];
        let how = ["--rw", rw, "--norandommap=0", "--write", "--overwrite", &path];
        let load = json(&run(&[&[path.as_str(), "--json"], &part[..], &how[..]].concat()));
        // As fio 3.33 did: the second thread has the remaining half.
        assert_eq!(load["bytes"], 3 * MIB / 2, "{rw}");
        assert_eq!(changed(&path), (0..256).collect::<Vec<u64>>(), "{rw}");
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 * MIB);
        let third = ["--numjobs=3"];
        let path = dir.file(rw, 4 * MIB);
        let said = run(&[&[path.as_str()], &part[..], &how[..], &third].concat());
        refused(said, 2, &["offset 1048576 leaves nothing of the filesize of 1048576 bytes"]);
        assert!(changed(&path).is_empty(), "{rw}");
    }
}

/// An existing file that cannot be extended is left unchanged, and so are the files that were extended before it.
#[test]
fn a_file_that_cannot_grow_is_as_it_was() {
    let dir = Dir::new("grow");
    let small = dir.join("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "small", &small]).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        skipped("no tmpfs can be mounted here (root is needed)");
        return;
    }
    let files = ["a", "b"].map(|name| format!("{small}/{name}"));
    let as_it_is = || {
        let used = |path: &String| fs::metadata(path).map(|file| (file.len(), file.blocks())).unwrap();
        let path = std::ffi::CString::new(small.as_str()).unwrap();
        // SAFETY: a C string, and zeroed is a valid statvfs, which lives until the call returns.
        let free = unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::statvfs(path.as_ptr(), &mut room), 0);
            room.f_bfree
        };
        (files.each_ref().map(used), free)
    };
    let done = std::panic::catch_unwind(|| {
        for path in &files {
            fs::write(path, [7; 10_000]).unwrap();
        }
        let before = as_it_is();
        let how = |each| ["--direct=0", "--rw=write", "--runtime=0", "--write", "--size", each];
        let one = [files[0].as_str(), "--overwrite", &files[0]];
        let two = [&files[0], &files[1], "--overwrite", &files[0], "--overwrite", &files[1]]
            .map(|word| word as &str);
        let words = ["no space left", "10000 bytes as before", "--size"];
        refused(run(&[&one[..], &how("8m")].concat()), 3, &words);
        assert_eq!(as_it_is(), before, "one that is too long");
        refused(run(&[&two[..], &how("600k")].concat()), 3, &words);
        assert_eq!(as_it_is(), before, "two, of which one has room");
        // A refusal that comes after the files were extended.
        refused(run(&[&one[..], &how("600k"), &["--bs=800k"]].concat()), 2, &["block size 819200"]);
        assert_eq!(as_it_is(), before, "a block that does not fit");
        assert!(files.iter().all(|path| fs::read(path).unwrap() == [7; 10_000]));
    });
    Command::new("umount").args(["-l", &small]).status().unwrap();
    done.unwrap();
}

/// As in fio: a device cannot be extended.
#[test]
fn a_size_beyond_a_device_ends_with_it() {
    let dir = Dir::new("beyond");
    let Some(device) = loop_device(&dir.file("data", MIB)) else { return };
    let ended = |words: &[&str]| run(&[&[device.as_str(), "--runtime=0", "--json"], words].concat());
    let [size, filesize, random] = [
        ended(&["--rw=read", "--size=100g"]),
        ended(&["--rw=read", "--filesize=900g", "--offset=512k"]),
        ended(&["--rw=randread", "--size=3m"]),
    ];
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    for (output, ios, word) in [(size, 256, "size"), (filesize, 128, "filesize"), (random, 768, "size")] {
        let load = json(&output);
        assert!(output.status.success() && load["ios"] == ios, "{word}: {load}");
        let missing = load["missing"].as_array().unwrap().iter().map(|line| line["why"].as_str().unwrap());
        let said = format!("{word}: {device} ends at 1048576");
        let from = format!("{word} from offset 524288 on: {device} ends at 1048576");
        assert!(missing.clone().any(|why| why.ends_with(&said) || why.ends_with(&from)), "{load}");
    }
}

#[test]
fn percent_of_io_size_are_of_what_is_used() {
    let dir = Dir::new("share");
    let path = dir.file("data", 4 * MIB);
    // The numbers that fio 3.33 counted.
    for (words, ios) in [
        (&["--io_size=50%"][..], 512),
        (&["--io_size=50%", "--size=50%"], 256),
        (&["--io_size=50%", "--offset=1m"], 384),
        (&["--io_size=50%", "--filesize=1m"], 128),
        (&["--io_size=50%", "--size=1m"], 128),
        (&["--filesize=1m", "--size=50%"], 128),
    ] {
        for rw in ["read", "randread"] {
            let how = ["--rw", rw, "--norandommap=0", "--runtime=0", "--json"];
            let load = json(&run(&[&[path.as_str()], words, &how[..]].concat()));
            assert_eq!(load["ios"], ios, "{rw} {words:?}");
        }
    }
}

#[test]
fn reads_that_end_with_the_file_say_so() {
    let dir = Dir::new("end");
    let path = dir.file("data", MIB);
    let how = ["--rw=randread", "--norandommap=0", "--runtime=0", "--json"];
    let load = json(&run(&[&[path.as_str(), "--size=100k", "--offset=1000k"], &how[..]].concat()));
    let why = load["missing"][0]["why"].as_str().unwrap();
    assert!(load["ios"] == 6 && why.starts_with("the last 77824 of the 102400 bytes of size"), "{load}");
    let whole = json(&run(&[&[path.as_str(), "--size=24k", "--offset=1000k"], &how[..]].concat()));
    assert!(whole["ios"] == 6 && whole["missing"].as_array().unwrap().is_empty(), "{whole}");
    refused(run(&[&path, "--filesize=2m"]), 2, &["--filesize 2097152 is above the 1048576 bytes"]);
}

#[test]
fn the_result_is_not_written_onto_the_job_file() {
    let dir = Dir::new("onto-jobs");
    let path = dir.join("jobs.fio");
    let text = format!("[a]\nfilename={}\nrw=read\n", dir.file("data", MIB));
    fs::write(&path, &text).unwrap();
    for words in [vec![path.as_str()], vec!["--jobfile", path.as_str()]] {
        refused(run(&[&words[..], &["-o", &path]].concat()), 2, &["jobs.fio is the job file"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
