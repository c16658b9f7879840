//! `biopsy diagnose`.

use anyhow::Result;

use crate::cli::{Color, Diagnose};

pub fn run(_args: &Diagnose, _color: Color) -> Result<()> {
    anyhow::bail!("not built yet")
}
