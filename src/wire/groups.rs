//! Decodes groups of I/Os.

use super::rows::{IoRow, OperationRow};
use super::{COVERS, Count as _, task_name};

pub use super::records::{WireGroup, WireGroupKey};

/// `enum wire_dimension`.
pub const BY_DEVICE: u32 = 1;
pub const BY_OP: u32 = 2;
pub const BY_QUEUE: u32 = 4;
pub const BY_SIZE: u32 = 8;
pub const BY_CPU: u32 = 16;
pub const BY_PROCESS: u32 = 32;
pub const BY_CGROUP: u32 = 64;
pub const BY_FILE: u32 = 128;

/// `enum wire_filter`.
pub const FILTER_PID: u32 = 1;
pub const FILTER_COMM: u32 = 2;
pub const FILTER_CGROUP: u32 = 4;
pub const FILTER_COMMAND: u32 = 8;

/// CPU, process and cgroup of a group are valid.
pub const GROUP_SUBMITTER: u32 = 1;

/// Queue of an I/O on a device without requests.
pub const NO_QUEUE: u32 = u32::MAX;

impl WireGroup {
    /// The kernel's name of the process; any bytes but 0.
    pub fn comm(&self) -> String {
        String::from_utf8_lossy(task_name(&self.comm)).into_owned()
    }
}

/// One group at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupSample {
    /// Row number; 0: the I/Os whose group had no room.
    pub number: u32,
    pub key: WireGroupKey,
    pub comm: String,
    /// Path of its file, if one was found.
    pub path: Option<String>,
    pub row: IoRow,
    /// By `enum wire_cover`; all empty if operations are not followed.
    pub operations: [OperationRow; COVERS],
}

impl GroupSample {
    /// The difference to `earlier`, an older sample of the same group.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            row: self.row.since(&earlier.row),
            operations: std::array::from_fn(|i| self.operations[i].since(&earlier.operations[i])),
            ..self.clone()
        }
    }
}

/// All groups at one point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupsSample {
    /// `BY_*`: the dimensions that groups are made by.
    pub by: u32,
    /// Maximum number of groups.
    pub most: u32,
    /// The group of the others comes first.
    pub groups: Vec<GroupSample>,
    /// I/Os by submission CPU, then by completion CPU; empty unless grouped by CPU.
    pub matrix: Vec<u64>,
}

impl GroupsSample {
    /// The difference to `earlier`; groups are never removed.
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |group: &GroupSample| match earlier.groups.iter().find(|g| g.number == group.number) {
            Some(then) => group.since(then),
            None => group.clone(),
        };
        let then = earlier.matrix.iter().copied().chain(std::iter::repeat(0));
        Self {
            groups: self.groups.iter().map(since).collect(),
            matrix: self.matrix.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Record;

    #[test]
    fn a_name_ends_at_its_first_zero_and_damage_is_an_error_value() {
        let mut bytes = [0u8; 24];
        bytes[8..13].copy_from_slice(b"dd\0xx");
        assert_eq!(WireGroup::decode(&bytes).unwrap().comm(), "dd");
        bytes[8..].copy_from_slice(b"sixteen bytes !\xff");
        assert_eq!(WireGroup::decode(&bytes).unwrap().comm(), "sixteen bytes !\u{fffd}");
        assert!(WireGroup::decode(&bytes[..23]).is_err() && WireGroupKey::decode(&[0; 47]).is_err());
    }

    #[test]
    fn a_group_that_is_new_counts_from_zero() {
        let sample = |number, bytes| GroupSample {
            number,
            row: IoRow { bytes, ..IoRow::default() },
            ..GroupSample::default()
        };
        let all = |groups, matrix: &[u64]| GroupsSample {
            groups,
            matrix: matrix.to_vec(),
            ..GroupsSample::default()
        };
        let earlier = all(vec![sample(0, 0), sample(1, 10)], &[1, 2]);
        let now = all(vec![sample(0, 5), sample(2, 7), sample(1, 30)], &[1, 5]);
        let since = now.since(&earlier);
        let bytes: Vec<u64> = since.groups.iter().map(|group| group.row.bytes).collect();
        assert_eq!((bytes, since.matrix), (vec![5, 7, 20], vec![0, 3]));
        assert_eq!(now.since(&GroupsSample::default()).matrix, [1, 5]);
    }
}
