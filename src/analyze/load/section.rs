//! A section of a job file, or the command line: its options, what its threads did, and the drive's state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::drive::DriveFacts;
use super::work::Totals;
use crate::load::{BlockSizes, Direction, Engine, Fill, LoadSummary, Pattern, sections};

/// One section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SectionRecord {
    pub name: String,
    pub target: String,
    /// The block device below the target.
    pub device: Option<String>,
    pub rw: Pattern,
    /// Percent; null where the pattern does not mix.
    pub rwmixread: Option<u8>,
    pub engine: Engine,
    pub direct: bool,
    pub hipri: bool,
    /// The largest block.
    pub bs: u64,
    pub block_sizes: BTreeMap<Direction, BlockSizes>,
    pub iodepth: u32,
    pub numjobs: u32,
    /// As the option has it: `every`, `sampled:N` or `off`.
    pub timestamps: String,
    /// Bytes of the target that the offsets cover.
    pub size: u64,
    /// Making the scratch file.
    pub fill: Option<Fill>,
    #[serde(flatten)]
    pub totals: Totals,
    #[serde(flatten)]
    pub drive: DriveFacts,
}

impl SectionRecord {
    pub fn of(load: &LoadSummary) -> Self {
        let job = &load.job;
        let mixed = matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite);
        let sizes = |direction: Direction| (direction, job.bs[direction.index()].clone());
        Self {
            name: job.name.clone(),
            target: load.target.clone(),
            device: load.device.clone(),
            rw: job.rw,
            rwmixread: mixed.then_some(job.rwmixread),
            engine: job.engine,
            direct: job.direct,
            hipri: job.hipri,
            bs: job.largest_block(),
            block_sizes: job.directions().map(sizes).collect(),
            iodepth: job.iodepth,
            numjobs: job.numjobs,
            timestamps: job.timestamps.to_string(),
            size: load.size,
            fill: load.fill,
            totals: Totals::of(load, std::slice::from_ref(load)),
            drive: DriveFacts::of(&load.drive),
        }
    }
}

/// Several sections. Rates of their totals are over the time in which any of them ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeveralRecord {
    #[serde(flatten)]
    pub totals: Totals,
    pub sections: Vec<OneOfSeveral>,
}

/// One of them, and when it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneOfSeveral {
    pub duration_ns: u64,
    /// It waited for all sections above it.
    pub stonewall: bool,
    #[serde(flatten)]
    pub section: SectionRecord,
}

impl SeveralRecord {
    /// None without any section.
    pub fn of(loads: &[LoadSummary]) -> Option<Self> {
        let section = |load: &LoadSummary| OneOfSeveral {
            duration_ns: load.duration_ns,
            stonewall: load.job.stonewall,
            section: SectionRecord::of(load),
        };
        let totals = Totals::of(&sections::together(loads)?, loads);
        Some(Self { totals, sections: loads.iter().map(section).collect() })
    }
}
