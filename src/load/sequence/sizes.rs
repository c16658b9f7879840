//! Draws the size of the next block.

use super::super::job::{BlockShare, BlockSizes};
use super::super::random::{below, random};

/// The sizes of one direction with their shares.
#[derive(Debug, Clone)]
pub struct Sizes {
    classes: Vec<SizeClass>,
    smallest: u64,
}

#[derive(Debug, Clone)]
struct SizeClass {
    /// Upper end of the class in a cumulative distribution over 2^64 numbers.
    last: u64,
    low: u64,
    steps: u64,
}

impl Sizes {
    pub fn new(sizes: &BlockSizes) -> Self {
        let all: f64 = sizes.0.iter().map(weight).sum();
        let mut sum = 0.0;
        let mut classes: Vec<_> = sizes
            .0
            .iter()
            .filter(|share| weight(share) > 0.0)
            .map(|share| {
                sum += weight(share);
                // A float-to-integer conversion saturates.
                let last = (sum / all * 2f64.powi(64)) as u64;
                SizeClass { last, low: share.low.max(1), steps: steps(share) }
            })
            .collect();
        if classes.is_empty() {
            classes.push(SizeClass { last: u64::MAX, low: sizes.smallest().max(1), steps: 1 });
        }
        if let Some(class) = classes.last_mut() {
            class.last = u64::MAX;
        }
        let smallest = classes.iter().map(|class| class.low).min().unwrap_or(1);
        Self { classes, smallest }
    }

    pub fn smallest(&self) -> u64 {
        self.smallest
    }

    pub fn draw(&self, state: &mut u64) -> u64 {
        let class = match self.classes.as_slice() {
            [one] => one,
            several => {
                let number = random(state);
                several.iter().find(|class| number <= class.last).unwrap_or(&several[0])
            }
        };
        if class.steps == 1 { class.low } else { class.low * (1 + below(state, class.steps)) }
    }
}

/// Percentage of a share, never negative.
pub fn weight(share: &BlockShare) -> f64 {
    if share.percent > 0.0 { share.percent } else { 0.0 }
}

/// Number of multiples of its lower end within a share.
pub fn steps(share: &BlockShare) -> u64 {
    (share.high / share.low.max(1)).max(1)
}

/// The greatest common divisor of all sizes: every offset is a multiple of it, whatever sizes are drawn.
pub fn grain<'a>(sizes: impl Iterator<Item = &'a BlockSizes>) -> u64 {
    let divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    sizes.flat_map(|sizes| &sizes.0).map(|share| share.low).fold(0, divisor).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(low: u64, high: u64, percent: f64) -> BlockShare {
        BlockShare { low, high, percent }
    }

    #[test]
    fn sizes_come_as_often_as_asked() {
        let split = BlockSizes(vec![
            share(4096, 4096, 10.0),
            share(65_536, 65_536, 50.0),
            share(32_768, 32_768, 40.0),
            share(512, 512, 0.0),
        ]);
        let (sizes, mut state) = (Sizes::new(&split), 7);
        let drawn: Vec<u64> = (0..100_000).map(|_| sizes.draw(&mut state)).collect();
        for (bytes, expected) in [(4096, 10_000), (65_536, 50_000), (32_768, 40_000), (512, 0)] {
            let count = drawn.iter().filter(|size| **size == bytes).count();
            // Standard deviation at most 158: four of them.
            assert!(count.abs_diff(expected) < 633, "{bytes}: {count}");
        }
        assert_eq!(sizes.smallest(), 4096);
    }

    #[test]
    fn a_range_has_all_multiples_of_its_lower_end() {
        let (sizes, mut state) = (Sizes::new(&BlockSizes(vec![share(4096, 20_000, 100.0)])), 7);
        let mut counts = [0u32; 4];
        (0..40_000).for_each(|_| counts[(sizes.draw(&mut state) / 4096 - 1) as usize] += 1);
        assert!(counts.iter().all(|n| (9_650..10_350).contains(n)), "{counts:?}");
    }

    #[test]
    fn the_grain_divides_all_sizes() {
        let split = BlockSizes(vec![share(4096, 4096, 50.0), share(6144, 6144, 50.0)]);
        assert_eq!(grain([&split].into_iter()), 2048);
        assert_eq!(grain([&split, &BlockSizes::fixed(512)].into_iter()), 512);
        assert_eq!(grain(std::iter::empty()), 1);
    }
}
