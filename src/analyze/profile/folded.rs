//! Reads and writes folded stacks: `root;...;leaf count` per line, as used by FlameGraph, inferno and speedscope.
//!
//! Escapes are those of [`escape`](super::super::stacks::escape) (`\x3b` a byte, `\u{202e}` a character). Kernel frames
//! end in `_[k]`, by which these tools colour; the text does not distinguish other areas.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::{Area, Profile, Unit};
use crate::analyze::blocked::NO_STACK;
use crate::analyze::stacks::{KERNEL_MARK, MARKS, RING_POLLERS, RING_WORKERS};
use crate::analyze::submits::TimePart;

/// Labels that may also occur within a stack.
const LABELS: [&str; 3] = [RING_WORKERS, RING_POLLERS, NO_STACK];

/// Limits on distinct frames and stacks of a text: they need more memory than their line.
const MOST_FRAMES: usize = 1 << 20;
const MOST_STACKS: usize = 4 << 20;

/// Limit on the frames of one stack, inlined ones included. The flame graph has a row, and the code a recursion level,
/// for each.
pub const MOST_DEPTH: usize = 4096;

/// Characters of a quoted text in an error, before the ellipsis.
const MOST_QUOTED: usize = 57;

/// Parses folded text of biopsy or of another tool. The first frame of a stack is taken for a label (a thread's name),
/// unless it is marked as a kernel frame.
///
/// # Errors
///
/// If a line is not a stack with a whole number, or its stack has more than [`MOST_DEPTH`] frames; the error names the
/// line.
pub fn parse(text: &str, unit: Unit) -> Result<Profile> {
    let mut profile = Profile::new(unit);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with("# ") {
            continue;
        }
        add(&mut profile, line).with_context(|| format!("line {number} is not folded text"))?;
        ensure!(
            profile.frames().len() <= MOST_FRAMES && profile.stacks().len() <= MOST_STACKS,
            "line {number} is more than a profile has"
        );
    }
    Ok(profile)
}

/// A profile from folded stacks, as in `ProfileSummary` and `ThreadSummary`.
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
        count.parse().ok().with_context(|| format!("'{}' is not an integer below 2^64", quoted(count)))?;
    ensure!(profile.total().checked_add(value).is_some(), "up to here the counts add up to more than 2^64");
    add_stack(profile, stack, value);
    Ok(())
}

/// The start of a text, which may be a whole file.
fn quoted(text: &str) -> String {
    let mut shown = text.escape_debug();
    let begin: String = shown.by_ref().take(MOST_QUOTED).collect();
    if shown.next().is_some() { begin + "..." } else { begin }
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
            // Only the leaf can be a stage, where I/Os were followed.
            None if frames.peek().is_none() && TimePart::of_frame(&name).is_some() => Area::Stage,
            None => Area::User,
        };
        ids.push(profile.frame(name, area));
    }
    profile.add(&ids, value);
}

/// Unescapes a name. A backslash that begins no escape is kept: other tools do not escape.
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

/// Decodes an escape at the start of the text: its character, if any, and its length.
fn one_escape(text: &str) -> Option<(Option<char>, usize)> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let digits = digits.get(..2).filter(|d| d.chars().all(|c| c.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        // From 0x80 on it is a byte that was not valid text.
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
pub(crate) mod tests;
