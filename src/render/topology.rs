//! Renders the path from each drive to memory as one inline SVG: NUMA nodes, root complexes, switches, drives. Colours
//! come from the page's style sheet, as in the charts.

use std::collections::{BTreeMap, BTreeSet};

use super::html::escape;
use super::svg;
use super::text::clean;
use crate::host::cpu::ranges;
use crate::host::pci::sharing::{self, RootComplex, SharedLink};
use crate::host::{BlockDevice, Hop, Host, Link};
use crate::units::{counted, gigabytes};

/// More drives of one root complex are only counted.
const MOST: usize = 64;

/// Width of the page's charts. A map with nested switches is wider, and is scaled down with its text.
const WIDTH: f64 = svg::WIDTH;
const MARGIN: f64 = 12.0;
const COMPLEX: f64 = 140.0;
/// Between two columns, where the lines turn.
const GAP: f64 = 26.0;
const SWITCH: f64 = 204.0;
/// The line of a drive's own link, with its figures.
const LINK: f64 = 245.0;
const DRIVE: f64 = 170.0;
/// Maximum widths, however much room there is.
const WIDEST_LINK: f64 = 290.0;
const WIDEST_DRIVE: f64 = 360.0;
const DRIVE_HEIGHT: f64 = 38.0;
/// Distance between two drives.
const ROW: f64 = 46.0;
const LINE: f64 = 15.0;
/// Between a box's edge and its text.
const PAD: f64 = 8.0;
/// Width of a root complex without drives.
const EMPTY: f64 = 112.0;

/// One PCI device with all its block devices: the namespaces of a drive, or the disks of a controller.
struct Drive<'a> {
    first: &'a BlockDevice,
    names: Vec<&'a str>,
    is_traced: bool,
}

enum Item<'a> {
    Drive(Drive<'a>),
    Switch(Switch<'a>),
    /// Number of drives that are not drawn.
    More(usize),
}

/// A switch and everything below it. The link is the one above it.
struct Switch<'a> {
    hop: &'a Hop,
    items: Vec<Item<'a>>,
}

struct Complex<'a> {
    /// None: sysfs does not report it.
    name: Option<&'a str>,
    items: Vec<Item<'a>>,
}

/// Data that is looked up while drawing.
struct Facts {
    shared: BTreeMap<String, SharedLink>,
    complexes: BTreeMap<String, RootComplex>,
    /// In a virtual machine the links and root complexes are not the real ones, so nothing is summed up.
    is_virtual: bool,
}

/// Left edges of the columns.
struct Columns {
    complex: f64,
    switches: f64,
    link: f64,
    drive: f64,
    drive_width: f64,
    width: f64,
}

impl Columns {
    fn new(depth: usize) -> Self {
        let complex = MARGIN;
        let switches = complex + COMPLEX + GAP;
        let link = switches + depth as f64 * (SWITCH + GAP) - GAP;
        let width = (link + LINK + DRIVE + MARGIN).max(WIDTH);
        let drive = link + LINK + ((width - MARGIN - DRIVE - link - LINK) / 2.0).min(WIDEST_LINK - LINK);
        let drive_width = (width - MARGIN - drive).min(WIDEST_DRIVE);
        Self { complex, switches, link, drive, drive_width, width }
    }
}

/// The map; empty if no device has a PCI address. `traced` are the devices of the run; devices below them count as
/// traced too.
pub fn map(host: &Host, traced: &BTreeSet<&str>) -> String {
    let devices: Vec<&BlockDevice> =
        host.devices.iter().filter(|device| device.pci_address.is_some()).collect();
    if devices.is_empty() {
        return String::new();
    }
    let facts = Facts {
        shared: sharing::links(&devices).into_iter().map(|link| (link.function.clone(), link)).collect(),
        complexes: sharing::root_complexes(&devices).into_iter().map(|one| (one.name.clone(), one)).collect(),
        is_virtual: host.virtualization.is_some(),
    };
    let mut nodes: BTreeMap<NodeKey, Vec<Complex<'_>>> = BTreeMap::new();
    let mut used: BTreeMap<Option<&str>, Vec<Drive<'_>>> = BTreeMap::new();
    for drive in drives(&devices, &with_layers(host, traced)) {
        used.entry(drive.first.root_complex.as_deref()).or_default().push(drive);
    }
    let empty: Vec<&str> = host
        .root_complexes
        .iter()
        .map(String::as_str)
        .filter(|name| !used.contains_key(&Some(*name)))
        .collect();
    for (name, drives) in used {
        let node = node(host, &drives);
        // Drives with an unknown node come last.
        let key = node.map_or(NodeKey::Untold, NodeKey::Node);
        nodes.entry(key).or_default().push(Complex { name, items: items(drives) });
    }
    let depth = nodes.values().flatten().map(|complex| depth(&complex.items)).max().unwrap_or(0);
    let mut drawing = Drawing { facts, columns: Columns::new(depth), y: 0.0, out: String::new() };
    for (node, complexes) in &nodes {
        drawing.node(&heading(host, *node), complexes);
    }
    drawing.empty(&empty);
    let label = format!("PCI topology of {}", counted(devices.len() as u64, "disk"));
    svg::open("chart map", drawing.columns.width, drawing.y, &label) + &drawing.out + "</svg>"
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NodeKey {
    Node(u32),
    Untold,
}

/// The common node of these drives. On a machine with one node it need not be reported.
fn node(host: &Host, drives: &[Drive<'_>]) -> Option<u32> {
    let told: BTreeSet<u32> = drives.iter().filter_map(|drive| drive.first.numa_node).collect();
    match (told.first(), host.nodes.as_slice()) {
        (Some(node), _) if told.len() == 1 => Some(*node),
        (None, [only]) => Some(only.node),
        _ => None,
    }
}

fn heading(host: &Host, node: NodeKey) -> String {
    let NodeKey::Node(number) = node else { return "NUMA node not reported".to_string() };
    let cpus = host.nodes.iter().find(|node| node.node == number).map(|node| ranges(&node.cpus));
    match cpus.filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => format!("NUMA node {number} · CPUs {cpus}"),
        None => format!("NUMA node {number}"),
    }
}

/// The traced devices and all devices below them: I/O of an array or a multipath drive is also its disks'.
fn with_layers<'a>(host: &'a Host, traced: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    let by_name: BTreeMap<&str, &BlockDevice> =
        host.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let mut found = BTreeSet::new();
    let mut next: Vec<&BlockDevice> =
        by_name.values().filter(|device| traced.contains(device.name.as_str())).copied().collect();
    while let Some(device) = next.pop() {
        if found.insert(device.name.as_str()) {
            next.extend(device.layers.iter().filter_map(|name| by_name.get(name.as_str()).copied()));
        }
    }
    found
}

/// One entry per PCI device, in the order of the disks. Functions of an NVMe drive share its link, and a virtual
/// function has the link of its physical one.
fn drives<'a>(devices: &[&'a BlockDevice], traced: &BTreeSet<&str>) -> Vec<Drive<'a>> {
    let mut found: Vec<Drive<'a>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for device in devices {
        let function = device.hops.first().map(|hop| &hop.function).or(device.pci_address.as_ref());
        let function = function.map_or("", String::as_str);
        let slot = function.rsplit_once('.').map_or(function, |(slot, _)| slot);
        let place = *places.entry(if device.is_nvme() { slot } else { function }).or_insert_with(|| {
            found.push(Drive { first: device, names: Vec::new(), is_traced: false });
            found.len() - 1
        });
        found[place].names.push(&device.name);
        found[place].is_traced |= traced.contains(device.name.as_str());
    }
    found
}

/// The tree of switches above these drives.
fn items(mut drives: Vec<Drive<'_>>) -> Vec<Item<'_>> {
    let left = drives.len().saturating_sub(MOST);
    if left > 0 {
        // Drives of the run are never left out.
        let mut spare = MOST.saturating_sub(drives.iter().filter(|drive| drive.is_traced).count());
        let mut keep = |drive: &Drive<'_>| {
            let fits = spare > 0 && !drive.is_traced;
            spare -= usize::from(fits);
            fits || drive.is_traced
        };
        drives.retain(|drive| keep(drive));
        drives.truncate(MOST);
    }
    let mut top = Vec::new();
    for drive in drives {
        // From the top down.
        let above: Vec<&Hop> = drive.first.hops.iter().skip(1).rev().collect();
        hang(&mut top, &above, drive);
    }
    if left > 0 {
        top.push(Item::More(left));
    }
    top
}

/// Inserts a drive into the tree, below these switches.
fn hang<'a>(items: &mut Vec<Item<'a>>, above: &[&'a Hop], drive: Drive<'a>) {
    let [hop, rest @ ..] = above else { return items.push(Item::Drive(drive)) };
    let found = items.iter_mut().find_map(|item| match item {
        Item::Switch(switch) if switch.hop.function == hop.function => Some(&mut switch.items),
        _ => None,
    });
    match found {
        Some(below) => hang(below, rest, drive),
        None => {
            let mut below = Vec::new();
            hang(&mut below, rest, drive);
            items.push(Item::Switch(Switch { hop, items: below }));
        }
    }
}

fn depth(items: &[Item<'_>]) -> usize {
    let below = |item: &Item<'_>| match item {
        Item::Switch(switch) => 1 + depth(&switch.items),
        _ => 0,
    };
    items.iter().map(below).max().unwrap_or(0)
}

fn is_traced(item: &Item<'_>) -> bool {
    match item {
        Item::Drive(drive) => drive.is_traced,
        Item::Switch(switch) => switch.items.iter().any(is_traced),
        Item::More(_) => false,
    }
}

/// A line of a box and its class.
type BoxLine = (&'static str, String);

fn box_height(lines: usize) -> f64 {
    lines as f64 * LINE + 9.0
}

impl Facts {
    fn complex(&self, complex: &Complex<'_>) -> Vec<BoxLine> {
        let name = complex.name.map_or("not reported".to_string(), str::to_string);
        let mut lines = vec![("tick", "root complex".to_string()), ("strong", name)];
        let sum = complex.name.and_then(|name| self.complexes.get(name));
        if let Some(sum) = sum.filter(|sum| {
            !self.is_virtual && sum.devices.len() > 1 && sum.devices_usable_bytes_per_second[0] > 0.0
        }) {
            lines.push(("tick", format!("{}, links of", counted(sum.devices.len() as u64, "drive"))));
            lines.push(("tick", gigabytes(sum.devices_usable_bytes_per_second)));
        }
        lines
    }

    fn shared(&self, switch: &Switch<'_>) -> Option<&SharedLink> {
        self.shared.get(&switch.hop.function).filter(|_| !self.is_virtual)
    }

    fn switch(&self, switch: &Switch<'_>) -> Vec<BoxLine> {
        let hop = switch.hop;
        let mut lines = vec![("strong", format!("switch {}", hop.function))];
        lines.extend(hop.port.as_ref().map(|port| ("tick", format!("at port {port}"))));
        lines.push(speed(&hop.link));
        lines.push(("", format!("{} usable", gigabytes(hop.link.usable_bytes_per_second))));
        if let Some(shared) = self.shared(switch) {
            let class = if shared.is_narrower() { "short" } else { "tick" };
            lines.push((
                class,
                format!("shared: {} could ask", counted(shared.devices.len() as u64, "drive")),
            ));
            lines.push((class, format!("for {}", gigabytes(shared.devices_usable_bytes_per_second))));
        }
        lines
    }

    /// A box is at least as high as its text, and as what is below it.
    fn height(&self, item: &Item<'_>) -> f64 {
        match item {
            Item::Drive(_) => ROW,
            Item::More(_) => LINE * 2.0,
            Item::Switch(switch) => {
                let own = box_height(self.switch(switch).len()) + ROW - DRIVE_HEIGHT;
                self.heights(&switch.items).max(own)
            }
        }
    }

    fn heights(&self, items: &[Item<'_>]) -> f64 {
        items.iter().map(|item| self.height(item)).sum()
    }
}

/// `8 GT/s x4 (could be 16 x4)`, or `8 GT/s x4 of 16 x4 (port)` if the port is the limit.
fn speed(link: &Link) -> BoxLine {
    let now = format!("{} GT/s x{}", link.speed_gts, link.width);
    let own = (link.max_speed_gts.unwrap_or(link.speed_gts), link.max_width.unwrap_or(link.width));
    let port = (link.port_max_speed_gts.unwrap_or(own.0), link.port_max_width.unwrap_or(own.1));
    let both = (own.0.min(port.0), own.1.min(port.1));
    let is_more = |(speed, width): (f64, u32)| speed > link.speed_gts || width > link.width;
    if is_more(both) {
        ("short", format!("{now} (could be {} x{})", both.0.max(link.speed_gts), both.1.max(link.width)))
    } else if is_more(own) {
        ("short", format!("{now} of {} x{} (port)", own.0, own.1))
    } else {
        ("", now)
    }
}

/// As much of a text as fits, escaped. Assumes the letter widths of the widest common font (DejaVu Sans).
fn fit(text: &str, room: f64, is_bold: bool) -> String {
    let room = if is_bold { room / 1.1 } else { room };
    let width = |c: char| match c {
        'm' | 'M' | 'W' | 'w' | '@' | '%' => 11.5,
        'A'..='Z' | '&' | '+' | '=' | '<' | '>' | '~' | '^' | '#' => 9.0,
        'i' | 'j' | 'l' | 'f' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '/' | '·' => 4.1,
        'r' | 't' | '(' | ')' | '-' => 4.8,
        c if c.is_ascii() => 7.3,
        _ => 13.0,
    };
    let text = clean(text);
    if text.chars().map(width).sum::<f64>() <= room {
        return escape(&text);
    }
    let mut left = room - 13.0;
    let part: String = text
        .chars()
        .take_while(|c| {
            left -= width(*c);
            left >= 0.0
        })
        .collect();
    escape(&(part + "…"))
}

struct Drawing {
    facts: Facts,
    columns: Columns,
    /// Everything above is drawn.
    y: f64,
    out: String,
}

impl Drawing {
    fn text(&mut self, class: &str, x: f64, y: f64, room: f64, text: &str) {
        let is_bold = matches!(class, "strong" | "short");
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.out
            .push_str(&format!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", fit(text, room, is_bold)));
    }

    fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.out.push_str(&format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\"/>"
        ));
    }

    /// A box with its lines centred on `middle`.
    fn words(&mut self, class: &str, x: f64, middle: f64, width: f64, lines: &[BoxLine]) {
        let height = box_height(lines.len());
        let title: Vec<String> = lines.iter().map(|(_, text)| escape(text)).collect();
        self.out.push_str(&format!("<g><title>{}</title>", title.join(", ")));
        self.rect(class, x, middle - height / 2.0, width, height);
        for (at, (class, text)) in lines.iter().enumerate() {
            let y = middle - height / 2.0 + 4.0 + LINE * at as f64 + 11.5;
            self.text(class, x + PAD, y, width - 2.0 * PAD, text);
        }
        self.out.push_str("</g>");
    }

    /// A node and its root complexes.
    fn node(&mut self, heading: &str, complexes: &[Complex<'_>]) {
        let top = self.y;
        let heights: Vec<f64> = complexes
            .iter()
            .map(|complex| {
                let own = box_height(self.facts.complex(complex).len()) + ROW - DRIVE_HEIGHT;
                self.facts.heights(&complex.items).max(own)
            })
            .collect();
        // A little more space between two root complexes than between two drives.
        let height = 30.0 + heights.iter().map(|height| height + 10.0).sum::<f64>();
        self.rect("node", 0.0, top, self.columns.width, height);
        self.text("strong", MARGIN, top + 20.0, self.columns.width - 2.0 * MARGIN, heading);
        let mut y = top + 30.0;
        for (complex, height) in complexes.iter().zip(heights) {
            let (x, middle) = (self.columns.complex, y + height / 2.0);
            self.below(&complex.items, x + COMPLEX, self.columns.switches, y, height);
            let lines = self.facts.complex(complex);
            self.words("box", x, middle, COMPLEX, &lines);
            y += height + 10.0;
        }
        self.y = top + height + 10.0;
    }

    /// Draws the items below a box whose right edge is at `from`, vertically centred in this height.
    fn below(&mut self, items: &[Item<'_>], from: f64, column: f64, top: f64, height: f64) {
        let middle = top + height / 2.0;
        let mut y = top + (height - self.facts.heights(items)) / 2.0;
        let mut places = Vec::new();
        for item in items {
            let tall = self.facts.height(item);
            places.push((y, tall));
            y += tall;
        }
        // Lines first, because boxes and text cover them. Those of the run last, as all share the first segment.
        let mut lines: Vec<(bool, f64, f64)> = Vec::new();
        for (item, (y, tall)) in items.iter().zip(&places) {
            let to = match item {
                Item::Drive(_) => self.columns.drive,
                Item::Switch(_) => column,
                Item::More(_) => continue,
            };
            lines.push((is_traced(item), y + tall / 2.0, to));
        }
        lines.sort_by_key(|(is_traced, _, _)| *is_traced);
        for (is_traced, y, to) in lines {
            let class = if is_traced { "edge traced" } else { "edge" };
            let turn = from + GAP / 2.0;
            self.out.push_str(&format!(
                "<path class=\"{class}\" d=\"M{from:.1} {middle:.1}H{turn:.1}V{y:.1}H{to:.1}\"/>"
            ));
        }
        for (item, (y, tall)) in items.iter().zip(places) {
            match item {
                Item::Drive(drive) => self.drive(drive, y + tall / 2.0),
                Item::More(count) => {
                    let text = format!("and {} not drawn", counted(*count as u64, "more drive"));
                    let (x, room) = (self.columns.drive, self.columns.drive_width);
                    self.text("tick", x, y + LINE, room, &text);
                }
                Item::Switch(switch) => {
                    self.below(&switch.items, column + SWITCH, column + SWITCH + GAP, y, tall);
                    let is_narrow = self.facts.shared(switch).is_some_and(SharedLink::is_narrower);
                    let class = if is_narrow { "box narrow" } else { "box" };
                    let lines = self.facts.switch(switch);
                    self.words(class, column, y + tall / 2.0, SWITCH, &lines);
                }
            }
        }
    }

    /// The figures of its own link are on the line to it.
    fn drive(&mut self, drive: &Drive<'_>, middle: f64) {
        let device = drive.first;
        let (x, width) = (self.columns.drive, self.columns.drive_width);
        let kind = device.model.as_deref().or(device.driver.as_deref()).unwrap_or("");
        let address = device.pci_address.as_deref().unwrap_or("");
        let mut title = vec![drive.names.join(", "), format!("{address} {kind}").trim().to_string()];
        if let Some(own) = device.hops.first() {
            let from = self.columns.link + GAP;
            let room = x - from - 4.0;
            let (class, speed) = speed(&own.link);
            self.text(class, from, middle - 4.0, room, &speed);
            let port = own.port.as_ref().map_or(String::new(), |port| format!(" · {port}"));
            let usable = format!("{}{port}", gigabytes(own.link.usable_bytes_per_second));
            self.text("tick", from, middle + 13.0, room, &usable);
            title.extend([speed, usable]);
        }
        let class = if drive.is_traced { "box drive traced" } else { "box drive" };
        self.out.push_str(&format!("<g><title>{}</title>", escape(&title.join("; "))));
        self.rect(class, x, middle - DRIVE_HEIGHT / 2.0, width, DRIVE_HEIGHT);
        let names = match drive.names.as_slice() {
            [first, rest @ ..] if rest.len() > 1 => format!("{first} and {} more", rest.len()),
            names => names.join(", "),
        };
        self.text("strong", x + PAD, middle - 3.5, width - 2.0 * PAD, &names);
        self.text("tick", x + PAD, middle + 12.5, width - 2.0 * PAD, &format!("{address} {kind}"));
        self.out.push_str("</g>");
    }

    /// Root complexes without drives, side by side.
    fn empty(&mut self, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let each = EMPTY + 8.0;
        let columns = ((self.columns.width - 2.0 * MARGIN + 8.0) / each).floor().max(1.0) as usize;
        let height = 30.0 + names.len().div_ceil(columns) as f64 * 32.0 + 4.0;
        self.rect("node", 0.0, self.y, self.columns.width, height);
        self.text("strong", MARGIN, self.y + 20.0, self.columns.width, "root complexes without a drive");
        for (at, name) in names.iter().enumerate() {
            let x = MARGIN + (at % columns) as f64 * each;
            let middle = self.y + 30.0 + (at / columns) as f64 * 32.0 + 12.0;
            self.words("box", x, middle, EMPTY, &[("tick", name.to_string())]);
        }
        self.y += height;
    }
}
