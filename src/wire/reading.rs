//! Holds everything that the latency programs have counted at one point in time.

use std::collections::BTreeMap;

use super::files::FileSample;
use super::groups::GroupsSample;
use super::parts::PartRow;
use super::process_ios::ProcessIos;
use super::rows::{IoRow, OperationRow};
use super::{COVERS, OPS, OPS_SHARDED, WireCounters};
use crate::host::counters::Counters;
use crate::wire::Count as _;

/// All devices at one point in time: the start or end of an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub devices: Vec<DeviceSample>,
    /// Runs that the kernel skipped, by program: it does not run a program recursively on one CPU.
    pub missed: BTreeMap<&'static str, u64>,
    /// Operations that began and could not be followed: the table had no room.
    pub unfollowed: u64,
    /// How long new operations were followed until now; None: not at all, because of the stages or the kernel.
    pub followed_ns: Option<u64>,
    /// Operations with an I/O in flight at the end of a time slice in which they were followed: they are in no stage.
    pub cut: u64,
    /// None: not grouped.
    pub groups: Option<GroupsSample>,
    /// Only I/O of some submitters was followed.
    pub filtered: bool,
}

impl Reading {
    /// The device with this name.
    pub fn device(&self, name: &str) -> Option<&DeviceSample> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Each device, and its difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> impl Iterator<Item = (&DeviceSample, DeviceSample)> {
        self.devices.iter().map(|last| {
            let delta = earlier.device(&last.name).map_or_else(|| last.clone(), |first| last.since(first));
            (last, delta)
        })
    }
}

/// Rows and counters of one device at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSample {
    pub name: String,
    /// The disk of a partition.
    pub disk: Option<String>,
    pub hw_queues: u32,
    pub shards: u32,
    /// `[(queue × shards + shard) × OPS_SHARDED + op]`.
    pub rows: Vec<IoRow>,
    /// Operation classes from `OPS_SHARDED` on.
    pub rare: Vec<IoRow>,
    /// I/Os of no operation: they are in the rows above as well, and these have only their stages. Index `[shard ×
    /// OPS_SHARDED + op]` for reads and writes, then `[op − OPS_SHARDED]`; empty if operations are not followed.
    pub unowned: Vec<IoRow>,
    pub unowned_shards: u32,
    /// Operations: index `[(shard × COVERS + cover) × OPS_SHARDED + op]` for reads and writes, then `[cover × (OPS −
    /// OPS_SHARDED) + op − OPS_SHARDED]`; empty if operations are not followed.
    pub operations: Vec<OperationRow>,
    pub operation_shards: u32,
    /// Index `[unit × OPS + op]`; empty if stages are not broken down.
    pub parts: Vec<PartRow>,
    pub counters: WireCounters,
    /// At the end of a trace: requests that were issued long before `kernel_before` was read and were not observed to
    /// complete. The kernel must have had them in flight then.
    pub held: u64,
    /// The same for requests issued later: the kernel may or may not have had them in flight.
    pub young: u64,
    /// At the end of a trace that follows operations: results by class that became visible in its interval and were not
    /// observed to be fetched. None: not examined.
    pub unfetched: Option<[u64; OPS]>,
    /// The kernel's counters just before and just after this sample; None if they cannot be read.
    pub kernel_before: Option<Counters>,
    pub kernel_after: Option<Counters>,
    /// The device existed at the start and is gone.
    pub vanished: bool,
    /// The device has no requests: its I/Os are bios.
    pub bio_based: bool,
    /// The kernel counts its I/Os at their begin: bio-based devices before 5f27571382ca (6.3).
    pub counted_at_start: bool,
    /// Not named by the user: it is traced as a lower device of these.
    pub added_for: Vec<String>,
    /// Bios by process; None: they were not counted.
    pub processes: Option<Vec<ProcessIos>>,
    /// Bios by file; None: they were not counted.
    pub files: Option<Vec<FileSample>>,
}

impl DeviceSample {
    /// Rows with their hardware queue (None for the rare operation classes) and class.
    pub fn each(&self) -> impl Iterator<Item = (Option<u32>, usize, &IoRow)> {
        let shards = self.shards.max(1) as usize;
        let sharded = self
            .rows
            .iter()
            .enumerate()
            .map(move |(i, row)| (Some((i / OPS_SHARDED / shards) as u32), i % OPS_SHARDED, row));
        sharded.chain(self.rare.iter().enumerate().map(|(i, row)| (None, OPS_SHARDED + i, row)))
    }

    /// Rows of I/Os of no operation, with their class.
    pub fn each_unowned(&self) -> impl Iterator<Item = (usize, &IoRow)> {
        let sharded = self.unowned_shards as usize * OPS_SHARDED;
        self.unowned.iter().enumerate().map(move |(i, row)| match i.checked_sub(sharded) {
            None => (i % OPS_SHARDED, row),
            Some(i) => (OPS_SHARDED + i, row),
        })
    }

    /// Rows of operations, with cover and class.
    pub fn each_operation(&self) -> impl Iterator<Item = (usize, usize, &OperationRow)> {
        let sharded = self.operation_shards as usize * COVERS * OPS_SHARDED;
        self.operations.iter().enumerate().map(move |(i, row)| match i.checked_sub(sharded) {
            None => (i / OPS_SHARDED % COVERS, i % OPS_SHARDED, row),
            Some(i) => (i / (OPS - OPS_SHARDED), OPS_SHARDED + i % (OPS - OPS_SHARDED), row),
        })
    }

    /// The difference to `earlier`, an older sample of the same device.
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = |now: &[IoRow], then: &[IoRow]| now.iter().zip(then).map(|(n, t)| n.since(t)).collect();
        Self {
            name: self.name.clone(),
            disk: self.disk.clone(),
            hw_queues: self.hw_queues,
            shards: self.shards,
            rows: rows(&self.rows, &earlier.rows),
            rare: rows(&self.rare, &earlier.rare),
            unowned: rows(&self.unowned, &earlier.unowned),
            unowned_shards: self.unowned_shards,
            operations: self.operations.iter().zip(&earlier.operations).map(|(n, t)| n.since(t)).collect(),
            operation_shards: self.operation_shards,
            parts: self.parts.iter().zip(&earlier.parts).map(|(n, t)| n.since(t)).collect(),
            counters: self.counters.since(&earlier.counters),
            held: self.held,
            young: self.young,
            unfetched: self.unfetched,
            kernel_before: self.kernel_before,
            kernel_after: self.kernel_after,
            vanished: self.vanished,
            bio_based: self.bio_based,
            counted_at_start: self.counted_at_start,
            added_for: self.added_for.clone(),
            processes: self
                .processes
                .as_deref()
                .map(|now| ProcessIos::since(now, earlier.processes.as_deref().unwrap_or_default())),
            files: self
                .files
                .as_ref()
                .map(|now| FileSample::since(now, earlier.files.as_deref().unwrap_or_default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_operations_are_found_by_cover_and_operation() {
        let shards = 3;
        let all = COVERS * (shards * OPS_SHARDED + OPS - OPS_SHARDED);
        let sample = DeviceSample {
            operation_shards: shards as u32,
            operations: vec![OperationRow::default(); all],
            ..DeviceSample::default()
        };
        let found: Vec<(usize, usize)> = sample.each_operation().map(|(cover, op, _)| (cover, op)).collect();
        assert_eq!(found[..4], [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(found[18..20], [(0, 2), (0, 3)]);
        assert_eq!(found[all - 1], (COVERS - 1, OPS - 1));
        for op in 0..OPS {
            let rows = if op < OPS_SHARDED { shards } else { 1 };
            assert_eq!(found.iter().filter(|f| **f == (1, op)).count(), rows);
        }
    }

    #[test]
    fn rows_of_no_operation_are_found_by_class() {
        let unowned = vec![IoRow::default(); 3 * OPS_SHARDED + OPS - OPS_SHARDED];
        let sample = DeviceSample { unowned_shards: 3, unowned, ..DeviceSample::default() };
        let found: Vec<usize> = sample.each_unowned().map(|(op, _)| op).collect();
        assert_eq!(found, [0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(DeviceSample { unowned_shards: 3, ..DeviceSample::default() }.each_unowned().count(), 0);
    }

    #[test]
    fn rows_are_found_by_queue_and_operation() {
        let mut sample = DeviceSample { hw_queues: 2, shards: 2, ..DeviceSample::default() };
        sample.rows = vec![IoRow::default(); 8];
        sample.rare = vec![IoRow::default(); OPS - OPS_SHARDED];
        sample.rows[7].bytes = 42;
        let (queue, op, row) = sample.each().nth(7).unwrap();
        assert_eq!((queue, op, row.bytes), (Some(1), 1, 42));
        assert_eq!(sample.each().nth(8).map(|(queue, op, _)| (queue, op)), Some((None, 2)));
    }
}
