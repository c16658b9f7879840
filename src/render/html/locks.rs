//! The section on lock waits.

use super::escape;
use super::tables::{Cell, table, text};
use crate::analyze::locks::{By, LockRow, LockSummary};
use crate::merge::SaturatingSum as _;
use crate::render::text::fitted;
use crate::units::{count, range, short, significant, time};

/// Locks and stacks that are shown; the JSON has all.
const MOST: usize = 12;
const MOST_STACKS: usize = 3;
const MOST_FRAMES: usize = 12;
/// Maximum length of a name, which may include a path.
const MOST_NAME: usize = 80;

/// Empty if not measured.
pub fn locks(summary: Option<&LockSummary>) -> String {
    let Some(summary) = summary else { return String::new() };
    if summary.events.contentions == 0 {
        return "<p class=\"soft\">No lock waits in the kernel.</p>\n".to_string();
    }
    let mut out = format!("<p>{}</p>\n", escape(&sentence(summary)));
    let header = ["<lock", "<kind", "<named by", "waits/s", "waited", "of all", "p50", "p99", "max"];
    out.push_str(&table(&header, summary.locks.iter().take(MOST).map(|lock| row(summary, lock)).collect()));
    let rest = summary.locks.len().saturating_sub(MOST);
    if rest > 0 {
        let wait: u64 = summary.locks[MOST..].iter().map(|lock| lock.wait.sum()).saturating_sum();
        out.push_str(&format!(
            "<p class=\"soft small\">{} more locks, {} of wait time.</p>\n",
            count(rest as u64),
            time(wait)
        ));
    }
    let with_stacks = summary.locks.iter().filter(|lock| !lock.stacks.is_empty());
    out.extend(with_stacks.take(MOST_STACKS).map(|lock| stack(summary, lock)));
    out.push_str(
        "<p class=\"soft small\">Waits are lower bounds: the first waiter of a spinlock has no event.</p>\n",
    );
    out
}

fn sentence(summary: &LockSummary) -> String {
    let events = &summary.events;
    let spinning = 100.0 * events.spin_wait_ns as f64 / events.wait_ns.max(1) as f64;
    let mut out = format!(
        "{} waits/s, {} of wait time per second, {} % of it spinning.",
        short(summary.contentions_per_second()),
        time((events.wait_ns as f64 / summary.seconds().max(1e-9)) as u64),
        significant(spinning, 3)
    );
    if let Some(spin) = summary.spin {
        let range = range(significant(spin.low, 2), significant(spin.high, 2));
        out.push_str(&format!(
            " CPUs spent {range} % of one CPU spinning on locks ({} samples by {}).",
            count(spin.samples),
            spin.sampler.name()
        ));
    }
    out
}

fn row(summary: &LockSummary, lock: &LockRow) -> Vec<Cell> {
    let share = 100.0 * lock.wait.sum() as f64 / summary.events.wait_ns.max(1) as f64;
    let edge = |ns: Option<u64>| Cell::Number(ns.map_or("-".to_string(), time));
    vec![
        text(&fitted(&lock.name, MOST_NAME)),
        text(lock.kind.name()),
        text(lock.by.name()),
        Cell::Number(short(lock.wait.count() as f64 / summary.seconds().max(1e-9))),
        Cell::Number(time(lock.wait.sum())),
        Cell::Number(format!("{} %", significant(share, 2))),
        edge(lock.wait.quantile(0.5)),
        edge(lock.wait.quantile(0.99)),
        edge(lock.wait.max()),
    ]
}

/// The call path with the longest wait.
fn stack(summary: &LockSummary, lock: &LockRow) -> String {
    let first = &lock.stacks[0];
    let about = if summary.stacks.is_estimated() { "about " } else { "" };
    let mut frames: Vec<String> = first.frames.iter().take(MOST_FRAMES).map(|frame| escape(frame)).collect();
    if first.frames.len() > MOST_FRAMES {
        frames.push("...".to_string());
    }
    let name = if lock.by == By::Caller { "a lock" } else { &lock.name };
    format!(
        "<p class=\"small\">{}: {about}{} in {} waits<br><code>{}</code></p>\n",
        escape(&fitted(name, MOST_NAME)),
        time(first.wait_ns),
        count(first.contentions),
        frames.join(" &lt; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::locks::{Events, LockStack, WireLockKind};

    #[test]
    fn hostile_names_are_escaped() {
        let lock = LockRow {
            name: "i_rwsem of x (/<script>)".to_string(),
            by: By::Structure,
            kind: WireLockKind::Rwsem,
            wait: [5_000].into_iter().collect(),
            stacks: vec![LockStack {
                who: None,
                frames: vec!["a<b>".to_string()],
                contentions: 1,
                wait_ns: 5_000,
                samples: 1,
            }],
            ..LockRow::default()
        };
        let summary = LockSummary {
            duration_ns: 1_000_000_000,
            events: Events { contentions: 1, wait_ns: 5_000, ..Events::default() },
            locks: vec![lock],
            ..LockSummary::default()
        };
        let html = locks(Some(&summary));
        assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "{html}");
        assert!(html.contains("a&lt;b&gt;") && html.contains("5.00 µs"), "{html}");
        assert_eq!(locks(None), "");
        assert!(locks(Some(&LockSummary::default())).contains("No lock waits"));
    }
}
