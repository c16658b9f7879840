//! Interim looks at a running experiment: each look spends a part of the allowed error.
//!
//! An experiment that stops at the first 95 % interval that excludes zero is wrong far more often than in 5 of 100
//! cases. Here the error is spent as a function of the completed share of the experiment (Lan and DeMets 1983, the
//! function similar to O'Brien and Fleming's). This holds whenever the looks are and for whatever reason the experiment
//! stops: the intervals of all looks together (repeated confidence intervals, Jennison and Turnbull) contain the true
//! value in 95 of 100 experiments.

use super::normal::{above, upper};

/// Grid points of the distribution at a look. Simpson's rule requires an odd number.
const POINTS: usize = 201;

/// The looks so far.
#[derive(Debug, Clone)]
pub struct Looks {
    /// Total error of all looks.
    error: f64,
    maximum: usize,
    /// Pairs at the last look, and the error spent until then.
    pairs: usize,
    spent: f64,
    /// Density of the sum of all differences so far, over experiments that no look has ended: positions and densities.
    grid: Vec<(f64, f64)>,
}

impl Looks {
    /// For an experiment of at most `maximum` pairs, whose looks are wrong in at most the share `error` of experiments.
    pub fn new(error: f64, maximum: usize) -> Self {
        Self { error, maximum: maximum.max(1), pairs: 0, spent: 0.0, grid: Vec::new() }
    }

    /// Looks after `pairs` pairs: returns the p of an interval at this look. With 0 the interval is infinite.
    pub fn look(&mut self, pairs: usize) -> f64 {
        let pairs = pairs.min(self.maximum);
        if pairs <= self.pairs {
            return 0.0;
        }
        let time = |pairs: usize| pairs as f64 / self.maximum as f64;
        let (before, now) = (time(self.pairs), time(pairs));
        let may_be_spent = spending(self.error, now);
        let more = (may_be_spent - self.spent).max(0.0);
        let step = (now - before).sqrt();
        // Probability beyond `bound` in either direction, over experiments that continue until now.
        let beyond = |bound: f64| {
            let one =
                |(x, density): (f64, f64)| density * (above((bound - x) / step) + above((bound + x) / step));
            if self.grid.is_empty() { 2.0 * above(bound / step) } else { integral(&self.grid, one) }
        };
        let (mut low, mut high) = (0.0, 40.0 * now.sqrt());
        while high - low > 1e-12 {
            let half = f64::midpoint(low, high);
            if beyond(half) > more { low = half } else { high = half }
        }
        let density = |y: f64| {
            let normal = |x: f64| {
                (-(y - x).powi(2) / (2.0 * step * step)).exp() / (step * std::f64::consts::TAU.sqrt())
            };
            if self.grid.is_empty() { normal(0.0) } else { integral(&self.grid, |(x, d)| d * normal(x)) }
        };
        // The rest has a probability below 1e-15.
        let end = high.min(8.0 * now.sqrt());
        let place = |index: usize| end * (2.0 * index as f64 / (POINTS - 1) as f64 - 1.0);
        self.grid = (0..POINTS).map(place).map(|y| (y, density(y))).collect();
        self.pairs = pairs;
        self.spent = may_be_spent;
        (2.0 * above(high / now.sqrt())).min(1.0)
    }
}

/// The error that may be spent by the time (0 to 1), half of it in each direction.
fn spending(error: f64, time: f64) -> f64 {
    4.0 * above(upper(error / 4.0) / time.sqrt())
}

/// By Simpson's rule.
fn integral(grid: &[(f64, f64)], of: impl Fn((f64, f64)) -> f64) -> f64 {
    let width = (grid[1].0 - grid[0].0) / 3.0;
    let last = grid.len() - 1;
    let weight = |index: usize| match index {
        0 => 1.0,
        _ if index == last => 1.0,
        _ if index % 2 == 1 => 4.0,
        _ => 2.0,
    };
    grid.iter().enumerate().map(|(index, point)| weight(index) * of(*point)).sum::<f64>() * width
}

#[cfg(test)]
mod tests {
    use super::*;

    /// z of ldbounds (R) for looks at equal steps, two-sided 0.05, asOF.
    #[test]
    fn bounds_are_those_of_the_tables() {
        for (looks, bounds) in [
            (1, &[1.959_964][..]),
            (4, &[4.3326, 2.9631, 2.3590, 2.0141]),
            (5, &[4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        ] {
            let mut all = Looks::new(0.05, looks * 6);
            for (look, bound) in (1..).zip(bounds) {
                let z = upper(all.look(look * 6) / 2.0);
                assert!((z - bound).abs() < 2e-3, "look {look} of {looks}: {z}, {bound}");
            }
        }
    }

    #[test]
    fn a_look_that_brings_nothing_new_spends_nothing() {
        let mut looks = Looks::new(0.05, 20);
        assert_eq!(looks.look(0), 0.0);
        assert!(looks.look(10) > 0.0);
        assert_eq!(looks.look(10), 0.0);
        assert!(looks.look(99) > 0.03, "beyond the maximum is the maximum");
        assert_eq!(looks.look(100), 0.0);
    }
}
