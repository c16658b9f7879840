//! Kernel probes: load, attach, read, detach. The only room that knows libbpf.
//!
//! Everything here ends with the process: links and maps are file descriptors, nothing is pinned,
//! nothing else is changed.

pub mod btf;
pub mod cost;
pub mod events;
pub mod filter;
pub mod generator;
pub mod groups;
pub mod held;
pub mod latency;
mod layers;
mod libbpf;
mod multipath;
mod perf_event;
pub mod plan;
pub mod preflight;
mod skel;
pub mod stacks;
mod syscalls;
pub mod verifier;
