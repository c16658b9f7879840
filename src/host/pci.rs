//! The PCI function behind a device, and its link.

use std::path::{Component, Path, PathBuf};

use super::Link;
use super::attribute::text;

/// Where a device sits on PCI.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Place {
    /// `0000:41:00.0`; the domain has more digits behind a volume management device.
    pub address: String,
    /// `pci0000:40`: the host bridge through which everything below reaches memory. Behind a volume
    /// management device this is the real bridge, not the one that the driver made up.
    pub root_complex: Option<String>,
    /// Its directory in sysfs.
    pub directory: PathBuf,
}

/// The PCI function nearest to a device, by the device's real path in sysfs.
pub fn place(device: &Path) -> Option<Place> {
    let named = |path: &'_ Path| Some(path.file_name()?.to_str()?.to_string());
    let directory = device.ancestors().find(|path| named(path).is_some_and(|name| is_address(&name)))?;
    let root_complex = device.components().find_map(|component| match component {
        Component::Normal(name) => name.to_str().filter(|name| is_root_complex(name)),
        _ => None,
    });
    Some(Place {
        address: named(directory)?,
        root_complex: root_complex.map(str::to_string),
        directory: directory.to_path_buf(),
    })
}

/// The link of a PCI function; None where it has none (a conventional or purely virtual function).
pub fn link(function: &Path) -> Option<Link> {
    let speed_gts = speed(&text(&function.join("current_link_speed"))?)?;
    let width = width(&text(&function.join("current_link_width"))?)?;
    let port = function.parent().unwrap_or(function);
    let max_speed = |path: &Path| text(&path.join("max_link_speed")).and_then(|value| speed(&value));
    let max_width = |path: &Path| text(&path.join("max_link_width")).and_then(|value| self::width(&value));
    Some(Link {
        speed_gts,
        width,
        max_speed_gts: max_speed(function),
        max_width: max_width(function),
        port_max_speed_gts: max_speed(port),
        port_max_width: max_width(port),
        raw_bytes_per_second: raw_bytes_per_second(speed_gts, width),
    })
}

/// Line rate of one direction after the encoding, before packet headers.
///
/// 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s; at 64 GT/s a FLIT of 256 bytes has 242 for packets.
pub fn raw_bytes_per_second(speed_gts: f64, width: u32) -> f64 {
    let encoding = match speed_gts {
        slow if slow < 8.0 => 8.0 / 10.0,
        fast if fast < 64.0 => 128.0 / 130.0,
        _ => 242.0 / 256.0,
    };
    speed_gts * 1e9 * encoding * f64::from(width) / 8.0
}

/// `16.0 GT/s PCIe`, on older kernels `8 GT/s`; `Unknown` is None.
fn speed(value: &str) -> Option<f64> {
    let (number, unit) = value.split_once(' ')?;
    let speed: f64 = number.parse().ok()?;
    // 128 GT/s is the fastest that the specification names; beyond twice that it is garbage.
    (unit.starts_with("GT/s") && speed > 0.0 && speed <= 256.0).then_some(speed)
}

/// Lanes. The kernel prints 0 or 255 when it does not know.
fn width(value: &str) -> Option<u32> {
    value.parse().ok().filter(|width| (1..=32).contains(width))
}

/// `DDDD:BB:DD.F`.
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

/// `pciDDDD:BB`.
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

    #[test]
    fn line_rates_follow_the_encoding() {
        let gigabytes = |speed, width| (raw_bytes_per_second(speed, width) / 1e6).round() / 1e3;
        assert_eq!(gigabytes(2.5, 1), 0.25);
        assert_eq!(gigabytes(5.0, 4), 2.0);
        assert_eq!(gigabytes(8.0, 4), 3.938);
        assert_eq!(gigabytes(16.0, 4), 7.877);
        assert_eq!(gigabytes(32.0, 4), 15.754);
        assert_eq!(gigabytes(64.0, 4), 30.25);
    }

    #[test]
    fn unknown_speeds_and_widths_are_none() {
        assert_eq!(speed("16.0 GT/s PCIe"), Some(16.0));
        assert_eq!(speed("8 GT/s"), Some(8.0));
        for text in ["Unknown", "Unknown speed", "", "-1 GT/s", "inf GT/s", "NaN GT/s", "1e9 GT/s", "5 MT/s"]
        {
            assert_eq!(speed(text), None, "{text:?}");
        }
        assert_eq!((width("4"), width("0"), width("255"), width("x")), (Some(4), None, None, None));
    }
}
