//! Decodes bios by device and process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DamagedRecord, Record, since_by_key, task_name};
use crate::names::names;

pub use super::records::{WireProcessIos, WireProcessKey};

/// The row of all processes that had no room in the table.
pub const NO_PROCESS: u32 = u32::MAX;

names! {
    /// `enum wire_relation`: how a process relates to biopsy.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Relation {
        /// Only kernel workers have submitted bios on its behalf, or biopsy runs in a pid namespace.
        #[default]
        Unknown = "unknown",
        /// biopsy itself.
        Own = "own",
        /// A process of the measured command.
        Command = "command",
        /// A kernel thread: write-back, journals, stacked devices.
        Kernel = "kernel",
        Other = "other",
    }
}

impl Relation {
    fn decode(number: u32) -> Self {
        match number {
            1 => Self::Own,
            2 => Self::Command,
            3 => Self::Kernel,
            4 => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// The bios of one process on one device so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ProcessIos {
    /// None: all processes for which the table had no room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Chosen by the process: any text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comm: String,
    pub relation: Relation,
    /// They passed the filter; true without one.
    pub selected: bool,
    pub bios: u64,
    /// Of reads and writes.
    pub bytes: u64,
}

impl ProcessIos {
    /// Decodes a row with the number of its device.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<(u32, Self), DamagedRecord> {
        let key = <WireProcessKey as Record>::decode(key)?;
        let row = <WireProcessIos as Record>::decode(value)?;
        let pid = (key.pid != NO_PROCESS).then_some(key.pid);
        let decoded = Self {
            pid,
            comm: String::from_utf8_lossy(task_name(&row.comm)).into_owned(),
            relation: pid.map_or(Relation::Unknown, |_| Relation::decode(row.relation)),
            selected: key.selected != 0,
            bios: row.bios,
            bytes: row.bytes,
        };
        Ok((key.device, decoded))
    }

    /// Subtracts from each row of `now` what was counted before.
    pub fn since(now: &[Self], earlier: &[Self]) -> Vec<Self> {
        let less = |row: &Self, then: &Self| Self {
            bios: row.bios.saturating_sub(then.bios),
            bytes: row.bytes.saturating_sub(then.bytes),
            ..row.clone()
        };
        let mut rows = since_by_key(now, earlier, |row| (row.pid, row.selected), less);
        rows.retain(|row| row.bios > 0);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_row_is_decoded_and_damage_is_an_error() {
        let key = WireProcessKey { device: 3, pid: 7, selected: 1 };
        let mut comm = [0; 16];
        comm[..5].copy_from_slice(b"a\xffb\0c");
        let row = WireProcessIos { bios: 5, bytes: 4096, comm, relation: 2, pad: 0 };
        let (device, decoded) = ProcessIos::decode(key.as_bytes(), row.as_bytes()).unwrap();
        assert_eq!((device, decoded.pid, decoded.comm.as_str()), (3, Some(7), "a\u{fffd}b"));
        assert_eq!((decoded.relation, decoded.selected, decoded.bios), (Relation::Command, true, 5));
        assert!(ProcessIos::decode(&key.as_bytes()[..11], row.as_bytes()).is_err());
        assert!(ProcessIos::decode(key.as_bytes(), &row.as_bytes()[..39]).is_err());
        let others = WireProcessKey { pid: NO_PROCESS, ..key };
        let (_, others) = ProcessIos::decode(others.as_bytes(), row.as_bytes()).unwrap();
        assert_eq!((others.pid, others.relation), (None, Relation::Unknown), "it is of several");
    }

    #[test]
    fn what_came_before_is_left_out() {
        let row = |pid, bios| ProcessIos { pid: Some(pid), bios, ..ProcessIos::default() };
        let delta = ProcessIos::since(&[row(1, 5), row(2, 7), row(3, 4)], &[row(1, 5), row(2, 3)]);
        assert_eq!(delta, [row(2, 4), row(3, 4)]);
    }
}
