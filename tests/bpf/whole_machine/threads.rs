//! Tests the states of threads on the running kernel against known averages and against `/proc`. Needs root.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::live::disk::Disk;
use crate::live::view::number;
use crate::support::patience::wait_for;
use crate::support::tool::{
    biopsy, finish, forget_copy, is_root, object, quiet, refused, run, without_rights,
};
use serde_json::Value;

const THREADS: &str = "biopsy.threads/1";

/// Child processes that are ended with the test.
struct Children(Vec<Child>);

impl Children {
    /// Each child waits for a pipe that is never written.
    fn blocked(n: usize) -> Self {
        let cat = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let all = Self((0..n).map(|_| cat()).collect());
        all.until(|pid| {
            fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|text| text.starts_with("0 "))
        });
        all
    }

    fn spinning(n: usize) -> Self {
        let spin = ["-n", "19", "timeout", "30", "sh", "-c", "while :; do :; done"];
        let all = Self((0..n).map(|_| Command::new("nice").args(spin).spawn().unwrap()).collect());
        // `nice` has become `timeout`, whose child spins.
        let spins = |pid: u32| {
            let child = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            fs::read_to_string(format!("/proc/{}/comm", child.trim())).is_ok_and(|comm| comm.trim() == "sh")
        };
        all.until(spins);
        all
    }

    fn until(&self, ready: impl Fn(u32) -> bool) {
        for child in &self.0 {
            wait_for("a child to be ready", Duration::from_secs(20), || ready(child.id()));
        }
    }

    /// `-p` for each pid.
    fn chosen(pids: &[u32]) -> Vec<String> {
        pids.iter().flat_map(|pid| ["-p".to_string(), pid.to_string()]).collect()
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `timeout` passes the signal on; `cat` ends by it.
            //
            // SAFETY: the child was started here and has not been waited for, so that its id is still its own.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
            let _ended = child.wait();
        }
    }
}

fn view(words: &[&str], more: &[String]) -> Value {
    let mut command = biopsy(&["threads", "--json"]);
    let output = finish(command.args(words).args(more).spawn().unwrap());
    quiet(&output);
    object(&output, THREADS)
}

fn rows<'a>(view: &'a Value, key: &str, value: &str) -> Vec<&'a Value> {
    view["threads"].as_array().unwrap().iter().filter(|row| row[key] == value).collect()
}

fn samples(rows: &[&Value]) -> u64 {
    rows.iter().map(|row| number(&row["samples"])).sum()
}

/// A thread that waits in clone() until its child has exited: only a fatal signal interrupts that wait, and it is no
/// I/O. The child lives until the writing end of a pipe is closed, or for a minute.
fn vforked(name: &str, (reader, writer): (i32, i32)) -> JoinHandle<()> {
    let wait = move || {
        let flags = libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: as for fork(): the child has memory of its own, and calls nothing but close, poll and _exit.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if child == 0 {
            // SAFETY: both descriptors are open, and `end` lives across the call.
            unsafe {
                libc::close(writer);
                let mut end = libc::pollfd { fd: reader, events: libc::POLLIN, revents: 0 };
                libc::poll(&raw mut end, 1, 60_000);
                libc::_exit(0);
            }
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        // SAFETY: this is our own child, which has exited; no status is requested.
        unsafe { libc::waitpid(child as libc::pid_t, std::ptr::null_mut(), 0) };
    };
    std::thread::Builder::new().name(name.to_string()).spawn(wait).unwrap()
}

/// Each sleeping reader is in every round, in the state and system call that `/proc` names.
#[test]
fn readers_of_a_pipe_are_where_proc_says() {
    if !is_root() {
        return;
    }
    let readers = Children::blocked(4);
    let view = view(&["--for", "2s", "--hz", "20", "--all"], &Children::chosen(&readers.pids()));
    let rounds = number(&view["rounds"]);
    assert!(rounds + number(&view["missed_rounds"]) >= 35 && rounds <= 40, "{view}");
    assert_eq!(view["source"], "bpf");
    let all = view["threads"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{view}");
    let row = &all[0];
    assert_eq!((row["comm"].as_str(), row["state"].as_str()), (Some("cat"), Some("S")));
    assert_eq!(row["syscall"], "read");
    assert_eq!((number(&row["samples"]), row["average_threads"].as_f64()), (4 * rounds, Some(4.0)));
    assert_eq!(row["error"].as_f64().unwrap_or(0.0), 0.0, "all of them in each round");
    let wchan = fs::read_to_string(format!("/proc/{}/wchan", readers.0[0].id())).unwrap();
    assert_eq!(row["wchan"].as_str(), Some(wchan.as_str()));
    let stack = row["stack"].as_array().unwrap();
    assert!(
        stack.iter().any(|frame| frame.as_str().is_some_and(|name| name.ends_with("ksys_read"))),
        "{row}"
    );
    assert!(number(&view["lost"]["probes"]["threads"]["no_stack"]) == 0, "{view}");
}

/// A sleeping thread is skipped; a thread that spins is on a CPU or waits for one in every round.
#[test]
fn who_spins_is_on_a_cpu_or_waits_for_one() {
    if !is_root() {
        return;
    }
    let spinning = Children::spinning(3);
    let of = |pid: u32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let pids: Vec<u32> = spinning.pids().into_iter().map(|pid| of(pid).trim().parse().unwrap()).collect();
    let mut more = Children::chosen(&pids);
    let readers = Children::blocked(1);
    more.extend(Children::chosen(&readers.pids()));
    let view = view(&["--for", "2s", "-G", "comm,state"], &more);
    let rounds = number(&view["rounds"]);
    let row = rows(&view, "comm", "sh");
    assert_eq!((row.len(), row[0]["state"].as_str()), (1, Some("R")), "{view}");
    assert_eq!(samples(&row), 3 * rounds, "{view}");
    assert!(rows(&view, "comm", "cat").is_empty(), "{view}");
    let states = &view["states"];
    let (on_cpu, queue) = (number(&states["on_cpu"]["samples"]), number(&states["run_queue"]["samples"]));
    assert_eq!(on_cpu + queue, 3 * rounds);
    assert_eq!(number(&states["runnable"]["samples"]), 3 * rounds);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    assert!(on_cpu <= cpus * rounds, "{view}");
}

/// Waits that are neither I/O nor interruptible, in threads with hostile names.
#[test]
fn uninterruptible_threads_are_counted_under_harmless_names() {
    if !is_root() {
        return;
    }
    let (reader, writer) = std::io::pipe().unwrap();
    let ends = (reader.as_raw_fd(), writer.as_raw_fd());
    let names = ["vforked-1", "vforked-22", "vforked-3", "\x1b[31mevil;\n"];
    let threads: Vec<_> = names.iter().map(|name| vforked(name, ends)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let own = Children::chosen(&[std::process::id()]);
    let view = view(&["--for", "1s", "--comm", "vforked-*"], &own);
    let rounds = number(&view["rounds"]);
    let row = rows(&view, "comm", "vforked-*");
    assert_eq!((row.len(), samples(&row)), (1, 3 * rounds), "{view}");
    assert_eq!((row[0]["state"].as_str(), row[0]["syscall"].as_str()), (Some("D"), Some("clone")));
    assert_eq!(number(&view["states"]["uninterruptible"]["samples"]), 3 * rounds);
    assert_eq!(number(&view["states"]["io_wait"]["samples"]), 0);

    let output = finish(biopsy(&["threads", "--for", "500ms"]).args(&own).spawn().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b') && text.contains("\\u{1b}[*mevil;\\u{a}"), "{text}");
    let output =
        finish(biopsy(&["threads", "--for", "500ms", "--stacks", "folded"]).args(&own).spawn().unwrap());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("missed 0 I/Os") && said.contains("cost "), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\\x1b[*mevil\\x3b\\x0a;") && !text.contains('\x1b'), "{text}");
    for line in text.lines() {
        assert!(line.rsplit_once(' ').is_some_and(|(_, n)| n.parse::<u64>().is_ok()), "{line}");
    }
    let output =
        finish(biopsy(&["threads", "--for", "500ms", "--stacks", "flame"]).args(&own).spawn().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("<?xml") && text.contains("vforked-*") && !text.contains('\x1b'), "{text}");
    drop(writer);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Synchronous readers wait for the disk that they read, and for no other.
#[test]
fn who_waits_for_a_disk_is_counted_under_its_name() {
    let Some(disk) = Disk::new(64) else { return };
    let name = disk.path.trim_start_matches("/dev/").to_string();
    let load =
        ["load", "--no-drive-check", &disk.path, "--ioengine", "psync", "--numjobs", "3", "--runtime", "8s"];
    let mut load = Children(vec![biopsy(&load).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()]);
    std::thread::sleep(Duration::from_millis(500));
    let view = view(&["-d", &name, "--for", "3s", "--hz", "50", "-G", "state,syscall,device"], &[]);
    let row = rows(&view, "device", &name);
    assert!(!row.is_empty() && samples(&row) > 0, "{view}");
    assert_eq!(samples(&row), number(&view["samples"]), "no other disk: {view}");
    assert!(row.iter().all(|row| row["state"] == "D" && row["syscall"] == "pread64"), "{view}");
    let average = view["states"]["io_wait"]["average_threads"].as_f64().unwrap();
    assert!(average > 0.0 && average <= 3.0, "{view}");
    assert_eq!(number(&view["io_waits"][0]["devices"][&name]), number(&view["io_waits"][0]["samples"]));
    assert!(load.0[0].try_wait().unwrap().is_none(), "the load was there all the time");
}

#[test]
fn without_rights_the_files_tell_less_and_say_so() {
    let readers = Children::blocked(2);
    let more = Children::chosen(&readers.pids());
    let words = ["threads", "--json", "--for", "2s", "--all"];
    let output = finish(without_rights(&words).args(&more).spawn().unwrap());
    quiet(&output);
    let view = object(&output, THREADS);
    let rounds = number(&view["rounds"]);
    assert_eq!((view["source"].as_str(), number(&view["hz"])), (Some("proc"), 2));
    assert!((3..=4).contains(&rounds), "{view}");
    let row = rows(&view, "comm", "cat");
    assert_eq!((row.len(), samples(&row), row[0]["state"].as_str()), (1, 2 * rounds, Some("S")), "{view}");
    assert!(row[0]["stack"].as_array().unwrap().is_empty());
    let parts: Vec<&str> =
        view["missing"].as_array().unwrap().iter().filter_map(|m| m["part"].as_str()).collect();
    assert_eq!(parts, ["kstack", "on_cpu", "in_iowait", "device", "syscall"]);
    assert!(view["states"].get("on_cpu").is_none() && view["states"].get("io_wait").is_none(), "{view}");
    if is_root() {
        // The threads are root's, which the user nobody may not debug.
        assert_eq!(row[0]["syscall"], Value::Null);
        assert_eq!(number(&view["lost"]["probes"]["threads"]["unread"]), 2 * rounds);
    }
    let output = finish(without_rights(&["threads", "-G", "device", "--for", "1s"]).spawn().unwrap());
    refused(&output, 3, &["the device that a thread waits for", "CAP_BPF"]);
    forget_copy();
}

#[test]
fn wrong_words_are_one_sentence() {
    for words in [&["threads", "--hz", "0"][..], &["threads", "-G", "name"], &["threads", "--stacks", "json"]]
    {
        refused(&run(words), 2, &["--help"]);
    }
    refused(&run(&["threads", "--json", "--stacks", "flame"]), 2, &["--stacks"]);
    refused(&run(&["threads", "-G", "pid", "--stacks", "folded"]), 2, &["--stacks"]);
    refused(&run(&["threads", "-p", "4194304", "--for", "1s"]), 3, &["no process 4194304"]);
}
