//! The read-back: runs the loop once more to verify what the load wrote.

use std::io;

use super::super::super::engine::Engine;
use super::super::super::job::OnError;
use super::super::super::tally::Tally;
use super::super::source::IoSource;
use super::{Cycle, slot_bytes};

impl Cycle<'_> {
    /// Reads what was written, and compares it. It changes only the failures of the load's figures.
    pub(super) fn look_back<E: Engine>(&mut self, engine: &mut E) -> io::Result<()> {
        let IoSource::Order(sequence) = &self.source else { return Ok(()) };
        let back = sequence.read_back(self.job, self.regions, self.number, self.looped);
        self.source = IoSource::read_back(back, std::mem::take(&mut self.unwritten));
        (self.over, self.failures, self.pending, self.cache) = (false, 0, None, None);
        (self.floor, self.priorities) = (None, None);
        let (tally, last) =
            (std::mem::replace(&mut self.tally, Tally::begin(self.last, u64::MAX)), self.last);
        let looked = self.turn(engine, u64::MAX);
        let found = std::mem::replace(&mut self.tally, tally);
        self.tally.absorb_failures(found);
        self.last = last;
        if let IoSource::ReadBack(look) = &mut self.source {
            // Consecutive errors end it too.
            look.finish();
            self.verification.ended(look);
        }
        looked
    }

    /// Compares the blocks that were read back.
    #[cold]
    pub(super) fn check<E: Engine>(&mut self, engine: &mut E) {
        let Self { verification, content, trips, tally, .. } = self;
        for slot in verification.unchecked.drain(..) {
            let trip = &trips[slot as usize];
            match content.check(slot_bytes(engine, slot, trip.load.bytes()), trip.offset) {
                Ok(()) => verification.right += 1,
                Err(mismatch) => {
                    tally.failed(trip, libc::EILSEQ);
                    verification.mismatch.get_or_insert(mismatch);
                    self.over |= self.job.on_error == OnError::Stop;
                }
            }
        }
    }
}
