//! Lists the links between a PCI function and its root complex.

use std::fs;
use std::path::Path;

use super::config::Config;
use super::link::link;
use super::{is_address, name};
use crate::host::Hop;

/// Enough for several levels of switches; a longer path is not a PCI path.
const MOST_HOPS: usize = 16;

/// The links from the function's own link upwards; empty if the function has none. Each link is between a function and
/// the port above it; the upper port of a switch has the next link. All packets are assumed to have the size that the
/// function sends.
pub fn hops(function: &Path) -> Vec<Hop> {
    let is_function = |path: &&Path| name(path).is_some_and(|name| is_address(&name));
    // A virtual function uses the link of the physical one, and its own registers do not describe it.
    let physical = fs::canonicalize(function.join("physfn")).ok();
    let function = physical.as_deref().unwrap_or(function);
    let config = Config::read(function);
    let hop = |lower: &Path, aspm| {
        let port = lower.parent().filter(is_function).and_then(name);
        Some(Hop { function: name(lower)?, port, link: link(lower, config.payload_bytes, aspm)? })
    };
    // The first link is the function's own; without it there are none.
    let Some(own) = hop(function, config.aspm) else { return Vec::new() };
    let mut hops = vec![own];
    let above =
        |lower: &Path| Some(lower.parent().filter(is_function)?.parent().filter(is_function)?.to_path_buf());
    let mut at = above(function);
    for _ in 1..MOST_HOPS {
        let Some(lower) = at else { break };
        // A switch without a speed does not hide the links above it.
        hops.extend(hop(&lower, Config::read(&lower).aspm));
        at = above(&lower);
    }
    hops
}
