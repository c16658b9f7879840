//! `biopsy latency`.

use anyhow::Result;

use crate::cli::{Color, Latency};

pub fn run(_args: &Latency, _color: Color) -> Result<()> {
    anyhow::bail!("not built yet")
}
