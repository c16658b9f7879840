//! Rust mirror of `bpf/wire.h`.
