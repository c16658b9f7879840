//! Where the time of a device's I/O goes: its stages as shares of one sum.

use std::collections::BTreeMap;

use crate::analyze::latency::{DeviceLatency, OpLatency, Unit};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::findings::Finding;
use crate::hist::Histogram;
use crate::units::in_percent;

/// One stage. The means of all rows add up to the time of an operation or I/O, and the shares to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub stage: Stage,
    pub mean_ns: f64,
    pub share: f64,
}

/// The stages of a device, the longest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    pub unit: Unit,
    pub rows: Vec<Row>,
}

/// The stages of operations where these are followed, else those of requests; those of reads where only reads are the
/// load's. Where the verdict names the share of a stage, it is the same share here. None: no stage was timed.
pub fn of(device: &DeviceLatency, has_load: bool, verdict: Option<&Finding>) -> Option<Shares> {
    let is_ours = |op: Op| !has_load || op == Op::Read;
    let all = [
        operations(device, is_ours),
        requests(device, is_ours),
        // Some rules look at the operations of all classes.
        operations(device, |_| true),
    ];
    let found: Vec<Shares> = all.into_iter().flatten().collect();
    let agrees = |shares: &&Shares| verdict.is_none_or(|verdict| agrees(shares, verdict));
    found.iter().find(agrees).or(found.first()).cloned()
}

/// Whether the shares of stages that a finding's sentence names are these.
fn agrees(shares: &Shares, verdict: &Finding) -> bool {
    shares.rows.iter().all(|row| {
        let named = verdict.numbers.get(format!("{}_share_percent", row.stage.name()).as_str());
        let named = named.map(|percent| in_percent(percent / 100.0));
        named.is_none_or(|named| !verdict.sentence.contains(&named) || named == in_percent(row.share))
    })
}

/// None where most I/Os belong to no operation that is followed.
fn operations(device: &DeviceLatency, is_ours: impl Fn(Op) -> bool) -> Option<Shares> {
    let ours = || device.ops.iter().filter(|(op, _)| is_ours(**op)).map(|(_, latency)| latency);
    let followed = || ours().filter(|latency| latency.stages().0 == Unit::Operation);
    let ios = |latency: &OpLatency| latency.ios;
    if 2 * followed().map(ios).sum::<u64>() < ours().map(ios).sum() {
        return None;
    }
    let stages = followed().filter_map(|latency| latency.operations.as_ref()).map(|all| &all.stages);
    shares(Unit::Operation, stages)
}

fn requests(device: &DeviceLatency, is_ours: impl Fn(Op) -> bool) -> Option<Shares> {
    let ours = device.ops.iter().filter(|(op, _)| is_ours(**op));
    shares(Unit::Io, ours.map(|(_, latency)| &latency.request_stages))
}

/// A stage that only some have counts as nothing in the others, so that the means add up.
fn shares<'a>(unit: Unit, classes: impl Iterator<Item = &'a BTreeMap<Stage, Histogram>>) -> Option<Shares> {
    let mut sums: BTreeMap<Stage, u64> = BTreeMap::new();
    let mut count = 0;
    for stages in classes {
        count += stages.values().map(Histogram::count).max().unwrap_or(0);
        stages.iter().for_each(|(stage, hist)| *sums.entry(*stage).or_default() += hist.sum());
    }
    let all: u64 = sums.values().sum();
    let row = |(stage, sum): (Stage, u64)| Row {
        stage,
        mean_ns: sum as f64 / count as f64,
        share: sum as f64 / all as f64,
    };
    let mut rows: Vec<Row> = sums.into_iter().filter(|(_, sum)| *sum > 0).map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    (!rows.is_empty()).then_some(Shares { unit, rows })
}
