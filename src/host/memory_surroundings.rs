//! What stands beside the counters of memory: nodes, watermarks, the kind of LRU, and the names of groups.

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
    /// Of the nodes that tell.
    pub nodes: BTreeMap<u32, Meminfo>,
    pub zones: Vec<Zone>,
    /// The multi-generational LRU runs: it has functions and counts of its own.
    pub lru_gen: bool,
    /// Paths of the memory controller's groups, by id.
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
