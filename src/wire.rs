//! Rust mirror of `bpf/wire.h`.

pub mod stacks;
