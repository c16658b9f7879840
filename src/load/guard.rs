//! Decides what may be opened, and how. Targets are opened read-only by default. Existing data is opened for writing
//! only if the user named it for that and nothing else uses it.
//!
//! A device or file is written only if it is
//!
//! - permitted ([`Permission`]): `--write`, and the exact kernel name or the file itself,
//! - unused: neither it nor anything on the same storage (`device_graph`) is mounted or swapped to in any mount
//!   namespace (`mounted`), open or mapped in any process (`openers`), or below another device,
//! - not the disk of the root file system in any way,
//! - claimed: opened with O_EXCL before the last check, by the inode that was checked and not by its name (`claim`).
//!
//! What cannot be checked is refused, if it is known that it cannot be checked: unreadable processes, a PID namespace,
//! `hidepid`. Some users stay undetected: other machines on the same storage, drivers in user space (SPDK, virtual
//! machines with the whole controller), descriptors in flight through a socket, and programs that open the device for
//! shared use after the last check.

mod claim;
mod content;
mod device_graph;
mod mounted;
mod openers;
mod permission;

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use claim::Machine;
pub use content::allocate;
pub use permission::Permission;

use self::claim::CheckedFile;
use self::device_graph::unpacked;
use super::direct::{self, Facts, Obstacle};
use super::sequence::RegionTarget;
use crate::refusal::{Refusal, reason};

/// An open target, readable, and writable if it was opened for that.
///
/// A claimed device stays claimed while this lives: keep it until the last I/O is done.
#[derive(Debug)]
pub struct GuardedTarget {
    pub file: File,
    /// Path without symbolic links, for reports.
    pub name: String,
    pub bytes: u64,
    /// Offsets and lengths must be multiples of this.
    pub block: u64,
    /// The whole disk below; None where there is none.
    pub device: Option<String>,
    /// A block device, or the character device of a namespace; not a regular file.
    pub is_device: bool,
    change: Change,
    /// Further devices that are claimed.
    _claims: Vec<File>,
}

/// What opening changed about a file.
#[derive(Debug)]
enum Change {
    Nothing,
    /// Created at this path.
    Made(PathBuf),
    /// Extended from this length.
    Grown(u64),
}

impl GuardedTarget {
    /// An unnamed file that the run created.
    pub fn scratch(file: File, name: String, bytes: u64, facts: direct::Facts) -> Self {
        let direct::Facts { block, device } = facts;
        let (change, _claims) = (Change::Nothing, Vec::new());
        Self { file, name, bytes, block, device, is_device: false, change, _claims }
    }

    /// For the engine `null`: a name and a length.
    pub fn nothing(name: String, bytes: u64) -> io::Result<Self> {
        let facts = direct::Facts { block: 1, device: None };
        Ok(Self::scratch(File::open("/dev/null")?, name, bytes, facts))
    }

    /// Whether it did not exist before.
    pub fn is_new(&self) -> bool {
        matches!(self.change, Change::Made(_))
    }

    /// Deletes a created file and restores the length of an extended one, when the run is cancelled. Errors are
    /// ignored: the refusal that caused this says more.
    pub fn undo(&self) {
        match &self.change {
            Change::Nothing => {}
            // The next run would take a partly filled file for a complete one.
            Change::Made(path) => content::unmake(path, &self.file),
            Change::Grown(before) => {
                let _left = content::shorten(&self.file, *before);
            }
        }
    }

    /// The target as the whole that regions are parts of.
    pub fn whole(&self) -> RegionTarget<'_> {
        RegionTarget { name: &self.name, bytes: self.bytes, block: self.block, is_device: self.is_device }
    }
}

/// Opens a device or file for reading, after checking its type. `direct`: bypasses the page cache.
pub fn existing(path: &Path, direct: bool) -> Result<GuardedTarget, Refusal> {
    let metadata = fs::metadata(path).map_err(|e| cannot_open(path, &e))?;
    // Opening has side effects for some character devices (a watchdog starts, a tape rewinds), and blocks for a FIFO:
    // check first.
    readable_kind(path, metadata.file_type())?;
    let file = OpenOptions::new()
        .read(true)
        // O_NONBLOCK: does not hang if the path became a FIFO in between.
        .custom_flags(flags(direct) | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| cannot_open(path, &e))?;
    let kind = file.metadata().map_err(|e| cannot_open(path, &e))?.file_type();
    readable_kind(path, kind)?;
    opened(path, file, Vec::new(), direct)
}

/// Opens a device or file for reading and writing, or trimming, after every check.
///
/// The returned target claims a device as long as it lives. Two jobs on one device share it, because a second claim
/// would be refused like any other process's.
pub fn writable(path: &Path, permission: &Permission, direct: bool) -> Result<GuardedTarget, Refusal> {
    Machine::here().writable(path, permission, direct)
}

/// Creates and opens a file of `bytes` bytes for reading and writing; also accepts a file that this run created before.
/// An existing file needs `--overwrite`, and is extended to `bytes` if it is shorter.
///
/// Parts that are not written yet read as zeroes without I/O: fill the file before reading it.
pub fn created(
    path: &Path,
    bytes: u64,
    permission: &Permission,
    direct: bool,
) -> Result<GuardedTarget, Refusal> {
    Machine::here().created(path, bytes, permission, direct)
}

/// Opens the character device of an NVMe namespace (`/dev/ng0n1`) for commands that bypass the block layer. Commands
/// that write or trim need a permission, and the checks of its block device apply.
pub fn passthrough(path: &Path, permission: Option<&Permission>) -> Result<GuardedTarget, Refusal> {
    Machine::here().passthrough(path, permission)
}

impl Machine<'_> {
    /// See [`writable`].
    pub fn writable(
        self,
        path: &Path,
        permission: &Permission,
        direct: bool,
    ) -> Result<GuardedTarget, Refusal> {
        permission.to_write(path)?;
        let _turn = claim::turn();
        self.write(path, permission, direct)
    }

    fn write(self, path: &Path, permission: &Permission, direct: bool) -> Result<GuardedTarget, Refusal> {
        let node = CheckedFile::of(path).map_err(|e| cannot_open(path, &e))?;
        readable_kind(path, node.data.file_type())?;
        let Some(number) = claim::block_number(&node.data) else {
            let file = content::overwrite(self, path, node, permission, flags(direct))?;
            return opened(path, file, Vec::new(), direct);
        };
        permission.to_destroy(path, &[&device_graph::name(self.root, number)?])?;
        let open = || node.open(true, flags(direct) | libc::O_EXCL);
        let (file, claims) = claim::claim(self, path, number, &[node.fd()], &open)?;
        node.unchanged(path, &file)?;
        match claim::is_read_only(&file) {
            Ok(false) => opened(path, file, claims, direct),
            Ok(true) => Err(claim::read_only(path)),
            Err(error) => Err(cannot_open(path, &error)),
        }
    }

    /// See [`created`].
    pub fn created(
        self,
        path: &Path,
        bytes: u64,
        permission: &Permission,
        direct: bool,
    ) -> Result<GuardedTarget, Refusal> {
        permission.to_write(path)?;
        let _turn = claim::turn();
        if bytes == 0 {
            return Err(Refusal::Usage(format!("{} would be empty: add --size", path.display())));
        }
        if let Some(file) = content::make(path, bytes, flags(direct))? {
            let made = file.try_clone().map_err(|e| cannot_open(path, &e))?;
            return opened(path, file, Vec::new(), direct)
                .map(|opened| GuardedTarget { change: Change::Made(path.to_path_buf()), ..opened })
                .inspect_err(|_| content::unmake(path, &made));
        }
        let node = CheckedFile::of(path).map_err(|e| cannot_open(path, &e))?;
        if !node.data.is_file() {
            return self.write(path, permission, direct);
        }
        let file = content::overwrite(self, path, node, permission, flags(direct))?;
        let before = file.metadata().map_err(|e| cannot_open(path, &e))?.len();
        content::allocate(&file, bytes).map_err(|error| {
            let undone = content::shorten(&file, before);
            content::cannot_grow(path, before, bytes, &error, undone)
        })?;
        let grown = file.try_clone().map_err(|e| cannot_open(path, &e))?;
        match opened(path, file, Vec::new(), direct) {
            Ok(opened) if before < bytes => Ok(GuardedTarget { change: Change::Grown(before), ..opened }),
            Ok(opened) => Ok(opened),
            Err(refusal) => {
                let _left = content::shorten(&grown, before);
                Err(refusal)
            }
        }
    }

    /// See [`passthrough`].
    pub fn passthrough(self, path: &Path, permission: Option<&Permission>) -> Result<GuardedTarget, Refusal> {
        if let Some(permission) = permission {
            permission.to_write(path)?;
        }
        let _turn = claim::turn();
        let node = CheckedFile::of(path).map_err(|e| cannot_open(path, &e))?;
        let shown = path.display();
        let not_one = || {
            Refusal::Usage(format!(
                "{shown} is not the character device of an NVMe namespace, which io_uring_cmd needs: name one of \
                 /dev/ng*, or choose another --ioengine"
            ))
        };
        if !node.data.file_type().is_char_device() {
            return Err(not_one());
        }
        let (number, generic) =
            device_graph::namespace_of(self.root, unpacked(node.data.rdev())).ok_or_else(not_one)?;
        let (file, claims) = match permission {
            None => (node.open(false, 0).map_err(|e| cannot_open(path, &e))?, Vec::new()),
            Some(permission) => {
                let namespace = device_graph::name(self.root, number)?;
                permission.to_destroy(path, &[&generic, &namespace])?;
                let block = device_graph::node(self.root, &namespace, number).ok_or_else(|| {
                    Refusal::Refused(format!(
                        "/dev/{namespace}, the block device of {shown}, does not exist, so it cannot be \
                         claimed: start udev"
                    ))
                })?;
                let block = CheckedFile::of(&block).map_err(|e| cannot_open(path, &e))?;
                let claimed = || block.open(true, libc::O_EXCL);
                let own = [node.fd(), block.fd()];
                let (claimed, mut claims) = claim::claim(self, path, number, &own, &claimed)?;
                if claim::is_read_only(&claimed).map_err(|e| cannot_open(path, &e))? {
                    return Err(claim::read_only(path));
                }
                claims.push(claimed);
                (node.open(true, 0).map_err(|e| cannot_open(path, &e))?, claims)
            }
        };
        node.unchanged(path, &file)?;
        blocking(&file).map_err(|e| cannot_open(path, &e))?;
        let size = device_graph::size(self.root, number).filter(|(bytes, _)| *bytes > 0);
        let (bytes, block) = size.ok_or_else(|| {
            Refusal::Refused(format!("the kernel reports no size for {shown}: attach the namespace"))
        })?;
        Ok(GuardedTarget {
            file,
            name: node.path.display().to_string(),
            bytes,
            block,
            device: crate::host::select::disk_of_number(self.root, number.0, number.1),
            is_device: true,
            change: Change::Nothing,
            _claims: claims,
        })
    }
}

/// Collects the facts about an opened file.
fn opened(path: &Path, mut file: File, claims: Vec<File>, direct: bool) -> Result<GuardedTarget, Refusal> {
    blocking(&file).map_err(|e| cannot_open(path, &e))?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(|e| cannot_open(path, &e))?;
    if bytes == 0 {
        let name = path.display();
        return Err(Refusal::Usage(format!("{name} is empty: name a device or file with something in it")));
    }
    let data = file.metadata().map_err(|e| cannot_open(path, &e))?;
    let is_device = data.file_type().is_block_device();
    let facts = match direct::facts(&file, Path::new("/")) {
        // Through the page cache any file can be read, in any unit.
        Err(Obstacle::Unsupported) if !direct => {
            let (major, minor) = unpacked(data.dev());
            Facts { block: 1, device: crate::host::select::disk_of_number(Path::new("/"), major, minor) }
        }
        Ok(facts) if !direct && !is_device => Facts { block: 1, ..facts },
        facts => facts.map_err(|o| refused(path, o))?,
    };
    if direct && bytes >= facts.block {
        direct::try_read(&file, facts.block).map_err(|o| refused(path, o))?;
    }
    let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    Ok(GuardedTarget {
        file,
        name: resolved.display().to_string(),
        bytes,
        block: facts.block,
        device: facts.device,
        is_device,
        change: Change::Nothing,
        _claims: claims,
    })
}

fn flags(direct: bool) -> libc::c_int {
    if direct { libc::O_DIRECT } else { 0 }
}

/// The message for a file system without direct I/O.
pub fn refused(path: &Path, obstacle: Obstacle) -> Refusal {
    match obstacle {
        Obstacle::Unsupported => Refusal::Refused(format!(
            "the file system of {} does no direct I/O (O_DIRECT): choose a path on a disk, or a block device",
            path.display()
        )),
        Obstacle::Failed(error) => cannot_open(path, &error),
    }
}

/// The message for a path that cannot be opened.
pub fn cannot_open(path: &Path, error: &io::Error) -> Refusal {
    let name = path.display();
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::ENOENT) => {
            let device = Path::new("/dev").join(path);
            if path.components().count() == 1 && device.exists() {
                format!("no file {name} here: name the device as {}", device.display())
            } else {
                format!("{name} does not exist: name a block device, a file, or with --scratch a directory")
            }
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

/// Accepts a regular file or a block device.
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

/// Clears O_NONBLOCK: with it, io_uring returns EAGAIN instead of waiting.
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
    fn only_files_and_block_devices_are_opened() {
        let refusal = existing(Path::new("/dev/null"), true).unwrap_err();
        assert!(matches!(&refusal, Refusal::Usage(why) if why.contains("character device")), "{refusal}");
        let refusal = existing(Path::new("/"), true).unwrap_err();
        assert!(matches!(&refusal, Refusal::Usage(why) if why.contains("--scratch")), "{refusal}");
    }

    #[test]
    fn reading_waits_where_it_has_to() {
        let exe = std::env::current_exe().unwrap();
        // Other tests cover a test directory without direct I/O.
        if let Ok(opened) = existing(&exe, true) {
            // SAFETY: F_GETFL takes nothing and returns flags.
            let flags = unsafe { libc::fcntl(opened.file.as_raw_fd(), libc::F_GETFL) };
            assert_eq!(flags & (libc::O_NONBLOCK | libc::O_ACCMODE), libc::O_RDONLY);
            assert_ne!(flags & libc::O_DIRECT, 0);
        }
    }
}
