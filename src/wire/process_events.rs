//! Decodes the kernel's own records of processes: forks, execs, exits, and executable mappings. The layout is that of
//! `linux/perf_event.h`, for events that request a time at the end of every record.

use std::sync::Arc;

use super::{DamagedRecord, task_name};
use crate::host::mapped::Mapping;

/// `PERF_RECORD_*`.
const MMAP2: u32 = 10;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
/// `PERF_RECORD_MISC_COMM_EXEC`.
const BY_EXEC: u16 = 1 << 13;
/// `PERF_RECORD_MISC_MMAP_BUILD_ID`, which biopsy does not request: such a record has no inode.
const BUILD_ID: u16 = 1 << 14;
/// `struct perf_event_header`.
const HEAD: usize = 8;

/// A thread's name, padded with zeros.
pub type Comm = [u8; 16];

/// The name up to its first zero byte: the bytes after it are left over from a longer name.
pub fn comm(bytes: &[u8]) -> Comm {
    let name = task_name(bytes);
    let mut comm = [0; 16];
    let len = name.len().min(15);
    comm[..len].copy_from_slice(&name[..len]);
    comm
}

/// What happened to which process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessChange {
    /// A thread began: of a new process if `parent` differs.
    Fork { pid: u32, parent: u32 },
    /// A thread exited: the first thread of its process if the ids are equal.
    Exit { pid: u32, tid: u32 },
    /// A thread got a name; with `exec` it runs another program since then.
    Name { pid: u32, comm: Comm, exec: bool },
    /// Code was mapped, or a mapping became executable. There is no event for its removal.
    Mapped { pid: u32, mapping: Mapping },
    /// Number of records that had no room.
    Lost(u64),
    /// Any other record.
    Other,
}

/// A record with its time, in ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    pub at: u64,
    pub what: ProcessChange,
}

/// Takes the first record from `bytes`; None if they are empty.
///
/// # Errors
/// When a record is shorter than its kind requires. `bytes` then begin after it if its length is plausible, else they
/// are empty.
pub fn next(bytes: &mut &[u8]) -> Option<Result<ProcessRecord, DamagedRecord>> {
    if bytes.is_empty() {
        return None;
    }
    let len = bytes.get(6..HEAD).map_or(0, |len| usize::from(u16::from_ne_bytes([len[0], len[1]])));
    if len < HEAD || len > bytes.len() {
        let damaged = damaged("perf_event_header", bytes);
        *bytes = &[];
        return Some(Err(damaged));
    }
    let (record, rest) = bytes.split_at(len);
    *bytes = rest;
    Some(decode(record).ok_or_else(|| damaged("perf_event", record)))
}

fn damaged(what: &'static str, bytes: &[u8]) -> DamagedRecord {
    DamagedRecord { what, expected: HEAD, found: bytes.len() }
}

/// Decodes a whole record.
fn decode(record: &[u8]) -> Option<ProcessRecord> {
    let half = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    let word = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let misc = half(4)? as u16;
    // The time is the last field of each record; text in its body ends before it.
    let end = record.len().checked_sub(8).filter(|end| *end >= HEAD)?;
    let at = word(end)?;
    let body = |len: usize| (HEAD + len <= end).then_some(());
    let what = match half(0)? {
        FORK => {
            body(24)?;
            ProcessChange::Fork { pid: half(8)?, parent: half(12)? }
        }
        EXIT => {
            body(24)?;
            ProcessChange::Exit { pid: half(8)?, tid: half(16)? }
        }
        COMM => {
            body(8)?;
            ProcessChange::Name { pid: half(8)?, comm: comm(&record[16..end]), exec: misc & BY_EXEC != 0 }
        }
        MMAP2 => {
            body(64)?;
            let (start, bytes) = (word(16)?, word(24)?);
            let name = &record[72..end];
            let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
            let known = misc & BUILD_ID == 0;
            let mapping = Mapping {
                start,
                end: start.checked_add(bytes).filter(|end| *end > start)?,
                offset: word(32)?,
                device: if known { (half(40)?, half(44)?) } else { (0, 0) },
                inode: if known { word(48)? } else { 0 },
                path: Arc::default(),
                deleted: false,
            };
            ProcessChange::Mapped { pid: half(8)?, mapping: mapping.named(name) }
        }
        LOST => {
            body(16)?;
            ProcessChange::Lost(word(16)?)
        }
        _ => ProcessChange::Other,
    };
    Some(ProcessRecord { at, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[&[u8]], at: u64) -> Vec<u8> {
        let body = body.concat();
        let len = (HEAD + body.len() + 8) as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &len.to_ne_bytes(), &body, &at.to_ne_bytes()].concat()
    }

    fn ids(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn words(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    fn all(mut bytes: &[u8]) -> Vec<Result<ProcessRecord, DamagedRecord>> {
        std::iter::from_fn(|| next(&mut bytes)).collect()
    }

    #[test]
    fn records_of_each_kind() {
        let mapped = |misc, name: &[u8]| {
            let device = ids(&[0xfe, 1]);
            let (place, inode) = (words(&[0x1000, 0x2000, 0x3000]), words(&[77, 5]));
            record(MMAP2, misc, &[&ids(&[7, 8]), &place, &device, &inode, &ids(&[5, 2]), name], 5)
        };
        let bytes = [
            record(FORK, 0, &[&ids(&[7, 6, 8, 6]), &words(&[1])], 1),
            record(COMM, BY_EXEC, &[&ids(&[7, 8]), b"a b\xff\0\0\0\0"], 2),
            record(EXIT, 0, &[&ids(&[7, 6, 8, 6]), &words(&[3])], 3),
            record(LOST, 0, &[&words(&[9, 12])], 4),
            mapped(0, b"/x y (deleted)\0\0"),
            mapped(0, b"//anon\0\0"),
            mapped(BUILD_ID, b"/x\0\0\0\0\0\0"),
            record(99, 0, &[], 6),
        ];
        let all: Vec<ProcessRecord> = all(&bytes.concat()).into_iter().map(Result::unwrap).collect();
        assert_eq!(all.iter().map(|record| record.at).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 5, 5, 6]);
        assert_eq!(all[0].what, ProcessChange::Fork { pid: 7, parent: 6 });
        assert_eq!(all[1].what, ProcessChange::Name { pid: 7, comm: comm(b"a b\xff"), exec: true });
        assert_eq!(all[2].what, ProcessChange::Exit { pid: 7, tid: 8 });
        assert_eq!(all[3].what, ProcessChange::Lost(12));
        let ProcessChange::Mapped { pid: 7, mapping } = &all[4].what else { panic!("{:?}", all[4]) };
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x1000, 0x3000, 0x3000));
        assert_eq!((mapping.device, mapping.inode, mapping.deleted), ((0xfe, 1), 77, true));
        assert_eq!(&*mapping.path, b"/x y");
        let paths = |at: usize| match &all[at].what {
            ProcessChange::Mapped { mapping, .. } => (mapping.path.to_vec(), mapping.inode),
            other => panic!("{other:?}"),
        };
        assert_eq!(paths(5), (Vec::new(), 77), "memory without a name");
        assert_eq!(paths(6), (b"/x".to_vec(), 0), "by its build-id: no file of ours");
        assert_eq!(all[7].what, ProcessChange::Other);
    }

    #[test]
    fn a_short_record_is_damaged_and_the_next_one_is_read() {
        let short = record(FORK, 0, &[&ids(&[7, 6])], 1);
        let good = record(EXIT, 0, &[&ids(&[7, 6, 8, 6]), &words(&[3])], 3);
        let both = all(&[short, good.clone()].concat());
        assert!(both[0].is_err() && both[1].is_ok(), "{both:?}");
        assert!(matches!(all(&good[..good.len() - 1])[..], [Err(_)]), "it ends in the middle");
        assert!(matches!(all(&[0; 64])[..], [Err(_)]), "no length: nothing behind it can be found");
        let turned =
            [&ids(&[7, 8])[..], &words(&[u64::MAX, 2, 0, 0, 0, 0]), &ids(&[5, 2]), b"/x\0\0\0\0\0\0"];
        assert!(matches!(all(&record(MMAP2, 0, &turned, 1))[..], [Err(_)]), "an end before its start");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(all(&bytes).len() <= bytes.len());
        }

        #[test]
        fn any_body_of_any_kind_is_read(kind in 0u32..20, misc: u16, body in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(all(&record(kind, misc, &[&body], 1)).len(), 1);
        }
    }
}
