//! The results of a load at other depths, as rows for text and HTML.

use crate::experiment::{Arm, ArmResult, Curve};
use crate::render::text::short;
use crate::units::time;

/// Column headings.
pub const HEADER: [&str; 4] = ["load", "IOPS", "mean latency", "IOPS against the same depth"];

/// A row per arm, by increasing load. An arm without a complete block has none.
pub fn rows(curve: &Curve) -> Vec<[String; 4]> {
    curve.arms.iter().map(|tried| row(curve, tried)).collect()
}

fn row(curve: &Curve, tried: &ArmResult) -> [String; 4] {
    let dash = || "-".to_string();
    let mean =
        |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let rate = mean(tried.blocks.iter().map(|point| point.operations_per_second).collect());
    let latency = mean(tried.blocks.iter().filter_map(|point| point.mean_ns).collect());
    let against = match tried.arm {
        Arm::TheSame => None,
        arm => curve.rate(arm).map(|ratio| ratio.change("")),
    };
    let jobs = if tried.numjobs == 1 { String::new() } else { format!(", {} jobs", tried.numjobs) };
    [
        format!("depth {}{jobs}", tried.iodepth),
        rate.map_or_else(dash, short),
        latency.map_or_else(dash, |ns| time(ns as u64)),
        against.unwrap_or_else(dash),
    ]
}

/// `6 blocks of 150 ms`, with a note if it was cut short.
pub fn extent(curve: &Curve) -> String {
    let blocks = curve.arms.iter().map(|tried| tried.blocks.len()).min().unwrap_or(0);
    let cut = curve.cut.as_ref().map(|why| format!(", cut short: {why}")).unwrap_or_default();
    format!("{blocks} blocks of {}{cut}", time(curve.block_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BlockResult;

    #[test]
    fn an_arm_is_a_row_and_one_without_blocks_has_no_zero() {
        let tried = |arm, iodepth, rate: Option<f64>| ArmResult {
            arm,
            iodepth,
            numjobs: 1,
            ratio: None,
            blocks: rate
                .map(|rate| vec![BlockResult { operations_per_second: rate, mean_ns: Some(1e9 / rate) }; 3])
                .unwrap_or_default(),
        };
        let mut curve = Curve {
            arms: vec![tried(Arm::TheSame, 32, Some(1_000.0)), tried(Arm::TwiceTheDepth, 64, Some(1_500.0))],
            block_ns: 150_000_000,
            ..Curve::default()
        };
        let rows_of = |curve: &Curve| rows(curve).iter().map(|row| row.join("|")).collect::<Vec<_>>();
        assert_eq!(rows_of(&curve), ["depth 32|1000|1.00 ms|-", "depth 64|1500|667 µs|+50 % (+50 to +50 %)"]);
        assert_eq!(extent(&curve), "3 blocks of 150 ms");
        curve.arms[1].blocks.clear();
        curve.cut = Some("it was stopped".to_string());
        assert_eq!(rows_of(&curve)[1], "depth 64|-|-|-");
        assert_eq!(extent(&curve), "0 blocks of 150 ms, cut short: it was stopped");
    }
}
