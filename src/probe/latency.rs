//! The latency probe: attaches `bpf/latency.bpf.c`, reads its rows, detaches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenProgramMut, ProgramMut};
use zerocopy::IntoBytes;

use super::btf::{EventHome, KernelBtf};
use super::cost::{CostMeter, Metered, metered};
use super::libbpf;
use super::plan::Plan;
use super::preflight;
use super::skel::latency::{LatencySkel, LatencySkelBuilder, OpenLatencySkel};
use crate::envelope::{Cost, Missing};
use crate::host::Host;
use crate::host::counters::Counters;
use crate::refusal::Refusal;
use crate::wire::{DeviceSample, OPS, OPS_SHARDED, Reading, Row, WireCounters, WireSlot};

/// The kernel's counter of an I/O follows its completion event within one interrupt's batch; between
/// attaching (or detaching) and reading the counter this much time passes, so that no I/O lies between.
const SETTLE: Duration = Duration::from_millis(2);

/// The kernel adds up what is in flight CPU by CPU while I/Os begin on one and end on another, so at a
/// high rate the sum can be far too low (read as 0 with 128 in flight, on 6.18). Only a request that
/// has been out for this long is held against it.
const LONG_NS: u64 = 100_000_000;

/// What to trace.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names of disks; empty: every request-based device.
    pub devices: Vec<String>,
    /// Without it `block_bio_queue` is not attached and there is no queue stage.
    pub queue_stage: bool,
    /// Measure the probes' cost with the kernel's program statistics.
    pub cost: bool,
    /// Test aid: forget every Nth issue event; 0: none.
    pub drop_issue: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { devices: Vec::new(), queue_stage: true, cost: true, drop_issue: 0 }
    }
}

/// The attached probe. Dropping it detaches everything.
pub struct LatencyProbe {
    skel: LatencySkel<'static>,
    /// By program name.
    links: BTreeMap<&'static str, Link>,
    plan: Plan,
    root: PathBuf,
    meter: Option<CostMeter>,
    missing: Vec<Missing>,
    start: Reading,
}

/// Whether the end of the device stage can be seen on NVMe drives, else why not.
fn nvme_sq_reason(btf: &KernelBtf) -> Option<(&'static str, String, Option<String>)> {
    match btf.event("nvme_sq", Some("nvme_core")) {
        EventHome::Vmlinux | EventHome::Module(_) => None,
        EventHome::Untyped(module) => Some((
            "no-btf",
            format!("module {module} has no BTF, so its event nvme_sq cannot be typed"),
            Some("use a kernel from 5.11 on with CONFIG_DEBUG_INFO_BTF_MODULES".to_string()),
        )),
        EventHome::NotLoaded(_) | EventHome::Absent => {
            Some(("no-event", "this kernel has no event nvme_sq".to_string(), None))
        }
    }
}

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
    /// Loads and attaches. `root` is where sysfs is read from, `/` on this machine.
    ///
    /// Refused when rights, BTF or a device are missing; a single optional program that the kernel
    /// refuses removes its stage and is named in [`Self::missing`].
    pub fn attach(host: &Host, root: &Path, options: &Options) -> Result<Self> {
        preflight::permit(root)?;
        libbpf::listen();
        let chosen = |name: &str| options.devices.is_empty() || options.devices.iter().any(|d| d == name);
        let mut plan = Plan::new(host.devices.iter().filter(|d| chosen(&d.name)), host.cpus_possible)?;
        if plan.devices.is_empty() {
            let what = if options.devices.is_empty() {
                "no request-based block device is here: its requests are what the probes see".to_string()
            } else {
                format!(
                    "{} has no requests of its own (it is bio-based): name the devices below it, \
                     which `biopsy devices` shows",
                    options.devices.join(", ")
                )
            };
            return Err(Refusal::Refused(what).into());
        }
        let btf = KernelBtf::read()?;
        if !btf.skips_nested_runs() {
            plan.share_rows();
        }
        let meter = if options.cost { CostMeter::new() } else { None };
        let mut missing = missing_everywhere();
        if options.cost && meter.is_none() {
            missing.push(Missing {
                part: Some("cost".to_string()),
                reason: "refused".to_string(),
                why: "the kernel's program statistics need CAP_SYS_ADMIN and Linux 5.8".to_string(),
                ..Missing::default()
            });
        }
        let nvme = nvme_sq_reason(&btf);
        missing.extend(missing_complete(host, &plan, nvme.as_ref()));

        let skel = match Self::load(&plan, &btf, options, nvme.is_none()) {
            Ok(skel) => skel,
            // One more try without the program that lives in a module.
            Err(error) if nvme.is_none() => {
                let why = libbpf::last_words().unwrap_or_else(|| error.to_string());
                let skel = Self::load(&plan, &btf, options, false)?;
                let reason = ("refused", format!("the kernel refused the program on nvme_sq: {why}"), None);
                missing.extend(missing_complete(host, &plan, Some(&reason)));
                skel
            }
            Err(error) => return Err(error),
        };
        let mut probe = Self {
            skel,
            links: BTreeMap::new(),
            plan,
            root: root.to_path_buf(),
            meter,
            missing,
            start: Reading::default(),
        };
        probe.attach_programs(options)?;
        probe.start = probe.reading(probe.kernel_counters())?;
        probe.start.at_ns = monotonic_ns();
        probe.run(true)?;
        std::thread::sleep(SETTLE);
        for (device, after) in probe.start.devices.iter_mut().zip(probe.plan.counters(&probe.root)) {
            device.kernel_after = after;
        }
        Ok(probe)
    }

    fn load(plan: &Plan, btf: &KernelBtf, options: &Options, nvme: bool) -> Result<LatencySkel<'static>> {
        let mut open = LatencySkelBuilder::default()
            .open(libbpf::object_place())
            .map_err(|e| refusal("opening the probes", &e))?;
        Self::size(&mut open, plan)?;
        let told = open.maps.rodata_data.as_mut().context("the object has read-only data")?;
        told.arguments = btf.arguments()?;
        let config = &mut told.config;
        config.rqf_flush_seq = btf.rqf_flush_seq();
        config.devices = plan.devices.len() as u32;
        config.want_queue = options.queue_stage.into();
        config.drop_issue = options.drop_issue;
        config.bio_mask = plan.bio_sets() - 1;
        open.progs.nvme_sq.set_autoload(nvme);
        let queue_only: [&mut OpenProgramMut<'_>; 3] =
            [&mut open.progs.bio_queue, &mut open.progs.bio_backmerge, &mut open.progs.bio_frontmerge];
        for program in queue_only {
            program.set_autoload(options.queue_stage);
        }
        let skel = open.load().map_err(|e| refusal("loading the probes", &e))?;
        for (index, device) in plan.devices.iter().enumerate() {
            skel.maps
                .devices
                .update(&(index as u32).to_ne_bytes(), device.wire.as_bytes(), MapFlags::ANY)
                .map_err(|e| refusal("writing the table of devices", &e))?;
        }
        Ok(skel)
    }

    fn size(open: &mut OpenLatencySkel<'_>, plan: &Plan) -> Result<()> {
        open.maps.slots.set_max_entries(plan.slots).map_err(|e| refusal("sizing the slots", &e))?;
        open.maps
            .bios
            .set_max_entries(plan.bio_sets())
            .map_err(|e| refusal("sizing the table of bios", &e))?;
        open.maps.rows.set_max_entries(plan.rows).map_err(|e| refusal("sizing the rows", &e))
    }

    /// Opens or closes the window for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        self.skel.maps.bss_data.as_mut().context("the object has data")?.running = running.into();
        Ok(())
    }

    /// Attaches all programs; none does anything yet.
    fn attach_programs(&mut self, options: &Options) -> Result<()> {
        let progs = &mut self.skel.progs;
        let mut order: Vec<(&'static str, &mut ProgramMut<'_>)> = vec![
            ("rq_complete", &mut progs.rq_complete),
            ("rq_merge", &mut progs.rq_merge),
            ("rq_requeue", &mut progs.rq_requeue),
            ("bio_split", &mut progs.bio_split),
        ];
        if progs.nvme_sq.autoload() {
            order.push(("nvme_sq", &mut progs.nvme_sq));
        }
        if options.queue_stage {
            order.push(("bio_backmerge", &mut progs.bio_backmerge));
            order.push(("bio_frontmerge", &mut progs.bio_frontmerge));
            order.push(("bio_queue", &mut progs.bio_queue));
        }
        order.push(("rq_issue", &mut progs.rq_issue));
        for (name, program) in order {
            let link = program.attach().map_err(|e| refusal(&format!("attaching {name}"), &e))?;
            self.links.insert(name, link);
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
        let mut all = vec![
            metered("rq_complete", &progs.rq_complete),
            metered("rq_issue", &progs.rq_issue),
            metered("rq_merge", &progs.rq_merge),
            metered("rq_requeue", &progs.rq_requeue),
            metered("bio_split", &progs.bio_split),
        ];
        if self.links.contains_key("nvme_sq") {
            all.push(metered("nvme_sq", &progs.nvme_sq));
        }
        if self.links.contains_key("bio_queue") {
            all.push(metered("bio_queue", &progs.bio_queue));
            all.push(metered("bio_backmerge", &progs.bio_backmerge));
            all.push(metered("bio_frontmerge", &progs.bio_frontmerge));
        }
        all
    }

    /// I/Os counted so far, over all devices.
    fn completed(&self) -> u64 {
        self.samples()
            .map(|devices| {
                devices
                    .iter()
                    .flat_map(|d| d.rows.iter().chain(&d.rare))
                    .map(|row| row.stages[1].count() + row.untimed + row.no_start + row.never_issued)
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
        let end_ns = monotonic_ns();
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
        self.skel.object().maps().map(|m| u64::from(m.value_size()) * u64::from(m.max_entries())).sum()
    }

    fn reading(&self, before: Vec<Option<Counters>>) -> Result<Reading> {
        let at_ns = monotonic_ns();
        let mut devices = self.samples()?;
        let after = self.kernel_counters();
        let had = self.start.devices.iter().map(|d| d.kernel_after.is_some()).chain(std::iter::repeat(false));
        for (((device, before), after), had) in devices.iter_mut().zip(before).zip(after).zip(had) {
            device.kernel_before = before;
            device.kernel_after = after;
            device.vanished = had && !self.root.join("sys/block").join(&device.name).exists();
        }
        Ok(Reading { at_ns, devices, missed: self.missed() })
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
        Ok(held)
    }

    fn kernel_counters(&self) -> Vec<Option<Counters>> {
        self.plan.counters(&self.root)
    }

    fn samples(&self) -> Result<Vec<DeviceSample>> {
        let maps = &self.skel.maps;
        let row = |index: u32| -> Result<Row> { Ok(Row::decode(&element(&maps.rows, index)?)?) };
        let mut all = Vec::with_capacity(self.plan.devices.len());
        for (index, device) in self.plan.devices.iter().enumerate() {
            let wire = &device.wire;
            let end = wire.rare_row_base + (OPS - OPS_SHARDED) as u32;
            all.push(DeviceSample {
                name: device.name.clone(),
                hw_queues: wire.hw_queues,
                shards: wire.shards,
                rows: (wire.row_base..wire.rare_row_base).map(row).collect::<Result<_>>()?,
                rare: (wire.rare_row_base..end).map(row).collect::<Result<_>>()?,
                counters: WireCounters::decode(&element(&maps.counters, index as u32)?)?,
                ..DeviceSample::default()
            });
        }
        Ok(all)
    }
}

/// An element of an array map.
fn element(map: &impl MapCore, index: u32) -> Result<Vec<u8>> {
    map.lookup(&index.to_ne_bytes(), MapFlags::ANY)?.context("the kernel lost an element of an array")
}

/// CLOCK_MONOTONIC, the clock of the kernel's stamps.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that lives across the call; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn missing_everywhere() -> Vec<Missing> {
    ["submit", "reap"]
        .into_iter()
        .map(|stage| Missing {
            stage: Some(stage.to_string()),
            reason: "not-joined".to_string(),
            why: "this version does not join requests to the application's operations".to_string(),
            ..Missing::default()
        })
        .collect()
}

/// `complete` exists on NVMe only, and there only with its event.
fn missing_complete(
    host: &Host,
    plan: &Plan,
    nvme: Option<&(&'static str, String, Option<String>)>,
) -> Vec<Missing> {
    let is_nvme = |name: &str| {
        host.devices
            .iter()
            .any(|d| d.name == name && d.driver.as_deref().is_some_and(|v| v.starts_with("nvme")))
    };
    let mut all = Vec::new();
    for device in &plan.devices {
        let (reason, why, remedy) = match (is_nvme(&device.name), nvme) {
            (true, None) => continue,
            (true, Some((reason, why, remedy))) => (*reason, why.clone(), remedy.clone()),
            (false, _) => (
                "no-event",
                "only the NVMe driver has an event where it reaps a completion; here device ends at \
                 block_rq_complete"
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
