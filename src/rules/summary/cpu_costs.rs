//! The CPU cost of an I/O.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analyze::cpu::{self, CounterTotals, CpuSummary, PerIo};
use crate::analyze::stacks::CpuClass;
use crate::rules::{self, Summaries};

/// Classes of CPU time that cost something, and what was counted. Null: not known, and `missing` says why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuCosts {
    pub user: ClassCost,
    pub system: ClassCost,
    #[serde(rename = "io-wq")]
    pub io_wq: ClassCost,
    pub irq: ClassCost,
    pub softirq: ClassCost,
    pub kthread: ClassCost,
    pub sampler: Option<String>,
    pub samples: Option<u64>,
    pub lost: Option<u64>,
    #[serde(flatten)]
    pub counted: CounterTotals,
    #[serde(flatten)]
    pub per_io: PerIo,
    pub threads_share_cores: Option<bool>,
    pub context_switches: Option<u64>,
    pub wakeups: Option<u64>,
    pub forks: Option<u64>,
    /// The kernel's own account of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<CpuSummary>,
}

/// Null without a profile, and where no I/O was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClassCost {
    pub ns_per_io: Option<f64>,
    pub cycles_per_io: Option<f64>,
}

impl CpuCosts {
    pub fn of(s: &Summaries<'_>) -> Self {
        let ios = rules::ios(s);
        let class = |class: CpuClass| ClassCost {
            ns_per_io: s.profile.and_then(|profile| rules::ns_per_io(s, profile, class)),
            cycles_per_io: s
                .profile
                .zip(s.cpu)
                .and_then(|(profile, cpu)| cpu::cycles_per_io(cpu, profile, class, ios)),
        };
        Self {
            user: class(CpuClass::User),
            system: class(CpuClass::System),
            io_wq: class(CpuClass::IoWq),
            irq: class(CpuClass::Irq),
            softirq: class(CpuClass::Softirq),
            kthread: class(CpuClass::Kthread),
            sampler: s.profile.map(|profile| profile.sampler.clone()),
            samples: s.profile.map(|profile| profile.samples),
            lost: s.profile.map(|profile| profile.lost),
            counted: s.cpu.map(|cpu| cpu.counted.clone()).unwrap_or_default(),
            per_io: s.cpu.map(|cpu| cpu::per_io(cpu, ios)).unwrap_or_default(),
            threads_share_cores: s.cpu.map(CpuSummary::smt),
            context_switches: s.cpu.and_then(|cpu| cpu.context_switches),
            wakeups: s.cpu.and_then(|cpu| cpu.wakeups),
            forks: s.cpu.and_then(|cpu| cpu.processes),
            time: s.cpu.cloned(),
        }
    }
}
