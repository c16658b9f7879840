//! Counts a kernel event by an instance of tracefs, for comparison with biopsy's counts. Triggers (`hist:`) would do as
//! well, but not every kernel has them.

use crate::support::skip::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tracefs instance, and the tracefs that was mounted for it. Both are removed at the end.
#[derive(Debug)]
pub struct Counted {
    point: PathBuf,
    instance: PathBuf,
}

impl Counted {
    /// Counts `event`, for example `vmscan/mm_vmscan_memcg_reclaim_begin`. None: this machine does not have it, and the
    /// test is skipped.
    pub fn new(event: &str) -> Option<Self> {
        let name = format!("biopsy-test-{}", std::process::id());
        let point = std::env::temp_dir().join(&name);
        let counted = Self { instance: point.join("instances").join(name), point };
        match counted.start(event) {
            Ok(()) => Some(counted),
            Err(why) => {
                skipped(format_args!("{event} cannot be counted by tracefs: {why}"));
                None
            }
        }
    }

    fn start(&self, event: &str) -> Result<(), String> {
        let said = |error: std::io::Error| error.to_string();
        fs::create_dir_all(&self.point).map_err(said)?;
        let mounted = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&self.point).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return Err("it cannot be mounted".to_string());
        }
        fs::create_dir(&self.instance).map_err(said)?;
        fs::write(self.instance.join("events").join(event).join("enable"), "1").map_err(said)
    }

    /// The number of events so far: those in the buffers, and those that newer ones have overwritten.
    pub fn hits(&self) -> u64 {
        let folder = self.instance.join("per_cpu");
        let cpus = fs::read_dir(folder).unwrap().flatten();
        cpus.map(|cpu| of_cpu(&fs::read_to_string(cpu.path().join("stats")).unwrap())).sum()
    }

    /// A shell pattern of the files that hold the counts, for a command that counts.
    pub fn files(&self) -> String {
        format!("{}/per_cpu/cpu*/stats", self.instance.display())
    }
}

/// Same as [`Self::hits`], from the concatenated content of these files.
pub fn hits_in(files: &str) -> u64 {
    const FIRST: &str = "entries:";
    assert!(files.starts_with(FIRST), "{files}");
    files.split(FIRST).skip(1).map(|cpu| of_cpu(&format!("{FIRST}{cpu}"))).sum()
}

fn of_cpu(stats: &str) -> u64 {
    let value = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {stats}")).trim().parse().unwrap()
    };
    assert_eq!(value("commit overrun") + value("dropped events"), 0, "{stats}");
    value("entries") + value("overrun")
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _none = fs::write(self.instance.join("events/enable"), "0");
        if is_there(&self.instance) && fs::remove_dir(&self.instance).is_err() {
            eprintln!("{} stays", self.instance.display());
        }
        let _none = Command::new("umount").arg("-q").arg(&self.point).status();
        if fs::remove_dir(&self.point).is_err() {
            eprintln!("{} stays", self.point.display());
        }
    }
}
