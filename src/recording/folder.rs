//! The folder of a recording, and the names in it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the recording says of itself.
pub const MANIFEST: &str = "manifest.json";
/// What the flight recorder found, where it wrote a recording for that.
pub const FINDINGS: &str = "findings.json";

/// The machine.
pub const HOST: &str = "host.json";

/// The folder of I/Os, one by one.
pub const IOS: &str = "io";
/// The view whose intervals are files of their own, in a folder of its name: stacks as pprof reads them.
pub const STACKS: &str = "stacks";

const TABLE: &str = ".ndjson.zst";

const PROFILE: &str = ".pb.gz";

/// Digits of an interval's number, and the most that are read: more intervals than 31 years have seconds.
const DIGITS: usize = 6;
const MOST_DIGITS: usize = 9;

/// The file of a view.
pub fn table(view: &str) -> String {
    format!("{view}{TABLE}")
}

/// A file of I/Os.
pub fn part(number: u32) -> String {
    format!("part-{number:06}.parquet")
}

/// The file of an interval's stacks.
pub fn profile(number: u64) -> String {
    format!("{number:0DIGITS$}{PROFILE}")
}

/// The interval whose stacks are in a file of this name.
pub fn interval(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name).ok()?.strip_suffix(PROFILE)?;
    let is_number = (DIGITS..=MOST_DIGITS).contains(&digits.len());
    let number =
        digits.parse().ok().filter(|_| is_number && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    // Each has one name.
    (profile(number).as_bytes() == name).then_some(number)
}

/// The view of a file.
pub fn view(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()?.strip_suffix(TABLE)
}

fn is_profile(name: &str) -> bool {
    interval(name.as_bytes()).is_some()
}

fn is_io_part(name: &str) -> bool {
    name.starts_with("part-") && name.ends_with(".parquet")
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
    all.retain(|name| is_part(name));
    for (folder, is_own) in [(STACKS, is_profile as fn(&str) -> bool), (IOS, is_io_part)] {
        // A link leads out of it.
        if fs::symlink_metadata(recording.join(folder)).is_ok_and(|found| found.is_dir()) {
            let mut own = names(&recording.join(folder))?;
            own.retain(|name| is_own(name));
            all.extend(own.into_iter().map(|name| format!("{folder}/{name}")));
        }
    }
    // What the recording is of comes first.
    all.sort_by_key(|name| (name != MANIFEST, name != HOST, name.clone()));
    Ok(all)
}

/// Removes what was made for a view that is not recorded: an empty one would look like a view that saw nothing.
pub fn discard(recording: &Path, view: &str) {
    let _gone = match view {
        STACKS => fs::remove_dir(recording.join(STACKS)),
        _ => fs::remove_file(recording.join(table(view))),
    };
}

/// Writes a whole file, which only its owner may read, or leaves the one that was there.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| {
        // It holds half of what it should.
        let _gone = fs::remove_file(&new);
    })
}

/// Opens a part of a recording: a link would lead out of it, and a pipe would block.
///
/// # Errors
/// Where it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
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
        write(&self.path.join(name), bytes)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for name in parts(&self.path).unwrap_or_default() {
            let _gone = fs::remove_file(self.path.join(name));
        }
        // Nothing is in it before the window opens.
        let _gone = fs::remove_dir(self.path.join(IOS));
        let _gone = fs::remove_dir(self.path.join(STACKS));
        // One that holds what others made stays.
        let _gone = fs::remove_dir(&self.path);
    }
}
