//! A threshold on a latency or a rate, which triggers the flight recorder.

use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency, Unit};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::hist::Histogram;

/// A class with fewer I/Os in an interval has no meaningful latency: with one I/O, p99 is that I/O.
pub const LEAST: u64 = 10;

/// Hysteresis: how far a value must return before the threshold can be crossed again, as a share of the threshold. A
/// value that hovers around it crosses it once.
const BACK: f64 = 0.1;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TriggerMetric {
    /// Per device and second.
    Iops,
    /// Per class of each device, in ns. Without a stage: the total time of its operations or, where most of its I/Os
    /// belong to no operation, the device time of the I/Os.
    Latency { stage: Option<Stage>, of: Of },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Of {
    Mean,
    Quantile(f64),
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundSide {
    Above,
    Below,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Condition {
    pub metric: TriggerMetric,
    pub side: BoundSide,
    pub bound: f64,
}

/// Where the threshold is exceeded most.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    pub device: String,
    pub op: Option<Op>,
    pub value: f64,
}

impl Condition {
    pub fn crossed(&self, summary: &LatencySummary) -> Option<Crossing> {
        let values = summary.devices.iter().flat_map(|device| self.values(device, summary.duration_ns));
        let further = |a: &f64, b: &f64| match self.side {
            BoundSide::Above => a.total_cmp(b),
            BoundSide::Below => b.total_cmp(a),
        };
        let most = values.max_by(|a, b| further(&a.value, &b.value))?;
        further(&most.value, &self.bound).is_gt().then_some(most)
    }

    /// Whether all values have returned past the hysteresis, so that the threshold can be crossed again; false without
    /// a value.
    pub fn is_over(&self, summary: &LatencySummary) -> bool {
        let bound = match self.side {
            BoundSide::Above => self.bound * (1.0 - BACK),
            BoundSide::Below => self.bound * (1.0 + BACK),
        };
        let has_value =
            summary.devices.iter().any(|device| !self.values(device, summary.duration_ns).is_empty());
        has_value && Self { bound, ..*self }.crossed(summary).is_none()
    }

    fn values(&self, device: &DeviceLatency, duration_ns: u64) -> Vec<Crossing> {
        let crossed = |op, value| Crossing { device: device.name.clone(), op, value };
        match self.metric {
            TriggerMetric::Iops if duration_ns == 0 => Vec::new(),
            TriggerMetric::Iops => vec![crossed(None, device.ios as f64 * 1e9 / duration_ns as f64)],
            TriggerMetric::Latency { stage, of } => {
                let value = |op: &OpLatency| of.value(times(op, stage)?);
                device.ops.iter().filter_map(|(op, seen)| Some(crossed(Some(*op), value(seen)?))).collect()
            }
        }
    }
}

fn times(op: &OpLatency, stage: Option<Stage>) -> Option<&Histogram> {
    let (unit, stages) = op.stages();
    let whole = || match (unit, &op.operations) {
        (Unit::Operation, Some(operations)) => Some(&operations.total),
        _ => op.bio.as_ref().or_else(|| stages.get(&Stage::Device)),
    };
    stage.map_or_else(whole, |stage| stages.get(&stage)).filter(|times| times.count() >= LEAST)
}

impl Of {
    fn value(self, times: &Histogram) -> Option<f64> {
        match self {
            Self::Mean => times.mean(),
            Self::Quantile(q) => times.quantile(q).map(|ns| ns as f64),
            Self::Max => times.max().map(|ns| ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// One second with `n` reads of `ns` in the device `a`, and one slow read in `b`.
    fn second(n: u64, ns: u64) -> LatencySummary {
        let device = |name: &str, n: u64, ns: u64| {
            let hist: Histogram = (0..n).map(|_| ns).collect();
            let op = OpLatency {
                ios: n,
                request_stages: BTreeMap::from([(Stage::Device, hist)]),
                ..Default::default()
            };
            DeviceLatency {
                name: name.into(),
                ios: n,
                ops: BTreeMap::from([(Op::Read, op)]),
                ..Default::default()
            }
        };
        let devices = vec![device("a", n, ns), device("b", 1, 1_000_000_000)];
        LatencySummary { duration_ns: 1_000_000_000, devices, ..Default::default() }
    }

    #[test]
    fn a_bound_is_crossed_by_the_worst_class_that_says_something() {
        let metric = |stage| TriggerMetric::Latency { stage, of: Of::Quantile(0.99) };
        let condition = Condition { metric: metric(None), side: BoundSide::Above, bound: 2_000_000.0 };
        assert_eq!(condition.crossed(&second(100, 1_000_000)), None, "one slow I/O of b is not its p99");
        let crossed = condition.crossed(&second(100, 3_000_000)).unwrap();
        assert_eq!((&*crossed.device, crossed.op), ("a", Some(Op::Read)));
        assert!((2_800_000.0..=3_000_000.0).contains(&crossed.value), "{crossed:?}");
        // Just below the threshold is not enough.
        assert!(!condition.is_over(&second(100, 1_950_000)) && condition.is_over(&second(100, 1_000_000)));
        let of_queue = Condition { metric: metric(Some(Stage::Queue)), ..condition };
        assert_eq!(of_queue.crossed(&second(100, 3_000_000)), None);
    }

    #[test]
    fn an_interval_without_a_value_says_nothing() {
        let metric = TriggerMetric::Latency { stage: None, of: Of::Max };
        let condition = Condition { metric, side: BoundSide::Above, bound: 2_000_000.0 };
        assert!(!condition.is_over(&second(3, 1_000)), "fewer than ten I/Os");
        assert!(condition.is_over(&second(10, 1_000)));
    }

    #[test]
    fn a_rate_falls_below_its_bound() {
        let condition = Condition { metric: TriggerMetric::Iops, side: BoundSide::Below, bound: 50.0 };
        assert_eq!(condition.crossed(&second(100, 1)).unwrap().device, "b");
        let mut summary = second(100, 1);
        summary.devices.pop();
        assert!(condition.crossed(&summary).is_none() && condition.is_over(&summary));
        summary.devices[0].ios = 52;
        assert!(condition.crossed(&summary).is_none() && !condition.is_over(&summary));
        assert_eq!(condition.crossed(&LatencySummary::default()), None);
    }
}
