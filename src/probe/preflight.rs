//! What can be measured here: each program is looked up in BTF and, with the rights for it, loaded
//! once (never attached).

mod views;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::skel::SkelBuilder;

use super::btf::{self, BY_FILE, EventHome, KernelBtf, NO_BTF, RingSubmit};
use super::trial::{self, Loaded};
use super::{libbpf, skel};
use crate::host::abilities::{Abilities, ProgramState, State};
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::refusal::{Refusal, plain};

/// A program that a view attaches.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    object: Object,
    event: &'static str,
    /// The module that has the event, if it is not the kernel itself.
    module: Option<&'static str>,
    /// What a view does not measure without it.
    without: &'static str,
    /// Whether `latency` measures nothing without it.
    needed: bool,
}

/// The objects of the views. Only that of `latency` has a variant for kernels whose BTF is a file (`--btf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Latency,
    Interrupts,
    Locks,
    Pagecache,
    Waits,
}

impl Object {
    const ALL: [Self; 5] = [Self::Latency, Self::Interrupts, Self::Locks, Self::Pagecache, Self::Waits];

    /// Why its programs are missing with a BTF file.
    fn not_by_file(self) -> Option<&'static str> {
        match self {
            Self::Latency => None,
            Self::Interrupts => Some(NO_INTERRUPTS_BY_FILE),
            Self::Locks => Some(NO_LOCKS_BY_FILE),
            Self::Pagecache => Some(NO_RECLAIM_BY_FILE),
            Self::Waits => Some(NO_WAITS_BY_FILE),
        }
    }

    fn try_load(self, names: &[String], btf: &KernelBtf) -> Loaded<()> {
        match self {
            Self::Latency => try_load_latency(names, btf),
            Self::Interrupts => trial::load(
                skel::interrupts::InterruptsSkelBuilder::default().open(libbpf::object_place())?,
                names,
            ),
            Self::Locks => {
                trial::load(skel::locks::LocksSkelBuilder::default().open(libbpf::object_place())?, names)
            }
            Self::Pagecache => super::pagecache::try_load(names, btf),
            Self::Waits => super::blocked::try_load(names, btf),
        }
    }
}

/// A program that its view works without.
const fn optional(object: Object, name: &'static str, event: &'static str, without: &'static str) -> Program {
    Program { name, object, event, module: None, without, needed: false }
}

/// A program that `latency` does not work without.
const fn needed(name: &'static str, event: &'static str, without: &'static str) -> Program {
    Program { needed: true, ..optional(Object::Latency, name, event, without) }
}

const FOLLOWS: &str = "operations are not followed: no submit and no reap";

const RING_SUBMIT: &str = "ring_submit_req";
const SQE_SUBMIT: &str = "ring_submit_sqe";

const LATENCY: &[Program] = &[
    needed("rq_issue", "block_rq_issue", "nothing can be timed"),
    needed("rq_complete", "block_rq_complete", "nothing can be counted"),
    needed("rq_requeue", "block_rq_requeue", "requeues read as device time"),
    needed("rq_merge", "block_rq_merge", "merged requests leave stale slots"),
    needed("bio_queue", "block_bio_queue", "no queue stage"),
    needed("bio_split", "block_split", "no queue stage for split I/Os"),
    needed("bio_backmerge", "block_bio_backmerge", "merges are not counted"),
    needed("bio_frontmerge", "block_bio_frontmerge", "merges are not counted"),
    optional(
        Object::Latency,
        "bio_complete",
        "block_bio_complete",
        "bio-based devices (dm, md, zram) are not seen, only the disks below them",
    ),
    optional(Object::Latency, "sys_enter", "sys_enter", FOLLOWS),
    optional(Object::Latency, "sys_exit", "sys_exit", FOLLOWS),
    optional(Object::Latency, RING_SUBMIT, "io_uring_submit_req", FOLLOWS),
    optional(Object::Latency, "ring_complete", "io_uring_complete", FOLLOWS),
    optional(Object::Latency, "ring_wait", "io_uring_cqring_wait", FOLLOWS),
    Program {
        module: Some("nvme_core"),
        ..optional(
            Object::Latency,
            "nvme_sq",
            "nvme_sq",
            "no complete stage on NVMe drives: its time is part of device",
        )
    },
];

/// Attached by `latency --detail` only. They split the stages of operations, so they need the programs that follow
/// operations.
const DETAIL: &[Program] = &[
    optional(Object::Latency, "bio_getrq", "block_getrq", "queue is not taken apart"),
    optional(Object::Latency, "rq_insert", "block_rq_insert", "queue is not taken apart"),
    optional(Object::Latency, "io_done", "block_io_done", "endio is part of cqe"),
    optional(Object::Latency, "ring_queue_work", "io_uring_queue_async_work", "no io-wq part of submit"),
    optional(Object::Latency, "task_waking", "sched_waking", "no wake part of reap"),
    optional(Object::Latency, "task_switch", "sched_switch", "no wake part of reap"),
];

const FOLLOWS_COMMAND: &str = "the processes of a command count as other processes";

/// What only `diagnose -- COMMAND` attaches.
const COMMAND: &[Program] = &[
    optional(Object::Latency, "process_fork", "sched_process_fork", FOLLOWS_COMMAND),
    optional(Object::Latency, "process_exit", "sched_process_exit", FOLLOWS_COMMAND),
];

/// What only `interrupts` attaches; it counts completions by the events of `latency`.
const INTERRUPTS: &[Program] = &[
    optional(Object::Interrupts, "irq_entry", "irq_handler_entry", "interrupts are not counted"),
    optional(Object::Interrupts, "irq_exit", "irq_handler_exit", "no time of handlers"),
    optional(Object::Interrupts, "softirq_begin", "softirq_entry", "no softirqs of the block layer"),
    optional(Object::Interrupts, "softirq_end", "softirq_exit", "no softirqs of the block layer"),
];

const NO_DIRECT: &str = "reclaim by tasks is not seen";
const NO_MEMCG: &str = "reclaim at the limits of memory cgroups is not seen";
const NO_PAGES: &str = "pages that reclaim looks at are known from the kernel's counters alone";

/// What `locks` attaches for the page cache: of each event that tells something of its own one, or two.
const PAGECACHE: &[Program] = &[
    optional(Object::Pagecache, "direct_reclaim_begin", "mm_vmscan_direct_reclaim_begin", NO_DIRECT),
    optional(Object::Pagecache, "direct_reclaim_end", "mm_vmscan_direct_reclaim_end", NO_DIRECT),
    optional(Object::Pagecache, "memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_begin", NO_MEMCG),
    optional(Object::Pagecache, "memcg_reclaim_end", "mm_vmscan_memcg_reclaim_end", NO_MEMCG),
    optional(Object::Pagecache, "lru_isolate", "mm_vmscan_lru_isolate", NO_PAGES),
    optional(Object::Pagecache, "lru_shrink_inactive", "mm_vmscan_lru_shrink_inactive", NO_PAGES),
    optional(Object::Pagecache, "throttled", "mm_vmscan_throttled", "reclaim that sleeps is not seen"),
    optional(
        Object::Pagecache,
        "ra_unbounded",
        "page_cache_ra_unbounded",
        "pages that are read ahead are seen only where programs may attach to functions",
    ),
    optional(Object::Pagecache, "get_pages", "mm_filemap_get_pages", "unused read-ahead is not measured"),
];

/// What only `locks` attaches.
const LOCKS: &[Program] = &[
    optional(Object::Locks, "lock_begin", "contention_begin", "waits for locks are not seen"),
    optional(Object::Locks, "lock_end", "contention_end", "waits for locks are not timed"),
];

/// What only `flame` attaches; in reclaim it follows events that `locks` follows as well.
const WAITS: &[Program] = &[
    optional(Object::Waits, "blocked_switch", "sched_switch", "time off the CPU is not seen"),
    optional(
        Object::Waits,
        "blocked_goes_on",
        "irq_work_entry",
        "stacks of time off the CPU have no user side",
    ),
];

/// Its programs have no twins for a kernel that types no arguments.
pub const NO_INTERRUPTS_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, and interrupts are not followed";

/// Nor have those of locks.
pub const NO_LOCKS_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, and locks are not followed";
/// The same of what follows tasks that sleep.
pub const NO_WAITS_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, and blocked tasks are not followed";
/// The same of what follows the page cache.
pub const NO_RECLAIM_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, and reclaim is not followed";
/// The same of its programs.
pub const NO_THREADS_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, and no program goes through the threads";

const RIGHTS_REMEDY: &str = "run as root, or grant the capabilities: setcap cap_bpf,cap_perfmon+ep biopsy";

const NO_BTF_HERE: &str = "this kernel has no BTF, which says where its fields are";
const NO_BTF_REMEDY: &str = "boot a kernel built with CONFIG_DEBUG_INFO_BTF, or name a file with --btf: \
                             pahole --btf_encode_detached FILE vmlinux makes one of the same kernel with its debug \
                             information";

const NEWER: &str = "use Linux 6.1 or newer";

const LOCKED: &str = "this kernel is locked down (confidentiality), which forbids every program, root's too, to read \
                      kernel memory by BPF";
const LOCKED_REMEDY: &str = "boot without lockdown=confidentiality; lockdown=integrity is no hindrance";

/// All programs of the views.
const ALL: [&[Program]; 7] = [LATENCY, DETAIL, COMMAND, INTERRUPTS, LOCKS, PAGECACHE, WAITS];

/// Refuses what cannot work, before anything is made or attached.
pub fn permit(root: &Path) -> Result<()> {
    let rights = Rights::read(root);
    let why = if !rights.btf && btf::file().is_none() {
        NO_BTF.to_string()
    } else if rights.locked_down() {
        format!("{LOCKED}: {LOCKED_REMEDY}")
    } else if !rights.can_trace() {
        "the probes need CAP_BPF and CAP_PERFMON: run as root, or grant them with \
         setcap cap_bpf,cap_perfmon+ep"
            .to_string()
    } else {
        return Ok(());
    };
    Err(Refusal::Refused(why).into())
}

/// Checks everything. Works without any rights, and reports what it could not try without them.
pub fn abilities(host: &Host, rights: &Rights) -> Abilities {
    let btf = KernelBtf::read().ok();
    let btf = btf.as_ref();
    let plans: Vec<(Program, Plan)> = ALL
        .into_iter()
        .flatten()
        .map(|program| {
            let program = by_its_name(*program, btf);
            (program, plan(&program, btf, rights, host))
        })
        .collect();
    let mut loaded = btf.map(|btf| try_all(&plans, btf)).unwrap_or_default();
    let mut programs: Vec<ProgramState> = plans
        .into_iter()
        .map(|(program, plan)| {
            let (state, reason, remedy) = match plan {
                Plan::Missing { reason, remedy } => (State::Missing, Some(reason), remedy),
                Plan::Try { name, note } => match loaded.remove(name) {
                    Some(Ok(())) => (State::Ok, note.map(str::to_string), None),
                    Some(Err(why)) => {
                        (State::Missing, Some(program.lost(&format!("the kernel refused it: {why}"))), None)
                    }
                    None => (State::Missing, Some(program.lost("it was not tried")), None),
                },
            };
            ProgramState {
                name: program.name.to_string(),
                event: program.event.to_string(),
                state,
                reason,
                remedy: remedy.map(str::to_string),
            }
        })
        .collect();
    programs.push(sampler(rights));
    programs.push(thread_sampler(rights));
    let views = views::views(&programs, host, rights);
    Abilities { btf: btf.is_some(), programs, views }
}

/// Loads what the plans want tried, an object at a time: for each name whether the kernel takes it, or why not.
fn try_all(plans: &[(Program, Plan)], btf: &KernelBtf) -> HashMap<String, Result<(), String>> {
    let mut all = HashMap::new();
    for object in Object::ALL {
        let names: Vec<String> = plans
            .iter()
            .filter(|(program, _)| program.object == object)
            .filter_map(|(_, plan)| match plan {
                Plan::Try { name, .. } => Some((*name).to_string()),
                Plan::Missing { .. } => None,
            })
            .collect();
        let loaded = trial::each(&names, &mut |names| object.try_load(names, btf));
        all.extend(names.into_iter().zip(loaded));
    }
    all
}

/// How to find out whether a program works here.
enum Plan {
    /// It does not, and no trial is needed.
    Missing { reason: String, remedy: Option<&'static str> },
    /// By loading the program `name`, which may replace it; `note` gives the reason.
    Try { name: &'static str, note: Option<&'static str> },
}

impl Program {
    fn lost(&self, why: &str) -> String {
        format!("{why}: {}", self.without)
    }
}

/// The same event had another name before 6.3.
fn by_its_name(program: Program, btf: Option<&KernelBtf>) -> Program {
    if program.name == RING_SUBMIT && btf.and_then(KernelBtf::ring_submit) == Some(RingSubmit::Sqe) {
        return Program { name: SQE_SUBMIT, event: "io_uring_submit_sqe", ..program };
    }
    program
}

fn plan(program: &Program, btf: Option<&KernelBtf>, rights: &Rights, host: &Host) -> Plan {
    let missing = |reason: String, remedy| Plan::Missing { reason, remedy };
    let lost = |why: &str, remedy| missing(program.lost(why), remedy);
    let newer = || Some(NEWER).filter(|_| btf::file().is_none());
    let Some(btf) = btf else { return missing(NO_BTF_HERE.to_string(), Some(NO_BTF_REMEDY)) };
    if rights.locked_down() {
        return missing(LOCKED.to_string(), Some(LOCKED_REMEDY));
    }
    let of_operations = program.without == FOLLOWS || DETAIL.iter().any(|other| other.name == program.name);
    if of_operations && (!skel::is_usual() || btf.ring_submit().is_none()) {
        let why = if btf::file().is_some() {
            BY_FILE
        } else {
            "this kernel has no event that names the io_uring request which is submitted"
        };
        return lost(why, newer());
    }
    if let Some(why) = program.object.not_by_file().filter(|_| btf::file().is_some()) {
        return lost(why, None);
    }
    if program.object == Object::Locks && !btf.event(program.event, None).is_there() {
        return lost("this kernel does not have the event", Some("use Linux 5.19 or newer"));
    }
    if program.name == "bio_complete" && !skel::is_usual() {
        let why = if btf::file().is_some() {
            BY_FILE
        } else {
            "the kernel's own counts of bios are no bios' in all drivers before Linux 5.12"
        };
        return lost(why, newer());
    }
    match btf.event(program.event, program.module) {
        EventHome::Absent => return lost("this kernel does not have the event", None),
        EventHome::Untyped(module) => {
            return lost(
                &format!("module {module} has no BTF"),
                Some("use a kernel with CONFIG_DEBUG_INFO_BTF_MODULES (5.11 or newer)"),
            );
        }
        EventHome::NotLoaded(module) => {
            let why = format!("module {module} is not loaded");
            if host.devices.iter().any(BlockDevice::is_nvme) {
                return lost(&why, None);
            }
            // No NVMe drive: nothing is missed.
            return missing(format!("{why}: this machine has no NVMe drive"), None);
        }
        EventHome::Vmlinux | EventHome::Module(_) => {}
    }
    if !rights.can_trace() {
        return missing("needs CAP_BPF and CAP_PERFMON".to_string(), Some(RIGHTS_REMEDY));
    }
    // The types of a module are root's to read; its event can be had without them.
    let raw = program.name == "nvme_sq" && (btf::file().is_some() || !rights.sys_admin);
    match raw {
        false => Plan::Try { name: program.name, note: None },
        true if btf::file().is_some() => {
            Plan::Try { name: "nvme_sq_raw", note: Some("as a raw event, as all with a BTF file") }
        }
        true => Plan::Try {
            name: "nvme_sq_raw",
            note: Some("as a raw event, since reading the types of a module needs CAP_SYS_ADMIN"),
        },
    }
}

fn try_load_latency(names: &[String], btf: &KernelBtf) -> Loaded<()> {
    let mut open = skel::latency_builder()?.open(libbpf::object_place())?;
    let told = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
    told.arguments = btf.arguments()?;
    told.arguments.bio_complete = btf.bio_complete()?;
    trial::load(open, names)
}

/// What the latency view shows with these programs.
fn reach(programs: &[ProgramState]) -> &'static str {
    let follows = |name: &str| programs.iter().any(|p| p.name == name && p.state == State::Ok);
    let submits = [RING_SUBMIT, SQE_SUBMIT].into_iter().any(follows);
    if submits && ["sys_enter", "sys_exit", "ring_complete", "ring_wait"].into_iter().all(follows) {
        "all stages of io_uring requests and of system calls that wait; queue and device of every I/O"
    } else {
        "stages queue and device; complete on NVMe"
    }
}

fn sampler(rights: &Rights) -> ProgramState {
    let (reason, remedy) = if !rights.btf && btf::file().is_none() {
        (Some(NO_BTF_HERE), Some(NO_BTF_REMEDY))
    } else if rights.locked_down() {
        (Some(LOCKED), Some(LOCKED_REMEDY))
    } else if rights.can_sample() && rights.can_trace() {
        (None, None)
    } else {
        (Some("needs CAP_BPF and CAP_PERFMON: no profile and no flame graph"), Some(RIGHTS_REMEDY))
    };
    ProgramState {
        name: "on_cpu".to_string(),
        event: "perf_event".to_string(),
        state: if reason.is_none() { State::Ok } else { State::Missing },
        reason: reason.map(str::to_string),
        remedy: remedy.map(str::to_string),
    }
}

/// What `threads` looks with, of which nothing is attached; which of its two programs says the kernel.
fn thread_sampler(rights: &Rights) -> ProgramState {
    const NAME: &str = "sample_threads";
    let (name, reason, remedy) = if btf::file().is_some() {
        (NAME, Some(NO_THREADS_BY_FILE.to_string()), None)
    } else if !rights.btf {
        (NAME, Some(NO_BTF_HERE.to_string()), Some(NO_BTF_REMEDY))
    } else if rights.locked_down() {
        (NAME, Some(LOCKED.to_string()), Some(LOCKED_REMEDY))
    } else if !rights.can_trace() {
        (NAME, Some("needs CAP_BPF and CAP_PERFMON".to_string()), Some(RIGHTS_REMEDY))
    } else {
        match super::threads::kernel::try_load() {
            Ok(name) => (name, None, None),
            Err(error) => (NAME, Some(plain(&error.to_string())), None),
        }
    };
    ProgramState {
        name: name.to_string(),
        event: "iter/task".to_string(),
        state: if reason.is_none() { State::Ok } else { State::Missing },
        reason,
        remedy: remedy.map(str::to_string),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// But for those that stand in for another of the list.
    #[test]
    fn every_program_of_the_views_is_listed() {
        let known = |name: &str| ALL.into_iter().flatten().any(|program| program.name == name);
        use libbpf_rs::skel::OpenSkel;
        let unlisted = |object: &mut libbpf_rs::OpenObject| -> Vec<String> {
            let names = object.progs_mut().map(|program| program.name().to_string_lossy().into_owned());
            names.filter(|name| !known(name)).collect()
        };
        let mut latency = skel::latency_builder().unwrap().open(libbpf::object_place()).unwrap();
        assert_eq!(unlisted(latency.open_object_mut()), ["nvme_sq_raw", SQE_SUBMIT]);
        let builder = skel::interrupts::InterruptsSkelBuilder::default();
        let mut interrupts = builder.open(libbpf::object_place()).unwrap();
        assert_eq!(unlisted(interrupts.open_object_mut()), ["nvme_sq_raw"]);
    }
}
