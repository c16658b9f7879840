//! Checks the minimum rate of a job: fio's `rate_min` and `rate_iops_min`.

use super::super::job::{Direction, Job};
use super::super::tally::Tally;

/// As in fio, the first two seconds are not checked.
const SETTLE_NS: u64 = 2_000_000_000;

/// Checked when completions arrive, as in fio: a cycle lasts until the first completion after its end.
#[derive(Debug)]
pub struct Floor {
    /// Bytes or operations per second, by direction; 0: no minimum.
    least: [u64; 3],
    by_bytes: bool,
    cycle_ns: u64,
    first: u64,
    /// When a cycle began, and the count then; None: none yet.
    begun: [Option<(u64, u64)>; 3],
}

impl Floor {
    /// None where the job has no minimum rate.
    pub fn new(job: &Job) -> Option<Self> {
        let by_bytes = job.rate_min.iter().any(|least| *least > 0);
        let least = if by_bytes { job.rate_min } else { job.rate_iops_min };
        let cycle_ns = u64::try_from(job.rate_cycle.as_nanos()).unwrap_or(u64::MAX).max(1_000_000);
        let any = least.iter().any(|least| *least > 0);
        any.then_some(Self { least, by_bytes, cycle_ns, first: 0, begun: [None; 3] })
    }

    pub fn begin(&mut self, now: u64) {
        self.first = now;
        self.begun = [None; 3];
    }

    /// The message for the first rate below its minimum.
    #[cold]
    pub fn missed(&mut self, tally: &Tally, now: u64) -> Option<String> {
        if now.saturating_sub(self.first) < SETTLE_NS {
            return None;
        }
        Direction::ALL.into_iter().find_map(|direction| {
            let (operations, bytes) = tally.moved(direction);
            self.look(direction, if self.by_bytes { bytes } else { operations }, now)
        })
    }

    fn look(&mut self, direction: Direction, done: u64, now: u64) -> Option<String> {
        let at = direction.index();
        let least = self.least[at];
        if least == 0 || done == 0 {
            return None;
        }
        let rate = match self.begun[at] {
            // The count is smaller if a ramp ended meanwhile.
            Some((then, before)) if done >= before => {
                let spent = now.saturating_sub(then);
                if spent < self.cycle_ns {
                    return None;
                }
                u64::try_from(u128::from(done - before) * 1_000_000_000 / u128::from(spent))
                    .unwrap_or(u64::MAX)
            }
            _ => least,
        };
        self.begun[at] = Some((now, done));
        let (word, unit) =
            if self.by_bytes { ("rate_min", "bytes") } else { ("rate_iops_min", direction.plural()) };
        (rate < least).then(|| {
            let of = if self.by_bytes { format!("{} ", direction.name()) } else { String::new() };
            format!("{rate} {unit}/s are below {of}{word}={least}")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::job::Target;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_cycle_below_the_least_rate_is_named() {
        let job = Job { rate_min: [1000, 0, 0], ..Job::fio_defaults(Target::Existing("/f".into())) };
        let mut floor = Floor::new(&job).unwrap();
        floor.begin(0);
        let mut look = |done, now| floor.look(Direction::Read, done, now);
        assert_eq!(look(1, 2 * SECOND), None, "the first cycle begins");
        assert_eq!(look(2, 2 * SECOND + SECOND / 2), None, "it is not over");
        assert_eq!(look(1001, 3 * SECOND), None, "1000 in a second are enough");
        // As in fio, a late completion extends its cycle.
        assert_eq!(look(5000, 7 * SECOND - 1_000_000), None);
        assert_eq!(
            look(5998, 8 * SECOND).as_deref(),
            Some("997 bytes/s are below read rate_min=1000"),
            "998 in 1.001 s"
        );
        let mut other = |done, now| floor.look(Direction::Write, done, now);
        assert_eq!((other(1, 0), other(1, 9 * SECOND)), (None, None), "writes may be slow");
    }

    #[test]
    fn operations_count_where_bytes_are_not_asked_for() {
        let none = Job::fio_defaults(Target::Existing("/f".into()));
        assert!(Floor::new(&none).is_none());
        let job = Job { rate_iops_min: [0, 10, 0], rate_cycle: Duration::from_secs(2), ..none };
        let mut floor = Floor::new(&job).unwrap();
        let mut look = |done, now| floor.look(Direction::Write, done, now);
        assert_eq!((look(5, 0), look(14, SECOND)), (None, None));
        assert_eq!(look(24, 2 * SECOND).as_deref(), Some("9 writes/s are below rate_iops_min=10"));
    }
}
