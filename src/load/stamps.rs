//! The generator's clock: CLOCK_MONOTONIC, read through the time stamp counter (TSC) where that can be trusted.
//!
//! Reading the counter costs a third of a call of `clock_gettime`. The counter is resynchronised with CLOCK_MONOTONIC
//! at least every 10 ms. The deviation is measured each time; the largest one is the error bound of all stamps.

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock;

/// The longest time between two synchronisations.
const STRETCH_NS: u64 = 10_000_000;
/// The first stretch, which calibrates the counter before anything begins.
const FIRST_NS: u64 = 2_000_000;
/// Fraction bits of the scale.
const SHIFT: u32 = 32;
/// Attempts to read both clocks without an interrupt in between.
const ATTEMPTS: u32 = 16;

/// What a stamp is worth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockQuality {
    /// The time stamp counter, and not `clock_gettime`.
    pub counter: bool,
    /// The largest distance from CLOCK_MONOTONIC that was seen when the two were compared, with the length of
    /// the comparison itself; None for `clock_gettime`, which is CLOCK_MONOTONIC.
    pub error_ns: Option<u64>,
    /// What one reading costs, measured before the run.
    pub cost_ns: f64,
}

/// A thread's clock.
#[derive(Debug, Clone)]
pub struct Stamps {
    counter: Option<ClockSync>,
    cost_ns: f64,
}

/// The last synchronisation of the counter with the clock, and its speed.
#[derive(Debug, Clone)]
struct ClockSync {
    ticks: u64,
    ns: u64,
    /// Nanoseconds per tick, with [`SHIFT`] fraction bits.
    scale: u64,
    stretch: u64,
    /// The first reading (ticks, ns), for the scale: a longer baseline is more precise.
    first: (u64, u64),
    error_ns: u64,
}

impl Stamps {
    /// Calibrates the counter: takes 2 ms where there is one.
    pub fn new(counter_is_trusted: bool) -> Self {
        let mut stamps = Self { counter: counter_is_trusted.then(ClockSync::new).flatten(), cost_ns: 0.0 };
        // The minimum over some batches: the others were interrupted.
        const BATCHES: u32 = 10;
        const READINGS: u32 = 100;
        let cost = |stamps: &mut Self| {
            let begin = clock::now_ns();
            for _ in 0..READINGS {
                std::hint::black_box(stamps.now_ns());
            }
            (clock::now_ns() - begin) as f64 / f64::from(READINGS)
        };
        stamps.cost_ns = (0..BATCHES).map(|_| cost(&mut stamps)).fold(f64::INFINITY, f64::min);
        stamps
    }

    /// Nanoseconds of CLOCK_MONOTONIC.
    #[inline]
    pub fn now_ns(&mut self) -> u64 {
        match &mut self.counter {
            Some(counter) => counter.now_ns(),
            None => clock::now_ns(),
        }
    }

    /// The quality of the stamps so far.
    pub fn quality(&self) -> ClockQuality {
        ClockQuality {
            counter: self.counter.is_some(),
            error_ns: self.counter.as_ref().map(|counter| counter.error_ns),
            cost_ns: self.cost_ns,
        }
    }
}

impl ClockSync {
    /// None where the counter does not advance.
    fn new() -> Option<Self> {
        let (ticks, ns, _) = both();
        let first = (ticks, ns);
        while clock::now_ns() < ns + FIRST_NS {
            std::hint::spin_loop();
        }
        let mut counter = Self { ticks, ns, scale: 0, stretch: 0, first, error_ns: 0 };
        let (ticks, ns, width) = both();
        counter.tie(ticks, ns)?;
        // Nothing was predicted yet, so the only error is the duration of the comparison.
        counter.error_ns = width;
        Some(counter)
    }

    #[inline]
    fn now_ns(&mut self) -> u64 {
        let passed = ticks().saturating_sub(self.ticks);
        if passed > self.stretch {
            return self.again();
        }
        self.ns + scaled(passed, self.scale)
    }

    /// Compares the two clocks and begins a new stretch.
    #[cold]
    fn again(&mut self) -> u64 {
        let (ticks, ns, width) = both();
        let passed = ticks.saturating_sub(self.ticks);
        // After a long sleep of the thread the prediction means nothing: no stamp is ever taken that far from a
        // synchronisation.
        if passed < 2 * self.stretch {
            let predicted = self.ns + scaled(passed, self.scale);
            self.error_ns = self.error_ns.max(predicted.abs_diff(ns) + width);
        }
        // If the counter went back (a CPU of another socket), the old speed is kept.
        if self.tie(ticks, ns).is_none() {
            (self.ticks, self.ns) = (ticks, ns);
        }
        ns
    }

    fn tie(&mut self, ticks: u64, ns: u64) -> Option<()> {
        let (passed, time) = (ticks.checked_sub(self.first.0)?, ns.checked_sub(self.first.1)?);
        if passed == 0 {
            return None;
        }
        let scale = (u128::from(time) << SHIFT) / u128::from(passed);
        self.scale = u64::try_from(scale).ok().filter(|scale| *scale > 0)?;
        self.stretch = ((u128::from(STRETCH_NS) << SHIFT) / scale) as u64;
        (self.ticks, self.ns) = (ticks, ns);
        Some(())
    }
}

#[inline]
fn scaled(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> SHIFT) as u64
}

/// Reads both clocks: the counter at the midpoint of the shortest of several readings, and the duration of that reading
/// in nanoseconds.
fn both() -> (u64, u64, u64) {
    let mut best = (0, 0, u64::MAX);
    for _ in 0..ATTEMPTS {
        let before = clock::now_ns();
        let ticks = ticks();
        let after = clock::now_ns();
        let width = after - before;
        if width < best.2 {
            best = (ticks, before + width / 2, width);
        }
    }
    best
}

/// Reads the time stamp counter of this CPU.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction. A process may have it disabled (PR_SET_TSC), but then nothing in it
    // would run: the C library's own clock uses it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> u64 {
    0
}

/// Whether the counter runs at a constant rate on all CPUs and in all idle states, and the kernel still uses it;
/// otherwise the reason.
pub fn counter_is_trusted(root: &Path) -> Result<(), &'static str> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("this CPU has no supported time stamp counter");
    }
    let cpus = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag| flags.split_whitespace().any(|word| word == flag);
    if !has("constant_tsc") || !has("nonstop_tsc") {
        return Err("the time stamp counter stops or changes its speed (no constant_tsc and nonstop_tsc)");
    }
    let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(root.join(source)).unwrap_or_default();
    match source.trim() {
        // Virtual machines derive these clock sources from the counter.
        "tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "xen" => Ok(()),
        _ => Err("the kernel does not use the time stamp counter as its clock"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> Option<Stamps> {
        let trusted = counter_is_trusted(Path::new("/")).is_ok();
        if !trusted {
            eprintln!("skipped: no counter to trust here");
        }
        trusted.then(|| Stamps::new(true))
    }

    #[test]
    fn stamps_keep_to_the_clock_within_their_bound() {
        let Some(mut stamps) = counter() else { return };
        let begin = clock::now_ns();
        let mut worst = 0;
        while clock::now_ns() < begin + 60_000_000 {
            let (before, stamp, after) = (clock::now_ns(), stamps.now_ns(), clock::now_ns());
            worst = worst.max(before.saturating_sub(stamp)).max(stamp.saturating_sub(after));
        }
        let quality = stamps.quality();
        let bound = quality.error_ns.unwrap();
        assert!(quality.counter && quality.cost_ns > 0.0);
        // The bound holds at the synchronisations; between them the deviation is at most that of the next one.
        assert!(worst <= 2 * bound + 100, "{worst} ns off, the bound is {bound}");
        assert!(bound < 50_000, "{bound}");
    }

    #[test]
    fn without_a_counter_it_is_the_clock_itself() {
        let mut stamps = Stamps::new(false);
        let before = clock::now_ns();
        assert!((before..=clock::now_ns() + 1_000_000).contains(&stamps.now_ns()));
        assert_eq!(stamps.quality().error_ns, None);
    }

    #[test]
    fn a_long_sleep_is_no_error_of_the_counter() {
        let Some(mut stamps) = counter() else { return };
        let bound = stamps.quality().error_ns;
        std::thread::sleep(std::time::Duration::from_millis(50));
        stamps.now_ns();
        assert_eq!(stamps.quality().error_ns, bound);
    }

    #[test]
    fn only_a_steady_counter_is_trusted() {
        let root = std::env::temp_dir().join(format!("biopsy-stamps-{}", std::process::id()));
        let source = root.join("sys/devices/system/clocksource/clocksource0");
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        let trusted = |flags: &str, clock: &str| {
            fs::write(root.join("proc/cpuinfo"), format!("processor : 0\nflags\t\t: fpu {flags}\n")).unwrap();
            fs::write(source.join("current_clocksource"), clock).unwrap();
            counter_is_trusted(&root).is_ok()
        };
        assert!(trusted("constant_tsc nonstop_tsc", "tsc\n"));
        assert!(!trusted("constant_tsc", "tsc\n"));
        assert!(!trusted("constant_tsc nonstop_tsc", "hpet\n"));
        fs::remove_dir_all(&root).unwrap();
    }
}
