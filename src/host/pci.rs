//! Finds the PCI function of a device, and its path to memory.

mod config;
pub(crate) mod link;
mod path;
pub mod sharing;

use std::path::{Component, Path, PathBuf};

pub use config::Config;
pub use link::encoding;
pub use path::hops;

/// The position of a device on PCI.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PciLocation {
    /// `0000:41:00.0`; below a volume management device, the domain has more digits.
    pub address: String,
    /// `pci0000:40`: the host bridge through which all devices below it reach memory. Below a volume management device
    /// this is the real bridge, not the virtual one that the driver created.
    pub root_complex: Option<String>,
    /// Its directory in sysfs.
    pub directory: PathBuf,
}

/// The PCI function nearest to a device, from the device's real path in sysfs.
pub fn place(device: &Path) -> Option<PciLocation> {
    let directory = device.ancestors().find(|path| name(path).is_some_and(|name| is_address(&name)))?;
    let root_complex = device.components().find_map(|component| match component {
        Component::Normal(name) => name.to_str().filter(|name| is_root_complex(name)),
        _ => None,
    });
    Some(PciLocation {
        address: name(directory)?,
        root_complex: root_complex.map(str::to_string),
        directory: directory.to_path_buf(),
    })
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_string())
}

/// Whether a name has the form `DDDD:BB:DD.F`.
fn is_address(name: &str) -> bool {
    let Some((bus, function)) = name.rsplit_once('.') else {
        return false;
    };
    let parts: Vec<&str> = bus.split(':').collect();
    let hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        lengths.contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit())
    };
    parts.len() == 3
        && hex(parts[0], 4..=8)
        && hex(parts[1], 2..=2)
        && hex(parts[2], 2..=2)
        && hex(function, 1..=1)
}

/// Whether a name has the form `pciDDDD:BB`.
fn is_root_complex(name: &str) -> bool {
    name.strip_prefix("pci").and_then(|name| name.split_once(':')).is_some_and(|(domain, bus)| {
        domain.len() >= 4
            && bus.len() == 2
            && domain.chars().chain(bus.chars()).all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_nearest_to_the_device_counts() {
        let path = "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/nvme/nvme0/nvme0n1";
        let place = place(Path::new(path)).unwrap();
        assert_eq!(place.address, "0000:41:00.0");
        assert_eq!(place.root_complex.as_deref(), Some("pci0000:40"));
        assert!(place.directory.ends_with("0000:40:01.1/0000:41:00.0"));
        assert_eq!(super::place(Path::new("/sys/devices/virtual/block/loop0")), None);
    }

    #[test]
    fn behind_volume_management_the_bridge_is_the_real_one() {
        let path =
            "/sys/devices/pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme1/nvme1n1";
        let place = place(Path::new(path)).unwrap();
        assert_eq!(
            (place.address.as_str(), place.root_complex.as_deref()),
            ("10000:01:00.0", Some("pci0000:5d"))
        );
    }
}
