//! What can be measured here: each program is looked up in BTF and, with the rights for it, loaded
//! once (never attached).

mod views;

use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::btf::{self, BY_FILE, EventHome, KernelBtf, NO_BTF, RingSubmit};
use super::{libbpf, skel};
use crate::host::abilities::{Abilities, ProgramState, State};
use crate::host::rights::Rights;
use crate::host::{BlockDevice, Host};
use crate::refusal::{Refusal, plain};

/// A program of the latency object: its name, its event, the module of the event, and what is gone
/// without it.
struct Known {
    program: &'static str,
    event: &'static str,
    module: Option<&'static str>,
    without: &'static str,
    needed: bool,
}

const FOLLOWS: &str = "operations are not followed: no submit and no reap";

/// What only `latency --detail` attaches.
const fn detail(program: &'static str, event: &'static str, without: &'static str) -> Known {
    Known { program, event, module: None, without, needed: false }
}

/// They stand beside those that follow operations, and are of no use without them.
const DETAIL: &[Known] = &[
    detail("bio_getrq", "block_getrq", "queue is not taken apart"),
    detail("rq_insert", "block_rq_insert", "queue is not taken apart"),
    detail("io_done", "block_io_done", "endio is part of cqe"),
    detail("ring_queue_work", "io_uring_queue_async_work", "no io-wq part of submit"),
    detail("task_waking", "sched_waking", "no wake part of reap"),
    detail("task_switch", "sched_switch", "no wake part of reap"),
];

const RING_SUBMIT: &str = "ring_submit_req";
const SQE_SUBMIT: &str = "ring_submit_sqe";

const LATENCY: &[Known] = &[
    Known {
        program: "rq_issue",
        event: "block_rq_issue",
        module: None,
        without: "nothing can be timed",
        needed: true,
    },
    Known {
        program: "rq_complete",
        event: "block_rq_complete",
        module: None,
        without: "nothing can be counted",
        needed: true,
    },
    Known {
        program: "rq_requeue",
        event: "block_rq_requeue",
        module: None,
        without: "requeues read as device time",
        needed: true,
    },
    Known {
        program: "rq_merge",
        event: "block_rq_merge",
        module: None,
        without: "merged requests leave stale slots",
        needed: true,
    },
    Known {
        program: "bio_queue",
        event: "block_bio_queue",
        module: None,
        without: "no queue stage",
        needed: true,
    },
    Known {
        program: "bio_split",
        event: "block_split",
        module: None,
        without: "no queue stage for split I/Os",
        needed: true,
    },
    Known {
        program: "bio_backmerge",
        event: "block_bio_backmerge",
        module: None,
        without: "merges are not counted",
        needed: true,
    },
    Known {
        program: "bio_frontmerge",
        event: "block_bio_frontmerge",
        module: None,
        without: "merges are not counted",
        needed: true,
    },
    Known {
        program: "bio_complete",
        event: "block_bio_complete",
        module: None,
        without: "bio-based devices (dm, md, zram) are not seen, only the disks below them",
        needed: false,
    },
    Known { program: "sys_enter", event: "sys_enter", module: None, without: FOLLOWS, needed: false },
    Known { program: "sys_exit", event: "sys_exit", module: None, without: FOLLOWS, needed: false },
    Known {
        program: RING_SUBMIT,
        event: "io_uring_submit_req",
        module: None,
        without: FOLLOWS,
        needed: false,
    },
    Known {
        program: "ring_complete",
        event: "io_uring_complete",
        module: None,
        without: FOLLOWS,
        needed: false,
    },
    Known {
        program: "ring_wait",
        event: "io_uring_cqring_wait",
        module: None,
        without: FOLLOWS,
        needed: false,
    },
    Known {
        program: "nvme_sq",
        event: "nvme_sq",
        module: Some("nvme_core"),
        without: "no complete stage on NVMe drives: its time is part of device",
        needed: false,
    },
];

/// What only `interrupts` attaches; it counts completions by the events of `latency`.
const INTERRUPTS: &[Known] = &[
    optional("irq_entry", "irq_handler_entry", "interrupts are not counted"),
    optional("irq_exit", "irq_handler_exit", "no time of handlers"),
    optional("softirq_begin", "softirq_entry", "no softirqs of the block layer"),
    optional("softirq_end", "softirq_exit", "no softirqs of the block layer"),
];

/// What its view can do without.
const fn optional(program: &'static str, event: &'static str, without: &'static str) -> Known {
    Known { program, event, module: None, without, needed: false }
}

const NO_DIRECT: &str = "reclaim by tasks is not seen";
const NO_MEMCG: &str = "reclaim at the limits of memory cgroups is not seen";
const NO_PAGES: &str = "pages that reclaim looks at are known from the kernel's counters alone";

/// What `locks` attaches for the page cache: of each event that tells something of its own one, or two.
const PAGECACHE: &[Known] = &[
    optional("direct_reclaim_begin", "mm_vmscan_direct_reclaim_begin", NO_DIRECT),
    optional("direct_reclaim_end", "mm_vmscan_direct_reclaim_end", NO_DIRECT),
    optional("memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_begin", NO_MEMCG),
    optional("memcg_reclaim_end", "mm_vmscan_memcg_reclaim_end", NO_MEMCG),
    optional("lru_isolate", "mm_vmscan_lru_isolate", NO_PAGES),
    optional("lru_shrink_inactive", "mm_vmscan_lru_shrink_inactive", NO_PAGES),
    optional("throttled", "mm_vmscan_throttled", "reclaim that sleeps is not seen"),
    optional(
        "ra_unbounded",
        "page_cache_ra_unbounded",
        "pages that are read ahead are seen only where programs may attach to functions",
    ),
    optional("get_pages", "mm_filemap_get_pages", "how much of read-ahead nobody wanted is not known"),
];

/// What only `locks` attaches.
const LOCKS: &[Known] = &[
    optional("lock_begin", "contention_begin", "waits for locks are not seen"),
    optional("lock_end", "contention_end", "waits for locks are not timed"),
];

/// What only `flame` attaches; in reclaim it follows events that `locks` follows as well.
const WAITS: &[Known] = &[
    optional("blocked_switch", "sched_switch", "time off the CPU is not seen"),
    optional("blocked_goes_on", "irq_work_entry", "stacks of time off the CPU have no user side"),
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

const ALL: [&[Known]; 6] = [LATENCY, DETAIL, INTERRUPTS, LOCKS, PAGECACHE, WAITS];

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

/// Looks at everything. Works without any rights; what it then cannot try it says so.
pub fn abilities(host: &Host, rights: &Rights) -> Abilities {
    let btf = KernelBtf::read();
    let mut programs: Vec<ProgramState> =
        ALL.into_iter().flatten().map(|known| program(known, btf.as_ref().ok(), rights, host)).collect();
    programs.push(sampler(rights));
    programs.push(thread_sampler(rights));
    let views = views::views(&programs, host, rights);
    Abilities { btf: btf.is_ok(), programs, views }
}

fn program(known: &Known, btf: Option<&KernelBtf>, rights: &Rights, host: &Host) -> ProgramState {
    // The same event had another name before 6.3.
    let sqe = btf.and_then(KernelBtf::ring_submit) == Some(RingSubmit::Sqe) && known.program == RING_SUBMIT;
    let known =
        if sqe { &Known { program: SQE_SUBMIT, event: "io_uring_submit_sqe", ..*known } } else { known };
    let state = |state, reason: Option<String>, remedy: Option<&str>| ProgramState {
        name: known.program.to_string(),
        event: known.event.to_string(),
        state,
        reason,
        remedy: remedy.map(str::to_string),
    };
    let Some(btf) = btf else {
        return state(State::Missing, Some(NO_BTF_HERE.to_string()), Some(NO_BTF_REMEDY));
    };
    let lost = |why: &str| Some(format!("{why}: {}", known.without));
    if rights.locked_down() {
        return state(State::Missing, Some(LOCKED.to_string()), Some(LOCKED_REMEDY));
    }
    let of_operations = known.without == FOLLOWS || DETAIL.iter().any(|other| other.program == known.program);
    if of_operations && (!skel::is_usual() || btf.ring_submit().is_none()) {
        let why = if btf::file().is_some() {
            BY_FILE
        } else {
            "this kernel has no event that names the io_uring request which is submitted"
        };
        return state(State::Missing, lost(why), Some(NEWER).filter(|_| btf::file().is_none()));
    }
    let of_interrupts = INTERRUPTS.iter().any(|other| other.program == known.program);
    if of_interrupts && btf::file().is_some() {
        return state(State::Missing, lost(NO_INTERRUPTS_BY_FILE), None);
    }
    let of_locks = LOCKS.iter().any(|other| other.program == known.program);
    if of_locks && btf::file().is_some() {
        return state(State::Missing, lost(NO_LOCKS_BY_FILE), None);
    }
    let of_pagecache = PAGECACHE.iter().any(|other| other.program == known.program);
    if of_pagecache && btf::file().is_some() {
        return state(State::Missing, lost(NO_RECLAIM_BY_FILE), None);
    }
    let of_waits = WAITS.iter().any(|other| other.program == known.program);
    if of_waits && btf::file().is_some() {
        return state(State::Missing, lost(NO_WAITS_BY_FILE), None);
    }
    if of_locks && !btf.event(known.event, None).is_there() {
        let remedy = "use Linux 5.19 or newer";
        return state(State::Missing, lost("this kernel does not have the event"), Some(remedy));
    }
    if known.program == "bio_complete" && !skel::is_usual() {
        let why = if btf::file().is_some() {
            BY_FILE
        } else {
            "the kernel's own counts of bios are no bios' in all drivers before Linux 5.12"
        };
        return state(State::Missing, lost(why), Some(NEWER).filter(|_| btf::file().is_none()));
    }
    match btf.event(known.event, known.module) {
        EventHome::Absent => return state(State::Missing, lost("this kernel does not have the event"), None),
        EventHome::Untyped(module) => {
            return state(
                State::Missing,
                lost(&format!("module {module} has no BTF")),
                Some("use a kernel with CONFIG_DEBUG_INFO_BTF_MODULES (5.11 or newer)"),
            );
        }
        EventHome::NotLoaded(module) => {
            let drives = host.devices.iter().any(BlockDevice::is_nvme);
            let why = format!("module {module} is not loaded");
            // No NVMe drive: nothing is missed.
            let reason =
                if drives { lost(&why) } else { Some(format!("{why}: this machine has no NVMe drive")) };
            return state(State::Missing, reason, None);
        }
        EventHome::Vmlinux | EventHome::Module(_) => {}
    }
    if !rights.can_trace() {
        return state(State::Missing, Some("needs CAP_BPF and CAP_PERFMON".to_string()), Some(RIGHTS_REMEDY));
    }
    // The types of a module are root's to read; its event can be had without them.
    let raw = known.program == "nvme_sq" && (btf::file().is_some() || !rights.sys_admin);
    let (loaded, reason) = if raw {
        let why = if btf::file().is_some() {
            "as a raw event, as all with a BTF file"
        } else {
            "as a raw event, since reading the types of a module needs CAP_SYS_ADMIN"
        };
        (try_load("nvme_sq_raw", btf), Some(why.to_string()))
    } else {
        let loaded = match known.program {
            name if of_interrupts => try_load_interrupts(name),
            name if of_locks => try_load_locks(name),
            name if of_waits => super::blocked::try_load(name, btf),
            name if of_pagecache => super::pagecache::try_load(name, btf),
            name => try_load(name, btf),
        };
        (loaded, None)
    };
    match loaded {
        Ok(()) => state(State::Ok, reason, None),
        Err(error) => {
            let why = libbpf::last_words().unwrap_or_else(|| plain(&error.to_string()));
            state(State::Missing, lost(&format!("the kernel refused it: {why}")), None)
        }
    }
}

/// Loads one program alone, and lets it go.
fn try_load(name: &str, btf: &KernelBtf) -> Result<()> {
    libbpf::listen();
    let mut open = skel::latency_builder()?.open(libbpf::object_place())?;
    let told = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
    told.arguments = btf.arguments()?;
    told.arguments.bio_complete = btf.bio_complete()?;
    alone(open.open_object_mut(), name);
    open.load()?;
    Ok(())
}

/// Of all its programs only this one is to be loaded.
pub(super) fn alone(object: &mut OpenObject, name: &str) {
    for mut program in object.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
    }
}

fn try_load_interrupts(name: &str) -> Result<()> {
    libbpf::listen();
    let mut open = skel::interrupts::InterruptsSkelBuilder::default().open(libbpf::object_place())?;
    alone(open.open_object_mut(), name);
    open.load()?;
    Ok(())
}

fn try_load_locks(name: &str) -> Result<()> {
    libbpf::listen();
    let mut open = skel::locks::LocksSkelBuilder::default().open(libbpf::object_place())?;
    alone(open.open_object_mut(), name);
    open.load()?;
    Ok(())
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
        let known = |name: &str| ALL.into_iter().flatten().any(|known| known.program == name);
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
