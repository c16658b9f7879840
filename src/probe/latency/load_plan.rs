//! Describes what is loaded on this kernel.

use super::super::btf::{EventHome, KernelBtf, RingSubmit};
use super::super::events::EventOptions;
use super::super::filter::Filter;
use super::super::groups::Grouping;
use super::super::skel::latency::types::wire_file_callbacks;
use super::submits::StackOptions;
use crate::envelope::{Missing, Reason};
use crate::host::rights::Rights;
use crate::probe::btf_file;

/// What is loaded: what was requested, minus what this kernel lacks or refuses.
pub struct LoadPlan {
    pub nvme: Option<NvmeEvent>,
    pub queue: bool,
    /// The io_uring event by which operations are followed; None: they are not followed.
    pub ring: Option<RingSubmit>,
    /// The functions of system calls, if these are followed there and not by their events.
    pub calls: Vec<u32>,
    /// Break stages down; and whether the end of the bios' callbacks has an event (6.5).
    pub parts: bool,
    pub io_done: bool,
    /// A cgroup limit is set on a traced device: bios that blk-throttle throttles are looked up.
    pub throttle: bool,
    /// Operations of this process's own threads begin and end with the threads' own stamps.
    pub generator: bool,
    /// Argument index of the bio in block_bio_complete, if a bio-based device is traced.
    pub bio_complete: Option<u32>,
    pub events: Option<EventOptions>,
    pub stacks: Option<StackOptions>,
    pub cpus: u32,
    pub grouping: Option<Grouping>,
    /// `FILES_*`: the purposes for which files are looked up.
    pub files: u32,
    /// Addresses of the functions by which bios of direct I/O are recognised.
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
    /// Whether submitters are recorded.
    pub fn submitter(&self) -> bool {
        self.events.is_some() || self.grouping.is_some()
    }
}

/// The program at the event that ends the device stage of NVMe devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvmeEvent {
    /// `nvme_sq`, with the types of its module.
    Typed,
    /// `nvme_sq_raw`, without types.
    Raw,
}

/// How the end of the device stage of NVMe devices can be observed, or else why not.
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
