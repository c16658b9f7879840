//! Describes this machine: its disks, their PCI links, CPUs, memory and limits. Parsers take a root path, so that trees
//! captured on other machines are test input; `/` is this machine.
//!
//! Everything here works without privileges. An attribute that is absent or cannot be parsed is `None` (or the default
//! if the field has no `Option`); no content makes a parser fail. Strings come from devices and file systems: they are
//! kept as they are, and the renderers escape them.

pub mod abilities;
pub mod absence;
pub mod activity;
mod attribute;
pub mod block;
pub mod cgroups;
pub mod counters;
pub mod cpu;
pub mod cpu_counters;
pub mod cpu_quota;
pub mod cpu_time;
pub mod elf;
pub mod frequency;
pub mod idle;
pub mod interrupts;
pub mod iocost;
pub mod kallsyms;
pub mod kernel;
mod layers;
pub mod mapped;
pub mod meminfo;
pub mod memory;
pub mod memory_reading;
pub mod memory_surroundings;
pub mod mounts;
pub mod nvme;
pub mod open_files;
pub mod own;
pub mod pci;
pub mod pressure;
pub mod processes;
pub mod rights;
pub mod select;
pub mod sleeping;
pub mod smt;
pub mod syscalls;
pub mod threads;
pub mod throttle;
#[cfg(test)]
mod tree;
pub mod vectors;
pub mod vmstat;
pub mod warnings;
pub mod zones;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Facts about this machine, read once at the start of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    pub hostname: String,
    /// Model name of the first CPU.
    pub cpu_model: Option<String>,
    pub cpus_online: u32,
    /// CPUs that could ever be online; per-CPU maps have as many entries.
    pub cpus_possible: u32,
    pub numa_nodes: u32,
    /// The CPUs of each online node.
    pub nodes: Vec<NumaNode>,
    pub memory_bytes: Option<u64>,
    /// Memory of each node that gives it.
    pub node_memory: BTreeMap<u32, u64>,
    pub smt: smt::Smt,
    /// None: the kernel has no cpuidle driver.
    pub idle: Option<idle::Idle>,
    /// Empty: the kernel has no cpufreq driver.
    pub frequencies: Vec<frequency::Frequency>,
    /// Name of the hypervisor, if the kernel or DMI gives one.
    pub virtualization: Option<String>,
    /// The root complexes to which a disk is or could be attached: those with a PCI bridge.
    pub root_complexes: Vec<String>,
    /// In natural order of the names: nvme2n1 before nvme10n1.
    pub devices: Vec<BlockDevice>,
    /// Limits of cgroups; empty until they are read ([`throttle::throttles`]).
    pub throttles: Vec<Throttle>,
    /// Settings of io.cost for each disk; empty until they are read ([`iocost::costs`]).
    pub costs: Vec<iocost::IoCost>,
    /// The limits were read from the cgroups of the block layer: a disk without one above has none.
    pub limits_told: bool,
}

impl Host {
    /// Reads the machine below `root`; `/` is this one.
    ///
    /// Fails only if there is no `/sys/block` at all.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let cpus = cpu::Cpus::read(root);
        let devices = block::devices(root)?;
        let mut root_complexes = pci::sharing::with_ports(root);
        root_complexes.extend(devices.iter().filter_map(|device| device.root_complex.clone()));
        root_complexes.sort();
        root_complexes.dedup();
        Ok(Self {
            kernel: kernel::release(root).unwrap_or_default(),
            hostname: kernel::hostname(root).unwrap_or_default(),
            cpu_model: cpus.model,
            cpus_online: cpus.online.len() as u32,
            cpus_possible: cpus.possible.len() as u32,
            numa_nodes: cpus.nodes.len().max(1) as u32,
            nodes: cpus.nodes,
            memory_bytes: memory::bytes(root),
            node_memory: memory::by_node(root),
            smt: smt::Smt::read(root, &cpus.online),
            idle: idle::Idle::read(root, &cpus.online),
            frequencies: frequency::frequencies(root),
            virtualization: kernel::virtualization(root),
            root_complexes,
            devices,
            throttles: Vec::new(),
            costs: Vec::new(),
            limits_told: false,
        })
    }

    /// Reads the limits of all cgroups; false if no cgroup can be read. The scan visits every cgroup, so a command runs
    /// it only if it needs limits.
    pub fn read_limits(&mut self, root: &Path) -> bool {
        self.throttles = throttle::throttles(root, &self.devices);
        self.costs = iocost::costs(root, &self.devices);
        self.limits_told = throttle::are_told(root);
        self.limits_told
    }

    /// Finds the disk of this name, or the disk of the partition of this name.
    pub fn device(&self, name: &str) -> Option<&BlockDevice> {
        let has_partition =
            |device: &&BlockDevice| device.partitions.iter().any(|partition| partition.name == name);
        let disk = self.devices.iter().find(|device| device.name == name);
        disk.or_else(|| self.devices.iter().find(has_partition))
    }
}

/// A NUMA node and its CPUs, from `/sys/devices/system/node`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NumaNode {
    pub node: u32,
    pub cpus: Vec<u32>,
}

/// One disk of `/sys/block` (no partitions).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BlockDevice {
    pub name: String,
    /// The device-mapper name (`vg0-root`), which is also its name in `/dev/mapper`.
    pub alias: Option<String>,
    pub major: u32,
    pub minor: u32,
    pub size_bytes: u64,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// `nvme`, `virtio_blk`, `sd`, `loop`, `dm`, `md`, `zram`, `null_blk`, ... as the kernel names the driver.
    pub driver: Option<String>,
    /// The NVMe drive's answer to identify commands; None until it is queried ([`nvme::identity::identify`]), or if it
    /// cannot be queried.
    pub identity: Option<nvme::identity::Identity>,
    /// None: the device belongs to no node (or the kernel says -1).
    pub numa_node: Option<u32>,
    pub pci_address: Option<String>,
    /// Such as `pci0000:00`.
    pub root_complex: Option<String>,
    pub link: Option<Link>,
    /// The links from its own up to the root complex.
    pub hops: Vec<Hop>,
    /// MSI-X vectors of its function; None if the configuration space may not be read.
    pub msix_vectors: Option<u32>,
    /// Only the first part of its configuration space could be read.
    pub config_cut: bool,
    /// The mode in which the IOMMU handles it (`DMA`, `DMA-FQ`, `identity`); None without an IOMMU.
    pub iommu: Option<String>,
    /// The active scheduler (in brackets in sysfs); None on bio-based devices.
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
    /// Attributes that the kernel did not give, or not as a number, if 0 is a valid value of them: `size`,
    /// `read_ahead_kb`. Their fields here are 0.
    pub untold: Vec<Cow<'static, str>>,
    pub rotational: Option<bool>,
    pub read_ahead_bytes: u64,
    /// `queue/max_sectors_kb` in bytes.
    pub max_request_bytes: u64,
    /// `queue/max_hw_sectors_kb` in bytes.
    pub max_hw_request_bytes: u64,
    /// `queue/nr_requests`.
    pub requests: Option<u32>,
    pub rq_affinity: Option<u32>,
    pub nomerges: Option<u32>,
    pub iostats: Option<bool>,
    pub write_cache: Option<String>,
    /// `queue/wbt_lat_usec`: the latency below which write-back throttling keeps reads. 0 is off; None if the kernel or
    /// the driver has none.
    pub writeback_throttle_us: Option<u64>,
    /// Number of poll queues, if the driver gives it.
    pub poll_queues: Option<u32>,
    /// Number of queues that take reads only, if the driver gives it. They lie between the others and the poll queues.
    pub read_queues: Option<u32>,
    /// The kernel has hardware contexts for it (`/sys/block/D/mq`), so request events fire.
    pub request_based: bool,
    pub queues: Vec<HardwareQueue>,
    /// Interrupt vectors of its PCI function. Namespaces of one controller share them.
    pub vectors: Vec<Vector>,
    /// The kernel has no device node for it: a path below an NVMe multipath head. Request events fire here; I/O is
    /// submitted to the head.
    pub hidden: bool,
    /// The backing file of a loop device, as the kernel prints its path.
    pub backing_file: Option<String>,
    /// Disks directly below (`slaves/`, the disk under a loop device's file, the paths of an NVMe
    /// multipath head). A partition below is listed as its disk.
    pub layers: Vec<String>,
    /// The same as `layers`, but a partition has its own name.
    pub slaves: Vec<String>,
    /// Disks directly above it or above one of its partitions: the inverse of `layers`.
    pub holders: Vec<String>,
    pub partitions: Vec<Partition>,
    /// Mount points of it and of its partitions.
    pub mounted_at: Vec<String>,
    /// Swap areas on it, as `/proc/swaps` names them.
    pub swaps: Vec<String>,
}

impl BlockDevice {
    /// Whether this is a namespace of an NVMe drive, or the head or a path of one.
    pub fn is_nvme(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| driver.starts_with("nvme"))
    }

    /// Whether the kernel gave this attribute, which is one whose zero has a meaning.
    pub fn tells(&self, attribute: &str) -> bool {
        self.untold.iter().all(|untold| untold != attribute)
    }

    /// The name that all namespaces of a drive and all paths to them share: `nvme1` for nvme1n2 and nvme1c0n1. Any
    /// other disk is a drive of its own.
    pub fn drive(&self) -> String {
        match layers::nvme_name(&self.name) {
            Some((subsystem, _, _)) => format!("nvme{subsystem}"),
            None => self.name.clone(),
        }
    }
}

/// The limits of a cgroup on a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Throttle {
    /// Its path relative to the mount of its hierarchy.
    pub cgroup: String,
    /// Name of the disk.
    pub device: String,
    /// This process is in it or below it: the limit applies to the load of biopsy.
    pub own: bool,
    pub read_bytes_per_second: Option<u64>,
    pub write_bytes_per_second: Option<u64>,
    pub read_ios_per_second: Option<u64>,
    pub write_ios_per_second: Option<u64>,
}

impl Throttle {
    /// The limits that are set.
    pub fn limits(&self) -> impl Iterator<Item = u64> {
        [
            self.read_bytes_per_second,
            self.write_bytes_per_second,
            self.read_ios_per_second,
            self.write_ios_per_second,
        ]
        .into_iter()
        .flatten()
    }
}

/// One hardware context, `/sys/block/D/mq/N`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HardwareQueue {
    pub queue: u32,
    /// NVMe queue id: `queue` + 1.
    pub qid: Option<u32>,
    pub cpus: Vec<u32>,
    pub tags: u32,
    pub reserved_tags: u32,
}

/// A partition of a disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Partition {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    pub start_bytes: u64,
    pub size_bytes: u64,
    pub mounted_at: Vec<String>,
    /// Disks directly above it.
    pub holders: Vec<String>,
    pub swaps: Vec<String>,
}

/// One MSI or MSI-X vector of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Vector {
    pub irq: u32,
    /// The name that the driver gave it: `nvme0q1`, `virtio1-req.0`.
    pub name: Option<String>,
    /// Hardware context as in `/sys/block/D/mq/N`; None for admin and configuration vectors.
    pub queue: Option<u32>,
    /// NVMe queue id; 0 is the admin queue.
    pub qid: Option<u32>,
    /// The CPUs to which the interrupt controller delivers it now.
    pub cpus: Vec<u32>,
    /// The CPUs to which it may be delivered.
    pub allowed: Vec<u32>,
}

/// A PCI link as sysfs shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Link {
    pub speed_gts: f64,
    pub width: u32,
    pub max_speed_gts: Option<f64>,
    pub max_width: Option<u32>,
    /// The maximum speed of the port on the other end of the link.
    pub port_max_speed_gts: Option<f64>,
    pub port_max_width: Option<u32>,
    /// Line rate after encoding (8b/10b below 8 GT/s, 128b/130b from there, FLITs at 64 GT/s),
    /// per direction.
    pub raw_bytes_per_second: f64,
    /// Maximum payload of a packet; None if the configuration space may not be read.
    pub payload_bytes: Option<u32>,
    /// The rate that is left for data, as a range: both values are equal if the payload is known, else they are for
    /// payloads of 128 and 512 bytes.
    pub usable_bytes_per_second: [f64; 2],
    /// None if the configuration space may not be read.
    pub aspm: Option<Aspm>,
}

/// A link on the path from a device to its root complex.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Hop {
    /// The PCI function at its lower end.
    pub function: String,
    /// The port at its upper end; None if sysfs has none.
    pub port: Option<String>,
    pub link: Link,
}

/// The power states that a link may enter by itself (ASPM): leaving them takes microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Aspm {
    #[serde(rename = "off")]
    Off,
    L0s,
    L1,
    #[serde(rename = "L0s L1")]
    Both,
}

impl Aspm {
    /// Decodes the two lowest bits of the link's control register.
    pub fn of(bits: u16) -> Self {
        match bits & 3 {
            0 => Self::Off,
            1 => Self::L0s,
            2 => Self::L1,
            _ => Self::Both,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::L0s => "L0s",
            Self::L1 => "L1",
            Self::Both => "L0s and L1",
        }
    }
}
