//! The median, and a distribution-free confidence interval for it.

/// The median; for an even number of values the mean of the two middle ones. None without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// The smallest number of values whose extremes enclose the median in 95 of 100 runs: 1 − 2/2⁶ = 0.97.
pub const LEAST_FOR_INTERVAL: usize = 6;

/// Two of the values that enclose the population median with at least 95 % confidence, whatever its distribution: the
/// innermost order statistics with that confidence. None below [`LEAST_FOR_INTERVAL`] values.
pub fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let n = sorted.len();
    if n < LEAST_FOR_INTERVAL {
        return None;
    }
    // The number of values below the median is binomial with p = 1/2. This is the logarithm of the probability of
    // exactly `low`, because the probability itself underflows with many values.
    let mut log_exactly = -(n as f64) * std::f64::consts::LN_2;
    let mut at_most = log_exactly.exp();
    let mut low = 0;
    while low + 1 < n.div_ceil(2) {
        log_exactly += ((n - low) as f64 / (low + 1) as f64).ln();
        at_most += log_exactly.exp();
        if at_most > 0.025 {
            break;
        }
        low += 1;
    }
    Some((sorted[low], sorted[n - 1 - low]))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    /// Ranks as in tables of the sign test for 95 %: 6: 1, 10: 2, 20: 6, 30: 10, 100: 40.
    #[test]
    fn the_interval_has_the_ranks_of_the_sign_test() {
        let of = |n: u32| median_interval(&(1..=n).map(f64::from).collect::<Vec<_>>());
        assert_eq!(of(5), None);
        assert_eq!(of(6), Some((1.0, 6.0)));
        assert_eq!(of(10), Some((2.0, 9.0)));
        assert_eq!(of(20), Some((6.0, 15.0)));
        assert_eq!(of(30), Some((10.0, 21.0)));
        assert_eq!(of(100), Some((40.0, 61.0)));
    }

    /// For many values it is 1.96 standard deviations of the binomial: √n / 2 ranks.
    #[test]
    fn many_values_have_an_interval() {
        let values: Vec<f64> = (0..5_000).map(f64::from).collect();
        let (low, high) = median_interval(&values).unwrap();
        assert_eq!((low, high), (2_430.0, 2_569.0));
    }
}
