//! The ratio of two arms, with an interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// `+1 % IOPS (-1 to +3 %)`, where `what` is IOPS; nothing of it where that is empty.
    pub fn change(&self, what: &str) -> String {
        let signed = |ratio: f64| {
            let percent = ((ratio - 1.0) * 100.0).round();
            // No -0.
            format!("{:+.0}", if percent == 0.0 { 0.0 } else { percent })
        };
        let what = if what.is_empty() { String::new() } else { format!(" {what}") };
        format!("{} %{what} ({} to {} %)", signed(self.estimate), signed(self.low), signed(self.high))
    }
}

/// Fewer blocks tell nothing of how much they differ.
pub const LEAST_BLOCKS: usize = 3;

/// From a value of both arms per block, in the order of the blocks. Blocks in which one of the two has no value above zero
/// are left out; None where fewer than [`LEAST_BLOCKS`] are left.
///
/// The logarithms of the blocks' ratios are taken for normally distributed (Student's t).
pub fn ratio(of: &[f64], to: &[f64]) -> Option<Ratio> {
    let is_usable = |value: f64| value > 0.0 && value.is_finite();
    let pairs = of.iter().zip(to).filter(|(of, to)| is_usable(**of) && is_usable(**to));
    let logs: Vec<f64> = pairs.map(|(of, to)| (of / to).ln()).collect();
    if logs.len() < LEAST_BLOCKS {
        return None;
    }
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = student(logs.len() - 1) * (variance / n).sqrt();
    Some(Ratio {
        estimate: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        blocks: logs.len(),
    })
}

/// The 97.5th percentile of Student's t.
fn student(degrees: usize) -> f64 {
    const FEW: [f64; 9] =
        [12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004, 2.262_157];
    // Of the normal distribution, and the expansion about it (Abramowitz and Stegun, 26.7.5).
    const Z: f64 = 1.959_964;
    if let Some(value) = degrees.checked_sub(1).and_then(|index| FEW.get(index)) {
        return *value;
    }
    let n = degrees as f64;
    let terms = [
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
        (79.0 * Z.powi(9) + 776.0 * Z.powi(7) + 1_482.0 * Z.powi(5) - 1_920.0 * Z.powi(3) - 945.0 * Z)
            / 92_160.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / n) + Z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::unit;
    use proptest::prelude::*;

    /// scipy.stats.t.ppf(0.975, n).
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (degrees, value) in [
            (1, 12.706_205),
            (5, 2.570_582),
            (9, 2.262_157),
            (10, 2.228_139),
            (11, 2.200_985),
            (30, 2.042_272),
            (100, 1.983_972),
        ] {
            assert!((student(degrees) - value).abs() < 1e-4, "{degrees}: {}", student(degrees));
        }
    }

    #[test]
    fn equal_arms_have_one_without_doubt_and_too_few_blocks_have_none() {
        let same = ratio(&[5.0, 7.0, 9.0], &[5.0, 7.0, 9.0]).unwrap();
        assert_eq!((same.estimate, same.low, same.high, same.blocks), (1.0, 1.0, 1.0, 3));
        assert_eq!(ratio(&[5.0, 7.0], &[5.0, 7.0]), None);
        assert_eq!(ratio(&[5.0, 7.0, 0.0, f64::NAN], &[5.0, 7.0, 9.0, 9.0]), None);
        let twice = ratio(&[10.0, 14.0, 18.0], &[5.0, 7.0, 9.0]).unwrap();
        assert!((twice.estimate - 2.0).abs() < 1e-12 && (twice.high - 2.0).abs() < 1e-9);
    }

    /// Of 95 in 100 experiments the interval holds the truth.
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
