//! Measures time in memory reclaim: attaches `bpf/reclaim.bpf.c`, and at the end reads which threads reclaimed for how
//! long, by stack.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, OpenObject, ProgramInput};

use super::btf::KernelBtf;
use super::libbpf::{self, ProgramStats, refusal};
use super::pagecache::NO_RECLAIM_BY_FILE;
use super::process_maps::ProcessMaps;
use super::skel;
use super::skel::reclaim::types::rodata;
use super::skel::reclaim::{OpenReclaimSkel, ReclaimSkel, ReclaimSkelBuilder};
use super::spec::{Reach, Spec};
use super::waits::{self, Options, PERIOD};
use crate::clock::now_ns;
use crate::envelope::{Missing, Reason};
use crate::host::Host;
use crate::host::cgroups::Hierarchy;
use crate::wire::blocked::{RECLAIM_PROGRAMS, RawBlocked, Sum, WaitScope, WireWaitsRow};
use crate::wire::pagecache::ReclaimKind;

/// Time between closing the interval and reading the tables.
const SETTLE: Duration = Duration::from_millis(2);

/// The kind of reclaim that each program's rows count.
const KINDS: [ReclaimKind; RECLAIM_PROGRAMS as usize] =
    [ReclaimKind::Direct, ReclaimKind::Memcg, ReclaimKind::Node, ReclaimKind::Kswapd, ReclaimKind::Kswapd];

/// The attached probe. Dropping it detaches everything.
pub struct ReclaimProbe {
    skel: ReclaimSkel<'static>,
    links: Vec<Link>,
    maps: ProcessMaps,
    options: Options,
    /// The kernel has an event for the end of a run of kswapd.
    balance: bool,
    cpus: u32,
    online: u32,
    began_ns: u64,
    stats: ProgramStats,
    missing: Vec<Missing>,
}

impl ReclaimProbe {
    /// Loads, attaches and begins the interval.
    ///
    /// # Errors
    /// A [`crate::refusal::Refusal`] when rights or BTF are missing, or the kernel refuses a program.
    pub fn attach(host: &Host, options: Options) -> Result<Self> {
        SPEC.permit(Path::new("/"))?;
        let btf = KernelBtf::read()?;
        let has = |name| btf.event(name, None).is_there();
        let balance = has("mm_vmscan_balance_pgdat_begin") && has("mm_vmscan_balance_pgdat_end");
        let mut missing = Vec::new();
        if !balance {
            missing.push(Missing {
                part: Some("kswapd".to_string()),
                reason: Reason::NoEvent,
                why: "the end of a kswapd run has no event before Linux 7.0: its time ends with the last \
                    batch of pages that it scanned"
                    .to_string(),
                ..Missing::default()
            });
        }
        let cpus = host.cpus_possible.max(1);
        let skel = load(cpus, &options, balance)?;
        let maps = ProcessMaps::follow(MapHandle::try_from(&skel.maps.waiters)?, waits::whose)?;
        let mut probe = Self {
            skel,
            links: Vec::new(),
            maps,
            options,
            balance,
            cpus,
            online: host.cpus_online.max(1),
            began_ns: 0,
            stats: ProgramStats::default(),
            missing,
        };
        probe.skel.progs.who_we_are.test_run(ProgramInput::default())?;
        probe.attach_programs().map_err(|error| refusal("attaching the probe of reclaim", &error))?;
        probe.stats = probe.stats();
        probe.began_ns = now_ns();
        probe.run(true)?;
        Ok(probe)
    }

    fn attach_programs(&mut self) -> libbpf_rs::Result<()> {
        let progs = &self.skel.progs;
        // Ends are attached first: the start of a reclaim in progress is not recorded.
        self.links.push(progs.direct_reclaim_end.attach()?);
        self.links.push(progs.memcg_reclaim_end.attach()?);
        self.links.push(progs.node_reclaim_end.attach()?);
        if self.balance {
            self.links.push(progs.balance_pgdat_end.attach()?);
            self.links.push(progs.balance_pgdat_begin.attach()?);
        } else {
            self.links.push(progs.kswapd_batch.attach()?);
            self.links.push(progs.kswapd_sleep.attach()?);
            self.links.push(progs.kswapd_wake.attach()?);
        }
        self.links.push(progs.direct_reclaim_begin.attach()?);
        self.links.push(progs.memcg_reclaim_begin.attach()?);
        self.links.push(progs.node_reclaim_begin.attach()?);
        Ok(())
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        Ok(())
    }

    fn stats(&self) -> ProgramStats {
        let progs = &self.skel.progs;
        let always = [
            &progs.direct_reclaim_begin,
            &progs.direct_reclaim_end,
            &progs.memcg_reclaim_begin,
            &progs.memcg_reclaim_end,
            &progs.node_reclaim_begin,
            &progs.node_reclaim_end,
        ];
        let kswapd: &[_] = match self.balance {
            true => &[&progs.balance_pgdat_begin, &progs.balance_pgdat_end],
            false => &[&progs.kswapd_wake, &progs.kswapd_sleep, &progs.kswapd_batch],
        };
        let all: Vec<BorrowedFd<'_>> = always.iter().chain(kswapd).map(|program| program.as_fd()).collect();
        waits::stats(all)
    }

    /// Ends the interval, and returns all of its data. Reclaims still in progress are not included.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn finish(mut self) -> Result<RawBlocked> {
        let ended_ns = now_ns();
        self.run(false)?;
        std::thread::sleep(SETTLE);
        let stats = self.stats();
        self.links.clear();
        let mut raw = RawBlocked {
            followed: WaitScope::Reclaim,
            duration_ns: ended_ns.saturating_sub(self.began_ns),
            cpus: self.online,
            least_ns: self.options.min_block.as_nanos() as u64,
            program_runs: stats.runs - self.stats.runs,
            program_ns: stats.run_ns - self.stats.run_ns,
            map_bytes: libbpf::map_bytes(self.skel.object()),
            ..RawBlocked::default()
        };
        raw.lost.missed = stats.recursion_misses - self.stats.recursion_misses;
        let maps = &self.skel.maps;
        let rows = waits::read_rows(&maps.wait_rows, RECLAIM_PROGRAMS * self.cpus)?;
        raw.count(&rows, &WireWaitsRow::default());
        let mut by_kind: BTreeMap<ReclaimKind, Sum> = BTreeMap::new();
        for (kind, rows) in KINDS.iter().zip(rows.chunks(self.cpus as usize)) {
            rows.iter().for_each(|row| by_kind.entry(*kind).or_default().add(row.all));
        }
        raw.totals.reclaims = by_kind;
        raw.lost.unkept = self.skel.maps.bss_data.as_ref().map_or(0, |data| data.no_room);
        waits::read_stacks(&maps.wait_stacks, &mut raw)?;
        waits::read_waiters(&maps.waiters, &mut raw)?;
        waits::read_waiters(&maps.waiter_names, &mut raw)?;
        raw.maps = self.maps.finish();
        Ok(raw)
    }
}

pub const SPEC: Spec =
    Spec { not_by_file: Some(NO_RECLAIM_BY_FILE), configure, ..Spec::of(&[skel::RECLAIM]) };

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    libbpf::with_constants(object, |constants: &mut rodata| {
        let config = &mut constants.config;
        config.cpus = 1;
        (config.period_ns, config.budget_ns) = (1, 1);
        config.filter_enabled = u32::MAX;
        config.has_state = btf.switch_tells_state().into();
    })
}

fn opened(cpus: u32, options: &Options) -> Result<OpenReclaimSkel<'static>> {
    let mut open = ReclaimSkelBuilder::default()
        .open(libbpf::object_place())
        .map_err(|error| refusal("opening the probe of reclaim", &error))?;
    size(&mut open, cpus, options).map_err(|error| refusal("sizing the tables of reclaim", &error))?;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.cpus = cpus;
    config.filter_enabled = options.filter.kinds();
    config.unified_cgroups = Hierarchy::read(Path::new("/")).is_none_or(|hierarchy| hierarchy.unified).into();
    config.own_process_enabled = options.ours.into();
    config.least_ns = options.min_block.as_nanos() as u64;
    config.budget_ns = options.budget_ns();
    config.period_ns = PERIOD.as_nanos() as u64;
    Ok(open)
}

fn load(cpus: u32, options: &Options, balance: bool) -> Result<ReclaimSkel<'static>> {
    let mut open = opened(cpus, options)?;
    let progs = &mut open.progs;
    for program in [
        &mut progs.direct_reclaim_begin,
        &mut progs.direct_reclaim_end,
        &mut progs.memcg_reclaim_begin,
        &mut progs.memcg_reclaim_end,
        &mut progs.node_reclaim_begin,
        &mut progs.node_reclaim_end,
    ] {
        program.set_autoload(true);
    }
    progs.balance_pgdat_begin.set_autoload(balance);
    progs.balance_pgdat_end.set_autoload(balance);
    progs.kswapd_wake.set_autoload(!balance);
    progs.kswapd_sleep.set_autoload(!balance);
    progs.kswapd_batch.set_autoload(!balance);
    let skel = open.load().map_err(|error| refusal("loading the probe of reclaim", &error))?;
    let maps = &skel.maps;
    options.filter.fill(&maps.filter_pids, &maps.filter_comms, &maps.filter_cgroups)?;
    Ok(skel)
}

fn size(open: &mut OpenReclaimSkel<'_>, cpus: u32, options: &Options) -> libbpf_rs::Result<()> {
    let maps = &mut open.maps;
    let room = Options::room_for;
    maps.wait_stacks.set_max_entries(options.room.max(1))?;
    maps.wait_rows.set_max_entries(RECLAIM_PROGRAMS * cpus)?;
    maps.wait_scratch.set_max_entries(RECLAIM_PROGRAMS * cpus)?;
    maps.filter_pids.set_max_entries(room(options.filter.pids.len()))?;
    maps.filter_comms.set_max_entries(room(options.filter.comms.len()))?;
    maps.filter_cgroups.set_max_entries(room(options.filter.cgroups.len()))
}
