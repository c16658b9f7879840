//! The kernel's own count of an event, by an instance of its trace: what our counts are held against. Triggers of
//! tracefs (`hist:`) would do, and are not built into every kernel.

use crate::support::skip::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The instance, and the tracefs that was mounted for it. Both go at the end.
#[derive(Debug)]
pub struct Counted {
    point: PathBuf,
    instance: PathBuf,
}

impl Counted {
    /// `event` as in `vmscan/mm_vmscan_memcg_reclaim_begin`. None, and the test is skipped, where this machine has
    /// none.
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

    /// So far: what is in the buffers, and what was in them before newer ones took its place.
    pub fn hits(&self) -> u64 {
        let folder = self.instance.join("per_cpu");
        let cpus = fs::read_dir(folder).unwrap().flatten();
        cpus.map(|cpu| of_cpu(&fs::read_to_string(cpu.path().join("stats")).unwrap())).sum()
    }

    /// The files that hold them, as a shell names them: for a command that counts.
    pub fn files(&self) -> String {
        format!("{}/per_cpu/cpu*/stats", self.instance.display())
    }
}

/// The same, of what `cat` made of the files.
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
