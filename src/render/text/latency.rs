//! Renders `biopsy latency` as text.

use super::histograms::histograms;
use super::stages::{stages_table, unit_of};
use super::{Style, bytes, clean, count, counted, fit, footer, groups, short, significant, time};
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency, Unit};
use crate::analyze::layers;
use crate::analyze::op::Op;
use crate::analyze::operations::{NotCovered, OperationLatency};
use crate::analyze::parts::Parts;
use crate::analyze::stage::Stage;
use crate::envelope::Envelope;
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;

/// The whole view.
pub fn render(
    envelope: &Envelope,
    summary: &LatencySummary,
    command_status: Option<i32>,
    style: Style,
) -> String {
    let mut out = String::new();
    let shown: Vec<&DeviceLatency> =
        summary.devices.iter().filter(|d| style.all || d.ios > 0 || d.lost_ios > 0).collect();
    for device in &shown {
        // With groups, only their table was requested.
        if summary.groups.by.is_empty() {
            out.push_str(&of_device(device, summary, style));
            out.push('\n');
        } else {
            out.push_str(&headline(device, style));
        }
    }
    if let Some(nothing) = groups::nothing_passed(summary) {
        out.push_str(&format!("{nothing}\n\n"));
    } else if shown.is_empty() {
        out.push_str("No I/O completed on the traced devices.\n\n");
    }
    if !summary.groups.by.is_empty() {
        out.push_str(&groups::render(&summary.groups, style.all));
    }
    out.push_str(&ending(envelope, summary, &shown, style));
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    fit(&out, style.width)
}

fn bold(text: &str, style: Style) -> String {
    if style.color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
}

/// One line with the counts.
fn headline(device: &DeviceLatency, style: Style) -> String {
    let mut out = bold(&clean(&device.name), style);
    if let Some(disk) = &device.disk {
        out.push_str(&format!(" (partition of {})", clean(disk)));
    }
    if !device.layers.is_empty() {
        out.push_str(&format!(" (on {})", clean(&device.below())));
    }
    if !device.added_for.is_empty() {
        out.push_str(&format!(" (below {})", clean(&device.added_for.join(", "))));
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
        facts.push("VANISHED during the run".to_string());
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
            _ => {
                out.extend(unowned_line(*op, latency, device).map(|line| format!("    {line}\n")));
                bio(latency)
            }
        };
        out.push_str(&indent(&stages_table(unit, stages, latency.parts(), whole, scale), 4));
        out.push('\n');
        if let Some(line) = latency.operations.as_ref().filter(|_| unit == Unit::Operation).and_then(slowest)
        {
            out.push_str(&format!("    {line}\n\n"));
        }
        // Requests that do not match one operation each have stages of their own.
        let apart = !alike(latency)
            || summary.sliced().is_some()
            || matches!(op, Op::Write | Op::Fua) && flushed_behind(device);
        if unit == Unit::Operation && apart && !latency.request_stages.is_empty() {
            out.push_str(&indent(
                &stages_table(Unit::Io, &latency.request_stages, &latency.request_parts, bio(latency), scale),
                4,
            ));
            out.push('\n');
        }
        if let Some(table) = unowned_table(latency, scale) {
            out.push_str(&indent(&table, 4));
            out.push('\n');
        }
        if let Some(inside) = &latency.layer {
            out.push_str(&format!("    {}\n\n", layer_line(inside, device)));
        }
        let drawn = if unit == Unit::Io { bio(latency) } else { None };
        let of_stages = Stage::ALL.iter().filter_map(|stage| Some((stage.name(), stages.get(stage)?)));
        out.push_str(&indent(&histograms(of_stages.chain(drawn).collect(), scale), 4));
    }
    out
}

/// The row that replaces the stages of an I/O without requests.
fn bio(latency: &OpLatency) -> Option<(&'static str, &Histogram)> {
    latency.bio.as_ref().map(|bio| ("bio", bio))
}

/// The I/Os of no operation, unless the tables above cover only those.
fn unowned_table(latency: &OpLatency, scale: (f64, &'static str)) -> Option<String> {
    let alone = latency.stages().0 == Unit::Io && !latency.is_mixed();
    if latency.unowned_timed() == 0 || alone {
        return None;
    }
    let bio = latency.unowned_bio.as_ref().map(|bio| ("bio", bio));
    Some(stages_table(Unit::UnownedIo, &latency.unowned_stages, &Parts::new(), bio, scale))
}

/// The time in a layer, as a difference.
fn layer_line(inside: &layers::Inside, device: &DeviceLatency) -> String {
    format!(
        "mean in the layer itself {}: {} here less {} on {}, I/O by I/O",
        time(inside.mean_ns as u64),
        time(inside.upper_mean_ns as u64),
        time(inside.lower_mean_ns as u64),
        clean(&device.below())
    )
}

fn indent(text: &str, by: usize) -> String {
    let pad = " ".repeat(by);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}

/// The number of operations, and how many the table below excludes.
fn operations_line(all: &OperationLatency, latency: &OpLatency) -> String {
    let mut line = counted(all.operations, "operation");
    // Timed ones have a table of their own.
    let unseen = latency.unowned.filter(|n| *n > 0 && latency.unowned_timed() == 0);
    // A few are always in flight at the end.
    let unfetched = latency.unfetched.filter(|n| *n > all.operations / 1000);
    let left: Vec<String> = all
        .not_covered
        .iter()
        .map(|(why, n)| format!("{} {}", count(*n), not_covered(*why)))
        .chain(unfetched.map(|n| format!("{} more whose result was not reaped by the end", count(n))))
        .chain(unseen.map(|n| format!("{} without operation", counted(n, "I/O"))))
        .collect();
    if !left.is_empty() {
        line.push_str(&format!(" (not in the table: {})", left.join(", ")));
    }
    line
}

/// The I/Os not shown in the table, if operations are followed and most I/Os belong to none.
fn unowned_line(op: Op, latency: &OpLatency, device: &DeviceLatency) -> Option<String> {
    let upper = clean(&device.added_for.join(", "));
    let below = format!("those below {upper} are counted there");
    let whose = match op {
        Op::Read | Op::Write if !upper.is_empty() => below.as_str(),
        Op::Read => "read-ahead or page faults",
        Op::Write => "write-back",
        _ => return None,
    };
    let unowned = latency.unowned.filter(|n| *n > 0)?;
    let operations = latency.operations.as_ref().map_or(0, |all| all.operations);
    let left = if operations > 0 {
        format!("; not in the table: {}", counted(operations, "operation"))
    } else {
        String::new()
    };
    Some(format!(
        "{} without operation ({whose}): they have no submit and reap, and what waits for them is in no stage{left}",
        counted(unowned, "I/O")
    ))
}

/// Where the slowest one percent of operations spend their time.
fn slowest(all: &OperationLatency) -> Option<String> {
    let slowest = all.slowest(0.01)?;
    let whole = slowest.sums_ns.values().saturating_sum().max(1) as f64;
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
        NotCovered::Reap => "whose reap was not observed",
        NotCovered::Complete => "in system calls, without complete",
        NotCovered::Torn => "whose parts ended together",
    }
}

/// Whether the stages of the I/Os add nothing to those of the operations and the table of I/Os of no operation: one I/O
/// each.
fn alike(latency: &OpLatency) -> bool {
    let owned = latency.owned().unwrap_or(latency.ios);
    let operations = latency.operations.as_ref().map_or(0, |all| all.operations);
    let apart = latency.unowned_timed() > 0 || latency.unowned == Some(0);
    apart && operations.abs_diff(owned) <= operations / 100
}

/// Whether there are writes whose operation ended with an empty flush and has its stages.
fn flushed_behind(device: &DeviceLatency) -> bool {
    device.ops.get(&Op::EmptyFlush).is_some_and(|flush| {
        let operations = flush.operations.as_ref().map_or(0, |all| all.operations);
        let alone = operations.saturating_add(flush.unowned.unwrap_or(0));
        flush.unowned.is_some() && alone < flush.ios
    })
}

/// The share of the time that the operations' figures cover.
pub(in crate::render::text) fn sliced_line(summary: &LatencySummary) -> Option<String> {
    let duty = summary.sliced()?;
    let operations = summary.devices.iter().filter_map(|device| device.operations).saturating_sum();
    let cut = match summary.operations_cut {
        0 => String::new(),
        n => format!("; {} more were in flight at the end of a slice", count(n)),
    };
    Some(format!(
        "submit and reap: measured {} % of the time (CPU budget --max-cost), n = {}{cut}; all else covers \
         every I/O\n",
        significant(duty * 100.0, 2),
        count(operations),
    ))
}

/// Counts, checks, cost and gaps.
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
    out.extend(sliced_line(summary));
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::layers::Layer;
    use crate::analyze::op::KernelClass;

    fn device() -> DeviceLatency {
        let hist = (0..2000).map(|i| 90_000 + i * 10).collect();
        let op = OpLatency {
            ios: 2000,
            bytes: 8_192_000,
            request_stages: BTreeMap::from([(Stage::Device, hist)]),
            ..OpLatency::default()
        };
        DeviceLatency {
            name: "sd\x1b[2Ja".into(),
            ios: 2000,
            kernel: Some(BTreeMap::from([(KernelClass::Read, Bracket { min: 2000, max: 2000 }.into())])),
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
        assert!(text.contains("2,000 I/Os, kernel counted 2,000: ok"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert!(text.contains("2000/s") && text.contains("p99.9"), "{text}");
    }

    #[test]
    fn a_write_that_ended_with_a_flush_has_both_tables() {
        let hist = |ns| BTreeMap::from([(Stage::Device, Histogram::from_iter([ns; 10]))]);
        let total = Histogram::from_iter([9_000; 10]);
        let operations =
            OperationLatency { operations: 10, stages: hist(7_000), total, ..Default::default() };
        let write = OpLatency {
            ios: 10,
            unowned: Some(0),
            request_stages: hist(5_000),
            operations: Some(operations),
            ..OpLatency::default()
        };
        let mut device = DeviceLatency { ops: BTreeMap::from([(Op::Write, write)]), ..device() };
        let text = |device: &DeviceLatency| {
            fit(&of_device(device, &LatencySummary::default(), Style::default()), None)
        };
        assert!(!text(&device).contains("5.00"), "{}", text(&device));
        device.ops.insert(Op::EmptyFlush, OpLatency { ios: 10, unowned: Some(0), ..OpLatency::default() });
        assert!(text(&device).contains("5.00"), "{}", text(&device));
    }

    #[test]
    fn ios_of_no_operation_are_named_where_no_operation_is_shown() {
        let mut device = device();
        let text = |device: &DeviceLatency| {
            fit(&of_device(device, &LatencySummary::default(), Style::default()), None)
        };
        assert!(!text(&device).contains("no operation"), "they are not followed");
        device.ops.values_mut().for_each(|op| op.unowned = Some(0));
        assert!(!text(&device).contains("no operation"), "{}", text(&device));
        device.ops.values_mut().for_each(|op| op.unowned = Some(1900));
        let shown = text(&device);
        assert!(shown.contains("    1,900 I/Os without operation (read-ahead"), "{shown}");
        let total = Histogram::from_iter([9_000; 3]);
        let few = OperationLatency { operations: 3, total, ..Default::default() };
        device.ops.values_mut().for_each(|op| op.operations = Some(few.clone()));
        assert!(
            text(&device).contains("is in no stage; not in the table: 3 operations\n"),
            "{}",
            text(&device)
        );
    }

    #[test]
    fn ios_below_a_mapped_device_are_not_called_read_ahead() {
        let mut device = device();
        device.ops.values_mut().for_each(|op| op.unowned = Some(1900));
        device.added_for = vec!["dm-\x1b1".to_string()];
        let text = of_device(&device, &LatencySummary::default(), Style::default());
        assert!(text.contains("(below dm-\\u{1b}1): 2,000 I/Os"), "{text}");
        assert!(text.contains("without operation (those below dm-\\u{1b}1 are counted there)"), "{text}");
        assert!(!text.contains("read-ahead"), "{text}");
    }

    /// 1,000 direct writes of 10 µs, and 900 write-back I/Os of 2 ms.
    fn mixed() -> OpLatency {
        let of = |times: &[(u64, usize)]| {
            let hist = times.iter().flat_map(|(ns, n)| std::iter::repeat_n(*ns, *n)).collect();
            BTreeMap::from([(Stage::Device, hist)])
        };
        let operations = OperationLatency {
            operations: 1000,
            stages: of(&[(10_000, 1000)]),
            total: Histogram::from_iter([10_000; 1000]),
            ..Default::default()
        };
        OpLatency {
            ios: 1900,
            unowned: Some(900),
            request_stages: of(&[(10_000, 1000), (2_000_000, 900)]),
            unowned_stages: of(&[(2_000_000, 900)]),
            operations: Some(operations),
            ..OpLatency::default()
        }
    }

    #[test]
    fn ios_of_no_operation_have_rows_of_their_own() {
        let text = |op: OpLatency| {
            let device = DeviceLatency { ops: BTreeMap::from([(Op::Write, op)]), ..device() };
            fit(&of_device(&device, &LatencySummary::default(), Style::default()), None)
        };
        let shown = text(mixed());
        let expected = [
            "    1,000 operations",
            "    operation, µs  mean   min   p50   p90   p99  p99.9   max      n",
            "    device         10.0  10.0  10.0  10.0  10.0   10.0  10.0  1,000",
            "    total          10.0  10.0  10.0  10.0  10.0   10.0  10.0  1,000",
            "",
            "    I/O without operation, µs  mean   min   p50   p90   p99  p99.9   max    n",
            "    device                     2000  2000  2000  2000  2000      -  2000  900",
            "",
        ];
        let lines: Vec<&str> = shown.lines().skip(3).take(expected.len()).collect();
        assert_eq!(lines, expected, "{shown}");
        // Half of the operations had two I/Os each: then all I/Os are shown as well.
        let split = text(OpLatency { ios: 2900, unowned: Some(1000), ..mixed() });
        assert!(
            split.contains("    I/O, µs ") && split.contains("    I/O without operation, µs "),
            "{split}"
        );
        // Most belong to no operation: all I/Os are shown first.
        let most = text(OpLatency { ios: 1900, unowned: Some(1500), ..mixed() });
        let at = |what: &str| most.find(what).unwrap();
        assert!(at("1,500 I/Os without operation (write-back)") < at("    I/O, "), "{most}");
        assert!(at("    I/O, ") < at("    I/O without operation, "), "{most}");
        // All belong to no operation: a single table is enough.
        let of_all = mixed().request_stages;
        let all =
            text(OpLatency { unowned: Some(1900), unowned_stages: of_all, operations: None, ..mixed() });
        assert!(all.contains("    I/O, ") && !all.contains("I/O without operation, "), "{all}");
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
        assert!(text.contains("missed 0 I/Os and 0 events, lost 0 samples"), "{text}");
    }

    #[test]
    fn a_bio_stands_where_the_stages_of_a_request_would() {
        let whole = |name: &str, layers: &[&str], each: u64| {
            let op = OpLatency {
                ios: 20,
                bytes: 4096,
                bio: Some(Histogram::from_iter([each; 20])),
                ..OpLatency::default()
            };
            DeviceLatency {
                name: name.into(),
                ios: 20,
                bio_based: true,
                layers: layers.iter().map(|l| Layer::from(*l)).collect(),
                ops: BTreeMap::from([(Op::Read, op)]),
                ..DeviceLatency::default()
            }
        };
        let mut lower = whole("dm-0", &[], 2_000_000);
        lower.added_for = vec!["dm-1".into()];
        let devices = vec![whole("dm-1", &["dm-0"], 102_000_000), lower];
        let summary = LatencySummary { duration_ns: 1_000_000_000, devices, ..LatencySummary::default() };
        let text = render(&Envelope::default(), &summary.derived(), None, Style::default());
        assert!(text.contains("mean in the layer itself 100 ms: 102 ms here less 2.00 ms on dm-0"), "{text}");
        assert!(text.contains("dm-0 (below dm-1)") && text.contains("n = 20 I/Os"), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("bio ")), "{text}");
    }

    #[test]
    fn an_idle_machine_says_so() {
        let text = render(&Envelope::default(), &LatencySummary::default(), Some(3), Style::default());
        assert!(text.starts_with("No I/O completed") && text.contains("status 3"));
    }
}
