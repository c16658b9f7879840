//! Tests that I/Os without an operation have rows of their own: their number is right, and their times are separate
//! from those of operations to the nanosecond. Needs root, loop and zram devices.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::Duration;

use crate::live::disk::Disk;
use crate::live::view::{brief, device, during_work, holds, number};
use crate::live::zram::Zram;
use crate::support::tool::{object, run};
use serde_json::Value;

const BLOCK: usize = 4096;
/// Every second block, so that no I/Os are merged.
const STRIDE: u64 = 2 * BLOCK as u64;

#[repr(align(4096))]
struct Block([u8; BLOCK]);

fn open(path: &str, flags: libc::c_int) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn read(file: &File, from: u64, blocks: u64) {
    let mut block = Box::new(Block([0; BLOCK]));
    (0..blocks).for_each(|n| file.read_exact_at(&mut block.0, from + n * STRIDE).unwrap());
}

fn write(file: &File, from: u64, blocks: u64) {
    let block = Box::new(Block([7; BLOCK]));
    (0..blocks).for_each(|n| file.write_all_at(&block.0, from + n * STRIDE).unwrap());
}

/// Starts the write-back of a file's dirty pages without waiting for it in any call.
fn hand_over(file: &File) {
    // SAFETY: the call takes numbers only.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
}

/// Waits until nothing has been written for a while.
fn quiet(disk: &Disk) {
    let mut before = None;
    while before.replace(disk.stat()) != Some(disk.stat()) {
        thread::sleep(Duration::from_millis(200));
    }
}

fn count(row: &Value, key: &str, stage: &str) -> u64 {
    number(&row[key][stage]["count"])
}

/// Checks that the rows without an operation hold so many I/Os, which together with those of the operations (one I/O
/// each) are all I/Os.
#[track_caller]
fn apart(row: &Value, operations: u64, without: u64) {
    assert_eq!(number(&row["operations"]), operations, "{row}");
    assert_eq!(
        (number(&row["ios_without_operation"]), &row["not_covered"]),
        (without, &serde_json::json!({}))
    );
    for stage in ["queue", "device"] {
        let own = &row["request_stages_without_operation"][stage];
        assert_eq!(number(&own["count"]), without, "{stage}: {own}");
        let sum = |of: &Value| number(&of["sum_ns"]);
        let (theirs, all) = (&row["stages"][stage], &row["request_stages"][stage]);
        assert_eq!(sum(own) + sum(theirs), sum(all), "{stage}");
        assert_eq!(number(&own["count"]) + number(&theirs["count"]), number(&all["count"]), "{stage}");
    }
}

/// Buffered writes, which the kernel's worker and posix_fadvise write back, beside direct reads and writes.
#[test]
fn write_back_stands_beside_direct_io() {
    let Some(mut disk) = Disk::new(64) else { return };
    // If at most 300 millionths of the memory may be dirty, the worker begins at once (since 6.2).
    if std::path::Path::new(&format!("/sys/block/{}/bdi/max_ratio_fine", disk.name)).exists() {
        disk.set("../bdi/strict_limit", "1");
        disk.set("../bdi/max_ratio_fine", "300");
    }
    let (buffered, direct) = (open(&disk.path, 0), open(&disk.path, libc::O_DIRECT));
    let view = during_work(&disk, || {
        thread::scope(|scope| {
            scope.spawn(|| write(&buffered, 32 << 20, 2000));
            scope.spawn(|| read(&direct, 0, 1500));
            write(&direct, 16 << 20, 300);
        });
        hand_over(&buffered);
        quiet(&disk);
    });
    let (of_disk, stat) = (view.exact(&disk), view.stat(&disk));
    let (reads, writes) = (&of_disk["ops"]["read"], &of_disk["ops"]["write"]);
    println!("{} writes, of which {} are write-back", stat.writes, writes["ios_without_operation"]);
    assert!(stat.writes > 300, "{stat:?}");
    apart(writes, 300, stat.writes - 300);
    // Without such I/Os the key is absent, and not zero.
    assert_eq!((number(&reads["operations"]), number(&reads["ios_without_operation"])), (1500, 0));
    assert!(reads.get("request_stages_without_operation").is_none(), "{}", brief(of_disk));
}

/// A page fault of mapped memory submits a read, and is no operation.
#[test]
fn page_faults_stand_beside_direct_reads() {
    let Some(disk) = Disk::new(64) else { return };
    let (mapped, direct) = (open(&disk.path, 0), open(&disk.path, libc::O_DIRECT));
    let view = during_work(&disk, || {
        thread::scope(|scope| {
            scope.spawn(|| read(&direct, 0, 1500));
            fault(&mapped, 32 << 20, 600);
        });
        // Clears the page cache for the next attempt.
        hand_over(&mapped);
        quiet(&disk);
    });
    let (of_disk, stat) = (view.exact(&disk), view.stat(&disk));
    assert_eq!(stat.reads, 2100, "{}", brief(of_disk));
    apart(&of_disk["ops"]["read"], 1500, 600);
}

/// Touches blocks of a mapped file, without read-ahead.
fn fault(file: &File, from: u64, blocks: u64) {
    let bytes = (blocks * STRIDE) as usize;
    // SAFETY: a new mapping of a file that stays open, which nothing else uses.
    let start = unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            from as libc::off_t,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::madvise(at, bytes, libc::MADV_RANDOM), 0);
        at.cast::<u8>()
    };
    for n in 0..blocks {
        // SAFETY: the block lies in the mapping, and the disk does not shrink.
        unsafe { start.add((n * STRIDE) as usize).read_volatile() };
    }
    // SAFETY: this is the mapping from above, and nothing points into it any more.
    assert_eq!(unsafe { libc::munmap(start.cast(), bytes) }, 0);
}

/// A device without requests has no stages, but the whole time of each bio.
#[test]
fn write_back_of_bios_stands_beside_direct_bios() {
    let Some(zram) = Zram::new(64) else { return };
    // The last process to close the device has its pages written, and does not wait in a call that is followed.
    let script = format!(
        "dd if=/dev/urandom of={0} bs=4k count=200 oflag=direct conv=notrunc status=none
         dd if=/dev/urandom of={0} bs=4k seek=4096 count=500 conv=notrunc status=none",
        zram.path
    );
    let before = zram.stat();
    let view = object(
        &run(&["latency", "--json", "--max-cost", "0", "-d", &zram.name, "--", "sh", "-ec", &script]),
        "biopsy.latency/1",
    );
    let writes = zram.stat().since(before).writes;
    let of_zram = &view["devices"][0];
    holds(of_zram);
    let row = &of_zram["ops"]["write"];
    let own = &row["bio_without_operation"];
    assert_eq!(
        (number(&row["operations"]), number(&own["count"])),
        (200, writes - 200),
        "{}",
        brief(of_zram)
    );
    assert!(writes > 200 && row.get("request_stages_without_operation").is_none());
    let sum = |of: &Value| number(&of["sum_ns"]);
    assert_eq!(sum(own) + sum(&row["stages"]["device"]), sum(&row["bio"]), "{}", brief(of_zram));
}

/// The same as text: I/Os with and without an operation must not be averaged together.
#[test]
fn the_text_has_a_table_of_no_operation() {
    let Some(disk) = Disk::new(64) else { return };
    let script = format!(
        "dd if=/dev/zero of={0} bs=4k count=300 oflag=direct conv=notrunc status=none
         dd if=/dev/zero of={0} bs=4k seek=8192 count=500 conv=notrunc status=none",
        disk.path
    );
    let words = |more: &[&str]| {
        run(&[&["latency", "--max-cost", "0", "-d", &disk.name], more, &["--", "sh", "-ec", &script]]
            .concat())
    };
    let text = String::from_utf8(words(&[]).stdout).unwrap();
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}: {text}"));
    assert!(place("    300 operations\n") < place("    operation, "), "{text}");
    assert!(place("    operation, ") < place("    I/O without operation, "), "{text}");
    assert!(!text.contains("    I/O, "), "each operation is one I/O: {text}");
    let json = object(&words(&["--json"]), "biopsy.latency/1");
    let row = &device(&json, &disk)["ops"]["write"];
    assert_eq!(
        count(row, "request_stages_without_operation", "device") + 300,
        count(row, "request_stages", "device")
    );
}
