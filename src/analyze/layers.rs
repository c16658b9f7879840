//! Relates a stacked device to the devices below it, and computes the time spent between them as a difference of means.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency::{DeviceLatency, LatencySummary, OpLatency};
use super::op::Op;
use super::stage::Stage;
use crate::envelope::{Missing, Reason};
use crate::merge::SaturatingSum as _;

/// A device below another one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Layer {
    pub name: String,
    /// Its I/Os, whoever they serve; None: it is not traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ios: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// From the entry into the block layer to the end, of those that were timed; None: of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
}

impl From<&str> for Layer {
    fn from(name: &str) -> Self {
        Self { name: name.to_string(), ..Self::default() }
    }
}

/// The time of a class of I/O in a layer: what an I/O takes on the device less what the one below it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Inside {
    pub ios: u64,
    pub upper_ns: u64,
    pub lower_ns: u64,
    pub mean_ns: f64,
    pub upper_mean_ns: f64,
    pub lower_mean_ns: f64,
}

impl Inside {
    pub fn new(ios: u64, upper_ns: u64, lower_ns: u64) -> Self {
        let mean = |ns: u64| ns as f64 / ios as f64;
        let [mean_ns, upper_mean_ns, lower_mean_ns] = [upper_ns - lower_ns, upper_ns, lower_ns].map(mean);
        Self { ios, upper_ns, lower_ns, mean_ns, upper_mean_ns, lower_mean_ns }
    }
}

/// Why the time in a layer is unknown.
#[derive(Debug, Clone, PartialEq)]
pub enum Unsaid {
    /// A device below is not traced.
    NotTraced(String),
    /// Some I/Os have no time, or only part of it.
    NotTimed,
    /// Not exactly one I/O below for each above: they were split, merged, repeated, cached, or belong to another
    /// submitter.
    NotOneToOne { upper: (u64, u64), lower: (u64, u64) },
}

/// The devices directly below.
pub fn lower(summary: &LatencySummary, device: &DeviceLatency) -> Vec<Layer> {
    let layer =
        |layer: &Layer| summary.device(&layer.name).map_or_else(|| layer.name.as_str().into(), traced);
    device.layers.iter().map(layer).collect()
}

fn traced(device: &DeviceLatency) -> Layer {
    let (count, sum) = device
        .ops
        .values()
        .map(time)
        .fold((0u64, 0u64), |(count, all), (n, sum)| (count.saturating_add(n), all.saturating_add(sum)));
    Layer {
        name: device.name.clone(),
        ios: Some(device.ios),
        bytes: Some(device.bytes),
        mean_ns: (count > 0).then(|| sum as f64 / count as f64),
    }
}

/// Number of timed I/Os of a class, and the sum of their times.
fn time(latency: &OpLatency) -> (u64, u64) {
    match (&latency.bio, latency.request_stages.get(&Stage::Device)) {
        (Some(bio), _) => (bio.count(), bio.sum()),
        (None, Some(device)) => {
            (device.count(), latency.request_stages.values().map(|stage| stage.sum()).saturating_sum())
        }
        (None, None) => (0, 0),
    }
}

/// Same as [`time`], but for bios, or for requests of one bio each, provided that every one of the class was timed from
/// its entry into the block layer.
fn whole_time(latency: &OpLatency) -> Option<(u64, u64)> {
    if let Some(bios) = latency.bios_ns {
        return Some(bios);
    }
    let (count, sum) = time(latency);
    let queued = latency.request_stages.get(&Stage::Queue).map_or(0, |queue| queue.count());
    (count == latency.ios && (latency.bio.is_some() || queued == count)).then_some((count, sum))
}

/// The time of a class of I/O between a device and those below it; None where nothing is below.
///
/// It is only computed if counts and bytes show exactly one I/O of the same class below for each I/O above. Then the
/// lower I/O lies inside the upper one, and the means may be subtracted.
pub fn inside(summary: &LatencySummary, device: &DeviceLatency, op: Op) -> Option<Result<Inside, Unsaid>> {
    let upper = device.ops.get(&op).filter(|latency| latency.ios > 0)?;
    if device.layers.is_empty() {
        return None;
    }
    let mut of_lower = Vec::new();
    for Layer { name, .. } in &device.layers {
        match summary.device(name) {
            Some(layer) => of_lower.extend(layer.ops.get(&op)),
            None => return Some(Err(Unsaid::NotTraced(name.clone()))),
        }
    }
    let Some(whole) = whole_time(upper) else { return Some(Err(Unsaid::NotTimed)) };
    let mut sums = (0u64, 0u64, 0u64);
    for lower in of_lower {
        let Some((ios, ns)) = whole_time(lower) else { return Some(Err(Unsaid::NotTimed)) };
        sums = (sums.0.saturating_add(ios), sums.1.saturating_add(lower.bytes), sums.2.saturating_add(ns));
    }
    if (sums.0, sums.1) != (upper.ios, upper.bytes) {
        let lower = (sums.0, sums.1);
        return Some(Err(Unsaid::NotOneToOne { upper: (upper.ios, upper.bytes), lower }));
    }
    // In that case the sums are not of the same I/Os.
    if sums.2 > whole.1 {
        return Some(Err(Unsaid::NotTimed));
    }
    Some(Ok(Inside::new(upper.ios, whole.1, sums.2)))
}

/// The layers whose time is unknown, with the reason.
pub fn missing(summary: &LatencySummary) -> Vec<Missing> {
    let gaps = summary.devices.iter().flat_map(|device| {
        device.ops.keys().filter_map(|op| match inside(summary, device, *op) {
            Some(Err(unsaid)) => Some(gap(device, *op, &unsaid)),
            _ => None,
        })
    });
    gaps.collect()
}

fn gap(device: &DeviceLatency, op: Op, unsaid: &Unsaid) -> Missing {
    let op = op.name();
    let below = device.below();
    let (reason, why) = match unsaid {
        Unsaid::NotTraced(name) => (Reason::NotTraced, format!("{name} below it is not traced")),
        Unsaid::NotTimed => {
            (Reason::NotTimed, format!("not every {op} was timed completely, on it and on {below} below it"))
        }
        Unsaid::NotOneToOne { upper, lower } => (
            Reason::NotOneToOne,
            format!(
                "{op}: {} I/Os of {} bytes, and {} of {} bytes on {below} below it: they are split, \
                 merged, repeated or cached, or other processes use {below}, so the times of one I/O \
                 cannot be compared",
                upper.0, upper.1, lower.0, lower.1
            ),
        ),
    };
    Missing {
        device: Some(device.name.clone()),
        part: Some("layer".to_string()),
        reason,
        why,
        ..Missing::default()
    }
}

/// The number of I/Os, none counted twice: without devices that are included only as layers, and without devices
/// stacked on another one.
pub fn ios_once(summary: &LatencySummary) -> u64 {
    let own = || summary.devices.iter().filter(|device| device.added_for.is_empty());
    let stands_on_another = |device: &&DeviceLatency| own().any(|lower| device.stands_on(&lower.name));
    own().filter(|device| !stands_on_another(device)).map(|device| device.ios).saturating_sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::hist::Histogram;

    fn hist(count: u64, each: u64) -> Histogram {
        (0..count).map(|_| each).collect()
    }

    fn device(name: &str, layers: &[&str], reads: OpLatency) -> DeviceLatency {
        DeviceLatency {
            name: name.to_string(),
            ios: reads.ios,
            bytes: reads.bytes,
            layers: layers.iter().map(|layer| Layer::from(*layer)).collect(),
            ops: BTreeMap::from([(Op::Read, reads)]),
            ..DeviceLatency::default()
        }
    }

    fn bios(ios: u64, each: u64) -> OpLatency {
        OpLatency { ios, bytes: ios * 4096, bio: Some(hist(ios, each)), ..OpLatency::default() }
    }

    fn requests(ios: u64, queue: u64, of_device: u64) -> OpLatency {
        let request_stages =
            BTreeMap::from([(Stage::Queue, hist(ios, queue)), (Stage::Device, hist(ios, of_device))]);
        OpLatency { ios, bytes: ios * 4096, request_stages, ..OpLatency::default() }
    }

    fn summary(devices: Vec<DeviceLatency>) -> LatencySummary {
        LatencySummary { devices, ..LatencySummary::default() }
    }

    fn read(all: &LatencySummary) -> Result<Inside, Unsaid> {
        inside(all, &all.devices[0], Op::Read).unwrap()
    }

    #[test]
    fn the_time_in_a_layer_is_what_the_disk_below_does_not_take() {
        let lower = device("sda", &[], requests(10, 20, 300));
        let all = summary(vec![device("dm-0", &["sda"], bios(10, 1000)), lower]);
        let found = read(&all).unwrap();
        assert_eq!((found.mean_ns, found.upper_mean_ns, found.lower_mean_ns), (680.0, 1000.0, 320.0));
        let traced = Layer { name: "sda".into(), ios: Some(10), bytes: Some(40960), mean_ns: Some(320.0) };
        assert_eq!(super::lower(&all, &all.devices[0]), [traced]);
        assert_eq!(inside(&all, &all.devices[1], Op::Read), None);
        assert!(missing(&all).is_empty());
    }

    #[test]
    fn no_io_is_counted_on_two_devices() {
        let lower = device("sda", &[], requests(15, 20, 300));
        let mut all = summary(vec![device("dm-0", &["sda"], bios(10, 1000)), lower]);
        assert_eq!(ios_once(&all), 15);
        all.devices[1].added_for = vec!["dm-0".into()];
        assert_eq!(ios_once(&all), 10);
    }

    #[test]
    fn a_stripe_has_its_ios_on_several_disks() {
        let disks = [device("sda", &[], requests(6, 0, 300)), device("sdb", &[], requests(4, 0, 100))];
        let mut all = summary(vec![device("md0", &["sda", "sdb"], bios(10, 1000))]);
        all.devices.extend(disks);
        assert_eq!(read(&all).unwrap().lower_mean_ns, 220.0);
    }

    #[test]
    fn what_others_do_below_hides_the_layer() {
        let lower = device("sda", &[], requests(11, 0, 300));
        let all = summary(vec![device("dm-0", &["sda"], bios(10, 1000)), lower]);
        assert_eq!(read(&all), Err(Unsaid::NotOneToOne { upper: (10, 40960), lower: (11, 45056) }));
        let missing = missing(&all);
        assert_eq!((missing.len(), missing[0].part.as_deref()), (1, Some("layer")));
        let gone = summary(vec![device("dm-0", &["sda"], bios(10, 1000))]);
        assert_eq!(read(&gone), Err(Unsaid::NotTraced("sda".into())));
    }

    /// Two of ten bios are merged into one request below: each of them has its own time.
    #[test]
    fn merges_below_do_not_hide_the_layer() {
        let mut merged = requests(9, 20, 300);
        (merged.bytes, merged.bios_ns) = (40960, Some((10, 3190)));
        let all = summary(vec![device("dm-0", &["sda"], bios(10, 1000)), device("sda", &[], merged)]);
        assert_eq!(read(&all).unwrap().mean_ns, 681.0);
    }

    #[test]
    fn half_a_time_is_no_time() {
        let mut half = requests(10, 0, 300);
        half.request_stages.remove(&Stage::Queue);
        let all = summary(vec![device("dm-0", &["sda"], bios(10, 1000)), device("sda", &[], half)]);
        assert_eq!(read(&all), Err(Unsaid::NotTimed));
        let mut split = bios(9, 1000);
        (split.ios, split.bytes) = (10, 40960);
        let all = summary(vec![device("dm-0", &["sda"], split), device("sda", &[], requests(10, 0, 300))]);
        assert_eq!(read(&all), Err(Unsaid::NotTimed));
    }
}
