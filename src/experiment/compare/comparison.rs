//! Computes the result of a comparison from its rounds. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metric::MetricKind;
use super::stages::{self, StageDifference, StageMean};
use crate::envelope::View;
use crate::experiment::ratio::{ERROR, LEAST_BLOCKS};
use crate::experiment::{EvaluationPlan, Verdict};
use crate::names::names;
use crate::stats::{PairedDifferences, drift, holm, welch};

/// A drift is reported below this p, if the change over the whole run is at least this large.
const DRIFT_P: f64 = 0.01;
const LEAST_DRIFT_PERCENT: f64 = 2.0;

/// What is compared: values of settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Arm {
    pub name: String,
    /// By key, as `--vary` has it.
    pub settings: BTreeMap<String, String>,
}

/// One run of an arm.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Round {
    /// Its place among `arms`.
    pub arm: usize,
    /// A block has a round of each arm.
    pub block: usize,
    /// From the first round on.
    pub begin_ns: u64,
    /// By the name of the metric.
    pub values: BTreeMap<String, f64>,
    /// In the order of time, where `--stages` measured them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageMean>,
    /// Bytes that others moved on the device, of all that were; null where that cannot be measured.
    pub foreign_percent: Option<f64>,
    /// Why the block of this round is in no figure.
    pub left_out: Option<String>,
}

names! {
    /// Why there are no more rounds.
    pub enum StopReason {
        /// The interval is as narrow as `--until` requires, or entirely beyond the margin.
        Precise = "precise",
        /// All planned rounds were run.
        Planned = "planned",
        /// `--max-time` was over.
        Time = "time",
        /// It was stopped.
        Stopped = "stopped",
    }
}

/// A metric of an arm, compared with the first arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricComparison {
    pub name: MetricKind,
    pub unit: String,
    /// The arm that is compared with the first: its place among `arms`.
    pub arm: usize,
    /// Geometric means of the rounds, of the first arm and of this one.
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// b to a. With an interval that holds the true ratio in 95 of 100 comparisons, also where it ended early.
    pub ratio: Option<f64>,
    pub ratio_low: Option<f64>,
    pub ratio_high: Option<f64>,
    /// How far both may differ and be the same.
    pub margin_percent: f64,
    pub verdict: Verdict,
    /// Blocks that it is made of.
    pub blocks: usize,
    /// Rounds of each arm after which an interval of half the margin is expected; null where the verdict is clear, or that
    /// cannot be told.
    pub rounds_needed: Option<usize>,
}

/// What differs of two kept results beside their figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Difference {
    pub what: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

/// Arms compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Comparison {
    /// What was driven: the target of the load, or the command.
    pub target: String,
    pub device: Option<String>,
    /// What ran and where, by what it is called; of kept results the settings of each arm say it.
    pub setup: BTreeMap<String, String>,
    pub arms: Vec<Arm>,
    /// In the order in which they ran.
    pub rounds: Vec<Round>,
    /// Rounds of a block were run one after the other, and are compared with each other; false where a result was kept.
    pub is_paired: bool,
    /// Of kept results: what differs of kernel, device and load.
    pub differences: Vec<Difference>,
    /// Where the number stands in what the command prints, which is the metric `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was named beforehand to decide by. The others are corrected for their number (Holm).
    pub primary: Option<MetricKind>,
    /// The primary one first.
    pub metrics: Vec<MetricComparison>,
    /// Where `--stages` measured them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageDifference>,
    /// What the stages are means of: `operation` or `I/O`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages_per: Option<String>,
    /// What the primary metric changed by over the run, in both arms; null where it did not.
    pub drift_percent: Option<f64>,
    pub end: Option<StopReason>,
    /// What qualifies the result.
    pub notes: Vec<String>,
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            target: String::new(),
            device: None,
            setup: BTreeMap::new(),
            arms: Vec::new(),
            rounds: Vec::new(),
            is_paired: true,
            differences: Vec::new(),
            value: None,
            primary: None,
            metrics: Vec::new(),
            stages: Vec::new(),
            stages_per: None,
            drift_percent: None,
            end: None,
            notes: Vec::new(),
        }
    }
}

impl View for Comparison {
    const SCHEMA: &'static str = "biopsy.compare/1";
}

impl Comparison {
    /// Values of a metric of two arms per block, for blocks that count.
    fn pairs(&self, name: &str, arm: usize) -> (Vec<f64>, Vec<f64>) {
        if !self.is_paired {
            let of_arm = |arm: usize| self.rounds.iter().filter(move |round| round.arm == arm);
            let values =
                |arm: usize| of_arm(arm).filter_map(|round| round.values.get(name).copied()).collect();
            return (values(arm), values(0));
        }
        let mut pairs = (Vec::new(), Vec::new());
        for block in self.whole_blocks() {
            let value =
                |arm: usize| self.rounds.iter().find(|r| (r.block, r.arm) == (block, arm))?.values.get(name);
            if let (Some(b), Some(a)) = (value(arm), value(0)) {
                pairs.0.push(*b);
                pairs.1.push(*a);
            }
        }
        pairs
    }

    /// Blocks with a round of each arm, none of which is left out.
    pub fn whole_blocks(&self) -> Vec<usize> {
        let blocks = self.rounds.iter().map(|round| round.block + 1).max().unwrap_or(0);
        let is_whole = |block: &usize| {
            let mut of_block = self.rounds.iter().filter(|round| round.block == *block);
            of_block.clone().count() == self.arms.len() && of_block.all(|round| round.left_out.is_none())
        };
        (0..blocks).filter(is_whole).collect()
    }

    /// Whether the primary metric of every arm is known precisely enough.
    pub fn is_enough(&self, plan: &EvaluationPlan, p: f64) -> bool {
        let Some(primary) = self.primary else { return false };
        (1..self.arms.len()).all(|arm| {
            let (b, a) = self.pairs(primary.name(), arm);
            let paired = PairedDifferences::of_ratios(&b, &a).filter(|paired| paired.pairs >= LEAST_BLOCKS);
            paired.is_some_and(|paired| plan.is_enough(paired.estimate().interval(p)))
        })
    }

    /// Computes what follows from the rounds. `p` is that of the last look, `margin` that of means and rates.
    pub fn derive(&mut self, plan: &EvaluationPlan, p: f64, margin: f64) {
        let measured =
            |kind: &MetricKind| self.rounds.iter().any(|round| round.values.contains_key(kind.name()));
        let others = MetricKind::ALL.into_iter().filter(|kind| Some(*kind) != self.primary && measured(kind));
        let kinds: Vec<MetricKind> = self.primary.into_iter().chain(others).collect();
        let mut metrics = Vec::new();
        let mut tests = Vec::new();
        for (kind, arm) in kinds.iter().flat_map(|kind| (1..self.arms.len()).map(move |arm| (*kind, arm))) {
            let (metric, test) = self.metric(kind, arm, p, margin);
            if Some(kind) != self.primary {
                tests.push((metrics.len(), test));
            }
            metrics.push(metric);
        }
        let values: Vec<f64> = tests.iter().map(|(_, p)| *p).collect();
        let levels: Vec<f64> = (0..=values.len()).map(|tests| plan.level(tests)).collect();
        for ((index, _), rejects) in tests.iter().zip(holm(&values, |tests| levels[tests])) {
            let verdict = &mut metrics[*index].verdict;
            if !rejects && *verdict != Verdict::Same {
                *verdict = Verdict::Unclear;
            }
        }
        self.metrics = metrics;
        self.stages = if self.is_paired { stages::differences(self, p) } else { Vec::new() };
        self.drift_percent = self.drift();
    }

    /// A metric, and the p-value of the hypothesis that both arms are equal.
    fn metric(&self, name: MetricKind, arm: usize, p: f64, margin: f64) -> (MetricComparison, f64) {
        let (b, a) = self.pairs(name.name(), arm);
        let margin = name.margin(margin);
        let paired = PairedDifferences::of_ratios(&b, &a).filter(|_| self.is_paired);
        let means = (geometric(&b), geometric(&a));
        let estimate = match self.is_paired {
            true => paired.filter(|paired| paired.pairs >= LEAST_BLOCKS).map(|paired| paired.estimate()),
            // A run without any I/O has no logarithm, and must not be dropped from the result.
            false => welch(&logs(&b), &logs(&a))
                .filter(|_| means.0.is_some() && means.1.is_some() && b.len().min(a.len()) >= LEAST_BLOCKS),
        };
        let interval = estimate.map(|one| one.interval(p));
        let interval = interval.filter(|(low, high)| low.exp() > 0.0 && high.exp().is_finite());
        let verdict =
            interval.map_or(Verdict::Unclear, |both| Verdict::of(both, margin, name.more_is_better()));
        let is_unclear = verdict == Verdict::Unclear && estimate.is_some();
        let needed =
            paired.filter(|_| is_unclear).and_then(|paired| paired.needed(margin.ln_1p() / 2.0, ERROR));
        let metric = MetricComparison {
            name,
            unit: name.unit().to_string(),
            arm,
            a: means.1,
            b: means.0,
            ratio: paired.map(|paired| paired.mean.exp()).or(means.0.zip(means.1).map(|(b, a)| b / a)),
            ratio_low: interval.map(|(low, _)| low.exp()),
            ratio_high: interval.map(|(_, high)| high.exp()),
            margin_percent: margin * 100.0,
            verdict,
            blocks: paired.map_or(b.len().min(a.len()), |paired| paired.pairs),
            // Only pairs of blocks are balanced.
            rounds_needed: needed.map(|blocks| (blocks + blocks % 2).max(b.len() + 2)),
        };
        (metric, estimate.map_or(1.0, |estimate| estimate.p()))
    }

    /// The primary metric, of the arm that differs most if there are several.
    pub fn answer(&self) -> Option<&MetricComparison> {
        let of_primary = self.metrics.iter().filter(|metric| Some(metric.name) == self.primary);
        let rank = |metric: &&MetricComparison| {
            let size = metric.ratio.filter(|ratio| *ratio > 0.0).map_or(0.0, |ratio| ratio.ln().abs());
            (matches!(metric.verdict, Verdict::Better | Verdict::Worse), size)
        };
        of_primary.max_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    /// A metric's title in a table: a printed value has its own name.
    pub fn title(&self, kind: MetricKind) -> &str {
        self.value.as_deref().filter(|_| kind.is_printed()).unwrap_or(kind.title())
    }

    /// An arm that is worse than the first by the primary metric.
    pub fn worse(&self) -> Option<&MetricComparison> {
        self.metrics
            .iter()
            .find(|metric| Some(metric.name) == self.primary && metric.verdict == Verdict::Worse)
    }

    fn drift(&self) -> Option<f64> {
        let primary = self.primary.filter(|_| self.is_paired)?;
        let blocks = self.whole_blocks();
        let of_arm = |arm: usize| {
            let rounds = self.rounds.iter().filter(|round| round.arm == arm && blocks.contains(&round.block));
            let point = |round: &Round| {
                let value = round.values.get(primary.name()).filter(|value| **value > 0.0)?;
                Some((round.begin_ns as f64, value.ln()))
            };
            rounds.filter_map(point).collect::<Vec<_>>()
        };
        let groups: Vec<Vec<(f64, f64)>> = (0..self.arms.len()).map(of_arm).collect();
        let times = || groups.iter().flatten().map(|(time, _)| *time);
        let length = times().fold(0.0, f64::max) - times().fold(f64::INFINITY, f64::min);
        let found = drift(&groups).filter(|drift| drift.p < DRIFT_P)?;
        let percent = ((found.slope * length).exp() - 1.0) * 100.0;
        (percent.abs() >= LEAST_DRIFT_PERCENT).then_some(percent)
    }
}

fn logs(values: &[f64]) -> Vec<f64> {
    values.iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect()
}

/// None for no values, or if one is not above zero.
fn geometric(values: &[f64]) -> Option<f64> {
    let is_usable = !values.is_empty() && values.iter().all(|value| *value > 0.0 && value.is_finite());
    is_usable.then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two arms with these IOPS per block; each block's second round is slower by `drift`.
    pub(crate) fn of(a: &[f64], b: &[f64]) -> Comparison {
        let arm = |name: &str| Arm { name: name.to_string(), settings: BTreeMap::new() };
        let mut rounds = Vec::new();
        for (block, values) in a.iter().zip(b).enumerate() {
            for (arm, iops) in [(0, values.0), (1, values.1)] {
                let mut all = BTreeMap::from([("iops".to_string(), *iops)]);
                if *iops > 0.0 {
                    all.insert("mean_ns".to_string(), 1e9 / iops);
                }
                let begin_ns = rounds.len() as u64 * 1_000_000_000;
                rounds.push(Round { arm, block, begin_ns, values: all, ..Round::default() });
            }
        }
        let mut found = Comparison {
            target: "/dev/loop7".to_string(),
            device: Some("loop7".to_string()),
            arms: vec![arm("none"), arm("mq-deadline")],
            rounds,
            primary: Some(MetricKind::Iops),
            end: Some(StopReason::Planned),
            ..Comparison::default()
        };
        found.derive_at_once();
        found
    }

    impl Comparison {
        fn derive_at_once(&mut self) {
            let blocks = self.whole_blocks().len();
            let mut plan = EvaluationPlan::fixed(blocks.max(1), 0.05, 0.05);
            let p = plan.look(blocks);
            self.derive(&plan, p, 0.05);
        }
    }

    fn verdicts(comparison: &Comparison) -> Vec<(MetricKind, Verdict)> {
        comparison.metrics.iter().map(|metric| (metric.name, metric.verdict)).collect()
    }

    #[test]
    fn half_the_rate_is_worse_and_so_is_twice_the_latency() {
        let found = of(&[100.0, 101.0, 99.0, 100.5], &[50.0, 50.5, 49.5, 50.0]);
        assert_eq!(
            verdicts(&found),
            [(MetricKind::Iops, Verdict::Worse), (MetricKind::Mean, Verdict::Worse)]
        );
        let iops = found.answer().unwrap();
        assert!(iops.ratio_low.unwrap() < 0.5 && iops.ratio_high.unwrap() > 0.498, "{iops:?}");
        assert_eq!((iops.blocks, iops.rounds_needed, found.worse()), (4, None, Some(iops)));
    }

    #[test]
    fn what_says_nothing_is_unclear_and_has_no_nan() {
        for (a, b) in [
            (&[][..], &[][..]),
            (&[100.0], &[50.0]),
            (&[100.0, 100.0], &[50.0, 50.0]),
            (&[0.0; 4], &[0.0; 4]),
            (&[100.0, 80.0, 120.0, 100.0], &[100.0, 120.0, 80.0, 100.0]),
        ] {
            let found = of(a, b);
            assert!(found.metrics.iter().all(|metric| metric.verdict == Verdict::Unclear), "{found:?}");
            let text = serde_json::to_string(&found).unwrap();
            let read: Comparison = serde_json::from_str(&text).unwrap();
            assert_eq!(read, found, "a NaN or an infinity would be null");
        }
        let noisy = of(&[100.0, 80.0, 120.0, 100.0], &[100.0, 120.0, 80.0, 100.0]);
        assert!(noisy.answer().unwrap().rounds_needed.is_some_and(|rounds| rounds > 100), "{noisy:?}");
    }

    #[test]
    fn equal_rounds_are_the_same_without_any_doubt() {
        let found = of(&[100.0; 4], &[100.0; 4]);
        assert_eq!(verdicts(&found), [(MetricKind::Iops, Verdict::Same), (MetricKind::Mean, Verdict::Same)]);
        assert_eq!(found.answer().unwrap().ratio_low, Some(1.0));
    }

    #[test]
    fn a_block_that_is_left_out_counts_for_neither_arm() {
        let mut found = of(&[100.0, 100.0, 100.0, 100.0, 10.0], &[100.0, 101.0, 100.0, 99.0, 100.0]);
        assert_eq!(found.answer().unwrap().verdict, Verdict::Unclear);
        found.rounds[8].left_out = Some("90 % of the bytes were those of others".to_string());
        found.derive_at_once();
        assert_eq!((found.answer().unwrap().verdict, found.answer().unwrap().blocks), (Verdict::Same, 4));
    }

    #[test]
    fn other_metrics_are_corrected_for_their_number() {
        let mut found = of(&[100.0, 101.0, 100.0, 99.0], &[100.0, 101.0, 100.0, 99.0]);
        // Alone its p is 0.024; among four tests it must be below 0.0125.
        let elapsed = [1.03, 1.09, 1.14, 1.12];
        for round in &mut found.rounds {
            let value = if round.arm == 1 { elapsed[round.block] } else { 1.0 };
            round.values.insert("p50_ns".to_string(), value);
            for name in ["p99_ns", "cpu_ns_per_io"] {
                round.values.insert(name.to_string(), 1.0 + 0.2 * ((round.arm * 3 + round.block) % 4) as f64);
            }
        }
        found.derive_at_once();
        let median = found.metrics.iter().find(|metric| metric.name == MetricKind::Median).unwrap();
        assert!(median.ratio_low.unwrap() > 1.0, "{median:?}");
        assert_eq!(median.verdict, Verdict::Unclear, "{median:?}");
        found
            .rounds
            .iter_mut()
            .for_each(|round| round.values.retain(|name, _| name == "iops" || name == "p50_ns"));
        found.derive_at_once();
        let median = found.metrics.iter().find(|metric| metric.name == MetricKind::Median).unwrap();
        assert_eq!(median.verdict, Verdict::Worse, "alone it is");
    }

    #[test]
    fn a_drift_of_both_arms_is_told_and_changes_no_verdict() {
        let falling: Vec<f64> = (0..8).map(|block| 100.0 * 0.98f64.powi(block)).collect();
        let found = of(&falling, &falling);
        assert!(found.drift_percent.is_some_and(|percent| (-15.0..-11.0).contains(&percent)), "{found:?}");
        assert_eq!(found.answer().unwrap().verdict, Verdict::Same);
        assert_eq!(of(&[100.0; 8], &[50.0; 8]).drift_percent, None);
    }
}
