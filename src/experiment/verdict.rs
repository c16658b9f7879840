//! Derives the verdict from the interval of a ratio, and decides whether more rounds are needed.

use crate::names::names;
use crate::stats::Looks;

names! {
    /// How an arm compares with the first.
    pub enum Verdict {
        Better = "better",
        Worse = "worse",
        /// The whole interval lies within the margin.
        Same = "same",
        /// The interval contains 1, and extends beyond the margin.
        Unclear = "unclear",
    }
}

impl Verdict {
    /// From the interval of a ratio's logarithm. If all of it is within the margin, both one-sided tests pass. "Same"
    /// takes precedence over better and worse, since a difference below the margin does not matter.
    pub fn of((low, high): (f64, f64), margin: f64, more_is_better: bool) -> Self {
        let margin = margin.ln_1p();
        match (low > 0.0, high < 0.0) {
            _ if -margin < low && high < margin => Self::Same,
            (true, _) if more_is_better => Self::Better,
            (true, _) => Self::Worse,
            (_, true) if more_is_better => Self::Worse,
            (_, true) => Self::Better,
            _ => Self::Unclear,
        }
    }
}

/// When an experiment is evaluated, and when it may stop.
#[derive(Debug, Clone)]
pub struct EvaluationPlan {
    error: f64,
    /// Blocks at which it was evaluated.
    looked: Vec<usize>,
    looks: Looks,
    /// Blocks at which it will be evaluated; the last one is the end.
    schedule: Vec<usize>,
    margin: f64,
    /// Sufficient half-width of the interval, as a share of the ratio.
    until: f64,
}

impl EvaluationPlan {
    /// At most `maximum` blocks, evaluated from a third of them on. `error` is the share of experiments that may be
    /// wrong.
    pub fn until(until: f64, margin: f64, maximum: usize, error: f64) -> Self {
        let at = |sixths: usize| {
            let blocks = (maximum * sixths).div_ceil(6);
            // Only pairs of blocks are balanced.
            (blocks + blocks % 2).min(maximum)
        };
        let mut schedule: Vec<usize> = (2..=6).map(at).collect();
        schedule.dedup();
        let looks = Looks::new(error, maximum);
        Self { error, looked: Vec::new(), looks, schedule, margin, until }
    }

    /// A fixed number of blocks, evaluated once at the end.
    pub fn fixed(blocks: usize, margin: f64, error: f64) -> Self {
        let looks = Looks::new(error, blocks);
        Self { error, looked: Vec::new(), looks, schedule: vec![blocks], margin, until: 0.0 }
    }

    pub fn maximum(&self) -> usize {
        self.schedule.last().copied().unwrap_or_default()
    }

    /// Whether the experiment is evaluated after this many blocks.
    pub fn is_look(&self, blocks: usize) -> bool {
        self.schedule.contains(&blocks)
    }

    /// Evaluates after this many blocks: returns the p of all intervals at this look.
    pub fn look(&mut self, blocks: usize) -> f64 {
        self.looked.push(blocks);
        self.looks.look(blocks)
    }

    /// The p of the last look if several tests share the error.
    pub fn level(&self, tests: usize) -> f64 {
        let mut looks = Looks::new(self.error / tests.max(1) as f64, self.maximum());
        self.looked.iter().map(|blocks| looks.look(*blocks)).last().unwrap_or(0.0)
    }

    /// Whether the interval of a ratio's logarithm is narrow enough, or entirely beyond the margin.
    pub fn is_enough(&self, (low, high): (f64, f64)) -> bool {
        let margin = self.margin.ln_1p();
        (high - low) / 2.0 <= self.until.ln_1p() || low > margin || high < -margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::random::unit;
    use crate::stats::{PairedDifferences, student};
    use std::collections::HashMap;

    #[test]
    fn same_comes_before_better_and_worse() {
        let of = |low: f64, high: f64| Verdict::of((low.ln(), high.ln()), 0.05, true);
        assert_eq!(of(1.01, 1.04), Verdict::Same, "sure to be more, and too little to matter");
        assert_eq!(of(1.01, 1.06), Verdict::Better);
        assert_eq!(of(0.90, 0.99), Verdict::Worse);
        assert_eq!(of(0.94, 1.06), Verdict::Unclear);
        assert_eq!(Verdict::of((0.1, 0.2), 0.05, false), Verdict::Worse, "a longer latency");
        assert_eq!(Verdict::of((-0.2, -0.1), 0.05, false), Verdict::Better);
        assert_eq!(Verdict::of((f64::NEG_INFINITY, f64::INFINITY), 0.05, true), Verdict::Unclear);
    }

    #[test]
    fn looks_are_at_balanced_blocks_and_end_with_the_last() {
        let plan = |maximum| EvaluationPlan::until(0.025, 0.05, maximum, 0.05).schedule;
        assert_eq!(plan(24), [8, 12, 16, 20, 24]);
        assert_eq!(plan(6), [2, 4, 6]);
        assert_eq!(plan(2), [2]);
        assert_eq!(plan(7), [4, 6, 7]);
        assert_eq!(EvaluationPlan::fixed(3, 0.05, 0.05).schedule, [3]);
    }

    /// Outcomes of simulated experiments.
    #[derive(Default)]
    struct Ends {
        verdicts: HashMap<&'static str, u32>,
        /// How often the final interval contained the true value.
        held: u32,
        blocks: usize,
    }

    /// Simulates experiments with a true ratio, and noise on each round's rate.
    fn simulate(runs: u32, ratio: f64, noise: f64, seed: u64) -> Ends {
        let mut seed = seed;
        let mut normal =
            || (-2.0 * (1.0 - unit(&mut seed)).ln()).sqrt() * (std::f64::consts::TAU * unit(&mut seed)).cos();
        let plan = EvaluationPlan::until(0.025, 0.05, 24, 0.05);
        // They are the same in every run.
        let mut looking = plan.clone();
        let p: HashMap<usize, f64> =
            plan.schedule.iter().map(|blocks| (*blocks, looking.look(*blocks))).collect();
        let critical: HashMap<usize, f64> =
            p.iter().map(|(blocks, p)| (*blocks, student::critical(*p, (blocks - 1) as f64))).collect();
        let mut ends = Ends::default();
        for _ in 0..runs {
            let mut logs = Vec::new();
            loop {
                logs.push(ratio.ln() + noise * normal() - noise * normal());
                let blocks = logs.len();
                let Some(critical) = critical.get(&blocks) else { continue };
                let paired = PairedDifferences::of(&logs).unwrap();
                let half = critical * paired.deviation / (blocks as f64).sqrt();
                let (low, high) = (paired.mean - half, paired.mean + half);
                if blocks < plan.maximum() && !plan.is_enough((low, high)) {
                    continue;
                }
                *ends.verdicts.entry(Verdict::of((low, high), 0.05, true).name()).or_default() += 1;
                ends.held += u32::from(low <= ratio.ln() && ratio.ln() <= high);
                ends.blocks += blocks;
                break;
            }
        }
        ends
    }

    /// The error rates at several noise levels, with a look at every step.
    #[test]
    fn equal_arms_are_better_or_worse_in_at_most_5_of_100_experiments() {
        for (noise, seed) in [(0.005, 1), (0.02, 2), (0.06, 3), (0.2, 4)] {
            let ends = simulate(10_000, 1.0, noise, seed);
            let wrong = ["better", "worse"].map(|verdict| ends.verdicts.get(verdict).copied().unwrap_or(0));
            assert!(wrong.iter().sum::<u32>() <= 500, "{noise}: {:?}", ends.verdicts);
            assert!(ends.held >= 9_450, "{noise}: the interval holds the truth {} times", ends.held);
        }
    }

    #[test]
    fn the_interval_holds_a_true_difference_whichever_look_was_the_last() {
        for (ratio, noise, seed) in [(1.05, 0.02, 5), (0.46, 0.08, 6), (1.1, 0.03, 7)] {
            let ends = simulate(10_000, ratio, noise, seed);
            assert!(ends.held >= 9_450, "{ratio}: {}", ends.held);
        }
    }

    #[test]
    fn a_difference_of_5_in_100_is_found_in_9_of_10_experiments() {
        for ratio in [1.05, 1.0 / 1.05] {
            let ends = simulate(10_000, ratio, 0.02, 8);
            let verdict = if ratio > 1.0 { "better" } else { "worse" };
            assert!(ends.verdicts.get(verdict).is_some_and(|found| *found >= 9_000), "{:?}", ends.verdicts);
            assert!(ends.blocks < 18 * 10_000, "{} blocks", ends.blocks);
        }
    }

    #[test]
    fn equal_arms_of_little_noise_are_the_same() {
        let ends = simulate(2_000, 1.0, 0.02, 9);
        assert!(ends.verdicts.get("same").is_some_and(|found| *found >= 1_800), "{:?}", ends.verdicts);
    }
}
