//! Finds the cgroup hierarchy of the block controller, its directories and their ids.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::attribute::file;
use super::mounts::unescape;
use crate::refusal::Refusal;

/// The hierarchy of cgroups to which the kernel charges I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its mount point, as the kernel prints it.
    pub point: String,
    /// True for the single hierarchy of all controllers (v2); false for the block controller's own (v1).
    pub unified: bool,
    /// The mount point below the root of the machine that is read.
    folder: PathBuf,
}

impl Hierarchy {
    /// Finds the first mount that has the block controller: the v1 hierarchy `blkio`, else v2. None if neither is
    /// mounted.
    pub fn read(root: &Path) -> Option<Self> {
        Self::of_controller(root, "blkio")
    }

    /// Finds the hierarchy of another controller, by the controller's name in v1.
    pub fn of_controller(root: &Path, controller: &str) -> Option<Self> {
        Self::of_mounts(root, &file(&root.join("proc/self/mounts")).ok()?, controller)
    }

    /// Parses lines as in `/proc/self/mounts`: the hierarchy of one controller (v1), else that of all (v2).
    fn of_mounts(root: &Path, mounts: &str, controller: &str) -> Option<Self> {
        let of_line = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (point, kind, options) = (unescape(words.next()?), words.next()?, words.next()?);
            let unified = kind == "cgroup2";
            let has_it = unified || (kind == "cgroup" && options.split(',').any(|word| word == controller));
            let folder = root.join(point.trim_start_matches('/'));
            has_it.then_some(Self { point, unified, folder })
        };
        let all: Vec<Self> = mounts.lines().filter_map(of_line).collect();
        all.iter().find(|hierarchy| !hierarchy.unified).or(all.first()).cloned()
    }

    /// All cgroups by id, with their paths from the root of the hierarchy, which is `/`.
    pub fn paths(&self) -> BTreeMap<u64, String> {
        folders(&self.folder).into_iter().map(|(folder, id)| (id, self.path(&folder))).collect()
    }

    /// The directories of all cgroups, with the same paths.
    pub fn groups(&self) -> Vec<(PathBuf, String)> {
        let of_folder = |(folder, _): (PathBuf, u64)| {
            let path = self.path(&folder);
            (folder, path)
        };
        folders(&self.folder).into_iter().map(of_folder).collect()
    }

    fn path(&self, folder: &Path) -> String {
        let below = folder.strip_prefix(&self.folder).unwrap_or(folder);
        format!("/{}", below.to_string_lossy())
    }

    /// Finds the directory that a user names: a path from the root of the hierarchy, or below its mount point.
    pub fn find(&self, text: &str) -> Result<PathBuf> {
        let whole = Path::new(text);
        let below = whole.strip_prefix(&self.point).unwrap_or(whole);
        let names =
            below.components().filter(|part| *part != Component::RootDir && *part != Component::CurDir);
        let below: PathBuf = names.collect();
        let folder = self.folder.join(&below);
        if below.components().all(|part| matches!(part, Component::Normal(_))) && folder.is_dir() {
            return Ok(folder);
        }
        let (name, point) = (text.escape_debug(), self.point.escape_debug());
        Err(Refusal::Refused(format!(
            "no cgroup '{name}' in {point}, the hierarchy of the block controller: name a folder below it"
        ))
        .into())
    }

    /// The ids of a cgroup and of all cgroups below it.
    pub fn ids(&self, folder: &Path) -> Vec<u64> {
        folders(folder).into_iter().map(|(_, id)| id).collect()
    }
}

/// A directory and all directories below it, with their inode numbers, which are the kernel's cgroup ids. A directory
/// that disappears during the scan is left out.
fn folders(top: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut next = vec![top.to_path_buf()];
    while let Some(folder) = next.pop() {
        let Ok(data) = fs::symlink_metadata(&folder) else { continue };
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.push(entry.path());
            }
        }
        found.push((folder, data.ino()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n";
    const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n";

    #[test]
    fn the_block_controllers_hierarchy_is_found() {
        let of = |mounts| Hierarchy::of_mounts(Path::new("/"), mounts, "blkio").map(|h| (h.point, h.unified));
        assert_eq!(of(V1), Some(("/sys/fs/cgroup/blkio".to_string(), false)));
        assert_eq!(of(V2), Some(("/sys/fs/cgroup".to_string(), true)));
        let both = "cgroup /c cgroup rw,cpu,blkio 0 0\n";
        assert_eq!(of(both), Some(("/c".to_string(), false)));
        assert_eq!(of("tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup\n\n"), None);
    }

    /// A directory tree below the temporary directory, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, folders: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("biopsy-cgroups-{name}-{}", std::process::id()));
            for folder in folders {
                fs::create_dir_all(root.join("sys/fs/cgroup").join(folder)).unwrap();
            }
            fs::write(root.join("sys/fs/cgroup/cgroup.procs"), "").unwrap();
            Self(root)
        }

        fn hierarchy(&self) -> Hierarchy {
            Hierarchy::of_mounts(&self.0, V2, "blkio").unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_group_is_named_by_its_path_and_has_its_descendants() {
        let tree = Tree::new("paths", &["a/b", "a/c/d", "e"]);
        let hierarchy = tree.hierarchy();
        let paths: Vec<String> = {
            let mut all: Vec<String> = hierarchy.paths().into_values().collect();
            all.sort();
            all
        };
        assert_eq!(paths, ["/", "/a", "/a/b", "/a/c", "/a/c/d", "/e"]);
        for name in ["a", "/a", "a/", "./a", "/sys/fs/cgroup/a"] {
            let ids = hierarchy.ids(&hierarchy.find(name).unwrap());
            let mut names: Vec<String> = ids.iter().map(|id| hierarchy.paths()[id].clone()).collect();
            names.sort();
            assert_eq!(names, ["/a", "/a/b", "/a/c", "/a/c/d"], "{name}");
        }
        assert_eq!(hierarchy.ids(&hierarchy.find("/").unwrap()).len(), 6);
    }

    #[test]
    fn what_is_no_group_is_refused() {
        let tree = Tree::new("refused", &["a"]);
        for name in ["b", "../cgroup/a", "a/..", "cgroup.procs", "/sys/fs/cgroup/x"] {
            let error = tree.hierarchy().find(name).unwrap_err().to_string();
            assert!(error.contains("no cgroup") && error.contains("/sys/fs/cgroup,"), "{error}");
        }
    }
}
