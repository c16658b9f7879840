//! Least-squares lines through parts of a series, and the cuts that fit several series at once.

/// Minimum length of a part between cuts, in steps.
pub const SHORTEST: usize = 3;

/// One signal over time, with prefix sums, so that the line through any part is computed in constant time. Values are
/// stored as deviations from the mean in units of the noise: sums of squares of large numbers would lose small
/// differences.
#[derive(Debug, Clone)]
pub struct SignalSeries {
    mean: f64,
    noise: f64,
    /// Up to each step: the number of values; the sums of t, y, t², t·y, y² with t as time; and those of t, t², t·y
    /// with t as step.
    sums: Vec<[f64; 9]>,
}

impl SignalSeries {
    /// `times` in seconds, one for each value. None where no value is known, or all are equal.
    pub fn new(times: &[f64], values: &[Option<f64>]) -> Option<Self> {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let (low, high) =
            known.iter().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(*y), high.max(*y)));
        if known.is_empty() || low == high {
            return None;
        }
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let noise = noise(&known).max((high - low) * 1e-6);
        let (first, last) = (times.first()?, times.last()?);
        let mut sums = vec![[0.0; 9]];
        for (step, (time, value)) in times.iter().zip(values).enumerate() {
            let mut sum = sums.last().copied().unwrap_or_default();
            if let Some(value) = value {
                let t = (time - first) / (last - first).max(f64::MIN_POSITIVE) - 0.5;
                let y = (value - mean) / noise;
                let i = step as f64 / times.len() as f64 - 0.5;
                let of_one = [1.0, t, y, t * t, t * y, y * y, i, i * i, i * y];
                sum.iter_mut().zip(of_one).for_each(|(sum, one)| *sum += one);
            }
            sums.push(sum);
        }
        Some(Self { mean, noise, sums })
    }

    fn sum(&self, from: usize, to: usize) -> [f64; 9] {
        std::array::from_fn(|i| self.sums[to][i] - self.sums[from][i])
    }

    /// Number of known values in a part.
    pub fn count(&self, from: usize, to: usize) -> usize {
        self.sum(from, to)[0].round() as usize
    }

    /// Mean and standard deviation of a part, in the signal's own unit; None with fewer than two values.
    pub fn level(&self, from: usize, to: usize) -> Option<(f64, f64)> {
        let [n, _, y, _, _, yy, ..] = self.sum(from, to);
        if n < 1.5 {
            return None;
        }
        let spread = ((yy - y * y / n).max(0.0) / (n - 1.0)).sqrt();
        Some((self.mean + self.noise * y / n, self.noise * spread))
    }

    /// Squared error of the least-squares line through a part, in units of the noise.
    pub fn left(&self, from: usize, to: usize) -> f64 {
        let [n, t, y, tt, ty, yy, ..] = self.sum(from, to);
        left(n, (t, y), (tt, ty, yy))
    }

    /// Same, with all steps of equal length, gaps included.
    pub fn left_in_steps(&self, from: usize, to: usize) -> f64 {
        let [n, _, y, _, _, yy, t, tt, ty] = self.sum(from, to);
        left(n, (t, y), (tt, ty, yy))
    }

    /// Squared error of one mean on either side of the cut.
    pub fn left_by_levels(&self, from: usize, cut: usize, to: usize) -> f64 {
        let of = |from, to| {
            let [n, _, y, _, _, yy, ..] = self.sum(from, to);
            if n < 1.5 { 0.0 } else { (yy - y * y / n).max(0.0) }
        };
        of(from, cut) + of(cut, to)
    }
}

fn left(n: f64, (t, y): (f64, f64), (tt, ty, yy): (f64, f64, f64)) -> f64 {
    if n < 1.5 {
        return 0.0;
    }
    let (sxx, sxy, syy) = (tt - t * t / n, ty - t * y / n, yy - y * y / n);
    let explained = if sxx > 1e-12 { sxy * sxy / sxx } else { 0.0 };
    (syy - explained).max(0.0)
}

/// Standard deviation of the noise, from second differences: a slope has none, and an edge has two large ones, which
/// the median ignores. A mostly constant series would have no noise that way, so at least a fraction of their root mean
/// square is used.
fn noise(known: &[f64]) -> f64 {
    let mut second: Vec<f64> = known.windows(3).map(|w| (w[0] - 2.0 * w[1] + w[2]).abs()).collect();
    if second.is_empty() {
        return 0.0;
    }
    // The second difference of independent values has six times their variance.
    let of_one = 6f64.sqrt();
    let mean_square = second.iter().map(|d| d * d).sum::<f64>() / second.len() as f64;
    second.sort_by(f64::total_cmp);
    let median = second[(second.len() - 1) / 2] / 0.6745;
    (median / of_one).max(mean_square.sqrt() / of_one / 3.0)
}

/// The cuts with the smallest sum of the lines' errors and `penalty` per cut. All signals are cut at the same steps.
/// Dynamic programming over the last cut finds the exact minimum.
pub fn cuts(signals: &[SignalSeries], steps: usize, penalty: f64) -> Vec<usize> {
    let cost = |from, to| signals.iter().map(|signal| signal.left(from, to)).sum::<f64>();
    let mut best = vec![f64::INFINITY; steps + 1];
    let mut last = vec![0; steps + 1];
    best[0] = -penalty;
    for to in SHORTEST..=steps {
        for from in (0..=to - SHORTEST).filter(|from| best[*from].is_finite()).collect::<Vec<_>>() {
            let all = best[from] + penalty + cost(from, to);
            if all < best[to] {
                (best[to], last[to]) = (all, from);
            }
        }
    }
    let mut found = Vec::new();
    let mut at = last[steps];
    while at > 0 {
        found.push(at);
        at = last[at];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> SignalSeries {
        let times: Vec<f64> = (0..values.len()).map(|t| t as f64).collect();
        SignalSeries::new(&times, &values.iter().copied().map(Some).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_line_leaves_nothing_of_a_slope_and_an_edge_of_a_step() {
        let slope = series(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!(slope.left(0, 6) < 1e-3);
        assert_eq!(slope.level(1, 4).map(|(mean, _)| mean.round()), Some(3.0));
        let step = series(&[1.0, 1.0, 1.0, 9.0, 9.0, 9.0]);
        assert!(step.left(0, 6) > 1.0 && step.left(0, 3) < 1e-9 && step.left(3, 6) < 1e-9);
        assert_eq!(cuts(&[step], 6, 0.1), [3]);
    }

    #[test]
    fn slopes_and_one_value_have_no_cuts() {
        let slope: Vec<f64> = (0..50).map(f64::from).collect();
        assert!(cuts(&[series(&slope)], 50, 1.0).is_empty());
        assert!(SignalSeries::new(&[0.0, 1.0], &[Some(3.0), Some(3.0)]).is_none());
        assert!(SignalSeries::new(&[0.0], &[None]).is_none());
        assert!(cuts(&[], 2, 1.0).is_empty(), "too short to cut");
    }

    #[test]
    fn signals_are_cut_together_where_either_bends() {
        let bend: Vec<f64> = (0..40).map(|t| if t < 20 { 100.0 - 5.0 * t as f64 } else { 2.0 }).collect();
        let step: Vec<f64> = (0..40).map(|t| if t < 30 { 7.0 } else { 1.0 }).collect();
        assert_eq!(cuts(&[series(&bend), series(&step)], 40, 5.0), [20, 30]);
    }
}
