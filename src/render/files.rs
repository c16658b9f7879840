//! The bios of each file on a device, as rows for text and HTML.

use crate::analyze::files::FileIos;
use crate::analyze::latency::DeviceLatency;
use crate::units::{bytes, count, in_percent};

/// Column headings.
pub const HEADER: [&str; 4] = ["file", "I/Os", "bytes", "share"];

/// Which columns are text.
pub const IS_TEXT: [bool; 4] = [true, false, false, false];

/// A row per file, most bytes first, and how many files are left out. The share is of the bytes, or of the I/Os if none
/// has bytes. Values scaled up from samples are marked with `~`.
pub fn rows(device: &DeviceLatency, most: usize) -> (Vec<[String; 4]>, usize) {
    let all = device.files.as_deref().unwrap_or_default();
    (all.iter().take(most).map(row).collect(), all.len().saturating_sub(most))
}

fn row(ios: &FileIos) -> [String; 4] {
    let about = if ios.sampled < ios.bios { "~" } else { "" };
    [
        match &ios.file {
            Some(file) => file.label(),
            None if ios.others => "(many others)".to_string(),
            None => "(unknown)".to_string(),
        },
        format!("{about}{}", count(ios.bios)),
        format!("{about}{}", bytes(ios.bytes as f64)),
        in_percent(ios.share),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::files::{FileKind, IoFile};

    #[test]
    fn what_is_scaled_up_is_marked() {
        let ios = |path: Option<&str>, others, sampled| FileIos {
            file: path.map(|path| IoFile {
                kind: FileKind::Regular,
                device: "8:1".to_string(),
                inode: Some(1),
                path: Some(path.to_string()),
            }),
            others,
            bios: 1600,
            bytes: 1600 << 12,
            sampled,
            share: 0.4,
        };
        let files = Some(vec![
            ios(Some("/a"), false, 340),
            ios(None, false, 1600),
            ios(None, true, 1600),
            ios(None, true, 1),
        ]);
        let (shown, left) = rows(&DeviceLatency { files, ..DeviceLatency::default() }, 3);
        assert_eq!(shown[0].join("|"), "/a|~1,600|~6.25 MiB|40 %");
        assert_eq!(shown[1].join("|"), "(unknown)|1,600|6.25 MiB|40 %");
        assert_eq!((shown[2][0].as_str(), left), ("(many others)", 1));
    }
}
