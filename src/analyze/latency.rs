//! Where the time of block I/O went, per device, operation and queue.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::hist::Histogram;

/// A part of an I/O's life, in the order in which it passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Submit,
    Queue,
    Device,
    Complete,
    Reap,
}

impl Stage {
    pub const ALL: [Self; 5] = [Self::Submit, Self::Queue, Self::Device, Self::Complete, Self::Reap];

    /// The word of the contract, the same in help, tables, JSON and HTML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Complete => "complete",
            Self::Reap => "reap",
        }
    }
}

/// Class of a block-layer request. The order is that of `enum biopsy_op` in `bpf/wire.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Read,
    Write,
    Fua,
    Flush,
    EmptyFlush,
    Discard,
    WriteZeroes,
    Passthrough,
}

impl Op {
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Fua,
        Self::Flush,
        Self::EmptyFlush,
        Self::Discard,
        Self::WriteZeroes,
        Self::Passthrough,
    ];

    /// The word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Fua => "fua",
            Self::Flush => "flush",
            Self::EmptyFlush => "empty_flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
            Self::Passthrough => "passthrough",
        }
    }

    /// The field of `/sys/block/D/stat` that counts this class; none counts passthrough (unless
    /// `queue/iostats_passthrough` says so, which is read as *not comparable*).
    pub fn kernel_class(self) -> Option<KernelClass> {
        match self {
            Self::Read => Some(KernelClass::Read),
            Self::Write | Self::Fua | Self::EmptyFlush | Self::WriteZeroes => Some(KernelClass::Write),
            Self::Flush => Some(KernelClass::Flush),
            Self::Discard => Some(KernelClass::Discard),
            Self::Passthrough => None,
        }
    }
}

/// A class of the kernel's own I/O counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelClass {
    Read,
    Write,
    Discard,
    Flush,
}

/// What the kernel's counters allow: `min` between the inner readings, `max` between the outer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bracket {
    pub min: u64,
    pub max: u64,
}

impl Bracket {
    pub fn holds(self, seen: u64) -> bool {
        self.min <= seen && seen <= self.max
    }
}

/// The view of `biopsy latency`. Devices are sorted by I/Os, most first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatencySummary {
    pub duration_ns: u64,
    pub devices: Vec<DeviceLatency>,
}

/// One request-based block device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceLatency {
    pub name: String,
    /// I/Os (requests) that completed in the window and are not in `lost`: timed ones and those
    /// that had started before the trace.
    pub ios: u64,
    pub bytes: u64,
    /// I/Os of this device that are lost (seen to complete, without a start).
    pub lost_ios: u64,
    /// Of `ios`: started before the trace, so counted and not timed.
    pub started_before: u64,
    /// Application operations, where a join or the generator counts them.
    pub operations: Option<u64>,
    /// None: the kernel does not count this device (`iostats` off) or its counter was not readable.
    pub kernel: Option<BTreeMap<KernelClass, Bracket>>,
    /// I/Os in flight as the kernel counted them when the probes were attached and detached.
    pub in_flight_start: Option<u64>,
    pub in_flight_end: Option<u64>,
    /// Bios that the block layer cut.
    pub splits: u64,
    /// Bios merged into a request, and requests merged into another.
    pub merges: u64,
    /// Requests that the driver gave back without having started them.
    pub requeues: u64,
    /// Requests that the driver gave back after the device had answered or timed out.
    pub retries: u64,
    /// Stages whose end lay before their begin: makes the run untrustworthy.
    pub negative: u64,
    /// Lower devices, nearest first.
    pub layers: Vec<String>,
    pub ops: BTreeMap<Op, OpLatency>,
    pub queues: Vec<QueueLatency>,
}

/// One class of I/O on one device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpLatency {
    pub ios: u64,
    pub bytes: u64,
    /// Per I/O. A stage that cannot be seen has no key.
    pub request_stages: BTreeMap<Stage, Histogram>,
}

/// One hardware queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueLatency {
    /// Number of the hardware context, as in `/sys/block/D/mq/N`.
    pub queue: u32,
    /// NVMe queue id, `queue` + 1.
    pub qid: Option<u32>,
    /// `default`, `read` or `poll`.
    pub kind: String,
    /// CPU list as the kernel prints it.
    pub cpus: String,
    pub ios: u64,
    pub request_stages: BTreeMap<Stage, Histogram>,
}

impl DeviceLatency {
    /// All operations' histograms of one stage together; none where the stage has no key.
    pub fn stage(&self, stage: Stage) -> Option<Histogram> {
        let mut all: Option<Histogram> = None;
        for hist in self.ops.values().filter_map(|op| op.request_stages.get(&stage)) {
            all.get_or_insert_default().merge(hist);
        }
        all
    }

    /// `ios` + `lost_ios` of the classes that a kernel counter counts.
    pub fn counted(&self, class: KernelClass) -> u64 {
        self.ops.iter().filter(|(op, _)| op.kernel_class() == Some(class)).map(|(_, l)| l.ios).sum()
    }

    /// Sum of the kernel's brackets over its classes.
    pub fn kernel_total(&self) -> Option<Bracket> {
        self.kernel.as_ref().map(|classes| {
            classes
                .values()
                .fold(Bracket::default(), |sum, b| Bracket { min: sum.min + b.min, max: sum.max + b.max })
        })
    }
}
