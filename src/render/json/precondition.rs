//! What was written before a load, as its key `precondition`.

use serde_json::{Value, json};

use super::drive::write_cliff;
use crate::load::{End, MOST_RANGE, MOST_SLOPE, Preconditioned, Round};

/// The value of the key. Shares are percent of the average.
pub fn value(done: &Preconditioned) -> Value {
    let sizes = done.block_sizes.0.iter();
    let sizes = sizes.map(|s| json!({ "low_bytes": s.low, "high_bytes": s.high, "percent": s.percent }));
    json!({
        "targets": done.targets,
        "area_bytes": done.area,
        "fill": {
            "bytes": done.fill.bytes,
            "duration_ns": done.fill.duration_ns,
            "block_bytes": done.fill_block,
            "write_cliff": write_cliff(&done.written),
        },
        "block_sizes": sizes.collect::<Vec<_>>(),
        "rounds": done.rounds.iter().map(round).collect::<Vec<_>>(),
        "steady": done.end == End::Steady,
        "end": match done.end {
            End::Steady => "steady",
            End::Rounds => "rounds",
            End::Time => "time",
        },
        "window": done.window.map(|window| json!({
            "average_iops": window.average,
            "range_percent": window.range * 100.0,
            "slope_percent": window.slope * 100.0,
            "most_range_percent": MOST_RANGE * 100.0,
            "most_slope_percent": MOST_SLOPE * 100.0,
        })),
        "duration_ns": done.duration_ns,
    })
}

fn round(round: &Round) -> Value {
    json!({
        "ios": round.operations,
        "bytes": round.bytes,
        "iops": round.iops(),
        "duration_ns": round.duration_ns,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::load::{BlockSizes, Fill, Window};

    /// 64 MiB that became steady after six rounds of a second.
    pub fn steady() -> Preconditioned {
        let rounds = [9_000, 5_000, 5_100, 4_900, 5_050, 4_950];
        let iops: Vec<f64> = rounds.iter().map(|n| *n as f64).collect();
        let round =
            |operations: u64| Round { operations, bytes: operations << 12, duration_ns: 1_000_000_000 };
        Preconditioned {
            targets: vec!["/dev/nvme0n1".to_string()],
            area: 64 << 20,
            fill: Fill { bytes: 64 << 20, duration_ns: 500_000_000 },
            written: Vec::new(),
            fill_block: 1 << 20,
            block_sizes: BlockSizes::fixed(4096),
            rounds: rounds.into_iter().map(round).collect(),
            window: Window::of(&iops),
            end: End::Steady,
            duration_ns: 6_600_000_000,
        }
    }

    #[test]
    fn rounds_stand_beside_what_was_made_of_them() {
        let value = value(&steady());
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
        let cut = Preconditioned { rounds: Vec::new(), window: None, end: End::Time, ..steady() };
        let value = value(&cut);
        assert_eq!(
            (&value["steady"], &value["end"], &value["window"]),
            (&json!(false), &json!("time"), &Value::Null)
        );
        assert_eq!(value["rounds"], json!([]));
    }
}
