//! Finding: the rate is at a round number, like the limit of a cloud volume or a hypervisor.

use super::command;
use super::facts::{self, DeviceView, percent};
use super::neighbours;
use super::numbers;
use super::{Rule, Summaries, rates, regime};
use crate::analyze::stage::Stage;
use crate::experiment::Regime;
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{count, in_percent};

/// From here on I/Os wait for each other in the device.
const WAITING: f64 = 4.0;

/// A closed load keeps its I/Os in flight this steady. A paced load does not, and its rate is round because a user
/// chose it.
const STEADY_IN_FLIGHT: f64 = 0.05;

/// Maximum distance of a rate from a round number.
const OFF: f64 = 0.01;

/// Other processes have less than this share of the device's I/O: they change the rate by less than [`OFF`].
pub const ALONE: f64 = 0.01;

/// Leading digits of limits on the market. About one rate in ten is that close to one of them by chance.
const ROUND: [f64; 12] = [1.0, 1.2, 1.25, 1.5, 1.6, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.5];

const CAP_PER_SECOND: Number = Number::new("cap_per_second", "round number closest to the measured rate");

pub const RULE: Rule = Rule { id: "volume-cap", page: PAGE, find };

const PAGE: &str = "\
A limit of the volume or the hypervisor is possible.

The rate stays at a round number. Cloud volumes and virtual disks have limits of IOPS and of bytes
per second. The kernel does not know them; I/Os beyond the limit wait inside the device.

How it is computed
  The kernel's counters are sampled ten times a second. Found if, over at least 20 samples:
  - IOPS or bytes per second vary by at most 2 % (half of the range of the middle 80 %);
  - the median is within 1 % of a round number (1, 1.2, 1.25, 1.5, 1.6, 2, 2.5, 3, 4, 5, 6 or 7.5
    times a power of ten, in IOPS, MB or MiB);
  - the I/Os in flight vary by at most 5 %: the load waits for results (else see offered-load);
  - the device stage has at least 50 % of an I/O's time and its median is at least 4 times the
    fastest: I/Os wait inside the device;
  - with biopsy's own load, twice the depth does not give more than 25 % more IOPS;
  - other processes, if they are known, have less than 1 % of the device's I/O.
  Confidence 0.5: a device's own limit may be as steady, and one rate of ten is as round by chance.
  From: /sys/block/DEV/stat; latency.devices[].ops.*.request_stages; experiment.

When it is wrong
  - Burst credits hide a limit until they are used up.
  - The counters contain the I/O of all processes, and not all are known.

What to do
  Compare with the limit of the volume type and of the instance type. If it is the limit: larger
  I/Os for one of IOPS, fewer bytes for one of bytes, or a larger volume.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    if regime::regime(s) == Some(Regime::LatencyBound) {
        return Vec::new();
    }
    facts::device_views(s).iter().filter(|p| p.sound(s)).filter_map(|p| judge(s, p)).collect()
}

fn judge(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Finding> {
    // A sum of several loads is round and steady only by chance.
    if neighbours::share(s, p.device) >= ALONE {
        return None;
    }
    let samples = rates::of(s, p)?;
    let crowding = p.median_to_minimum()?;
    let waits_for_results = samples.in_flight()?.variation <= STEADY_IN_FLIGHT;
    if !waits_for_results || crowding < WAITING || p.share(Stage::Device)? < 0.5 || p.is_loop() {
        return None;
    }
    let iops = rates::steady_iops(samples)
        .and_then(|(rate, variation)| Some((round(rate)?, rate, variation, "IOPS", 1.0)));
    let in_unit = |unit: f64, name: &'static str| {
        let (rate, variation) = rates::steady_bytes(samples)?;
        Some((round(rate / unit)? * unit, rate, variation, name, unit))
    };
    let (cap, rate, variation, unit, scale) =
        iops.or_else(|| in_unit(1e6, "MB/s")).or_else(|| in_unit(1_048_576.0, "MiB/s"))?;
    let name = &p.device.name;
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: Severity::Warning,
        confidence: 0.5,
        sentence: format!(
            "A limit of the volume {name} is possible: the rate stays at {} {unit} while I/Os wait in the device.",
            count((rate / scale).round() as u64)
        ),
        numbers: Numbers::from([
            (numbers::IOS_PER_SECOND, p.rate()),
            (CAP_PER_SECOND, cap),
            (numbers::RATE_VARIATION_PERCENT, percent(variation)),
            (numbers::DEVICE_P50_TO_MIN_RATIO, crowding),
        ]),
        evidence: vec![
            format!(
                "the rate varies by {} over {} samples, close to the round number {}",
                in_percent(variation),
                samples.windows.len(),
                count((cap / scale).round() as u64)
            ),
            format!("the median device time is {crowding:.1} times the fastest"),
        ],
        advice: "Compare the rate with the limits of the volume type and the instance type.".to_string(),
        check: match s.load {
            Some(load) => command::compare_depth(load),
            None => command::latency_by_second(name),
        },
        worth: None,
    })
}

/// The round number that is practically equal; None: there is none, or it is below any limit on the market.
fn round(rate: f64) -> Option<f64> {
    if rate < 90.0 {
        return None;
    }
    let scale = 10f64.powf(rate.log10().floor());
    let candidates = ROUND.iter().map(|lead| lead * scale).chain([10.0 * scale]);
    candidates.into_iter().find(|candidate| (rate / candidate - 1.0).abs() <= OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::rates::{DeviceRates, RateInterval};
    use crate::rules::fixtures::Case;

    #[test]
    fn limits_are_round() {
        let of = |rate: f64| round(rate).map(|cap| cap.round());
        assert_eq!(
            [2_990.0, 3_020.0, 16_050.0, 125.4].map(of),
            [Some(3_000.0), Some(3_000.0), Some(16_000.0), Some(125.0)]
        );
        assert_eq!([3_050.0, 87_000.0, 30.0].map(of), [None; 3]);
        assert_eq!(of(9_950.0), Some(10_000.0));
    }

    #[test]
    fn a_steady_round_rate_with_waits_is_a_possible_cap() {
        let mut case = Case::new(3_000, 32);
        let window = |n: u64| RateInterval {
            seconds: 0.1,
            ios: 300 + n % 3,
            bytes: 0,
            in_flight: 32.0,
            ..RateInterval::default()
        };
        case.rates =
            vec![DeviceRates { device: "vda".into(), busy: 1.0, windows: (0..40).map(window).collect() }];
        let found = find(&case.summaries());
        assert_eq!((found.len(), found[0].confidence), (1, 0.5));
        assert!(found[0].sentence.contains("stays at 3,010 IOPS"), "{}", found[0].sentence);
        case.rates[0].windows.iter_mut().for_each(|window| window.ios += 10);
        assert!(find(&case.summaries()).is_empty(), "3,110 is not round");
        case.rates[0]
            .windows
            .iter_mut()
            .enumerate()
            .for_each(|(n, window)| window.ios = 250 + 10 * (n as u64 % 10));
        assert!(find(&case.summaries()).is_empty(), "it varies");
        for (n, window) in case.rates[0].windows.iter_mut().enumerate() {
            *window = RateInterval { ios: 300, in_flight: 3.0 + (n % 7) as f64, ..*window };
        }
        assert!(find(&case.summaries()).is_empty(), "a pace of the load's own");
    }
}
