//! Renders a comparison of two profiles as a differential flame graph and as a table.

use anyhow::Result;

use crate::analyze::flame_diff::{Basis, Change, Comparison, RateChange};
use crate::analyze::profile::Unit;
use crate::analyze::profile::tree::Node;
use crate::render::flame::scene::{
    Scene, SvgContent, Swatch, file as scene_file, fit, inline as scene_inline,
};
use crate::render::flame::{Caption, Options, colours, folded_note, name};
use crate::render::text::{clean, fitted, table};
use crate::units::{counted, figure, significant};

/// Limit on the bytes of frames, as in a flame graph.
const MOST_BYTES: usize = 1_800_000;

/// Number of frames in the table.
const SHOWN: usize = 10;

/// The stacks of both as an SVG file that works on its own in a browser: a frame's width is the sum of both, and its
/// colour shows the change.
///
/// # Errors
///
/// If the options are out of range.
pub fn file(comparison: &Comparison, caption: &Caption, options: &Options) -> Result<Vec<u8>> {
    Ok(scene_file(&draw(comparison, caption, options)?).into_bytes())
}

/// The graph as one `<svg>` element for the body of an HTML page.
///
/// # Errors
///
/// Same as [`file()`].
pub fn inline(comparison: &Comparison, caption: &Caption, options: &Options) -> Result<String> {
    Ok(scene_inline(&draw(comparison, caption, options)?))
}

fn draw(comparison: &Comparison, caption: &Caption, options: &Options) -> Result<SvgContent> {
    options.check()?;
    let (factor, unit) = rate_unit(comparison);
    let profile = comparison.stacks();
    let sides = |node: &Node| {
        let (before, after) = (comparison.rate(node.before), comparison.rate(node.total - node.before));
        (factor * before, factor * after)
    };
    fit(comparison.tree(options.min_share), MOST_BYTES, |tree| {
        let scene = Scene {
            tree,
            width: options.width,
            name: &|node: &Node| name(profile, tree, node),
            value: &|node: &Node| {
                let (before, after) = sides(node);
                let change = match (node.before, node.total - node.before) {
                    (_, 0) => "gone".to_string(),
                    (0, _) => "new".to_string(),
                    _ => format!("{:+.1} %", 100.0 * (after / before - 1.0)),
                };
                format!("before {}, after {} {unit}, {change}", figure(before), figure(after))
            },
            colour: &|node: &Node| {
                let (before, after) = sides(node);
                colours::of_change((after - before) / (after + before))
            },
        };
        let width = format!("Width: before and after together, in {unit}. Colour: the change.");
        scene.draw(&caption.lines([width].into_iter().chain(folded_note(tree))), &legend())
    })
}

fn legend() -> Vec<Swatch> {
    // Each word comes after its colours.
    let parts = [(0..1, "gone"), (1..4, "less"), (4..5, "the same"), (5..8, "more"), (8..9, "new")];
    (parts.into_iter())
        .map(|(steps, text)| Swatch { colours: colours::CHANGES[steps].to_vec(), text: text.to_string() })
        .collect()
}

/// The factor and unit for showing a rate.
fn rate_unit(comparison: &Comparison) -> (f64, &'static str) {
    match (comparison.basis, comparison.unit) {
        (Basis::Share, _) => (100.0, "% of all"),
        (Basis::Ios { .. }, Unit::Nanoseconds) => (1.0, "ns per I/O"),
        (Basis::Ios { .. }, Unit::Samples) => (1e6, "samples per million I/Os"),
        (Basis::Ios { .. }, Unit::Ios) => (1.0, "I/Os per I/O"),
        (Basis::Ios { .. }, Unit::Events) => (1.0, "events per I/O"),
        // The average number at a time.
        (Basis::Time { .. }, Unit::Nanoseconds) => (1.0, "threads on average"),
        (Basis::Time { .. }, Unit::Samples) => (1e9, "samples per second"),
        (Basis::Time { .. }, Unit::Ios) => (1e9, "I/Os per second"),
        (Basis::Time { .. }, Unit::Events) => (1e9, "events per second"),
    }
}

/// The frames that changed most, and those that appeared or vanished.
pub fn text(comparison: &Comparison, width: Option<usize>) -> String {
    let (factor, unit) = rate_unit(comparison);
    let RateChange { before, after, .. } = comparison.all;
    let mut out = format!("{unit}: {} before, {} after", figure(factor * before), figure(factor * after));
    if comparison.basis != Basis::Share {
        out.push_str(&format!(" ({:+.1} %)", 100.0 * (after / before - 1.0)));
    }
    out.push_str("\n\n");
    let signed =
        |value: f64| format!("{}{}", if value < 0.0 { "-" } else { "+" }, figure((factor * value).abs()));
    let rows: Vec<Vec<String>> = (comparison.changes.iter().filter(|c| c.own.change() != 0.0).take(SHOWN))
        .map(|change| {
            let Change { own, total, .. } = change;
            let interval = match own.interval {
                Some((low, high)) => format!("{} to {}", signed(low), signed(high)),
                None => "unknown".to_string(),
            };
            let certain = match (own.interval.is_some(), own.is_certain()) {
                (false, _) => "-",
                (true, true) => "yes",
                (true, false) => "no",
            };
            vec![
                fitted(&clean(&change.name), 50),
                figure(factor * own.before),
                figure(factor * own.after),
                signed(own.change()),
                interval,
                certain.to_string(),
                signed(total.change()),
            ]
        })
        .collect();
    let header = ["frame", "before", "after", "change", "95 % interval", "certain", "with callees"];
    if !rows.is_empty() {
        out.push_str(&format!("frames whose self value changed most, in {unit}\n{}", table(&header, &rows)));
    } else if comparison.changes.iter().all(|change| change.total.change() == 0.0) {
        out.push_str("no frame changed: all values are the same as before\n");
    } else {
        out.push_str("no frame's self value changed, only the call paths\n");
    }
    for (found, what, side) in [
        (comparison.appeared(), "appeared", (|total| total.after) as fn(&RateChange) -> f64),
        (comparison.vanished(), "vanished", |total| total.before),
    ] {
        if found.is_empty() {
            continue;
        }
        out.push_str(&format!("\n{}, in {unit} with callees\n", frames(found.len(), what)));
        for change in found.iter().take(SHOWN) {
            let value = significant(factor * side(&change.total), 3);
            out.push_str(&format!("  {value:>8}  {}\n", fitted(&clean(&change.name), 80)));
        }
        if found.len() > SHOWN {
            out.push_str(&format!("  and {} more\n", found.len() - SHOWN));
        }
    }
    let unsure = comparison.unsure();
    if unsure > 0 {
        let frames = counted(unsure as u64, "frame");
        out.push_str(&format!("\n{frames} more on one side only, too few to be significant\n"));
    }
    crate::render::text::fit(&out, width)
}

fn frames(count: usize, what: &str) -> String {
    format!("{} that {what}", counted(count as u64, "frame"))
}

#[cfg(test)]
#[path = "flame_diff_tests.rs"]
mod tests;
