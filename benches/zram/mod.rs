//! Creates a zram disk that is full of incompressible bytes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

const MIB: u64 = 256;

/// Removed at the end.
pub struct Zram {
    number: String,
    /// `/dev/zram1`.
    path: String,
}

impl Zram {
    pub fn new() -> Result<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add")
            .context("no zram device can be made: it needs root and the module zram")?
            .trim()
            .to_string();
        let zram = Self { path: format!("/dev/zram{number}"), number };
        fs::write(zram.attribute("disksize"), format!("{MIB}M")).context("disksize of a zram device")?;
        let fill = Command::new("dd")
            .args(["if=/dev/urandom", &format!("of={}", zram.path), "bs=1M", &format!("count={MIB}")])
            .arg("oflag=direct")
            .stderr(Stdio::null())
            .status()?;
        ensure!(fill.success(), "{} could not be filled: {MIB} MiB of memory are needed", zram.path);
        Ok(zram)
    }

    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }

    fn attribute(&self, name: &str) -> std::path::PathBuf {
        Path::new("/sys/block").join(self.name()).join(name)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let remove = || {
            fs::write(self.attribute("reset"), "1")?;
            fs::write("/sys/class/zram-control/hot_remove", &self.number)
        };
        // Another process may have it open.
        for _ in 0..50 {
            if remove().is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(40));
        }
        eprintln!("{} stays: echo {} > /sys/class/zram-control/hot_remove", self.path, self.number);
    }
}
