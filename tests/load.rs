//! `biopsy load` as a user meets it: the real binary, real files on a real disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A directory on the disk of the build, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("load-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// A file of `mib` MiB of which every byte is written.
    fn file(&self, name: &str, mib: usize) -> String {
        let mut file = File::create(self.join(name)).unwrap();
        let block: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        (0..mib).for_each(|_| file.write_all(&block).unwrap());
        file.sync_all().unwrap();
        self.join(name)
    }

    fn entries(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A second panic while a test fails would hide the first.
        let _kept = fs::remove_dir_all(&self.0);
    }
}

fn biopsy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_biopsy"));
    command.arg("load").args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    biopsy(arguments).output().unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// One sentence on stderr that contains `words`, nothing on stdout, this exit code.
#[track_caller]
fn refused(output: Output, code: i32, words: &[&str]) {
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert!(!error.contains("os error"), "{error}");
    assert!(output.stdout.is_empty());
}

/// Starts it and waits until its worker has read for a while.
fn started(arguments: &[&str]) -> Child {
    let child = biopsy(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    let begin = Instant::now();
    while fs::read_dir(&tasks).map_or(0, Iterator::count) < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not start to read");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    child
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child was started here and not waited for, so that its id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Runs it with `before` between fork and exec.
fn run_after(arguments: &[&str], before: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Output {
    let mut command = biopsy(arguments);
    // SAFETY: the closures of this file make system calls and nothing else.
    unsafe { command.pre_exec(before) };
    command.output().unwrap()
}

/// Takes a capability from root for good; others do not have it and are refused, which is fine.
fn drop_capability(number: libc::c_ulong) {
    // SAFETY: an operation with plain numbers.
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
    // It waits for the last completion, which a busy disk may delay.
    assert!((1_000_000_000..20_000_000_000).contains(&number("duration_ns")), "{}", number("duration_ns"));
    assert!(number("submits") <= number("ios") && number("reaps") <= number("ios"));
    let rate = number("ios") as f64 * 1e9 / number("duration_ns") as f64;
    assert!((load["iops"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9);
    let jobs = load["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs.iter().map(|j| j["ios"].as_u64().unwrap()).sum::<u64>(), number("ios"));
    assert_eq!(dir.entries(), 0);
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
    let path = dir.file("data", 4);
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
    assert_eq!(dir.entries(), 0);
}

#[test]
fn even_sigkill_leaves_nothing() {
    let dir = Dir::new("sigkill");
    let child = started(&[dir.path(), "--scratch", "--size", "16m", "--runtime", "60s"]);
    assert_eq!(dir.entries(), 0, "the file has no name while it is read");
    signal(&child, libc::SIGKILL);
    child.wait_with_output().unwrap();
    assert_eq!(dir.entries(), 0);
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let dir = Dir::new("closed");
    let path = dir.file("data", 1);
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
    // Not in the directory of the build: the path of a socket must be short.
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
    refused(run(&[&dir.file("data", 1), "--scratch"]), 2, &["is not a directory", "--scratch"]);
    refused(run(&["/proc/version"]), 3, &["no direct I/O"]);
    // tmpfs: newer kernels accept the flag and read from memory.
    if Path::new("/dev/shm").is_dir() {
        refused(run(&["/dev/shm", "--scratch", "--size", "1m"]), 3, &["/dev/shm", "no direct I/O"]);
    }
}

/// The disk of the build machine may have poll queues; a loop device never has.
#[test]
fn what_cannot_be_polled_is_refused() {
    let dir = Dir::new("unpollable");
    let Some(device) = loop_device(&dir.file("data", 1)) else { return };
    let output = run(&[&device, "--hipri", "--runtime", "100ms"]);
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    refused(output, 3, &["cannot be polled", "EOPNOTSUPP", "--hipri"]);
}

#[test]
fn sizes_that_do_not_fit_are_named() {
    let dir = Dir::new("sizes");
    let file = &dir.file("data", 1);
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
    assert_eq!(dir.entries(), 1);
}

#[test]
fn missing_permission_is_named() {
    const CAP_DAC_OVERRIDE: libc::c_ulong = 1;
    const CAP_DAC_READ_SEARCH: libc::c_ulong = 2;
    let dir = Dir::new("permission");
    let (path, sealed) = (dir.file("data", 1), dir.join("sealed"));
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
    let path = dir.file("data", 1);
    for (errno, word) in [(libc::EPERM, "io_uring"), (libc::ENOSYS, "not in this kernel or hidden")] {
        let forbid = move || {
            let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
            // The number of the system call is the first field; one step ahead if it is another one.
            let mut filter = [
                step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
                step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_io_uring_setup as u32),
                step(libc::BPF_RET, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
                step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
            ];
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            // SAFETY: the program lives until the call returns; the kernel keeps a copy.
            let done = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
            };
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        refused(run_after(&[&path], forbid), 3, &[word]);
    }
}

#[test]
fn too_little_locked_memory_costs_the_registration_only() {
    const CAP_IPC_LOCK: libc::c_ulong = 14;
    let dir = Dir::new("memlock");
    let path = dir.file("data", 4);
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
    let path = dir.file("data", 8);
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

/// Reads of a loop device that take several bios cannot be submitted without blocking: the kernel gives
/// them to worker threads, whose CPU time is the load's as well.
#[test]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells its CPU time")]
fn the_cpu_time_of_io_uring_s_workers_is_counted() {
    let dir = Dir::new("workers");
    let path = dir.file("disk", 64);
    let Some(device) = loop_device(&path) else { return };
    // What it says, and what the kernel says of all its threads.
    let run = |runtime: &str| -> (Value, u64) {
        let mut command = biopsy(&[&device, "--bs", "4m", "--iodepth", "8", "--runtime", runtime, "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdout, mut status) = (Vec::new(), 0);
        child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        // SAFETY: zeroed is a valid rusage, both structs live across the call, and the child was started
        // here and is waited for only here.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage);
            usage
        };
        assert_eq!(status, 0);
        let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        (serde_json::from_slice(&stdout).unwrap(), ns(usage.ru_utime) + ns(usage.ru_stime))
    };
    // The set-up is the main thread's: nearly all of a run that hardly loads anything.
    let (_, set_up) = run("1ms");
    let (load, kernel) = run("1s");
    Command::new("losetup").args(["-d", &device]).status().unwrap();
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"));
    let (all, rings) = (number(&load, "system_ns"), &load["ring_workers"]);
    if number(rings, "threads") == 0 {
        eprintln!("skipped: this kernel submits large reads of a loop device without its worker threads");
        return;
    }
    assert!(number(rings, "system_ns") > 0, "{rings}");
    assert_eq!(all, number(&load["jobs"][0], "system_ns") + number(rings, "system_ns"));
    // The kernel's total for the process has the main thread and the set-up on top.
    let told = all + number(&load, "user_ns");
    assert!(told <= kernel + 10_000_000, "{told} of {kernel} ns");
    // What a thread has run since its last tick (at least 100 a second) is not in its account yet, and on a
    // busy machine that is much of the little that it gets.
    let unaccounted = (number(rings, "threads") + 1) * 10_000_000;
    assert!(
        (told + unaccounted) * 10 >= kernel.saturating_sub(set_up) * 7,
        "{told} of {kernel} ns, {set_up} to set up, {unaccounted} at most unaccounted: {rings}"
    );
}

/// A loop device over a file; None, with a word on stderr, where none can be made.
fn loop_device(path: &str) -> Option<String> {
    let made = Command::new("losetup").args(["-f", "--show", path]).output();
    let Some(made) = made.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no loop device can be made here (root and losetup are needed)");
        return None;
    };
    Some(String::from_utf8(made.stdout).unwrap().trim().to_string())
}

/// A loop device whose backing file loses its bytes answers EIO, as a drive that was pulled out does.
#[test]
fn a_device_that_fails_ends_the_run_with_what_was_measured() {
    let dir = Dir::new("vanishes");
    let path = dir.file("disk", 8);
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
