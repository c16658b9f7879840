//! Waits for locks on the running kernel: as many as its own events, and the place of a known contention. Root.

mod live;
#[expect(dead_code, reason = "other tests grow machines")]
mod scratch;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use live::disk::Disk;
use live::tool::{biopsy, finish, object, objects, quiet, run, signal, stderr};
use live::view::number;
use scratch::Scratch;
use serde_json::Value;

const LOCKS: &str = "biopsy.locks/1";

/// The kernel's own count of the begins of waits: a trigger that adds them up, in an instance of its own.
struct Referee {
    mount: PathBuf,
    instance: PathBuf,
}

impl Referee {
    /// None where there is no tracefs, or no such event.
    fn new(name: &str) -> Option<Self> {
        let mount = std::env::temp_dir().join(format!("biopsy-{name}-{}", std::process::id()));
        fs::create_dir_all(&mount).ok()?;
        let mounted = Command::new("mount").args(["-t", "tracefs", "none"]).arg(&mount).status();
        if !mounted.is_ok_and(|status| status.success()) {
            let _gone = fs::remove_dir(&mount);
            return None;
        }
        let instance = mount.join("instances").join(name);
        let referee = Self { mount, instance };
        fs::create_dir(&referee.instance).ok()?;
        fs::write(referee.event().join("trigger"), "hist:keys=common_type").ok()?;
        Some(referee)
    }

    fn event(&self) -> PathBuf {
        self.instance.join("events/lock/contention_begin")
    }

    fn begins(&self) -> u64 {
        let text = fs::read_to_string(self.event().join("hist")).unwrap();
        let hits = text.lines().find_map(|line| line.trim().strip_prefix("Hits: ")).unwrap();
        hits.trim().parse().unwrap()
    }
}

impl Drop for Referee {
    fn drop(&mut self) {
        let _off = fs::write(self.event().join("trigger"), "!hist:keys=common_type");
        let _gone = fs::remove_dir(&self.instance);
        let _unmounted = Command::new("umount").arg(&self.mount).status();
        let _gone = fs::remove_dir(&self.mount);
    }
}

/// Threads that fight for the mutex of one pipe until this is dropped.
struct Pipe {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pipe {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
            // SAFETY: both descriptors are open; a full or empty pipe must not stop anybody.
            unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) };
        }
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..8)
            .map(|at| {
                let (mut reader, mut writer) = (reader.try_clone().unwrap(), writer.try_clone().unwrap());
                let stop = stop.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 512];
                    while !stop.load(Ordering::Relaxed) {
                        let _full_or_empty =
                            if at % 2 == 0 { writer.write(&bytes) } else { reader.read(&mut bytes) };
                    }
                })
            })
            .collect();
        Self { stop, threads }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn rows<'a>(view: &'a Value, list: &str) -> &'a Vec<Value> {
    view[list].as_array().unwrap()
}

fn sum(view: &Value, list: &str, key: &str) -> u64 {
    rows(view, list).iter().map(|one| number(&one[key])).sum()
}

/// What must be true of every view: all parts are of the same waits.
#[track_caller]
fn books_are_kept(view: &Value) {
    let (contentions, wait) = (number(&view["contentions"]), number(&view["wait_ns"]));
    for list in ["locks", "by_cpu"] {
        // The window is closed between the rows: a wait that ends just then is in one of them.
        let (all, ns) = (sum(view, list, "contentions"), sum(view, list, "wait_ns"));
        assert!(all.abs_diff(contentions) <= 8, "{list}: {all} of {contentions}");
        assert!(ns.abs_diff(wait) <= wait / 100 + 100_000_000, "{list}: {ns} of {wait}");
    }
    for lock in rows(view, "locks") {
        assert_eq!(lock["wait"]["count"], lock["contentions"]);
        assert_eq!(lock["wait"]["sum_ns"], lock["wait_ns"]);
        assert!(number(&lock["max_wait_ns"]) <= number(&lock["wait_ns"]), "{lock}");
    }
    let begins = &view["begins"];
    let by_kind: u64 = begins["by_kind"].as_object().unwrap().values().map(number).sum();
    assert_eq!(by_kind, number(&begins["total"]));
    assert!(number(&begins["repeats"]) + contentions <= by_kind, "{begins} {contentions}");
}

/// A window that lies within one count of the kernel's and around another.
#[test]
fn begins_are_the_kernels_own_events() {
    if !live::is_possible() {
        return;
    }
    let Some(referee) = Referee::new("begins_are_the_kernels_own_events") else {
        println!("skipped: no tracefs, or no lock events in it");
        return;
    };
    let _pipe = Pipe::new();
    let before = referee.begins();
    let mut child = biopsy(&["locks", "--for", "3s", "--max-loss", "100", "--json"]).spawn().unwrap();
    attached();
    // Within the window, as long as it is open.
    let from = referee.begins();
    thread::sleep(Duration::from_secs(2));
    let to = referee.begins();
    assert!(child.try_wait().unwrap().is_none(), "the window ended before the count");
    let view = object(&finish(child), LOCKS);
    let after = referee.begins();
    books_are_kept(&view);
    let (seen, lost) = (number(&view["begins"]["total"]), number(&view["lost"]["events"]));
    assert!(to - from > 1000, "{from} to {to}");
    assert!(
        to - from <= seen + lost && seen <= after - before,
        "{} <= {seen} + {lost}, {seen} <= {}",
        to - from,
        after - before
    );
    let place = rows(&view, "locks").iter().find(|lock| lock["name"] == "mutex of a pipe");
    let place = place.unwrap_or_else(|| panic!("no pipe: {view}"));
    assert_eq!((&place["kind"], &place["recognised_by"]), (&"mutex".into(), &"structure".into()));
    assert!(number(&place["contentions"]) > 100, "{place}");
    let frames = place["stacks"][0]["frames"].to_string();
    assert!(frames.contains("pipe_read") || frames.contains("pipe_write"), "{frames}");
    let own = rows(&view, "by_process").iter().find(|one| one["pid"] == std::process::id());
    assert!(own.is_some_and(|own| number(&own["contentions"]) > 100), "{}", view["by_process"]);
}

/// Until the programs of a tool that was just started count.
fn attached() {
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_there = || {
        let output = Command::new("bpftool").args(["link", "show"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("contention_begin")
    };
    while !is_there() {
        assert!(Instant::now() < deadline, "nothing was attached");
        thread::sleep(Duration::from_millis(20));
    }
    // The window opens right behind the last program.
    thread::sleep(Duration::from_millis(400));
}
