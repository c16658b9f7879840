//! Kernel probes: the only room that knows libbpf.
