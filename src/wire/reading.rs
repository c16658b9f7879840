//! Everything that the programs have counted at one moment.

use std::collections::BTreeMap;

use super::files::FileSample;
use super::groups::GroupsSample;
use super::parts::PartRow;
use super::process_ios::ProcessIos;
use super::rows::{OperationRow, Row};
use super::{COVERS, OPS, OPS_SHARDED, WireCounters};
use crate::host::counters::Counters;
use crate::wire::Count as _;

/// All devices at one moment: the start or end of a window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub devices: Vec<DeviceSample>,
    /// Runs that the kernel skipped, by program: it does not run a program inside itself on one CPU.
    pub missed: BTreeMap<&'static str, u64>,
    /// Operations that began and could not be followed: their place in the table was taken.
    pub unfollowed: u64,
    /// How long operations that begin were followed until now; None: not at all, with these stages or on this kernel.
    pub followed_ns: Option<u64>,
    /// Operations with an I/O out when a slice of time ended in which they were followed: they are in no stage.
    pub cut: u64,
    /// None: nobody asked for groups.
    pub groups: Option<GroupsSample>,
    /// Only what some submitters hand in was followed.
    pub filtered: bool,
}

impl Reading {
    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<&DeviceSample> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Each device, and what came on it since `earlier`.
    pub fn since(&self, earlier: &Self) -> impl Iterator<Item = (&DeviceSample, DeviceSample)> {
        self.devices.iter().map(|last| {
            let delta = earlier.device(&last.name).map_or_else(|| last.clone(), |first| last.since(first));
            (last, delta)
        })
    }
}

/// The state of one device's rows and counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSample {
    pub name: String,
    /// Of a partition: its disk.
    pub disk: Option<String>,
    pub hw_queues: u32,
    pub shards: u32,
    /// `[(queue × shards + shard) × OPS_SHARDED + op]`.
    pub rows: Vec<Row>,
    /// Operations from `OPS_SHARDED` on.
    pub rare: Vec<Row>,
    /// I/Os of no operation, which are in the rows above as well, and of which these have the stages alone:
    /// `[shard × OPS_SHARDED + op]` for reads and writes, then `[op − OPS_SHARDED]`; empty where operations are
    /// not followed.
    pub unowned: Vec<Row>,
    pub unowned_shards: u32,
    /// Operations: `[(shard × COVERS + cover) × OPS_SHARDED + op]` for reads and writes, then
    /// `[cover × (OPS − OPS_SHARDED) + op − OPS_SHARDED]`; empty where operations are not followed.
    pub operations: Vec<OperationRow>,
    pub operation_shards: u32,
    /// `[unit × OPS + op]`; empty where stages are not taken apart.
    pub parts: Vec<PartRow>,
    pub counters: WireCounters,
    /// At the end of a trace: requests that were issued long before `kernel_before` was read and were not
    /// seen to complete. The kernel must have had them in flight then.
    pub held: u64,
    /// The same, issued since: the kernel may have had them in flight or not.
    pub young: u64,
    /// At the end of a trace where operations are followed: results by class that came in its window, and that
    /// nobody was seen to fetch. None: not looked at.
    pub unfetched: Option<[u64; OPS]>,
    /// The kernel's own counters just before and just after the moment of this sample; None where
    /// they cannot be read.
    pub kernel_before: Option<Counters>,
    pub kernel_after: Option<Counters>,
    /// It was there at the start and is gone.
    pub vanished: bool,
    /// It has no requests: its I/Os are bios.
    pub bio_based: bool,
    /// The kernel counts its I/Os when they begin: bio-based devices before 5f27571382ca (6.3).
    pub counted_at_start: bool,
    /// Not named by the user: it is traced as a layer of these.
    pub added_for: Vec<String>,
    /// Bios by process; None: they were not counted.
    pub processes: Option<Vec<ProcessIos>>,
    /// Bios by file; None: they were not counted.
    pub files: Option<Vec<FileSample>>,
}

impl DeviceSample {
    /// Rows with the hardware queue (none for the rare operations) and the operation's number.
    pub fn each(&self) -> impl Iterator<Item = (Option<u32>, usize, &Row)> {
        let shards = self.shards.max(1) as usize;
        let sharded = self
            .rows
            .iter()
            .enumerate()
            .map(move |(i, row)| (Some((i / OPS_SHARDED / shards) as u32), i % OPS_SHARDED, row));
        sharded.chain(self.rare.iter().enumerate().map(|(i, row)| (None, OPS_SHARDED + i, row)))
    }

    /// Rows of I/Os of no operation with the class's number.
    pub fn each_unowned(&self) -> impl Iterator<Item = (usize, &Row)> {
        let sharded = self.unowned_shards as usize * OPS_SHARDED;
        self.unowned.iter().enumerate().map(move |(i, row)| match i.checked_sub(sharded) {
            None => (i % OPS_SHARDED, row),
            Some(i) => (OPS_SHARDED + i, row),
        })
    }

    /// Rows of operations with cover and operation's number.
    pub fn each_operation(&self) -> impl Iterator<Item = (usize, usize, &OperationRow)> {
        let sharded = self.operation_shards as usize * COVERS * OPS_SHARDED;
        self.operations.iter().enumerate().map(move |(i, row)| match i.checked_sub(sharded) {
            None => (i / OPS_SHARDED % COVERS, i % OPS_SHARDED, row),
            Some(i) => (i / (OPS - OPS_SHARDED), OPS_SHARDED + i % (OPS - OPS_SHARDED), row),
        })
    }

    /// What came since `earlier`, an older sample of the same device.
    pub fn since(&self, earlier: &Self) -> Self {
        let rows = |now: &[Row], then: &[Row]| now.iter().zip(then).map(|(n, t)| n.since(t)).collect();
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
        let unowned = vec![Row::default(); 3 * OPS_SHARDED + OPS - OPS_SHARDED];
        let sample = DeviceSample { unowned_shards: 3, unowned, ..DeviceSample::default() };
        let found: Vec<usize> = sample.each_unowned().map(|(op, _)| op).collect();
        assert_eq!(found, [0, 1, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(DeviceSample { unowned_shards: 3, ..DeviceSample::default() }.each_unowned().count(), 0);
    }

    #[test]
    fn rows_are_found_by_queue_and_operation() {
        let mut sample = DeviceSample { hw_queues: 2, shards: 2, ..DeviceSample::default() };
        sample.rows = vec![Row::default(); 8];
        sample.rare = vec![Row::default(); OPS - OPS_SHARDED];
        sample.rows[7].bytes = 42;
        let (queue, op, row) = sample.each().nth(7).unwrap();
        assert_eq!((queue, op, row.bytes), (Some(1), 1, 42));
        assert_eq!(sample.each().nth(8).map(|(queue, op, _)| (queue, op)), Some((None, 2)));
    }
}
