//! Shows which processes share a device: each one's part of the bios, and which devices a command used.

use super::latency::{DeviceLatency, LatencySummary};
// Re-exported, so that rules and renderers need not use the wire format.
use crate::merge::{SaturatingSum as _, merge, row};
pub use crate::wire::process_ios::{ProcessIos, Relation};

merge!(ProcessIos { first: pid comm relation; any: selected; add: bios bytes; });
row!(ProcessIos, (Option<u32>, String), |process| (process.pid, process.comm.clone()));

/// Most bytes first; without bytes, most bios first.
pub fn sorted(mut rows: Vec<ProcessIos>) -> Vec<ProcessIos> {
    rows.sort_by(|a, b| (b.bytes, b.bios, a.pid).cmp(&(a.bytes, a.bios, b.pid)));
    rows
}

/// A process with its share of the device's bytes and bios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessShare<'a> {
    pub process: &'a ProcessIos,
    /// None: no bio moved a byte.
    pub of_bytes: Option<f64>,
    pub of_bios: f64,
}

impl ProcessShare<'_> {
    /// The share of bytes, or else of bios.
    pub fn largest_known(&self) -> f64 {
        self.of_bytes.unwrap_or(self.of_bios)
    }
}

/// All processes on a device, most bytes first; empty where none were counted.
pub fn shares(device: &DeviceLatency) -> Vec<ProcessShare<'_>> {
    let rows = device.processes.as_deref().unwrap_or_default();
    let bytes: u64 = rows.iter().map(|row| row.bytes).saturating_sum();
    let bios: u64 = rows.iter().map(|row| row.bios).saturating_sum();
    rows.iter()
        .map(|process| ProcessShare {
            process,
            of_bytes: (bytes > 0).then(|| part(process.bytes, bytes)),
            of_bios: part(process.bios, bios),
        })
        .collect()
}

/// A share of a total, which may be 0.
pub(super) fn part(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// The devices that the measured command used, with those above and below them. If none of its processes submitted a
/// bio, those on which kernel threads may have worked for it; all devices if processes were not counted.
pub fn of_command(summary: &LatencySummary) -> LatencySummary {
    let has = |device: &DeviceLatency, relations: &[Relation]| {
        device.processes.as_ref().is_none_or(|rows| rows.iter().any(|row| relations.contains(&row.relation)))
    };
    let used = |relations: &[Relation]| -> Vec<&DeviceLatency> {
        summary.devices.iter().filter(|device| has(device, relations)).collect()
    };
    let mut devices = used(&[Relation::Command]);
    if devices.is_empty() {
        devices = used(&[Relation::Kernel, Relation::Unknown]);
    }
    let is_related = |device: &DeviceLatency| {
        devices.iter().any(|used| {
            used.name == device.name || used.stands_on(&device.name) || device.stands_on(&used.name)
        })
    };
    LatencySummary {
        devices: summary.devices.iter().filter(|device| is_related(device)).cloned().collect(),
        ..summary.clone()
    }
    .derived()
}

#[cfg(test)]
mod tests {
    use super::super::layers::Layer;
    use super::*;

    fn row(pid: u32, relation: Relation, bios: u64, bytes: u64) -> ProcessIos {
        ProcessIos { pid: Some(pid), relation, bios, bytes, ..ProcessIos::default() }
    }

    fn device(name: &str, layers: &[&str], rows: Option<Vec<ProcessIos>>) -> DeviceLatency {
        let layers = layers.iter().map(|name| Layer::from(*name)).collect();
        DeviceLatency { name: name.to_string(), layers, processes: rows, ..DeviceLatency::default() }
    }

    fn names(devices: Vec<DeviceLatency>) -> Vec<String> {
        let summary = LatencySummary { devices, ..LatencySummary::default() };
        of_command(&summary).devices.into_iter().map(|device| device.name).collect()
    }

    #[test]
    fn shares_are_of_all_that_the_device_got() {
        let rows = sorted(vec![
            row(1, Relation::Command, 30, 1_000),
            row(2, Relation::Other, 10, 3_000),
            row(3, Relation::Kernel, 60, 0),
        ]);
        let device = device("vda", &[], Some(rows));
        let shares = shares(&device);
        let of: Vec<_> = shares.iter().map(|one| (one.process.pid, one.of_bytes, one.of_bios)).collect();
        assert_eq!(of, [(Some(2), Some(0.75), 0.1), (Some(1), Some(0.25), 0.3), (Some(3), Some(0.0), 0.6)]);
        let flushes =
            super::shares(&self::device("vda", &[], Some(vec![row(1, Relation::Kernel, 2, 0)]))).len();
        assert_eq!((flushes, super::shares(&self::device("vda", &[], None)).len()), (1, 0));
    }

    #[test]
    fn a_command_has_the_devices_that_it_used_and_their_layers() {
        let own = || Some(vec![row(1, Relation::Command, 1, 1), row(2, Relation::Other, 9, 9)]);
        let strange = || Some(vec![row(2, Relation::Other, 9, 9), row(3, Relation::Kernel, 1, 1)]);
        let all = vec![
            device("dm-0", &["vdb"], own()),
            device("vdb", &[], Some(vec![row(3, Relation::Kernel, 5, 5)])),
            device("loop3", &[], strange()),
        ];
        assert_eq!(names(all.clone()), ["dm-0", "vdb"]);
        let mut written_back = all;
        written_back[0].processes = Some(Vec::new());
        let stranger = device("sda", &[], Some(vec![row(2, Relation::Other, 9, 9)]));
        written_back.push(stranger);
        assert_eq!(names(written_back), ["dm-0", "vdb", "loop3"], "a kernel thread may have written for it");
        assert_eq!(names(vec![device("vda", &[], None)]), ["vda"], "nothing was counted");
    }
}
