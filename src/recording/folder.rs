//! The folder of a recording, and the names in it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the recording says of itself.
pub const MANIFEST: &str = "manifest.json";
/// The machine.
pub const HOST: &str = "host.json";

/// The folder of I/Os, one by one.
pub const IOS: &str = "io";

const TABLE: &str = ".ndjson.zst";

/// The file of a view.
pub fn table(view: &str) -> String {
    format!("{view}{TABLE}")
}

/// A file of I/Os.
pub fn part(number: u32) -> String {
    format!("part-{number:06}.parquet")
}

/// The view of a file.
pub fn view(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()?.strip_suffix(TABLE)
}

/// Whether a file of this name is a part of a recording, beside the folders in it.
pub fn is_part(name: &str) -> bool {
    [MANIFEST, HOST].contains(&name) || view(name.as_bytes()).is_some()
}

/// The parts of the recording, by their paths in it.
pub fn parts(recording: &Path) -> io::Result<Vec<String>> {
    let names = |folder: &Path| -> io::Result<Vec<String>> {
        let all: Vec<fs::DirEntry> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
        Ok(all.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    let mut all = names(recording)?;
    let has_ios = all.iter().any(|name| name == IOS);
    all.retain(|name| is_part(name));
    if has_ios {
        let mut ios = names(&recording.join(IOS))?;
        ios.retain(|name| name.starts_with("part-") && name.ends_with(".parquet"));
        all.extend(ios.into_iter().map(|name| format!("{IOS}/{name}")));
    }
    // What the recording is of comes first.
    all.sort_by_key(|name| (name != MANIFEST, name != HOST, name.clone()));
    Ok(all)
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
        // Nothing is in it before the window opens.
        let _gone = fs::remove_dir(self.path.join(IOS));
        // One that holds what others made stays.
        let _gone = fs::remove_dir(&self.path);
    }
}
