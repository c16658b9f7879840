//! Keeps the last intervals of a view in memory.

use std::collections::VecDeque;

use crate::envelope::Lost;

/// An interval held in memory.
#[derive(Debug, Clone)]
pub struct RingInterval {
    /// When it ended, on the clock that the caller of [`IntervalRing::add`] uses.
    pub end_ns: u64,
    /// When it began, as in its envelope.
    pub start: String,
    pub frame: Vec<u8>,
    pub lost: Lost,
}

/// The intervals that ended within the last `keep_ns`.
#[derive(Debug)]
pub struct IntervalRing {
    keep_ns: u64,
    /// Intervals that ended later than this are not dropped.
    pinned_ns: Option<u64>,
    held: VecDeque<RingInterval>,
}

impl IntervalRing {
    pub fn new(keep_ns: u64) -> Self {
        Self { keep_ns, pinned_ns: None, held: VecDeque::new() }
    }

    /// Adds an interval that has just ended, and drops those that ended more than `keep_ns` before it.
    pub fn add(&mut self, held: RingInterval) {
        let from = held.end_ns.saturating_sub(self.keep_ns);
        let from = self.pinned_ns.map_or(from, |pinned| pinned.min(from));
        while self.held.front().is_some_and(|first| first.end_ns <= from) {
            self.held.pop_front();
        }
        self.held.push_back(held);
    }

    /// When the last interval ended.
    pub fn end_ns(&self) -> Option<u64> {
        self.held.back().map(|last| last.end_ns)
    }

    /// Keeps the intervals to be dumped for this time until [`IntervalRing::take_until`], even if the other views reach
    /// it later.
    pub fn pin(&mut self, at_ns: u64) {
        self.pinned_ns = Some(at_ns.saturating_sub(self.keep_ns));
    }

    /// The intervals that ended after `from_ns`, up to and including `to_ns`.
    pub fn between(&self, from_ns: u64, to_ns: u64) -> Vec<RingInterval> {
        self.held.iter().filter(|held| held.end_ns > from_ns && held.end_ns <= to_ns).cloned().collect()
    }

    /// The intervals up to the one that contains this time, and removes the pin: the next [`IntervalRing::add`] drops old
    /// ones again.
    pub fn take_until(&mut self, at_ns: u64) -> Vec<RingInterval> {
        self.pinned_ns = None;
        let before = self.held.partition_point(|held| held.end_ns < at_ns);
        self.held.iter().take(before + 1).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keep_ns: u64, ends: impl Iterator<Item = u64>) -> IntervalRing {
        let mut ring = IntervalRing::new(keep_ns);
        ends.for_each(|end_ns| add(&mut ring, end_ns));
        ring
    }

    fn add(ring: &mut IntervalRing, end_ns: u64) {
        ring.add(RingInterval { end_ns, start: String::new(), frame: Vec::new(), lost: Lost::default() });
    }

    fn until(ring: &mut IntervalRing, at_ns: u64) -> Vec<u64> {
        ring.take_until(at_ns).iter().map(|held| held.end_ns).collect()
    }

    #[test]
    fn what_ended_within_the_length_is_held() {
        let mut ring = ring(3, 1..=5);
        assert_eq!(ring.end_ns(), Some(5));
        assert_eq!(until(&mut ring, 9), [3, 4, 5]);
        // After a pause all other intervals are too old.
        add(&mut ring, 50);
        assert_eq!(until(&mut ring, 9), [50]);
    }

    #[test]
    fn what_is_to_be_written_stays_until_it_is() {
        let mut ring = ring(3, 1..=5);
        ring.pin(5);
        (6..=20).for_each(|end_ns| add(&mut ring, end_ns));
        assert_eq!(until(&mut ring, 5), [3, 4, 5]);
        add(&mut ring, 21);
        assert_eq!(until(&mut ring, 20), [19, 20]);
    }
}
