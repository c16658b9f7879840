//! Lock lines: one for each of the locks with the longest waits, and one for each kind of reclaim.

use super::{Cell, Column, Intervals, MOST_ROWS};
use crate::analyze::locks::LockRow;
use crate::analyze::pagecache::{PagecacheSummary, ReclaimSummary};
use crate::analyze::pressure::PressureSummary;
use crate::hist::Histogram;

const WAIT: &str = "wait, µs";

const COLUMNS: [Column; 7] = [
    Column::text("kind", "kind", 8).rank(4),
    Column::number("waits", "waits/s", 7).short("wait/s"),
    Column::number("waited", "waited ms/s", 6).short("ms/s").rank(1),
    Column::number("mean", "mean", 5).group(WAIT).rank(3),
    Column::number("p99", "p99", 6).group(WAIT).rank(5),
    Column::number("max", "max", 6).group(WAIT).rank(2),
    Column::text("lock", "lock", 12),
];

impl Intervals for PressureSummary {
    fn nothing(&self) -> &'static str {
        match self.locks {
            Some(_) => "no lock waits",
            None => "lock waits are not measured",
        }
    }

    fn columns(&self) -> Vec<Column> {
        COLUMNS.to_vec()
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let locks = self.locks.iter().flat_map(|summary| {
            let rows = summary.locks.iter().filter(|row| !row.wait.is_empty());
            rows.map(|row| (row.wait.sum(), of_lock(row, summary.duration_ns)))
        });
        let reclaims = self.pagecache.iter().flat_map(of_reclaims);
        let mut rows: Vec<(u64, Vec<Cell>)> = locks.chain(reclaims).collect();
        rows.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn most(&self) -> usize {
        MOST_ROWS
    }
}

fn row(kind: &str, name: String, times: &Histogram, (n, ns): (u64, u64), duration_ns: u64) -> Vec<Cell> {
    let per_second = |n: f64| (duration_ns > 0).then_some(n * 1e9 / duration_ns as f64);
    vec![
        Cell::text(Some(kind)),
        Cell::rate(per_second(n as f64)),
        Cell::figure(per_second(ns as f64 / 1e6)),
        Cell::micros(times.mean()),
        Cell::micros(times.quantile(0.99).map(|ns| ns as f64)),
        Cell::micros(times.max().map(|ns| ns as f64)),
        Cell::text(Some(name)),
    ]
}

fn of_lock(lock: &LockRow, duration_ns: u64) -> Vec<Cell> {
    let wait = &lock.wait;
    row(lock.kind.name(), lock.name.clone(), wait, (wait.count(), wait.sum()), duration_ns)
}

/// With their time.
fn of_reclaims(summary: &PagecacheSummary) -> Vec<(u64, Vec<Cell>)> {
    let one = |(kind, of): (&crate::analyze::pagecache::ReclaimKind, &ReclaimSummary)| {
        let name = format!("memory reclaim: {}", kind.name());
        let count = (of.count, of.ns);
        (of.count > 0).then(|| (of.ns, row("reclaim", name, &of.time, count, summary.duration_ns)))
    };
    summary.reclaims.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::locks::LockSummary;
    use crate::analyze::pagecache::ReclaimKind;
    use crate::render::text::interval_lines::{IntervalLines, IntervalStyle};

    fn summary() -> PressureSummary {
        let lock = |at: u64| LockRow {
            name: format!("lru_lock of node {at}\x1b"),
            wait: Histogram::from_iter(vec![50_000 + at * 10; 200]),
            ..LockRow::default()
        };
        let locks = LockSummary {
            duration_ns: 2_000_000_000,
            locks: (0..7).map(lock).collect(),
            ..LockSummary::default()
        };
        let direct = ReclaimSummary {
            count: 4,
            ns: 8_000_000,
            time: Histogram::from_iter([2_000_000; 4]),
            ..Default::default()
        };
        let pagecache = PagecacheSummary {
            duration_ns: 2_000_000_000,
            reclaims: BTreeMap::from([
                (ReclaimKind::Direct, direct),
                (ReclaimKind::Kswapd, ReclaimSummary::default()),
            ]),
            ..PagecacheSummary::default()
        };
        PressureSummary { locks: Some(locks), pagecache: Some(pagecache) }
    }

    #[test]
    fn locks_and_reclaim_are_lines() {
        let text = IntervalLines::default().add("10:00:01", &summary());
        let lines: Vec<String> =
            text.lines().skip(2).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines.len(), 5, "{text}");
        let kind = LockRow::default().kind.name();
        let last = format!("10:00:01 {kind} 100 5.01 50.1 50.1 50.1 lru_lock of node 6\\u{{1b}}");
        assert_eq!(lines[0], last, "{text}");
        let all = IntervalLines::new(IntervalStyle { all: true, ..IntervalStyle::default() })
            .add("10:00:01", &summary());
        assert_eq!(all.lines().count(), 10, "{all}");
        let reclaim = "10:00:01 reclaim 2 4.00 2000 - 2000 memory reclaim: direct";
        let shown = all.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown, reclaim, "{all}");
        for width in [80, 60, 20] {
            let style = IntervalStyle { width: Some(width), ..IntervalStyle::default() };
            let text = IntervalLines::new(style).add("10:00:01", &summary());
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn nothing_is_said_where_nothing_waited_or_was_measured() {
        let mut none = IntervalLines::default();
        let measured = PressureSummary { locks: Some(LockSummary::default()), pagecache: None };
        assert!(none.add("10:00:01", &measured).ends_with("10:00:01 no lock waits\n"));
        let not_measured = none.add("10:00:02", &PressureSummary::default());
        assert!(not_measured.ends_with("10:00:02 lock waits are not measured\n"), "{not_measured}");
    }
}
