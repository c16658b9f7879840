//! Sizes the maps of the latency probe for groups, and reads the groups.

use anyhow::{Context, Result};

use super::maps;
use super::plan::MOST_BYTES;
use super::skel::latency::types::wire_latency_config;
use super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::refusal::Refusal;
use crate::wire::COVERS;
use crate::wire::Record;
use crate::wire::files::WireFile;
use crate::wire::groups::{BY_CPU, GroupSample, GroupsSample, WireGroup, WireGroupKey};
use crate::wire::rows::{IoRow, OperationRow, WireOperationRow, WireRow};

const LEAST_GROUPS: u64 = 64;
const MOST_GROUPS: u64 = 512;
/// The matrix of CPUs has a cell per pair: 8 MiB.
const MOST_CPUS: u32 = 1024;

/// The dimensions of groups, and the room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// `BY_*`.
    pub by: u32,
    /// Rows, including the row of the others.
    pub most: u32,
    /// CPUs on either side of the matrix; 0: not grouped by CPU.
    pub matrix_cpus: u32,
}

impl Grouping {
    /// The minimum number of groups; [`Self::fit`] raises it.
    pub fn new(by: u32, cpus: u32) -> Result<Self> {
        let matrix_cpus = if by & BY_CPU == 0 { 0 } else { cpus };
        if matrix_cpus > MOST_CPUS {
            let what = format!(
                "I/Os cannot be grouped by cpu on more than {MOST_CPUS} CPUs, and {cpus} are possible \
                 here: leave cpu out of --by"
            );
            return Err(Refusal::Refused(what).into());
        }
        Ok(Self { by, most: LEAST_GROUPS as u32, matrix_cpus })
    }

    /// Raises the number of groups to what fits in addition to all other maps.
    pub fn fit(&mut self, others: u64) {
        let group =
            (size_of::<WireGroup>() + size_of::<WireRow>() + COVERS * size_of::<WireOperationRow>()) as u64;
        let matrix = 8 * u64::from(self.matrix_cpus).pow(2);
        let room = MOST_BYTES.saturating_sub(others + matrix) / group;
        self.most = room.clamp(LEAST_GROUPS, MOST_GROUPS) as u32;
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

    /// The files that have groups, and the process that submitted the first I/O of each.
    pub fn openers(&self, skel: &LatencySkel<'_>) -> Result<Vec<(WireFile, u32)>> {
        let opener = |(key, value): (Vec<u8>, Vec<u8>)| {
            Ok((WireGroupKey::decode(&key)?.file, WireGroup::decode(&value)?.opener))
        };
        maps::entries(&skel.maps.groups)?.into_iter().map(opener).collect()
    }

    /// The current groups.
    pub fn read(&self, skel: &LatencySkel<'_>, with_operations: bool) -> Result<GroupsSample> {
        let mut groups = vec![self.group(skel, GroupSample::default(), with_operations)?];
        // A key whose value is being written on another CPU appears in the next reading.
        for (key, value) in maps::entries(&skel.maps.groups)? {
            let (key, value) = (WireGroupKey::decode(&key)?, WireGroup::decode(&value)?);
            let group =
                GroupSample { number: value.number, key, comm: value.comm(), ..GroupSample::default() };
            groups.push(self.group(skel, group, with_operations)?);
        }
        let mut matrix = vec![0; (self.matrix_cpus * self.matrix_cpus) as usize];
        if !matrix.is_empty() {
            maps::array(&skel.maps.matrix, |index, count| {
                if let Some(cell) = matrix.get_mut(index as usize) {
                    *cell = u64::from_ne_bytes(count.try_into().context("a cell has eight bytes")?);
                }
                Ok(())
            })?;
        }
        Ok(GroupsSample { by: self.by, most: self.most, groups, matrix })
    }

    /// Adds the contents of its rows to a group.
    fn group(
        &self,
        skel: &LatencySkel<'_>,
        group: GroupSample,
        with_operations: bool,
    ) -> Result<GroupSample> {
        let maps = &skel.maps;
        let row = IoRow::decode(&maps::element(&maps.group_rows, group.number)?)?;
        let mut operations: [OperationRow; COVERS] = Default::default();
        if with_operations {
            for (cover, row) in operations.iter_mut().enumerate() {
                let index = group.number * COVERS as u32 + cover as u32;
                *row = OperationRow::decode(&maps::element(&maps.group_operation_rows, index)?)?;
            }
        }
        Ok(GroupSample { row, operations, ..group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::groups::BY_PROCESS;

    #[test]
    fn groups_take_what_the_other_maps_leave() {
        let most = |others: u64, by| {
            let mut grouping = Grouping::new(by, 384).unwrap();
            grouping.fit(others);
            grouping.most
        };
        assert_eq!(most(0, BY_PROCESS), 512);
        assert_eq!(most(MOST_BYTES, BY_PROCESS), 64);
        let group =
            (size_of::<WireGroup>() + size_of::<WireRow>() + COVERS * size_of::<WireOperationRow>()) as u64;
        assert_eq!(most(MOST_BYTES - 100 * group, BY_PROCESS), 100);
        // The matrix of 384 CPUs needs its share.
        assert_eq!(most(MOST_BYTES - 100 * group - 8 * 384 * 384, BY_CPU), 100);
    }

    #[test]
    fn a_matrix_has_a_bound() {
        assert_eq!(Grouping::new(BY_CPU, 384).unwrap().matrix_cpus, 384);
        let error = Grouping::new(BY_CPU, 2048).unwrap_err();
        assert!(error.to_string().contains("2048"), "{error}");
        assert!(Grouping::new(BY_PROCESS, 2048).is_ok());
    }
}
