//! A profile as folded text: `root;...;leaf count` per line.
//!
//! [`folded::parse`](crate::analyze::profile::folded::parse) brings any name back as it was. Escapes are those of
//! [`escape`], and a few more where a reader would take a part of a name for something else.

use std::fmt::Write as _;

use crate::analyze::profile::{Area, Profile};
use crate::analyze::stacks::{KERNEL_MARK, escape};

/// A frame without a name, which readers would drop.
const NAMELESS: &str = "\\u{}";

/// The profile as folded text, in the order of its names.
pub fn render(profile: &Profile) -> String {
    lines(profile).fold(String::new(), |mut out, (stack, value)| {
        _ = writeln!(out, "{stack} {value}");
        out
    })
}

/// Each stack as it stands in a line, with its value.
pub fn lines(profile: &Profile) -> impl Iterator<Item = (String, u64)> {
    let mut frames: Vec<String> = profile.frames().iter().map(|f| frame(&f.name, f.area)).collect();
    // In all lines as in those that end in it, else it would be two frames to other tools.
    for leaf in profile.stacks().iter().filter_map(|stack| stack.frames.last()) {
        let text = &mut frames[*leaf as usize];
        if let Some(escaped) = before_count(text) {
            *text = escaped;
        }
    }
    profile.sorted().into_iter().map(move |stack| {
        let texts: Vec<&str> = stack.frames.iter().map(|id| frames[*id as usize].as_str()).collect();
        (texts.join(";"), stack.value)
    })
}

/// One frame as it stands in a line.
fn frame(name: &str, area: Area) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    escape(name.as_bytes(), &mut text);
    if text.is_empty() {
        text.push_str(NAMELESS);
    }
    // Blanks at the ends are trimmed by readers, and a line that begins with `# ` is a comment to them.
    if let Some(first) = text.chars().next().filter(|c| c.is_whitespace() || *c == '#') {
        text.replace_range(..first.len_utf8(), &escaped(first));
    }
    if let Some((at, last)) = text.char_indices().next_back().filter(|(_, c)| c.is_whitespace()) {
        text.replace_range(at.., &escaped(last));
    }
    if area.in_kernel() {
        text.push_str(KERNEL_MARK);
    }
    text
}

/// A frame's text where the count follows; None: as it is. Two numbers at the end of a line are a difference between
/// two profiles to readers.
fn before_count(text: &str) -> Option<String> {
    let (head, tail) = text.rsplit_once(' ')?;
    let is_number = tail.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_number.then(|| format!("{head}{}{tail}", escaped(' ')))
}

fn escaped(c: char) -> String {
    if c.is_ascii() { format!("\\x{:02x}", c as u32) } else { c.escape_unicode().to_string() }
}

#[cfg(test)]
#[path = "folded_tests.rs"]
mod tests;
