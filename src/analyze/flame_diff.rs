//! Compares two profiles: which frames grew or shrank, and with what confidence.
//!
//! Two runs never do the same amount of work in the same time. So values are first divided by the number of I/Os, by
//! the time, or, for shares, by their total.
//!
//! Confidence: a sample falls into a frame or not, so a frame's samples vary like Poisson counts (shares: like binomial
//! ones). Each side has its score interval (Wilson's for shares), which is also valid for few samples or none. The two
//! are combined into an interval of the difference by the method of variance estimates recovery (Zou and Donner 2008;
//! for shares that is Newcombe's of 1998). Hundreds of frames are compared and the largest changes picked, so the level
//! has a Bonferroni correction: with 95 % confidence all intervals hold at once. Samples are assumed to be independent;
//! if they come in bursts, the true variation is larger.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::analyze::flame::What;
use crate::analyze::profile::tree::{StackRow, Tree};
use crate::analyze::profile::{Area, Frame, Profile, Unit};

/// What the values of both sides are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The total of the profile.
    Share,
    /// The number of I/Os.
    Ios { before: u64, after: u64 },
    /// The time, in nanoseconds.
    Time { before: u64, after: u64 },
}

/// One of the two profiles.
#[derive(Debug, Clone, Copy)]
pub struct DiffSide<'a> {
    pub profile: &'a Profile,
    /// Number of measurements behind the values: waits, sampled I/Os. Not needed for samples, which count themselves.
    /// None: not known, so there are no confidence intervals.
    pub events: Option<u64>,
    /// What it measures, if known.
    pub what: Option<What>,
}

impl DiffSide<'_> {
    fn events(&self) -> Option<f64> {
        match self.profile.unit {
            Unit::Samples => Some(self.profile.total() as f64),
            Unit::Nanoseconds | Unit::Ios | Unit::Events => self.events.filter(|n| *n > 0).map(|n| n as f64),
        }
    }
}

/// A rate before and after.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RateChange {
    pub before: f64,
    pub after: f64,
    /// Confidence interval of `after - before`.
    pub interval: Option<(f64, f64)>,
}

impl RateChange {
    pub fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Whether the increase or decrease is significant.
    pub fn is_certain(&self) -> bool {
        self.interval.is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// The change of a frame over all stacks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub name: String,
    pub area: Area,
    /// Value of stacks whose own frame it is ([`What::own_frame`]).
    pub own: RateChange,
    /// Value of stacks that contain it, once per stack.
    pub total: RateChange,
}

/// The comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub unit: Unit,
    pub basis: Basis,
    /// The totals.
    pub all: RateChange,
    /// All frames, largest change of the own value first.
    pub changes: Vec<Change>,
    /// The stacks of both; values are widths, and `before` has the part of each width that belongs to the first
    /// profile.
    stacks: Profile,
    before: Vec<u64>,
    /// Width per unit of the rates.
    scale: f64,
}

/// The total width of both together.
const WIDTH: f64 = (1u64 << 50) as f64;

/// Compares two profiles of the same unit.
///
/// # Errors
///
/// If the units differ, or one profile is empty or has nothing to be divided by.
pub fn compare(before: DiffSide<'_>, after: DiffSide<'_>, basis: Basis) -> Result<Comparison> {
    let unit = before.profile.unit;
    ensure!(
        unit == after.profile.unit,
        "the two profiles count different things and cannot be compared: give two of the same kind"
    );
    for (side, which) in [(before, "first"), (after, "second")] {
        ensure!(!side.profile.is_empty(), "the {which} profile is empty: there is nothing to compare");
    }
    let divisors = match basis {
        Basis::Share => (before.profile.total(), after.profile.total()),
        Basis::Ios { before, after } | Basis::Time { before, after } => (before, after),
    };
    ensure!(divisors.0 > 0 && divisors.1 > 0, "no I/O or no time to divide by: compare the shares");
    let divisors = (divisors.0 as f64, divisors.1 as f64);

    let mut values: HashMap<&Frame, [Sums; 2]> = HashMap::new();
    for (which, side) in [before, after].into_iter().enumerate() {
        for (frame, sums) in sums(side) {
            values.entry(frame).or_default()[which] = sums;
        }
    }
    let scatter = Scatter {
        divisors,
        totals: (before.profile.total() as f64, after.profile.total() as f64),
        events: before.events().zip(after.events()),
        shares: basis == Basis::Share,
        z: quantile(1.0 - 0.05 / 2.0 / values.len() as f64),
    };
    let mut changes: Vec<Change> = values
        .into_iter()
        .map(|(frame, [before, after])| Change {
            name: frame.name.clone(),
            area: frame.area,
            own: scatter.moved(before.own, after.own),
            total: scatter.moved(before.total, after.total),
        })
        .collect();
    let by = |change: &Change| (change.own.change().abs(), change.total.change().abs());
    changes.sort_by(|a, b| {
        let ((own, total), (own_b, total_b)) = (by(a), by(b));
        own_b
            .total_cmp(&own)
            .then(total_b.total_cmp(&total))
            .then_with(|| (&a.name, a.area).cmp(&(&b.name, b.area)))
    });

    let all = scatter.moved(before.profile.total(), after.profile.total());
    // The total share is 1 by definition, without error.
    let all = if basis == Basis::Share { RateChange { interval: None, ..all } } else { all };
    let scale = WIDTH / (all.before + all.after);
    let (stacks, before) = join(before.profile, after.profile, (scale / divisors.0, scale / divisors.1));
    Ok(Comparison { unit, basis, all, changes, stacks, before, scale })
}

impl Comparison {
    /// Frames that were in no stack before and significantly are now, largest first.
    pub fn appeared(&self) -> Vec<&Change> {
        let mut found: Vec<&Change> = self.only(|total| (total.before, total.after)).collect();
        found.sort_by(|a, b| b.total.after.total_cmp(&a.total.after));
        found
    }

    /// Frames that significantly were in stacks before and are in none now, largest first.
    pub fn vanished(&self) -> Vec<&Change> {
        let mut found: Vec<&Change> = self.only(|total| (total.after, total.before)).collect();
        found.sort_by(|a, b| b.total.before.total_cmp(&a.total.before));
        found
    }

    /// Frames that occur on one side only. Without intervals significance is unknown, and all of them count.
    fn only(&self, sides: fn(&RateChange) -> (f64, f64)) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| {
            let (none, some) = sides(&change.total);
            let certain = change.total.interval.is_none() || change.total.is_certain();
            none == 0.0 && some > 0.0 && certain
        })
    }

    /// Frames that occur on one side only, but not significantly.
    pub fn unsure(&self) -> usize {
        let one_side = |total: &RateChange| (total.before == 0.0) != (total.after == 0.0);
        let unsure = |total: &RateChange| total.interval.is_some() && !total.is_certain();
        self.changes.iter().filter(|change| one_side(&change.total) && unsure(&change.total)).count()
    }

    /// The stacks of both as a tree: a node is as wide as the sum of both rates.
    pub fn tree(&self, min_share: f64) -> Tree {
        let order = self.stacks.order();
        let row = |place: &u32| {
            let stack = &self.stacks.stacks()[*place as usize];
            StackRow { frames: &stack.frames, value: stack.value, before: self.before[*place as usize] }
        };
        Tree::new(order.iter().map(row), min_share)
    }

    /// Frames of the tree's ids.
    pub fn stacks(&self) -> &Profile {
        &self.stacks
    }

    /// The rate that a width of the tree represents.
    pub fn rate(&self, width: u64) -> f64 {
        width as f64 / self.scale
    }
}

/// A frame's values of one side.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    own: u64,
    total: u64,
}

fn sums(side: DiffSide<'_>) -> impl Iterator<Item = (&Frame, Sums)> {
    let profile = side.profile;
    let mut sums = vec![Sums::default(); profile.frames().len()];
    // A recursive function counts once per stack.
    let mut seen_in = vec![usize::MAX; sums.len()];
    for (number, stack) in profile.stacks().iter().enumerate() {
        for id in &stack.frames {
            let id = *id as usize;
            if seen_in[id] != number {
                seen_in[id] = number;
                sums[id].total += stack.value;
            }
        }
        if let Some(own) = What::own_frame(side.what, profile, &stack.frames) {
            sums[own as usize].own += stack.value;
        }
    }
    profile.frames().iter().zip(sums).filter(|(_, sums)| sums.total > 0)
}

/// The stacks of both with their widths, and the part of each width that belongs to the first profile.
fn join(before: &Profile, after: &Profile, scales: (f64, f64)) -> (Profile, Vec<u64>) {
    let mut joined = Profile::new(before.unit);
    let mut widths: HashMap<Vec<u32>, [u64; 2]> = HashMap::new();
    let mut order: Vec<Vec<u32>> = Vec::new();
    for (which, (profile, scale)) in [(before, scales.0), (after, scales.1)].into_iter().enumerate() {
        let ids: Vec<u32> = profile.frames().iter().map(|f| joined.frame(f.name.clone(), f.area)).collect();
        for stack in profile.stacks() {
            let frames: Vec<u32> = stack.frames.iter().map(|id| ids[*id as usize]).collect();
            // Rounding must not remove an existing stack.
            let width = ((stack.value as f64 * scale).round() as u64).max(1);
            widths.entry(frames).or_insert_with_key(|frames| {
                order.push(frames.clone());
                [0; 2]
            })[which] += width;
        }
    }
    let mut parts = Vec::with_capacity(order.len());
    for frames in order {
        let [before, after] = widths[&frames];
        joined.add(&frames, before + after);
        parts.push(before);
    }
    (joined, parts)
}

/// Parameters of the confidence intervals.
struct Scatter {
    divisors: (f64, f64),
    totals: (f64, f64),
    events: Option<(f64, f64)>,
    shares: bool,
    z: f64,
}

impl Scatter {
    fn moved(&self, before: u64, after: u64) -> RateChange {
        let rates = (before as f64 / self.divisors.0, after as f64 / self.divisors.1);
        let interval = self.events.map(|events| {
            let one = |value: u64, total: f64, events: f64, divisor: f64| {
                // The value per event.
                let event = total / events;
                let count = value as f64 / event;
                let (low, high) =
                    if self.shares { wilson(count, events, self.z) } else { score(count, self.z) };
                let rate = event / divisor * if self.shares { events } else { 1.0 };
                (low * rate, high * rate)
            };
            let first = one(before, self.totals.0, events.0, self.divisors.0);
            let second = one(after, self.totals.1, events.1, self.divisors.1);
            let change = rates.1 - rates.0;
            let down = (rates.1 - second.0).hypot(first.1 - rates.0);
            let up = (second.1 - rates.1).hypot(rates.0 - first.0);
            (change - down, change + up)
        });
        RateChange { before: rates.0, after: rates.1, interval }
    }
}

/// The score interval of a Poisson count.
fn score(count: f64, z: f64) -> (f64, f64) {
    let middle = count + z * z / 2.0;
    let half = z * (count + z * z / 4.0).sqrt();
    ((middle - half).max(0.0), middle + half)
}

/// Wilson's interval of a share of `all`.
fn wilson(count: f64, all: f64, z: f64) -> (f64, f64) {
    let (share, spread) = (count / all, z * z / all);
    let middle = share + spread / 2.0;
    let half = z * (share * (1.0 - share) / all + spread / all / 4.0).max(0.0).sqrt();
    (((middle - half) / (1.0 + spread)).max(0.0), ((middle + half) / (1.0 + spread)).min(1.0))
}

/// Quantile of the normal distribution for probabilities from 0.5 (Abramowitz and Stegun, 26.2.23; error below
/// 0.00045).
fn quantile(probability: f64) -> f64 {
    let tail = (1.0 - probability).max(f64::MIN_POSITIVE);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    t - above / below
}

#[cfg(test)]
#[path = "flame_diff_tests.rs"]
mod tests;
