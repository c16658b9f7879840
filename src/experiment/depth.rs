//! The effect of a higher or lower queue depth on a load: the curve shows whether latency or a throughput limit bounds
//! the rate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ratio::{Ratio, ratio};
use crate::names::names;

/// With a smaller gain from doubling the depth, the rate is limited by throughput.
pub const SATURATED: f64 = 0.05;

/// With a larger gain, the rate is limited by the latency at this depth.
pub const LATENCY_BOUND: f64 = 0.25;

names! {
    /// How an arm's load differs from the measured one.
    pub enum Arm {
        HalfTheDepth = "half-the-depth",
        TheSame = "the-same",
        TwiceTheDepth = "twice-the-depth",
        OneMoreJob = "one-more-job",
    }
}

/// What one block of an arm came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BlockResult {
    pub operations_per_second: f64,
    /// None where no operation finished.
    pub mean_ns: Option<f64>,
}

/// An arm with its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArmResult {
    pub arm: Arm,
    pub iodepth: u32,
    pub numjobs: u32,
    pub blocks: Vec<BlockResult>,
    /// Its rate to that of [`Arm::TheSame`]; None below three blocks.
    pub ratio: Option<Ratio>,
}

/// The arms of an experiment, in the order of their load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Curve {
    pub arms: Vec<ArmResult>,
    /// What is counted of a block of an arm.
    pub block_ns: u64,
    /// Why not all blocks were run; None: all were.
    pub cut: Option<String>,
    /// See [`Self::regime`].
    pub regime: Option<Regime>,
    pub other_regimes: Option<i32>,
}

names! {
    /// What limits the rate of a closed load.
    pub enum Regime {
        /// A higher depth gives more: the depth limits the rate, and thereby the latency.
        LatencyBound = "latency-bound",
        /// In between: both more depth and less latency gain something.
        NearTheKnee = "near-the-knee",
        /// A higher depth gives the same rate with a higher latency: something is saturated.
        Saturated = "saturated",
    }
}

impl Regime {
    /// Classifies by the ratio of the rate at twice the depth to that at the same depth.
    pub fn of(rate_of_twice: f64) -> Self {
        match rate_of_twice - 1.0 {
            gain if gain < SATURATED => Self::Saturated,
            gain if gain > LATENCY_BOUND => Self::LatencyBound,
            _ => Self::NearTheKnee,
        }
    }
}

impl Curve {
    /// Computes the fields that follow from the blocks.
    pub fn derived(mut self) -> Self {
        let ratios: Vec<_> = self.arms.iter().map(|tried| self.rate(tried.arm)).collect();
        self.arms.iter_mut().zip(ratios).for_each(|(tried, ratio)| tried.ratio = ratio);
        self.regime = self.regime();
        self.other_regimes = self.regime.map(|_| self.other_regimes());
        self
    }

    /// An arm, if it was tried.
    pub fn tried(&self, arm: Arm) -> Option<&ArmResult> {
        self.arms.iter().find(|tried| tried.arm == arm)
    }

    /// Ratio of an arm's rate to that of the load as measured.
    pub fn rate(&self, arm: Arm) -> Option<Ratio> {
        let rates = |arm: Arm| -> Option<Vec<f64>> {
            let tried = self.tried(arm)?;
            Some(tried.blocks.iter().map(|point| point.operations_per_second).collect())
        };
        ratio(&rates(arm)?, &rates(Arm::TheSame)?)
    }

    /// The regime by the gain from doubling the depth. None where that was not tried, or was cut short.
    ///
    /// A gain of up to twice [`LATENCY_BOUND`] whose interval extends below that bound is near the knee: runs of one
    /// device fall on both sides of the bound, and near the knee both remedies are named. Also None where the interval
    /// covers every regime: on a busy machine the blocks vary by more than the effect of the depth.
    pub fn regime(&self) -> Option<Regime> {
        let gain = self.rate(Arm::TwiceTheDepth)?;
        if gain.low < 1.0 + SATURATED && gain.high > 1.0 + 2.0 * LATENCY_BOUND {
            return None;
        }
        let is_unsure = gain.estimate <= 1.0 + 2.0 * LATENCY_BOUND && gain.low < 1.0 + LATENCY_BOUND;
        match Regime::of(gain.estimate) {
            Regime::LatencyBound if is_unsure => Some(Regime::NearTheKnee),
            regime => Some(regime),
        }
    }

    /// How many other regimes the interval of the gain extends into.
    pub fn other_regimes(&self) -> i32 {
        let reaches = |gain: Ratio, bound: f64| gain.low < 1.0 + bound && gain.high > 1.0 + bound;
        let gain = self.rate(Arm::TwiceTheDepth);
        gain.map_or(0, |gain| {
            [SATURATED, LATENCY_BOUND].map(|bound| i32::from(reaches(gain, bound))).iter().sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn curve(rates_of_twice: [f64; 6]) -> Curve {
        let arm = |arm, rates: [f64; 6]| ArmResult {
            arm,
            iodepth: 1,
            numjobs: 1,
            ratio: None,
            blocks: rates
                .map(|operations_per_second| BlockResult { operations_per_second, mean_ns: None })
                .to_vec(),
        };
        let arms = vec![arm(Arm::TheSame, [100.0; 6]), arm(Arm::TwiceTheDepth, rates_of_twice)];
        Curve { arms, ..Curve::default() }
    }

    #[test]
    fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
        let curve = Curve { block_ns: 7, ..curve([128.0; 6]) }.derived();
        let value = json!(curve);
        assert_eq!(serde_json::from_value::<Curve>(value.clone()).unwrap(), curve);
        let twice = &value["arms"][1];
        assert_eq!((&twice["arm"], twice["ratio"]["blocks"].as_u64()), (&json!("twice-the-depth"), Some(6)));
        let keys: Vec<&String> = twice["ratio"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["blocks", "estimate", "high", "low"]);
        assert_eq!(twice["blocks"][0], json!({"operations_per_second": 128.0, "mean_ns": null}));
        assert_eq!((&value["regime"], &value["other_regimes"]), (&json!("latency-bound"), &json!(0)));
        assert_eq!((&value["block_ns"], &value["cut"]), (&json!(7), &Value::Null));
    }

    #[test]
    fn a_gain_that_may_lie_on_either_side_of_the_bound_is_near_the_knee() {
        let of = |rates| curve(rates).regime().unwrap();
        assert_eq!(of([128.0; 6]), Regime::LatencyBound, "there is no doubt");
        assert_eq!(of([110.0, 146.0, 110.0, 146.0, 112.0, 144.0]), Regime::NearTheKnee);
        assert_eq!(of([124.0; 6]), Regime::NearTheKnee);
        assert_eq!(
            of([120.0, 240.0, 120.0, 240.0, 120.0, 240.0]),
            Regime::LatencyBound,
            "beyond doubling the bound"
        );
        assert_eq!(of([104.0; 6]), Regime::Saturated);
    }
}
