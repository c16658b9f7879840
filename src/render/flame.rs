//! Renders profiles as flame graphs.
//!
//! There are two forms. [`file()`] is an SVG file that works on its own in a browser. [`inline`] is one `<svg>` element
//! for an HTML page, in which [`INLINE_STYLE`] and [`INLINE_SCRIPT`] occur once and serve all flame graphs; the file
//! includes the same two. Without the script both still show everything, with each frame's values as its tooltip.
//!
//! inferno places the frames. The rest is our own: inferno's script finds its graph by ids and takes the first one in
//! the document, so it cannot serve several, and its colours do not know code areas.
//!
//! Names are untrusted: whatever they contain, the output has them as text only.

pub(in crate::render) mod colours;
mod layout;
pub(in crate::render) mod scene;

use anyhow::{Result, ensure};

use crate::analyze::profile::tree::{Node, Tree, narrow_name, percent};
use crate::analyze::profile::{Area, Profile, Unit};
use crate::envelope::Envelope;
use crate::render::flame::scene::{GraphHeading, Scene, Swatch};
use crate::units::{count, counted, time};

/// Style of all [`inline`] flame graphs of a page, and of [`tabs`]: insert it once, inside `<style>`.
pub const INLINE_STYLE: &str = include_str!("flame.css");

/// Zoom, search and tabs for all flame graphs of a page: insert it once, inside `<script>`, at the end of the body.
pub const INLINE_SCRIPT: &str = include_str!("flame.js");

/// Limit on the bytes of frames. If there are more, wider parts are folded than requested.
const MOST_BYTES: usize = 1_800_000;

/// The caption of a flame graph. Empty parts are left out.
#[derive(Debug, Clone, Default)]
pub struct Caption {
    /// What the widths measure: `on-CPU time`.
    pub what: String,
    /// The machine, and which part of it: `db1 · /dev/nvme0n1`.
    pub place: String,
    pub when: String,
    pub kernel: String,
    /// What was counted: `cpu-clock at 99 Hz on 2 CPUs for 5 s`.
    pub unit: String,
    pub samples: String,
    /// Losses: `none lost`.
    pub loss: String,
    /// Cost of the measurement: `cost 0.2 % of one CPU`.
    pub cost: String,
    /// Sentences below the graph.
    pub notes: Vec<String>,
}

impl Caption {
    /// With a title and one line below it.
    pub fn new(what: impl Into<String>, unit: impl Into<String>) -> Caption {
        Caption { what: what.into(), unit: unit.into(), ..Caption::default() }
    }

    /// Adds place and time of the measurement, and the loss relative to `all`. Values that a file does not state are
    /// left out.
    pub fn measured(self, place: String, envelope: &Envelope, lost: u64, all: u64) -> Caption {
        let kernel = &envelope.kernel;
        let share = 100.0 * lost as f64 / all.max(1) as f64;
        Caption {
            place,
            when: envelope.start.clone(),
            kernel: if kernel.is_empty() { String::new() } else { format!("Linux {kernel}") },
            loss: match lost {
                0 => "none lost".to_string(),
                lost => format!("{lost} lost ({share:.2} %)"),
            },
            ..self
        }
    }

    /// Everything in one line, except for the title and the sentences.
    pub fn origin(&self) -> String {
        let [place, measured] = self.parts();
        join(&[&place, &measured])
    }

    /// Place and time of the measurement, and what was measured.
    fn parts(&self) -> [String; 2] {
        [
            join(&[&self.place, &self.when, &self.kernel]),
            join(&[&self.unit, &self.samples, &self.loss, &self.cost]),
        ]
    }

    pub(in crate::render) fn lines(&self, notes: impl IntoIterator<Item = String>) -> GraphHeading {
        let mut below = self.parts().to_vec();
        below.extend(self.notes.iter().cloned().chain(notes));
        below.retain(|line| !line.is_empty());
        GraphHeading { title: self.what.clone(), below }
    }
}

fn join(parts: &[&String]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Width of the graph in its own units, which are pixels unless it is scaled.
    pub width: u32,
    /// Parts with less than this share of the total are folded.
    pub min_share: f64,
}

impl Default for Options {
    /// About the width of a page, and one pixel of it.
    fn default() -> Options {
        Options { width: 1200, min_share: 0.001 }
    }
}

impl Options {
    /// A narrower graph has no room for its caption.
    pub const LEAST_WIDTH: u32 = 300;

    pub(in crate::render) fn check(&self) -> Result<()> {
        ensure!(
            (Options::LEAST_WIDTH..=20_000).contains(&self.width),
            "the width of a flame graph must be {} to 20000, not {}",
            Options::LEAST_WIDTH,
            self.width
        );
        ensure!(
            (0.0..=0.5).contains(&self.min_share),
            "the least share that is shown must be 0 to 0.5, not {}",
            self.min_share
        );
        Ok(())
    }
}

/// A flame graph as an SVG file that works on its own in a browser: hover, click to zoom, search.
///
/// The same profile gives the same bytes.
///
/// # Errors
///
/// If there is nothing to show (an empty graph would look like an idle machine), or the options are out of range.
pub fn file(profile: &Profile, caption: &Caption, options: &Options) -> Result<Vec<u8>> {
    Ok(scene::file(&draw(profile, caption, options)?).into_bytes())
}

/// A flame graph as one `<svg>` element for the body of an HTML page.
///
/// # Errors
///
/// Same as [`file()`].
pub fn inline(profile: &Profile, caption: &Caption, options: &Options) -> Result<String> {
    Ok(scene::inline(&draw(profile, caption, options)?))
}

/// Several named flame graphs, as a part of an HTML page: one per tab with the script; below each other without it, and
/// on paper.
pub fn tabs(pictures: &[(&str, String)]) -> String {
    let mut out = String::from("<div class=\"flames\">\n");
    for (label, svg) in pictures {
        out.push_str(&format!(
            "<section class=\"pane\">\n<h3>{}</h3>\n<div class=\"flame\">{svg}</div>\n</section>\n",
            scene::shown(label)
        ));
    }
    out.push_str("</div>\n");
    out
}

fn draw(profile: &Profile, caption: &Caption, options: &Options) -> Result<scene::SvgContent> {
    options.check()?;
    ensure!(
        !profile.is_empty(),
        match profile.unit {
            Unit::Samples => "no samples to draw: nothing ran or waited, or no samples arrived",
            Unit::Nanoseconds => "no time to draw: nothing waited, or no data arrived",
            Unit::Ios => "no I/O to draw: there was none, or no data arrived",
            Unit::Events => "no events to draw: there were none, or no data arrived",
        }
    );
    let unit = profile.unit;
    let total = profile.total();
    scene::fit(profile.tree(options.min_share), MOST_BYTES, |tree| {
        let scene = Scene {
            tree,
            width: options.width,
            name: &|node: &Node| name(profile, tree, node),
            value: &|node: &Node| {
                let share = 100.0 * node.total as f64 / total as f64;
                let share = if node.total == total { "100 %".to_string() } else { format!("{share:.2} %") };
                format!("{}, {share}", amount(unit, node.total))
            },
            colour: &|node: &Node| node_area(profile, node).map_or(colours::FOLDED, colours::of),
        };
        scene.draw(&caption.lines(folded_note(tree)), &legend(profile, tree))
    })
}

/// The name of a node's frame.
pub(in crate::render) fn name(profile: &Profile, tree: &Tree, node: &Node) -> String {
    match node.frame {
        Some(frame) => profile.frames()[frame as usize].name.clone(),
        None if node.depth == 0 => "all".to_string(),
        None => narrow_name(tree.min_share()),
    }
}

fn node_area(profile: &Profile, node: &Node) -> Option<Area> {
    match node.frame {
        Some(frame) => Some(profile.frames()[frame as usize].area),
        None => (node.depth == 0).then_some(Area::Label),
    }
}

fn amount(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Samples => counted(value, "sample"),
        Unit::Nanoseconds if value < 1_000 => format!("{} ns", count(value)),
        Unit::Nanoseconds => time(value),
        Unit::Ios => counted(value, "I/O"),
        Unit::Events => counted(value, "event"),
    }
}

/// A note on the folded parts.
pub(in crate::render) fn folded_note(tree: &Tree) -> Option<String> {
    let share = tree.narrow_share();
    (share > 0.0).then(|| {
        format!(
            "{} % of it is in frames narrower than {} %, which are drawn as one where they are adjacent.",
            percent(share.max(0.000_01)),
            percent(tree.min_share())
        )
    })
}

/// The areas that occur in the graph.
fn legend(profile: &Profile, tree: &Tree) -> Vec<Swatch> {
    let nodes = || tree.nodes().iter().skip(1);
    let present =
        |area: &Area| nodes().any(|node| node.frame.is_some() && node_area(profile, node) == Some(*area));
    let mut legend: Vec<Swatch> = (Area::ALL.iter().filter(|area| present(area)))
        .map(|area| Swatch {
            colours: vec![colours::of(*area)],
            text: match area {
                Area::Label => "thread, lock or group".to_string(),
                Area::Stage => "stage of the I/O".to_string(),
                area => area.name().to_string(),
            },
        })
        .collect();
    if nodes().any(|node| node.frame.is_none()) {
        legend.push(Swatch { colours: vec![colours::FOLDED], text: "too narrow, folded".to_string() });
    }
    legend
}

#[cfg(test)]
#[path = "flame/tests.rs"]
mod tests;
