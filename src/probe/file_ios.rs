//! Sizes and reads the table of bios by device and file.

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes as _;

use super::maps;
use super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::wire::files::{FILE_OTHERS, FileSample, WireFile, WireFileIos, WireFileKey};

/// Files per run with their own row: at 56 bytes each, 450 KiB including the kernel's overhead.
const MOST: u32 = 4096;

/// Makes room for the files, and for one row of all other files per device.
pub fn size(open: &mut OpenLatencySkel<'_>, devices: usize) -> libbpf_rs::Result<()> {
    open.maps.file_ios.set_max_entries(MOST + devices as u32)
}

/// Adds the rows of all other files, before anything is attached.
pub fn fill(skel: &LatencySkel<'_>, devices: usize) -> Result<()> {
    for device in 0..devices as u32 {
        let file = WireFile { kind: FILE_OTHERS, ..WireFile::default() };
        let key = WireFileKey { file, device, selected: 0 };
        let row = WireFileIos::default();
        skel.maps
            .file_ios
            .update(key.as_bytes(), row.as_bytes(), MapFlags::ANY)
            .context("writing the table of files")?;
    }
    Ok(())
}

/// All current rows, each with the number of its device; without paths.
pub fn read(skel: &LatencySkel<'_>) -> Result<Vec<(u32, FileSample)>> {
    let rows = maps::entries(&skel.maps.file_ios)?;
    rows.iter().map(|(key, value)| Ok(FileSample::decode(key, value)?)).collect()
}
