//! Checks what the user allowed to be written, and remembers the files that this run created.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::refusal::Refusal;

/// The user's permissions.
#[derive(Debug, Clone, Default)]
pub struct Permission {
    /// `--write`: allows writing and trimming at all.
    pub write: bool,
    /// `--readonly`: forbids both, overriding all other options.
    pub readonly: bool,
    /// `--destroy-data-on NAME`: kernel names of block devices (`nvme0n1`, `loop3p1`), which must match the opened
    /// device exactly.
    pub destroy_data_on: Vec<String>,
    /// `--overwrite PATH`: files whose content may be lost.
    pub overwrite: Vec<PathBuf>,
}

impl Permission {
    /// Refuses unless writing is allowed.
    pub(super) fn to_write(&self, path: &Path) -> Result<(), Refusal> {
        let name = path.display();
        if self.readonly {
            return Err(Refusal::Usage(format!(
                "{name} would be written or trimmed, which --readonly forbids: leave out --readonly, or choose a \
                 --rw that only reads"
            )));
        }
        if !self.write {
            return Err(Refusal::Usage(format!(
                "{name} would be written or trimmed: add --write, or choose a --rw that only reads"
            )));
        }
        Ok(())
    }

    /// Refuses unless the data of the device may be lost. `names` all refer to the same device; the refusal asks for
    /// the first.
    pub(super) fn to_destroy(&self, path: &Path, names: &[&str]) -> Result<(), Refusal> {
        if names.iter().any(|name| self.destroy_data_on.iter().any(|allowed| allowed == name)) {
            return Ok(());
        }
        let (path, name) = (path.display(), names.first().copied().unwrap_or_default().escape_debug());
        let said = match self.destroy_data_on.as_slice() {
            [] => String::new(),
            said => format!(" (and not {})", said.join(", ").escape_debug()),
        };
        Err(Refusal::Usage(format!(
            "{path} is the block device {name}{said}, and all data on it would be lost: if that is what you want, \
             add --destroy-data-on {name}"
        )))
    }

    /// Refuses unless the file with this device and inode number may be overwritten.
    pub(super) fn to_overwrite(&self, path: &Path, identity: (u64, u64)) -> Result<(), Refusal> {
        let same = |allowed: &PathBuf| {
            fs::metadata(allowed).is_ok_and(|data| data.is_file() && (data.dev(), data.ino()) == identity)
        };
        if self.overwrite.iter().any(same) {
            return Ok(());
        }
        let name = path.display();
        Err(Refusal::Usage(format!(
            "the file {name} is there already, and its content would be lost: if that is what you want, add \
             --overwrite {name}, or name a file that is not there"
        )))
    }
}

/// A file that this run created. The O_PATH descriptor keeps its inode number from being reused.
struct CreatedFile {
    identity: (u64, u64),
    _kept: fs::File,
}

static MADE: Mutex<Vec<CreatedFile>> = Mutex::new(Vec::new());

/// Remembers a file as created by this run.
pub(super) fn remember(identity: (u64, u64), kept: fs::File) {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.push(CreatedFile { identity, _kept: kept });
}

/// Whether this run created the file.
pub(super) fn made_here(identity: (u64, u64)) -> bool {
    MADE.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|made| made.identity == identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result<(), Refusal>) -> String {
        let refusal = result.unwrap_err();
        assert_eq!(refusal.exit_code(), 2, "{refusal}");
        refusal.to_string()
    }

    #[test]
    fn nothing_is_written_without_the_word() {
        let path = Path::new("/dev/sda");
        assert!(why(Permission::default().to_write(path)).contains("add --write"));
        let both = Permission { write: true, readonly: true, ..Permission::default() };
        assert!(why(both.to_write(path)).contains("--readonly"));
        assert_eq!(Permission { write: true, ..Permission::default() }.to_write(path), Ok(()));
    }

    #[test]
    fn a_device_is_named_exactly_or_not_at_all() {
        let path = Path::new("/dev/disk/by-id/x");
        let named = |names: &[&str]| Permission {
            write: true,
            destroy_data_on: names.iter().map(|name| name.to_string()).collect(),
            ..Permission::default()
        };
        for wrong in [
            "nvme0n1p1",
            "nvme0n",
            "nvme0",
            "/dev/nvme0n1",
            "NVME0N1",
            "nvme0n1 ",
            "",
            "*",
            "/dev/disk/by-id/x",
        ] {
            let why = why(named(&[wrong]).to_destroy(path, &["nvme0n1"]));
            assert!(why.ends_with("add --destroy-data-on nvme0n1"), "{wrong}: {why}");
        }
        assert!(why(named(&[]).to_destroy(path, &["nvme0n1"])).contains("the block device nvme0n1, and all"));
        assert_eq!(named(&["sda", "nvme0n1"]).to_destroy(path, &["nvme0n1"]), Ok(()));
        assert_eq!(named(&["ng0n1"]).to_destroy(path, &["nvme0n1", "ng0n1"]), Ok(()));
        assert!(named(&["ng0n1"]).to_destroy(path, &["nvme0n1"]).is_err());
    }

    #[test]
    fn a_file_is_overwritten_by_its_inode_and_not_by_its_name() {
        let exe = std::env::current_exe().unwrap();
        let data = fs::metadata(&exe).unwrap();
        let named = |path: &Path| Permission { overwrite: vec![path.into()], ..Permission::default() };
        assert_eq!(named(&exe).to_overwrite(&exe, (data.dev(), data.ino())), Ok(()));
        for other in [Path::new("/nonexistent"), Path::new("/"), exe.parent().unwrap()] {
            assert!(named(other).to_overwrite(&exe, (data.dev(), data.ino())).is_err(), "{other:?}");
        }
        assert!(why(Permission::default().to_overwrite(&exe, (0, 0))).contains("--overwrite"));
    }
}
