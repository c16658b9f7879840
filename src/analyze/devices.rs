//! The machine and its devices, as printed by `biopsy devices`. Unknown values are null.

pub mod device;
pub mod link;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::View;
use crate::host::absence::{self, Absence};
use crate::host::frequency::Frequency;
use crate::host::idle::{IdleState, Wakeup};
use crate::host::select::Selection;
use crate::host::smt::Smt;
use crate::host::warnings::Warning;
use crate::host::{BlockDevice, Host, NumaNode};
use device::DeviceRecord;
use link::TopologyRecord;

/// The view of `biopsy devices`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DevicesSummary {
    pub host: MachineRecord,
    pub cpus: CpusRecord,
    pub nodes: Vec<NodeRecord>,
    pub devices: Vec<DeviceRecord>,
    /// Names of unused devices, which are left out.
    pub not_shown: Vec<String>,
    pub topology: TopologyRecord,
    pub warnings: Vec<Warning>,
}

impl View for DevicesSummary {
    const SCHEMA: &'static str = "biopsy.devices/1";
}

/// All that is known of a machine, for the rules: a line of a recording's `host.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostSummary {
    pub machine: Host,
}

impl View for HostSummary {
    const SCHEMA: &'static str = "biopsy.host/1";
}

/// The machine as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MachineRecord {
    pub hostname: Option<String>,
    pub cpu_model: Option<String>,
    pub cpus_online: Option<u32>,
    pub cpus_possible: Option<u32>,
    pub numa_nodes: u32,
    pub nodes: Vec<NumaNode>,
    pub memory_bytes: Option<u64>,
    pub virtualization: Option<String>,
}

/// How the CPUs run and sleep.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpusRecord {
    pub smt: Smt,
    pub idle: Option<IdleRecord>,
    pub frequency: Option<Vec<Frequency>>,
    /// Why what is null is not there.
    pub absent: Vec<Absence>,
}

/// The idle states of all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IdleRecord {
    pub driver: Option<String>,
    pub governor: Option<String>,
    pub states: Vec<IdleState>,
    /// The longest time to wake that programs allow all CPUs; null: no limit, or not known.
    pub wakeup_limit_us: Option<u64>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodeRecord {
    #[serde(flatten)]
    pub node: NumaNode,
    pub memory_bytes: Option<u64>,
    pub absent: Vec<Absence>,
}

/// The machine with the selected devices.
pub fn summarize(host: &Host, selection: &Selection<'_>, warnings: Vec<Warning>) -> DevicesSummary {
    DevicesSummary {
        host: machine(host),
        cpus: cpus(host),
        nodes: host.nodes.iter().map(|node| self::node(host, node)).collect(),
        devices: list(host, &selection.devices),
        not_shown: selection.placeholders.iter().map(|device| device.name.clone()).collect(),
        topology: TopologyRecord::of(host, &selection.devices),
        warnings,
    }
}

/// The device records that every result includes.
pub fn list(host: &Host, devices: &[&BlockDevice]) -> Vec<DeviceRecord> {
    devices.iter().map(|device| DeviceRecord::of(host, device)).collect()
}

fn machine(host: &Host) -> MachineRecord {
    MachineRecord {
        hostname: Some(host.hostname.clone()).filter(|name| !name.is_empty()),
        cpu_model: host.cpu_model.clone(),
        cpus_online: known(host.cpus_online),
        cpus_possible: known(host.cpus_possible),
        numa_nodes: host.numa_nodes,
        nodes: host.nodes.clone(),
        memory_bytes: host.memory_bytes,
        virtualization: host.virtualization.clone(),
    }
}

fn cpus(host: &Host) -> CpusRecord {
    let limit = |wakeup: &Wakeup| match wakeup {
        Wakeup::Limit(us) => Some(*us),
        Wakeup::Unlimited | Wakeup::Untold(_) => None,
    };
    CpusRecord {
        smt: host.smt.clone(),
        idle: host.idle.as_ref().map(|idle| IdleRecord {
            driver: idle.driver.clone(),
            governor: idle.governor.clone(),
            states: idle.states.clone(),
            wakeup_limit_us: limit(&idle.wakeup),
        }),
        frequency: Some(host.frequencies.clone()).filter(|all| !all.is_empty()),
        absent: absence::of_cpus(host),
    }
}

fn node(host: &Host, node: &NumaNode) -> NodeRecord {
    let memory_bytes = host.node_memory.get(&node.node).copied();
    let absent = memory_bytes.is_none().then(|| Absence::new("memory_bytes", absence::NODE_MEMORY));
    NodeRecord { node: node.clone(), memory_bytes, absent: absent.into_iter().collect() }
}

/// None for zero, where the kernel never reports zero.
fn known<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}
