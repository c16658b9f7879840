//! Renders `biopsy threads` as text, and its folded lines.

use std::collections::BTreeMap;

use super::{Style, bytes, clean, count, fit, footer, significant, table};
use crate::analyze::threads::{GroupColumn, ThreadGroup, ThreadShare, ThreadSummary};
use crate::envelope::Envelope;
use crate::merge::SaturatingSum as _;

/// Rows shown unless all are requested.
const MOST_ROWS: usize = 30;
/// Wait functions shown with their stacks.
const MOST_WAITS: usize = 5;

/// The whole view.
pub fn render(
    envelope: &Envelope,
    summary: &ThreadSummary,
    command_status: Option<i32>,
    style: Style,
) -> String {
    let seconds = summary.duration_ns as f64 / 1e9;
    let average = significant(summary.average_threads, 3);
    let bold = if style.color { format!("\x1b[1m{average}\x1b[0m") } else { average };
    let mut out = format!(
        "{bold} of {} threads on average; {} scans in {} s ({} Hz), {} late, {} missed\n",
        significant(summary.looked_at, 3),
        count(summary.rounds),
        significant(seconds, 3),
        summary.hz,
        count(summary.loss.late),
        count(summary.loss.missed),
    );
    out.push_str(&states(summary));
    let shown = if style.all { summary.rows.len() } else { MOST_ROWS };
    if summary.rows.is_empty() {
        out.push_str("\nNo selected thread ran or waited uninterruptibly.\n");
    } else {
        out.push('\n');
        out.push_str(&rows(summary, shown));
    }
    if summary.rows.len() > shown {
        let rest: u64 = summary.rows.iter().skip(shown).map(|row| row.share.samples).saturating_sum();
        out.push_str(&format!(
            "and {} more rows with {} samples (--all shows them)\n",
            count((summary.rows.len() - shown) as u64),
            count(rest)
        ));
    }
    out.push_str(&waits(summary));
    out.push('\n');
    out.push_str(&aside(envelope, command_status, style.brief));
    fit(&out, style.width)
}

/// Losses, gaps and cost: the text that accompanies folded stacks.
pub fn aside(envelope: &Envelope, command_status: Option<i32>, brief: bool) -> String {
    let mut out = footer::lost(envelope);
    out.push_str(&cost(envelope));
    if !brief {
        out.push_str(&footer::missing(&envelope.missing, &[]));
    }
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    out
}

/// Folded lines, for flame graph tools.
pub fn folded(stacks: &BTreeMap<String, u64>) -> String {
    stacks.iter().map(|(stack, n)| format!("{stack} {n}\n")).collect()
}

/// An average with its error.
fn average(share: &ThreadShare) -> String {
    let error = share.error.map_or(String::new(), |error| format!(" ±{error:.2}"));
    format!("{:.2}{error}", share.average_threads)
}

fn states(summary: &ThreadSummary) -> String {
    let classes = &summary.classes;
    let mut parts = Vec::new();
    let mut part = |share: Option<ThreadShare>, what: &str| {
        if let Some(share) = share {
            parts.push(format!("{} {what} (n={})", average(&share), count(share.samples)));
        }
    };
    part(classes.on_cpu, "on a CPU");
    part(classes.run_queue, "waiting for a CPU");
    if classes.on_cpu.is_none() {
        part(Some(classes.runnable), "on a CPU or waiting for one");
    }
    part(classes.io_wait, "waiting for I/O");
    let rest = if classes.io_wait.is_some() { "uninterruptible otherwise" } else { "uninterruptible" };
    part(Some(classes.uninterruptible), rest);
    part(Some(classes.other).filter(|share| share.samples > 0), "asleep or stopped");
    format!("  {}\n", parts.join(", "))
}

fn rows(summary: &ThreadSummary, shown: usize) -> String {
    let columns = &summary.columns;
    let header: Vec<&str> =
        ["threads", "±", "samples"].into_iter().chain(columns.iter().map(|column| column.name())).collect();
    let line = |row: &ThreadGroup| {
        let mut cells = vec![
            format!("{:.2}", row.share.average_threads),
            row.share.error.map_or("-".to_string(), |error| format!("{error:.2}")),
            count(row.share.samples),
        ];
        let shown = |column: &GroupColumn| cell(row, *column).map_or("-".to_string(), |text| clean(&text));
        cells.extend(columns.iter().map(shown));
        cells
    };
    table(&header, &summary.rows.iter().take(shown).map(line).collect::<Vec<_>>())
}

/// A row's value in a column, not escaped; None: unknown.
pub fn cell(row: &ThreadGroup, column: GroupColumn) -> Option<String> {
    match column {
        GroupColumn::Comm => row.comm.clone(),
        GroupColumn::State => row.state.map(String::from),
        GroupColumn::Syscall => row.syscall.clone(),
        GroupColumn::Wchan => row.wchan.clone(),
        GroupColumn::Cgroup => row.cgroup.clone(),
        GroupColumn::Pid => row.pid.map(|pid| pid.to_string()),
        GroupColumn::Device => row.device.clone(),
        // Not shortened: the end is what a reader looks for.
        GroupColumn::Kstack => Some(row.stack.join("->")).filter(|stack| !stack.is_empty()),
    }
}

/// Where threads wait for I/O.
fn waits(summary: &ThreadSummary) -> String {
    let mut out = String::new();
    for wait in summary.waits.iter().take(MOST_WAITS) {
        if out.is_empty() {
            out.push_str("\nwaiting for I/O:\n");
        }
        let devices: Vec<String> =
            wait.devices.iter().map(|(name, n)| format!("{} {}", clean(name), count(*n))).collect();
        let known = if devices.is_empty() { String::new() } else { format!(" on {}", devices.join(", ")) };
        let stack = match wait.stack.is_empty() {
            true => wait.wchan.clone().unwrap_or_else(|| "[no stack]".to_string()),
            false => wait.stack.join("->"),
        };
        out.push_str(&format!(
            "  {} (n={}){known}: {}\n",
            average(&wait.share),
            count(wait.share.samples),
            clean(&stack)
        ));
    }
    if summary.waits.len() > MOST_WAITS {
        let rest: u64 = summary.waits.iter().skip(MOST_WAITS).map(|wait| wait.share.samples).saturating_sum();
        out.push_str(&format!(
            "  and {} samples at {} more places\n",
            count(rest),
            summary.waits.len() - MOST_WAITS
        ));
    }
    out
}

/// The tool's own CPU time: programs that run on request have no cost per I/O.
fn cost(envelope: &Envelope) -> String {
    let cost = &envelope.cost;
    let programs: Vec<String> = cost
        .programs
        .iter()
        .map(|program| {
            let mean = program.ns as f64 / program.runs.max(1) as f64;
            format!("{} {} µs a run", clean(&program.name), significant(mean / 1000.0, 3))
        })
        .collect();
    let programs = if programs.is_empty() { String::new() } else { format!(" ({})", programs.join(", ")) };
    let share = cost.cpu_percent.map_or("unknown".to_string(), |cpu| significant(cpu, 2));
    format!("cost {share} % of one CPU in biopsy{programs}; maps {}\n", bytes(cost.map_bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::threads::Classes;

    fn share(samples: u64, average_threads: f64) -> ThreadShare {
        ThreadShare { samples, average_threads, error: Some(0.5) }
    }

    fn summary() -> ThreadSummary {
        let row = ThreadGroup {
            comm: Some("io_wqe_worker-*".into()),
            state: Some('D'),
            wchan: Some("wait_on_page_bit_common".into()),
            share: share(5941, 59.41),
            ..ThreadGroup::default()
        };
        ThreadSummary {
            duration_ns: 10_000_000_000,
            hz: 10,
            rounds: 100,
            samples: 5941,
            average_threads: 59.41,
            looked_at: 500.0,
            columns: GroupColumn::USUAL.to_vec(),
            rows: vec![row],
            classes: Classes { io_wait: Some(share(5941, 59.41)), ..Classes::default() },
            ..ThreadSummary::default()
        }
    }

    #[test]
    fn the_table_is_that_of_source_t() {
        let text = render(&Envelope::default(), &summary(), None, Style::default());
        assert!(text.starts_with("59.4 of 500 threads on average; 100 scans in 10.0 s (10 Hz)"), "{text}");
        assert!(
            text.contains(
                "59.41    0.50    5,941  io_wqe_worker-*      D        -  wait_on_page_bit_common\n"
            ),
            "{text}"
        );
        assert!(text.contains("59.41 ±0.50 waiting for I/O (n=5,941)"), "{text}");
    }

    #[test]
    fn a_hostile_name_does_not_reach_the_terminal() {
        let mut summary = summary();
        summary.rows[0].comm = Some("\x1b[2J\u{202e}".into());
        let text = render(&Envelope::default(), &summary, None, Style::default());
        assert!(!text.contains('\x1b') && text.contains("\\u{1b}[2J\\u{202e}"), "{text}");
    }

    #[test]
    fn folded_lines_end_with_their_samples() {
        let stacks = BTreeMap::from([("a;b".to_string(), 3), ("c".to_string(), 1)]);
        assert_eq!(folded(&stacks), "a;b 3\nc 1\n");
    }
}
