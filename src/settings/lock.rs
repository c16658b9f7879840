//! Allows one comparison per disk at a time, and restores what is left by one that was killed together with its
//! watcher.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::saved::{Problem, SavedSettings};
use crate::refusal::{Refusal, reason};

/// Directory of the old values and the locks.
const FOLDER: &str = "/run/biopsy";

/// Held by a comparison, and by its watcher until everything is restored.
#[derive(Debug)]
pub struct Lock {
    pub(super) file: File,
    path: PathBuf,
    /// File of the old values meanwhile.
    pub(super) values: PathBuf,
}

impl Lock {
    /// Refused if another comparison holds it.
    pub fn take(name: &str) -> Result<Self, Refusal> {
        let folder = folder()?;
        let refused = |error: &io::Error| {
            Refusal::Refused(format!("{} cannot be used: {}; run as root", folder.display(), reason(error)))
        };
        let path = folder.join(format!("compare-{name}.lock"));
        loop {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                // A process that can read it can lock it.
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)
                .map_err(|error| refused(&error))?;
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                return Err(Refusal::Refused(format!(
                    "another comparison is running on {name}: wait until it ends ({} is locked)",
                    path.display()
                )));
            }
            // The previous holder may have removed the file between opening and locking: then the lock is on a deleted
            // file.
            let is_there = file.metadata().map_err(|error| refused(&error))?.ino();
            if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == is_there) {
                return Ok(Self { file, path, values: folder.join(format!("compare-{name}.json")) });
            }
        }
    }

    /// The old values that a comparison left here: it was killed together with its watcher.
    fn left(&self, root: &Path) -> Option<SavedSettings> {
        let saved: SavedSettings = serde_json::from_slice(&fs::read(&self.values).ok()?).ok()?;
        saved.is_plausible(root).then_some(saved)
    }
}

/// Removes the file while the lock is still held, see [`Lock::take`].
impl Drop for Lock {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// Removes the file of a [`Lock`], for the watcher, which has only its descriptor.
pub(super) fn remove(values: &Path) {
    let _gone = fs::remove_file(values.with_extension("lock"));
}

/// The directory, which only root may write to.
fn folder() -> Result<PathBuf, Refusal> {
    let folder = PathBuf::from(FOLDER);
    match DirBuilder::new().mode(0o755).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Refusal::Refused(format!(
                "{FOLDER} cannot be made: {}; run as root",
                reason(&error)
            )));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)
        .map_err(|error| Refusal::Refused(format!("{FOLDER} cannot be read: {}", reason(&error))))?;
    if !found.is_dir() || found.uid() != 0 || found.mode() & 0o022 != 0 {
        return Err(Refusal::Refused(format!(
            "{FOLDER} is not a directory writable only by root: remove it, and try again"
        )));
    }
    Ok(folder)
}

/// Restores the settings of killed comparisons, except those still running. Returns their names, each with what could
/// not be restored.
pub fn restore_left() -> Result<Vec<(String, Vec<Problem>)>, Refusal> {
    let Ok(entries) = fs::read_dir(FOLDER) else { return Ok(Vec::new()) };
    let name_of = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("compare-")?.strip_suffix(".json")?.to_string())
    };
    let mut names: Vec<String> = entries.flatten().filter_map(name_of).collect();
    names.sort();
    let mut restored = Vec::new();
    for name in names {
        // Its watcher restores it.
        let Ok(lock) = Lock::take(&name) else { continue };
        let root = Path::new("/");
        let Some(saved) = lock.left(root) else { continue };
        let problems = saved.restore(root);
        finish(&lock.values, &problems);
        restored.push((name, problems));
    }
    Ok(restored)
}

/// Removes the file of old values; keeps it for `--restore` if one of them could not be set.
pub(super) fn finish(values: &Path, problems: &[Problem]) {
    if !problems.iter().any(|problem| matches!(problem, Problem::Failed { .. })) {
        let _gone = fs::remove_file(values);
    }
}
