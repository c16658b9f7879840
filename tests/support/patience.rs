//! How long a test waits for something that takes as long as the machine lets it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Of the time in which a task of this machine waited for a CPU or for a disk, this part does not count: a test beside
/// other work gets ten times its limit at most.
const EXCUSED: f64 = 0.9;

/// A limit that grows with what else the machine does, by the kernel's pressure stall information. Without that
/// (CONFIG_PSI, Linux 4.20) it is a fixed one.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    begin: Instant,
    stalled: Duration,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Self { limit, begin: Instant::now(), stalled: stalled() }
    }

    /// Fails the test where what it waited for took longer.
    #[track_caller]
    pub fn holds(&self) {
        assert!(!self.is_over(), "it took {:?}, and {:?} are allowed", self.begin.elapsed(), self.limit);
    }

    pub fn is_over(&self) -> bool {
        let elapsed = self.begin.elapsed();
        elapsed > self.limit && {
            let excused = stalled().saturating_sub(self.stalled).min(elapsed);
            elapsed.saturating_sub(excused.mul_f64(EXCUSED)) > self.limit
        }
    }
}

/// Waits until `there` is true.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut there: impl FnMut() -> bool) {
    let patience = Patience::new(limit);
    while !there() {
        assert!(!patience.is_over(), "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// How long at least one task waited for a CPU, or for a disk, since boot: the longer one.
fn stalled() -> Duration {
    let total = |resource: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        // The first line is `some`, the times in it are microseconds.
        text.lines().next()?.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
    };
    ["cpu", "io"].into_iter().filter_map(total).max().unwrap_or_default()
}
