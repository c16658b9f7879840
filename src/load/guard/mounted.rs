//! Finds what is mounted in any mount namespace, what is swapped to, and the disks of the root file system.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::device_graph::{self, DeviceGraph, DeviceNumber, unpacked};
use super::openers::{self, Unread, present};
use crate::host::mounts::{self, Mount, mount_of};
use crate::refusal::reason;

/// A mounted device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedDevice {
    pub what: String,
    /// Mount point, escaped.
    pub point: String,
    /// The process in whose mount namespace it is mounted; None: in this process's own.
    pub seen_by: Option<(u32, String)>,
}

/// Searches the mount namespaces of all processes for devices of `kin`.
pub fn mounted(root: &Path, kin: &DeviceGraph) -> io::Result<Result<Option<MountedDevice>, Unread>> {
    let proc = root.join("proc");
    let own = fs::read_link(proc.join("self/ns/mnt")).ok();
    let mut known = BTreeSet::new();
    let mut unread = None;
    // Its own namespace first: the user knows these mount points.
    let own_process = fs::canonicalize(proc.join("self")).ok();
    let own_pid = own_process.and_then(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    let others = openers::processes(&proc)?.into_iter().filter(|pid| Some(*pid) != own_pid);
    for pid in own_pid.into_iter().chain(others) {
        let process = proc.join(pid.to_string());
        let tasks = process.join("task");
        // Threads can have a mount namespace of their own.
        let threads = openers::numbers(&tasks).unwrap_or_default();
        let folders = threads.iter().map(|thread| tasks.join(thread.to_string()));
        for folder in std::iter::once(process.clone()).chain(folders) {
            match seen_by(root, kin, &folder, &mut known) {
                Ok(None) => {}
                Ok(Some((mut found, namespace))) => {
                    if own.as_ref() != Some(&namespace) {
                        found.seen_by = Some((pid, openers::comm(&process)));
                    }
                    return Ok(Ok(Some(found)));
                }
                Err(error) => {
                    let comm = openers::comm(&process);
                    unread = unread.or(Some(Unread { pid, comm, why: reason(&error) }));
                }
            }
        }
    }
    Ok(unread.map_or(Ok(None), Err))
}

/// Searches the namespace of a task for a mount of `kin`, unless the namespace was already searched.
fn seen_by(
    root: &Path,
    kin: &DeviceGraph,
    task: &Path,
    known: &mut BTreeSet<PathBuf>,
) -> io::Result<Option<(MountedDevice, PathBuf)>> {
    let Some(namespace) = present(fs::read_link(task.join("ns/mnt")))? else { return Ok(None) };
    if known.contains(&namespace) {
        return Ok(None);
    }
    let Some(table) = table(task)? else { return Ok(None) };
    known.insert(namespace.clone());
    let found = table.iter().find_map(|mount| Some((kin.mounted(root, mount)?, mount)));
    Ok(found.map(|(what, mount)| {
        (MountedDevice { what, point: mount.point.escape_debug().to_string(), seen_by: None }, namespace)
    }))
}

/// The mounts that a process sees; None for one that ended.
fn table(process: &Path) -> io::Result<Option<Vec<Mount>>> {
    match fs::read(process.join("mountinfo")) {
        Ok(bytes) => Ok(Some(mounts::parse(&String::from_utf8_lossy(&bytes)))),
        // A zombie.
        Err(error) if openers::gone(&error) || error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

impl DeviceGraph {
    fn mounted(&self, root: &Path, mount: &Mount) -> Option<String> {
        if mount.major != 0 {
            return self.blocks.get(&(mount.major, mount.minor)).cloned();
        }
        let path = mount.device_path()?;
        let by_node = device_at(root, path).and_then(|number| self.blocks.get(&number).cloned());
        by_node.or_else(|| path.strip_prefix("/dev/").filter(|name| self.has_name(name)).map(String::from))
    }
}

/// Finds a device of `kin` that is a swap area: (device, path of the swap area).
pub fn swapped(root: &Path, kin: &DeviceGraph) -> io::Result<Option<(String, String)>> {
    // Checks that the file is readable: an error must not look like no swap.
    fs::read(root.join("proc/swaps"))?;
    for swap in mounts::swaps(root) {
        let at = |path: &str| Some(root.join(path.strip_prefix('/')?));
        let what = if swap.is_file {
            let data = at(&swap.name).and_then(|path| fs::metadata(path).ok());
            data.and_then(|data| kin.files.get(&(data.dev(), data.ino())).cloned())
        } else {
            let by_node = device_at(root, &swap.name).and_then(|number| kin.blocks.get(&number).cloned());
            let name = swap.name.strip_prefix("/dev/").unwrap_or_default().to_string();
            by_node.or_else(|| Some(name).filter(|name| kin.has_name(name)))
        };
        if let Some(what) = what {
            return Ok(Some((what, swap.name.escape_debug().to_string())));
        }
    }
    Ok(None)
}

/// Storage of the root file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ground {
    /// All whole disks below it.
    pub disks: BTreeSet<String>,
    /// A file system type that could not be followed to a disk, escaped.
    pub unknown: Option<String>,
}

/// The disks of the root file systems of the first process and of this one, which differ in a container.
pub fn ground(root: &Path) -> Ground {
    let mut ground = Ground::default();
    let first = table(&root.join("proc/1")).ok().flatten();
    let own = table(&root.join("proc/self")).ok().flatten();
    if first.is_none() && own.is_none() {
        ground.unknown = Some("an unreadable mount table".to_string());
    }
    let mut numbers = BTreeSet::new();
    for table in [&first, &own].into_iter().flatten() {
        let others: Vec<&Vec<Mount>> = first.iter().collect();
        // In the initial rootfs nothing is listed as mounted at the root.
        for mount in table.iter().filter(|mount| mount.point == "/") {
            if !devices(root, mount, table, &others, &mut numbers, 0) {
                ground.unknown = Some(mount.kind.escape_debug().to_string());
            }
        }
    }
    for number in numbers {
        ground.disks.extend(device_graph::ground(root, number));
    }
    ground
}

/// Collects the devices of a mounted file system. False where they are not known.
fn devices(
    root: &Path,
    mount: &Mount,
    table: &[Mount],
    others: &[&Vec<Mount>],
    found: &mut BTreeSet<DeviceNumber>,
    depth: u32,
) -> bool {
    if mount.major != 0 {
        found.insert((mount.major, mount.minor));
        return true;
    }
    if let Some(path) = mount.device_path() {
        let number = device_at(root, path);
        found.extend(number);
        return number.is_some();
    }
    match mount.kind.as_str() {
        // In memory, or on another machine.
        "rootfs" | "ramfs" | "tmpfs" | "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" => true,
        "overlay" if depth < 4 => {
            let layers = layers(&mount.options);
            !layers.is_empty()
                && layers.iter().all(|layer| {
                    // Its own root mount is the overlay itself.
                    let below = |table: &[Mount]| {
                        let lower = mount_of(table, layer).filter(|lower| *lower != mount).cloned();
                        lower.map(|lower| (lower, table.to_vec()))
                    };
                    let lower = below(table).or_else(|| others.iter().find_map(|table| below(table)));
                    lower
                        .is_some_and(|(lower, table)| devices(root, &lower, &table, others, found, depth + 1))
                })
        }
        _ => false,
    }
}

/// The directories of an overlay.
fn layers(options: &str) -> Vec<String> {
    let mut found = Vec::new();
    for option in options.split(',') {
        let Some((key, value)) = option.split_once('=') else { continue };
        match key {
            "lowerdir" => found.extend(value.split(':').filter(|l| !l.is_empty()).map(String::from)),
            "lowerdir+" | "datadir+" | "upperdir" => found.push(value.to_string()),
            _ => {}
        }
    }
    found
}

/// Why some processes could be hidden from this one; None where all are visible.
pub fn hidden(root: &Path) -> Option<String> {
    let proc = root.join("proc");
    // A child PID namespace has no kernel threads. A process can copy their names, but not this flag.
    let is_first = openers::processes(&proc)
        .unwrap_or_default()
        .into_iter()
        .take(16)
        .any(|pid| fs::read(proc.join(format!("{pid}/stat"))).is_ok_and(|stat| kernel_thread(&stat)));
    if !is_first {
        return Some("this is a PID namespace of its own (a container), or /proc is not mounted".to_string());
    }
    let table = match table(&proc.join("self")) {
        Ok(Some(table)) => table,
        Ok(None) => return Some("/proc/self/mountinfo is missing".to_string()),
        Err(error) => return Some(format!("/proc/self/mountinfo cannot be read: {}", reason(&error))),
    };
    for mount in &table {
        if mount.point == "/proc"
            && mount.options.split(',').any(|option| {
                option.strip_prefix("hidepid=").is_some_and(|value| !matches!(value, "0" | "off"))
            })
        {
            return Some("/proc is mounted with hidepid".to_string());
        }
        let below = mount.point.strip_prefix("/proc/");
        if below.is_some_and(|below| below.starts_with(|c: char| c.is_ascii_digit()) || below == "swaps") {
            return Some(format!("something is mounted on {}", mount.point.escape_debug()));
        }
    }
    None
}

/// Whether a stat file belongs to a kernel thread: PF_KTHREAD in the ninth field.
fn kernel_thread(stat: &[u8]) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let text = String::from_utf8_lossy(stat);
    // The name, in parentheses, can contain anything.
    let rest = text.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let flags = rest.split_whitespace().nth(6).and_then(|word| word.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// The number of the block device at a path.
fn device_at(root: &Path, path: &str) -> Option<DeviceNumber> {
    let path: PathBuf = root.join(path.strip_prefix('/')?);
    let data = fs::metadata(path).ok()?;
    data.file_type().is_block_device().then(|| unpacked(data.rdev()))
}

#[cfg(test)]
mod tests {
    use super::super::device_graph::tests::Tree;
    use super::*;

    const ROOT: &str = "1 0 8:2 / / rw - ext4 /dev/root rw\n";

    fn machine(test: &str, mountinfo: &str) -> Tree {
        let tree = Tree::new(test);
        tree.disk("pci/sda", "8:0");
        tree.part("pci/sda/sda2", "8:2");
        tree.disk("pci/sdb", "8:16");
        tree.write("proc/self/mountinfo", mountinfo);
        tree
    }

    fn ground_of(test: &str, mountinfo: &str) -> (Vec<String>, Option<String>) {
        let tree = machine(test, mountinfo);
        let ground = ground(&tree.0);
        (ground.disks.into_iter().collect(), ground.unknown)
    }

    #[test]
    fn the_root_is_found_below_its_partition_and_below_an_overlay() {
        let disk = (vec!["sda".to_string()], None);
        assert_eq!(ground_of("root-plain", ROOT), disk);
        let overlay = "1 0 0:30 / / rw - overlay overlay rw,lowerdir=/ro/a:/ro/b,upperdir=/up/u,workdir=/up/w\n\
                       2 1 8:2 / /ro ro - squashfs /dev/sda2 ro\n3 1 0:31 / /up rw - tmpfs tmpfs rw\n";
        assert_eq!(ground_of("root-overlay", overlay), disk);
        let hidden =
            "1 0 0:30 / / rw - overlay overlay rw,lowerdir=/elsewhere,upperdir=/up/u,workdir=/up/w\n";
        assert_eq!(ground_of("root-hidden", hidden), (vec![], Some("overlay".to_string())));
        let pool = "1 0 0:30 / / rw - zfs rpool/root rw\n";
        assert_eq!(ground_of("root-pool", pool), (vec![], Some("zfs".to_string())));
        for none in ["1 0 0:2 / / rw - rootfs rootfs rw\n", "1 0 0:2 / / rw - nfs4 server:/root rw\n", ""] {
            assert_eq!(ground_of("root-none", none), (vec![], None), "{none:?}");
        }
    }

    #[test]
    fn in_a_container_the_root_of_the_first_process_counts_too() {
        let tree = machine("root-first", "1 0 0:2 / / rw - tmpfs tmpfs rw\n");
        assert!(ground(&tree.0).disks.is_empty());
        tree.write("proc/1/mountinfo", ROOT);
        assert!(ground(&tree.0).disks.contains("sda"));
    }

    #[test]
    fn a_machine_without_a_mount_table_could_have_its_root_anywhere() {
        assert!(ground(&Tree::new("root-unknown").0).unknown.is_some());
    }

    #[test]
    fn swap_is_known_by_its_name_where_its_node_is_gone() {
        let tree = machine("swaps", ROOT);
        let kin = tree.kin((8, 0));
        assert!(swapped(&tree.0, &kin).is_err(), "no /proc/swaps is not no swap");
        tree.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sdb partition 8 0 -2\n");
        assert_eq!(swapped(&tree.0, &kin).unwrap(), None);
        tree.write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 8 0 -2\n");
        assert_eq!(swapped(&tree.0, &kin).unwrap(), Some(("sda2".into(), "/dev/sda2".into())));
    }

    #[test]
    fn a_kernel_thread_is_known_by_its_flag_and_not_by_its_name() {
        let stat = |name: &str, flags: u64| format!("2 ({name}) S 0 0 0 0 -1 {flags} 0 0 0 0");
        assert!(kernel_thread(stat("kthreadd", 2_129_984).as_bytes()));
        assert!(kernel_thread(stat("a) S 0 0 0 0 0 0 (b", 2_129_984).as_bytes()));
        assert!(!kernel_thread(stat("kthreadd", 4_194_560).as_bytes()));
        assert!(!kernel_thread(stat("x) S 0 0 0 0 -1 2129984 (", 4_194_560).as_bytes()));
        assert!(!kernel_thread(b"") && !kernel_thread(b"\xff)"));
    }

    #[test]
    fn hidden_processes_are_told_of() {
        let tree = machine("hidden", "");
        let why = |tree: &Tree| hidden(&tree.0);
        assert!(why(&tree).unwrap().contains("PID namespace"));
        tree.write("proc/1/stat", "1 (init) S 0 1 1 0 -1 4194560 0");
        tree.write("proc/2/stat", "2 (kthreadd) S 1 0 0 0 -1 4194560 0");
        assert!(why(&tree).unwrap().contains("PID namespace"), "a name that anybody can take");
        tree.write("proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0");
        assert_eq!(why(&tree), None);
        for (line, said) in [
            ("1 0 0:5 / /proc rw - proc proc rw,hidepid=2", "hidepid"),
            ("1 0 0:5 / /proc rw - proc proc rw,gid=4,hidepid=ptraceable", "hidepid"),
            ("1 0 0:5 / /proc/77 rw - tmpfs tmpfs rw", "/proc/77"),
            ("1 0 0:5 / /proc/swaps rw - tmpfs tmpfs rw", "/proc/swaps"),
        ] {
            tree.write("proc/self/mountinfo", line);
            assert!(why(&tree).is_some_and(|why| why.contains(said)), "{line}");
        }
        tree.write("proc/self/mountinfo", "1 0 0:5 / /proc rw - proc proc rw,hidepid=off\n");
        assert_eq!(why(&tree), None);
    }
}
