//! Reads one attribute file of sysfs or procfs. The size is bounded and the content is untrusted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

/// Enough for the longest table read here (mountinfo of a host full of containers), and a bound for a file that never
/// ends.
const LONGEST: u64 = 16 << 20;

/// The highest number accepted in a CPU or node list: 8192 CPUs is the kernel's own limit for x86-64. A garbled range
/// must not become gigabytes of numbers.
const HIGHEST_LISTED: u32 = 8191;

/// The file's bytes as text. Bytes that are not UTF-8 become U+FFFD, which the renderers show.
pub fn file(path: &Path) -> io::Result<String> {
    // procfs generates some files anew for each read call: a buffer of this size avoids a first short read.
    let mut bytes = Vec::with_capacity(8 << 10);
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The value without surrounding white space; None for a missing or empty attribute.
pub fn text(path: &Path) -> Option<String> {
    let value = file(path).ok()?;
    // Device strings are padded with blanks or NULs to their fixed width.
    let value = value.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!value.is_empty()).then(|| value.to_string())
}

/// A whole-number attribute.
pub fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// A 0/1 attribute; everything else is None.
pub fn flag(path: &Path) -> Option<bool> {
    match text(path)?.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The word in brackets: `none [mq-deadline] kyber`. A single word needs no brackets.
pub fn bracketed(value: &str) -> Option<&str> {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']')).or(if words.len() == 1 {
        words.first().copied()
    } else {
        None
    })
}

/// Parses CPU or node lists: `0-3,8`, and `0, 1` as `mq/N/cpu_list` prints it. Sorted, without duplicates.
///
/// None if any part is not a number: half a list would be a wrong list.
pub fn list(value: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > HIGHEST_LISTED {
            return None;
        }
        numbers.extend(first..=last);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Some(numbers)
}

/// Parses `MAJ:MIN`.
pub fn device_number(value: &str) -> Option<(u32, u32)> {
    let (major, minor) = value.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Names in a directory in natural order; none if it cannot be read.
pub fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by(|a, b| natural(a, b));
    names
}

/// The file name of a symbolic link's target, without following it further.
pub fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Natural order: runs of digits compare as numbers, so that nvme2n1 comes before nvme10n1.
pub fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

/// Text and numbers alternate; a run of digits too long for a number counts as the largest.
fn key(name: &str) -> Vec<(&str, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, tail) = rest.split_at(word);
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        parts.push((text, if number.is_empty() { 0 } else { number.parse().unwrap_or(u64::MAX) }));
        rest = tail;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_both_styles_parse_and_hostile_ones_do_not() {
        assert_eq!(list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("0, 1"), Some(vec![0, 1]));
        assert_eq!(list(""), Some(vec![]));
        assert_eq!(list("3-1"), None);
        assert_eq!(list("0-4294967295"), None);
        assert_eq!(list("0,x"), None);
    }

    #[test]
    fn the_active_choice_is_the_one_in_brackets() {
        assert_eq!(bracketed("none [mq-deadline] kyber"), Some("mq-deadline"));
        assert_eq!(bracketed("none"), Some("none"));
        assert_eq!(bracketed("a b"), None);
        assert_eq!(bracketed(""), None);
    }

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["nvme10n1", "sda", "nvme2n1", "loop0", "nvme2n1p10", "nvme2n1p9"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["loop0", "nvme2n1", "nvme2n1p9", "nvme2n1p10", "nvme10n1", "sda"]);
    }
}
