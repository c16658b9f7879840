//! Measures the page cache: attaches `bpf/pagecache.bpf.c` and, if the kernel allows it, `bpf/paths.bpf.c`, and also
//! reads the kernel's own counters.

mod functions;
mod series;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, OpenObject};

use self::functions::Functions;
use self::series::Recorder;
use super::Probe;
use super::btf::KernelBtf;
use super::cost::{CostMeter, MeteredProgram, metered};
use super::libbpf::{self, refusal};
use super::locks::SpinClock;
use super::maps::{element, entries, per_cpu};
use super::skel::pagecache::types::rodata;
use super::skel::pagecache::{OpenPagecacheSkel, PagecacheSkel, PagecacheSkelBuilder};
use super::spec::{Program, Reach, Spec};
use super::trial::TrialResult;
use super::{skel, trial};
use crate::clock::now_ns;
use crate::envelope::{Cost, Missing, Reason};
use crate::host::Host;
use crate::host::memory_reading::{DiskTotals, MemoryReading};
use crate::wire::Record;
use crate::wire::pagecache::{
    RECLAIM_KINDS, ReadaheadSource, Reading, ReclaimKind, WireIsolated, WireReadahead, WireReclaim,
    WireReclaimer, WireReclaimerKey,
};

/// Time between opening or closing the interval and reading the kernel's counters: batches of pages that have been
/// counted by then have had their event.
const SETTLE: Duration = Duration::from_millis(2);

/// More nodes than the kernel can have.
const MOST_NODES: u32 = 1024;

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names of the disks whose throughput is shown with memory; empty: all that are not stacked on another.
    pub devices: Vec<String>,
    /// Follow the functions of the LRU lists, if the kernel allows it.
    pub functions: bool,
    /// Measure the probe's cost with the kernel's program statistics.
    pub cost: bool,
}

/// The attached probe. Dropping it detaches everything.
pub struct PagecacheProbe {
    skel: PagecacheSkel<'static>,
    links: Vec<Link>,
    functions: Functions,
    events: Events,
    /// Time of lock waits, for the time series.
    spins: Option<SpinClock>,
    /// Runs from the start of the interval.
    recorder: Option<Recorder>,
    nodes: u32,
    disks: Vec<String>,
    /// Disks that are not stacked on another.
    lowest: Vec<String>,
    root: PathBuf,
    meter: Option<CostMeter>,
    missing: Vec<Missing>,
    start: Reading,
}

/// Which optional events this kernel has.
#[derive(Debug, Clone, Copy, Default)]
struct Events {
    throttled: bool,
    balance: bool,
    readahead: ReadaheadSource,
    /// Meaningful if a function replaces the event.
    large_readahead: bool,
    reads: bool,
}

impl Events {
    fn of(btf: &KernelBtf) -> Self {
        let has = |name| btf.event(name, None).is_there();
        let reads = has("mm_filemap_get_pages") && has("mm_filemap_fault") && has("mm_filemap_map_pages");
        let readahead = match has("page_cache_ra_unbounded") {
            true => ReadaheadSource::Events,
            false => ReadaheadSource::None,
        };
        Self {
            throttled: has("mm_vmscan_throttled"),
            balance: has("mm_vmscan_balance_pgdat_begin") && has("mm_vmscan_balance_pgdat_end"),
            readahead,
            large_readahead: has("page_cache_ra_order"),
            reads,
        }
    }

    fn missing(self) -> Vec<Missing> {
        let mut all = Vec::new();
        let mut lacks = |part: &str, why: &str, remedy: Option<&str>| {
            all.push(Missing {
                part: Some(part.to_string()),
                reason: Reason::NoEvent,
                why: why.to_string(),
                remedy: remedy.map(str::to_string),
                ..Missing::default()
            });
        };
        if !self.throttled {
            lacks("throttled", "this kernel has no event for sleeping reclaim (added in Linux 5.16)", None);
        }
        if !self.balance {
            let why = "the end of a kswapd run has no event before Linux 7.0: its time ends with the last \
                batch of pages that it scanned";
            lacks("reclaims.kswapd.time", why, None);
        }
        if self.readahead == ReadaheadSource::None {
            let why = "read-ahead has no event before Linux 6.16, and its functions cannot be attached to \
                here";
            let remedy = "compare /sys/block/D/queue/read_ahead_kb with the sizes of the reads";
            lacks("readahead", why, Some(remedy));
        } else if !self.reads {
            let why = "reads of cached pages have no event before Linux 6.12: unused read-ahead is unknown";
            lacks("readahead.unused_pages", why, None);
        }
        all
    }
}

impl PagecacheProbe {
    /// Loads and attaches, and opens the interval. `root` is the root of sysfs and procfs: `/` for this machine;
    /// `spins` adds lock waits to the time series.
    ///
    /// Refused when rights or BTF are missing.
    pub fn attach(host: &Host, root: &Path, options: &Options, spins: Option<SpinClock>) -> Result<Self> {
        let mut probe = Self::prepare(host, root, options, spins)?;
        probe.begin()?;
        Ok(probe)
    }

    /// Like [`Self::attach`], but nothing is counted before [`Self::begin`].
    pub fn prepare(host: &Host, root: &Path, options: &Options, spins: Option<SpinClock>) -> Result<Self> {
        SPEC.permit(root)?;
        let btf = KernelBtf::read()?;
        let mut events = Events::of(&btf);
        let nodes = host.nodes.iter().map(|node| node.node + 1).max().unwrap_or(1).clamp(1, MOST_NODES);
        let (skel, links) = match events.readahead {
            ReadaheadSource::None => Self::load_with_functions(&btf, &mut events, nodes)?,
            _ => (load(&btf, events, nodes)?, Vec::new()),
        };
        let mut missing = events.missing();
        let meter = if options.cost { CostMeter::new() } else { None };
        if options.cost && meter.is_none() {
            missing.push(super::cost::missing());
        }
        let functions = match options.functions {
            true => Functions::attach(&btf, &mut missing),
            false => Functions::default(),
        };
        // Reads of a stacked disk are reads of the disks below it.
        let lowest = host.devices.iter().filter(|d| d.layers.is_empty() && !d.is_placeholder());
        let lowest: Vec<String> = lowest.map(|d| d.name.clone()).collect();
        let disks = match options.devices.is_empty() {
            true => lowest.clone(),
            false => options.devices.clone(),
        };
        let mut probe = Self {
            skel,
            links,
            functions,
            events,
            spins,
            recorder: None,
            nodes,
            disks,
            lowest,
            root: root.to_path_buf(),
            meter,
            missing,
            start: Reading::default(),
        };
        probe.attach_programs().map_err(|error| refusal("attaching the probes", &error))?;
        Ok(probe)
    }

    /// On kernels without events of read-ahead, its functions are probed if the kernel allows it.
    fn load_with_functions(
        btf: &KernelBtf,
        events: &mut Events,
        nodes: u32,
    ) -> Result<(PagecacheSkel<'static>, Vec<Link>)> {
        let by_function = Events {
            readahead: ReadaheadSource::Functions,
            large_readahead: btf.has_function("page_cache_ra_order"),
            ..*events
        };
        if btf.has_function("page_cache_ra_unbounded")
            && let Ok(skel) = load(btf, by_function, nodes)
            && let Ok(links) = Self::attach_functions(&skel, by_function)
        {
            *events = by_function;
            return Ok((skel, links));
        }
        libbpf::listen();
        Ok((load(btf, *events, nodes)?, Vec::new()))
    }

    /// Attaching is the test: before f3a95075549e (5.13) a program can be attached to a function only once.
    fn attach_functions(skel: &PagecacheSkel<'_>, events: Events) -> libbpf_rs::Result<Vec<Link>> {
        let mut links = vec![skel.progs.ra_unbounded_call.attach()?];
        if events.large_readahead {
            links.push(skel.progs.ra_order_call.attach()?);
        }
        Ok(links)
    }

    fn attach_programs(&mut self) -> libbpf_rs::Result<()> {
        let counts_reads = self.counts_reads();
        let progs = &self.skel.progs;
        let links = &mut self.links;
        // Ends are attached first: the start of a reclaim in progress is not recorded.
        links.push(progs.direct_reclaim_end.attach()?);
        links.push(progs.memcg_reclaim_end.attach()?);
        links.push(progs.memcg_softlimit_reclaim_end.attach()?);
        links.push(progs.node_reclaim_end.attach()?);
        links.push(progs.lru_shrink_inactive.attach()?);
        links.push(progs.lru_isolate.attach()?);
        if self.events.throttled {
            links.push(progs.throttled.attach()?);
        }
        if self.events.balance {
            links.push(progs.balance_end.attach()?);
            links.push(progs.balance_begin.attach()?);
        } else {
            links.push(progs.kswapd_sleep.attach()?);
            links.push(progs.kswapd_wake.attach()?);
        }
        links.push(progs.direct_reclaim_begin.attach()?);
        links.push(progs.memcg_reclaim_begin.attach()?);
        links.push(progs.memcg_softlimit_reclaim_begin.attach()?);
        links.push(progs.node_reclaim_begin.attach()?);
        match self.events.readahead {
            ReadaheadSource::None => {}
            ReadaheadSource::Events => {
                links.push(progs.ra_unbounded.attach()?);
                if self.events.large_readahead {
                    links.push(progs.ra_order.attach()?);
                }
            }
            // These are attached already.
            ReadaheadSource::Functions => {}
        }
        if counts_reads {
            links.push(progs.get_pages.attach()?);
            links.push(progs.fault.attach()?);
            links.push(progs.map_pages.attach()?);
        }
        Ok(())
    }

    /// Reads are not counted without read-ahead.
    fn counts_reads(&self) -> bool {
        self.events.reads && self.events.readahead != ReadaheadSource::None
    }

    /// Opens or closes the interval for all programs at once.
    fn run(&mut self, running: bool) -> Result<()> {
        let data = self.skel.maps.bss_data.as_mut().context("the object has data")?;
        data.running = running.into();
        self.functions.run(running)
    }

    /// What cannot be observed, with the reason.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Whether functions are followed; otherwise their shares have to come from samples.
    pub fn follows_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// The cost of the probes so far, for an interval with this many I/Os per second.
    pub fn cost(&self, ios_per_second: f64) -> Cost {
        let bytes = libbpf::map_bytes(self.skel.object()) + self.functions.map_bytes();
        let of_none = || Cost { map_bytes: bytes, ..Cost::default() };
        self.meter.as_ref().map_or_else(of_none, |meter| meter.cost(bytes, ios_per_second))
    }

    fn kernel(&self) -> MemoryReading {
        MemoryReading::read(&self.root, &self.disks, now_ns())
    }

    /// I/Os of the disks so far.
    fn ios(&self) -> u64 {
        self.kernel().disks.map_or(0, |disks| disks.ios)
    }

    fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let mut all = self.on_events();
        all.extend(self.functions.metered());
        all
    }

    /// The programs at events. Those that follow functions of the LRU lists count their losses separately.
    fn on_events(&self) -> Vec<MeteredProgram<'_>> {
        let progs = &self.skel.progs;
        let mut all = vec![
            metered("direct_reclaim_begin", &progs.direct_reclaim_begin),
            metered("direct_reclaim_end", &progs.direct_reclaim_end),
            metered("memcg_reclaim_begin", &progs.memcg_reclaim_begin),
            metered("memcg_reclaim_end", &progs.memcg_reclaim_end),
            metered("softlimit_reclaim_begin", &progs.memcg_softlimit_reclaim_begin),
            metered("softlimit_reclaim_end", &progs.memcg_softlimit_reclaim_end),
            metered("node_reclaim_begin", &progs.node_reclaim_begin),
            metered("node_reclaim_end", &progs.node_reclaim_end),
            metered("lru_shrink_inactive", &progs.lru_shrink_inactive),
            metered("lru_isolate", &progs.lru_isolate),
        ];
        if self.events.throttled {
            all.push(metered("throttled", &progs.throttled));
        }
        if self.events.balance {
            all.push(metered("kswapd_begin", &progs.balance_begin));
            all.push(metered("kswapd_end", &progs.balance_end));
        } else {
            all.push(metered("kswapd_begin", &progs.kswapd_wake));
            all.push(metered("kswapd_end", &progs.kswapd_sleep));
        }
        match self.events.readahead {
            ReadaheadSource::None => {}
            ReadaheadSource::Events => {
                all.push(metered("ra_unbounded", &progs.ra_unbounded));
                if self.events.large_readahead {
                    all.push(metered("ra_order", &progs.ra_order));
                }
            }
            ReadaheadSource::Functions => {
                all.push(metered("ra_unbounded", &progs.ra_unbounded_call));
                if self.events.large_readahead {
                    all.push(metered("ra_order", &progs.ra_order_call));
                }
            }
        }
        if self.counts_reads() {
            all.push(metered("get_pages", &progs.get_pages));
            all.push(metered("fault", &progs.fault));
            all.push(metered("map_pages", &progs.map_pages));
        }
        all
    }

    /// The numbers of missed events, by kind.
    fn lost(&self) -> BTreeMap<String, u64> {
        let stats = |program: &MeteredProgram<'_>| {
            libbpf::program_stats(&program.fd).map_or(0, |s| s.recursion_misses)
        };
        let missed = self.on_events().iter().map(stats).sum();
        let mut all = BTreeMap::from([("missed".to_string(), missed)]);
        if let Some(bss) = self.skel.maps.bss_data.as_ref() {
            let lost = &bss.lost;
            all.insert("no_room".to_string(), lost.no_room);
            all.insert("no_begin".to_string(), lost.no_begin);
            all.insert("unnamed".to_string(), lost.unnamed);
            all.insert("no_node".to_string(), lost.no_node);
        }
        all.extend(self.functions.lost());
        all
    }

    /// A reading without the time series.
    fn reading(&self, kernel_before: MemoryReading) -> Result<Reading> {
        let maps = &self.skel.maps;
        let at_ns = now_ns();
        let mut reclaims = BTreeMap::new();
        let mut isolated = BTreeMap::new();
        for (number, kind) in (0u32..).zip(ReclaimKind::ALL) {
            for node in 0..self.nodes {
                let bytes = element(&maps.reclaims, number * self.nodes + node)?;
                reclaims.insert((kind, node), WireReclaim::decode(&bytes)?);
            }
            isolated.insert(kind, per_cpu::<WireIsolated>(&maps.isolated, number)?);
        }
        let mut reclaimers = BTreeMap::new();
        for (key, value) in entries(&maps.reclaimers)? {
            reclaimers.insert(WireReclaimerKey::decode(&key)?, WireReclaimer::decode(&value)?);
        }
        let readahead = per_cpu::<WireReadahead>(&maps.readaheads, 0)?;
        Ok(Reading {
            at_ns,
            reclaims,
            isolated,
            reclaimers,
            readahead: (self.events.readahead != ReadaheadSource::None).then_some(readahead),
            readahead_by: self.events.readahead,
            sees_reads: self.counts_reads(),
            paths: self.functions.read()?,
            lost: self.lost(),
            kernel_before,
            kernel_after: self.kernel(),
            read_bytes: DiskTotals::read(&self.root, &self.lowest).map(|disks| disks.read_bytes),
            series: Vec::new(),
        })
    }
}

impl Probe for PagecacheProbe {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        let rows =
            MapHandle::try_from(&self.skel.maps.reclaims).context("a map cannot be shared with a thread")?;
        let (nodes, spins) = (self.nodes, self.spins.take());
        let reclaims = move || tasks_reclaims(&rows, nodes);
        let spins = move || spins.as_ref().and_then(SpinClock::read);
        let before = self.kernel();
        self.start = self.reading(before)?;
        self.start.at_ns = now_ns();
        self.run(true)?;
        self.recorder = Some(Recorder::start(self.root.clone(), self.disks.clone(), reclaims, spins)?);
        std::thread::sleep(SETTLE);
        self.start.kernel_after = self.kernel();
        Ok(())
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

    /// The current state, with the kernel's counters around it, and the steps since the previous reading.
    fn read(&self) -> Result<Reading> {
        let before = self.kernel();
        let reading = self.reading(before)?;
        let series = self.recorder.as_ref().map(|recorder| recorder.take(reading.at_ns));
        Ok(Reading { series: series.unwrap_or_default(), ..reading })
    }

    fn detach(&mut self) -> Result<Reading> {
        if let Some(mut meter) = self.meter.take() {
            meter.end(&self.metered(), &|| self.ios());
            self.meter = Some(meter);
        }
        let before = self.kernel();
        let end_ns = now_ns();
        self.run(false)?;
        std::thread::sleep(SETTLE);
        let series = self.recorder.take().map(Recorder::end);
        let mut reading = self.reading(before)?;
        reading.at_ns = end_ns;
        reading.series = series.unwrap_or_default();
        self.links.clear();
        self.functions.detach();
        Ok(reading)
    }
}

/// How often tasks have begun to reclaim, for the machine and within the limit of their cgroup.
fn tasks_reclaims(rows: &MapHandle, nodes: u32) -> Option<u64> {
    let mut sum = 0;
    for (number, kind) in (0u32..).zip(ReclaimKind::ALL) {
        if !matches!(kind, ReclaimKind::Direct | ReclaimKind::Memcg) {
            continue;
        }
        for node in 0..nodes {
            let bytes = element(rows, number * nodes + node).ok()?;
            sum += WireReclaim::decode(&bytes).ok()?.begun;
        }
    }
    Some(sum)
}

fn load(btf: &KernelBtf, events: Events, nodes: u32) -> Result<PagecacheSkel<'static>> {
    let mut open = PagecacheSkelBuilder::default()
        .open(libbpf::object_place())
        .map_err(|error| refusal("opening the probes", &error))?;
    open.maps
        .reclaims
        .set_max_entries(RECLAIM_KINDS as u32 * nodes)
        .map_err(|error| refusal("sizing the tables of reclaim", &error))?;
    let config = &mut open.maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.nodes = nodes;
    config.lru_argument = btf.lru_argument();
    choose(&mut open, events);
    open.load().map_err(|error| refusal("loading the probes", &error))
}

pub const SPEC: Spec = Spec {
    programs: &[PROGRAMS],
    not_by_file: Some(NO_RECLAIM_BY_FILE),
    try_load,
    configure,
    ..Spec::of(&[skel::PAGECACHE])
};

/// The functions on the call paths of reclaim.
pub const PATHS: Spec = Spec::of(&[skel::PATHS]);

pub const NO_RECLAIM_BY_FILE: &str =
    "with a BTF file the kernel types no arguments, so reclaim cannot be measured";

const NO_DIRECT: &str = "reclaim by tasks is not measured";
const NO_MEMCG: &str = "reclaim at the limits of memory cgroups is not measured";
const NO_PAGES: &str = "scanned pages come only from the kernel's counters";

/// The programs that `locks` attaches for the page cache: one or two per kind of event.
const PROGRAMS: &[Program] = &[
    Program::optional("direct_reclaim_begin", "mm_vmscan_direct_reclaim_begin", NO_DIRECT),
    Program::optional("direct_reclaim_end", "mm_vmscan_direct_reclaim_end", NO_DIRECT),
    Program::optional("memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_begin", NO_MEMCG),
    Program::optional("memcg_reclaim_end", "mm_vmscan_memcg_reclaim_end", NO_MEMCG),
    Program::optional("lru_isolate", "mm_vmscan_lru_isolate", NO_PAGES),
    Program::optional("lru_shrink_inactive", "mm_vmscan_lru_shrink_inactive", NO_PAGES),
    Program::optional("throttled", "mm_vmscan_throttled", "sleeping reclaim is not measured"),
    Program::optional(
        "ra_unbounded",
        "page_cache_ra_unbounded",
        "read-ahead is measured only if programs may attach to functions",
    ),
    Program::optional("get_pages", "mm_filemap_get_pages", "unused read-ahead is not measured"),
];

/// Loads the named programs, and closes them.
fn try_load(names: &[String], btf: &KernelBtf) -> TrialResult<()> {
    let mut open = PagecacheSkelBuilder::default().open(libbpf::object_place())?;
    configure(open.open_object_mut(), Reach::Usual, btf)?;
    open.maps.reclaims.set_max_entries(RECLAIM_KINDS as u32)?;
    trial::load(open, names)
}

fn configure(object: &mut OpenObject, _: Reach, btf: &KernelBtf) -> Result<()> {
    libbpf::with_constants(object, |constants: &mut rodata| {
        constants.config.nodes = 2;
        constants.config.lru_argument = btf.lru_argument();
    })
}

/// Selects the programs at optional events.
fn choose(open: &mut OpenPagecacheSkel<'_>, events: Events) {
    let progs = &mut open.progs;
    progs.throttled.set_autoload(events.throttled);
    progs.balance_begin.set_autoload(events.balance);
    progs.balance_end.set_autoload(events.balance);
    progs.kswapd_wake.set_autoload(!events.balance);
    progs.kswapd_sleep.set_autoload(!events.balance);
    let by_event = events.readahead == ReadaheadSource::Events;
    let by_function = events.readahead == ReadaheadSource::Functions;
    progs.ra_unbounded.set_autoload(by_event);
    progs.ra_order.set_autoload(by_event && events.large_readahead);
    progs.ra_unbounded_call.set_autoload(by_function);
    progs.ra_order_call.set_autoload(by_function && events.large_readahead);
    let reads = events.reads && (by_event || by_function);
    progs.get_pages.set_autoload(reads);
    progs.fault.set_autoload(reads);
    progs.map_pages.set_autoload(reads);
}
