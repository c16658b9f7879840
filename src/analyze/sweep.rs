//! A sweep: a load repeated with different values of one or several options, and the curves through its points.

use std::collections::BTreeSet;

use super::knee::{Knee, LoadPoint, Shapeless, knee};
use crate::hist::Histogram;
use crate::load::{Job, LoadSummary, sections};
#[cfg(test)]
use crate::load::{JobResult, Target};
use crate::names::names;

/// Options over which a curve can be drawn.
const ORDERED: [&str; 3] = ["iodepth", "numjobs", "bs"];

/// The sweep as requested, and the measured points in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The options with several values.
    pub words: Vec<String>,
    /// Number of requested points.
    pub asked: usize,
    pub points: Vec<SweepPoint>,
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPoint {
    /// A value for each option of the sweep.
    pub values: Vec<String>,
    pub jobs: Vec<Job>,
    /// A summary per job; empty where it could not be run.
    pub loads: Vec<LoadSummary>,
    /// Why its figures must not be trusted, or why it could not be run.
    pub failed: Option<String>,
    /// It was ended early.
    pub cut: bool,
}

names! {
    /// Bytes are more useful than operations where the block size varies.
    pub enum Metric {
        Iops = "iops",
        BytesPerSecond = "bytes_per_second",
    }
}

/// Points that differ in one option only.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The common values: one for each other option.
    pub others: Vec<String>,
    /// Indices into the sweep's points, from the smallest value on.
    pub points: Vec<usize>,
    /// Refers to indices of `points`.
    pub knee: Result<Knee, Shapeless>,
}

/// The curves over one option.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Its index among the options of the sweep.
    pub word: usize,
    pub metric: Metric,
    pub curves: Vec<Curve>,
}

impl Sweep {
    /// The curves over the ordered option with the most values; None where none is ordered.
    pub fn curves(&self) -> Option<Curves> {
        let is_ordered = |word: &String| {
            ORDERED.contains(&word.as_str()) && self.words.iter().filter(|other| *other == word).count() == 1
        };
        let values = |at: usize| self.points.iter().filter_map(|p| p.values.get(at)).collect::<BTreeSet<_>>();
        let ordered = (0..self.words.len()).filter(|at| is_ordered(&self.words[*at]));
        // The first of those with the most values.
        let word = ordered.rev().max_by_key(|at| values(*at).len())?;
        let metric = if self.words[word] == "bs" { Metric::BytesPerSecond } else { Metric::Iops };
        let mut curves: Vec<Curve> = Vec::new();
        for (at, point) in self.points.iter().enumerate().filter(|(_, point)| point.is_good()) {
            let others = others(&point.values, word);
            match curves.iter_mut().find(|curve| curve.others == others) {
                Some(curve) => curve.points.push(at),
                None => curves.push(Curve { others, points: vec![at], knee: Err(Shapeless::FewPoints) }),
            }
        }
        for curve in &mut curves {
            curve.points.sort_by_key(|at| self.points[*at].load_of(&self.words[word]));
            let measured: Option<Vec<LoadPoint>> =
                curve.points.iter().map(|at| self.points[*at].measured(metric)).collect();
            curve.knee = measured.map_or(Err(Shapeless::FewPoints), |points| knee(&points));
        }
        Some(Curves { word, metric, curves })
    }

    /// Points with a failure.
    pub fn failed(&self) -> impl Iterator<Item = (&SweepPoint, &str)> {
        self.points.iter().filter_map(|point| Some((point, point.failed.as_deref()?)))
    }

    /// The sweep was ended before its last point was over.
    pub fn is_cut(&self) -> bool {
        self.points.len() < self.asked || self.points.iter().any(|point| point.cut)
    }

    /// The options with the values of a point: `iodepth 8, rw read`.
    pub fn said(&self, point: &SweepPoint) -> String {
        let pairs = self.words.iter().zip(&point.values);
        pairs.map(|(word, value)| format!("{word} {value}")).collect::<Vec<_>>().join(", ")
    }
}

/// All values except for that of one option.
fn others(values: &[String], word: usize) -> Vec<String> {
    values.iter().enumerate().filter(|(at, _)| *at != word).map(|(_, value)| value.clone()).collect()
}

impl SweepPoint {
    /// Whether its figures can be compared with those of other points.
    pub fn is_good(&self) -> bool {
        self.failed.is_none() && !self.cut && self.duration_ns() > 0
    }

    /// The time in which any job ran: concurrent jobs count once.
    pub fn duration_ns(&self) -> u64 {
        sections::duration_ns(&self.loads)
    }

    /// Per second; None before anything ran.
    pub fn rate(&self, metric: Metric) -> Option<f64> {
        let amount: u64 = match metric {
            Metric::Iops => self.loads.iter().map(LoadSummary::operations).sum(),
            Metric::BytesPerSecond => self.loads.iter().map(LoadSummary::bytes).sum(),
        };
        let ns = self.duration_ns();
        (ns > 0).then(|| amount as f64 * 1e9 / ns as f64)
    }

    /// User and system time of all jobs, in percent of one CPU; None where the kernel reported none.
    pub fn cpu_percent(&self) -> Option<f64> {
        let used: u64 = self.loads.iter().map(|load| load.user_ns() + load.system_ns()).sum();
        let ns = self.duration_ns();
        (ns > 0 && used > 0).then(|| used as f64 * 100.0 / ns as f64)
    }

    /// Latencies of all jobs.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        self.loads.iter().for_each(|load| all.merge(&load.latency()));
        all
    }

    /// Operations per submitting call; None without one.
    pub fn per_submit(&self) -> Option<f64> {
        self.per(LoadSummary::submits)
    }

    /// Completions per check that found some; None without one.
    pub fn per_reap(&self) -> Option<f64> {
        self.per(LoadSummary::reaps)
    }

    fn per(&self, calls: fn(&LoadSummary) -> u64) -> Option<f64> {
        let calls: u64 = self.loads.iter().map(calls).sum();
        let all: u64 = self.loads.iter().map(|load| load.operations() + load.errors()).sum();
        (calls > 0).then(|| all as f64 / calls as f64)
    }

    fn measured(&self, metric: Metric) -> Option<LoadPoint> {
        Some(LoadPoint { throughput: self.rate(metric)?, mean_ns: self.latency().mean() })
    }

    /// A number that grows with the option's value, over all jobs.
    fn load_of(&self, word: &str) -> u64 {
        let one = |job: &Job| match word {
            "iodepth" => u64::from(job.iodepth),
            "numjobs" => u64::from(job.numjobs),
            _ => job.largest_block(),
        };
        self.jobs.iter().map(one).fold(0, u64::saturating_add)
    }
}

/// A plausible sweep of random reads, for tests: each point has an option's value, thousands of operations per second,
/// and their latency in microseconds.
#[cfg(test)]
pub(crate) fn literal(word: &str, points: &[(&str, u64, u64)]) -> Sweep {
    let point = |(value, kiops, us): &(&str, u64, u64)| {
        let mut job = Job::new(Target::Existing("/dev/sda".into()));
        match (word, value.trim_end_matches('k').parse()) {
            ("iodepth", Ok(depth)) => job.iodepth = depth,
            ("numjobs", Ok(jobs)) => job.numjobs = jobs,
            ("bs", Ok(kib)) => job.set_bs(u64::from(kib) << 10),
            _ => {}
        }
        let mut result = JobResult::default();
        let transfer = &mut result.transfers[0];
        transfer.operations = kiops * 1000;
        transfer.bytes = transfer.operations * job.largest_block();
        transfer.lat.record_many(us * 1000, transfer.operations);
        result.submitted.record_many(2, transfer.operations / 2);
        result.reaped.record_many(1, transfer.operations);
        (result.user_ns, result.system_ns) = (100_000_000, 400_000_000);
        let load = LoadSummary {
            job: job.clone(),
            target: "/dev/sda".to_string(),
            device: Some("sda".to_string()),
            size: 1 << 30,
            fill: None,
            duration_ns: 1_000_000_000,
            jobs: vec![result],
            ring_workers: None,
            drive: Default::default(),
            clock: None,
            missing: Vec::new(),
        };
        SweepPoint {
            values: vec![value.to_string()],
            jobs: vec![job],
            loads: vec![load],
            failed: None,
            cut: false,
        }
    };
    Sweep { words: vec![word.to_string()], asked: points.len(), points: points.iter().map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTHS: [(&str, u64, u64); 5] =
        [("32", 79, 405), ("1", 10, 100), ("8", 75, 106), ("2", 20, 100), ("4", 40, 100)];

    #[test]
    fn a_curve_goes_by_the_size_of_the_values_and_not_by_their_order() {
        let curves = literal("iodepth", &DEPTHS).curves().unwrap();
        let [curve] = curves.curves.as_slice() else { panic!("one curve") };
        assert_eq!((curves.word, curves.metric), (0, Metric::Iops));
        assert_eq!(curve.points, [1, 3, 4, 2, 0]);
        assert_eq!(curve.knee, Ok(Knee { best: 4, enough: None, knee: Some(3) }));
    }

    #[test]
    fn blocks_are_judged_by_bytes() {
        let blocks = [("4k", 100, 10), ("8k", 90, 11), ("16k", 50, 20), ("32k", 25, 40)];
        let curves = literal("bs", &blocks).curves().unwrap();
        assert_eq!(curves.metric, Metric::BytesPerSecond);
        assert_eq!(curves.curves[0].knee, Ok(Knee { best: 2, enough: Some(2), knee: Some(1) }));
    }

    #[test]
    fn what_failed_or_was_cut_is_in_no_curve() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.points[0].failed = Some("no".to_string());
        sweep.points[2].cut = true;
        let curves = sweep.curves().unwrap();
        assert_eq!(curves.curves[0].points, [1, 3, 4]);
        assert_eq!(curves.curves[0].knee, Err(Shapeless::FewPoints));
        assert!(sweep.is_cut());
        assert_eq!(sweep.failed().count(), 1);
    }

    #[test]
    fn every_value_of_another_word_has_a_curve() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.words.push("rw".to_string());
        let both = sweep.points.iter().flat_map(|point| {
            ["read", "randread"].map(|rw| {
                let mut point = point.clone();
                point.values.push(rw.to_string());
                point
            })
        });
        sweep.points = both.collect();
        let curves = sweep.curves().unwrap().curves;
        assert_eq!(curves.iter().map(|c| c.others.join(" ")).collect::<Vec<_>>(), ["read", "randread"]);
        assert_eq!(curves[1].points, [3, 7, 9, 5, 1]);
        sweep.words[1] = "numjobs".to_string();
        assert_eq!(sweep.curves().unwrap().word, 0, "five values against two");
        sweep.words.swap(0, 1);
        sweep.points.iter_mut().for_each(|point| point.values.swap(0, 1));
        assert_eq!(sweep.curves().unwrap().word, 1);
        sweep.words = vec!["rw".to_string(), "iodepth".to_string()];
        assert_eq!(sweep.said(&sweep.points[1]), "rw randread, iodepth 32");
        sweep.words[1] = "rwmixread".to_string();
        assert_eq!(sweep.curves(), None, "neither word has a natural order");
    }

    #[test]
    fn jobs_behind_a_stonewall_take_their_own_time() {
        let mut point = literal("iodepth", &DEPTHS[..1]).points.remove(0);
        let load = point.loads[0].clone();
        let behind = LoadSummary { job: Job { stonewall: true, ..load.job.clone() }, ..load.clone() };
        point.loads = vec![load.clone(), load, behind];
        assert_eq!(point.duration_ns(), 2_000_000_000);
        assert_eq!(point.rate(Metric::Iops), Some(118_500.0));
        assert_eq!((point.cpu_percent(), point.per_submit()), (Some(75.0), Some(2.0)));
    }
}
