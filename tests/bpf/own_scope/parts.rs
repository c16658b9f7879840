//! Tests `biopsy latency --detail` with requests that serve several operations: the parts of a stage add up to it, to
//! the nanosecond, for requests and for operations. Needs root and loop devices.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::live::aio::Aio;
use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::ring::{Flags, Ring};
use crate::live::view::{View, brief, during, during_work_with, number};
use crate::support::tool::binary;
use serde_json::Value;

/// Runs one batch after the other by libaio.
fn iocbs(disk: &Disk, depth: usize, write: bool, block: impl Fn(i64) -> i64 + Copy) -> View {
    during_work_with(disk, &["--detail"], || {
        let mut aio = Aio::at(disk, depth, write, block);
        for _ in 0..100 {
            aio.submit();
            aio.fetch();
        }
    })
}

fn sum(of: &Value) -> u64 {
    of.as_object().unwrap().values().map(|times| number(&times["sum_ns"])).sum()
}

fn count(of: &Value) -> u64 {
    of["count"].as_u64().unwrap_or(0)
}

/// Checks that the parts of `queue` are as long as the stage, per request and per operation, and that no request or
/// operation lacks them. Returns how many requests and operations waited for an allocation.
#[track_caller]
fn filled(view: &View, disk: &Disk, op: &str, what: &str) -> (u64, u64) {
    let device = view.exact(disk);
    let of = &device["ops"][op];
    let last = if disk.setting("scheduler") == "none" { "plug" } else { "sched" };
    for (stages, parts) in [("request_stages", "request_parts"), ("stages", "parts")] {
        let (stage, parts_of) = (&of[stages]["queue"], &of[parts]["queue"]);
        println!("{what}: {stages} {} of {}, {}", sum(parts_of), stage["sum_ns"], count(stage));
        assert_eq!(sum(parts_of), number(&stage["sum_ns"]), "{what}: {parts} {}", brief(device));
        assert_eq!(count(&parts_of[last]), count(stage), "{what}: {last} of {parts} {}", brief(device));
    }
    let named = view.json["missing"].as_array().unwrap().iter().any(|m| m["stage"] == "queue");
    assert!(!named, "{what}: {}", view.json["missing"]);
    assert!(number(&device["merges"]) > 0, "{what}: nothing merged: {}", brief(device));
    let requests = count(&of["request_parts"]["queue"]["alloc"]);
    assert_eq!(requests, count(&of["request_stages"]["queue"]), "{what}: {}", brief(device));
    (requests, count(&of["parts"]["queue"]["alloc"]))
}

/// An operation that joins a request waits for no allocation: one of the request's operations did.
#[test]
fn operations_that_join_a_request_have_their_own_parts() {
    let Some(mut disk) = Disk::new(64) else { return };
    for scheduler in ["none", "mq-deadline"] {
        disk.set("scheduler", scheduler);
        for engine in ["io_uring", "libaio"] {
            let command = [
                &[
                    binary(),
                    "load",
                    "--no-drive-check",
                    &disk.path,
                    "--ioengine",
                    engine,
                    "--rw",
                    "read",
                    "--io_size",
                    "24m",
                ],
                &["--iodepth", "64", "--iodepth_batch", "64", "--iodepth_batch_complete", "64"][..],
            ];
            let view = during(&[&disk], &["--detail"], &command.concat());
            let (requests, operations) = filled(&view, &disk, "read", &format!("{scheduler} {engine}"));
            // Operations whose results the generator found without a system call have neither stages nor parts.
            assert!(operations > 0 && operations <= requests, "{operations} of {requests}");
        }
        let view = iocbs(&disk, 64, true, |index| index);
        let (requests, operations) = filled(&view, &disk, "write", scheduler);
        assert_eq!(operations, requests);
    }
}

#[test]
fn requests_that_grow_at_their_front_have_parts() {
    let Some(mut disk) = Disk::new(64) else { return };
    for scheduler in ["none", "mq-deadline"] {
        disk.set("scheduler", scheduler);
        let ring = during_work_with(&disk, &["--detail"], || {
            let ring = Ring::new(&disk);
            for _ in 0..100 {
                (0..8).rev().for_each(|block| ring.submit_at(block, Flags::empty()));
                ring.enter(8, 8);
                assert_eq!(ring.fetch(), 8);
            }
        });
        let reads = iocbs(&disk, 32, false, |index| 100 - index);
        let writes = iocbs(&disk, 32, true, |index| 100 - index);
        for (view, op, what) in
            [(ring, "read", "io_uring"), (reads, "read", "libaio"), (writes, "write", "libaio")]
        {
            let (requests, operations) = filled(&view, &disk, op, &format!("{scheduler} {what} {op}"));
            assert_eq!(operations, requests);
        }
    }
}

/// Every other block comes first, and then the blocks in between: requests are joined, and each of their operations
/// waited for a request of its own.
#[test]
fn requests_that_become_one_have_parts() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("scheduler", "mq-deadline");
    for (write, op) in [(false, "read"), (true, "write")] {
        let view = iocbs(&disk, 32, write, |index| index % 16 * 2 + index / 16);
        let (requests, operations) = filled(&view, &disk, op, op);
        assert_eq!(operations, 3200);
        assert!(requests < operations, "{requests}");
    }
}

/// One system call makes three reads in sequence; a limit delays some of them, and not always the last.
#[test]
fn operations_of_which_some_parts_were_held_have_parts() {
    let Some(disk) = Disk::new(64) else { return };
    let Some(group) = Group::new("held") else { return };
    // Two reads in 0.1 s, which is a slice of blk-throttle.
    if !group.limit_reads(&disk, 20) {
        return;
    }
    let view = during_work_with(&disk, &["--detail"], || {
        let from = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&disk.path).unwrap();
        let to = OpenOptions::new().write(true).open("/dev/null").unwrap();
        group.thread_within(|| {
            for _ in 0..8 {
                // SAFETY: both files are open, and no offset is passed.
                let sent = unsafe {
                    libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), std::ptr::null_mut(), 3 * PIPE)
                };
                assert_eq!(sent, 3 * PIPE as isize, "{}", std::io::Error::last_os_error());
            }
        });
    });
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    assert_eq!((number(&read["ios"]), number(&read["operations"])), (24, 8), "{}", brief(device));
    let (stage, parts) = (&read["stages"]["queue"], &read["parts"]["queue"]);
    // The last of three reads was delayed in some operations, and not in others.
    let held = count(&parts["throttle"]);
    assert!(held > 0 && held < 8, "{held}: {}", brief(device));
    assert_eq!(sum(parts), number(&stage["sum_ns"]), "{}", brief(device));
    let undivided = view.json["missing"].as_array().unwrap().iter().find(|m| m["part"] == "detail");
    assert_eq!(undivided, None, "{}", brief(device));
}

/// A limit delays iocbs until the call that submitted them has returned: they are operations of the process that
/// submitted them from there on, even if many others are submitted elsewhere meanwhile.
#[test]
fn iocbs_that_were_held_are_operations() {
    let (Some(disk), Some(elsewhere)) = (Disk::new(64), Disk::new(64)) else { return };
    let Some(group) = Group::new("held-iocbs") else { return };
    if !group.limit_reads(&disk, 40) {
        return;
    }
    let held = || {
        group.thread_within(|| {
            let mut aio = Aio::new(&disk, 16);
            for _ in 0..3 {
                aio.submit();
                aio.fetch();
            }
        });
    };
    let work = || {
        let (over, begin) = (AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut others = Aio::new(&elsewhere, 256);
                while !over.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(60) {
                    others.submit();
                    others.fetch();
                }
            });
            held();
            over.store(true, Ordering::Relaxed);
        });
    };
    let view = during_work_with(&disk, &["--detail"], work);
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    let found = (number(&read["operations"]), number(&read["ios_without_operation"]));
    assert_eq!(found, (48, 0), "{}", brief(device));
    assert_eq!(number(&read["total"]["count"]), 48, "{}", brief(device));
    let (stage, parts) = (&read["stages"]["queue"], &read["parts"]["queue"]);
    assert!(count(&parts["throttle"]) > 30, "{}", brief(device));
    assert_eq!(sum(parts), number(&stage["sum_ns"]), "{}", brief(device));
    // 48 reads at 40 per second: at least those of the last second wait all of it.
    assert!(number(&parts["throttle"]["max_ns"]) > 200_000_000, "{}", brief(device));
    let view = during_work_with(&disk, &["--by", "process"], work);
    let device = view.exact(&disk);
    assert_eq!(number(&device["ops"]["read"]["operations"]), 48, "{}", brief(device));
    let groups = view.json["groups"].as_array().unwrap();
    let own: Vec<&Value> =
        groups.iter().filter(|group| group["by"]["process"]["pid"] == std::process::id()).collect();
    assert_eq!((own.len(), groups.len()), (1, 1), "{groups:?}");
    // A filter by this process includes them.
    let own = std::process::id().to_string();
    let view = during_work_with(&disk, &["-p", &own], work);
    let read = &view.device(&disk)["ops"]["read"];
    assert_eq!((number(&read["ios"]), number(&read["operations"])), (48, 48), "{read}");
    let held = view.json["missing"].as_array().unwrap().iter().find(|m| m["part"] == "throttle");
    assert_eq!(held, None);
}

/// The capacity of a pipe, and so the size of one read from an uncached file into it.
const PIPE: usize = 16 << 12;
