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
    let config = Config::read(function);
    let hop = |lower: &Path, aspm| {
        let port = lower.parent().filter(is_function).and_then(name);
        Some(Hop { function: name(lower)?, port, link: link(lower, config.payload_bytes, aspm)? })
    };
    // The first one is the function's own, or there is none.
    let Some(own) = hop(function, config.aspm) else { return Vec::new() };
    let mut hops = vec![own];
    let above =
        |lower: &Path| Some(lower.parent().filter(is_function)?.parent().filter(is_function)?.to_path_buf());
    let mut at = above(function);
    for _ in 1..MOST_HOPS {
        let Some(lower) = at else { break };
        // A switch that tells no speed does not hide those above it.
        hops.extend(hop(&lower, Config::read(&lower).aspm));
        at = above(&lower);
    }
    hops
}
