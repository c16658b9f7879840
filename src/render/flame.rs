//! Folded stacks to a flame graph (inferno).
//!
//! Two forms. [`svg`] is a file of its own, with inferno's zoom and search. [`inline`] is one
//! `<svg>` element for an HTML page: inferno's script finds its picture by ids and takes the first
//! `<svg>` of the document, so it cannot serve several on a page; [`INLINE_STYLE`] and
//! [`INLINE_SCRIPT`] stand once in the page and serve all.
//!
//! Names come from strangers: whatever keys come in, only text goes out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr as _;

use anyhow::{Context as _, Result, ensure};
use inferno::flamegraph::color::{BackgroundColor, Palette};
use inferno::flamegraph::{Options, from_lines};

use crate::render::html;

/// Style of all [`inline`] pictures of a page: once, inside `<style>`.
pub const INLINE_STYLE: &str = include_str!("flame.css");

/// Zoom for all [`inline`] pictures of a page: once, inside `<script>`, at the end of the body.
/// Our own, not inferno's: a page that has only inline pictures needs no CDDL notice for a script.
pub const INLINE_SCRIPT: &str = include_str!("flame.js");

/// Width of a picture in its own units; a browser scales it.
const WIDTH: usize = 1200;

/// A flame graph as an SVG file that works alone in a browser, with zoom and search.
///
/// The same input gives the same bytes.
///
/// # Errors
/// When there is no sample to show: an empty picture would look like an idle machine.
pub fn svg(folded: &BTreeMap<String, u64>, title: &str, subtitle: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    draw(folded, title, subtitle, None, &mut out)?;
    Ok(out)
}

/// A flame graph as one `<svg>` element for the body of an HTML page. Without the script it still
/// shows all of it, with each frame's samples as tooltip.
///
/// # Errors
/// When there is no sample to show.
pub fn inline(folded: &BTreeMap<String, u64>, title: &str, subtitle: &str) -> Result<String> {
    let mut out = Vec::new();
    draw(folded, "", "", Some(WIDTH), &mut out)?;
    let text = String::from_utf8(out).context("the flame graph is not text")?;

    // Of inferno's file we take the height and the frames. All that names something in the whole
    // document (ids, styles, script, handlers) stands before them.
    let height = text.split("height=\"").nth(1).and_then(|rest| rest.split('"').next());
    let height: usize = height.and_then(|h| h.parse().ok()).context("the flame graph has no height")?;
    let start = text.find("<svg id=\"frames\"").context("the flame graph has no frames")?;
    let frames = text[start..].strip_suffix("</svg>").context("the flame graph does not end")?;
    let frames = frames.replacen("id=\"frames\"", "class=\"frames\"", 1);

    let (title, subtitle) = (html::escape(&plain(title)), html::escape(&plain(subtitle)));
    let mut svg = String::with_capacity(frames.len() + 1024);
    // `fg` is the prefix of inferno's own attributes: what each frame holds, in samples.
    write!(
        svg,
        "<svg class=\"flame\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         xmlns=\"http://www.w3.org/2000/svg\" xmlns:fg=\"http://github.com/jonhoo/inferno\">\
         <text class=\"title\" x=\"50%\" y=\"20\">{title}</text>\
         <text class=\"subtitle\" x=\"50%\" y=\"38\">{subtitle}</text>{frames}</svg>"
    )?;
    Ok(svg)
}

/// Draws by inferno. A fixed width also leaves its script out.
fn draw(
    folded: &BTreeMap<String, u64>,
    title: &str,
    subtitle: &str,
    width: Option<usize>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut lines: Vec<String> = folded.iter().filter(|(_, n)| **n > 0).map(|(k, &n)| line(k, n)).collect();
    ensure!(!lines.is_empty(), "no CPU sample to draw: the CPUs were idle, or no sample arrived");
    lines.sort_unstable();

    let mut options = Options::default();
    options.title = plain(title);
    options.subtitle = Some(plain(subtitle));
    // Tells kernel (orange, by the suffix _[k]) from user frames.
    options.colors = Palette::from_str("java").map_err(anyhow::Error::msg)?;
    options.bgcolors = BackgroundColor::from_str("#ffffff").ok();
    // Else colours are drawn by lot, and two pictures of one profile differ.
    options.deterministic = true;
    options.no_sort = true;
    // A pixel of the picture: what is narrower cannot be seen, and would make it tall and large.
    options.min_width = 0.1;
    options.image_width = width;
    options.no_javascript = width.is_some();
    from_lines(&mut options, lines.iter().map(String::as_str), out).context("the flame graph cannot be drawn")
}

/// One line as inferno reads it: `frame;frame count`.
fn line(key: &str, count: u64) -> String {
    let key = plain(key);
    // inferno takes a number at the end of a name for a count of its own (`worker 7 12` would be
    // a difference between two profiles), and a line that begins with `# ` for a comment. A space
    // that does not break stops both, and looks the same.
    let key = key.trim();
    let key = match key.rsplit_once(' ') {
        Some((head, tail)) if tail.chars().all(|c| c.is_ascii_digit() || c == '.') => {
            format!("{head}\u{a0}{tail}")
        }
        _ => key.to_string(),
    };
    match key.as_str() {
        "" => format!("? {count}"),
        "#" => format!("#\u{a0} {count}"),
        key => match key.strip_prefix("# ") {
            Some(rest) => format!("#\u{a0}{rest} {count}"),
            None => format!("{key} {count}"),
        },
    }
}

/// Text without what XML cannot hold or what deceives the eye: the analysis has escaped its keys,
/// but a recording or another caller may not have.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c as u32 {
            0xfffe | 0xffff | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff => {
                out.extend(c.escape_unicode());
            }
            _ if c.is_control() => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folded(lines: &[(&str, u64)]) -> BTreeMap<String, u64> {
        lines.iter().map(|&(k, n)| (k.to_string(), n)).collect()
    }

    fn profile() -> BTreeMap<String, u64> {
        folded(&[("fio;main;read_[k]", 30), ("fio;main;write_[k]", 10), ("kworker/0:1;kthread_[k]", 5)])
    }

    #[test]
    fn no_samples_no_picture() {
        for empty in [folded(&[]), folded(&[("a;b", 0)])] {
            assert!(svg(&empty, "t", "s").unwrap_err().to_string().contains("no CPU sample"));
            assert!(inline(&empty, "t", "s").is_err());
        }
    }

    #[test]
    fn a_picture_shows_names_shares_and_captions_and_is_the_same_each_time() {
        let text = String::from_utf8(svg(&profile(), "On-CPU", "cpu-clock, 45 samples").unwrap()).unwrap();
        for part in
            ["<?xml", "On-CPU", "cpu-clock, 45 samples", "read (30 samples, 66.67%)", "all (45 samples"]
        {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(svg(&profile(), "a", "b").unwrap(), svg(&profile(), "a", "b").unwrap());
    }

    /// Nothing in it may reach beyond the picture: there are others on the page.
    #[test]
    fn an_inline_picture_names_nothing_in_the_document() {
        let text = inline(&profile(), "On-CPU", "45 samples").unwrap();
        assert!(text.starts_with("<svg class=\"flame\"") && text.ends_with("</svg></svg>"), "{text}");
        for part in
            [" id=", "<script", "<style", "onload", "<?xml", "<!DOCTYPE", "url(#", "http://www.w3.org/1999"]
        {
            assert!(!text.contains(part), "{part}");
        }
        assert!(text.contains("read (30 samples, 66.67%)") && text.contains("fg:w=\"30\""));
        assert_eq!(text.matches("<svg").count(), 2);
        assert!(!INLINE_SCRIPT.contains("</script") && !INLINE_STYLE.contains("</style"));
    }

    /// A process chooses its name.
    #[test]
    fn hostile_names_stay_text() {
        let hostile = "<script>alert(1)</script>]]>\"'&\u{1b}[2J\u{0}\u{202e}\n\u{ffff}";
        let lines = folded(&[(&format!("{hostile};x"), 2), (&format!("a;{hostile}"), 3)]);
        let file = String::from_utf8(svg(&lines, hostile, hostile).unwrap()).unwrap();
        let page = inline(&lines, hostile, hostile).unwrap();
        for text in [&file, &page] {
            assert!(!text.contains("<script>alert") && text.contains("&lt;script&gt;alert(1)"));
            assert!(!text.contains("]]>\"") && !text.contains("]]>&quot;"));
            assert!(!text.contains(['\u{1b}', '\u{0}', '\u{202e}', '\u{ffff}']));
        }
        // Two sections of inferno's own script, and no third.
        assert_eq!(file.matches("]]>").count(), 2);
    }

    /// What looks like a count or a comment is a name.
    #[test]
    fn names_that_look_like_syntax_keep_their_samples() {
        let lines =
            folded(&[("worker 7", 5), ("# note;x", 6), ("v 1.5", 1), ("#", 2), (";;", 3), ("a;[u8; 8]", 4)]);
        let text = String::from_utf8(svg(&lines, "t", "s").unwrap()).unwrap();
        assert!(text.contains("all (21 samples, 100%)"), "{text}");
        assert!(text.contains("worker\u{a0}7 (5 samples") && !text.contains("%; +"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_name_gives_a_picture_with_all_samples(key in any::<String>(), other in "[ ;#0-9.a]{0,8}") {
            let lines: BTreeMap<_, _> = [(key, 3), (other, 4)].into();
            let all = format!("all ({} samples, 100%)", lines.values().sum::<u64>());
            let file = String::from_utf8(svg(&lines, "t", "s").unwrap()).unwrap();
            prop_assert!(file.contains(&all));
            prop_assert!(inline(&lines, "t", "s").unwrap().contains(&all));
        }
    }
}
