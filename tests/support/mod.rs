//! Code that several test programs share.

pub mod patience;
pub mod programs;
pub mod scratch;
pub mod seccomp;
pub mod skip;
pub mod tool;
