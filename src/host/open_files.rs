//! Finds the names of files by file system and inode: from the open and mapped files of processes, or from the file
//! system.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::mounts::{self, Mount};

/// The device number of a file system and an inode on it, as the file system itself numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId {
    pub major: u32,
    pub minor: u32,
    pub inode: u64,
}

/// The most entries read of one directory; if a process has more, the rest is left out.
const MOST_ENTRIES: usize = 1 << 16;
/// The most entries read of all processes together.
const MOST_IN_ALL: usize = 1 << 19;

/// The result of `stat` for a path, without contacting a file server, which might not answer.
struct PathStat {
    id: FileId,
    mount: u64,
}

fn stat(path: &Path) -> Option<PathStat> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut data = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_INO | libc::STATX_MNT_ID;
    // SAFETY: the path is a C string, and the call writes one statx; zeroed is a valid one.
    let data = unsafe {
        if libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, data.as_mut_ptr()) != 0 {
            return None;
        }
        data.assume_init()
    };
    let id = FileId { major: data.stx_dev_major, minor: data.stx_dev_minor, inode: data.stx_ino };
    Some(PathStat { id, mount: data.stx_mnt_id })
}

/// The names of those selected files that a process has open or mapped, as the process sees them; the kernel adds `
/// (deleted)` to a file that was removed. Empty if the process ended or may not be inspected.
pub fn of_process(root: &Path, pid: u32, wanted: &BTreeSet<FileId>) -> BTreeMap<FileId, String> {
    let mut left = MOST_IN_ALL;
    search(root, pid, wanted, &mut left)
}

/// The names of those selected files that any process has open or mapped.
pub fn of_all(root: &Path, wanted: &BTreeSet<FileId>) -> BTreeMap<FileId, String> {
    let mut found = BTreeMap::new();
    let mut left = MOST_IN_ALL;
    let mut wanted = wanted.clone();
    for entry in fs::read_dir(root.join("proc")).into_iter().flatten().flatten() {
        if wanted.is_empty() || left == 0 {
            break;
        }
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let names = search(root, pid, &wanted, &mut left);
        wanted.retain(|id| !names.contains_key(id));
        found.extend(names);
    }
    found
}

fn search(root: &Path, pid: u32, wanted: &BTreeSet<FileId>, left: &mut usize) -> BTreeMap<FileId, String> {
    let process = root.join(format!("proc/{pid}"));
    let inodes: BTreeSet<u64> = wanted.iter().map(|id| id.inode).collect();
    let mut found = BTreeMap::new();
    // Read once, and only if a file lies on an overlay.
    let mut mounts: Option<BTreeMap<u64, Mount>> = None;
    for folder in ["fd", "map_files"] {
        for entry in fs::read_dir(process.join(folder)).into_iter().flatten().flatten().take(MOST_ENTRIES) {
            if found.len() == wanted.len() || *left == 0 {
                return found;
            }
            *left -= 1;
            // Sockets and pipes have no path; reading their link is cheaper than a stat.
            let Ok(name) = fs::read_link(entry.path()) else { continue };
            if !name.is_absolute() {
                continue;
            }
            let Some(stat) = stat(&entry.path()).filter(|stat| inodes.contains(&stat.id.inode)) else {
                continue;
            };
            let text = name.to_string_lossy().into_owned();
            if wanted.contains(&stat.id) {
                found.entry(stat.id).or_insert(text);
                continue;
            }
            let mounts = mounts.get_or_insert_with(|| {
                mounts::by_id(&fs::read(process.join("mountinfo")).unwrap_or_default())
            });
            let Some(mount) = mounts.get(&stat.mount).filter(|mount| mount.kind == "overlay") else {
                continue;
            };
            if let Some(id) = below(root, mount, &name).into_iter().find(|id| wanted.contains(id)) {
                found.entry(id).or_insert(text);
            }
        }
    }
    found
}

/// The size of the handle of [`Handle`], without its header.
const HANDLE_BYTES: libc::c_uint = 8;
/// FILEID_INO32_GEN.
const INODE_AND_GENERATION: libc::c_int = 1;

/// `struct file_handle` of ext2, ext4 and f2fs, where generation 0 matches any generation.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    inode: u32,
    generation: u32,
}

/// Opens the file by a file handle and returns the name in the kernel's cache: ext2, ext4 and f2fs, with
/// CAP_DAC_READ_SEARCH. None if the name does not lead to the file.
pub fn of_file_system(mounts: &[Mount], id: FileId) -> Option<String> {
    let handle = Handle {
        bytes: HANDLE_BYTES,
        kind: INODE_AND_GENERATION,
        inode: id.inode.try_into().ok()?,
        generation: 0,
    };
    let usable = |mount: &&Mount| {
        (mount.major, mount.minor) == (id.major, id.minor)
            && mount.root == "/"
            && ["ext2", "ext3", "ext4", "f2fs"].contains(&mount.kind.as_str())
    };
    let folder = mounts.iter().filter(usable).find_map(|mount| fs::File::open(&mount.point).ok())?;
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle is a `struct file_handle` with as many bytes after its header as it says, and lives across the
    // call, which only reads it.
    let file = unsafe {
        match libc::syscall(libc::SYS_open_by_handle_at, folder.as_raw_fd(), &raw const handle, flags) {
            fd if fd >= 0 => OwnedFd::from_raw_fd(fd.try_into().ok()?),
            _ => return None,
        }
    };
    let link = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    stat(&link).filter(|stat| stat.id == id)?;
    let name = fs::read_link(&link).ok()?.to_str()?.to_string();
    // A file that no process has opened by name has no path.
    (name.ends_with(DELETED) || leads_to(Path::new("/"), id, &name)).then_some(name)
}

/// The suffix that the kernel adds to the name of a removed file.
pub const DELETED: &str = " (deleted)";

/// The ids of a file of an overlay on the file systems below.
fn below(root: &Path, mount: &Mount, name: &Path) -> Vec<FileId> {
    let Ok(within) = name.strip_prefix(&mount.point) else { return Vec::new() };
    let within = Path::new(mount.root.trim_start_matches('/')).join(within);
    layers(&mount.options)
        .iter()
        .filter_map(|layer| Some(stat(&root.join(layer).join(&within))?.id))
        .collect()
}

/// The directories that an overlay consists of, the upper one first; relative to the root. Only absolute ones: others
/// depend on where the overlay was mounted from.
fn layers(options: &str) -> Vec<PathBuf> {
    let value = |option: &str, key: &str| option.strip_prefix(key).map(str::to_string);
    let upper = options.split(',').filter_map(|option| value(option, "upperdir="));
    let lower =
        options.split(',').filter_map(|option| value(option, "lowerdir=").or(value(option, "lowerdir+=")));
    let lower: Vec<String> =
        lower.flat_map(|all| all.split(':').map(str::to_string).collect::<Vec<_>>()).collect();
    upper.chain(lower).filter_map(|layer| Some(PathBuf::from(layer.strip_prefix('/')?))).collect()
}

/// Whether this name no longer leads to the file.
pub fn has_moved(root: &Path, id: FileId, name: &str) -> bool {
    let Some(relative) = name.strip_prefix('/') else { return false };
    stat(&root.join(relative)).is_none_or(|stat| stat.id != id)
}

/// Whether this name leads to the file from here: the name may belong to another mount namespace.
pub fn leads_to(root: &Path, id: FileId, name: &str) -> bool {
    !has_moved(root, id, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn id(file: &Path) -> FileId {
        stat(file).unwrap().id
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("biopsy-open-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn open_and_deleted_files_are_found_by_their_inodes() {
        let folder = folder("fd");
        let (kept, gone) = (folder.join("kept\x1b[31m"), folder.join("gone"));
        let _open = [File::create(&kept).unwrap(), File::create(&gone).unwrap()];
        let wanted = BTreeSet::from([id(&kept), id(&gone)]);
        let gone_id = id(&gone);
        fs::remove_file(&gone).unwrap();
        let root = Path::new("/");
        let found = of_process(root, std::process::id(), &wanted);
        // Fails if the temporary directory is on btrfs or an overlay, which have other numbers.
        assert_eq!(found.get(&id(&kept)), Some(&kept.to_string_lossy().into_owned()));
        assert_eq!(found.get(&gone_id), Some(&format!("{} (deleted)", gone.display())));
        assert_eq!(of_all(root, &wanted), found);
        let absent = BTreeSet::from([FileId { major: 0, minor: 0, inode: 1 << 60 }]);
        assert!(of_process(root, std::process::id(), &absent).is_empty());
        assert!(of_process(root, u32::MAX, &wanted).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_was_closed_is_found_by_its_handle() {
        let folder = folder("handle");
        let file = folder.join("closed");
        fs::write(&file, "x").unwrap();
        let mounts = mounts::mounts(Path::new("/"));
        match of_file_system(&mounts, id(&file)) {
            Some(name) => assert_eq!(Path::new(&name), file.canonicalize().unwrap()),
            None => println!("skipped: not root, or {} is on none of ext2, ext4 and f2fs", folder.display()),
        }
        let other = FileId { inode: u64::MAX, ..id(&file) };
        assert_eq!(of_file_system(&mounts, other), None);
        assert_eq!(of_file_system(&[], id(&file)), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_name_that_leads_elsewhere_has_moved() {
        let folder = folder("moved");
        let (a, b) = (folder.join("a"), folder.join("b"));
        for file in [&a, &b] {
            File::create(file).unwrap();
        }
        let (root, name) = (Path::new("/"), a.to_str().unwrap());
        assert!(leads_to(root, id(&a), name) && has_moved(root, id(&b), name));
        let was = id(&a);
        fs::rename(&b, &a).unwrap();
        assert!(has_moved(root, was, name));
        fs::remove_dir_all(&folder).unwrap();
    }

    /// A process that sees an overlay; a directory stands in for the file system below.
    #[test]
    fn a_file_of_an_overlay_is_found_by_the_inode_below() {
        let folder = folder("overlay");
        for layer in ["upper", "lower"] {
            fs::create_dir_all(folder.join(layer).join("etc")).unwrap();
        }
        fs::write(folder.join("lower/etc/a"), "").unwrap();
        let mount = Mount {
            point: "/merged".to_string(),
            root: "/".to_string(),
            kind: "overlay".to_string(),
            options: "rw,lowerdir=/none:/lower,upperdir=/upper,workdir=/work".to_string(),
            ..Mount::default()
        };
        let file = id(&folder.join("lower/etc/a"));
        assert_eq!(below(&folder, &mount, Path::new("/merged/etc/a")), [file]);
        assert!(below(&folder, &mount, Path::new("/other/etc/a")).is_empty());
        assert_eq!(layers("lowerdir+=/x,lowerdir+=y"), [PathBuf::from("x")]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
