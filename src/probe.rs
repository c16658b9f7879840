//! Kernel probes: the only room that knows libbpf.

mod perf_event;
pub mod stacks;
