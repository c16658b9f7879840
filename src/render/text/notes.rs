//! Renders the notes that qualify a flame graph, one sentence each.

use std::collections::BTreeMap;

use super::{clean, count, counted, significant, time};
use crate::analyze::flame::{FlameSummary, Note, What};
use crate::analyze::stack_quality::{Ending, MAX_FRAMES, StackQuality};
use crate::analyze::stacks::NOT_TAKEN;

const CUT: &str = "are cut: code without frame pointers hides its callers";

/// Notes on the measured values.
pub fn of(summary: &FlameSummary) -> Vec<String> {
    let noun = match summary.what {
        Some(What::Reclaim) => "reclaim",
        _ => "wait",
    };
    summary.notes.iter().map(|note| sentence(note, noun)).collect()
}

/// Same, with a note on a file's frames that had no name.
pub fn all(summary: &FlameSummary) -> Vec<String> {
    let naming = summary.recorded.iter().filter_map(|recorded| recorded.naming.clone());
    of(summary).into_iter().chain(naming).collect()
}

/// `noun`: what was counted.
fn sentence(note: &Note, noun: &str) -> String {
    let timed = |ns: &u64, words: &str| format!("{} {words}", time(*ns));
    let some = |n: &u64, words: &str| format!("{} {words}", count(*n));
    let no_user = |ns: &u64, why: &str| timed(ns, &format!("have no user frames ({NOT_TAKEN}): {why}"));
    match note {
        Note::Sampler(sampler) => sampler.note().unwrap_or_default().into(),
        Note::UserStacks(found) => user_stacks(&found.endings),
        Note::Counted { count, ns } => {
            format!("{}, {} in total (exact)", counted(*count, noun), time(*ns))
        }
        Note::EachHasStack => "each one has a stack".into(),
        Note::EachLongHasStack => "each one not shorter than --min-block has a stack".into(),
        Note::Sampled { stacks, threshold_ns } => format!(
            "{} of them have stacks: {noun}s under {} were sampled in proportion to their length, and \
             scaled up to the totals of their process",
            count(*stacks),
            time(*threshold_ns)
        ),
        Note::Share { points } => share(*points),
        Note::OneIn { ios, points } => {
            let share = share(*points);
            format!("about one I/O in {} has a stack, as --max-cost allows; {share}", significant(*ios, 2))
        }
        Note::LockStacks { taken, of } => {
            let why = "the totals of each lock are exact, and are divided among its stacks";
            format!("stacks of {} of {} waits: {why}", count(*taken), count(*of))
        }
        Note::Pooled(ns) => {
            timed(ns, "belong to processes with too few stacks: these are pooled by name, or all together")
        }
        Note::Idle(ns) => timed(
            ns,
            "belong to sleeping threads and idle workers, and are not drawn: --all-waits shows them",
        ),
        Note::Brief(ns) => {
            timed(ns, &format!("belong to {noun}s shorter than --min-block, and are not drawn"))
        }
        Note::NoStack(ns) => timed(ns, &format!("belong to {noun}s whose stacks were not taken")),
        Note::NoKernelFrames(ns) => timed(ns, "have no kernel frames: they could not be read"),
        Note::Asleep(ns) => no_user(ns, "their tasks still slept when the run ended, and could not be read"),
        Note::NotInterrupted(ns) => {
            no_user(ns, "no interrupt came to take them, or their tasks still slept when the run ended")
        }
        Note::NoWaiter(ns) => no_user(ns, "the table of waiters was full"),
        Note::NoUserFrames(ns) => timed(ns, "have no user frames: they could not be read"),
        Note::Cut(ns) => timed(ns, &format!("have user stacks that {CUT}")),
        Note::Queued(ns) => timed(ns, "more were spent runnable, waiting for a CPU, and are not included"),
        Note::Stages(parts) => {
            let parts = parts.iter().map(|(part, ns)| format!("{} {}", part.name(), time(*ns)));
            format!("by stage, all I/Os: {}", parts.collect::<Vec<_>>().join(", "))
        }
        Note::CountedTwice(device) => {
            format!("I/Os of {} count again on the disk below: name one of them with -d", clean(device))
        }
        Note::Overhead(ns) => timed(ns, "of tracing overhead is subtracted from submit and queue"),
        Note::NoIoStack(ns) => {
            timed(ns, "belong to groups of I/Os without any stack: the kernel's own flushes, or too few I/Os")
        }
        Note::TableFull(n) => some(n, "stacks found no room in their table, and are shown as such"),
        Note::OverBudget(n) => some(n, "bios came when the budget was spent: others were scaled up for them"),
        Note::Interrupted(n) => some(n, "were not taken because an interrupt came in between"),
        Note::LostIos(n) => {
            let why = "because the reader was too slow: others were scaled up for them";
            format!("{} with a stack were lost, {why}", counted(*n, "I/O"))
        }
        Note::NoBudget => "no stack was taken, because --max-cost is 0".into(),
        Note::UnitGuessed => {
            "folded text does not name its unit: taken as samples; use --unit ns if these are nanoseconds"
                .into()
        }
        Note::Recorded(text) => text.clone(),
    }
}

/// A finer precision than a hundredth is irrelevant.
fn share(points: f64) -> String {
    format!("shares are exact to ±{} points or better (95 %)", significant(points.max(0.01), 2))
}

/// How user stacks end, in samples.
pub(crate) fn user_stacks(endings: &BTreeMap<Ending, u64>) -> String {
    let found = StackQuality { endings: endings.clone(), at: Vec::new() };
    let judged = found.judged();
    let percent = |n: u64| 100.0 * n as f64 / judged as f64;
    let (hidden, full) = (found.of(Ending::Short) + found.of(Ending::Lost), found.of(Ending::Full));
    let (unjudged, failed) = (found.of(Ending::Unjudged), found.of(Ending::Failed));
    let unknown = "their programs have no symbols, or ended before their symbols were read";
    let deep = format!("have more than {MAX_FRAMES} frames, the most that are taken");
    let parts = [
        (hidden, format!("{hidden} of {judged} user stacks ({:.0} %) {CUT}", percent(hidden))),
        (full, format!("{full} ({:.0} %) {deep}", percent(full))),
        (unjudged, format!("{unjudged} cannot be checked: {unknown}")),
        (failed, format!("{failed} could not be taken")),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|(n, _)| *n > 0).map(|(_, text)| text).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::profile::{Profile, Unit};

    fn notes<const N: usize>(what: What, notes: [Note; N]) -> [String; N] {
        let profile = Profile::new(Unit::Nanoseconds);
        let summary = FlameSummary { notes: notes.into(), ..FlameSummary::new(Some(what), profile) };
        of(&summary).try_into().unwrap()
    }

    #[test]
    fn what_was_sampled_is_called_what_it_is() {
        let all = [Note::Counted { count: 480, ns: 9_000_000 }, Note::NoStack(5)];
        let [counted, bare] = notes(What::Reclaim, all);
        assert_eq!(counted, "480 reclaims, 9.00 ms in total (exact)");
        assert_eq!(bare, "5 ns belong to reclaims whose stacks were not taken");
        let [sampled, share] = notes(
            What::OffCpu,
            [Note::Sampled { stacks: 479, threshold_ns: 256 }, Note::OneIn { ios: 12.34, points: 0.0 }],
        );
        assert!(sampled.starts_with("479 of them have stacks: waits under 256 ns were sampled"), "{sampled}");
        assert!(share.ends_with(
            "I/O in 12 has a stack, as --max-cost allows; shares are exact to ±0.010 points or better (95 %)"
        ));
    }

    #[test]
    fn user_stacks_that_are_cut_are_a_share_of_those_judged() {
        let endings = [(Ending::Root, 60), (Ending::Short, 30), (Ending::Failed, 10), (Ending::Unjudged, 5)];
        let found = StackQuality { endings: endings.into(), at: Vec::new() };
        let [text] = notes(What::OnCpu, [Note::UserStacks(found)]);
        assert!(
            text.starts_with("30 of 90 user stacks (33 %) are cut: code without frame pointers"),
            "{text}"
        );
        assert!(text.ends_with("before their symbols were read; 10 could not be taken"), "{text}");
    }
}
