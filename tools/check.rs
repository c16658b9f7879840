//! `biopsy check`.

use anyhow::Result;

use crate::cli::{Check, Color};

pub fn run(_args: &Check, _color: Color) -> Result<()> {
    anyhow::bail!("not built yet")
}
