//! Joins disks to the disks below them (device mapper, RAID, loop devices, NVMe multipath), to mounts and to swap
//! areas.

use std::path::Path;

use super::attribute::{names, natural};
use super::mounts::{Mount, mount_of, mounts, swaps};
use super::{BlockDevice, Partition};

/// Index of a disk, or of a partition of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DiskIndex {
    disk: usize,
    partition: Option<usize>,
}

/// Fills in layers, slaves, holders, mount points and swap areas.
pub fn join(root: &Path, devices: &mut [BlockDevice]) {
    let mounts = mounts(root);
    for (upper, lower) in edges(root, devices, &mounts) {
        link(devices, upper, lower);
    }
    for mount in &mounts {
        if let Some(node) = source(devices, mount) {
            let disk = &mut devices[node.disk];
            push(&mut disk.mounted_at, &mount.point);
            if let Some(partition) = node.partition {
                push(&mut disk.partitions[partition].mounted_at, &mount.point);
            }
        }
    }
    for swap in swaps(root) {
        let node = if swap.is_file {
            mount_of(&mounts, &swap.name).and_then(|mount| source(devices, mount))
        } else {
            by_path(devices, &swap.name)
        };
        if let Some(node) = node {
            let disk = &mut devices[node.disk];
            push(&mut disk.swaps, &swap.name);
            if let Some(partition) = node.partition {
                push(&mut disk.partitions[partition].swaps, &swap.name);
            }
        }
    }
    for device in devices {
        device.layers.sort_by(|a, b| natural(a, b));
        device.slaves.sort_by(|a, b| natural(a, b));
        device.holders.sort_by(|a, b| natural(a, b));
    }
}

/// All (upper, lower) pairs. A pair can occur twice, because the kernel links both directions.
fn edges(root: &Path, devices: &[BlockDevice], mounts: &[Mount]) -> Vec<(usize, DiskIndex)> {
    let mut edges = Vec::new();
    let disk = |name: &str| devices.iter().position(|device| device.name == name);
    for (index, device) in devices.iter().enumerate() {
        let directory = root.join("sys/block").join(&device.name);
        edges.extend(
            names(&directory.join("slaves")).iter().filter_map(|name| Some((index, by_name(devices, name)?))),
        );
        let holders = |directory: &Path| names(&directory.join("holders"));
        let own = DiskIndex { disk: index, partition: None };
        edges.extend(holders(&directory).iter().filter_map(|name| Some((disk(name)?, own))));
        for (at, partition) in device.partitions.iter().enumerate() {
            let node = DiskIndex { disk: index, partition: Some(at) };
            let above = holders(&directory.join(&partition.name));
            edges.extend(above.iter().filter_map(|name| Some((disk(name)?, node))));
        }
        if let Some(file) = &device.backing_file {
            edges.extend(under_file(devices, mounts, file).map(|lower| (index, lower)));
        }
        if let Some(head) = multipath_head(&device.name).and_then(|head| disk(&head)) {
            edges.push((head, own));
        }
    }
    edges
}

fn link(devices: &mut [BlockDevice], upper: usize, lower: DiskIndex) {
    // No device lies on itself, even if a directory says so.
    if upper == lower.disk {
        return;
    }
    let (above, below) = (devices[upper].name.clone(), devices[lower.disk].name.clone());
    let named = match lower.partition {
        Some(at) => devices[lower.disk].partitions[at].name.clone(),
        None => below.clone(),
    };
    push(&mut devices[upper].layers, &below);
    push(&mut devices[upper].slaves, &named);
    push(&mut devices[lower.disk].holders, &above);
    if let Some(at) = lower.partition {
        push(&mut devices[lower.disk].partitions[at].holders, &above);
    }
}

fn push(list: &mut Vec<String>, name: &str) {
    if !list.iter().any(|known| known == name) {
        list.push(name.to_string());
    }
}

/// The device of a mounted file system, by its number. For a file system with device numbers of its own (btrfs), by the
/// name of its source.
fn source(devices: &[BlockDevice], mount: &Mount) -> Option<DiskIndex> {
    match mount.device_path() {
        Some(path) => by_path(devices, path),
        // No disk has major 0. A hidden disk whose number is unknown must not match it.
        None if mount.major == 0 => None,
        None => by_number(devices, mount.major, mount.minor),
    }
}

/// The device below a loop device: another device, or the disk of the file system that holds the file.
fn under_file(devices: &[BlockDevice], mounts: &[Mount], file: &str) -> Option<DiskIndex> {
    by_path(devices, file).or_else(|| source(devices, mount_of(mounts, file)?))
}

fn by_number(devices: &[BlockDevice], major: u32, minor: u32) -> Option<DiskIndex> {
    find(
        devices,
        |device| (device.major, device.minor) == (major, minor),
        |partition| (partition.major, partition.minor) == (major, minor),
    )
}

fn by_name(devices: &[BlockDevice], name: &str) -> Option<DiskIndex> {
    find(devices, |device| device.name == name, |partition| partition.name == name)
}

/// Resolves `/dev/sda1` and `/dev/mapper/vg0-root`. User space makes the other links below `/dev`; they are not
/// followed.
fn by_path(devices: &[BlockDevice], path: &str) -> Option<DiskIndex> {
    let name = path.strip_prefix("/dev/")?;
    if let Some(alias) = name.strip_prefix("mapper/") {
        return find(devices, |device| device.alias.as_deref() == Some(alias), |_| false);
    }
    by_name(devices, name)
}

fn find(
    devices: &[BlockDevice],
    is_disk: impl Fn(&BlockDevice) -> bool,
    is_partition: impl Fn(&Partition) -> bool,
) -> Option<DiskIndex> {
    devices.iter().enumerate().find_map(|(disk, device)| {
        if is_disk(device) {
            return Some(DiskIndex { disk, partition: None });
        }
        let partition = device.partitions.iter().position(&is_partition)?;
        Some(DiskIndex { disk, partition: Some(partition) })
    })
}

/// Splits `nvme<subsystem>[c<controller>]n<namespace>`.
pub(super) fn nvme_name(name: &str) -> Option<(u32, Option<u32>, u32)> {
    let (front, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
    let namespace = namespace.parse().ok()?;
    match front.split_once('c') {
        Some((subsystem, controller)) => {
            Some((subsystem.parse().ok()?, Some(controller.parse().ok()?), namespace))
        }
        None => Some((front.parse().ok()?, None, namespace)),
    }
}

/// The head of a multipath node, from its name: nvme0c3n1 is a path of nvme0n1.
fn multipath_head(name: &str) -> Option<String> {
    let (subsystem, controller, namespace) = nvme_name(name)?;
    controller.map(|_| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_node_names_its_head() {
        assert_eq!(multipath_head("nvme0c3n1").as_deref(), Some("nvme0n1"));
        for name in ["nvme0n1", "nvme0", "nvmecn", "nvme0c3n1p1", "sda", "nvme99999999999c1n1"] {
            assert_eq!(multipath_head(name), None, "{name}");
        }
    }
}
