//! `biopsy latency` as text.

use std::collections::BTreeMap;

use super::{bytes, clean, count, counted, footer, groups, short, significant, table, time, time_unit};
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency, Stage, Unit};
use crate::analyze::layers;
use crate::analyze::operations::{NotCovered, OperationLatency};
use crate::analyze::parts::Parts;
use crate::envelope::Envelope;
use crate::hist::Histogram;

/// How the text looks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Idle devices as well, and every group.
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
        match summary.groups {
            // The table of groups is what was asked for.
            Some(_) => out.push_str(&headline(device, style)),
            None => {
                out.push_str(&of_device(device, summary, style));
                out.push('\n');
            }
        }
    }
    if let Some(nothing) = groups::nothing_passed(summary) {
        out.push_str(&format!("{nothing}\n\n"));
    } else if shown.is_empty() {
        out.push_str("No I/O completed on the traced devices.\n\n");
    }
    if let Some(all) = &summary.groups {
        out.push_str(&groups::render(all, style.all));
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

/// One line: how much of what.
fn headline(device: &DeviceLatency, style: Style) -> String {
    let mut out = bold(&clean(&device.name), style);
    if !device.layers.is_empty() {
        out.push_str(&format!(" (on {})", clean(&device.layers.join(", "))));
    }
    if !device.added_for.is_empty() {
        out.push_str(&format!(" (added: below {})", clean(&device.added_for.join(", "))));
    }
    let mut facts = vec![counted(device.ios, "I/O"), bytes(device.bytes as f64)];
    let notable = [
        ("split", device.splits),
        ("merge", device.merges),
        ("requeue", device.requeues),
        ("retry", device.retries),
    ];
    facts.extend(notable.iter().filter(|(_, n)| *n > 0).map(|(what, n)| counted(*n, what)));
    if device.vanished {
        facts.push("VANISHED in mid-run".to_string());
    }
    out.push_str(&format!(": {}\n", facts.join(", ")));
    out
}

fn of_device(device: &DeviceLatency, summary: &LatencySummary, style: Style) -> String {
    let seconds = (summary.duration_ns as f64 / 1e9).max(1e-9);
    let mut out = headline(device, style);
    for (op, latency) in &device.ops {
        out.push_str(&format!(
            "\n  {}  {}  {}/s  {}/s\n",
            bold(op.name(), style),
            counted(latency.ios, "I/O"),
            short(latency.ios as f64 / seconds),
            bytes(latency.bytes as f64 / seconds),
        ));
        let (unit, stages) = latency.stages();
        let scale = unit_of(latency);
        if stages.is_empty() && latency.bio.is_none() {
            continue;
        }
        let whole = match &latency.operations {
            Some(all) if unit == Unit::Operation => {
                out.push_str(&format!("    {}\n", operations_line(all, latency)));
                Some(("total", &all.total))
            }
            _ => bio(latency),
        };
        out.push_str(&indent(&stages_table(unit, stages, latency.parts(), whole, scale), 4));
        out.push('\n');
        if let Some(line) = latency.operations.as_ref().filter(|_| unit == Unit::Operation).and_then(slowest)
        {
            out.push_str(&format!("    {line}\n\n"));
        }
        // A request of the block layer that is not one operation has stages of its own.
        if unit == Unit::Operation && !alike(latency) {
            out.push_str(&indent(
                &stages_table(Unit::Io, &latency.request_stages, &latency.request_parts, bio(latency), scale),
                4,
            ));
            out.push('\n');
        }
        if let Some(Ok(inside)) = layers::inside(summary, device, *op) {
            out.push_str(&format!("    {}\n\n", layer_line(&inside, device)));
        }
        let drawn = if unit == Unit::Io { bio(latency) } else { None };
        let of_stages = Stage::ALL.iter().filter_map(|stage| Some((stage.name(), stages.get(stage)?)));
        out.push_str(&indent(&histograms(of_stages.chain(drawn).collect(), scale), 4));
    }
    out
}

/// What stands for the stages of an I/O without requests.
fn bio(latency: &OpLatency) -> Option<(&'static str, &Histogram)> {
    latency.bio.as_ref().map(|bio| ("bio", bio))
}

/// The time in a layer, as a difference.
fn layer_line(inside: &layers::Inside, device: &DeviceLatency) -> String {
    format!(
        "mean in the layer itself {}: {} here less {} on {}, I/O by I/O",
        time(inside.mean_ns() as u64),
        time(inside.upper_mean_ns() as u64),
        time(inside.lower_mean_ns() as u64),
        clean(&device.layers.join(", "))
    )
}

fn indent(text: &str, by: usize) -> String {
    let pad = " ".repeat(by);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}

/// How many operations, and how many of them the table below leaves out.
fn operations_line(all: &OperationLatency, latency: &OpLatency) -> String {
    let mut line = counted(all.operations, "operation");
    let left: Vec<String> = all
        .not_covered
        .iter()
        .map(|(why, n)| format!("{} {}", count(*n), not_covered(*why)))
        .chain(latency.unowned.filter(|n| *n > 0).map(|n| format!("{} of no operation", counted(n, "I/O"))))
        .collect();
    if !left.is_empty() {
        line.push_str(&format!(" (not below: {})", left.join(", ")));
    }
    line
}

/// Where the slowest hundredth spends its time.
pub(super) fn slowest(all: &OperationLatency) -> Option<String> {
    let slowest = all.slowest(0.01)?;
    let whole = slowest.sums_ns.values().sum::<u64>().max(1) as f64;
    let shares: Vec<String> = slowest
        .sums_ns
        .iter()
        .map(|(stage, ns)| format!("{} {:.0} %", stage.name(), *ns as f64 / whole * 100.0))
        .collect();
    let share = slowest.operations as f64 / all.total.count() as f64 * 100.0;
    Some(format!(
        "the slowest {} % (from {}): {}",
        significant(share, 2),
        time(slowest.from_ns),
        shares.join(", ")
    ))
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

/// The unit of all times of one class of I/O: that of the largest median.
fn unit_of(latency: &OpLatency) -> (f64, &'static str) {
    let total = latency.operations.iter().map(|all| &all.total);
    let times = latency.request_stages.values().chain(&latency.bio).chain(total);
    let medians = times.filter_map(|h| h.quantile(0.5).or(h.max()));
    time_unit(medians.max().unwrap_or(0))
}

/// Percentiles per stage, and of the whole by its name.
fn stages_table(
    of: Unit,
    stages: &BTreeMap<Stage, Histogram>,
    parts: &Parts,
    whole: Option<(&str, &Histogram)>,
    (scale, unit): (f64, &'static str),
) -> String {
    let cell = |value: Option<u64>| value.map_or("-".to_string(), |v| figure(v as f64 / scale));
    let rows: Vec<Vec<String>> = Stage::ALL
        .iter()
        .flat_map(|stage| {
            let of_stage = parts.iter().filter(move |(part, _)| part.stage() == *stage);
            let part = of_stage.map(|(part, h)| (format!("  {}", part.name()), h));
            stages.get(stage).map(|h| (stage.name().to_string(), h)).into_iter().chain(part)
        })
        .chain(whole.map(|(name, h)| (name.to_string(), h)))
        .map(|(name, h)| {
            vec![
                name,
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
    table(
        &[&format!("{}, {unit}", of.name()), "mean", "min", "p50", "p90", "p99", "p99.9", "max", "n"],
        &rows,
    )
}

/// Three significant digits, and no more decimals than two.
pub(super) fn figure(value: f64) -> String {
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

/// Fewer values than this are no distribution.
const FEW: u64 = 10;

/// Values by power of two: the key is that of the upper end.
fn octaves(hist: &Histogram) -> BTreeMap<u32, u64> {
    let mut rows = BTreeMap::new();
    for (lower, _, n) in hist.buckets() {
        *rows.entry(if lower == 0 { 0 } else { 64 - lower.leading_zeros() }).or_insert(0) += n;
    }
    rows
}

/// One row per power of two, the stages side by side. What would be one bar, or a few stars, is a line.
fn histograms(stages: Vec<(&str, &Histogram)>, unit: (f64, &'static str)) -> String {
    let is_drawn = |hist: &Histogram| hist.count() >= FEW && octaves(hist).len() > 1;
    let (drawn, told): (Vec<_>, Vec<_>) = stages.into_iter().partition(|(_, hist)| is_drawn(hist));
    let drawn: Vec<(&str, BTreeMap<u32, u64>)> =
        drawn.into_iter().map(|(stage, hist)| (stage, octaves(hist))).collect();
    let mut out = picture(&drawn, unit);
    for (stage, hist) in told {
        let edge = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| figure(ns as f64 / unit.0));
        let (least, most) = (edge(hist.min()), edge(hist.max()));
        let (n, unit) = (counted(hist.count(), "I/O"), unit.1);
        out.push_str(&match hist.count() {
            0 => continue,
            _ if least == most => format!("{stage}: {n} of {least} {unit}\n"),
            _ => format!("{stage}: {n} of {least} to {most} {unit}\n"),
        });
    }
    out
}

fn picture(stages: &[(&str, BTreeMap<u32, u64>)], (scale, unit): (f64, &'static str)) -> String {
    let all = || stages.iter().flat_map(|(_, rows)| rows.keys().copied());
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return String::new() };
    let label = |octave: u32| {
        let lower = if octave == 0 { 0 } else { 1u64 << (octave - 1) };
        format!("[{}, {})", figure(lower as f64 / scale), figure(2f64.powi(octave as i32) / scale))
    };
    let width = (first..=last).map(|o| label(o).chars().count()).max().unwrap_or(0);
    let counts: Vec<usize> = stages
        .iter()
        .map(|(stage, rows)| rows.values().map(|n| count(*n).len()).chain([stage.len()]).max().unwrap_or(0))
        .collect();
    let mut out = format!("{}{unit}", " ".repeat(width.saturating_sub(unit.chars().count())));
    for ((stage, _), wide) in stages.iter().zip(&counts) {
        out.push_str(&format!("  {:>wide$}{}", stage, " ".repeat(BAR + 3)));
    }
    out = out.trim_end().to_string();
    out.push('\n');
    for o in first..=last {
        let text = label(o);
        let mut line = format!("{}{text}", " ".repeat(width - text.chars().count()));
        for ((_, rows), wide) in stages.iter().zip(&counts) {
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
    let ios = layers::ios_once(summary);
    let mut out = format!(
        "n = {} in {} from {}, kernel {}\n",
        counted(ios, "I/O"),
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
        let summary = LatencySummary {
            duration_ns: 1_000_000_000,
            devices: vec![device()],
            ..LatencySummary::default()
        };
        let text = render(&Envelope::default(), &summary, None, Style::default());
        assert!(text.contains("seen 2,000, kernel counted 2,000: ok"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.contains("2000/s") && text.contains("p99.9"), "{text}");
    }

    fn picture_of(values: impl Iterator<Item = u64>) -> String {
        let mut hist = Histogram::default();
        values.for_each(|ns| hist.record(ns));
        let stages = BTreeMap::from([(Stage::Device, hist)]);
        let latency = OpLatency { request_stages: stages, ..OpLatency::default() };
        let all = latency.request_stages.iter().map(|(stage, hist)| (stage.name(), hist));
        histograms(all.collect(), unit_of(&latency))
    }

    #[test]
    fn a_histogram_has_one_unit_from_top_to_bottom() {
        let text = picture_of((0..100u64).map(|i| 400_000 + i * 40_000));
        let expected = [
            "          ms  device",
            "[0.26, 0.52)       4 |**                      |",
            "[0.52, 1.05)      13 |******                  |",
            "[1.05, 2.10)      26 |************            |",
            "[2.10, 4.19)      52 |************************|",
            "[4.19, 8.39)       5 |***                     |",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_would_be_one_bar_is_one_line() {
        assert_eq!(picture_of([70_000; 500].into_iter()), "device: 500 I/Os of 70.0 µs\n");
        assert_eq!(picture_of((0..500).map(|i| 70_000 + i)), "device: 500 I/Os of 70.0 to 70.5 µs\n");
        assert_eq!(picture_of((0..9).map(|i| 1_000 << i)), "device: 9 I/Os of 1.00 to 256 µs\n");
        assert_eq!(picture_of([2_500_000].into_iter()), "device: 1 I/O of 2.50 ms\n");
        assert_eq!(picture_of((0..10).map(|i| 1_000 << i)).lines().count(), 11);
    }

    #[test]
    fn one_is_not_several() {
        let mut device = device();
        (device.ios, device.merges, device.retries) = (1, 1, 2);
        device.ops.values_mut().for_each(|op| op.ios = 1);
        let summary =
            LatencySummary { duration_ns: 1_000_000_000, devices: vec![device], ..LatencySummary::default() };
        let text = render(&Envelope::default(), &summary, None, Style::default());
        assert!(text.contains(": 1 I/O, 0 B, 1 merge, 2 retries\n"), "{text}");
        assert!(text.contains("read  1 I/O  1/s") && text.contains("n = 1 I/O in"), "{text}");
        assert!(text.contains("lost 0 I/Os, 0 events, 0 samples"), "{text}");
    }

    #[test]
    fn a_bio_stands_where_the_stages_of_a_request_would() {
        let of = |each: u64| {
            let mut hist = Histogram::default();
            (0..20).for_each(|_| hist.record(each));
            hist
        };
        let whole = |name: &str, layers: &[&str], each: u64| {
            let op = OpLatency { ios: 20, bytes: 4096, bio: Some(of(each)), ..OpLatency::default() };
            DeviceLatency {
                name: name.into(),
                ios: 20,
                bio_based: true,
                layers: layers.iter().map(|l| l.to_string()).collect(),
                ops: BTreeMap::from([(Op::Read, op)]),
                ..DeviceLatency::default()
            }
        };
        let mut lower = whole("dm-0", &[], 2_000_000);
        lower.added_for = vec!["dm-1".into()];
        let devices = vec![whole("dm-1", &["dm-0"], 102_000_000), lower];
        let summary = LatencySummary { duration_ns: 1_000_000_000, devices, ..LatencySummary::default() };
        let text = render(&Envelope::default(), &summary, None, Style::default());
        assert!(text.contains("mean in the layer itself 100 ms: 102 ms here less 2.00 ms on dm-0"), "{text}");
        assert!(text.contains("dm-0 (added: below dm-1)") && text.contains("n = 20 I/Os"), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("bio ")), "{text}");
    }

    #[test]
    fn an_idle_machine_says_so() {
        let text = render(&Envelope::default(), &LatencySummary::default(), Some(3), Style::default());
        assert!(text.starts_with("No I/O completed") && text.contains("status 3"));
    }
}
