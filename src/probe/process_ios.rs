//! Sizes and reads the table of bios by device and process.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes as _;

use super::maps;
use super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::envelope::{Missing, Reason};
use crate::wire::process_ios::{NO_PROCESS, ProcessIos, WireProcessIos, WireProcessKey};

/// Processes per run with their own row: at 40 bytes each, 250 KiB including the kernel's overhead.
const MOST: u32 = 2048;

/// Live processes of the measured command: more than a parallel build has.
const MOST_OF_COMMAND: u32 = 8192;

/// Makes room for the processes, and for one row of all other processes per device.
pub fn size(open: &mut OpenLatencySkel<'_>, devices: usize, command: bool) -> libbpf_rs::Result<()> {
    if command {
        open.maps.command_processes.set_max_entries(MOST_OF_COMMAND)?;
    }
    open.maps.process_ios.set_max_entries(MOST + devices as u32)
}

/// The gap if all I/O was measured instead of the command's, and why.
pub fn missing_command(why: String) -> Missing {
    Missing {
        part: Some("command".to_string()),
        reason: Reason::NotAvailable,
        why: format!("the stages include all I/O on the devices that the command used: {why}"),
        ..Missing::default()
    }
}

/// The gap for processes of the command that did not fit.
pub fn missing_processes(untracked: u64) -> Missing {
    Missing {
        part: Some("command".to_string()),
        reason: Reason::NoRoom,
        why: format!(
            "the command had more than {MOST_OF_COMMAND} processes at once: {untracked} of them count as other processes"
        ),
        ..Missing::default()
    }
}

/// Adds the rows of all other processes, before anything is attached.
pub fn fill(skel: &LatencySkel<'_>, devices: usize) -> Result<()> {
    for device in 0..devices as u32 {
        let key = WireProcessKey { device, pid: NO_PROCESS, selected: 0 };
        let row = WireProcessIos::default();
        skel.maps
            .process_ios
            .update(key.as_bytes(), row.as_bytes(), MapFlags::ANY)
            .context("writing the table of processes")?;
    }
    Ok(())
}

/// The current rows of each device.
pub fn read(skel: &LatencySkel<'_>, devices: usize) -> Result<Vec<Vec<ProcessIos>>> {
    let mut all = vec![Vec::new(); devices];
    for (key, value) in maps::entries(&skel.maps.process_ios)? {
        let (device, row) = ProcessIos::decode(&key, &value)?;
        if let Some(rows) = all.get_mut(device as usize) {
            rows.push(row);
        }
    }
    Ok(all)
}
