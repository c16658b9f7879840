//! Computes by how much each stage differs between an arm and the first arm. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, Round};
use crate::experiment::ratio::LEAST_BLOCKS;
use crate::stats::PairedDifferences;

/// Sum of all stages.
pub const ALL: &str = "all";

/// What a stage took in a round, on average of its operations or I/Os.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageMean {
    pub stage: String,
    pub mean_ns: f64,
}

/// A stage of an arm, compared with the first arm: a difference in time, since differences of stages add up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageDifference {
    /// The arm that is compared with the first: its place among `arms`.
    pub arm: usize,
    /// `all` is the sum of the others, and the last one.
    pub stage: String,
    /// Means of the rounds, of the first arm and of this one; null where the arm has no such stage, which counts as nothing
    /// in the difference.
    pub a_ns: Option<f64>,
    pub b_ns: Option<f64>,
    /// b less a. With an interval that holds the true difference in 95 of 100 comparisons.
    pub difference_ns: f64,
    pub low_ns: Option<f64>,
    pub high_ns: Option<f64>,
    /// It differs, at a level that is corrected for the number of stages (Bonferroni).
    pub is_certain: bool,
}

/// For all arms but the first, each stage in time order. Rounds without stages are left out with their blocks.
pub fn differences(comparison: &Comparison, p: f64) -> Vec<StageDifference> {
    let mut names: Vec<&str> = Vec::new();
    for mean in comparison.rounds.iter().flat_map(|round| &round.stages) {
        if !names.contains(&mean.stage.as_str()) {
            names.push(&mean.stage);
        }
    }
    if names.is_empty() {
        return Vec::new();
    }
    let blocks = comparison.whole_blocks();
    let of = |block: usize, arm: usize| {
        let found = comparison.rounds.iter().find(|round| (round.block, round.arm) == (block, arm));
        found.filter(|round| !round.stages.is_empty())
    };
    (1..comparison.arms.len())
        .flat_map(|arm| {
            let pairs: Vec<(&Round, &Round)> =
                blocks.iter().filter_map(|block| of(*block, arm).zip(of(*block, 0))).collect();
            let with_all = names.iter().copied().chain([ALL]);
            // All stages are tested together; the sum is a single test.
            let level = |name: &str| if name == ALL { p } else { p / names.len() as f64 };
            with_all.filter_map(|name| difference(arm, name, &pairs, (p, level(name)))).collect::<Vec<_>>()
        })
        .collect()
}

/// None without any pair of rounds. `p`: levels for the interval, and for significance.
fn difference(
    arm: usize,
    name: &str,
    pairs: &[(&Round, &Round)],
    (p, level): (f64, f64),
) -> Option<StageDifference> {
    let value = |round: &Round| match name {
        ALL => Some(round.stages.iter().map(|mean| mean.mean_ns).sum::<f64>()),
        _ => round.stages.iter().find(|mean| mean.stage == name).map(|mean| mean.mean_ns),
    };
    let mean =
        |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let differences: Vec<f64> =
        pairs.iter().map(|(b, a)| value(b).unwrap_or(0.0) - value(a).unwrap_or(0.0)).collect();
    let paired = PairedDifferences::of(&differences).filter(|paired| paired.pairs >= LEAST_BLOCKS);
    let at = |p: f64| {
        let interval = paired.map(|paired| paired.estimate().interval(p));
        interval.filter(|(low, high)| low.is_finite() && high.is_finite())
    };
    let interval = at(p);
    Some(StageDifference {
        arm,
        stage: name.to_string(),
        a_ns: mean(pairs.iter().filter_map(|(_, a)| value(a)).collect()),
        b_ns: mean(pairs.iter().filter_map(|(b, _)| value(b)).collect()),
        difference_ns: mean(differences)?,
        low_ns: interval.map(|(low, _)| low),
        high_ns: interval.map(|(_, high)| high),
        is_certain: at(level).is_some_and(|(low, high)| low > 0.0 || high < 0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::of;
    use super::*;

    /// Two arms of four blocks, whose rounds have these stages.
    fn with_stages(stages: impl Fn(usize, usize) -> Vec<(&'static str, f64)>) -> Comparison {
        let mut found = of(&[100.0; 4], &[50.0; 4]);
        for round in &mut found.rounds {
            let mean = |(stage, mean_ns): (&str, f64)| StageMean { stage: stage.to_string(), mean_ns };
            round.stages = stages(round.arm, round.block).into_iter().map(mean).collect();
        }
        found
    }

    #[test]
    fn differences_of_stages_add_up() {
        let found = with_stages(|arm, block| {
            let noise = [0.0, 2.0, -2.0, 0.0][block];
            vec![
                ("submit", 10.0),
                ("queue", 20.0 + 290.0 * arm as f64 + noise),
                ("device", 70.0 + 20.0 * arm as f64),
            ]
        });
        let all = differences(&found, 0.05);
        let names: Vec<&str> = all.iter().map(|one| one.stage.as_str()).collect();
        assert_eq!(names, ["submit", "queue", "device", "all"]);
        let difference = |name: &str| all.iter().find(|one| one.stage == name).unwrap().difference_ns;
        assert_eq!((difference("submit"), difference("queue"), difference("device")), (0.0, 290.0, 20.0));
        assert_eq!((difference("all"), all[3].a_ns, all[3].b_ns), (310.0, Some(100.0), Some(410.0)));
        assert_eq!((all[1].low_ns, all[1].high_ns), (Some(290.0), Some(290.0)), "the noise is of the block");
        assert_eq!(all.iter().map(|one| one.is_certain).collect::<Vec<_>>(), [false, true, true, true]);
    }

    /// Among three stages a single one may differ by chance in one of seven comparisons.
    #[test]
    fn a_stage_is_certain_by_a_level_for_all_of_them() {
        let noise = |arm: usize, block: usize| arm as f64 * [1.0, 3.0, 2.0, 1.2][block];
        let one = with_stages(|arm, block| vec![("device", 50.0 + noise(arm, block))]);
        let three = with_stages(|arm, block| {
            vec![("submit", 1.0), ("queue", 1.0), ("device", 50.0 + noise(arm, block))]
        });
        let device = |found: &Comparison| {
            differences(found, 0.05).into_iter().find(|one| one.stage == "device").unwrap()
        };
        let (one, three) = (device(&one), device(&three));
        assert_eq!((one.low_ns, one.is_certain, three.is_certain), (three.low_ns, true, false), "{one:?}");
    }

    /// A stage that one arm lacks: its time is in the other stages there.
    #[test]
    fn a_stage_of_one_arm_counts_as_nothing_in_the_other() {
        let found = with_stages(|arm, _| match arm {
            0 => vec![("device", 50.0), ("reap", 5.0)],
            _ => vec![("device", 60.0)],
        });
        let reap = differences(&found, 0.05).into_iter().find(|one| one.stage == "reap").unwrap();
        assert_eq!((reap.a_ns, reap.b_ns, reap.difference_ns), (Some(5.0), None, -5.0));
    }

    #[test]
    fn blocks_that_are_left_out_or_have_no_stages_count_for_nothing() {
        let mut found = with_stages(|arm, block| match block {
            0 => vec![],
            _ => vec![("device", 50.0 + 10.0 * arm as f64 + 1000.0 * (arm * (block / 3)) as f64)],
        });
        found.rounds[6].left_out = Some("others".to_string());
        let all = differences(&found, 0.05);
        assert_eq!((all[0].difference_ns, all[0].low_ns), (10.0, None), "two blocks have no interval");
        assert!(differences(&of(&[1.0; 3], &[1.0; 3]), 0.05).is_empty());
        assert!(differences(&with_stages(|arm, _| vec![("device", 1.0)][arm..].to_vec()), 0.05).is_empty());
    }
}
