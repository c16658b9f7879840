//! Summaries as literals, for the tests of the rules.

use std::collections::BTreeMap;

use super::Summaries;
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use crate::analyze::op::Op;
use crate::analyze::queues::QueueLatency;
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::analyze::stage::Stage;
use crate::envelope::Envelope;
use crate::hist::Histogram;
use crate::host::{BlockDevice, HardwareQueue, Host};
use crate::load::{Direction, Failures, Job, JobResult, LoadSummary, RingWorkers, Target, Transfer};

pub const SECOND: u64 = 1_000_000_000;

/// One run that tests bend into shape: one second, one disk `vda`, 4 KiB random reads, one job.
pub struct Case {
    pub envelope: Envelope,
    pub host: Host,
    pub latency: LatencySummary,
    pub load: Option<LoadSummary>,
    pub profile: Option<ProfileSummary>,
}

/// `count` values of `value` each, but the first one, which is `min`.
pub fn hist(count: u64, value: u64, min: u64) -> Histogram {
    let mut counts = vec![0; crate::hist::BUCKETS];
    counts[crate::hist::index(value)] += count - 1;
    counts[crate::hist::index(min)] += 1;
    Histogram::from_parts(&counts, (count - 1) * value + min, min, value)
}

impl Case {
    /// `ios` reads in a second at `depth`: 95 % of their time in the device, median at five times the
    /// fastest, a worker at 30 % of its CPU.
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
            profile: Some(profile(&[(CpuClass::System, 100), (CpuClass::User, 50), (CpuClass::Irq, 50)])),
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
            load: self.load.as_ref(),
            profile: self.profile.as_ref(),
        }
    }

    /// The disk's reads.
    pub fn read(&mut self) -> &mut OpLatency {
        self.latency.devices[0].ops.entry(Op::Read).or_default()
    }

    /// Sets a stage of every read: `value`, the fastest `min`.
    pub fn stage(&mut self, stage: Stage, value: u64, min: u64) {
        let ios = self.read().ios;
        self.read().request_stages.insert(stage, hist(ios, value, min));
    }

    /// What the load's worker read.
    pub fn loaded(&mut self) -> &mut Transfer {
        &mut self.load.as_mut().expect("a load").jobs[0].transfers[Direction::Read.index()]
    }

    /// So many of its reads failed.
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
}

/// Two CPUs, one second, a thousand samples: 500 are one CPU. What is not named is idle.
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
