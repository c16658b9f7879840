//! Waits in tests, with time limits that grow when the machine is busy.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The part of the stalled time (a task waited for a CPU or a disk) that does not count against a limit: under other
/// load a test gets at most ten times its limit.
const EXCUSED: f64 = 0.9;

/// A time limit that grows while the machine is busy, by the kernel's pressure stall information. Without that
/// (CONFIG_PSI, Linux 4.20) the limit is fixed.
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

    /// Fails the test if the limit has passed.
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

/// How long, since boot, at least one task waited for a CPU or for a disk, whichever is longer.
fn stalled() -> Duration {
    let total = |resource: &str| {
        let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
        // The first line is `some`; its times are in microseconds.
        text.lines().next()?.rsplit_once("total=")?.1.trim().parse().ok().map(Duration::from_micros)
    };
    ["cpu", "io"].into_iter().filter_map(total).max().unwrap_or_default()
}
