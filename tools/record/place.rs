//! Finds the disk that a recording is written to.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use biopsy::host::{Host, select};

use super::views::SelectedDevices;

/// From linux/magic.h.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// The disk of a recording's folder.
pub enum FolderDisk {
    /// A traced disk or partition, or a device below it.
    Traced(String),
    /// In memory, or on another disk.
    Untraced,
    /// Unknown: btrfs, overlayfs and ZFS report device numbers of their own.
    Unknown,
}

impl FolderDisk {
    /// # Errors
    /// If the folder is gone.
    pub fn of(host: &Host, named: &SelectedDevices, recording: &Path) -> Result<Self> {
        let device = std::fs::metadata(recording)?.dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        let Ok(device) = select::find(host, Path::new("/"), &number) else {
            return Ok(if is_in_memory(recording) { Self::Untraced } else { Self::Unknown });
        };
        let below = select::stack(host, &device.disk.name, true).unwrap_or_default();
        let mut names =
            below.into_iter().map(|disk| disk.name.as_str()).chain([device.name(), &device.disk.name]);
        let is_traced =
            |name: &&str| named.layers.is_empty() || named.layers.iter().any(|traced| traced == name);
        Ok(names.find(is_traced).map_or(Self::Untraced, |name| Self::Traced(name.to_string())))
    }
}

/// Whether the file system is in memory.
fn is_in_memory(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: zeroed is a valid statfs, and the path is a NUL-terminated string that lives across the call.
    let (failed, found) = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &mut found), found)
    };
    failed == 0 && [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found.f_type)
}
