//! What preconditioning wrote before a load.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analyze::cliff::{Cliff, cliff};
use crate::load::{
    BlockSizes, Fill, MOST_RANGE, MOST_SLOPE, PreconditionEnd, PreconditionResult, RoundTrend, WriteRound,
};

/// The fill and the random writes. Of several targets everything is their sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreconditionRecord {
    pub targets: Vec<String>,
    pub area_bytes: u64,
    pub fill: FillRecord,
    /// Of the random writes.
    pub block_sizes: BlockSizes,
    pub rounds: Vec<RoundRecord>,
    pub steady: bool,
    pub end: PreconditionEnd,
    /// The last rounds; null where there were too few.
    pub window: Option<WindowRecord>,
    pub duration_ns: u64,
}

/// The fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FillRecord {
    #[serde(flatten)]
    pub fill: Fill,
    pub block_bytes: u64,
    pub write_cliff: Option<Cliff>,
}

/// A round of random writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RoundRecord {
    pub ios: u64,
    pub bytes: u64,
    pub iops: Option<f64>,
    pub duration_ns: u64,
}

/// How steady the last rounds were. Shares are percent of the average.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WindowRecord {
    pub average_iops: f64,
    pub range_percent: f64,
    pub slope_percent: f64,
    /// What steady writes have at most.
    pub most_range_percent: f64,
    pub most_slope_percent: f64,
}

impl PreconditionRecord {
    pub fn of(done: &PreconditionResult) -> Self {
        Self {
            targets: done.targets.clone(),
            area_bytes: done.area,
            fill: FillRecord {
                fill: done.fill,
                block_bytes: done.fill_block,
                write_cliff: cliff(&done.written),
            },
            block_sizes: done.block_sizes.clone(),
            rounds: done.rounds.iter().map(RoundRecord::of).collect(),
            steady: done.end == PreconditionEnd::Steady,
            end: done.end,
            window: done.window.map(WindowRecord::of),
            duration_ns: done.duration_ns,
        }
    }
}

impl RoundRecord {
    fn of(round: &WriteRound) -> Self {
        Self { ios: round.operations, bytes: round.bytes, iops: round.iops(), duration_ns: round.duration_ns }
    }
}

impl WindowRecord {
    fn of(window: RoundTrend) -> Self {
        Self {
            average_iops: window.average,
            range_percent: window.range * 100.0,
            slope_percent: window.slope * 100.0,
            most_range_percent: MOST_RANGE * 100.0,
            most_slope_percent: MOST_SLOPE * 100.0,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// 64 MiB that became steady after six rounds of a second.
    pub fn steady() -> PreconditionResult {
        let rounds = [9_000, 5_000, 5_100, 4_900, 5_050, 4_950];
        let iops: Vec<f64> = rounds.iter().map(|n| *n as f64).collect();
        let round =
            |operations: u64| WriteRound { operations, bytes: operations << 12, duration_ns: 1_000_000_000 };
        PreconditionResult {
            targets: vec!["/dev/nvme0n1".to_string()],
            area: 64 << 20,
            fill: Fill { bytes: 64 << 20, duration_ns: 500_000_000 },
            written: Vec::new(),
            fill_block: 1 << 20,
            block_sizes: BlockSizes::fixed(4096),
            rounds: rounds.into_iter().map(round).collect(),
            window: RoundTrend::of(&iops),
            end: PreconditionEnd::Steady,
            duration_ns: 6_600_000_000,
        }
    }

    #[test]
    fn rounds_stand_beside_what_was_made_of_them() {
        let value = json!(PreconditionRecord::of(&steady()));
        assert_eq!((&value["steady"], &value["end"]), (&json!(true), &json!("steady")));
        assert_eq!(value["rounds"][5]["iops"], 4950.0);
        assert_eq!(
            (&value["window"]["average_iops"], &value["window"]["range_percent"]),
            (&json!(5000.0), &json!(4.0))
        );
        assert_eq!(value["fill"]["bytes"], 64 << 20);
    }

    #[test]
    fn what_was_not_reached_is_null_and_not_steady() {
        let cut =
            PreconditionResult { rounds: Vec::new(), window: None, end: PreconditionEnd::Time, ..steady() };
        let value = json!(PreconditionRecord::of(&cut));
        assert_eq!(
            (&value["steady"], &value["end"], &value["window"]),
            (&json!(false), &json!("time"), &Value::Null)
        );
        assert_eq!(value["rounds"], json!([]));
    }
}
