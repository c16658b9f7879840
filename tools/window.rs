//! The common options of what is traced and for how long.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::host::{BlockDevice, Host, select};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;

use crate::cli::Window;
use crate::{output, service, stop};

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

/// The same, and what lies below a disk without requests: its bios have no stages.
pub fn resolve_stacks(host: &Host, window: &Window) -> Result<Vec<String>> {
    let mut names = resolve_layers(host, window)?;
    for name in names.clone() {
        if host.device(&name).is_some_and(|disk| !disk.request_based) {
            add(&mut names, &select::stack(host, &name, true)?);
        }
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
    service::ready();
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
