//! Kernel bytes and host facts to summaries: one mergeable summary per concern. Pure.

pub mod blocked;
pub mod cliff;
pub mod counting;
pub mod cpu;
pub mod flame;
pub mod flame_diff;
pub mod groups;
pub mod interrupts;
pub mod invariants;
pub mod knee;
pub mod latency;
pub mod layers;
#[cfg(test)]
mod literal;
pub mod locks;
pub mod loss;
pub mod missing;
pub mod moment;
pub mod onset;
pub mod op;
pub mod operations;
pub mod pagecache;
pub mod parts;
pub mod profile;
pub mod queues;
pub mod rates;
mod scatter;
pub mod sharing;
pub mod stacks;
pub mod stage;
pub mod submits;
pub mod sweep;
pub mod threads;
pub mod timeline;
pub mod top;
pub mod trace;
pub mod unwinding;
