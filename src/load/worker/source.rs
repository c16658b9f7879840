//! Where the I/Os of a thread come from.

use super::super::job::Direction;
use super::super::sequence::{Piece, ReadBack, Sequence};
use super::unwritten::Unwritten;

/// Where I/Os come from.
pub enum Source {
    Order(Sequence),
    /// What was written is looked at.
    ReadBack(Completions),
}

/// The reads of what was written.
pub struct Completions {
    back: ReadBack,
    unwritten: Unwritten,
    /// Writes that were left out, as they had failed.
    pub skipped: u64,
    /// It ended before all was read.
    pub cut: bool,
}

impl Source {
    pub fn read_back(back: ReadBack, unwritten: Unwritten) -> Self {
        Self::ReadBack(Completions { back, unwritten, skipped: 0, cut: false })
    }

    #[inline]
    pub fn next(&mut self) -> Option<Piece> {
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

impl Completions {
    fn next(&mut self) -> Option<Piece> {
        loop {
            let piece = self.back.next()?;
            if !self.unwritten.has(&piece) {
                return Some(piece);
            }
            self.skipped += 1;
        }
    }

    /// Nothing more.
    pub fn finish(&mut self) {
        self.cut |= self.next().is_some();
        self.back.finish();
    }
}
