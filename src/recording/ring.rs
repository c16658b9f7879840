//! The last intervals of a view, in memory.

use std::collections::VecDeque;

use crate::envelope::Lost;

/// An interval.
#[derive(Debug, Clone)]
pub struct Held {
    /// When it ended, on the clock of [`Ring::add`].
    pub end_ns: u64,
    /// When it began, as in its envelope.
    pub start: String,
    pub frame: Vec<u8>,
    pub lost: Lost,
}

/// Intervals that ended within a length of time.
#[derive(Debug)]
pub struct Ring {
    keep_ns: u64,
    held: VecDeque<Held>,
}

impl Ring {
    pub fn new(keep_ns: u64) -> Self {
        Self { keep_ns, held: VecDeque::new() }
    }

    /// Adds one that has just ended, and drops those that ended before the length.
    pub fn add(&mut self, held: Held) {
        let from = held.end_ns.saturating_sub(self.keep_ns);
        while self.held.front().is_some_and(|first| first.end_ns <= from) {
            self.held.pop_front();
        }
        self.held.push_back(held);
    }

    /// When the last one ended.
    pub fn end_ns(&self) -> Option<u64> {
        self.held.back().map(|last| last.end_ns)
    }

    pub fn held(&self) -> Vec<Held> {
        self.held.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_within_the_length_is_held() {
        let mut ring = Ring::new(3);
        for end_ns in 1..=5 {
            ring.add(Held { end_ns, start: String::new(), frame: vec![end_ns as u8], lost: Lost::default() });
        }
        assert_eq!(ring.held().iter().map(|held| held.frame[0]).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(ring.end_ns(), Some(5));
        // After a pause all are old.
        ring.add(Held { end_ns: 50, start: String::new(), frame: vec![50], lost: Lost::default() });
        assert_eq!(ring.held().len(), 1);
    }
}
