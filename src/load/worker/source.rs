//! The source of a thread's I/Os: the job's sequence, or the read-back.

use super::super::job::Direction;
use super::super::sequence::{PlannedIo, ReadBack, Sequence};
use super::unwritten::Unwritten;

/// The source of I/Os.
pub enum IoSource {
    Order(Sequence),
    /// The read-back of what was written.
    ReadBack(ReadBackSource),
}

/// The reads of the read-back.
pub struct ReadBackSource {
    back: ReadBack,
    unwritten: Unwritten,
    /// Writes that are not read back because they failed.
    pub skipped: u64,
    /// It ended before everything was read.
    pub cut: bool,
}

impl IoSource {
    pub fn read_back(back: ReadBack, unwritten: Unwritten) -> Self {
        Self::ReadBack(ReadBackSource { back, unwritten, skipped: 0, cut: false })
    }

    #[inline]
    pub fn next(&mut self) -> Option<PlannedIo> {
        match self {
            Self::Order(sequence) => sequence.next(),
            Self::ReadBack(look) => look.next(),
        }
    }

    pub fn want(&mut self, direction: Direction) {
        if let Self::Order(sequence) = self {
            sequence.want(direction);
        }
    }

    pub fn finish(&mut self) {
        match self {
            Self::Order(sequence) => sequence.finish(),
            Self::ReadBack(look) => look.finish(),
        }
    }
}

impl ReadBackSource {
    fn next(&mut self) -> Option<PlannedIo> {
        loop {
            let piece = self.back.next()?;
            if !self.unwritten.has(&piece) {
                return Some(piece);
            }
            self.skipped += 1;
        }
    }

    /// Stops.
    pub fn finish(&mut self) {
        self.cut |= self.next().is_some();
        self.back.finish();
    }
}
