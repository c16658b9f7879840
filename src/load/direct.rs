//! Determines whether an open file supports direct I/O, and with which alignment.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use super::buffers::{Buffers, PAGE};
use crate::host::select::disk_of_number;

/// The smallest unit of the block layer, used where nothing better is known.
const SECTOR: u64 = 512;

/// Whether and in which units a file can be read with direct I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Offsets and lengths must be multiples of this.
    pub block: u64,
    /// The whole disk below the file; None where the file system has no block device of its own.
    pub device: Option<String>,
}

/// Why a file cannot be read with direct I/O.
#[derive(Debug)]
pub enum Obstacle {
    /// The file system keeps its data in memory, or does not do direct I/O.
    Unsupported,
    /// Something else failed.
    Failed(io::Error),
}

/// Asks the kernel; where it does not report the alignment, reads sysfs below `root`.
pub fn facts(file: &File, root: &Path) -> Result<Facts, Obstacle> {
    let metadata = file.metadata().map_err(Obstacle::Failed)?;
    let is_device = metadata.file_type().is_block_device();
    let number = if is_device { metadata.rdev() } else { metadata.dev() };
    let device = disk_of_number(root, libc::major(number), libc::minor(number));
    if !is_device && in_memory(file) {
        return Err(Obstacle::Unsupported);
    }
    let told = if is_device { logical_block_of_device(file) } else { alignment_of_file(file)? };
    let block =
        told.or_else(|| device.as_deref().and_then(|disk| logical_block(root, disk))).unwrap_or(SECTOR);
    Ok(Facts { block, device })
}

/// Reads the first block: some file systems accept the flag and refuse the read.
pub fn try_read(file: &File, block: u64) -> Result<(), Obstacle> {
    let bytes = usize::try_from(block).unwrap_or(PAGE);
    let mut buffer = Buffers::new(bytes.next_multiple_of(PAGE)).map_err(Obstacle::Failed)?;
    match file.read_at(&mut buffer.as_mut_slice()[..bytes], 0) {
        Ok(_) => Ok(()),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Err(Obstacle::Unsupported)
        }
        Err(e) => Err(Obstacle::Failed(e)),
    }
}

/// Whether the driver of a disk has poll queues; true where sysfs does not report it.
pub fn has_poll_queues(root: &Path, disk: &str) -> bool {
    let text = fs::read_to_string(root.join("sys/block").join(disk).join("queue/io_poll"));
    text.map_or(true, |text| text.trim() != "0")
}

/// Newer kernels accept O_DIRECT on tmpfs but still read through the page cache, without any I/O.
fn in_memory(file: &File) -> bool {
    /// `RAMFS_MAGIC` of linux/magic.h, which libc does not have.
    const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;
    // SAFETY: zeroed is a valid statfs, and the call only writes to it.
    let kind = unsafe {
        let mut fs: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut fs) != 0 {
            return false;
        }
        fs.f_type
    };
    kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC
}

/// The logical block size of a block device.
fn logical_block_of_device(file: &File) -> Option<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int to the address.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &mut bytes) };
    (done == 0).then(|| u64::try_from(bytes).ok().filter(|b| b.is_power_of_two())).flatten()
}

/// The logical block size of a disk from sysfs.
fn logical_block(root: &Path, disk: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("sys/block").join(disk).join("queue/logical_block_size")).ok()?;
    text.trim().parse().ok().filter(|bytes: &u64| bytes.is_power_of_two())
}

/// The alignment that the file system requires (statx, Linux 6.1 on ext4, xfs, f2fs); None where it is not reported.
fn alignment_of_file(file: &File) -> Result<Option<u64>, Obstacle> {
    // SAFETY: zeroed is a valid statx, the path is an empty C string (the file itself is meant), and
    // the call only writes to the struct.
    let (done, told) = unsafe {
        let mut told: libc::statx = std::mem::zeroed();
        let done =
            libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &mut told);
        (done, told)
    };
    if done != 0 || told.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Ok(None);
    }
    match told.stx_dio_offset_align {
        // Reported as zero: this file does not support direct I/O (encrypted, inline or journalled data).
        0 => Err(Obstacle::Unsupported),
        bytes => Ok(Some(u64::from(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_queues_are_the_drivers_word() {
        let root = std::env::temp_dir().join(format!("biopsy-poll-{}", std::process::id()));
        for (disk, text) in [("nvme0n1", "1\n"), ("sda", "0\n")] {
            let queue = root.join("sys/block").join(disk).join("queue");
            fs::create_dir_all(&queue).unwrap();
            fs::write(queue.join("io_poll"), text).unwrap();
        }
        assert!(has_poll_queues(&root, "nvme0n1") && !has_poll_queues(&root, "sda"));
        assert!(has_poll_queues(&root, "sdb"), "not told: the first read will");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_unit_of_a_disk_is_a_power_of_two_or_not_known() {
        let root = std::env::temp_dir().join(format!("biopsy-direct-{}", std::process::id()));
        for (disk, text) in [("nvme0n1", "4096\n"), ("sda", "1000\n")] {
            let queue = root.join("sys/block").join(disk).join("queue");
            fs::create_dir_all(&queue).unwrap();
            fs::write(queue.join("logical_block_size"), text).unwrap();
        }
        assert_eq!(logical_block(&root, "nvme0n1"), Some(4096));
        assert_eq!(logical_block(&root, "sda"), None);
        assert_eq!(logical_block(&root, "sdb"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
