//! Time of I/Os by the route they were handed in, and by stage.
//!
//! Stacks are taken of some of the I/Os, times of all: what the stages of a class of I/O took together is known exactly,
//! and shared out among the stacks of that class as those of its I/Os that have one took. An I/O that was taken while
//! one in N was stands for N.

use std::collections::{BTreeMap, HashMap};

use super::blocked::watched;
use super::latency::LatencySummary;
use super::op::Op;
use super::stacks::{addresses_of, escape, fold};
use super::stage::Stage;
use super::trace::io::TracedIo;
use super::unwinding::ending;
use crate::symbols::{Addresses, Names};
use crate::wire::stacks::{KTHREAD, Sample};
use crate::wire::submits::Submits;

/// What a part of an I/O's time stands at, as the leaf of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Stage(Stage),
    /// All of it, on a device without requests.
    Bio,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.name(),
            Self::Bio => "bio",
        }
    }

    /// A part of an operation, of which several I/Os may be.
    fn is_of_operation(self) -> bool {
        matches!(self, Self::Stage(Stage::Submit | Stage::Reap))
    }

    /// As a frame.
    pub fn frame(self) -> String {
        format!("[{}]", self.name())
    }

    /// What a frame is the part of, if it is one.
    pub fn of_frame(text: &str) -> Option<Self> {
        let name = text.strip_prefix('[')?.strip_suffix(']')?;
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == name).map(Self::Stage);
        stage.or((name == Self::Bio.name()).then_some(Self::Bio))
    }
}

/// What shares one exact time. Operations are of a device, I/Os of a class on it as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Class {
    device: String,
    op: Option<Op>,
    part: Part,
}

/// What some I/Os stand for.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    /// ns × I/Os that the I/O stands for.
    ns: u128,
    /// I/Os that they stand for.
    ios: u128,
}

/// The I/Os that have a stack, as they come.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// By class and stack.
    times: HashMap<Class, HashMap<u32, Sum>>,
    /// I/Os with a stack that belong to an operation.
    owned: BTreeMap<String, u64>,
    /// I/Os with a stack that were timed.
    ios: u64,
    /// Of what each of them stands for, ns: the sum, and that of the squares.
    sum: f64,
    squares: f64,
}

impl Tally {
    /// Takes in an I/O of the device of this name; one without a stack, or without times, is nothing.
    pub fn add(&mut self, device: &str, io: &TracedIo) {
        let (Some(route), Some(op)) = (io.route, io.op) else { return };
        let mut all = None;
        let mut add = |op: Option<Op>, part: Part, ns: u64| {
            *all.get_or_insert(0.0) += ns as f64 * route.stands_for as f64;
            let class = Class { device: device.to_string(), op, part };
            let sum = self.times.entry(class).or_default().entry(route.stack).or_default();
            sum.ns += u128::from(ns) * u128::from(route.stands_for);
            sum.ios += u128::from(route.stands_for);
        };
        match io.queue {
            Some(_) => io.stages.iter().for_each(|(stage, ns)| add(Some(op), Part::Stage(stage), ns)),
            None => io.total_ns.into_iter().for_each(|ns| add(Some(op), Part::Bio, ns)),
        }
        // The operation's own stages are those of the I/O that it ended with.
        let end = io.operation.and_then(|operation| operation.end).filter(|end| end.last);
        for (stage, ns) in end.and_then(|end| end.stages).iter().flat_map(|stages| stages.iter()) {
            if Part::Stage(stage).is_of_operation() {
                add(None, Part::Stage(stage), ns);
            }
        }
        if io.operation.is_some() {
            *self.owned.entry(device.to_string()).or_default() += 1;
        }
        if let Some(all) = all {
            self.ios += 1;
            self.sum += all;
            self.squares += all * all;
        }
    }

    /// Half of the interval in which a share of the time lies with 95 % certainty, in percent of all: that of a share of
    /// one half, which is the widest. I/Os that stand for more, or took longer, are as good as fewer (Kish 1965).
    fn half_width(&self) -> Option<f64> {
        let as_many = self.sum * self.sum / self.squares;
        (self.ios > 0 && as_many > 0.0).then(|| 100.0 * 1.96 * 0.5 / as_many.sqrt())
    }
}

/// Time of I/Os by route and stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SubmitSummary {
    /// `comm;frame;...;leaf;[stage]` to ns. The sum is that of the exact times of all stages.
    pub folded: BTreeMap<String, u64>,
    /// Exact, by part.
    pub parts: BTreeMap<Part, u64>,
    /// I/Os in the window, and those of them whose stacks stand for all.
    pub ios: u64,
    pub sampled: u64,
    /// A share of the time is known to within so many percent of all, with 95 % certainty; None without a stack.
    pub half_width: Option<f64>,
    /// Of `folded`: time of classes of which no I/O has a stack.
    pub no_stack_ns: u64,
    /// Time of stacks whose frames of user mode end in the middle of a program.
    pub cut_ns: u64,
    /// Left out of submit: what it took to take the stacks.
    pub stacks_ns: u64,
    /// Distinct stacks.
    pub distinct: usize,
}

/// The addresses that need names.
pub fn addresses(submits: &Submits) -> Addresses {
    addresses_of(submits.stacks.values(), &submits.maps)
}

/// Shares the exact times of `latency` among the stacks.
pub fn summarize(latency: &LatencySummary, tally: &Tally, submits: &Submits, names: &Names) -> SubmitSummary {
    let mut summary = SubmitSummary {
        ios: latency.ios(),
        sampled: tally.ios,
        half_width: tally.half_width(),
        distinct: submits.stacks.len(),
        ..SubmitSummary::default()
    };
    let mut routes: HashMap<u32, Route> = HashMap::new();
    for (class, counted) in exact(latency) {
        // What it took to take the stacks lies between a call's entry and its bio.
        let ours = if class.part == Part::Stage(Stage::Submit) { submits.stack_mean_ns() } else { 0 };
        let owned = tally.owned.get(&class.device).copied().unwrap_or(0);
        let stacks_ns = (ours * owned).min(counted);
        summary.stacks_ns += stacks_ns;
        let total = counted - stacks_ns;
        *summary.parts.entry(class.part).or_default() += total;
        let none = HashMap::new();
        let times = tally.times.get(&class).unwrap_or(&none);
        let known = times.iter().filter(|(stack, _)| submits.stacks.contains_key(stack));
        let own = |sum: &Sum| sum.ns.saturating_sub(u128::from(ours) * sum.ios);
        let shares: BTreeMap<u32, u128> = known.map(|(stack, sum)| (*stack, own(sum))).collect();
        let frame = class.part.frame();
        let mut add = |key: String, ns: u64| {
            if ns > 0 {
                *summary.folded.entry(key).or_default() += ns;
            }
        };
        if shares.values().all(|ns| *ns == 0) {
            let op = class.op.map_or("operations", Op::name);
            add(format!("[{op}: stack not taken];{frame}"), total);
            summary.no_stack_ns += total;
            continue;
        }
        for (stack, ns) in shared_out(total, &shares) {
            let route = routes.entry(stack).or_insert_with(|| Route::of(&submits.stacks[&stack], names));
            add(format!("{};{frame}", route.key(&class.device)), ns);
            if route.is_cut {
                summary.cut_ns += ns;
            }
        }
    }
    summary
}

/// A stack with names.
struct Route {
    folded: String,
    /// Of a kernel thread: it works for whoever has the device.
    kernel: bool,
    is_cut: bool,
}

impl Route {
    fn of(sample: &Sample, names: &Names) -> Self {
        Self {
            folded: fold(&watched(sample, names), names),
            kernel: sample.flags & KTHREAD != 0,
            is_cut: !sample.user().is_empty() && ending(sample, names).0.is_cut(),
        }
    }

    /// A kernel thread has the device that it serves behind its name: `kworker/0:1H` alone tells nothing, and the same
    /// one serves all of them.
    fn key(&self, device: &str) -> String {
        let parts = self.folded.split_once(';').filter(|_| self.kernel);
        let Some((thread, frames)) = parts else { return self.folded.clone() };
        let mut key = if thread.starts_with("kworker/") { "kworkers" } else { thread }.to_string();
        key.push_str(" for ");
        escape(device.as_bytes(), &mut key);
        key.push(';');
        key.push_str(frames);
        key
    }
}

/// Times of all I/Os and operations.
fn exact(latency: &LatencySummary) -> BTreeMap<Class, u64> {
    let mut all = BTreeMap::new();
    for device in &latency.devices {
        let mut add = |op: Option<Op>, part: Part, ns: u64| {
            let class = Class { device: device.name.clone(), op, part };
            *all.entry(class).or_insert(0) += ns;
        };
        for (op, times) in &device.ops {
            for (stage, hist) in &times.request_stages {
                add(Some(*op), Part::Stage(*stage), hist.sum());
            }
            if let Some(bio) = &times.bio {
                add(Some(*op), Part::Bio, bio.sum());
            }
            for (stage, hist) in times.operations.iter().flat_map(|operations| &operations.stages) {
                if Part::Stage(*stage).is_of_operation() {
                    add(None, Part::Stage(*stage), hist.sum());
                }
            }
        }
    }
    all.retain(|_, ns| *ns > 0);
    all
}

/// `total` in proportion to the shares, of which one at least is above 0: to the last nanosecond.
fn shared_out(total: u64, shares: &BTreeMap<u32, u128>) -> Vec<(u32, u64)> {
    let sum: u128 = shares.values().sum();
    let (mut seen, mut given) = (0u128, 0u64);
    let mut out = Vec::with_capacity(shares.len());
    for (stack, share) in shares {
        seen += share;
        // Products of 2^64 and 2^84 are too large for whole numbers; the last one is exact by itself.
        let until = if seen == sum { total } else { (total as f64 * (seen as f64 / sum as f64)) as u64 };
        let until = until.clamp(given, total);
        out.push((*stack, until - given));
        given = until;
    }
    out
}

#[cfg(test)]
#[path = "submits_tests.rs"]
mod tests;
