//! The links between a function and its root complex.

use std::fs;
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
    let is_function = |path: &&Path| name(path).is_some_and(|name| is_address(&name));
    // A virtual function has the link of the physical one, and its registers say nothing of it.
    let physical = fs::canonicalize(function.join("physfn")).ok();
    let function = physical.as_deref().unwrap_or(function);
    let payload = Config::read(function).payload_bytes;
    let mut hops = Vec::new();
    let mut at = Some(function);
    for _ in 0..MOST_HOPS {
        let Some(lower) = at else { break };
        let port = lower.parent().filter(is_function);
        // One that tells no speed does not hide those above it.
        if let (Some(address), Some(link)) = (name(lower), link(lower, payload, Config::read(lower).aspm)) {
            hops.push(Hop { function: address, port: port.and_then(name), link });
        }
        at = port.and_then(Path::parent).filter(is_function);
    }
    hops
}
