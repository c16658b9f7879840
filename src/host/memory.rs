//! Reads the memory size of the machine and of each NUMA node.

use std::collections::BTreeMap;
use std::path::Path;

use super::attribute::{file, names};
use super::cpu::field;

/// `MemTotal` of `/proc/meminfo`, in bytes.
pub fn bytes(root: &Path) -> Option<u64> {
    total(&file(&root.join("proc/meminfo")).ok()?, "MemTotal")
}

/// `MemTotal` of each online node that gives it, in bytes.
pub fn by_node(root: &Path) -> BTreeMap<u32, u64> {
    let directory = root.join("sys/devices/system/node");
    let node = |name: &String| {
        let number: u32 = name.strip_prefix("node")?.parse().ok()?;
        let info = file(&directory.join(name).join("meminfo")).ok()?;
        Some((number, total(&info, &format!("Node {number} MemTotal"))?))
    };
    names(&directory).iter().filter_map(node).collect()
}

/// The value of a line `NAME: N kB`, in bytes.
fn total(info: &str, name: &str) -> Option<u64> {
    field(info, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_memory_is_read_with_and_without_its_node() {
        let info = "Node 1 MemTotal:       15558860 kB\nNode 1 MemFree:        12253688 kB\n";
        assert_eq!(total(info, "Node 1 MemTotal"), Some(15_558_860 << 10));
        assert_eq!((total(info, "Node 0 MemTotal"), total(info, "MemTotal")), (None, None));
        for value in ["", "-1 kB", "99999999999999999999 kB", "18446744073709551615 kB", "12"] {
            assert_eq!(total(&format!("MemTotal: {value}\n"), "MemTotal"), None, "{value:?}");
        }
    }
}
