//! Control groups: the paths behind the numbers that the kernel knows them by.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mounts::mounts;

/// The groups of the hierarchy that the block controller is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// By the inode of the group's folder, which is the kernel's id; `/` is the root.
    pub paths: BTreeMap<u64, String>,
}

/// A machine full of containers has thousands.
const MOST: usize = 1 << 16;

impl Cgroups {
    /// Walks the hierarchy that is mounted below `root`: the block controller's of version 1 where there
    /// is one, since I/O is charged there then, else that of version 2. Empty where none is mounted.
    pub fn read(root: &Path) -> Self {
        let mut groups = Self::default();
        if let Some(top) = hierarchy(root) {
            groups.walk(&top);
        }
        groups
    }

    /// The path of a group; None for one that is not known, or gone.
    pub fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }

    fn walk(&mut self, top: &Path) {
        if let Ok(facts) = fs::metadata(top) {
            self.paths.insert(facts.ino(), "/".to_string());
        }
        let mut folders: Vec<(PathBuf, String)> = vec![(top.to_path_buf(), String::new())];
        while let Some((folder, path)) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                // Not through links: there are none in a cgroup file system.
                if self.paths.len() >= MOST || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let below = format!("{path}/{}", entry.file_name().to_string_lossy());
                self.paths.insert(entry.ino(), below.clone());
                folders.push((entry.path(), below));
            }
        }
    }
}

/// Where the hierarchy is mounted, as seen below `root`. Only a mount of the whole of it has the paths that
/// everybody uses.
fn hierarchy(root: &Path) -> Option<PathBuf> {
    let mounts = mounts(root);
    let below = |point: &str| root.join(point.trim_start_matches('/'));
    // Version 1's options name the controllers; the folder's name is a habit, its files are not.
    let first = mounts.iter().filter(|mount| mount.kind == "cgroup").map(|mount| below(&mount.point));
    let blkio = first.into_iter().find(|top| has_blkio(top));
    let second = || mounts.iter().find(|mount| mount.kind == "cgroup2").map(|mount| below(&mount.point));
    blkio.or_else(second)
}

fn has_blkio(top: &Path) -> bool {
    let files = fs::read_dir(top).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("blkio."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree with these folders and files, and what is mounted there.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, mounts: &str, folders: &[&str], files: &[&str]) -> Self {
            let root = std::env::temp_dir().join(format!("biopsy-cgroups-{}-{name}", std::process::id()));
            for folder in ["proc/self"].iter().chain(folders) {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            for file in files {
                fs::write(root.join(file), "").unwrap();
            }
            fs::write(root.join("proc/self/mountinfo"), mounts).unwrap();
            Self(root)
        }

        fn id(&self, folder: &str) -> u64 {
            fs::metadata(self.0.join(folder)).unwrap().ino()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }

    const V2: &str = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const HYBRID: &str = "30 20 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                          31 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                          32 20 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n";

    #[test]
    fn a_group_is_found_by_the_inode_of_its_folder() {
        let tree = Tree::new("two", V2, &["sys/fs/cgroup/system.slice/a b.service"], &["sys/fs/cgroup/x"]);
        let groups = Cgroups::read(&tree.0);
        assert_eq!(groups.path(tree.id("sys/fs/cgroup")), Some("/"));
        let service = tree.id("sys/fs/cgroup/system.slice/a b.service");
        assert_eq!(groups.path(service), Some("/system.slice/a b.service"));
        assert_eq!(groups.path(tree.id("sys/fs/cgroup/x")), None, "a file is no group");
        assert_eq!(groups.paths.len(), 3);
    }

    #[test]
    fn the_first_version_charges_where_the_controller_is_in_it() {
        let folders = ["sys/fs/cgroup/unified/u", "sys/fs/cgroup/cpu/c", "sys/fs/cgroup/blkio/b"];
        let tree = Tree::new("one", HYBRID, &folders, &["sys/fs/cgroup/blkio/blkio.throttle.io_serviced"]);
        let groups = Cgroups::read(&tree.0);
        assert_eq!(groups.paths.values().collect::<Vec<_>>().len(), 2);
        assert_eq!(groups.path(tree.id("sys/fs/cgroup/blkio/b")), Some("/b"));
        let tree = Tree::new("hybrid", HYBRID, &folders, &[]);
        assert_eq!(Cgroups::read(&tree.0).path(tree.id("sys/fs/cgroup/unified/u")), Some("/u"));
    }

    #[test]
    fn without_a_mount_there_are_none() {
        let tree = Tree::new("none", "", &["sys/fs/cgroup/a"], &[]);
        assert_eq!(Cgroups::read(&tree.0), Cgroups::default());
    }
}
