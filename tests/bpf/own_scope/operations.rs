//! Tests operations, from the system call that carries them to its return: they are counted as the application counts
//! them, and their stages add up. Needs root and loop devices.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::live::aio::Aio;
use crate::live::disk::Disk;
use crate::live::ring::{Flags, Ring};
use crate::live::view::{brief, during, during_script, during_work, load, number};
use crate::support::scratch::Scratch;
use crate::support::tool::binary;
use serde_json::Value;

const ALL_STAGES: [&str; 5] = ["complete", "device", "queue", "reap", "submit"];

fn stages(row: &Value) -> Vec<&str> {
    row["stages"].as_object().unwrap().keys().map(String::as_str).collect()
}

/// One operation per read of the generator, at every depth, with the latency that the generator measured.
#[test]
fn io_uring_requests_are_operations() {
    let Some(disk) = Disk::new(64) else { return };
    for workload in [
        &["--iodepth", "1"][..],
        &["--iodepth", "32"],
        &["--iodepth", "512"],
        &["--iodepth", "16", "--numjobs", "3", "--bs", "16k"],
        &["--iodepth", "32", "--rw", "read"],
    ] {
        let scratch = Scratch::new("operations");
        let result = scratch.path().join("load.json");
        let command = [
            &[
                binary(),
                "load",
                "--no-drive-check",
                &disk.path,
                "--runtime",
                "500ms",
                "--json",
                "-o",
                result.to_str().unwrap(),
            ],
            workload,
        ];
        let view = during(&[&disk], &[], &command.concat());
        let (device, load) = (view.exact(&disk), load(&result));
        let read = &device["ops"]["read"];
        // Before it begins, the generator tests by one read() whether the device can be read.
        assert_eq!(number(&read["operations"]), number(&load["ios"]) + 1, "{workload:?} {}", brief(device));
        assert_eq!(number(&read["ios_without_operation"]), 0, "{workload:?}");
        assert_eq!(stages(read), ALL_STAGES, "{workload:?}");
        // The kernel's part of an operation lies within the time that the generator measures.
        let (ours, whole) = (number(&read["total"]["sum_ns"]), number(&load["latency"]["sum_ns"]));
        println!("{workload:?}: {} operations, {ours} of {whole} ns", read["operations"]);
        assert!(ours <= whole && ours > whole / 2, "{workload:?}: {ours} of {whole} ns");
    }
}

/// A read() or write() is one operation, and its total is all of its time in the kernel.
#[test]
fn waiting_system_calls_are_operations() {
    let Some(disk) = Disk::new(64) else { return };
    let read = format!("dd if={} of=/dev/null iflag=direct bs=4k count=2000 status=none", disk.path);
    let write = format!("dd if=/dev/zero of={} oflag=direct bs=4k count=2000 status=none", disk.path);
    for (op, script) in [("read", read), ("write", write)] {
        let view = during_script(&[&disk], &[], &script);
        let device = view.exact(&disk);
        let row = &device["ops"][op];
        assert_eq!((number(&row["operations"]), number(&row["ios_without_operation"])), (2000, 0), "{op}");
        // A loop device has no event before block_rq_complete: `complete` is absent, and not zero.
        assert_eq!(stages(row), ["device", "queue", "reap", "submit"], "{op}");
        assert_eq!(row["not_covered"].as_object().unwrap().len(), 0, "{op}: {}", brief(device));
    }
}

/// One operation per iocb, from the io_submit that carried it to the io_getevents that returned its result.
#[test]
fn iocbs_are_operations() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let mut aio = Aio::new(&disk, 100);
        for _ in 0..50 {
            aio.submit();
            aio.fetch();
        }
    });
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    assert_eq!((number(&read["operations"]), number(&read["ios_without_operation"])), (5000, 0));
    assert_eq!(stages(read), ["device", "queue", "reap", "submit"], "{}", brief(device));
    assert_eq!(read["not_covered"].as_object().unwrap().len(), 0, "{}", brief(device));
}

/// The kernel copies an iocb: its address may be used again before its result is there.
#[test]
fn iocbs_that_are_out_twice_are_two_operations() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let mut aio = Aio::new(&disk, 50);
        for _ in 0..30 {
            (0..3).for_each(|_| {
                aio.submit();
                aio.rename(50);
            });
            (0..3).for_each(|_| aio.fetch());
        }
    });
    let read = &view.exact(&disk)["ops"]["read"];
    assert_eq!((number(&read["operations"]), number(&read["total"]["count"])), (4500, 4500));
    assert_eq!(number(&view.json["lost"]["probes"]["latency"]["unfollowed_operations"]), 0);
}

/// Requests of io_uring that have no completion unless they fail are operations without one.
#[test]
fn requests_without_a_completion_are_counted() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let ring = Ring::new(&disk);
        for _ in 0..200 {
            ring.submit(Flags::SKIP_SUCCESS | Flags::IO_LINK);
            ring.submit(Flags::empty());
            ring.enter(2, 1);
            assert_eq!(ring.fetch(), 1);
        }
    });
    let read = &view.exact(&disk)["ops"]["read"];
    assert_eq!(number(&read["total"]["count"]), 200);
    // That such a request has ended is known when it is used again.
    let without = number(&read["not_covered"]["reap"]);
    assert_eq!((number(&read["ios"]), number(&read["ios_without_operation"])), (400, 0));
    assert!((190..=200).contains(&without), "{read}");
    // Or it is still in the table when the window ends.
    assert_eq!(number(&read["operations"]) + number(&read["unfetched"]), 400, "{read}");
}

/// This holds also if the request is used again for something that is no operation.
#[test]
fn requests_without_a_completion_are_counted_whatever_comes_after() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let ring = Ring::new(&disk);
        for _ in 0..200 {
            ring.submit(Flags::SKIP_SUCCESS | Flags::IO_LINK);
            ring.submit_nothing();
            ring.enter(2, 1);
            assert_eq!(ring.fetch_of(0), 1);
            // More requests than the kernel keeps for reuse, so that the read's is among them.
            (0..8).for_each(|_| ring.submit_nothing());
            ring.enter(8, 8);
            assert_eq!(ring.fetch_of(0), 8);
        }
    });
    let read = &view.exact(&disk)["ops"]["read"];
    assert_eq!((number(&read["ios"]), number(&read["ios_without_operation"])), (200, 0));
    let without = number(&read["not_covered"]["reap"]);
    assert!((190..=200).contains(&without), "{read}");
    assert_eq!(number(&read["operations"]) + number(&read["unfetched"]), 200, "{read}");
}

/// The end of the window cuts off operations in flight; each of their I/Os is still known to have an operation.
#[test]
fn what_a_window_cuts_off_is_unfetched() {
    let Some(disk) = Disk::new(64) else { return };
    let kept = RefCell::new(Vec::new());
    let view = during_work(&disk, || {
        let mut aio = Aio::new(&disk, 64);
        aio.submit();
        let ring = Ring::new(&disk);
        (0..8).for_each(|_| ring.submit(Flags::empty()));
        ring.enter(8, 0);
        std::thread::sleep(Duration::from_millis(50));
        // No result is fetched before the end.
        kept.borrow_mut().push((aio, ring));
    });
    let read = &view.exact(&disk)["ops"]["read"];
    assert_eq!((number(&read["ios"]), number(&read["ios_without_operation"])), (72, 0), "{read}");
    // Results of io_uring may be visible before the call returns: then no fetch was seen.
    assert_eq!(number(&read["operations"]) + number(&read["unfetched"]), 72, "{read}");
    assert!(number(&read["unfetched"]) >= 64, "{read}");
}

/// A thread that waits on a ring gets the results of requests that another thread submits.
#[test]
fn another_thread_may_wait() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let ring = Ring::new(&disk);
        let reaped = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while reaped.load(Ordering::SeqCst) < 300 {
                    ring.enter(0, 1);
                    reaped.fetch_add(ring.fetch(), Ordering::SeqCst);
                }
            });
            for n in 0..300 {
                // The other thread must wait by now.
                std::thread::sleep(Duration::from_micros(300));
                ring.submit(Flags::empty());
                ring.enter(1, 0);
                while reaped.load(Ordering::SeqCst) <= n {
                    std::thread::yield_now();
                }
            }
        });
    });
    let read = &view.exact(&disk)["ops"]["read"];
    assert_eq!((number(&read["operations"]), number(&read["ios_without_operation"])), (300, 0), "{read}");
    assert_eq!(stages(read), ALL_STAGES, "{read}");
    // The thread may find a result before it waits; then no fetch was seen.
    assert!(number(&read["total"]["count"]) > 200, "{read}");
}

/// A program that reads the ring of results without a system call is not seen to reap: such operations are counted when
/// their iocbs are used again.
#[test]
fn iocbs_that_nobody_fetches_have_no_stages() {
    let Some(disk) = Disk::new(64) else { return };
    let view = during_work(&disk, || {
        let mut aio = Aio::new(&disk, 1000);
        aio.submit();
        std::thread::sleep(Duration::from_millis(100));
        aio.fetch();
        let mut unfetched = Aio::new(&disk, 10);
        for _ in 0..5 {
            unfetched.submit();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    assert_eq!(number(&read["ios"]), 1050, "{}", brief(device));
    // The last ten may still be fetched after the end of the window.
    assert_eq!(number(&read["unfetched"]), 10, "{}", brief(device));
    assert_eq!(number(&read["operations"]), 1040, "{}", brief(device));
    assert_eq!(number(&read["total"]["count"]), 1000);
    assert_eq!(read["not_covered"], serde_json::json!({"reap": 40}), "{}", brief(device));
}

/// A split operation is one operation that ends with its last part; it has as many I/Os as parts.
#[test]
fn a_split_operation_is_one() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("max_sectors_kb", "128");
    let script = format!("dd if={} of=/dev/null iflag=direct bs=1M count=60 status=none", disk.path);
    let view = during_script(&[&disk], &[], &script);
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    assert_eq!((number(&read["operations"]), number(&read["ios"])), (60, 480), "{}", brief(device));
    assert_eq!(number(&read["ios_without_operation"]), 0);
    // All parts lie within the operation, one after the other or at once.
    let longest = number(&read["request_stages"]["device"]["max_ns"]);
    assert!(number(&read["total"]["max_ns"]) >= longest, "{}", brief(device));
    let ring = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--bs",
        "1M",
        "--iodepth",
        "8",
        "--runtime",
        "300ms",
    ];
    let view = during(&[&disk], &[], &ring);
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    let whole = number(&read["operations"]) - 1;
    assert_eq!(number(&read["ios"]), whole * 8 + 1, "{}", brief(device));
    assert_eq!(stages(read), ALL_STAGES);
}

/// Merged operations share a request, and each is one operation.
#[test]
fn merged_operations_are_each_one() {
    let Some(mut disk) = Disk::new(64) else { return };
    disk.set("scheduler", "mq-deadline");
    let scratch = Scratch::new("merged");
    let result = scratch.path().join("load.json");
    let command = [
        binary(),
        "load",
        "--no-drive-check",
        &disk.path,
        "--rw",
        "read",
        "--iodepth",
        "64",
        "--runtime",
        "500ms",
        "--json",
        "-o",
        result.to_str().unwrap(),
    ];
    let view = during(&[&disk], &[], &command);
    let (device, load) = (view.exact(&disk), load(&result));
    let read = &device["ops"]["read"];
    assert_eq!(number(&read["operations"]), number(&load["ios"]) + 1, "{}", brief(device));
    assert!(number(&device["merges"]) > number(&load["ios"]) / 10, "nothing merged: {}", brief(device));
    assert!(number(&read["ios"]) < number(&read["operations"]));
}

/// A read through the page cache waits for the requests that it needs. Read-ahead has no operation once its reader has
/// returned, and write-back never has one.
#[test]
fn the_page_cache_reads_and_writes_for_some_and_ahead() {
    let Some(disk) = Disk::new(64) else { return };
    let read = format!("dd if={} of=/dev/null bs=64k status=none", disk.path);
    let view = during_script(&[&disk], &[], &read);
    let device = view.exact(&disk);
    let row = &device["ops"]["read"];
    let (operations, calls) = (number(&row["operations"]), disk.bytes >> 16);
    assert!(operations > 0 && operations <= calls + 2, "{operations} of {calls} calls: {}", brief(device));
    let write = format!("dd if=/dev/zero of={} bs=64k count=200 status=none; sync {0}", disk.path);
    let view = during_script(&[&disk], &[], &write);
    let device = view.exact(&disk);
    let row = &device["ops"]["write"];
    // The writers have returned long before; a process that syncs waits for what it writes itself.
    assert!(row["operations"].as_u64().unwrap_or(0) <= 4, "{}", brief(device));
    assert!(number(&row["ios"]) > 0, "{}", brief(device));
}

/// With --detail the parts of a stage add up to it, to the nanosecond, for the requests and operations that have all of
/// them.
#[test]
fn stages_are_taken_apart() {
    let Some(mut disk) = Disk::new(64) else { return };
    for (scheduler, parts) in [("none", &["alloc", "plug"][..]), ("mq-deadline", &["alloc", "plug", "sched"])]
    {
        disk.set("scheduler", scheduler);
        // A request of several bios waits from the first of them on.
        disk.set("nomerges", "2");
        let command =
            [binary(), "load", "--no-drive-check", &disk.path, "--iodepth", "32", "--runtime", "500ms"];
        let view = during(&[&disk], &["--detail"], &command);
        let device = view.exact(&disk);
        let read = &device["ops"]["read"];
        let sum = |of: &Value| of.as_object().unwrap().values().map(|h| number(&h["sum_ns"])).sum::<u64>();
        let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let queue = &read["request_parts"]["queue"];
        assert_eq!(sum(queue), number(&read["request_stages"]["queue"]["sum_ns"]), "{}", brief(device));
        let occurred: Vec<String> = names(queue).into_iter().filter(|part| part != "requeue").collect();
        assert_eq!(occurred, parts, "{scheduler}");
        let ios = number(&read["request_stages"]["queue"]["count"]);
        assert_eq!(number(&queue["alloc"]["count"]), ios, "{}", brief(device));
        let (complete, whole) = (&read["parts"]["complete"], number(&read["stages"]["complete"]["sum_ns"]));
        assert_eq!(sum(complete), whole, "{}", brief(device));
        let batch = &read["parts"]["submit"]["batch"];
        assert!(number(&batch["sum_ns"]) <= number(&read["stages"]["submit"]["sum_ns"]));
        // Except for the generator's test read(), which is no request of io_uring.
        assert_eq!(number(&batch["count"]), number(&read["operations"]) - 1);
    }
}

/// A waiter's time in `reap` is mostly the time from its wake-up until it runs, and each waiter is woken once.
#[test]
fn waiters_are_woken() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!("dd if={} of=/dev/null iflag=direct bs=4k count=2000 status=none", disk.path);
    let view = during_script(&[&disk], &["--detail"], &script);
    let device = view.exact(&disk);
    let read = &device["ops"]["read"];
    let (wake, reap) = (&read["parts"]["reap"]["wake"], &read["stages"]["reap"]);
    // A waiter that finds its result at once has not slept.
    assert!(number(&wake["count"]) <= 2000 && number(&wake["count"]) > 1000, "{}", brief(device));
    assert!(number(&wake["sum_ns"]) <= number(&reap["sum_ns"]), "{}", brief(device));
}

/// Attached to a running load: what began before has no operation, and no operation is torn or too long.
#[test]
fn a_load_that_runs_already_is_followed() {
    let Some(disk) = Disk::new(64) else { return };
    let mut running = std::process::Command::new(binary())
        .args(["load", "--no-drive-check", &disk.path, "--iodepth", "64", "--runtime", "2s"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let view = during(&[&disk], &["--for", "700ms"], &[]);
    running.kill().unwrap();
    running.wait().unwrap();
    let device = view.device(&disk);
    crate::live::view::within_bounds(device);
    crate::live::view::holds(device);
    let read = &device["ops"]["read"];
    let (ios, operations) = (number(&read["ios"]), number(&read["operations"]));
    // At most the depth is missing at either end.
    assert!(ios.abs_diff(operations) <= 128 + number(&device["merges"]), "{}", brief(device));
    assert!(number(&read["total"]["max_ns"]) < 700_000_000, "{}", brief(device));
    assert_eq!(read["not_covered"]["torn"], Value::Null, "{}", brief(device));
}
