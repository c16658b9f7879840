//! What the CPUs did: samples of kernel and user stacks, folded.

use std::collections::BTreeMap;

use serde::Serialize;

/// Where a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuClass {
    /// A task in user mode.
    User,
    /// A user task in the kernel, no interrupt in between.
    System,
    /// A hard interrupt's frames are on the stack.
    Irq,
    /// Softirq frames are on the stack.
    Softirq,
    /// A kernel thread, no interrupt in between.
    Kthread,
    /// The idle task, doing nothing.
    Idle,
}

/// An on-CPU profile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileSummary {
    /// `cycles` or `cpu-clock`.
    pub sampler: String,
    /// Set when the sampler cannot see everything (`cpu-clock` cannot fire with interrupts off).
    pub sampler_note: Option<String>,
    /// Samples per second and CPU that were asked for.
    pub frequency: u64,
    pub cpus: u32,
    pub duration_ns: u64,
    /// All samples taken, idle ones included.
    pub samples: u64,
    pub lost: u64,
    /// Samples by class.
    pub classes: BTreeMap<CpuClass, u64>,
    /// `comm;frame;...;leaf` → samples, without the idle ones. Kernel frames end in `_[k]`.
    pub folded: BTreeMap<String, u64>,
    /// CPU time in ns per thread name and pid, from the samples, most first.
    pub top: Vec<(String, u32, u64)>,
}

impl ProfileSummary {
    /// CPU time of one class in nanoseconds: its share of the samples × the CPU time that passed.
    pub fn class_ns(&self, class: CpuClass) -> Option<u64> {
        if self.samples == 0 {
            return None;
        }
        let share = *self.classes.get(&class).unwrap_or(&0) as f64 / self.samples as f64;
        Some((share * self.duration_ns as f64 * f64::from(self.cpus)) as u64)
    }
}
