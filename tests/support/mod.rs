//! What the test programs share.

pub mod patience;
pub mod programs;
pub mod scratch;
pub mod skip;
pub mod tool;
