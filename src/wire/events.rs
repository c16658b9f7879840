//! Decodes events from the kernel's ring buffers: one per I/O and one per operation.

use zerocopy::FromBytes;

use super::DamagedRecord;

pub use super::records::{WireEmitter, WireIo, WireOperation, WireSubmitter};

/// `enum wire_event`.
const EVENT_IO: u32 = 1;
const EVENT_OPERATION: u32 = 2;

/// `enum wire_io_marks`.
pub const IO_HAS_SUBMITTER: u32 = 1;
pub const IO_MERGED: u32 = 2;
pub const IO_STARTED_BEFORE: u32 = 4;
pub const IO_NEGATIVE: u32 = 8;
pub const IO_FUSED: u32 = 16;
pub const IO_FLUSHED: u32 = 32;
pub const IO_BIO: u32 = 64;

/// `SUBMITTER_KERNEL`.
pub const SUBMITTER_KERNEL: u8 = 1;

/// `SUBMITTER_PART`.
pub const SUBMITTER_PART: u8 = 2;

/// `NO_ROOM`.
pub const NO_ROOM: u32 = u32::MAX;

/// `STACK_TOOK_BITS`.
pub const STACK_TOOK_BITS: u32 = 7;

/// One record of a ring buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Io(WireIo),
    Operation(WireOperation),
}

impl Event {
    /// Decodes a record, which must have exactly the length of its kind.
    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedRecord> {
        let damaged = |what, expected| DamagedRecord { what, expected, found: bytes.len() };
        let Ok((kind, _)) = u32::read_from_prefix(bytes) else {
            return Err(damaged("kind of event", size_of::<u32>()));
        };
        match kind {
            EVENT_IO => WireIo::read_from_bytes(bytes)
                .map(Self::Io)
                .map_err(|_| damaged("wire_io", size_of::<WireIo>())),
            EVENT_OPERATION => WireOperation::read_from_bytes(bytes)
                .map(Self::Operation)
                .map_err(|_| damaged("wire_operation", size_of::<WireOperation>())),
            _ => Err(damaged("event of a known kind", size_of::<WireIo>())),
        }
    }
}

/// What the kernel side counted about the event stream, over all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// I/Os that match the requested classes and times.
    pub matched: u64,
    /// I/Os that were to have an event: each was received, or is in `lost_ios`.
    pub ios: u64,
    /// I/Os whose event had no room in its ring buffer.
    pub lost_ios: u64,
    /// Operations whose event had no room.
    pub lost_operations: u64,
    /// Operations that ended with the first part of an I/O that completed in parts: they have no event.
    pub early_operations: u64,
    /// Records that could not be decoded.
    pub damaged: u64,
}

impl EventCounts {
    /// Adds the counters of one CPU.
    pub fn add(&mut self, emitter: &WireEmitter) {
        // Counters in damaged bytes can overflow.
        for (all, n) in [
            (&mut self.matched, emitter.matched),
            (&mut self.ios, emitter.numbers),
            (&mut self.lost_ios, emitter.lost_ios),
            (&mut self.lost_operations, emitter.lost_operations),
            (&mut self.early_operations, emitter.early_operations),
        ] {
            *all = all.saturating_add(n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Record;

    fn record(kind: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_record_is_what_its_kind_and_length_say() {
        let mut bytes = record(EVENT_IO, 160);
        bytes[8..16].copy_from_slice(&7u64.to_ne_bytes());
        let Ok(Event::Io(io)) = Event::decode(&bytes) else { panic!("no I/O") };
        assert_eq!((io.io, io.by), (7, WireSubmitter::default()));
        let Ok(Event::Operation(_)) = Event::decode(&record(EVENT_OPERATION, 104)) else {
            panic!("no operation")
        };
    }

    #[test]
    fn every_other_length_is_an_error_value() {
        for kind in 0..4 {
            let good = [None, Some(160), Some(104), None][kind as usize];
            for length in (4..300).filter(|length| Some(*length) != good) {
                let error = Event::decode(&record(kind, length)).unwrap_err();
                assert_eq!(error.found, length);
            }
        }
        for length in 0..4 {
            assert!(Event::decode(&vec![1; length]).is_err());
        }
        assert!(WireEmitter::decode(&[0; 65]).is_err() && WireEmitter::decode(&[0; 64]).is_ok());
    }

    #[test]
    fn the_cpus_add_up() {
        let mut all = EventCounts::default();
        let one =
            WireEmitter { matched: 5, numbers: 3, lost_ios: 1, lost_operations: 2, ..WireEmitter::default() };
        all.add(&one);
        all.add(&one);
        assert_eq!((all.matched, all.ios, all.lost_ios, all.lost_operations), (10, 6, 2, 4));
        all.add(&WireEmitter { matched: u64::MAX, ..one });
        assert_eq!((all.matched, all.ios), (u64::MAX, 9));
    }
}
