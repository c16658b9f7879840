//! Reads and writes files of sysfs, /proc/sys and cgroups.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// The value of a setting; of a list of choices the active one: `none` of `[none] mq-deadline`.
pub fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path)?;
    let text = text.trim();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    // Values of sysctls may have several fields, separated by tabs.
    Ok(chosen.map_or_else(
        || text.split_whitespace().collect::<Vec<_>>().join(" "),
        |(chosen, _)| chosen.to_string(),
    ))
}

/// A single write, as these files require and as `echo` does. Never creates a file.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    File::options().write(true).truncate(true).open(path)?.write_all(value.as_bytes())
}

/// The choices in a list; None if the file has no list.
pub fn choices(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.contains('[').then(|| text.replace(['[', ']'], "").split_whitespace().collect::<Vec<_>>().join(", "))
}

/// The rest of the line that begins with this word, as in the per-device files of cgroups (`8:0 rbps=max`); None if
/// there is no such line.
pub fn read_line(path: &Path, word: &str) -> io::Result<Option<String>> {
    let text = fs::read_to_string(path)?;
    let rest = |line: &str| Some(line.strip_prefix(word)?.strip_prefix(' ')?.trim().to_string());
    Ok(text.lines().find_map(rest))
}
