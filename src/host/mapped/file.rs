//! A file that a process has mapped.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Mapping, mappings};
use crate::host::elf::{BuildId, Elf};

/// A file as the kernel knows it.
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

/// What it was when it was opened.
pub struct MappedFile {
    id: FileId,
    file: Option<File>,
    elf: Option<Elf>,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    owner: Owner,
}

/// Who may write into a file.
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

    /// Stands for two files that cannot be told apart any more.
    pub(super) fn ambiguous(id: FileId) -> Self {
        let owner = Owner { user: 0, group: 0, group_writes: true, all_write: true };
        Self { id, file: None, elf: None, size: 0, modified: (0, 0), changed: (0, 0), owner }
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// None where it is no ELF file.
    pub fn elf(&self) -> Option<&Elf> {
        self.elf.as_ref()
    }

    pub fn build_id(&self) -> Option<&BuildId> {
        self.elf.as_ref()?.build_id.as_ref()
    }

    /// Two files with the same build-id may stand for each other only if the same user made both: anybody can write
    /// any build-id into a file.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Changes with the content.
    pub fn stamp(&self) -> (u64, i64, i64) {
        (self.size, self.modified.0, self.modified.1)
    }

    /// The open file as it is now.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// The open file, when it still has what it had when it was opened.
    pub fn unchanged(&self) -> Option<&File> {
        let file = self.file.as_ref()?;
        self.is_still(file).then_some(file)
    }

    /// Whether another descriptor is of this file with this content.
    pub fn is_still(&self, file: &File) -> bool {
        let Ok(meta) = file.metadata() else { return false };
        let same = FileId::of(file) == Some(self.id) && meta.len() == self.size;
        let untouched = same && (meta.ctime(), meta.ctime_nsec()) == self.changed;
        match self.build_id() {
            // Who only touched it, or put a copy in its place, changed nothing; who wrote into it may have put the time
            // of its content back.
            Some(id) => untouched || Elf::read(file).and_then(|elf| elf.build_id).as_ref() == Some(id),
            None => same && (meta.mtime(), meta.mtime_nsec()) == self.modified,
        }
    }

    /// When its content, or what is known of it, last changed: ns since 1970, by a clock that may lag by a tick.
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

/// One is equal to itself only: what it stands for is an open file.
impl PartialEq for MappedFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// Opens the file of a mapping while its process lives.
pub(super) fn of_process(folder: &Path, mapping: &Mapping) -> Option<MappedFile> {
    // The kernel's own way to the very file: deleted, in another mount namespace, or both.
    let link = folder.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    if let Some(file) = open_regular(&link, true) {
        return MappedFile::new(file);
    }
    // Without CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE: by its path, as the process sees it. Something else may be
    // there.
    if mapping.deleted {
        return None;
    }
    at_path(&folder.join("root"), mapping)
}

/// Opens what has the path of a mapping below `root`, when it is the mapped file.
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

/// A file as it is told of a mapping of it: btrfs and overlayfs have other numbers there than in `stat`.
fn id_as_mapped(file: &File) -> Option<FileId> {
    const BYTES: usize = 4096;
    // SAFETY: a new mapping at a place of the kernel's choice; nobody executes, reads or writes it.
    let place = unsafe {
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        libc::mmap(std::ptr::null_mut(), BYTES, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
    };
    if place == libc::MAP_FAILED {
        return None;
    }
    let maps = std::fs::read("/proc/self/maps").map(|text| mappings(&text)).unwrap_or_default();
    // SAFETY: just mapped, and nobody else knows of it.
    unsafe { libc::munmap(place, BYTES) };
    let at = place as u64;
    maps.iter().find(|mapping| (mapping.start..mapping.end).contains(&at)).map(Mapping::file_id)
}

/// Opens a file to read when it is a regular one. What else has its place may wait for a writer, or be a device that
/// does something when it is opened.
pub fn open_regular(path: &Path, follow: bool) -> Option<File> {
    let flags = libc::O_CLOEXEC | libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW };
    let place = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let again = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
    OpenOptions::new().read(true).custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK).open(again).ok()
}

/// Files that may be held open beside all others: a quarter of what the process may have.
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
        // SAFETY: a name that ends in zero; the result is looked at.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(open_regular(&pipe, true).is_none(), "and it does not wait for a writer");
        [file, link, pipe].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    /// Whatever `stat` says of the file system that this test lies on.
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

    /// Written over in its place: what is in the file now was never executed.
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
