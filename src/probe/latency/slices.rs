//! Decides when operations are followed. They are followed all the time while the programs stay within their budget.
//! Otherwise they are followed in time slices. Between slices, the programs that follow operations are detached and
//! cost nothing, not even the slow path that a tracepoint at system calls forces all of them onto.
//!
//! A slice has two parts. In the first part, new operations are followed. In the second, no new ones are followed, and
//! those in flight may end, so that long ones do not vanish from the tail. Those that have not ended by then are
//! counted as cut.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapMut};

use super::programs::OPERATION_PROGRAMS;
use super::{LatencyProbe, missing};
use crate::clock::now_ns;
use crate::envelope::Missing;
use crate::probe::cost::{CostMeter, Shares};
use crate::probe::maps::array;
use crate::wire::{OPS_SHARDED, Record as _, WireBioIo, WireSlot, places};

/// `FOLLOW_*` of `bpf/wire/operations.h`.
const STARTS: u32 = 1;
const ENDS: u32 = 2;
const ALL: u32 = 4;

/// The minimum time that the programs are attached: each attach and detach at system calls walks all threads and
/// patches the kernel's text on all CPUs.
const SLICE: Duration = Duration::from_secs(1);
/// The second part of a slice.
const REST: Duration = Duration::from_millis(200);
/// Minimum time between the starts of two slices.
const PERIOD: Duration = Duration::from_secs(5);
/// Maximum, whatever the budget is: if operations are requested, some are measured.
const LONGEST_PERIOD: Duration = Duration::from_secs(20);
/// Age of a slice from which on I/Os of no operation are classified. Earlier, the operation of such an I/O may have
/// been in flight when the slice began; after this time there are few.
const OLD: Duration = Duration::from_millis(50);
/// Limit on the time spent on attaching and detaching, as a fraction of the run.
const EDGES: f64 = 0.005;
/// Operations are followed all the time again if that takes less than this fraction of the budget.
const CALM: f64 = 0.8;
/// Usage above this fraction of the budget is reported: slices end late by up to a sleep.
const SLACK: f64 = 1.1;

/// The length of slices, and the time between the starts of two slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    slice: Duration,
    period: Duration,
}

impl Turns {
    /// `budget`, `operations` (cost of the programs that follow operations) and `others` are fractions of the busiest
    /// CPU; `edges` is the time that attaching and detaching took. None: the budget suffices for all.
    pub fn new(budget: f64, operations: f64, others: f64, edges: Duration) -> Option<Self> {
        if operations + others <= budget {
            return None;
        }
        let share = ((budget - others) / operations).max(0.0);
        let least = PERIOD.max(edges.div_f64(EDGES)).min(LONGEST_PERIOD);
        let slice = SLICE.max(least.mul_f64(share.min(0.9)));
        let period = slice.div_f64(share.max(1e-3)).clamp(least, LONGEST_PERIOD);
        Some(Self { slice, period })
    }

    /// Fraction of the time in which the programs are attached.
    fn share(self) -> f64 {
        self.slice.as_secs_f64() / self.period.as_secs_f64()
    }
}

#[derive(Debug, Clone, Copy)]
enum SlicePhase {
    /// All the time.
    Whole,
    /// New operations are followed until then.
    Starts(Instant),
    /// Operations that began are followed until then.
    Rest(Instant),
    /// None are followed until then.
    Off(Instant),
}

/// Follows operations within a budget.
pub struct Slices {
    /// Fraction of the busiest CPU.
    budget: f64,
    phase: SlicePhase,
    /// Start of the current slice.
    began: Instant,
    turns: Turns,
    /// Measures the cost between slices; the cost within slices is measured by the probe.
    pub off: Option<CostMeter>,
    /// Total time that the programs for operations were attached, without the current slice.
    attached: Duration,
    opened: Instant,
    /// How long attaching and detaching took, the last time.
    edges: Duration,
    /// I/Os by CPU, or by hardware queue if there are several, at the last decision.
    spread: Vec<u64>,
    decided: u64,
    sliced: bool,
    /// Cost of the programs as a fraction of the busiest CPU, if even the shortest and rarest slices exceed the budget.
    excess: Option<f64>,
}

/// How long operations were followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct FollowTime {
    /// In completed slices, ns.
    ended_ns: u64,
    /// CLOCK_MONOTONIC; None: new operations are not followed now.
    since_ns: Option<u64>,
    /// Operations in flight at the end of a slice.
    pub cut: u64,
}

impl FollowTime {
    /// Time until `at_ns`, which is not before the last change.
    pub fn until(&self, at_ns: u64) -> u64 {
        self.ended_ns + self.since_ns.map_or(0, |since| at_ns.saturating_sub(since))
    }

    pub fn begin(&mut self, at_ns: u64) {
        self.since_ns = Some(at_ns);
    }

    fn end(&mut self, at_ns: u64) {
        self.ended_ns = self.until(at_ns);
        self.since_ns = None;
    }
}

impl Slices {
    /// `percent` of the busiest CPU.
    pub fn new(percent: f64) -> Self {
        let now = Instant::now();
        Self {
            budget: percent / 100.0,
            phase: SlicePhase::Whole,
            began: now,
            turns: Turns { slice: SLICE, period: PERIOD },
            off: CostMeter::new(),
            attached: Duration::ZERO,
            opened: now,
            edges: Duration::ZERO,
            spread: Vec::new(),
            decided: 0,
            sliced: false,
            excess: None,
        }
    }

    /// Whether operations are followed now, or may still end.
    pub fn attached(&self) -> bool {
        !matches!(self.phase, SlicePhase::Off(_))
    }

    /// Whether operations were at times not followed.
    pub fn sliced(&self) -> bool {
        self.sliced
    }

    /// Reports that the budget was exceeded; None: it was not.
    pub fn missing(&self) -> Option<Missing> {
        self.excess.map(|excess| missing::over_budget(excess * 100.0, self.budget * 100.0))
    }

    /// Fraction of the time in which the programs that follow operations were attached.
    pub fn share(&self) -> f64 {
        let now = if self.attached() { self.began.elapsed() } else { Duration::ZERO };
        let all = self.opened.elapsed().as_secs_f64();
        ((self.attached + now).as_secs_f64() / all.max(1e-9)).min(1.0)
    }

    /// Called when the interval begins.
    pub fn open(&mut self) {
        self.opened = Instant::now();
        self.began = self.opened;
    }

    /// No more slices: the programs cannot be attached.
    pub fn give_up(&mut self) {
        self.phase = SlicePhase::Off(Instant::now() + Duration::from_secs(u32::MAX.into()));
    }

    /// The busiest CPU's share of the cost: its share of the I/Os since the last decision.
    fn busiest(&mut self, spread: Vec<u64>) -> f64 {
        let before = std::mem::replace(&mut self.spread, spread);
        let then = before.into_iter().chain(std::iter::repeat(0));
        let since: Vec<u64> =
            self.spread.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect();
        let (most, all) = (since.iter().max().copied().unwrap_or(0), since.iter().sum::<u64>());
        if all == 0 { 1.0 } else { most as f64 / all as f64 }
    }
}

/// Cost of the programs that follow operations, and of the others, as fractions of one CPU.
fn two_shares(shares: &Shares) -> (f64, f64) {
    let of = |wanted: bool| {
        let each = shares.programs.iter().filter(|(name, _)| OPERATION_PROGRAMS.contains(name) == wanted);
        each.map(|(_, share)| share).sum::<f64>()
    };
    (of(true), of(false))
}

impl LatencyProbe {
    /// Begins and ends slices when they are due.
    ///
    /// # Errors
    /// When the kernel does not attach again what it had attached before.
    pub(super) fn turn(&mut self) -> Result<()> {
        let Some(mut slices) = self.slices.take() else { return Ok(()) };
        let turned = self.turn_to(&mut slices);
        self.slices = Some(slices);
        turned
    }

    fn turn_to(&mut self, slices: &mut Slices) -> Result<()> {
        let now = Instant::now();
        match slices.phase {
            SlicePhase::Whole => {
                if now.duration_since(slices.began) >= SLICE
                    && let Some(turns) = self.decide(slices, 1.0)?
                {
                    slices.turns = turns;
                    self.rest(slices)?;
                }
            }
            SlicePhase::Starts(until) if now >= until => {
                match self.decide(slices, CALM)? {
                    Some(turns) => slices.turns = turns,
                    // Either nothing was measured, or the budget suffices for all.
                    None if slices.decided == self.measured() => {
                        slices.phase = SlicePhase::Whole;
                        return self.follow_all();
                    }
                    None => {}
                }
                self.rest(slices)?;
            }
            SlicePhase::Starts(_) => {
                if now.duration_since(slices.began) >= OLD {
                    self.follow(STARTS | ENDS | ALL)?;
                }
            }
            SlicePhase::Rest(until) if now >= until => {
                self.end_metering();
                let edge = Instant::now();
                self.follow(0)?;
                self.detach_operations();
                slices.edges += edge.elapsed();
                self.followed.cut += self.under_way()?;
                slices.attached += slices.began.elapsed();
                slices.phase = SlicePhase::Off(now + slices.turns.period.saturating_sub(slices.turns.slice));
            }
            SlicePhase::Off(until) if now >= until => {
                if let Some(meter) = &mut slices.off {
                    meter.end(&self.metered(), &|| self.completed());
                }
                let edge = Instant::now();
                self.forget_operations()?;
                if let Err(error) = self.attach_programs(&|name| OPERATION_PROGRAMS.contains(&name)) {
                    self.detach_operations();
                    return Err(error);
                }
                slices.edges = edge.elapsed();
                slices.began = Instant::now();
                self.follow(STARTS | ENDS)?;
                self.followed.begin(now_ns());
                if let Some(meter) = &mut self.meter {
                    meter.hurry();
                }
                slices.phase = SlicePhase::Starts(slices.began + slices.turns.slice.saturating_sub(REST));
            }
            SlicePhase::Rest(_) | SlicePhase::Off(_) => {}
        }
        Ok(())
    }

    fn detach_operations(&mut self) {
        OPERATION_PROGRAMS.iter().for_each(|name| drop(self.links.remove(name)));
    }

    /// Stops following new operations.
    fn rest(&mut self, slices: &mut Slices) -> Result<()> {
        self.followed.end(now_ns());
        self.follow(ENDS)?;
        slices.sliced = true;
        slices.phase = SlicePhase::Rest(Instant::now() + REST);
        Ok(())
    }

    /// Decides how to continue, given the costs since the last decision. None: follow all the time, or nothing was
    /// measured.
    fn decide(&mut self, slices: &mut Slices, part: f64) -> Result<Option<Turns>> {
        let Some(meter) = &self.meter else { return Ok(None) };
        let Some(shares) = meter.shares().filter(|shares| shares.number > slices.decided) else {
            return Ok(None);
        };
        slices.decided = shares.number;
        let (operations, others) = two_shares(shares);
        // If the budget is kept even with the whole cost on one CPU, rows need not be read.
        if operations + others <= slices.budget * part {
            return Ok(None);
        }
        let busiest = slices.busiest(self.spread()?);
        let turns = Turns::new(slices.budget * part, operations * busiest, others * busiest, slices.edges);
        let taken = busiest * (others + operations * turns.map_or(1.0, Turns::share));
        if taken > slices.excess.unwrap_or(slices.budget * SLACK) {
            slices.excess = Some(taken);
        }
        Ok(turns)
    }

    /// Number of slices in which the cost was measured.
    fn measured(&self) -> u64 {
        self.meter.as_ref().and_then(CostMeter::shares).map_or(0, |shares| shares.number)
    }

    /// The meter of the programs that are attached now.
    pub(super) fn current_meter(&mut self) -> &mut Option<CostMeter> {
        match &mut self.slices {
            Some(slices) if !slices.attached() => &mut slices.off,
            _ => &mut self.meter,
        }
    }

    /// Ends the current measurement of the cost.
    pub(super) fn end_metering(&mut self) {
        if let Some(mut meter) = self.current_meter().take() {
            meter.end(&self.metered(), &|| self.completed());
            *self.current_meter() = Some(meter);
        }
    }

    fn follow(&mut self, which: u32) -> Result<()> {
        self.skel.maps.bss_data.as_mut().context("the object has data")?.following = which;
        Ok(())
    }

    /// Follows all operations from now on.
    pub(super) fn follow_all(&mut self) -> Result<()> {
        self.follow(STARTS | ENDS | ALL)
    }

    /// Completed I/Os by CPU, or by hardware queue where a device has several.
    fn spread(&self) -> Result<Vec<u64>> {
        let mut by_place = Vec::new();
        for device in self.samples(false)? {
            let shards = device.shards.max(1) as usize;
            for (i, row) in device.rows.iter().enumerate() {
                let (queue, shard) = (i / OPS_SHARDED / shards, i / OPS_SHARDED % shards);
                let place = if device.hw_queues > 1 { queue } else { shard };
                by_place.resize(by_place.len().max(place + 1), 0);
                by_place[place] += row.stages[1].count() + row.untimed;
            }
        }
        Ok(by_place)
    }

    /// Operations that were followed and have an I/O in flight. Those of requests with several bios are not included.
    fn under_way(&self) -> Result<u64> {
        let mut all = BTreeSet::new();
        let mut note = |io: u64, op_ref: u32, generation: u64| {
            all.extend(places::operation(op_ref).filter(|_| io != 0).map(|number| (number, generation)));
            Ok(())
        };
        array(&self.skel.maps.slots, |_, slot| {
            let slot = WireSlot::decode(slot)?;
            note(slot.request, slot.op_ref, slot.generation)
        })?;
        if self.attached.contains("bio_complete") {
            array(&self.skel.maps.bio_ios, |_, io| {
                let io = WireBioIo::decode(io)?;
                note(io.bio, io.op_ref, io.generation)
            })?;
        }
        Ok(all.len() as u64)
    }

    /// Empties the tables of operations and calls. Operations in flight at the end of the last slice must not be
    /// confused with those of the next slice, which may use the same requests and threads.
    pub(super) fn forget_operations(&self) -> Result<()> {
        let maps = &self.skel.maps;
        for map in [&maps.operations, &maps.callers, &maps.rings] {
            clear(map)?;
        }
        if maps.iocbs.max_entries() > 1 { clear(&maps.iocbs) } else { Ok(()) }
    }
}

/// Zeroes an array.
fn clear(map: &MapMut<'_>) -> Result<()> {
    let count = map.max_entries();
    let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
    let values = vec![0u8; count as usize * map.value_size() as usize];
    map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
        .with_context(|| format!("clearing the BPF map {}", map.name().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(budget: f64, operations: f64, others: f64) -> Option<(u64, u64)> {
        let millis = |time: Duration| time.as_millis() as u64;
        Turns::new(budget, operations, others, Duration::ZERO).map(|t| (millis(t.slice), millis(t.period)))
    }

    #[test]
    fn slices_are_as_long_and_as_rare_as_the_budget_asks() {
        assert_eq!(turns(0.03, 0.02, 0.01), None);
        // The budget leaves half of the operations' cost: half of the time.
        assert_eq!(turns(0.03, 0.04, 0.01), Some((2500, 5000)));
        assert_eq!(turns(0.03, 0.2, 0.01), Some((1000, 10_000)));
        // The period hits its maximum, and there is no budget left at all.
        assert_eq!(turns(0.03, 1.0, 0.02), Some((1000, 20_000)));
        assert_eq!(turns(0.03, 0.2, 0.06), Some((1000, 20_000)));
        // Slightly above the budget: there is a pause all the same.
        assert_eq!(turns(0.03, 0.0201, 0.01), Some((4500, 5000)));
    }

    #[test]
    fn edges_that_take_long_are_rare() {
        let edges = Duration::from_millis(50);
        let found = Turns::new(0.03, 0.04, 0.01, edges).unwrap();
        assert_eq!((found.slice, found.period), (Duration::from_secs(5), Duration::from_secs(10)));
    }

    #[test]
    fn the_time_in_which_operations_are_followed_adds_up() {
        let mut followed = FollowTime::default();
        assert_eq!(followed.until(5), 0);
        followed.begin(100);
        assert_eq!([followed.until(100), followed.until(130)], [0, 30]);
        followed.end(150);
        assert_eq!(followed.until(1_000), 50);
        followed.begin(1_000);
        assert_eq!(followed.until(1_010), 60);
    }

    #[test]
    fn the_busiest_cpu_is_that_of_the_last_ios() {
        let mut slices = Slices { off: None, ..Slices::new(3.0) };
        assert_eq!(slices.busiest(vec![]), 1.0, "unknown");
        assert_eq!(slices.busiest(vec![10, 30]), 0.75);
        assert_eq!(slices.busiest(vec![20, 30]), 1.0);
        assert_eq!(slices.busiest(vec![30, 40, 20, 0]), 0.5);
    }
}
