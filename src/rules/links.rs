//! Rates and capacities of the links above the traced devices, shared by several rules.

use super::Summaries;
use super::facts;
use crate::analyze::latency::DeviceLatency;
use crate::analyze::op::Op;
use crate::host::{Hop, Link};
use crate::merge::SaturatingSum as _;

/// Edges of the interval and the clocks change a rate by less than this; a rate further above a ceiling contradicts it.
pub const TOLERANCE: f64 = 1.01;

/// Share of a link's capacity from which on it is saturated. Acknowledgements and flow control (1 to 3 %) are not in
/// the ceiling, and a mean over the run never quite reaches it.
pub const FULL: f64 = 0.95;

/// Confidence if the packet size is known; if it is unknown and the rate is near the capacity with the largest usual
/// packets; and if it is near the capacity with smaller ones, which the link need not use.
pub const CONFIDENCE: [f64; 3] = [0.9, 0.6, 0.4];

/// A link above traced devices, and their bytes.
#[derive(Debug)]
pub struct LinkTraffic<'a> {
    pub hop: &'a Hop,
    /// Traced devices below with I/O, by name. A controller's namespaces count separately.
    pub devices: Vec<&'a DeviceLatency>,
    /// It is their own link: the first one on the path to memory.
    pub own: bool,
    /// From the devices to memory.
    pub read: f64,
    /// From memory to the devices.
    pub written: f64,
}

impl LinkTraffic<'_> {
    /// The direction with more bytes, and its word: a link has separate lanes for each direction.
    pub fn most(&self) -> (f64, &'static str) {
        if self.written > self.read { (self.written, "written") } else { (self.read, "read") }
    }

    pub fn names(&self) -> Vec<&str> {
        self.devices.iter().map(|device| device.name.as_str()).collect()
    }

    /// The subject of a finding about it: the device, or the port and the devices below it.
    pub fn subject(&self) -> String {
        match (self.own, self.names().as_slice()) {
            (true, names) => names.join(" "),
            (false, names) => {
                format!("{}: {}", self.hop.port.as_ref().unwrap_or(&self.hop.function), names.join(" "))
            }
        }
    }

    /// Its description with article, for the middle of a sentence.
    pub fn called(&self) -> String {
        let link = &self.hop.link;
        let runs = format!("{} GT/s x{}", link.speed_gts, link.width);
        match (self.own, &self.hop.port) {
            (true, _) => format!("the PCIe link of {} ({runs})", self.names().join(" ")),
            (false, Some(port)) => format!("the PCIe link below {port} ({runs})"),
            (false, None) => format!("the PCIe link above {} ({runs})", self.hop.function),
        }
    }

    /// Whether its rates can be compared with its capacity: enough I/O, and no doubt about any device.
    pub fn is_sound(&self, s: &Summaries<'_>) -> bool {
        let ios: u64 = self.devices.iter().map(|device| device.ios).saturating_sum();
        ios >= facts::MIN_IOS
            && self.devices.iter().all(|device| facts::device_view(s, device).doubt(s).is_none())
    }
}

/// The links above the traced devices that carried I/O. None in a virtual machine: the links that a hypervisor shows
/// are not the machine's.
pub fn carried<'a>(s: &Summaries<'a>) -> Vec<LinkTraffic<'a>> {
    let mut all: Vec<LinkTraffic<'a>> = Vec::new();
    if s.host.virtualization.is_some() {
        return all;
    }
    for device in s.latency.devices.iter().filter(|device| device.ios > 0) {
        let hops = facts::disk(s, &device.name).map_or(&[][..], |disk| &disk.hops);
        let [read, written] = rates(s, device);
        for (at, hop) in hops.iter().enumerate() {
            match all.iter_mut().find(|known| slot(known.hop) == slot(hop)) {
                Some(known) => {
                    known.devices.push(device);
                    known.read += read;
                    known.written += written;
                }
                None => all.push(LinkTraffic { hop, devices: vec![device], own: at == 0, read, written }),
            }
        }
    }
    all.iter_mut().for_each(|one| one.devices.sort_by(|a, b| a.name.cmp(&b.name)));
    all
}

/// Without the function number: a device's functions share its link.
pub fn slot(hop: &Hop) -> &str {
    hop.function.rsplit_once('.').map_or(hop.function.as_str(), |(slot, _)| slot)
}

/// Bytes of data read and written per second. Other I/O classes carry none, or (passthrough) in an unknown direction.
fn rates(s: &Summaries<'_>, device: &DeviceLatency) -> [f64; 2] {
    let of = |ops: &[Op]| -> u64 {
        ops.iter().filter_map(|op| device.ops.get(op)).map(|of| of.bytes).saturating_sum()
    };
    let per_second = |bytes: u64, ns: u64| if ns == 0 { 0.0 } else { bytes as f64 * 1e9 / ns as f64 };
    // The load's reads were all within its own time, and the interval is longer.
    let read_ns = facts::driven(s, &device.name).map_or(s.latency.duration_ns, |load| load.duration_ns);
    [per_second(of(&[Op::Read]), read_ns), per_second(of(&[Op::Write, Op::Fua]), s.latency.duration_ns)]
}

/// Capacities of a link for data in one direction, one per possible packet size, smallest first. A single one if the
/// size is known.
///
/// Sizes are powers of two. If the size is not readable: 128, 256, 512 and, for all larger ones, packets without
/// headers. The time per byte is linear in 1 / size, so the values at 128 and 512 bytes give the others.
pub fn ceilings(link: &Link) -> Vec<(Option<u32>, f64)> {
    let [low, high] = link.usable_bytes_per_second;
    if low <= 0.0 || high < low {
        return Vec::new();
    }
    if link.payload_bytes.is_some() {
        return vec![(link.payload_bytes, low)];
    }
    let third = (1.0 / low - 1.0 / high) / 3.0;
    vec![
        (Some(128), low),
        (Some(256), 1.0 / (1.0 / high + third)),
        (Some(512), high),
        (None, 1.0 / (1.0 / high - third)),
    ]
}

/// More than any packet size allows: the speed, the width, the packet size or the count is wrong.
pub fn is_beyond(link: &Link, rate: f64) -> bool {
    ceilings(link).last().is_some_and(|(_, most)| rate > most * TOLERANCE)
}

/// A rate in the unit that links are sold by.
pub fn in_gigabytes(rate: f64) -> String {
    format!("{:.2} GB/s", rate / 1e9)
}

/// A saturated link.
#[derive(Debug)]
pub struct Full<'a> {
    pub carried: LinkTraffic<'a>,
    /// The nearest ceiling, and its packet size.
    pub ceiling: f64,
    pub payload: Option<u32>,
    pub confidence: f64,
}

impl Full<'_> {
    /// Share of the ceiling that was used.
    pub fn share(&self) -> f64 {
        self.carried.most().0 / self.ceiling
    }
}

/// The saturated links.
pub fn full<'a>(s: &Summaries<'a>) -> Vec<Full<'a>> {
    let found: Vec<Full<'a>> = carried(s)
        .into_iter()
        .filter(|carried| carried.is_sound(s))
        .filter_map(|carried| {
            let (rate, _) = carried.most();
            let known = carried.hop.link.payload_bytes.is_some();
            let all = ceilings(&carried.hop.link);
            // The largest that fits; larger ones would only be possible.
            let (payload, ceiling) =
                *all.iter().rev().find(|(_, most)| rate >= most * FULL && rate <= most * TOLERANCE)?;
            let confidence = match (known, payload) {
                (true, _) => CONFIDENCE[0],
                (false, Some(..=256)) => CONFIDENCE[2],
                (false, _) => CONFIDENCE[1],
            };
            Some(Full { carried, ceiling, payload, confidence })
        })
        .collect();
    let nearest = |one: &Full<'_>| {
        let same = found.iter().filter(|other| other.carried.names() == one.carried.names());
        same.map(Full::share).fold(0.0, f64::max) <= one.share()
    };
    let kept: Vec<bool> = found.iter().map(nearest).collect();
    found.into_iter().zip(kept).filter_map(|(one, kept)| kept.then_some(one)).collect()
}

/// Whether a link with a known ceiling is saturated above this device: then the time in the device is the link's.
pub fn limits(s: &Summaries<'_>, name: &str) -> bool {
    full(s).iter().any(|full| full.confidence == CONFIDENCE[0] && full.carried.names().contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// A Gen2 and a Gen5 link of four lanes, as in the host's facts.
    #[test]
    fn packets_of_256_bytes_lie_on_the_line_between() {
        for (raw, head) in [(2e9, 24.0), (30.25e9 * 236.0 / 242.0, 16.0)] {
            let usable = |payload: f64| raw * payload / (payload + head);
            let link = Link { usable_bytes_per_second: [usable(128.0), usable(512.0)], ..Link::default() };
            let found = ceilings(&link);
            let near = |at: usize, value: f64| (found[at].1 / value - 1.0).abs() < 1e-9;
            assert!(near(1, usable(256.0)) && near(3, raw), "{found:?}");
        }
        assert!(ceilings(&Link::default()).is_empty());
        let known = Link { payload_bytes: Some(256), usable_bytes_per_second: [3.6e9; 2], ..Link::default() };
        assert_eq!(ceilings(&known), [(Some(256), 3.6e9)]);
    }

    #[test]
    fn namespaces_and_functions_share_a_link() {
        let mut case = Case::new(10_000, 32);
        case.load = None;
        case.at_link(4e9, Some(256));
        case.twin("vdb");
        case.host.devices[1].hops[0].function = "0000:41:00.1".into();
        let all = case.summaries();
        let [one] = carried(&all).try_into().unwrap();
        assert_eq!((one.names(), one.own), (vec!["vda", "vdb"], true));
        assert_eq!(one.read, 2.0 * 10_000.0 * 4096.0);
        assert_eq!(one.subject(), "vda vdb");
    }

    #[test]
    fn a_virtual_machine_shows_no_links() {
        let mut case = Case::new(10_000, 32);
        case.at_link(4e9, Some(256));
        assert_eq!(carried(&case.summaries()).len(), 1);
        case.host.virtualization = Some("kvm".into());
        assert!(carried(&case.summaries()).is_empty());
    }

    #[test]
    fn reads_of_the_load_are_in_the_loads_time_and_others_in_the_window() {
        let mut case = Case::new(10_000, 32);
        case.at_link(4e9, Some(256));
        case.latency.duration_ns *= 2;
        assert_eq!(carried(&case.summaries())[0].read, 10_000.0 * 4096.0);
        let written = crate::analyze::latency::OpLatency { ios: 1, bytes: 4096, ..Default::default() };
        case.latency.devices[0].ops.insert(Op::Fua, written);
        assert_eq!(carried(&case.summaries())[0].written, 2048.0);
        case.load = None;
        assert_eq!(carried(&case.summaries())[0].read, 5_000.0 * 4096.0);
    }
}
