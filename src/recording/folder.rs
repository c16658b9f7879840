//! The folder of a recording, and the names in it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the recording says of itself.
pub const MANIFEST: &str = "manifest.json";
/// The machine.
pub const HOST: &str = "host.json";

const TABLE: &str = ".ndjson.zst";

/// The file of a view.
pub fn table(view: &str) -> String {
    format!("{view}{TABLE}")
}

/// The view of a file.
pub fn view(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()?.strip_suffix(TABLE)
}

/// Whether a file of this name is a part of a recording.
pub fn is_part(name: &str) -> bool {
    [MANIFEST, HOST].contains(&name) || view(name.as_bytes()).is_some()
}

/// A folder that is recorded into. Unless it is [kept](Self::keep), it is removed again with what we made in it.
pub struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// Makes it; only its owner may look into it.
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(path)?;
        Ok(Self { path: path.to_path_buf(), is_kept: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Writes a whole file, or leaves the one that was there.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&new, self.path.join(name)));
        written.inspect_err(|_| {
            // It holds half of what it should.
            let _gone = fs::remove_file(&new);
        })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_part) {
                let _gone = fs::remove_file(entry.path());
            }
        }
        // One that holds what others made stays.
        let _gone = fs::remove_dir(&self.path);
    }
}
