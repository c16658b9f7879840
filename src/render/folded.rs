//! Folded text, out and in: `root;...;leaf count` per line, as FlameGraph, inferno and speedscope read it.
//!
//! Any name comes back as it was. Escapes are those of [`escape`] (`\x3b` a byte, `\u{202e}` a character), and a few
//! more where a reader would take a part of a name for something else. Kernel frames end in `_[k]`, by which these
//! tools colour; of the other areas the text does not tell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::analyze::blocked::NO_STACK;
use crate::analyze::profile::{Area, Profile, Unit};
use crate::analyze::stacks::{KERNEL_MARK, MARKS, RING_POLLERS, RING_WORKERS, escape};
use crate::analyze::submits::Part;
use crate::render::text::quoted;

/// What is a label also where it does not begin a stack.
const LABELS: [&str; 3] = [RING_WORKERS, RING_POLLERS, NO_STACK];

/// A frame without a name, which readers would drop.
const NAMELESS: &str = "\\u{}";

/// What text is read has no more different frames and stacks: a line takes less room than what becomes of it.
const MOST_FRAMES: usize = 1 << 20;
const MOST_STACKS: usize = 4 << 20;

/// Frames of one stack that is read, inlined ones among them. A picture has a row and a stack of calls for each.
pub const MOST_DEPTH: usize = 4096;

/// The profile as folded text, in the order of its names.
pub fn render(profile: &Profile) -> String {
    let mut frames: Vec<String> = profile.frames().iter().map(|f| frame(&f.name, f.area)).collect();
    // In all lines as in those that end in it, else it would be two frames to other tools.
    for leaf in profile.stacks().iter().filter_map(|stack| stack.frames.last()) {
        let text = &mut frames[*leaf as usize];
        if let Some(escaped) = before_count(text) {
            *text = escaped;
        }
    }
    let mut out = String::new();
    for stack in profile.sorted() {
        for (i, id) in stack.frames.iter().enumerate() {
            if i > 0 {
                out.push(';');
            }
            out.push_str(&frames[*id as usize]);
        }
        _ = writeln!(out, " {}", stack.value);
    }
    out
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

/// Reads folded text, of biopsy or of another tool. The first frame of a stack is taken for a label (a thread's
/// name), unless it is marked as the kernel's.
///
/// # Errors
/// When a line is not a stack and a whole number, or its stack has more than [`MOST_DEPTH`] frames; it says which.
pub fn parse(text: &str, unit: Unit) -> Result<Profile> {
    let mut profile = Profile::new(unit);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with("# ") {
            continue;
        }
        add(&mut profile, line).with_context(|| format!("line {number} is not folded text"))?;
        ensure!(
            profile.frames().len() <= MOST_FRAMES && profile.stacks().len() <= MOST_STACKS,
            "line {number} is one more than a profile of a window has"
        );
    }
    Ok(profile)
}

/// A profile from stacks that were folded before, as `ProfileSummary` and `ThreadSummary` hold them.
pub fn profile(folded: &BTreeMap<String, u64>, unit: Unit) -> Profile {
    let mut profile = Profile::new(unit);
    for (key, value) in folded {
        add_stack(&mut profile, key, *value);
    }
    profile
}

fn add(profile: &mut Profile, line: &str) -> Result<()> {
    let line = line.trim_end();
    let (stack, count) = line.rsplit_once([' ', '\t']).context("a count is missing at its end")?;
    let stack = stack.trim_end();
    ensure!(!stack.is_empty(), "there is no stack before the count");
    let depth = stack.bytes().filter(|byte| *byte == b';').count() + 1;
    ensure!(depth <= MOST_DEPTH, "its stack has more than {MOST_DEPTH} frames");
    let value: u64 =
        count.parse().ok().with_context(|| format!("'{}' is no whole number below 2^64", quoted(count)))?;
    ensure!(profile.total().checked_add(value).is_some(), "up to here it adds up to more than 2^64");
    add_stack(profile, stack, value);
    Ok(())
}

fn add_stack(profile: &mut Profile, stack: &str, value: u64) {
    let mut ids = Vec::new();
    let mut frames = stack.split(';').peekable();
    while let Some(text) = frames.next() {
        let kernel = text.strip_suffix(KERNEL_MARK);
        let user = || MARKS.iter().find_map(|mark| text.strip_suffix(mark)).unwrap_or(text);
        let name = unescaped(kernel.unwrap_or_else(user));
        let area = match kernel {
            Some(_) => Area::of_kernel(&name),
            None if ids.is_empty() || LABELS.contains(&text) => Area::Label,
            // Only the leaf, where I/Os were followed.
            None if frames.peek().is_none() && Part::of_frame(&name).is_some() => Area::Stage,
            None => Area::User,
        };
        ids.push(profile.frame(name, area));
    }
    profile.add(&ids, value);
}

/// A name from its text. A backslash that begins no escape is one: others do not escape.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match one_escape(rest) {
            Some((c, length)) => {
                out.extend(c);
                rest = &rest[length..];
            }
            None => {
                out.push('\\');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The character that an escape stands for, if it stands for one, and how long the escape is.
fn one_escape(text: &str) -> Option<(Option<char>, usize)> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits = digits.get(..2).filter(|d| d.chars().all(|c| c.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        // From 0x80 on it is a byte that was no text in the first place.
        let c = if byte.is_ascii() { char::from(byte) } else { char::REPLACEMENT_CHARACTER };
        return Some((Some(c), 4));
    }
    let (digits, _) = text.strip_prefix("\\u{")?.split_once('}')?;
    let length = digits.len() + 4;
    match digits {
        "" => Some((None, length)),
        _ if digits.len() <= 6 && digits.chars().all(|c| c.is_ascii_hexdigit()) => {
            let c = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?;
            Some((Some(c), length))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "folded_tests.rs"]
mod tests;
