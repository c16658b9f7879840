//! Reads the I/O that the kernel accounts to this process.

use std::path::Path;

use super::attribute::file;

/// Bytes that this process dirtied in the page cache of disks or wrote directly, since it started. Writeback by kernel
/// threads is accounted when the page becomes dirty. None if the kernel does not account I/O
/// (CONFIG_TASK_IO_ACCOUNTING).
pub fn written_bytes(root: &Path) -> Option<u64> {
    parse(&file(&root.join("proc/self/io")).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_that_of_the_storage_layer() {
        let text = "rchar: 3\nwchar: 900\nsyscr: 1\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 4096\ncancelled_write_bytes: 7\n";
        assert_eq!(parse(text), Some(4096));
        assert_eq!([parse(""), parse("write_bytes: x\n")], [None, None]);
    }
}
