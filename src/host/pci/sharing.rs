//! Finds the links and root complexes that several drives share. Only the list of root complexes reads files.
//!
//! Sums are over the drives' own links: the most that the drives could transfer, not what they do transfer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{is_address, is_root_complex};
use crate::host::attribute::{names, text};
use crate::host::{BlockDevice, Hop, Link};

/// A link that several drives share.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLink {
    /// The port at its upper end; None where sysfs has none.
    pub port: Option<String>,
    /// The function at its lower end: the upper port of a switch.
    pub function: String,
    pub link: Link,
    /// One name per drive.
    pub devices: Vec<String>,
    /// Sum of the usable rates of these drives' links.
    pub devices_usable_bytes_per_second: [f64; 2],
    /// Sum of the line rates of these drives' links.
    pub devices_raw_bytes_per_second: f64,
}

impl SharedLink {
    /// Whether the drives' own links are together faster than this one. Compares line rates, so that the packet size
    /// does not make equal numbers of lanes look like a bottleneck. The margin is above the rounding error of such
    /// sums.
    pub fn is_narrower(&self) -> bool {
        self.devices_raw_bytes_per_second > self.link.raw_bytes_per_second * 1.01
    }
}

/// A root complex and the drives below it.
#[derive(Debug, Clone, PartialEq)]
pub struct RootComplex {
    pub name: String,
    /// One name per drive.
    pub devices: Vec<String>,
    /// Sum over the drives' own links; a drive without one adds nothing.
    pub devices_usable_bytes_per_second: [f64; 2],
}

/// The NVMe drives, one device each: its namespaces, paths and functions share its link. Disks of other kinds share the
/// link of a controller, so the links above do not limit them.
fn drives<'a>(devices: &[&'a BlockDevice]) -> Vec<&'a BlockDevice> {
    let mut seen = BTreeSet::new();
    // The address without the function number. A virtual function has the first link of its physical one.
    let slot = |device: &'a BlockDevice| {
        let function = device.hops.first().map(|hop| &hop.function).or(device.pci_address.as_ref())?;
        Some(function.rsplit_once('.').map_or(function.as_str(), |(slot, _)| slot))
    };
    let on_pci = devices.iter().filter(|device| device.is_nvme() && device.pci_address.is_some());
    on_pci.filter(|device| seen.insert(slot(device))).copied().collect()
}

/// One name per drive: a drive with two ports has two links, but is one drive.
fn names_of(drives: &[&BlockDevice]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    drives.iter().filter(|drive| seen.insert(drive.drive())).map(|drive| drive.name.clone()).collect()
}

fn sum<'a>(drives: impl Iterator<Item = &'a BlockDevice>) -> [f64; 2] {
    drives
        .filter_map(|drive| drive.hops.first())
        .fold([0.0; 2], |sum, hop| std::array::from_fn(|at| sum[at] + hop.link.usable_bytes_per_second[at]))
}

/// The links above these devices that more than one drive uses, by the function at the lower end.
pub fn links(devices: &[&BlockDevice]) -> Vec<SharedLink> {
    let drives = drives(devices);
    let mut above: BTreeMap<&str, (&Hop, Vec<&BlockDevice>)> = BTreeMap::new();
    for drive in &drives {
        for hop in drive.hops.iter().skip(1) {
            above.entry(&hop.function).or_insert((hop, Vec::new())).1.push(drive);
        }
    }
    let shared = above.into_values().filter(|(_, drives)| names_of(drives).len() > 1);
    shared
        .map(|(hop, drives)| SharedLink {
            port: hop.port.clone(),
            function: hop.function.clone(),
            link: hop.link.clone(),
            devices: names_of(&drives),
            devices_usable_bytes_per_second: sum(drives.iter().copied()),
            devices_raw_bytes_per_second: drives
                .iter()
                .filter_map(|drive| drive.hops.first())
                .map(|hop| hop.link.raw_bytes_per_second)
                .sum(),
        })
        .collect()
}

/// The root complexes above these devices, by name.
pub fn root_complexes(devices: &[&BlockDevice]) -> Vec<RootComplex> {
    let mut below: BTreeMap<&str, Vec<&BlockDevice>> = BTreeMap::new();
    for drive in drives(devices) {
        if let Some(name) = &drive.root_complex {
            below.entry(name).or_default().push(drive);
        }
    }
    let one = |(name, drives): (&str, Vec<&BlockDevice>)| RootComplex {
        name: name.to_string(),
        devices: names_of(&drives),
        devices_usable_bytes_per_second: sum(drives.into_iter()),
    };
    below.into_iter().map(one).collect()
}

/// The root complexes of the machine to which a drive could be attached: those with a PCI bridge, including one that a
/// volume management device has taken over.
pub fn with_ports(root: &Path) -> Vec<String> {
    let devices = root.join("sys/devices");
    let is_port = |function: &Path| {
        // Class 0x06, subclass 0x04.
        let is_bridge = text(&function.join("class")).is_some_and(|class| class.starts_with("0x0604"));
        is_bridge || names(function).iter().any(|name| is_root_complex(name))
    };
    let has_port = |complex: &String| {
        let directory = devices.join(complex);
        let functions = names(&directory);
        functions.iter().filter(|name| is_address(name)).any(|name| is_port(&directory.join(name)))
    };
    names(&devices).into_iter().filter(|name| is_root_complex(name) && has_port(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::link::raw_bytes_per_second;
    use super::*;

    fn link(usable: f64) -> Link {
        Link {
            usable_bytes_per_second: [usable, usable * 1.1],
            raw_bytes_per_second: usable * 1.2,
            ..Link::default()
        }
    }

    /// A drive at its own port of a switch, whose upper port is `0000:02:00.0`.
    fn drive(name: &str, number: u32) -> BlockDevice {
        let hop = |function: String, port: &str, usable| Hop {
            function,
            port: Some(port.into()),
            link: link(usable),
        };
        let address = format!("0000:{number:02x}:00.0");
        BlockDevice {
            name: name.into(),
            driver: Some("nvme".into()),
            pci_address: Some(address.clone()),
            root_complex: Some("pci0000:00".into()),
            hops: vec![hop(address, "0000:03:00.0", 4e9), hop("0000:02:00.0".into(), "0000:00:01.0", 7e9)],
            ..BlockDevice::default()
        }
    }

    #[test]
    fn a_drive_counts_once_however_many_names_it_has() {
        let mut all = [drive("nvme0n1", 4), drive("nvme0n2", 4), drive("nvme1n1", 5)];
        // Another function of the same device.
        all[1].hops[0].function = "0000:04:00.1".into();
        let devices: Vec<&BlockDevice> = all.iter().collect();
        let [shared] = links(&devices).try_into().unwrap();
        assert_eq!((shared.function.as_str(), shared.devices.len()), ("0000:02:00.0", 2));
        assert_eq!(shared.devices_usable_bytes_per_second, [8e9, 8.8e9]);
        assert!(shared.is_narrower());
        assert_eq!(links(&devices[..2]), [], "one drive shares with nobody");
        assert_eq!(root_complexes(&devices)[0].devices, ["nvme0n1", "nvme1n1"]);
    }

    #[test]
    fn a_drive_of_two_ports_is_one_drive_with_two_links() {
        let all = [drive("nvme0c0n1", 4), drive("nvme0c1n1", 5), drive("nvme1c2n1", 6)];
        let devices: Vec<&BlockDevice> = all.iter().collect();
        let [shared] = links(&devices).try_into().unwrap();
        assert_eq!(shared.devices, ["nvme0c0n1", "nvme1c2n1"]);
        assert_eq!(shared.devices_usable_bytes_per_second[0], 12e9);
        assert_eq!(links(&devices[..2]), [], "it shares with nobody but itself");
        assert_eq!(root_complexes(&devices)[0].devices.len(), 2);
    }

    #[test]
    fn a_link_that_is_wide_enough_is_no_bottleneck() {
        // 8 links of 4 lanes at 8 GT/s equal 16 lanes at 16 GT/s, except for the rounding of the sum.
        let mut all: Vec<BlockDevice> =
            (0..9).map(|number| drive(&format!("nvme{number}n1"), number + 4)).collect();
        for device in &mut all {
            device.hops[0].link.raw_bytes_per_second = raw_bytes_per_second(8.0, 4);
            device.hops[1].link.raw_bytes_per_second = raw_bytes_per_second(16.0, 16);
        }
        let is_narrower = |all: &[BlockDevice]| links(&all.iter().collect::<Vec<_>>())[0].is_narrower();
        assert_eq!((is_narrower(&all[..8]), is_narrower(&all)), (false, true));
    }
}
