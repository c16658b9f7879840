//! What counters said of a window, CPU by CPU: plain data, filled by `probe::cpu`.

use super::cpu_time::{CpuReading, Topology};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// Of the processor, while it is not halted.
    Cycles,
    Instructions,
    /// Cycles in which nothing new was decoded.
    FrontendStalls,
    /// Cycles that waited for units or for memory.
    BackendStalls,
    /// Time by the kernel's clock, in ns, idle time included: what every machine has.
    CpuClock,
}

impl Event {
    /// As `perf list` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::FrontendStalls => "stalled-cycles-frontend",
            Self::BackendStalls => "stalled-cycles-backend",
            Self::CpuClock => "cpu-clock",
        }
    }
}

/// In which mode it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    User,
    Kernel,
    Both,
}

/// What one counter gained in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub cpu: u32,
    pub event: Event,
    pub side: Side,
    pub value: u64,
    /// How long it was to count, and for how long of that it had a place in the processor: with more counters than
    /// places they take turns.
    pub enabled_ns: u64,
    pub running_ns: u64,
}

/// All counters of a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPUs on which counters were opened.
    pub cpus: Vec<u32>,
    pub counts: Vec<Count>,
    /// Events that do not count here, and why.
    pub refused: Vec<(Event, String)>,
}

/// What is known of the CPUs in a window: the kernel's accounts around it, and the counters in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuWindow {
    pub start: CpuReading,
    pub end: CpuReading,
    pub topology: Topology,
    /// See [`super::cpu_time::interrupts_timed`].
    pub interrupts_timed: Option<bool>,
    pub counters: Counters,
}
