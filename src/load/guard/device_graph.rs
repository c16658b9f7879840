//! Finds everything that shares storage with a device: its disk, partitions, other paths to the same storage, character
//! devices, the devices below, and everything stacked on any of these.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::refusal::{Refusal, reason};

/// Major and minor number.
pub type DeviceNumber = (u32, u32);

/// Device and inode number of a file.
pub type Identity = (u64, u64);

/// Splits a device number as packed by the C library.
pub fn unpacked(rdev: u64) -> DeviceNumber {
    (libc::major(rdev), libc::minor(rdev))
}

/// A device and the devices that share its storage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceGraph {
    /// Kernel name of the device; empty for a file.
    pub name: String,
    /// Its whole disk.
    pub disk: String,
    /// The disk sequence number, which rises with every new disk (Linux 5.15): numbers and names are reused, this is
    /// not.
    pub sequence: Option<u64>,
    /// The device, its disk with all partitions, other disks of the same storage with theirs, and the devices below;
    /// each with its name.
    pub blocks: BTreeMap<DeviceNumber, String>,
    /// Character devices of the same storage.
    pub chars: BTreeMap<DeviceNumber, String>,
    /// Backing files of loop devices among them; or the file itself.
    pub files: BTreeMap<Identity, String>,
    /// Names of the whole disks among `blocks` that the device is, or is part of.
    pub disks: BTreeSet<String>,
    /// Disks and partitions below it.
    pub below: BTreeSet<String>,
    /// What is stacked on any of them.
    pub above: Vec<Above>,
    /// Further devices to claim.
    pub claims: BTreeMap<DeviceNumber, String>,
}

/// A layer, or an export to another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Above {
    pub upper: String,
    pub lower: String,
}

/// The backing of a loop device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Loop {
    name: String,
    file: Identity,
    /// Set where the file is a block device.
    device: Option<DeviceNumber>,
}

impl DeviceGraph {
    /// For the block device of this number, from sysfs and the loop devices below `root`.
    pub fn of_device(root: &Path, number: DeviceNumber) -> Result<Self, Refusal> {
        let directory = directory_of(root, number).ok_or_else(|| unknown(number))?;
        let whole = whole(&directory);
        let mut kin = Self {
            name: base(&directory),
            disk: base(&whole),
            sequence: text(&whole.join("diskseq")).and_then(|text| text.parse().ok()),
            ..Self::default()
        };
        let loops = loops(root)?;
        let mut chain = BTreeSet::new();
        kin.add_storage(root, &whole, &mut chain);
        kin.add_below(root, &directory, &whole, &loops, &mut chain);
        for (&other, name) in &kin.blocks {
            // Sibling partitions: their disk cannot be claimed as a whole.
            let beside = kin.name != kin.disk && other != number && *name != kin.disk;
            if beside && directory_of(root, other).is_some_and(|part| self::whole(&part) == whole) {
                kin.claims.insert(other, name.clone());
            }
        }
        kin.add_above(root, &loops, &chain);
        Ok(kin)
    }

    /// For a regular file.
    pub fn of_file(root: &Path, file: Identity, name: &str) -> Result<Self, Refusal> {
        let mut kin = Self { files: BTreeMap::from([(file, name.to_string())]), ..Self::default() };
        kin.add_above(root, &loops(root)?, &BTreeSet::new());
        Ok(kin)
    }

    /// Whether one of the block devices has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.blocks.values().any(|known| known == name)
    }

    /// Adds a disk, and all disks with the same storage.
    fn add_storage(&mut self, root: &Path, disk: &Path, chain: &mut BTreeSet<PathBuf>) {
        self.add_disk(root, disk);
        self.disks.insert(base(disk));
        chain.insert(disk.to_path_buf());
        let Some(wanted) = storage_id(disk) else { return };
        for other in disks(root) {
            if chain.contains(&other) || storage_id(&other).as_ref() != Some(&wanted) {
                continue;
            }
            self.add_disk(root, &other);
            self.disks.insert(base(&other));
            if let Some(number) = number(&other) {
                self.claims.insert(number, base(&other));
            }
            self.add_holders(&other);
        }
    }

    /// Adds a disk, its partitions, and its character devices.
    fn add_disk(&mut self, root: &Path, disk: &Path) {
        for directory in std::iter::once(disk.to_path_buf()).chain(partitions(disk)) {
            // A hidden path of an NVMe multipath head has no number and cannot be opened.
            if let Some(number) = number(&directory) {
                self.blocks.insert(number, base(&directory));
            }
        }
        self.add_chars(root, disk);
    }

    fn add_chars(&mut self, root: &Path, disk: &Path) {
        let mut found = Vec::new();
        if let Some(rest) = base(disk).strip_prefix("nvme") {
            let name = format!("ng{rest}");
            found.extend(disk.parent().map(|controller| controller.join(&name)));
            found.push(root.join("sys/class/nvme-generic").join(&name));
        }
        for class in ["scsi_generic", "bsg"] {
            found.extend(entries(&disk.join("device").join(class)));
        }
        for directory in found {
            if let Some(number) = number(&directory) {
                self.chars.insert(number, base(&directory));
            }
        }
    }

    /// Adds what a device is stacked on, recursively: `slaves/`, and the device below a loop device.
    fn add_below(
        &mut self,
        root: &Path,
        directory: &Path,
        disk: &Path,
        loops: &[Loop],
        chain: &mut BTreeSet<PathBuf>,
    ) {
        let mut lower: Vec<(PathBuf, bool)> = Vec::new();
        for name in names(&disk.join("slaves")) {
            let path = disk.join("slaves").join(&name);
            lower.extend(fs::canonicalize(path).ok().map(|path| (path, false)));
        }
        if let Some(own) = loops.iter().find(|l| l.name == base(disk)) {
            match own.device {
                // The loop driver does not claim its backing device.
                Some(number) => lower.extend(directory_of(root, number).map(|path| (path, true))),
                None => {
                    self.files.insert(own.file, format!("the file below {}", base(directory)));
                }
            }
        }
        for (lower, claim) in lower {
            let lower_disk = whole(&lower);
            if !self.below.insert(base(&lower)) {
                continue;
            }
            self.below.insert(base(&lower_disk));
            for directory in [&lower, &lower_disk] {
                if let Some(number) = number(directory) {
                    self.blocks.insert(number, base(directory));
                }
            }
            if lower == lower_disk {
                self.add_storage(root, &lower_disk, chain);
            } else {
                self.add_chars(root, &lower_disk);
                chain.insert(lower_disk.clone());
                self.disks.insert(base(&lower_disk));
            }
            if let (true, Some(number)) = (claim, number(&lower)) {
                self.claims.insert(number, base(&lower));
            }
            self.add_below(root, &lower, &lower_disk, loops, chain);
        }
    }

    fn add_holders(&mut self, disk: &Path) {
        for directory in std::iter::once(disk.to_path_buf()).chain(partitions(disk)) {
            for upper in names(&directory.join("holders")) {
                self.above.push(Above { upper, lower: base(&directory) });
            }
        }
    }

    /// Adds what is stacked on it: `holders/`, loop and zram devices, and exports to other machines.
    fn add_above(&mut self, root: &Path, loops: &[Loop], chain: &BTreeSet<PathBuf>) {
        if let Some(disk) = disks(root).into_iter().find(|disk| base(disk) == self.disk) {
            self.add_holders(&disk);
        }
        let own: BTreeSet<String> = chain.iter().map(|disk| base(disk)).collect();
        for other in loops.iter().filter(|l| !own.contains(&l.name)) {
            let lower =
                other.device.and_then(|n| self.blocks.get(&n)).or_else(|| self.files.get(&other.file));
            if let Some(lower) = lower {
                self.above.push(Above { upper: other.name.clone(), lower: lower.clone() });
            }
        }
        for (upper, path) in exports(root) {
            let Ok(data) = fs::metadata(&path) else { continue };
            let lower = match data.file_type() {
                kind if kind.is_block_device() => self.blocks.get(&unpacked(data.rdev())),
                _ => self.files.get(&(data.dev(), data.ino())),
            };
            if let Some(lower) = lower {
                self.above.push(Above { upper, lower: lower.clone() });
            }
        }
    }
}

/// The names of all whole disks below the device of this number, including itself: for the root file system. It follows
/// a loop device's file to the disk of that file.
pub fn ground(root: &Path, number: DeviceNumber) -> BTreeSet<String> {
    let loops = loops(root).unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut open = vec![number];
    while let Some(directory) = open.pop().map(|number| directory_of(root, number)) {
        let Some(disk) = directory.map(|directory| whole(&directory)) else { continue };
        if !found.insert(base(&disk)) {
            continue;
        }
        let slaves = disk.join("slaves");
        open.extend(names(&slaves).iter().filter_map(|name| self::number(&slaves.join(name))));
        if let Some(own) = loops.iter().find(|l| l.name == base(&disk)) {
            open.push(own.device.unwrap_or_else(|| unpacked(own.file.0)));
        }
        let id = storage_id(&disk);
        let same = |other: &PathBuf| id.is_some() && storage_id(other) == id;
        open.extend(disks(root).iter().filter(|other| same(other)).filter_map(|other| self::number(other)));
    }
    found
}

/// Kernel name of a block device.
pub fn name(root: &Path, number: DeviceNumber) -> Result<String, Refusal> {
    directory_of(root, number).map(|directory| base(&directory)).ok_or_else(|| unknown(number))
}

/// Size of a block device and of its logical block, in bytes.
pub fn size(root: &Path, number: DeviceNumber) -> Option<(u64, u64)> {
    /// Unit of sysfs sizes.
    const SECTOR: u64 = 512;
    let directory = directory_of(root, number)?;
    let sectors: u64 = text(&directory.join("size"))?.parse().ok()?;
    let block = text(&whole(&directory).join("queue/logical_block_size"))?.parse().ok()?;
    Some((sectors.checked_mul(SECTOR)?, block))
}

fn unknown(number: DeviceNumber) -> Refusal {
    Refusal::Refused(format!(
        "no block device {}:{} in /sys/dev/block: mount sysfs (mount -t sysfs sysfs /sys), or plug the device in",
        number.0, number.1
    ))
}

/// The device node below `root`, if it has the checked number.
pub fn node(root: &Path, name: &str, number: DeviceNumber) -> Option<PathBuf> {
    let path = root.join("dev").join(name.replace('!', "/"));
    let data = fs::metadata(&path).ok()?;
    (data.file_type().is_block_device() && unpacked(data.rdev()) == number).then_some(path)
}

/// The block device of an NVMe generic character device: (number, name of the character device).
pub fn namespace_of(root: &Path, number: DeviceNumber) -> Option<(DeviceNumber, String)> {
    let link = root.join(format!("sys/dev/char/{}:{}", number.0, number.1));
    let directory = fs::canonicalize(link).ok()?;
    let name = base(&directory);
    let class = fs::canonicalize(directory.join("subsystem")).ok()?;
    if base(&class) != "nvme-generic" {
        return None;
    }
    let disk = directory.parent()?.join(format!("nvme{}", name.strip_prefix("ng")?));
    Some((self::number(&disk)?, name))
}

/// All bound loop devices.
fn loops(root: &Path) -> Result<Vec<Loop>, Refusal> {
    let mut found = Vec::new();
    for disk in disks(root) {
        let name = base(&disk);
        if !disk.join("loop").is_dir() {
            continue;
        }
        let told = number(&disk).and_then(|number| node(root, &name, number)).map(|node| status(&node));
        let by_path = || {
            let path = text(&disk.join("loop/backing_file"))?;
            let data = fs::metadata(root.join(path.strip_prefix('/')?)).ok()?;
            let device = data.file_type().is_block_device().then(|| unpacked(data.rdev()));
            Some(Loop { name: name.clone(), file: (data.dev(), data.ino()), device })
        };
        match told {
            Some(Ok(told)) => found.push(Loop { name, ..told }),
            // The loop device was unbound meanwhile.
            Some(Err(error)) if error.raw_os_error() == Some(libc::ENXIO) => {}
            _ if !disk.join("loop").is_dir() => {}
            failed => found.push(by_path().ok_or_else(|| {
                let why = match failed {
                    Some(Err(error)) => reason(&error),
                    _ => "it has no node in /dev".to_string(),
                };
                Refusal::Refused(format!(
                    "cannot see what {name} is layered on ({why}): run as root, or detach it (losetup -d \
                     /dev/{name})"
                ))
            })?),
        }
    }
    Ok(found)
}

/// Asks the driver, whose answer does not depend on a renamed, removed or hidden path.
fn status(node: &Path) -> std::io::Result<Loop> {
    /// `struct loop_info64` of linux/loop.h.
    #[repr(C)]
    struct Info {
        device: u64,
        inode: u64,
        rdevice: u64,
        rest: [u64; 26],
    }
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(node)?;
    let mut info = Info { device: 0, inode: 0, rdevice: 0, rest: [0; 26] };
    // SAFETY: the call writes one loop_info64, 232 bytes, to the address.
    if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let device = kernels(info.rdevice);
    Ok(Loop {
        name: String::new(),
        file: (libc::makedev(kernels(info.device).0, kernels(info.device).1), info.inode),
        device: (info.rdevice != 0).then_some(device),
    })
}

/// The kernel packs device numbers differently from the C library.
fn kernels(packed: u64) -> DeviceNumber {
    let packed = packed as u32;
    ((packed & 0xf_ff00) >> 8, (packed & 0xff) | ((packed >> 12) & 0xf_ff00))
}

/// Paths that are exported to other machines or virtual machines: (what it is, the path).
fn exports(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut add = |what: String, file: PathBuf| {
        // A local path, or `none`, or empty.
        if let Some(path) = text(&file).filter(|path| path.starts_with('/')) {
            found.push((what, root.join(path.trim_start_matches('/'))));
        }
    };
    for disk in disks(root) {
        add(base(&disk), disk.join("backing_dev"));
    }
    let config = root.join("sys/kernel/config");
    for subsystem in entries(&config.join("nvmet/subsystems")) {
        for namespace in entries(&subsystem.join("namespaces")) {
            let what = format!("NVMe target {} namespace {}", base(&subsystem), base(&namespace));
            add(what, namespace.join("device_path"));
        }
    }
    for backstore in entries(&config.join("target/core")).iter().flat_map(|kind| entries(kind)) {
        add(format!("SCSI target {}", base(&backstore)), backstore.join("udev_path"));
    }
    for function in
        entries(&config.join("usb_gadget")).iter().flat_map(|gadget| entries(&gadget.join("functions")))
    {
        for unit in entries(&function) {
            add(format!("USB gadget {}", base(&function)), unit.join("file"));
        }
    }
    found
}

/// An id that is equal on all paths to the same storage: the world-wide name of NVMe and SCSI.
fn storage_id(disk: &Path) -> Option<String> {
    text(&disk.join("wwid")).or_else(|| text(&disk.join("device/wwid")))
}

/// The sysfs directories of all disks.
fn disks(root: &Path) -> Vec<PathBuf> {
    entries(&root.join("sys/block")).iter().filter_map(|link| fs::canonicalize(link).ok()).collect()
}

fn directory_of(root: &Path, number: DeviceNumber) -> Option<PathBuf> {
    fs::canonicalize(root.join(format!("sys/dev/block/{}:{}", number.0, number.1))).ok()
}

/// The directory of a partition's disk; for a disk its own.
fn whole(directory: &Path) -> PathBuf {
    match directory.parent() {
        Some(disk) if directory.join("partition").is_file() => disk.to_path_buf(),
        _ => directory.to_path_buf(),
    }
}

fn partitions(disk: &Path) -> Vec<PathBuf> {
    entries(disk).into_iter().filter(|path| path.join("partition").is_file()).collect()
}

fn number(directory: &Path) -> Option<DeviceNumber> {
    let text = text(&directory.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn base(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    names(directory).iter().map(|name| directory.join(name)).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// An attribute without surrounding white space and NULs; None where it is empty.
fn text(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = Vec::new();
    File::open(path).ok()?.take(1 << 16).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
pub mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs and procfs tree of a test machine in a folder, removed at the end.
    pub struct Tree(pub PathBuf);

    impl Tree {
        pub fn new(test: &str) -> Self {
            let root = std::env::temp_dir().join(format!("biopsy-guard-{test}-{}", std::process::id()));
            let _none = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("sys/block")).unwrap();
            fs::create_dir_all(root.join("sys/dev/block")).unwrap();
            fs::create_dir_all(root.join("sys/dev/char")).unwrap();
            Self(root)
        }

        pub fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, from: &str, to: &str) {
            let from = self.0.join(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(self.0.join(to), from).unwrap();
        }

        /// Adds a disk by its folder below `sys/devices`.
        pub fn disk(&self, folder: &str, number: &str) {
            let directory = format!("sys/devices/{folder}");
            self.write(&format!("{directory}/dev"), &format!("{number}\n"));
            self.link(&format!("sys/block/{}", folder.rsplit('/').next().unwrap()), &directory);
            self.link(&format!("sys/dev/block/{number}"), &directory);
        }

        pub fn part(&self, folder: &str, number: &str) {
            let directory = format!("sys/devices/{folder}");
            self.write(&format!("{directory}/dev"), &format!("{number}\n"));
            self.write(&format!("{directory}/partition"), "1\n");
            self.link(&format!("sys/dev/block/{number}"), &directory);
        }

        /// Stacks `upper` on `lower`, both folders below `sys/devices`.
        pub fn stack(&self, upper: &str, lower: &str) {
            let base = |folder: &str| folder.rsplit('/').next().unwrap().to_string();
            self.link(
                &format!("sys/devices/{upper}/slaves/{}", base(lower)),
                &format!("sys/devices/{lower}"),
            );
            self.link(
                &format!("sys/devices/{lower}/holders/{}", base(upper)),
                &format!("sys/devices/{upper}"),
            );
        }

        pub fn kin(&self, number: DeviceNumber) -> DeviceGraph {
            DeviceGraph::of_device(&self.0, number).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _kept = fs::remove_dir_all(&self.0);
        }
    }

    fn blocks(kin: &DeviceGraph) -> Vec<&str> {
        kin.blocks.values().map(String::as_str).collect()
    }

    #[test]
    fn a_partition_has_its_disk_and_the_partitions_beside_it_for_kin() {
        let tree = Tree::new("partition");
        tree.disk("pci/sda", "8:0");
        tree.part("pci/sda/sda1", "8:1");
        tree.part("pci/sda/sda2", "8:2");
        tree.disk("pci/sdb", "8:16");
        tree.write("sys/devices/pci/sda/device/scsi_generic/sg0/dev", "21:0\n");
        tree.write("sys/devices/pci/sda/device/bsg/0:0:0:0/dev", "245:0\n");
        let kin = tree.kin((8, 1));
        assert_eq!((kin.name.as_str(), kin.disk.as_str()), ("sda1", "sda"));
        assert_eq!(blocks(&kin), ["sda", "sda1", "sda2"]);
        assert_eq!(kin.claims, BTreeMap::from([((8, 2), "sda2".to_string())]));
        assert_eq!(kin.chars.values().collect::<Vec<_>>(), ["sg0", "0:0:0:0"]);
        let whole = tree.kin((8, 0));
        assert!(whole.claims.is_empty(), "the claim of a disk is one of its partitions");
        assert!(DeviceGraph::of_device(&tree.0, (8, 3)).is_err());
    }

    #[test]
    fn two_ways_to_one_namespace_are_one_storage() {
        let tree = Tree::new("ways");
        for (number, wwid) in [(0, "eui.1"), (1, "eui.1"), (2, "eui.2")] {
            let folder = format!("pci/nvme{number}/nvme{number}n1");
            tree.disk(&folder, &format!("259:{number}"));
            tree.write(&format!("sys/devices/{folder}/wwid"), wwid);
            let generic = format!("sys/devices/pci/nvme{number}/ng{number}n1");
            tree.write(&format!("{generic}/dev"), &format!("242:{number}\n"));
            tree.link(&format!("{generic}/subsystem"), "sys/class/nvme-generic");
            tree.link(&format!("sys/dev/char/242:{number}"), &generic);
        }
        fs::create_dir_all(tree.0.join("sys/class/nvme-generic")).unwrap();
        tree.part("pci/nvme1/nvme1n1/nvme1n1p1", "259:9");
        tree.disk("virtual/dm-3", "253:3");
        tree.stack("virtual/dm-3", "pci/nvme1/nvme1n1/nvme1n1p1");
        let kin = tree.kin((259, 0));
        assert_eq!(blocks(&kin), ["nvme0n1", "nvme1n1", "nvme1n1p1"]);
        assert_eq!(kin.chars.values().collect::<Vec<_>>(), ["ng0n1", "ng1n1"]);
        assert_eq!(kin.claims.values().collect::<Vec<_>>(), ["nvme1n1"]);
        assert_eq!(kin.above, [Above { upper: "dm-3".into(), lower: "nvme1n1p1".into() }]);
        assert_eq!(blocks(&tree.kin((259, 2))), ["nvme2n1"]);
        assert_eq!(namespace_of(&tree.0, (242, 1)), Some(((259, 1), "ng1n1".to_string())));
        assert_eq!(namespace_of(&tree.0, (1, 3)), None);
    }

    #[test]
    fn a_path_of_a_multipath_head_that_is_hidden_does_no_harm() {
        let tree = Tree::new("hidden");
        tree.disk("virtual/nvme-subsys0/nvme0n1", "259:0");
        tree.write("sys/devices/virtual/nvme-subsys0/nvme0n1/wwid", "eui.1");
        tree.write("sys/devices/pci/nvme0/nvme0c0n1/wwid", "eui.1");
        tree.link("sys/block/nvme0c0n1", "sys/devices/pci/nvme0/nvme0c0n1");
        tree.write("sys/devices/virtual/nvme-subsys0/ng0n1/dev", "242:0");
        let kin = tree.kin((259, 0));
        assert_eq!((blocks(&kin), kin.claims.len(), kin.chars.len()), (vec!["nvme0n1"], 0, 1));
        assert!(kin.disks.contains("nvme0c0n1"));
    }

    #[test]
    fn volumes_on_the_disk_of_the_root_stand_on_the_same_ground() {
        let tree = Tree::new("volumes");
        tree.disk("pci/sda", "8:0");
        tree.part("pci/sda/sda2", "8:2");
        tree.disk("pci/sdb", "8:16");
        for (number, lower) in [(0, "pci/sda/sda2"), (1, "pci/sda/sda2"), (2, "pci/sdb")] {
            let upper = format!("virtual/dm-{number}");
            tree.disk(&upper, &format!("253:{number}"));
            tree.stack(&upper, lower);
        }
        let ground = ground(&tree.0, (253, 0));
        assert_eq!(ground, BTreeSet::from(["dm-0".to_string(), "sda".to_string()]));
        let (data, other) = (tree.kin((253, 1)), tree.kin((253, 2)));
        assert_eq!(data.disks.intersection(&ground).collect::<Vec<_>>(), ["sda"]);
        assert_eq!(blocks(&data), ["sda", "sda2", "dm-1"]);
        assert!(data.above.is_empty(), "a volume beside it is not above it: {:?}", data.above);
        assert_eq!(other.disks.intersection(&ground).count(), 0);
        assert_eq!(tree.kin((8, 0)).above.len(), 2);
    }

    #[test]
    fn exports_to_elsewhere_lie_above() {
        let tree = Tree::new("exports");
        tree.disk("virtual/loop0", "7:0");
        tree.disk("virtual/zram0", "252:0");
        let image = tree.0.join("image");
        fs::write(&image, "x").unwrap();
        let data = fs::metadata(&image).unwrap();
        let subsystem = "sys/kernel/config/nvmet/subsystems/shelf/namespaces/1/device_path";
        tree.write(subsystem, "/image\n");
        let above =
            |tree: &Tree| DeviceGraph::of_file(&tree.0, (data.dev(), data.ino()), "image").unwrap().above;
        assert_eq!(above(&tree)[0].upper, "NVMe target shelf namespace 1");
        tree.write(subsystem, "/other\n");
        assert!(above(&tree).is_empty());
        tree.write("sys/kernel/config/target/core/fileio_0/disk/udev_path", "/image");
        assert_eq!(above(&tree)[0].upper, "SCSI target disk");
        // A loop device without a node is found by its path.
        tree.write("sys/kernel/config/target/core/fileio_0/disk/udev_path", "");
        tree.write("sys/devices/virtual/loop0/loop/backing_file", "/image\n");
        assert_eq!(above(&tree), [Above { upper: "loop0".into(), lower: "image".into() }]);
        tree.write("sys/devices/virtual/loop0/loop/backing_file", "/image (deleted)\n");
        let why = DeviceGraph::of_file(&tree.0, (1, 1), "x").unwrap_err().to_string();
        assert!(why.contains("cannot see what loop0 is layered on"), "{why}");
    }

    #[test]
    fn the_kernel_packs_numbers_in_its_own_way() {
        assert_eq!(kernels(0x0700), (7, 0));
        assert_eq!(kernels((259 << 8) | 0x3f | (0x12 << 20)), (259, 0x123f));
    }
}
