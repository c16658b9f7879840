//! Analyses how steady a device's rate was, and how it followed the I/Os in flight, from samples of the kernel's
//! counters, which include the I/O of all processes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::counters::Counters;
use crate::merge::{Merge, row};

/// Minimum number of windows to judge steadiness.
const LEAST_WINDOWS: usize = 20;

/// With fewer I/Os in a window, a single I/O changes its rate by whole percents.
const LEAST_IOS: u64 = 50;

/// What a device did between two samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RateInterval {
    pub seconds: f64,
    pub ios: u64,
    pub bytes: u64,
    /// Mean number in flight, by the times of the I/Os that ended in it.
    pub in_flight: f64,
    /// Time in which anything was in flight.
    pub busy_seconds: f64,
}

impl RateInterval {
    /// None: the counters went back, as for a device that was re-created, or no time passed.
    pub fn between(from: &Counters, to: &Counters, ns: u64) -> Option<Self> {
        let ms = |c: &Counters| c.read_ms + c.write_ms + c.discard_ms.unwrap_or(0);
        let sectors = |c: &Counters| c.read_sectors + c.write_sectors;
        let seconds = ns as f64 / 1e9;
        (ns > 0).then_some(())?;
        Some(Self {
            seconds,
            ios: to.ios().checked_sub(from.ios())?,
            bytes: sectors(to).checked_sub(sectors(from))? * 512,
            in_flight: ms(to).checked_sub(ms(from))? as f64 / 1e3 / seconds,
            busy_seconds: to.io_ms.checked_sub(from.io_ms)? as f64 / 1e3,
        })
    }
}

/// All windows of one device, in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceWindows {
    pub name: String,
    pub windows: Vec<RateInterval>,
}

row!(DeviceWindows, String, |device| device.name.clone());

impl DeviceWindows {
    /// A longer run keeps the last ones: 10 minutes of 100 ms windows.
    pub const MOST: usize = 6_000;

    pub fn keep_last(&mut self, most: usize) {
        let over = self.windows.len().saturating_sub(most);
        self.windows.drain(..over);
    }
}

impl Merge for DeviceWindows {
    fn merge_with(&mut self, later: &Self) {
        self.windows.extend_from_slice(&later.windows);
        self.keep_last(Self::MOST);
    }
}

/// The windows of one device in which it was busy, in time order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceRates {
    pub device: String,
    /// The share of time with any I/O in flight (`%util` of iostat), 0 to 1, over all samples. Exact since kernel 6.10
    /// (99dc422335d8). From 5.0 (5b18b5a73760) on the kernel counts whole ticks: too many where I/Os are short and
    /// rare, too few where several long ones start before one ends.
    pub busy: f64,
    pub windows: Vec<RateInterval>,
}

/// Distribution of a quantity over the windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    /// Half of the range of the middle 80 % of the windows, relative to the median: single outliers do not count.
    pub variation: f64,
}

/// How the rate followed the I/Os in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Following {
    /// Mean I/Os in flight in the third of the windows with the fewest, and in that with the most.
    pub in_flight: [f64; 2],
    /// Mean I/Os per second in the same windows.
    pub iops: [f64; 2],
}

impl Following {
    /// The factor of the rate for twice as many I/Os in flight, by a power law through both thirds.
    pub fn of_twice(&self) -> f64 {
        let slope = (self.iops[1] / self.iops[0]).ln() / (self.in_flight[1] / self.in_flight[0]).ln();
        2f64.powf(slope)
    }
}

impl DeviceRates {
    /// For the devices that were active.
    pub fn of_all(devices: impl IntoIterator<Item = DeviceWindows>) -> Vec<Self> {
        let rates = devices.into_iter().map(|device| Self::new(device.name, &device.windows));
        rates.filter(|rates| rates.busy > 0.0).collect()
    }

    /// Removes the idle time at both ends: a command takes a while to start and to end.
    pub fn new(device: String, windows: &[RateInterval]) -> Self {
        let is_busy = |window: &RateInterval| window.ios >= LEAST_IOS;
        let first = windows.iter().position(is_busy).unwrap_or(windows.len());
        let end = windows.iter().rposition(is_busy).map_or(first, |last| last + 1);
        // The first and the last window are only partly busy.
        let whole = windows[first..end].get(1..(end - first).saturating_sub(1)).unwrap_or_default();
        let sum = |of: fn(&RateInterval) -> f64| windows.iter().map(of).sum::<f64>();
        let (busy, seconds) = (sum(|window| window.busy_seconds), sum(|window| window.seconds));
        Self { device, busy: (busy / seconds.max(f64::MIN_POSITIVE)).min(1.0), windows: whole.to_vec() }
    }

    /// Whether there are enough windows, with enough I/O in nearly all of them.
    pub fn is_enough(&self) -> bool {
        let busy = self.windows.iter().filter(|window| window.ios >= LEAST_IOS).count();
        self.windows.len() >= LEAST_WINDOWS && busy * 20 >= self.windows.len() * 19
    }

    pub fn iops(&self) -> Option<Spread> {
        self.spread(|window| window.ios as f64 / window.seconds)
    }

    pub fn bytes_per_second(&self) -> Option<Spread> {
        self.spread(|window| window.bytes as f64 / window.seconds)
    }

    pub fn in_flight(&self) -> Option<Spread> {
        self.spread(|window| window.in_flight)
    }

    fn spread(&self, of: impl Fn(&RateInterval) -> f64) -> Option<Spread> {
        if !self.is_enough() {
            return None;
        }
        let mut values: Vec<f64> = self.windows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        let median = at(0.5);
        (median > 0.0).then(|| Spread { median, variation: (at(0.9) - at(0.1)) / 2.0 / median })
    }

    /// None: the I/Os in flight hardly varied, or there are too few windows.
    pub fn following(&self) -> Option<Following> {
        /// Smaller variations are noise of the windows' edges.
        const LEAST_VARIATION: f64 = 0.2;
        if self.in_flight()?.variation <= LEAST_VARIATION {
            return None;
        }
        let mut windows: Vec<&RateInterval> = self.windows.iter().collect();
        windows.sort_by(|a, b| a.in_flight.total_cmp(&b.in_flight));
        let third = windows.len() / 3;
        let mean = |part: &[&RateInterval], of: fn(&RateInterval) -> f64| {
            part.iter().map(|window| of(window)).sum::<f64>() / part.len() as f64
        };
        let both = |of: fn(&RateInterval) -> f64| {
            [&windows[..third], &windows[windows.len() - third..]].map(|part| mean(part, of))
        };
        let following = Following {
            in_flight: both(|window| window.in_flight),
            iops: both(|window| window.ios as f64 / window.seconds),
        };
        (following.in_flight[0] > 0.0 && following.iops[0] > 0.0).then_some(following)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 100 ms, each given by its I/Os of 4 KiB and its I/Os in flight.
    fn rates(windows: impl IntoIterator<Item = (u64, f64)>) -> DeviceRates {
        let window = |(ios, in_flight)| RateInterval {
            seconds: 0.1,
            ios,
            bytes: ios * 4096,
            in_flight,
            ..RateInterval::default()
        };
        DeviceRates { device: "vda".into(), busy: 1.0, windows: windows.into_iter().map(window).collect() }
    }

    #[test]
    fn a_window_is_what_the_counters_moved_by() {
        let counters =
            |reads, read_ms, read_sectors| Counters { reads, read_ms, read_sectors, ..Counters::default() };
        let (from, to) = (counters(10, 100, 80), counters(40, 350, 320));
        let window = RateInterval::between(&from, &to, 100_000_000).unwrap();
        assert_eq!((window.ios, window.bytes, window.in_flight), (30, 240 * 512, 2.5));
        assert_eq!(RateInterval::between(&to, &from, 100_000_000), None, "another device of that name");
        assert_eq!(RateInterval::between(&from, &to, 0), None);
    }

    #[test]
    fn the_edges_of_a_run_are_left_out() {
        let all = rates([0, 0, 60, 300, 300, 0, 300, 70, 3, 0].map(|ios| (ios, 1.0))).windows;
        let ios = |windows: &[RateInterval]| -> Vec<u64> {
            DeviceRates::new("vda".into(), windows).windows.iter().map(|window| window.ios).collect()
        };
        assert_eq!(ios(&all), [300, 300, 0, 300]);
        assert!(ios(&all[..3]).is_empty() && ios(&[]).is_empty() && ios(&all[2..4]).is_empty());
    }

    #[test]
    fn hiccups_are_no_variation_and_few_windows_are_none() {
        let steady = rates((0..40).map(|n| if n % 20 == 0 { (200, 1.0) } else { (300 + n % 3, 1.0) }));
        let iops = steady.iops().unwrap();
        assert!((3_000.0..3_020.0).contains(&iops.median) && iops.variation < 0.01, "{iops:?}");
        assert!(rates((0..40).map(|n| (300 + 10 * n, 1.0))).iops().unwrap().variation > 0.2);
        assert_eq!(rates((0..19).map(|_| (300, 1.0))).iops(), None);
        assert_eq!(
            rates((0..40).map(|n| (if n % 8 == 0 { 0 } else { 300 }, 1.0))).iops(),
            None,
            "it stands still"
        );
    }

    #[test]
    fn the_rate_follows_the_depth_of_a_load_that_waits_for_latency() {
        let following = |of: fn(f64) -> u64| {
            let depth = |n: u64| 2.0 + (n % 10) as f64;
            rates((0..60).map(|n| (of(depth(n)), depth(n)))).following().unwrap().of_twice()
        };
        assert!((following(|depth| (depth * 100.0) as u64) - 2.0).abs() < 0.01);
        assert!((following(|_| 1_000) - 1.0).abs() < 0.01);
        assert_eq!(
            rates((0..60).map(|n| (1_000, 8.0 + (n % 2) as f64))).following(),
            None,
            "it hardly varies"
        );
    }
}
