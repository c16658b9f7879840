//! The slowest I/Os of a run.

use std::collections::BTreeMap;

use super::io::TracedIo;

/// Keeps so many of them.
#[derive(Debug, Default)]
pub struct Slowest {
    most: usize,
    /// By how long they took; those that took equally long, by number.
    ios: BTreeMap<(u64, u64), TracedIo>,
}

impl Slowest {
    pub fn new(most: usize) -> Self {
        Self { most, ios: BTreeMap::new() }
    }

    /// Keeps an I/O while it is among the slowest. One that was never timed is not.
    pub fn add(&mut self, io: TracedIo) {
        let Some(took) = io.total_ns else { return };
        self.ios.insert((took, io.number), io);
        while self.ios.len() > self.most {
            self.ios.pop_first();
        }
    }

    /// Less than this is not among them any more.
    pub fn floor_ns(&self) -> u64 {
        let full = self.ios.len() >= self.most;
        self.ios.first_key_value().filter(|_| full).map_or(0, |((took, _), _)| took + 1)
    }

    /// The slowest first.
    pub fn into_sorted(self) -> impl Iterator<Item = TracedIo> {
        self.ios.into_values().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::numbers;
    use super::*;

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut slowest = Slowest::new(2);
        assert_eq!(slowest.floor_ns(), 0);
        for (number, took) in [(1, 30), (2, 10), (3, 20), (4, 30), (5, 5)] {
            slowest.add(TracedIo { number, total_ns: Some(took), ..TracedIo::default() });
        }
        slowest.add(TracedIo::default());
        assert_eq!(slowest.floor_ns(), 31);
        assert_eq!(numbers(&slowest.into_sorted().collect::<Vec<_>>()), [4, 1]);
    }
}
