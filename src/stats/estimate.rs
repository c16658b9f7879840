//! A mean with its standard error: intervals and tests by Student's t.

use super::student;

/// A mean and its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// Standard error.
    pub error: f64,
    /// Degrees of freedom.
    pub degrees: f64,
}

impl Estimate {
    /// Half-width of the interval that contains the true mean in all but the share `p` of experiments.
    pub fn half_width(&self, p: f64) -> f64 {
        // Infinity times 0 would be NaN.
        if self.error > 0.0 { student::critical(p, self.degrees) * self.error } else { 0.0 }
    }

    /// The interval of that half-width.
    pub fn interval(&self, p: f64) -> (f64, f64) {
        let half = self.half_width(p);
        (self.mean - half, self.mean + half)
    }

    /// The share of experiments with a mean this far from zero if the true mean is zero.
    pub fn p(&self) -> f64 {
        match self.error > 0.0 {
            true => student::tails(self.mean / self.error, self.degrees),
            false => f64::from(self.mean == 0.0),
        }
    }
}

/// The difference of the means of two unpaired samples, by Welch. None where either has fewer than two values, or a
/// NaN.
pub fn welch(of: &[f64], to: &[f64]) -> Option<Estimate> {
    let part = |values: &[f64]| {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (values.len() >= 2 && variance.is_finite()).then_some((mean, variance / n, n))
    };
    let ((a, of, n), (b, to, m)) = part(of).zip(part(to))?;
    let error = of + to;
    let degrees = match error > 0.0 {
        true => error.powi(2) / (of.powi(2) / (n - 1.0) + to.powi(2) / (m - 1.0)),
        false => n + m - 2.0,
    };
    Some(Estimate { mean: a - b, error: error.sqrt(), degrees })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::PairedDifferences;

    #[test]
    fn arms_that_do_not_vary_have_an_interval_without_width() {
        let same = PairedDifferences::of(&[0.0; 4]).unwrap().estimate();
        assert_eq!((same.interval(0.05), same.p()), ((0.0, 0.0), 1.0));
        let more = PairedDifferences::of(&[0.5; 4]).unwrap().estimate();
        assert_eq!((more.interval(1e-9), more.p()), ((0.5, 0.5), 0.0));
        assert_eq!(welch(&[2.0; 3], &[1.0; 2]).unwrap().interval(0.05), (1.0, 1.0));
    }

    /// Degrees of freedom and error as in scipy.
    #[test]
    fn unpaired_samples_are_compared_as_welch_does() {
        let found = welch(&[27.5, 21.0, 19.0, 23.6, 17.0, 17.9], &[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8])
            .unwrap();
        assert!((found.mean - -2.714_286).abs() < 1e-5, "{found:?}");
        assert!((found.error - 1.809_739_3).abs() < 1e-6, "{found:?}");
        assert!((found.degrees - 7.423_433).abs() < 1e-6, "{found:?}");
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[1.0, f64::NAN], &[1.0, 2.0]), None);
    }

    proptest! {
        /// The equivalence of two one-sided tests with "the interval is within the margin".
        #[test]
        fn two_one_sided_tests_are_the_interval_within_the_bounds(
            values in prop::collection::vec(-0.2..0.2f64, 2..12), margin in 0.01..0.3f64, p in 0.001..0.5f64
        ) {
            let estimate = PairedDifferences::of(&values).unwrap().estimate();
            prop_assume!(estimate.error > 0.0);
            // The mean plus the margin above zero, and the mean minus the margin below it, each with one tail.
            let one_tail = |mean: f64| {
                let both = Estimate { mean, ..estimate }.p();
                if mean > 0.0 { both / 2.0 } else { 1.0 - both / 2.0 }
            };
            let larger = one_tail(estimate.mean + margin).max(one_tail(margin - estimate.mean));
            prop_assume!((larger - p / 2.0).abs() > 1e-9);
            let (low, high) = estimate.interval(p);
            prop_assert_eq!(-margin < low && high < margin, larger < p / 2.0);
        }
    }
}
