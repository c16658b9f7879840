//! The ratio of two arms, with a confidence interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::PairedDifferences;

/// The share of experiments whose interval misses the true value.
pub const ERROR: f64 = 0.05;

/// How many times another arm's values an arm's are, with the bounds of a 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The geometric mean of the blocks' ratios.
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    /// How many blocks it is made of.
    pub blocks: usize,
}

impl Ratio {
    /// From logarithms, with an interval that misses the true value in the share `p` of experiments.
    pub fn of(paired: &PairedDifferences, p: f64) -> Self {
        let (low, high) = paired.estimate().interval(p);
        Self { estimate: paired.mean.exp(), low: low.exp(), high: high.exp(), blocks: paired.pairs }
    }

    /// `+1 % IOPS (-1 to +3 %)` for `what` IOPS; without the unit if it is empty.
    pub fn change(&self, what: &str) -> String {
        let signed = |ratio: f64| {
            let percent = ((ratio - 1.0) * 100.0).round();
            // Avoids -0.
            format!("{:+.0}", if percent == 0.0 { 0.0 } else { percent })
        };
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        format!("{} %{what} ({} to {} %)", signed(self.estimate), signed(self.low), signed(self.high))
    }
}

/// With fewer blocks the variation between them is unknown.
pub const LEAST_BLOCKS: usize = 3;

/// From a value of both arms per block, in block order. Blocks where either value is not above zero are left out; None
/// if fewer than [`LEAST_BLOCKS`] remain.
///
/// The logarithms of the blocks' ratios are assumed to be normally distributed (Student's t).
pub fn ratio(of: &[f64], to: &[f64]) -> Option<Ratio> {
    let paired = PairedDifferences::of_ratios(of, to).filter(|paired| paired.pairs >= LEAST_BLOCKS)?;
    Some(Ratio::of(&paired, ERROR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::unit;
    use proptest::prelude::*;

    #[test]
    fn equal_arms_have_one_without_doubt_and_too_few_blocks_have_none() {
        let same = ratio(&[5.0, 7.0, 9.0], &[5.0, 7.0, 9.0]).unwrap();
        assert_eq!((same.estimate, same.low, same.high, same.blocks), (1.0, 1.0, 1.0, 3));
        assert_eq!(ratio(&[5.0, 7.0], &[5.0, 7.0]), None);
        assert_eq!(ratio(&[5.0, 7.0, 0.0, f64::NAN], &[5.0, 7.0, 9.0, 9.0]), None);
        let twice = ratio(&[10.0, 14.0, 18.0], &[5.0, 7.0, 9.0]).unwrap();
        assert!((twice.estimate - 2.0).abs() < 1e-12 && (twice.high - 2.0).abs() < 1e-9);
    }

    /// In 95 of 100 experiments the interval contains the true value.
    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut seed = 7;
        // Box and Muller: a mean of 0, a standard deviation of 1.
        let mut normal =
            || (-2.0 * (1.0 - unit(&mut seed)).ln()).sqrt() * (std::f64::consts::TAU * unit(&mut seed)).cos();
        let (mut held, mut all) = (0, 0);
        for _ in 0..10_000 {
            let mut arm =
                |rate: f64| -> Vec<f64> { (0..6).map(|_| rate * (0.05 * normal()).exp()).collect() };
            let (of, to) = (arm(1_100.0), arm(1_000.0));
            let found = ratio(&of, &to).unwrap();
            held += u32::from(found.low <= 1.1 && 1.1 <= found.high);
            all += 1;
        }
        // The standard error is 0.2 %.
        let share = f64::from(held) / f64::from(all);
        assert!((0.943..0.957).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn it_is_within_its_interval_whatever_the_values(
            pairs in prop::collection::vec((0.0..1e12f64, 0.0..1e12f64), 0..20)
        ) {
            let (of, to): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            if let Some(found) = ratio(&of, &to) {
                prop_assert!(found.low <= found.estimate && found.estimate <= found.high, "{found:?}");
                let back = ratio(&to, &of).unwrap();
                prop_assert!((back.estimate * found.estimate - 1.0).abs() < 1e-6);
            }
        }
    }
}
