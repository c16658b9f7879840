//! Remembers the failed writes of a thread, which cannot be read back.

use std::collections::BTreeMap;

use super::super::job::Direction;
use super::super::sequence::PlannedIo;
use super::super::tally::{InFlight, OpKind};

/// Writes that failed or were short, and were not repaired by a later one.
#[derive(Debug, Default)]
pub struct Unwritten {
    /// By slot, the file of its write; empty without a read-back.
    files: Vec<u16>,
    /// By file and offset, their bytes.
    pieces: BTreeMap<(u16, u64), u32>,
    /// The largest of them in bytes.
    largest: u32,
}

impl Unwritten {
    /// For this many slots; 0: disabled.
    pub fn new(slots: usize) -> Self {
        Self { files: vec![0; slots], ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// A write is submitted.
    #[inline]
    pub fn departs(&mut self, slot: u32, file: u16) {
        if let Some(place) = self.files.get_mut(slot as usize) {
            *place = file;
        }
    }

    /// The write failed or was short.
    #[cold]
    pub fn failed(&mut self, slot: u32, trip: &InFlight) {
        if let Some(place) = self.place(slot, trip) {
            let bytes = trip.load.bytes();
            let known = self.pieces.entry(place).or_default();
            *known = bytes.max(*known);
            self.largest = self.largest.max(bytes);
        }
    }

    /// The write succeeded.
    #[cold]
    pub fn arrived(&mut self, slot: u32, trip: &InFlight) {
        if let Some(place) = self.place(slot, trip)
            && self.pieces.get(&place).is_some_and(|bytes| *bytes <= trip.load.bytes())
        {
            self.pieces.remove(&place);
        }
    }

    fn place(&self, slot: u32, trip: &InFlight) -> Option<(u16, u64)> {
        let is_write = trip.load.kind() == OpKind::Transfer(Direction::Write);
        let file = self.files.get(slot as usize).filter(|_| is_write)?;
        Some((*file, trip.offset))
    }

    /// Whether any byte of a piece is among them.
    pub fn has(&self, piece: &PlannedIo) -> bool {
        let end = piece.offset + u64::from(piece.bytes);
        let first = piece.offset.saturating_sub(self.largest.into());
        let mut near = self.pieces.range((piece.file, first)..(piece.file, end));
        near.any(|((_, offset), bytes)| offset + u64::from(*bytes) > piece.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tally::ExpectedResult;
    use super::*;

    fn trip(offset: u64, bytes: u32) -> InFlight {
        InFlight {
            offset,
            load: ExpectedResult::new(bytes, OpKind::Transfer(Direction::Write), true),
            ..InFlight::NONE
        }
    }

    fn has(unwritten: &Unwritten, file: u16, offset: u64, bytes: u32) -> bool {
        unwritten.has(&PlannedIo { direction: Direction::Read, file, bytes, offset })
    }

    #[test]
    fn a_piece_that_touches_what_failed_is_known() {
        let mut unwritten = Unwritten::new(4);
        unwritten.departs(2, 1);
        unwritten.failed(2, &trip(8192, 8192));
        assert!(!has(&unwritten, 0, 8192, 8192), "another file");
        for (offset, bytes, known) in [
            (0, 8192, false),
            (4096, 8192, true),
            (8192, 512, true),
            (15_872, 512, true),
            (16_384, 4096, false),
        ] {
            assert_eq!(has(&unwritten, 1, offset, bytes), known, "{offset}");
        }
        unwritten.arrived(2, &trip(8192, 4096));
        assert!(!unwritten.is_empty(), "half of it is still missing");
        unwritten.arrived(2, &trip(8192, 8192));
        assert!(unwritten.is_empty());
    }

    #[test]
    fn only_writes_that_are_read_back_are_kept() {
        let mut nobody = Unwritten::new(0);
        nobody.departs(0, 0);
        nobody.failed(0, &trip(0, 512));
        assert!(nobody.is_empty());
        let mut reads = Unwritten::new(1);
        reads.failed(
            0,
            &InFlight {
                load: ExpectedResult::new(512, OpKind::Transfer(Direction::Read), true),
                ..trip(0, 512)
            },
        );
        assert!(reads.is_empty());
    }
}
