//! The metrics of a comparison.

use crate::load::{Job, LoadSummary};
use crate::names::names;

names! {
    /// A value measured in each round.
    pub enum MetricKind {
        Iops = "iops",
        Bandwidth = "bytes_per_second",
        Mean = "mean_ns",
        Median = "p50_ns",
        P99 = "p99_ns",
        CpuPerIo = "cpu_ns_per_io",
        Elapsed = "elapsed_ns",
        /// A number that a command prints.
        Value = "value",
        /// A printed number of which less is better.
        LessValue = "value_less_is_better",
    }
}

impl MetricKind {
    /// The title in a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Bandwidth => "bandwidth",
            Self::Mean => "mean latency",
            Self::Median => "median latency",
            Self::P99 => "p99 latency",
            Self::CpuPerIo => "CPU time per I/O",
            Self::Elapsed => "elapsed time",
            Self::Value | Self::LessValue => "value",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Iops => "1/s",
            Self::Bandwidth => "B/s",
            Self::Mean | Self::Median | Self::P99 | Self::CpuPerIo | Self::Elapsed => "ns",
            Self::Value | Self::LessValue => "",
        }
    }

    pub fn more_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::Bandwidth | Self::Value)
    }

    /// Whether the command itself prints the number.
    pub fn is_printed(self) -> bool {
        matches!(self, Self::Value | Self::LessValue)
    }

    /// Whether it is measured for a command, not for a load.
    pub fn is_of_command(self) -> bool {
        self == Self::Elapsed || self.is_printed()
    }

    /// How far two arms may differ and count as equal, from the margin of means and rates: the tail varies more.
    pub fn margin(self, margin: f64) -> f64 {
        if self == Self::P99 { 2.0 * margin } else { margin }
    }

    /// The value of one round of a load; None where it has none.
    pub fn of(self, load: &LoadSummary) -> Option<f64> {
        let latency = || load.latency();
        match self {
            Self::Iops => load.iops(),
            Self::Bandwidth => load.bytes_per_second(),
            Self::Mean => latency().mean(),
            Self::Median => latency().interpolated(0.5),
            Self::P99 => latency().interpolated(0.99),
            Self::CpuPerIo => {
                let operations = load.operations();
                (operations > 0).then(|| (load.user_ns() + load.system_ns()) as f64 / operations as f64)
            }
            Self::Elapsed | Self::Value | Self::LessValue => None,
        }
    }
}

/// The default metric: latency if a rate is set; bytes if the arms' block sizes differ.
pub fn default_for(jobs: &[&Job]) -> MetricKind {
    let first = jobs.first();
    if jobs.iter().any(|job| job.rate.is_some()) {
        MetricKind::Mean
    } else if jobs.iter().any(|job| first.is_some_and(|first| (&job.bs, job.rw) != (&first.bs, first.rw))) {
        MetricKind::Bandwidth
    } else {
        MetricKind::Iops
    }
}
