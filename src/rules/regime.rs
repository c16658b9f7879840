//! The measured effect of the depth on the rate: which kind of limit there is.

use super::facts::{DeviceView, percent};
use super::{Summaries, rates};
use crate::experiment::{Arm, Regime};
use crate::findings::{Finding, Number};

/// Factor on a finding's confidence for each other regime that the interval of the gain extends into.
const UNSURE: f64 = 0.8;

/// Without biopsy's own load, and if the I/Os in flight did not vary.
pub const UNTRIED: &str = "the load is not biopsy's own, so more I/Os in flight could not be tried";

const TWICE_THE_DEPTH_PERCENT: Number =
    Number::new("twice_the_depth_percent", "IOPS gained by twice the depth");

/// None: it was not tried, or not enough.
pub fn regime(s: &Summaries<'_>) -> Option<Regime> {
    s.experiment?.regime()
}

/// If not tried: from the rate's reaction to natural variations of the I/Os in flight, with a line of evidence.
pub fn observed(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<(Regime, String)> {
    if s.experiment.is_some() {
        return None;
    }
    let following = rates::following(s, p)?;
    Some((Regime::of(following.of_twice()), rates::following_line(&following)))
}

/// `twice the depth gave +1 % IOPS (-1 to +3 %)`
pub fn line(s: &Summaries<'_>) -> Option<String> {
    gave(s, "twice the depth", Arm::TwiceTheDepth)
}

fn gave(s: &Summaries<'_>, what: &str, arm: Arm) -> Option<String> {
    let ratio = s.experiment?.rate(arm)?;
    Some(format!("{what} gave {}", ratio.change("IOPS")))
}

/// Adds the experiment to a finding whose sentence is [`line()`].
pub fn support(s: &Summaries<'_>, finding: &mut Finding) {
    let Some(curve) = s.experiment else { return };
    let Some(gain) = curve.rate(Arm::TwiceTheDepth) else { return };
    finding.numbers.insert(TWICE_THE_DEPTH_PERCENT, percent(gain.estimate - 1.0));
    let others = [("half the depth", Arm::HalfTheDepth), ("one more job", Arm::OneMoreJob)];
    let lines = others.into_iter().filter_map(|(what, arm)| gave(s, what, arm));
    finding.evidence.splice(0..0, lines);
    finding.confidence *= UNSURE.powi(curve.other_regimes());
}
