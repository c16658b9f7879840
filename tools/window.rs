//! Common options: the devices to measure, and for how long.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use biopsy::host::select::{self, Device};
use biopsy::host::{BlockDevice, Host};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;

use crate::cli::MeasurementArgs;
use crate::output;

/// The disks for the names in `-d`, without duplicates; empty: all. For a partition, a note says that `figures` are
/// those of its disk.
pub fn resolve(host: &Host, devices: &[String], figures: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for text in devices {
        add(&mut names, &select::traceable(host, Path::new("/"), text)?);
        note_disk(select::find(host, Path::new("/"), text)?, figures);
    }
    Ok(names)
}

/// The disks and partitions to measure for the names in `-d`; with `sees_bios` also bio-based disks.
pub fn resolve_parts(host: &Host, devices: &[String], sees_bios: bool) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for text in devices {
        let device = select::find(host, Path::new("/"), text)?;
        if select::is_head(host, device.disk) {
            note_disk(device, "I/Os");
        }
        for name in select::measured(host, device, sees_bios)? {
            if !names.iter().any(|other| other == name) {
                names.push(name.to_string());
            }
        }
    }
    select::disjoint(host, &names)?;
    Ok(names)
}

/// The same for views of the latency probe, which may see bios.
pub fn resolve_layers(host: &Host, devices: &[String]) -> Result<Vec<String>> {
    resolve_parts(host, devices, LatencyProbe::sees_bios())
}

/// The same, plus the devices below a bio-based disk: its bios have no stages.
pub fn resolve_stacks(host: &Host, devices: &[String]) -> Result<Vec<String>> {
    let mut names = resolve_layers(host, devices)?;
    for name in names.clone() {
        if host.device(&name).is_some_and(|disk| !disk.request_based) {
            add(&mut names, &select::stack(host, &name, true)?);
        }
    }
    select::disjoint(host, &names)?;
    Ok(names)
}

/// The disks of the measured devices, for figures that exist only per disk. Prints a note for a partition.
pub fn disks_of(host: &Host, names: &[String], figures: &str) -> Result<Vec<String>> {
    let mut disks = Vec::new();
    for name in names {
        let device = select::find(host, Path::new("/"), name)?;
        add(&mut disks, &[device.disk]);
        note_disk(device, figures);
    }
    Ok(disks)
}

/// For a partition, prints that these figures are its disk's.
pub fn note_disk(device: Device<'_>, figures: &str) {
    if let Some(partition) = device.partition {
        let (part, disk) = (&partition.name, &device.disk.name);
        output::warn(&format!("{part} is a partition of {disk}: {figures} are those of the whole disk"));
    }
}

/// Adds the names that are missing.
pub fn add(names: &mut Vec<String>, disks: &[&BlockDevice]) {
    for disk in disks {
        if !names.contains(&disk.name) {
            names.push(disk.name.clone());
        }
    }
}

/// Prints on a terminal what is measured, and until when.
pub fn announce(named: &[String], window: &MeasurementArgs, command: &[String]) {
    if !output::progress() {
        return;
    }
    let what = if named.is_empty() { "all block devices".to_string() } else { named.join(", ") };
    output::warn(&format!("tracing {what} {}", how_long(window.length, command)));
}

/// The end of the measurement, in words.
pub fn how_long(length: Option<Duration>, command: &[String]) -> String {
    match (length, command.is_empty()) {
        (Some(length), _) => format!("for {length:?}"),
        (None, false) => "until the command ends".to_string(),
        (None, true) => "until Ctrl-C".to_string(),
    }
}

/// The options of the probe.
pub fn options(devices: Vec<String>, window: &MeasurementArgs) -> Options {
    Options { devices, cost: !window.no_cost, drop_issue: window.fault_drop_issue, ..Options::default() }
}
