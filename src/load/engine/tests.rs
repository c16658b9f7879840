//! Tests that every engine must pass, and the files and disks for them.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::job::{self, Direction, Job, Pattern, Target};
use super::super::sequence::PlannedIo;
use super::{Engine, OpenTarget};

/// The block size of all tests.
pub const BLOCK: u32 = 4096;

/// A job with reads and writes.
pub fn job(engine: job::Engine, iodepth: u32) -> Job {
    Job { rw: Pattern::RandReadWrite, engine, iodepth, ..Job::new(Target::Existing("/dev/null".into())) }
}

/// A file that is deleted at the end of the test.
pub struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    /// Filled with one byte value; open with direct I/O where the file system supports it.
    pub fn filled(test: &str, bytes: u32, byte: u8) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tmp");
        fs::create_dir_all(&path).unwrap();
        let path = path.join(format!("engine-{test}-{}", std::process::id()));
        fs::write(&path, vec![byte; bytes as usize]).unwrap();
        let open = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let file = open(libc::O_DIRECT).or_else(|_| open(0)).unwrap();
        Self { file, path }
    }

    pub fn place(&self) -> OpenTarget {
        OpenTarget { fd: self.file.as_raw_fd(), is_device: false }
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    pub fn set_len(&self, bytes: u64) {
        self.file.set_len(bytes).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// A loop device over a file in memory, detached at the end.
pub struct Disk {
    file: File,
    path: String,
}

impl Disk {
    /// None, with a message, where this machine cannot create one.
    pub fn filled(test: &str, bytes: usize, byte: u8) -> Option<Self> {
        let skip = |why: &str| println!("skipped: {test}: no loop device can be made here: {why}");
        // SAFETY: it only asks.
        if unsafe { libc::geteuid() } != 0 {
            skip("it needs root");
            return None;
        }
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let below = directory.join(format!("biopsy-engine-{test}-{}", std::process::id()));
        fs::write(&below, vec![byte; bytes]).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&below).output();
        // The loop device keeps the file from here on.
        fs::remove_file(&below).unwrap();
        let made = match made {
            Ok(made) if made.status.success() => made,
            Ok(made) => {
                skip(String::from_utf8_lossy(&made.stderr).trim());
                return None;
            }
            Err(e) => {
                skip(&e.to_string());
                return None;
            }
        };
        let path = String::from_utf8_lossy(&made.stdout).trim().to_string();
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        Some(Self { file, path })
    }

    pub fn place(&self) -> OpenTarget {
        OpenTarget { fd: self.file.as_raw_fd(), is_device: true }
    }

    /// The whole content, through the page cache.
    pub fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _detached = Command::new("losetup").args(["-d", &self.path]).output();
    }
}

/// Queues one I/O, waits for it and returns its result.
pub fn one(engine: &mut impl Engine, direction: Direction, offset: u64, bytes: u32) -> i32 {
    engine.queue(0, &PlannedIo { direction, file: 0, bytes, offset });
    only_result(engine)
}

/// The result of the only operation in flight.
pub fn only_result(engine: &mut impl Engine) -> i32 {
    assert_eq!(engine.in_flight(), 1);
    assert_eq!(engine.enter(1, None).unwrap(), 1);
    let mut told = None;
    assert_eq!(engine.reap(|slot, result| told = Some((slot, result))), 1);
    assert_eq!((engine.in_flight(), engine.reap(|_, _| panic!("nothing is in flight"))), (0, 0));
    let (slot, result) = told.unwrap();
    assert_eq!(slot, 0);
    result
}

/// The expected content of the block at this offset.
fn content(offset: u64) -> Vec<u8> {
    (0..u64::from(BLOCK)).map(|at| (offset / 4096 * 31 + at * 7 + at / 256) as u8).collect()
}

fn buffer(engine: &mut impl Engine, slot: u32) -> &mut [u8] {
    // SAFETY: nothing is in flight in this slot, whose buffer has room for a block.
    unsafe { std::slice::from_raw_parts_mut(engine.buffer(slot), BLOCK as usize) }
}

/// Runs `blocks` operations, `depth` at a time; `before` and `after` receive the slot and its offset.
fn drive<E: Engine>(
    engine: &mut E,
    direction: Direction,
    (depth, blocks): (u32, u32),
    before: impl Fn(&mut E, u32, u64),
    after: impl Fn(&mut E, u32, u64),
) {
    let mut free: Vec<u32> = (0..depth).collect();
    let mut offsets = vec![0u64; depth as usize];
    let (mut queued, mut over, mut taken) = (0, 0, 0);
    while over < blocks {
        while queued < blocks {
            let Some(slot) = free.pop() else { break };
            let offset = u64::from(queued * BLOCK);
            offsets[slot as usize] = offset;
            before(engine, slot, offset);
            engine.queue(slot, &PlannedIo { direction, file: 0, bytes: BLOCK, offset });
            queued += 1;
        }
        taken += engine.enter(1, None).unwrap();
        let mut found = Vec::new();
        let reaped = engine.reap(|slot, result| {
            assert_eq!(result, BLOCK as i32);
            found.push(slot);
        });
        assert!(reaped > 0 && reaped as usize == found.len());
        for slot in found {
            assert!(!free.contains(&slot), "slot {slot} came twice");
            after(engine, slot, offsets[slot as usize]);
            free.push(slot);
        }
        over += reaped;
    }
    assert_eq!((engine.in_flight(), taken), (0, blocks));
}

/// Writes blocks of different content, wipes the buffers, and reads them back.
pub fn writes_come_back<E: Engine>(engine: &mut E, depth: u32, blocks: u32) {
    let write = |engine: &mut E, slot, offset| buffer(engine, slot).copy_from_slice(&content(offset));
    drive(engine, Direction::Write, (depth, blocks), write, |_, _, _| {});
    let wipe = |engine: &mut E, slot, _| buffer(engine, slot).fill(0xee);
    let compare =
        |engine: &mut E, slot, offset| assert!(buffer(engine, slot) == content(offset), "at {offset}");
    drive(engine, Direction::Read, (depth, blocks), wipe, compare);
}

/// For a file of one and a half blocks.
pub fn the_end_is_short(engine: &mut impl Engine) {
    assert_eq!(one(engine, Direction::Read, 0, BLOCK), BLOCK as i32);
    assert_eq!(one(engine, Direction::Read, BLOCK.into(), BLOCK), BLOCK as i32 / 2);
    assert_eq!(one(engine, Direction::Read, u64::from(BLOCK) * 2, BLOCK), 0);
}

/// For a target on which every operation fails.
pub fn errors_are_results(engine: &mut impl Engine, errno: i32) {
    for direction in Direction::ALL {
        assert_eq!(one(engine, direction, 0, BLOCK), errno, "{direction:?}");
    }
    for data_only in [false, true] {
        engine.queue_sync(0, 0, data_only);
        assert_eq!(only_result(engine), errno);
    }
}

/// For a file of four blocks filled with 3.
pub fn trims_and_syncs(engine: &mut impl Engine, file: &Scratch) {
    buffer(engine, 0).fill(5);
    assert_eq!(one(engine, Direction::Write, 0, BLOCK), BLOCK as i32);
    assert_eq!(one(engine, Direction::Trim, BLOCK.into(), 2 * BLOCK), 2 * BLOCK as i32);
    for data_only in [false, true] {
        engine.queue_sync(0, 0, data_only);
        assert_eq!(only_result(engine), 0);
    }
    let block = BLOCK as usize;
    let bytes = file.bytes();
    assert_eq!([bytes[0], bytes[block], bytes[3 * block - 1], bytes[3 * block]], [5, 0, 0, 3]);
}

/// The kernel refuses a priority class that does not exist. So the error shows that the priority arrived, and only with
/// its own operation.
pub fn a_priority_reaches_the_kernel(mut engine: impl Engine) {
    let piece = PlannedIo { direction: Direction::Read, file: 0, bytes: BLOCK, offset: 0 };
    assert_eq!(one(&mut engine, Direction::Read, 0, BLOCK), BLOCK as i32);
    engine.queue_with_priority(0, &piece, 7 << 13);
    let answer = if engine.in_flight() > 0 { only_result(&mut engine) } else { 0 };
    assert_eq!(answer, -libc::EINVAL);
    engine.queue_with_priority(0, &piece, job::io_priority(2, 7));
    assert_eq!(only_result(&mut engine), BLOCK as i32);
    assert_eq!(one(&mut engine, Direction::Read, 0, BLOCK), BLOCK as i32);
}
