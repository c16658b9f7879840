//! The block device below a target, from sysfs. The root is a parameter, so that a test can bring a
//! tree of its own.

use std::fs;
use std::path::Path;

/// Name of the whole disk with this number, or that holds the partition with this number, as
/// `/sys/block` names it. None for anonymous devices: tmpfs, overlay, btrfs, network file systems.
pub fn whole_disk(sysfs: &Path, major: u32, minor: u32) -> Option<String> {
    let node = fs::canonicalize(sysfs.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let disk = if node.join("partition").exists() { node.parent()? } else { &node };
    Some(disk.file_name()?.to_str()?.to_string())
}

/// The unit in which this disk can be addressed.
pub fn logical_block(sysfs: &Path, disk: &str) -> Option<u64> {
    let text = fs::read_to_string(sysfs.join("block").join(disk).join("queue/logical_block_size")).ok()?;
    text.trim().parse().ok().filter(|bytes: &u64| bytes.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_belongs_to_its_disk() {
        let root = std::env::temp_dir().join(format!("biopsy-sysfs-{}", std::process::id()));
        let disk = root.join("devices/pci/nvme0n1");
        fs::create_dir_all(disk.join("nvme0n1p2")).unwrap();
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(root.join("dev/block")).unwrap();
        fs::create_dir_all(root.join("block")).unwrap();
        fs::write(disk.join("nvme0n1p2/partition"), "2\n").unwrap();
        fs::write(disk.join("queue/logical_block_size"), "4096\n").unwrap();
        symlink("../devices/pci/nvme0n1", root.join("block/nvme0n1")).unwrap();
        symlink("../../devices/pci/nvme0n1", root.join("dev/block/259:0")).unwrap();
        symlink("../../devices/pci/nvme0n1/nvme0n1p2", root.join("dev/block/259:2")).unwrap();
        assert_eq!(whole_disk(&root, 259, 0).as_deref(), Some("nvme0n1"));
        assert_eq!(whole_disk(&root, 259, 2).as_deref(), Some("nvme0n1"));
        assert_eq!(whole_disk(&root, 0, 40), None);
        assert_eq!(logical_block(&root, "nvme0n1"), Some(4096));
        assert_eq!(logical_block(&root, "sda"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
