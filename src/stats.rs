//! Statistics of measured values: pure functions.

mod beta;
mod drift;
mod estimate;
mod holm;
mod looks;
mod median;
mod normal;
mod paired;
pub mod student;

pub use drift::{Drift, drift, slope};
pub use estimate::{Estimate, welch};
pub use holm::holm;
pub use looks::Looks;
pub use median::{LEAST_FOR_INTERVAL, median, median_interval};
pub use paired::PairedDifferences;

#[cfg(test)]
mod scipy_tests;
