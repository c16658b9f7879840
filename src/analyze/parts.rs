//! Parts of stages: what the time of a stage was spent on.

use std::collections::BTreeMap;

use super::stage::Stage;
use crate::hist::Histogram;
use crate::wire::parts::{PARTS, PartRow};

/// A part of a stage, in the order of `enum wire_part`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `submit`: from the system call's entry to this request of its batch (`io_uring_submit_req`).
    SubmitBatch,
    /// `submit`: from being handed to a worker of io_uring to the block layer.
    IoWq,
    /// `queue`: held by blk-throttle.
    Throttle,
    /// `queue`: until the bio had a request: freezes, tags, quality of service.
    Alloc,
    /// `queue`: on the task's plug list, or on the way to the driver.
    Plug,
    /// `queue`: in a scheduler's or a software queue.
    Sched,
    /// `queue`: refused by the driver, until it took the request.
    Requeue,
    /// `device`: until it was tried again after an error or a timeout.
    Retry,
    /// `complete`: the rest of the interrupt's batch, the way to the completing CPU.
    CompleteBatch,
    /// `complete`: the callbacks of the request's bios.
    Endio,
    /// `complete`: from there to the CQE: task work.
    Cqe,
    /// `reap`: the waiter was woken and waited for a CPU.
    Wake,
}

impl Part {
    pub const ALL: [Self; PARTS] = [
        Self::SubmitBatch,
        Self::IoWq,
        Self::Throttle,
        Self::Alloc,
        Self::Plug,
        Self::Sched,
        Self::Requeue,
        Self::Retry,
        Self::CompleteBatch,
        Self::Endio,
        Self::Cqe,
        Self::Wake,
    ];

    /// The word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::SubmitBatch | Self::CompleteBatch => "batch",
            Self::IoWq => "io-wq",
            Self::Throttle => "throttle",
            Self::Alloc => "alloc",
            Self::Plug => "plug",
            Self::Sched => "sched",
            Self::Requeue => "requeue",
            Self::Retry => "retry",
            Self::Endio => "endio",
            Self::Cqe => "cqe",
            Self::Wake => "wake",
        }
    }

    /// The stage that it is part of.
    pub fn stage(self) -> Stage {
        match self {
            Self::SubmitBatch | Self::IoWq => Stage::Submit,
            Self::Throttle | Self::Alloc | Self::Plug | Self::Sched | Self::Requeue => Stage::Queue,
            Self::Retry => Stage::Device,
            Self::CompleteBatch | Self::Endio | Self::Cqe => Stage::Complete,
            Self::Wake => Stage::Reap,
        }
    }
}

/// The parts that occurred; one that did not has no key.
pub type Parts = BTreeMap<Part, Histogram>;

pub fn summarize(row: &PartRow) -> Parts {
    Part::ALL
        .into_iter()
        .zip(&row.parts)
        .filter(|(_, hist)| !hist.is_empty())
        .map(|(part, hist)| (part, hist.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_did_not_occur_has_no_key() {
        let mut row = PartRow { parts: Default::default(), unknown: 0 };
        row.parts[5].record(7000);
        let parts = summarize(&row);
        assert_eq!(
            parts.keys().map(|p| (p.stage(), p.name())).collect::<Vec<_>>(),
            [(Stage::Queue, "sched")]
        );
    }

    #[test]
    fn no_two_parts_of_a_stage_share_a_name() {
        let mut names: Vec<_> = Part::ALL.map(|p| (p.stage(), p.name())).to_vec();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), PARTS);
    }
}
