//! Statistics of paired differences.

use super::estimate::Estimate;

/// Mean and deviation of paired differences; for ratios, of their logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedDifferences {
    /// Number of pairs, at least two.
    pub pairs: usize,
    pub mean: f64,
    /// Standard deviation of a pair.
    pub deviation: f64,
}

impl PairedDifferences {
    /// None with fewer than two: a single one has no deviation.
    pub fn of(differences: &[f64]) -> Option<Self> {
        if differences.len() < 2 || differences.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let n = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / n;
        let variance = differences.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Some(Self { pairs: differences.len(), mean, deviation: variance.sqrt() })
    }

    /// From the logarithms of ratios. Pairs where either value is not above zero are left out.
    pub fn of_ratios(of: &[f64], to: &[f64]) -> Option<Self> {
        let is_usable = |value: f64| value > 0.0 && value.is_finite();
        let pairs = of.iter().zip(to).filter(|(of, to)| is_usable(**of) && is_usable(**to));
        Self::of(&pairs.map(|(of, to)| (of / to).ln()).collect::<Vec<_>>())
    }

    /// The mean with its standard error.
    pub fn estimate(&self) -> Estimate {
        let error = self.deviation / (self.pairs as f64).sqrt();
        Estimate { mean: self.mean, error, degrees: (self.pairs - 1) as f64 }
    }

    /// The number of pairs with this deviation for an interval of at most this half-width. None: more than a million.
    pub fn needed(&self, half: f64, p: f64) -> Option<usize> {
        let suffices = |pairs: usize| Self { pairs, ..*self }.estimate().half_width(p) <= half;
        let enough = (1..=20).map(|power| 1usize << power).find(|pairs| suffices(*pairs))?;
        let (mut low, mut high) = (enough / 2, enough);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if suffices(middle) { high = middle } else { low = middle }
        }
        Some(if suffices(2) { 2 } else { high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_or_no_numbers_have_no_interval() {
        assert_eq!(PairedDifferences::of(&[]), None);
        assert_eq!(PairedDifferences::of(&[1.0]), None);
        assert_eq!(PairedDifferences::of(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(PairedDifferences::of_ratios(&[0.0, 0.0, 5.0], &[1.0, 2.0, 5.0]), None);
        assert_eq!(
            PairedDifferences::of_ratios(&[f64::INFINITY, 2.0, 5.0], &[1.0, 2.0, 5.0]).unwrap().pairs,
            2
        );
    }

    /// (1.959964 · 0.1 / 0.01)² is 384, plus a few since the deviation is estimated.
    #[test]
    fn as_many_pairs_are_needed_as_the_textbook_says() {
        let paired = PairedDifferences { pairs: 6, mean: 0.0, deviation: 0.1 };
        assert_eq!(paired.needed(0.01, 0.05), Some(387));
        assert!(PairedDifferences { pairs: 387, ..paired }.estimate().half_width(0.05) <= 0.01);
        assert!(PairedDifferences { pairs: 386, ..paired }.estimate().half_width(0.05) > 0.01);
        assert_eq!(PairedDifferences { deviation: 0.0, ..paired }.needed(0.01, 0.05), Some(2));
        assert_eq!(paired.needed(1e-9, 0.05), None);
    }
}
