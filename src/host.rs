//! What machine this is. Parsers take a root path, so that captured trees of other machines are
//! test input; `/` is this machine.

use serde::Serialize;

/// Facts about this machine, read once at the start of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// `uname -r`.
    pub kernel: String,
    pub hostname: String,
    /// Model name of the first CPU.
    pub cpu_model: Option<String>,
    pub cpus_online: u32,
    /// CPUs that could ever be there; per-CPU maps have as many entries.
    pub cpus_possible: u32,
    pub numa_nodes: u32,
    pub memory_bytes: Option<u64>,
    /// Name of the hypervisor where the kernel or DMI tells one.
    pub virtualization: Option<String>,
    pub devices: Vec<BlockDevice>,
}

/// One disk of `/sys/block` (no partitions).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BlockDevice {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    pub size_bytes: u64,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// `nvme`, `virtio_blk`, `sd`, `loop`, `dm`, `md`, `zram`, `null_blk`, ... as the kernel names the driver.
    pub driver: Option<String>,
    /// None: the device belongs to no node (or the kernel says -1).
    pub numa_node: Option<u32>,
    pub pci_address: Option<String>,
    /// `pci0000:00` and the like.
    pub root_complex: Option<String>,
    pub link: Option<Link>,
    /// The active one (in brackets in sysfs); None on bio-based devices.
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub logical_block_bytes: u32,
    pub physical_block_bytes: u32,
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
    /// Number of poll queues where the driver tells.
    pub poll_queues: Option<u32>,
    /// True where the kernel has hardware contexts for it (`/sys/block/D/mq`): request events fire.
    pub request_based: bool,
    pub queues: Vec<HardwareQueue>,
    /// Devices directly below (`slaves/`, a loop device's backing device).
    pub layers: Vec<String>,
    /// Devices directly above (`holders/`).
    pub holders: Vec<String>,
    pub partitions: Vec<Partition>,
    /// Where it or one of its partitions is mounted.
    pub mounted_at: Vec<String>,
}

/// One hardware context, `/sys/block/D/mq/N`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HardwareQueue {
    pub queue: u32,
    /// NVMe queue id: `queue` + 1.
    pub qid: Option<u32>,
    pub cpus: Vec<u32>,
    pub tags: u32,
    pub reserved_tags: u32,
}

/// A partition of a disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Partition {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    pub start_bytes: u64,
    pub size_bytes: u64,
}

/// A PCI link as sysfs shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Link {
    pub speed_gts: f64,
    pub width: u32,
    pub max_speed_gts: Option<f64>,
    pub max_width: Option<u32>,
    /// Line rate after encoding (8b/10b below 8 GT/s, 128b/130b from there).
    pub raw_bytes_per_second: f64,
}
