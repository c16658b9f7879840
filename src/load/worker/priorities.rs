//! Draws the I/O priorities of single operations: fio's `cmdprio_percentage` and `cmdprio_bssplit`.

use super::super::job::{Direction, Job, PriorityShare};
use super::super::random::{below, random};

#[derive(Debug)]
pub struct Priorities {
    /// For reads and for writes.
    shares: [Vec<PriorityShare>; 2],
    state: u64,
}

impl Priorities {
    /// None where all operations have the priority of their thread.
    pub fn new(job: &Job, number: u32) -> Option<Self> {
        if job.command_priorities.iter().all(Vec::is_empty) {
            return None;
        }
        // A different sequence from that of the offsets.
        let mut state = job.seed ^ (u64::from(number) << 8 | 1 << 62);
        random(&mut state);
        Some(Self { shares: job.command_priorities.clone(), state })
    }

    /// The priority of the next operation; None: its thread's.
    pub fn draw(&mut self, direction: Direction, bytes: u32) -> Option<u16> {
        let shares = self.shares.get(direction.index())?;
        let mut fitting =
            shares.iter().filter(|share| share.bytes.is_none_or(|size| size == u64::from(bytes))).peekable();
        fitting.peek()?;
        let drawn = below(&mut self.state, 100);
        let mut sum = 0;
        fitting
            .find(|share| {
                sum += u64::from(share.percent);
                drawn < sum
            })
            .map(|share| share.priority)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::job::Target;
    use super::*;

    #[test]
    fn shares_of_a_size_are_drawn_as_often_as_they_say() {
        let share = |bytes, percent, priority| PriorityShare { bytes, percent, priority };
        let reads = vec![share(Some(4096), 25, 1), share(Some(4096), 75, 2), share(Some(8192), 10, 3)];
        let job = Job {
            command_priorities: [reads, vec![share(None, 20, 4)]],
            ..Job::fio_defaults(Target::Existing("/f".into()))
        };
        let mut priorities = Priorities::new(&job, 0).unwrap();
        let mut count = |direction, bytes, wanted| {
            (0..10_000).filter(|_| priorities.draw(direction, bytes) == wanted).count()
        };
        let near = |found: usize, percent: usize| assert!(found.abs_diff(percent * 100) < 250, "{found}");
        near(count(Direction::Read, 4096, Some(1)), 25);
        near(count(Direction::Read, 4096, Some(2)), 75);
        near(count(Direction::Read, 8192, None), 90);
        near(count(Direction::Write, 512, Some(4)), 20);
        assert_eq!(count(Direction::Read, 512, None), 10_000);
        assert_eq!(count(Direction::Trim, 4096, None), 10_000);
        assert!(Priorities::new(&Job::fio_defaults(Target::Existing("/f".into())), 0).is_none());
    }
}
