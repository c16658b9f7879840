//! Keeps the devices' activity over a run: intervals of about a second, in bounded memory. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency::{DeviceLatency, LatencySummary, Unit};
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::names::names;

/// Maximum number of intervals: a long run keeps between half and all of them.
pub const MOST: usize = 60;

/// Maximum number of devices, the first that do I/O: each takes up to 1 MiB.
const MOST_DEVICES: usize = 32;

/// Initial length of an interval.
const STEP_NS: u64 = 1_000_000_000;

/// Consecutive intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    intervals: Vec<Interval>,
    step_ns: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { intervals: Vec::new(), step_ns: STEP_NS }
    }
}

/// A part of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// Since the start of the run.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// Devices that completed an I/O in it.
    pub devices: BTreeMap<String, Activity>,
}

/// What one device completed in an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activity {
    pub ios: u64,
    pub bytes: u64,
    /// Sum of the time that these I/Os spent in the block layer and the device.
    pub stay_ns: u64,
    /// I/Os of classes that mostly belong to a followed operation.
    pub owned_ios: u64,
    /// Latency of operations, from the system call to the last stage; None where none ended.
    pub operations: Option<Histogram>,
    /// Device stage of requests, or whole time of bios.
    pub ios_latency: Histogram,
}

names! {
    /// What the latencies of a device's timeline measure.
    pub enum LatencyKind {
        Operation = "operation",
        Device = "device",
        Bio = "bio",
    }
}

/// The timeline by device, with the figures of each interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TimelineSummary {
    pub devices: Vec<DeviceTimeline>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceTimeline {
    pub name: String,
    pub timed: LatencyKind,
    pub intervals: Vec<Figures>,
}

/// One interval of one device. Times are of what [`DeviceTimeline::timed`] says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Figures {
    pub start_ns: u64,
    pub duration_ns: u64,
    pub ios: u64,
    pub bytes: u64,
    pub mean_in_flight: f64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Counts by power of two, each with its lower bound: a report holds this for each interval and device.
    pub latency_log2: Vec<(u64, u64)>,
}

impl Activity {
    fn of(device: &DeviceLatency) -> Self {
        let mut activity = Self { ios: device.ios, bytes: device.bytes, ..Self::default() };
        for latency in device.ops.values() {
            if latency.stages().0 == Unit::Operation {
                activity.owned_ios = activity.owned_ios.saturating_add(latency.ios);
            }
            if let Some(all) = latency.operations.as_ref().filter(|all| !all.total.is_empty()) {
                activity.operations.get_or_insert_default().merge(&all.total);
            }
            let sums = latency.request_stages.values().chain(&latency.bio).map(Histogram::sum);
            activity.stay_ns = sums.chain([activity.stay_ns]).saturating_sum();
            if let Some(bio) = &latency.bio {
                activity.ios_latency.merge(bio);
            }
        }
        if let Some(hist) = device.stage(super::stage::Stage::Device) {
            activity.ios_latency.merge(&hist);
        }
        activity
    }

    fn add(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.ios, other.ios),
            (&mut self.bytes, other.bytes),
            (&mut self.stay_ns, other.stay_ns),
            (&mut self.owned_ios, other.owned_ios),
        ] {
            *mine = mine.saturating_add(theirs);
        }
        if let Some(more) = &other.operations {
            self.operations.get_or_insert_default().merge(more);
        }
        self.ios_latency.merge(&other.ios_latency);
    }

    /// None where nothing of it was timed.
    pub fn latency(&self, timed: LatencyKind) -> Option<&Histogram> {
        let hist = match timed {
            LatencyKind::Operation => self.operations.as_ref()?,
            LatencyKind::Device | LatencyKind::Bio => &self.ios_latency,
        };
        (!hist.is_empty()).then_some(hist)
    }
}

impl Interval {
    fn and(mut self, next: &Self) -> Self {
        self.duration_ns = self.duration_ns.saturating_add(next.duration_ns);
        for (name, activity) in &next.devices {
            self.devices.entry(name.clone()).or_default().add(activity);
        }
        self
    }

    fn figures(&self, device: &str, timed: LatencyKind) -> Figures {
        let activity = self.devices.get(device);
        let latency = activity.and_then(|activity| activity.latency(timed));
        let quantile = |q| latency.and_then(|hist| hist.quantile(q));
        Figures {
            start_ns: self.start_ns,
            duration_ns: self.duration_ns,
            ios: activity.map_or(0, |activity| activity.ios),
            bytes: activity.map_or(0, |activity| activity.bytes),
            mean_in_flight: self.mean_in_flight(device),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            latency_log2: latency.map(octaves).unwrap_or_default(),
        }
    }

    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    fn seconds(&self) -> f64 {
        self.duration_ns.max(1) as f64 / 1e9
    }

    /// I/Os per second of a device.
    pub fn iops(&self, device: &str) -> f64 {
        self.devices.get(device).map_or(0.0, |one| one.ios as f64 / self.seconds())
    }

    pub fn bytes_per_second(&self, device: &str) -> f64 {
        self.devices.get(device).map_or(0.0, |one| one.bytes as f64 / self.seconds())
    }

    /// Mean number of a device's I/Os in the block layer and the device, by Little's law from completed ones.
    pub fn mean_in_flight(&self, device: &str) -> f64 {
        self.devices.get(device).map_or(0.0, |one| one.stay_ns as f64 / self.duration_ns.max(1) as f64)
    }
}

impl Timeline {
    /// The target length of the next interval.
    pub fn step_ns(&self) -> u64 {
        self.step_ns
    }

    /// Adds a summary as an interval. When there is no room, pairs are merged, and later intervals are twice as long.
    /// Summaries of a recording, which all have the same length, are joined.
    pub fn add(&mut self, summary: &LatencySummary) {
        let active = summary.devices.iter().filter(|device| device.ios > 0);
        let mut known = self.names();
        let mut devices = BTreeMap::new();
        for device in active {
            if known.contains(&device.name) || known.len() < MOST_DEVICES {
                devices.insert(device.name.clone(), Activity::of(device));
                if !known.contains(&device.name) {
                    known.push(device.name.clone());
                }
            }
        }
        let mut next = Interval { start_ns: 0, duration_ns: summary.duration_ns, devices };
        // Summaries are joined while they fit. Two halves may be slightly longer than the whole by their clocks.
        let longest = self.step_ns.saturating_add(self.step_ns / 4);
        if self.step_ns > STEP_NS
            && let Some(last) = self.intervals.last_mut()
            && last.duration_ns.saturating_add(next.duration_ns) <= longest
        {
            *last = std::mem::take(last).and(&next);
            return;
        }
        if self.intervals.len() == MOST {
            let pairs = self.intervals.chunks(2).filter_map(|pair| {
                let (first, rest) = pair.split_first()?;
                Some(rest.iter().fold(first.clone(), Interval::and))
            });
            self.intervals = pairs.collect();
            self.step_ns = self.step_ns.saturating_mul(2);
        }
        next.start_ns = self.intervals.last().map_or(0, Interval::end_ns);
        self.intervals.push(next);
    }

    /// Merges a last interval that is too short for a rate into the one before.
    pub fn finish(&mut self) {
        if let [.., before, last] = self.intervals.as_mut_slice()
            && last.duration_ns < self.step_ns / 2
        {
            *before = std::mem::take(before).and(last);
            self.intervals.pop();
        }
    }

    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    pub fn duration_ns(&self) -> u64 {
        self.intervals.last().map_or(0, Interval::end_ns)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.intervals.iter().flat_map(|interval| interval.devices.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The devices with I/O, busiest first, and what the latencies of each measure.
    pub fn devices(&self, run: &LatencySummary) -> Vec<(String, LatencyKind)> {
        let sum = |name: &String, of: fn(&Activity) -> u64| -> u64 {
            self.intervals.iter().filter_map(|interval| interval.devices.get(name)).map(of).saturating_sum()
        };
        let mut devices: Vec<_> = self
            .names()
            .into_iter()
            .map(|name| {
                let ios = sum(&name, |one| one.ios);
                let is_bio_based = run.device(&name).is_some_and(|device| device.bio_based);
                let timed = match is_bio_based {
                    _ if sum(&name, |one| one.owned_ios) > ios / 2 => LatencyKind::Operation,
                    true => LatencyKind::Bio,
                    false => LatencyKind::Device,
                };
                (ios, name, timed)
            })
            .collect();
        devices.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        devices.into_iter().map(|(_, name, timed)| (name, timed)).collect()
    }

    pub fn summary(&self, run: &LatencySummary) -> TimelineSummary {
        let device = |(name, timed): (String, LatencyKind)| {
            let intervals = self.intervals.iter().map(|interval| interval.figures(&name, timed)).collect();
            DeviceTimeline { name, timed, intervals }
        };
        TimelineSummary { devices: self.devices(run).into_iter().map(device).collect() }
    }
}

/// Counts by power of two.
fn octaves(hist: &Histogram) -> Vec<(u64, u64)> {
    let mut octaves: BTreeMap<u64, u64> = BTreeMap::new();
    for (lower, _, n) in hist.buckets() {
        let octave = if lower == 0 { 0 } else { 1 << lower.ilog2() };
        let all = octaves.entry(octave).or_default();
        *all = n.saturating_add(*all);
    }
    octaves.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::latency::summarize;
    use serde_json::json;

    use super::super::fixtures::{json, reading, sample};
    use super::*;
    use crate::host::Host;

    /// The timeline of a run with n reads of n ms each in its n-th second, read at the timeline's intervals.
    fn timeline(seconds: u64) -> Timeline {
        let mut timeline = Timeline::default();
        let (mut reads, mut last) = (Vec::new(), reading(0, sample(&[], 0, 0)));
        for n in 1..=seconds {
            reads.extend(vec![n * 1_000_000; n as usize]);
            if n * STEP_NS < last.at_ns + timeline.step_ns() && n < seconds {
                continue;
            }
            let count = reads.len() as u64;
            let now = reading(n * STEP_NS, sample(&reads, count, count));
            timeline.add(&summarize(&Host::default(), &last, &now));
            last = now;
        }
        timeline.finish();
        timeline
    }

    #[test]
    fn an_interval_has_what_completed_in_it() {
        let timeline = timeline(3);
        let [_, second, _] = timeline.intervals() else { panic!("{timeline:?}") };
        assert_eq!((second.start_ns, second.duration_ns), (STEP_NS, STEP_NS));
        assert_eq!((second.iops("sda"), second.bytes_per_second("sda")), (2.0, 8192.0));
        assert!((second.mean_in_flight("sda") - 0.004).abs() < 1e-9);
        let activity = &second.devices["sda"];
        assert_eq!(activity.latency(LatencyKind::Device).and_then(Histogram::max), Some(2_000_000));
        assert_eq!(activity.latency(LatencyKind::Operation), None);
        assert_eq!((second.iops("sdb"), second.mean_in_flight("sdb")), (0.0, 0.0));
        let devices = timeline.devices(&LatencySummary::default());
        assert_eq!(devices, [("sda".to_string(), LatencyKind::Device)]);
    }

    #[test]
    fn a_long_run_has_longer_intervals_and_loses_nothing() {
        for seconds in [59, 60, 61, 150] {
            let timeline = timeline(seconds);
            let intervals = timeline.intervals();
            assert!((MOST / 2..=MOST).contains(&intervals.len()), "{seconds}: {}", intervals.len());
            assert_eq!(timeline.duration_ns(), seconds * STEP_NS);
            let ios: u64 = intervals.iter().map(|interval| interval.devices["sda"].ios).sum();
            assert_eq!(ios, seconds * (seconds + 1) / 2);
            let step = match seconds {
                ..=60 => 1,
                61..=120 => 2,
                _ => 4,
            };
            assert_eq!(timeline.step_ns(), step * STEP_NS, "{seconds}");
        }
    }

    /// Steps would double every 30 intervals: beyond 2^64 ns after 18 minutes.
    #[test]
    fn a_long_recording_has_intervals_of_one_length() {
        let mut timeline = Timeline::default();
        let second = LatencySummary { duration_ns: STEP_NS + 1_000_000, ..LatencySummary::default() };
        (0..2_000).for_each(|_| timeline.add(&second));
        timeline.finish();
        let lengths: Vec<u64> = timeline.intervals().iter().map(|interval| interval.duration_ns).collect();
        assert!((MOST / 2..=MOST).contains(&lengths.len()), "{lengths:?}");
        let (shortest, longest) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
        assert!(*longest <= 2 * shortest, "{lengths:?}");
        assert_eq!((timeline.duration_ns(), timeline.step_ns()), (2_002 * STEP_NS, 32 * STEP_NS));
    }

    #[test]
    fn any_lengths_have_a_timeline() {
        let mut timeline = Timeline::default();
        let long = LatencySummary { duration_ns: u64::MAX, ..LatencySummary::default() };
        (0..2_000).for_each(|_| timeline.add(&long));
        timeline.finish();
        assert!(timeline.intervals().len() <= MOST);
    }

    #[test]
    fn a_short_end_is_no_interval_of_its_own() {
        let mut timeline = timeline(2);
        timeline.add(&LatencySummary { duration_ns: STEP_NS / 10, ..LatencySummary::default() });
        timeline.finish();
        assert_eq!(timeline.intervals().len(), 2);
        assert_eq!(timeline.duration_ns(), STEP_NS * 21 / 10);
    }

    #[test]
    fn latencies_are_of_operations_where_most_ios_belong_to_one() {
        let activity = |owned_ios| Activity { ios: 10, owned_ios, ..Activity::default() };
        let of = |owned_ios, bio_based| {
            let devices = BTreeMap::from([("sda".to_string(), activity(owned_ios))]);
            let interval = Interval { devices, ..Interval::default() };
            let timeline = Timeline { intervals: vec![interval], ..Timeline::default() };
            let device = DeviceLatency { name: "sda".to_string(), bio_based, ..DeviceLatency::default() };
            timeline.devices(&LatencySummary { devices: vec![device], ..LatencySummary::default() })[0].1
        };
        assert_eq!(
            (of(6, false), of(5, false), of(0, true)),
            (LatencyKind::Operation, LatencyKind::Device, LatencyKind::Bio)
        );
    }

    #[test]
    fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
        let device = sample(&[0, 1, 3, 1_000, 1_023, 1_024], 0, 6);
        let run = summarize(&Host::default(), &reading(0, sample(&[], 0, 0)), &reading(2_000, device));
        let mut timeline = Timeline::default();
        timeline.add(&run);
        let all = json(&timeline.summary(&run));
        let interval = json!({
            "start_ns": 0, "duration_ns": 2_000, "ios": 6, "bytes": 24_576, "mean_in_flight": 3_051.0 / 2_000.0,
            "p50_ns": 3, "p99_ns": null, "latency_log2": [[0, 1], [1, 1], [2, 1], [512, 2], [1024, 1]],
        });
        assert_eq!(all, json!({"devices": [{"name": "sda", "timed": "device", "intervals": [interval]}]}));
    }
}
