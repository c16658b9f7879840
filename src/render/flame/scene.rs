//! Renders a placed tree with caption and legend as SVG: the common form of all flame graphs.

use std::fmt::Write as _;

use anyhow::Result;

use super::layout::{FRAME_HEIGHT, PlacedNode, place};
use super::{INLINE_SCRIPT, INLINE_STYLE};
use crate::analyze::profile::tree::{Node, Tree};
use crate::render::html;
use crate::render::text::clean;

/// Assumed width of a character of the 12 px monospace font of all text but the title. It is that of a wide font, so
/// that nothing overflows. The script uses the same value.
const CHARACTER: f64 = 7.25;
/// Same for the title's 17 px.
const TITLE_CHARACTER: f64 = 10.3;
/// Left and right margin, as in inferno.
const MARGIN: u32 = 10;
/// Distance between two lines of text.
const LINE: usize = 16;
/// Width of a colour in the legend.
const STEP: f64 = 12.0;
/// Room for the controls next to the title.
const CONTROLS: u32 = 190;

/// The colours of one legend entry: one colour, or the steps of a scale, drawn as one bar.
pub struct Swatch {
    pub colours: Vec<&'static str>,
    pub text: String,
}

/// The text above a graph.
pub struct GraphHeading {
    pub title: String,
    pub below: Vec<String>,
}

/// Everything needed to draw a tree.
pub struct Scene<'a> {
    pub tree: &'a Tree,
    pub width: u32,
    pub name: &'a dyn Fn(&Node) -> String,
    /// The text for a frame's value, without brackets.
    pub value: &'a dyn Fn(&Node) -> String,
    pub colour: &'a dyn Fn(&Node) -> &'static str,
}

/// The content of the `<svg>` element, and its size.
pub struct SvgContent {
    title: String,
    width: u32,
    height: usize,
    body: String,
    /// Bytes of `body` that are frames.
    frames: usize,
}

/// Draws a tree, and folds more and more of it until its frames have at most `most` bytes.
pub fn fit(mut tree: Tree, most: usize, draw: impl Fn(&Tree) -> Result<SvgContent>) -> Result<SvgContent> {
    loop {
        let drawn = draw(&tree)?;
        // Half of the total is wider than any page needs; with that no graph is too large.
        if drawn.frames <= most || tree.min_share() >= 0.5 {
            return Ok(drawn);
        }
        tree = tree.narrower((tree.min_share() * 1.25).max(0.000_1));
    }
}

impl Scene<'_> {
    pub fn draw(&self, caption: &GraphHeading, legend: &[Swatch]) -> Result<SvgContent> {
        let placed = place(self.tree, self.width)?;
        let inner = self.width - 2 * MARGIN;
        let characters = |width: u32, character: f64| (f64::from(width) / character) as usize;
        let mut body = String::with_capacity(placed.len() * 200 + 4096);

        let mut y = 24;
        for line in wrapped(&caption.title, characters(inner - CONTROLS, TITLE_CHARACTER)) {
            write!(body, "<text class=\"title\" x=\"{MARGIN}\" y=\"{y}\">{line}</text>")?;
            y += 20;
        }
        for line in caption.below.iter().flat_map(|line| wrapped(line, characters(inner, CHARACTER))) {
            write!(body, "<text x=\"{MARGIN}\" y=\"{y}\">{line}</text>")?;
            y += LINE;
        }
        y = self.legend(&mut body, legend, y)?;
        let right = self.width - MARGIN;
        write!(
            body,
            "<g class=\"controls\"><text class=\"unzoom hide\" x=\"{}\" y=\"22\">Reset zoom</text>\
             <text class=\"search\" x=\"{right}\" y=\"22\">Search</text></g>",
            right - 95
        )?;

        let top = y - 4;
        let depth = placed.iter().map(|p| p.y).max().unwrap_or(0) + FRAME_HEIGHT;
        write!(
            body,
            "<svg class=\"frames\" x=\"{MARGIN}\" y=\"{top}\" width=\"{inner}\" height=\"{depth}\"{}>",
            // A search may match folded frames as well.
            if self.tree.narrow_share() > 0.0 { " data-folded=\"\"" } else { "" }
        )?;
        let before = body.len();
        for placed in &placed {
            self.frame(&mut body, placed, inner)?;
        }
        let frames = body.len() - before;
        let height = top + depth + 24;
        write!(
            body,
            "</svg><text class=\"details\" x=\"{MARGIN}\" y=\"{0}\"></text>\
             <text class=\"matched\" x=\"{right}\" y=\"{0}\"></text>",
            height - 8
        )?;
        Ok(SvgContent { title: shown(&caption.title), width: self.width, height, body, frames })
    }

    fn frame(&self, body: &mut String, placed: &PlacedNode, inner: u32) -> Result<()> {
        let node = &self.tree.nodes()[placed.node];
        let name = plain(&(self.name)(node));
        let value = html::escape(&plain(&(self.value)(node)));
        let PlacedNode { x, width, y, start, held, .. } = placed;
        write!(
            body,
            "<g><title>{} ({value})</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" \
             fill=\"{}\" data-x=\"{start}\" data-w=\"{held}\"/>",
            html::escape(&name),
            FRAME_HEIGHT - 1,
            (self.colour)(node)
        )?;
        let percent = |text: &str| text.trim_end_matches('%').parse::<f64>();
        let fits = ((percent(width)? / 100.0 * f64::from(inner) - 3.0) / CHARACTER).max(0.0) as usize;
        // The script adds a frame's text when zooming makes it wide enough.
        if let Some(text) = cut(&name, fits) {
            let x = percent(x)? + 300.0 / f64::from(inner);
            write!(body, "<text x=\"{x:.4}%\" y=\"{}\">{}</text>", y + 12, html::escape(&text))?;
        }
        body.push_str("</g>");
        Ok(())
    }

    /// Writes the legend from `y` on; returns its lower end.
    fn legend(&self, body: &mut String, legend: &[Swatch], mut y: usize) -> Result<usize> {
        let mut x = f64::from(MARGIN);
        body.push_str("<g class=\"legend\">");
        for Swatch { colours, text } in legend {
            let bar = STEP * colours.len() as f64 + 5.0;
            let width = bar + CHARACTER * plain(text).chars().count() as f64;
            if x > f64::from(MARGIN) && x + width > f64::from(self.width - MARGIN) {
                x = f64::from(MARGIN);
                y += LINE;
            }
            for (step, colour) in colours.iter().enumerate() {
                write!(
                    body,
                    "<rect x=\"{:.0}\" y=\"{}\" width=\"{STEP}\" height=\"11\" fill=\"{colour}\"/>",
                    x + STEP * step as f64,
                    y - 10
                )?;
            }
            write!(body, "<text x=\"{:.0}\" y=\"{y}\">{}</text>", x + bar, shown(text))?;
            x += width + 16.0;
        }
        body.push_str("</g>");
        Ok(y + LINE)
    }
}

/// A complete SVG file.
pub fn file(drawn: &SvgContent) -> String {
    let SvgContent { title, width, height, body, .. } = drawn;
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg class=\"flame\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{title}</title>\n\
         <style>\n{INLINE_STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}\n\
         <script><![CDATA[\n{INLINE_SCRIPT}]]></script>\n</svg>\n"
    )
}

/// An element of a page.
pub fn inline(drawn: &SvgContent) -> String {
    let SvgContent { title, width, height, body, .. } = drawn;
    format!(
        "<svg class=\"flame\" role=\"group\" aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" xmlns=\"http://www.w3.org/2000/svg\">{body}</svg>"
    )
}

/// Text for an element.
pub fn shown(text: &str) -> String {
    html::escape(&plain(text))
}

/// Text without characters that XML forbids or that deceive readers. It is as drawn except for entities, so its length
/// can be measured.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '\u{fffe}' | '\u{ffff}' => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

/// Approximation: wide (East Asian) characters and emoji take two cells.
fn cells(c: char) -> usize {
    if (c as u32) < 0x1100 { 1 } else { 2 }
}

/// As much of a name as fits into `fits` characters; None: not even its beginning.
fn cut(name: &str, fits: usize) -> Option<String> {
    if fits < 3 {
        return None;
    }
    if name.chars().map(cells).sum::<usize>() <= fits {
        return Some(name.to_string());
    }
    let mut room = fits - 2;
    let kept = name.chars().take_while(|c| {
        let fits = cells(*c) <= room;
        room = room.saturating_sub(cells(*c));
        fits
    });
    Some(format!("{}..", kept.collect::<String>()))
}

/// A text in lines of at most `most` characters, broken between words if possible, each escaped.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let text = plain(text);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let length = |text: &str| text.chars().map(cells).sum::<usize>();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut word = word.to_string();
        if !line.is_empty() && length(&line) + 1 + length(&word) > most {
            lines.push(std::mem::take(&mut line));
        }
        // A single word may be wider than the graph.
        while length(&word) > most {
            let at = word.char_indices().map(|(at, _)| at).nth((most / 2).max(1)).unwrap_or(word.len());
            lines.push(word[..at].to_string());
            word.drain(..at);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines.iter().map(|line| html::escape(line)).collect()
}
