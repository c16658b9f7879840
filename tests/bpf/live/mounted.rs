//! Mounts an ext4 file system on a test disk, and unmounts it at the end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::disk::Disk;
use crate::support::skip::skipped;

/// The mounted file system and its mount point.
#[derive(Debug)]
pub struct Mounted<'a> {
    folder: PathBuf,
    disk: &'a Disk,
}

impl<'a> Mounted<'a> {
    /// None: this machine cannot make one, and the test is skipped.
    pub fn new(disk: &'a Disk) -> Option<Self> {
        // The kernel must not initialise or read anything in the background.
        let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        let made = Command::new("mkfs.ext4").args(options).arg(&disk.path).status();
        if !made.is_ok_and(|status| status.success()) {
            skipped("there is no mkfs.ext4");
            return None;
        }
        let folder =
            std::env::temp_dir().join(format!("biopsy-mounted-{}-{}", disk.name, std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mounted = Self { folder, disk };
        if mounted.mount() {
            return Some(mounted);
        }
        skipped("an ext4 cannot be mounted here");
        None
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "ext4", "-o", "noatime,no_prefetch_block_bitmaps", &self.disk.path])
            .arg(&self.folder);
        mount.status().is_ok_and(|status| status.success())
    }

    /// Makes a file of so many bytes, which are on the disk when this returns.
    pub fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, vec![7; bytes]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    /// Mounts the file system again: then none of it is in the page cache.
    pub fn again(&self) {
        assert!(unmount(&self.folder) && self.mount());
    }
}

fn unmount(folder: &Path) -> bool {
    Command::new("umount").arg(folder).status().is_ok_and(|status| status.success())
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if unmount(&self.folder) {
            let _none = fs::remove_dir(&self.folder);
        }
    }
}
