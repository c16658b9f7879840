//! Renders `biopsy flame` as text: what the flame graph shows, and the heaviest frames.

use std::collections::BTreeSet;

use super::{clean, count, counted, fit, fitted, footer, notes, significant, table, time};
use crate::analyze::flame::{FlameSummary, Heavy, StackSource, Submitter, What};
use crate::analyze::profile::Unit;
use crate::analyze::submits::TimePart;
use crate::envelope::Envelope;

const MOST_FRAMES: usize = 10;
const MOST_NAME: usize = 70;
const MOST_WHO: usize = 32;
const MOST_FUNCTION: usize = 32;

/// `product`: path of the written graph; None: it is on stdout, so this text is not printed there.
pub fn render(
    envelope: &Envelope,
    summary: &FlameSummary,
    product: Option<&str>,
    status: Option<i32>,
    width: Option<usize>,
) -> String {
    let total = summary.profile.total();
    let value = |n: u64| match summary.profile.unit {
        Unit::Nanoseconds => time(n),
        Unit::Samples | Unit::Ios | Unit::Events => count(n),
    };
    let all = match summary.profile.unit {
        Unit::Nanoseconds => time(total),
        Unit::Samples => counted(total, "sample"),
        Unit::Ios => counted(total, "I/O"),
        Unit::Events => counted(total, "event"),
    };
    // A file may not state its duration.
    let length = match summary.duration_ns {
        0 => String::new(),
        ns => format!(" in {}", time(ns)),
    };
    let mut out = format!(
        "{}  {all} in {}{length}: {}\n",
        clean(&summary.title()),
        counted(summary.profile.stacks().len() as u64, "stack"),
        clean(&source(&summary.source)),
    );
    if summary.recorded.is_some() && !envelope.start.is_empty() {
        let kernel = match envelope.kernel.as_str() {
            "" => String::new(),
            kernel => format!(", Linux {kernel}"),
        };
        out.push_str(&clean(&format!("recorded at {}{kernel}", envelope.start)));
        out.push('\n');
    }
    let weights = match summary.what {
        Some(What::Io) => submitters(summary),
        _ => frames(summary, value),
    };
    if !weights.is_empty() {
        out.push('\n');
        out.push_str(&weights);
    }
    out.push('\n');
    for note in notes::all(summary) {
        out.push_str(&format!("{}\n", clean(&note)));
    }
    // The losses of another tool's file are unknown.
    if summary.what.is_some() {
        out.push_str(&footer::lost(envelope));
    }
    if let Some(cost) = cost(envelope) {
        out.push_str(&format!("{cost}; maps {}\n", super::bytes(envelope.cost.map_bytes as f64)));
    }
    out.push_str(&footer::missing(&envelope.missing, &[]));
    if let Some(status) = status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    if let Some(product) = product {
        out.push_str(&format!("{}\n", clean(product)));
    }
    fit(&out, width)
}

/// Where the values come from.
pub fn source(source: &StackSource) -> String {
    match source {
        StackSource::Sampler { sampler, hz, cpus } => {
            format!("{} at {hz} Hz on {}", sampler.name(), counted((*cpus).into(), "CPU"))
        }
        StackSource::Switches => "all context switches".to_string(),
        StackSource::Reclaim => "start and end of reclaim by the kernel's events".to_string(),
        StackSource::Locks { waits, by } => format!("{} by {}", counted(*waits, "wait"), by.name()),
        StackSource::Ios { sampled, of } => {
            format!("stacks of {} of {}", count(*sampled), counted(*of, "I/O"))
        }
        StackSource::Recorded(text) => text.clone(),
    }
}

/// The cost of the measurement; None if not measured.
pub fn cost(envelope: &Envelope) -> Option<String> {
    envelope.cost.cpu_percent.map(|cpu| format!("cost {} % of one CPU", significant(cpu, 2)))
}

/// In percent of the total.
fn share(n: u64, total: u64) -> String {
    significant(100.0 * n as f64 / total.max(1) as f64, 3)
}

/// The heaviest frames; empty if there are none.
fn frames(summary: &FlameSummary, value: impl Fn(u64) -> String) -> String {
    let total = summary.profile.total();
    let row = |heavy: &Heavy| {
        vec![
            fitted(&clean(&heavy.name), MOST_NAME),
            heavy.area.name().to_string(),
            value(heavy.own),
            share(heavy.own, total),
            share(heavy.total, total),
        ]
    };
    let rows: Vec<Vec<String>> = summary.heaviest(MOST_FRAMES).iter().map(row).collect();
    if rows.is_empty() { String::new() } else { table(&["frame", "area", "own", "own %", "total %"], &rows) }
}

/// The submitters of the I/Os, and the time in each stage.
fn submitters(summary: &FlameSummary) -> String {
    let total = summary.profile.total();
    let mut all = summary.submitters();
    all.truncate(MOST_FRAMES);
    if all.is_empty() {
        return String::new();
    }
    let parts: BTreeSet<TimePart> = all.iter().flat_map(|row| row.parts.keys().copied()).collect();
    let header: Vec<&str> = ["submitter", "function"]
        .into_iter()
        .chain(parts.iter().map(|p| p.name()))
        .chain(["all", "%"])
        .collect();
    let row = |row: &Submitter| {
        let function = row.function.as_deref().map_or("-".to_string(), clean);
        let mut cells = vec![fitted(&clean(&row.who), MOST_WHO), fitted(&function, MOST_FUNCTION)];
        cells.extend(parts.iter().map(|part| row.parts.get(part).map_or("-".to_string(), |ns| time(*ns))));
        cells.extend([time(row.total), share(row.total, total)]);
        cells
    };
    table(&header, &all.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::profile::folded;

    #[test]
    fn ios_have_a_column_for_each_stage() {
        let folded = BTreeMap::from([
            ("fio;main;read_pages_[k];submit_bio_[k];[queue]".to_string(), 3_000),
            ("fio;main;read_pages_[k];submit_bio_[k];[device]".to_string(), 6_000),
            ("\x1b[2Jfio;main;[bio]".to_string(), 1_000),
        ]);
        let summary = FlameSummary {
            duration_ns: 1_000_000_000,
            source: StackSource::Ios { sampled: 3, of: 3 },
            ..FlameSummary::new(Some(What::Io), folded::profile(&folded, Unit::Nanoseconds))
        };
        let text = render(&Envelope::default(), &summary, Some("picture: x.svg"), None, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "I/O time by submitter  10.0 µs in 3 stacks in 1.00 s: stacks of 3 of 3 I/Os",
                "",
                "submitter       function    queue   device      bio      all     %",
                "fio           read_pages  3.00 µs  6.00 µs        -  9.00 µs  90.0",
                "\\u{1b}[2Jfio        main        -        -  1.00 µs  1.00 µs  10.0",
            ]
        );
    }
}
