//! Finding: the load sets its own pace, and nothing limits it.

use super::command;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries, rates};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{count, in_percent};

/// A closed load keeps the number in flight, and its rate varies. A paced load does the reverse: its number in flight
/// varies by this many times as much as the rate.
const STEADIER: f64 = 2.0;

/// From here on I/Os wait long for each other in the device: the pace may be the device's. At 20,000 of 80,000 reads a
/// second a virtio disk was at 5.
const WAITING: f64 = 10.0;

const IN_FLIGHT_VARIATION_PERCENT: Number =
    Number::new("in_flight_variation_percent", "variation of the I/Os in flight");

pub const RULE: Rule = Rule { id: "offered-load", page: PAGE, find };

const PAGE: &str = "\
The load sets its own pace, and no limit is found.

The application asks for a fixed number of I/Os per second and gets it. What matters then is the
latency, not the rate.

How it is computed
  The kernel's counters are sampled ten times a second. Found without biopsy's own load if, over at
  least 20 samples:
  - the rate varies by at most 2 % (half of the range of the middle 80 % of the samples);
  - the I/Os in flight vary by at least 2 times as much as the rate: a load that waits for results
    keeps them constant instead;
  - the median device time is below 10 times the fastest, and no more than 80 % of the tags are in
    use: I/Os do not wait long for each other.
  Always a note, with confidence 0.7. It is the answer if no other finding is more than a note.
  From: /sys/block/DEV/stat; latency.devices[].ops.*.request_stages.

When it is wrong
  - The counters contain the I/O of all processes.
  - A limit of a cloud volume is as steady; there the device time is many times the fastest (see
    volume-cap).
  - A load with random arrivals is not steady, and is not found.

What to do
  Compare the latency with that of the idle device. To see how far saturation is, drive the device:
  biopsy load --iodepth 1..64 DEV.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    if s.load.is_some() {
        return Vec::new();
    }
    facts::device_views(s).iter().filter(|p| p.sound(s)).filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    let samples = rates::of(s, p)?;
    let (iops, variation) = rates::steady_iops(samples)?;
    let in_flight = samples.in_flight()?;
    let crowding = p.median_to_minimum()?;
    if in_flight.variation < variation * STEADIER || crowding >= WAITING || facts::full(p) {
        return None;
    }
    let name = &p.device.name;
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Note,
        confidence: 0.7,
        sentence: format!(
            "No limit was found: the load submits a steady {} I/Os per second to {name}, and {name} keeps \
             up.",
            count(iops.round() as u64)
        ),
        numbers: Numbers::from([
            (numbers::IOS_PER_SECOND, iops),
            (numbers::RATE_VARIATION_PERCENT, percent(variation)),
            (IN_FLIGHT_VARIATION_PERCENT, percent(in_flight.variation)),
            (numbers::DEVICE_P50_TO_MIN_RATIO, crowding),
        ]),
        evidence: vec![
            format!(
                "the rate varies by {}, the I/Os in flight by {} ({} samples)",
                in_percent(variation),
                in_percent(in_flight.variation),
                samples.windows.len()
            ),
            format!("the median device time is {crowding:.1} times the fastest"),
        ],
        advice: "Compare the latency with that of the idle device; the application sets the rate."
            .to_string(),
        check: command::latency_by_second(name),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::rates::{DeviceRates, RateInterval};
    use crate::rules::diagnose;
    use crate::rules::fixtures::Case;

    /// Reads of another process in windows of 100 ms.
    fn case(windows: impl Iterator<Item = (u64, f64)>) -> Case {
        let mut case = Case::new(20_000, 4);
        case.load = None;
        case.stage(crate::analyze::stage::Stage::Device, 190_000, 80_000);
        let window = |(ios, in_flight)| RateInterval {
            seconds: 0.1,
            ios,
            bytes: ios * 4096,
            in_flight,
            ..RateInterval::default()
        };
        case.rates =
            vec![DeviceRates { device: "vda".into(), busy: 1.0, windows: windows.map(window).collect() }];
        case
    }

    #[test]
    fn a_pace_is_steadier_than_what_is_in_flight() {
        let paced = case((0..40).map(|n| (2_000 + n % 10, 3.0 + (n % 7) as f64 / 3.0)));
        let found = diagnose(&paced.summaries()).findings;
        assert_eq!(found[0].id, "offered-load", "{found:?}");
        assert!(found[0].sentence.contains("a steady 20,0"), "{}", found[0].sentence);
        let waiting = case((0..40).map(|n| (2_000 + 20 * (n % 10), 4.0)));
        assert!(find(&waiting.summaries()).is_empty(), "it keeps four in flight");
        let mut of_some = case((0..40).map(|n| (2_000 + n % 10, 3.0 + (n % 7) as f64 / 3.0)));
        of_some.latency.filtered = true;
        let others = |all: u64| Some(Bracket { min: all, max: all });
        of_some.latency.devices[0].all_ios = others(20_500);
        assert_eq!(find(&of_some.summaries()).len(), 1, "others have 2 %");
        of_some.latency.devices[0].all_ios = others(30_000);
        assert!(find(&of_some.summaries()).is_empty(), "the samples are others' too");
        of_some.latency.devices[0].all_ios = None;
        assert!(find(&of_some.summaries()).is_empty(), "nothing says how many others have");
        let mut crowded = paced;
        crowded.stage(crate::analyze::stage::Stage::Device, 190_000, 15_000);
        assert!(find(&crowded.summaries()).is_empty(), "I/Os wait for each other");
    }
}
