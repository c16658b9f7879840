//! The common options of what is traced and for how long.

use std::cell::Cell;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::host::{BlockDevice, Host, select};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;

use crate::cli::Window;
use crate::{output, stop};

/// The disks to trace for what `-d` names, each once; empty: all.
pub fn resolve(host: &Host, window: &Window) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for text in &window.devices {
        add(&mut names, &select::traceable(host, Path::new("/"), text)?);
    }
    Ok(names)
}

/// The same for views that see bios too.
pub fn resolve_layers(host: &Host, window: &Window) -> Result<Vec<String>> {
    if !LatencyProbe::sees_bios() {
        return resolve(host, window);
    }
    let mut names = Vec::new();
    for text in &window.devices {
        add(&mut names, &select::observable(host, Path::new("/"), text)?);
    }
    Ok(names)
}

/// Adds the names that are not there yet.
pub fn add(names: &mut Vec<String>, disks: &[&BlockDevice]) {
    for disk in disks {
        if !names.contains(&disk.name) {
            names.push(disk.name.clone());
        }
    }
}

/// Tells a service manager that the interval has begun, and a terminal what is measured and until when.
pub fn announce(named: &[String], window: &Window, command: &[String]) {
    notify_ready();
    if !output::progress() {
        return;
    }
    let what = if named.is_empty() { "all block devices".to_string() } else { named.join(", ") };
    let how_long = match (window.length, command.is_empty()) {
        (Some(length), _) => format!("for {length:?}"),
        (None, false) => "until the command ends".to_string(),
        (None, true) => "until Ctrl-C".to_string(),
    };
    output::warn(&format!("tracing {what} {how_long}"));
}

/// Where a service manager listens, as in sd_notify(3).
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Sends `READY=1` to whoever started us and wants to know when we measure: systemd with `Type=notify`, or a script.
/// Nobody who listens is no error.
fn notify_ready() {
    let Some(place) = std::env::var_os(NOTIFY_SOCKET) else { return };
    let address = match place.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&place),
    };
    let _sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
}

/// What the probe is told.
pub fn options(devices: Vec<String>, window: &Window) -> Options {
    Options { devices, cost: !window.no_cost, drop_issue: window.fault_drop_issue, ..Options::default() }
}

/// How often a device's existence is looked at: when it goes away its events end.
const LOOK_EVERY: Duration = Duration::from_millis(200);

thread_local! {
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Ctrl-C, or every device that was named is gone.
pub fn over(named: &[String]) -> bool {
    if stop::requested() {
        return true;
    }
    if named.is_empty() || LOOKED.get().is_some_and(|then| then.elapsed() < LOOK_EVERY) {
        return false;
    }
    LOOKED.set(Some(Instant::now()));
    named.iter().all(|name| !Path::new("/sys/block").join(name).exists())
}
