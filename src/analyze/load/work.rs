//! The work of a load's threads: of one thread, or of all threads of a section.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hist::{Histogram, counts};
use crate::load::{
    ClockQuality, Direction, Failures, JobResult, LoadSummary, OwnLimit, ReadBack, RingWorkers,
    ServedLatencies, Transfer, served,
};

/// What a thread did, or all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Work {
    /// Operations that succeeded.
    pub ios: u64,
    pub bytes: u64,
    /// Only those that the pattern has.
    pub directions: BTreeMap<Direction, DirectionRecord>,
    /// Operations that failed.
    pub errors: u64,
    pub failures: Vec<FailureRecord>,
    /// Operations that were due and did not begin; null without a rate.
    pub never_began: Option<u64>,
    /// With `latency_target`: the queue depth at which latencies stay within it; absent where none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_depth: Option<u32>,
    /// Blocks that were read back as they were written.
    pub verified: Option<u64>,
    /// The first block that was not.
    pub mismatch: Option<String>,
    pub user_ns: u64,
    /// That of all threads of a section has that of `ring_workers`.
    pub system_ns: u64,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    /// Calls that submitted something.
    pub submits: u64,
    pub ios_per_submit: Option<f64>,
    /// Operations of each of these calls.
    #[serde(with = "counts")]
    #[schemars(with = "counts::Form")]
    pub submitted: Histogram,
    /// How often results were looked for and found.
    pub reaps: u64,
    pub ios_per_reap: Option<f64>,
    /// Results each time.
    #[serde(with = "counts")]
    #[schemars(with = "counts::Form")]
    pub reaped: Histogram,
    /// Operations in flight behind each submission.
    #[serde(with = "counts::optional")]
    #[schemars(with = "Option<counts::Form>")]
    pub in_flight: Option<Histogram>,
    /// Of all directions.
    pub latency: Histogram,
    /// fsync and fdatasync calls.
    pub syncs: Option<Histogram>,
}

impl Work {
    /// The sum of these threads over the given duration; `failures` are theirs.
    pub fn of(
        jobs: &[JobResult],
        failures: &[Failures],
        directions: impl Iterator<Item = Direction>,
        duration_ns: u64,
    ) -> Self {
        let sum = |of: fn(&JobResult) -> u64| jobs.iter().map(of).sum::<u64>();
        let known = |of: fn(&JobResult) -> Option<u64>| jobs.iter().filter_map(of).reduce(|a, b| a + b);
        let merged = |of: fn(&JobResult) -> &Histogram| {
            let mut all = Histogram::default();
            jobs.iter().for_each(|job| all.merge(of(job)));
            all
        };
        let mut latency = Histogram::default();
        jobs.iter().for_each(|job| latency.merge(&job.latency()));
        let (submitted, reaped) = (merged(|job| &job.submitted), merged(|job| &job.reaped));
        let (ios, errors) = (sum(JobResult::operations), sum(JobResult::errors));
        // Without calls there is no ratio.
        let per =
            |calls: &Histogram| (!calls.is_empty()).then(|| (ios + errors) as f64 / calls.count() as f64);
        Self {
            ios,
            bytes: sum(JobResult::bytes),
            directions: directions.map(|one| (one, DirectionRecord::of(jobs, one, duration_ns))).collect(),
            errors,
            failures: failures.iter().map(|kind| FailureRecord::of(kind, jobs)).collect(),
            never_began: known(|job| job.never_began),
            latency_depth: jobs.iter().filter(|job| job.depth_is_found).find_map(|job| job.latency_depth),
            verified: known(|job| job.verified),
            mismatch: jobs.iter().find_map(|job| job.mismatch.clone()),
            user_ns: sum(|job| job.user_ns),
            system_ns: sum(|job| job.system_ns),
            context_switches: sum(|job| job.context_switches),
            major_faults: sum(|job| job.major_faults),
            minor_faults: sum(|job| job.minor_faults),
            submits: submitted.count(),
            ios_per_submit: per(&submitted),
            submitted,
            reaps: reaped.count(),
            ios_per_reap: per(&reaped),
            reaped,
            in_flight: measured(merged(|job| &job.depths)),
            latency,
            syncs: measured(merged(|job| &job.syncs)),
        }
    }
}

/// None: not measured, or it did not happen.
fn measured(hist: Histogram) -> Option<Histogram> {
    Some(hist).filter(|hist| !hist.is_empty())
}

/// What went in one direction. Null: these times were not taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DirectionRecord {
    pub ios: u64,
    pub bytes: u64,
    pub iops: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// Operations that moved fewer bytes than they were to.
    pub short: u64,
    /// As fio has them.
    pub slat: Option<Histogram>,
    pub clat: Option<Histogram>,
    pub lat: Option<Histogram>,
    /// The same by I/O priority, where operations have several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priorities: Vec<PriorityRecord>,
}

/// Operations of one I/O priority.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PriorityRecord {
    /// 1 real-time, 2 best-effort, 3 idle; null: that of the thread.
    pub class: Option<u16>,
    pub level: Option<u16>,
    pub clat: Option<Histogram>,
    pub lat: Option<Histogram>,
}

impl PriorityRecord {
    fn of(one: ServedLatencies) -> Self {
        let (class, level) = one.priority.map(|priority| (priority >> 13, priority & 7)).unzip();
        Self { class, level, clat: measured(one.clat), lat: measured(one.lat) }
    }
}

impl DirectionRecord {
    fn of(jobs: &[JobResult], direction: Direction, duration_ns: u64) -> Self {
        let mut moved = Transfer::default();
        jobs.iter().for_each(|job| moved.merge(&job.transfers[direction.index()]));
        let per_second = |amount: u64| (duration_ns > 0).then(|| amount as f64 * 1e9 / duration_ns as f64);
        Self {
            ios: moved.operations,
            bytes: moved.bytes,
            iops: per_second(moved.operations),
            bytes_per_second: per_second(moved.bytes),
            short: moved.short,
            slat: measured(moved.slat),
            clat: measured(moved.clat),
            lat: measured(moved.lat),
            priorities: served(jobs, direction).into_iter().map(PriorityRecord::of).collect(),
        }
    }
}

/// Operations that failed alike, with the error in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureRecord {
    #[serde(flatten)]
    pub kind: Failures,
    pub error: String,
}

impl FailureRecord {
    fn of(kind: &Failures, jobs: &[JobResult]) -> Self {
        let ended = jobs.iter().map(|job| job.ended[kind.direction.index()]).sum();
        Self { kind: *kind, error: kind.error(ended) }
    }
}

/// One thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadRecord {
    /// That of its section.
    pub name: String,
    pub number: u32,
    /// The CPU that it was pinned to, and the node of its buffers.
    pub cpu: Option<u32>,
    pub node: Option<u32>,
    /// Milliseconds since 1970, without the ramp.
    pub started_ms: Option<u64>,
    pub duration_ns: u64,
    pub first_errno: Option<i32>,
    #[serde(flatten)]
    pub work: Work,
}

impl ThreadRecord {
    fn of(load: &LoadSummary, job: &JobResult) -> Self {
        let alone = std::slice::from_ref(job);
        Self {
            name: load.job.name.clone(),
            number: job.number,
            cpu: job.cpu,
            node: job.node,
            started_ms: job.started_ms,
            duration_ns: job.duration_ns,
            first_errno: job.first_errno,
            work: Work::of(alone, &job.failures, load.job.directions(), job.duration_ns),
        }
    }
}

/// What all threads did together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Totals {
    pub iops: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// Of one CPU.
    pub user_cpu_percent: Option<f64>,
    pub system_cpu_percent: Option<f64>,
    pub ring_workers: Option<RingWorkers>,
    /// The load's own threads are the limit.
    pub limit: Option<LimitRecord>,
    /// How much of what was written was read back; null: that was not asked for.
    pub read_back: Option<ReadBack>,
    /// Writes that had failed or were short.
    pub not_read_back: Option<u64>,
    pub clock: Option<ClockQuality>,
    #[serde(flatten)]
    pub work: Work,
    pub jobs: Vec<ThreadRecord>,
}

impl Totals {
    /// `all` has the threads of all `sections`.
    pub fn of(all: &LoadSummary, sections: &[LoadSummary]) -> Self {
        let any = |direction: &Direction| sections.iter().any(|load| load.job.rw.has(*direction));
        let directions = Direction::ALL.into_iter().filter(any);
        let work = Work::of(&all.jobs, &all.failures(), directions, all.duration_ns);
        let threads =
            sections.iter().flat_map(|load| load.jobs.iter().map(|job| ThreadRecord::of(load, job)));
        Self {
            iops: all.iops(),
            bytes_per_second: all.bytes_per_second(),
            user_cpu_percent: all.cpu_percent(all.user_ns()),
            system_cpu_percent: all.cpu_percent(all.system_ns()),
            ring_workers: all.ring_workers,
            limit: all.own_limit().map(|limit| LimitRecord { id: limit.id().to_string(), limit }),
            read_back: all.read_back(),
            not_read_back: all.read_back().map(|_| all.skipped()),
            clock: all.clock,
            work: Work { system_ns: all.system_ns(), ..work },
            jobs: threads.collect(),
        }
    }
}

/// How the load limits itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRecord {
    /// The finding that a diagnosis would have.
    pub id: String,
    #[serde(flatten)]
    pub limit: OwnLimit,
}
