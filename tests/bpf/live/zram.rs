//! Makes a zram device for a test. It is bio-based, so that its I/O has no request events.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::disk::Stat;
use crate::support::skip::skipped;
use crate::support::tool;

/// A zram device, which is removed at the end.
#[derive(Debug)]
pub struct Zram {
    number: String,
    /// `zram1`.
    pub name: String,
    /// `/dev/zram1`.
    pub path: String,
}

impl Zram {
    /// None: this machine cannot make or trace a zram device, and the test is skipped.
    pub fn new(mib: u64) -> Option<Self> {
        let made = match tool::no_tracing() {
            _ if !tool::is_root() => Err("a zram device needs root".to_string()),
            Some(why) => Err(why.to_string()),
            None => Self::add(mib),
        };
        made.inspect_err(|why| skipped(why)).ok()
    }

    fn add(mib: u64) -> Result<Self, String> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add")
            .map_err(|e| format!("no zram device can be made here: {e}"))?
            .trim()
            .to_string();
        let name = format!("zram{number}");
        let zram = Self { path: format!("/dev/{name}"), name, number };
        fs::write(Path::new("/sys/block").join(&zram.name).join("disksize"), format!("{mib}M"))
            .map_err(|e| format!("disksize: {e}"))?;
        // The first open makes the kernel look for partitions, and the close of a writer makes udev examine the device.
        // Both happen now, and not while I/Os are counted.
        fs::File::options().write(true).open(&zram.path).map_err(|e| e.to_string())?;
        let _none = Command::new("udevadm").args(["settle", "--timeout=2"]).output();
        Ok(zram)
    }

    pub fn stat(&self) -> Stat {
        Stat::read(&self.name)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let remove = || {
            fs::write(Path::new("/sys/block").join(&self.name).join("reset"), "1")?;
            fs::write("/sys/class/zram-control/hot_remove", &self.number)
        };
        // Another program may have the device open.
        for _ in 0..50 {
            if remove().is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        eprintln!("{} stays", self.name);
    }
}
