//! Parts of stages: what the time of a stage was spent on.

use std::collections::BTreeMap;

use super::stage::Stage;
use crate::hist::Histogram;
use crate::names::names;
use crate::wire::parts::{PARTS, PartRow};

names! {
    /// A part of a stage.
    #[derive(PartialOrd, Ord)]
    pub enum Part {
        /// `submit`: from the system call's entry to this request of its batch (`io_uring_submit_req`). `complete`: the
        /// rest of the interrupt's batch, and the transfer to the completing CPU.
        Batch = "batch",
        /// `submit`: from the hand-off to an io_uring worker to the block layer.
        IoWq = "io-wq",
        /// `queue`: throttled by blk-throttle.
        Throttle = "throttle",
        /// `queue`: until the bio had a request: freezes, tags, quality of service.
        Alloc = "alloc",
        /// `queue`: on the task's plug list, or on the path to the driver.
        Plug = "plug",
        /// `queue`: in an I/O scheduler or a software queue.
        Sched = "sched",
        /// `queue`: refused by the driver, until it took the request.
        Requeue = "requeue",
        /// `device`: until the retry after an error or a timeout.
        Retry = "retry",
        /// `complete`: the callbacks of the request's bios.
        Endio = "endio",
        /// `complete`: from there to the CQE: task work.
        Cqe = "cqe",
        /// `reap`: the waiter was woken and waited for a CPU.
        Wake = "wake",
    }
}

/// In the order of `enum wire_part`.
const WIRE: [(Stage, Part); PARTS] = [
    (Stage::Submit, Part::Batch),
    (Stage::Submit, Part::IoWq),
    (Stage::Queue, Part::Throttle),
    (Stage::Queue, Part::Alloc),
    (Stage::Queue, Part::Plug),
    (Stage::Queue, Part::Sched),
    (Stage::Queue, Part::Requeue),
    (Stage::Device, Part::Retry),
    (Stage::Complete, Part::Batch),
    (Stage::Complete, Part::Endio),
    (Stage::Complete, Part::Cqe),
    (Stage::Reap, Part::Wake),
];

/// The parts that occurred, by stage; one that did not occur has no key.
pub type Parts = BTreeMap<Stage, BTreeMap<Part, Histogram>>;

pub fn summarize(row: &PartRow) -> Parts {
    let mut parts = Parts::new();
    for ((stage, part), hist) in WIRE.into_iter().zip(&row.parts).filter(|(_, hist)| !hist.is_empty()) {
        parts.entry(stage).or_default().insert(part, hist.clone());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_did_not_occur_has_no_key() {
        let mut row = PartRow { parts: Default::default(), unknown: 0 };
        row.parts[5].record(7000);
        let of_queue = BTreeMap::from([(Part::Sched, Histogram::from_iter([7000]))]);
        assert_eq!(summarize(&row), BTreeMap::from([(Stage::Queue, of_queue)]));
    }

    #[test]
    fn no_two_parts_of_a_stage_share_a_name() {
        let distinct: std::collections::BTreeSet<_> = WIRE.into_iter().collect();
        assert_eq!(distinct.len(), PARTS);
    }
}
