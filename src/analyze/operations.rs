//! Summarizes operations: what applications submitted, with stages that add up to their latency.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::MapAccess;
use serde::{Deserialize, Serialize};

use super::stage::Stage;
use crate::envelope::reading::{KeyOwner, Keys};
use crate::hist::Histogram;
use crate::merge::{Merge, SaturatingSum as _, how, merge, row};
use crate::names::names;
use crate::wire::rows::OperationRow;
use crate::wire::{COVERS, OPERATION_STAGES};

/// The application's view of one class of I/O on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OperationLatency {
    /// Operations that ended in the window, the ones that are not covered included.
    pub operations: u64,
    /// Of the operations that have exactly these stages: Σ of the stages' sums = `total.sum()`. The
    /// stages that most operations have are shown, so `complete` or `reap` can be absent.
    pub stages: BTreeMap<Stage, Histogram>,
    /// From the entry of the system call to the end of the last stage, of the same operations.
    pub total: Histogram,
    /// The same operations by power of two of their total.
    pub by_total: Vec<TotalClass>,
    /// Operations that ended and are not in `stages`, by reason.
    pub not_covered: BTreeMap<NotCovered, u64>,
    /// Which stages these are, of `enum wire_cover`.
    #[serde(skip)]
    pub cover: usize,
    /// What each stage took in all operations that have stages, also where these are not those which are shown, ns.
    #[serde(rename = "stage_sums_ns", default)]
    pub sums_ns: BTreeMap<Stage, u64>,
}

/// Reads the operation's keys from among those of [`super::latency::OpLatency`].
#[derive(Default)]
pub struct OperationKeys {
    read: OperationLatency,
    /// Which of the mandatory keys were found, as a bit mask.
    found: u32,
}

impl OperationKeys {
    /// None where a mandatory key is missing.
    pub fn all(self) -> Option<OperationLatency> {
        (self.found == 0b11111).then_some(self.read)
    }
}

impl Keys for OperationKeys {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<KeyOwner, A::Error> {
        let bit;
        match key {
            "operations" => (self.read.operations, bit) = (map.next_value()?, 0),
            "stages" => (self.read.stages, bit) = (map.next_value()?, 1),
            "total" => (self.read.total, bit) = (map.next_value()?, 2),
            "by_total" => (self.read.by_total, bit) = (map.next_value()?, 3),
            "not_covered" => (self.read.not_covered, bit) = (map.next_value()?, 4),
            "stage_sums_ns" => {
                self.read.sums_ns = map.next_value()?;
                return Ok(KeyOwner::Inner);
            }
            _ => return Ok(KeyOwner::Outer),
        }
        self.found |= 1 << bit;
        Ok(KeyOwner::Inner)
    }
}

/// Totals of the slowest operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Slowest {
    /// Their latencies are at least this long.
    pub from_ns: u64,
    pub operations: u64,
    pub sums_ns: BTreeMap<Stage, u64>,
}

impl OperationLatency {
    /// Removes a stage that took no time in any of them.
    pub fn leave_out_if_nothing(&mut self, stage: Stage) {
        if self.stages.get(&stage).is_none_or(|hist| hist.sum() > 0) {
            return;
        }
        self.stages.remove(&stage);
        for class in &mut self.by_total {
            class.sums_ns.remove(&stage);
        }
    }

    /// The slowest operations, by the highest powers of two of the total: at least `share` of all. They are measured,
    /// not composed from percentiles. None where that would be more than half.
    pub fn slowest(&self, share: f64) -> Option<Slowest> {
        let all = self.total.count();
        let mut slowest = Slowest { from_ns: 0, operations: 0, sums_ns: BTreeMap::new() };
        for class in self.by_total.iter().rev() {
            slowest.from_ns = class.lower_ns;
            slowest.operations = slowest.operations.saturating_add(class.operations);
            for (stage, sum) in &class.sums_ns {
                let all = slowest.sums_ns.entry(*stage).or_insert(0u64);
                *all = all.saturating_add(*sum);
            }
            if slowest.operations as f64 >= all as f64 * share {
                break;
            }
        }
        (slowest.operations > 0 && slowest.operations <= all / 2).then_some(slowest)
    }
}

/// Whose stages are shown when two are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageChoice {
    Both,
    First,
    Second,
}

impl OperationLatency {
    /// Stages add up to the total only over operations with the same stages.
    pub fn shown_with(&self, other: &Self) -> StageChoice {
        let is_none = self.total.is_empty() || other.total.is_empty();
        match () {
            () if is_none || self.stages.keys().eq(other.stages.keys()) => StageChoice::Both,
            () if self.total.count() >= other.total.count() => StageChoice::First,
            () => StageChoice::Second,
        }
    }

    /// Why operations with these stages are not covered where others are shown.
    fn beside(&self, shown: &Self) -> NotCovered {
        match () {
            () if self.stages.keys().any(|stage| !shown.stages.contains_key(stage)) => NotCovered::MoreStages,
            () if shown.stages.contains_key(&Stage::Reap) && !self.stages.contains_key(&Stage::Reap) => {
                NotCovered::Reap
            }
            () => NotCovered::Complete,
        }
    }
}

impl Merge for OperationLatency {
    fn merge_with(&mut self, later: &Self) {
        let shown = self.shown_with(later);
        let left_out = match shown {
            StageChoice::Both => None,
            StageChoice::First => Some((later.beside(self), later.total.count())),
            StageChoice::Second => Some((self.beside(later), self.total.count())),
        };
        // After reading back from JSON it is not known which cover they are.
        let Self { operations, stages, total, by_total, not_covered, cover: _, sums_ns } = self;
        operations.merge_with(&later.operations);
        not_covered.merge_with(&later.not_covered);
        not_covered.merge_with(&left_out.into_iter().collect());
        sums_ns.merge_with(&later.sums_ns);
        match shown {
            StageChoice::Both => {
                stages.merge_with(&later.stages);
                total.merge(&later.total);
                how::rows(by_total, &later.by_total);
                by_total.sort_by_key(|class| class.lower_ns);
            }
            StageChoice::First => {}
            StageChoice::Second => {
                stages.clone_from(&later.stages);
                total.clone_from(&later.total);
                by_total.clone_from(&later.by_total);
            }
        }
    }
}

/// The operations with `lower_ns` ≤ total < `upper_ns`, and what their stages add up to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "TotalForm", from = "TotalForm")]
pub struct TotalClass {
    pub lower_ns: u64,
    pub upper_ns: u64,
    pub operations: u64,
    pub sums_ns: BTreeMap<Stage, u64>,
}

merge!(TotalClass { first: lower_ns upper_ns; add: operations sums_ns; });
row!(TotalClass, u64, |class| class.lower_ns);

/// The form in JSON.
type TotalForm = (u64, u64, u64, BTreeMap<Stage, u64>);

impl From<TotalClass> for TotalForm {
    fn from(of: TotalClass) -> Self {
        (of.lower_ns, of.upper_ns, of.operations, of.sums_ns)
    }
}

impl From<TotalForm> for TotalClass {
    fn from((lower_ns, upper_ns, operations, sums_ns): TotalForm) -> Self {
        Self { lower_ns, upper_ns, operations, sums_ns }
    }
}

names! {
    /// Why an ended operation is not among those whose stages are shown: sums must be over the same stages.
    #[derive(PartialOrd, Ord)]
    pub enum NotCovered {
        /// It has stages that the shown ones lack.
        MoreStages = "more_stages",
        /// Its completion was not observed to be fetched.
        Reap = "reap",
        /// It waited in a system call, and the driver does not report when it reaps a completion.
        Complete = "complete",
        /// Its parts ended on several CPUs at the same time, so its stages are not those of one part; or it waited for
        /// a flush, and the next flush began before the completion was reported.
        Torn = "torn",
    }
}

/// The reason for each value of `enum wire_cover` that is not the shown one.
const COVER_NAMES: [NotCovered; COVERS] = [NotCovered::MoreStages, NotCovered::Reap, NotCovered::Complete];

/// Summarizes the rows of one device and class, with their covers; None where no operation ended.
pub fn summarize<'a>(rows: impl Iterator<Item = (usize, &'a OperationRow)>) -> Option<OperationLatency> {
    let mut covers: [Cover; COVERS] = Default::default();
    let (mut torn, mut bare) = (0, 0);
    for (cover, row) in rows {
        torn += row.torn;
        bare += row.bare;
        if let Some(cover) = covers.get_mut(cover) {
            cover.add(row);
        }
    }
    let counts = covers.each_ref().map(Cover::count);
    let operations = counts.iter().saturating_sum() + torn + bare;
    if operations == 0 {
        return None;
    }
    let mut sums_ns = BTreeMap::new();
    for (stage, hist) in covers.iter().flat_map(|cover| Stage::ALL.into_iter().zip(&cover.stages)) {
        if !hist.is_empty() {
            *sums_ns.entry(stage).or_insert(0) += hist.sum();
        }
    }
    let most = (0..COVERS).rev().max_by_key(|cover| counts[*cover])?;
    let left = (0..COVERS).filter(|cover| *cover != most).map(|cover| (COVER_NAMES[cover], counts[cover]));
    let mut not_covered = BTreeMap::new();
    for (why, n) in left.chain([(NotCovered::Torn, torn), (NotCovered::Reap, bare)]).filter(|(_, n)| *n > 0) {
        *not_covered.entry(why).or_insert(0) += n;
    }
    let shown = covers.into_iter().nth(most)?;
    Some(OperationLatency { operations, not_covered, cover: most, sums_ns, ..shown.shown() })
}

/// Summarizes the rows of one device and class, each cover separately; covers without operations are left out.
pub fn by_cover<'a>(rows: impl Iterator<Item = (usize, &'a OperationRow)>) -> Vec<OperationLatency> {
    let mut covers: [Cover; COVERS] = Default::default();
    for (cover, row) in rows {
        if let Some(cover) = covers.get_mut(cover) {
            cover.add(row);
        }
    }
    covers
        .into_iter()
        .filter(|cover| cover.stages.iter().any(|hist| !hist.is_empty()))
        .map(Cover::shown)
        .collect()
}

/// The operations of one cover.
#[derive(Default)]
struct Cover {
    stages: [Histogram; OPERATION_STAGES],
    by_total: Vec<(u64, [u64; OPERATION_STAGES - 1])>,
}

impl Cover {
    fn add(&mut self, row: &OperationRow) {
        for (mine, theirs) in self.stages.iter_mut().zip(&row.stages) {
            mine.merge(theirs);
        }
        if self.by_total.len() < row.by_total.len() {
            self.by_total.resize(row.by_total.len(), Default::default());
        }
        for (mine, theirs) in self.by_total.iter_mut().zip(&row.by_total) {
            mine.0 += theirs.0;
            mine.1.iter_mut().zip(theirs.1).for_each(|(sum, more)| *sum += more);
        }
    }

    fn count(&self) -> u64 {
        self.stages[OPERATION_STAGES - 1].count()
    }

    fn shown(self) -> OperationLatency {
        OperationLatency {
            operations: self.count(),
            not_covered: BTreeMap::new(),
            cover: 0,
            sums_ns: BTreeMap::new(),
            by_total: self.by_total(),
            total: self.stages[OPERATION_STAGES - 1].clone(),
            stages: Stage::ALL.into_iter().zip(self.stages).filter(|(_, hist)| !hist.is_empty()).collect(),
        }
    }

    fn by_total(&self) -> Vec<TotalClass> {
        let class = |bit: usize, operations: u64, sums: &[u64; OPERATION_STAGES - 1]| TotalClass {
            lower_ns: if bit == 0 { 0 } else { 1 << bit },
            upper_ns: 2 << bit,
            operations,
            sums_ns: Stage::ALL
                .into_iter()
                .zip(*sums)
                .zip(&self.stages)
                .filter(|(_, hist)| !hist.is_empty())
                .map(|((stage, sum), _)| (stage, sum))
                .collect(),
        };
        let rows = self.by_total.iter().enumerate().filter(|(_, (n, _))| *n > 0);
        rows.map(|(bit, (n, sums))| class(bit, *n, sums)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 0;
    const NO_REAP: usize = 1;

    /// `n` operations of 1 + 2 + 4 + 8 (+ 16) µs.
    fn row(n: u64, reap: bool) -> OperationRow {
        let mut row = OperationRow { by_total: vec![Default::default(); 41], ..OperationRow::default() };
        let mut total = 0;
        let mut sums = [0; 5];
        for (stage, sum) in sums.iter_mut().enumerate().take(if reap { 5 } else { 4 }) {
            let ns = 1000 << stage;
            (0..n).for_each(|_| row.stages[stage].record(ns));
            total += ns;
            *sum = ns * n;
        }
        (0..n).for_each(|_| row.stages[5].record(total));
        row.by_total[total.ilog2() as usize] = (n, sums);
        row
    }

    #[test]
    fn stages_add_up_to_the_total_over_the_same_operations() {
        let (all, none) = (row(3, true), row(2, false));
        let found = summarize([(ALL, &all), (NO_REAP, &none), (ALL, &all)].into_iter()).unwrap();
        assert_eq!((found.operations, found.total.count()), (8, 6));
        assert_eq!(found.not_covered, BTreeMap::from([(NotCovered::Reap, 2)]));
        // Over all operations, whichever are shown.
        assert_eq!((found.sums_ns[&Stage::Submit], found.sums_ns[&Stage::Reap]), (8 * 1_000, 6 * 16_000));
        let sum: u64 = found.stages.values().map(Histogram::sum).sum();
        assert_eq!((sum, found.total.sum()), (6 * 31_000, 6 * 31_000));
        let [class] = &found.by_total[..] else { panic!("{:?}", found.by_total) };
        assert_eq!((class.lower_ns, class.upper_ns, class.operations), (16_384, 32_768, 6));
        assert_eq!(class.sums_ns.values().sum::<u64>(), found.total.sum());
    }

    #[test]
    fn operations_that_nobody_fetches_have_no_reap() {
        let none = row(2, false);
        let found = summarize([(NO_REAP, &none)].into_iter()).unwrap();
        assert!(!found.stages.contains_key(&Stage::Reap) && found.stages.contains_key(&Stage::Complete));
        assert!(found.not_covered.is_empty());
        assert!(!found.by_total[0].sums_ns.contains_key(&Stage::Reap));
    }

    #[test]
    fn only_a_stage_that_took_no_time_is_left_out() {
        let mut found = summarize([(ALL, &row(2, true))].into_iter()).unwrap();
        found.leave_out_if_nothing(Stage::Queue);
        assert_eq!(found.stages[&Stage::Queue].sum(), 4_000, "the stages would not come to the total");
        let mut nothing = row(2, true);
        nothing.stages[Stage::Queue as usize] = Histogram::from_iter([0, 0]);
        let mut found = summarize([(ALL, &nothing)].into_iter()).unwrap();
        found.leave_out_if_nothing(Stage::Queue);
        assert!(!found.stages.contains_key(&Stage::Queue));
        assert!(!found.by_total[0].sums_ns.contains_key(&Stage::Queue));
    }

    #[test]
    fn the_stages_of_most_operations_are_shown() {
        let (all, none) = (row(2, true), row(3, false));
        let found = summarize([(ALL, &all), (NO_REAP, &none)].into_iter()).unwrap();
        assert_eq!((found.operations, found.total.count()), (5, 3));
        assert_eq!(found.not_covered, BTreeMap::from([(NotCovered::MoreStages, 2)]));
    }

    #[test]
    fn the_slowest_are_measured_by_power_of_two() {
        let class = |bit: u32, operations: u64, device: u64| TotalClass {
            lower_ns: 1 << bit,
            upper_ns: 2 << bit,
            operations,
            sums_ns: BTreeMap::from([(Stage::Device, device)]),
        };
        let total = Histogram::from_iter([1; 1000]);
        let classes = vec![class(10, 989, 1), class(12, 8, 40), class(14, 3, 50)];
        let mut all = OperationLatency { total, by_total: classes, ..OperationLatency::default() };
        let slowest = all.slowest(0.01).unwrap();
        assert_eq!((slowest.from_ns, slowest.operations), (4096, 11));
        assert_eq!(slowest.sums_ns[&Stage::Device], 90);
        all.by_total.truncate(1);
        assert_eq!(all.slowest(0.01), None, "nearly all are not the slowest");
    }

    #[test]
    fn torn_operations_are_counted_and_named() {
        let torn = OperationRow { torn: 4, ..OperationRow::default() };
        let found = summarize([(ALL, &torn)].into_iter()).unwrap();
        assert_eq!((found.operations, found.total.count()), (4, 0));
        assert_eq!(found.not_covered, BTreeMap::from([(NotCovered::Torn, 4)]));
        assert_eq!(summarize([(ALL, &OperationRow::default())].into_iter()), None);
    }
}
