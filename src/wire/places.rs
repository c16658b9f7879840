//! Finds results of followed operations that no application was observed to fetch.

use super::WireSlot;

pub use super::records::{WirePlace, WireStamps};

/// `OPERATION_LIVE` and `OPERATION_ENDED` of `bpf/wire/operations.h`.
const LIVE: u32 = 1;
const ENDED: u32 = 2;

/// `SLOT_DONE` of `bpf/slots.h`; `REF_NUMBER` and `REF_WAITS` of `bpf/wire/operations.h`.
const SLOT_DONE: u8 = 6;
const REF_NUMBER: u32 = (1 << 22) - 1;
const REF_WAITS: u32 = 1 << 28;
/// `REF_CALLER` of the same file.
const REF_CALLER: u32 = 1 << 31;

/// The operation or call that an `op_ref` names; None: it names none.
pub fn operation(op_ref: u32) -> Option<u32> {
    (op_ref & REF_NUMBER != 0).then_some(op_ref & (REF_NUMBER | REF_CALLER))
}

/// The result of an operation whose fetch was not observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfetchedResult {
    pub device: u16,
    pub op: u16,
    pub ended_ns: u64,
}

impl WirePlace {
    /// `slot` in 30 bits and `state` in the two bits above: bit fields, which have no names here.
    fn slot_and_state(&self) -> u32 {
        u32::from_ne_bytes(self.pad_20)
    }

    /// The slot that will hold the result; None if the operation is over or has a result already.
    pub fn slot(&self) -> Option<u32> {
        let waits = self.slot_and_state() >> 30 == LIVE && self.parts == 0;
        (self.slot_and_state() & !(3 << 30)).checked_sub(1).filter(|_| waits)
    }

    /// The result that was not observed to be fetched; None if there is none. `index` is that of this entry, `slot` the
    /// slot of [`Self::slot`]. If the operation has several I/Os, others may still be in flight. An io_uring request
    /// may have no completion: because none was requested, or because its ring was full.
    pub fn unfetched(&self, index: u32, slot: Option<&WireSlot>) -> Option<UnfetchedResult> {
        let here = || UnfetchedResult {
            device: self.stamps.device,
            op: self.stamps.op,
            ended_ns: self.stamps.ended,
        };
        match self.slot_and_state() >> 30 {
            ENDED => Some(here()),
            LIVE if self.parts > 0 => Some(here()),
            LIVE => slot.filter(|slot| self.is_in(index, slot)).map(|slot| UnfetchedResult {
                device: slot.device,
                op: slot.op.into(),
                ended_ns: slot.ended,
            }),
            _ => None,
        }
    }

    /// Like `holds_result` of `bpf/op_table.h`.
    fn is_in(&self, index: u32, slot: &WireSlot) -> bool {
        slot.state == SLOT_DONE
            && slot.op_ref & REF_WAITS != 0
            && slot.op_ref & REF_NUMBER == index + 1
            && slot.generation == self.entered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    const REQUEST: u64 = 0xffff_8880_0000_1000;

    fn place(request: u64, state: u32, parts: u16, slot: u32) -> WirePlace {
        let stamps = WireStamps { ended: 50, device: 3, op: 1, ..WireStamps::default() };
        WirePlace {
            request,
            entered: 40,
            parts,
            pad_20: (state << 30 | slot).to_ne_bytes(),
            stamps,
            ..WirePlace::default()
        }
    }

    #[test]
    fn what_is_in_its_place_is_unfetched_when_it_has_a_result() {
        let here = Some(UnfetchedResult { device: 3, op: 1, ended_ns: 50 });
        assert_eq!(place(7, LIVE, 1, 0).unfetched(9, None), here);
        assert_eq!(place(REQUEST, ENDED, 1, 0).unfetched(9, None), here);
        assert_eq!(place(REQUEST, LIVE, 1, 0).unfetched(9, None), here);
        assert_eq!(place(7, LIVE, 0, 0).unfetched(9, None), None);
        assert_eq!(place(7, 0, 1, 0).unfetched(9, None), None);
    }

    #[test]
    fn what_is_in_a_slot_is_unfetched_while_it_is_of_this_operation() {
        let of = place(7, LIVE, 0, 12);
        assert_eq!((of.slot(), place(7, LIVE, 0, 0).slot()), (Some(11), None));
        assert_eq!((place(7, LIVE, 1, 12).slot(), place(7, 0, 0, 12).slot()), (None, None), "nobody asks it");
        let op_ref = REF_WAITS | 10;
        let slot = |state, op_ref, generation| WireSlot {
            state,
            op_ref,
            generation,
            ended: 60,
            device: 2,
            ..WireSlot::read_from_bytes(&[0; 64]).unwrap()
        };
        let there = Some(UnfetchedResult { device: 2, op: 0, ended_ns: 60 });
        assert_eq!(of.unfetched(9, Some(&slot(SLOT_DONE, op_ref, 40))), there);
        assert_eq!(of.unfetched(8, Some(&slot(SLOT_DONE, op_ref, 40))), None);
        assert_eq!(of.unfetched(9, Some(&slot(SLOT_DONE, op_ref, 41))), None);
        assert_eq!(of.unfetched(9, Some(&slot(SLOT_DONE, 10, 40))), None);
        assert_eq!(of.unfetched(9, Some(&slot(1, op_ref, 40))), None);
    }
}
