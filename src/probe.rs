//! Loads, attaches, reads and detaches the kernel probes. The only module that uses libbpf.
//!
//! Everything here ends with the process: links and maps are file descriptors, nothing is pinned, and nothing else is
//! changed.

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

/// The longest sleep between two ticks.
const NAP: Duration = Duration::from_millis(50);

/// An attached probe. It counts while its interval is open.
pub trait Probe {
    type Reading: Clone;

    /// Opens the interval of a prepared probe.
    fn begin(&mut self) -> Result<()>;

    /// The reading at the start of the interval.
    fn start(&self) -> &Self::Reading;

    /// Does the work that is due: slices that measure the cost, names of new objects. Called several times a second.
    fn tick(&mut self);

    /// How long to sleep until the next tick.
    fn nap(&self) -> Duration {
        NAP
    }

    /// The current state, with the kernel's own counters read around it.
    fn read(&self) -> Result<Self::Reading>;

    /// Closes the interval, reads its end and detaches; the probe's cost can still be read.
    fn detach(&mut self) -> Result<Self::Reading>;

    /// Ticks until `deadline` (returns true), or until `stop` returns true (returns false); `stop` is called at least
    /// once per `longest`.
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
