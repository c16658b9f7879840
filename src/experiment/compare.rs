//! Compares values of settings: runs each in balanced blocks, until the ratio is known precisely enough.

mod command;
pub(crate) mod comparison;
mod load;
mod metric;
mod offline;
mod printed;
mod rounds;
pub mod stages;
mod vary;

pub use command::CommandDriver;
pub use comparison::{Arm, Comparison, Difference, MetricComparison, Round, StopReason};
pub use load::{LoadDriver, apply, values};
pub use metric::{MetricKind, default_for};
pub use offline::{SampleSource, differences, offline};
pub use printed::PrintedMetric;
pub use rounds::{Driver, Observer, Options, RoundProgress, run};
pub use vary::{Vary, arms};

#[cfg(test)]
pub(crate) use comparison::tests;
