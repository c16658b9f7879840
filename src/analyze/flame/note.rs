//! Notes that qualify the values of a flame graph, as data.

use std::collections::BTreeMap;

use super::super::blocked::BlockedSummary;
use super::super::latency::DeviceLatency;
use super::super::locks::StackSampling;
use super::super::locks::waits::WaitProfiles;
use super::super::stack_quality::StackQuality;
use super::super::submits::{SubmitSummary, TimePart};
use crate::wire::stacks::Sampler;
use crate::wire::submits::Submits;

/// One fact about the values, which the renderer turns into a sentence. Times are in ns.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// The blind spot of this sampler.
    Sampler(Sampler),
    /// How the user stacks of samples end.
    UserStacks(StackQuality),
    /// All waits, or all of reclaim.
    Counted {
        count: u64,
        ns: u64,
    },
    EachHasStack,
    /// Except for those shorter than `--min-block`.
    EachLongHasStack,
    /// Waits below the threshold were sampled; this many have stacks.
    Sampled {
        stacks: u64,
        threshold_ns: u64,
    },
    /// Half-width of a share in percent of all, with 95 % confidence.
    Share {
        points: f64,
    },
    /// Same for I/Os: one in this many has a stack.
    OneIn {
        ios: f64,
        points: f64,
    },
    /// Lock waits with stacks.
    LockStacks {
        taken: u64,
        of: u64,
    },
    /// Time of processes with too few stacks to scale each by itself.
    Pooled(u64),
    /// Time of sleeping threads and idle workers, which are not drawn.
    Idle(u64),
    /// Time of waits shorter than `--min-block`.
    Brief(u64),
    NoStack(u64),
    NoKernelFrames(u64),
    /// No user stack: the task still slept at the end, and could not be read from outside.
    Asleep(u64),
    /// Same, or no interrupt came to take it.
    NotInterrupted(u64),
    /// No user stack: there was no room for the waiter of a lock.
    NoWaiter(u64),
    NoUserFrames(u64),
    /// Time of user stacks that are cut.
    Cut(u64),
    /// Time ready to run, which is not included in the values.
    Queued(u64),
    /// Time of I/Os by stage.
    Stages(BTreeMap<TimePart, u64>),
    /// The I/Os of this device are also counted on the disk below.
    CountedTwice(String),
    /// Time by which taking stacks delayed I/Os.
    Overhead(u64),
    /// Time of I/Os of classes without any stack.
    NoIoStack(u64),
    /// Stacks that found no room in their table.
    TableFull(u64),
    /// Bios without a stack, because the CPU budget was spent.
    OverBudget(u64),
    /// Stacks that an interrupt prevented.
    Interrupted(u64),
    /// I/Os with a stack whose event was lost.
    LostIos(u64),
    /// `--max-cost` is 0.
    NoBudget,
    /// Folded text has no unit.
    UnitGuessed,
    /// A sentence from a file.
    Recorded(String),
}

impl Note {
    pub fn of_samples(sampler: Sampler, user_stacks: StackQuality) -> Vec<Self> {
        let blind = sampler.note().map(|_| Self::Sampler(sampler));
        let cut = (!user_stacks.is_whole()).then_some(Self::UserStacks(user_stacks));
        [blind, cut].into_iter().flatten().collect()
    }

    /// For waits, or for reclaim. `cut_ns`: time of user stacks that are cut.
    pub fn of_waits(summary: &BlockedSummary, cut_ns: u64) -> Vec<Self> {
        let (all, brief) = (summary.totals.all, summary.totals.brief);
        let mut notes = vec![Self::Counted { count: all.count, ns: all.ns }];
        let due = all.count.saturating_sub(brief.count);
        if due > 0 && summary.no_stack_ns == 0 && summary.sampled.samples >= due {
            notes.push(if brief.count == 0 { Self::EachHasStack } else { Self::EachLongHasStack });
        } else if summary.is_sampled() {
            let (stacks, threshold_ns) = (summary.sampled.samples, summary.threshold_ns);
            notes.push(Self::Sampled { stacks, threshold_ns });
        }
        notes.extend(summary.half_width.map(|points| Self::Share { points }));
        let no_user = if summary.lost.uninterrupted == 0 { Self::Asleep } else { Self::NotInterrupted };
        let mut add = |n: u64, note: fn(u64) -> Self| notes.extend((n > 0).then(|| note(n)));
        add(summary.pooled_ns, Self::Pooled);
        add(brief.ns, Self::Brief);
        add(summary.no_stack_ns, Self::NoStack);
        add(summary.kernel_failed_ns, Self::NoKernelFrames);
        add(summary.no_user_ns, no_user);
        add(summary.user_failed_ns, Self::NoUserFrames);
        add(cut_ns, Self::Cut);
        add(summary.totals.queued_ns, Self::Queued);
        notes
    }

    pub fn of_lock_waits(waited: &WaitProfiles, stacks: &StackSampling) -> Vec<Self> {
        let mut notes = Vec::new();
        let taken = Self::LockStacks { taken: stacks.taken, of: stacks.of };
        notes.extend(stacks.is_estimated().then_some(taken));
        notes.extend((waited.no_user_ns > 0).then_some(Self::NoWaiter(waited.no_user_ns)));
        notes.extend((waited.cut_ns > 0).then_some(Self::Cut(waited.cut_ns)));
        notes
    }

    /// `devices`: those with I/Os.
    pub fn of_ios(summary: &SubmitSummary, submits: &Submits, devices: &[&DeviceLatency]) -> Vec<Self> {
        let mut notes = Vec::new();
        notes.extend((summary.ios > 0).then(|| Self::Stages(summary.parts.clone())));
        let half = summary.half_width.filter(|_| summary.sampled < summary.ios);
        let ios = summary.ios as f64 / summary.sampled as f64;
        notes.extend(half.map(|points| Self::OneIn { ios, points }));
        // Each layer has its own time. What is below a loop device is a file to the kernel.
        let is_above = |device: &&&DeviceLatency| {
            device.name.starts_with("loop") && devices.len() > 1
                || devices.iter().any(|other| device.stands_on(&other.name))
        };
        notes.extend(devices.iter().filter(is_above).map(|device| Self::CountedTwice(device.name.clone())));
        let mut add = |n: u64, note: fn(u64) -> Self| notes.extend((n > 0).then(|| note(n)));
        add(summary.stacks_ns, Self::Overhead);
        add(summary.no_stack_ns, Self::NoIoStack);
        add(summary.cut_ns, Self::Cut);
        add(submits.full, Self::TableFull);
        add(submits.over, Self::OverBudget);
        add(submits.nested, Self::Interrupted);
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::blocked::{Lost, Sum, Totals, Waits};

    fn summary(samples: u64) -> BlockedSummary {
        BlockedSummary {
            totals: Totals { all: Sum { count: 480, ns: 9_000_000 }, ..Totals::default() },
            sampled: Waits { samples, ..Waits::default() },
            threshold_ns: 256,
            ..BlockedSummary::default()
        }
    }

    const COUNTED: Note = Note::Counted { count: 480, ns: 9_000_000 };

    #[test]
    fn what_was_sampled_is_said() {
        let sampled = Note::Sampled { stacks: 479, threshold_ns: 256 };
        let bare = BlockedSummary { no_stack_ns: 5, ..summary(479) };
        assert_eq!(Note::of_waits(&bare, 0), [COUNTED, sampled.clone(), Note::NoStack(5)]);
        let off = BlockedSummary { half_width: Some(4.3), pooled_ns: 7, ..summary(479) };
        assert_eq!(
            Note::of_waits(&off, 3),
            [COUNTED, sampled, Note::Share { points: 4.3 }, Note::Pooled(7), Note::Cut(3)]
        );
    }

    /// The threshold was raised at some time, but no wait was below it.
    #[test]
    fn nothing_is_sampled_where_each_has_its_stack() {
        assert_eq!(Note::of_waits(&summary(480), 0), [COUNTED, Note::EachHasStack]);
        let mut brief = summary(400);
        brief.totals.brief = Sum { count: 80, ns: 1_000 };
        assert_eq!(Note::of_waits(&brief, 0), [COUNTED, Note::EachLongHasStack, Note::Brief(1_000)]);
    }

    #[test]
    fn time_without_user_frames_has_its_reason() {
        let note = |uninterrupted| {
            let lost = Lost { uninterrupted, ..Lost::default() };
            let summary = BlockedSummary { no_user_ns: 7, lost, ..summary(480) };
            Note::of_waits(&summary, 0).pop().unwrap()
        };
        assert_eq!((note(0), note(1)), (Note::Asleep(7), Note::NotInterrupted(7)));
    }
}
