//! Opens regular files for writing: existing ones whose content may be lost, and new ones.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::claim::{self, CheckedFile, Machine, kept};
use super::device_graph::DeviceGraph;
use super::mounted;
use super::openers;
use super::permission::{self, Permission};
use crate::refusal::{Refusal, reason};

/// File systems whose files control the kernel or the firmware, by their magic number in linux/magic.h.
const SWITCHES: [(i64, &str); 15] = [
    (0x6573_5543, "fusectl"),
    (0x6e73_6673, "nsfs"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0xde5e_81e4, "efivarfs"),
    (0x6165_676c, "pstore"),
    (0x6265_6570, "configfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x1980_0202, "mqueue"),
];

/// Opens an existing file for reading and writing, if its content may be lost and nothing else uses it.
pub fn overwrite(
    machine: Machine<'_>,
    path: &Path,
    node: CheckedFile,
    permission: &Permission,
    flags: libc::c_int,
) -> Result<File, Refusal> {
    let name = path.display();
    let identity = (node.data.dev(), node.data.ino());
    if let Some((_, kind)) = SWITCHES.iter().find(|(magic, _)| *magic == node.file_system() & 0xffff_ffff) {
        return Err(Refusal::Refused(format!(
            "{name} is a switch of the kernel ({kind}), not data: name a file on a disk"
        )));
    }
    let ours = permission::made_here(identity);
    if !ours {
        permission.to_overwrite(path, identity)?;
        // The user did not allow the other name to be overwritten, and its users (a backup with hard links) would not
        // notice.
        if node.data.nlink() > 1 {
            return Err(Refusal::Refused(format!(
                "{name} has {} other names (hard links), whose content would be lost too: copy the file \
                 and name the copy",
                node.data.nlink() - 1
            )));
        }
    }
    let kin = DeviceGraph::of_file(machine.root, identity, &name.to_string())?;
    claim::nothing_above(path, &kin)?;
    let swap = mounted::swapped(machine.root, &kin).ok().flatten();
    if let Some((_, area)) = swap {
        return Err(kept(path, "it is used as swap", &format!("run swapoff {area}, or choose another one")));
    }
    (machine.meanwhile)();
    let file = node.open(true, flags).map_err(|error| cannot_write(path, &error))?;
    node.unchanged(path, &file)?;
    // The O_PATH descriptor would be counted as a user.
    drop(node);
    if !ours {
        // io_uring releases its files shortly after its user has ended, such as a run just before this one.
        claim::patiently(|| unshared(machine.root, path, &kin, &file))?;
    }
    Ok(file)
}

/// Refuses a file that another process has open. The kernel's count decides, where the file system supports leases;
/// visible processes give the name.
fn unshared(root: &Path, path: &Path, kin: &DeviceGraph, file: &File) -> Result<(), Refusal> {
    /// F_SETSIG: the signal for a broken lease, instead of SIGIO, which would end this process. SIGURG is ignored by
    /// default.
    const SET_SIGNAL: (libc::c_int, libc::c_int) = (10, libc::SIGURG);
    let control = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: the descriptor is open, and the commands take a plain number.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let lease = |kind| control(libc::F_SETLEASE, kind);
    let shared = match control(SET_SIGNAL.0, SET_SIGNAL.1).and_then(|()| lease(libc::F_WRLCK)) {
        Ok(()) => {
            lease(libc::F_UNLCK).map_err(|error| cannot_write(path, &error))?;
            return Ok(());
        }
        Err(error) => error.raw_os_error() == Some(libc::EAGAIN),
    };
    let opener = openers::scan(root, kin, &[file.as_raw_fd()]).ok().and_then(|seen| seen.opener);
    match opener {
        Some(opener) => Err(claim::opened(path, &opener)),
        None if shared => Err(kept(
            path,
            "a process that is not visible here has it open",
            "run as root to see which one, or choose another file",
        )),
        None => Ok(()),
    }
}

/// Creates a file of `bytes` bytes, all holes or allocated and unwritten; None where it exists already.
pub fn make(path: &Path, bytes: u64, flags: libc::c_int) -> Result<Option<File>, Refusal> {
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(path);
    let file = match made {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(cannot_make(path, &error)),
    };
    let prepare = || {
        // Set afterwards: some kernels create the file before they find out that O_DIRECT is not supported.
        // SAFETY: the descriptor is open, and the commands take and return plain flags.
        let done = unsafe {
            match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
                now if now < 0 => now,
                now => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, now | flags),
            }
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        allocate(&file, bytes)?;
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        let kept = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(itself)?;
        let data = file.metadata()?;
        permission::remember((data.dev(), data.ino()), kept);
        Ok(())
    };
    match prepare() {
        Ok(()) => Ok(Some(file)),
        Err(error) => {
            unmake(path, &file);
            Err(cannot_make(path, &error))
        }
    }
}

/// Removes a file that was just created and is not needed, unless its name refers to another file by now.
pub fn unmake(path: &Path, file: &File) {
    let (made, named) = (file.metadata(), std::fs::symlink_metadata(path));
    if let (Ok(made), Ok(named)) = (made, named)
        && (made.dev(), made.ino()) == (named.dev(), named.ino())
    {
        let _kept = std::fs::remove_file(path);
    }
}

/// Extends a file to at least this length. Existing content stays, its holes too, so [`shorten`] can undo it. After a
/// failure a part may be allocated.
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    let before = file.metadata()?.len();
    if before >= bytes {
        return Ok(());
    }
    let offset = libc::off_t::try_from(before).map_err(io::Error::other)?;
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)? - offset;
    loop {
        // SAFETY: the descriptor is open for writing; mode 0 changes nothing but the allocation and size.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // Some file systems do not support it: then the writes allocate.
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return file.set_len(bytes),
            _ => return Err(error),
        }
    }
}

/// Restores the length that a file had before it was extended, and frees what was allocated after that.
pub fn shorten(file: &File, before: u64) -> io::Result<()> {
    // Not if it was shortened meanwhile.
    if file.metadata()?.len() < before { Ok(()) } else { file.set_len(before) }
}

fn cannot_write(path: &Path, error: &io::Error) -> Refusal {
    let name = path.display();
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::ETXTBSY) => format!("{name} is a program that runs, or swap: choose another file"),
        Some(libc::EPERM) => {
            format!("{name} is immutable or only to be appended to (lsattr shows it): choose another file")
        }
        Some(libc::EACCES) => format!("no permission to write {name}: choose a file of your own"),
        Some(libc::EROFS) => format!("the file system of {name} is read-only: choose a file on another one"),
        Some(libc::EINVAL) => {
            return super::refused(path, crate::load::direct::Obstacle::Unsupported);
        }
        _ => format!("cannot write {name}: {}; choose another file", reason(error)),
    })
}

/// The sentence for an existing file that cannot be extended.
pub fn cannot_grow(
    path: &Path,
    before: u64,
    bytes: u64,
    error: &io::Error,
    undone: io::Result<()>,
) -> Refusal {
    let name = path.display();
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) => "choose a smaller --size or another directory",
        _ => "choose another file",
    };
    let state = match undone {
        Ok(()) => format!("it has its {before} bytes as before"),
        Err(error) => format!("its old length of {before} bytes could not be restored ({})", reason(&error)),
    };
    Refusal::Refused(format!("cannot make {name} {bytes} bytes long: {}; {state}; {remedy}", reason(error)))
}

/// The sentence for a file that cannot be created.
pub fn cannot_make(path: &Path, error: &io::Error) -> Refusal {
    let name = path.display();
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::ENOENT) => format!("cannot make {name}: its directory does not exist; make that first"),
        Some(libc::EACCES | libc::EPERM) => {
            format!("no permission to make {name}: choose a directory that you can write to")
        }
        Some(libc::EROFS) => format!("cannot make {name}: the file system is read-only; choose another one"),
        Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) => {
            format!("no room to make {name}: {}; choose a smaller --size or another directory", reason(error))
        }
        Some(libc::EINVAL) => {
            return super::refused(path, crate::load::direct::Obstacle::Unsupported);
        }
        _ => format!("cannot make {name}: {}; choose another path", reason(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("biopsy-content-{name}-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn what_was_allocated_is_given_back_and_what_was_there_stays() {
        let (path, mut file) = file("shorten");
        file.write_all(&[7; 10_000]).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap();
        allocate(&file, 4 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 << 20);
        shorten(&file, before.len()).unwrap();
        let after = file.metadata().unwrap();
        assert_eq!((after.len(), after.blocks()), (before.len(), before.blocks()));
        file.set_len(100).unwrap();
        shorten(&file, 10_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100, "somebody else made it shorter");
        assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn holes_of_a_file_that_becomes_longer_stay_holes() {
        let (path, file) = file("holes");
        file.set_len(8 << 20).unwrap();
        allocate(&file, (8 << 20) + 4096).unwrap();
        let data = file.metadata().unwrap();
        assert_eq!(data.len(), (8 << 20) + 4096);
        assert!(data.blocks() * 512 < 1 << 20, "{}", data.blocks());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_cannot_grow_is_said_to_be_as_it_was() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        let why = |undone| cannot_grow(Path::new("/a"), 5, 9, &full, undone).to_string();
        assert!(why(Ok(())).contains("cannot make /a 9 bytes long: no space left"), "{}", why(Ok(())));
        assert!(why(Ok(())).contains("it has its 5 bytes as before; choose a smaller --size"));
        let failed = io::Error::from_raw_os_error(libc::EIO);
        assert!(why(Err(failed)).contains("its old length of 5 bytes could not be restored"));
    }
}
