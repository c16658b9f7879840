//! Where the stacks come from.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use biopsy::analyze::blocked::BlockedSummary;
use biopsy::analyze::flame::{FlameSummary, What};
use biopsy::analyze::locks::waits::Waited;
use biopsy::analyze::profile::{Unit, folded};
use biopsy::analyze::stacks::NOT_TAKEN;
use biopsy::analyze::unwinding::unwinding;
use biopsy::analyze::{blocked, locks, stacks};
use biopsy::envelope::{Cost, Lost, Missing};
use biopsy::host::Host;
use biopsy::probe;
use biopsy::probe::blocked::{BlockedProbe, WaitOptions};
use biopsy::probe::filter::Filter;
use biopsy::probe::locks::LockProbe;
use biopsy::probe::reclaim::ReclaimProbe;
use biopsy::probe::stacks::StacksProbe;
use biopsy::render::text;
use biopsy::symbols::{Helper, Symbolizer};
use biopsy::wire::blocked::RawBlocked;
use biopsy::wire::locks::Reading;
use biopsy::wire::stacks::Sample;

use super::io;
use crate::cli::Flame;
use biopsy::session::background::Background;
use biopsy::session::submitters::Chosen;

/// What a window brought.
pub struct Taken {
    pub summary: FlameSummary,
    pub cost: Cost,
    pub missing: Vec<Missing>,
    pub lost: Lost,
    /// Why it must not be trusted, where that is more than a matter of how much was lost.
    pub doubt: Option<String>,
}

/// While a window is open, somebody has to look after what is measured: this is done again and again, for as long as it
/// is told at most.
pub type Beat<'a> = &'a mut dyn FnMut(Duration) -> Result<()>;

/// Nobody has to.
fn nap(time: Duration) -> Result<()> {
    std::thread::sleep(time);
    Ok(())
}

/// Samples, or waits, that are in no stack, by probe and kind.
fn lost(samples: u64, probe: &str, kinds: BTreeMap<String, u64>) -> Lost {
    Lost { samples, probes: BTreeMap::from([(probe.to_string(), kinds)]), ..Lost::default() }
}

/// Attaches, lets `window` pass, and names what came.
pub fn follow(
    what: What,
    args: &Flame,
    host: &Host,
    chosen: &Chosen,
    window: impl FnOnce(Beat<'_>) -> Result<()>,
) -> Result<Taken> {
    match what {
        What::OnCpu => on_cpu(args, &chosen.filter, window),
        What::LockWait => lock_wait(args, host, &chosen.filter, window),
        What::OffCpu | What::IoWait => {
            let options = probe::blocked::Options {
                waits: waits_of(args, chosen),
                io_wait: what == What::IoWait,
                ..Default::default()
            };
            let probe = BlockedProbe::attach(host, options)?;
            window(&mut nap)?;
            let missing = probe.missing().to_vec();
            Ok(blocked_time(what, &probe.finish()?, missing))
        }
        What::Io => io::follow(args, host, chosen, window),
        What::Reclaim => {
            let probe = ReclaimProbe::attach(host, waits_of(args, chosen))?;
            window(&mut nap)?;
            let missing = probe.missing().to_vec();
            Ok(blocked_time(what, &probe.finish()?, missing))
        }
    }
}

fn waits_of(args: &Flame, chosen: &Chosen) -> WaitOptions {
    WaitOptions {
        filter: chosen.filter.clone(),
        max_cost: args.max_cost,
        min_block: args.min_block.unwrap_or_default(),
        ..WaitOptions::default()
    }
}

fn is_wanted(filter: &Filter, sample: &Sample) -> bool {
    let is_named = |comm: &String| {
        let bytes = comm.as_bytes();
        // The kernel keeps 15 bytes of a name.
        sample.comm_bytes() == &bytes[..bytes.len().min(15)]
    };
    (filter.pids.is_empty() || filter.pids.contains(&sample.pid))
        && (filter.comms.is_empty() || filter.comms.iter().any(is_named))
}

/// Of one CPU, over the window; None where the kernel's statistics were off.
fn percent(ns: u64, of_ns: u64) -> Option<f64> {
    (ns > 0 && of_ns > 0).then(|| 100.0 * ns as f64 / of_ns as f64)
}

fn on_cpu(args: &Flame, filter: &Filter, window: impl FnOnce(Beat<'_>) -> Result<()>) -> Result<Taken> {
    let symbolizer = Symbolizer::new(Helper::own());
    let probe = StacksProbe::of_groups(args.freq, &filter.cgroups)?;
    window(&mut nap)?;
    let mut raw = probe.finish()?;
    let cost = Cost {
        cpu_percent: percent(raw.program_ns, raw.duration_ns),
        map_bytes: raw.map_bytes,
        ..Cost::default()
    };
    if !filter.is_empty() {
        raw.samples.retain(|sample, _| is_wanted(filter, sample));
        // Of the whole machine, which was not asked for.
        raw.idle_ns = None;
    }
    let names = symbolizer.names(&stacks::addresses(&raw));
    let summary = stacks::summarize(&raw, &names);
    let mut notes: Vec<String> = summary.sampler_note.clone().into_iter().collect();
    notes.extend(unwinding(&raw, &names).note());
    let profile = folded::profile(&summary.folded, Unit::Samples);
    Ok(Taken {
        summary: FlameSummary {
            what: Some(What::OnCpu),
            devices: Vec::new(),
            // Idle ones are in no stack.
            measured: profile.total(),
            profile,
            counts: None,
            duration_ns: raw.duration_ns,
            source: format!(
                "{} at {} Hz on {}",
                summary.sampler,
                raw.frequency,
                text::counted(raw.cpus.into(), "CPU")
            ),
            lost: raw.lost,
            period_ns: 1_000_000_000u64.checked_div(raw.frequency),
            notes,
            unnamed: names.unnamed(),
            recorded: None,
        },
        cost,
        missing: names.missing,
        lost: lost(raw.lost, "stacks", BTreeMap::from([("samples".to_string(), raw.lost)])),
        doubt: None,
    })
}

fn blocked_time(what: What, raw: &RawBlocked, mut missing: Vec<Missing>) -> Taken {
    let names = Symbolizer::new(Helper::own()).names(&blocked::addresses(raw));
    let summary = blocked::summarize(raw, &names);
    missing.extend(names.missing.iter().cloned());
    let notes = blocked_notes(what, &summary, blocked::cut_ns(raw, &names));
    let left_out = &summary.lost;
    let kinds = [
        ("unkept", left_out.unkept),
        ("unmatched", left_out.unmatched),
        ("missed", left_out.missed),
        ("unnamed", left_out.unnamed),
        ("full", left_out.full),
        ("over_budget", left_out.over),
        ("uninterrupted", left_out.uninterrupted),
        ("ended_since", left_out.ended_since),
    ];
    // The others have no stack of their own, and are in the sums.
    let gone = left_out.unkept + left_out.missed;
    Taken {
        summary: FlameSummary {
            what: Some(what),
            devices: Vec::new(),
            profile: folded::profile(&summary.folded, Unit::Nanoseconds),
            counts: None,
            duration_ns: summary.duration_ns,
            source: match what {
                What::Reclaim => "begin and end of reclaim by the kernel's events".to_string(),
                _ => "every switch of the scheduler".to_string(),
            },
            measured: summary.totals.all.count,
            lost: gone,
            period_ns: None,
            notes,
            unnamed: names.unnamed(),
            recorded: None,
        },
        cost: Cost {
            cpu_percent: percent(raw.program_ns, raw.duration_ns),
            map_bytes: raw.map_bytes,
            ..Cost::default()
        },
        missing,
        lost: lost(gone, what.word(), kinds.map(|(kind, n)| (kind.to_string(), n)).into_iter().collect()),
        doubt: None,
    }
}

const CUT: &str = "have user stacks that are cut: code without frame pointers hides its callers";

/// What must be known of the sums, one sentence each. `cut_ns`: of stacks whose user side is cut.
fn blocked_notes(what: What, summary: &BlockedSummary, cut_ns: u64) -> Vec<String> {
    let noun = match what {
        What::Reclaim => "reclaim",
        _ => "wait",
    };
    let totals = &summary.totals;
    let mut notes = vec![format!(
        "{} of {} together, counted exactly",
        text::counted(totals.all.count, noun),
        text::time(totals.all.ns)
    )];
    let due = totals.all.count.saturating_sub(totals.brief.count);
    if due > 0 && summary.no_stack_ns == 0 && summary.sampled.samples >= due {
        notes.push(match totals.brief.count {
            0 => "each has its stack: nothing was left out".to_string(),
            _ => "each that is not shorter than --min-block has its stack: no other was left out".to_string(),
        });
    } else if summary.is_sampled() {
        notes.push(format!(
            "stacks of {} of them: {noun}s below a threshold, of {} at its highest, were left to chance, in proportion to \
             their length, and stand for what was counted of their process",
            text::count(summary.sampled.samples),
            text::time(summary.threshold_ns)
        ));
    }
    if let Some(half) = summary.half_width {
        // Nobody reads a share closer than that.
        let half = half.max(0.01);
        notes.push(format!("a share is known to ±{} points at most (95 %)", text::significant(half, 2)));
    }
    let mut also = |ns: u64, words: &str| {
        if ns > 0 {
            notes.push(format!("{} {words}", text::time(ns)));
        }
    };
    also(
        summary.pooled_ns,
        "of it are of processes with too few of them: they stand for what was counted of all of their name, or of all such",
    );
    also(totals.brief.ns, &format!("of it are of {noun}s shorter than --min-block, and are not drawn"));
    also(summary.no_stack_ns, &format!("are of {noun}s whose stacks were not taken"));
    also(summary.kernel_failed_ns, "have no frames of the kernel: they could not be read");
    let whose = match summary.lost.uninterrupted {
        0 => "they are of tasks that slept on as the window ended, and could not be looked into",
        _ => "no interrupt came to take them in, or they are of tasks that slept on as the window ended",
    };
    also(summary.no_user_ns, &format!("have no frames of user mode ({NOT_TAKEN}): {whose}"));
    also(summary.user_failed_ns, "have no frames of user mode: they could not be read");
    also(cut_ns, CUT);
    also(totals.queued_ns, "more were spent ready to run, waiting for a CPU, and are not in it");
    notes
}

fn lock_wait(
    args: &Flame,
    host: &Host,
    filter: &Filter,
    window: impl FnOnce(Beat<'_>) -> Result<()>,
) -> Result<Taken> {
    let options = probe::locks::Options {
        filter: filter.clone(),
        max_cost: args.max_cost,
        room: probe::locks::ROOM,
        waiters: true,
        spin: false,
        cost: !args.no_cost,
        no_events: false,
    };
    let (first, end, missing, cost) = beside(host, &options, window)?;
    let names = Symbolizer::new(Helper::own()).names(&locks::addresses(&end));
    let summary = locks::summarize(host, &first, &end, &names, &[]);
    let Waited { counts, times: profile, cut_ns, no_user_ns } = Waited::of(&summary);
    let left_out = locks::trust::lost(&summary);
    let stacks = &summary.stacks;
    let mut notes = Vec::new();
    if stacks.is_estimated() {
        notes.push(format!(
            "stacks of {} of {} waits: each lock has what was counted of it, which its stacks share",
            text::count(stacks.taken),
            text::count(stacks.of)
        ));
    }
    let mut also = |ns: u64, words: &str| {
        if ns > 0 {
            notes.push(format!("{} {words}", text::time(ns)));
        }
    };
    also(no_user_ns, &format!("have no frames of user mode ({NOT_TAKEN}): the table of waiters was full"));
    also(cut_ns, CUT);
    Ok(Taken {
        summary: FlameSummary {
            what: Some(What::LockWait),
            devices: Vec::new(),
            profile,
            counts: Some(counts),
            duration_ns: summary.duration_ns,
            source: format!(
                "{} by {}",
                text::counted(summary.events.contentions, "wait"),
                summary.source.name()
            ),
            measured: summary.events.contentions,
            lost: left_out.events,
            period_ns: None,
            notes,
            unnamed: names.unnamed(),
            recorded: None,
        },
        cost,
        missing: [locks::missing(&missing, &summary), names.missing].concat(),
        lost: Lost { samples: left_out.events, probes: left_out.probes, ..Lost::default() },
        doubt: None,
    })
}

/// Both readings, what was missing, and the cost.
type Read = (Reading, Reading, Vec<Missing>, Cost);

/// The probe of locks wants to be looked after while the window passes, which is done on a thread of its own.
fn beside(
    host: &Host,
    options: &probe::locks::Options,
    window: impl FnOnce(Beat<'_>) -> Result<()>,
) -> Result<Read> {
    let (host, options) = (host.clone(), options.clone());
    let prepare = move || LockProbe::prepare(&host, Path::new("/"), &options);
    let read = |probe: &LockProbe, start: &Reading, end: &Reading| {
        let seconds = end.at_ns.saturating_sub(start.at_ns) as f64 / 1e9;
        let sum = |reading: &Reading| reading.cpus.iter().map(|row| row.contentions).sum::<u64>();
        let rate = sum(end).saturating_sub(sum(start)) as f64 / seconds.max(1e-9);
        (start.clone(), end.clone(), probe.missing().to_vec(), probe.cost(rate))
    };
    let locks = Background::start(prepare, LockProbe::begin, read)?;
    locks.begin();
    locks.begun();
    window(&mut nap)?;
    locks.finish()
}

#[cfg(test)]
mod tests {
    use biopsy::wire::blocked::{Sum, Totals, Waits};

    use super::*;

    fn summary(count: u64, samples: u64) -> BlockedSummary {
        BlockedSummary {
            totals: Totals { all: Sum { count, ns: 9_000_000 }, ..Totals::default() },
            sampled: Waits { samples, ..Waits::default() },
            threshold_ns: 256,
            ..BlockedSummary::default()
        }
    }

    #[test]
    fn what_was_left_to_chance_is_called_what_it_is() {
        let notes = blocked_notes(What::Reclaim, &BlockedSummary { no_stack_ns: 5, ..summary(480, 479) }, 0);
        assert_eq!(notes[0], "480 reclaims of 9.00 ms together, counted exactly");
        assert!(
            notes[1]
                .starts_with("stacks of 479 of them: reclaims below a threshold, of 256 ns at its highest,"),
            "{notes:?}"
        );
        assert_eq!(notes[2], "5 ns are of reclaims whose stacks were not taken");
        assert!(!notes.concat().contains("wait"), "{notes:?}");
        let notes = blocked_notes(What::OffCpu, &summary(480, 479), 0);
        assert!(
            notes[0].starts_with("480 waits of")
                && notes[1].contains("waits below a threshold, of 256 ns at"),
            "{notes:?}"
        );
    }

    #[test]
    fn time_without_user_frames_has_its_reason() {
        let note = |uninterrupted| {
            let lost = biopsy::wire::blocked::Lost { uninterrupted, ..Default::default() };
            let summary = BlockedSummary { no_user_ns: 7_000, lost, ..summary(480, 479) };
            let notes = blocked_notes(What::OffCpu, &summary, 0);
            notes.into_iter().find(|note| note.contains("[user stack not taken]")).unwrap()
        };
        let (asleep, refused) = (note(0), note(1));
        for note in [&asleep, &refused] {
            assert!(note.starts_with("7.00 µs have no frames of user mode"), "{note}");
            assert!(note.contains("slept on as the window ended"), "{note}");
        }
        assert!(refused.contains("no interrupt") && !asleep.contains("no interrupt"), "{refused}");
    }

    #[test]
    fn how_far_a_share_may_be_off_is_said_where_chance_had_a_say() {
        let off = BlockedSummary { half_width: Some(4.3), ..summary(480, 100) };
        let notes = blocked_notes(What::OffCpu, &off, 0);
        assert!(notes.contains(&"a share is known to ±4.3 points at most (95 %)".to_string()), "{notes:?}");
        assert!(!blocked_notes(What::OffCpu, &summary(480, 480), 0).concat().contains('±'));
    }

    #[test]
    fn time_that_is_scaled_with_that_of_others_is_told() {
        let notes = blocked_notes(What::OffCpu, &BlockedSummary { pooled_ns: 7_000, ..summary(480, 100) }, 0);
        assert!(
            notes.iter().any(|note| note.starts_with("7.00 µs of it are of processes with too few")),
            "{notes:?}"
        );
        assert!(!blocked_notes(What::OffCpu, &summary(480, 100), 0).concat().contains("too few"));
    }

    /// The threshold was up at some time, and nothing came that was below it.
    #[test]
    fn nothing_is_left_to_chance_where_each_has_its_stack() {
        for what in [What::Reclaim, What::OffCpu] {
            let notes = blocked_notes(what, &summary(480, 480), 0);
            assert_eq!(notes[1..], ["each has its stack: nothing was left out"]);
        }
        let mut brief = summary(480, 400);
        brief.totals.brief = Sum { count: 80, ns: 1_000 };
        let notes = blocked_notes(What::OffCpu, &brief, 0);
        assert!(notes[1].starts_with("each that is not shorter than --min-block has its stack"), "{notes:?}");
        assert!(!notes.concat().contains("chance"), "{notes:?}");
    }
}
