//! Kernel probes: load, attach, read, detach. The only room that knows libbpf.
//!
//! Everything here ends with the process: links and maps are file descriptors, nothing is pinned,
//! nothing else is changed.

pub mod blocked;
pub mod btf;
pub mod btf_file;
pub mod cost;
pub mod cpu;
pub mod errors;
pub mod events;
mod file_ios;
pub mod files;
pub mod filter;
mod flame;
pub mod generator;
pub mod groups;
pub mod interrupts;
pub mod latency;
mod libbpf;
pub mod loaded_objects;
pub mod locks;
mod maps;
mod multipath;
pub mod pagecache;
mod perf_event;
pub mod permit;
pub mod plan;
pub mod preflight;
pub mod process_events;
mod process_ios;
mod process_maps;
pub mod reclaim;
mod registry;
mod self_interrupt;
mod skel;
mod spec;
pub mod stacks;
mod syscalls;
pub mod threads;
mod trial;
pub mod verifier;
mod waits;

pub use self::libbpf::version as libbpf_version;

use std::time::{Duration, Instant};

use anyhow::Result;

/// The longest nap between two ticks.
const NAP: Duration = Duration::from_millis(50);

/// A probe that is attached. It counts while its window is open.
pub trait Probe {
    type Reading: Clone;

    /// Opens the window of a probe that was prepared.
    fn begin(&mut self) -> Result<()>;

    /// The reading at which the window opened.
    fn start(&self) -> &Self::Reading;

    /// What is due: slices in which the cost is measured, names of what is new. Called several times a second.
    fn tick(&mut self);

    /// How long nothing is due.
    fn nap(&self) -> Duration {
        NAP
    }

    /// The state now, with the kernel's own counters around it.
    fn read(&self) -> Result<Self::Reading>;

    /// Closes the window, reads its end and detaches; the probe stays readable for its cost.
    fn detach(&mut self) -> Result<Self::Reading>;

    /// Ticks until `deadline` (true), or until `stop` says so, which is asked at least once in `longest`.
    fn wait(&mut self, deadline: Option<Instant>, longest: Duration, stop: &dyn Fn() -> bool) -> bool {
        loop {
            self.tick();
            if stop() {
                return false;
            }
            let now = Instant::now();
            if deadline.is_some_and(|end| now >= end) {
                return true;
            }
            let nap = self.nap().min(longest);
            let nap = deadline.map_or(nap, |end| nap.min(end - now));
            std::thread::sleep(nap);
        }
    }
}
