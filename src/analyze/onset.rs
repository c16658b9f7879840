//! Detects the onset of memory trouble: the time at which throughput, free memory, reclaim and spinning changed
//! together, and which of them changed first.
//!
//! 1. The time before and after the load is removed: samples at either end with less than [`LOADED`] of the best
//!    throughput.
//! 2. The series is cut where least-squares lines, one per signal and part, leave the smallest error, with a penalty
//!    per cut (optimal partitioning; all signals are cut at the same samples). A drift or ramp is one line. Free memory
//!    that runs out is two: the bend is a cut.
//! 3. A cut, or several within [`TOGETHER_NS`] of each other, is an onset if all of these hold:
//!     - At least one memory signal (free, reclaim) and one cost signal (throughput, spinning) became worse, each by
//!       its minimum size ([`Signal`]) and significantly. Significant means one of two things. Bent: two lines explain
//!       the signal so much better than one that F(3, n − 5) exceeds its 0.1 % point. Or apart: the two levels differ so
//!       much that Student's t exceeds its 0.1 % point, and they leave at most half the error of a line.
//!     - At least one of them is bent, so it is not a drift. Next to a gap two levels alone prove nothing, since a slope
//!       across the gap looks like them.
//!     - Throughput did not improve: a load that starts moves all other signals too.
//!     - It lasts: in no later part has a moved signal returned past the midpoint of both levels.
//!     - It is new: in no earlier part were all moved signals beyond it. What comes and goes is not an onset.
//! 4. The onset is where one cut fits all moved signals best; each signal also has its own best position.
//!
//! Its error: the position is within one sample of the truth if the signals change by at least four times their noise,
//! and in any case within a gap of the series (`after_ns` and `at_ns` are the gap's ends). On noise without a change,
//! fewer than 1 in 1,000 series of 10 to 120 samples had an onset (a test checks both). Confidence intervals of levels
//! assume independent samples: if each resembles the one before, they are too narrow.

mod fit;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::fit::{SHORTEST, SignalSeries};
use crate::analyze::memory_sample::MemorySample;

/// With fewer samples, in total or on either side, there is no result.
pub const LEAST_MOMENTS: usize = 10;
pub const LEAST_ON_A_SIDE: usize = 5;

/// Share of the best throughput below which the load has not begun, or is over.
const LOADED: f64 = 0.05;

/// Signals that change within this time, or within three samples, change together.
const TOGETHER_NS: u64 = 5_000_000_000;

/// Number of steps that the series is cut in; a longer one is first averaged down to this many.
const MOST_STEPS: usize = 400;

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// Free memory, in bytes. For the worse: half of it, or less, is left.
    Free,
    /// Pages that reclaim looked at, per second. For the worse: twice as many, and 10,000 more.
    Reclaim,
    /// CPU time of spinning, in percent of all CPUs: the middle between what it is at least and at most. For the
    /// worse: 5 points more.
    Spin,
    /// CPU time in the kernel, in percent of all CPUs, where spinning was not measured. For the worse: 10 points more.
    System,
    /// Bytes per second, read and written. For the worse: 15 % less.
    Throughput,
}

impl Signal {
    /// In the order in which trouble spreads, which breaks ties between signals that change at the same time.
    pub const ALL: [Self; 5] = [Self::Free, Self::Reclaim, Self::Spin, Self::System, Self::Throughput];

    /// The name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free memory",
            Self::Reclaim => "reclaim",
            Self::Spin => "spinning",
            Self::System => "CPU time in the kernel",
            Self::Throughput => "throughput",
        }
    }

    fn is_memory(self) -> bool {
        matches!(self, Self::Free | Self::Reclaim)
    }

    /// Its value in a sample.
    fn of(self, moment: &MemorySample) -> Option<f64> {
        let per_second = |n: u64| n as f64 * 1e9 / moment.duration_ns as f64;
        let value = match self {
            Self::Free => moment.free_bytes? as f64,
            Self::Reclaim => per_second(moment.scanned_pages?),
            Self::Spin => moment.spin_percent.map(|(low, high)| (low + high) / 2.0)?,
            Self::System => moment.system_percent?,
            Self::Throughput => match (moment.read_bytes, moment.written_bytes) {
                (None, None) => return None,
                (read, written) => per_second(read.unwrap_or(0)) + per_second(written.unwrap_or(0)),
            },
        };
        value.is_finite().then_some(value)
    }

    /// Whether a change is for the worse and large enough to matter.
    fn is_worse(self, before: f64, after: f64) -> bool {
        match self {
            Self::Free => after <= before * 0.5,
            Self::Reclaim => after >= before * 2.0 && after >= before + 10_000.0,
            Self::Spin => after >= before + 5.0,
            Self::System => after >= before + 10.0,
            Self::Throughput => after <= before * 0.85,
        }
    }
}

/// A signal's mean over a part of the series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    pub mean: f64,
    /// The interval that holds the mean with 95 %.
    pub low: f64,
    pub high: f64,
    /// How many moments it rests on.
    pub moments: usize,
}

/// A signal that moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignalChange {
    pub signal: Signal,
    /// End of the first moment behind its own change.
    pub at_ns: u64,
    pub before: Level,
    pub after: Level,
}

/// When it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Onset {
    /// End of the last moment of the old state, from the start of the run.
    pub after_ns: u64,
    /// End of the first moment of the new one: it flipped in between.
    pub at_ns: u64,
    /// By when they moved; those that moved at one moment in the order in which trouble spreads.
    pub moved: Vec<SignalChange>,
    /// Those that moved at the first moment.
    pub first: Vec<Signal>,
}

impl Onset {
    /// The change of that signal; None where it did not change.
    pub fn of(&self, signal: Signal) -> Option<&SignalChange> {
        self.moved.iter().find(|moved| moved.signal == signal)
    }
}

/// Why there is no onset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoOnset {
    /// Not enough samples under load.
    TooShort,
    /// No memory signal, or no cost signal, was measured.
    TooLittleKnown,
    /// Nothing changed for the worse, together and permanently.
    Steady,
}

impl NoOnset {
    /// The reason, as continuation of "no onset is named: ".
    pub fn why(self) -> &'static str {
        match self {
            Self::TooShort => "fewer than 10 samples under load",
            Self::TooLittleKnown => "free memory or reclaim, and throughput or CPU time, must be sampled",
            Self::Steady => "no lasting change for the worse in several figures at once",
        }
    }
}

/// Finds the onset in a series of samples in time order. Samples of length 0, and those not later than the one before,
/// are ignored.
///
/// Fails with the reason if there is none.
pub fn onset(moments: &[MemorySample]) -> Result<Onset, NoOnset> {
    let mut end_ns = 0;
    let in_order = |moment: &&MemorySample| {
        let later = moment.duration_ns > 0 && moment.at_ns > end_ns;
        end_ns = if later { moment.at_ns } else { end_ns };
        later
    };
    let ordered: Vec<MemorySample> = moments.iter().filter(in_order).copied().collect();
    let loaded = under_load(&ordered);
    if loaded.len() < LEAST_MOMENTS {
        return Err(NoOnset::TooShort);
    }
    let run = RunSeries::new(loaded);
    let has = |memory: bool| run.signals.iter().any(|(signal, _)| signal.is_memory() == memory);
    if !has(true) || !has(false) {
        let stands_still = |memory: bool| {
            Signal::ALL.iter().any(|s| s.is_memory() == memory && loaded.iter().any(|m| s.of(m).is_some()))
        };
        let known = stands_still(true) && stands_still(false);
        return Err(if known { NoOnset::Steady } else { NoOnset::TooLittleKnown });
    }
    let cuts = run.cuts();
    let judged = run.events(&cuts).into_iter().filter_map(|event| run.judge(event, &cuts));
    judged.max_by(OnsetFit::order).map_or(Err(NoOnset::Steady), |judged| Ok(judged.onset))
}

/// Removes the samples at both ends with almost no load.
fn under_load(moments: &[MemorySample]) -> &[MemorySample] {
    let rate = |moment: &MemorySample| Signal::Throughput.of(moment);
    let best = moments.iter().filter_map(rate).fold(0.0, f64::max);
    let is_loaded = |moment: &MemorySample| rate(moment).is_none_or(|rate| rate >= best * LOADED);
    let (Some(first), Some(last)) = (moments.iter().position(is_loaded), moments.iter().rposition(is_loaded))
    else {
        return &[];
    };
    &moments[first..=last]
}

/// The series of a run, sample by sample.
struct RunSeries<'a> {
    moments: &'a [MemorySample],
    signals: Vec<(Signal, SignalSeries)>,
}

/// Cuts that belong together: the part before ends at `from`, the part after begins at `to`.
#[derive(Debug, Clone, Copy)]
struct CutGroup {
    /// Start of the part before, and end of the first part after.
    begin: usize,
    from: usize,
    to: usize,
    end: usize,
}

struct OnsetFit {
    onset: Onset,
    /// How much better two lines fit, over all moved signals.
    gain: f64,
}

impl OnsetFit {
    /// More signals are better, then the clearer fit.
    fn order(a: &Self, b: &Self) -> std::cmp::Ordering {
        a.onset.moved.len().cmp(&b.onset.moved.len()).then(a.gain.total_cmp(&b.gain))
    }
}

impl<'a> RunSeries<'a> {
    fn new(moments: &'a [MemorySample]) -> Self {
        Self { moments, signals: series(moments) }
    }

    /// Where the lines change.
    fn cuts(&self) -> Vec<usize> {
        let count = self.moments.len();
        let width = count.div_ceil(MOST_STEPS);
        let binned: Vec<MemorySample>;
        let (signals, steps) = if width == 1 {
            (self.signals.iter().map(|(_, series)| series.clone()).collect::<Vec<_>>(), count)
        } else {
            binned = self.moments.chunks(width).map(mean_of).collect();
            (series(&binned).into_iter().map(|(_, series)| series).collect(), binned.len())
        };
        // Each part has two parameters per signal, and its position: twice the Bayesian criterion (BIC), because the
        // samples of a run are less independent than it assumes.
        let penalty = 2.0 * (2 * signals.len() + 1) as f64 * (steps as f64).ln();
        fit::cuts(&signals, steps, penalty).into_iter().map(|cut| cut * width).collect()
    }

    /// The cuts that may be an onset, alone or with those after them.
    fn events(&self, cuts: &[usize]) -> Vec<CutGroup> {
        let mut events = Vec::new();
        for (at, from) in cuts.iter().enumerate() {
            let mut to_at = at;
            events.push(self.event(cuts, at, to_at));
            while cuts.get(to_at + 1).is_some_and(|next| self.together(*from, *next)) {
                to_at += 1;
                events.push(self.event(cuts, at, to_at));
            }
        }
        events
    }

    fn together(&self, from: usize, to: usize) -> bool {
        let ns = self.moments[to].at_ns.saturating_sub(self.moments[from].at_ns);
        to - from <= SHORTEST || ns <= TOGETHER_NS
    }

    fn event(&self, cuts: &[usize], first: usize, last: usize) -> CutGroup {
        let (from, to) = (cuts[first], cuts[last]);
        // Parts too short for a level are joined with the next ones.
        let before = cuts[..first].iter().rev().copied().find(|cut| from - cut >= LEAST_ON_A_SIDE);
        let behind = cuts[last + 1..].iter().copied().find(|cut| cut - to >= LEAST_ON_A_SIDE);
        CutGroup { begin: before.unwrap_or(0), from, to, end: behind.unwrap_or(self.moments.len()) }
    }

    fn judge(&self, event: CutGroup, cuts: &[usize]) -> Option<OnsetFit> {
        let CutGroup { begin, from, to, .. } = event;
        let count = self.moments.len();
        if from - begin < LEAST_ON_A_SIDE || count - to < LEAST_ON_A_SIDE {
            return None;
        }
        let mut moved: Vec<(&SignalSeries, SignalChange)> = Vec::new();
        let (mut gain, mut ways) = (0.0, Vec::new());
        for (signal, series) in &self.signals {
            let (Some(before), Some(after)) = (level(series, begin, from), level(series, to, count)) else {
                continue;
            };
            let clear = self.bent(series, event).or_else(|| self.apart(series, event));
            let Some((way, place, better)) = clear else { continue };
            if *signal == Signal::Throughput && signal.is_worse(after.mean, before.mean) {
                return None;
            }
            if signal.is_worse(before.mean, after.mean) {
                gain += better;
                ways.push((series, way));
                let at_ns = self.moments[place].at_ns;
                moved.push((series, SignalChange { signal: *signal, at_ns, before, after }));
            }
        }
        let has = |memory: bool| moved.iter().any(|(_, moved)| moved.signal.is_memory() == memory);
        let (old, new) = (parts(0, from, cuts), parts(to, count, cuts));
        let no_drift = ways.iter().any(|(_, way)| *way == SignalModel::Lines);
        if !no_drift || !has(true) || !has(false) || !lasts(&moved, &new) || !is_new(&moved, &old) {
            return None;
        }
        widen(&mut moved, begin, from, &old);
        let (place, _) = self.place(&ways, event)?;
        let mut moved: Vec<SignalChange> = moved.into_iter().map(|(_, moved)| moved).collect();
        moved.sort_by_key(|moved| (moved.at_ns, moved.signal));
        let first_ns = moved[0].at_ns;
        let first = moved.iter().filter(|one| one.at_ns == first_ns).map(|one| one.signal).collect();
        let after_ns = self.moments[place - 1].at_ns;
        Some(OnsetFit { onset: Onset { after_ns, at_ns: self.moments[place].at_ns, moved, first }, gain })
    }

    /// The cut near the event that fits these signals best, and how much better than no cut it is.
    fn place(&self, signals: &[(&SignalSeries, SignalModel)], event: CutGroup) -> Option<(usize, f64)> {
        let CutGroup { begin, from, to, end } = event;
        let reach = SHORTEST.max(2 * self.moments.len().div_ceil(MOST_STEPS));
        let low = from.saturating_sub(reach).max(begin + SHORTEST);
        let high = (to + reach).min(end.checked_sub(SHORTEST)?);
        let left = |cut: usize| signals.iter().map(|(s, way)| way.left(s, begin, cut, end)).sum::<f64>();
        let best = (low..=high).min_by(|a, b| left(*a).total_cmp(&left(*b)))?;
        let whole: f64 = signals.iter().map(|(s, _)| s.left(begin, end)).sum();
        Some((best, (whole / left(best).max(f64::MIN_POSITIVE)).max(1.0).ln().min(50.0)))
    }

    /// Tests whether two lines explain the signal significantly better than one. The bound is above the 0.1 % point of
    /// F(3, n − 5) for every n from ten on: 33.2 for n = 10, 12.6 for 15, 7.5 for 30, 5.4 for many.
    fn bent(&self, series: &SignalSeries, event: CutGroup) -> Option<(SignalModel, usize, f64)> {
        let CutGroup { begin, end, .. } = event;
        let (place, better) = self.place(&[(series, SignalModel::Lines)], event)?;
        let degrees = series.count(begin, end).checked_sub(5).filter(|degrees| *degrees > 0)? as f64;
        let (one, two) = (series.left(begin, end), SignalModel::Lines.left(series, begin, place, end));
        let is_clear = (one - two) / 3.0 >= (10.0 + 120.0 / degrees) * two / degrees;
        is_clear.then_some((SignalModel::Lines, place, better))
    }

    /// Tests whether the levels before and after differ significantly, and explain more than a line for which a gap is
    /// as long as a sample. The bound is above the 0.1 % point of Student's t for the degrees of freedom of the shorter
    /// part: 8.6 for 4, 5.0 for 8, 3.6 for 30.
    fn apart(&self, series: &SignalSeries, event: CutGroup) -> Option<(SignalModel, usize, f64)> {
        let CutGroup { begin, end, .. } = event;
        let (place, better) = self.place(&[(series, SignalModel::Levels)], event)?;
        let counts = [series.count(begin, place), series.count(place, end)];
        let few = counts[0].min(counts[1]).checked_sub(1).filter(|few| *few > 0)? as f64;
        let ((before, narrow), (after, wide)) = (series.level(begin, place)?, series.level(place, end)?);
        let error = (narrow * narrow / counts[0] as f64 + wide * wide / counts[1] as f64).sqrt();
        let is_clear = (after - before).abs() >= (4.0 + 20.0 / few) * error
            && 2.0 * SignalModel::Levels.left(series, begin, place, end) <= series.left_in_steps(begin, end);
        is_clear.then_some((SignalModel::Levels, place, better))
    }
}

/// How a signal is modelled on either side of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalModel {
    Lines,
    Levels,
}

impl SignalModel {
    /// The squared error that it leaves.
    fn left(self, series: &SignalSeries, begin: usize, cut: usize, end: usize) -> f64 {
        match self {
            Self::Lines => series.left(begin, cut) + series.left(cut, end),
            Self::Levels => series.left_by_levels(begin, cut, end),
        }
    }
}

fn series(moments: &[MemorySample]) -> Vec<(Signal, SignalSeries)> {
    let times: Vec<f64> = moments.iter().map(|moment| moment.at_ns as f64 / 1e9).collect();
    let mut found = Vec::new();
    for signal in Signal::ALL {
        let values: Vec<Option<f64>> = moments.iter().map(|moment| signal.of(moment)).collect();
        let known = values.iter().flatten().count();
        // Spinning is system time: it must not count twice.
        let spin = found.iter().any(|(other, _)| *other == Signal::Spin);
        if known < LEAST_MOMENTS || (signal == Signal::System && spin) {
            continue;
        }
        found.extend(SignalSeries::new(&times, &values).map(|series| (signal, series)));
    }
    found
}

/// The mean of several samples. A value missing in some is averaged over the others.
fn mean_of(moments: &[MemorySample]) -> MemorySample {
    let mean = |signal: Signal| {
        let known: Vec<f64> = moments.iter().filter_map(|moment| signal.of(moment)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    // Rates per second, so the length is one second.
    MemorySample {
        at_ns: moments.last().map_or(0, |moment| moment.at_ns),
        duration_ns: 1_000_000_000,
        read_bytes: mean(Signal::Throughput).map(|value| value as u64),
        free_bytes: mean(Signal::Free).map(|value| value as u64),
        scanned_pages: mean(Signal::Reclaim).map(|value| value as u64),
        spin_percent: mean(Signal::Spin).map(|value| (value, value)),
        system_percent: mean(Signal::System),
        ..MemorySample::default()
    }
}

fn level(series: &SignalSeries, from: usize, to: usize) -> Option<Level> {
    let (mean, spread) = series.level(from, to)?;
    let moments = series.count(from, to);
    let half = student(moments - 1) * spread / (moments as f64).sqrt();
    (moments >= LEAST_ON_A_SIDE).then_some(Level { mean, low: mean - half, high: mean + half, moments })
}

/// The 97.5 % point of Student's distribution, to 1 % from two degrees of freedom on.
fn student(degrees: usize) -> f64 {
    let inverse = 1.0 / degrees.max(1) as f64;
    1.96 + inverse * (2.372 + inverse * (2.822 + inverse * (2.556 + inverse * 1.8)))
}

/// The parts of a stretch: those between the cuts, and equal ones, none shorter than a level needs.
fn parts(from: usize, to: usize, cuts: &[usize]) -> Vec<(usize, usize)> {
    let count = ((to - from) / LEAST_ON_A_SIDE).clamp(1, 8);
    let equal = (0..count).map(|i| (from + (to - from) * i / count, from + (to - from) * (i + 1) / count));
    let inside = cuts.iter().copied().filter(|cut| (from + 1..to).contains(cut));
    let ends: Vec<usize> = [from].into_iter().chain(inside).chain([to]).collect();
    ends.windows(2).map(|ends| (ends[0], ends[1])).chain(equal).collect()
}

/// How far a part is between the old level (0) and the new one (1); None where the signal is unknown there.
fn way(series: &SignalSeries, moved: &SignalChange, part: (usize, usize)) -> Option<f64> {
    let (mean, _) = series.level(part.0, part.1)?;
    Some((mean - moved.before.mean) / (moved.after.mean - moved.before.mean))
}

fn lasts(moved: &[(&SignalSeries, SignalChange)], parts: &[(usize, usize)]) -> bool {
    let stays =
        |part| moved.iter().all(|(series, moved)| way(series, moved, part).is_none_or(|way| way > 0.5));
    parts.iter().copied().all(stays)
}

fn is_new(moved: &[(&SignalSeries, SignalChange)], parts: &[(usize, usize)]) -> bool {
    let was = |part| moved.iter().all(|(series, moved)| way(series, moved, part).is_none_or(|way| way > 0.5));
    !parts.iter().copied().any(was)
}

/// Extends the levels before to earlier parts with the same level: noise may have cut them.
fn widen(
    moved: &mut [(&SignalSeries, SignalChange)],
    mut begin: usize,
    from: usize,
    parts: &[(usize, usize)],
) {
    let same = |part| {
        let near = |way: f64| way.abs() < 0.25;
        let level = |(series, moved): &&(&SignalSeries, SignalChange)| {
            moved.signal == Signal::Free || way(series, moved, part).is_none_or(near)
        };
        moved.iter().filter(level).count() == moved.len()
    };
    while let Some(part) = parts.iter().copied().find(|part| part.1 == begin && same(*part)) {
        begin = part.0;
    }
    for (series, moved) in moved {
        moved.before = level(series, begin, from).unwrap_or(moved.before);
    }
}
