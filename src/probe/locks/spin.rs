//! Samples where CPUs spin on locks, by the function that they execute.

use anyhow::Result;

use crate::host::kallsyms::Kallsyms;
use crate::probe::Probe;
use crate::probe::stacks::StacksProbe;
use crate::wire::locks::SpinSample;
use crate::wire::stacks::RawProfile;

/// Samples per second and CPU: enough for a share with an error of one percent within seconds, and not synchronous with
/// the kernel's timer.
const FREQUENCY: u64 = 199;

/// Functions in which a CPU spins on a lock.
const WAITING: [&str; 13] = [
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "queued_spin_lock_slowpath",
    "resilient_queued_spin_lock_slowpath",
    "virt_spin_lock",
    "queued_read_lock_slowpath",
    "queued_write_lock_slowpath",
    "osq_lock",
    "mutex_spin_on_owner",
    "mutex_optimistic_spin",
    "rwsem_spin_on_owner",
    "rwsem_optimistic_spin",
    "rtmutex_spin_on_owner",
];

/// Functions that enable interrupts again after a spinlock.
const UNLOCKING: [&str; 8] = [
    "_raw_spin_unlock_irq",
    "_raw_spin_unlock_irqrestore",
    "_raw_read_unlock_irq",
    "_raw_read_unlock_irqrestore",
    "_raw_write_unlock_irq",
    "_raw_write_unlock_irqrestore",
    // Functions that a guest calls with paravirtual spinlocks.
    "__raw_spin_unlock_irq",
    "__raw_spin_unlock_irqrestore",
];

/// Address ranges of the functions on this kernel.
#[derive(Debug)]
pub struct Functions {
    waiting: Vec<(u64, u64)>,
    unlocking: Vec<(u64, u64)>,
}

impl Functions {
    /// None if the symbols are hidden.
    pub fn new(symbols: &Kallsyms) -> Option<Self> {
        let waiting = symbols.functions(|name| WAITING.iter().any(|known| known.as_bytes() == name));
        let unlocking = symbols.functions(|name| UNLOCKING.iter().any(|known| known.as_bytes() == name));
        (!waiting.is_empty()).then_some(Self { waiting, unlocking })
    }

    /// Uses the innermost frame: an interrupt on top of a waiter does not wait.
    pub fn count(&self, raw: &RawProfile) -> SpinSample {
        let mut sample = SpinSample {
            sampler: raw.sampler,
            frequency: raw.frequency,
            cpus: raw.cpus,
            duration_ns: raw.duration_ns,
            samples: 0,
            waiting: 0,
            unlocking: 0,
            lost: raw.lost,
        };
        let within =
            |all: &[(u64, u64)], ip: u64| all.iter().any(|(begin, end)| (*begin..*end).contains(&ip));
        for (stack, tally) in &raw.samples {
            sample.samples += tally.samples;
            let Some(leaf) = stack.kernel().first() else { continue };
            if within(&self.waiting, *leaf) {
                sample.waiting += tally.samples;
            } else if within(&self.unlocking, *leaf) {
                sample.unlocking += tally.samples;
            }
        }
        sample
    }
}

/// The sampler.
#[derive(Debug)]
pub struct Spinning {
    functions: Functions,
    probe: Option<StacksProbe>,
    so_far: Option<SpinSample>,
}

impl Spinning {
    pub fn attach(functions: Functions) -> Result<Self> {
        Ok(Self { functions, probe: Some(StacksProbe::of_kernel(FREQUENCY)?), so_far: None })
    }

    /// All samples so far; with `last` sampling ends.
    pub fn read(&mut self, last: bool) -> Option<SpinSample> {
        let raw = match last {
            true => self.probe.take().and_then(|mut probe| probe.detach().ok()),
            false => self.probe.as_ref().and_then(|probe| probe.read().ok()),
        };
        // Restarts a sampler that has failed, or could not start.
        if raw.is_none() && !last {
            self.probe = StacksProbe::of_kernel(FREQUENCY).ok();
        }
        if let Some(raw) = raw {
            let new = self.functions.count(&raw);
            self.so_far = Some(match self.so_far {
                None => new,
                Some(before) => SpinSample {
                    duration_ns: before.duration_ns + new.duration_ns,
                    samples: before.samples + new.samples,
                    waiting: before.waiting + new.waiting,
                    unlocking: before.unlocking + new.unlocking,
                    lost: before.lost + new.lost,
                    ..new
                },
            });
        }
        self.so_far
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::wire::stacks::{Sample, SampleTotal, Sampler};

    #[test]
    fn the_innermost_frame_says_what_a_cpu_does() {
        let symbols = Kallsyms::parse(
            "ff00000000001000 T native_queued_spin_lock_slowpath\nff00000000002000 T _raw_spin_unlock_irq\n\
             ff00000000003000 T other\n",
        );
        let functions = Functions::new(&symbols).unwrap();
        let at = |ips: &[u64]| Sample::new(1, 1, 0, b"x", ips, &[]);
        let tally = |samples| SampleTotal { samples, period: samples };
        let (slow, unlock, other) = (0xff00_0000_0000_1010, 0xff00_0000_0000_2000, 0xff00_0000_0000_3000);
        let raw = RawProfile {
            sampler: Sampler::CpuClock,
            frequency: 199,
            cpus: 2,
            duration_ns: 1_000_000_000,
            idle_ns: None,
            samples: HashMap::from([
                (at(&[slow, other]), tally(3)),
                (at(&[unlock]), tally(2)),
                (at(&[other, slow]), tally(5)),
                (at(&[]), tally(7)),
            ]),
            maps: Default::default(),
            leaders: Default::default(),
            lost: 1,
            damaged: 0,
            map_bytes: 0,
            program_runs: 0,
            program_ns: 0,
        };
        let sample = functions.count(&raw);
        assert_eq!((sample.samples, sample.waiting, sample.unlocking, sample.lost), (17, 3, 2, 1));
        assert!(Functions::new(&Kallsyms::default()).is_none());
    }
}
