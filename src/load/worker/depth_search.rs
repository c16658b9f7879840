//! Searches the largest queue depth at which latencies stay within a target: fio's `latency_target`.
//!
//! As in fio, the depth begins at 1 and doubles while enough I/Os are within the target. Then it is bisected between
//! the deepest depth that passed and the shallowest that did not. Once it no longer changes, the measurements are
//! dropped, and one more window at that depth is the result.

use super::super::job::{Job, LatencyTarget};

/// The depth being tried, and the bounds of the answer.
#[derive(Debug)]
pub struct DepthSearch {
    target: LatencyTarget,
    depth: u32,
    /// The deepest depth within the target.
    low: u32,
    /// The shallowest depth that missed it.
    high: Option<u32>,
    most: u32,
    /// Consecutive windows within the target at one below `high`.
    stable: u32,
    window: LatencyWindow,
    /// I/Os in flight were submitted at another depth: nothing begins before they have completed.
    drains: bool,
    is_last: bool,
    is_found: bool,
}

/// The measurements of one window.
#[derive(Debug, Default)]
struct LatencyWindow {
    began: u64,
    /// Operations, and late ones among them, at its start.
    operations: u64,
    late: u64,
}

/// The consequence of a window.
#[derive(Debug, PartialEq, Eq)]
pub enum SearchStep {
    Continue,
    /// Drop the measurements: the next window gives the result.
    Forget,
    /// The job is done.
    Done,
    /// Even depth 1 is too slow, with the message.
    TooSlow(String),
}

impl DepthSearch {
    /// None where the job has no latency target.
    pub fn new(job: &Job) -> Option<Self> {
        let target = job.latency_target?;
        let most = if job.engine.is_synchronous() { 1 } else { job.iodepth };
        Some(Self {
            target,
            depth: 1,
            low: 1,
            high: None,
            most,
            stable: 0,
            window: LatencyWindow::default(),
            drains: false,
            is_last: false,
            is_found: false,
        })
    }

    pub fn begin(&mut self, now: u64) {
        self.window = LatencyWindow { began: now, ..LatencyWindow::default() };
    }

    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether the depth is the answer, not only the last one tried. A continuously adjusted depth is never final.
    pub fn is_found(&self) -> bool {
        self.is_found
    }

    /// Latency above which an I/O is late, ns.
    pub fn late_above_ns(&self) -> u64 {
        u64::try_from(self.target.latency.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How many I/Os may begin.
    pub fn room(&mut self, in_flight: u32) -> u32 {
        self.drains &= in_flight > 0;
        if self.drains { 0 } else { self.depth.saturating_sub(in_flight) }
    }

    /// Call after each check for completions, with the operations so far and the late ones among them.
    pub fn look(&mut self, operations: u64, late: u64, now: u64) -> SearchStep {
        if self.drains {
            // They were submitted at another depth.
            self.window = LatencyWindow { began: now, operations, late };
            return SearchStep::Continue;
        }
        let LatencyWindow { began, operations: operations_then, late: late_then } = self.window;
        // The counts were reset at the end of the ramp.
        let Some((all, missed)) = operations.checked_sub(operations_then).zip(late.checked_sub(late_then))
        else {
            self.window = LatencyWindow { began: now, operations, late };
            return SearchStep::Continue;
        };
        let is_over = now.saturating_sub(began) >= self.target.window_ns();
        let at_once = self.target.percent >= 100.0 && missed > 0;
        if all == 0 || !(is_over || at_once) {
            return SearchStep::Continue;
        }
        self.window = LatencyWindow { began: now, operations, late };
        let within = 100.0 * (all - missed.min(all)) as f64 / all as f64;
        if within >= self.target.percent { self.succeeded() } else { self.failed(within) }
    }

    fn succeeded(&mut self) -> SearchStep {
        let depth = self.depth;
        self.low = depth;
        if let Some(high) = &mut self.high
            && depth + 1 == *high
        {
            // Tries a depth again that was too deep once; otherwise the answer could be too low.
            self.stable += 1;
            if self.stable >= 3 {
                (*high, self.stable) = (*high + 1, 0);
            }
        }
        let next = self.high.map_or(depth.saturating_mul(2), |high| depth.midpoint(high));
        self.depth = next.min(self.most);
        if self.depth != depth || self.target.runs_on {
            return SearchStep::Continue;
        }
        if self.is_last {
            self.is_found = true;
            return SearchStep::Done;
        }
        (self.is_last, self.drains) = (true, true);
        SearchStep::Forget
    }

    fn failed(&mut self, within: f64) -> SearchStep {
        if self.depth == 1 {
            return SearchStep::TooSlow(format!(
                "only {within:.4} % of its operations, one at a time, took at most {:?}: latency_target wants {} %",
                self.target.latency, self.target.percent
            ));
        }
        self.high = Some(self.depth);
        self.low = self.low.min(self.depth - 1);
        self.depth = self.depth.midpoint(self.low);
        // I/Os in flight were submitted at the larger depth.
        (self.stable, self.drains, self.is_last) = (0, true, false);
        SearchStep::Continue
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::job::Target;
    use super::*;

    const WINDOW: u64 = 1_000_000;

    fn search(iodepth: u32, percent: f64, runs_on: bool) -> DepthSearch {
        let target = LatencyTarget {
            latency: Duration::from_micros(500),
            window: Duration::from_nanos(WINDOW),
            percent,
            runs_on,
        };
        let job = Job::new(Target::Existing("/dev/a".into()));
        let mut search = DepthSearch::new(&Job { iodepth, latency_target: Some(target), ..job }).unwrap();
        search.begin(0);
        search
    }

    /// Feeds windows of 1,000 operations, all late above `limit` in flight. Returns the depths tried.
    fn depths(search: &mut DepthSearch, limit: u32) -> (Vec<u32>, SearchStep) {
        let (mut tried, mut operations, mut late, mut now) = (Vec::new(), 0, 0, 0);
        loop {
            let depth = search.depth();
            assert_eq!(search.room(0), depth);
            tried.push(depth);
            (operations, now) = (operations + 1_000, now + WINDOW);
            late += if depth > limit { 1_000 } else { 0 };
            match search.look(operations, late, now) {
                SearchStep::Continue | SearchStep::Forget if tried.len() < 100 => {}
                end => return (tried, end),
            }
        }
    }

    #[test]
    fn it_ends_at_the_deepest_that_is_within_the_bound() {
        for (iodepth, limit) in [(128, 5), (128, 128), (128, 1), (64, 33), (1, 1), (7, 6), (2, 1)] {
            let mut search = search(iodepth, 99.9, false);
            let (tried, end) = depths(&mut search, limit);
            assert_eq!((end, search.depth()), (SearchStep::Done, limit), "{iodepth}, {limit}: {tried:?}");
        }
        assert_eq!(depths(&mut search(8, 99.9, false), 8).0, [1, 2, 4, 8, 8], "the last one is the result");
    }

    #[test]
    fn one_at_a_time_that_is_too_slow_ends_it() {
        let (tried, end) = depths(&mut search(32, 99.9, false), 0);
        let SearchStep::TooSlow(why) = end else { panic!("{end:?}") };
        assert_eq!((tried.len(), why.contains("0.0000 %"), why.contains("500µs")), (1, true, true), "{why}");
    }

    #[test]
    fn a_share_may_be_late() {
        let mut search = search(4, 99.0, false);
        assert_eq!(search.look(1_000, 10, WINDOW), SearchStep::Continue);
        assert_eq!(search.depth(), 2, "99.0 % are within");
        assert_eq!(search.look(2_000, 21, 2 * WINDOW), SearchStep::Continue);
        assert_eq!((search.depth(), search.room(1), search.room(0)), (1, 0, 1), "98.9 % are not; it drains");
    }

    /// Late I/Os of a larger depth complete while nothing new begins: they must not count for the smaller one.
    #[test]
    fn what_is_in_flight_is_not_judged_at_the_next_depth() {
        let mut search = search(64, 100.0, false);
        let (mut operations, mut now) = (0, 0);
        while search.depth() < 64 {
            (operations, now) = (operations + 100, now + WINDOW);
            search.look(operations, 0, now);
        }
        assert_eq!(search.look(operations + 1, 1, now + 1), SearchStep::Continue);
        let depth = search.depth();
        for late in 2..64 {
            assert_eq!(search.room(64 - late as u32), 0);
            assert_eq!(search.look(operations + late, late, now + late), SearchStep::Continue);
        }
        assert_eq!((search.depth(), search.room(0)), (depth, depth));
        assert_eq!(search.look(operations + 163, 63, now + 63 + WINDOW), SearchStep::Continue);
        assert!(search.depth() > depth && !search.is_found(), "{}", search.depth());
    }

    #[test]
    fn all_of_them_means_that_the_first_late_one_decides() {
        let mut search = search(4, 100.0, false);
        search.look(10, 0, WINDOW);
        assert_eq!((search.look(11, 1, WINDOW + 1), search.depth()), (SearchStep::Continue, 1));
    }

    #[test]
    fn it_may_run_on() {
        let mut search = search(4, 99.0, true);
        assert_eq!(depths(&mut search, 4).0.len(), 100);
        assert_eq!(search.depth(), 4);
    }

    #[test]
    fn nothing_is_judged_without_an_operation_or_before_the_window_is_over() {
        let mut search = search(4, 99.0, false);
        assert_eq!(search.look(0, 0, 9 * WINDOW), SearchStep::Continue);
        assert_eq!(search.look(5, 0, WINDOW - 1), SearchStep::Continue);
        assert_eq!(search.depth(), 1);
        // The ramp ended meanwhile.
        search.look(50, 0, WINDOW);
        assert_eq!((search.look(3, 0, 5 * WINDOW), search.depth()), (SearchStep::Continue, 2));
    }
}
