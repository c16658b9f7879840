//! Decodes the files that bios read or write, and the bios counted by device and file.

use super::{DamagedRecord, Record, since_by_key};

pub use super::records::{WireFile, WireFileIos, WireFileKey};

/// `enum wire_file_kind`.
pub const FILE_REGULAR: u32 = 1;
pub const FILE_RAW_DEVICE: u32 = 2;
pub const FILE_SWAP: u32 = 3;
pub const FILE_METADATA: u32 = 4;
pub const FILE_JOURNAL: u32 = 5;
/// All files that had no room in the table.
pub const FILE_OTHERS: u32 = 6;

/// The file is looked up for every bio, for groups or events.
pub const FILES_EACH: u32 = 1;
/// Bios are counted by device and file.
pub const FILES_COUNTED: u32 = 2;

impl WireFile {
    /// Major and minor number, in the kernel's own encoding (MINORBITS is 20).
    pub fn major_minor(&self) -> (u32, u32) {
        (self.device >> 20, self.device & 0xf_ffff)
    }
}

/// The bios of one file on one device so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSample {
    pub file: WireFile,
    /// Any text; None: no path was found.
    pub path: Option<String>,
    /// The bios passed the filter, or there is no filter.
    pub selected: bool,
    /// Scaled up from `sampled`.
    pub bios: u64,
    /// Of reads and writes, also scaled up.
    pub bytes: u64,
    pub sampled: u64,
    /// The process that submitted the first of them.
    pub opener: u32,
}

impl FileSample {
    /// Decodes a row with the number of its device.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<(u32, Self), DamagedRecord> {
        let key = <WireFileKey as Record>::decode(key)?;
        let row = <WireFileIos as Record>::decode(value)?;
        let decoded = Self {
            file: key.file,
            path: None,
            selected: key.selected != 0,
            bios: row.bios,
            bytes: row.bytes,
            sampled: row.sampled,
            opener: row.opener,
        };
        Ok((key.device, decoded))
    }

    /// Subtracts from each row of `now` what was counted before.
    pub fn since(now: &[Self], earlier: &[Self]) -> Vec<Self> {
        let less = |row: &Self, then: &Self| Self {
            bios: row.bios.saturating_sub(then.bios),
            bytes: row.bytes.saturating_sub(then.bytes),
            sampled: row.sampled.saturating_sub(then.sampled),
            ..row.clone()
        };
        let mut rows = since_by_key(now, earlier, |row| (row.file, row.selected), less);
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
        let file = WireFile { inode: 12, device: 8 << 20 | 1, kind: FILE_REGULAR };
        let key = WireFileKey { file, device: 3, selected: 1 };
        let row = WireFileIos { bios: 272, bytes: 272 << 12, sampled: 257, opener: 7, pad: 0 };
        let (device, decoded) = FileSample::decode(key.as_bytes(), row.as_bytes()).unwrap();
        assert_eq!((device, decoded.file.major_minor(), decoded.opener), (3, (8, 1), 7));
        assert_eq!((decoded.bios, decoded.sampled, decoded.selected), (272, 257, true));
        assert!(FileSample::decode(&key.as_bytes()[1..], row.as_bytes()).is_err());
        assert!(FileSample::decode(key.as_bytes(), &row.as_bytes()[1..]).is_err());
    }

    #[test]
    fn what_came_before_is_left_out() {
        let row = |inode, bios| FileSample {
            file: WireFile { inode, device: 1, kind: FILE_REGULAR },
            bios,
            sampled: bios,
            ..FileSample::default()
        };
        let delta = FileSample::since(&[row(1, 5), row(2, 7), row(3, 4)], &[row(1, 5), row(2, 3)]);
        assert_eq!(delta, [row(2, 4), row(3, 4)]);
    }
}
