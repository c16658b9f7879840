//! Declares the options of a trace.

use super::super::events::EventOptions;
use super::super::filter::Filter;
use super::submits::StackOptions;

/// The stages that are followed. Programs that only other stages need are not attached, and cost nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stages {
    /// From issue to completion. The submitter is unknown then.
    Device,
    /// The queue stage as well.
    QueueDevice,
    /// Operations as well: io_uring requests, and system calls that read or write.
    #[default]
    All,
}

impl Stages {
    pub const ALL: [Self; 3] = [Self::Device, Self::QueueDevice, Self::All];

    /// The name on the command line.
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
    /// Names of disks and partitions, at most one per disk; empty: every disk in use.
    pub devices: Vec<String>,
    /// Also trace bio-based disks, and disks below the named ones.
    pub layers: bool,
    /// With `layers`: not the disks below.
    pub only_named: bool,
    pub stages: Stages,
    /// CPU budget of the programs, in percent of the busiest CPU: if they exceed it, operations are followed in time
    /// slices. None: all the time, which `parts`, `events`, `group_by`, `generator` and `functions` need.
    pub budget: Option<f64>,
    /// Follow system calls at their functions, if the kernel allows it. Needs all stages.
    pub functions: bool,
    /// Break stages down (`--detail`). Needs all stages.
    pub parts: bool,
    /// Send an event per I/O; None: no events.
    pub events: Option<EventOptions>,
    /// Take stacks of submitters, and send events only for I/Os that have one. Needs `events`.
    pub stacks: Option<StackOptions>,
    /// Group I/Os by these, `BY_*` of the wire; None: no groups.
    pub group_by: Option<u32>,
    /// Count bios by process.
    pub processes: bool,
    /// Count bios by file, by sampling. Needs `processes`.
    pub files: bool,
    /// Look up the file for each event. Needs `events`.
    pub event_files: bool,
    /// The submitters whose I/O is followed.
    pub filter: Filter,
    /// Track the processes of a command, and follow only its I/O where `filter` is empty; see
    /// [`LatencyProbe::start_command`](super::LatencyProbe::start_command). Needs `processes`.
    pub command: bool,
    /// The load generator runs in this process and reports when it submits and when it polls; see
    /// [`LatencyProbe::generators`](super::LatencyProbe::generators). Needs all stages.
    pub generator: bool,
    /// Measure the probes' cost with the kernel's program statistics.
    pub cost: bool,
    /// Test aid: drop every Nth issue event; 0: none.
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
