//! Kernel probes: load, attach, read, detach. The only room that knows libbpf.
//!
//! Everything here ends with the process: links and maps are file descriptors, nothing is pinned,
//! nothing else is changed.

pub mod births;
pub mod blocked;
pub mod btf;
pub mod btf_file;
pub mod cost;
pub mod cpu;
pub mod events;
mod file_ios;
pub mod files;
pub mod filter;
pub mod generator;
pub mod groups;
pub mod held;
pub mod interrupts;
mod kicks;
pub mod latency;
mod libbpf;
pub mod locks;
mod multipath;
pub mod pagecache;
mod perf_event;
pub mod permit;
pub mod plan;
pub mod preflight;
mod process_ios;
mod process_maps;
pub mod reclaim;
mod registry;
mod skel;
mod spec;
pub mod stacks;
mod syscalls;
pub mod threads;
mod trial;
pub mod verifier;
mod waits;

use std::time::{Duration, Instant};

/// Waits until `deadline` or until `stop` says so, and calls `tick` several times a second meanwhile; true when the
/// deadline was reached.
fn wait(deadline: Option<Instant>, stop: &dyn Fn() -> bool, tick: &mut dyn FnMut()) -> bool {
    loop {
        tick();
        if stop() {
            return false;
        }
        let now = Instant::now();
        if deadline.is_some_and(|end| now >= end) {
            return true;
        }
        let mut nap = Duration::from_millis(20);
        if let Some(end) = deadline {
            nap = nap.min(end - now);
        }
        std::thread::sleep(nap);
    }
}
