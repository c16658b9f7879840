//! Sampling error of shares.

/// The largest variance of any share of a sampled sum, over all subsets of its parts, times the square of the sum. Each
/// part has its value and the variance of that value.
///
/// The variance of a share p, times the square of the sum, is that of a ratio: (1 - p)² times the variance of its own
/// parts plus p² times that of the others (Cochran 1977, 6.4).
pub fn widest(mut parts: Vec<(f64, f64)>) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.0).sum();
    let variance: f64 = parts.iter().map(|part| part.1).sum();
    if sum <= 0.0 {
        return 0.0;
    }
    // Among subsets with an equal share, the one with the most variance per value is the widest.
    parts.sort_by(|a, b| (b.1 * a.0).total_cmp(&(a.1 * b.0)));
    let (mut own, mut own_variance, mut widest) = (0.0, 0.0, 0.0f64);
    for (part, square) in parts {
        own += part;
        own_variance += square;
        let share = own / sum;
        let rest = (variance - own_variance).max(0.0);
        widest = widest.max((1.0 - share).powi(2) * own_variance + share * share * rest);
    }
    widest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_known_worst_where_half_of_the_variance_is_on_either_side() {
        assert_eq!(widest(Vec::new()), 0.0);
        assert_eq!(widest(vec![(10.0, 4.0)]), 0.0, "all of it is no share");
        assert_eq!(widest(vec![(1.0, 1.0), (1.0, 1.0)]), 0.5);
        // Only the small part varies, so the widest share is its own.
        let (small, sum) = (1.0f64, 10.0);
        let due = (1.0 - small / sum).powi(2) * 9.0;
        assert!((widest(vec![(9.0, 0.0), (small, 9.0)]) - due).abs() < 1e-12);
    }
}
