//! fio's figures for one job: a thread, or with `group_reporting` all threads of its group.

use super::bins::Classes;
use crate::hist::Histogram;
use crate::load::sections::groups;
use crate::load::{Direction, JobResult, LoadSummary, ServedLatencies, TransferSample, served};

/// fio's statistics of a series of samples; all 0 without any.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Over n − 1.
    pub deviation: f64,
    pub samples: u64,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            min: values.iter().copied().fold(f64::MAX, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: (squares / (values.len().max(2) - 1) as f64).sqrt(),
            samples: values.len() as u64,
        }
    }

    /// Adds two threads' rates as fio does: exact for the mean, and for the extremes if both had them at the same time.
    fn add(&mut self, other: &Self) {
        let squares = |of: &Self| of.deviation.powi(2) * (of.samples.max(1) - 1) as f64;
        let together = squares(self) + squares(other);
        self.min += other.min;
        self.max += other.max;
        self.mean += other.mean;
        self.samples += other.samples;
        self.deviation = (together / (self.samples.max(2) - 1) as f64).sqrt();
    }
}

/// The figures of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DirectionFigures {
    pub operations: u64,
    pub bytes: u64,
    pub short: u64,
    /// Of the thread that took longest; 0 if nothing was transferred.
    pub duration_ns: u64,
    pub slat: Histogram,
    pub clat: Histogram,
    pub lat: Histogram,
    /// By I/O priority, if there are several.
    pub priorities: Vec<ServedLatencies>,
    /// KiB/s, and I/Os per second.
    pub bandwidth: Moments,
    pub rates: Moments,
    /// The mean bandwidth as a share of the whole group's.
    pub share_percent: f64,
}

impl DirectionFigures {
    pub fn runtime_ms(&self) -> u64 {
        self.duration_ns.div_ceil(1_000_000)
    }

    pub fn iops(&self) -> f64 {
        per_second(self.operations, self.duration_ns)
    }

    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.duration_ns)
    }

    /// Percentiles are those of `clat`, unless it was not measured.
    pub fn percentiles_of_lat(&self) -> bool {
        self.clat.is_empty() && !self.lat.is_empty()
    }

    fn add(&mut self, job: &JobResult, direction: Direction) {
        let moved = &job.transfers[direction.index()];
        self.operations += moved.operations;
        self.bytes += moved.bytes;
        self.short += moved.short;
        if moved.operations > 0 {
            self.duration_ns = self.duration_ns.max(job.duration_ns);
        }
        self.slat.merge(&moved.slat);
        self.clat.merge(&moved.clat);
        self.lat.merge(&moved.lat);
        for one in served(std::iter::once(job), direction) {
            match self.priorities.iter_mut().find(|other| other.priority == one.priority) {
                Some(other) => {
                    other.clat.merge(&one.clat);
                    other.lat.merge(&one.lat);
                }
                None => self.priorities.push(one),
            }
        }
        // A direction without any operation has no samples; a pause of an active one is a sample.
        if moved.operations > 0 {
            let series = |value: fn(&TransferSample, usize) -> u64, unit: f64| {
                let rate = |sample: &TransferSample| {
                    per_second(value(sample, direction.index()), sample.duration_ns) / unit
                };
                Moments::of(&job.samples.iter().map(rate).collect::<Vec<_>>())
            };
            self.bandwidth.add(&series(|sample, at| sample.bytes[at], 1024.0));
            self.rates.add(&series(|sample, at| sample.operations[at], 1.0));
        }
    }
}

/// A thread or a group of threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry<'a> {
    /// Supplies the name and options: the first section.
    pub section: &'a LoadSummary,
    /// Concurrent jobs have the same number.
    pub group: usize,
    pub started_ms: Option<u64>,
    /// Linux errno of the first error, 0 without one.
    pub error: i32,
    pub errors: u64,
    /// With `latency_target`: the smallest depth that a thread found.
    pub latency_depth: Option<u32>,
    pub ways: [DirectionFigures; 3],
    pub syncs: Histogram,
    /// Sum over all its threads, as are the CPU times.
    pub runtime_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
    pub submitted: Histogram,
    pub reaped: Histogram,
    /// Completion latencies of all directions, by class.
    pub times: Classes,
    depths: Histogram,
}

impl<'a> Entry<'a> {
    fn new(section: &'a LoadSummary, group: usize) -> Self {
        Self {
            section,
            group,
            started_ms: None,
            error: 0,
            errors: 0,
            ways: Default::default(),
            latency_depth: None,
            syncs: Histogram::default(),
            runtime_ns: 0,
            user_ns: 0,
            system_ns: 0,
            context_switches: 0,
            major_faults: 0,
            minor_faults: 0,
            submitted: Histogram::default(),
            reaped: Histogram::default(),
            times: Classes::default(),
            depths: Histogram::default(),
        }
    }

    fn add(&mut self, job: &JobResult) {
        self.started_ms = self.started_ms.into_iter().chain(job.started_ms).min();
        if self.error == 0 {
            // fio's error for a rate below its minimum.
            let too_slow = job.too_slow.is_some().then_some(libc::EIO);
            self.error = job.first_errno.or(too_slow).unwrap_or(0);
        }
        self.errors += job.errors();
        self.latency_depth = self.latency_depth.into_iter().chain(job.latency_depth).min();
        for (way, direction) in self.ways.iter_mut().zip(Direction::ALL) {
            way.add(job, direction);
        }
        self.syncs.merge(&job.syncs);
        self.runtime_ns += job.duration_ns;
        self.user_ns += job.user_ns;
        self.system_ns += job.system_ns;
        self.context_switches += job.context_switches;
        self.major_faults += job.major_faults;
        self.minor_faults += job.minor_faults;
        self.submitted.merge(&job.submitted);
        self.reaped.merge(&job.reaped);
        self.depths.merge(&job.depths);
    }

    /// In percent of one CPU, over the time of its threads; 0 before anything ran.
    pub fn cpu_percent(&self, ns: u64) -> f64 {
        if self.runtime_ns > 0 { ns as f64 * 100.0 / self.runtime_ns as f64 } else { 0.0 }
    }

    /// Distribution of the queue depth in percent of the operations: 1, 2 to 3, 4 to 7 and so on, 64 and more. If it
    /// was not measured and only depth 1 is possible, it is that.
    pub fn depth_shares(&self) -> [f64; 7] {
        let job = &self.section.job;
        let alone = job.iodepth == 1 || job.engine.is_synchronous();
        if self.depths.is_empty() && alone && self.ways.iter().any(|way| way.operations > 0) {
            return [100.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        }
        distribution(&self.depths, |depth| depth.max(1).ilog2().min(6) as usize)
    }
}

/// Operations per call, in percent of the calls: none, up to 4, 8, 16, 32 and 64, and more.
pub fn call_shares(calls: &Histogram) -> [f64; 7] {
    distribution(calls, |n| match n {
        0 => 0,
        1..=4 => 1,
        65.. => 6,
        more => more.next_power_of_two().ilog2() as usize - 1,
    })
}

/// Shares by class. A bucket counts at its lower end: full queues and batches are powers of two, which begin a bucket.
fn distribution(hist: &Histogram, class: impl Fn(u64) -> usize) -> [f64; 7] {
    let mut counts = [0; 7];
    hist.buckets().for_each(|(lower, _, n)| counts[class(lower)] += n);
    counts.map(|n: u64| match n {
        0 => 0.0,
        // As in fio: a non-zero share is shown.
        n => (n as f64 * 100.0 / hist.count() as f64).max(0.1),
    })
}

/// fio's entries, in its order. As in fio, consecutive concurrent sections with `group_reporting` are one.
pub fn entries(loads: &[LoadSummary]) -> Vec<Entry<'_>> {
    let mut all: Vec<Entry<'_>> = Vec::new();
    for (group, sections) in groups(loads).into_iter().enumerate() {
        let first = all.len();
        for (at, section) in sections.iter().enumerate() {
            if !section.job.group_reporting {
                all.extend(section.jobs.iter().map(|job| {
                    let mut entry = Entry::new(section, group);
                    entry.add(job);
                    entry
                }));
                continue;
            }
            let goes_on = at > 0 && sections[at - 1].job.group_reporting;
            let mut entry = all.pop_if(|_| goes_on).unwrap_or_else(|| Entry::new(section, group));
            section.jobs.iter().for_each(|job| entry.add(job));
            // The workers' time cannot be attributed to a thread, so entries of single threads exclude it.
            entry.system_ns += section.ring_workers.map_or(0, |workers| workers.system_ns);
            all.push(entry);
        }
        finish(&mut all[first..]);
    }
    all
}

/// Computes what needs all of a group's entries.
fn finish(group: &mut [Entry<'_>]) {
    for at in 0..3 {
        let bytes = group.iter().map(|entry| entry.ways[at].bytes).sum();
        let longest = group.iter().map(|entry| entry.ways[at].duration_ns).max().unwrap_or(0);
        let all = per_second(bytes, longest) / 1024.0;
        for way in group.iter_mut().map(|entry| &mut entry.ways[at]).filter(|way| way.bandwidth.samples > 0) {
            way.share_percent = if all > 0.0 { (way.bandwidth.mean * 100.0 / all).min(100.0) } else { 100.0 };
        }
    }
    for entry in group {
        let mut times = Histogram::default();
        for way in &entry.ways {
            times.merge(if way.percentiles_of_lat() { &way.lat } else { &way.clat });
        }
        entry.times = Classes::of(&times);
    }
}

/// 0 before anything ran, as in fio.
fn per_second(amount: u64, ns: u64) -> f64 {
    if ns > 0 { amount as f64 * 1e9 / ns as f64 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Job, Target};

    #[test]
    fn depths_and_calls_fall_into_fio_s_classes() {
        let level = |depth: u64| {
            let mut load = section("a", 1, |_| ());
            load.jobs[0].depths.record(depth);
            let shares = entries(std::slice::from_ref(&load))[0].depth_shares();
            shares.iter().position(|share| *share == 100.0).unwrap()
        };
        assert_eq!([1, 2, 3, 4, 8, 31, 32, 63, 64, 4096].map(level), [0, 1, 1, 2, 3, 4, 5, 5, 6, 6]);
        let call = |n: u64| {
            call_shares(&Histogram::from_iter([n])).iter().position(|share| *share == 100.0).unwrap()
        };
        assert_eq!([0, 1, 4, 5, 8, 9, 16, 17, 32, 64, 128].map(call), [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6]);
        assert_eq!(call_shares(&Histogram::default()), [0.0; 7]);
        let rare = call_shares(&Histogram::from_iter([&[1][..], &[32; 9_999]].concat()));
        assert_eq!((rare[1], rare[5]), (0.1, 0.0), "what is there is told");
    }

    fn section(name: &str, threads: usize, change: impl Fn(&mut Job)) -> LoadSummary {
        let mut job = Job { name: name.to_string(), ..Job::new(Target::Existing("/dev/sda".into())) };
        change(&mut job);
        let result = JobResult { duration_ns: 500, ..JobResult::default() };
        LoadSummary {
            job,
            target: "/dev/sda".to_string(),
            device: None,
            size: 1 << 20,
            fill: None,
            duration_ns: 500,
            jobs: vec![result; threads],
            ring_workers: None,
            drive: Default::default(),
            clock: None,
            missing: Vec::new(),
        }
    }

    #[test]
    fn entries_are_threads_or_groups() {
        let loads = [
            section("a", 1, |_| ()),
            section("b", 2, |_| ()),
            section("c", 2, |job| (job.stonewall, job.group_reporting) = (true, false)),
            section("d", 3, |_| ()),
            section("e", 1, |job| job.stonewall = true),
        ];
        let told: Vec<(&str, usize, u64)> = entries(&loads)
            .iter()
            .map(|entry| (entry.section.job.name.as_str(), entry.group, entry.runtime_ns / 500))
            .collect();
        assert_eq!(told, [("a", 0, 3), ("c", 1, 1), ("c", 1, 1), ("d", 1, 3), ("e", 2, 1)]);
        assert!(entries(&[]).is_empty());
    }

    #[test]
    fn samples_of_threads_add_up_as_fio_adds_them() {
        let sample = |operations| TransferSample {
            duration_ns: 500_000_000,
            operations: [operations, 0, 0],
            bytes: [0; 3],
            ..TransferSample::default()
        };
        let mut load = section("a", 2, |_| ());
        for (job, rates) in load.jobs.iter_mut().zip([[100, 200], [300, 300]]) {
            job.samples = rates.map(sample).to_vec();
            job.transfers[0].operations = 1;
        }
        let all = entries(std::slice::from_ref(&load));
        let rates = all[0].ways[0].rates;
        assert_eq!((rates.min, rates.max, rates.mean, rates.samples), (800.0, 1000.0, 900.0, 4));
        assert!((rates.deviation - (20_000.0f64 / 3.0).sqrt()).abs() < 1e-9, "{}", rates.deviation);
        assert_eq!(all[0].ways[1].rates, Moments::default(), "a direction that moved nothing has no samples");
    }
}
