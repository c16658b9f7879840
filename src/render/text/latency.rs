//! `biopsy latency` as text.

use std::collections::BTreeMap;

use super::{bytes, clean, count, footer, short, significant, table, time, time_unit};
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency, Stage, Unit};
use crate::analyze::operations::{NotCovered, OperationLatency};
use crate::envelope::Envelope;
use crate::hist::Histogram;

/// How the text looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Idle devices as well.
    pub all: bool,
    pub color: bool,
    /// Without what is the same in every interval.
    pub brief: bool,
}

/// The whole view.
pub fn render(
    envelope: &Envelope,
    summary: &LatencySummary,
    command_status: Option<i32>,
    style: Style,
) -> String {
    let mut out = String::new();
    let shown: Vec<&DeviceLatency> =
        summary.devices.iter().filter(|d| style.all || d.ios + d.lost_ios > 0).collect();
    for device in &shown {
        out.push_str(&of_device(device, summary.duration_ns, style));
        out.push('\n');
    }
    if shown.is_empty() {
        out.push_str("No I/O completed on the traced devices.\n\n");
    }
    out.push_str(&ending(envelope, summary, &shown, style));
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    out
}

fn bold(text: &str, style: Style) -> String {
    if style.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
}

fn of_device(device: &DeviceLatency, duration_ns: u64, style: Style) -> String {
    let seconds = (duration_ns as f64 / 1e9).max(1e-9);
    let mut out = bold(&clean(&device.name), style);
    if !device.layers.is_empty() {
        out.push_str(&format!(" (on {})", clean(&device.layers.join(", "))));
    }
    let mut facts = vec![format!("{} I/Os", count(device.ios)), bytes(device.bytes as f64)];
    let notable = [
        ("splits", device.splits),
        ("merges", device.merges),
        ("requeues", device.requeues),
        ("retries", device.retries),
    ];
    facts.extend(notable.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{} {what}", count(*n))));
    if device.vanished {
        facts.push("VANISHED in mid-run".to_string());
    }
    out.push_str(&format!(": {}\n", facts.join(", ")));
    for (op, latency) in &device.ops {
        out.push_str(&format!(
            "\n  {}  {} I/Os  {}/s  {}/s\n",
            bold(op.name(), style),
            count(latency.ios),
            short(latency.ios as f64 / seconds),
            bytes(latency.bytes as f64 / seconds),
        ));
        let (unit, stages) = latency.stages();
        if stages.is_empty() {
            continue;
        }
        let total = match &latency.operations {
            Some(all) if unit == Unit::Operation => {
                out.push_str(&format!("    {}\n", operations_line(all, latency)));
                Some(&all.total)
            }
            _ => None,
        };
        out.push_str(&indent(&stages_table(unit, stages, total), 4));
        out.push('\n');
        // A request of the block layer that is not one operation has stages of its own.
        if unit == Unit::Operation && !alike(latency) {
            out.push_str(&indent(&stages_table(Unit::Io, &latency.request_stages, None), 4));
            out.push('\n');
        }
        out.push_str(&indent(&histograms(stages), 4));
    }
    out
}

fn indent(text: &str, by: usize) -> String {
    let pad = " ".repeat(by);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}

/// How many operations, and how many of them the table below leaves out.
fn operations_line(all: &OperationLatency, latency: &OpLatency) -> String {
    let mut line = format!("{} operations", count(all.operations));
    let left: Vec<String> = all
        .not_covered
        .iter()
        .map(|(why, n)| format!("{} {}", count(*n), not_covered(*why)))
        .chain(latency.unowned.filter(|n| *n > 0).map(|n| format!("{} I/Os of no operation", count(n))))
        .collect();
    if !left.is_empty() {
        line.push_str(&format!(" (not below: {})", left.join(", ")));
    }
    line
}

fn not_covered(why: NotCovered) -> &'static str {
    match why {
        NotCovered::MoreStages => "with more stages",
        NotCovered::Reap => "whose result nobody was seen to fetch",
        NotCovered::Complete => "in system calls, without complete",
        NotCovered::Torn => "with parts that ended together",
    }
}

/// Whether the stages of the I/Os would say nothing that those of the operations do not: one I/O each.
fn alike(latency: &OpLatency) -> bool {
    let owned = latency.ios.saturating_sub(latency.unowned.unwrap_or(0));
    let operations = latency.operations.as_ref().map_or(0, |all| all.operations);
    latency.unowned == Some(0) && operations.abs_diff(owned) * 100 <= operations
}

/// Percentiles per stage and of the whole, one unit of time for the whole table.
fn stages_table(of: Unit, stages: &BTreeMap<Stage, Histogram>, total: Option<&Histogram>) -> String {
    let middle = stages.values().chain(total).filter_map(|h| h.quantile(0.5).or(h.max())).max().unwrap_or(0);
    let (scale, unit) = time_unit(middle);
    let cell = |value: Option<u64>| value.map_or("-".to_string(), |v| figure(v as f64 / scale));
    let rows: Vec<Vec<String>> = Stage::ALL
        .iter()
        .filter_map(|stage| stages.get(stage).map(|h| (stage.name(), h)))
        .chain(total.map(|h| ("total", h)))
        .map(|(name, h)| {
            vec![
                name.to_string(),
                h.mean().map_or("-".to_string(), |v| figure(v / scale)),
                cell(h.min()),
                cell(h.quantile(0.5)),
                cell(h.quantile(0.9)),
                cell(h.quantile(0.99)),
                cell(h.quantile(0.999)),
                cell(h.max()),
                count(h.count()),
            ]
        })
        .collect();
    let of = match of {
        Unit::Operation => "operation",
        Unit::Io => "I/O",
    };
    table(&[&format!("{of}, {unit}"), "mean", "min", "p50", "p90", "p99", "p99.9", "max", "n"], &rows)
}

/// Three significant digits, and no more decimals than two.
fn figure(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value == 0.0 {
        "0".to_string()
    } else if value < 0.01 {
        significant(value, 1)
    } else {
        format!("{value:.2}")
    }
}

const BAR: usize = 24;

/// One row per power of two, the stages side by side.
fn histograms(stages: &BTreeMap<Stage, Histogram>) -> String {
    let octave = |lower: u64| if lower == 0 { 0 } else { 64 - lower.leading_zeros() };
    let folded: Vec<(Stage, BTreeMap<u32, u64>)> = Stage::ALL
        .iter()
        .filter_map(|stage| stages.get(stage).map(|h| (*stage, h)))
        .map(|(stage, h)| {
            let mut rows = BTreeMap::new();
            for (lower, _, n) in h.buckets() {
                *rows.entry(octave(lower)).or_insert(0) += n;
            }
            (stage, rows)
        })
        .collect();
    let all = || folded.iter().flat_map(|(_, rows)| rows.keys().copied());
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return String::new() };
    let label = |octave: u32| {
        let lower = if octave == 0 { 0 } else { 1u64 << (octave - 1) };
        format!("[{}, {})", time(lower), time(1u64 << octave))
    };
    let width = (first..=last).map(|o| label(o).chars().count()).max().unwrap_or(0);
    let counts: Vec<usize> = folded
        .iter()
        .map(|(stage, rows)| {
            rows.values().map(|n| count(*n).len()).chain([stage.name().len()]).max().unwrap_or(0)
        })
        .collect();
    let mut out = " ".repeat(width);
    for ((stage, _), wide) in folded.iter().zip(&counts) {
        out.push_str(&format!("  {:>wide$}{}", stage.name(), " ".repeat(BAR + 3)));
    }
    out = out.trim_end().to_string();
    out.push('\n');
    for o in first..=last {
        let text = label(o);
        let mut line = format!("{}{text}", " ".repeat(width - text.chars().count()));
        for ((_, rows), wide) in folded.iter().zip(&counts) {
            let n = rows.get(&o).copied().unwrap_or(0);
            let most = rows.values().copied().max().unwrap_or(1).max(1);
            let stars = ((n as f64 / most as f64) * BAR as f64).ceil() as usize;
            line.push_str(&format!("  {:>wide$} |{:<BAR$}|", count(n), "*".repeat(stars)));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// How much, how sure, at what cost, and what is not here.
fn ending(envelope: &Envelope, summary: &LatencySummary, shown: &[&DeviceLatency], style: Style) -> String {
    let ios: u64 = summary.devices.iter().map(|d| d.ios).sum();
    let mut out = format!(
        "n = {} I/Os in {} from {}, kernel {}\n",
        count(ios),
        time(summary.duration_ns),
        envelope.start,
        clean(&envelope.kernel)
    );
    for device in shown {
        out.push_str(&footer::check(device));
    }
    out.push_str(&footer::lost(envelope));
    out.push_str(&footer::cost(envelope));
    if style.brief {
        return out;
    }
    let devices: Vec<&str> = shown.iter().map(|d| d.name.as_str()).collect();
    out.push_str(&footer::missing(&envelope.missing, &devices));
    if shown.iter().any(|d| d.ops.values().any(|o| o.stages().1.len() > 1)) {
        out.push_str("means add up over the stages; percentiles do not\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::{Bracket, KernelClass, Op};

    fn device() -> DeviceLatency {
        let mut hist = Histogram::default();
        (0..2000).for_each(|i| hist.record(90_000 + i * 10));
        let op = OpLatency {
            ios: 2000,
            bytes: 8_192_000,
            request_stages: BTreeMap::from([(Stage::Device, hist)]),
            ..OpLatency::default()
        };
        DeviceLatency {
            name: "sd\x1b[2Ja".into(),
            ios: 2000,
            kernel: Some(BTreeMap::from([(KernelClass::Read, Bracket { min: 2000, max: 2000 })])),
            ops: BTreeMap::from([(Op::Read, op)]),
            ..DeviceLatency::default()
        }
    }

    #[test]
    fn numbers_stand_with_their_check_and_names_are_escaped() {
        let summary = LatencySummary { duration_ns: 1_000_000_000, devices: vec![device()] };
        let text = render(&Envelope::default(), &summary, None, Style::default());
        assert!(text.contains("seen 2,000, kernel counted 2,000: ok"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.contains("2000/s") && text.contains("p99.9"), "{text}");
    }

    #[test]
    fn an_idle_machine_says_so() {
        let text = render(&Envelope::default(), &LatencySummary::default(), Some(3), Style::default());
        assert!(text.starts_with("No I/O completed") && text.contains("status 3"));
    }
}
