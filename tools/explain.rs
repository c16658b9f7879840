//! `biopsy explain`.

use anyhow::Result;

use crate::cli::Explain;

pub fn run(_args: &Explain) -> Result<()> {
    anyhow::bail!("not built yet")
}
