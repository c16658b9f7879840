//! Lists the programs of the latency object, and what each is for.

use anyhow::{Context, Result};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::SkelBuilder;

use super::calls;
use crate::host::BlockDevice;
use crate::host::abilities::{State, ViewState};
use crate::probe::btf::KernelBtf;
use crate::probe::btf_file::{self, BY_FILE};
use crate::probe::spec::{self, Here, Program, Reach, Requires, Spec, View};
use crate::probe::trial::{self, TrialResult};
use crate::probe::{files, libbpf, skel};

pub const SPEC: Spec = Spec {
    programs: &[LATENCY, DETAIL, COMMAND],
    try_load,
    configure,
    has_options: true,
    ..Spec::of(&[skel::LATENCY, skel::LATENCY_OLD, skel::LATENCY_RAW])
};

pub const VIEW: View = View { name: "latency", state: view };
/// Uses the same programs.
pub const DIAGNOSE: View = View { name: "diagnose", state: with_requests };
pub const TRACE: View = View { name: "trace", state: with_requests };

/// The remedy for a kernel that is too old.
pub const NEWER: &str = "use Linux 6.1 or newer";

fn view(here: &Here<'_>) -> ViewState {
    let state = with_requests(here);
    let reason = (state.state == State::Ok).then(|| reach(here).to_string());
    ViewState { reason: reason.or(state.reason), ..state }
}

/// Whether requests can be followed, and how far.
fn with_requests(here: &Here<'_>) -> ViewState {
    let is_needed = |name: &str| LATENCY.iter().chain(DETAIL).any(|known| known.needed && known.name == name);
    if let Some(program) = here.lacks(is_needed) {
        return spec::without(program);
    }
    // Such a kernel has a separate build of the programs, and its modules have no BTF, so NVMe devices have no events
    // of their own.
    if here.rights.can_trace() && !skel::is_usual() {
        return match btf_file::path() {
            Some(_) => ViewState::degraded(format!("block layer only: {BY_FILE}"), None),
            None => ViewState::degraded(
                "block layer only, best effort: stages queue and device, by programs for kernels before 5.12",
                Some(NEWER.to_string()),
            ),
        };
    }
    if here.traced().next().is_none() {
        return spec::without_disks();
    }
    let blind = here.programs.iter().find(|program| program.name == "nvme_sq" && program.state != State::Ok);
    match blind.filter(|_| here.traced().any(BlockDevice::is_nvme)) {
        Some(program) => {
            ViewState { reason: program.reason.clone(), ..ViewState::degraded("", program.remedy.clone()) }
        }
        None => ViewState::ok(),
    }
}

/// What is shown with the programs that work.
fn reach(here: &Here<'_>) -> &'static str {
    let submits = [RING_SUBMIT, SQE_SUBMIT].into_iter().any(|name| here.works(name));
    if submits
        && ["sys_enter", "sys_exit", "ring_complete", "ring_wait"].into_iter().all(|name| here.works(name))
    {
        "submit, queue, device and reap of io_uring and blocking calls; queue and device of other I/Os"
    } else {
        "stages queue and device; complete on NVMe"
    }
}

const ALL_CALLS: &str = "--functions has no effect";

const FOLLOWS: &str = "no operations: no submit and no reap stage";

/// Before 6.3 the same event had another name.
pub const RING_SUBMIT: &str = "ring_submit_req";
pub const SQE_SUBMIT: &str = "ring_submit_sqe";

pub const LATENCY: &[Program] = &[
    Program::needed("rq_issue", "block_rq_issue", "nothing can be timed"),
    Program::needed("rq_complete", "block_rq_complete", "nothing can be counted"),
    Program::needed("rq_requeue", "block_rq_requeue", "requeues read as device time"),
    Program::needed("rq_merge", "block_rq_merge", "merged requests leave stale entries"),
    Program::needed("bio_queue", "block_bio_queue", "no queue stage"),
    Program::needed("bio_split", "block_split", "no queue stage for split I/Os"),
    Program::needed("bio_backmerge", "block_bio_backmerge", "merges are not counted"),
    Program::needed("bio_frontmerge", "block_bio_frontmerge", "merges are not counted"),
    Program {
        requires: Requires::Usual(
            "before Linux 5.12 some drivers do not count bios in the kernel's counters",
        ),
        ..Program::optional(
            "bio_complete",
            "block_bio_complete",
            "bio-based devices (dm, md, zram) are not measured, only the disks below them",
        )
    },
    Program::of_operations("sys_enter", "sys_enter", FOLLOWS),
    Program::of_operations("sys_exit", "sys_exit", FOLLOWS),
    Program { function: true, ..Program::of_operations(calls::ENTER, "__x64_sys_io_uring_enter", ALL_CALLS) },
    Program { function: true, ..Program::of_operations(calls::EXIT, "__x64_sys_io_uring_enter", ALL_CALLS) },
    Program::of_operations(RING_SUBMIT, "io_uring_submit_req", FOLLOWS),
    Program::of_operations("ring_complete", "io_uring_complete", FOLLOWS),
    Program::of_operations("ring_wait", "io_uring_cqring_wait", FOLLOWS),
    Program {
        module: Some("nvme_core"),
        raw: Some("nvme_sq_raw"),
        ..Program::optional(
            "nvme_sq",
            "nvme_sq",
            "no complete stage on NVMe drives: it is included in device",
        )
    },
];

/// Attached by `latency --detail` only. They break down the stages of operations, so they need the programs that follow
/// operations.
pub const DETAIL: &[Program] = &[
    Program::of_operations("bio_getrq", "block_getrq", "queue is not split"),
    Program::of_operations("rq_insert", "block_rq_insert", "queue is not split"),
    Program::of_operations("io_done", "block_io_done", "endio is part of cqe"),
    Program::of_operations("ring_queue_work", "io_uring_queue_async_work", "no io-wq part of submit"),
    Program::of_operations("task_waking", "sched_waking", "no wake part of reap"),
    Program::of_operations("task_switch", "sched_switch", "no wake part of reap"),
];

const FOLLOWS_COMMAND: &str = "processes of COMMAND count as other processes";

/// Attached only by `diagnose -- COMMAND`.
const COMMAND: &[Program] = &[
    Program::optional("process_fork", "sched_process_fork", FOLLOWS_COMMAND),
    Program::optional("process_exit", "sched_process_exit", FOLLOWS_COMMAND),
];

/// Loads the named programs, and closes them.
fn try_load(names: &[String], btf: &KernelBtf) -> TrialResult<()> {
    let mut open = skel::latency_builder()?.open(libbpf::object_place())?;
    let constants = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
    constants.arguments = btf.arguments()?;
    constants.arguments.bio_complete = btf.bio_complete()?;
    trial::load(open, names)
}

fn configure(object: &mut OpenObject, reach: Reach, btf: &KernelBtf) -> Result<()> {
    let (arguments, bio_complete) = (btf.arguments()?, btf.bio_complete()?);
    libbpf::with_constants(object, |constants: &mut skel::latency::types::rodata| {
        constants.arguments = arguments;
        constants.arguments.bio_complete = bio_complete;
        let config = &mut constants.config;
        config.rqf_flush_seq = btf.rqf_flush_seq();
        config.rqf_timed_out = btf.rqf_timed_out();
        config.devices = 1;
        config.queue_enabled = 1;
        config.operations_enabled = libbpf::has_swap().into();
        config.bio_mask = 127;
        if reach == Reach::Usual {
            return;
        }
        let wanted: u32 = libbpf::has_swap().into();
        config.bios_enabled = wanted;
        config.parts_enabled = wanted;
        config.throttle_enabled = wanted;
        config.submitter_enabled = wanted;
        config.events_enabled = wanted;
        config.stacks_enabled = wanted;
        config.event_ops = u32::MAX;
        config.most_groups = 2 * wanted;
        config.group_by = u32::MAX;
        config.matrix_cpus = 2 * wanted;
        config.filter_enabled = u32::MAX * wanted;
        config.count_processes = wanted;
        config.own_process = wanted;
        config.files_enabled = u32::MAX * wanted;
        // Arbitrary addresses: they are only compared, never read.
        constants.file_callbacks = files::any_callbacks();
    })
}
