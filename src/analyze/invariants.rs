//! Checks invariants that must hold of every measurement, also on hardware that no test has covered. `biopsy check
//! --self-test` prints all of them; the tests use single ones.

mod counts;
mod generator;
mod probes;
mod stages;
pub mod sums;

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::latency::LatencySummary;
use crate::envelope::{Cost, Lost};
use crate::load::LoadSummary;
use crate::wire::reading::{DeviceSample, Reading};

/// Share of the I/Os up to which events that the kernel did not deliver do not fail the test: the default of
/// `--max-loss`. They still count as lost.
pub const MAX_LOSS: f64 = 0.001;

const NOT_FOLLOWED: &str = "operations cannot be measured on this kernel";

/// How a test of an invariant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Pass,
    Fail,
    NotTested,
}

/// A figure of an invariant; the unit is in its key.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum FigureValue {
    Count(u64),
    Measure(f64),
}

/// One thing that must hold, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Invariant {
    pub name: Cow<'static, str>,
    pub state: Outcome,
    /// In the order in which a reader wants them.
    #[serde(with = "figures")]
    #[schemars(with = "BTreeMap<String, FigureValue>")]
    pub numbers: Vec<(String, FigureValue)>,
    /// What is broken, or why it was not tested; with `Pass` what the numbers do not say.
    pub why: Option<String>,
}

/// Serializes figures as an object.
mod figures {
    use serde::{Deserializer, Serializer};

    use super::{BTreeMap, Deserialize, FigureValue};

    pub fn serialize<S: Serializer>(all: &[(String, FigureValue)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(all.iter().map(|(key, number)| (key, number)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, FigureValue)>, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

/// A run under test. Its load lies inside the measured interval.
#[derive(Debug, Clone, Copy)]
pub struct TestedRun<'a> {
    pub summary: &'a LatencySummary,
    pub start: &'a Reading,
    pub end: &'a Reading,
    pub lost: &'a Lost,
    pub cost: &'a Cost,
    /// Why there is no cost, where the kernel does not report it.
    pub no_cost: Option<&'a str>,
    /// Whether the kernel counts skipped runs.
    pub misses_counted: bool,
    /// The load; or why there was none, so that only I/O of other processes was traced.
    pub load: Result<&'a LoadSummary, &'a str>,
    /// Whether operations have the generator's own start and end stamps.
    pub own_stamps: bool,
    /// Kernel objects of the probes, and those that remained after detaching; or why that is not known.
    pub left: Result<KernelObjects, &'a str>,
}

/// Programs, links and maps of a run, from the kernel's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelObjects {
    pub held: u64,
    pub left: u64,
}

/// All invariants, ordered so that a failure may make later ones meaningless.
pub fn all(m: &TestedRun<'_>) -> Vec<Invariant> {
    vec![
        counts::kernel_counters(m),
        counts::loss(m),
        generator::count(m),
        generator::time(m),
        stages::order(m),
        stages::sums(m),
        stages::histograms(m),
        probes::slots(m),
        probes::misses(m),
        probes::cost(m),
        probes::detached(m),
    ]
}

impl TestedRun<'_> {
    fn ios(&self) -> u64 {
        self.summary.ios()
    }

    /// The activity of each device in the interval.
    fn deltas(&self) -> impl Iterator<Item = DeviceSample> {
        self.end.since(self.start).map(|(_, delta)| delta)
    }

    /// The result of a check that needs I/O: not tested without any.
    fn of_ios(
        &self,
        name: &'static str,
        numbers: Vec<(String, FigureValue)>,
        broken: Option<String>,
    ) -> Invariant {
        match (self.ios() + self.lost.ios, broken) {
            (_, Some(why)) => fail(name, numbers, why),
            (0, None) => not_tested(name, "no I/O was measured"),
            (_, None) => pass(name, numbers),
        }
    }
}

fn pass(name: &'static str, numbers: Vec<(String, FigureValue)>) -> Invariant {
    Invariant { name: name.into(), state: Outcome::Pass, numbers, why: None }
}

fn fail(name: &'static str, numbers: Vec<(String, FigureValue)>, why: String) -> Invariant {
    Invariant { name: name.into(), state: Outcome::Fail, numbers, why: Some(why) }
}

fn not_tested(name: &'static str, why: &str) -> Invariant {
    Invariant {
        name: name.into(),
        state: Outcome::NotTested,
        numbers: Vec::new(),
        why: Some(why.to_string()),
    }
}

fn figure(key: &str, count: u64) -> (String, FigureValue) {
    (key.to_string(), FigureValue::Count(count))
}

/// `n` as a share of the I/Os, if it exceeds the limit.
fn too_many(m: &TestedRun<'_>, n: u64) -> Option<String> {
    let share = n as f64 / (m.ios() + m.lost.ios).max(1) as f64;
    (share > MAX_LOSS).then(|| format!("{:.2} %", share * 100.0))
}

#[cfg(test)]
mod tests;
