//! Experiments: runs one load in several arms, in random balanced blocks, and estimates the differences between the
//! arms.
//!
//! A block runs each arm once. Every second block reverses the order of the block before it (ABBA), so that a drift
//! that is linear over the two cancels. Ratios compare arms within a block. Confidence intervals are computed from
//! blocks, never from I/Os, because the I/Os of a block are not independent.

pub mod compare;
mod depth;
mod live;
mod order;
mod ratio;
mod verdict;

pub use depth::{Arm, ArmResult, BlockResult, Curve, LATENCY_BOUND, Regime, SATURATED};
pub use live::of_depth;
pub use ratio::Ratio;
pub use verdict::{EvaluationPlan, Verdict};
