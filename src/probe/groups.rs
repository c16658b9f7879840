//! The side of the latency probe that tells I/Os apart: its maps sized, its groups read.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};

use super::libbpf;
use super::plan::Plan;
use super::skel::latency::types::wire_latency_config;
use super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::refusal::Refusal;
use crate::wire::groups::{BY_CPU, GroupSample, GroupsSample, WireGroup, WireGroupKey};
use crate::wire::{COVERS, OperationRow, Row, WireOperationRow, WireRow};

/// The bound on the memory of all maps, within which groups take what the devices leave.
const MOST_BYTES: u64 = 64 << 20;
const LEAST_GROUPS: u64 = 64;
const MOST_GROUPS: u64 = 512;
/// The matrix of CPUs has a cell for each pair: 8 MiB.
const MOST_CPUS: u32 = 1024;

/// What is told apart, and the room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// `BY_*`.
    pub by: u32,
    /// Rows, that of the others included.
    pub most: u32,
    /// On either side of the matrix; 0: nobody asked for CPUs.
    pub matrix_cpus: u32,
}

impl Grouping {
    /// As many groups as fit beside the devices of `plan`.
    pub fn new(by: u32, plan: &Plan, cpus: u32) -> Result<Self> {
        let matrix_cpus = if by & BY_CPU == 0 { 0 } else { cpus };
        if matrix_cpus > MOST_CPUS {
            let what = format!(
                "I/Os cannot be told apart by cpu on more than {MOST_CPUS} CPUs, and {cpus} are possible here: leave \
                 cpu out of --by"
            );
            return Err(Refusal::Refused(what).into());
        }
        let group = (size_of::<WireRow>() + COVERS * size_of::<WireOperationRow>()) as u64;
        let room = MOST_BYTES.saturating_sub(plan.map_bytes()) / group;
        Ok(Self { by, most: room.clamp(LEAST_GROUPS, MOST_GROUPS) as u32, matrix_cpus })
    }

    /// Makes room in the maps.
    pub fn size(&self, open: &mut OpenLatencySkel<'_>) -> libbpf_rs::Result<()> {
        let maps = &mut open.maps;
        maps.groups.set_max_entries(self.most)?;
        maps.group_rows.set_max_entries(self.most)?;
        maps.group_operation_rows.set_max_entries(self.most * COVERS as u32)?;
        maps.matrix.set_max_entries((self.matrix_cpus * self.matrix_cpus).max(1))
    }

    pub fn tell(&self, config: &mut wire_latency_config) {
        config.most_groups = self.most;
        config.group_by = self.by;
        config.matrix_cpus = self.matrix_cpus;
    }

    /// The groups now.
    pub fn read(&self, skel: &LatencySkel<'_>, with_operations: bool) -> Result<GroupsSample> {
        let maps = &skel.maps;
        let mut groups = vec![self.group(skel, GroupSample::default(), with_operations)?];
        for key in maps.groups.keys() {
            // A key whose value another CPU is writing is there in the next reading.
            let Some(value) = maps.groups.lookup(&key, MapFlags::ANY)? else { continue };
            let (key, value) = (WireGroupKey::decode(&key)?, WireGroup::decode(&value)?);
            let group =
                GroupSample { number: value.number, key, comm: value.comm(), ..GroupSample::default() };
            groups.push(self.group(skel, group, with_operations)?);
        }
        let mut matrix = vec![0; (self.matrix_cpus * self.matrix_cpus) as usize];
        if !matrix.is_empty() {
            for (index, count) in maps.matrix.lookup_batch(4096, MapFlags::ANY, MapFlags::ANY)? {
                let index = u32::from_ne_bytes(index.as_slice().try_into().context("a key of four bytes")?);
                if let Some(cell) = matrix.get_mut(index as usize) {
                    *cell = u64::from_ne_bytes(count.as_slice().try_into().context("a cell of eight bytes")?);
                }
            }
        }
        Ok(GroupsSample { by: self.by, most: self.most, groups, matrix })
    }

    /// The group with what its rows hold.
    fn group(
        &self,
        skel: &LatencySkel<'_>,
        group: GroupSample,
        with_operations: bool,
    ) -> Result<GroupSample> {
        let maps = &skel.maps;
        let row = Row::decode(&libbpf::element(&maps.group_rows, group.number)?)?;
        let mut operations: [OperationRow; COVERS] = Default::default();
        if with_operations {
            for (cover, row) in operations.iter_mut().enumerate() {
                let index = group.number * COVERS as u32 + cover as u32;
                *row = OperationRow::decode(&libbpf::element(&maps.group_operation_rows, index)?)?;
            }
        }
        Ok(GroupSample { row, operations, ..group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{BlockDevice, HardwareQueue};
    use crate::wire::groups::{BY_OP, BY_PROCESS};

    #[test]
    fn groups_take_what_the_devices_leave() {
        let one = Grouping::new(BY_PROCESS, &Plan::default(), 2).unwrap();
        assert_eq!((one.most, one.matrix_cpus), (512, 0));
        let drive = |i: u32| BlockDevice {
            name: format!("nvme{i}n1"),
            request_based: true,
            requests: Some(1023),
            queues: (0..33)
                .map(|queue| HardwareQueue { queue, tags: 1023, ..HardwareQueue::default() })
                .collect(),
            ..BlockDevice::default()
        };
        let ten: Vec<BlockDevice> = (0..10).map(drive).collect();
        let plan = Plan::new(ten.iter(), 32).unwrap();
        let many = Grouping::new(BY_OP, &plan, 32).unwrap();
        assert!((64..512).contains(&many.most), "{many:?}");
    }

    #[test]
    fn a_matrix_has_a_bound() {
        let plan = Plan::default();
        assert_eq!(Grouping::new(BY_CPU, &plan, 384).unwrap().matrix_cpus, 384);
        let error = Grouping::new(BY_CPU, &plan, 2048).unwrap_err();
        assert!(error.to_string().contains("2048"), "{error}");
        assert!(Grouping::new(BY_PROCESS, &plan, 2048).is_ok());
    }
}
