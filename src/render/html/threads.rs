//! The section on the threads' activity.

use super::tables::{Cell, table, text};
use crate::analyze::threads::{ThreadGroup, ThreadSummary};
use crate::units::{count, figure};

/// Rows that are shown; the JSON has all.
const MOST: usize = 16;

/// Empty if not measured.
pub fn threads(summary: Option<&ThreadSummary>) -> String {
    let Some(summary) = summary.filter(|summary| summary.rounds > 0) else { return String::new() };
    let row = |row: &ThreadGroup| {
        vec![
            text(row.comm.as_deref().unwrap_or("-")),
            text(&row.state.map_or("-".to_string(), |state| state.to_string())),
            text(row.wchan.as_deref().unwrap_or("-")),
            Cell::Number(figure(row.share.average_threads)),
            Cell::Number(row.share.error.map_or("-".to_string(), |error| format!("± {}", figure(error)))),
            Cell::Number(count(row.share.samples)),
        ]
    };
    let (of_stacks, rest) = merged(&summary.rows);
    let header = ["<thread", "<state", "<waits in", "threads, on average", "with 95 %", "samples"];
    let mut out = table(&header, of_stacks.iter().take(MOST).map(row).collect());
    if rest > 0 {
        out.push_str(&format!("<p class=\"soft small\">{rest} more rows.</p>\n"));
    }
    out.push_str(&format!(
        "<p class=\"soft small\">{} scans of {} threads on average; sleeping threads are left out.</p>\n",
        count(summary.rounds),
        figure(summary.looked_at)
    ));
    out
}

/// Merges rows that differ only by their stacks; also returns how many rows are not shown.
fn merged(rows: &[ThreadGroup]) -> (Vec<ThreadGroup>, usize) {
    let mut all: Vec<ThreadGroup> = Vec::new();
    for row in rows {
        let alike =
            |one: &&mut ThreadGroup| (&one.comm, one.state, &one.wchan) == (&row.comm, row.state, &row.wchan);
        match all.iter_mut().find(alike) {
            Some(one) => {
                one.share.samples = one.share.samples.saturating_add(row.share.samples);
                one.share.average_threads += row.share.average_threads;
                // The error of a sum cannot be computed from those of its parts.
                one.share.error = None;
            }
            None => all.push(row.clone()),
        }
    }
    all.sort_by(|a, b| b.share.average_threads.total_cmp(&a.share.average_threads));
    let rest = all.len().saturating_sub(MOST);
    (all, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::threads::ThreadShare;

    #[test]
    fn rows_of_one_place_are_one_and_names_are_escaped() {
        let row = |wchan: &str, samples| ThreadGroup {
            comm: Some("<script>".to_string()),
            state: Some('D'),
            wchan: Some(wchan.to_string()),
            share: ThreadShare { samples, average_threads: samples as f64 / 10.0, error: Some(0.5) },
            ..ThreadGroup::default()
        };
        let summary = ThreadSummary {
            rounds: 10,
            rows: vec![row("folio_wait", 4), row("other", 5), row("folio_wait", 3)],
            ..ThreadSummary::default()
        };
        let html = threads(Some(&summary));
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
        assert_eq!(html.matches("folio_wait").count(), 1);
        assert!(html.find("folio_wait") < html.find("other"), "the most first: {html}");
        assert_eq!(threads(None), "");
    }
}
