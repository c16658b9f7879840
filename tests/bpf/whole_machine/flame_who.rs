//! Tests under which name a flame graph shows time: lock waits, kernel workers, and threads of an io_uring. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::live::disk::Disk;
use crate::live::folded::{can_see, folded, sum};
use crate::live::ring::{Flags, Ring};
use crate::support::programs::Folder;

/// Four threads that contend for their table of descriptors: three of four calls by the same function, as each call is
/// of the same kind. The functions make the system call themselves: libc's wrappers have no frame and hide their
/// callers.
const FIGHT: &str = r#"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
static long call(long number, long a) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noinline)) void often(void) {
    for (int i = 0; i < 300; i++) call(SYS_close, call(SYS_dup, 0));
}
__attribute__((noinline)) void rarely(void) {
    for (int i = 0; i < 100; i++) call(SYS_close, call(SYS_dup, 0));
}
static void *fight(void *none) {
    while (clock() < 3 * CLOCKS_PER_SEC) { often(); rarely(); }
    return none;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, fight, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

#[test]
fn a_wait_for_a_lock_is_that_of_the_function_that_asked() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("fight");
    folder.compile("fighter", FIGHT, &["-O0", "-fno-omit-frame-pointer", "-pthread"]);
    let (lines, _) = folded(&["--lock-wait", "--comm", "fighter"], &folder.path(""), "fighter");
    // Under other load the threads wait for other locks, too.
    let is_of_table = |stack: &str| stack.contains(";fighter;") && stack.contains("files");
    let all = sum(&lines, is_of_table);
    let of = |function: &str| {
        sum(&lines, |stack| is_of_table(stack) && stack.contains(&format!(";{function};"))) / all
    };
    let (often, rarely) = (of("often"), of("rarely"));
    println!("{all} ns: often {often:.3}, rarely {rarely:.3}");
    assert!(all > 1e6, "they waited: {lines:?}");
    assert!(often + rarely > 0.9, "the functions are named: {often} and {rarely} of {lines:?}");
    assert!((often - 0.75).abs() < 0.1, "{often} and {rarely}");
    // The lock is the root; then come the thread, its own code, and the kernel's code.
    let order = |stack: &str| {
        let at = |part: &str| stack.find(part);
        at(";fighter;") < at(";fight;") && at(";fight;") < at(";often;") && at(";often;") < at("_[k]")
    };
    assert!(lines.keys().filter(|stack| stack.contains(";often;")).all(|stack| order(stack)), "{lines:?}");
}

/// The name of a kernel worker has only its CPU: its time is shown under the disk that it reads for.
#[test]
fn a_worker_stands_under_what_it_works_on() {
    let Some(disk) = Disk::new(64) else { return };
    let folder = Folder::new("workers");
    let reads = format!("#!/bin/sh\nexec dd if={} of=/dev/null bs=4k iflag=direct status=none\n", disk.path);
    fs::write(folder.path("reads"), reads).unwrap();
    fs::set_permissions(folder.path("reads"), fs::Permissions::from_mode(0o755)).unwrap();
    for options in [&["-F", "4999"][..], &["--off-cpu", "--all-waits"]] {
        let (lines, _) = folded(options, &folder.path(""), "reads");
        // Since 87579e9b7d8d (5.13) the workers of loop are from a workqueue with the name of the disk.
        let root = format!("kworkers for {};", disk.name);
        let its = lines.keys().filter(|stack| stack.starts_with(&root)).count();
        let is_worker = |stack: &str| stack.contains(";worker_thread_[k]");
        let stray: Vec<&String> =
            lines.keys().filter(|stack| is_worker(stack) && !stack.starts_with("kworkers ")).collect();
        // The worker reads memory, and does not sleep in between.
        let works = its > 0 || options.contains(&"--off-cpu");
        let idle = lines.keys().any(|stack| stack.starts_with("kworkers without work;"));
        assert!(works && (idle || its > 0) && stray.is_empty(), "{options:?}: {its}, {stray:?} of {lines:?}");
    }
}

/// CPU time and waits of io_uring's own threads belong to the process whose ring they serve.
#[test]
fn threads_of_a_ring_stand_with_its_process() {
    let Some(disk) = Disk::new(64) else { return };
    let folder = Folder::new("rings");
    // A kernel thread submits the requests.
    let load = format!(
        "#!/bin/sh\nexec {} load {} --runtime 2 --sqthread_poll 1 --json\n",
        env!("CARGO_BIN_EXE_biopsy"),
        disk.path
    );
    fs::write(folder.path("polled"), load).unwrap();
    fs::set_permissions(folder.path("polled"), fs::Permissions::from_mode(0o755)).unwrap();
    for what in [&["--on-cpu"][..], &["--off-cpu", "--all-waits"]] {
        let (lines, _) = folded(what, &folder.path(""), "polled");
        is_under(&lines, "biopsy;[io_uring sqpoll];");
    }
    // Workers run requests of a process: here of this one.
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let worker = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let ring = Ring::new(&disk);
            while !stop.load(Ordering::Relaxed) {
                ring.submit(Flags::ASYNC);
                ring.enter(1, 1);
                ring.fetch();
            }
            disk
        })
    };
    fs::write(folder.path("waits"), "#!/bin/sh\nexec sleep 2\n").unwrap();
    fs::set_permissions(folder.path("waits"), fs::Permissions::from_mode(0o755)).unwrap();
    let pid = std::process::id().to_string();
    let seen = [&["--on-cpu"][..], &["--off-cpu", "--all-waits"]]
        .map(|what| folded(&[what, &["--pid", &pid]].concat(), &folder.path(""), "waits").0);
    stop.store(true, Ordering::Relaxed);
    drop(worker.join());
    for lines in seen {
        is_under(&lines, &format!("{};[io_uring workers];", comm.trim()));
    }
}

#[track_caller]
fn is_under(lines: &BTreeMap<String, u64>, root: &str) {
    let with = lines.keys().filter(|stack| stack.starts_with(root)).count();
    let bare: Vec<&String> = lines.keys().filter(|stack| stack.starts_with("iou-")).collect();
    assert!(with > 0 && bare.is_empty(), "{with} under {root}, {bare:?} of {lines:?}");
}

/// Each process reads one block in a function of its own, and exits at once.
const BRIEF: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static char block[8192];
__attribute__((noinline)) long read_in_child(long fd) {
    long result;
    register long offset __asm__("r10") = 0;
    char *aligned = (char *)(((unsigned long)block + 4095) & ~4095ul);
    __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_pread64), "D"(fd), "S"(aligned), "d"(4096), "r"(offset)
        : "rcx", "r11", "memory");
    return result;
}
int main(int none, char **words) {
    int fd = open(words[1], O_RDONLY | O_DIRECT);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (!child) _exit(read_in_child(fd) != 4096);
        int status;
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    return 0;
}
"#;

#[test]
fn an_io_is_that_of_the_function_of_a_process_that_ended_at_once() {
    let Some(disk) = Disk::new(64) else { return };
    let folder = Folder::new("brief-io");
    folder.compile("forks", BRIEF, &["-O0", "-fno-omit-frame-pointer"]);
    let script = format!("#!/bin/sh\nexec {} {}\n", folder.path("forks").display(), disk.path);
    fs::write(folder.path("brief"), script).unwrap();
    fs::set_permissions(folder.path("brief"), fs::Permissions::from_mode(0o755)).unwrap();
    let (lines, _) =
        folded(&["--io", "--device", &disk.name, "--max-cost", "100"], &folder.path(""), "brief");
    let all = sum(&lines, |stack| stack.starts_with("forks;"));
    let named = sum(&lines, |stack| stack.starts_with("forks;") && stack.contains(";read_in_child;"));
    println!("{named} of {all} ns");
    assert!(all > 0.0 && named >= 0.95 * all, "{named} of {all} ns: {lines:?}");
}
