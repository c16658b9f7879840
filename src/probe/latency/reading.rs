//! Reads the state of all tables at one point in time.

use std::cell::RefCell;
use std::ops::Range;

use anyhow::Result;

use super::super::file_ios;
use super::super::files::FileNames;
use super::super::maps::{array, element, elements};
use super::super::process_ios;
use super::LatencyProbe;
use super::slices::Slices;
use crate::clock::now_ns;
use crate::host::block;
use crate::host::counters::Counters;
use crate::wire::Record;
use crate::wire::files::{FileSample, WireFile};
use crate::wire::groups::GroupsSample;
use crate::wire::parts::{PART_UNITS, PartRow};
use crate::wire::places::WirePlace;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::{IoRow, OperationRow};
use crate::wire::{COVERS, OPS, OPS_SHARDED, WireBioIo, WireCounters, WireSlot};

/// Sets the file names of groups.
fn name_files(groups: &mut GroupsSample, names: &mut FileNames) {
    let files: Vec<WireFile> = groups.groups.iter().map(|group| group.key.file).collect();
    names.look_everywhere(&files);
    for group in &mut groups.groups {
        group.path = names.name(&group.key.file);
    }
}

impl LatencyProbe {
    /// I/Os counted so far, over all devices.
    pub(super) fn completed(&self) -> u64 {
        self.samples(false)
            .map(|devices| {
                devices
                    .iter()
                    .flat_map(|d| d.rows.iter().chain(&d.rare))
                    .map(|row| {
                        row.stages[1].count() + row.further + row.untimed + row.no_start + row.never_issued
                    })
                    .sum()
            })
            .unwrap_or(0)
    }

    pub(super) fn reading(&self, before: Vec<Option<Counters>>) -> Result<Reading> {
        let at_ns = now_ns();
        let with_operations = self.attached.contains("ring_complete");
        let mut devices = self.samples(with_operations)?;
        if self.processes {
            for (device, rows) in
                devices.iter_mut().zip(process_ios::read(&self.skel, self.plan.devices.len())?)
            {
                device.processes = Some(rows);
            }
        }
        if self.files {
            for device in &mut devices {
                device.files = Some(Vec::new());
            }
            for (device, row) in file_ios::read(&self.skel)? {
                if let Some(rows) = devices.get_mut(device as usize).and_then(|device| device.files.as_mut())
                {
                    rows.push(row);
                }
            }
        }
        let mut groups = self.grouping.map(|all| all.read(&self.skel, with_operations)).transpose()?;
        if let (Some(groups), Some(names)) = (&mut groups, &self.file_names) {
            name_files(groups, &mut names.borrow_mut());
        }
        let after = self.kernel_counters();
        for ((device, before), after) in devices.iter_mut().zip(before).zip(after) {
            device.kernel_before = before;
            device.kernel_after = after;
            // All planned devices existed when the host was read.
            device.vanished = !block::is_there(&self.root, &device.name);
        }
        let unfollowed = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.unfollowed);
        Ok(Reading {
            at_ns,
            devices,
            missed: self.missed(),
            unfollowed,
            followed_ns: with_operations.then(|| self.followed.until(at_ns)),
            cut: self.followed.cut,
            groups,
            filtered: self.filtered,
        })
    }

    /// Sets the file names of rows. Done once, at the end, since each name is looked up.
    pub(super) fn name_files(&mut self, devices: &mut [DeviceSample]) {
        let Some(names) = self.file_names.as_mut().map(RefCell::get_mut) else { return };
        let mut rows: Vec<&mut FileSample> =
            devices.iter_mut().flat_map(|device| &mut device.files).flatten().collect();
        let files: Vec<WireFile> = rows.iter().map(|row| row.file).collect();
        names.look_everywhere(&files);
        for row in &mut rows {
            row.path = names.name(&row.file);
        }
    }

    /// Requests that were issued before `before_ns`, and from then until `until_ns`, and were not observed to complete,
    /// per device.
    pub(super) fn held(&self, before_ns: u64, until_ns: u64) -> Result<Vec<[u64; 2]>> {
        let mut held = vec![[0; 2]; self.plan.devices.len()];
        let age = |since: u64| usize::from(since >= before_ns);
        array(&self.skel.maps.slots, |index, slot| {
            let slot = WireSlot::decode(slot)?;
            if slot.request == 0 || slot.issued >= until_ns {
                return Ok(());
            }
            let owner = self.plan.devices.iter().rposition(|d| d.wire.slot_base <= index);
            if let Some(count) = owner.and_then(|i| held.get_mut(i)) {
                count[age(slot.issued)] += 1;
            }
            Ok(())
        })?;
        if self.attached.contains("bio_complete") {
            array(&self.skel.maps.bio_ios, |_, io| {
                let io = WireBioIo::decode(io)?;
                if let Some(count) = held.get_mut(io.device as usize)
                    && io.bio != 0
                    && io.queued < until_ns
                {
                    count[age(io.queued)] += 1;
                }
                Ok(())
            })?;
        }
        Ok(held)
    }

    /// Results that became visible since `since_ns` and were not observed to be fetched, per device and class; None if
    /// operations are not followed. Must be called after the end of the interval, when the tables no longer change.
    pub(super) fn unfetched(&self, since_ns: u64) -> Result<Option<Vec<[u64; OPS]>>> {
        // Operations in flight between slices are unknown.
        if !self.attached.contains("ring_complete") || self.slices.as_ref().is_some_and(Slices::sliced) {
            return Ok(None);
        }
        let mut all = vec![[0; OPS]; self.plan.devices.len()];
        let maps = &self.skel.maps;
        array(&maps.operations, |index, place| {
            let place = WirePlace::decode(place)?;
            let slot = place.slot().map(|slot| element(&maps.slots, slot)).transpose()?;
            let slot = slot.map(|bytes| WireSlot::decode(&bytes)).transpose()?;
            let Some(result) = place.unfetched(index, slot.as_ref()) else { return Ok(()) };
            let count =
                all.get_mut(usize::from(result.device)).and_then(|of| of.get_mut(usize::from(result.op)));
            if let Some(count) = count.filter(|_| result.ended_ns >= since_ns) {
                *count += 1;
            }
            Ok(())
        })?;
        Ok(Some(all))
    }

    pub(super) fn kernel_counters(&self) -> Vec<Option<Counters>> {
        self.plan.counters(&self.root)
    }

    pub(super) fn samples(&self, with_operations: bool) -> Result<Vec<DeviceSample>> {
        let maps = &self.skel.maps;
        let rows = |range: Range<u32>| elements(&maps.rows, range, |_, row| Ok(IoRow::decode(row)?));
        let operations = |range: Range<u32>| {
            elements(&maps.operation_rows, range, |_, row| Ok(OperationRow::decode(row)?))
        };
        let parts = |range: Range<u32>| elements(&maps.part_rows, range, |_, row| Ok(PartRow::decode(row)?));
        let with_parts = with_operations && self.attached.contains("bio_getrq");
        let units = if with_parts { (PART_UNITS * OPS) as u32 } else { 0 };
        let mut all = Vec::with_capacity(self.plan.devices.len());
        for (index, device) in self.plan.devices.iter().enumerate() {
            let wire = &device.wire;
            let end = wire.rare_row_base + (OPS - OPS_SHARDED) as u32;
            let first = wire.operation_row_base;
            let covered = COVERS * (wire.operation_shards as usize * OPS_SHARDED + OPS - OPS_SHARDED);
            let operation_rows = if with_operations { first..first + covered as u32 } else { 0..0 };
            let first = wire.unowned_row_base;
            let unowned = wire.unowned_shards * OPS_SHARDED as u32 + (OPS - OPS_SHARDED) as u32;
            let unowned = if with_operations { first..first + unowned } else { 0..0 };
            all.push(DeviceSample {
                name: device.name.clone(),
                disk: device.is_partition().then(|| device.disk.clone()),
                // Read before the rows of all I/Os, which include these: so they never exceed the sum.
                unowned: rows(unowned)?,
                unowned_shards: wire.unowned_shards,
                hw_queues: wire.hw_queues,
                shards: wire.shards,
                rows: rows(wire.row_base..wire.rare_row_base)?,
                rare: rows(wire.rare_row_base..end)?,
                operations: operations(operation_rows)?,
                operation_shards: wire.operation_shards,
                parts: parts(index as u32 * units..(index as u32 + 1) * units)?,
                counters: WireCounters::decode(&element(&maps.counters, index as u32)?)?,
                bio_based: device.is_bio_based(),
                counted_at_start: device.is_bio_based() && self.counted_at_start,
                added_for: device.added_for.clone(),
                ..DeviceSample::default()
            });
        }
        Ok(all)
    }
}
