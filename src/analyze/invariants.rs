//! What must hold of every measurement, whatever was measured: the answer to hardware that no test of ours
//! has seen. `biopsy check --self-test` shows all of it, the tests use the parts.

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

/// Share of the I/Os up to which events that the kernel kept to itself do not fail the test: the default of
/// `--max-loss`. They are counted as lost all the same.
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
pub enum Number {
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
    #[schemars(with = "BTreeMap<String, Number>")]
    pub numbers: Vec<(String, Number)>,
    /// What is broken, or why it was not tested; with `Pass` what the numbers do not say.
    pub why: Option<String>,
}

/// Figures as an object.
mod figures {
    use serde::{Deserializer, Serializer};

    use super::{BTreeMap, Deserialize, Number};

    pub fn serialize<S: Serializer>(all: &[(String, Number)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(all.iter().map(|(key, number)| (key, number)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, Number)>, D::Error> {
        Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
    }
}

/// A run that is put to the test. Its load lies inside the window.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    pub summary: &'a LatencySummary,
    pub start: &'a Reading,
    pub end: &'a Reading,
    pub lost: &'a Lost,
    pub cost: &'a Cost,
    /// Why there is no cost, where the kernel does not give it.
    pub no_cost: Option<&'a str>,
    /// The kernel counts the runs that it skips.
    pub misses_counted: bool,
    /// The load; or why there was none, so that only I/O of others was seen.
    pub load: Result<&'a LoadSummary, &'a str>,
    /// The generator's operations begin and end with its own stamps.
    pub own_stamps: bool,
    /// What the probes held in the kernel, and what of it was still there after their end; or why that is
    /// not known.
    pub left: Result<Left, &'a str>,
}

/// Programs, links and maps of a run in the kernel's lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    pub held: u64,
    pub left: u64,
}

/// All invariants, in the order in which a doubt in one makes the next ones moot.
pub fn all(m: &Measured<'_>) -> Vec<Invariant> {
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

impl Measured<'_> {
    fn ios(&self) -> u64 {
        self.summary.ios()
    }

    /// What came in the window, device by device.
    fn deltas(&self) -> impl Iterator<Item = DeviceSample> {
        self.end.since(self.start).map(|(_, delta)| delta)
    }

    /// A result that needs I/O: what no I/O was there to break is not tested.
    fn of_ios(
        &self,
        name: &'static str,
        numbers: Vec<(String, Number)>,
        broken: Option<String>,
    ) -> Invariant {
        match (self.ios() + self.lost.ios, broken) {
            (_, Some(why)) => fail(name, numbers, why),
            (0, None) => not_tested(name, "no I/O was measured"),
            (_, None) => pass(name, numbers),
        }
    }
}

fn pass(name: &'static str, numbers: Vec<(String, Number)>) -> Invariant {
    Invariant { name: name.into(), state: Outcome::Pass, numbers, why: None }
}

fn fail(name: &'static str, numbers: Vec<(String, Number)>, why: String) -> Invariant {
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

fn figure(key: &str, count: u64) -> (String, Number) {
    (key.to_string(), Number::Count(count))
}

/// As a share of the I/Os, where it is above the limit.
fn too_many(m: &Measured<'_>, n: u64) -> Option<String> {
    let share = n as f64 / (m.ios() + m.lost.ios).max(1) as f64;
    (share > MAX_LOSS).then(|| format!("{:.2} %", share * 100.0))
}

#[cfg(test)]
mod tests;
