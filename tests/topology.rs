//! The way from drives to memory, on machines rebuilt from what their owners published.

#[expect(dead_code, reason = "other tests grow machines")]
mod scratch;

use biopsy::host::Host;
use biopsy::host::pci::sharing::{self, SharedLink};
use biopsy::host::warnings::warnings;
use scratch::Scratch;

/// Ports and links of PCI, and drives at them.
struct Machine {
    scratch: Scratch,
    drives: u32,
}

impl Machine {
    fn new(name: &str) -> Self {
        Self { scratch: Scratch::new(name), drives: 0 }
    }

    fn file(&self, path: &str, value: &str) {
        self.scratch.write(&format!("sys/devices/{path}"), format!("{value}\n").as_bytes());
    }

    /// A function with a link of this speed and width to the port above it.
    fn function(&self, path: &str, class: &str, gts: &str, width: u32) {
        self.file(&format!("{path}/class"), class);
        for of in ["current", "max"] {
            self.file(&format!("{path}/{of}_link_speed"), &format!("{gts} GT/s PCIe"));
            self.file(&format!("{path}/{of}_link_width"), &width.to_string());
        }
    }

    fn bridge(&self, path: &str, gts: &str, width: u32) {
        self.function(path, "0x060400", gts, width);
    }

    /// The next drive, as the function of this path.
    fn drive(&mut self, path: &str, gts: &str) {
        let number = self.drives;
        self.drives += 1;
        self.function(path, "0x010802", gts, 4);
        let up = "../".repeat(path.split('/').count() + 1);
        self.scratch.link(&format!("sys/devices/{path}/driver"), &format!("{up}bus/pci/drivers/nvme"));
        let disk = format!("{path}/nvme/nvme{number}/nvme{number}n1");
        self.file(&format!("{disk}/size"), "1953525168");
        self.file(&format!("{disk}/dev"), &format!("259:{number}"));
        self.scratch.link(&format!("sys/block/nvme{number}n1"), &format!("../devices/{disk}"));
    }

    fn host(&self) -> Host {
        Host::read(self.scratch.path()).unwrap()
    }
}

/// The workstation T: four root complexes, and ten drives of PCIe 4.0 at ports of their own; of each, its complex, port
/// and bus as `lspci -tv` has them.
fn workstation(name: &str, drives: &[(&str, &[(&str, &str)])]) -> Machine {
    let mut machine = Machine::new(name);
    for complex in ["00", "20", "40", "60"] {
        machine.bridge(&format!("pci0000:{complex}/0000:{complex}:08.1"), "16.0", 16);
        // A host bridge is no port.
        machine.file(&format!("pci0000:{complex}/0000:{complex}:00.0/class"), "0x060000");
    }
    // On other machines there are some with nothing but those.
    machine.file("pci0000:7f/0000:7f:00.0/class", "0x060000");
    for (complex, ports) in drives {
        for (port, bus) in *ports {
            let port = format!("pci0000:{complex}/0000:{complex}:{port}");
            machine.bridge(&port, "16.0", 4);
            machine.drive(&format!("{port}/0000:{bus}:00.0"), "16.0");
        }
    }
    machine
}

const BEFORE: &[(&str, &[(&str, &str)])] = &[
    (
        "40",
        &[
            ("01.1", "41"),
            ("01.2", "42"),
            ("01.3", "43"),
            ("01.4", "44"),
            ("03.1", "45"),
            ("03.2", "46"),
            ("03.3", "47"),
            ("03.4", "48"),
        ],
    ),
    ("20", &[("01.1", "21"), ("01.2", "22")]),
];
const AFTER: &[(&str, &[(&str, &str)])] = &[
    ("60", &[("03.1", "61"), ("03.2", "62"), ("03.3", "63"), ("03.4", "64")]),
    ("40", &[("03.1", "42"), ("03.2", "43"), ("03.3", "44"), ("03.4", "45")]),
    ("20", &[("01.1", "21"), ("01.2", "22")]),
];

fn megabytes(range: [f64; 2]) -> [f64; 2] {
    range.map(|bytes| (bytes / 1e6).round())
}

/// What the machine's warnings are about.
fn warned(host: &Host) -> Vec<(String, &'static str)> {
    let devices: Vec<_> = host.devices.iter().collect();
    warnings(host, &devices).into_iter().map(|warning| (warning.device, warning.id)).collect()
}

#[test]
fn eight_of_ten_drives_at_one_root_complex_are_a_hint_until_they_are_parted() {
    let machine = workstation("before", BEFORE);
    let host = machine.host();
    assert_eq!(host.root_complexes, ["pci0000:00", "pci0000:20", "pci0000:40", "pci0000:60"]);
    let devices: Vec<_> = host.devices.iter().collect();
    let used = sharing::root_complexes(&devices);
    let counts: Vec<_> = used.iter().map(|complex| (complex.name.as_str(), complex.devices.len())).collect();
    assert_eq!(counts, [("pci0000:20", 2), ("pci0000:40", 8)]);
    // 63.0 GB/s raw: the links alone would carry what the drives can read (57.0).
    assert_eq!(megabytes(used[1].devices_usable_bytes_per_second), [53_066.0, 60_194.0]);
    assert_eq!(sharing::links(&devices), [], "each has a port of its own");
    assert_eq!(warned(&host), [("pci0000:40".to_string(), "root-complex-shared")]);

    let host = workstation("after", AFTER).host();
    assert_eq!(warned(&host), []);
}

/// The server V: two switches, each with an uplink of 16 lanes to a CPU of its own, and twelve drives of PCIe 3.0 at each.
#[test]
fn twelve_drives_below_one_uplink_ask_for_three_times_what_it_carries() {
    let mut machine = Machine::new("switches");
    for domain in ["0001", "0033"] {
        let upper = format!("pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0");
        machine.bridge(&format!("pci{domain}:00/{domain}:00:00.0"), "8.0", 16);
        machine.bridge(&upper, "8.0", 16);
        for slot in 0..12 {
            let lower = format!("{upper}/{domain}:02:{slot:02x}.0");
            machine.bridge(&lower, "8.0", 4);
            machine.drive(&format!("{lower}/{domain}:{:02x}:00.0", slot + 3), "8.0");
        }
    }
    let host = machine.host();
    let devices: Vec<_> = host.devices.iter().collect();
    let links = sharing::links(&devices);
    let seen =
        |link: &SharedLink| (link.function.clone(), link.port.clone(), link.devices.len(), link.link.width);
    let expected = |domain: &str| (format!("{domain}:01:00.0"), Some(format!("{domain}:00:00.0")), 12, 16);
    assert_eq!(links.iter().map(seen).collect::<Vec<_>>(), [expected("0001"), expected("0033")]);
    // 26.2 GB/s were measured through both: one could not have carried it.
    let raw: f64 = links.iter().map(|link| link.link.raw_bytes_per_second).sum();
    assert_eq!((raw / 1e6).round(), 31_508.0);
    assert!(links.iter().all(|link| link.link.usable_bytes_per_second[1] < 26.2e9));
    assert_eq!(megabytes(links[0].link.usable_bytes_per_second), [13_266.0, 15_048.0]);
    assert_eq!(megabytes(links[0].devices_usable_bytes_per_second), [39_799.0, 45_145.0]);
    let shared = |domain: &str| (format!("{domain}:01:00.0"), "link-shared");
    assert_eq!(warned(&host), [shared("0001"), shared("0033")]);
    // Own link first, then the uplink; between the ports of a switch there is none.
    let hops = &host.devices[0].hops;
    assert_eq!(hops.iter().map(|hop| hop.link.width).collect::<Vec<_>>(), [4, 16]);
}

#[test]
fn a_link_that_tells_no_speed_is_not_taken_for_another() {
    let mut machine = Machine::new("unknown");
    let top = "pci0000:00/0000:00:01.0";
    let upper = format!("{top}/0000:01:00.0");
    let (port, inner) = (format!("{upper}/0000:02:00.0"), format!("{upper}/0000:02:00.0/0000:03:00.0"));
    let (lower, drive) = (format!("{inner}/0000:04:00.0"), format!("{inner}/0000:04:00.0/0000:05:00.0"));
    for (bridge, width) in [(top, 16), (&upper, 16), (&port, 8), (&inner, 8), (&lower, 4)] {
        machine.bridge(bridge, "8.0", width);
    }
    machine.drive(&drive, "8.0");
    let widths = |machine: &Machine| {
        let device = machine.host().devices.remove(0);
        assert_eq!(device.link.as_ref(), device.hops.first().map(|hop| &hop.link));
        device.hops.iter().map(|hop| hop.link.width).collect::<Vec<_>>()
    };
    assert_eq!(widths(&machine), [4, 8, 16]);
    machine.file(&format!("{inner}/current_link_speed"), "Unknown");
    assert_eq!(widths(&machine), [4, 16], "the one above is still there");
    machine.file(&format!("{drive}/current_link_speed"), "Unknown");
    assert_eq!(widths(&machine), [0; 0], "the uplink is not the drive's own link");
}

/// As root reads it: with the payload the range is one figure.
#[test]
fn the_configuration_space_names_payload_vectors_and_power() {
    let mut machine = Machine::new("config");
    let port = "pci0000:40/0000:40:01.1";
    machine.bridge(port, "16.0", 4);
    machine.drive(&format!("{port}/0000:41:00.0"), "16.0");
    machine.file(&format!("{port}/0000:41:00.0/iommu_group/type"), "DMA-FQ");
    let mut space = vec![0u8; 256];
    space[0x06] = 0x10;
    space[0x34] = 0x50;
    space[0x50..0x54].copy_from_slice(&[0x11, 0x70, 0x81, 0x80]);
    space[0x70] = 0x10;
    space[0x78] = 0x20;
    let config = format!("sys/devices/{port}/0000:41:00.0/config");
    machine.scratch.write(&config, &space);
    let read = || machine.host().devices.remove(0);
    let device = read();
    let link = device.link.unwrap();
    assert_eq!((device.msix_vectors, device.iommu.as_deref()), (Some(130), Some("DMA-FQ")));
    assert_eq!((link.payload_bytes, link.aspm.map(|aspm| aspm.name())), (Some(256), Some("off")));
    assert_eq!(megabytes(link.usable_bytes_per_second), [7_202.0; 2]);

    // As everybody else does.
    machine.scratch.write(&config, &space[..64]);
    let device = read();
    let link = device.link.unwrap();
    assert_eq!((device.msix_vectors, link.payload_bytes, link.aspm), (None, None, None));
    assert_eq!(megabytes(link.usable_bytes_per_second), [6_633.0, 7_524.0]);
}
