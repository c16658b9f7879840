//! Restricts the CPUs of the kernel's unbound workers, which include the loop device's.

use std::fs;

use anyhow::{Context, Result};

const MASK: &str = "/sys/devices/virtual/workqueue/cpumask";

/// They run on CPU 0 until this is dropped.
pub struct OnFirstCpu(String);

impl OnFirstCpu {
    pub fn new() -> Result<Self> {
        let before = fs::read_to_string(MASK).context(MASK)?.trim().to_string();
        fs::write(MASK, "1").with_context(|| format!("{MASK} needs root"))?;
        Ok(Self(before))
    }
}

impl Drop for OnFirstCpu {
    fn drop(&mut self) {
        if let Err(e) = fs::write(MASK, &self.0) {
            eprintln!("{MASK} stays at 1 and was {}: {e}", self.0);
        }
    }
}
