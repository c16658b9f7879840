//! Reads the mounted file systems and the swap areas.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::attribute::{device_number, file};

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mount {
    /// 0 for file systems that have no block device of their own number: btrfs, overlay, tmpfs.
    pub major: u32,
    pub minor: u32,
    /// The directory of the file system that is mounted; `/` unless it is a bind mount or subvolume.
    pub root: String,
    pub point: String,
    /// Type of the file system.
    pub kind: String,
    /// The source of the mount. The file system chooses the text; for FUSE, any user can.
    pub source: String,
    /// The file system's own options, separated by commas: an overlay's `lowerdir=`, procfs's `hidepid=`.
    pub options: String,
}

impl Mount {
    /// The device path of a file system with device numbers of its own. Other file systems with major 0 have no disk,
    /// whatever their source says.
    pub fn device_path(&self) -> Option<&str> {
        let names_device = self.major == 0 && matches!(self.kind.as_str(), "btrfs" | "bcachefs");
        names_device.then_some(self.source.as_str())
    }
}

/// One line of `/proc/swaps`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swap {
    /// Path of the device or file.
    pub name: String,
    pub is_file: bool,
}

/// All mounts of this process's mount namespace, in the kernel's order. Lines that are not mounts are left out.
pub fn mounts(root: &Path) -> Vec<Mount> {
    parse(&file(&root.join("proc/self/mountinfo")).unwrap_or_default())
}

/// The mounts of a mountinfo file.
pub fn parse(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

/// Maps the mount ids of a mountinfo file, which `statx` returns too, to the mounts.
pub fn by_id(mountinfo: &[u8]) -> BTreeMap<u64, Mount> {
    let text = String::from_utf8_lossy(mountinfo);
    let one = |line: &str| Some((line.split(' ').next()?.parse().ok()?, mount(line)?));
    text.lines().filter_map(one).collect()
}

/// All swap areas.
pub fn swaps(root: &Path) -> Vec<Swap> {
    file(&root.join("proc/swaps")).unwrap_or_default().lines().skip(1).filter_map(swap).collect()
}

/// The mount that contains a path: the one with the longest mount point above it. Among equals the latest, because a
/// later mount hides an earlier one.
pub fn mount_of<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    let path = PathBuf::from(path);
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| Path::new(&mount.point).components().count())
}

/// Parses `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda1 rw`: optional fields end at `-`.
fn mount(line: &str) -> Option<Mount> {
    let mut words = line.split(' ');
    let (major, minor) = device_number(words.nth(2)?)?;
    let root = unescape(words.next()?);
    let point = unescape(words.next()?);
    let mut words = words.skip_while(|word| *word != "-").skip(1);
    let kind = words.next()?.to_string();
    let source = unescape(words.next()?);
    let options = words.next().map(unescape).unwrap_or_default();
    Some(Mount { major, minor, root, point, kind, source, options })
}

fn swap(line: &str) -> Option<Swap> {
    let mut words = line.split_whitespace();
    Some(Swap { name: unescape(words.next()?), is_file: words.next()? == "file" })
}

/// Decodes a path: the kernel writes blanks, tabs, newlines and backslashes as `\` and three octal digits.
pub(super) fn unescape(word: &str) -> String {
    let bytes = word.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits =
            bytes.get(at + 1..at + 4).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) if bytes[at] == b'\\' && digits[0] <= b'3' => {
                out.push(digits.iter().fold(0u8, |value, digit| value << 3 | (digit - b'0')));
                at += 4;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_mount_points_are_read_back() {
        let line = r"36 35 98:0 / /mnt/two\040words\134\011 rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw";
        let mount = mount(line).unwrap();
        assert_eq!((mount.major, mount.minor), (98, 0));
        assert_eq!(mount.point, "/mnt/two words\\\t");
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext4", "/dev/sda1"));
        assert_eq!(mount.options, "rw");
        assert_eq!(by_id(line.as_bytes()).get(&36), Some(&mount));
    }

    #[test]
    fn an_escape_that_is_none_stays_as_it_is() {
        for text in [r"\", r"\0", r"\08x", r"\999", r"\777", "plain"] {
            assert_eq!(unescape(text), text);
        }
    }

    #[test]
    fn lines_that_are_no_mounts_are_left_out() {
        for line in ["", "36 35", "36 35 98 / / rw - ext4 a rw", "36 35 98:0 / / rw ext4 /dev/sda1 rw"] {
            assert_eq!(mount(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_file_lies_in_the_innermost_and_latest_mount() {
        let at = |point: &str, source: &str| Mount {
            point: point.into(),
            source: source.into(),
            ..Mount::default()
        };
        let mounts = [at("/", "a"), at("/srv", "b"), at("/srv/data", "c"), at("/srv", "d")];
        assert_eq!(mount_of(&mounts, "/srv/data/x").unwrap().source, "c");
        assert_eq!(mount_of(&mounts, "/srv/datum").unwrap().source, "d");
        assert_eq!(mount_of(&mounts, "/home").unwrap().source, "a");
        assert_eq!(mount_of(&mounts, "relative"), None);
    }

    #[test]
    fn a_source_is_believed_only_where_the_kernel_opened_it() {
        let anonymous =
            |kind: &str| Mount { kind: kind.into(), source: "/dev/sda1".into(), ..Mount::default() };
        assert_eq!(anonymous("btrfs").device_path(), Some("/dev/sda1"));
        assert_eq!(anonymous("fuse.anything").device_path(), None);
        assert_eq!(Mount { major: 8, ..anonymous("btrfs") }.device_path(), None);
    }

    #[test]
    fn swap_files_and_swap_devices_differ() {
        assert_eq!(
            swap("/swap\\040file\t\t\t\tfile\t\t1048572\t0\t-2"),
            Some(Swap { name: "/swap file".into(), is_file: true })
        );
        assert_eq!(
            swap("/dev/dm-1  partition  8388604 0 -3"),
            Some(Swap { name: "/dev/dm-1".into(), is_file: false })
        );
    }
}
