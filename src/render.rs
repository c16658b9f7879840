//! Renders summaries and findings to bytes: one format per file. Pure: no clock, no file system.

pub mod experiment;
mod files;
pub mod flame;
pub mod flame_diff;
pub mod folded;
pub mod gaps;
#[cfg(test)]
mod hostile_tests;
pub mod html;
pub mod json;
pub mod numbers;
mod parts;
pub mod pprof;
mod processes;
pub mod shares;
pub mod speedscope;
pub mod svg;
pub mod text;
pub mod topology;
