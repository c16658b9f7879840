//! Thread lines: one for each of the largest rows.

use super::{Cell, Column, Intervals, MOST_ROWS};
use crate::analyze::threads::{ThreadGroup, ThreadSummary};
use crate::render::text::threads::cell;

impl Intervals for ThreadSummary {
    fn nothing(&self) -> &'static str {
        "no thread runs, or waits uninterruptibly"
    }

    fn columns(&self) -> Vec<Column> {
        let numbers = [
            Column::number("threads", "threads", 6),
            Column::number("error", "±", 4).rank(9),
            Column::number("samples", "samples", 5).short("n").rank(8),
        ];
        let by = self.columns.iter().enumerate().map(|(at, column)| {
            let name = column.name();
            let width = if name == "comm" { 15 } else { name.len() };
            // The first one is never dropped.
            Column::text(name, name, width).rank(u8::try_from(at.min(7)).unwrap_or(7))
        });
        numbers.into_iter().chain(by).collect()
    }

    fn most(&self) -> usize {
        MOST_ROWS
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let one = |row: &ThreadGroup| {
            let share = row.share;
            let number = |value: f64| Cell::Number(format!("{value:.2}"), value);
            let mut cells = vec![
                number(share.average_threads),
                share.error.map_or(Cell::Absent, number),
                Cell::Number(share.samples.to_string(), share.samples as f64),
            ];
            cells.extend(self.columns.iter().map(|column| Cell::text(cell(row, *column))));
            cells
        };
        self.rows.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::threads::{GroupColumn as By, ThreadShare};
    use crate::render::text::interval_lines::{IntervalLines, IntervalStyle};

    #[test]
    fn rows_are_lines() {
        let row = |n: u32| ThreadGroup {
            comm: Some(format!("io_wqe_worker-*\x1b{n}")),
            state: Some('D'),
            wchan: Some("wait_on_page_bit_common".to_string()),
            share: ThreadShare { samples: 594, average_threads: 59.41, error: None },
            ..ThreadGroup::default()
        };
        let summary = ThreadSummary {
            columns: By::USUAL.to_vec(),
            rows: (0..7).map(row).collect(),
            ..ThreadSummary::default()
        };
        let text = IntervalLines::default().add("10:00:01", &summary);
        let lines: Vec<String> =
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "time threads ± samples comm state syscall wchan");
        let expected = "10:00:01 59.41 - 594 io_wqe_worker-*\\u{1b}0 D - wait_on_page_bit_common";
        assert_eq!((lines[1].as_str(), lines.len()), (expected, 6), "{text}");
        for width in [80, 60, 20] {
            let style = IntervalStyle { width: Some(width), ..IntervalStyle::default() };
            let text = IntervalLines::new(style).add("10:00:01", &summary);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }
}
