//! Attributes I/Os to files, and to what is not a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sharing::part;
use crate::merge::{Merge, Row, merge_fields};
use crate::names::names;
use crate::wire::files::{
    FILE_JOURNAL, FILE_METADATA, FILE_OTHERS, FILE_RAW_DEVICE, FILE_REGULAR, FILE_SWAP, FileSample, WireFile,
};

/// What an I/O reads or writes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct IoFile {
    pub kind: FileKind,
    /// The file system's, or of what is no file the block device's: `MAJOR:MINOR`.
    pub device: String,
    /// Of a regular file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// None where no process had it open when it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

names! {
    /// What kind of object it is.
    #[derive(Hash)]
    pub enum FileKind {
        Regular = "regular",
        RawDevice = "raw_device",
        Swap = "swap",
        Metadata = "metadata",
        Journal = "journal",
    }
}

impl IoFile {
    /// With its path, if found. None: it is not known what the I/O belongs to.
    pub fn new(file: &WireFile, path: Option<&str>) -> Option<Self> {
        let kind = match file.kind {
            FILE_REGULAR => FileKind::Regular,
            FILE_RAW_DEVICE => FileKind::RawDevice,
            FILE_SWAP => FileKind::Swap,
            FILE_METADATA => FileKind::Metadata,
            FILE_JOURNAL => FileKind::Journal,
            _ => return None,
        };
        let (major, minor) = file.major_minor();
        let inode = (kind == FileKind::Regular).then_some(file.inode);
        let path = inode.and(path).map(str::to_string);
        Some(Self { kind, device: format!("{major}:{minor}"), inode, path })
    }

    /// The path, otherwise kind and place: `[swap] 254:0`. Not escaped.
    pub fn label(&self) -> String {
        match (&self.path, self.inode) {
            (Some(path), _) => path.clone(),
            (None, Some(inode)) => format!("[inode {inode}] {}", self.device),
            (None, None) => format!("[{}] {}", self.kind.name().replace('_', " "), self.device),
        }
    }
}

/// The bios of a file on a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FileIos {
    /// None: it is not known, as of discards and flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<IoFile>,
    /// All files for which the table had no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    /// Scaled up from `sampled`.
    pub bios: u64,
    /// Of reads and writes, likewise.
    pub bytes: u64,
    /// Bios whose file was found.
    #[serde(rename = "sampled_bios")]
    pub sampled: u64,
    /// Its part of the bytes of all rows, or of their bios where none has any.
    pub share: f64,
}

merge_fields!(FileIos { first: file others; add: bios bytes sampled; derived: share; });

impl Merge for FileIos {
    fn merge_with(&mut self, later: &Self) {
        self.merge_fields(later);
        if let (Some(IoFile { path: path @ None, .. }), Some(later)) = (&mut self.file, &later.file) {
            path.clone_from(&later.path);
        }
    }
}

impl Row for FileIos {
    /// Excludes the path, which may be found only later.
    type Key = (bool, Option<(FileKind, String, Option<u64>)>);

    fn key(&self) -> Self::Key {
        (self.others, self.file.as_ref().map(|file| (file.kind, file.device.clone(), file.inode)))
    }
}

/// The measured bios by file, most bytes first.
pub fn by_file(samples: &[FileSample]) -> Vec<FileIos> {
    let measured = samples.iter().filter(|row| row.selected || row.file.kind == FILE_OTHERS);
    let row = |row: &FileSample| FileIos {
        file: IoFile::new(&row.file, row.path.as_deref()),
        others: row.file.kind == FILE_OTHERS,
        bios: row.bios,
        bytes: row.bytes,
        sampled: row.sampled,
        share: 0.0,
    };
    let mut rows: Vec<FileIos> = measured.map(row).collect();
    settle(&mut rows);
    rows
}

/// Computes the shares and sorts.
pub fn settle(rows: &mut [FileIos]) {
    let sum = |of: fn(&FileIos) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let (bytes, bios) = (sum(|row| row.bytes), sum(|row| row.bios));
    for row in rows.iter_mut() {
        row.share = if bytes > 0 { part(row.bytes, bytes) } else { part(row.bios, bios) };
    }
    let label = |row: &FileIos| row.file.as_ref().map(IoFile::label);
    rows.sort_by(|a, b| (b.bytes, b.bios, label(a)).cmp(&(a.bytes, a.bios, label(b))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: u32, path: Option<&str>) -> Option<IoFile> {
        IoFile::new(&WireFile { inode: 9, device: 8 << 20 | 1, kind }, path)
    }

    #[test]
    fn a_file_has_its_name_and_what_is_none_says_what_it_is() {
        let label = |kind, path| file(kind, path).map(|file| file.label());
        assert_eq!(label(FILE_REGULAR, Some("/a")).as_deref(), Some("/a"));
        assert_eq!(label(FILE_REGULAR, None).as_deref(), Some("[inode 9] 8:1"));
        assert_eq!(label(FILE_RAW_DEVICE, None).as_deref(), Some("[raw device] 8:1"));
        assert_eq!(label(FILE_SWAP, None).as_deref(), Some("[swap] 8:1"));
        assert_eq!(label(FILE_METADATA, None).as_deref(), Some("[metadata] 8:1"));
        assert_eq!(label(FILE_JOURNAL, None).as_deref(), Some("[journal] 8:1"));
        assert_eq!((label(0, None), label(FILE_OTHERS, None)), (None, None));
    }

    #[test]
    fn shares_are_of_the_measured_bios_alone() {
        let row = |kind, inode, bytes, selected| FileSample {
            file: WireFile { inode, device: 1, kind },
            bios: 1,
            bytes,
            sampled: 1,
            selected,
            ..FileSample::default()
        };
        let all = [
            row(FILE_REGULAR, 1, 1_000, true),
            row(FILE_REGULAR, 2, 9_000, false),
            row(FILE_OTHERS, 0, 3_000, false),
            row(0, 0, 0, true),
        ];
        let shown: Vec<_> = by_file(&all).iter().map(|row| (row.others, row.bytes, row.share)).collect();
        assert_eq!(shown, [(true, 3_000, 0.75), (false, 1_000, 0.25), (false, 0, 0.0)]);
        let flushes = by_file(&[row(0, 0, 0, true), row(FILE_REGULAR, 1, 0, true)]);
        assert_eq!(flushes[0].share, 0.5, "of the bios, where there are no bytes");
        assert!(by_file(&[]).is_empty());
    }
}
