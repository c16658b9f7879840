//! Waits that were left to chance, scaled to what was counted: by process where that has enough of them, else by name.
//!
//! Where a process has one stack, which stands for fifty times what the process waited, and forty-nine like it have none,
//! neither says anything of its own process. All of them together are what was counted of all.

use std::collections::BTreeMap;

use crate::analyze::confidence::widest;
use crate::wire::blocked::{Process, RawBlocked, Waits};

/// What is scaled to one count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    Process(u32),
    /// Processes of which each has too few waits with stacks, by the name of the thread that waited longest.
    Name(Vec<u8>),
    /// What is left of these.
    Rest,
}

/// Of a home: what was counted, and what the stacks stand for, for sure and by chance, ns.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    counted: u64,
    sure: u64,
    estimated: u64,
}

impl Share {
    fn add(&mut self, other: Self) {
        self.counted += other.counted;
        self.sure += other.sure;
        self.estimated = self.estimated.saturating_add(other.estimated);
    }

    fn with(&mut self, waits: &Waits) {
        self.sure += waits.sure_ns;
        self.estimated = self.estimated.saturating_add(by_chance(waits));
    }

    /// Of what was counted: what was left to chance.
    fn left(self) -> u64 {
        self.counted.saturating_sub(self.sure)
    }

    /// That, over what chance made of it.
    fn factor(self) -> f64 {
        match (self.counted, self.estimated) {
            // Nobody counted.
            (0, _) | (_, 0) => 1.0,
            (_, estimated) => self.left() as f64 / estimated as f64,
        }
    }
}

fn by_chance(waits: &Waits) -> u64 {
    waits.ns.saturating_sub(waits.sure_ns)
}

/// Of [`Waits::squares`], ns².
const UNIT: f64 = 1_048_576.0;

/// With fewer waits a home cannot be scaled by itself: how many come up is as uncertain as what they are.
const FEW: f64 = 8.0;

/// A window's homes.
#[derive(Debug)]
pub struct RatioEstimator {
    homes: BTreeMap<u32, Home>,
    /// Names that have a home of their own.
    names: BTreeMap<Vec<u8>, Home>,
    shares: BTreeMap<Home, Share>,
    /// Of each process by itself.
    own: BTreeMap<u32, Share>,
}

impl RatioEstimator {
    /// Puts each process where it is scaled.
    pub fn of(raw: &RawBlocked) -> Self {
        let mut shares: BTreeMap<(u32, Vec<u8>), Share> = BTreeMap::new();
        let mut longest: BTreeMap<u32, (u64, &[u8])> = BTreeMap::new();
        for ((pid, comm), sum) in &raw.processes {
            let name = longest.entry(*pid).or_insert((sum.ns, comm));
            if name.0 < sum.ns {
                *name = (sum.ns, comm);
            }
        }
        // Of pid 0 names alone are known, as its threads were called when they ended, and their stacks may have others.
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
        // What one wait by chance stands for, in the mean of the time.
        let weight = if estimated > 0.0 { squares / estimated } else { 0.0 };
        // Not by how many came up: that would be to ask chance which chances count.
        let has_enough = |share: Share| {
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
        let mut by_name: BTreeMap<Vec<u8>, Share> = BTreeMap::new();
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

    fn share(&self, home: &Home) -> Share {
        self.shares.get(home).copied().unwrap_or_default()
    }

    /// Time of processes with too few waits to be scaled by themselves, ns, as far as it was left to chance.
    pub fn pooled_ns(&self) -> u64 {
        let of_several = self.shares.iter().filter(|(home, _)| !matches!(home, Home::Process(_)));
        of_several.filter(|(_, share)| share.estimated > 0).map(|(_, share)| share.left()).sum()
    }

    /// The time that waits stand for, ns.
    pub fn scaled(&self, pid: u32, waits: &Waits) -> u64 {
        let estimated = by_chance(waits) as f64 * self.share(self.home(pid)).factor();
        waits.sure_ns + estimated.round() as u64
    }

    /// Time without stacks, by process and name of the thread: of waits that are known to have none, and what was counted
    /// where there is nothing else.
    pub fn without_stack(&self, raw: &RawBlocked) -> BTreeMap<Process, u64> {
        let bare = |(process, waits): (&Process, &Waits)| (process.clone(), self.scaled(process.0, waits));
        let mut left: BTreeMap<Process, u64> = raw.bare.iter().map(bare).collect();
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

    /// Half of the interval in which a share of the time (`all`) lies with 95 % certainty, in percent: that of the share
    /// which is known worst, of whichever stacks. None: nothing was left to chance.
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

/// Of all shares of what is scaled to one count the largest variance. Of a stack that did not come up three in n are
/// possible with 95 % certainty (Hanley 1983), of as many waits that weigh the same as would scatter like these; and none
/// scatters more than half of them.
fn known_worst(parts: Vec<(f64, f64)>) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.0).sum();
    let variance: f64 = parts.iter().map(|part| part.1).sum();
    if sum <= 0.0 {
        return 0.0;
    }
    let unseen = (3.0 * variance / sum / 1.96).powi(2).min(variance / 4.0);
    widest(parts).max(unseen)
}

/// All that stands for time, with a stack or without, by process.
fn all(raw: &RawBlocked) -> impl Iterator<Item = (u32, &Waits)> {
    let stacks = raw.samples.iter().map(|(sample, waits)| (sample.pid, waits));
    stacks.chain(raw.bare.iter().map(|((pid, _), waits)| (*pid, waits)))
}
