//! Measures the CPU time of io_uring's worker threads (`iou-wrk-*`).
//!
//! The kernel starts them in this process for operations that would have blocked at submission. Their time is not
//! charged to any thread of the generator. They never leave the kernel, so all of it is system time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::RingWorkers;

/// The threads of this process.
pub const TASKS: &str = "/proc/self/task";

/// Sampling interval: an idle worker exits after 5 s, and its count is lost then.
pub const EVERY_NS: u64 = 1_000_000_000;

/// Adds up the workers' CPU time from [`Meter::begin`] on.
///
/// The kernel counts nanoseconds. The count of a sleeping thread is exact; that of a running one lags by at most one
/// scheduler tick. So take the last sample when nothing is in flight and before the submitting threads have exited,
/// because their workers exit with them.
#[derive(Debug)]
pub struct Meter {
    tasks: PathBuf,
    /// By thread: its last count, and whether it is already counted in `found`.
    seen: BTreeMap<u32, (u64, bool)>,
    found: RingWorkers,
    unreadable: Option<&'static str>,
}

impl Meter {
    /// Starts at zero: earlier CPU time does not count.
    pub fn begin(tasks: &Path) -> Self {
        let mut meter = Self {
            tasks: tasks.to_path_buf(),
            seen: BTreeMap::new(),
            found: RingWorkers::default(),
            unreadable: None,
        };
        meter.look();
        meter.found = RingWorkers::default();
        meter.seen.values_mut().for_each(|(_, found)| *found = false);
        meter
    }

    /// Samples the current threads.
    pub fn look(&mut self) {
        let Ok(tasks) = fs::read_dir(&self.tasks) else {
            self.unreadable = Some("/proc/self/task cannot be read");
            return;
        };
        for task in tasks.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may exit between two reads.
            if !fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with("iou-wrk-")) {
                continue;
            }
            match fs::read_to_string(task.path().join("schedstat")) {
                Ok(text) => self.count(tid, run_ns(&text).unwrap_or(0)),
                Err(_) if !task.path().exists() => {}
                Err(_) => self.unreadable = Some("this kernel has no schedstat (CONFIG_SCHED_INFO)"),
            }
        }
    }

    fn count(&mut self, tid: u32, now: u64) {
        let (before, found) = self.seen.entry(tid).or_default();
        // A smaller count belongs to a new thread that reuses the id.
        if now < *before {
            (*before, *found) = (0, false);
        }
        if now > *before && !*found {
            self.found.threads += 1;
            *found = true;
        }
        self.found.system_ns += now - *before;
        *before = now;
    }

    /// The result, or the reason why there is none.
    pub fn end(self) -> Result<RingWorkers, &'static str> {
        self.unreadable.map_or(Ok(self.found), Err)
    }
}

/// Nanoseconds on a CPU: the first number of `schedstat`.
fn run_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use io_uring::{IoUring, opcode, squeue, types};

    fn thread(tasks: &Path, tid: u32, comm: &str, ns: u64) {
        let directory = tasks.join(tid.to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(directory.join("schedstat"), format!("{ns} 17 3\n")).unwrap();
    }

    #[test]
    fn only_ring_workers_count_and_only_from_the_beginning_on() {
        let tasks = std::env::temp_dir().join(format!("biopsy-ring-workers-{}", std::process::id()));
        thread(&tasks, 100, "load-0", 1_000_000);
        thread(&tasks, 101, "iou-wrk-100", 500);
        let mut meter = Meter::begin(&tasks);
        thread(&tasks, 100, "load-0", 9_000_000);
        thread(&tasks, 101, "iou-wrk-100", 800);
        thread(&tasks, 102, "iou-wrk-100", 0);
        meter.look();
        thread(&tasks, 102, "iou-wrk-100", 40);
        // One thread exits, and a new one reuses its id.
        fs::remove_dir_all(tasks.join("101")).unwrap();
        meter.look();
        thread(&tasks, 101, "iou-wrk-100", 7);
        meter.look();
        assert_eq!(meter.end(), Ok(RingWorkers { threads: 3, system_ns: 300 + 40 + 7 }));

        let mut meter = Meter::begin(&tasks);
        fs::remove_file(tasks.join("101/schedstat")).unwrap();
        meter.look();
        assert!(meter.end().unwrap_err().contains("schedstat"));
        fs::remove_dir_all(&tasks).unwrap();
        assert!(Meter::begin(&tasks).end().is_err());
    }

    /// IOSQE_ASYNC sends every operation to a worker, whatever the file system supports.
    #[test]
    fn work_that_the_kernel_gives_to_its_workers_is_seen() {
        let Ok(mut ring) = IoUring::new(8) else {
            eprintln!("skipped: no io_uring here");
            return;
        };
        let mut meter = Meter::begin(Path::new(TASKS));
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let mut buffer = vec![0u8; 1 << 20];
        for _ in 0..16 {
            let read =
                opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_mut_ptr(), buffer.len() as u32);
            let entry = read.build().flags(squeue::Flags::ASYNC);
            // SAFETY: file and buffer outlive the operation, which is waited for.
            unsafe { ring.submission().push(&entry).unwrap() };
            ring.submit_and_wait(1).unwrap();
            assert!(ring.completion().next().unwrap().result() > 0);
        }
        meter.look();
        match meter.end() {
            Ok(found) => assert!(found.threads > 0 && found.system_ns > 100_000, "{found:?}"),
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}
