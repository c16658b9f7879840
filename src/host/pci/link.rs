//! Reads the speed and width of a PCI link, and computes the data rate that it can carry.

use std::path::Path;

use super::super::attribute::text;
use super::super::{Aspm, Link};

/// The smallest payload, and the largest that root ports of servers accept: if the configuration space may not be read,
/// the true value lies between them.
const USUAL_PAYLOADS: [u32; 2] = [128, 512];

/// The link of a PCI function to the port above it. None if it has none (a conventional or purely virtual function).
/// `payload` is the packet size on the link, if known.
pub fn link(function: &Path, payload: Option<u32>, aspm: Option<Aspm>) -> Option<Link> {
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
        payload_bytes: payload,
        usable_bytes_per_second: USUAL_PAYLOADS
            .map(|usual| usable_bytes_per_second(speed_gts, width, payload.unwrap_or(usual))),
        aspm,
    })
}

/// Line rate of one direction after the encoding, before packet headers.
///
/// 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s; at 64 GT/s a FLIT of 256 bytes has 242 for packets.
pub fn raw_bytes_per_second(speed_gts: f64, width: u32) -> f64 {
    speed_gts * 1e9 * encoded(speed_gts).1 * f64::from(width) / 8.0
}

/// The name of the encoding on a link of this speed: `128b/130b`.
pub fn encoding(speed_gts: f64) -> &'static str {
    encoded(speed_gts).0
}

/// The name of the encoding, and the share of the rate that it leaves.
fn encoded(speed_gts: f64) -> (&'static str, f64) {
    match speed_gts {
        slow if slow < 8.0 => ("8b/10b", 8.0 / 10.0),
        fast if fast < 64.0 => ("128b/130b", 128.0 / 130.0),
        _ => ("FLIT 242/256", 242.0 / 256.0),
    }
}

/// The part of the line rate that is left for data if each packet carries this payload.
///
/// A packet that writes to memory has 24 bytes more: framing and sequence number (4), a header with a 64-bit address
/// (16) and the link's CRC (4). At 64 GT/s, framing and CRC belong to the FLIT, of which 236 of 256 bytes are packets.
/// Not counted: acknowledgements and flow control (1 to 3 %), and reads of memory (writes to a drive), whose answers
/// may be smaller than the payload.
pub fn usable_bytes_per_second(speed_gts: f64, width: u32, payload: u32) -> f64 {
    let raw = raw_bytes_per_second(speed_gts, width);
    let payload = f64::from(payload);
    if speed_gts < 64.0 {
        raw * payload / (payload + 24.0)
    } else {
        raw * 236.0 / 242.0 * payload / (payload + 16.0)
    }
}

/// Parses `16.0 GT/s PCIe`, or `8 GT/s` of older kernels; `Unknown` is None.
fn speed(value: &str) -> Option<f64> {
    let (number, unit) = value.split_once(' ')?;
    let speed: f64 = number.parse().ok()?;
    // 128 GT/s is the highest speed of the specification; a value above twice that is garbage.
    (unit.starts_with("GT/s") && speed > 0.0 && speed <= 256.0).then_some(speed)
}

/// Number of lanes. The kernel prints 0 or 255 if it is unknown.
fn width(value: &str) -> Option<u32> {
    value.parse().ok().filter(|width| (1..=32).contains(width))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Bytes/s of the links in published measurements, which assume the payload sizes.
    #[test]
    fn packets_cost_what_their_headers_cost() {
        let megabytes =
            |speed, width, payload| (usable_bytes_per_second(speed, width, payload) / 1e6).round();
        assert_eq!(megabytes(5.0, 4, 128), 1_684.0);
        assert_eq!(megabytes(8.0, 4, 256), 3_601.0);
        assert_eq!(megabytes(16.0, 4, 512), 7_524.0);
        assert_eq!(megabytes(64.0, 4, 256), 27_765.0);
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
