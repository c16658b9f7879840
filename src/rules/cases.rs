//! Published measurements as recorded runs, each with the right answer: the files in `tests/cases`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::fixtures::{Case, SECOND, hist, profile};
use super::inputs::{PageCache, ThreadRow, ThreadsInput};
use super::{TABLE, diagnose};
use crate::analyze::layers::Layer;
use crate::analyze::memory_sample::MemorySample;
use crate::analyze::stacks::CpuClass;
use crate::analyze::stage::Stage;
use crate::findings::Severity;
use crate::host::pci::link::{raw_bytes_per_second, usable_bytes_per_second};
use crate::host::{HardwareQueue, Hop, Link, NumaNode};
use crate::load::{BlockCounts, DriveScaling, JobResult, Scaling};

/// The files by name. `tests/suite/cases.rs` checks that none is missing.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../tests/cases/", $name, ".json")))),*]
    };
}

const FILES: &[(&str, &str)] = files! {
    "e-gen2-data"
    "e-gen2-trimmed"
    "e-gen3-data"
    "e-gen3-trimmed"
    "l-four-optane"
    "l-four-samsung"
    "t-1m-split"
    "t-direct"
    "t-half-speed-link"
    "t-mq-deadline"
    "t-one-root-complex"
    "t-one-worker"
    "t-read-ahead-off"
    "t-read-ahead-on"
    "t-read-ahead-on-wchan"
    "t-ten-drives-4k"
    "t-ten-drives-64k"
    "t-three-workers"
    "t-two-root-complexes"
    "v-lvm"
    "v-one-job"
    "v-remote-socket"
    "v-two-jobs"
    "v-two-uplinks"
};

const MIB: u64 = 1 << 20;

/// Commands that the nvme driver allows in flight per queue.
const NVME_TAGS: u32 = 1023;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// The document (see `tests/cases/README.md`), and what was done.
    source: String,
    /// Why the expected answer is right.
    reason: String,
    expect: Expect,
    /// Assumed figures that the source does not give: JSON pointer into the file, and the reason for the value.
    #[serde(default)]
    assumed: BTreeMap<String, String>,
    cpus: u32,
    memory_gib: Option<u64>,
    /// NUMA nodes, with equal numbers of CPUs.
    #[serde(default)]
    nodes: u32,
    #[serde(default)]
    drives: Vec<Drives>,
    load: Option<Driven>,
    /// Ratio of the rate at twice the depth.
    twice_the_depth: Option<f64>,
    busy: Option<Busy>,
    /// Set when the drives' `alone` and `together` were measured.
    together: Option<Together>,
    #[serde(default)]
    dstat: Vec<Dstat>,
    psn: Option<Psn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    /// The first finding must be one of these.
    first: BTreeSet<String>,
    /// These must be found too, at least as a note.
    #[serde(default)]
    also: BTreeSet<String>,
    /// These must be at most a note.
    #[serde(default)]
    never: BTreeSet<String>,
}

/// Drives with the same figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drives {
    names: Vec<String>,
    model: Option<String>,
    driver: Option<String>,
    scheduler: Option<String>,
    /// None: the drive exists, but was not traced.
    ios_per_second: Option<u64>,
    #[serde(default)]
    bytes_per_second: u64,
    /// I/Os split off by the block layer.
    #[serde(default)]
    splits_per_second: u64,
    /// Mean times; without them no stage was measured.
    queue_us: Option<f64>,
    device_us: Option<f64>,
    device_min_us: Option<f64>,
    max_request_kib: Option<u64>,
    max_hw_request_kib: Option<u64>,
    link: Option<Lanes>,
    /// Uplink of the switch that they share.
    uplink: Option<Lanes>,
    root_complex: Option<String>,
    numa_node: Option<u32>,
    /// Devices below these.
    #[serde(default)]
    layers: Vec<String>,
    alone: Option<f64>,
    together: Option<f64>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lanes {
    gts: f64,
    lanes: u32,
    /// Maximum speed of the drive, and of the port above it.
    max_gts: Option<f64>,
    port_max_gts: Option<f64>,
    /// Of the uplink: the name of its upstream port.
    at: Option<String>,
}

/// fio's job, as a load of biopsy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Driven {
    target: String,
    block_bytes: u64,
    iodepth: u32,
    numjobs: u32,
    operations_per_second: u64,
    /// Computed by Little's law if missing.
    latency_us: Option<f64>,
    /// CPU time of each worker, in percent of one CPU.
    user_percent: Option<f64>,
    system_percent: Option<f64>,
    /// The CPU of the first worker; `one_cpu`: of all workers.
    first_cpu: Option<u32>,
    #[serde(default)]
    one_cpu: bool,
    /// Of 64 sampled blocks, those with zeros only.
    zero_blocks: Option<u64>,
}

/// In percent of all CPUs; and the share of the busy time in these stacks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Busy {
    user_percent: f64,
    system_percent: f64,
    #[serde(default)]
    interrupt_percent: f64,
    #[serde(default)]
    stacks: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Together {
    /// CPU time of the busiest worker, and of all CPUs.
    worker_percent: f64,
    machine_percent: f64,
}

/// A second of dstat: its end, then run, blk, sys, idl, wai, free, buf and cach (MiB), reads, read MiB. usr, stl and
/// new are always 0.
#[derive(Clone, Copy, Deserialize)]
pub struct Dstat(
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
    pub u64,
);

/// Rows of psn: samples, threads, name, state, wchan, and the decisive functions of the stack.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Psn {
    rounds: u64,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row(u64, f64, String, char, String, Vec<String>);

impl Dstat {
    /// dstat has no reclaim, dirty pages or spinning: None.
    pub fn moment(&self) -> MemorySample {
        let Self(at, running, blocked, system, idle, iowait, free, buffers, cached, ios, read) = *self;
        MemorySample {
            at_ns: at * SECOND,
            duration_ns: SECOND,
            read_bytes: Some(read * MIB),
            ios: Some(ios),
            free_bytes: Some(free * MIB),
            file_bytes: Some((buffers + cached) * MIB),
            system_percent: Some(system as f64),
            iowait_percent: Some(iowait as f64),
            idle_percent: Some(idle as f64),
            running: Some(running),
            blocked: Some(blocked),
            ..MemorySample::default()
        }
    }
}

impl Psn {
    fn threads(&self) -> ThreadsInput {
        let row = |Row(samples, average_threads, comm, state, wchan, stack): &Row| ThreadRow {
            comm: comm.clone(),
            state: *state,
            wchan: Some(wchan.clone()),
            stack: stack.clone(),
            samples: *samples,
            average_threads: *average_threads,
        };
        ThreadsInput { rounds: self.rounds, rows: self.rows.iter().map(row).collect() }
    }
}

impl Lanes {
    /// Both bounds, for a reader without access to the packet size.
    fn link(&self) -> Link {
        Link {
            speed_gts: self.gts,
            width: self.lanes,
            max_speed_gts: Some(self.max_gts.unwrap_or(self.gts)),
            max_width: Some(self.lanes),
            port_max_speed_gts: Some(self.port_max_gts.unwrap_or(self.gts)),
            port_max_width: Some(self.lanes),
            raw_bytes_per_second: raw_bytes_per_second(self.gts, self.lanes),
            payload_bytes: None,
            usable_bytes_per_second: [128, 512]
                .map(|each| usable_bytes_per_second(self.gts, self.lanes, each)),
            aspm: None,
        }
    }
}

fn ns(us: f64) -> u64 {
    (us * 1e3) as u64
}

impl Recorded {
    fn case(&self) -> Case {
        let depth = self.load.as_ref().map_or(32, |load| load.iodepth);
        let mut all = Case::new(1_000, depth);
        all.host.devices.clear();
        all.latency.devices.clear();
        (all.host.cpus_online, all.host.cpus_possible) = (self.cpus, self.cpus);
        all.host.memory_bytes = self.memory_gib.map(|gib| gib << 30);
        let each = self.cpus / self.nodes.max(1);
        all.host.nodes = (0..self.nodes)
            .map(|node| NumaNode { node, cpus: (node * each..(node + 1) * each).collect() })
            .collect();
        let every =
            || self.drives.iter().flat_map(|drives| drives.names.iter().map(move |name| (drives, name)));
        for (number, (drives, name)) in every().enumerate() {
            let mut one = drives.case(name, number);
            all.host.devices.append(&mut one.host.devices);
            if drives.ios_per_second.is_some() {
                all.latency.devices.append(&mut one.latency.devices);
            }
        }
        match &self.load {
            Some(load) => load.begin(&mut all),
            None => all.load = None,
        }
        if let Some(ratio) = self.twice_the_depth {
            all.at_twice_the_depth(ratio);
        }
        all.profile = self.busy.as_ref().map(|busy| busy.profile(self.cpus));
        all.scaling = self.together.as_ref().map(|together| Scaling {
            drives: every().filter_map(|(drives, name)| drives.scaled(name)).collect(),
            each_ns: SECOND,
            worker_percent: together.worker_percent,
            machine_percent: Some(together.machine_percent),
        });
        let moments: Vec<MemorySample> = self.dstat.iter().map(Dstat::moment).collect();
        all.pagecache = (!moments.is_empty()).then(|| PageCache {
            duration_ns: moments.iter().map(|moment| moment.duration_ns).sum(),
            moments,
            ..PageCache::default()
        });
        all.threads = self.psn.as_ref().map(Psn::threads);
        all
    }
}

impl Drives {
    fn case(&self, name: &str, number: usize) -> Case {
        let mut case = Case::new(self.ios_per_second.unwrap_or(1), 1);
        let tags = if self.layers.is_empty() { NVME_TAGS } else { 0 };
        let disk = case.disk();
        disk.name = name.to_string();
        disk.model.clone_from(&self.model);
        disk.driver = Some(self.driver.clone().unwrap_or_else(|| "nvme".to_string()));
        disk.scheduler = Some(self.scheduler.clone().unwrap_or_else(|| "none".to_string()));
        disk.max_request_bytes = self.max_request_kib.unwrap_or(1024) << 10;
        disk.max_hw_request_bytes = self.max_hw_request_kib.unwrap_or(1024) << 10;
        disk.root_complex.clone_from(&self.root_complex);
        disk.numa_node = self.numa_node;
        disk.layers.clone_from(&self.layers);
        disk.queues = vec![HardwareQueue { tags, ..HardwareQueue::default() }];
        disk.pci_address = self.layers.is_empty().then(|| format!("0000:{:02x}:00.0", 0x40 + number));
        let own = self.link.iter().map(|lanes| Hop {
            function: format!("0000:{:02x}:00.0", 0x40 + number),
            port: None,
            link: lanes.link(),
        });
        let shared = self.uplink.iter().map(|lanes| Hop {
            function: lanes.at.clone().expect("the name of the uplink's port"),
            port: None,
            link: lanes.link(),
        });
        disk.hops = own.chain(shared).collect();
        disk.link = self.link.as_ref().map(Lanes::link);
        let device = &mut case.latency.devices[0];
        device.name = name.to_string();
        device.splits = self.splits_per_second;
        device.layers = self.layers.iter().map(|name| Layer::from(name.as_str())).collect();
        device.bio_based = !self.layers.is_empty();
        case.read().bytes = self.bytes_per_second;
        case.read().request_stages.clear();
        if let Some(mean) = self.queue_us.map(ns) {
            case.stage(Stage::Queue, mean, mean);
        }
        if let Some(mean) = self.device_us.map(ns) {
            case.stage(Stage::Device, mean, self.device_min_us.map_or(mean, ns));
        }
        case
    }

    fn scaled(&self, name: &str) -> Option<DriveScaling> {
        Some(DriveScaling {
            target: format!("/dev/{name}"),
            device: Some(name.to_string()),
            alone: Some(self.alone?),
            together: Some(self.together?),
        })
    }
}

impl Driven {
    fn begin(&self, case: &mut Case) {
        let jobs = u64::from(self.numjobs);
        let mean = u64::from(self.iodepth) * jobs * SECOND / self.operations_per_second;
        let load = case.load.as_mut().expect("a load");
        load.job.set_bs(self.block_bytes);
        (load.job.iodepth, load.job.numjobs) = (self.iodepth, self.numjobs);
        load.device = Some(self.target.clone());
        load.drive.sampled =
            self.zero_blocks.map(|zeros| BlockCounts { samples: 64, zeros, ..BlockCounts::default() });
        let percent = |share: Option<f64>| (share.unwrap_or(0.0) / 100.0 * SECOND as f64) as u64;
        let mut job = JobResult {
            user_ns: percent(self.user_percent),
            system_ns: percent(self.system_percent),
            duration_ns: SECOND,
            ..JobResult::default()
        };
        let operations = self.operations_per_second / jobs;
        let mean = self.latency_us.map_or(mean, ns);
        job.transfers[0].operations = operations;
        job.transfers[0].bytes = operations * self.block_bytes;
        job.transfers[0].lat = hist(operations, mean, mean);
        load.jobs = (0..self.numjobs)
            .map(|number| {
                let cpu = self.first_cpu.map(|first| if self.one_cpu { first } else { first + number });
                JobResult { number, cpu, ..job.clone() }
            })
            .collect();
    }
}

impl Busy {
    fn profile(&self, cpus: u32) -> crate::analyze::stacks::ProfileSummary {
        // A thousand samples are all CPUs.
        let samples = |percent: f64| (percent * 10.0).round() as u64;
        let mut seen = profile(&[
            (CpuClass::User, samples(self.user_percent)),
            (CpuClass::System, samples(self.system_percent)),
            (CpuClass::Irq, samples(self.interrupt_percent)),
        ]);
        seen.cpus = cpus;
        if !self.stacks.is_empty() {
            seen.folded.clone_from(&self.stacks);
        }
        seen
    }
}

fn parsed(name: &str, text: &str) -> Recorded {
    serde_json::from_str(text).unwrap_or_else(|err| panic!("tests/cases/{name}.json: {err}"))
}

/// The run of that file.
pub fn recorded(name: &str) -> Case {
    let (_, text) = FILES.iter().find(|(known, _)| *known == name).expect("a file of tests/cases");
    parsed(name, text).case()
}

fn judge(name: &str, text: &str) -> Result<(), String> {
    let recorded = parsed(name, text);
    let Expect { first, also, never } = &recorded.expect;
    if first.is_empty() || recorded.source.is_empty() || recorded.reason.is_empty() {
        return Err("no expectation, source or reason".to_string());
    }
    let ids = first.iter().chain(also).chain(never);
    if let Some(id) = ids.into_iter().find(|id| !TABLE.iter().any(|(_, rule)| rule.id == **id)) {
        return Err(format!("no rule is called {id}"));
    }
    let values: serde_json::Value = serde_json::from_str(text).expect("it was parsed before");
    if let Some((at, _)) =
        recorded.assumed.iter().find(|(at, why)| values.pointer(at).is_none() || why.is_empty())
    {
        return Err(format!("assumes {at}, which is not there or has no reason"));
    }
    let case = recorded.case();
    let found = diagnose(&case.summaries()).findings;
    let all: Vec<String> = found
        .iter()
        .map(|one| format!("{:?} {:.2} {}: {}", one.severity, one.confidence, one.id, one.sentence))
        .collect();
    let all = all.join("\n    ");
    if !first.contains(found[0].id) {
        return Err(format!("the answer is not {first:?}:\n    {all}"));
    }
    if let Some(id) = also.iter().find(|id| found.iter().all(|one| one.id != **id)) {
        return Err(format!("without {id}:\n    {all}"));
    }
    if let Some(id) =
        never.iter().find(|id| found.iter().any(|one| one.id == **id && one.severity > Severity::Note))
    {
        return Err(format!("with {id}:\n    {all}"));
    }
    Ok(())
}

#[test]
fn each_source_gets_its_answer() {
    assert!(!FILES.is_empty());
    let wrong: Vec<String> = FILES
        .iter()
        .filter_map(|(name, text)| Some(format!("{name}: {}", judge(name, text).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
