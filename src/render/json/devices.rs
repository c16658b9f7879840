//! `biopsy.devices/1`: what the machine has. What cannot be known is null.

use serde_json::{Value, json};

use crate::envelope::Envelope;
use crate::host::absence;
use crate::host::idle::Wakeup;
use crate::host::nvme::Health;
use crate::host::nvme::identity::Identity;
use crate::host::pci::encoding;
use crate::host::pci::sharing::{self, RootComplex, SharedLink};
use crate::host::select::Selection;
use crate::host::warnings::Warning;
use crate::host::{BlockDevice, HardwareQueue, Hop, Host, Link, NumaNode, Partition, Throttle};

/// The whole object, as one line.
pub fn devices(envelope: &Envelope, host: &Host, selection: &Selection<'_>, warnings: &[Warning]) -> Vec<u8> {
    let mut object = super::object("biopsy.devices/1", envelope);
    let mut add = |key: &str, value: Value| object.insert(key.to_string(), value);
    add("host", machine(host));
    add("cpus", cpus(host));
    add("nodes", host.nodes.iter().map(|node| self::node(host, node)).collect());
    add("devices", list(host, &selection.devices));
    add("not_shown", selection.placeholders.iter().map(|device| device.name.as_str()).collect());
    add("topology", topology(host, &selection.devices));
    add("warnings", json!(warnings));
    super::line(object)
}

/// The devices, as every result that names some lists them.
pub fn list(host: &Host, devices: &[&BlockDevice]) -> Value {
    devices.iter().map(|device| self::device(host, device)).collect()
}

fn machine(host: &Host) -> Value {
    json!({
        "hostname": known_text(&host.hostname),
        "cpu_model": host.cpu_model,
        "cpus_online": known(u64::from(host.cpus_online)),
        "cpus_possible": known(u64::from(host.cpus_possible)),
        "numa_nodes": host.numa_nodes,
        "nodes": host.nodes,
        "memory_bytes": host.memory_bytes,
        "virtualization": host.virtualization,
    })
}

/// How the CPUs run and sleep. `absent` says why what is null is not there.
fn cpus(host: &Host) -> Value {
    let limit = |wakeup: &Wakeup| match wakeup {
        Wakeup::Limit(us) => Some(*us),
        Wakeup::Unlimited | Wakeup::Untold(_) => None,
    };
    let idle = host.idle.as_ref().map(|idle| {
        json!({
            "driver": idle.driver,
            "governor": idle.governor,
            "states": idle.states,
            "wakeup_limit_us": limit(&idle.wakeup),
        })
    });
    json!({
        "smt": host.smt,
        "idle": idle,
        "frequency": (!host.frequencies.is_empty()).then_some(&host.frequencies),
        "absent": absence::of_cpus(host),
    })
}

fn node(host: &Host, node: &NumaNode) -> Value {
    let memory = host.node_memory.get(&node.node);
    let absent = memory.is_none().then(|| json!({ "what": "memory_bytes", "why": absence::NODE_MEMORY }));
    json!({
        "node": node.node,
        "cpus": node.cpus,
        "memory_bytes": memory,
        "absent": absent.into_iter().collect::<Vec<_>>(),
    })
}

fn device(host: &Host, device: &BlockDevice) -> Value {
    let (major, minor) = number(device.major, device.minor);
    let told = |attribute: &str, value: u64| device.tells(attribute).then_some(value);
    let mut object = json!({
        "name": device.name,
        "alias": device.alias,
        "major": major,
        "minor": minor,
        "size_bytes": told("size", device.size_bytes),
        "model": device.model,
        "serial": device.serial,
        "firmware": device.firmware,
        "nvme": device.identity.as_ref().map(nvme),
        "driver": device.driver,
        "hidden": device.hidden,
        "numa_node": device.numa_node,
        "request_based": device.request_based,
        "queues": device.queues.iter().map(queue).collect::<Vec<_>>(),
        "poll_queues": device.poll_queues,
        "scheduler": device.scheduler,
        "schedulers": device.schedulers,
        "read_ahead_bytes": told("read_ahead_kb", device.read_ahead_bytes),
        "max_request_bytes": known(device.max_request_bytes),
        "max_hw_request_bytes": known(device.max_hw_request_bytes),
        "requests": device.requests,
        "rq_affinity": device.rq_affinity,
        "nomerges": device.nomerges,
        "iostats": device.iostats,
        "writeback_throttle_us": device.writeback_throttle_us,
        "rotational": device.rotational,
        "write_cache": device.write_cache,
        "logical_block_bytes": known(u64::from(device.logical_block_bytes)),
        "physical_block_bytes": known(u64::from(device.physical_block_bytes)),
        "backing_file": device.backing_file,
        "layers": device.layers,
        "slaves": device.slaves,
        "holders": device.holders,
        "partitions": device.partitions.iter().map(partition).collect::<Vec<_>>(),
        "mounted_at": device.mounted_at,
        "swaps": device.swaps,
    });
    // One object of all keys is more than the macro takes.
    for more in [pci(device), limits(host, device)] {
        if let (Some(all), Value::Object(more)) = (object.as_object_mut(), more) {
            all.extend(more);
        }
    }
    let absent = absent(device, &object);
    if let Some(all) = object.as_object_mut() {
        all.insert("absent".to_string(), absent);
    }
    object
}

/// Why what is null in a device's object, or in its link's, is not there.
fn absent(device: &BlockDevice, object: &Value) -> Value {
    let nulls = |object: &Value, path: &str| -> Vec<Value> {
        let all = object.as_object().into_iter().flatten().filter(|(_, value)| value.is_null());
        let why = |key: &String| absence::of_device(device, key).unwrap_or("not told");
        all.map(|(key, _)| json!({ "what": format!("{path}{key}"), "why": why(key) })).collect()
    };
    let mut all = nulls(object, "");
    all.extend(nulls(&object["link"], "link."));
    Value::Array(all)
}

/// What cgroups allow on it: an empty list is no limit, and null that nobody could see whether there is one.
fn limits(host: &Host, device: &BlockDevice) -> Value {
    let limit = |limit: &Throttle| {
        json!({
            "cgroup": limit.cgroup,
            "own": limit.own,
            "read_bytes_per_second": limit.read_bytes_per_second,
            "write_bytes_per_second": limit.write_bytes_per_second,
            "read_ios_per_second": limit.read_ios_per_second,
            "write_ios_per_second": limit.write_ios_per_second,
        })
    };
    let limits = host.throttles.iter().filter(|limit| limit.device == device.name).map(limit);
    json!({
        "limits": host.limits_told.then(|| limits.collect::<Vec<_>>()),
        "io_cost": host.costs.iter().find(|cost| cost.device == device.name),
    })
}

/// What belongs to its PCI function.
fn pci(device: &BlockDevice) -> Value {
    json!({
        "pci_address": device.pci_address,
        "root_complex": device.root_complex,
        "link": device.link.as_ref().map(link),
        "links": device.hops.iter().map(hop).collect::<Vec<_>>(),
        "msix_vectors": device.msix_vectors,
        "iommu": device.iommu,
        "vectors": device.vectors,
    })
}

fn link(link: &Link) -> Value {
    json!({
        "speed_gts": link.speed_gts,
        "width": link.width,
        "max_speed_gts": link.max_speed_gts,
        "max_width": link.max_width,
        "port_max_speed_gts": link.port_max_speed_gts,
        "port_max_width": link.port_max_width,
        "encoding": encoding(link.speed_gts),
        "raw_bytes_per_second": link.raw_bytes_per_second.round() as u64,
        "payload_bytes": link.payload_bytes,
        "usable_bytes_per_second": whole(link.usable_bytes_per_second),
        "aspm": link.aspm,
    })
}

/// What an NVMe drive tells of itself. A limit that it has not is null, and so is what it was not asked.
fn nvme(identity: &Identity) -> Value {
    let health = |health: &Health| {
        json!({
            "critical_warning": health.critical_warning,
            "temperature_celsius": health.temperature,
            "warning_minutes": health.warning_minutes,
            "critical_minutes": health.critical_minutes,
            "throttle_transitions": health.transitions,
            "throttled_seconds": health.throttled_seconds,
            "percent_used": health.percent_used,
            "percent_spare": health.percent_spare,
            "media_errors": health.media_errors,
        })
    };
    json!({
        "max_transfer_bytes": identity.transfer_bytes,
        "metadata_bytes": identity.metadata_bytes,
        "formats": (!identity.formats.is_empty()).then_some(&identity.formats),
        "coalescing": identity.coalescing,
        "namespace": identity.usage.map(|of| json!({
            "size_bytes": of.size, "capacity_bytes": of.capacity, "used_bytes": of.used,
        })),
        "health": identity.health.as_ref().map(health),
    })
}

/// From the device's own link up.
fn hop(hop: &Hop) -> Value {
    json!({ "function": hop.function, "port": hop.port, "link": link(&hop.link) })
}

fn whole(range: [f64; 2]) -> [u64; 2] {
    range.map(|bytes| bytes.round() as u64)
}

/// Where drives share a way to memory. Sums are of the drives' own links.
fn topology(host: &Host, devices: &[&BlockDevice]) -> Value {
    let shared = |shared: &SharedLink| {
        json!({
            "function": shared.function,
            "port": shared.port,
            "link": link(&shared.link),
            "devices": shared.devices,
            "devices_raw_bytes_per_second": shared.devices_raw_bytes_per_second.round() as u64,
            "devices_usable_bytes_per_second": whole(shared.devices_usable_bytes_per_second),
        })
    };
    let complex = |complex: &RootComplex| {
        json!({
            "name": complex.name,
            "devices": complex.devices,
            "devices_usable_bytes_per_second": whole(complex.devices_usable_bytes_per_second),
        })
    };
    json!({
        "shared_links": sharing::links(devices).iter().map(shared).collect::<Vec<_>>(),
        "root_complexes": sharing::root_complexes(devices).iter().map(complex).collect::<Vec<_>>(),
        "root_complexes_with_ports": host.root_complexes,
    })
}

fn queue(queue: &HardwareQueue) -> Value {
    json!({
        "queue": queue.queue,
        "qid": queue.qid,
        "cpus": queue.cpus,
        "tags": known(u64::from(queue.tags)),
        "reserved_tags": (queue.tags != 0).then_some(queue.reserved_tags),
    })
}

fn partition(partition: &Partition) -> Value {
    let (major, minor) = number(partition.major, partition.minor);
    json!({
        "name": partition.name,
        "major": major,
        "minor": minor,
        "start_bytes": known(partition.size_bytes).map(|_| partition.start_bytes),
        "size_bytes": known(partition.size_bytes),
        "holders": partition.holders,
        "mounted_at": partition.mounted_at,
        "swaps": partition.swaps,
    })
}

/// Zero stands for unknown where the kernel never says zero.
fn known(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

fn known_text(value: &str) -> Option<&str> {
    (!value.is_empty()).then_some(value)
}

/// No block device has the number 0:0.
fn number(major: u32, minor: u32) -> (Option<u32>, Option<u32>) {
    if (major, minor) == (0, 0) { (None, None) } else { (Some(major), Some(minor)) }
}
