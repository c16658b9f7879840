//! The kernel's own I/O counters of a device, which every result is checked against.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::attribute::{file, flag};

/// `/sys/block/D/stat` and `/sys/block/D/inflight`. Counts never go back while the device lives.
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
    /// Time in which anything was in flight.
    pub io_ms: u64,
    /// Σ over I/Os of their time in flight.
    pub weighted_ms: u64,
    /// Since 4.18.
    pub discards: Option<u64>,
    pub discard_merges: Option<u64>,
    pub discard_sectors: Option<u64>,
    pub discard_ms: Option<u64>,
    /// Flush commands that the device got. Since 5.5.
    pub flushes: Option<u64>,
    pub flush_ms: Option<u64>,
    /// From `inflight`, reads and writes apart; None when that file is missing or garbled.
    pub in_flight_reads: Option<u64>,
    pub in_flight_writes: Option<u64>,
    /// `queue/iostats`: with false the counters above stand still.
    pub iostats: Option<bool>,
    /// Passthrough commands are among the reads and writes: `queue/iostats_passthrough`, since 6.14.
    pub passthrough: Option<bool>,
}

impl Counters {
    /// Reads the counters of the disk or partition `name`.
    ///
    /// NotFound: no such device (any more). InvalidData: the kernel printed something else.
    pub fn read(root: &Path, name: &str) -> Result<Self> {
        let directory = directory(root, name)?;
        let mut counters = Self::parse_or_error(&directory)?;
        if let Ok(text) = file(&directory.join("inflight")) {
            let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
            counters.in_flight_reads = numbers.next().flatten();
            counters.in_flight_writes = numbers.next().flatten();
        }
        // A partition's queue is its disk's.
        let queue = match directory.join("partition").exists() {
            true => directory.join("../queue"),
            false => directory.join("queue"),
        };
        counters.iostats = flag(&queue.join("iostats"));
        counters.passthrough = flag(&queue.join("iostats_passthrough"));
        Ok(counters)
    }

    /// The same without what takes a file of its own: for those who look ten times a second.
    pub fn read_counts(root: &Path, name: &str) -> Result<Self> {
        Self::parse_or_error(&directory(root, name)?)
    }

    fn parse_or_error(directory: &Path) -> Result<Self> {
        Self::parse(&file(&directory.join("stat"))?)
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, "its stat file has an unknown format"))
    }

    /// The line of `stat`: 11 fields at first, 15 with discards, 17 with flushes.
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

/// Of a disk or partition.
fn directory(root: &Path, name: &str) -> Result<PathBuf> {
    // The name becomes a path; a name with a slash would lead elsewhere.
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Error::new(ErrorKind::NotFound, "not the name of a block device"));
    }
    let disk = root.join("sys/block").join(name);
    // Partitions are listed in the class only.
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
