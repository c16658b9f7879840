//! What to trace.

use super::super::events::EventOptions;
use super::super::filter::Filter;
use super::submits::StackOptions;

/// Which stages are followed. What the others need is not attached, and costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stages {
    /// From issue to completion. Who submits is not known then.
    Device,
    /// Queue as well.
    QueueDevice,
    /// And operations: io_uring requests, and system calls that read or write.
    #[default]
    All,
}

impl Stages {
    pub const ALL: [Self; 3] = [Self::Device, Self::QueueDevice, Self::All];

    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::QueueDevice => "queue,device",
            Self::All => "all",
        }
    }
}

/// What to trace.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of disks and partitions, of each disk at most one; empty: every disk that is in use.
    pub devices: Vec<String>,
    /// Trace bio-based disks too, and what lies below the disks that are named.
    pub layers: bool,
    /// But not what lies below.
    pub only_named: bool,
    pub stages: Stages,
    /// What the programs may take of the busiest CPU, in percent: above it operations are followed in slices of time. None:
    /// all the time, which is what `parts`, `events`, `group_by`, `generator` and `functions` need.
    pub budget: Option<f64>,
    /// Follow system calls at their functions, where the kernel lets us. Needs all stages.
    pub functions: bool,
    /// Take stages apart (`--detail`). Needs all stages.
    pub parts: bool,
    /// Send an event per I/O; None: nobody looks at each.
    pub events: Option<EventOptions>,
    /// Take stacks of who hands in, and send events of only those I/Os that have one. Needs `events`.
    pub stacks: Option<StackOptions>,
    /// What I/Os are counted apart by, `BY_*` of the wire; None: they are not.
    pub group_by: Option<u32>,
    /// Count bios by process.
    pub processes: bool,
    /// Count bios by file, by samples. Needs `processes`.
    pub files: bool,
    /// Find the file of each event. Needs `events`.
    pub event_files: bool,
    /// Whose I/O is followed.
    pub filter: Filter,
    /// Track the processes of a command, and follow only its I/O where `filter` is empty; see
    /// [`LatencyProbe::start_command`](super::LatencyProbe::start_command). Needs `processes`.
    pub command: bool,
    /// The load generator runs in this process and tells when it hands in and when it looks; see
    /// [`LatencyProbe::generators`](super::LatencyProbe::generators). Needs all stages.
    pub generator: bool,
    /// Measure the probes' cost with the kernel's program statistics.
    pub cost: bool,
    /// Test aid: forget every Nth issue event; 0: none.
    pub drop_issue: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            layers: false,
            only_named: false,
            stages: Stages::All,
            budget: None,
            functions: false,
            parts: false,
            events: None,
            stacks: None,
            group_by: None,
            processes: false,
            files: false,
            event_files: false,
            filter: Filter::default(),
            command: false,
            generator: false,
            cost: true,
            drop_issue: 0,
        }
    }
}
