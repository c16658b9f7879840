//! One I/O as it is shown.

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
    /// Its place among the devices of the scene.
    pub device: usize,
    /// None: its device has no requests, and it is a bio.
    pub queue: Option<u32>,
    pub op: Option<Op>,
    /// `REQ_*`, operation included.
    pub flags: u32,
    /// On the disk; None where it has no place, as a flush.
    pub offset: Option<u64>,
    /// None: not known.
    pub bytes: Option<u32>,
    /// I/Os, beyond one, as which the kernel counts it: a bio that its driver splits is several.
    pub further: u32,
    /// CLOCK_MONOTONIC; None: before the trace, or never.
    pub queued_ns: Option<u64>,
    pub issued_ns: Option<u64>,
    pub ended_ns: u64,
    /// Queue, device and complete.
    pub stages: Stages,
    /// From `queued_ns` to `ended_ns`, or from `issued_ns` where that is all.
    pub total_ns: Option<u64>,
    /// It was issued before the trace, and so has no stages.
    pub started_before: bool,
    /// A stage ended before it began: the clocks disagree.
    pub negative: bool,
    /// After its data it waited for a flush, which `total_ns` has and no stage.
    pub flushed: bool,
    pub owner: Option<Owner>,
    /// What its first bio reads or writes, where that was asked for and found.
    pub file: Option<WireFile>,
    /// By which way it was handed in, where that was noted.
    pub route: Option<Route>,
    pub completion_cpu: u32,
    pub operation: Option<TracedOperation>,
    /// Other operations that ended with this I/O, since their bios were merged into it.
    pub merged: Vec<TracedOperation>,
}

/// The files of these I/Os, each with the process that submitted it; 0: that is not known.
pub fn openers(ios: &[TracedIo]) -> impl Iterator<Item = (WireFile, u32)> {
    ios.iter().filter_map(|io| Some((io.file?, io.owner.map_or(0, |owner| owner.pid))))
}

/// Stages that are there, in the order of [`Stage::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages(pub(super) [Option<u64>; 5]);

impl Stages {
    /// For tests.
    #[cfg(test)]
    pub(crate) fn of(all: &[(Stage, u64)]) -> Self {
        let mut stages = Self::default();
        all.iter().for_each(|(stage, ns)| stages.0[*stage as usize] = Some(*ns));
        stages
    }

    /// Name and length of each that is there.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, u64)> + '_ {
        Stage::ALL.into_iter().zip(self.0).filter_map(|(stage, ns)| Some((stage, ns?)))
    }

    pub fn get(&self, stage: Stage) -> Option<u64> {
        self.0[stage as usize]
    }

    /// Of an operation on a device without requests: the time of its bio is all in device.
    pub fn of_bio(mut self) -> Self {
        self.0[Stage::Queue as usize] = None;
        self
    }
}

/// The stack that an I/O was handed in by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Route {
    /// The number of the stack.
    pub stack: u32,
    /// I/Os for which this one stands.
    pub stands_for: u64,
    /// Requests that waited in the plug of who handed in while the stack was taken.
    pub plugged: u8,
    /// How long that took.
    pub took_ns: u64,
    /// Of a bio of which another I/O has the same stack, because it was split.
    pub part: bool,
}

/// The task that handed an I/O in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub tid: u32,
    /// Any bytes, up to the first zero.
    pub comm: [u8; 16],
    /// The kernel's id; None where its kernel has no block controller.
    pub cgroup: Option<u64>,
    /// Where it ran.
    pub cpu: u32,
    /// A kernel thread.
    pub kernel: bool,
}

impl Owner {
    /// The name of the task, with what is no text replaced.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(task_name(&self.comm))
    }
}
