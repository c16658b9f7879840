//! Loads the object of the lock probe: chooses its programs, sizes its maps, sets its constants.

use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use super::{Options, PERIOD, SLOW_PATHS, STACK_ROOM, WHO_ROOM, has_kprobes};
use crate::host::Host;
use crate::host::abilities::ViewState;
use crate::host::cgroups::Hierarchy;
use crate::host::kallsyms::Kallsyms;
use crate::probe::btf::KernelBtf;
use crate::probe::btf_file;
use crate::probe::libbpf::{self, refusal};
use crate::probe::skel::locks::types::rodata;
use crate::probe::skel::locks::{LocksSkel, LocksSkelBuilder, OpenLocksSkel};
use crate::probe::spec::{self, Here, Program, Reach, Spec, View};
use crate::probe::{skel, trial};
use crate::wire::locks::{LockEventSource, PLACES, PROCESS_PLACES};

pub const SPEC: Spec = Spec {
    programs: &[PROGRAMS],
    not_by_file: Some("with a BTF file the kernel types no arguments, so locks cannot be measured"),
    newer: Some("use Linux 5.19 or newer"),
    try_load: |names, _| trial::load(LocksSkelBuilder::default().open(libbpf::object_place())?, names),
    configure,
    ..Spec::of(&[skel::LOCKS])
};

const PROGRAMS: &[Program] = &[
    Program::optional("lock_begin", "contention_begin", "lock waits are not measured"),
    Program::optional("lock_end", "contention_end", "lock waits are not timed"),
];

pub const VIEW: View = View { name: "locks", state: view };

fn view(here: &Here<'_>) -> ViewState {
    let Some(program) = here.lacks(|name| PROGRAMS.iter().any(|known| known.name == name)) else {
        return ViewState::ok();
    };
    let without = spec::without(program);
    let by_probes = here.rights.can_trace()
        && btf_file::path().is_none()
        && !here.rights.locked_down()
        && has_slow_path(Path::new("/"));
    if by_probes {
        let less = "only spinlock waits, by probes on their slow path";
        return ViewState::degraded(less, without.remedy);
    }
    if here.works("direct_reclaim_begin") {
        let why = without.reason.as_deref().unwrap_or_default();
        return ViewState::degraded(format!("only memory reclaim, no lock waits: {why}"), without.remedy);
    }
    without
}

/// Whether spinlock waits can be observed without events.
fn has_slow_path(root: &Path) -> bool {
    if !has_kprobes(root) {
        return false;
    }
    let symbols = Kallsyms::read(root);
    SLOW_PATHS.iter().any(|name| symbols.has_function(name))
}

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    if !btf.event("contention_begin", None).is_there() {
        // There is no task storage either, and a map that cannot be created would fail all programs.
        for mut map in object.maps_mut().filter(|map| map.name() == "sleeps") {
            map.set_autocreate(false)?;
        }
    }
    libbpf::with_constants(object, |constants: &mut rodata| {
        let config = &mut constants.config;
        config.cpus = 1;
        (config.period_ns, config.budget_ns, config.stacks_enabled) = (1, 1, 1);
        config.filter_enabled = u32::MAX;
        config.holders_enabled = 1;
    })
}

/// The programs that this kernel accepts.
#[derive(Debug, Clone, Copy)]
pub struct ProgramSet {
    pub source: LockEventSource,
    pub slow_path: bool,
    /// The kernel has an event for the release of a lock that other threads sleep on.
    pub holders: bool,
    /// The kernel can look up the slab cache of an address.
    pub slab: bool,
    /// The NVMe driver is loaded.
    pub nvme: bool,
}

/// Loads the selected programs.
pub fn load(host: &Host, wanted: ProgramSet, options: &Options) -> Result<LocksSkel<'static>> {
    let mut open = LocksSkelBuilder::default()
        .open(libbpf::object_place())
        .map_err(|error| refusal("opening the probes", &error))?;
    let cpus = host.cpus_possible.max(1);
    size(&mut open, cpus, wanted, options).map_err(|error| refusal("sizing the tables of locks", &error))?;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.cpus = cpus;
    config.filter_enabled = options.filter.kinds();
    config.unified_cgroups = Hierarchy::read(Path::new("/")).is_none_or(|hierarchy| hierarchy.unified).into();
    config.period_ns = PERIOD.as_nanos() as u64;
    config.budget_ns = (config.period_ns as f64 * options.max_cost / 100.0) as u64;
    config.stacks_enabled = (config.budget_ns > 0).into();
    config.holders_enabled = wanted.holders.into();
    config.waiters_enabled = options.waiters.into();
    let events = wanted.source == LockEventSource::Events;
    open.progs.lock_begin.set_autoload(events);
    open.progs.lock_end.set_autoload(events);
    open.progs.lock_release.set_autoload(wanted.holders);
    open.progs.waiting.set_autoload(events);
    open.progs.slab.set_autoload(wanted.slab);
    open.progs.nvme_layout.set_autoload(wanted.nvme);
    open.progs.slow_call.set_autoload(events && wanted.slow_path);
    open.progs.slow_begin.set_autoload(!events);
    open.progs.slow_end.set_autoload(!events);
    let skel = open.load().map_err(|error| refusal("loading the probes", &error))?;
    let maps = &skel.maps;
    options.filter.fill(&maps.filter_pids, &maps.filter_comms, &maps.filter_cgroups)?;
    Ok(skel)
}

fn size(
    open: &mut OpenLocksSkel<'_>,
    cpus: u32,
    wanted: ProgramSet,
    options: &Options,
) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    maps.locks.set_max_entries(options.room.max(1))?;
    maps.lock_cpus.set_max_entries(cpus)?;
    maps.spins.set_max_entries(cpus)?;
    maps.recent_locks.set_max_entries(cpus * PLACES)?;
    maps.recent_processes.set_max_entries(cpus * PROCESS_PLACES)?;
    maps.lock_scratch.set_max_entries(cpus)?;
    if options.waiters {
        maps.lock_stacks.set_max_entries(STACK_ROOM)?;
        maps.lock_whos.set_max_entries(WHO_ROOM)?;
    }
    // Task storage came with 4cf1bc1f1045 (5.11).
    maps.sleeps.set_autocreate(wanted.source == LockEventSource::Events)?;
    if wanted.holders {
        maps.lock_holders.set_max_entries(options.room.max(1))?;
    }
    let room = |n: usize| n.max(1) as u32;
    maps.filter_pids.set_max_entries(room(options.filter.pids.len()))?;
    maps.filter_comms.set_max_entries(room(options.filter.comms.len()))?;
    maps.filter_cgroups.set_max_entries(room(options.filter.cgroups.len()))
}
