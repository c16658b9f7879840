//! Reads the current use of memory from `/proc/meminfo`, or from the meminfo file of a node.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::absence::Absence;
use super::attribute::file;

/// In bytes. A value that is not given is None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Meminfo {
    pub free_bytes: Option<u64>,
    /// The page cache, including the buffers of block devices.
    pub file_bytes: Option<u64>,
    /// Pages of block devices themselves, which the page cache does not count. A node does not give them.
    pub buffers_bytes: Option<u64>,
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
}

impl Meminfo {
    /// Reads the values of the machine; all None if the file cannot be read.
    pub fn read(root: &Path) -> Self {
        file(&root.join("proc/meminfo")).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Reads the values of the node with this number.
    pub fn read_node(root: &Path, node: u32) -> Self {
        let path = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
        file(&path).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Parses lines `NAME: N kB`; in the file of a node, `Node N` comes first.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        // The machine's value excludes the buffers; a node's value includes them.
        let (mut cached, mut is_node) = (None, false);
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let of_node = name.starts_with("Node ");
            let name = if of_node { name.rsplit(' ').next().unwrap_or_default() } else { name };
            let place = match name {
                "MemFree" => &mut all.free_bytes,
                "Buffers" => &mut all.buffers_bytes,
                "Cached" if !of_node => &mut cached,
                "FilePages" if of_node => &mut cached,
                "Dirty" => &mut all.dirty_bytes,
                "Writeback" => &mut all.writeback_bytes,
                _ => continue,
            };
            *place = bytes(value);
            is_node |= of_node;
        }
        all.file_bytes = match is_node {
            true => cached,
            false => cached.zip(all.buffers_bytes).and_then(|(cached, buffers)| cached.checked_add(buffers)),
        };
        all
    }

    /// The absent values, with reasons.
    pub fn absent(&self) -> Vec<Absence> {
        let all = [
            ("free_bytes", self.free_bytes, "MemFree"),
            ("file_bytes", self.file_bytes, "Cached or Buffers"),
            ("buffers_bytes", self.buffers_bytes, "Buffers"),
            ("dirty_bytes", self.dirty_bytes, "Dirty"),
            ("writeback_bytes", self.writeback_bytes, "Writeback"),
        ];
        let why = |name| format!("/proc/meminfo has no {name} that is a number of kB");
        all.into_iter()
            .filter(|(_, value, _)| value.is_none())
            .map(|(what, _, name)| Absence { what: what.into(), why: why(name) })
            .collect()
    }
}

fn bytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buffers_are_part_of_the_page_cache() {
        let text = "MemTotal: 100 kB\nMemFree:   40 kB\nBuffers: 3 kB\nCached:  20 kB\nDirty: 2 kB\nWriteback: 1 kB\n\
                    WritebackTmp: 7 kB\n";
        let memory = Meminfo::parse(text);
        assert_eq!(memory.file_bytes, Some(23 << 10));
        assert_eq!((memory.dirty_bytes, memory.writeback_bytes), (Some(2 << 10), Some(1 << 10)));
        assert!(memory.absent().is_empty());
    }

    #[test]
    fn a_node_counts_them_together() {
        let text =
            "Node 1 MemFree:  40 kB\nNode 1 FilePages:  20 kB\nNode 1 Dirty: 0 kB\nNode 1 Cached: 9 kB\n";
        let memory = Meminfo::parse(text);
        assert_eq!((memory.file_bytes, memory.free_bytes), (Some(20 << 10), Some(40 << 10)));
    }

    #[test]
    fn what_is_no_number_of_kilobytes_is_absent_and_never_zero() {
        for value in ["", "-1 kB", "x kB", "12", "18446744073709551615 kB"] {
            let memory = Meminfo::parse(&format!("MemFree: {value}\nCached: 1 kB\n"));
            assert_eq!(memory.free_bytes, None, "{value:?}");
            // Without the buffers the value would be too low.
            assert_eq!(memory.file_bytes, None);
            let absent = memory.absent();
            assert!(absent.iter().any(|a| a.what == "file_bytes" && a.why.contains("Buffers")), "{absent:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[A-Za-z: 0-9kB\n\\PC]{0,300}") {
            let memory = Meminfo::parse(&text);
            prop_assert!(memory.absent().len() <= 5);
        }
    }
}
