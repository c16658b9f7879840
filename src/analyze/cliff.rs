//! Detects the write cliff: a drive writes the first gigabytes fast, into its own cache (SLC, TurboWrite), and the rest
//! at the speed of its media.
//!
//! It examines throughput over the intervals of a run that only writes. Of all ways to cut the run in two, it takes the
//! one whose two levels (the means before and after) leave the smallest squared error. The cut is a cliff if
//!
//! - the level after it is lower by at least [`LEAST_DROP`],
//! - it lasts: the last tenth of the run, and at least three intervals, is that low too,
//! - two levels leave a smaller error than a straight line, since a steady decline has no edge,
//! - the levels differ by at least [`LEAST_ERRORS`] standard errors of their difference (from the error of the fit and
//!   the lengths of both parts), since a fluctuating rate may end with a low part,
//! - there are at least [`LEAST_BEFORE`] intervals before it and [`LEAST_BEHIND`] after it.
//!
//! The position is exact to one interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::SeriesInterval;

/// As a share of the level before.
pub const LEAST_DROP: f64 = 0.20;
/// In standard errors of the difference.
pub const LEAST_ERRORS: f64 = 4.0;
/// In intervals.
pub const LEAST_BEFORE: usize = 3;
pub const LEAST_BEHIND: usize = 10;

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cliff {
    /// Written before it.
    pub after_bytes: u64,
    /// From the beginning of the run to it.
    pub after_ns: u64,
    /// Bytes per second.
    #[serde(rename = "before_bytes_per_second")]
    pub before: f64,
    #[serde(rename = "behind_bytes_per_second")]
    pub behind: f64,
}

/// The cliff of a run; None where it has none.
pub fn cliff(run: &[SeriesInterval]) -> Option<Cliff> {
    let run: Vec<SeriesInterval> = run.iter().copied().filter(|one| one.duration_ns > 0).collect();
    let rates: Vec<f64> = run.iter().map(|one| rate(std::slice::from_ref(one))).collect();
    let count = rates.len();
    // Prefix sums of the values and of their squares.
    let mut sums = vec![(0.0, 0.0)];
    for rate in &rates {
        let (sum, squares) = sums.last().copied().unwrap_or_default();
        sums.push((sum + rate, squares + rate * rate));
    }
    let part = |from: usize, to: usize| {
        let (sum, squares) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        let mean = sum / (to - from) as f64;
        (mean, (squares - sum * mean).max(0.0))
    };
    let error = |cut: usize| part(0, cut).1 + part(cut, count).1;
    let cut = (1..count).min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
    if cut < LEAST_BEFORE || count - cut < LEAST_BEHIND {
        return None;
    }

    let (before, behind) = (part(0, cut).0, part(cut, count).0);
    let low = before * (1.0 - LEAST_DROP);
    let tail = (count / 10).max(3);
    if before <= 0.0
        || behind > low
        || part(count - tail, count).0 > low
        || error(cut) >= error_of_line(&rates)
    {
        return None;
    }
    let spread = (error(cut) / (count - 2) as f64).sqrt();
    let of_difference = spread * (1.0 / cut as f64 + 1.0 / (count - cut) as f64).sqrt();
    if before - behind < LEAST_ERRORS * of_difference {
        return None;
    }
    let (fast, slow) = run.split_at(cut);
    Some(Cliff {
        after_bytes: fast.iter().map(|one| one.bytes).sum(),
        after_ns: fast.iter().map(|one| one.duration_ns).sum(),
        before: rate(fast),
        behind: rate(slow),
    })
}

/// Bytes per second.
fn rate(run: &[SeriesInterval]) -> f64 {
    let bytes: u64 = run.iter().map(|one| one.bytes).sum();
    let ns: u64 = run.iter().map(|one| one.duration_ns).sum();
    bytes as f64 * 1e9 / ns.max(1) as f64
}

/// Squared error of the least-squares line.
fn error_of_line(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, values.iter().sum::<f64>() / count);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let (x, y) = (at as f64 - middle, value - mean);
        xy += x * y;
        xx += x * x;
        yy += y * y;
    }
    (yy - xy * xy / xx).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates in MB/s, in intervals of 100 ms.
    fn run(rates: impl IntoIterator<Item = f64>) -> Vec<SeriesInterval> {
        let one = |rate: f64| SeriesInterval { duration_ns: 100_000_000, bytes: (rate * 1e5) as u64 };
        rates.into_iter().map(one).collect()
    }

    fn levels(parts: &[(f64, usize)]) -> Vec<f64> {
        parts.iter().flat_map(|(rate, count)| std::iter::repeat_n(*rate, *count)).collect()
    }

    /// Pseudo-random values from -1 to 1.
    fn noise(at: usize) -> f64 {
        let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    }

    fn noisy(rates: &[f64], share: f64) -> Vec<f64> {
        rates.iter().enumerate().map(|(at, rate)| rate * (1.0 + share * noise(at))).collect()
    }

    #[test]
    fn the_end_of_an_slc_cache_is_found_where_it_is() {
        // From 5000 to 2000 MB/s after 6 GB, as on small drives, and after 108 GB.
        for (gigabytes, fast) in [(6, 12), (108, 216)] {
            for behind in [10, 50, 400] {
                let found = cliff(&run(levels(&[(5000.0, fast), (2000.0, behind)]))).unwrap();
                assert_eq!(found.after_bytes, gigabytes * 1_000_000_000, "{behind}");
                assert_eq!((found.before, found.behind), (5e9, 2e9));
                assert_eq!(found.after_ns, fast as u64 * 100_000_000);
            }
        }
    }

    #[test]
    fn noise_hides_no_cliff_and_makes_none() {
        for share in [0.05, 0.2] {
            let found = cliff(&run(noisy(&levels(&[(5000.0, 100), (2000.0, 200)]), share))).unwrap();
            assert!((found.after_bytes as f64 / 50e9 - 1.0).abs() < 0.05, "{share}: {found:?}");
            assert!((found.before / found.behind - 2.5).abs() < 0.2, "{share}: {found:?}");
        }
        for count in [14, 30, 100, 512] {
            for share in [0.05, 0.2, 0.6] {
                assert_eq!(cliff(&run(noisy(&vec![3000.0; count], share))), None, "{count} {share}");
            }
        }
    }

    #[test]
    fn a_level_that_goes_up_and_down_is_a_level() {
        let behind = (0..100).map(|at| if at % 2 == 0 { 500.0 } else { 3500.0 });
        let found = cliff(&run(levels(&[(5000.0, 40)]).into_iter().chain(behind))).unwrap();
        assert_eq!((found.after_bytes, found.behind), (20_000_000_000, 2e9));
        let always = (0..100).map(|at| if at % 2 == 0 { 500.0 } else { 3500.0 });
        assert_eq!(cliff(&run(always)), None);
    }

    #[test]
    fn a_slope_has_no_edge() {
        let slope = |to: f64| (0..100).map(move |at| 5000.0 + (to - 5000.0) * at as f64 / 99.0);
        assert_eq!(cliff(&run(slope(2000.0))), None);
        assert_eq!(cliff(&run(noisy(&slope(1000.0).collect::<Vec<_>>(), 0.05))), None);
    }

    #[test]
    fn what_comes_back_or_drops_a_little_is_no_cliff() {
        for dip in [3, 10, 30] {
            let back = levels(&[(5000.0, 60), (1000.0, dip), (5000.0, 20)]);
            assert_eq!(cliff(&run(back)), None, "{dip}");
        }
        assert_eq!(cliff(&run(levels(&[(5000.0, 50), (4100.0, 50)]))), None);
        assert!(cliff(&run(levels(&[(5000.0, 50), (3900.0, 50)]))).is_some());
        assert_eq!(cliff(&run(levels(&[(2000.0, 50), (5000.0, 50)]))), None, "it became faster");
        assert_eq!(cliff(&run(levels(&[(5000.0, 100)]))), None);
    }

    #[test]
    fn too_short_a_part_is_none() {
        assert_eq!(cliff(&[]), None);
        assert_eq!(cliff(&run(levels(&[(5000.0, 12)]))), None);
        assert_eq!(cliff(&run(levels(&[(5000.0, 50), (2000.0, 9)]))), None, "it may come back");
        assert_eq!(cliff(&run(levels(&[(0.0, 50)]))), None);
    }
}
