//! Measures latency: attaches `bpf/latency.bpf.c`, reads its rows, detaches.

mod calls;
mod layers;
mod load_plan;
mod missing;
mod object;
pub mod options;
mod programs;
mod reading;
mod slices;
pub mod spec;
pub mod submits;

pub use spec::{DIAGNOSE, SPEC, TRACE, VIEW};

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::Skel;
use libbpf_rs::{Link, MapHandle};

use self::calls::Calls;
use self::load_plan::{LoadPlan, nvme_sq};
use self::options::{Options, Stages};
use self::slices::{FollowTime, Slices};
use super::Probe;
use super::btf::KernelBtf;
use super::cost::{self, CostMeter};
use super::events::{PollResult, Rings};
use super::file_ios;
use super::files::{self, FileNames};
use super::filter::Filter;
use super::generator::{self, Generators};
use super::groups::Grouping;
use super::libbpf;
use super::multipath;
use super::permit;
use super::plan::{self, Plan};
use super::process_ios;
use super::skel::{self, latency::LatencySkel};
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing, Reason};
use crate::host::cgroups::Hierarchy;
use crate::host::kallsyms::Kallsyms;
use crate::host::rights::Rights;
use crate::host::throttle;
use crate::host::{BlockDevice, Host};
use crate::probe::btf_file::{self, BY_FILE};
use crate::refusal::{Refusal, plain};
use crate::wire::WireDevice;
use crate::wire::events::{Event, EventCounts};
use crate::wire::files::{FILES_COUNTED, FILES_EACH};
use crate::wire::groups;
use crate::wire::reading::Reading;
use crate::wire::submits::Submits;

/// The kernel counts an I/O after its completion event, within one interrupt's batch. Wait this long between attaching
/// (or detaching) and reading the counter, so that no I/O falls in between.
const SETTLE: Duration = Duration::from_millis(2);

/// The kernel sums up I/Os in flight CPU by CPU while I/Os begin on one CPU and end on another, so at a high rate the
/// sum can be far too low (read as 0 with 128 in flight, on 6.18). So only a request that has been in flight for this
/// long counts as a discrepancy.
const LONG_NS: u64 = 100_000_000;

/// The attached probe. Dropping it detaches everything.
pub struct LatencyProbe {
    skel: LatencySkel<'static>,
    /// By program name.
    links: BTreeMap<&'static str, Link>,
    /// The programs that were attached; they stay loaded after their links are gone.
    attached: BTreeSet<&'static str>,
    /// Set if system calls are followed at their functions.
    calls: Option<Calls>,
    plan: Plan,
    /// The kernel counts I/Os of bio-based devices when they begin.
    counted_at_start: bool,
    root: PathBuf,
    meter: Option<CostMeter>,
    /// None: operations are followed all the time, or not at all.
    slices: Option<Slices>,
    followed: FollowTime,
    missing: Vec<Missing>,
    rings: Option<Rings>,
    flags: BTreeMap<u32, String>,
    grouping: Option<Grouping>,
    /// Set if groups are made by file, or bios are counted by file.
    file_names: Option<RefCell<FileNames>>,
    /// Bios are counted by file.
    files: bool,
    filtered: bool,
    /// Bios are counted by process.
    processes: bool,
    generator: bool,
    /// Rows of per-CPU tables.
    cpus: u32,
    /// The traced devices, if operations are followed and throttled bios are not, as no cgroup had a limit.
    unlimited: Vec<BlockDevice>,
    start: Reading,
}

impl LatencyProbe {
    /// Whether bios of devices without requests can be followed on this kernel.
    pub fn sees_bios() -> bool {
        layers::sees_bios()
    }

    /// Loads and attaches, and opens the interval. `root` is the root of sysfs: `/` for this machine.
    ///
    /// Refused when rights, BTF or a device are missing. If the kernel refuses a single optional program, its stage is
    /// omitted and named in [`Self::missing`].
    pub fn attach(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        let mut probe = Self::prepare(host, root, options)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but nothing is counted before [`Self::begin`].
    pub fn prepare(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        permit::permit(root)?;
        libbpf::listen();
        let (mut plan, left_out) = layers::plan(host, options)?;
        if plan.devices.is_empty() {
            let what = "none of the block devices to trace has requests of its own, so the probes see \
                nothing: name others, `biopsy devices` lists them";
            return Err(Refusal::Refused(what.to_string()).into());
        }
        let btf = KernelBtf::read()?;
        let mut filter = options.filter.clone();
        if options.group_by.is_some() || !filter.is_empty() {
            knows_submitters(host, &plan, &filter)?;
        }
        let mut missing = plan::left_out(left_out);
        if options.command && filter.is_empty() {
            filter.command = true;
            if let Err(why) = knows_command(root, host, &plan, &filter) {
                filter.command = false;
                missing.push(process_ios::missing_command(plain(&why.to_string())));
            }
        }
        let grouping = options.group_by.map(|by| Grouping::new(by, host.cpus_possible)).transpose()?;
        if !btf.skips_nested_runs() {
            plan.share_rows();
        }
        plan.counts_passthrough = btf.counts_passthrough();
        let meter = if options.cost && btf_file::path().is_none() { CostMeter::new() } else { None };
        if options.cost && meter.is_none() {
            missing.push(cost::missing());
        }
        let (has_queue, has_all) = (options.stages >= Stages::QueueDevice, options.stages == Stages::All);
        let nvme = match has_all {
            true => nvme_sq(&btf, &Rights::read(root)),
            false => Err(Box::new(missing::not_asked_for("complete"))),
        };
        missing.extend(missing::complete(host, &plan, nvme.as_ref().err().map(Box::as_ref)));
        missing.extend(layers::missing_stages(&plan));
        missing.extend(plan::missing_of_partitions(&plan));
        let follow = has_all && skel::is_usual();
        let ring = if follow { btf.ring_submit() } else { None };
        let parts = options.parts && ring.is_some();
        let io_done = parts && btf.event("block_io_done", None).is_there();
        let bio_complete = if plan.has_bios() { Some(btf.bio_complete()?) } else { None };
        let counted_at_start = plan.has_bios() && btf.counts_bios_at_start();
        let limited = throttled(root, host, &plan);
        let mut files = 0;
        if options.group_by.is_some_and(|by| by & groups::BY_FILE != 0) || options.event_files {
            files |= FILES_EACH;
        }
        if options.files && options.processes && has_queue {
            files |= FILES_COUNTED;
        }
        if !skel::is_usual() {
            files = 0;
        }
        let symbols = if files == 0 { Kallsyms::default() } else { Kallsyms::read(root) };
        if files != 0 && symbols.is_empty() {
            missing.push(files::missing());
        }
        let mut wanted = LoadPlan {
            nvme: nvme.ok(),
            queue: has_queue || bio_complete.is_some(),
            ring,
            calls: if ring.is_some() && options.functions { calls::functions(&btf) } else { Vec::new() },
            parts,
            generator: ring.is_some() && options.generator && generator::knows_its_threads(root),
            throttle: ring.is_some() && (parts || limited),
            io_done,
            bio_complete,
            events: options.events.clone(),
            stacks: options.stacks.clone().filter(|_| options.events.is_some()),
            cpus: host.cpus_possible,
            grouping,
            files,
            file_callbacks: files::callbacks(&symbols),
            filter,
            processes: options.processes && has_queue,
            command: options.command && options.processes && has_queue && btf_file::path().is_none(),
            unified_cgroups: Hierarchy::read(root).is_some_and(|hierarchy| hierarchy.unified),
            drop_issue: options.drop_issue,
        };
        missing.extend(wanted.filter.missing());
        if options.generator && ring.is_some() && !wanted.generator {
            missing.push(generator::missing("this container has other thread ids than the kernel"));
        }
        if options.parts && !parts {
            missing.push(missing::parts(Reason::NoEvent, "stages can be split only for operations"));
        }
        if parts && !io_done {
            missing.push(missing::endio());
        }
        if has_all && ring.is_none() {
            missing.extend(match btf_file::path() {
                Some(_) => missing::operations(Reason::BtfFile, BY_FILE),
                None => missing::operations(Reason::NoEvent, missing::NO_RING),
            });
        }
        if !has_all {
            missing.extend(["submit", "reap"].map(missing::not_asked_for));
        }
        if !wanted.queue {
            missing.push(missing::not_asked_for("queue"));
        }
        if has_queue {
            missing.extend(multipath::missing_queue(host, &plan));
        }

        // Programs that this kernel refuses are left out, first those of operations, then the driver's.
        let skel = loop {
            let error = match object::load(&mut plan, &btf, &mut wanted) {
                Ok(skel) => break skel,
                Err(error) => error,
            };
            let why = libbpf::last_words().unwrap_or_else(|| error.to_string());
            if !wanted.calls.is_empty() {
                wanted.calls.clear();
            } else if std::mem::take(&mut wanted.parts) {
                missing.push(missing::parts(
                    Reason::Refused,
                    &format!("the kernel refused the programs that split stages: {why}"),
                ));
            } else if wanted.ring.take().is_some() {
                missing.extend(missing::operations(
                    Reason::Refused,
                    &format!("the kernel refused the programs that follow operations: {why}"),
                ));
            } else if wanted.nvme.take().is_some() {
                let refused = Missing {
                    reason: Reason::Refused,
                    why: format!("the kernel refused the program on nvme_sq: {why}"),
                    ..Missing::default()
                };
                missing.extend(missing::complete(host, &plan, Some(&refused)));
            } else {
                return Err(error);
            }
            wanted.throttle = wanted.ring.is_some() && (wanted.parts || limited);
        };
        let maps = &skel.maps;
        let rings = |asked| {
            let emitters = MapHandle::try_from(&maps.emitters).context("keeping the counts of events")?;
            Rings::new(&maps.event_rings, emitters, asked, wanted.cpus)
        };
        let rings = options.events.as_ref().map(rings).transpose()?;
        let names_files = wanted.files & FILES_COUNTED != 0 || wanted.grouping.is_some() && wanted.files != 0;
        // If refused, system calls are followed by their events.
        let calls = if wanted.calls.is_empty() { None } else { Calls::load(&skel, &wanted.calls).ok() };
        // With throttling, operations are followed all the time even if they are not requested: a bio that
        // blk-throttle's worker submits is matched to its submitter by the recorded system call, and the submitter of
        // each bio must be known.
        let is_followed = wanted.ring.is_some() && !wanted.throttle;
        let mut probe = Self {
            skel,
            calls,
            links: BTreeMap::new(),
            attached: BTreeSet::new(),
            counted_at_start,
            root: root.to_path_buf(),
            slices: options.budget.filter(|_| meter.is_some() && is_followed).map(Slices::new),
            followed: FollowTime::default(),
            meter,
            missing,
            flags: if rings.is_some() { btf.request_flags() } else { BTreeMap::new() },
            rings,
            grouping: wanted.grouping,
            file_names: names_files.then(|| RefCell::new(FileNames::new(root))),
            files: wanted.files & FILES_COUNTED != 0,
            filtered: !wanted.filter.is_empty(),
            processes: wanted.processes,
            unlimited: if wanted.ring.is_some() && !wanted.throttle {
                let planned = |d: &&BlockDevice| plan.devices.iter().any(|planned| planned.disk == d.name);
                host.devices.iter().filter(planned).cloned().collect()
            } else {
                Vec::new()
            },
            generator: wanted.generator && wanted.ring.is_some(),
            cpus: wanted.cpus,
            plan,
            start: Reading::default(),
        };
        probe.follow_all()?;
        probe.attach_programs(&|_| true)?;
        if options.functions && probe.calls.is_none() {
            probe.missing.push(missing::functions());
        }
        Ok(probe)
    }

    /// Opens or closes the interval for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        // In this order: an operation that ends between the two writes is counted as in flight.
        data.over = (!running).into();
        data.running = running.into();
        Ok(())
    }

    /// Stages that cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Whether [`Self::generators`] is available.
    pub fn hears_generator(&self) -> bool {
        self.generator
    }

    /// The memory in which the load generator's threads report to the programs; None: it is not used.
    pub fn generators(&self) -> Result<Option<Generators>> {
        self.generator.then(|| Generators::map(&self.skel.maps.generators)).transpose()
    }

    /// The result of the next poll of the ring buffers, if events were requested; see [`Rings::take`].
    pub fn events(&self, patience: Option<Duration>) -> Result<Option<PollResult>> {
        self.rings.as_ref().map_or(Ok(None), |rings| rings.take(patience))
    }

    /// Returns a processed buffer for reuse.
    pub fn give_back(&self, events: Vec<Event>) {
        if let Some(rings) = &self.rings {
            rings.give_back(events);
        }
    }

    /// Called after [`Self::detach`]: the ring buffers hold all events that are left.
    pub fn end_events(&self) {
        if let Some(rings) = &self.rings {
            rings.end();
        }
    }

    /// What the kernel side counted about the event stream.
    pub fn emitted(&self) -> Result<EventCounts> {
        self.rings.as_ref().map_or_else(|| Ok(EventCounts::default()), Rings::emitted)
    }

    /// The submit stacks, if [`Options::stacks`] requested them: events refer to them by number.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub fn submits(&self) -> Result<Submits> {
        submits::read(&self.skel, self.cpus)
    }

    /// From now on only I/Os that took at least this long have an event.
    pub fn set_floor(&mut self, ns: u64) {
        if let Some(data) = self.skel.maps.bss_data.as_mut() {
            data.event_floor_ns = ns;
        }
    }

    /// Names of request flags by bit, if events were requested.
    pub fn request_flags(&self) -> &BTreeMap<u32, String> {
        &self.flags
    }

    /// The traced devices, by their numbers in events.
    pub fn planned(&self) -> impl Iterator<Item = (&str, &WireDevice)> {
        self.plan.devices.iter().map(|d| (d.name.as_str(), &d.wire))
    }

    /// Names of the traced devices.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        self.plan.devices.iter().map(|d| d.name.as_str())
    }

    /// Runs `start`, which starts the command: processes that this process forks meanwhile, and their descendants,
    /// belong to the command.
    pub fn start_command<T>(&mut self, start: impl FnOnce() -> T) -> T {
        let starts = |probe: &mut Self, yes: bool| {
            if let Some(data) = probe.skel.maps.bss_data.as_mut() {
                data.starts_command = yes.into();
            }
        };
        starts(self, true);
        let started = start();
        starts(self, false);
        started
    }

    /// Looks up names of new files. Names that are not found now are searched again when the groups are read.
    fn look_for_names(&mut self) {
        let Some(names) = &mut self.file_names else { return };
        let names = names.get_mut();
        let made = self.skel.maps.bss_data.as_ref().map_or(0, |data| data.groups_made + data.files_found);
        if !names.is_behind(made) {
            return;
        }
        let of_groups = self.grouping.map_or(Ok(Vec::new()), |grouping| grouping.openers(&self.skel));
        let counted = if self.files { file_ios::read(&self.skel) } else { Ok(Vec::new()) };
        if let (Ok(mut openers), Ok(counted)) = (of_groups, counted) {
            openers.extend(counted.iter().map(|(_, row)| (row.file, row.opener)));
            names.look(made, &openers);
        }
    }

    /// The cost of the probes so far, for an interval with this many I/Os per second.
    pub fn cost(&self, ios_per_second: f64) -> Cost {
        let bytes = self.map_bytes();
        let Some(meter) = &self.meter else { return Cost { map_bytes: bytes, ..Cost::default() } };
        let cost = meter.cost(bytes, ios_per_second);
        match self.slices.as_ref().filter(|slices| slices.sliced()) {
            Some(Slices { off: Some(off), .. }) => {
                let share = self.slices.as_ref().map_or(1.0, Slices::share);
                cost.in_turn(share, off.cost(bytes, ios_per_second))
            }
            _ => cost,
        }
    }

    /// Bytes of all maps' values.
    fn map_bytes(&self) -> u64 {
        self.rings.as_ref().map_or(0, Rings::bytes) + libbpf::map_bytes(self.skel.object())
    }
}

impl Probe for LatencyProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.start = self.reading(self.kernel_counters())?;
        self.start.at_ns = now_ns();
        self.followed.begin(self.start.at_ns);
        self.start.followed_ns = self.start.followed_ns.map(|_| 0);
        if let Some(slices) = &mut self.slices {
            slices.open();
        }
        self.run(true)?;
        std::thread::sleep(SETTLE);
        for (device, after) in self.start.devices.iter_mut().zip(self.plan.counters(&self.root)) {
            device.kernel_after = after;
        }
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        self.look_for_names();
        if let Err(error) = self.turn() {
            // Everything else is measured as before.
            self.slices.iter_mut().for_each(Slices::give_up);
            self.missing.push(missing::not_followed_again(&plain(&format!("{error:#}"))));
        }
        let Some(mut meter) = self.current_meter().take() else { return };
        if Instant::now() >= meter.due() {
            meter.tick(&self.metered(), &|| self.completed());
        }
        *self.current_meter() = Some(meter);
    }

    fn read(&self) -> Result<Reading> {
        let before = self.kernel_counters();
        self.reading(before)
    }

    fn detach(&mut self) -> Result<Reading> {
        self.end_metering();
        let before = self.kernel_counters();
        let end_ns = now_ns();
        self.run(false)?;
        let missed = self.missed();
        std::thread::sleep(SETTLE);
        let mut reading = self.reading(before)?;
        reading.at_ns = end_ns;
        reading.followed_ns = reading.followed_ns.map(|_| self.followed.until(end_ns));
        self.links.clear();
        self.missing.extend(self.slices.as_ref().and_then(Slices::missing));
        if let Some(calls) = &mut self.calls {
            calls.detach();
        }
        reading.missed = missed;
        if !self.unlimited.is_empty() {
            self.missing.extend(missing::throttled(&throttle::throttles(&self.root, &self.unlimited)));
        }
        let untracked = self.skel.maps.bss_data.as_ref().map_or(0, |data| data.untracked_processes);
        if untracked > 0 {
            self.missing.push(process_ios::missing_processes(untracked));
        }
        self.name_files(&mut reading.devices);
        let held = self.held(end_ns.saturating_sub(LONG_NS), end_ns)?;
        for (device, held) in reading.devices.iter_mut().zip(held) {
            [device.held, device.young] = held;
        }
        for (device, unfetched) in
            reading.devices.iter_mut().zip(self.unfetched(self.start.at_ns)?.unwrap_or_default())
        {
            device.unfetched = Some(unfetched);
        }
        Ok(reading)
    }
}

/// Refuses devices whose bios have no known submitter.
fn knows_submitters(host: &Host, plan: &Plan, filter: &Filter) -> Result<()> {
    if !skel::is_usual() {
        let why = if btf_file::path().is_some() {
            "a BTF file (--btf) does not go with --by, -p, --comm and --cgroup: leave them out"
        } else {
            "this kernel is too old for --by, -p, --comm and --cgroup: use Linux 6.1 or newer"
        };
        return Err(Refusal::Refused(why.to_string()).into());
    }
    if let Some(blind) = multipath::missing_queue(host, plan).first().filter(|_| !filter.is_empty()) {
        let name = blind.device.clone().unwrap_or_default();
        let why = format!(
            "the submitters of I/O on {}, a path of a multipath drive, are unknown: name other devices \
             with -d, or leave out -p, --comm and --cgroup",
            name.escape_debug()
        );
        return Err(Refusal::Refused(why).into());
    }
    Ok(())
}

/// Refuses if the I/O of a command cannot be distinguished from other I/O.
fn knows_command(root: &Path, host: &Host, plan: &Plan, filter: &Filter) -> Result<()> {
    knows_submitters(host, plan, filter)?;
    match generator::knows_its_threads(root) {
        true => Ok(()),
        false => {
            Err(Refusal::Refused("this container has other process ids than the kernel".to_string()).into())
        }
    }
}

/// Whether a cgroup has a limit on one of the traced devices now.
fn throttled(root: &Path, host: &Host, plan: &Plan) -> bool {
    let limits = throttle::throttles(root, &host.devices);
    limits.iter().any(|limit| plan.devices.iter().any(|device| device.disk == limit.device))
}
