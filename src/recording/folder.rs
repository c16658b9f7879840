//! The folder of a recording: file names, and functions that create and read its files.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Metadata of the recording.
pub const MANIFEST: &str = "manifest.json";
/// The findings that triggered the flight recorder to write this recording.
pub const FINDINGS: &str = "findings.json";

/// The description of the machine.
pub const HOST: &str = "host.json";

/// The folder of individual I/Os.
pub const IOS: &str = "io";
/// The view with one file per interval, in a folder of this name: stacks in pprof's format.
pub const STACKS: &str = "stacks";

const TABLE: &str = ".ndjson.zst";

const PROFILE: &str = ".pb.gz";

/// Digits of an interval's number as written, and the maximum that is read: 10^9 intervals of one second are 31 years.
const DIGITS: usize = 6;
const MOST_DIGITS: usize = 9;

/// The file name of a view.
pub fn table(view: &str) -> String {
    format!("{view}{TABLE}")
}

/// The name of a file of I/Os.
pub fn part(number: u32) -> String {
    format!("part-{number:06}.parquet")
}

/// The file name of an interval's stacks.
pub fn profile(number: u64) -> String {
    format!("{number:0DIGITS$}{PROFILE}")
}

/// The number of the interval whose stacks have this file name.
pub fn interval(name: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(name).ok()?.strip_suffix(PROFILE)?;
    let is_number = (DIGITS..=MOST_DIGITS).contains(&digits.len());
    let number =
        digits.parse().ok().filter(|_| is_number && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    // Accept only the canonical name of a number.
    (profile(number).as_bytes() == name).then_some(number)
}

/// The view with this file name.
pub fn view(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok()?.strip_suffix(TABLE)
}

fn is_profile(name: &str) -> bool {
    interval(name.as_bytes()).is_some()
}

fn is_io_part(name: &str) -> bool {
    name.starts_with("part-") && name.ends_with(".parquet")
}

/// Whether a file of this name belongs to a recording, outside of its subfolders.
pub fn is_part(name: &str) -> bool {
    [MANIFEST, HOST].contains(&name) || view(name.as_bytes()).is_some()
}

/// The files of the recording, as paths relative to it.
pub fn parts(recording: &Path) -> io::Result<Vec<String>> {
    let names = |folder: &Path| -> io::Result<Vec<String>> {
        let all: Vec<fs::DirEntry> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
        Ok(all.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    let mut all = names(recording)?;
    all.retain(|name| is_part(name));
    for (folder, is_own) in [(STACKS, is_profile as fn(&str) -> bool), (IOS, is_io_part)] {
        // Do not follow a symbolic link: it leads out of the recording.
        if fs::symlink_metadata(recording.join(folder)).is_ok_and(|found| found.is_dir()) {
            let mut own = names(&recording.join(folder))?;
            own.retain(|name| is_own(name));
            all.extend(own.into_iter().map(|name| format!("{folder}/{name}")));
        }
    }
    // The manifest comes first, then the description of the machine.
    all.sort_by_key(|name| (name != MANIFEST, name != HOST, name.clone()));
    Ok(all)
}

/// Removes the file of a view that is not recorded: an empty file would look like a view without events.
pub fn discard(recording: &Path, view: &str) {
    let _gone = match view {
        STACKS => fs::remove_dir(recording.join(STACKS)),
        _ => fs::remove_file(recording.join(table(view))),
    };
}

/// Writes a file atomically, readable by its owner only. On error the existing file stays.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| {
        // Incomplete.
        let _gone = fs::remove_file(&new);
    })
}

/// Opens a file of a recording. It refuses a symbolic link, which leads out of the recording, and a pipe, which would
/// block.
///
/// # Errors
/// If the file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// The folder of a recording in progress. On drop, it and the files that biopsy created in it are removed, unless it
/// was [kept](Self::keep).
pub struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// Creates it, accessible by its owner only.
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

    /// Writes a file atomically. On error the existing file stays.
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
        // Both are empty until the measured interval begins.
        let _gone = fs::remove_dir(self.path.join(IOS));
        let _gone = fs::remove_dir(self.path.join(STACKS));
        // Fails if the folder contains files of others: it stays then.
        let _gone = fs::remove_dir(&self.path);
    }
}
