//! Keeps a time series of bytes in bounded memory, for a run of any length. Pure.

/// Maximum number of intervals: a long run keeps between half and all of them.
const MOST: usize = 512;

/// One part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesInterval {
    pub duration_ns: u64,
    pub bytes: u64,
}

impl SeriesInterval {
    fn and(self, next: Self) -> Self {
        Self { duration_ns: self.duration_ns + next.duration_ns, bytes: self.bytes + next.bytes }
    }
}

/// Consecutive intervals. When there is no room for another, pairs are merged.
#[derive(Debug, Clone, Default)]
pub struct Series {
    whole: Vec<SeriesInterval>,
    /// Number of added intervals per stored one: a power of two.
    merged: u32,
    last: SeriesInterval,
    in_last: u32,
}

impl Series {
    pub fn add(&mut self, interval: SeriesInterval) {
        self.last = self.last.and(interval);
        self.in_last += 1;
        if self.in_last < self.merged.max(1) {
            return;
        }
        if self.whole.len() == MOST {
            let pairs = self
                .whole
                .chunks(2)
                .map(|pair| pair.iter().fold(SeriesInterval::default(), |a, b| a.and(*b)));
            self.whole = pairs.collect();
            self.merged = self.merged.max(1) * 2;
            // The current one is now only half of an interval.
            return;
        }
        self.whole.push(std::mem::take(&mut self.last));
        self.in_last = 0;
    }

    /// The complete intervals: the incomplete one at the end is dropped.
    pub fn intervals(self) -> Vec<SeriesInterval> {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(given: u64) -> Vec<SeriesInterval> {
        let mut series = Series::default();
        (0..given).for_each(|n| series.add(SeriesInterval { duration_ns: 100, bytes: n }));
        series.intervals()
    }

    #[test]
    fn a_short_run_is_kept_as_it_was() {
        assert_eq!(series(0), []);
        assert_eq!(series(3)[2], SeriesInterval { duration_ns: 100, bytes: 2 });
        assert_eq!(series(MOST as u64).len(), MOST);
    }

    #[test]
    fn a_long_run_has_longer_intervals_and_loses_nothing_but_its_end() {
        for given in [513, 1024, 1025, 5000, 100_000] {
            let kept = series(given);
            assert!((MOST / 2..=MOST).contains(&kept.len()), "{given}: {}", kept.len());
            assert!(kept.iter().all(|one| one.duration_ns == kept[0].duration_ns), "{given}");
            let covered = kept.iter().map(|one| one.duration_ns / 100).sum::<u64>();
            assert!(covered <= given && given - covered < kept[0].duration_ns / 100, "{given}: {covered}");
            assert_eq!(kept.iter().map(|one| one.bytes).sum::<u64>(), covered * (covered - 1) / 2, "{given}");
        }
    }
}
