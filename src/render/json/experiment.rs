//! A load at other depths, as `diagnose` nests it.

use serde_json::{Value, json};

use crate::experiment::Curve;

/// Arms with the rate and mean latency of each block; ratios are to the arm `the-same`, and null below three blocks.
pub fn body(curve: &Curve) -> Value {
    let arms = curve.arms.iter().map(|tried| {
        json!({
            "arm": tried.arm,
            "iodepth": tried.iodepth,
            "numjobs": tried.numjobs,
            "blocks": tried.blocks,
            "ratio": curve.rate(tried.arm),
        })
    });
    json!({
        "block_ns": curve.block_ns,
        "arms": arms.collect::<Vec<_>>(),
        "regime": curve.regime(),
        "other_regimes": curve.regime().map(|_| curve.other_regimes()),
        "cut": curve.cut,
    })
}
