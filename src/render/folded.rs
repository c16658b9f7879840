//! Renders a profile as folded text: `root;...;leaf count` per line.
//!
//! [`folded::parse`](crate::analyze::profile::folded::parse) restores any name. Escapes are those of [`escape`], plus
//! some for names that a reader would misinterpret.

use std::fmt::Write as _;

use crate::analyze::profile::{Area, Profile};
use crate::analyze::stacks::{KERNEL_MARK, escape};

/// Stands for a frame with an empty name, which readers would drop.
const NAMELESS: &str = "\\u{}";

/// The profile as folded text, sorted by names.
pub fn render(profile: &Profile) -> String {
    lines(profile).fold(String::new(), |mut out, (stack, value)| {
        _ = writeln!(out, "{stack} {value}");
        out
    })
}

/// Each stack in its line format, with its value.
pub fn lines(profile: &Profile) -> impl Iterator<Item = (String, u64)> {
    let mut frames: Vec<String> = profile.frames().iter().map(|f| frame(&f.name, f.area)).collect();
    // In all lines if in any, or other tools would see two frames.
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

/// One frame in its line format.
fn frame(name: &str, area: Area) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    escape(name.as_bytes(), &mut text);
    if text.is_empty() {
        text.push_str(NAMELESS);
    }
    // Readers trim blanks at both ends, and take a line that begins with `# ` for a comment.
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

/// A frame's text when the count follows; None: unchanged. Readers take two numbers at the end of a line for a
/// difference between two profiles.
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
