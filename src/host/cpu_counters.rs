//! Holds the hardware counters of an interval per CPU: plain data that `probe::cpu` fills.

use super::cpu_time::{CpuReading, Topology};

/// The event that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CounterEvent {
    /// Cycles of the processor while it is not halted.
    Cycles,
    Instructions,
    /// Cycles in which no new instruction was decoded.
    FrontendStalls,
    /// Cycles that waited for execution units or memory.
    BackendStalls,
    /// Time by the kernel's clock in ns, including idle time: every machine has this event.
    CpuClock,
}

impl CounterEvent {
    /// Its name in `perf list`.
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

/// The mode in which a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CounterMode {
    User,
    Kernel,
    Both,
}

/// The increase of one counter in the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub cpu: u32,
    pub event: CounterEvent,
    pub side: CounterMode,
    pub value: u64,
    /// The time for which the counter was enabled, and the part of it for which it had a slot in the processor: if
    /// there are more counters than slots, the kernel multiplexes them.
    pub enabled_ns: u64,
    pub running_ns: u64,
}

/// All counters of an interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPUs on which counters were opened.
    pub cpus: Vec<u32>,
    pub counts: Vec<Count>,
    /// Events that cannot be counted here, with the reason.
    pub refused: Vec<(CounterEvent, String)>,
}

/// Data about the CPUs in an interval: the kernel's accounting at its start and end, and the counters in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuWindow {
    pub start: CpuReading,
    pub end: CpuReading,
    pub topology: Topology,
    /// See [`super::cpu_time::interrupts_timed`].
    pub interrupts_timed: Option<bool>,
    pub counters: Counters,
}
