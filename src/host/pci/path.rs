//! The links between a function and its root complex.

use std::path::Path;

use super::config::Config;
use super::link::link;
use super::{is_address, name};
use crate::host::Hop;

/// Switches below switches below switches; a path that goes on is none of PCI's.
const MOST_HOPS: usize = 16;

/// From the function's own link up; empty where it has none. Each is between a function and the port above it: of a
/// switch, its upper port has the next one. All packets are as large as the function sends them.
pub fn hops(function: &Path) -> Vec<Hop> {
    let payload = Config::read(function).payload_bytes;
    let mut hops = Vec::new();
    let mut at = Some(function);
    while let Some(lower) = at.filter(|_| hops.len() < MOST_HOPS) {
        let Some(link) = link(lower, payload, Config::read(lower).aspm) else { break };
        let Some(address) = name(lower) else { break };
        let port = lower.parent().filter(|above| name(above).is_some_and(|name| is_address(&name)));
        hops.push(Hop { function: address, port: port.and_then(name), link });
        at = port.and_then(Path::parent).filter(|above| name(above).is_some_and(|name| is_address(&name)));
    }
    hops
}
