//! Kernel bytes and host facts to summaries: one mergeable summary per concern. Pure.

pub mod groups;
pub mod invariants;
pub mod latency;
pub mod layers;
pub mod operations;
pub mod parts;
pub mod stacks;
pub mod trace;
