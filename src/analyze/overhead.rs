//! Measures the overhead of the programs: a load's rate and CPU time with and without them, alternating.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::View;
use crate::stats::{median, median_interval};

/// Measurement of a phase with or without the programs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OverheadPhase {
    pub ns: u64,
    /// As counted by the kernel.
    pub ios: u64,
    /// Busy time of all CPUs.
    pub busy_ns: u64,
}

impl OverheadPhase {
    fn rate(&self) -> f64 {
        self.ios as f64 * 1e9 / self.ns.max(1) as f64
    }

    fn busy_per_io(&self) -> f64 {
        self.busy_ns as f64 / self.ios.max(1) as f64
    }
}

/// Two consecutive phases.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pair {
    pub without: OverheadPhase,
    pub with: OverheadPhase,
}

/// The view of `biopsy latency --measure-cost`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OverheadSummary {
    /// Of each phase, without what is left out behind each change.
    pub phase_ns: u64,
    /// Pairs of a phase with the programs and one without, the order of which alternates.
    pub pairs: u64,
    /// Pairs with a phase that had no I/O: they are in no figure.
    pub pairs_without_io: u64,
    /// Medians over the pairs, I/Os per second as the kernel counts them.
    pub iops_without: Option<f64>,
    pub iops_with: Option<f64>,
    /// Of the rate without the programs, by pair.
    pub iops_lost_percent: Option<Estimate>,
    /// CPU time of the machine per I/O with the programs less that without them, by pair.
    pub cpu_ns_per_io: Option<Estimate>,
}

/// A median, and the interval that holds the true one in 95 of 100 runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    /// None with fewer than six values.
    fn new(values: &[f64]) -> Option<Self> {
        let (low, high) = median_interval(values)?;
        Some(Self { median: median(values)?, low, high })
    }
}

impl View for OverheadSummary {
    const SCHEMA: &'static str = "biopsy.overhead/1";
}

impl OverheadSummary {
    pub fn new(phase_ns: u64, pairs: &[Pair]) -> Self {
        let busy: Vec<&Pair> =
            pairs.iter().filter(|pair| pair.without.ios > 0 && pair.with.ios > 0).collect();
        let each = |of: fn(&Pair) -> f64| -> Vec<f64> { busy.iter().map(|pair| of(pair)).collect() };
        Self {
            phase_ns,
            pairs: pairs.len() as u64,
            pairs_without_io: (pairs.len() - busy.len()) as u64,
            iops_without: median(&each(|pair| pair.without.rate())),
            iops_with: median(&each(|pair| pair.with.rate())),
            iops_lost_percent: Estimate::new(&each(|pair| {
                100.0 * (1.0 - pair.with.rate() / pair.without.rate())
            })),
            cpu_ns_per_io: Estimate::new(&each(|pair| pair.with.busy_per_io() - pair.without.busy_per_io())),
        }
    }

    /// Why it has no figure, if it has none.
    pub fn distrust(&self) -> Option<&'static str> {
        self.iops_lost_percent.is_none().then_some(
            "too few pairs with I/O to measure the cost: let the load run all of the time, on a device whose I/O the \
             kernel counts",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(without: u64, with: u64) -> Pair {
        let phase = |ios: u64, per_io: u64| OverheadPhase { ns: 1_000_000_000, ios, busy_ns: ios * per_io };
        Pair { without: phase(without, 1_000), with: phase(with, 1_300) }
    }

    #[test]
    fn the_loss_is_that_of_the_pairs_whatever_the_load_does_meanwhile() {
        // The rate doubles after half of the run.
        let pairs: Vec<Pair> =
            (0..12).map(|i| if i < 6 { pair(1_000, 950) } else { pair(2_000, 1_900) }).collect();
        let found = OverheadSummary::new(1_000_000_000, &pairs);
        let lost = found.iops_lost_percent.unwrap();
        assert!((lost.median - 5.0).abs() < 1e-9 && (lost.high - lost.low).abs() < 1e-9, "{lost:?}");
        assert_eq!(found.cpu_ns_per_io.map(|ns| ns.median), Some(300.0));
        assert_eq!((found.iops_without, found.pairs_without_io), (Some(1_500.0), 0));
    }

    #[test]
    fn pairs_without_io_are_in_no_figure() {
        let found = OverheadSummary::new(1, &[pair(0, 5), pair(5, 0), pair(10, 9)]);
        assert_eq!((found.pairs, found.pairs_without_io), (3, 2));
        assert_eq!(
            (found.iops_without, found.iops_lost_percent),
            (Some(10.0), None),
            "too few for an interval"
        );
        assert_eq!(OverheadSummary::new(1, &[]).iops_with, None);
    }
}
