//! Decides whether writes are steady, as defined by SNIA's Performance Test Specification (PTS). Pure.
//!
//! It examines the last [`WINDOW`] rounds. They are steady if
//!
//! - their *range*, maximum minus minimum, is at most [`MOST_RANGE`] of their average, and
//! - their *slope*, the rise or fall of the least-squares line from the first to the last round, is at most
//!   [`MOST_SLOPE`] of their average.

/// Number of rounds examined.
pub const WINDOW: usize = 5;
/// Shares of the average.
pub const MOST_RANGE: f64 = 0.20;
pub const MOST_SLOPE: f64 = 0.10;

/// Average, range and slope of the last rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTrend {
    pub average: f64,
    /// Shares of the average, never negative.
    pub range: f64,
    pub slope: f64,
}

impl RoundTrend {
    /// From the last rounds; None where there are fewer than [`WINDOW`], or all were 0.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let last = rounds.get(rounds.len().checked_sub(WINDOW)?..)?;
        let count = last.len() as f64;
        let average = last.iter().sum::<f64>() / count;
        if average.is_nan() || average <= 0.0 {
            return None;
        }
        let greatest = last.iter().copied().fold(f64::MIN, f64::max);
        let smallest = last.iter().copied().fold(f64::MAX, f64::min);
        let middle = (count - 1.0) / 2.0;
        let (mut with, mut alone) = (0.0, 0.0);
        for (at, value) in last.iter().enumerate() {
            let from_middle = at as f64 - middle;
            with += from_middle * (value - average);
            alone += from_middle * from_middle;
        }
        let rise = with / alone * (count - 1.0);
        Some(Self { average, range: (greatest - smallest) / average, slope: rise.abs() / average })
    }

    pub fn is_steady(&self) -> bool {
        self.range <= MOST_RANGE && self.slope <= MOST_SLOPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rounds: &[f64]) -> bool {
        RoundTrend::of(rounds).unwrap().is_steady()
    }

    #[test]
    fn a_window_has_five_rounds() {
        assert_eq!(RoundTrend::of(&[100.0; 4]), None);
        assert_eq!(RoundTrend::of(&[]), None);
        assert_eq!(RoundTrend::of(&[100.0; 5]), Some(RoundTrend { average: 100.0, range: 0.0, slope: 0.0 }));
        assert!(steady(&[900.0, 500.0, 100.0, 100.0, 100.0, 100.0, 100.0]), "only the last five count");
        assert_eq!(RoundTrend::of(&[0.0; 5]), None, "a share of nothing is no number");
    }

    #[test]
    fn the_range_is_at_most_a_fifth_of_the_average() {
        let spread = |by: f64| [100.0, 100.0 - by, 100.0 + by, 100.0, 100.0];
        let window = RoundTrend::of(&spread(10.0)).unwrap();
        assert_eq!((window.range, window.slope), (0.2, 0.0 + window.slope));
        assert!(window.is_steady());
        assert!(!steady(&spread(10.5)));
    }

    #[test]
    fn a_slope_is_not_steady_where_the_range_is_small() {
        // The slopes are 8 % and 12 %; the range is below 20 % in both.
        let line = |step: f64| [-2.0, -1.0, 0.0, 1.0, 2.0].map(|at| 100.0 + step * at);
        let slope = RoundTrend::of(&line(2.0)).unwrap();
        assert!((slope.slope - 0.08).abs() < 1e-12 && (slope.range - 0.08).abs() < 1e-12);
        assert!(steady(&line(2.0)) && !steady(&line(3.0)));
        assert!(!steady(&line(-3.0)), "what falls is no more steady than what rises");
    }

    #[test]
    fn a_new_drive_becomes_steady_when_its_spare_blocks_are_used_up() {
        let falling = [400.0, 320.0, 250.0, 190.0, 150.0, 120.0, 104.0, 101.0, 99.0, 100.0, 102.0, 98.0];
        let at = (1..=falling.len()).find(|n| RoundTrend::of(&falling[..*n]).is_some_and(|w| w.is_steady()));
        assert_eq!(at, Some(11));
    }
}
