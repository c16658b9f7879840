//! Runs the rounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::comparison::{Comparison, Round, StopReason};
use crate::experiment::EvaluationPlan;
use crate::experiment::order::blocks;
use crate::experiment::ratio::ERROR;
use crate::stats::slope;

/// A block with foreign I/O above this share of the bytes is left out.
const MOST_FOREIGN_PERCENT: f64 = 5.0;

/// A rate is settled if it changes by less over the last third of the runs before the first round.
const SETTLED: f64 = 0.02;
const FIRST_RUNS: usize = 9;
const MOST_RUNS: usize = 24;

/// Runs an arm.
pub trait Driver {
    /// Applies the settings of an arm.
    fn apply(&mut self, arm: usize) -> Result<()>;
    /// A short run, for its rate alone; None: such a run is not meaningful here.
    fn warm_up(&mut self, arm: usize, number: u32) -> Result<Option<f64>>;
    /// A round, with its values.
    fn round(&mut self, arm: usize, number: u32) -> Result<Round>;
}

/// Observes rounds from outside while they run, but not the uncounted runs.
pub trait Observer {
    fn begin(&mut self) -> Result<()>;
    /// Adds the observations since `begin` to the round of an arm.
    fn end(&mut self, arm: usize, round: &mut Round) -> Result<()>;
}

/// Starts all observers, and adds their observations to the round.
pub(super) fn observed(
    observers: &mut [&mut dyn Observer],
    arm: usize,
    run: impl FnOnce() -> Result<Round>,
) -> Result<Round> {
    observers.iter_mut().try_for_each(|observer| observer.begin())?;
    let mut round = run()?;
    // In reverse, so that the first observer does not see the others end.
    observers.iter_mut().rev().try_for_each(|observer| observer.end(arm, &mut round))?;
    Ok(round)
}

/// Number and precision of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// A fixed number of rounds per arm.
    pub rounds: Option<usize>,
    pub most_rounds: usize,
    /// How far means and rates may differ and count as equal: 0.05 is 5 %.
    pub margin: f64,
    /// Sufficient half-width of an interval.
    pub until: f64,
    pub longest: Duration,
    pub seed: u64,
}

/// Progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundProgress {
    pub block: usize,
    pub blocks: usize,
    pub arm: usize,
}

/// Runs rounds in balanced blocks until the plan has enough. `comparison` has the arms and the primary metric. An error
/// discards the measurements; a stop keeps them.
pub fn run(
    comparison: &mut Comparison,
    options: &Options,
    driver: &mut dyn Driver,
    stop: &AtomicBool,
    progress: &dyn Fn(RoundProgress),
) -> Result<()> {
    let begin = Instant::now();
    let arms = comparison.arms.len();
    // Every arm but the first is compared with it. A single arm is compared with a stored result.
    let error = ERROR / (arms - 1).max(1) as f64;
    let mut plan = match options.rounds {
        Some(rounds) => EvaluationPlan::fixed(rounds, options.margin, error),
        None => EvaluationPlan::until(options.until, options.margin, options.most_rounds, error),
    };
    let is_stopped = || stop.load(Ordering::Relaxed);
    for arm in 0..arms {
        if !is_stopped() {
            settle(comparison, arm, driver, stop)?;
        }
    }
    let first = Instant::now();
    let (mut number, mut p, mut looked) = (0, 0.0, 0);
    let mut end = StopReason::Planned;
    // Blocks that are left out are repeated, up to the same number again.
    'blocks: for (block, order) in blocks(arms, 2 * plan.maximum(), options.seed).into_iter().enumerate() {
        for arm in order {
            if is_stopped() || begin.elapsed() > options.longest {
                end = if is_stopped() { StopReason::Stopped } else { StopReason::Time };
                break 'blocks;
            }
            progress(RoundProgress { block, blocks: plan.maximum(), arm });
            driver.apply(arm)?;
            number += 1;
            let begin_ns = u64::try_from(first.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let mut round = match driver.round(arm, number) {
                // A round that was cut short has no valid values.
                Err(_) | Ok(_) if is_stopped() => continue,
                result => result?,
            };
            if let Some(percent) = round.foreign_percent.filter(|percent| *percent > MOST_FOREIGN_PERCENT) {
                round.left_out = Some(format!(
                    "{percent:.0} % of the bytes were transferred by other \
                    processes"
                ));
            }
            comparison.rounds.push(Round { arm, block, begin_ns, ..round });
        }
        let whole = comparison.whole_blocks().len();
        if plan.is_look(whole) && whole > looked {
            looked = whole;
            p = plan.look(whole);
            if whole >= plan.maximum() {
                break;
            }
            if options.rounds.is_none() && comparison.is_enough(&plan, p) {
                end = StopReason::Precise;
                break;
            }
        }
    }
    let whole = comparison.whole_blocks().len();
    if whole > looked {
        p = plan.look(whole);
    }
    comparison.end = Some(end);
    comparison.derive(&plan, p, options.margin);
    Ok(())
}

/// Runs an arm until its rate no longer changes.
fn settle(comparison: &mut Comparison, arm: usize, driver: &mut dyn Driver, stop: &AtomicBool) -> Result<()> {
    driver.apply(arm)?;
    let mut rates = Vec::new();
    while rates.len() < MOST_RUNS && !stop.load(Ordering::Relaxed) {
        match driver.warm_up(arm, rates.len() as u32) {
            // A run that was cut short may have failed only for that reason.
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
            Ok(None) => return Ok(()),
            rate => rates.extend(rate?),
        }
        if rates.len() >= FIRST_RUNS && is_settled(&rates) {
            return Ok(());
        }
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let name = &comparison.arms[arm].name;
    comparison.notes.push(format!(
        "the rate of {name} did not settle before the first round (2 % over the last third of {} runs)",
        rates.len()
    ));
    Ok(())
}

/// Whether the line through the last third rises or falls by less than [`SETTLED`] from its start to its end.
fn is_settled(rates: &[f64]) -> bool {
    let last = &rates[rates.len() - rates.len() / 3..];
    let mean = last.iter().sum::<f64>() / last.len() as f64;
    let points: Vec<(f64, f64)> = last.iter().enumerate().map(|(at, rate)| (at as f64, *rate)).collect();
    let rise = slope(&points).map(|slope| slope * (last.len() - 1) as f64 / mean);
    mean > 0.0 && rise.is_some_and(|rise| rise.abs() < SETTLED)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Verdict;
    use crate::experiment::compare::{Arm, MetricKind};

    /// Arms with fixed rates, and an alternating noise of 1 %.
    struct Fixed {
        rates: Vec<f64>,
        applied: Vec<usize>,
        foreign: fn(u32) -> Option<f64>,
    }

    impl Driver for Fixed {
        fn apply(&mut self, arm: usize) -> Result<()> {
            self.applied.push(arm);
            Ok(())
        }

        fn warm_up(&mut self, arm: usize, _number: u32) -> Result<Option<f64>> {
            Ok(Some(self.rates[arm]))
        }

        fn round(&mut self, arm: usize, number: u32) -> Result<Round> {
            let noise = [1.0, 1.01, 0.99, 1.005, 0.995][number as usize % 5];
            let values = BTreeMap::from([("iops".to_string(), self.rates[arm] * noise)]);
            Ok(Round { values, foreign_percent: (self.foreign)(number), ..Round::default() })
        }
    }

    fn fixed(rates: &[f64]) -> Fixed {
        Fixed { rates: rates.to_vec(), applied: Vec::new(), foreign: |_| None }
    }

    fn run_with(driver: &mut Fixed, change: impl Fn(&mut Options)) -> Comparison {
        let arm = |n: usize| Arm { name: n.to_string(), ..Arm::default() };
        let arms = (0..driver.rates.len()).map(arm).collect();
        let mut comparison = Comparison { arms, primary: Some(MetricKind::Iops), ..Comparison::default() };
        let mut options = Options {
            rounds: None,
            most_rounds: 24,
            margin: 0.05,
            until: 0.025,
            longest: Duration::from_secs(60),
            seed: 7,
        };
        change(&mut options);
        run(&mut comparison, &options, driver, &AtomicBool::new(false), &|_| ()).unwrap();
        comparison
    }

    #[test]
    fn it_ends_when_it_is_sure_and_goes_on_when_it_is_not() {
        let half = run_with(&mut fixed(&[100.0, 50.0]), |_| ());
        assert_eq!((half.end, half.rounds.len()), (Some(StopReason::Precise), 16));
        assert_eq!(half.answer().unwrap().verdict, Verdict::Worse);
        let same = run_with(&mut fixed(&[100.0, 100.0]), |options| options.until = 1e-6);
        assert_eq!((same.end, same.rounds.len()), (Some(StopReason::Planned), 48));
        assert_eq!(same.answer().unwrap().verdict, Verdict::Same);
    }

    #[test]
    fn a_number_of_rounds_is_kept_and_time_ends_it() {
        let three = run_with(&mut fixed(&[100.0, 50.0, 200.0]), |options| options.rounds = Some(4));
        assert_eq!((three.end, three.rounds.len(), three.metrics.len()), (Some(StopReason::Planned), 12, 2));
        assert_eq!(three.metrics[0].verdict, Verdict::Worse);
        assert_eq!(three.metrics[1].verdict, Verdict::Better);
        let one = run_with(&mut fixed(&[100.0, 50.0]), |options| options.rounds = Some(1));
        assert_eq!(one.answer().unwrap().verdict, Verdict::Unclear, "one round has no interval");
        let none = run_with(&mut fixed(&[100.0, 50.0]), |options| options.longest = Duration::ZERO);
        assert_eq!((none.end, none.rounds.len()), (Some(StopReason::Time), 0));
    }

    #[test]
    fn blocks_with_foreign_io_are_run_again() {
        let mut driver = Fixed { foreign: |number| (number == 3).then_some(40.0), ..fixed(&[100.0, 100.0]) };
        let found = run_with(&mut driver, |options| options.rounds = Some(4));
        assert_eq!((found.rounds.len(), found.whole_blocks()), (10, vec![0, 2, 3, 4]));
        assert!(found.rounds[2].left_out.as_deref().is_some_and(|why| why.starts_with("40 %")));
    }

    #[test]
    fn what_is_measured_before_a_stop_is_kept() {
        let stop = AtomicBool::new(false);
        let seen = Cell::new(0);
        let arm = |n: &str| Arm { name: n.to_string(), ..Arm::default() };
        let mut comparison = Comparison {
            arms: vec![arm("a"), arm("b")],
            primary: Some(MetricKind::Iops),
            ..Comparison::default()
        };
        let longest = Duration::from_secs(60);
        let options = Options { rounds: None, most_rounds: 24, margin: 0.05, until: 1e-6, longest, seed: 1 };
        let progress = |_| {
            seen.set(seen.get() + 1);
            stop.store(seen.get() == 12, Ordering::Relaxed);
        };
        run(&mut comparison, &options, &mut fixed(&[100.0, 50.0]), &stop, &progress).unwrap();
        assert_eq!((comparison.end, comparison.rounds.len()), (Some(StopReason::Stopped), 11));
        assert_eq!(
            (comparison.answer().unwrap().blocks, comparison.answer().unwrap().verdict),
            (5, Verdict::Worse)
        );
    }

    #[test]
    fn a_rate_that_rises_is_not_settled() {
        assert!(is_settled(&[1.0, 50.0, 90.0, 99.0, 100.0, 100.0, 100.0, 100.5, 100.0]));
        assert!(!is_settled(&[1.0, 50.0, 90.0, 99.0, 100.0, 100.0, 100.0, 103.0, 106.0]));
        assert!(!is_settled(&[0.0; 9]));
        struct Rising(f64);
        impl Driver for Rising {
            fn apply(&mut self, _arm: usize) -> Result<()> {
                Ok(())
            }
            fn warm_up(&mut self, _arm: usize, _number: u32) -> Result<Option<f64>> {
                self.0 *= 1.1;
                Ok(Some(self.0))
            }
            fn round(&mut self, _arm: usize, _number: u32) -> Result<Round> {
                unreachable!("no round is asked for")
            }
        }
        let mut comparison = Comparison { arms: vec![Arm::default()], ..Comparison::default() };
        settle(&mut comparison, 0, &mut Rising(1.0), &AtomicBool::new(false)).unwrap();
        assert!(comparison.notes[0].contains("did not settle"), "{:?}", comparison.notes);
    }
}
