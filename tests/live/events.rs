//! The kernel's own count of an event, by a trigger of tracefs: what our counts are held against.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The trigger, and the tracefs that was mounted for it. Both go at the end.
#[derive(Debug)]
pub struct Counted {
    point: PathBuf,
    event: PathBuf,
    key: &'static str,
}

impl Counted {
    /// `event` as in `vmscan/mm_vmscan_memcg_reclaim_begin`, `key` a field of it. None, with a line that says so,
    /// where this machine has no such trigger.
    pub fn new(test: &str, event: &str, key: &'static str) -> Option<Self> {
        let skip = |why: &str| println!("skipped: {test}: no trigger on {event}: {why}");
        let point = std::env::temp_dir().join(format!("biopsy-test-tracefs-{}", std::process::id()));
        if let Err(error) = fs::create_dir_all(&point) {
            skip(&error.to_string());
            return None;
        }
        let mounted = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&point).status();
        if !mounted.is_ok_and(|status| status.success()) {
            let _gone = fs::remove_dir(&point);
            skip("tracefs cannot be mounted");
            return None;
        }
        let counted = Self { event: point.join("events").join(event), point, key };
        match fs::write(counted.event.join("trigger"), format!("hist:keys={key}")) {
            Ok(()) => Some(counted),
            Err(error) => {
                skip(&error.to_string());
                None
            }
        }
    }

    /// So far.
    pub fn hits(&self) -> u64 {
        let text = fs::read_to_string(self.event.join("hist")).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("Hits:")).unwrap_or("0");
        assert!(text.contains("Dropped: 0"), "{text}");
        line.trim().parse().unwrap()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let _none = fs::write(self.event.join("trigger"), format!("!hist:keys={}", self.key));
        let unmounted = Command::new("umount").arg(&self.point).status();
        if !unmounted.is_ok_and(|status| status.success()) || fs::remove_dir(&self.point).is_err() {
            eprintln!("{} stays", self.point.display());
        }
    }
}
