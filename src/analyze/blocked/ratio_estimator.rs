//! Scales sampled waits up to exact counts: per process where it has enough samples, otherwise per name (ratio
//! estimator).
//!
//! Example: one process has a stack that represents fifty times its own wait, and forty-nine like it have none. No
//! single process is estimated well, but their sum is. So they are scaled together, to their common count.

use std::collections::BTreeMap;

use crate::analyze::confidence::widest;
use crate::wire::blocked::{ProcessName, RawBlocked, Waits};

/// The group that is scaled to one count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Process(u32),
    /// Processes with too few sampled waits each, by the name of the thread that waited longest.
    Name(Vec<u8>),
    /// The remaining ones.
    Rest,
}

/// A group's exact count, and what its stacks represent, for certain and by sampling, ns.
#[derive(Debug, Clone, Copy, Default)]
struct GroupShare {
    counted: u64,
    sure: u64,
    estimated: u64,
}

impl GroupShare {
    fn add(&mut self, other: Self) {
        self.counted += other.counted;
        self.sure += other.sure;
        self.estimated = self.estimated.saturating_add(other.estimated);
    }

    fn with(&mut self, waits: &Waits) {
        self.sure += waits.sure_ns;
        self.estimated = self.estimated.saturating_add(by_chance(waits));
    }

    /// The part of the count that was sampled.
    fn left(self) -> u64 {
        self.counted.saturating_sub(self.sure)
    }

    /// The scale factor: the sampled part of the count, divided by its estimate.
    fn factor(self) -> f64 {
        match (self.counted, self.estimated) {
            // Not counted.
            (0, _) | (_, 0) => 1.0,
            (_, estimated) => self.left() as f64 / estimated as f64,
        }
    }
}

fn by_chance(waits: &Waits) -> u64 {
    waits.ns.saturating_sub(waits.sure_ns)
}

/// Unit of [`Waits::squares`], ns².
const UNIT: f64 = 1_048_576.0;

/// With fewer waits a group cannot be scaled by itself: their number is as uncertain as their stacks.
const FEW: f64 = 8.0;

/// The groups of an interval.
#[derive(Debug)]
pub struct RatioEstimator {
    homes: BTreeMap<u32, Home>,
    /// Names with a group of their own.
    names: BTreeMap<Vec<u8>, Home>,
    shares: BTreeMap<Home, GroupShare>,
    /// Each process by itself.
    own: BTreeMap<u32, GroupShare>,
}

impl RatioEstimator {
    /// Assigns each process to a group.
    pub fn of(raw: &RawBlocked) -> Self {
        let mut shares: BTreeMap<(u32, Vec<u8>), GroupShare> = BTreeMap::new();
        let mut longest: BTreeMap<u32, (u64, &[u8])> = BTreeMap::new();
        for ((pid, comm), sum) in &raw.processes {
            let name = longest.entry(*pid).or_insert((sum.ns, comm));
            if name.0 < sum.ns {
                *name = (sum.ns, comm);
            }
        }
        // For pid 0 only names are known, those at the exit of its threads, and their stacks may have earlier names.
        let key = |pid: u32| match longest.get(&pid) {
            Some((_, name)) if pid != 0 => (pid, name.to_vec()),
            _ => (0, Vec::new()),
        };
        for ((pid, _), sum) in &raw.processes {
            shares.entry(key(*pid)).or_default().counted += sum.ns;
        }
        let mut squares = 0.0;
        for (pid, waits) in all(raw) {
            shares.entry(key(pid)).or_default().with(waits);
            squares += waits.squares as f64 * UNIT;
        }
        let estimated: f64 = shares.values().map(|share| share.estimated as f64).sum();
        // Mean weight of a sampled wait, weighted by time.
        let weight = if estimated > 0.0 { squares / estimated } else { 0.0 };
        // Does not depend on the number of samples: selecting groups by their samples would bias the estimate.
        let has_enough = |share: GroupShare| {
            let is_whole = share.counted > 0 && share.counted >= share.sure;
            let is_sure = share.left() == 0 || estimated == 0.0;
            is_whole && (is_sure || share.estimated > 0 && share.left() as f64 >= FEW * weight)
        };
        let mut strata = Self {
            homes: BTreeMap::new(),
            names: BTreeMap::new(),
            shares: BTreeMap::new(),
            own: shares.iter().map(|((pid, _), share)| (*pid, *share)).filter(|(pid, _)| *pid != 0).collect(),
        };
        let mut by_name: BTreeMap<Vec<u8>, GroupShare> = BTreeMap::new();
        for ((pid, name), share) in shares {
            if pid == 0 {
                strata.shares.entry(Home::Rest).or_default().add(share);
            } else if has_enough(share) {
                strata.homes.insert(pid, Home::Process(pid));
                strata.shares.insert(Home::Process(pid), share);
            } else {
                strata.homes.insert(pid, Home::Name(name.clone()));
                by_name.entry(name).or_default().add(share);
            }
        }
        for (name, share) in by_name {
            let home = if has_enough(share) { Home::Name(name.clone()) } else { Home::Rest };
            strata.shares.entry(home.clone()).or_default().add(share);
            strata.names.insert(name, home);
        }
        strata
    }

    fn home(&self, pid: u32) -> &Home {
        match self.homes.get(&pid) {
            Some(Home::Name(name)) => self.names.get(name).unwrap_or(&Home::Rest),
            Some(home) => home,
            None => &Home::Rest,
        }
    }

    fn share(&self, home: &Home) -> GroupShare {
        self.shares.get(home).copied().unwrap_or_default()
    }

    /// Sampled time of processes with too few waits to be scaled by themselves, ns.
    pub fn pooled_ns(&self) -> u64 {
        let of_several = self.shares.iter().filter(|(home, _)| !matches!(home, Home::Process(_)));
        of_several.filter(|(_, share)| share.estimated > 0).map(|(_, share)| share.left()).sum()
    }

    /// The time that waits represent, ns.
    pub fn scaled(&self, pid: u32, waits: &Waits) -> u64 {
        let estimated = by_chance(waits) as f64 * self.share(self.home(pid)).factor();
        waits.sure_ns + estimated.round() as u64
    }

    /// Time without stacks, by process and thread name: of waits known to have none, and of counts without any sample.
    pub fn without_stack(&self, raw: &RawBlocked) -> BTreeMap<ProcessName, u64> {
        let bare =
            |(process, waits): (&ProcessName, &Waits)| (process.clone(), self.scaled(process.0, waits));
        let mut left: BTreeMap<ProcessName, u64> = raw.bare.iter().map(bare).collect();
        for ((pid, comm), sum) in &raw.processes {
            let home = self.share(self.home(*pid));
            let share = self.own.get(pid).copied().unwrap_or(home);
            if home.estimated == 0 && share.left() > 0 {
                let part = share.left() as f64 / share.counted as f64;
                *left.entry((*pid, comm.clone())).or_default() += (sum.ns as f64 * part).round() as u64;
            }
        }
        left
    }

    /// Half-width of the 95 % confidence interval of a stack's share (of `all`), in percent, for the worst set of
    /// stacks. None: nothing was sampled.
    pub fn half_width(&self, raw: &RawBlocked, all_ns: u64) -> Option<f64> {
        let mut homes: BTreeMap<&Home, Vec<(f64, f64)>> = BTreeMap::new();
        for (pid, waits) in all(raw) {
            if by_chance(waits) == 0 {
                continue;
            }
            let home = self.home(pid);
            let factor = self.share(home).factor();
            let part = (by_chance(waits) as f64 * factor, waits.squares as f64 * UNIT * factor * factor);
            homes.entry(home).or_default().push(part);
        }
        let variance: f64 = homes.into_values().map(known_worst).sum();
        (variance > 0.0 && all_ns > 0).then(|| 100.0 * (1.96 * variance.sqrt() / all_ns as f64).min(1.0))
    }
}

/// The largest variance of any share of a group. A stack that was never sampled may have a share of up to 3/n with 95 %
/// confidence (Hanley 1983), where n is the number of equal waits with the same variance. No variance exceeds that of a
/// half.
fn known_worst(parts: Vec<(f64, f64)>) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.0).sum();
    let variance: f64 = parts.iter().map(|part| part.1).sum();
    if sum <= 0.0 {
        return 0.0;
    }
    let unseen = (3.0 * variance / sum / 1.96).powi(2).min(variance / 4.0);
    widest(parts).max(unseen)
}

/// All waits that represent time, with or without a stack, by process.
fn all(raw: &RawBlocked) -> impl Iterator<Item = (u32, &Waits)> {
    let stacks = raw.samples.iter().map(|(sample, waits)| (sample.pid, waits));
    stacks.chain(raw.bare.iter().map(|((pid, _), waits)| (*pid, waits)))
}
