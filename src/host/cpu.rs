//! Reads the lists of CPUs, cores and NUMA nodes.

use std::path::Path;

use super::NumaNode;
use super::attribute::{file, list, names, text};

/// The CPUs of the machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cpus {
    /// `model name` of the first CPU in `/proc/cpuinfo`; not every architecture prints one.
    pub model: Option<String>,
    pub online: Vec<u32>,
    pub possible: Vec<u32>,
    /// Online nodes. Empty on a kernel built without NUMA: the machine is then one node.
    pub nodes: Vec<NumaNode>,
}

impl Cpus {
    /// Reads `/proc/cpuinfo` and `/sys/devices/system/{cpu,node}`.
    pub fn read(root: &Path) -> Self {
        let info = file(&root.join("proc/cpuinfo")).unwrap_or_default();
        let system = root.join("sys/devices/system");
        let listed = |name: &str| text(&system.join(name)).and_then(|value| list(&value));
        // Without sysfs, cpuinfo still lists the online CPUs.
        let online = listed("cpu/online").unwrap_or_else(|| processors(&info));
        let possible = listed("cpu/possible").unwrap_or_else(|| online.clone());
        Self {
            model: field(&info, "model name").map(str::to_string),
            online,
            possible,
            nodes: nodes(&system.join("node")),
        }
    }
}

/// The hardware threads of each physical core, ascending. A CPU without topology counts as a core of its own.
pub fn cores(root: &Path, cpus: &[u32]) -> Vec<Vec<u32>> {
    let mut cores: Vec<Vec<u32>> =
        cpus.iter().map(|cpu| threads(root, *cpu).unwrap_or_else(|| vec![*cpu])).collect();
    cores.sort();
    cores.dedup();
    cores
}

/// The hardware threads of a CPU's core, including the CPU itself, from `/sys/devices/system/cpu/cpuN/topology`; None
/// if the kernel does not give them.
pub(super) fn threads(root: &Path, cpu: u32) -> Option<Vec<u32>> {
    let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
    // The second is the older name (before Linux 5.2).
    let told = ["core_cpus_list", "thread_siblings_list"].iter().find_map(|name| text(&topology.join(name)));
    told.and_then(|value| list(&value)).filter(|found| found.contains(&cpu))
}

/// Formats CPUs as the kernel writes lists: `0-3,8`.
pub fn ranges(cpus: &[u32]) -> String {
    let mut out = String::new();
    for run in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let comma = if out.is_empty() { "" } else { "," };
        match run {
            [first, .., last] => out.push_str(&format!("{comma}{first}-{last}")),
            [only] => out.push_str(&format!("{comma}{only}")),
            [] => {}
        }
    }
    out
}

/// The value of the first `name : value` line.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name && !value.trim().is_empty()).then(|| value.trim())
    })
}

fn processors(info: &str) -> Vec<u32> {
    let numbers = info.lines().filter_map(|line| line.strip_prefix("processor")?.trim().strip_prefix(':'));
    numbers.filter_map(|number| number.trim().parse().ok()).collect()
}

fn nodes(directory: &Path) -> Vec<NumaNode> {
    let node = |name: &String| {
        let node = name.strip_prefix("node")?.parse().ok()?;
        let cpus = text(&directory.join(name).join("cpulist")).and_then(|value| list(&value));
        Some(NumaNode { node, cpus: cpus.unwrap_or_default() })
    };
    names(directory).iter().filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_are_one_core() {
        let root = std::env::temp_dir().join(format!("biopsy-cores-{}", std::process::id()));
        for (cpu, threads) in [(0, "0,2\n"), (1, "1,3\n"), (2, "0,2\n"), (3, "1,3\n")] {
            let topology = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).unwrap();
            std::fs::write(topology.join("thread_siblings_list"), threads).unwrap();
        }
        assert_eq!(cores(&root, &[0, 1, 2, 3, 7]), [vec![0, 2], vec![1, 3], vec![7]]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn lists_are_written_as_the_kernel_does() {
        for (cpus, text) in
            [(&[][..], ""), (&[7], "7"), (&[0, 1], "0-1"), (&[0, 1, 2, 8, 10, 11], "0-2,8,10-11")]
        {
            assert_eq!(ranges(cpus), text);
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let info = "processor\t: 0\nmodel\t\t: 106\nmodel name\t: Some CPU @ 2.80GHz\n\nprocessor\t: 1\n";
        assert_eq!(field(info, "model name"), Some("Some CPU @ 2.80GHz"));
        assert_eq!(field(info, "stepping"), None);
        assert_eq!(processors(info), [0, 1]);
    }
}
