//! Provides a disk to measure on.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const FILE_BYTES: u64 = 256 << 20;

/// A loop device over a deleted file in /dev/shm.
pub struct Loop(pub String);

impl Loop {
    pub fn new() -> Result<Self> {
        let file = format!("/dev/shm/biopsy-bench-{}", std::process::id());
        let fill = Command::new("dd")
            .args(["if=/dev/urandom", &format!("of={file}"), "bs=1M", &format!("count={}", FILE_BYTES >> 20)])
            .stderr(Stdio::null())
            .status()?;
        let made = Command::new("losetup").args(["-f", "--show", &file]).output();
        std::fs::remove_file(&file)?;
        let made = made.context("losetup is in the package util-linux or mount")?;
        ensure!(fill.success() && made.status.success(), "no loop device could be made: run as root");
        Ok(Self(String::from_utf8(made.stdout)?.trim().to_string()))
    }

    pub fn name(&self) -> &str {
        self.0.trim_start_matches("/dev/")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _gone = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
