//! What is loaded on this kernel.

use super::super::btf::{EventHome, KernelBtf, RingSubmit};
use super::super::events::EventOptions;
use super::super::filter::Filter;
use super::super::groups::Grouping;
use super::super::skel::latency::types::wire_file_callbacks;
use super::submits::StackOptions;
use crate::envelope::{Missing, Reason};
use crate::host::rights::Rights;
use crate::probe::btf_file;

/// What is loaded: what was asked for, less what this kernel does not have or refuses.
pub struct LoadPlan {
    pub nvme: Option<NvmeEvent>,
    pub queue: bool,
    /// Operations are followed, with this event of io_uring.
    pub ring: Option<RingSubmit>,
    /// The functions of the system calls, where they are followed there and not by their events.
    pub calls: Vec<u32>,
    /// Stages are taken apart; and whether the end of the bios' callbacks can be seen (6.5).
    pub parts: bool,
    pub io_done: bool,
    /// A limit is set on a traced device: what blk-throttle holds back is looked for.
    pub throttle: bool,
    /// Operations of this process's own threads begin and end with their own stamps.
    pub generator: bool,
    /// The place of the bio in block_bio_complete, where a bio-based device is traced.
    pub bio_complete: Option<u32>,
    pub events: Option<EventOptions>,
    pub stacks: Option<StackOptions>,
    pub cpus: u32,
    pub grouping: Option<Grouping>,
    /// `FILES_*`: what files are found for.
    pub files: u32,
    /// Where they are: the functions by which bios of direct I/O are recognised.
    pub file_callbacks: wire_file_callbacks,
    pub filter: Filter,
    /// Bios are counted by process.
    pub processes: bool,
    /// The processes of a command are tracked.
    pub command: bool,
    pub unified_cgroups: bool,
    pub drop_issue: u32,
}

impl LoadPlan {
    /// Somebody asks who handed an I/O in.
    pub fn submitter(&self) -> bool {
        self.events.is_some() || self.grouping.is_some()
    }
}

/// The program on the event by which the device stage of NVMe drives ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvmeEvent {
    /// `nvme_sq`, with the types of its module.
    Typed,
    /// `nvme_sq_raw`, without.
    Raw,
}

/// How the end of the device stage can be seen on NVMe drives, else why not.
pub fn nvme_sq(btf: &KernelBtf, rights: &Rights) -> Result<NvmeEvent, Box<Missing>> {
    match btf.event("nvme_sq", Some("nvme_core")) {
        EventHome::Vmlinux | EventHome::Module(_) if btf_file::path().is_some() => Ok(NvmeEvent::Raw),
        EventHome::Module(_) if !rights.sys_admin => Ok(NvmeEvent::Raw),
        EventHome::Vmlinux | EventHome::Module(_) => Ok(NvmeEvent::Typed),
        EventHome::Untyped(module) => Err(Box::new(Missing {
            reason: Reason::NoBtf,
            why: format!("module {module} has no BTF, so its event nvme_sq cannot be typed"),
            remedy: Some("use Linux 5.11 or newer with CONFIG_DEBUG_INFO_BTF_MODULES".to_string()),
            ..Missing::default()
        })),
        EventHome::NotLoaded(_) | EventHome::Absent => Err(Box::new(Missing {
            reason: Reason::NoEvent,
            why: "this kernel has no event nvme_sq".to_string(),
            ..Missing::default()
        })),
    }
}
