//! The record of one disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::known;
use super::link::{HopRecord, LinkRecord};
use crate::host::absence::{self, Absence};
use crate::host::iocost::IoCost;
use crate::host::nvme::identity::Identity;
use crate::host::{BlockDevice, HardwareQueue, Host, Partition, Throttle, Vector};

/// A disk, its limits, and why what is null is not there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceRecord {
    pub name: String,
    pub alias: Option<String>,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub size_bytes: Option<u64>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    pub nvme: Option<Identity>,
    pub driver: Option<String>,
    pub hidden: bool,
    pub numa_node: Option<u32>,
    pub request_based: bool,
    pub queues: Vec<QueueRecord>,
    pub poll_queues: Option<u32>,
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub read_ahead_bytes: Option<u64>,
    pub max_request_bytes: Option<u64>,
    pub max_hw_request_bytes: Option<u64>,
    pub requests: Option<u32>,
    pub rq_affinity: Option<u32>,
    pub nomerges: Option<u32>,
    pub iostats: Option<bool>,
    pub writeback_throttle_us: Option<u64>,
    pub rotational: Option<bool>,
    pub write_cache: Option<String>,
    pub logical_block_bytes: Option<u32>,
    pub physical_block_bytes: Option<u32>,
    pub backing_file: Option<String>,
    pub layers: Vec<String>,
    pub slaves: Vec<String>,
    pub holders: Vec<String>,
    pub partitions: Vec<PartitionRecord>,
    pub mounted_at: Vec<String>,
    pub swaps: Vec<String>,
    pub pci_address: Option<String>,
    pub root_complex: Option<String>,
    pub link: Option<LinkRecord>,
    /// From its own link up.
    pub links: Vec<HopRecord>,
    pub msix_vectors: Option<u32>,
    pub iommu: Option<String>,
    pub vectors: Vec<Vector>,
    /// What cgroups allow on it. Null: no cgroup could be read; an empty list is no limit.
    pub limits: Option<Vec<Throttle>>,
    pub io_cost: Option<IoCost>,
    /// Why what is null here or in `link` is not there.
    pub absent: Vec<Absence>,
}

/// A hardware context.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QueueRecord {
    pub queue: u32,
    pub qid: Option<u32>,
    pub cpus: Vec<u32>,
    pub tags: Option<u32>,
    pub reserved_tags: Option<u32>,
}

/// A partition of a disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartitionRecord {
    pub name: String,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub start_bytes: Option<u64>,
    pub size_bytes: Option<u64>,
    pub holders: Vec<String>,
    pub mounted_at: Vec<String>,
    pub swaps: Vec<String>,
}

impl DeviceRecord {
    pub fn of(host: &Host, device: &BlockDevice) -> Self {
        let number = number(device.major, device.minor);
        let told = |attribute: &str, value: u64| device.tells(attribute).then_some(value);
        let of_device = |limit: &&Throttle| limit.device == device.name;
        let limits = || host.throttles.iter().filter(of_device).cloned().collect();
        let mut record = Self {
            name: device.name.clone(),
            alias: device.alias.clone(),
            major: number.map(|(major, _)| major),
            minor: number.map(|(_, minor)| minor),
            size_bytes: told("size", device.size_bytes),
            model: device.model.clone(),
            serial: device.serial.clone(),
            firmware: device.firmware.clone(),
            nvme: device.identity.clone(),
            driver: device.driver.clone(),
            hidden: device.hidden,
            numa_node: device.numa_node,
            request_based: device.request_based,
            queues: device.queues.iter().map(QueueRecord::of).collect(),
            poll_queues: device.poll_queues,
            scheduler: device.scheduler.clone(),
            schedulers: device.schedulers.clone(),
            read_ahead_bytes: told("read_ahead_kb", device.read_ahead_bytes),
            max_request_bytes: known(device.max_request_bytes),
            max_hw_request_bytes: known(device.max_hw_request_bytes),
            requests: device.requests,
            rq_affinity: device.rq_affinity,
            nomerges: device.nomerges,
            iostats: device.iostats,
            writeback_throttle_us: device.writeback_throttle_us,
            rotational: device.rotational,
            write_cache: device.write_cache.clone(),
            logical_block_bytes: known(device.logical_block_bytes),
            physical_block_bytes: known(device.physical_block_bytes),
            backing_file: device.backing_file.clone(),
            layers: device.layers.clone(),
            slaves: device.slaves.clone(),
            holders: device.holders.clone(),
            partitions: device.partitions.iter().map(PartitionRecord::of).collect(),
            mounted_at: device.mounted_at.clone(),
            swaps: device.swaps.clone(),
            pci_address: device.pci_address.clone(),
            root_complex: device.root_complex.clone(),
            link: device.link.as_ref().map(LinkRecord::of),
            links: device.hops.iter().map(HopRecord::of).collect(),
            msix_vectors: device.msix_vectors,
            iommu: device.iommu.clone(),
            vectors: device.vectors.clone(),
            limits: host.limits_told.then(limits),
            io_cost: host.costs.iter().find(|cost| cost.device == device.name).cloned(),
            absent: Vec::new(),
        };
        record.absent = absent(device, &json!(record));
        record
    }
}

/// Reasons for the null values in a device's object and in that of its link.
fn absent(device: &BlockDevice, object: &Value) -> Vec<Absence> {
    let nulls = |object: &Value, path: &str| -> Vec<Absence> {
        let all = object.as_object().into_iter().flatten().filter(|(_, value)| value.is_null());
        let why = |key: &String| absence::of_device(device, key).unwrap_or("not reported");
        all.map(|(key, _)| Absence::new(format!("{path}{key}"), why(key))).collect()
    };
    [nulls(object, ""), nulls(&object["link"], "link.")].concat()
}

impl QueueRecord {
    fn of(queue: &HardwareQueue) -> Self {
        Self {
            queue: queue.queue,
            qid: queue.qid,
            cpus: queue.cpus.clone(),
            tags: known(queue.tags),
            reserved_tags: known(queue.tags).map(|_| queue.reserved_tags),
        }
    }
}

impl PartitionRecord {
    fn of(partition: &Partition) -> Self {
        let number = number(partition.major, partition.minor);
        Self {
            name: partition.name.clone(),
            major: number.map(|(major, _)| major),
            minor: number.map(|(_, minor)| minor),
            start_bytes: known(partition.size_bytes).map(|_| partition.start_bytes),
            size_bytes: known(partition.size_bytes),
            holders: partition.holders.clone(),
            mounted_at: partition.mounted_at.clone(),
            swaps: partition.swaps.clone(),
        }
    }
}

/// None for 0:0, which no block device has.
fn number(major: u32, minor: u32) -> Option<(u32, u32)> {
    known((major, minor))
}
