//! Counts errors: attaches `bpf/errors.bpf.c`, and reads which requests failed or were requeued.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};

use super::btf::KernelBtf;
use super::cost::{CostMeter, MeteredProgram, metered};
use super::libbpf::{self, refusal};
use super::maps;
use super::skel::errors::types::rodata;
use super::skel::errors::{ErrorsSkel, ErrorsSkelBuilder};
use super::spec::{self, Here, Program, Spec, View};
use super::{Probe, skel, trial};
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing};
use crate::host::Host;
use crate::host::abilities::ViewState;
use crate::host::counters::Counters;
use crate::wire::Record;
use crate::wire::errors::Reading;
use crate::wire::records::{WireError, WireErrorRow};

pub const SPEC: Spec = Spec {
    programs: &[PROGRAMS],
    not_by_file: Some("with a BTF file the kernel types no arguments, so errors cannot be measured"),
    try_load: |names, _| trial::load(ErrorsSkelBuilder::default().open(libbpf::object_place())?, names),
    configure: |object, _, btf| {
        let arguments = btf.arguments()?;
        libbpf::with_constants(object, |constants: &mut rodata| {
            constants.arguments.rq_requeue = arguments.rq_requeue;
            constants.rqf_timed_out = btf.rqf_timed_out();
        })
    },
    ..Spec::of(&[skel::ERRORS])
};

const PROGRAMS: &[Program] = &[
    Program::needed("errors_complete", "block_rq_complete", "errors are not counted"),
    Program::needed(
        "errors_requeue",
        "block_rq_requeue",
        "requests that the driver gives back are not \
        counted",
    ),
];

pub const VIEW: View = View { name: "errors", state: view };

fn view(here: &Here<'_>) -> ViewState {
    match here.lacks(|name| PROGRAMS.iter().any(|known| known.name == name)) {
        Some(program) => spec::without(program),
        None if here.traced().next().is_none() => spec::without_disks(),
        None => ViewState::ok(),
    }
}

/// Time between closing the interval and reading the table.
const SETTLE: Duration = Duration::from_millis(2);

/// The attached probe, for all disks. Dropping it detaches everything.
pub struct ErrorProbe {
    skel: ErrorsSkel<'static>,
    links: Vec<Link>,
    /// Disks over whose I/Os the cost is spread.
    disks: Vec<String>,
    root: PathBuf,
    meter: Option<CostMeter>,
    missing: Vec<Missing>,
    start: Reading,
}

impl ErrorProbe {
    /// Loads, attaches and opens the interval. `root` is the root of sysfs: `/` for this machine.
    ///
    /// # Errors
    /// A [`crate::refusal::Refusal`] when rights or BTF are missing, or the kernel refuses a program.
    pub fn attach(host: &Host, root: &Path, cost: bool) -> Result<Self> {
        let mut probe = Self::prepare(host, root, cost)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but nothing is counted before [`Self::begin`].
    pub fn prepare(host: &Host, root: &Path, cost: bool) -> Result<Self> {
        SPEC.permit(root)?;
        let btf = KernelBtf::read()?;
        let mut open = ErrorsSkelBuilder::default()
            .open(libbpf::object_place())
            .map_err(|error| refusal("opening the probe of errors", &error))?;
        let told = open.maps.rodata_data.as_mut().context("the object has constants")?;
        told.arguments.rq_requeue = btf.arguments()?.rq_requeue;
        told.rqf_timed_out = btf.rqf_timed_out();
        let skel = open.load().map_err(|error| refusal("loading the probe of errors", &error))?;
        let meter = if cost { CostMeter::new() } else { None };
        let missing = (cost && meter.is_none()).then(super::cost::missing);
        let disks = host.devices.iter().filter(|disk| disk.request_based).map(|disk| disk.name.clone());
        let mut probe = Self {
            skel,
            links: Vec::new(),
            disks: disks.collect(),
            root: root.to_path_buf(),
            meter,
            missing: missing.into_iter().collect(),
            start: Reading::default(),
        };
        probe.attach_programs().map_err(|error| refusal("attaching the probe of errors", &error))?;
        Ok(probe)
    }

    fn attach_programs(&mut self) -> libbpf_rs::Result<()> {
        self.links.push(self.skel.progs.errors_complete.attach()?);
        self.links.push(self.skel.progs.errors_requeue.attach()?);
        Ok(())
    }

    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        Ok(())
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The cost of the probe so far, for an interval with this many I/Os per second.
    pub fn cost(&self, ios_per_second: f64) -> Cost {
        let bytes = libbpf::map_bytes(self.skel.object());
        let unknown = || Cost { map_bytes: bytes, ..Cost::default() };
        self.meter.as_ref().map_or_else(unknown, |meter| meter.cost(bytes, ios_per_second))
    }

    fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let programs = &self.skel.progs;
        vec![
            metered("errors_complete", &programs.errors_complete),
            metered("errors_requeue", &programs.errors_requeue),
        ]
    }

    /// I/Os of all disks, as the kernel counts them.
    fn ios(&self) -> u64 {
        self.disks
            .iter()
            .filter_map(|disk| Counters::read_counts(&self.root, disk).ok())
            .map(|c| c.ios())
            .sum()
    }

    fn missed(&self) -> u64 {
        let of = |program: &MeteredProgram<'_>| libbpf::program_stats(&program.fd).ok();
        self.metered().iter().filter_map(of).map(|stats| stats.recursion_misses).sum()
    }
}

impl Probe for ErrorProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.start = Reading { at_ns: now_ns(), ios: self.ios(), ..Reading::default() };
        self.run(true)
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        let Some(mut meter) = self.meter.take() else { return };
        if Instant::now() >= meter.due() {
            meter.tick(&self.metered(), &|| self.ios());
        }
        self.meter = Some(meter);
    }

    fn read(&self) -> Result<Reading> {
        let rows = maps::entries(&self.skel.maps.error_rows)?.into_iter();
        let row =
            |(key, row): (Vec<u8>, Vec<u8>)| Ok((WireError::decode(&key)?, WireErrorRow::decode(&row)?));
        let rows = rows.map(row).collect::<Result<_>>()?;
        let unkept = self.skel.maps.bss_data.as_ref().map_or(0, |data| data.no_room);
        Ok(Reading { at_ns: now_ns(), ios: self.ios(), rows, unkept, missed: self.missed() })
    }

    fn detach(&mut self) -> Result<Reading> {
        if let Some(mut meter) = self.meter.take() {
            meter.end(&self.metered(), &|| self.ios());
            self.meter = Some(meter);
        }
        let at_ns = now_ns();
        self.run(false)?;
        std::thread::sleep(SETTLE);
        let reading = Reading { at_ns, ..self.read()? };
        self.links.clear();
        Ok(reading)
    }
}
