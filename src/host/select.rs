//! Resolves a device that a user names, or the disk of a file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::attribute::device_number;
use super::mounts::{mount_of, mounts};
use super::{BlockDevice, Host, Partition};
use crate::refusal::Refusal;

/// A disk, or a partition and its disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device<'a> {
    pub disk: &'a BlockDevice,
    pub partition: Option<&'a Partition>,
}

impl<'a> Device<'a> {
    fn of_disk(disk: &'a BlockDevice) -> Self {
        Self { disk, partition: None }
    }

    /// Its own name, not that of the disk.
    pub fn name(&self) -> &'a str {
        self.partition.map_or(&self.disk.name, |partition| &partition.name)
    }
}

/// Resolves a filter as [`find`] does; a partition yields its disk.
pub fn resolve<'a>(host: &'a Host, root: &Path, text: &str) -> Result<&'a BlockDevice> {
    Ok(find(host, root, text)?.disk)
}

/// Finds the disk or partition that a filter names: by kernel name, device-mapper name, `MAJ:MIN`, or a path such as
/// `/dev/nvme0n1` or `/dev/disk/by-id/...`.
///
/// Anything else is a refusal: exit code 3.
pub fn find<'a>(host: &'a Host, root: &Path, text: &str) -> Result<Device<'a>> {
    if let Some(device) = by_name(host, text) {
        return Ok(device);
    }
    if let Some((major, minor)) = device_number(text) {
        return by_number(host, major, minor).ok_or_else(|| unknown(text));
    }
    if !text.contains('/') {
        return Err(unknown(text));
    }
    let path = text.strip_prefix('/').map_or_else(|| PathBuf::from(text), |below| root.join(below));
    match fs::metadata(&path) {
        Ok(data) if data.file_type().is_block_device() => {
            by_number(host, libc::major(data.rdev()), libc::minor(data.rdev())).ok_or_else(|| unknown(text))
        }
        // In a container or a captured tree the node itself is missing, but the name is valid.
        found => by_link(host, &path, text).ok_or_else(|| match found {
            Ok(data) => wrong_kind(text, &data.file_type()),
            Err(_) => unknown(text),
        }),
    }
}

/// The disks whose requests carry the I/O of the disk that a filter names: the disk itself, or the hidden paths of an
/// NVMe multipath head.
///
/// Other bio-based disks are a refusal that names the disks below: the requests of those disks are not the I/O that the
/// user selected.
pub fn traceable<'a>(host: &'a Host, root: &Path, text: &str) -> Result<Vec<&'a BlockDevice>> {
    let device = resolve(host, root, text)?;
    requests_of(host, device).ok_or_else(|| bio_based(host, device))
}

/// The names of the devices that are measured if a filter names this disk or partition. With `sees_bios`, a bio-based
/// disk is measured itself; a multipath head is not, because its bios become those of its paths. Without it, as
/// [`traceable`].
///
/// A partition of a multipath head selects all paths: their requests do not name the partition.
pub fn measured<'a>(host: &'a Host, device: Device<'a>, sees_bios: bool) -> Result<Vec<&'a str>> {
    let disk = device.disk;
    match requests_of(host, disk) {
        Some(_) if device.partition.is_some() && !is_head(host, disk) => Ok(vec![device.name()]),
        Some(all) => Ok(all.iter().map(|disk| disk.name.as_str()).collect()),
        None if sees_bios => Ok(vec![device.name()]),
        None => Err(bio_based(host, disk)),
    }
}

/// Refuses a disk together with one of its partitions, and two partitions of one disk: a request of the disk would
/// belong to both. Exit code 2.
pub fn disjoint(host: &Host, names: &[String]) -> Result<()> {
    let mut by_disk: BTreeMap<&str, &str> = BTreeMap::new();
    for name in names {
        let Some(disk) = host.device(name) else { continue };
        let other = by_disk.insert(&disk.name, name).filter(|other| other != name);
        if let Some(other) = other {
            let why = format!(
                "{} and {} are on the same disk: name {disk}, or one of its partitions",
                other.escape_debug(),
                name.escape_debug(),
                disk = disk.name.escape_debug()
            );
            return Err(Refusal::Usage(why).into());
        }
    }
    Ok(())
}

/// All disks below a disk, nearest first.
pub fn below<'a>(host: &'a Host, device: &'a BlockDevice) -> Vec<&'a BlockDevice> {
    with_layers(host, device).split_off(1)
}

/// Whether it is an NVMe multipath head.
pub fn is_head(host: &Host, device: &BlockDevice) -> bool {
    !device.request_based && requests_of(host, device).is_some()
}

/// A disk and all disks below it that have requests; with `bios`, bio-based disks too. A refusal if there are none.
pub fn stack<'a>(host: &'a Host, disk: &str, bios: bool) -> Result<Vec<&'a BlockDevice>> {
    let device = host.device(disk).ok_or_else(|| unknown(disk))?;
    let all = with_layers(host, device).into_iter();
    let traced: Vec<&BlockDevice> =
        all.filter(|lower| lower.request_based || bios && !is_head(host, lower)).collect();
    if traced.is_empty() { Err(bio_based(host, device)) } else { Ok(traced) }
}

/// The disk itself, or the paths of a multipath head; None for other bio-based disks.
fn requests_of<'a>(host: &'a Host, device: &'a BlockDevice) -> Option<Vec<&'a BlockDevice>> {
    if device.request_based {
        return Some(vec![device]);
    }
    let paths: Vec<&BlockDevice> = device.layers.iter().filter_map(|name| host.device(name)).collect();
    let is_head = !paths.is_empty() && paths.iter().all(|path| path.hidden && path.request_based);
    is_head.then_some(paths)
}

/// A disk and all disks below it, nearest first.
fn with_layers<'a>(host: &'a Host, device: &'a BlockDevice) -> Vec<&'a BlockDevice> {
    let mut all = vec![device];
    let mut next = 0;
    while let Some(upper) = all.get(next) {
        for lower in upper.layers.iter().filter_map(|name| host.device(name)) {
            // The names come from sysfs of a machine that may be damaged: a cycle must end.
            if !all.iter().any(|known| known.name == lower.name) {
                all.push(lower);
            }
        }
        next += 1;
    }
    all
}

fn bio_based(host: &Host, device: &BlockDevice) -> anyhow::Error {
    let lower = with_layers(host, device);
    let names: Vec<String> = lower
        .iter()
        .skip(1)
        .filter(|lower| !lower.hidden && requests_of(host, lower).is_some())
        .map(|lower| lower.name.escape_debug().to_string())
        .collect();
    let remedy = if names.is_empty() {
        "and no disk below it has any: name another device, `biopsy devices` lists them".to_string()
    } else {
        let these = if names.len() == 1 { "that" } else { "those" };
        format!("its I/O runs on {}: name {these} with -d", names.join(", "))
    };
    let name = device.name.escape_debug();
    Refusal::Refused(format!("{name} has no requests of its own (it is bio-based), {remedy}")).into()
}

/// The devices that a view shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection<'a> {
    /// In the order of [`Host::devices`].
    pub devices: Vec<&'a BlockDevice>,
    /// Unused devices that are left out: empty loop, RAM, zram and network block devices.
    pub placeholders: Vec<&'a BlockDevice>,
}

/// The named devices without duplicates; without names, all but the placeholders; with `all`, those too.
pub fn selection<'a>(host: &'a Host, root: &Path, names: &[String], all: bool) -> Result<Selection<'a>> {
    if names.is_empty() {
        let (placeholders, devices) =
            host.devices.iter().partition(|device| !all && BlockDevice::is_placeholder(device));
        return Ok(Selection { devices, placeholders });
    }
    let mut named: Vec<&BlockDevice> =
        names.iter().map(|name| resolve(host, root, name)).collect::<Result<_>>()?;
    // The links, vectors and queues of an NVMe multipath drive belong to its paths.
    let heads = named.iter().filter(|device| is_head(host, device));
    let paths: Vec<&BlockDevice> = heads.filter_map(|head| requests_of(host, head)).flatten().collect();
    named.extend(paths);
    let is_named = |device: &&BlockDevice| named.iter().any(|other| other.name == device.name);
    Ok(Selection { devices: host.devices.iter().filter(is_named).collect(), placeholders: Vec::new() })
}

/// The disk that holds a file or directory, or that a device path names. None for file systems without a disk of their
/// own (tmpfs, overlay, network), and for paths that do not exist.
pub fn disk_of_path(path: &Path) -> Option<String> {
    let root = Path::new("/");
    let data = fs::metadata(path).ok()?;
    let number = if data.file_type().is_block_device() { data.rdev() } else { data.dev() };
    let (major, minor) = (libc::major(number), libc::minor(number));
    if major != 0 {
        return disk_of_number(root, major, minor);
    }
    // btrfs uses a number per subvolume that sysfs does not have, but its mount names the device.
    let path = fs::canonicalize(path).ok()?;
    let mounts = mounts(root);
    let source = mount_of(&mounts, &path.to_string_lossy())?.device_path()?;
    let data = fs::metadata(source).ok().filter(|data| data.file_type().is_block_device())?;
    disk_of_number(root, libc::major(data.rdev()), libc::minor(data.rdev()))
}

/// The disk of this device number; for the number of a partition, its disk.
pub fn disk_of_number(root: &Path, major: u32, minor: u32) -> Option<String> {
    let directory = fs::canonicalize(root.join(format!("sys/dev/block/{major}:{minor}"))).ok()?;
    let disk = if directory.join("partition").is_file() { directory.parent()? } else { &directory };
    Some(disk.file_name()?.to_string_lossy().into_owned())
}

fn by_name<'a>(host: &'a Host, name: &str) -> Option<Device<'a>> {
    // The kernel's names take precedence, because users choose device-mapper names freely.
    let disks = &host.devices;
    let disk = disks.iter().find(|disk| disk.name == name).map(Device::of_disk);
    disk.or_else(|| partition(host, |partition| partition.name == name))
        .or_else(|| disks.iter().find(|disk| disk.alias.as_deref() == Some(name)).map(Device::of_disk))
}

fn by_number(host: &Host, major: u32, minor: u32) -> Option<Device<'_>> {
    // 0:0 means that the device number is unknown.
    if (major, minor) == (0, 0) {
        return None;
    }
    let disk = host.devices.iter().find(|disk| (disk.major, disk.minor) == (major, minor));
    disk.map(Device::of_disk)
        .or_else(|| partition(host, |partition| (partition.major, partition.minor) == (major, minor)))
}

fn partition(host: &Host, is_it: impl Fn(&Partition) -> bool) -> Option<Device<'_>> {
    host.devices.iter().find_map(|disk| {
        let partition = disk.partitions.iter().find(|partition| is_it(partition))?;
        Some(Device { disk, partition: Some(partition) })
    })
}

/// Finds a device by the last name of a path in `/dev`, after links that can be read.
fn by_link<'a>(host: &'a Host, path: &Path, text: &str) -> Option<Device<'a>> {
    if let Some(alias) = text.strip_prefix("/dev/mapper/") {
        let disk = host.devices.iter().find(|device| device.alias.as_deref() == Some(alias));
        return disk.map(Device::of_disk);
    }
    if !text.starts_with("/dev/") {
        return None;
    }
    // The link may point to a node that does not exist, so only its target's name is used.
    let target = fs::read_link(path).unwrap_or_else(|_| path.to_path_buf());
    by_name(host, target.file_name()?.to_str()?)
}

fn unknown(text: &str) -> anyhow::Error {
    Refusal::Refused(format!("no block device '{}': `biopsy devices` lists them", text.escape_debug())).into()
}

fn wrong_kind(text: &str, kind: &fs::FileType) -> anyhow::Error {
    let kind = match kind {
        kind if kind.is_dir() => "a directory",
        kind if kind.is_file() => "a regular file",
        kind if kind.is_char_device() => "a character device",
        _ => "something else",
    };
    let name = text.escape_debug();
    Refusal::Refused(format!("'{name}' is {kind}, not a block device: `biopsy devices` lists them")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, minor: u32, partitions: &[&str]) -> BlockDevice {
        let partition = |(number, name): (u32, &&str)| Partition {
            name: name.to_string(),
            major: 252,
            minor: minor + number,
            ..Partition::default()
        };
        BlockDevice {
            name: name.to_string(),
            major: 252,
            minor,
            request_based: true,
            partitions: (1..).zip(partitions).map(partition).collect(),
            ..BlockDevice::default()
        }
    }

    /// A disk, an array with a partition, and a multipath drive with one path.
    fn host() -> Host {
        let array = BlockDevice { request_based: false, ..disk("md0", 64, &["md0p1"]) };
        let path = BlockDevice { hidden: true, ..disk("nvme0c0n1", 96, &[]) };
        let head = BlockDevice {
            request_based: false,
            layers: vec!["nvme0c0n1".into()],
            ..disk("nvme0n1", 128, &["nvme0n1p1"])
        };
        Host { devices: vec![disk("vda", 0, &["vda1", "vda2"]), array, path, head], ..Host::default() }
    }

    fn measured(text: &str, sees_bios: bool) -> Result<Vec<String>> {
        let host = host();
        let device = find(&host, Path::new("/nowhere"), text)?;
        Ok(super::measured(&host, device, sees_bios)?.into_iter().map(str::to_string).collect())
    }

    #[test]
    fn a_partition_is_measured_under_its_own_name() {
        for (text, name) in [
            ("vda", "vda"),
            ("vda2", "vda2"),
            ("/dev/vda2", "vda2"),
            ("252:2", "vda2"),
            ("252:0", "vda"),
            ("md0p1", "md0p1"),
            ("nvme0n1p1", "nvme0c0n1"),
        ] {
            assert_eq!(measured(text, true).unwrap(), [name], "{text}");
        }
        assert_eq!(measured("vda1", false).unwrap(), ["vda1"]);
        assert!(measured("md0p1", false).unwrap_err().to_string().starts_with("md0 has no requests"));
        for text in ["vda3", "vda1 ", "252:9", "/dev/vda99", "vda1/../vda2"] {
            let why = measured(text, true).unwrap_err().to_string();
            assert!(why.starts_with(&format!("no block device '{text}'")), "{why}");
        }
        assert_eq!(host().device("vda2").map(|disk| disk.name.clone()).as_deref(), Some("vda"));
    }

    #[test]
    fn what_overlaps_is_refused() {
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            disjoint(&host(), &names).err().map(|error| error.to_string())
        };
        for names in [["vda", "vda1"], ["vda2", "vda"], ["vda1", "vda2"]] {
            let [one, other] = names;
            let why = format!("{one} and {other} are on the same disk: name vda, or one of its partitions");
            assert_eq!(refused(&names).as_deref(), Some(&*why));
        }
        for names in [&["vda1", "vda1"][..], &["vda1", "md0p1"], &["vda", "md0"], &[]] {
            assert_eq!(refused(names), None, "{names:?}");
        }
    }
}
