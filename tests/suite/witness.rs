//! Repeats a timed test that the machine disturbed: a comparison of counts with a clock is valid only if CPUs and the
//! disk were available.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::disk::Dir;

const BLOCK: usize = 4096;

/// The pause between two probes.
const PAUSE: Duration = Duration::from_millis(2);

/// A probe that took longer than this found the machine busy: in that time, a rate of 1,000 falls behind by 25.
const LATE: Duration = Duration::from_millis(25);

const ATTEMPTS: u32 = 8;

/// Ends the witness thread, even if the work panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the result of `work`. A thread beside it reads a block of its own file every 2 ms. If that had to wait for a
/// CPU or for the disk, the work is repeated, up to eight times in all. The last result counts in any case.
pub fn undisturbed<T>(dir: &Dir, work: impl Fn() -> T) -> T {
    // The file must be written before the thread opens it: a load refuses files that are open elsewhere.
    let file = dir.file("witness", BLOCK as u64);
    for _ in 1..ATTEMPTS {
        let ended = AtomicBool::new(false);
        let (done, worst) = thread::scope(|scope| {
            let witness = scope.spawn(|| worst(&file, &ended));
            let end = End(&ended);
            let done = work();
            drop(end);
            (done, witness.join().unwrap())
        });
        if worst <= LATE {
            return done;
        }
        println!("again: for {} ms the machine did something else", worst.as_millis());
    }
    work()
}

/// The longest delay of a probe.
fn worst(file: &str, ended: &AtomicBool) -> Duration {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(file).unwrap();
    let mut worst = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(PAUSE);
        read_block(&file);
        worst = worst.max(begin.elapsed().saturating_sub(PAUSE));
    }
    worst
}

/// Reads a block by direct I/O.
fn read_block(file: &File) {
    let layout = Layout::from_size_align(BLOCK, BLOCK).unwrap();
    // SAFETY: the layout has a size; the kernel writes at most that many bytes into the block, which is freed once.
    let read = unsafe {
        let block = alloc_zeroed(layout);
        let read = libc::pread(file.as_raw_fd(), block.cast(), BLOCK, 0);
        dealloc(block, layout);
        read
    };
    assert_eq!(read, BLOCK as isize);
}
