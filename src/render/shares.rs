//! The stages of a device's I/O as shares of one sum, identical in text and HTML.

use std::collections::BTreeMap;

use crate::analyze::latency::{DeviceLatency, OpLatency, Unit};
use crate::analyze::op::Op;
use crate::analyze::operations::{OperationLatency, Slowest};
use crate::analyze::stage::Stage;
use crate::findings::{Diagnosis, Finding};
use crate::hist::Histogram;
use crate::merge::{SaturatingSum as _, how};
use crate::rules::Summaries;
use crate::units::in_percent;

/// The share of slowest operations that is shown separately.
const SLOWEST: f64 = 0.01;

/// One stage. The means of all rows add up to the time of an operation or I/O, and the shares to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct StageShare {
    pub stage: Stage,
    pub mean_ns: f64,
    pub share: f64,
}

/// The stages of a device, longest first.
#[derive(Debug, Clone, PartialEq)]
pub struct StageShares {
    pub unit: Unit,
    /// Number of operations or I/Os.
    pub count: u64,
    /// Classes that are included.
    pub ops: Vec<Op>,
    pub rows: Vec<StageShare>,
}

impl StageShares {
    pub fn mean_ns(&self) -> f64 {
        self.rows.iter().map(|row| row.mean_ns).sum()
    }

    /// The slowest operations of the same classes. None if I/Os are counted, or if the slowest cannot be separated.
    pub fn slowest(&self, device: &DeviceLatency) -> Option<(Self, Slowest)> {
        if self.unit != Unit::Operation {
            return None;
        }
        let followed = self.ops.iter().filter_map(|op| device.ops.get(op)?.operations.as_ref());
        let slowest = together(followed).slowest(SLOWEST)?;
        let rows = rows(slowest.sums_ns.clone(), slowest.operations);
        let shares = Self { count: slowest.operations, rows, ..self.clone() };
        (!shares.rows.is_empty()).then_some((shares, slowest))
    }
}

/// The totals of several I/O classes.
fn together<'a>(classes: impl Iterator<Item = &'a OperationLatency>) -> OperationLatency {
    let mut all = OperationLatency::default();
    for class in classes {
        all.total.merge(&class.total);
        how::rows(&mut all.by_total, &class.by_total);
    }
    all.by_total.sort_by_key(|class| class.lower_ns);
    all
}

/// The main device of a page: that of the verdict, otherwise that of the load, otherwise the busiest.
pub fn subject<'a>(s: &Summaries<'a>, diagnosis: &Diagnosis) -> Option<&'a DeviceLatency> {
    let active = || s.latency.devices.iter().filter(|device| device.ios > 0);
    let subject = diagnosis.findings.first().map(|verdict| verdict.subject.as_str());
    let names = [subject, s.load.and_then(|load| load.device.as_deref())];
    let named = names.into_iter().flatten().find_map(|name| active().find(|device| device.name == name));
    named.or_else(|| active().max_by_key(|device| device.ios))
}

/// The stages of one I/O class.
pub fn of_class(device: &DeviceLatency, op: Op) -> Option<StageShares> {
    operations(device, |other| other == op).or_else(|| requests(device, |other| other == op))
}

/// The stages of operations if followed, otherwise of requests; only of reads if only reads belong to the load. If the
/// verdict states a stage's share, it is the same share here. None: no stage was timed.
pub fn of(device: &DeviceLatency, has_load: bool, verdict: Option<&Finding>) -> Option<StageShares> {
    let is_ours = |op: Op| !has_load || op == Op::Read;
    let all = [
        operations(device, is_ours),
        requests(device, is_ours),
        // Some rules use the operations of all classes.
        operations(device, |_| true),
    ];
    let found: Vec<StageShares> = all.into_iter().flatten().collect();
    let agrees = |shares: &&StageShares| verdict.is_none_or(|verdict| agrees(shares, verdict));
    found.iter().find(agrees).or(found.first()).cloned()
}

/// Whether these are the stage shares that a finding's sentence states.
fn agrees(shares: &StageShares, verdict: &Finding) -> bool {
    let agrees = |number: &str, row: &StageShare| {
        let named = verdict.numbers.get(number).map(|percent| in_percent(percent / 100.0));
        named.is_none_or(|named| !verdict.sentence.contains(&named) || named == in_percent(row.share))
    };
    let each = |row: &StageShare| agrees(&format!("{}_share_percent", row.stage.name()), row);
    shares.rows.iter().all(each) && shares.rows.first().is_none_or(|row| agrees("largest_stage_percent", row))
}

/// None if most I/Os belong to no followed operation.
fn operations(device: &DeviceLatency, is_ours: impl Fn(Op) -> bool) -> Option<StageShares> {
    let ours = || device.ops.iter().filter(|(op, _)| is_ours(**op));
    let followed = || ours().filter(|(_, latency)| latency.stages().0 == Unit::Operation);
    let ios = |(_, latency): (&Op, &OpLatency)| latency.ios;
    if followed().map(ios).saturating_sum() < ours().map(ios).saturating_sum().div_ceil(2) {
        return None;
    }
    let stages = followed().filter_map(|(op, latency)| Some((*op, &latency.operations.as_ref()?.stages)));
    shares(Unit::Operation, stages)
}

fn requests(device: &DeviceLatency, is_ours: impl Fn(Op) -> bool) -> Option<StageShares> {
    let ours = device.ops.iter().filter(|(op, _)| is_ours(**op));
    shares(Unit::Io, ours.map(|(op, latency)| (*op, &latency.request_stages)))
}

/// A stage that only some classes have counts as zero in the others, so that the means add up.
fn shares<'a>(
    unit: Unit,
    classes: impl Iterator<Item = (Op, &'a BTreeMap<Stage, Histogram>)>,
) -> Option<StageShares> {
    let mut sums: BTreeMap<Stage, u64> = BTreeMap::new();
    let (mut count, mut ops) = (0, Vec::new());
    for (op, stages) in classes {
        let of_class = stages.values().map(Histogram::count).max().unwrap_or(0);
        if of_class > 0 {
            ops.push(op);
        }
        count = of_class.saturating_add(count);
        for (stage, hist) in stages {
            let sum: &mut u64 = sums.entry(*stage).or_default();
            *sum = sum.saturating_add(hist.sum());
        }
    }
    let rows = rows(sums, count);
    (!rows.is_empty()).then_some(StageShares { unit, count, ops, rows })
}

/// Longest stage first, without stages that took no time.
fn rows(sums: BTreeMap<Stage, u64>, count: u64) -> Vec<StageShare> {
    let all: u64 = sums.values().saturating_sum();
    let row = |(stage, sum): (Stage, u64)| StageShare {
        stage,
        mean_ns: sum as f64 / count.max(1) as f64,
        share: sum as f64 / all as f64,
    };
    let mut rows: Vec<StageShare> = sums.into_iter().filter(|(_, sum)| *sum > 0).map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}
