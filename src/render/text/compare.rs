//! Renders `biopsy compare` as text: the verdict in words, then a table like benchstat's.

use super::{bytes, clean, common_time, counted, figure, fit, footer, short, significant, table, time};
use crate::envelope::Envelope;
use crate::experiment::Verdict;
use crate::experiment::compare::stages::{ALL, StageDifference};
use crate::experiment::compare::{Comparison, MetricComparison, MetricKind, StopReason};

/// If more rounds per arm are needed, the advice is longer rounds.
const MOST_ROUNDS_ADVISED: usize = 400;

/// A stage larger than the sum of all is not a part of it, apart from rounding.
const MOST_OF_SUM: f64 = 1.05;

/// The whole view; `width`: characters per line.
pub fn render(envelope: &Envelope, comparison: &Comparison, width: Option<usize>) -> String {
    let (metrics, stages) = (metrics(comparison), stages(comparison));
    let mut out = format!("{}{}\n\n{metrics}{stages}\n", across(comparison), verdict(comparison));
    notes(envelope, comparison).into_iter().for_each(|line| out.push_str(&format!("{line}\n")));
    fit(&out, width)
}

/// The notes below the tables, line by line.
pub fn notes(envelope: &Envelope, comparison: &Comparison) -> Vec<String> {
    let mut lines = vec![format!("{}{}", clean(&comparison.target), length(envelope, comparison))];
    for difference in &comparison.differences {
        let said = |value: &Option<String>| clean(value.as_deref().unwrap_or("unknown"));
        let what = clean(&difference.what);
        lines.push(format!("{what} differs: {}, {}", said(&difference.a), said(&difference.b)));
    }
    let left_out = comparison.rounds.iter().filter(|round| round.left_out.is_some());
    for round in left_out {
        let why = round.left_out.as_deref().unwrap_or_default();
        lines.push(format!("block {} was left out: {}", round.block + 1, clean(why)));
    }
    if let (Some(percent), Some(primary)) = (comparison.drift_percent, comparison.primary) {
        lines.push(format!(
            "drift: {} changed by {percent:+.0} % over the run for all values; the order of the rounds \
             cancels it",
            clean(comparison.title(primary))
        ));
    }
    let others = comparison.metrics.iter().filter(|metric| Some(metric.name) != comparison.primary).count();
    if others > 1 {
        let primary = comparison.primary.map_or(String::new(), |kind| clean(comparison.title(kind)));
        lines.push(format!(
            "{primary} decides; verdicts on the others are corrected for {others} tests (Holm)"
        ));
    }
    lines.extend(comparison.notes.iter().map(|note| format!("note: {}", clean(note))));
    let device: Vec<&str> = comparison.device.as_deref().into_iter().collect();
    lines.extend(footer::missing(&envelope.missing, &device).lines().map(str::to_string));
    lines
}

/// The caveat before the answer if the two set-ups differ.
fn across(comparison: &Comparison) -> String {
    let whats: Vec<String> = comparison.differences.iter().map(|one| clean(&one.what)).collect();
    if whats.is_empty() { String::new() } else { format!("Across another {}: ", whats.join(", another ")) }
}

/// The first line: the answer.
pub fn verdict(comparison: &Comparison) -> String {
    // For stored results each run counts.
    let is_empty = comparison.is_paired && comparison.whole_blocks().is_empty();
    let Some(metric) = comparison.answer().filter(|_| !is_empty) else {
        let why = match comparison.rounds.iter().any(|round| round.left_out.is_some()) {
            true => "every block was left out, because other processes used the disk",
            false => "it ended before each value had a round",
        };
        return format!("Nothing was compared: {why}.");
    };
    of_metric(comparison, metric)
}

/// The verdict on one metric of one arm.
pub fn of_metric(comparison: &Comparison, metric: &MetricComparison) -> String {
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| clean(&arm.name));
    let (a, b) = (name(0), name(metric.arm));
    let what = clean(comparison.title(metric.name));
    let runs = |arm: usize| comparison.rounds.iter().filter(|round| round.arm == arm).count() as u64;
    let rounds = match comparison.is_paired {
        true => format!("{} each", counted(metric.blocks as u64, "round")),
        false => format!("{} and {}", runs(0), counted(runs(metric.arm), "run")),
    };
    let Some(ratio) = metric.ratio else {
        return format!("Unclear whether {b} differs from {a}: no block has {what} for both.");
    };
    let figures = match interval(metric) {
        Some((low, high)) => format!("{} × {what} ({low} to {high}, {rounds})", shown(ratio)),
        None => format!("{} × {what} ({rounds})", shown(ratio)),
    };
    match metric.verdict {
        Verdict::Better => format!("{b} is better than {a}: {figures}"),
        Verdict::Worse => format!("{b} is worse than {a}: {figures}"),
        Verdict::Same => {
            format!("{b} is the same as {a} within ±{} %: {figures}", significant(metric.margin_percent, 2))
        }
        Verdict::Unclear => {
            let remedy = match metric.rounds_needed {
                Some(rounds) if rounds <= MOST_ROUNDS_ADVISED => {
                    format!("; about {rounds} rounds each would tell (--rounds {rounds})")
                }
                Some(_) => "; the rounds vary too much: use longer ones (--runtime), or a quieter machine"
                    .to_string(),
                None if metric.blocks < 3 && !comparison.is_paired => {
                    "; a confidence interval needs at least 3 runs of each: append them to one file"
                        .to_string()
                }
                None if metric.blocks < 3 => "; a confidence interval needs at least 3 rounds".to_string(),
                None => String::new(),
            };
            format!("Unclear whether {b} differs from {a}: {figures}{remedy}")
        }
    }
}

/// A ratio with enough digits to distinguish 1.00 from 1.004.
pub fn shown(ratio: f64) -> String {
    if (0.9..1.1).contains(&ratio) { format!("{ratio:.3}") } else { significant(ratio, 3) }
}

/// The bounds of its interval.
pub fn interval(metric: &MetricComparison) -> Option<(String, String)> {
    Some((shown(metric.ratio_low?), shown(metric.ratio_high?)))
}

/// A value with its unit.
pub fn value(kind: MetricKind, value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_string() };
    match kind {
        MetricKind::Iops => short(value),
        MetricKind::Bandwidth => format!("{}/s", bytes(value)),
        MetricKind::Mean
        | MetricKind::Median
        | MetricKind::P99
        | MetricKind::CpuPerIo
        | MetricKind::Elapsed => time(value.round() as u64),
        MetricKind::Value | MetricKind::LessValue => short(value),
    }
}

/// A table for each arm that is compared with the first.
fn metrics(comparison: &Comparison) -> String {
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| clean(&arm.name));
    let row = |metric: &MetricComparison| {
        let interval = interval(metric).map_or("-".to_string(), |(low, high)| format!("{low} to {high}"));
        vec![
            clean(comparison.title(metric.name)),
            value(metric.name, metric.a),
            value(metric.name, metric.b),
            metric.ratio.map_or("-".to_string(), shown),
            interval,
            metric.verdict.name().to_string(),
        ]
    };
    let tables = (1..comparison.arms.len()).map(|arm| {
        let rows: Vec<Vec<String>> =
            comparison.metrics.iter().filter(|metric| metric.arm == arm).map(row).collect();
        table(&["metric", &name(0), &name(arm), "ratio", "95 % interval", "verdict"], &rows)
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// A table of the stages for each arm that is compared with the first, below a sentence.
fn stages(comparison: &Comparison) -> String {
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| clean(&arm.name));
    let tables = (1..comparison.arms.len()).filter_map(|arm| {
        let header = ["stage", &name(0), &name(arm), "difference", "95 % interval"];
        Some(format!(
            "\n{}\n{}",
            clean(&stage_sentence(comparison, arm)?),
            table(&header, &stage_rows(comparison, arm))
        ))
    });
    tables.collect()
}

/// The stage differences of an arm.
fn of_arm(comparison: &Comparison, arm: usize) -> impl Iterator<Item = &StageDifference> + Clone {
    comparison.stages.iter().filter(move |one| one.arm == arm)
}

/// `per operation +310 µs, of which 290 µs in queue`; None if no stage was measured.
pub fn stage_sentence(comparison: &Comparison, arm: usize) -> Option<String> {
    let all = of_arm(comparison, arm).find(|one| one.stage == ALL)?;
    let per = comparison.stages_per.as_deref().unwrap_or("I/O");
    let total = format!("per {per} {}", signed(all.difference_ns));
    let mut stages: Vec<&StageDifference> = of_arm(comparison, arm).filter(|one| one.stage != ALL).collect();
    stages.sort_by(|a, b| b.difference_ns.abs().total_cmp(&a.difference_ns.abs()));
    if !all.is_certain {
        let certain = stages.iter().filter(|one| one.is_certain);
        let certain: Vec<String> =
            certain.map(|one| format!("{} {}", one.stage, signed(one.difference_ns))).collect();
        return Some(match certain.is_empty() {
            true => format!("{total}, which may be chance"),
            false => format!("{total}, which may be chance; {} is significant", certain.join(", ")),
        });
    }
    let largest = stages.first()?;
    // A stage can be a part of the sum only if it is not larger.
    let is_part = largest.difference_ns * all.difference_ns > 0.0
        && largest.difference_ns.abs() <= all.difference_ns.abs() * MOST_OF_SUM;
    Some(match (is_part, stages.get(1)) {
        (true, _) | (_, None) => {
            format!("{total}, of which {} in {}", time(largest.difference_ns.abs() as u64), largest.stage)
        }
        (false, Some(second)) => format!(
            "{total}: {} {}, {} {}",
            largest.stage,
            signed(largest.difference_ns),
            second.stage,
            signed(second.difference_ns)
        ),
    })
}

/// `+310 µs`
fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "-" } else { "+" }, time(ns.abs().round() as u64))
}

/// A row per stage, all in one unit.
pub fn stage_rows(comparison: &Comparison, arm: usize) -> Vec<Vec<String>> {
    let rows = of_arm(comparison, arm);
    let (scale, unit) = common_time(rows.clone().flat_map(|one| [one.a_ns, one.b_ns]).flatten());
    let value = |ns: Option<f64>| ns.map_or("-".to_string(), |ns| format!("{} {unit}", figure(ns / scale)));
    let plus = |ns: f64| format!("{}{}", if ns < 0.0 { "-" } else { "+" }, figure((ns / scale).abs()));
    let interval = |one: &StageDifference| match one.low_ns.zip(one.high_ns) {
        Some((low, high)) => format!("{} to {}", plus(low), plus(high)),
        None => "-".to_string(),
    };
    let row = |one: &StageDifference| {
        let difference = format!("{} {unit}", plus(one.difference_ns));
        vec![clean(&one.stage), value(one.a_ns), value(one.b_ns), difference, interval(one)]
    };
    rows.map(row).collect()
}

/// How many rounds there were, and why no more.
fn length(envelope: &Envelope, comparison: &Comparison) -> String {
    let rounds = counted(comparison.rounds.len() as u64, "round");
    let why = match comparison.end {
        Some(StopReason::Precise) => "the interval was narrow enough",
        Some(StopReason::Planned) if !comparison.is_paired => return String::new(),
        Some(StopReason::Planned) => "as planned",
        Some(StopReason::Time) => "--max-time was reached",
        Some(StopReason::Stopped) => "stopped",
        None => return String::new(),
    };
    format!(": {rounds} in {}, {why}", time(envelope.duration_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::experiment::compare::stages::{StageMean, differences};
    use crate::experiment::compare::tests::of;
    use crate::experiment::compare::{Round, SampleSource, offline};

    #[test]
    fn the_first_line_is_the_answer() {
        let found = of(&[100.0, 101.0, 99.0, 100.5], &[46.0, 46.2, 45.8, 46.1]);
        let first = "mq-deadline is worse than none: 0.460 × IOPS (0.456 to 0.463, 4 rounds each)";
        assert_eq!(verdict(&found), first);
        let text = render(&Envelope { duration_ns: 9_000_000_000, ..Envelope::default() }, &found, None);
        assert!(text.starts_with(&format!("{first}\n\nmetric ")), "{text}");
        assert!(text.contains("/dev/loop7: 8 rounds in 9.00 s, as planned\n"), "{text}");
        assert_eq!(
            verdict(&of(&[100.0; 4], &[100.0; 4])),
            "mq-deadline is the same as none within ±5.0 %: 1.000 × IOPS (1.000 to 1.000, 4 rounds each)"
        );
    }

    #[test]
    fn an_unclear_answer_says_what_would_tell() {
        let noisy = verdict(&of(&[100.0, 96.0, 104.0, 100.0], &[100.0, 104.0, 96.0, 100.0]));
        assert!(
            noisy.starts_with("Unclear whether mq-deadline differs from none: 1.000 × IOPS (0."),
            "{noisy}"
        );
        assert!(noisy.contains("rounds each would tell (--rounds "), "{noisy}");
        let one = verdict(&of(&[100.0], &[50.0]));
        assert!(
            one.ends_with("0.500 × IOPS (1 round each); a confidence interval needs at least 3 rounds"),
            "{one}"
        );
        assert!(verdict(&of(&[], &[])).starts_with("Nothing was compared: "));
        let idle = verdict(&of(&[0.0; 4], &[0.0; 4]));
        assert!(idle.starts_with("Unclear whether mq-deadline differs from none: no block has"), "{idle}");
    }

    #[test]
    fn kept_results_say_what_differs_first() {
        let one = |name: &str, kernel: &str| SampleSource {
            name: name.to_string(),
            setup: BTreeMap::from([("kernel".to_string(), kernel.to_string())]),
            samples: vec![BTreeMap::from([("iops".to_string(), 100.0)])],
            are_interpolated: false,
        };
        let found = offline(&one("a.json", "6.1"), &one("b.json", "6.12\u{1b}"), MetricKind::Iops, 0.05);
        let text = render(&Envelope::default(), &found, None);
        let first = "Across another kernel: Unclear whether b.json differs from a.json: 1.000 × IOPS (1 and 1 run); a \
                     confidence interval needs at least 3 runs of each";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("kernel differs: 6.1, 6.12\\u{1b}\n") && !text.contains("rounds in"), "{text}");
    }

    /// Two arms whose rounds have these stages.
    fn with_stages(a: &[(&str, f64)], b: &[(&str, f64)]) -> Comparison {
        let mut found = of(&[100.0; 4], &[50.0; 4]);
        for round in &mut found.rounds {
            let stages = if round.arm == 0 { a } else { b };
            let noise = round.block as f64;
            round.stages = stages
                .iter()
                .map(|(stage, ns)| StageMean {
                    stage: stage.to_string(),
                    mean_ns: ns + noise * round.arm as f64,
                })
                .collect();
        }
        found.stages = differences(&found, 0.05);
        found.stages_per = Some("operation".to_string());
        found
    }

    #[test]
    fn stages_say_where_the_difference_is() {
        let a = [("queue", 20e3), ("device", 70e3)];
        let found = with_stages(&a, &[("queue", 310e3), ("device", 90e3)]);
        let text = render(&Envelope::default(), &found, None);
        let expected = "
per operation +310 µs, of which 290 µs in queue
stage      none  mq-deadline  difference   95 % interval
queue   20.0 µs       310 µs     +290 µs    +290 to +290
device  70.0 µs      90.0 µs    +20.0 µs  +20.0 to +20.0
all     90.0 µs       400 µs     +310 µs    +310 to +310

/dev/loop7";
        assert!(text.contains(expected), "{text}");
        let sentence = |b: &[(&str, f64)]| stage_sentence(&with_stages(&a, b), 1).unwrap();
        assert_eq!(
            sentence(&[("queue", 50e3), ("device", 45e3)]),
            "per operation +5.00 µs: queue +30.0 µs, device -25.0 µs",
            "a stage that is longer than the sum is no part of it"
        );
        assert_eq!(
            sentence(&[("queue", 10e3), ("device", 70e3)]),
            "per operation -10.0 µs, of which 10.0 µs in queue"
        );
        assert_eq!(
            sentence(&[("queue", 20e3 - 1.5), ("device", 70e3 - 1.5)]),
            "per operation +0 ns, which may be chance"
        );
        assert_eq!(stage_sentence(&of(&[1.0; 4], &[1.0; 4]), 1), None);
        let mut found = with_stages(&a, &[("queue", 32e3), ("device", 75e3)]);
        found.stages[2].is_certain = false;
        found.stages[1].is_certain = false;
        assert_eq!(
            stage_sentence(&found, 1).unwrap(),
            "per operation +17.0 µs, which may be chance; queue +12.0 µs is significant"
        );
    }

    #[test]
    fn names_of_strangers_cannot_move_the_cursor() {
        let mut found = of(&[100.0; 4], &[50.0; 4]);
        found.arms[1].name = "x\u{1b}[2J".to_string();
        found.target = "/dev/a\nb".to_string();
        found.notes.push("n\u{7}".to_string());
        found.rounds.push(Round { left_out: Some("\u{202e}".to_string()), ..Round::default() });
        let text = render(&Envelope::default(), &found, None);
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']) && text.contains("/dev/a\\u{a}b"), "{text}");
    }
}
