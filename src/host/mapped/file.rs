//! Opens a file that a process has mapped, and detects whether it changed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Mapping, mappings};
use crate::host::elf::{BuildId, Elf};

/// Device and inode number of a file, as the kernel prints them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    pub device: (u32, u32),
    pub inode: u64,
}

impl FileId {
    pub fn of(file: &File) -> Option<Self> {
        let meta = file.metadata().ok()?;
        let device = (libc::major(meta.dev()), libc::minor(meta.dev()));
        Some(Self { device, inode: meta.ino() })
    }
}

/// A mapped file and its state when it was opened.
pub struct MappedFile {
    id: FileId,
    file: Option<File>,
    elf: Option<Elf>,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    owner: Owner,
}

/// The users who may write to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
    pub group_writes: bool,
    pub all_write: bool,
}

impl MappedFile {
    pub fn new(file: File) -> Option<Self> {
        let meta = file.metadata().ok()?;
        Some(Self {
            id: FileId::of(&file)?,
            elf: Elf::read(&file),
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            owner: Owner {
                user: meta.uid(),
                group: meta.gid(),
                group_writes: meta.mode() & 0o020 != 0,
                all_write: meta.mode() & 0o002 != 0,
            },
            file: Some(file),
        })
    }

    /// A placeholder for two files that can no longer be distinguished.
    pub(super) fn ambiguous(id: FileId) -> Self {
        let owner = Owner { user: 0, group: 0, group_writes: true, all_write: true };
        Self { id, file: None, elf: None, size: 0, modified: (0, 0), changed: (0, 0), owner }
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// None if it is not an ELF file.
    pub fn elf(&self) -> Option<&Elf> {
        self.elf.as_ref()
    }

    pub fn build_id(&self) -> Option<&BuildId> {
        self.elf.as_ref()?.build_id.as_ref()
    }

    /// Two files with the same build-id are interchangeable only if the same user owns both: any user can write any
    /// build-id into a file.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Size and modification time, which change with the content.
    pub fn stamp(&self) -> (u64, i64, i64) {
        (self.size, self.modified.0, self.modified.1)
    }

    /// The open file in its current state.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// The open file, if it has not changed since it was opened.
    pub fn unchanged(&self) -> Option<&File> {
        let file = self.file.as_ref()?;
        self.is_still(file).then_some(file)
    }

    /// Whether another descriptor refers to this file with this content.
    pub fn is_still(&self, file: &File) -> bool {
        let Ok(meta) = file.metadata() else { return false };
        let same = FileId::of(file) == Some(self.id) && meta.len() == self.size;
        let untouched = same && (meta.ctime(), meta.ctime_nsec()) == self.changed;
        match self.build_id() {
            // A touched file, or a copy in its place, still has the same build-id. The modification time alone proves
            // nothing: a writer may have reset it.
            Some(id) => untouched || Elf::read(file).and_then(|elf| elf.build_id).as_ref() == Some(id),
            None => same && (meta.mtime(), meta.mtime_nsec()) == self.modified,
        }
    }

    /// When its content or metadata last changed: ns since 1970, by a clock that may lag by a tick.
    pub(super) fn changed_ns(&self) -> i128 {
        i128::from(self.changed.0) * 1_000_000_000 + i128::from(self.changed.1)
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, file, elf, owner, .. } = self;
        write!(f, "MappedFile({id:?}, open: {}, owner: {owner:?}, {elf:?})", file.is_some())
    }
}

/// A mapped file equals only itself, because it represents an open file.
impl PartialEq for MappedFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// Opens the file of a mapping while its process lives.
pub(super) fn of_process(folder: &Path, mapping: &Mapping) -> Option<MappedFile> {
    // The kernel's link to the exact file, even if it is deleted or in another mount namespace.
    let link = folder.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    if let Some(file) = open_regular(&link, true) {
        return MappedFile::new(file);
    }
    // Without CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE: by its path, as the process sees it. Another file may be there.
    if mapping.deleted {
        return None;
    }
    at_path(&folder.join("root"), mapping)
}

/// Opens the file at the path of a mapping below `root`, if it is the mapped file.
pub fn at_path(root: &Path, mapping: &Mapping) -> Option<MappedFile> {
    if mapping.deleted {
        return None;
    }
    let mut path = root.as_os_str().to_os_string();
    path.push(std::ffi::OsStr::from_bytes(&mapping.path));
    let file = MappedFile::new(open_regular(Path::new(&path), true)?)?;
    let id = mapping.file_id();
    (file.id == id || file.file().and_then(id_as_mapped) == Some(id)).then_some(file)
}

/// The numbers that `/proc/PID/maps` has for a file: on btrfs and overlayfs they differ from those of `stat`.
fn id_as_mapped(file: &File) -> Option<FileId> {
    const BYTES: usize = 4096;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing executes, reads or writes it.
    let place = unsafe {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        libc::mmap(std::ptr::null_mut(), BYTES, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    if place == libc::MAP_FAILED {
        return None;
    }
    let maps = std::fs::read("/proc/self/maps").map(|text| mappings(&text)).unwrap_or_default();
    // SAFETY: mapped above, and no other code has its address.
    unsafe { libc::munmap(place, BYTES) };
    let at = place as u64;
    maps.iter().find(|mapping| (mapping.start..mapping.end).contains(&at)).map(Mapping::file_id)
}

/// Opens a file for reading if it is a regular one. Opening a FIFO may block, and opening a device may have side
/// effects.
pub fn open_regular(path: &Path, follow: bool) -> Option<File> {
    let flags = libc::O_CLOEXEC | libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW };
    let place = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let again = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
    OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(again).ok()
}

/// The number of mapped files that may stay open: a quarter of the process's limit of open files.
pub(super) fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes one rlimit that lives across the call.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        if result == 0 { usize::try_from(limit.rlim_cur / 4).unwrap_or(usize::MAX) } else { 64 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("biopsy-mapped-{name}-{}", std::process::id()))
    }

    #[test]
    fn only_regular_files_are_opened() {
        assert!(open_regular(Path::new("/dev/zero"), true).is_none());
        assert!(open_regular(Path::new("/"), true).is_none());
        let (file, link) = (scratch("file"), scratch("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_regular(&link, true).is_some() && open_regular(&link, false).is_none());
        let pipe = scratch("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: a name that ends in zero; the result is checked.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(open_regular(&pipe, true).is_none(), "and it does not wait for a writer");
        [file, link, pipe].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    /// The numbers hold whatever `stat` prints for the file system of this test.
    #[test]
    fn a_file_is_known_as_maps_tell_it() {
        let here = a_file_is_known_as_maps_tell_it as fn() as usize as u64;
        let all = mappings(&std::fs::read("/proc/self/maps").unwrap());
        let own = all.iter().find(|mapping| (mapping.start..mapping.end).contains(&here)).unwrap();
        assert_eq!(id_as_mapped(&File::open("/proc/self/exe").unwrap()), Some(own.file_id()));
        assert!(at_path(Path::new("/"), own).is_some());
        let other = Mapping { inode: own.inode + 1, ..own.clone() };
        assert!(at_path(Path::new("/"), &other).is_none(), "another file has the path");
        let gone = Mapping { deleted: true, ..own.clone() };
        assert!(at_path(Path::new("/"), &gone).is_none());
        assert!(at_path(Path::new("/nowhere"), own).is_none());
    }

    /// Overwritten in place: the new content was never executed.
    #[test]
    fn a_file_that_changed_is_not_what_ran() {
        let path = scratch("changed");
        std::fs::write(&path, "one").unwrap();
        let file = MappedFile::new(File::open(&path).unwrap()).unwrap();
        assert!(file.unchanged().is_some() && file.build_id().is_none());
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
        assert!(file.unchanged().is_none());
        std::fs::remove_file(&path).unwrap();
    }
}
