//! Literal summaries for the tests of the rules.

use std::collections::BTreeMap;

use super::Summaries;
use super::inputs::{Locks, PageCache, ThreadsInput};
use crate::analyze::cpu::CpuSummary;
use crate::analyze::interrupts::{
    Busiest, CompletionContexts, CompletionCounts, CpuInterrupts, DeviceInterrupts, InterruptSummary,
    KnownBy, VectorSummary,
};
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use crate::analyze::op::Op;
use crate::analyze::queues::QueueLatency;
use crate::analyze::rates::DeviceRates;
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::analyze::stage::Stage;
use crate::envelope::Envelope;
use crate::experiment::{Arm, ArmResult, BlockResult, Curve};
use crate::hist::Histogram;
use crate::host::cpu_quota::CpuQuota;
use crate::host::{BlockDevice, HardwareQueue, Hop, Host, Link};
use crate::load::{Direction, Failures, Job, JobResult, LoadSummary, RingWorkers, Scaling, Target, Transfer};

pub const SECOND: u64 = 1_000_000_000;

/// A run that tests modify: one second, one disk `vda`, 4 KiB random reads, one job.
pub struct Case {
    pub envelope: Envelope,
    pub host: Host,
    pub latency: LatencySummary,
    pub command: bool,
    pub rates: Vec<DeviceRates>,
    pub load: Option<LoadSummary>,
    pub scaling: Option<Scaling>,
    pub experiment: Option<Curve>,
    pub cpu: Option<CpuSummary>,
    pub quotas: Vec<CpuQuota>,
    pub profile: Option<ProfileSummary>,
    pub interrupts: Option<InterruptSummary>,
    pub locks: Option<Locks>,
    pub pagecache: Option<PageCache>,
    pub threads: Option<ThreadsInput>,
}

/// `count` values of `value` each, except for the first one, which is `min`.
pub fn hist(count: u64, value: u64, min: u64) -> Histogram {
    let mut counts = vec![0; crate::hist::BUCKETS];
    counts[crate::hist::index(value)] += count - 1;
    counts[crate::hist::index(min)] += 1;
    Histogram::from_parts(&counts, (count - 1) * value + min, min, value)
}

impl Case {
    /// Twice the depth gives `ratio` times the rate, and half the depth half of that.
    pub fn at_twice_the_depth(&mut self, ratio: f64) {
        let load = self.load.as_ref().unwrap();
        let (rate, depth) = (load.iops().unwrap(), load.job.iodepth);
        let arm = |arm, iodepth, rate: f64| ArmResult {
            arm,
            iodepth,
            numjobs: 1,
            ratio: None,
            // Blocks differ by a percent.
            blocks: (0..6)
                .map(|n| 1.0 + 0.002 * f64::from(n % 3))
                .map(|drift| BlockResult {
                    operations_per_second: rate * drift,
                    mean_ns: Some(f64::from(iodepth) * 1e9 / rate),
                })
                .collect(),
        };
        let arms = vec![
            arm(Arm::HalfTheDepth, depth.div_ceil(2), rate * (0.5 + 0.5 / ratio)),
            arm(Arm::TheSame, depth, rate),
            arm(Arm::TwiceTheDepth, 2 * depth, rate * ratio),
        ];
        self.experiment = Some(Curve { arms, block_ns: 150_000_000, ..Curve::default() }.derived());
    }

    /// `ios` reads in a second at `depth`: 95 % of their time in the device, median at five times the fastest, a worker
    /// at 30 % of its CPU.
    pub fn new(ios: u64, depth: u32) -> Self {
        let total = SECOND * u64::from(depth) / ios;
        let mut case = Self {
            envelope: Envelope { duration_ns: SECOND, ..Envelope::default() },
            host: Host {
                cpus_online: 2,
                cpus_possible: 2,
                devices: vec![BlockDevice {
                    name: "vda".into(),
                    driver: Some("virtio_blk".into()),
                    scheduler: Some("none".into()),
                    max_request_bytes: 1 << 20,
                    max_hw_request_bytes: 1 << 20,
                    request_based: true,
                    queues: vec![HardwareQueue { tags: 256, ..HardwareQueue::default() }],
                    ..BlockDevice::default()
                }],
                ..Host::default()
            },
            latency: LatencySummary {
                duration_ns: SECOND,
                devices: vec![DeviceLatency {
                    name: "vda".into(),
                    ops: BTreeMap::from([(Op::Read, OpLatency::default())]),
                    queues: vec![QueueLatency { ios, ..QueueLatency::default() }],
                    ..DeviceLatency::default()
                }],
                ..LatencySummary::default()
            },
            command: false,
            rates: Vec::new(),
            load: Some(LoadSummary {
                job: Job { iodepth: depth, ..Job::new(Target::Existing("/dev/vda".into())) },
                target: "/dev/vda".into(),
                device: Some("vda".into()),
                size: 1 << 30,
                fill: None,
                duration_ns: SECOND,
                jobs: vec![JobResult { user_ns: SECOND / 10, system_ns: SECOND / 5, ..JobResult::default() }],
                ring_workers: Some(RingWorkers::default()),
                drive: Default::default(),
                clock: None,
                missing: Vec::new(),
            }),
            cpu: None,
            quotas: Vec::new(),
            profile: Some(profile(&[(CpuClass::System, 100), (CpuClass::User, 50), (CpuClass::Irq, 50)])),
            interrupts: None,
            scaling: None,
            experiment: None,
            locks: None,
            pagecache: None,
            threads: None,
        };
        case.loaded().operations = ios;
        case.loaded().bytes = ios * 4096;
        case.loaded().lat = hist(ios, total, total / 5);
        case.read().ios = ios;
        case.read().bytes = ios * 4096;
        case.latency.devices[0].ios = ios;
        case.stage(Stage::Queue, total / 20, total / 40);
        case.stage(Stage::Device, total * 19 / 20, total * 19 / 100);
        case
    }

    pub fn summaries(&self) -> Summaries<'_> {
        Summaries {
            envelope: &self.envelope,
            host: &self.host,
            latency: &self.latency,
            command: self.command,
            rates: &self.rates,
            interrupts: self.interrupts.as_ref(),
            load: self.load.as_ref(),
            scaling: self.scaling.as_ref(),
            experiment: self.experiment.as_ref(),
            cpu: self.cpu.as_ref(),
            quotas: &self.quotas,
            profile: self.profile.as_ref(),
            locks: self.locks.as_ref(),
            pagecache: self.pagecache.as_ref(),
            threads: self.threads.as_ref(),
        }
    }

    /// The disk's reads.
    pub fn read(&mut self) -> &mut OpLatency {
        self.latency.devices[0].ops.entry(Op::Read).or_default()
    }

    /// Sets a stage of every read to `value`, the fastest to `min`.
    pub fn stage(&mut self, stage: Stage, value: u64, min: u64) {
        let ios = self.read().ios;
        self.read().request_stages.insert(stage, hist(ios, value, min));
    }

    /// The reads of the load's worker.
    pub fn loaded(&mut self) -> &mut Transfer {
        &mut self.load.as_mut().expect("a load").jobs[0].transfers[Direction::Read.index()]
    }

    /// Makes `count` of its reads fail.
    pub fn failed(&mut self, count: u64) {
        let failures = Failures { direction: Direction::Read, errno: libc::EIO, count };
        self.load.as_mut().expect("a load").jobs[0].failures = vec![failures];
    }

    /// User and system time of the worker, in percent of its CPU.
    pub fn worker(&mut self, user: u64, system: u64) {
        let job = &mut self.load.as_mut().expect("a load").jobs[0];
        (job.user_ns, job.system_ns) = (user * SECOND / 100, system * SECOND / 100);
    }

    pub fn disk(&mut self) -> &mut BlockDevice {
        &mut self.host.devices[0]
    }

    /// Attaches the disk to a link of four lanes with line rate `raw`: 8 GT/s, at a port of equal speed. `payload`
    /// None: not readable.
    pub fn at_link(&mut self, raw: f64, payload: Option<u32>) {
        let usable = |bytes: u32| raw * f64::from(bytes) / f64::from(bytes + 24);
        let link = Link {
            speed_gts: 8.0,
            width: 4,
            max_speed_gts: Some(8.0),
            max_width: Some(4),
            port_max_speed_gts: Some(8.0),
            port_max_width: Some(4),
            raw_bytes_per_second: raw,
            payload_bytes: payload,
            usable_bytes_per_second: [128, 512].map(|usual| usable(payload.unwrap_or(usual))),
            aspm: None,
        };
        let port = Some("0000:40:01.1".to_string());
        let disk = self.disk();
        disk.hops = vec![Hop { function: "0000:41:00.0".into(), port, link: link.clone() }];
        disk.link = Some(link);
    }

    /// Adds a copy of the first disk with the same I/O, at its own link if there is one.
    pub fn twin(&mut self, name: &str) {
        let mut device = self.latency.devices[0].clone();
        let mut disk = self.host.devices[0].clone();
        (device.name, disk.name) = (name.into(), name.into());
        if let Some(own) = disk.hops.first_mut() {
            own.function = format!("0000:{:02x}:00.0", 0x41 + self.host.devices.len());
        }
        self.latency.devices.push(device);
        self.host.devices.push(disk);
    }

    /// Adds a vector of the disk with these interrupts per CPU, one of eight timed and each `handler_ns` long, with
    /// `carried` completions each; the disk's interrupts grow by it.
    pub fn interrupt(&mut self, irq: u32, by_cpu: &[(u32, u64)], handler_ns: u64, carried: u64) {
        let name = self.host.devices[0].name.clone();
        let ios = self.latency.devices[0].ios;
        let all = self.interrupts.get_or_insert_with(|| InterruptSummary {
            duration_ns: SECOND,
            devices: vec![DeviceInterrupts {
                name: name.clone(),
                ios,
                completed: CompletionContexts { interrupt: ios, ..CompletionContexts::default() },
                ..DeviceInterrupts::default()
            }],
            ..InterruptSummary::default()
        });
        let interrupts: u64 = by_cpu.iter().map(|(_, n)| n).sum();
        let cpus: Vec<u32> = by_cpu.iter().map(|(cpu, _)| *cpu).collect();
        let mut vector = VectorSummary {
            irq,
            name: Some(format!("req.{irq}")),
            devices: vec![name],
            queue: Some(all.vectors.len() as u32),
            queue_known_by: Some(KnownBy::Pointer),
            allowed: cpus.clone(),
            cpus,
            interrupts,
            by_cpu: by_cpu
                .iter()
                .map(|(cpu, interrupts)| CpuInterrupts { cpu: *cpu, interrupts: *interrupts })
                .collect(),
            carried: Some(CompletionCounts {
                completions: interrupts * carried,
                ..CompletionCounts::default()
            }),
            ..VectorSummary::default()
        };
        vector.handler.record_many(handler_ns, interrupts / 8);
        if let Some(of) = &mut vector.carried {
            of.per_interrupt.record_many(carried, interrupts);
        }
        all.vectors.push(vector);
        let mut on: BTreeMap<u32, u64> = BTreeMap::new();
        for of in all.vectors.iter().flat_map(|vector| &vector.by_cpu) {
            *on.entry(of.cpu).or_default() += of.interrupts;
        }
        let sum: u64 = on.values().sum();
        let (cpu, most) = on.iter().max_by_key(|(_, n)| **n).map_or((0, 0), |(cpu, n)| (*cpu, *n));
        let device = &mut all.devices[0];
        device.interrupts = Some(sum);
        device.ios_per_interrupt = (sum > 0).then(|| device.ios as f64 / sum as f64);
        let share = most as f64 / sum.max(1) as f64;
        device.busiest = Some(Busiest { cpu, share, cpus: on.len() as u32 });
    }

    /// Makes all of the disk's I/Os end in softirqs, which take `percent` of one CPU; `local` of them on the CPU of the
    /// interrupt.
    pub fn soft(&mut self, percent: f64, local: u64) {
        let all = self.interrupts.as_mut().expect("interrupts");
        (all.softirq.runs, all.softirq.cpu_percent) = (1_000, Some(percent));
        let device = &mut all.devices[0];
        device.completed = CompletionContexts {
            softirq: local,
            remote_softirq: device.ios - local,
            ..CompletionContexts::default()
        };
        device.soft_percent = Some(percent);
    }

    /// Sets reads and bytes of all disks to the given rate.
    pub fn reads(&mut self, rate: f64) {
        for device in &mut self.latency.devices {
            let read = device.ops.get_mut(&Op::Read).expect("reads");
            read.bytes = rate as u64;
        }
    }
}

/// Two CPUs, one second, a thousand samples: 500 are one CPU. The rest is idle.
pub fn profile(classes: &[(CpuClass, u64)]) -> ProfileSummary {
    let mut classes: BTreeMap<CpuClass, u64> = classes.iter().copied().collect();
    let busy: u64 = classes.values().sum();
    classes.insert(CpuClass::Idle, 1000 - busy);
    ProfileSummary {
        sampler: "cycles".into(),
        frequency: 500,
        cpus: 2,
        duration_ns: SECOND,
        samples: 1000,
        classes,
        folded: BTreeMap::from([("biopsy;io_uring_enter_[k];submit_bio_[k]".to_string(), busy)]),
        ..ProfileSummary::default()
    }
}
