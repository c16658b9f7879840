//! Decodes the stacks that submitted I/Os.

use std::collections::{BTreeMap, HashMap};

use super::files::WireFile;
use super::stacks::{Sample, WireStackKey};
use super::{DamagedRecord, Record};
use crate::host::mapped::MappedFiles;

pub use super::records::{WireSubmitRow, WireSubmitStack};

/// Decodes a stack of the table, with its number.
pub fn decode_stack(key: &[u8], value: &[u8]) -> Result<(u32, Sample), DamagedRecord> {
    let key = WireStackKey::decode(key)?;
    let wire = <WireSubmitStack as Record>::decode(value)?;
    Ok((wire.number, wire.stack.sample(&key)))
}

/// The submit stacks of one interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Submits {
    /// By the number that an I/O's event contains.
    pub stacks: HashMap<u32, Sample>,
    /// Mappings of the submitting processes, read while they were running.
    pub maps: MappedFiles,
    /// Names of the processes whose rings io_uring workers served: any bytes.
    pub leaders: HashMap<u32, Vec<u8>>,
    /// Paths of the files that the I/Os read or write.
    pub files: BTreeMap<WireFile, String>,
    /// Stacks that were not taken: the table was full; the budget was spent (counted in bios that they would have been
    /// scaled up to); or an interrupt came in between.
    pub full: u64,
    pub over: u64,
    pub nested: u64,
}

impl Submits {
    /// Adds the counters of one CPU.
    pub fn count(&mut self, row: &WireSubmitRow) {
        self.full += row.full;
        self.over += row.over;
        self.nested += row.nested;
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_stack_has_its_number() {
        let mut wire = WireSubmitStack::new_zeroed();
        wire.number = 1 << 16 | 7;
        (wire.stack.kernel_frames, wire.stack.user_frames) = (2, 1);
        wire.stack.ips[..3].copy_from_slice(&[10, 20, 30]);
        wire.stack.comm[..3].copy_from_slice(b"fio");
        let key = WireStackKey { hash: [1, 2], pid: 5, flags: 4 };
        let (number, sample) = decode_stack(key.as_bytes(), wire.as_bytes()).unwrap();
        assert_eq!((number, sample.pid, sample.flags), (0x10007, 5, 4));
        assert_eq!((sample.kernel(), sample.user()), (&[10, 20][..], &[30][..]));
        assert_eq!(sample.comm_bytes(), b"fio");
        assert!(decode_stack(key.as_bytes(), &wire.as_bytes()[1..]).is_err());
    }

    #[test]
    fn what_cpus_counted_adds_up() {
        let mut all = Submits::default();
        let row = WireSubmitRow { full: 1, over: 2, nested: 3, ..WireSubmitRow::default() };
        all.count(&row);
        all.count(&WireSubmitRow { over: 5, ..row });
        assert_eq!((all.full, all.over, all.nested), (2, 7, 6));
    }
}
