//! Interrupt time of the CPUs that complete a device's I/Os, where interrupts were counted.

use std::collections::BTreeSet;

use super::Summaries;
use super::cpu;
use super::facts::{DeviceView, MAX_LOSS};
use crate::analyze::counting::Bracket;
use crate::analyze::interrupts::{CompletionContexts, DeviceInterrupts, InterruptSummary, VectorSummary};
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::units::{count, in_percent, short, time};

/// Hard and soft interrupt time of a completing CPU from which on the host may delay completions.
pub const LIMIT: f64 = 0.70;

/// Median entries per interrupt from which on completions pile up while the CPU is busy elsewhere.
pub const PILED_UP: u64 = 8;

/// With fewer timed interrupts a CPU share is unknown: their mean would be off by a tenth if the standard deviation
/// equals the mean.
pub const MIN_TIMED: u64 = 100;

/// A CPU with less than this part of an even share is not one that the device depends on.
const COMPLETING: f64 = 0.5;

/// The interrupts of one device, with enough data for a finding.
#[derive(Debug)]
pub struct QueueInterrupts<'a> {
    pub device: &'a DeviceInterrupts,
    /// Vectors of its queues with interrupts.
    pub vectors: Vec<&'a VectorSummary>,
    /// Number of vectors of its queues, including those without interrupts.
    pub queues: usize,
    all: &'a InterruptSummary,
}

/// One CPU that a device's interrupts are delivered to.
#[derive(Debug, Clone, PartialEq)]
pub struct Completer {
    pub cpu: u32,
    /// Share of the device's interrupts, 0 to 1.
    pub share: f64,
    pub per_second: f64,
    /// Share of this CPU's time in the handlers of all traced vectors. A lower bound: it excludes vectors that were not
    /// timed, work that handlers leave to threads, and interrupt entry and exit.
    pub hard: f64,
    /// Block-layer softirqs raised on this CPU itself, by its share of each device's interrupts.
    pub soft: f64,
    /// All block-layer softirqs; None where they were not timed.
    pub soft_most: Option<f64>,
    /// Number of timed interrupts that `hard` is estimated from.
    pub timed: u64,
    /// Each vector delivered here was timed, and none left its work to a thread.
    pub whole: bool,
}

impl Completer {
    /// Busy share, clamped to 1: a slightly high mean must not exceed the CPU.
    pub fn busy(&self) -> f64 {
        (self.hard + self.soft).min(1.0)
    }

    /// Same if all softirqs ran here; None where even that is incomplete.
    pub fn busy_most(&self) -> Option<f64> {
        Some((self.hard + self.soft_most.filter(|_| self.whole)?).min(1.0))
    }

    /// `hard interrupts take 61 % and soft ones about 12 % of CPU 3 (estimated from 1,234 timed interrupts)`
    pub fn line(&self) -> String {
        let soft = match self.soft > 0.0 {
            true => format!(" and softirqs about {}", in_percent(self.soft)),
            false => String::new(),
        };
        format!(
            "hard interrupts use {}{soft} of CPU {} (estimated from {} timed interrupts)",
            in_percent(self.hard),
            self.cpu,
            count(self.timed)
        )
    }
}

/// None where interrupts were not counted, or not well enough.
pub fn counted<'a>(s: &Summaries<'a>, name: &str) -> Option<QueueInterrupts<'a>> {
    let all = s.interrupts?;
    // A partition has the interrupts of its disk.
    let name = s.host.device(name).map_or(name, |disk| disk.name.as_str());
    let device = all.devices.iter().find(|device| device.name == name)?;
    let mine = || all.vectors.iter().filter(|vector| vector.devices.iter().any(|of| of == name));
    // Where queues have their own vectors, the others belong to the admin queue or to configuration changes.
    let by_queue = mine().any(|vector| vector.queue.is_some());
    let of_queues: Vec<&VectorSummary> =
        mine().filter(|vector| vector.queue.is_some() || !by_queue).collect();
    let queues = of_queues.len();
    let vectors: Vec<&VectorSummary> = of_queues.into_iter().filter(|vector| vector.interrupts > 0).collect();
    let agrees = close(device.kernel_ios, device.comparable())
        && vectors.iter().all(|vector| close(vector.kernel, vector.interrupts));
    (!device.vanished && agrees && all.duration_ns > 0).then_some(QueueInterrupts {
        device,
        vectors,
        queues,
        all,
    })
}

/// Whether the traced count matches the kernel's, except for a share that changes no finding.
fn close(kernel: Option<Bracket>, seen: u64) -> bool {
    let Some(kernel) = kernel else { return true };
    let off = kernel.min.saturating_sub(seen).max(seen.saturating_sub(kernel.max));
    off as f64 <= kernel.min.max(seen) as f64 * MAX_LOSS
}

impl<'a> QueueInterrupts<'a> {
    /// Interrupts of its queues.
    pub fn interrupts(&self) -> u64 {
        self.vectors.iter().map(|vector| vector.interrupts).saturating_sum()
    }

    /// I/Os completed by an interrupt or a softirq.
    pub fn ended_by_interrupt(&self) -> u64 {
        let completed = &self.device.completed;
        [completed.interrupt, completed.softirq, completed.remote_softirq].iter().saturating_sum()
    }

    /// Completions found by polling its poll queues.
    pub fn polled(&self) -> u64 {
        let mine = self.all.polled.iter().filter(|queue| queue.devices.contains(&self.device.name));
        mine.map(|queue| queue.completions).saturating_sum()
    }

    /// Interrupts per second.
    pub fn per_second(&self, interrupts: u64) -> f64 {
        interrupts as f64 / self.all.seconds()
    }

    /// Median completions per interrupt, for the vectors delivered to `cpu`, or for all; None where the driver does not
    /// report them.
    pub fn median(&self, cpu: Option<u32>) -> Option<u64> {
        let mut each = Histogram::default();
        let comes = |vector: &&&VectorSummary| cpu.is_none_or(|cpu| on(vector, cpu) > 0);
        for vector in self.vectors.iter().filter(comes) {
            each.merge(&vector.carried.as_ref()?.per_interrupt);
        }
        each.quantile(0.5)
    }

    /// Interrupt time of that CPU; None with too few timed interrupts.
    pub fn completer(&self, cpu: u32) -> Option<Completer> {
        let mine: u64 = self.vectors.iter().map(|vector| on(vector, cpu)).saturating_sum();
        let here: Vec<&VectorSummary> =
            self.all.vectors.iter().filter(|vector| on(vector, cpu) > 0).collect();
        let timed = here.iter().map(|vector| vector.handler.count()).saturating_sum();
        if mine == 0 || timed < MIN_TIMED {
            return None;
        }
        let ns = self.all.duration_ns as f64;
        let hard = |vector: &&VectorSummary| Some(vector.handler.mean()? * on(vector, cpu) as f64 / ns);
        let soft = |device: &DeviceInterrupts| {
            let CompletionContexts { softirq, remote_softirq, .. } = device.completed;
            let local = softirq as f64 / (softirq + remote_softirq) as f64;
            Some(device.soft_percent? / 100.0 * local * self.part(&device.name, cpu)?)
        };
        let softirq = &self.all.softirq;
        let none = (softirq.runs == 0).then_some(0.0);
        Some(Completer {
            cpu,
            share: mine as f64 / self.interrupts() as f64,
            per_second: self.per_second(mine),
            hard: here.iter().filter_map(hard).sum(),
            soft: self.all.devices.iter().filter(|d| d.completed.softirq > 0).filter_map(soft).sum(),
            soft_most: softirq.cpu_percent.map(|percent| percent / 100.0).or(none),
            timed,
            whole: here.iter().all(|vector| !vector.handler.is_empty() && vector.threaded == 0),
        })
    }

    /// The CPU with the most interrupt time, among those with at least half an even share of this device's.
    pub fn busiest(&self) -> Option<Completer> {
        let cpus = self.cpus();
        let even = 1.0 / cpus.len().max(1) as f64;
        cpus.iter()
            .filter_map(|cpu| self.completer(*cpu))
            .filter(|one| one.share >= even * COMPLETING)
            .max_by(|a, b| a.busy().total_cmp(&b.busy()).then(b.cpu.cmp(&a.cpu)))
    }

    /// CPUs that its interrupts were delivered to.
    pub fn cpus(&self) -> BTreeSet<u32> {
        self.vectors.iter().flat_map(|vector| vector.by_cpu.iter().map(|of| of.cpu)).collect()
    }

    /// The share of a device's interrupts on that CPU.
    fn part(&self, name: &str, cpu: u32) -> Option<f64> {
        let of = || self.all.vectors.iter().filter(|vector| vector.devices.iter().any(|of| of == name));
        let all: u64 = of().map(|vector| vector.interrupts).saturating_sum();
        (all > 0).then(|| of().map(|vector| on(vector, cpu)).sum::<u64>() as f64 / all as f64)
    }

    /// The vectors delivered to that CPU, most frequent first, as lines of evidence; the rest in one.
    pub fn lines(&self, cpu: u32, most: usize) -> Vec<String> {
        let mut here: Vec<&&VectorSummary> =
            self.vectors.iter().filter(|vector| on(vector, cpu) > 0).collect();
        here.sort_by_key(|vector| (std::cmp::Reverse(on(vector, cpu)), vector.irq));
        let mut lines: Vec<String> = here.iter().take(most).map(|vector| self.line(vector, cpu)).collect();
        if here.len() > most {
            lines.push(format!("{} more of its vectors go to CPU {cpu}", here.len() - most));
        }
        lines
    }

    /// `interrupt 41 (nvme0q1): 152k a second on CPU 1, 1.00 I/Os each, 2.10 µs in the handler (mean of 9,500)`
    fn line(&self, vector: &VectorSummary, cpu: u32) -> String {
        let mut line = format!(
            "interrupt {}: {} a second on CPU {cpu}",
            called(vector),
            short(self.per_second(on(vector, cpu)))
        );
        if let Some(carried) = &vector.carried {
            let each = carried.completions as f64 / vector.interrupts.max(1) as f64;
            line += &format!(", {each:.2} I/Os each");
        }
        if let Some(mean) = vector.handler.mean() {
            line += &format!(
                ", {} in the handler (mean of {})",
                time(mean as u64),
                count(vector.handler.count())
            );
        }
        line
    }

    /// Other traced devices with interrupts on that CPU.
    pub fn neighbours(&self, cpu: u32) -> Vec<String> {
        let here = self.all.vectors.iter().filter(|vector| on(vector, cpu) > 0);
        let mut names: Vec<String> = here.flat_map(|vector| vector.devices.iter().cloned()).collect();
        names.retain(|name| *name != self.device.name);
        names.sort();
        names.dedup();
        names
    }

    /// Mean time in the handlers of its queues, and over how many; None where none was timed.
    pub fn handler_ns(&self) -> Option<(f64, u64)> {
        let mut all = Histogram::default();
        self.vectors.iter().for_each(|vector| all.merge(&vector.handler));
        Some((all.mean()?, all.count()))
    }
}

/// Interrupts of a vector on that CPU.
pub fn on(vector: &VectorSummary, cpu: u32) -> u64 {
    vector.by_cpu.iter().filter(|of| of.cpu == cpu).map(|of| of.interrupts).saturating_sum()
}

/// `41 (nvme0q1)`
pub fn called(vector: &VectorSummary) -> String {
    vector.name.as_ref().map_or_else(|| vector.irq.to_string(), |name| format!("{} ({name})", vector.irq))
}

/// Whether the host delays the completions of a device, judged by interrupts.
#[derive(Debug, Clone, PartialEq)]
pub enum Punctuality {
    /// This much of a CPU is in interrupts, or the median of waiting entries is this high.
    Late(String),
    /// No CPU can be late, or only if softirqs are distributed differently from the interrupts.
    OnTime { completer: Completer, sure: bool },
}

/// Whether a hypervisor delivers completions in batches when its own threads run: then their number per interrupt is no
/// sign of a slow CPU here. (Observed on virtio: median 16, while interrupts and softirqs took 5 % of their CPU.)
pub fn collected(s: &Summaries<'_>, name: &str) -> bool {
    s.host.device(name).and_then(|disk| disk.driver.as_deref()) == Some("virtio_blk")
}

/// None where interrupts do not show it.
pub fn punctuality(s: &Summaries<'_>, name: &str) -> Option<Punctuality> {
    let counted = counted(s, name)?;
    let busiest = counted.busiest();
    if let Some(one) = busiest.as_ref().filter(|one| one.busy() >= LIMIT) {
        return Some(Punctuality::Late(one.line()));
    }
    if let Some(median) = counted.median(None).filter(|median| *median >= PILED_UP && !collected(s, name)) {
        return Some(Punctuality::Late(format!("median completions per interrupt: {median}")));
    }
    let completer = busiest?;
    let sure = completer.busy_most().is_some_and(|most| most < LIMIT);
    Some(Punctuality::OnTime { completer, sure })
}

/// Why the host, rather than the device, may delay completions: by the interrupts if counted, otherwise by the profile.
pub fn late(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<String> {
    match punctuality(s, &p.device.name) {
        Some(Punctuality::Late(why)) => Some(why),
        Some(Punctuality::OnTime { .. }) => None,
        None => per_cpu(s, p)
            .filter(|(_, each)| *each >= LIMIT)
            .map(|(_, each)| format!("interrupts use {} of the completing CPUs", in_percent(each))),
    }
}

/// Interrupt time on each completing CPU by the profile: an upper bound if the sum is small, otherwise the mean over
/// the queues with I/O.
pub fn per_cpu(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<(f64, f64)> {
    let profile = cpu::profile(s)?;
    let all = cpu::interrupt_cpus(profile);
    let completing = p.active_queues().min(profile.cpus as usize).max(1);
    Some((all, all / completing as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::{Case, SECOND};

    #[test]
    fn a_cpus_time_is_that_of_all_vectors_that_come_to_it() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 50_000)], 4_000, 1);
        case.interrupt(42, &[(1, 20_000), (2, 30_000)], 2_000, 1);
        let s = case.summaries();
        let one = counted(&s, "vda").unwrap().completer(1).unwrap();
        assert!((one.hard - 0.24).abs() < 1e-9 && (one.share - 0.7).abs() < 1e-9, "{one:?}");
        assert_eq!((one.soft, one.busy_most()), (0.0, Some(one.hard)));
        assert_eq!(counted(&s, "vda").unwrap().busiest().unwrap().cpu, 1);
        assert!(one.line().starts_with("hard interrupts use 24 % of CPU 1"), "{}", one.line());
    }

    #[test]
    fn softirqs_lie_as_the_interrupts_unless_another_cpu_asked_for_them() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 75_000)], 1_000, 1);
        case.interrupt(42, &[(2, 25_000)], 1_000, 1);
        case.soft(40.0, 50_000);
        let s = case.summaries();
        let one = counted(&s, "vda").unwrap().completer(1).unwrap();
        // Half of the softirqs were raised by an IPI; of the others this CPU has three quarters.
        assert!((one.soft - 0.15).abs() < 1e-9, "{one:?}");
        assert!((one.busy_most().unwrap() - 0.475).abs() < 1e-9);
        let seen = case.interrupts.as_mut().unwrap();
        (seen.softirq.cpu_percent, seen.devices[0].soft_percent) = (None, None);
        let s = case.summaries();
        let one = counted(&s, "vda").unwrap().completer(1).unwrap();
        assert_eq!((one.soft, one.busy_most()), (0.0, None), "not timed is not nothing");
    }

    #[test]
    fn few_timed_interrupts_tell_no_share() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 100 * 8)], 4_000, 1);
        assert!(counted(&case.summaries(), "vda").unwrap().busiest().is_some());
        case.interrupts = None;
        case.interrupt(41, &[(1, 99 * 8)], 4_000, 1);
        assert!(counted(&case.summaries(), "vda").unwrap().busiest().is_none());
    }

    #[test]
    fn what_the_kernel_counted_otherwise_carries_nothing() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 100_000)], 4_000, 1);
        let mut with = |min, max| {
            case.interrupts.as_mut().unwrap().vectors[0].kernel = Some(Bracket { min, max });
            counted(&case.summaries(), "vda").is_some()
        };
        assert!(with(101_000, 101_000) && !with(101_100, 101_100));
        assert!(with(99_000, 99_000) && !with(98_900, 98_900));
        assert!(with(100_000, 100_000));
        case.interrupts.as_mut().unwrap().devices[0].kernel_ios =
            Some(Bracket { min: 101_100, max: 101_100 });
        assert!(counted(&case.summaries(), "vda").is_none());
        case.interrupts.as_mut().unwrap().devices[0].kernel_ios = None;
        case.interrupts.as_mut().unwrap().devices[0].vanished = true;
        assert!(counted(&case.summaries(), "vda").is_none());
    }

    #[test]
    fn a_cpu_with_few_of_its_interrupts_is_none_that_it_depends_on() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 75_000)], 1_000, 1);
        case.interrupt(42, &[(2, 25_000)], 9_000, 1);
        assert_eq!(
            counted(&case.summaries(), "vda").unwrap().busiest().unwrap().cpu,
            2,
            "half of an even share"
        );
        case.interrupts = None;
        case.interrupt(41, &[(1, 75_100)], 1_000, 1);
        case.interrupt(42, &[(2, 24_900)], 9_000, 1);
        assert_eq!(counted(&case.summaries(), "vda").unwrap().busiest().unwrap().cpu, 1);
    }

    #[test]
    fn the_admin_vector_is_none_of_a_queue() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 50_000)], 1_000, 1);
        case.interrupt(40, &[(0, 50_000)], 1_000, 0);
        case.interrupts.as_mut().unwrap().vectors[1].queue = None;
        let s = case.summaries();
        let counted = counted(&s, "vda").unwrap();
        assert_eq!((counted.interrupts(), counted.vectors.len()), (50_000, 1));
        assert_eq!(counted.per_second(50_000), 50_000.0 * 1e9 / SECOND as f64);
        assert_eq!(counted.median(None), Some(1));
    }

    #[test]
    fn lateness_has_two_sides() {
        let mut case = Case::new(100_000, 32);
        let late = |case: &Case| matches!(punctuality(&case.summaries(), "vda"), Some(Punctuality::Late(_)));
        case.interrupt(41, &[(1, 100_000)], 7_000, 1);
        assert!(late(&case), "70 %");
        case.interrupts = None;
        case.interrupt(41, &[(1, 100_000)], 6_990, 7);
        assert!(!late(&case));
        case.interrupts = None;
        case.interrupt(41, &[(1, 100_000)], 1_000, 8);
        assert!(!late(&case), "a virtio disk");
        case.disk().driver = Some("nvme".into());
        assert!(late(&case), "a median of 8");
        case.interrupts = None;
        assert_eq!(punctuality(&case.summaries(), "vda"), None);
    }

    #[test]
    fn softirqs_that_may_lie_otherwise_leave_a_doubt() {
        let mut case = Case::new(100_000, 32);
        case.interrupt(41, &[(1, 100_000)], 3_000, 1);
        let sure = |case: &Case| match punctuality(&case.summaries(), "vda") {
            Some(Punctuality::OnTime { sure, .. }) => sure,
            other => panic!("{other:?}"),
        };
        case.soft(39.9, 50_000);
        assert!(sure(&case));
        case.soft(40.0, 50_000);
        assert!(!sure(&case), "with all of them on that CPU 70 %");
    }
}
