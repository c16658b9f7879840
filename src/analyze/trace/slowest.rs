//! Keeps the slowest I/Os of a run.

use std::collections::BTreeMap;

use super::io::TracedIo;

/// Keeps at most `most` I/Os.
#[derive(Debug, Default)]
pub struct Slowest {
    most: usize,
    /// By duration, then by number.
    ios: BTreeMap<(u64, u64), TracedIo>,
}

impl Slowest {
    pub fn new(most: usize) -> Self {
        Self { most, ios: BTreeMap::new() }
    }

    /// Adds an I/O if it is among the slowest. One that was not timed is ignored.
    pub fn add(&mut self, io: TracedIo) {
        let Some(took) = io.total_ns else { return };
        self.ios.insert((took, io.number), io);
        while self.ios.len() > self.most {
            self.ios.pop_first();
        }
    }

    /// An I/O that took less is not among the slowest any more.
    pub fn floor_ns(&self) -> u64 {
        let full = self.ios.len() >= self.most;
        self.ios.first_key_value().filter(|_| full).map_or(0, |((took, _), _)| took + 1)
    }

    /// Slowest first.
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
