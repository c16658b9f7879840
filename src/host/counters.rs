//! Reads the kernel's own I/O counters of a device, against which biopsy checks every result.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::attribute::{file, flag};

/// `/sys/block/D/stat` and `/sys/block/D/inflight`. Counts never decrease while the device exists.
///
/// Sectors are 512 bytes on every device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub reads: u64,
    pub read_merges: u64,
    pub read_sectors: u64,
    pub read_ms: u64,
    /// Includes write-zeroes and waiters of empty flushes.
    pub writes: u64,
    pub write_merges: u64,
    pub write_sectors: u64,
    pub write_ms: u64,
    /// Started and not finished, as the kernel counts: requests on request-based devices, else bios.
    pub in_flight: u64,
    /// Time during which at least one I/O was in flight.
    pub io_ms: u64,
    /// The sum over I/Os of their time in flight.
    pub weighted_ms: u64,
    /// Since 4.18.
    pub discards: Option<u64>,
    pub discard_merges: Option<u64>,
    pub discard_sectors: Option<u64>,
    pub discard_ms: Option<u64>,
    /// Flush commands sent to the device. Since 5.5.
    pub flushes: Option<u64>,
    pub flush_ms: Option<u64>,
    /// From `inflight`, separately for reads and writes; None if that file is missing or garbled.
    pub in_flight_reads: Option<u64>,
    pub in_flight_writes: Option<u64>,
    /// `queue/iostats`: if false, the counters above do not change.
    pub iostats: Option<bool>,
    /// Passthrough commands count as reads and writes: `queue/iostats_passthrough`, since 6.14.
    pub passthrough: Option<bool>,
}

impl Counters {
    /// Reads the counters of the disk or partition `name`.
    ///
    /// NotFound: the device does not exist (any more). InvalidData: the kernel printed another format.
    pub fn read(root: &Path, name: &str) -> Result<Self> {
        let directory = directory(root, name)?;
        let mut counters = Self::parse_or_error(&directory)?;
        if let Ok(text) = file(&directory.join("inflight")) {
            let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
            counters.in_flight_reads = numbers.next().flatten();
            counters.in_flight_writes = numbers.next().flatten();
        }
        // A partition has the queue of its disk.
        let queue = match directory.join("partition").exists() {
            true => directory.join("../queue"),
            false => directory.join("queue"),
        };
        counters.iostats = flag(&queue.join("iostats"));
        counters.passthrough = flag(&queue.join("iostats_passthrough"));
        Ok(counters)
    }

    /// Reads only `stat`, not the attributes with a file of their own: for callers that sample ten times a second.
    pub fn read_counts(root: &Path, name: &str) -> Result<Self> {
        Self::parse_or_error(&directory(root, name)?)
    }

    fn parse_or_error(directory: &Path) -> Result<Self> {
        Self::parse(&file(&directory.join("stat"))?)
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, "its stat file has an unknown format"))
    }

    /// Parses the line of `stat`: 11 fields at first, 15 with discards, 17 with flushes.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<u64> =
            line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
        if fields.len() < 11 {
            return None;
        }
        let optional = |index: usize| fields.get(index).copied();
        Some(Self {
            reads: fields[0],
            read_merges: fields[1],
            read_sectors: fields[2],
            read_ms: fields[3],
            writes: fields[4],
            write_merges: fields[5],
            write_sectors: fields[6],
            write_ms: fields[7],
            in_flight: fields[8],
            io_ms: fields[9],
            weighted_ms: fields[10],
            discards: optional(11),
            discard_merges: optional(12),
            discard_sectors: optional(13),
            discard_ms: optional(14),
            flushes: optional(15),
            flush_ms: optional(16),
            in_flight_reads: None,
            in_flight_writes: None,
            iostats: None,
            passthrough: None,
        })
    }

    /// I/Os of every kind that the kernel counted.
    pub fn ios(&self) -> u64 {
        [self.writes, self.discards.unwrap_or(0), self.flushes.unwrap_or(0)]
            .iter()
            .fold(self.reads, |sum, n| sum.wrapping_add(*n))
    }
}

/// The directory of a disk or partition.
fn directory(root: &Path, name: &str) -> Result<PathBuf> {
    // The name becomes part of a path; a name with a slash would lead elsewhere.
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Error::new(ErrorKind::NotFound, "not the name of a block device"));
    }
    let disk = root.join("sys/block").join(name);
    // Partitions are listed only in the class.
    Ok(if disk.exists() { disk } else { root.join("sys/class/block").join(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_place() {
        let counters = Counters::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").unwrap();
        assert_eq!((counters.reads, counters.read_ms, counters.writes, counters.write_sectors), (1, 4, 5, 7));
        assert_eq!((counters.in_flight, counters.io_ms, counters.weighted_ms), (9, 10, 11));
        assert_eq!((counters.discards, counters.discard_ms), (Some(12), Some(15)));
        assert_eq!((counters.flushes, counters.flush_ms), (Some(16), Some(17)));
        assert_eq!(counters.ios(), 1 + 5 + 12 + 16);
    }

    #[test]
    fn an_old_kernel_has_no_discards_and_no_flushes() {
        let counters = Counters::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((counters.discards, counters.flushes), (None, None));
        assert_eq!(Counters::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15").unwrap().flushes, None);
    }

    #[test]
    fn garbled_counters_are_an_error_and_not_zero() {
        for line in ["", "1 2 3", "1 2 3 4 5 6 7 8 9 10 x", "99999999999999999999999 2 3 4 5 6 7 8 9 10 11"] {
            assert_eq!(Counters::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_name_is_no_path() {
        for name in ["", ".", "..", "../block/vda", "a/b"] {
            assert_eq!(Counters::read(Path::new("/"), name).unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
}
