//! Computes when the next I/O is due: rates of an open loop, and think time.

use super::job::{Arrivals, Direction, Job, Rate};
use super::random::random;

/// Due times of one thread.
#[derive(Debug)]
pub struct Pace {
    directions: [Option<Lane>; 3],
    thought: Option<Thought>,
    /// Nothing begins before this time.
    wakes: u64,
    /// The runtime is over: whatever still begins is due at once.
    released: bool,
}

/// Think time of a thread. As in fio, the thread keeps its depth until `blocks` I/Os are over, and checks that after
/// each I/O that it submits. It then waits for all I/Os in flight, and the pause starts there. So with a block of 1,
/// each I/O after the first batch is alone.
#[derive(Debug)]
struct Thought {
    ns: u64,
    blocks: u64,
    begun: u64,
    /// I/Os begun at the last pause.
    then: u64,
    /// The thread will pause as soon as nothing is in flight.
    due: bool,
}

/// Random arrivals of a backlog are drawn one by one up to this many; beyond that the mean is used.
const DRAWN: u64 = 1 << 20;

/// Due times of one direction.
#[derive(Debug)]
struct Lane {
    /// Mean gap between two I/Os of one unit.
    gap_ns: f64,
    /// A byte is the unit; otherwise an I/O, whatever its size.
    by_bytes: bool,
    /// Mean units per I/O.
    units: f64,
    arrivals: Arrivals,
    random: u64,
    /// When the next one is due, in nanoseconds with a fraction: a rate of 300,000 has gaps of 3,333.3.
    due: f64,
}

impl Pace {
    /// None where the job has neither a rate nor think time: I/Os are due at once.
    pub fn new(job: &Job, number: u32) -> Option<Self> {
        let think_ns = u64::try_from(job.thinktime.as_nanos()).unwrap_or(u64::MAX);
        let rate = job.rate.filter(|rate| Direction::ALL.into_iter().any(|direction| rate.has(direction)));
        if rate.is_none() && think_ns == 0 {
            return None;
        }
        let lane = |direction: Direction| {
            if !job.rw.has(direction) {
                return None;
            }
            let Rate { iops, bytes, arrivals } = rate?;
            let at = direction.index();
            let (per_second, by_bytes) = match (iops[at], bytes[at]) {
                (Some(iops), _) => (f64::from(iops), false),
                (None, bytes) => (bytes? as f64, true),
            };
            let units = if by_bytes { job.bs[at].mean() } else { 1.0 };
            if per_second <= 0.0 {
                return None;
            }
            // A separate sequence for each thread and direction.
            let mut random_state = job.seed ^ (u64::from(number) << 8 | direction.index() as u64 | 1 << 63);
            random(&mut random_state);
            Some(Lane { gap_ns: 1e9 / per_second, by_bytes, units, arrivals, random: random_state, due: 0.0 })
        };
        Some(Self {
            directions: Direction::ALL.map(lane),
            thought: (think_ns > 0).then(|| Thought {
                ns: think_ns,
                blocks: job.thinktime_blocks.max(1).into(),
                begun: 0,
                then: 0,
                due: false,
            }),
            wakes: 0,
            released: false,
        })
    }

    /// Starts the clock: the first I/O of each direction is due now or, with random arrivals, after a random gap.
    pub fn begin(&mut self, now: u64) {
        self.wakes = now;
        for lane in self.directions.iter_mut().flatten() {
            lane.due = now as f64;
            if lane.arrivals == Arrivals::Exponential {
                lane.due += lane.gap(lane.units);
            }
        }
    }

    /// Several directions have rates: the direction that is due next decides, not the mix.
    pub fn chooses(&self) -> bool {
        !self.released && self.directions.iter().flatten().count() > 1
    }

    /// When the next I/O of this direction is due; 0: at once.
    pub fn due(&self, direction: Direction) -> u64 {
        if self.released {
            return 0;
        }
        let due = self.directions[direction.index()].as_ref().map_or(0, |lane| lane.due as u64);
        due.max(self.wakes)
    }

    /// Records that an I/O of `bytes` bytes was submitted at `now`. Returns when it was due, from which its latency
    /// counts. Think time delays on purpose, so it makes no I/O late.
    pub fn began(&mut self, direction: Direction, bytes: u32, now: u64) -> u64 {
        let mut due = now;
        if let Some(lane) = &mut self.directions[direction.index()] {
            due = (lane.due as u64).min(now);
            lane.due += lane.gap(if lane.by_bytes { f64::from(bytes) } else { 1.0 });
        }
        if let Some(thought) = &mut self.thought {
            thought.begun += 1;
        }
        due
    }

    /// Whether nothing may begin until all I/Os in flight are over, because a pause follows. Called after each check
    /// for completions, and after each I/O that began where there is room for another.
    pub fn pauses(&mut self, in_flight: u32) -> bool {
        let Some(thought) = self.thought.as_mut().filter(|_| !self.released) else { return false };
        let over = thought.begun.saturating_sub(in_flight.into());
        let is_whole = over > 0 && over.is_multiple_of(thought.blocks);
        let is_new = thought.begun > thought.then;
        thought.due |= is_new && (is_whole || over / thought.blocks > thought.then / thought.blocks);
        thought.due
    }

    /// All I/Os were over at `now`: starts the pause if one is due.
    pub fn think(&mut self, now: u64) {
        if let Some(thought) = self.thought.as_mut().filter(|thought| thought.due) {
            thought.due = false;
            thought.then = thought.begun;
            self.wakes = now.saturating_add(thought.ns);
        }
    }

    /// The runtime is over: nothing waits any more.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// How many I/Os were due from `first` on and before `until` and did not begin; None without a rate.
    pub fn never_began(mut self, first: u64, until: u64) -> Option<u64> {
        let lanes = self.directions.iter_mut().flatten();
        lanes.map(|lane| lane.due_within(first, until)).reduce(|sum, lane| sum.saturating_add(lane))
    }
}

impl Lane {
    /// Counts the I/Os that are still due, from `first` on and before `until`.
    fn due_within(&mut self, first: u64, until: u64) -> u64 {
        let (first, until) = (first as f64, until as f64);
        let mut count = 0;
        // Even arrivals are computed, not drawn.
        let draws = if self.arrivals == Arrivals::Even { 0 } else { DRAWN };
        for _ in 0..draws {
            if self.due >= until {
                return count;
            }
            count += u64::from(self.due >= first);
            self.due += self.gap(self.units);
        }
        let gap_ns = self.gap_ns * self.units;
        if self.due < first {
            self.due += ((first - self.due) / gap_ns).ceil() * gap_ns;
        }
        count + ((until - self.due) / gap_ns).ceil().max(0.0) as u64
    }

    /// The gap that follows an I/O of this many units.
    fn gap(&mut self, units: f64) -> f64 {
        match self.arrivals {
            Arrivals::Even => self.gap_ns * units,
            Arrivals::Exponential => {
                // In (0, 1]: the logarithm of 0 is infinite.
                let uniform = ((random(&mut self.random) >> 11) + 1) as f64 / (1u64 << 53) as f64;
                -uniform.ln() * self.gap_ns * units
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Target;
    use std::time::Duration;

    fn paced(iops: u32, arrivals: Arrivals) -> Pace {
        let rate = Some(Rate { iops: [Some(iops), None, None], bytes: [None; 3], arrivals });
        Pace::new(&Job { rate, ..Job::new(Target::Existing("/dev/sda".into())) }, 0).unwrap()
    }

    /// The times at which `count` reads are due, if each begins when it is due.
    fn times(mut pace: Pace, count: usize) -> Vec<u64> {
        pace.begin(0);
        (0..count)
            .map(|_| {
                let due = pace.due(Direction::Read);
                pace.began(Direction::Read, 4096, due)
            })
            .collect()
    }

    #[test]
    fn even_arrivals_lose_no_fraction() {
        let due = times(paced(300_000, Arrivals::Even), 300_001);
        assert_eq!((due[0], due[1], due[3]), (0, 3_333, 10_000));
        assert!(due[300_000].abs_diff(1_000_000_000) <= 1, "{}", due[300_000]);
    }

    #[test]
    fn a_rate_in_bytes_spaces_an_io_by_its_size() {
        let rate = Some(Rate { iops: [None; 3], bytes: [Some(4096); 3], arrivals: Arrivals::Even });
        let mut pace = Pace::new(&Job { rate, ..Job::new(Target::Existing("/dev/sda".into())) }, 0).unwrap();
        pace.begin(0);
        assert_eq!(pace.began(Direction::Read, 4096, 0), 0);
        assert_eq!(pace.due(Direction::Read), 1_000_000_000);
        pace.began(Direction::Read, 512, 1_000_000_000);
        assert_eq!(pace.due(Direction::Read), 1_125_000_000);
        // With the job's blocks of 4 KiB.
        assert_eq!(pace.never_began(0, 3_125_000_000), Some(2));
    }

    #[test]
    fn exponential_arrivals_have_their_mean_and_deviation() {
        let due = times(paced(10_000, Arrivals::Exponential), 100_001);
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The deviation of an exponential law is its mean; the mean's own is 0.3 % here.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.02, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{}", variance.sqrt());
        // P(gap > 2 mean) = e^-2.
        let late = gaps.iter().filter(|gap| **gap > 200_000.0).count() as f64 / gaps.len() as f64;
        assert!((late - (-2.0f64).exp()).abs() < 0.006, "{late}");
    }

    #[test]
    fn what_begins_late_counts_from_when_it_was_due() {
        let mut pace = paced(1_000, Arrivals::Even);
        pace.begin(5_000_000);
        assert_eq!(pace.began(Direction::Read, 4096, 5_000_010), 5_000_000);
        // The second was due after 1 ms; the thread returns after 4 ms and has three to make up for.
        assert_eq!(pace.began(Direction::Read, 4096, 9_000_000), 6_000_000);
        assert_eq!(pace.began(Direction::Read, 4096, 9_000_000), 7_000_000);
        assert_eq!(pace.due(Direction::Read), 8_000_000);
        assert_eq!(pace.due(Direction::Write), 5_000_000, "has no rate");
    }

    #[test]
    fn thought_comes_after_so_many() {
        let job = Job {
            thinktime: Duration::from_micros(10),
            thinktime_blocks: 2,
            ..Job::new(Target::Existing("/dev/sda".into()))
        };
        let mut pace = Pace::new(&job, 0).unwrap();
        pace.begin(100);
        assert_eq!(pace.began(Direction::Read, 4096, 100), 100);
        assert_eq!(pace.began(Direction::Read, 4096, 100), 100);
        assert!(!pace.pauses(2), "none is over");
        assert!(!pace.pauses(1));
        assert!(pace.pauses(0), "two are");
        assert_eq!(pace.due(Direction::Read), 100, "not before nothing is on its way");
        pace.think(1_000);
        assert_eq!(pace.due(Direction::Read), 11_000);
        pace.think(2_000);
        assert_eq!(pace.due(Direction::Read), 11_000, "once");
        assert!(!pace.pauses(0), "nothing began since");
        // One check finds four completions, so a multiple of the block was passed.
        (0..5).for_each(|_| assert_eq!(pace.began(Direction::Read, 4096, 20_000), 20_000));
        assert!(pace.pauses(0));
        pace.release();
        assert_eq!((pace.pauses(0), pace.due(Direction::Read)), (false, 0));
        assert_eq!(pace.never_began(0, u64::MAX), None, "there is no rate");
        assert!(Pace::new(&Job::new(Target::Existing("/dev/sda".into())), 0).is_none());
    }

    /// As in fio 3.33 with libaio: at depth 8 the first eight are submitted together, and then each alone.
    #[test]
    fn a_block_of_one_leaves_each_alone() {
        let job =
            Job { thinktime: Duration::from_micros(10), ..Job::new(Target::Existing("/dev/sda".into())) };
        let mut pace = Pace::new(&job, 0).unwrap();
        pace.begin(0);
        let mut in_flight = 0;
        while in_flight < 8 && !pace.pauses(in_flight) {
            pace.began(Direction::Read, 4096, 0);
            in_flight += 1;
        }
        assert_eq!(in_flight, 8);
        assert!(pace.pauses(7));
        pace.think(500);
        assert_eq!(pace.due(Direction::Read), 10_500);
        pace.began(Direction::Read, 4096, 10_500);
        assert!(pace.pauses(1), "no second beside it");
    }

    #[test]
    fn what_was_due_and_never_began_is_counted() {
        for arrivals in [Arrivals::Even, Arrivals::Exponential] {
            let late = |first, until| {
                let mut pace = paced(1_000, arrivals);
                pace.begin(0);
                let begun = (0..10).filter(|_| pace.due(Direction::Read) < 100_000_000).count() as u64;
                (0..begun).for_each(|_| {
                    pace.began(Direction::Read, 4096, 50_000_000);
                });
                pace.never_began(first, until).unwrap()
            };
            // 1,000 are due per second.
            let slack = if arrivals == Arrivals::Even { 0 } else { 150 };
            assert!(late(0, 1_000_000_000).abs_diff(990) <= slack, "{arrivals:?}");
            assert!(late(600_000_000, 1_000_000_000).abs_diff(400) <= slack, "those of a ramp are left out");
            assert_eq!((late(0, 0), late(5, 5)), (0, 0));
        }
        let long = paced(1_000_000, Arrivals::Exponential).never_began(0, 10_000_000_000).unwrap();
        assert!(long.abs_diff(10_000_000) < 20_000, "{long}");
    }

    #[test]
    fn threads_differ_and_a_seed_reproduces() {
        let order = |number| {
            let rate =
                Some(Rate { iops: [Some(1000); 3], bytes: [None; 3], arrivals: Arrivals::Exponential });
            let job = Job { rate, ..Job::new(Target::Existing("/dev/sda".into())) };
            times(Pace::new(&job, number).unwrap(), 10)
        };
        assert_eq!(order(0), order(0));
        assert_ne!(order(0), order(1));
    }
}
