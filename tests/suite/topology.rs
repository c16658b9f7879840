//! Tests the path from drives to memory, on machines that are rebuilt from what their owners published.

use std::collections::BTreeSet;

use crate::support::scratch::Scratch;
use biopsy::host::pci::sharing::{self, SharedLink};
use biopsy::host::warnings::warnings;
use biopsy::host::{Host, Link};
use biopsy::render::topology::map;

/// PCI ports and links, and the drives below them.
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

    /// Adds a function with a link of this speed and width to the port above it.
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

    /// Adds the next drive, as the function at this path.
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

/// The workstation T: four root complexes, and ten drives of PCIe 4.0, each at a port of its own. For each drive its
/// complex, port and bus, as `lspci -tv` prints them.
fn workstation(name: &str, drives: &[(&str, &[(&str, &str)])]) -> Machine {
    let mut machine = Machine::new(name);
    for complex in ["00", "20", "40", "60"] {
        machine.bridge(&format!("pci0000:{complex}/0000:{complex}:08.1"), "16.0", 16);
        // A host bridge is no port.
        machine.file(&format!("pci0000:{complex}/0000:{complex}:00.0/class"), "0x060000");
    }
    // Some machines have complexes with nothing else.
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

/// The devices and ids of the machine's warnings.
fn warned(host: &Host) -> Vec<(String, String)> {
    let devices: Vec<_> = host.devices.iter().collect();
    warnings(host, &devices).into_iter().map(|warning| (warning.device, warning.id.into())).collect()
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
    assert_eq!(warned(&host), [("pci0000:40".to_string(), "root-complex-shared".to_string())]);

    let host = workstation("after", AFTER).host();
    assert_eq!(warned(&host), []);
}

/// The server V: two switches, each with an uplink of 16 lanes to its own CPU, and twelve drives of PCIe 3.0 below
/// each.
fn switches(name: &str, drives: u32) -> Machine {
    let mut machine = Machine::new(name);
    for domain in ["0001", "0033"] {
        let upper = format!("pci{domain}:00/{domain}:00:00.0/{domain}:01:00.0");
        machine.bridge(&format!("pci{domain}:00/{domain}:00:00.0"), "8.0", 16);
        machine.bridge(&upper, "8.0", 16);
        for slot in 0..drives {
            let lower = format!("{upper}/{domain}:02:{slot:02x}.0");
            machine.bridge(&lower, "8.0", 4);
            machine.drive(&format!("{lower}/{domain}:{:02x}:00.0", slot + 3), "8.0");
        }
    }
    machine
}

#[test]
fn twelve_drives_below_one_uplink_ask_for_three_times_what_it_carries() {
    let host = switches("switches", 12).host();
    let devices: Vec<_> = host.devices.iter().collect();
    let links = sharing::links(&devices);
    let seen =
        |link: &SharedLink| (link.function.clone(), link.port.clone(), link.devices.len(), link.link.width);
    let expected = |domain: &str| (format!("{domain}:01:00.0"), Some(format!("{domain}:00:00.0")), 12, 16);
    assert_eq!(links.iter().map(seen).collect::<Vec<_>>(), [expected("0001"), expected("0033")]);
    // 26.2 GB/s were measured through both: one could not have carried that.
    let raw: f64 = links.iter().map(|link| link.link.raw_bytes_per_second).sum();
    assert_eq!((raw / 1e6).round(), 31_508.0);
    assert!(links.iter().all(|link| link.link.usable_bytes_per_second[1] < 26.2e9));
    assert_eq!(megabytes(links[0].link.usable_bytes_per_second), [13_266.0, 15_048.0]);
    assert_eq!(megabytes(links[0].devices_usable_bytes_per_second), [39_799.0, 45_145.0]);
    let shared = |domain: &str| (format!("{domain}:01:00.0"), "link-shared".to_string());
    assert_eq!(warned(&host), [shared("0001"), shared("0033")]);
    // The drive's own link comes first, then the uplink; between the ports of a switch there is no link.
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

/// As root reads it: with the payload size, the range is one figure.
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

    // As any other user reads it.
    machine.scratch.write(&config, &space[..64]);
    let device = read();
    let link = device.link.unwrap();
    assert_eq!((device.msix_vectors, link.payload_bytes, link.aspm), (None, None, None));
    assert_eq!(megabytes(link.usable_bytes_per_second), [6_633.0, 7_524.0]);
}

/// An element of an SVG: its name, its attributes, and the text after it.
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
}

impl Element {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> f64 {
        self.attribute(name).parse().unwrap()
    }
}

/// Parses an SVG as an XML parser would: an unclosed tag or an attribute without quotes fails the test.
fn elements(svg: &str) -> Vec<Element> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    let mut rest = svg;
    while let Some(tag) = rest.strip_prefix('<') {
        let (tag, after) = tag.split_once('>').expect("an end of the tag");
        let (text, _) = after.split_at(after.find('<').unwrap_or(after.len()));
        rest = &after[text.len()..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            assert!(text.is_empty(), "{text:?}");
            continue;
        }
        let tag = tag.strip_suffix('/').unwrap_or_else(|| {
            open.push(tag.split(' ').next().unwrap().to_string());
            tag
        });
        let (name, mut left) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while !left.is_empty() {
            let (key, value) = left.split_once("=\"").expect("a quote");
            let (value, more) = value.split_once('"').expect("a second quote");
            assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{key:?}");
            attributes.push((key.to_string(), value.to_string()));
            left = more.trim_start();
        }
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        assert!(is_name, "{name:?}");
        found.push(Element { name: name.to_string(), attributes, text: text.to_string() });
    }
    assert!(rest.is_empty() && open.is_empty(), "{rest:?} {open:?}");
    found
}

/// The map of a machine, after checks that hold for every map: boxes are inside and do not overlap, lines end, and
/// there are only texts.
fn picture(host: &Host, traced: &[&str]) -> (String, Vec<Element>) {
    let traced = BTreeSet::from_iter(traced.iter().copied());
    let svg = map(host, &traced);
    assert_eq!(svg, map(host, &traced));
    let elements = elements(&svg);
    let view: Vec<f64> =
        elements[0].attribute("viewBox").split(' ').map(|number| number.parse().unwrap()).collect();
    let edges = |element: &Element| {
        let (x, y) = (element.number("x"), element.number("y"));
        [x, y, x + element.number("width"), y + element.number("height")]
    };
    for class in ["node", "box"] {
        let of_class = |element: &&Element| element.attribute("class").split(' ').next() == Some(class);
        let boxes: Vec<[f64; 4]> = elements.iter().filter(of_class).map(edges).collect();
        for (at, [left, top, right, bottom]) in boxes.iter().enumerate() {
            assert!(*left >= 0.0 && *top >= 0.0 && *right <= view[2] && *bottom <= view[3]);
            let apart = |other: &[f64; 4]| {
                other[0] >= *right || other[2] <= *left || other[1] >= *bottom || other[3] <= *top
            };
            assert!(boxes[at + 1..].iter().all(apart), "a {class} on another: {left} {top} {right} {bottom}");
        }
    }
    for element in &elements {
        for (key, value) in &element.attributes {
            assert!(!["NaN", "inf"].iter().any(|word| value.contains(word)), "{key} {value}");
            assert!(!key.starts_with("on") && !key.contains("href") && key != "style", "{key} {value}");
        }
        assert!(["svg", "g", "title", "rect", "path", "text"].contains(&element.name.as_str()));
    }
    (svg, elements)
}

/// The texts of a class.
fn words<'a>(elements: &'a [Element], class: &str) -> Vec<&'a str> {
    let texts =
        elements.iter().filter(|element| element.name == "text" && element.attribute("class") == class);
    texts.map(|element| element.text.as_str()).collect()
}

fn of_class<'a>(elements: &'a [Element], class: &'a str) -> impl Iterator<Item = &'a Element> {
    elements.iter().filter(move |element| element.attribute("class") == class)
}

/// Writes a map to a file for inspection.
fn leave(name: &str, svg: &str) {
    let style = include_str!("../../src/render/html/style.css");
    let page = format!("<!DOCTYPE html><meta charset=utf-8><style>{style}</style><main>{svg}</main>");
    std::fs::write(format!("{}/{name}", env!("CARGO_TARGET_TMPDIR")), page).unwrap();
}

#[test]
fn the_map_has_every_root_complex_and_every_drive_once() {
    for (name, drives, used) in
        [("map-before", BEFORE, "8 drives, links of"), ("map-after", AFTER, "4 drives, links of")]
    {
        let host = workstation(name, drives).host();
        let (svg, elements) = picture(&host, &["nvme3n1"]);
        leave(&format!("{name}.html"), &svg);
        let strong = words(&elements, "strong");
        for drive in 0..10 {
            let name = format!("nvme{drive}n1");
            assert_eq!(strong.iter().filter(|text| **text == name).count(), 1, "{name}");
        }
        let ticks = words(&elements, "tick");
        for complex in &host.root_complexes {
            let count = strong.iter().chain(&ticks).filter(|text| *text == complex).count();
            assert_eq!(count, 1, "{complex}");
        }
        assert!(
            strong.contains(&"NUMA node not reported") && strong.contains(&"root complexes without a drive")
        );
        assert!(ticks.contains(&used), "{ticks:?}");
        assert_eq!(words(&elements, ""), ["16 GT/s x4"; 10]);
        assert_eq!(of_class(&elements, "box drive traced").count(), 1);
        assert_eq!(of_class(&elements, "box narrow").count(), 0);
    }
    let host = workstation("map-sum", BEFORE).host();
    let (svg, _) = picture(&host, &[]);
    assert!(svg.contains(">53.1 to 60.2 GB/s<") && svg.contains(">6.63 to 7.52 GB/s · 0000:40:01.1<"));
}

#[test]
fn the_map_marks_an_uplink_that_carries_less_than_is_asked_of_it() {
    let machine = switches("map-switches", 12);
    machine.file("pci0001:00/numa_node", "0");
    machine.file("pci0033:00/numa_node", "1");
    let host = machine.host();
    let (svg, elements) = picture(&host, &["nvme1n1", "nvme13n1"]);
    leave("map-switches.html", &svg);
    assert_eq!(of_class(&elements, "box narrow").count(), 2);
    assert_eq!(words(&elements, "short"), ["shared: 12 drives could ask", "for 39.8 to 45.1 GB/s"].repeat(2));
    let strong = words(&elements, "strong");
    for name in ["NUMA node 0", "NUMA node 1", "switch 0001:01:00.0", "switch 0033:01:00.0"] {
        assert_eq!(strong.iter().filter(|text| **text == name).count(), 1, "{name}: {strong:?}");
    }
    assert_eq!(strong.iter().filter(|text| text.starts_with("nvme")).count(), 24);
    assert_eq!(svg.matches(">13.3 to 15.0 GB/s usable<").count(), 2);
    // The uplink can carry four drives.
    let (_, elements) = picture(&switches("map-wide", 4).host(), &[]);
    assert_eq!((of_class(&elements, "box narrow").count(), words(&elements, "short").len()), (0, 0));
    // A link that a hypervisor shows is no bottleneck.
    let virtual_machine = Host { virtualization: Some("kvm".into()), ..host };
    assert_eq!(of_class(&picture(&virtual_machine, &[]).1, "box narrow").count(), 0);
}

#[test]
fn the_map_marks_a_link_that_could_be_faster() {
    let mut host =
        workstation("map-slow", &[("40", &[("01.1", "41"), ("01.2", "42"), ("01.3", "43")])]).host();
    let change = |host: &mut Host, drive: usize, change: fn(&mut Link)| {
        change(&mut host.devices[drive].hops[0].link);
    };
    change(&mut host, 0, |link| link.speed_gts = 8.0);
    change(&mut host, 1, |link| (link.width, link.port_max_width) = (2, Some(2)));
    let (svg, elements) = picture(&host, &[]);
    leave("map-slow.html", &svg);
    assert_eq!(words(&elements, "short"), ["8 GT/s x4 (could be 16 x4)", "16 GT/s x2 of 16 x4 (port)"]);
    assert_eq!(words(&elements, ""), ["16 GT/s x4"]);
}

/// Namespaces are one box, an array emphasises its disks, and a device without a PCI address is not drawn.
#[test]
fn the_map_draws_a_controller_once_and_only_what_is_on_pci() {
    let mut host = workstation("map-spaces", BEFORE).host();
    let mut second = host.devices[3].clone();
    second.name = "nvme3n2".into();
    let array = biopsy::host::BlockDevice {
        name: "md7".into(),
        layers: vec!["nvme3n2".into(), "nvme4n1".into(), "md7".into()],
        ..Default::default()
    };
    let disk = biopsy::host::BlockDevice {
        name: "vda".into(),
        driver: Some("virtio_blk".into()),
        pci_address: Some("0000:00:05.0".into()),
        root_complex: Some("pci0000:00".into()),
        ..Default::default()
    };
    host.devices.extend([second, array, disk]);
    let (svg, elements) = picture(&host, &["md7"]);
    leave("map-spaces.html", &svg);
    let strong = words(&elements, "strong");
    assert!(strong.contains(&"nvme3n1, nvme3n2") && strong.contains(&"vda") && !svg.contains("md7"));
    assert_eq!(of_class(&elements, "box drive traced").count(), 2);
    assert_eq!(of_class(&elements, "box drive").count(), 9);
    assert_eq!(words(&elements, "").len(), 10, "virtio has no link");
    assert_eq!(map(&Host { devices: Vec::new(), ..host.clone() }, &BTreeSet::new()), "");
    host.devices.iter_mut().for_each(|device| device.pci_address = None);
    assert_eq!(map(&host, &BTreeSet::new()), "");
}

#[test]
fn the_map_counts_what_it_has_no_room_for_and_keeps_the_drives_of_the_run() {
    let mut host = workstation("map-many", BEFORE).host();
    let one = host.devices[0].clone();
    for number in 10..110 {
        let mut device = one.clone();
        device.name = format!("nvme{number}n1");
        device.hops[0].function = format!("0000:{number:02x}:1f.0");
        host.devices.push(device);
    }
    let (svg, elements) = picture(&host, &["nvme99n1"]);
    // One complex has two of the ten drives, and one has 108.
    let drives = words(&elements, "strong").iter().filter(|text| text.starts_with("nvme")).count();
    assert_eq!((drives, words(&elements, "tick").contains(&"and 44 more drives not drawn")), (66, true));
    assert!(svg.contains(">nvme99n1<") && svg.contains(">108 drives, links of<"));
}

#[test]
fn hostile_names_stay_words_of_the_map() {
    let evil = "</text><script>alert(1)</script>\"'&\u{202e}\u{0}\x1b[2J";
    let mut host = switches("map-hostile", 3).host();
    for device in &mut host.devices {
        (device.model, device.driver) = (Some(evil.into()), Some("nvme".into()));
        (device.root_complex, device.pci_address) = (Some(evil.into()), Some(evil.into()));
        device.name = format!("{evil}{}", device.name);
        for hop in &mut device.hops {
            (hop.function, hop.port) = (format!("{evil}{}", hop.function), Some(evil.into()));
        }
    }
    host.root_complexes.push(evil.repeat(9));
    let long = "漢".repeat(200);
    host.devices[0].name = long.clone();
    let (svg, elements) = picture(&host, &[evil, &long]);
    leave("map-hostile.html", &svg);
    assert!(!svg.contains("<script") && !svg.contains(['\u{202e}', '\u{0}', '\x1b', '\'']));
    assert!(
        elements.iter().filter(|element| element.name == "text").all(|text| text.text.chars().count() < 120)
    );
}

/// With switches below switches the map is wider, and nothing overlaps. With two levels there is room for every word.
#[test]
fn the_map_of_a_deep_tree_is_as_orderly() {
    for levels in [2, 5] {
        let mut machine = Machine::new(&format!("map-deep-{levels}"));
        let mut above = "pci0000:00/0000:00:01.0".to_string();
        machine.bridge(&above, "32.0", 16);
        for level in 1..=levels {
            above = format!("{above}/0000:{level:02x}:00.0");
            machine.bridge(&above, "32.0", 16);
            for slot in 0..2 {
                let lower = format!("{above}/0000:{:02x}:{slot:02x}.0", level + 0x10);
                machine.bridge(&lower, "32.0", 4);
                machine.drive(&format!("{lower}/0000:{level:x}{:x}:00.0", slot + 8), "32.0");
            }
            above = format!("{above}/0000:{:02x}:1f.0", level + 0x10);
            machine.bridge(&above, "32.0", 16);
        }
        let mut host = machine.host();
        host.devices[0].hops[0].link.speed_gts = 16.0;
        let (svg, elements) = picture(&host, &["nvme1n1"]);
        leave(&format!("map-deep-{levels}.html"), &svg);
        let strong = words(&elements, "strong");
        assert_eq!(strong.iter().filter(|text| text.starts_with("switch ")).count(), levels);
        assert_eq!(strong.iter().filter(|text| text.starts_with("nvme")).count(), 2 * levels);
        assert!(!svg.contains('…'), "{svg}");
        let width: f64 = elements[0].attribute("viewBox").split(' ').nth(2).unwrap().parse().unwrap();
        assert_eq!(width == 1040.0, levels == 2, "{width}");
    }
}
