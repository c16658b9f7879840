//! Resolves the numbers in events on one machine.

use std::collections::BTreeMap;

use super::super::files::IoFile;
use super::io::TracedIo;
use crate::host::{BlockDevice, Host};
use crate::wire::WireDevice;
use crate::wire::files::WireFile;

/// What the numbers in events mean on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scene {
    /// Start of the interval, CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub devices: Vec<TracedDevice>,
    /// NUMA node by CPU; empty on a kernel without NUMA.
    pub nodes: BTreeMap<u32, u32>,
    /// Request flags by bit, in the kernel's own words: `sync`, `fua`, `meta`.
    pub flags: BTreeMap<u32, String>,
    /// Paths of cgroups by the kernel's id.
    pub cgroups: BTreeMap<u64, String>,
    /// Paths of files, as of their first I/O.
    pub files: BTreeMap<WireFile, String>,
}

impl Scene {
    /// From the machine's facts; the devices in the order of their numbers in events.
    pub fn new<'a>(
        host: &Host,
        devices: impl Iterator<Item = (&'a str, &'a WireDevice)>,
        flags: &BTreeMap<u32, String>,
        start_ns: u64,
    ) -> Self {
        let device = |(name, wire): (&str, &WireDevice)| TracedDevice {
            name: name.to_string(),
            nvme: host.device(name).is_some_and(BlockDevice::is_nvme),
            slot_base: wire.slot_base,
            slots_per_queue: wire.slots_per_queue,
        };
        let nodes = host.nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (*cpu, node.node)));
        Self {
            start_ns,
            devices: devices.map(device).collect(),
            nodes: nodes.collect(),
            flags: flags.clone(),
            cgroups: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Whether all cgroups of these I/Os have a path.
    pub fn knows_cgroups(&self, ios: &[TracedIo]) -> bool {
        let mut ids = ios.iter().filter_map(|io| io.owner?.cgroup);
        ids.all(|id| self.cgroups.contains_key(&id))
    }

    /// Name of the I/O's device.
    pub fn name(&self, io: &TracedIo) -> &str {
        self.devices.get(io.device).map_or("", |device| &device.name)
    }

    /// Number of an I/O's queue as in the NVMe standard.
    pub fn qid(&self, io: &TracedIo) -> Option<u32> {
        self.devices.get(io.device).filter(|device| device.nvme).and(io.queue).map(|queue| queue + 1)
    }

    /// When the I/O ended, since the start of the interval.
    pub fn at_ns(&self, io: &TracedIo) -> u64 {
        io.ended_ns.saturating_sub(self.start_ns)
    }

    /// The names of an I/O's flags.
    pub fn flag_names(&self, io: &TracedIo) -> impl Iterator<Item = &str> {
        let bits = io.flags;
        self.flags.iter().filter(move |(bit, _)| bits >> **bit & 1 == 1).map(|(_, name)| name.as_str())
    }

    /// What an I/O reads or writes; None: unknown.
    pub fn file(&self, io: &TracedIo) -> Option<IoFile> {
        let file = io.file?;
        IoFile::new(&file, self.files.get(&file).map(String::as_str))
    }

    /// Path of a cgroup.
    pub fn cgroup(&self, id: u64) -> Option<&str> {
        self.cgroups.get(&id).map(String::as_str)
    }
}

/// A device by its number in events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedDevice {
    pub name: String,
    /// Its hardware queues are numbered as in the NVMe standard, one higher: 0 is the admin queue.
    pub nvme: bool,
    pub slot_base: u32,
    pub slots_per_queue: u32,
}
