//! Experiments: one load in several arms, in random balanced blocks, and by how much the arms differ.
//!
//! A block runs each arm once. Every second block runs them in the reverse order of the block before it (ABBA), so that
//! a drift that is linear over the two cancels. Ratios are of arms within a block. An interval is made of blocks, never of
//! I/Os: those of one block are not independent of each other.

pub mod compare;
mod depth;
mod live;
mod order;
mod ratio;
mod verdict;

pub use depth::{Arm, Curve, LATENCY_BOUND, Point, Regime, SATURATED, Tried};
pub use live::of_depth;
pub use ratio::Ratio;
pub use verdict::{Plan, Verdict};
