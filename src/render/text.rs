//! Renders text for a terminal: one unit per column, right-aligned, everything escaped.

pub mod brief;
pub mod check;
pub mod compare;
pub mod devices;
pub mod diagnose;
pub mod drive;
pub mod errors;
pub mod fio_log;
pub mod flame;
pub mod footer;
pub mod groups;
mod histograms;
pub mod interrupts;
pub mod interval_lines;
pub mod latency;
mod layout;
pub mod load;
pub mod locks;
pub mod notes;
pub mod overhead;
pub mod pagecache;
mod paragraphs;
pub mod precondition;
mod scaling;
pub mod self_test;
mod stages;
pub mod sweep;
pub mod terse;
pub mod threads;
pub mod top;
pub mod trace;

pub use self::layout::{fit, table};
pub use crate::units::{
    bytes, common_bytes, common_time, count, counted, figure, gigabytes, range, short, significant, time,
    time_unit,
};

/// Display options of a view.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Show everything: also rows beyond the largest ones, and devices and vectors that were idle.
    pub all: bool,
    pub color: bool,
    /// Without what is the same in every interval.
    pub brief: bool,
    /// Characters per line; None: unlimited.
    pub width: Option<usize>,
}

/// Escapes characters that could move the cursor or hide text: control characters, bidi overrides and the like become
/// `\u{..}`. Names of processes, files and devices are untrusted.
pub fn clean(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        let invisible = matches!(c as u32, 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb);
        if c.is_control() || invisible || c == '\u{fffd}' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Shortens a cleaned name to at most `most` characters: keeps its beginning and end.
pub fn fitted(name: &str, most: usize) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= most {
        return name.to_string();
    }
    let kept = most.saturating_sub(3);
    let tail = kept / 2;
    let begin: String = characters[..kept - tail].iter().collect();
    let end: String = characters[characters.len() - tail..].iter().collect();
    format!("{begin}...{end}")
}

/// Maximum length of quoted input in an error.
const MOST_QUOTED: usize = 60;

/// A piece of input for an error text: cleaned, and only its beginning if it is long.
pub fn quoted(input: &str) -> String {
    // It may be a whole file.
    let begin: String = input.chars().take(MOST_QUOTED + 1).collect();
    let shown = clean(&begin);
    if shown.chars().count() <= MOST_QUOTED {
        return shown;
    }
    let kept: String = shown.chars().take(MOST_QUOTED - 3).collect();
    format!("{kept}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_cannot_reach_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!(clean("kworker/0:1H-kblockd"), "kworker/0:1H-kblockd");
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(fitted("i_rwsem", 7), "i_rwsem");
        assert_eq!(fitted("i_rwsem of a very long path", 13), "i_rws... path");
    }

    #[test]
    fn what_is_quoted_is_short() {
        assert_eq!(quoted("1.5"), "1.5");
        assert_eq!(quoted(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(quoted(&"é".repeat(1 << 20)), format!("{}...", "é".repeat(57)));
        // An escape has more characters than the escaped one.
        let escaped = quoted(&"\x1b".repeat(30));
        assert!(escaped.starts_with("\\u{1b}\\u{1b}") && escaped.chars().count() == 60, "{escaped}");
    }
}
