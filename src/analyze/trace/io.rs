//! One traced I/O.

use super::super::op::Op;
use super::super::stage::Stage;
use super::operation::TracedOperation;
use crate::wire::files::WireFile;
use crate::wire::task_name;

/// One I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedIo {
    /// Unique in the run.
    pub number: u64,
    /// Index among the devices of the scene.
    pub device: usize,
    /// None: its device has no requests, so it is a bio.
    pub queue: Option<u32>,
    pub op: Option<Op>,
    /// `REQ_*`, operation included.
    pub flags: u32,
    /// On the disk; None where it has no position, such as a flush.
    pub offset: Option<u64>,
    /// None: unknown.
    pub bytes: Option<u32>,
    /// Additional I/Os in the kernel's count: a bio that its driver splits counts as several.
    pub further: u32,
    /// CLOCK_MONOTONIC; None: before the trace, or never.
    pub queued_ns: Option<u64>,
    pub issued_ns: Option<u64>,
    pub ended_ns: u64,
    /// Queue, device and complete.
    pub stages: StageTimes,
    /// From `queued_ns` to `ended_ns`, or from `issued_ns` if only that is known.
    pub total_ns: Option<u64>,
    /// It was issued before the trace, and so has no stages.
    pub started_before: bool,
    /// A stage ended before it began: the clocks disagree.
    pub negative: bool,
    /// After its data it waited for a flush, which is included in `total_ns` but in no stage.
    pub flushed: bool,
    pub owner: Option<Owner>,
    /// The file of its first bio, if requested and found.
    pub file: Option<WireFile>,
    /// The call path of its submission, if recorded.
    pub route: Option<Route>,
    pub completion_cpu: u32,
    pub operation: Option<TracedOperation>,
    /// Other operations that ended with this I/O, because their bios were merged into it.
    pub merged: Vec<TracedOperation>,
}

/// The files of these I/Os, each with the process that submitted it; 0: unknown.
pub fn openers(ios: &[TracedIo]) -> impl Iterator<Item = (WireFile, u32)> {
    ios.iter().filter_map(|io| Some((io.file?, io.owner.map_or(0, |owner| owner.pid))))
}

/// The known stages, in the order of [`Stage::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes(pub(super) [Option<u64>; 5]);

impl StageTimes {
    /// For tests.
    #[cfg(test)]
    pub(crate) fn of(all: &[(Stage, u64)]) -> Self {
        let mut stages = Self::default();
        all.iter().for_each(|(stage, ns)| stages.0[*stage as usize] = Some(*ns));
        stages
    }

    /// Name and length of each known stage.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, u64)> + '_ {
        Stage::ALL.into_iter().zip(self.0).filter_map(|(stage, ns)| Some((stage, ns?)))
    }

    pub fn get(&self, stage: Stage) -> Option<u64> {
        self.0[stage as usize]
    }

    /// For an operation on a device without requests: all time of its bio is device time.
    pub fn of_bio(mut self) -> Self {
        self.0[Stage::Queue as usize] = None;
        self
    }
}

/// The stack of an I/O's submission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Route {
    /// The id of the stack.
    pub stack: u32,
    /// Number of I/Os that this one represents.
    pub stands_for: u64,
    /// Requests that waited in the submitter's plug while the stack was taken.
    pub plugged: u8,
    /// Duration of taking the stack.
    pub took_ns: u64,
    /// Set for a part of a split bio: another I/O has the same stack.
    pub part: bool,
}

/// The task that submitted an I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub tid: u32,
    /// Any bytes, up to the first zero.
    pub comm: [u8; 16],
    /// The kernel's id; None for a kernel without the block controller.
    pub cgroup: Option<u64>,
    /// The CPU where it ran.
    pub cpu: u32,
    /// Whether it is a kernel thread.
    pub kernel: bool,
}

impl Owner {
    /// The name of the task, with invalid text replaced.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(task_name(&self.comm))
    }
}
