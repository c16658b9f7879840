//! Renders `biopsy locks` as text.

use super::{Style, bytes, clean, count, fit, fitted, footer, short, significant, table, time};
use crate::analyze::locks::holders::{Holder, Waiter};
use crate::analyze::locks::{LockRow, LockSummary};
use crate::envelope::Envelope;
use crate::merge::SaturatingSum as _;

/// Locks, processes, locks with stacks and frames shown without --all.
const MOST_LOCKS: usize = 16;
const MOST_PROCESSES: usize = 5;
const MOST_STACKS: usize = 3;
const MOST_FRAMES: usize = 8;
/// Maximum length of a lock's name, which may include a path.
const MOST_NAME: usize = 60;

/// The view if lock waits cannot be traced: only the accompanying parts.
pub fn unseen(envelope: &Envelope, parts: &str, command_status: Option<i32>, style: Style) -> String {
    let why = envelope.missing.iter().find(|gap| gap.part.as_deref() == Some("locks"));
    let mut out =
        format!("locks  not measured: {}\n\n{parts}\n", clean(why.map_or("unknown", |gap| &gap.why)));
    out.push_str(&footer::lost(envelope));
    out.push_str(&footer::cost(envelope));
    if !style.brief {
        out.push_str(&footer::missing(&envelope.missing, &[]));
    }
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    fit(&out, style.width)
}

/// The whole view. `parts` is the text of the accompanying parts, as whole lines.
pub fn render(
    envelope: &Envelope,
    summary: &LockSummary,
    parts: &str,
    command_status: Option<i32>,
    style: Style,
) -> String {
    let mut out = headline(summary, style);
    let most = if style.all { usize::MAX } else { MOST_LOCKS };
    if !summary.locks.is_empty() {
        out.push('\n');
        out.push_str(&locks_table(summary, most, style));
        let rest = summary.locks.len().saturating_sub(most);
        if rest > 0 {
            let wait: u64 = summary.locks[most..].iter().map(|row| row.wait.sum()).saturating_sum();
            out.push_str(&format!("and {rest} more locks, {} of wait time: --all shows them\n", time(wait)));
        }
    }
    if summary.left_out.locks > 0 {
        out.push_str(&format!(
            "left out: {} locks of other devices, {} of wait time\n",
            count(summary.left_out.locks),
            time(summary.left_out.wait_ns)
        ));
    }
    out.push_str(&waiters(summary, style));
    out.push_str(&still_waiting(summary, style));
    out.push_str(&holders(summary, most));
    out.push_str(&stacks(summary, style));
    out.push_str(&places(summary));
    if !parts.is_empty() {
        out.push('\n');
        out.push_str(parts);
    }
    out.push('\n');
    out.push_str(&books(summary));
    out.push_str(&footer::lost(envelope));
    out.push_str(&cost(envelope, summary));
    if !style.brief {
        out.push_str(&footer::missing(&envelope.missing, &[]));
    }
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    fit(&out, style.width)
}

fn headline(summary: &LockSummary, style: Style) -> String {
    let bold = |text: &str| if style.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() };
    let events = &summary.events;
    let mut out = if events.contentions == 0 {
        "No lock waits.\n".to_string()
    } else {
        format!(
            "{}  in {} {} waits/s, {} of wait time per second, {} % of it for spinlocks\n",
            bold("locks"),
            time(summary.duration_ns),
            short(summary.contentions_per_second()),
            time((events.wait_ns as f64 / summary.seconds().max(1e-9)) as u64),
            significant(100.0 * events.spin_wait_ns as f64 / events.wait_ns.max(1) as f64, 3)
        )
    };
    if let Some(spin) = &summary.spin {
        let range = match spin.high > spin.low {
            true => format!("{} to {}", significant(spin.low, 2), significant(spin.high, 2)),
            false => significant(spin.low, 2),
        };
        out.push_str(&format!(
            "  CPUs spent {range} % of one CPU spinning on locks ({} samples by {})\n",
            count(spin.samples),
            spin.sampler.name()
        ));
    }
    if let Some(slow) = &summary.slow_path {
        out.push_str(&format!(
            "  {} entries into the slow path of spinlocks, {} of them without an event (pending-bit waiters)\n",
            count(slow.calls),
            count(slow.pending_bit_waiters)
        ));
    }
    out
}

fn locks_table(summary: &LockSummary, most: usize, style: Style) -> String {
    let all = summary.events.wait_ns.max(1) as f64;
    let row = |row: &LockRow| {
        let quantile = |q| row.wait.quantile(q).map_or("-".to_string(), time);
        vec![
            fitted(&clean(&row.name), if style.all { usize::MAX } else { MOST_NAME }),
            row.kind.name().to_string(),
            row.by.name().to_string(),
            short(row.wait.count() as f64 / summary.seconds().max(1e-9)),
            time(row.wait.sum()),
            significant(100.0 * row.wait.sum() as f64 / all, 2),
            quantile(0.5),
            quantile(0.99),
            row.wait.max().map_or("-".to_string(), time),
        ]
    };
    let rows: Vec<Vec<String>> = summary.locks.iter().take(most).map(row).collect();
    table(&["lock", "kind", "named by", "waits/s", "waited", "%", "p50", "p99", "max"], &rows)
}

fn waiters(summary: &LockSummary, style: Style) -> String {
    let most = if style.all { usize::MAX } else { MOST_PROCESSES };
    let one = |row: &crate::analyze::locks::ProcessRow| {
        let wait = time(row.waits.wait_ns);
        let comm = if row.pid == 0 { "idle CPUs".to_string() } else { clean(&row.comm) };
        format!("{comm} ({}) {wait}", row.pid)
    };
    let mut shown: Vec<String> = summary.processes.iter().take(most).map(one).collect();
    if summary.other_processes > 0 {
        shown.push(format!("other processes {} times", count(summary.other_processes)));
    }
    if shown.is_empty() { String::new() } else { format!("\nwaited: {}\n", shown.join(", ")) }
}

/// Threads that slept for a lock at the end of the interval, which are in no row above.
fn still_waiting(summary: &LockSummary, style: Style) -> String {
    let most = if style.all { usize::MAX } else { MOST_PROCESSES };
    let all = summary.waiting.as_deref().unwrap_or_default();
    let one = |row: &Waiter| {
        format!(
            "  {} ({}) for {}, {} so far\n",
            clean(&row.comm),
            row.tid,
            fitted(&clean(&row.lock), if style.all { usize::MAX } else { MOST_NAME }),
            time(row.ns)
        )
    };
    let shown: String = all.iter().take(most).map(one).collect();
    match all.len().saturating_sub(most) {
        _ if all.is_empty() => String::new(),
        0 => format!("\nstill waiting at the end:\n{shown}"),
        rest => format!("\nstill waiting at the end:\n{shown}  and {rest} more: --all shows them\n"),
    }
}

/// The holders that released the shown locks, if the kernel reports them.
fn holders(summary: &LockSummary, most: usize) -> String {
    let with_holder = summary.locks.iter().take(most).filter_map(|row| Some((row, row.holder.as_ref()?)));
    let one = |(row, holder): (&LockRow, &Holder)| {
        let held = holder.mean_ns().map_or("for an unknown time".to_string(), |mean| {
            let bound = if holder.at_least > 0 { "at least " } else { "" };
            let most = holder.max_hold_ns.map_or(String::new(), |ns| format!(" {} at most,", time(ns)));
            format!("for {bound}{} on average,{most} of {} of them", time(mean), count(holder.holds))
        });
        format!(
            "  {}: last by {} ({}), {} releases; held {held}\n",
            fitted(&clean(&row.name), MOST_NAME),
            clean(&holder.comm),
            holder.pid,
            count(holder.releases)
        )
    };
    let all: String = with_holder.map(one).collect();
    if all.is_empty() { all } else { format!("\nreleased while others waited for it:\n{all}") }
}

fn places(summary: &LockSummary) -> String {
    if summary.by_cpu.is_empty() {
        return String::new();
    }
    let one = |word: &str, number: u32, ns: u64| format!("{word} {number} {}", time(ns));
    let mut cpus: Vec<_> = summary.by_cpu.iter().collect();
    cpus.sort_by_key(|of| (std::cmp::Reverse(of.waits.wait_ns), of.cpu));
    let mut words: Vec<String> =
        cpus.iter().take(MOST_PROCESSES).map(|of| one("CPU", of.cpu, of.waits.wait_ns)).collect();
    if summary.by_node.len() > 1 {
        words.extend(summary.by_node.iter().map(|of| one("node", of.node, of.waits.wait_ns)));
    }
    format!("where: {}\n", words.join(", "))
}

/// The call paths with the longest waits.
fn stacks(summary: &LockSummary, style: Style) -> String {
    let most = if style.all { usize::MAX } else { MOST_STACKS };
    let with_stacks = summary.locks.iter().filter(|row| !row.stacks.is_empty()).take(most);
    let about = if summary.stacks.is_estimated() { "about " } else { "" };
    let one = |row: &LockRow| {
        let stack = &row.stacks[0];
        let shown = stack.frames.iter().take(if style.all { usize::MAX } else { MOST_FRAMES });
        let frames: Vec<String> = shown.map(|frame| clean(frame)).collect();
        let more = if stack.frames.len() > frames.len() { " < ..." } else { "" };
        let ways = if row.stacks.len() > 1 {
            format!(", first of {} call paths", row.stacks.len())
        } else {
            String::new()
        };
        format!(
            "{}: {about}{} in {} waits{ways}\n  {}{more}\n",
            clean(&row.name),
            time(stack.wait_ns),
            count(stack.contentions),
            frames.join(" < ")
        )
    };
    let all: String = with_stacks.map(one).collect();
    if all.is_empty() { all } else { format!("\n{all}") }
}

/// Counts, and how stacks were selected.
fn books(summary: &LockSummary) -> String {
    let events = &summary.events;
    let begins = &events.begins;
    let kinds: Vec<String> =
        begins.by_kind.iter().map(|(kind, n)| format!("{} {}", kind.name(), count(*n))).collect();
    let mut out = format!(
        "measured {} starts of waits ({}), {} ends; {} starts were by threads already waiting{}; {} did \
         not end\n",
        count(begins.total),
        if kinds.is_empty() { "none".to_string() } else { kinds.join(", ") },
        count(events.contentions),
        count(begins.repeats),
        match begins.filtered {
            0 => String::new(),
            others => format!(", {} by threads that were not selected", count(others)),
        },
        count(begins.unended)
    );
    let stacks = &summary.stacks;
    if stacks.taken > 0 {
        let share = 100.0 * stacks.taken as f64 / stacks.of.max(1) as f64;
        let below = if stacks.threshold_ns > 0 {
            format!(", waits shorter than {} sampled", time(stacks.threshold_ns))
        } else {
            String::new()
        };
        out.push_str(&format!(
            "stacks of {} of the waits ({} %{below}): figures by stack are {}\n",
            count(stacks.taken),
            significant(share, 3),
            if stacks.is_estimated() { "estimates, all other figures are exact" } else { "exact" }
        ));
    }
    out
}

fn cost(envelope: &Envelope, summary: &LockSummary) -> String {
    let cost = &envelope.cost;
    let maps = bytes(cost.map_bytes as f64);
    let stacks = summary.stacks.ns as f64 / summary.events.contentions.max(1) as f64;
    match (cost.ns_per_contention, cost.attach_ns_per_contention, cost.cpu_percent) {
        (Some(net), Some(attach), Some(cpu)) => format!(
            "cost {net:.0} ns per wait in the programs ({stacks:.0} for stacks) + {attach:.0} ns to call them, {} % of \
             one CPU; maps {maps}\n",
            significant(cpu, 2)
        ),
        _ => format!(
            "cost not measured: too few waits, or the kernel's program statistics were off; maps {maps}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::locks::{ProcessRow, SlowPath, Waits};

    #[test]
    fn waits_of_processes_without_a_row_are_told() {
        let waits = Waits { contentions: 2, wait_ns: 360 };
        let fio = ProcessRow { pid: 7, comm: "fio".to_string(), waits, max_wait_ns: None };
        let mut summary = LockSummary { processes: vec![fio], ..LockSummary::default() };
        assert_eq!(waiters(&summary, Style::default()), "\nwaited: fio (7) 360 ns\n");
        summary.other_processes = 3;
        let text = waiters(&summary, Style::default());
        assert_eq!(text, "\nwaited: fio (7) 360 ns, other processes 3 times\n");
    }

    #[test]
    fn waits_without_an_event_are_told() {
        let slow_path = Some(SlowPath { calls: 1_200, events: 1_000, pending_bit_waiters: 200 });
        let summary = LockSummary { slow_path, ..LockSummary::default() };
        let text = headline(&summary, Style::default());
        let expected = "1,200 entries into the slow path of spinlocks, 200 of them without an event (pending-bit waiters)";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_longest_hold_is_left_out_where_it_is_not_known() {
        let text = |max_hold_ns| {
            let holder = Holder { releases: 2, holds: 2, hold_ns: 400, max_hold_ns, ..Holder::default() };
            let row = LockRow { holder: Some(holder), ..LockRow::default() };
            holders(&LockSummary { locks: vec![row], ..LockSummary::default() }, 1)
        };
        let known = text(Some(300));
        assert!(known.contains("held for 200 ns on average, 300 ns at most, of 2 of them"), "{known}");
        let unknown = text(None);
        assert!(unknown.contains("held for 200 ns on average, of 2 of them"), "{unknown}");
    }
}
