//! `biopsy load`.

use anyhow::Result;

use crate::cli::Load;

pub fn run(_args: &Load) -> Result<()> {
    anyhow::bail!("not built yet")
}
