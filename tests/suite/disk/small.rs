//! Makes a file system that is soon full.

use std::fs::{self, File};
use std::process::Command;

use super::{Dir, MIB};
use crate::support::skip::skipped;

/// A small file system in memory, for users who may mount one.
pub struct Small(pub String);

impl Small {
    /// Makes one for each run: the files of a ring, and their space, are freed only some time after its end.
    pub fn new(dir: &Dir, name: &str) -> Option<Self> {
        let path = dir.join(name);
        fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "small", &path]).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        skipped("no tmpfs can be mounted here (root is needed)");
        None
    }

    /// A file that is longer than the file system is large.
    pub fn file(&self) -> String {
        let path = format!("{}/data", self.0);
        File::create(&path).and_then(|file| file.set_len(4 * MIB)).unwrap();
        path
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A second panic while a test fails would hide the first one.
        let _done = Command::new("umount").args(["-l", &self.0]).status();
    }
}
