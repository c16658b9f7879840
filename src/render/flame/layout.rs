//! Places each node of a tree, using inferno.
//!
//! inferno gets the index of a node instead of its name. So no name can be mistaken for its syntax, and the frames that
//! it drew are identified by that index.

use std::str::FromStr as _;

use anyhow::{Context as _, Result, ensure};
use inferno::flamegraph::color::BackgroundColor;
use inferno::flamegraph::{Options, from_lines};

use crate::analyze::profile::tree::Tree;

/// A node with its position.
pub struct PlacedNode {
    /// Index into the tree's nodes.
    pub node: usize,
    /// Left edge and width as written by inferno, in percent of the total.
    pub x: String,
    pub width: String,
    /// Upper edge, relative to that of the highest frame.
    pub y: usize,
    /// The same as `x` and `width` in the tree's unit, or in a power of 2 of it: for the script, whose numbers are
    /// exact up to 2^53.
    pub start: u64,
    pub held: u64,
}

/// Narrower frames, in pixels, are left out as invisible. Only folded frames are that narrow, unless nothing is folded.
const LEAST_PIXELS: f64 = 0.2;

/// Height of a frame with the gap to the next.
pub const FRAME_HEIGHT: usize = 16;

/// Places the nodes in a graph of this width: the root of all first, and each frame before those above it.
pub fn place(tree: &Tree, width: u32) -> Result<Vec<PlacedNode>> {
    let total = tree.nodes()[0].total;
    let shift = (total.max(1).ilog2() + 1).saturating_sub(52);
    let mut lines: Vec<String> = Vec::new();
    let mut numbers: Vec<usize> = Vec::new();
    // Numbers of equal length in tree order are sorted as inferno requires.
    let mut next = 0;
    for node in &tree.nodes()[1..] {
        next += 1;
        numbers.truncate(node.depth as usize - 1);
        numbers.push(next);
        let own = node.own >> shift;
        if own > 0 {
            let path: Vec<String> = numbers.iter().map(|number| format!("{number:08x}")).collect();
            lines.push(format!("{} {own}", path.join(";")));
        }
    }

    let mut options = Options::default();
    options.title = String::new();
    options.count_name = String::new();
    options.bgcolors = BackgroundColor::from_str("#ffffff").ok();
    // Otherwise colours are random.
    options.deterministic = true;
    options.no_sort = true;
    options.frame_height = FRAME_HEIGHT;
    options.min_width = 100.0 * LEAST_PIXELS / f64::from(width);
    options.image_width = Some(width as usize);
    options.no_javascript = true;
    let mut out = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut out)
        .context("the flame graph cannot be drawn")?;
    let text = String::from_utf8(out).context("the flame graph is not text")?;
    let placed = read_back(&text, tree.nodes().len()).context("inferno's flame graph is not as expected")?;
    ensure!(placed.first().is_some_and(|p| p.node == 0), "inferno's flame graph has no root");
    Ok(placed)
}

/// The frames of inferno's output.
fn read_back(text: &str, nodes: usize) -> Option<Vec<PlacedNode>> {
    let mut placed = Vec::new();
    for frame in text.split("<g>").skip(1) {
        let (title, rest) = frame.strip_prefix("<title>")?.split_once("</title><rect ")?;
        let (rect, _) = rest.split_once("/>")?;
        let rect = format!(" {rect}");
        let attribute = |name: &str| rect.split_once(&format!(" {name}=\""))?.1.split('"').next();
        let node = match title.split_once(' ')?.0 {
            "all" => 0,
            number => usize::from_str_radix(number, 16).ok().filter(|number| *number < nodes)?,
        };
        placed.push(PlacedNode {
            node,
            x: attribute("x")?.to_string(),
            width: attribute("width")?.to_string(),
            y: attribute("y")?.parse().ok()?,
            start: attribute("fg:x")?.parse().ok()?,
            held: attribute("fg:w")?.parse().ok()?,
        });
    }
    let top = placed.iter().map(|p| p.y).min()?;
    placed.iter_mut().for_each(|p| p.y -= top);
    placed.sort_unstable_by_key(|p| p.node);
    Some(placed)
}
