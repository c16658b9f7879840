//! Samples the stacks that submit I/Os, within a budget.

use std::time::Duration;

use anyhow::{Context, Result};

use super::super::maps::{element, entries};
use super::super::skel::latency::{LatencySkel, OpenLatencySkel};
use crate::wire::Record;
use crate::wire::submits::{Submits, WireSubmitRow, decode_stack};

/// The budget applies to each period of this length.
const PERIOD: Duration = Duration::from_millis(100);

/// Numbers per CPU that a stack's number has room for (`SUBMIT_NUMBER_BITS`).
const MOST_ROOM: u32 = (1 << 16) - 1;

/// The options of submit stacks.
#[derive(Debug, Clone, PartialEq)]
pub struct StackOptions {
    /// CPU budget for taking stacks, in percent of each CPU.
    pub max_cost: f64,
    /// Number of distinct stacks that are kept. Each takes 2 KiB.
    pub room: u32,
}

impl Default for StackOptions {
    fn default() -> Self {
        Self { max_cost: 1.0, room: 8192 }
    }
}

/// Sizes the maps, and configures the programs. Must be called before they are loaded.
pub fn prepare(open: &mut OpenLatencySkel<'_>, options: &StackOptions, cpus: u32) -> Result<()> {
    let maps = &mut open.maps;
    maps.submit_stacks.set_max_entries(options.room.clamp(1, MOST_ROOM))?;
    maps.submit_rows.set_max_entries(cpus)?;
    maps.submit_scratch.set_max_entries(cpus)?;
    let config = &mut maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.stacks_enabled = 1;
    config.stack_period_ns = PERIOD.as_nanos() as u64;
    config.stack_budget_ns = (PERIOD.as_nanos() as f64 * options.max_cost.clamp(0.0, 100.0) / 100.0) as u64;
    Ok(())
}

/// All stacks taken so far, without the mappings of the processes.
pub fn read(skel: &LatencySkel<'_>, cpus: u32) -> Result<Submits> {
    let mut all = Submits::default();
    for cpu in 0..cpus {
        all.count(&WireSubmitRow::decode(&element(&skel.maps.submit_rows, cpu)?)?);
    }
    for (key, value) in entries(&skel.maps.submit_stacks)? {
        let (number, stack) = decode_stack(&key, &value)?;
        all.stacks.insert(number, stack);
    }
    Ok(all)
}
