//! The latency probe: attaches `bpf/latency.bpf.c`, reads its rows, detaches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenMapMut, OpenProgramMut, ProgramMut};
use zerocopy::IntoBytes;

use super::btf::{EventHome, KernelBtf, RingSubmit};
use super::cost::{CostMeter, Metered, metered};
use super::events::{self, EventOptions, Rings, Taken};
use super::filter::Filter;
use super::groups::Grouping;
use super::layers;
use super::libbpf::{self, element};
use super::multipath;
use super::plan::Plan;
use super::preflight;
use super::skel::latency::{LatencySkel, LatencySkelBuilder, OpenLatencySkel};
use super::syscalls;
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing};
use crate::host::Host;
use crate::host::cgroups::Hierarchy;
use crate::host::counters::Counters;
use crate::host::rights::Rights;
use crate::host::throttle;
use crate::refusal::Refusal;
use crate::wire::events::Emitted;
use crate::wire::parts::{PART_UNITS, PartRow};
use crate::wire::{
    COVERS, DeviceSample, OPS, OPS_SHARDED, OperationRow, Reading, Row, WireBioIo, WireCounters, WireDevice,
    WireSlot,
};

/// The kernel's counter of an I/O follows its completion event within one interrupt's batch; between
/// attaching (or detaching) and reading the counter this much time passes, so that no I/O lies between.
const SETTLE: Duration = Duration::from_millis(2);

/// The kernel adds up what is in flight CPU by CPU while I/Os begin on one and end on another, so at a
/// high rate the sum can be far too low (read as 0 with 128 in flight, on 6.18). Only a request that
/// has been out for this long is held against it.
const LONG_NS: u64 = 100_000_000;

/// `1 << STACK_BITS` of `bpf/parts.h`.
const STACK_OWNERS: u32 = 1 << 14;

/// What to trace.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of disks; empty: every one that is in use.
    pub devices: Vec<String>,
    /// Trace bio-based disks too, and what lies below the disks that are named.
    pub layers: bool,
    /// Without it `block_bio_queue` is not attached and there is no queue stage.
    pub queue_stage: bool,
    /// Follow operations: io_uring requests, and system calls that read or write. Needs `queue_stage`.
    pub operations: bool,
    /// Take stages apart (`--detail`). Needs `operations`.
    pub parts: bool,
    /// Send an event per I/O; None: nobody looks at each.
    pub events: Option<EventOptions>,
    /// What I/Os are counted apart by, `BY_*` of the wire; None: they are not.
    pub group_by: Option<u32>,
    /// Whose I/O is followed.
    pub filter: Filter,
    /// Measure the probes' cost with the kernel's program statistics.
    pub cost: bool,
    /// Test aid: forget every Nth issue event; 0: none.
    pub drop_issue: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            layers: false,
            queue_stage: true,
            operations: true,
            parts: false,
            events: None,
            group_by: None,
            filter: Filter::default(),
            cost: true,
            drop_issue: 0,
        }
    }
}

/// What is loaded: what was asked for, less what this kernel does not have or refuses.
struct Wanted {
    nvme: Option<NvmeEvent>,
    queue: bool,
    /// Operations are followed, with this event of io_uring.
    ring: Option<RingSubmit>,
    /// Stages are taken apart; and whether the end of the bios' callbacks can be seen (6.5).
    parts: bool,
    io_done: bool,
    /// A limit is set on a traced device: what blk-throttle holds back is looked for.
    throttle: bool,
    /// The place of the bio in block_bio_complete, where a bio-based device is traced.
    bio_complete: Option<u32>,
    events: Option<EventOptions>,
    cpus: u32,
    grouping: Option<Grouping>,
    filter: Filter,
    unified_cgroups: bool,
    drop_issue: u32,
}

impl Wanted {
    /// Somebody asks who handed an I/O in.
    fn submitter(&self) -> bool {
        self.events.is_some() || self.grouping.is_some()
    }
}

/// The attached probe. Dropping it detaches everything.
pub struct LatencyProbe {
    skel: LatencySkel<'static>,
    /// By program name.
    links: BTreeMap<&'static str, Link>,
    /// The programs that were attached; they stay loaded after their links are gone.
    attached: BTreeSet<&'static str>,
    plan: Plan,
    /// The kernel counts I/Os of bio-based devices when they begin.
    counted_at_start: bool,
    root: PathBuf,
    meter: Option<CostMeter>,
    missing: Vec<Missing>,
    rings: Option<Rings>,
    flags: BTreeMap<u32, String>,
    grouping: Option<Grouping>,
    filtered: bool,
    start: Reading,
}

/// The program on the event by which the device stage of NVMe drives ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NvmeEvent {
    /// `nvme_sq`, with the types of its module.
    Typed,
    /// `nvme_sq_raw`, without.
    Raw,
}

/// How the end of the device stage can be seen on NVMe drives, else why not.
fn nvme_sq(btf: &KernelBtf, rights: &Rights) -> Result<NvmeEvent, Reason> {
    match btf.event("nvme_sq", Some("nvme_core")) {
        EventHome::Module(_) if !rights.sys_admin => Ok(NvmeEvent::Raw),
        EventHome::Vmlinux | EventHome::Module(_) => Ok(NvmeEvent::Typed),
        EventHome::Untyped(module) => Err((
            "no-btf",
            format!("module {module} has no BTF, so its event nvme_sq cannot be typed"),
            Some("use a kernel from 5.11 on with CONFIG_DEBUG_INFO_BTF_MODULES".to_string()),
        )),
        EventHome::NotLoaded(_) | EventHome::Absent => {
            Err(("no-event", "this kernel has no event nvme_sq".to_string(), None))
        }
    }
}

/// A word for scripts, a sentence, and a remedy.
type Reason = (&'static str, String, Option<String>);

fn refusal(what: &str, error: &libbpf_rs::Error) -> anyhow::Error {
    let said = libbpf::last_words().map(|words| format!(" ({words})")).unwrap_or_default();
    let text = if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        format!("{what} was not permitted{said}: run as root, or grant CAP_BPF and CAP_PERFMON")
    } else {
        format!("{what} failed: {error}{said}: `biopsy check` shows what this kernel allows")
    };
    Refusal::Refused(text).into()
}

impl LatencyProbe {
    /// Whether bios of devices without requests can be followed on this kernel.
    pub fn sees_bios() -> bool {
        layers::sees_bios()
    }

    /// Loads and attaches. `root` is where sysfs is read from, `/` on this machine.
    ///
    /// Refused when rights, BTF or a device are missing; a single optional program that the kernel
    /// refuses removes its stage and is named in [`Self::missing`].
    pub fn attach(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        preflight::permit(root)?;
        libbpf::listen();
        let (mut plan, left_out) = layers::plan(host, options)?;
        if plan.devices.is_empty() {
            let what = "none of the block devices to trace has requests of its own, which are what the probes see: \
                        name others, `biopsy devices` lists them";
            return Err(Refusal::Refused(what.to_string()).into());
        }
        let btf = KernelBtf::read()?;
        if options.group_by.is_some() || !options.filter.is_empty() {
            knows_submitters(host, &plan, &options.filter)?;
        }
        let grouping = options.group_by.map(|by| Grouping::new(by, &plan, host.cpus_possible)).transpose()?;
        if !btf.skips_nested_runs() {
            plan.share_rows();
        }
        plan.counts_passthrough = btf.counts_passthrough();
        let meter = if options.cost { CostMeter::new() } else { None };
        let mut missing = missing_devices(left_out);
        if options.cost && meter.is_none() {
            missing.push(Missing {
                part: Some("cost".to_string()),
                reason: "refused".to_string(),
                why: "the kernel's program statistics need CAP_SYS_ADMIN and Linux 5.8".to_string(),
                remedy: Some("run as root".to_string()),
                ..Missing::default()
            });
        }
        let nvme = nvme_sq(&btf, &Rights::read(root));
        missing.extend(missing_complete(host, &plan, nvme.as_ref().err()));
        missing.extend(layers::missing_stages(&plan));
        if options.events.is_some() {
            missing.extend(events::missing_lines(&plan));
        }
        let follow = options.operations && options.queue_stage && libbpf::has_swap();
        let ring = if follow { btf.ring_submit() } else { None };
        let parts = options.parts && ring.is_some();
        let io_done = parts && btf.event("block_io_done", None).is_there();
        let bio_complete = if plan.has_bios() { Some(btf.bio_complete()?) } else { None };
        let counted_at_start = plan.has_bios() && btf.counts_bios_at_start();
        let mut wanted = Wanted {
            nvme: nvme.ok(),
            queue: options.queue_stage || bio_complete.is_some(),
            ring,
            parts,
            throttle: ring.is_some() && (parts || throttled(root, host, &plan)),
            io_done,
            bio_complete,
            events: options.events.clone(),
            cpus: host.cpus_possible,
            grouping,
            filter: options.filter.clone(),
            unified_cgroups: Hierarchy::read(root).is_some_and(|hierarchy| hierarchy.unified),
            drop_issue: options.drop_issue,
        };
        missing.extend(wanted.filter.missing());
        if options.parts && !parts {
            missing.push(missing_parts("no-event", "without operations stages are not taken apart"));
        }
        if parts && !io_done {
            missing.push(missing_endio());
        }
        if options.operations && ring.is_none() {
            missing.extend(missing_operations("no-event", NO_RING));
        }
        if options.queue_stage {
            missing.extend(multipath::missing_queue(host, &plan));
        }

        // What this kernel refuses is left out, the application's side first and then the driver's.
        let skel = loop {
            let error = match Self::load(&plan, &btf, &wanted) {
                Ok(skel) => break skel,
                Err(error) => error,
            };
            let why = libbpf::last_words().unwrap_or_else(|| error.to_string());
            if std::mem::take(&mut wanted.parts) {
                missing.push(missing_parts(
                    "refused",
                    &format!("the kernel refused the programs that take stages apart: {why}"),
                ));
            } else if wanted.ring.take().is_some() {
                missing.extend(missing_operations(
                    "refused",
                    &format!("the kernel refused the programs that follow operations: {why}"),
                ));
            } else if wanted.nvme.take().is_some() {
                let reason = ("refused", format!("the kernel refused the program on nvme_sq: {why}"), None);
                missing.extend(missing_complete(host, &plan, Some(&reason)));
            } else {
                return Err(error);
            }
        };
        let rings =
            options.events.as_ref().map(|events| Rings::new(&skel, events, wanted.cpus)).transpose()?;
        let mut probe = Self {
            skel,
            links: BTreeMap::new(),
            attached: BTreeSet::new(),
            plan,
            counted_at_start,
            root: root.to_path_buf(),
            meter,
            missing,
            flags: if rings.is_some() { btf.request_flags() } else { BTreeMap::new() },
            rings,
            grouping: wanted.grouping,
            filtered: !wanted.filter.is_empty(),
            start: Reading::default(),
        };
        probe.attach_programs()?;
        probe.start = probe.reading(probe.kernel_counters())?;
        probe.start.at_ns = now_ns();
        probe.run(true)?;
        std::thread::sleep(SETTLE);
        for (device, after) in probe.start.devices.iter_mut().zip(probe.plan.counters(&probe.root)) {
            device.kernel_after = after;
        }
        Ok(probe)
    }

    fn load(plan: &Plan, btf: &KernelBtf, wanted: &Wanted) -> Result<LatencySkel<'static>> {
        let mut open = LatencySkelBuilder::default()
            .open(libbpf::object_place())
            .map_err(|e| refusal("opening the probes", &e))?;
        Self::size(&mut open, plan, wanted)?;
        let told = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
        told.arguments = btf.arguments()?;
        if wanted.ring.is_some() {
            for (number, kind) in syscalls::followed() {
                if let Some(slot) = told.syscall_kinds.get_mut(number) {
                    *slot = kind;
                }
            }
        }
        if let Some(place) = wanted.bio_complete {
            told.arguments.bio_complete = place;
        }
        let config = &mut told.config;
        config.want_bios = wanted.bio_complete.is_some().into();
        config.rqf_flush_seq = btf.rqf_flush_seq();
        config.rqf_timed_out = btf.rqf_timed_out();
        config.devices = (plan.devices.len() + plan.heads.len()) as u32;
        config.want_queue = wanted.queue.into();
        config.want_operations = wanted.ring.is_some().into();
        config.drop_issue = wanted.drop_issue;
        config.want_parts = wanted.parts.into();
        config.want_throttle = wanted.throttle.into();
        config.bio_mask = plan.bio_sets() - 1;
        config.want_submitter = wanted.submitter().into();
        config.want_filter = wanted.filter.kinds();
        config.unified_cgroups = wanted.unified_cgroups.into();
        if let Some(grouping) = &wanted.grouping {
            grouping.tell(config);
        }
        if let Some(asked) = &wanted.events {
            events::prepare(&mut open, asked, wanted.cpus)?;
        }
        open.progs.nvme_sq.set_autoload(wanted.nvme == Some(NvmeEvent::Typed));
        open.progs.nvme_sq_raw.set_autoload(wanted.nvme == Some(NvmeEvent::Raw));
        open.progs.bio_complete.set_autoload(wanted.bio_complete.is_some());
        let queue_only: [&mut OpenProgramMut<'_>; 3] =
            [&mut open.progs.bio_queue, &mut open.progs.bio_backmerge, &mut open.progs.bio_frontmerge];
        for program in queue_only {
            program.set_autoload(wanted.queue);
        }
        open.progs.ring_submit_req.set_autoload(wanted.ring == Some(RingSubmit::Request));
        open.progs.ring_submit_sqe.set_autoload(wanted.ring == Some(RingSubmit::Sqe));
        let operations_only: [&mut OpenProgramMut<'_>; 3] =
            [&mut open.progs.sys_enter, &mut open.progs.sys_exit, &mut open.progs.ring_complete];
        for program in operations_only {
            program.set_autoload(wanted.ring.is_some());
        }
        let parts_only: [&mut OpenProgramMut<'_>; 5] = [
            &mut open.progs.bio_getrq,
            &mut open.progs.rq_insert,
            &mut open.progs.ring_queue_work,
            &mut open.progs.task_waking,
            &mut open.progs.task_switch,
        ];
        for program in parts_only {
            program.set_autoload(wanted.parts);
        }
        open.progs.io_done.set_autoload(wanted.parts && wanted.io_done);
        let skel = open.load().map_err(|e| refusal("loading the probes", &e))?;
        for (index, device) in plan.devices.iter().chain(&plan.heads).enumerate() {
            skel.maps
                .devices
                .update(&(index as u32).to_ne_bytes(), device.wire.as_bytes(), MapFlags::ANY)
                .map_err(|e| refusal("writing the table of devices", &e))?;
        }
        wanted.filter.fill(&skel).context("writing the filter")?;
        Ok(skel)
    }

    fn size(open: &mut OpenLatencySkel<'_>, plan: &Plan, wanted: &Wanted) -> Result<()> {
        if wanted.bio_complete.is_none() {
            open.maps
                .bio_ios
                .set_max_entries(1)
                .map_err(|e| refusal("sizing the table of bios without requests", &e))?;
        }
        open.maps.slots.set_max_entries(plan.slots.max(1)).map_err(|e| refusal("sizing the slots", &e))?;
        open.maps
            .bios
            .set_max_entries(plan.bio_sets())
            .map_err(|e| refusal("sizing the table of bios", &e))?;
        if wanted.submitter() {
            open.maps
                .submitters
                .set_max_entries(plan.bio_sets())
                .map_err(|e| refusal("sizing the table of submitters", &e))?;
        }
        if wanted.ring.is_some() {
            open.maps
                .operation_rows
                .set_max_entries(plan.operation_rows)
                .map_err(|e| refusal("sizing the rows of operations", &e))?;
        } else {
            for map in [&mut open.maps.callers, &mut open.maps.operations] {
                map.set_max_entries(1).map_err(|e| refusal("sizing the tables of operations", &e))?;
            }
        }
        if wanted.throttle {
            Self::size_calls(open)?;
        }
        if wanted.parts {
            Self::size_parts(open, plan)?;
        }
        if let Some(grouping) = &wanted.grouping {
            grouping.size(open).map_err(|e| refusal("sizing the tables of groups", &e))?;
        }
        wanted.filter.size(open).map_err(|e| refusal("sizing the filter", &e))?;
        open.maps.rows.set_max_entries(plan.rows).map_err(|e| refusal("sizing the rows", &e))
    }

    /// What is known of operations and calls lies beside their own tables.
    fn size_calls(open: &mut OpenLatencySkel<'_>) -> Result<()> {
        let places = open.maps.operations.max_entries() + open.maps.callers.max_entries();
        let sizes = [(&mut open.maps.operation_parts, places), (&mut open.maps.stack_owners, STACK_OWNERS)];
        resize(sizes, "sizing the tables of parts of operations")
    }

    /// What is known of requests lies beside the tables of slots and bios.
    fn size_parts(open: &mut OpenLatencySkel<'_>, plan: &Plan) -> Result<()> {
        let sizes = [
            (&mut open.maps.slot_parts, plan.slots),
            (&mut open.maps.bio_parts, plan.bio_sets()),
            (&mut open.maps.part_rows, plan.part_rows()),
        ];
        resize(sizes, "sizing the tables of parts")
    }

    /// Opens or closes the window for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        self.skel.maps.bss_data.as_mut().context("the object has data")?.running = running.into();
        Ok(())
    }

    /// Attaches all programs that were loaded; none does anything yet. What ends something is there
    /// before what begins it.
    fn attach_programs(&mut self) -> Result<()> {
        let progs = &mut self.skel.progs;
        let order: [(&'static str, &mut ProgramMut<'_>); 22] = [
            ("rq_complete", &mut progs.rq_complete),
            ("bio_complete", &mut progs.bio_complete),
            ("rq_merge", &mut progs.rq_merge),
            ("rq_requeue", &mut progs.rq_requeue),
            ("bio_split", &mut progs.bio_split),
            ("nvme_sq", &mut progs.nvme_sq),
            ("nvme_sq_raw", &mut progs.nvme_sq_raw),
            ("sys_exit", &mut progs.sys_exit),
            ("ring_complete", &mut progs.ring_complete),
            ("bio_backmerge", &mut progs.bio_backmerge),
            ("bio_frontmerge", &mut progs.bio_frontmerge),
            ("bio_queue", &mut progs.bio_queue),
            ("ring_submit_req", &mut progs.ring_submit_req),
            ("ring_submit_sqe", &mut progs.ring_submit_sqe),
            ("sys_enter", &mut progs.sys_enter),
            ("io_done", &mut progs.io_done),
            ("task_switch", &mut progs.task_switch),
            ("task_waking", &mut progs.task_waking),
            ("ring_queue_work", &mut progs.ring_queue_work),
            ("rq_insert", &mut progs.rq_insert),
            ("bio_getrq", &mut progs.bio_getrq),
            ("rq_issue", &mut progs.rq_issue),
        ];
        for (name, program) in order.into_iter().filter(|(_, program)| program.autoload()) {
            let link = program.attach().map_err(|e| refusal(&format!("attaching {name}"), &e))?;
            self.links.insert(name, link);
            self.attached.insert(name);
        }
        Ok(())
    }

    /// The reading right after attaching: the start of the window.
    pub fn start(&self) -> &Reading {
        &self.start
    }

    /// Stages that cannot be seen, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// What came out of the rings since the last time, where events were asked for.
    pub fn events(&self) -> Result<Taken> {
        self.rings.as_ref().map_or_else(|| Ok(Taken { emptied: true, ..Taken::default() }), Rings::take)
    }

    /// What the event stream's side in the kernel counted.
    pub fn emitted(&self) -> Result<Emitted> {
        self.rings.as_ref().map_or_else(|| Ok(Emitted::default()), |rings| rings.emitted(&self.skel))
    }

    /// From now on only I/Os that took at least as long have an event.
    pub fn raise_floor(&mut self, ns: u64) {
        if let Some(data) = self.skel.maps.bss_data.as_mut() {
            data.event_floor_ns = ns;
        }
    }

    /// The bits of a request's flags with the kernel's names, where events were asked for.
    pub fn request_flags(&self) -> &BTreeMap<u32, String> {
        &self.flags
    }

    /// The traced devices by their numbers in events.
    pub fn planned(&self) -> impl Iterator<Item = (&str, &WireDevice)> {
        self.plan.devices.iter().map(|d| (d.name.as_str(), &d.wire))
    }

    /// Names of the traced devices.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.plan.devices.iter().map(|d| d.name.as_str())
    }

    /// Waits until `deadline` or until `stop` says so, and keeps the cost slices going; true when the
    /// deadline was reached.
    pub fn wait(&mut self, deadline: Option<Instant>, stop: &dyn Fn() -> bool) -> bool {
        loop {
            self.tick();
            if stop() {
                return false;
            }
            let now = Instant::now();
            if deadline.is_some_and(|end| now >= end) {
                return true;
            }
            let mut nap = Duration::from_millis(20);
            if let Some(end) = deadline {
                nap = nap.min(end - now);
            }
            std::thread::sleep(nap);
        }
    }

    /// Moves the cost slices on; called several times a second while the window is open.
    pub fn tick(&mut self) {
        let Some(mut meter) = self.meter.take() else { return };
        if Instant::now() >= meter.due() {
            meter.tick(&self.metered(), &|| self.completed());
        }
        self.meter = Some(meter);
    }

    /// The loaded programs, for metering.
    fn metered(&self) -> Vec<Metered<'_>> {
        let progs = &self.skel.progs;
        let all = [
            metered("rq_complete", &progs.rq_complete),
            metered("rq_issue", &progs.rq_issue),
            metered("bio_queue", &progs.bio_queue),
            metered("bio_complete", &progs.bio_complete),
            metered("nvme_sq", &progs.nvme_sq),
            metered("nvme_sq_raw", &progs.nvme_sq_raw),
            metered("sys_enter", &progs.sys_enter),
            metered("sys_exit", &progs.sys_exit),
            metered("ring_submit_req", &progs.ring_submit_req),
            metered("ring_submit_sqe", &progs.ring_submit_sqe),
            metered("ring_complete", &progs.ring_complete),
            metered("rq_merge", &progs.rq_merge),
            metered("rq_requeue", &progs.rq_requeue),
            metered("bio_split", &progs.bio_split),
            metered("bio_backmerge", &progs.bio_backmerge),
            metered("bio_frontmerge", &progs.bio_frontmerge),
            metered("bio_getrq", &progs.bio_getrq),
            metered("rq_insert", &progs.rq_insert),
            metered("io_done", &progs.io_done),
            metered("ring_queue_work", &progs.ring_queue_work),
            metered("task_waking", &progs.task_waking),
            metered("task_switch", &progs.task_switch),
        ];
        all.into_iter().filter(|program| self.attached.contains(program.name)).collect()
    }

    /// I/Os counted so far, over all devices.
    fn completed(&self) -> u64 {
        self.samples(false)
            .map(|devices| {
                devices
                    .iter()
                    .flat_map(|d| d.rows.iter().chain(&d.rare))
                    .map(|row| {
                        row.stages[1].count() + row.further + row.untimed + row.no_start + row.never_issued
                    })
                    .sum()
            })
            .unwrap_or(0)
    }

    /// The state now, with the kernel's counters around it.
    pub fn read(&self) -> Result<Reading> {
        let before = self.kernel_counters();
        self.reading(before)
    }

    /// Detaches and reads the end of the window; the probe stays readable for its cost.
    pub fn detach(&mut self) -> Result<Reading> {
        if let Some(mut meter) = self.meter.take() {
            meter.end(&self.metered(), &|| self.completed());
            self.meter = Some(meter);
        }
        let before = self.kernel_counters();
        let end_ns = now_ns();
        self.run(false)?;
        let missed = self.missed();
        std::thread::sleep(SETTLE);
        let mut reading = self.reading(before)?;
        reading.at_ns = end_ns;
        self.links.clear();
        reading.missed = missed;
        let held = self.held(end_ns.saturating_sub(LONG_NS))?;
        for (device, held) in reading.devices.iter_mut().zip(held) {
            device.held = held;
        }
        Ok(reading)
    }

    /// What the probes cost so far, for a window of this many I/Os per second.
    pub fn cost(&self, ios_per_second: f64) -> Cost {
        let bytes = self.map_bytes();
        self.meter
            .as_ref()
            .map_or_else(|| Cost { map_bytes: bytes, ..Cost::default() }, |m| m.cost(bytes, ios_per_second))
    }

    /// Bytes of all maps' values.
    fn map_bytes(&self) -> u64 {
        let rings = self.rings.as_ref().map_or(0, Rings::bytes);
        let maps = self.skel.object().maps();
        maps.map(|m| u64::from(m.value_size()) * u64::from(m.max_entries())).sum::<u64>() + rings
    }

    fn reading(&self, before: Vec<Option<Counters>>) -> Result<Reading> {
        let at_ns = now_ns();
        let with_operations = self.attached.contains("ring_complete");
        let mut devices = self.samples(with_operations)?;
        let groups = self.grouping.map(|all| all.read(&self.skel, with_operations)).transpose()?;
        let after = self.kernel_counters();
        let had = self.start.devices.iter().map(|d| d.kernel_after.is_some()).chain(std::iter::repeat(false));
        for (((device, before), after), had) in devices.iter_mut().zip(before).zip(after).zip(had) {
            device.kernel_before = before;
            device.kernel_after = after;
            device.vanished = had && !self.root.join("sys/block").join(&device.name).exists();
        }
        let unfollowed = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.unfollowed);
        Ok(Reading { at_ns, devices, missed: self.missed(), unfollowed, groups, filtered: self.filtered })
    }

    fn missed(&self) -> BTreeMap<&'static str, u64> {
        self.metered()
            .iter()
            .filter_map(|p| libbpf::program_stats(&p.fd).ok().map(|s| (p.name, s.recursion_misses)))
            .chain(self.skel.maps.bss_data.as_ref().map(|bss| ("unlearned", bss.unlearned)))
            .collect()
    }

    /// Requests that were issued before `before_ns` and have not been seen to complete, per device.
    fn held(&self, before_ns: u64) -> Result<Vec<u64>> {
        let mut held = vec![0; self.plan.devices.len()];
        let slots = self.skel.maps.slots.lookup_batch(4096, MapFlags::ANY, MapFlags::ANY)?;
        for (key, slot) in slots {
            let index = u32::from_ne_bytes(key.as_slice().try_into().context("a slot's key has four bytes")?);
            let slot = WireSlot::decode(&slot)?;
            if slot.request == 0 || slot.issued >= before_ns {
                continue;
            }
            let owner = self.plan.devices.iter().rposition(|d| d.wire.slot_base <= index);
            if let Some(count) = owner.and_then(|i| held.get_mut(i)) {
                *count += 1;
            }
        }
        if self.attached.contains("bio_complete") {
            for (_, io) in self.skel.maps.bio_ios.lookup_batch(4096, MapFlags::ANY, MapFlags::ANY)? {
                let io = WireBioIo::decode(&io)?;
                if io.bio == 0 || io.queued >= before_ns {
                    continue;
                }
                if let Some(count) = held.get_mut(io.device as usize) {
                    *count += 1;
                }
            }
        }
        Ok(held)
    }

    fn kernel_counters(&self) -> Vec<Option<Counters>> {
        self.plan.counters(&self.root)
    }

    fn samples(&self, with_operations: bool) -> Result<Vec<DeviceSample>> {
        let maps = &self.skel.maps;
        let row = |index: u32| -> Result<Row> { Ok(Row::decode(&element(&maps.rows, index)?)?) };
        let operations = |index: u32| -> Result<OperationRow> {
            Ok(OperationRow::decode(&element(&maps.operation_rows, index)?)?)
        };
        let part =
            |index: u32| -> Result<PartRow> { Ok(PartRow::decode(&element(&maps.part_rows, index)?)?) };
        let with_parts = with_operations && self.attached.contains("bio_getrq");
        let units = if with_parts { (PART_UNITS * OPS) as u32 } else { 0 };
        let mut all = Vec::with_capacity(self.plan.devices.len());
        for (index, device) in self.plan.devices.iter().enumerate() {
            let wire = &device.wire;
            let end = wire.rare_row_base + (OPS - OPS_SHARDED) as u32;
            let first = wire.operation_row_base;
            let covered = COVERS * (wire.operation_shards as usize * OPS_SHARDED + OPS - OPS_SHARDED);
            let operation_rows = if with_operations { first..first + covered as u32 } else { 0..0 };
            all.push(DeviceSample {
                name: device.name.clone(),
                hw_queues: wire.hw_queues,
                shards: wire.shards,
                rows: (wire.row_base..wire.rare_row_base).map(row).collect::<Result<_>>()?,
                rare: (wire.rare_row_base..end).map(row).collect::<Result<_>>()?,
                operations: operation_rows.map(operations).collect::<Result<_>>()?,
                operation_shards: wire.operation_shards,
                parts: (0..units).map(|i| part(index as u32 * units + i)).collect::<Result<_>>()?,
                counters: WireCounters::decode(&element(&maps.counters, index as u32)?)?,
                bio_based: device.is_bio_based(),
                counted_at_start: device.is_bio_based() && self.counted_at_start,
                added_for: device.added_for.clone(),
                ..DeviceSample::default()
            });
        }
        Ok(all)
    }
}

/// Refused where nothing says who hands in the bios of a device.
fn knows_submitters(host: &Host, plan: &Plan, filter: &Filter) -> Result<()> {
    if !libbpf::has_swap() {
        let why = "this kernel is too old to tell submitters and groups of I/Os apart (--by, -p, --comm, --cgroup): use \
                   Linux 6.1 or newer";
        return Err(Refusal::Refused(why.to_string()).into());
    }
    if let Some(blind) = multipath::missing_queue(host, plan).first().filter(|_| !filter.is_empty()) {
        let name = blind.device.clone().unwrap_or_default();
        let why = format!(
            "nothing tells whose the I/O of {} is, a path of a multipath drive: name other devices with -d, or leave \
             -p, --comm and --cgroup out",
            name.escape_debug()
        );
        return Err(Refusal::Refused(why).into());
    }
    Ok(())
}

fn missing_devices(left_out: usize) -> Vec<Missing> {
    let why = format!(
        "{left_out} loop, RAM or network block devices that nobody uses are not traced, so that all others can be"
    );
    let missing = Missing {
        reason: "not-traced".to_string(),
        why,
        remedy: Some("name one with -d".to_string()),
        ..Missing::default()
    };
    (left_out > 0).then_some(missing).into_iter().collect()
}

const NO_RING: &str = "this kernel has no event that names the io_uring request which is submitted";

fn missing_operations(reason: &str, why: &str) -> Vec<Missing> {
    ["submit", "reap"]
        .into_iter()
        .map(|stage| Missing {
            stage: Some(stage.to_string()),
            reason: reason.to_string(),
            why: why.to_string(),
            ..Missing::default()
        })
        .collect()
}

fn resize<const N: usize>(sizes: [(&mut OpenMapMut<'_>, u32); N], what: &str) -> Result<()> {
    for (map, entries) in sizes {
        map.set_max_entries(entries).map_err(|e| refusal(what, &e))?;
    }
    Ok(())
}

/// Whether a cgroup's limit on one of the traced devices is set now.
fn throttled(root: &Path, host: &Host, plan: &Plan) -> bool {
    let limits = throttle::throttles(root, &host.devices);
    limits.iter().any(|limit| plan.devices.iter().any(|device| device.name == limit.device))
}

fn missing_parts(reason: &str, why: &str) -> Missing {
    Missing {
        part: Some("detail".to_string()),
        reason: reason.to_string(),
        why: why.to_string(),
        ..Missing::default()
    }
}

fn missing_endio() -> Missing {
    Missing {
        stage: Some("complete".to_string()),
        part: Some("endio".to_string()),
        reason: "no-event".to_string(),
        included_in: Some("cqe".to_string()),
        why: "this kernel has no event block_io_done, which tells that a request's callbacks have run"
            .to_string(),
        remedy: Some("use Linux 6.5 or newer".to_string()),
        ..Missing::default()
    }
}

/// `complete` exists on NVMe only, and there only with its event.
fn missing_complete(host: &Host, plan: &Plan, nvme: Option<&Reason>) -> Vec<Missing> {
    let is_nvme = |name: &str| {
        host.devices
            .iter()
            .any(|d| d.name == name && d.driver.as_deref().is_some_and(|v| v.starts_with("nvme")))
    };
    let mut all = Vec::new();
    for device in plan.devices.iter().filter(|d| !d.is_bio_based()) {
        let (reason, why, remedy) = match (is_nvme(&device.name), nvme) {
            (true, None) => continue,
            (true, Some((reason, why, remedy))) => (*reason, why.clone(), remedy.clone()),
            (false, _) => (
                "no-event",
                "only the NVMe driver has an event where it reaps a completion; here device ends, and what \
                 follows begins, at block_rq_complete"
                    .to_string(),
                None,
            ),
        };
        all.push(Missing {
            device: Some(device.name.clone()),
            stage: Some("complete".to_string()),
            part: None,
            reason: reason.to_string(),
            included_in: Some("device".to_string()),
            why,
            remedy,
        });
    }
    all
}
