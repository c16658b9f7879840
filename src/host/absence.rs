//! Gives the reason for each value that is null in JSON.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::idle::Wakeup;
use super::{BlockDevice, Host};

/// One value, and why it is absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Absence {
    /// Its key in JSON.
    pub what: Cow<'static, str>,
    /// Half a sentence.
    pub why: String,
}

impl Absence {
    pub fn new(what: impl Into<Cow<'static, str>>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// Keys for which sysfs has a file for each disk, or for each disk with requests.
const ATTRIBUTES: [&str; 13] = [
    "size_bytes",
    "scheduler",
    "requests",
    "rq_affinity",
    "nomerges",
    "iostats",
    "rotational",
    "write_cache",
    "read_ahead_bytes",
    "max_request_bytes",
    "max_hw_request_bytes",
    "logical_block_bytes",
    "physical_block_bytes",
];

/// Why the value of this key of a device or its link is absent; None if no such value exists.
pub fn of_device(device: &BlockDevice, key: &str) -> Option<&'static str> {
    let on_pci = device.pci_address.is_some();
    Some(match key {
        // An NVMe multipath head: its bios become bios of its paths.
        "root_complex" | "link" | "msix_vectors" | "iommu" | "pci_address"
            if !on_pci && device.is_nvme() && !device.request_based && !device.layers.is_empty() =>
        {
            "it is a multipath drive: see its paths (layers)"
        }
        "root_complex" | "link" | "msix_vectors" | "iommu" if !on_pci => "it is not below a PCI function",
        "pci_address" => "it is not below a PCI function",
        "root_complex" => "its path in sysfs names none",
        "link" => "sysfs shows no speed and width of its function",
        // Without root the kernel shows only the first 64 bytes.
        "msix_vectors" | "payload_bytes" | "aspm" => match device.config_cut {
            true => "only root can read that part of the configuration space",
            false => "the function has no such capability",
        },
        "iommu" => "it is behind no IOMMU",
        "max_speed_gts" | "max_width" | "port_max_speed_gts" | "port_max_width" => "sysfs does not show it",
        "numa_node" => "the kernel reports no node for it",
        "major" | "minor" => "the kernel has no device node for it",
        "alias" => "only device-mapper devices have one",
        "backing_file" => "only loop devices have one",
        "poll_queues" => "its driver does not report it",
        "writeback_throttle_us" => "the kernel has none for it",
        "scheduler" | "requests" | "rq_affinity" | "nomerges" if !device.request_based => {
            "it has no requests, only bios"
        }
        "nvme" if device.is_nvme() => "it was not asked, or this user may not ask it: see missing",
        "nvme" => "it is not an NVMe drive",
        "limits" => "no cgroup hierarchy is mounted where limits could be read",
        "io_cost" => "none is set",
        "model" | "serial" | "firmware" | "driver" => "its driver does not report it",
        _ if ATTRIBUTES.contains(&key) => "sysfs does not show it, or not as a valid value",
        _ => return None,
    })
}

/// Why the memory of a node is absent.
pub const NODE_MEMORY: &str = "sysfs does not show the memory of the node";

/// The values of the CPUs that the kernel does not give, with reasons.
pub fn of_cpus(host: &Host) -> Vec<Absence> {
    let mut all = Vec::new();
    if host.smt.control.is_none() && host.smt.active.is_none() {
        all.push(Absence::new("smt", "this kernel does not report it (before Linux 4.19, or only one CPU)"));
    }
    if host.smt.cores.is_none() {
        all.push(Absence::new("cores", "the kernel does not report the core of each CPU"));
    }
    match host.idle.as_ref().map(|idle| &idle.wakeup) {
        None => all.push(Absence::new("idle", "no cpuidle driver")),
        Some(Wakeup::Untold(why)) => all.push(Absence::new("wakeup_limit_us", why)),
        Some(Wakeup::Limit(_) | Wakeup::Unlimited) => {}
    }
    if host.frequencies.is_empty() {
        all.push(Absence::new("frequency", "no cpufreq driver"));
    }
    all
}
