//! Stacks that are folded to text, as a profile: `root;...;leaf count` per line, as FlameGraph, inferno and speedscope
//! read it.
//!
//! Escapes are those of [`escape`](super::super::stacks::escape) (`\x3b` a byte, `\u{202e}` a character). Kernel frames
//! end in `_[k]`, by which these tools colour; of the other areas the text does not tell.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::{Area, Profile, Unit};
use crate::analyze::blocked::NO_STACK;
use crate::analyze::stacks::{KERNEL_MARK, MARKS, RING_POLLERS, RING_WORKERS};
use crate::analyze::submits::Part;

/// What is a label also where it does not begin a stack.
const LABELS: [&str; 3] = [RING_WORKERS, RING_POLLERS, NO_STACK];

/// What text is read has no more different frames and stacks: a line takes less room than what becomes of it.
const MOST_FRAMES: usize = 1 << 20;
const MOST_STACKS: usize = 4 << 20;

/// Frames of one stack that is read, inlined ones among them. A picture has a row and a stack of calls for each.
pub const MOST_DEPTH: usize = 4096;

/// Characters of the text that stand in an error, before the dots.
const MOST_QUOTED: usize = 57;

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
            "line {number} is more than a profile has"
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
        count.parse().ok().with_context(|| format!("'{}' is not an integer below 2^64", quoted(count)))?;
    ensure!(profile.total().checked_add(value).is_some(), "up to here the counts add up to more than 2^64");
    add_stack(profile, stack, value);
    Ok(())
}

/// What a text begins with: it may be a whole file.
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
pub(crate) mod tests;
