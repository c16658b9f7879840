//! `biopsy devices`.

use anyhow::Result;

use crate::cli::Devices;

pub fn run(_args: &Devices) -> Result<()> {
    anyhow::bail!("not built yet")
}
