//! Reads the context of the memory counters: nodes, watermarks, the kind of LRU, and the names of cgroups.

use std::collections::BTreeMap;
use std::path::Path;

use super::Host;
use super::cgroups::Hierarchy;
use super::meminfo::Meminfo;
use super::memory_reading::is_lru_gen;
use super::zones::Zone;

/// Read once per result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    /// The nodes that have a meminfo file.
    pub nodes: BTreeMap<u32, Meminfo>,
    pub zones: Vec<Zone>,
    /// The multi-generational LRU is in use: it has functions and counters of its own.
    pub lru_gen: bool,
    /// Paths of the memory controller's cgroups, by id.
    pub cgroups: BTreeMap<u64, String>,
}

impl Surroundings {
    pub fn read(root: &Path, host: &Host) -> Self {
        let groups = Hierarchy::of_controller(root, "memory");
        Self {
            nodes: host.nodes.iter().map(|node| (node.node, Meminfo::read_node(root, node.node))).collect(),
            zones: Zone::read(root),
            lru_gen: is_lru_gen(root),
            cgroups: groups.map(|hierarchy| hierarchy.paths()).unwrap_or_default(),
        }
    }
}
