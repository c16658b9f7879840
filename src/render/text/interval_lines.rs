//! Renders an interval view as lines: one per row, below a repeated header.

mod interrupts;
mod latency;
mod locks;
mod threads;

use super::{clean, figure, fitted, short};

/// The columns that `--sort` accepts, by view. The grouping columns of groups and threads are excluded, because they
/// vary between runs.
pub const SORTS_LATENCY: [&str; 6] = ["iops", "mibps", "mean", "p50", "p99", "max"];
pub const SORTS_INTERRUPTS: [&str; 6] = ["irq", "intr", "ios", "ios_per_intr", "p99", "cpu"];
pub const SORTS_LOCKS: [&str; 5] = ["waits", "waited", "mean", "p99", "max"];
pub const SORTS_THREADS: [&str; 2] = ["threads", "samples"];

/// The header is printed again after this many lines, as in vmstat.
const HEADER_EVERY: usize = 20;
/// Rows shown per interval if there may be many: the largest ones.
const MOST_ROWS: usize = 5;
/// Maximum width of a text column on a terminal; the last one takes the rest of the line.
const MOST_TEXT: usize = 24;
/// Minimum width of a text column after everything else was dropped.
const LEAST_TEXT: usize = 4;

/// A view whose intervals can be shown as lines.
pub trait Intervals {
    /// Shown for an interval without rows.
    fn nothing(&self) -> &'static str;

    /// The columns after the time, for this interval.
    fn columns(&self) -> Vec<Column>;

    /// A cell for each column.
    fn rows(&self) -> Vec<Vec<Cell>>;

    /// Rows of what was idle, which are shown only if all are requested.
    fn idle(&self) -> Vec<Vec<Cell>> {
        Vec::new()
    }

    /// Rows shown per interval, unless all are requested.
    fn most(&self) -> usize;

    /// The devices in these rows: gaps of other devices are left out.
    fn devices(&self) -> Vec<&str> {
        Vec::new()
    }

    /// A note on the figures of all intervals: the last one is printed at the end.
    fn note(&self) -> Option<String> {
        None
    }

    /// Doubts about the figures of this interval, one per line.
    fn doubts(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A column, and when a narrow terminal drops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The word for `--sort`.
    pub key: &'static str,
    name: &'static str,
    /// A short heading, for a narrow terminal.
    short: &'static str,
    /// A heading above columns that share it.
    group: &'static str,
    /// Minimum width of its cells.
    width: usize,
    is_text: bool,
    /// The highest is dropped first; 0: never.
    rank: u8,
}

impl Column {
    /// A left-aligned column.
    pub const fn text(key: &'static str, name: &'static str, width: usize) -> Self {
        Self { key, name, short: name, group: "", width, is_text: true, rank: 0 }
    }

    /// A right-aligned column.
    pub const fn number(key: &'static str, name: &'static str, width: usize) -> Self {
        Self { is_text: false, ..Self::text(key, name, width) }
    }

    pub const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }

    pub const fn group(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    pub const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Not escaped yet.
    Text(String),
    /// The displayed text, and the value to sort by.
    Number(String, f64),
    /// Not measured, or not applicable: never 0.
    Absent,
}

impl Cell {
    pub fn text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Absent, |text| Self::Text(text.into()))
    }

    /// Three significant digits.
    pub fn figure(value: Option<f64>) -> Self {
        value
            .filter(|value| value.is_finite())
            .map_or(Self::Absent, |value| Self::Number(figure(value), value))
    }

    /// Nanoseconds as microseconds: one unit in all lines.
    pub fn micros(ns: Option<f64>) -> Self {
        Self::figure(ns.map(|ns| ns / 1e3))
    }

    /// A number per second.
    pub fn rate(value: Option<f64>) -> Self {
        value
            .filter(|value| value.is_finite())
            .map_or(Self::Absent, |value| Self::Number(short(value), value))
    }

    /// A percentage, without decimals from 1 on.
    pub fn percent(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Absent, |value| {
            let decimals = usize::from(value > 0.0 && value < 0.95);
            Self::Number(format!("{value:.decimals$}"), value)
        })
    }

    /// Marks a number that is a lower bound.
    fn at_least(self, is_bound: bool) -> Self {
        match self {
            Self::Number(shown, value) if is_bound => Self::Number(shown + "+", value),
            other => other,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => clean(text),
            Self::Number(shown, _) => shown.clone(),
            Self::Absent => "-".to_string(),
        }
    }
}

/// Display options.
#[derive(Debug, Clone, Default)]
pub struct IntervalStyle {
    /// Characters per line; None: unlimited.
    pub width: Option<usize>,
    /// The key of the column to sort by: numbers in descending order.
    pub sort: Option<String>,
    /// Show every row.
    pub all: bool,
}

/// The shown columns and their widths.
#[derive(Debug, Clone, Default, PartialEq)]
struct Layout {
    columns: Vec<Column>,
    /// Width of each column; 0: dropped.
    widths: Vec<usize>,
    is_short: bool,
}

/// The lines of one view, interval by interval.
#[derive(Debug, Default)]
pub struct IntervalLines {
    style: IntervalStyle,
    layout: Layout,
    /// Lines since the header; None: not printed yet.
    since_header: Option<usize>,
}

const TIME: Column = Column::text("time", "time", 8);

impl IntervalLines {
    pub fn new(style: IntervalStyle) -> Self {
        Self { style, ..Self::default() }
    }

    /// The lines of an interval that ended at `time`, with the header if it is due.
    pub fn add<V: Intervals>(&mut self, time: &str, view: &V) -> String {
        let columns: Vec<Column> = std::iter::once(TIME).chain(view.columns()).collect();
        let mut rows = view.rows();
        if self.style.all {
            rows.extend(view.idle());
        }
        self.sort(&columns, &mut rows);
        if !self.style.all {
            rows.truncate(view.most());
        }
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| std::iter::once(time.to_string()).chain(row.iter().map(Cell::shown)).collect())
            .collect();
        let layout = self.layout(columns, &rows);
        let mut out = String::new();
        if self.layout != layout || self.since_header.is_none_or(|lines| lines >= HEADER_EVERY) {
            self.layout = layout;
            self.since_header = Some(0);
            out.push_str(&self.header());
        }
        for row in &rows {
            out.push_str(&self.line(row));
        }
        if rows.is_empty() {
            out.push_str(&self.cut(&format!("{time} {}", view.nothing())));
        }
        let lines = self.since_header.get_or_insert(0);
        *lines = lines.saturating_add(rows.len().max(1));
        out
    }

    fn sort(&self, columns: &[Column], rows: &mut [Vec<Cell>]) {
        let Some(at) = self.style.sort.as_ref().and_then(|key| columns.iter().position(|c| c.key == *key))
        else {
            return;
        };
        // The rows do not include the time.
        let Some(at) = at.checked_sub(1) else { return };
        rows.sort_by(|a, b| match (a.get(at), b.get(at)) {
            (Some(Cell::Number(_, a)), Some(Cell::Number(_, b))) => b.total_cmp(a),
            (Some(Cell::Text(a)), Some(Cell::Text(b))) => a.cmp(b),
            (a, b) => is_absent(a).cmp(&is_absent(b)),
        });
    }

    /// Columns never get narrower, so that lines stay aligned.
    fn layout(&self, columns: Vec<Column>, rows: &[Vec<String>]) -> Layout {
        let last = columns.len() - 1;
        let needed: Vec<usize> = (0..columns.len())
            .map(|at| {
                let column = &columns[at];
                let before = match self.layout.columns.get(at) {
                    Some(same) if same == column => self.layout.widths[at],
                    _ => 0,
                };
                let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
                let most = match (column.is_text, at == last) {
                    (true, true) => column.width,
                    (true, false) => MOST_TEXT.max(column.width),
                    (false, _) => usize::MAX,
                };
                // The extra width of a heading is not a width of its cells.
                let before = if before > column.name.chars().count() { before } else { 0 };
                column.width.max(before).max(cells.unwrap_or(0).min(most))
            })
            .collect();
        let with = |is_short: bool, needed: &[usize]| -> Vec<usize> {
            columns
                .iter()
                .zip(needed)
                .map(|(column, width)| match (*width, is_short) {
                    (0, _) => 0,
                    (width, true) => width.max(column.short.chars().count()),
                    (width, false) => width.max(column.name.chars().count()),
                })
                .collect()
        };
        let full = with(false, &needed);
        let Some(limit) = self.style.width else { return Layout { columns, widths: full, is_short: false } };
        if length(&full) <= limit {
            return Layout { columns, widths: full, is_short: false };
        }
        let mut kept = needed;
        loop {
            let widths = with(true, &kept);
            if length(&widths) <= limit {
                return Layout { columns, widths, is_short: true };
            }
            let droppable = (0..columns.len()).filter(|at| kept[*at] > 0 && columns[*at].rank > 0);
            let Some(first) = droppable.max_by_key(|at| columns[*at].rank) else {
                let mut widths = widths;
                shrink(&columns, &mut widths, limit);
                return Layout { columns, widths, is_short: true };
            };
            kept[first] = 0;
        }
    }

    fn header(&self) -> String {
        let Layout { columns, widths, is_short } = &self.layout;
        let names: Vec<String> =
            columns.iter().map(|c| if *is_short { c.short } else { c.name }.to_string()).collect();
        let mut groups = String::new();
        let (mut at, mut begin) = (0, 0);
        while at < columns.len() {
            let group = columns[at].group;
            let end = (at..columns.len()).find(|next| columns[*next].group != group).unwrap_or(columns.len());
            let span = length(&widths[at..end]);
            if !group.is_empty() && span > 0 {
                let pad = begin.max(groups.chars().count());
                groups.push_str(&" ".repeat(pad - groups.chars().count()));
                let room = (begin + span).saturating_sub(pad);
                let words = words_within(group, room);
                groups.push_str(&format!("{words:-^room$}"));
            }
            begin += if span > 0 { span + 1 } else { 0 };
            at = end;
        }
        let groups = if groups.is_empty() { groups } else { self.cut(&groups) };
        groups + &self.line(&names)
    }

    fn line(&self, cells: &[String]) -> String {
        let Layout { columns, widths, .. } = &self.layout;
        let mut out = String::new();
        let last = widths.iter().rposition(|width| *width > 0);
        for (at, ((column, width), cell)) in columns.iter().zip(widths).zip(cells).enumerate() {
            if *width == 0 {
                continue;
            }
            if !out.is_empty() {
                out.push(' ');
            }
            let room = match self.style.width {
                Some(limit) if Some(at) == last => limit.saturating_sub(out.chars().count()).max(*width),
                Some(_) => *width,
                None => usize::MAX,
            };
            let cell = if column.is_text { fitted(cell, room) } else { cell.clone() };
            out.push_str(&match column.is_text {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
        }
        self.cut(&out)
    }

    /// Limits a line to the terminal's width.
    fn cut(&self, line: &str) -> String {
        let line = line.trim_end();
        match self.style.width {
            Some(limit) => line.chars().take(limit).collect::<String>() + "\n",
            None => format!("{line}\n"),
        }
    }
}

/// As many of the words as fit.
fn words_within(text: &str, room: usize) -> &str {
    let mut end = text;
    while end.chars().count() > room {
        end = end.rsplit_once(' ').map_or("", |(head, _)| head);
    }
    end
}

fn is_absent(cell: Option<&Cell>) -> bool {
    cell.is_none_or(|cell| *cell == Cell::Absent)
}

/// Length of a line with these columns and a space between them.
fn length(widths: &[usize]) -> usize {
    let shown = widths.iter().filter(|width| **width > 0);
    shown.clone().sum::<usize>() + shown.count().saturating_sub(1)
}

/// Shortens text columns to fit, widest first.
fn shrink(columns: &[Column], widths: &mut [usize], limit: usize) {
    // Never the time.
    while length(widths) > limit {
        let texts = (1..widths.len()).filter(|at| columns[*at].is_text && widths[*at] > LEAST_TEXT);
        let Some(widest) = texts.max_by_key(|at| widths[*at]) else { return };
        widths[widest] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Disks(Vec<(&'static str, Option<f64>)>);

    impl Intervals for Disks {
        fn nothing(&self) -> &'static str {
            "no I/O"
        }
        fn columns(&self) -> Vec<Column> {
            vec![
                Column::text("device", "device", 7),
                Column::number("iops", "IO/s", 5).rank(1),
                Column::number("mean", "mean", 5).group("latency, µs").rank(2),
                Column::number("max", "maximum", 5).short("max").group("latency, µs"),
            ]
        }

        fn rows(&self) -> Vec<Vec<Cell>> {
            let row = |(name, value): &(&str, Option<f64>)| {
                let number = Cell::figure(*value);
                vec![Cell::text(Some(*name)), number.clone(), number.clone(), number]
            };
            self.0.iter().map(row).collect()
        }

        fn idle(&self) -> Vec<Vec<Cell>> {
            vec![[vec![Cell::text(Some("idle"))], vec![Cell::Absent; 3]].concat()]
        }

        fn most(&self) -> usize {
            2
        }
    }

    fn lines(width: Option<usize>, sort: &str) -> IntervalLines {
        IntervalLines::new(IntervalStyle { width, sort: Some(sort.to_string()), all: false })
    }

    #[test]
    fn a_line_stands_below_its_header() {
        let text = lines(None, "").add("10:00:01", &Disks(vec![("vda", Some(1.5)), ("s\x1bda", None)]));
        let shown: Vec<&str> = text.lines().collect();
        assert_eq!(
            shown[2].split_whitespace().collect::<Vec<_>>(),
            ["10:00:01", "vda", "1.50", "1.50", "1.50"]
        );
        assert!(shown[3].contains("s\\u{1b}da") && shown[3].ends_with('-'), "{text}");
        assert_eq!(shown.len(), 4, "{text}");
        let ends = |line: &str| line.chars().count();
        assert!(shown.iter().all(|line| ends(line) == ends(shown[1])), "{text}");
        assert!(shown[0].ends_with("-latency, µs-"), "{text}");
    }

    #[test]
    fn the_header_comes_again() {
        let mut all = lines(None, "");
        let text: String = (0..45).map(|_| all.add("10:00:01", &Disks(vec![("vda", Some(1.0))]))).collect();
        assert_eq!(text.matches("device").count(), 3);
        // A longer value widens its column, once.
        let wide = all.add("10:00:01", &Disks(vec![("vda", Some(1_234_567.0))]));
        assert_eq!(wide.matches("device").count(), 1, "{wide}");
        let narrow = all.add("10:00:01", &Disks(vec![("vda", Some(1.0))]));
        assert_eq!(narrow.lines().count(), 1, "{narrow}");
        assert_eq!(narrow.chars().count(), wide.lines().last().unwrap().chars().count() + 1);
    }

    #[test]
    fn rows_are_sorted_and_cut() {
        let disks = || Disks(vec![("a", Some(1.0)), ("c", None), ("b", Some(3.0))]);
        let first = |sort: &str| {
            let text = lines(None, sort).add("t", &disks());
            let rows: Vec<String> =
                text.lines().skip(2).filter_map(|l| l.split_whitespace().nth(1).map(String::from)).collect();
            rows
        };
        assert_eq!(first(""), ["a", "c"]);
        assert_eq!(first("iops"), ["b", "a"]);
        assert_eq!(first("device"), ["a", "b"]);
        let style = IntervalStyle { all: true, ..IntervalStyle::default() };
        let all = IntervalLines::new(style).add("t", &disks());
        assert_eq!(all.lines().count(), 6, "{all}");
        assert!(
            all.lines().last().is_some_and(|line| line.starts_with("t ") && line.contains("idle")),
            "{all}"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 1..60 {
            let mut all = lines(Some(width), "");
            let disks = Disks(vec![("a-very-long-name-of-a-device-here", Some(1.0)), ("vda", Some(9e9))]);
            let text = all.add("10:00:01", &disks) + &all.add("10:00:02", &Disks(Vec::new()));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        }
        // The least important column is dropped first.
        let text = lines(Some(28), "").add("10:00:01", &Disks(vec![("vda", Some(1.0))]));
        assert!(text.contains("IO/s") && text.contains("max") && !text.contains("mean"), "{text}");
    }

    #[test]
    fn words_of_sort_are_columns() {
        use crate::analyze::{
            interrupts::InterruptSummary, latency::LatencySummary, pressure::PressureSummary,
            threads::ThreadSummary,
        };
        let all = |words: &[&str], columns: Vec<Column>| {
            words.iter().all(|word| columns.iter().any(|column| column.key == *word && !column.is_text))
        };
        assert!(all(&SORTS_LATENCY, LatencySummary::default().columns()));
        assert!(all(&SORTS_INTERRUPTS, InterruptSummary::default().columns()));
        assert!(all(&SORTS_LOCKS, PressureSummary::default().columns()));
        assert!(all(&SORTS_THREADS, Intervals::columns(&ThreadSummary::default())));
    }

    #[test]
    fn an_interval_without_rows_says_so() {
        let text = lines(None, "").add("10:00:01", &Disks(Vec::new()));
        assert!(text.ends_with("10:00:01 no I/O\n"), "{text}");
    }
}
