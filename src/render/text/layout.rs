//! Fits text into a width: tables drop columns, panels wrap below each other, sentences are broken.
//!
//! [`table`] and [`panels`] mark their lines with control characters, which no name contains after
//! [`clean`](super::clean). [`fit`] turns them into text, at the end of each renderer.

use super::fitted;

/// Marks the cells of a table's header.
const HEADER: char = '\u{1}';
/// Marks the cells of a row of the table above.
const ROW: char = '\u{2}';
/// Marks the label and the panels of a line.
const PANELS: char = '\u{3}';
/// Separates cells.
const NEXT: char = '\u{1f}';

/// Space between columns.
const GAP: usize = 2;

/// Headings of columns that a narrow terminal drops, in this order. Other columns are dropped next, from the right; the
/// first column stays.
const LEAST_NEEDED: [&str; 36] = [
    "named by",
    "area",
    "per",
    "p99.9",
    "p99.99",
    "min",
    "±",
    "samples",
    "p90",
    "own %",
    "CPUs",
    "cgroup",
    "kind",
    "empty",
    "moved",
    "time",
    "share",
    "operations",
    "complete",
    "I/Os",
    "n",
    "reap",
    "submit",
    "p50",
    "throttled",
    "batches",
    "reclaimed",
    "scanned",
    "cause",
    "bytes",
    "verdict",
    "waits/s",
    "handler p50",
    "queue",
    "syscall",
    "name",
];

/// A table: the first column left-aligned, the others right-aligned, two spaces between.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |mark: char, cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<&str> = cells.take(header.len()).collect();
        format!("{mark}{}\n", cells.join(&NEXT.to_string()))
    };
    let mut out = line(HEADER, &mut header.iter().copied());
    for row in rows {
        out.push_str(&line(ROW, &mut row.iter().map(String::as_str)));
    }
    out
}

/// Lines with a label each and panels of equal width side by side.
pub fn panels(lines: &[(String, Vec<String>)]) -> String {
    let line = |(label, panels): &(String, Vec<String>)| {
        let cells: Vec<&str> = std::iter::once(label).chain(panels).map(String::as_str).collect();
        format!("{PANELS}{}\n", cells.join(&NEXT.to_string()))
    };
    lines.iter().map(line).collect()
}

/// The text without marks, each line at most this wide; None: unlimited.
pub fn fit(text: &str, width: Option<usize>) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((indent, mark, cells)) = marked(line) else {
            sentence(line, width, &mut out);
            continue;
        };
        let mut block = vec![cells];
        while let Some((_, _, cells)) =
            lines.peek().and_then(|next| marked(next)).filter(|(_, next, _)| match mark {
                PANELS => *next == PANELS,
                _ => *next == ROW,
            })
        {
            block.push(cells);
            lines.next();
        }
        let room = width.map(|width| width.saturating_sub(indent.chars().count()).max(1));
        let text = if mark == PANELS { bands(&block, room) } else { columns(block, room) };
        for line in text {
            let line = format!("{indent}{line}");
            out.push_str(&cut(line.trim_end(), width));
            out.push('\n');
        }
    }
    out
}

/// A marked line: the text before the mark, the mark, and the cells.
fn marked(line: &str) -> Option<(&str, char, Vec<&str>)> {
    let at = line.find([HEADER, ROW, PANELS])?;
    let mark = line[at..].chars().next()?;
    Some((&line[..at], mark, line[at + mark.len_utf8()..].split(NEXT).collect()))
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if width_of(line) > width => line.chars().take(width).collect(),
        _ => line.to_string(),
    }
}

/// The lines of a table; the first row is its header.
fn columns(rows: Vec<Vec<&str>>, room: Option<usize>) -> Vec<String> {
    let header: Vec<&str> = rows.first().cloned().unwrap_or_default();
    let mut widths: Vec<usize> = (0..header.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| width_of(cell)).max().unwrap_or(0))
        .collect();
    let mut is_shown = vec![true; header.len()];
    let length = |is_shown: &[bool], widths: &[usize]| {
        let shown = is_shown.iter().zip(widths).filter(|(is_shown, _)| **is_shown).map(|(_, width)| *width);
        shown.clone().sum::<usize>() + GAP * shown.count().saturating_sub(1)
    };
    if let Some(room) = room {
        let order = LEAST_NEEDED.iter().flat_map(|name| (1..header.len()).filter(|at| header[*at] == *name));
        let order: Vec<usize> = order.chain((2..header.len()).rev()).collect();
        for at in order {
            if length(&is_shown, &widths) <= room {
                break;
            }
            is_shown[at] = false;
        }
        // If the remaining columns are still too wide, the first one, a name, is shortened.
        let rest = length(&is_shown, &widths).saturating_sub(room);
        if let Some(first) = widths.first_mut() {
            *first = first.saturating_sub(rest).max(4.min(*first));
        }
    }
    let line = |row: &Vec<&str>| {
        let mut out = String::new();
        for (at, cell) in row.iter().enumerate().take(header.len()).filter(|(at, _)| is_shown[*at]) {
            let width = widths[at];
            match at {
                0 => out.push_str(&format!("{:<width$}", fitted(cell, width))),
                _ => out.push_str(&format!("{:GAP$}{cell:>width$}", "")),
            }
        }
        out
    };
    rows.iter().map(line).collect()
}

/// Lines with as many panels as fit side by side, followed by the next ones.
fn bands(rows: &[Vec<&str>], room: Option<usize>) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| width_of(cell)).max().unwrap_or(0))
        .collect();
    let label = widths.first().copied().unwrap_or(0);
    let (mut out, mut at) = (Vec::new(), 1);
    while at < count {
        let mut end = at + 1;
        let mut length = label + GAP + widths[at];
        while end < count && room.is_none_or(|room| length + GAP + widths[end] <= room) {
            length += GAP + widths[end];
            end += 1;
        }
        for row in rows {
            let mut line = format!("{:>label$}", row.first().unwrap_or(&""));
            for (cell, width) in row.iter().zip(&widths).take(end).skip(at) {
                line.push_str(&format!("{:GAP$}{cell:<width$}", ""));
            }
            out.push(line.trim_end().to_string());
        }
        at = end;
    }
    out
}

/// A line outside of a table: broken at blanks, continuation lines are indented further.
fn sentence(line: &str, width: Option<usize>, out: &mut String) {
    let Some(width) = width.filter(|width| shown_width(line) > *width) else {
        out.push_str(line);
        out.push('\n');
        return;
    };
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let hanging = (indent + 2).min(width / 2);
    let mut current = " ".repeat(indent.min(width / 2));
    let mut is_empty = true;
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        let mut word = word;
        let blank = usize::from(!is_empty);
        if !is_empty && shown_width(&current) + blank + shown_width(word) > width {
            out.push_str(&current);
            out.push('\n');
            current = " ".repeat(hanging);
            is_empty = true;
        }
        if !is_empty {
            current.push(' ');
        }
        // A word wider than a line is cut.
        while is_empty && shown_width(&current) + shown_width(word) > width {
            let room = width.saturating_sub(shown_width(&current)).max(1);
            let end = word.char_indices().nth(room).map_or(word.len(), |(end, _)| end);
            let (head, rest) = word.split_at(end);
            out.push_str(&current);
            out.push_str(head);
            out.push('\n');
            current = " ".repeat(hanging);
            word = rest;
            if word.is_empty() {
                break;
            }
        }
        current.push_str(word);
        is_empty = false;
    }
    if !current.trim().is_empty() {
        out.push_str(current.trim_end());
        out.push('\n');
    }
}

/// Width of a text on the terminal: colour codes take no room.
fn shown_width(text: &str) -> usize {
    let mut width = 0;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\u{1b}' => _ = characters.by_ref().find(|c| *c == 'm'),
            _ => width += 1,
        }
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(all: &[&[&str]]) -> Vec<Vec<String>> {
        all.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
    }

    #[test]
    fn tables_align() {
        let text = table(&["name", "n"], &rows(&[&["a", "10"], &["long", "7"]]));
        assert_eq!(fit(&text, None), "name   n\na     10\nlong   7\n");
        // Also if it is indented, and below a sentence.
        let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
        assert_eq!(fit(&format!("x\n{text}"), Some(80)), "x\n  name   n\n  a     10\n  long   7\n");
    }

    #[test]
    fn columns_that_are_needed_least_go_first() {
        let header = ["stage, µs", "mean", "min", "p50", "p99", "p99.9", "max", "n"];
        let text = table(&header, &rows(&[&["device", "177", "134", "168", "270", "737", "6116", "2,042"]]));
        let shown = |width| fit(&text, Some(width)).lines().next().unwrap().to_string();
        assert_eq!(shown(80).split_whitespace().count(), 9);
        assert_eq!(shown(40), "stage, µs  mean  p50  p99   max      n");
        assert_eq!(shown(30), "stage, µs  mean  p99   max");
        assert_eq!(shown(20), "stage, µs  mean  p99");
        assert_eq!(shown(19), "stage, µs  mean");
    }

    #[test]
    fn panels_go_below_each_other() {
        let lines = [("us", ["device", "reap"]), ("[1, 2)", ["9 |***|", "1 |*  |"])];
        let lines = lines.map(|(label, cells)| (label.to_string(), cells.map(String::from).to_vec()));
        let text = panels(&lines);
        assert_eq!(fit(&text, None), "    us  device   reap\n[1, 2)  9 |***|  1 |*  |\n");
        assert_eq!(fit(&text, Some(20)), "    us  device\n[1, 2)  9 |***|\n    us  reap\n[1, 2)  1 |*  |\n");
    }

    #[test]
    fn sentences_are_broken_at_blanks() {
        let line = "  lost 691 I/Os, 0 events";
        assert_eq!(fit(line, Some(16)), "  lost 691 I/Os,\n    0 events\n");
        assert_eq!(fit(line, Some(80)), format!("{line}\n"));
        assert_eq!(fit("a\n\nb", Some(10)), "a\n\nb\n");
        // Colour codes take no room.
        let bold = "\u{1b}[1mvda\u{1b}[0m: ok";
        assert_eq!(fit(bold, Some(7)), format!("{bold}\n"));
    }

    #[test]
    fn no_line_is_wider_and_nothing_panics() {
        let long = "averyveryverylongwordwithoutanyblank";
        let table = table(&["lock", "kind", "n"], &rows(&[&[long, "mutex", "1,234,567"], &["x"]]));
        let panels = panels(&[("[1, 2)".to_string(), vec![format!("9 |{}|", "*".repeat(24)); 3])]);
        let text = format!("{long} {long}\n   {long}\n{table}{panels}a sentence of some words, {long}\n");
        for width in 1..100 {
            let fitted = fit(&text, Some(width));
            assert!(fitted.lines().all(|line| width_of(line) <= width), "{width}: {fitted}");
            assert!(!fitted.contains([HEADER, ROW, PANELS, NEXT]), "{fitted}");
        }
    }
}
