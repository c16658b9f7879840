//! Synchronises the threads of a run.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a waiting thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Holds the workers until all are set up, so that they begin together or not at all.
#[derive(Debug, Default)]
pub struct Gate {
    begin: Mutex<Option<bool>>,
    opened: Condvar,
}

impl Gate {
    /// Releases all workers: to begin, or to return.
    pub fn open(&self, begin: bool) {
        *self.begin.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        self.opened.notify_all();
    }

    /// Waits; true: begin.
    pub fn pass(&self) -> bool {
        let mut begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *begin {
                Some(answer) => return answer,
                None => begin = self.opened.wait(begin).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The gates at both ends of a run.
#[derive(Debug, Default)]
pub struct Gates {
    pub begin: Gate,
    /// Workers exit only after io_uring's worker threads were measured: these end with them.
    pub end: Gate,
}

/// Threads of jobs that write the same target wait here for each other before they read back: another thread may still
/// write or trim there.
#[derive(Debug)]
pub struct Meeting {
    threads: Mutex<ThreadCounts>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct ThreadCounts {
    /// Threads that still write.
    writers: u32,
    /// Threads that read back.
    readers: u32,
}

impl Meeting {
    /// For this many threads, each of which attends once.
    pub fn new(threads: u32) -> Self {
        Self { threads: Mutex::new(ThreadCounts { writers: threads, readers: 0 }), came: Condvar::new() }
    }

    /// Adds `threads` writers: those of a job that waited for another one. Returns when no thread is still reading back
    /// what they could overwrite.
    pub fn join(&self, threads: u32) {
        let mut now = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while now.readers > 0 {
            now = self.came.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.writers += threads;
    }

    /// Registers the calling thread as a writer until the guard is dropped, also on failure.
    pub fn attend(&self) -> Writer<'_> {
        Writer(self)
    }

    /// Waits until no thread writes any more. The caller may read back until it drops the guard. None: stop waiting.
    pub fn wait(&self, is_over: impl Fn() -> bool) -> Option<Reader<'_>> {
        let mut now = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        while now.writers > 0 {
            if is_over() {
                return None;
            }
            now = self.came.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        now.readers += 1;
        Some(Reader(self))
    }

    fn leave(&self, of: impl Fn(&mut ThreadCounts) -> &mut u32) {
        let mut now = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = of(&mut now);
        *threads = threads.saturating_sub(1);
        self.came.notify_all();
    }
}

/// A thread that still writes.
#[derive(Debug)]
pub struct Writer<'a>(&'a Meeting);

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.0.leave(|threads| &mut threads.writers);
    }
}

/// A thread that reads back what it wrote.
#[derive(Debug)]
pub struct Reader<'a>(&'a Meeting);

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.leave(|threads| &mut threads.readers);
    }
}

/// Groups jobs: those that `meet` are in the same group, also transitively. Returns the group of each job.
pub fn circles(jobs: usize, meet: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut circle: Vec<usize> = (0..jobs).collect();
    for second in 0..jobs {
        for first in 0..second {
            if meet(first, second) {
                let (from, to) = (circle[second], circle[first]);
                circle.iter_mut().filter(|of| **of == from).for_each(|of| *of = to);
            }
        }
    }
    circle
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn who_reads_back_waits_for_all_that_write() {
        let meeting = Meeting::new(2);
        let others_wrote = AtomicBool::new(false);
        thread::scope(|scope| {
            let (first, second) = (meeting.attend(), meeting.attend());
            drop(first);
            assert!(meeting.wait(|| true).is_none(), "who is stopped waits no longer");
            let reader =
                scope.spawn(|| meeting.wait(|| false).is_some() && others_wrote.load(Ordering::Relaxed));
            thread::sleep(Duration::from_millis(20));
            others_wrote.store(true, Ordering::Relaxed);
            drop(second);
            assert!(reader.join().unwrap());
        });
    }

    #[test]
    fn who_joins_waits_for_those_that_read_back() {
        let meeting = Meeting::new(0);
        let reader = meeting.wait(|| false).unwrap();
        thread::scope(|scope| {
            let joins = scope.spawn(|| meeting.join(2));
            thread::sleep(Duration::from_millis(20));
            assert!(!joins.is_finished());
            drop(reader);
            joins.join().unwrap();
        });
        let first = meeting.attend();
        drop(first);
        assert!(meeting.wait(|| true).is_none(), "the second one is still to write");
    }

    #[test]
    fn who_meets_a_third_meets_its_others() {
        let pairs = [(0, 3), (1, 2), (2, 3)];
        let circle = circles(6, |first, second| pairs.contains(&(first, second)));
        assert!(circle[..4].iter().all(|of| *of == circle[0]), "{circle:?}");
        assert!(circle[4] != circle[0] && circle[5] != circle[0] && circle[4] != circle[5], "{circle:?}");
    }
}
