//! PCI links, and drives that share a path to memory.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::host::pci::encoding;
use crate::host::pci::sharing::{self, RootComplex, SharedLink};
use crate::host::{Aspm, BlockDevice, Hop, Host, Link};

/// A link, with rates in whole bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkRecord {
    pub speed_gts: f64,
    pub width: u32,
    pub max_speed_gts: Option<f64>,
    pub max_width: Option<u32>,
    pub port_max_speed_gts: Option<f64>,
    pub port_max_width: Option<u32>,
    pub encoding: Cow<'static, str>,
    pub raw_bytes_per_second: u64,
    pub payload_bytes: Option<u32>,
    pub usable_bytes_per_second: [u64; 2],
    pub aspm: Option<Aspm>,
}

/// A link on the way from a device to its root complex.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HopRecord {
    pub function: String,
    pub port: Option<String>,
    pub link: LinkRecord,
}

/// What the devices share. Sums are of the drives' own links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TopologyRecord {
    pub shared_links: Vec<SharedLinkRecord>,
    pub root_complexes: Vec<RootComplexRecord>,
    /// All that a drive could be attached to.
    pub root_complexes_with_ports: Vec<String>,
}

/// A link that several drives share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SharedLinkRecord {
    #[serde(flatten)]
    pub hop: HopRecord,
    pub devices: Vec<String>,
    pub devices_raw_bytes_per_second: u64,
    pub devices_usable_bytes_per_second: [u64; 2],
}

/// A root complex, and the drives below it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RootComplexRecord {
    pub name: String,
    pub devices: Vec<String>,
    pub devices_usable_bytes_per_second: [u64; 2],
}

impl LinkRecord {
    pub fn of(link: &Link) -> Self {
        Self {
            speed_gts: link.speed_gts,
            width: link.width,
            max_speed_gts: link.max_speed_gts,
            max_width: link.max_width,
            port_max_speed_gts: link.port_max_speed_gts,
            port_max_width: link.port_max_width,
            encoding: encoding(link.speed_gts).into(),
            raw_bytes_per_second: whole(link.raw_bytes_per_second),
            payload_bytes: link.payload_bytes,
            usable_bytes_per_second: link.usable_bytes_per_second.map(whole),
            aspm: link.aspm,
        }
    }
}

impl HopRecord {
    pub fn of(hop: &Hop) -> Self {
        Self { function: hop.function.clone(), port: hop.port.clone(), link: LinkRecord::of(&hop.link) }
    }
}

impl TopologyRecord {
    pub fn of(host: &Host, devices: &[&BlockDevice]) -> Self {
        let shared = |shared: SharedLink| SharedLinkRecord {
            hop: HopRecord {
                link: LinkRecord::of(&shared.link),
                function: shared.function,
                port: shared.port,
            },
            devices: shared.devices,
            devices_raw_bytes_per_second: whole(shared.devices_raw_bytes_per_second),
            devices_usable_bytes_per_second: shared.devices_usable_bytes_per_second.map(whole),
        };
        let complex = |complex: RootComplex| RootComplexRecord {
            name: complex.name,
            devices: complex.devices,
            devices_usable_bytes_per_second: complex.devices_usable_bytes_per_second.map(whole),
        };
        Self {
            shared_links: sharing::links(devices).into_iter().map(shared).collect(),
            root_complexes: sharing::root_complexes(devices).into_iter().map(complex).collect(),
            root_complexes_with_ports: host.root_complexes.clone(),
        }
    }
}

fn whole(bytes: f64) -> u64 {
    bytes.round() as u64
}
