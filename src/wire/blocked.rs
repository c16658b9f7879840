//! Decodes blocked time and reclaim time by stack, and holds all of it for one interval.

use std::collections::{BTreeMap, HashMap};

use super::stacks::{Sample, WireStackKey};
use super::{DamagedRecord, Record, pagecache, task_name};
use crate::host::mapped::MappedFiles;

pub use super::records::{
    WireAsleep, WireSleeper, WireSum as Sum, WireWaitProcess, WireWaitStack, WireWaiter, WireWaitsRow,
    WireWaitsSum as Waits,
};

/// In [`Sample::flags`], in addition to the flags of samples: the kernel counts the task as waiting for I/O.
pub const IO: u32 = 16;
/// No signal wakes it (state D), and it is not an idle kernel thread.
pub const UNINTERRUPTIBLE: u32 = 32;
/// The task has a user stack, which was not taken.
pub const NO_USER: u32 = 64;
/// Reclaim: `enum wire_reclaim_kind` + 1, from this bit on.
pub const RECLAIM_SHIFT: u32 = 8;

/// Probability 1: probabilities are in units of 2^-32.
const SURE: u64 = 1 << 32;

/// Number of reclaim programs, each with its own rows.
pub const RECLAIM_PROGRAMS: u32 = 5;

impl Sum {
    /// Adds another sum.
    pub fn add(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

impl WireWaitsRow {
    /// The scaled-up wait whose stack was still pending: it is in no row of stacks.
    fn half(&self) -> Sum {
        if self.half_tid == 0 {
            return Sum::default();
        }
        let chance = if self.half_chance == 0 { SURE } else { u64::from(self.half_chance) };
        let stands_for = u128::from(self.half_took) * u128::from(SURE) / u128::from(chance);
        Sum { count: SURE / chance, ns: u64::try_from(stands_for).unwrap_or(u64::MAX) }
    }
}

impl WireSleeper {
    /// Waits that were not added to their process, because the thread exited as the interval ended.
    pub fn left(&self) -> Option<(ProcessName, Sum)> {
        let process = (self.process.pid, task_name(&self.process.comm).to_vec());
        (self.all.count > 0).then_some((process, self.all))
    }
}

impl Waits {
    /// Adds other sums.
    pub fn add(&mut self, other: Self) {
        self.waits = self.waits.saturating_add(other.waits);
        self.ns = self.ns.saturating_add(other.ns);
        self.sure_ns = self.sure_ns.saturating_add(other.sure_ns);
        self.squares = self.squares.saturating_add(other.squares);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// Decodes a stack of the table; None if no wait has ended in it.
pub fn decode_stack(key: &[u8], value: &[u8]) -> Result<Option<(Sample, Waits)>, DamagedRecord> {
    let key = WireStackKey::decode(key)?;
    let wire = <WireWaitStack as Record>::decode(value)?;
    if wire.sum.samples == 0 {
        return Ok(None);
    }
    Ok(Some((wire.stack.sample(&key), wire.sum)))
}

/// A process, and the name of the threads in question.
pub type ProcessName = (u32, Vec<u8>);

/// Decodes a row of waiting threads. Its sums are 0 if there is only a stack, or if every wait has one.
pub fn decode_waiter(key: &[u8], value: &[u8]) -> Result<(ProcessName, WireWaiter), DamagedRecord> {
    let key = WireWaitProcess::decode(key)?;
    let waiter = <WireWaiter as Record>::decode(value)?;
    Ok(((key.pid, task_name(&key.comm).to_vec()), waiter))
}

/// Which waits were recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitScope {
    /// All sleeps, whatever the task waits for.
    #[default]
    OffCpu,
    /// Sleeps that the kernel marks as waits for I/O, and uninterruptible sleeps.
    IoWait,
    /// Memory reclaim.
    Reclaim,
}

/// Everything that was counted, exactly, with or without stacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Waits in the interval, each with the part that lies in it.
    pub all: Sum,
    /// Of `all`: waits for I/O as the kernel marks them (`in_iowait`).
    pub io: Sum,
    /// Of the others: uninterruptible waits (state D).
    pub uninterruptible: Sum,
    /// Of `all`: shorter than the minimum length for a stack.
    pub brief: Sum,
    /// Of `all`: waits that should have a stack, or that such waits are scaled up to.
    pub bare: Sum,
    /// Of `all`: already in progress when the interval began.
    pub before: Sum,
    /// Of `all`: still in progress when the interval ended.
    pub open: Sum,
    /// In addition: run-queue delay after wakeups.
    pub queued_ns: u64,
    /// Reclaim: by kind.
    pub reclaims: BTreeMap<pagecache::ReclaimKind, Sum>,
}

/// What was not counted, or has no stack, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Waits of tasks that had no room in the table of sleepers: not counted at all.
    pub unkept: u64,
    /// Reclaim: ends whose begin was missed; with a filter also those of other tasks. Waits: those whose end had no
    /// event, so that their length comes from the task's scheduler statistics; they are counted.
    pub unmatched: u64,
    /// Waits in progress at the end of the interval that were over when the final scan reached them: counted up to the
    /// end.
    pub ended_since: u64,
    /// Events for which the kernel ran no program.
    pub missed: u64,
    /// Waits whose process had no room in the table of waiting processes.
    pub unnamed: u64,
    /// Stacks that had no room in the table.
    pub full: u64,
    /// Stacks that were skipped because the budget was overspent.
    pub over: u64,
    /// Stacks whose interrupt did not arrive: without user frames, or without any.
    pub uninterrupted: u64,
}

/// Time by stack of one interval. Addresses are not symbolized yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RawBlocked {
    pub followed: WaitScope,
    pub duration_ns: u64,
    /// Online CPUs.
    pub cpus: u32,
    /// Addresses, process, thread name and kind of wait ([`IO`] and the like); `tid` and `cpu` are 0.
    pub samples: HashMap<Sample, Waits>,
    /// By process and thread name: waits that should have a stack and have none.
    pub bare: BTreeMap<ProcessName, Waits>,
    /// By process and thread name: waits that may have stacks, exactly. Process 0: waits that had no room in the table,
    /// by name only. Empty if the kernel does not let a program iterate over threads.
    pub processes: BTreeMap<ProcessName, Sum>,
    pub totals: Totals,
    pub lost: Lost,
    /// The mappings of each process, as of when it was first seen under its last name.
    pub maps: MappedFiles,
    /// Names of the processes whose io_uring threads waited, as far as they still run.
    pub leaders: BTreeMap<u32, Vec<u8>>,
    /// Waits shorter than this, ns, were sampled at some time; 0: all have a stack.
    pub threshold_ns: u64,
    /// Waits shorter than this, ns, were to have no stack.
    pub least_ns: u64,
    /// Stacks taken, and the time it took, ns.
    pub stacks: u64,
    pub stack_ns: u64,
    /// Events, each one run of a program, and events of tasks that were filtered out.
    pub events: u64,
    pub filtered: u64,
    /// Runs and run time of the programs, from the kernel's statistics; counted only while these are enabled.
    pub program_runs: u64,
    pub program_ns: u64,
    /// Memory of the tables.
    pub map_bytes: u64,
}

impl RawBlocked {
    /// Adds up the programs' rows, and then the row of the scans at either end (`open`).
    pub fn count(&mut self, rows: &[WireWaitsRow], open: &WireWaitsRow) {
        let totals = &mut self.totals;
        totals.open = open.all;
        self.lost.ended_since = open.unmatched;
        self.lost.unmatched = rows.iter().map(|row| row.unmatched).sum();
        for row in rows.iter().chain([open]) {
            totals.all.add(row.all);
            totals.io.add(row.io);
            totals.uninterruptible.add(row.uninterruptible);
            totals.brief.add(row.brief);
            totals.bare.add(row.bare);
            totals.before.add(row.before);
            totals.queued_ns += row.queued_ns;
            self.lost.unkept += row.unkept;
            self.lost.unnamed += row.unnamed;
            self.lost.full += row.full;
            self.lost.over += row.over;
            self.lost.uninterrupted += row.uninterrupted;
            totals.bare.add(row.half());
            self.threshold_ns = self.threshold_ns.max(row.budget.most_threshold);
            self.stacks += row.stacks;
            self.stack_ns += row.budget.stack_ns;
            self.events += row.events;
            self.filtered += row.filtered;
        }
    }

    /// Total time in stacks, estimated if waits were sampled.
    pub fn sampled(&self) -> Waits {
        let mut all = Waits::default();
        self.samples.values().for_each(|waits| all.add(*waits));
        all
    }

    /// Gives user frames to a wait of this sample that was in progress when the interval ended.
    pub fn give_user(&mut self, sample: &Sample, took: u64, user: &[u64]) {
        let Some(waits) = self.samples.get_mut(sample) else { return };
        let wait = Waits { waits: 256, ns: took, sure_ns: took, squares: 0, samples: 1 };
        waits.waits = waits.waits.saturating_sub(wait.waits);
        waits.ns = waits.ns.saturating_sub(took);
        waits.sure_ns = waits.sure_ns.saturating_sub(took);
        waits.samples = waits.samples.saturating_sub(1);
        if waits.samples == 0 {
            self.samples.remove(sample);
        }
        let mut whole = sample.with_user(user);
        whole.flags &= !NO_USER;
        self.samples.entry(whole).or_default().add(wait);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;
    use crate::wire::stacks::{MAX_FRAMES, WireBudget};
    use zerocopy::IntoBytes;

    fn stack(kernel: &[u64], user: &[u64], samples: u64) -> Vec<u8> {
        let mut wire = WireWaitStack::new_zeroed();
        wire.stack.kernel_frames = kernel.len() as u32;
        wire.stack.user_frames = user.len() as u32;
        wire.sum = Waits { waits: 512, ns: 7, sure_ns: 3, squares: 9, samples };
        wire.stack.comm[..3].copy_from_slice(b"cat");
        for (to, from) in wire.stack.ips.iter_mut().zip(kernel.iter().chain(user)) {
            *to = *from;
        }
        wire.as_bytes().to_vec()
    }

    #[test]
    fn a_stack_is_decoded_to_both_sides() {
        let key = WireStackKey { hash: [1, 2], pid: 5, flags: IO };
        let (sample, waits) = decode_stack(key.as_bytes(), &stack(&[1, 2], &[3], 2)).unwrap().unwrap();
        assert_eq!((sample.pid, sample.flags, sample.comm_bytes()), (5, IO, &b"cat"[..]));
        assert_eq!((sample.kernel(), sample.user()), (&[1, 2][..], &[3][..]));
        assert_eq!(waits, Waits { waits: 512, ns: 7, sure_ns: 3, squares: 9, samples: 2 });
    }

    #[test]
    fn a_stack_in_which_nobody_has_ended_a_wait_is_none() {
        let key = WireStackKey { hash: [1, 2], pid: 5, flags: 0 };
        assert_eq!(decode_stack(key.as_bytes(), &stack(&[1], &[], 0)).unwrap(), None);
    }

    #[test]
    fn damage_is_an_error_and_too_many_frames_are_as_many_as_fit() {
        let key = WireStackKey { hash: [1, 2], pid: 5, flags: 0 };
        let mut value = stack(&[1], &[], 1);
        assert!(decode_stack(&[0; 23], &value).is_err());
        assert!(decode_stack(key.as_bytes(), &value[1..]).is_err());
        value[40..48].copy_from_slice(&[0xff; 8]);
        let (sample, _) = decode_stack(key.as_bytes(), &value).unwrap().unwrap();
        assert_eq!((sample.kernel().len(), sample.user().len()), (MAX_FRAMES, MAX_FRAMES));
    }

    #[test]
    fn rows_add_up_and_those_of_the_end_are_told_apart() {
        let one = WireWaitsRow {
            all: Sum { count: 2, ns: 30 },
            io: Sum { count: 1, ns: 10 },
            stacks: 2,
            unmatched: 1,
            budget: WireBudget { most_threshold: 512, ..WireBudget::default() },
            ..WireWaitsRow::default()
        };
        let open =
            WireWaitsRow { all: Sum { count: 1, ns: 5 }, unkept: 1, unmatched: 7, ..WireWaitsRow::default() };
        let mut raw = RawBlocked::default();
        raw.count(&[one, one], &open);
        assert_eq!((raw.totals.all, raw.totals.open), (Sum { count: 5, ns: 65 }, Sum { count: 1, ns: 5 }));
        assert_eq!((raw.totals.io, raw.stacks), (Sum { count: 2, ns: 20 }, 4));
        assert_eq!((raw.threshold_ns, raw.lost.unkept), (512, 1));
        assert_eq!((raw.lost.unmatched, raw.lost.ended_since), (2, 7), "the looks' are another thing");
    }

    /// Its interrupt never came before the interval ended: the wait is counted and has no stack.
    #[test]
    fn a_stack_that_is_half_there_is_none() {
        let half = |half_chance: u32| {
            let row = WireWaitsRow { half_tid: 1, half_took: 30, half_chance, ..WireWaitsRow::default() };
            let mut raw = RawBlocked::default();
            raw.count(&[row, WireWaitsRow { half_tid: 0, ..row }], &WireWaitsRow::default());
            raw.totals.bare
        };
        assert_eq!(half(0), Sum { count: 1, ns: 30 });
        assert_eq!(half(1 << 30), Sum { count: 4, ns: 120 });
    }

    #[test]
    fn who_slept_as_the_window_ended_gets_its_frames_and_its_time_stays_what_it_was() {
        let sample = Sample::new(5, 0, NO_USER | IO, b"cat", &[1, 2], &[]);
        let mut raw = RawBlocked::default();
        let two = Waits { waits: 512, ns: 70, sure_ns: 70, squares: 0, samples: 2 };
        raw.samples.insert(sample.clone(), two);
        raw.give_user(&sample, 30, &[8, 9]);
        let whole = Sample::new(5, 0, IO, b"cat", &[1, 2], &[8, 9]);
        let one = |ns| Waits { waits: 256, ns, sure_ns: ns, squares: 0, samples: 1 };
        assert_eq!((raw.samples[&sample], raw.samples[&whole]), (one(40), one(30)));
        raw.give_user(&sample, 40, &[8, 9]);
        assert_eq!((raw.samples.len(), raw.samples[&whole]), (1, two));
    }
}
