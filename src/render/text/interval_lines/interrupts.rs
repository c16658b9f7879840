//! Interrupt lines: one for each of the busiest vectors.

use super::{Cell, Column, Intervals, MOST_ROWS};
use crate::analyze::interrupts::{InterruptSummary, PollSummary, VectorSummary};
use crate::host::cpu::ranges;

const HANDLER: &str = "handler, µs";

const COLUMNS: [Column; 10] = [
    Column::number("irq", "irq", 4),
    Column::text("name", "name", 16).rank(4),
    Column::number("queue", "queue", 3).short("q").rank(5),
    Column::text("cpus", "on CPU", 6).rank(3),
    Column::number("intr", "intr/s", 6),
    Column::number("ios", "I/Os/s", 6),
    Column::number("ios_per_intr", "I/Os per intr", 5).short("I/Os each").rank(2),
    Column::number("p50", "p50", 5).group(HANDLER).rank(7),
    Column::number("p99", "p99", 5).group(HANDLER).rank(6),
    Column::number("cpu", "CPU %", 5).rank(1),
];

impl Intervals for InterruptSummary {
    fn nothing(&self) -> &'static str {
        "no interrupts"
    }

    fn columns(&self) -> Vec<Column> {
        COLUMNS.to_vec()
    }

    fn most(&self) -> usize {
        MOST_ROWS
    }

    fn devices(&self) -> Vec<&str> {
        let busy = self.devices.iter().filter(|device| device.interrupts.unwrap_or(0) > 0);
        busy.map(|device| device.name.as_str()).collect()
    }

    fn idle(&self) -> Vec<Vec<Cell>> {
        let vectors = self.vectors.iter().filter(|vector| vector.interrupts == 0);
        let polled = self.polled.iter().filter(|poll| poll.polls == 0);
        vectors.map(|vector| of_vector(self, vector)).chain(polled.map(|poll| of_polls(self, poll))).collect()
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let vectors = self.vectors.iter().filter(|vector| vector.interrupts > 0);
        let vectors = vectors.map(|vector| (vector.interrupts, of_vector(self, vector)));
        let polled = self.polled.iter().filter(|poll| poll.polls > 0);
        let mut rows: Vec<(u64, Vec<Cell>)> =
            polled.map(|poll| (poll.completions, of_polls(self, poll))).chain(vectors).collect();
        rows.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

fn per_second(summary: &InterruptSummary, n: u64) -> Option<f64> {
    (summary.duration_ns > 0).then(|| n as f64 / summary.seconds())
}

fn whole(n: Option<u32>) -> Cell {
    n.map_or(Cell::Absent, |n| Cell::Number(n.to_string(), f64::from(n)))
}

fn of_vector(summary: &InterruptSummary, vector: &VectorSummary) -> Vec<Cell> {
    let carried = vector.carried.as_ref();
    let handler = |q| Cell::micros(vector.handler.quantile(q).map(|ns| ns as f64));
    vec![
        whole(Some(vector.irq)),
        Cell::text(vector.name.clone()),
        whole(vector.queue),
        Cell::text(Some(ranges(&vector.cpus)).filter(|cpus| !cpus.is_empty())),
        Cell::rate(per_second(summary, vector.interrupts)),
        Cell::rate(carried.and_then(|carried| per_second(summary, carried.completions))),
        // The ratio of the two columns before it. The mean of the histogram differs in a short interval: it counts an
        // interrupt when the next one comes.
        Cell::figure(
            carried
                .filter(|_| vector.interrupts > 0)
                .map(|carried| carried.completions as f64 / vector.interrupts as f64),
        ),
        handler(0.5),
        handler(0.99),
        Cell::figure(vector.cpu_percent),
    ]
}

/// A poll queue has no interrupts.
fn of_polls(summary: &InterruptSummary, poll: &PollSummary) -> Vec<Cell> {
    let name = format!("{} (polled)", poll.devices.join(", "));
    let mut row = vec![Cell::Absent; COLUMNS.len()];
    row[1] = Cell::text(Some(name));
    row[2] = whole(Some(poll.queue));
    row[5] = Cell::rate(per_second(summary, poll.completions));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::interrupts::CompletionCounts;
    use crate::hist::Histogram;
    use crate::render::text::interval_lines::{IntervalLines, IntervalStyle};

    fn vector(irq: u32, interrupts: u64) -> VectorSummary {
        let per_interrupt = Histogram::from_iter(vec![2; interrupts as usize]);
        VectorSummary {
            irq,
            name: Some("nvme0q\x1b1".to_string()),
            queue: Some(3),
            cpus: vec![0, 1],
            interrupts,
            carried: Some(CompletionCounts { completions: 2 * interrupts, empty: 0, per_interrupt }),
            handler: Histogram::from_iter(vec![4_000; 200]),
            ..VectorSummary::default()
        }
        .derived(1_000_000_000)
    }

    #[test]
    fn the_busiest_vectors_are_lines() {
        let vectors = (1..=7).map(|irq| vector(irq, u64::from(irq) * 100)).chain([vector(9, 0)]).collect();
        let polled = vec![PollSummary {
            devices: vec!["nvme1n1".into()],
            queue: 8,
            polls: 5,
            completions: 10,
            ..PollSummary::default()
        }];
        let summary = InterruptSummary { duration_ns: 1_000_000_000, vectors, polled, ..Default::default() };
        let text = IntervalLines::default().add("10:00:01", &summary);
        let lines: Vec<String> =
            text.lines().skip(2).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "10:00:01 7 nvme0q\\u{1b}1 3 0-1 700 1400 2.00 4.00 4.00 0.28", "{text}");
        assert_eq!(lines.len(), 5, "{text}");
        let all = IntervalStyle { all: true, ..IntervalStyle::default() };
        let all = IntervalLines::new(all).add("10:00:01", &summary);
        let lines: Vec<String> =
            all.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let polls = "10:00:01 - nvme1n1 (polled) 8 - - 10 - - - -";
        assert_eq!(lines[9], polls, "poll queues hide no vector: {all}");
        assert_eq!(lines[10..], ["10:00:01 9 nvme0q\\u{1b}1 3 0-1 0 0 - 4.00 4.00 0"], "{all}");
        for width in [80, 60, 20] {
            let style = IntervalStyle { width: Some(width), ..IntervalStyle::default() };
            let text = IntervalLines::new(style).add("10:00:01", &summary);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }
}
