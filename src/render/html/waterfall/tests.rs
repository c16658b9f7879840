use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::analyze::operations::{OperationLatency, TotalClass};
use crate::render::text;
use crate::rules;
use crate::rules::fixtures::{Case, hist};

/// Stage, percentage, and start and width of its bar.
type Cells = (String, String, f64, f64);

/// Caption and rows of each table.
fn tables(html: &str) -> Vec<(String, Vec<Cells>)> {
    let between = |text: &str, from: &str, to: &str| {
        let at = text.find(from).unwrap_or_else(|| panic!("{from}: {text}")) + from.len();
        text[at..at + text[at..].find(to).unwrap()].to_string()
    };
    let row = |line: &str| {
        let percent = line.rsplit("<td>").next().unwrap().split('<').next().unwrap().to_string();
        let number = |from: &str| between(line, from, "%").parse::<f64>().unwrap();
        (between(line, "<th>", "</th>"), percent, number("margin-left:"), number("width:"))
    };
    let table = |table: &str| {
        let rows = between(table, "<tbody>", "</tbody>");
        let rows = rows.lines().filter(|line| line.starts_with("<tr>")).map(row);
        (between(table, "<caption>", "</caption>"), rows.collect())
    };
    html.split("<table class=\"waterfall\">").skip(1).map(table).collect()
}

/// Stage and percentage of each row of the text.
fn rows_of_text(case: &Case, diagnosis: &Diagnosis) -> BTreeMap<String, String> {
    let page = text::diagnose::Page {
        summaries: case.summaries(),
        diagnosis,
        doubt: None,
        command_status: None,
        report: None,
        color: false,
    };
    let text = text::brief::render(&page);
    let rows = text.lines().filter(|line| line.starts_with("  ") && line.contains('█'));
    rows.map(|line| {
        let words: Vec<&str> = line.split('█').next().unwrap().split_whitespace().collect();
        (words[0].to_string(), words[words.len() - 2..].join(" "))
    })
    .collect()
}

/// `n` operations with stages of these means, a hundredth of them ten times as long.
fn operations(n: u64, means: [u64; 5]) -> OperationLatency {
    let slow = n / 100;
    let stages = || Stage::ALL.into_iter().zip(means);
    let all: u64 = means.iter().sum();
    let of = |mean: u64| {
        let mut hist = hist(n - slow, mean, mean);
        hist.record_many(mean * 10, slow);
        hist
    };
    let class = |operations: u64, factor: u64| {
        let lower_ns = 1 << (all * factor).max(1).ilog2();
        TotalClass {
            lower_ns,
            upper_ns: 2 * lower_ns,
            operations,
            sums_ns: stages().map(|(stage, mean)| (stage, mean * factor * operations)).collect(),
        }
    };
    OperationLatency {
        operations: n,
        stages: stages().map(|(stage, mean)| (stage, of(mean))).collect(),
        total: of(all),
        by_total: vec![class(n - slow, 1), class(slow, 10)],
        ..OperationLatency::default()
    }
}

fn percent(text: &str) -> f64 {
    text.trim_end_matches(" %").parse().unwrap()
}

#[test]
fn stages_follow_each_other_and_the_slowest_are_beside_them() {
    let mut case = Case::new(60_400, 32);
    let all = operations(60_400, [47_000, 73_000, 353_000, 51_000, 6_000]);
    case.read().operations = Some(all);
    case.read().unowned = Some(0);
    // No verdict, which could state shares of requests.
    let diagnosis = Diagnosis { findings: Vec::new(), not_examined: Vec::new() };
    let html = stages(&case.summaries(), &diagnosis);
    let tables = tables(&html);
    assert_eq!(tables.len(), 2, "{html}");
    assert_eq!(tables[0].0, "mean of 60,400 operations");
    assert_eq!(tables[1].0, "mean of the slowest 1 %: 604 of 4.19 ms or more");
    let names: Vec<&str> = tables[0].1.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(names, ["submit", "queue", "device", "complete", "reap"]);
    let mut end = 0.0;
    for (_, _, start, width) in &tables[0].1 {
        assert!((start - end).abs() < 0.02, "{html}");
        end = start + width;
    }
    assert!((end - 100.0).abs() < 0.05 && html.contains("<th>all</th><td></td><td>578 µs</td>"), "{html}");
}

#[test]
fn nothing_is_drawn_of_no_io() {
    let mut case = Case::new(1_000, 1);
    case.latency.devices.clear();
    let s = case.summaries();
    assert_eq!(stages(&s, &rules::diagnose(&s)), "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The percentages of a group of bars have one denominator, which is also that of the text and of the verdict.
    #[test]
    fn percentages_add_up_and_are_those_of_the_text(
        ios in 1_000u64..200_000,
        depth in 1u32..128,
        means in [0u64..90_000, 0u64..400_000, 1_000u64..2_000_000, 0u64..90_000, 0u64..90_000],
        writes in prop::option::of(1u64..100_000),
        (is_followed, has_load, has_experiment) in any::<(bool, bool, bool)>(),
    ) {
        let mut case = Case::new(ios, depth);
        if has_experiment {
            case.at_twice_the_depth(1.01);
        }
        if is_followed {
            case.read().operations = Some(operations(ios, means));
            case.read().unowned = Some(0);
        }
        case.stage(Stage::Queue, means[1] + 1, 1);
        case.stage(Stage::Device, means[2], 1);
        if let Some(writes) = writes {
            let latency = OpLatency {
                ios: writes,
                request_stages: BTreeMap::from([(Stage::Device, hist(writes, 40_000, 40_000))]),
                ..OpLatency::default()
            };
            case.latency.devices[0].ops.insert(Op::Write, latency);
            case.latency.devices[0].ios += writes;
        }
        if !has_load {
            case.load = None;
        }
        let s = case.summaries();
        let diagnosis = rules::diagnose(&s);
        let html = stages(&s, &diagnosis);
        let tables = tables(&html);
        for (caption, rows) in &tables {
            let sum: f64 = rows.iter().map(|row| percent(&row.1)).sum();
            let rounding = rows.len() as f64 * 0.5;
            prop_assert!((sum - 100.0).abs() <= rounding, "{caption}: {sum}: {html}");
            for row in rows {
                prop_assert!((percent(&row.1) - row.3).abs() <= 0.51, "{caption}: {row:?}");
            }
        }
        let first: BTreeMap<String, String> =
            tables[0].1.iter().map(|row| (row.0.clone(), row.1.clone())).collect();
        for (stage, percent) in rows_of_text(&case, &diagnosis) {
            prop_assert_eq!(first.get(&stage), Some(&percent), "{}", html);
        }
        let verdict = &diagnosis.findings[0];
        for (stage, shown) in &first {
            let named = verdict.numbers.get(format!("{stage}_share_percent").as_str());
            let named = named.map(|percent| in_percent(percent / 100.0));
            let is_said = named.as_ref().is_some_and(|named| verdict.sentence.contains(named));
            prop_assert!(!is_said || named.as_ref() == Some(shown), "{}: {html}", verdict.sentence);
        }
    }
}
