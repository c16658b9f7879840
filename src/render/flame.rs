//! Profiles to flame graphs.
//!
//! Two forms. [`file()`] is an SVG file that works alone in a browser. [`inline`] is one `<svg>` element for an HTML
//! page, in which [`INLINE_STYLE`] and [`INLINE_SCRIPT`] stand once and serve all pictures; the file brings the same
//! two. Without the script both still show everything, with what a frame holds as its tooltip.
//!
//! inferno places the frames. The rest is our own: inferno's script finds its picture by ids and takes the first of
//! the document, so that it cannot serve several, and its colours know no areas.
//!
//! Names come from strangers: whatever comes in, only text goes out.

pub(in crate::render) mod colours;
mod layout;
pub(in crate::render) mod scene;

use anyhow::{Result, ensure};

use crate::analyze::profile::tree::{Node, Tree, narrow_name, percent};
use crate::analyze::profile::{Area, Profile, Unit};
use crate::envelope::Envelope;
use crate::render::flame::scene::{Lines, Scene, Swatch};
use crate::units::{count, counted, time};

/// Style of all [`inline`] pictures of a page, and of [`tabs`]: once, inside `<style>`.
pub const INLINE_STYLE: &str = include_str!("flame.css");

/// Zoom, search and tabs for all pictures of a page: once, inside `<script>`, at the end of the body.
pub const INLINE_SCRIPT: &str = include_str!("flame.js");

/// Bytes of frames. Where there are more, narrower parts are folded than was asked for.
const MOST_BYTES: usize = 1_800_000;

/// What a reader of the picture must know. Empty parts are left out.
#[derive(Debug, Clone, Default)]
pub struct Caption {
    /// What the widths are: `on-CPU time`.
    pub what: String,
    /// The machine, and which part of it: `db1 · /dev/nvme0n1`.
    pub place: String,
    pub when: String,
    pub kernel: String,
    /// What was counted: `cpu-clock at 99 Hz on 2 CPUs for 5 s`.
    pub unit: String,
    pub samples: String,
    /// What is missing: `none lost`.
    pub loss: String,
    /// What it took to measure, of one CPU: `cost 0.2 % of one CPU`.
    pub cost: String,
    /// Sentences that stand below.
    pub notes: Vec<String>,
}

impl Caption {
    /// With a title and one line below it.
    pub fn new(what: impl Into<String>, unit: impl Into<String>) -> Caption {
        Caption { what: what.into(), unit: unit.into(), ..Caption::default() }
    }

    /// The same with where and when it was measured, and how much of `all` is lost. What a file does not say is left out.
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

    /// All of it in one line, but for the title and the sentences.
    pub fn origin(&self) -> String {
        let [place, measured] = self.parts();
        join(&[&place, &measured])
    }

    /// Where and when it was measured, and what.
    fn parts(&self) -> [String; 2] {
        [
            join(&[&self.place, &self.when, &self.kernel]),
            join(&[&self.unit, &self.samples, &self.loss, &self.cost]),
        ]
    }

    pub(in crate::render) fn lines(&self, notes: impl IntoIterator<Item = String>) -> Lines {
        let mut below = self.parts().to_vec();
        below.extend(self.notes.iter().cloned().chain(notes));
        below.retain(|line| !line.is_empty());
        Lines { title: self.what.clone(), below }
    }
}

fn join(parts: &[&String]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).filter(|part| !part.is_empty()).collect();
    parts.join(" · ")
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Of the picture, in its own units, which are pixels where nobody scales it.
    pub width: u32,
    /// What holds less than this share of the whole is folded.
    pub min_share: f64,
}

impl Default for Options {
    /// About the width of a page, and a pixel of it.
    fn default() -> Options {
        Options { width: 1200, min_share: 0.001 }
    }
}

impl Options {
    /// A narrower one has no room for its own caption.
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

/// A flame graph as an SVG file that works alone in a browser: hover, click to zoom, search.
///
/// The same profile gives the same bytes.
///
/// # Errors
/// When there is nothing to show (an empty picture would look like an idle machine), or the options are out of range.
pub fn file(profile: &Profile, caption: &Caption, options: &Options) -> Result<Vec<u8>> {
    Ok(scene::file(&draw(profile, caption, options)?).into_bytes())
}

/// A flame graph as one `<svg>` element for the body of an HTML page.
///
/// # Errors
/// As [`file()`].
pub fn inline(profile: &Profile, caption: &Caption, options: &Options) -> Result<String> {
    Ok(scene::inline(&draw(profile, caption, options)?))
}

/// Several pictures with a name each, as a part of an HTML page: one per tab with the script, one below the other
/// without it and on paper.
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

fn draw(profile: &Profile, caption: &Caption, options: &Options) -> Result<scene::Drawn> {
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

/// What folding did to the picture.
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

/// The areas that the picture has.
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
