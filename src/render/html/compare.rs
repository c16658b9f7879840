//! Renders `biopsy compare --html`: the verdict, the table, and each round as a dot.

use super::tables::{Cell, table, text};
use super::{STYLE, escape, island};
use crate::analyze::stage::Stage;
use crate::envelope::Envelope;
use crate::experiment::compare::stages::{ALL, StageDifference};
use crate::experiment::compare::{Comparison, MetricKind};
use crate::render::svg::{Rounds, dots, stage_class};
use crate::render::text::compare::{self, value};
use crate::render::{flame, json};

/// The complete file. `flames` are named differential flame graphs from `render::flame_diff::inline`.
pub fn render(envelope: &Envelope, comparison: &Comparison, flames: &[(&str, String)]) -> String {
    let verdict = compare::verdict(comparison);
    let [metrics, stages, notes] = [metrics(comparison), stages(comparison), notes(envelope, comparison)];
    // The page cannot load anything, even after an escaping mistake, and scripts are allowed only if there is a flame
    // graph.
    let (scripts, style, script, graphs) = match flames.is_empty() {
        true => ("'none'", "", String::new(), String::new()),
        false => (
            "'unsafe-inline'",
            flame::INLINE_STYLE,
            format!("<script>\n{}</script>\n", flame::INLINE_SCRIPT),
            format!("<h2>Stacks on the CPU</h2>\n{}", flame::tabs(flames)),
        ),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; base-uri 'none'; \
         form-action 'none'\">\n<title>{} · biopsy</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>{}</h1>\n{metrics}{stages}<h2>Rounds</h2>\n{}\n<p class=\"soft small\">A dot is a round, in the order of \
         time; a hollow one is left out. Lines: geometric means.</p>\n{graphs}{notes}</main>\n{}{script}</body>\n</html>\n",
        escape(&comparison.target),
        escape(&verdict),
        charts(comparison),
        island(&json::view_object(envelope, comparison, None)),
    )
}

fn metrics(comparison: &Comparison) -> String {
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| escape(&arm.name));
    let one = |arm: usize| {
        let rows = comparison.metrics.iter().filter(|metric| metric.arm == arm).map(|metric| {
            let ratio = metric.ratio.map_or("-".to_string(), compare::shown);
            let interval = compare::interval(metric);
            vec![
                text(comparison.title(metric.name)),
                Cell::Number(value(metric.name, metric.a)),
                Cell::Number(value(metric.name, metric.b)),
                Cell::Number(ratio),
                Cell::Number(interval.map_or("-".to_string(), |(low, high)| format!("{low} to {high}"))),
                text(metric.verdict.name()),
            ]
        });
        let header = ["<metric", &name(0), &name(arm), "ratio", "95 % interval", "<verdict"];
        table(&header, rows.collect())
    };
    (1..comparison.arms.len()).map(one).collect()
}

/// A chart per metric.
fn charts(comparison: &Comparison) -> String {
    let mut kinds: Vec<MetricKind> = comparison.metrics.iter().map(|metric| metric.name).collect();
    kinds.dedup();
    let chart = |kind: MetricKind| {
        let arm = |arm: usize| {
            let of_arm = comparison.rounds.iter().filter(|round| round.arm == arm);
            let value =
                of_arm.filter_map(|round| Some((*round.values.get(kind.name())?, round.left_out.is_none())));
            let mut metrics = comparison.metrics.iter().filter(|metric| metric.name == kind);
            let mean = match arm {
                0 => metrics.next().and_then(|metric| metric.a),
                _ => metrics.find(|metric| metric.arm == arm).and_then(|metric| metric.b),
            };
            Rounds { name: comparison.arms[arm].name.clone(), values: value.collect(), mean }
        };
        let arms: Vec<Rounds> = (0..comparison.arms.len()).map(arm).collect();
        dots(comparison.title(kind), &arms, |shown| value(kind, Some(shown)))
    };
    format!("<div class=\"charts\">\n{}\n</div>", kinds.into_iter().map(chart).collect::<Vec<_>>().join("\n"))
}

fn notes(envelope: &Envelope, comparison: &Comparison) -> String {
    let lines = compare::notes(envelope, comparison);
    lines.iter().map(|line| format!("<p class=\"small\">{}</p>\n", escape(line))).collect()
}

/// The stages of each arm as steps from zero to the total difference: to the right if longer than in the first arm, to
/// the left if shorter.
fn stages(comparison: &Comparison) -> String {
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| escape(&arm.name));
    let steps = (1..comparison.arms.len()).filter_map(|arm| {
        let sentence = compare::stage_sentence(comparison, arm)?;
        let caption = format!("{} against {}: {}", name(arm), name(0), escape(&sentence));
        Some(step_table(&caption, comparison, arm))
    });
    let steps: String = steps.collect();
    if steps.is_empty() { steps } else { format!("<h2>Stages</h2>\n{steps}") }
}

fn step_table(caption: &str, comparison: &Comparison, arm: usize) -> String {
    let of_arm: Vec<&StageDifference> = comparison.stages.iter().filter(|one| one.arm == arm).collect();
    // Start and end of each step; that of the sum starts at zero.
    let mut at = 0.0;
    let steps: Vec<(f64, f64)> = of_arm
        .iter()
        .map(|one| {
            let from = if one.stage == ALL { 0.0 } else { at };
            at = from + one.difference_ns;
            (from, at)
        })
        .collect();
    let ends = || steps.iter().flat_map(|(from, to)| [*from, *to]);
    let (low, high) = (ends().fold(0.0, f64::min), ends().fold(0.0, f64::max));
    let percent = |ns: f64| if high > low { ns / (high - low) * 100.0 } else { 0.0 };
    let row = |((one, cells), (from, to)): ((&&StageDifference, Vec<String>), &(f64, f64))| {
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == one.stage);
        let bar = format!(
            "<i class=\"{}\" style=\"margin-left:{:.2}%;width:{:.2}%\"></i>",
            stage.map_or("s-all", stage_class),
            percent(from.min(*to) - low),
            percent((to - from).abs())
        );
        let cells: String = cells.iter().skip(1).map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr><th>{}</th><td class=\"track\">{bar}</td>{cells}</tr>\n", escape(&one.stage))
    };
    let rows: String = of_arm.iter().zip(compare::stage_rows(comparison, arm)).zip(&steps).map(row).collect();
    let name = |arm: usize| comparison.arms.get(arm).map_or(String::new(), |arm| escape(&arm.name));
    format!(
        "<table class=\"waterfall\"><caption>{caption}</caption>\n<thead><tr><th></th><th></th><th>{}</th><th>{}</th>\
         <th>difference</th><th>95 % interval</th></tr></thead>\n<tbody>\n{rows}</tbody></table>\n",
        name(0),
        name(arm)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::compare::tests::of;

    #[test]
    fn the_page_has_the_verdict_and_a_dot_for_each_round() {
        let mut found = of(&[100.0, 101.0, 99.0, 100.5], &[50.0, 50.5, 49.5, 50.0]);
        let page = render(&Envelope::default(), &found, &[]);
        assert!(page.contains("<h1>mq-deadline is worse than none: 0.499 × IOPS (0.4"), "{page}");
        // IOPS and the mean latency, eight rounds each.
        assert_eq!(page.matches("<circle").count(), 16, "{page}");
        assert!(page.contains("<p class=\"small\">/dev/loop7: 8 rounds in "), "{page}");
        assert!(!page.contains("<h2>Stages"), "{page}");
        found.arms[1].name = "<script>alert(1)</script>".to_string();
        found.stages = [("queue", 30.0), ("<script>", -10.0), (ALL, 20.0)]
            .map(|(stage, ns)| StageDifference {
                arm: 1,
                stage: stage.to_string(),
                a_ns: Some(50.0),
                b_ns: Some(50.0 + ns),
                difference_ns: ns,
                low_ns: Some(ns - 1.0),
                high_ns: Some(ns + 1.0),
                is_certain: true,
            })
            .to_vec();
        found.target = "</title><script>".to_string();
        let page = render(&Envelope::default(), &found, &[]);
        assert_eq!(page.matches("<script").count(), 1, "the data: {page}");
        let flames = [("<i>", "<svg></svg>".to_string())];
        let page = render(&Envelope::default(), &found, &flames);
        assert!(page.contains("script-src 'unsafe-inline'") && page.contains("<svg></svg>"), "{page}");
        assert!(!page.contains("<i>"), "a name is escaped: {page}");
        // From zero to 30, back to 20, and the sum of both.
        for bar in [
            "<i class=\"s-queue\" style=\"margin-left:0.00%;width:100.00%\">",
            "<i class=\"s-all\" style=\"margin-left:66.67%;width:33.33%\">",
            "<i class=\"s-all\" style=\"margin-left:0.00%;width:66.67%\">",
        ] {
            assert!(page.contains(bar), "{bar}: {page}");
        }
    }
}
