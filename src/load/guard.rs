//! What may be opened, and how: nothing that was there before is ever opened for writing.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::direct::{self, Obstacle};
use crate::refusal::{Refusal, reason};

/// The largest block: one request of io_uring, and one registered buffer, is at most 1 GiB.
const MAX_BS: u64 = 1 << 30;

/// A target that can be read directly.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    /// Its path without links, for reports.
    pub name: String,
    pub bytes: u64,
    pub block: u64,
    pub device: Option<String>,
}

/// Opens a device or file for reading, after a look at what it is.
pub fn existing(path: &Path) -> Result<Opened, Refusal> {
    let name = path.display();
    let metadata = fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    // Opening some character devices does something (a watchdog starts, a tape rewinds), opening a
    // FIFO waits for a writer: look first.
    readable_kind(path, metadata.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        // O_NONBLOCK: if the path became a FIFO in between, do not hang.
        .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| cannot_open(path, &e))?;
    let mut file = file;
    let kind = file.metadata().map_err(|e| cannot_open(path, &e))?.file_type();
    readable_kind(path, kind)?;
    blocking(&file).map_err(|e| cannot_open(path, &e))?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(|e| cannot_open(path, &e))?;
    if bytes == 0 {
        return Err(Refusal::Usage(format!("{name} is empty: name a device or file with something to read")));
    }
    let facts = direct::facts(&file, Path::new("/")).map_err(|o| refused(path, o))?;
    if bytes >= facts.block {
        direct::try_read(&file, facts.block).map_err(|o| refused(path, o))?;
    }
    let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    Ok(Opened { file, name: resolved.display().to_string(), bytes, block: facts.block, device: facts.device })
}

/// How many blocks of `bs` bytes the offsets cover.
///
/// `bytes` is the size of the target `name`, `block` its smallest unit, `size` how much of it was
/// asked for.
pub fn blocks(name: &str, bytes: u64, block: u64, size: Option<u64>, bs: u64) -> Result<u64, Refusal> {
    let usage = |why: String| Err(Refusal::Usage(why));
    if bs == 0 || !bs.is_multiple_of(block) {
        return usage(format!(
            "block size {bs} is not a multiple of {block}, the logical block of {name}: choose --bs {block} or a multiple of it"
        ));
    }
    if bs > MAX_BS {
        return usage(format!(
            "block size {bs} is above {MAX_BS}, the most that one request reads: choose a smaller --bs"
        ));
    }
    let size = size.unwrap_or(bytes);
    if size > bytes {
        return usage(format!(
            "--size {size} is above the {bytes} bytes of {name}: choose a smaller one or leave it out"
        ));
    }
    if bs > size {
        return usage(format!(
            "block size {bs} is above the {size} bytes to read of {name}: choose a smaller --bs"
        ));
    }
    Ok(size / bs)
}

/// The sentence for a file whose file system cannot do direct I/O.
pub fn refused(path: &Path, obstacle: Obstacle) -> Refusal {
    match obstacle {
        Obstacle::Unsupported => Refusal::Refused(format!(
            "the file system of {} does no direct I/O (O_DIRECT): choose a path on a disk, or a block device",
            path.display()
        )),
        Obstacle::Failed(error) => cannot_open(path, &error),
    }
}

/// The sentence for a path that cannot be opened.
pub fn cannot_open(path: &Path, error: &io::Error) -> Refusal {
    let name = path.display();
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::ENOENT) => {
            format!("{name} does not exist: name a block device, a file, or with --scratch a directory")
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "no permission to read {name}: run as root (in a container, outside of it), or choose a file or \
                 directory of your own"
            )
        }
        Some(libc::EINVAL) => return refused(path, Obstacle::Unsupported),
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            format!("no device behind {name} ({}): plug it in, or name another one", reason(error))
        }
        _ => format!("cannot read {name}: {}; choose another device or file", reason(error)),
    })
}

/// A regular file or a block device.
fn readable_kind(path: &Path, kind: FileType) -> Result<(), Refusal> {
    let name = path.display();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(Refusal::Usage(format!(
            "{name} is a directory: name a file in it, or add --scratch to make, read and remove a file there"
        )));
    }
    let what = if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "no file"
    };
    Err(Refusal::Usage(format!("{name} is {what}: name a block device or a regular file")))
}

/// Takes O_NONBLOCK away again: with it, io_uring answers EAGAIN where it would else wait.
fn blocking(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these commands take and return plain flags.
    let done = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            flags if flags < 0 => flags,
            flags => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK),
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_must_fit_the_logical_block_and_the_target() {
        assert_eq!(blocks("f", 1 << 20, 512, None, 4096), Ok(256));
        assert_eq!(blocks("f", 10_000, 512, None, 4096), Ok(2), "the rest of the file is not covered");
        assert_eq!(blocks("f", 1 << 20, 512, Some(8192), 4096), Ok(2));
        for (size, bs) in [(None, 1000), (None, 0), (None, 2 << 20), (Some(2 << 20), 4096), (Some(512), 4096)]
        {
            assert!(matches!(blocks("f", 1 << 20, 512, size, bs), Err(Refusal::Usage(_))), "{size:?} {bs}");
        }
        assert!(blocks("f", 1 << 20, 4096, None, 512).is_err(), "a 4Kn disk");
        assert!(blocks("f", 1 << 40, 512, None, 2 << 30).is_err());
    }

    #[test]
    fn only_files_and_block_devices_are_opened() {
        let refusal = existing(Path::new("/dev/null")).unwrap_err();
        assert!(matches!(&refusal, Refusal::Usage(why) if why.contains("character device")), "{refusal}");
        let refusal = existing(Path::new("/")).unwrap_err();
        assert!(matches!(&refusal, Refusal::Usage(why) if why.contains("--scratch")), "{refusal}");
    }

    #[test]
    fn reading_waits_where_it_has_to() {
        let exe = std::env::current_exe().unwrap();
        // A test directory without direct I/O is refused elsewhere; nothing to see then.
        if let Ok(opened) = existing(&exe) {
            // SAFETY: F_GETFL takes nothing and returns flags.
            let flags = unsafe { libc::fcntl(opened.file.as_raw_fd(), libc::F_GETFL) };
            assert_eq!(flags & (libc::O_NONBLOCK | libc::O_ACCMODE), libc::O_RDONLY);
            assert_ne!(flags & libc::O_DIRECT, 0);
        }
    }
}
