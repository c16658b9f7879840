//! Visits each block once before any repeats, without a map of visited blocks.

use super::super::job::{BlockShare, Direction, Job};
use super::super::random::{below, random, scramble};
use super::sizes::{steps, weight};

/// Rounds of mixing: enough to separate neighbours, also for small counts.
const ROUNDS: usize = 4;

/// Approximate blocks per tile, where the range has as many: shares are exact to a thousandth.
const SLOTS: f64 = 1000.0;
/// One block of this many may be a filler.
const PER_FILLER: u64 = 100;

/// A pseudo-random permutation of the numbers below `count`.
///
/// Each round adds, multiplies by an odd number, and folds the upper half of the bits into the lower one. Each step is
/// invertible within the bits that the count needs, so no two numbers collide. Results not below the count are permuted
/// again, less than once on average.
#[derive(Debug, Clone)]
pub struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [(u64, u64); ROUNDS],
}

impl Permutation {
    /// `count` must be above 0.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mut state = seed;
        let keys = std::array::from_fn(|_| (random(&mut state), random(&mut state) | 1));
        let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        Self { count, mask, shift: bits.div_ceil(2).max(1), keys }
    }

    /// The image of `index`, which must be below the count.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        let mut number = index;
        loop {
            for (sum, factor) in self.keys {
                number = number.wrapping_add(sum).wrapping_mul(factor) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.count {
                return number;
            }
        }
    }
}

/// Consecutive permutations.
#[derive(Debug, Clone)]
pub struct Passes {
    permutation: Permutation,
    next: u64,
    seed: u64,
    pass: u64,
}

impl Passes {
    /// `count` must be above 0.
    pub fn new(count: u64, seed: u64) -> Self {
        Self { permutation: Permutation::new(count, scramble(seed)), next: 0, seed, pass: 0 }
    }

    #[inline]
    pub fn next(&mut self) -> u64 {
        if self.next == self.permutation.count {
            self.again();
        }
        let index = self.next;
        self.next += 1;
        self.permutation.at(index)
    }

    /// Every block came equally often.
    pub fn is_through(&self) -> bool {
        self.next == self.permutation.count
    }

    #[cold]
    fn again(&mut self) {
        self.pass += 1;
        self.next = 0;
        self.permutation =
            Permutation::new(self.permutation.count, scramble(self.seed ^ scramble(self.pass)));
    }
}

/// Divides a range into blocks of several sizes.
///
/// A tile is a run of blocks in which each direction and size has its share; in a range of few blocks it is as long as
/// the range. The range is tiled as often as it fits. The rest at the end takes the start of a tile, then blocks of the
/// smallest size, few enough to keep the shares. What is still left, less than the largest block, is not covered.
#[derive(Debug, Clone)]
pub struct Tiles {
    tile: Vec<Slot>,
    tile_bytes: u64,
    /// Blocks in whole tiles.
    whole: u64,
    /// Blocks of the last, cut tile.
    cut: u64,
    filler: Filler,
    passes: Passes,
    bytes: u64,
}

/// A block of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub direction: Direction,
    pub bytes: u64,
    /// Offset from the start of the range.
    pub at: u64,
}

/// Blocks of the smallest size at the end of the range.
#[derive(Debug, Clone, Copy)]
struct Filler {
    count: u64,
    bytes: u64,
    /// Percentage of them in the first direction.
    share: u64,
    directions: [Direction; 2],
}

impl Tiles {
    /// Divides `bytes`, which must have room for the smallest block.
    pub fn new(job: &Job, bytes: u64, seed: u64) -> Self {
        let mut state = scramble(seed);
        let tile = tile(job, bytes, &mut state);
        let tile_bytes = tile.last().map_or(1, |slot| slot.at + slot.bytes);
        let (tiles, rest) = (bytes / tile_bytes, bytes % tile_bytes);
        let cut = tile.partition_point(|slot| slot.at + slot.bytes <= rest);
        let used = cut.checked_sub(1).map_or(0, |last| tile[last].at + tile[last].bytes);
        let smallest = tile.iter().map(|slot| slot.bytes).min().unwrap_or(1);
        let mut directions = job.directions().filter(|direction| {
            tile.iter().any(|slot| slot.direction == *direction && slot.bytes == smallest)
        });
        let first = directions.next().unwrap_or(Direction::Read);
        let second = directions.next();
        let (whole, cut) = (tiles * tile.len() as u64, cut as u64);
        let filler = Filler {
            count: ((rest - used) / smallest).min((whole + cut).div_ceil(PER_FILLER)),
            bytes: smallest,
            share: if second.is_some() { u64::from(job.rwmixread.min(100)) } else { 100 },
            directions: [first, second.unwrap_or(first)],
        };
        Self {
            tile,
            tile_bytes,
            whole,
            cut,
            filler,
            passes: Passes::new((whole + cut + filler.count).max(1), random(&mut state)),
            bytes: tiles * tile_bytes + used + filler.count * smallest,
        }
    }

    /// Bytes of one pass.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every byte came equally often.
    pub fn is_through(&self) -> bool {
        self.passes.is_through()
    }

    pub fn next(&mut self) -> Slot {
        let index = self.passes.next();
        let slots = self.tile.len() as u64;
        if index < self.whole + self.cut {
            let slot = self.tile[(index % slots) as usize];
            return Slot { at: slot.at + index / slots * self.tile_bytes, ..slot };
        }
        let (number, filler) = (index - self.whole - self.cut, &self.filler);
        // Where the cumulative share passes a whole number.
        let first = number * filler.share / 100 != (number + 1) * filler.share / 100;
        let from_end = filler.count - number;
        Slot {
            direction: filler.directions[usize::from(!first)],
            bytes: filler.bytes,
            at: self.bytes - from_end * filler.bytes,
        }
    }
}

/// A thousand blocks, or as many as the range has. Each direction and size has its share, and at least one block if its
/// share is above 0.
fn tile(job: &Job, bytes: u64, state: &mut u64) -> Vec<Slot> {
    let reads = f64::from(job.rwmixread.min(100)) / 100.0;
    let is_mixed = job.directions().count() > 1;
    let part = |direction| match direction {
        _ if !is_mixed => 1.0,
        Direction::Read => reads,
        _ => 1.0 - reads,
    };
    // Their shares of all blocks.
    let shares = || {
        job.directions().flat_map(|direction| {
            let shares = &job.bs[direction.index()].0;
            let all: f64 = shares.iter().map(weight).sum();
            shares.iter().map(move |share| (direction, share, part(direction) * weight(share) / all))
        })
    };
    let mean = |share: &BlockShare| share.low.max(1) as f64 * (steps(share) + 1) as f64 / 2.0;
    let block: f64 = shares().map(|(_, share, part)| part * mean(share)).filter(|bytes| *bytes > 0.0).sum();
    let slots = (bytes as f64 / block).floor().clamp(1.0, SLOTS);
    let mut tile = Vec::new();
    for (direction, share, part) in shares().filter(|(.., part)| *part > 0.0) {
        let count = (part * slots).round().max(1.0) as u64;
        let (low, steps) = (share.low.max(1), steps(share));
        // The sizes of a range, evenly spaced.
        tile.extend((0..count).map(|i| {
            let step = (u128::from(2 * i + 1) * u128::from(steps) / u128::from(2 * count)) as u64;
            Slot { direction, bytes: low * (1 + step), at: 0 }
        }));
    }
    if tile.is_empty() {
        // No share is above 0.
        let direction = job.directions().next().unwrap_or(Direction::Read);
        let bytes = job.bs[direction.index()].smallest().max(1);
        tile.push(Slot { direction, bytes, at: 0 });
    }
    for i in (1..tile.len()).rev() {
        tile.swap(i, below(state, i as u64 + 1) as usize);
    }
    let mut at = 0;
    for slot in &mut tile {
        slot.at = at;
        at += slot.bytes;
    }
    tile
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::job::{BlockSizes, Pattern, Target};
    use super::*;

    proptest! {
        #[test]
        fn each_number_comes_once_in_each_pass(count in 1u64..3000, seed: u64) {
            let mut passes = Passes::new(count, seed);
            for _ in 0..3 {
                let mut seen = vec![false; count as usize];
                for _ in 0..count {
                    let number = passes.next() as usize;
                    prop_assert!(!seen[number]);
                    seen[number] = true;
                }
            }
        }

        #[test]
        fn tiles_cover_no_byte_twice(
            bytes in 1u64..20_000_000, seed: u64, mix in 0u8..=100, low in 1u64..64, high in 1u64..256
        ) {
            let mut job = Job { rw: Pattern::RandReadWrite, rwmixread: mix, ..Job::new(Target::Existing("x".into())) };
            job.bs[Direction::Read.index()] = BlockSizes(vec![
                BlockShare { low: 4096, high: 4096, percent: 30.0 },
                BlockShare { low: 6144, high: 6144, percent: 70.0 },
            ]);
            job.bs[Direction::Write.index()] = BlockSizes(vec![BlockShare { low: low * 512, high: (low + high) * 512, percent: 100.0 }]);
            let bytes = bytes.max(64 * 512);
            let mut tiles = Tiles::new(&job, bytes, seed);
            let largest = tiles.tile.iter().map(|slot| slot.bytes).max().unwrap();
            prop_assert!(tiles.bytes() <= bytes && bytes - tiles.bytes() < largest);
            let (mut all, mut sum) = (Vec::new(), 0);
            while sum < tiles.bytes() {
                let slot = tiles.next();
                sum += slot.bytes;
                all.push((slot.at, slot.bytes));
            }
            all.sort_unstable();
            let mut end = 0;
            for (at, bytes) in all {
                prop_assert_eq!(at, end);
                end += bytes;
            }
            prop_assert_eq!(end, tiles.bytes());
        }
    }

    /// The number of blocks of each size in a pass, and the bytes not covered.
    fn parts(range: u64, shares: &[(u64, f64)]) -> (Vec<u64>, u64) {
        let mut job = Job { rw: Pattern::RandRead, ..Job::new(Target::Existing("x".into())) };
        let share =
            |(bytes, percent): &(u64, f64)| BlockShare { low: *bytes, high: *bytes, percent: *percent };
        job.bs[Direction::Read.index()] = BlockSizes(shares.iter().map(share).collect());
        let mut tiles = Tiles::new(&job, range, 7);
        let (mut counts, mut sum) = (vec![0; shares.len()], 0);
        while sum < tiles.bytes() {
            let bytes = tiles.next().bytes;
            counts[shares.iter().position(|(size, _)| *size == bytes).unwrap()] += 1;
            sum += bytes;
        }
        (counts, range - sum)
    }

    #[test]
    fn the_mix_is_kept_in_a_small_range() {
        const MIB: u64 = 1 << 20;
        // Of 71 blocks, one may be a filler.
        let (counts, left) = parts(256 * MIB, &[(4096, 10.0), (4 * MIB, 90.0)]);
        assert!((6..=9).contains(&counts[0]) && (63..=64).contains(&counts[1]), "{counts:?}");
        assert!(left < 4 * MIB, "{left}");
        let (counts, left) = parts(64 * MIB, &[(4096, 50.0), (65_536, 50.0)]);
        assert!(counts[0].abs_diff(counts[1]) <= counts[1] / 50 && left < 65_536, "{counts:?} {left}");
        // A range that fits exactly is covered completely.
        assert_eq!(parts(MIB, &[(4096, 50.0), (8192, 50.0)]), (vec![86, 85], 0));
    }

    #[test]
    fn a_permutation_of_a_huge_device_keeps_within_it() {
        let count = (1 << 51) + 12_345;
        let permutation = Permutation::new(count, 1);
        let mut numbers: Vec<u64> = (0..100_000).map(|i| permutation.at(i)).collect();
        assert!(numbers.iter().all(|number| *number < count));
        assert!(numbers.iter().any(|number| *number > count / 100 * 99));
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100_000);
        assert_eq!(Permutation::new(u64::MAX, 1).at(5), Permutation::new(u64::MAX, 1).at(5));
        assert_eq!(Permutation::new(1, 1).at(0), 0);
    }

    /// Tests what matters to a disk: the first offset, and the distance to the next one.
    #[test]
    fn a_permutation_looks_random() {
        for count in [16u64, 100, 1 << 20] {
            let (mut first, mut distance) = ([0u32; 16], [0u32; 16]);
            let part = |number: u64| (number * 16 / count) as usize;
            for seed in 0..16_000 {
                let permutation = Permutation::new(count, scramble(seed));
                let (a, b) = (permutation.at(0), permutation.at(1));
                first[part(a)] += 1;
                // Never 0: all parts but the nearest have the same share.
                distance[part((b + count - a) % count)] += 1;
            }
            let near = |n: &u32| (700..1_350).contains(n);
            assert!(count == 100 || first.iter().all(near), "{count}: {first:?}");
            assert!(count == 16 || count == 100 || distance.iter().all(near), "{count}: {distance:?}");
        }
    }

    #[test]
    fn neighbours_in_one_pass_lie_apart() {
        // Distances in one pass of a disk: sixteenths, 62,500 expected in each.
        let count = 1_000_000u64;
        let permutation = Permutation::new(count, 42);
        let mut distances = [0u32; 16];
        for i in 1..count {
            let (a, b) = (permutation.at(i - 1), permutation.at(i));
            distances[((b + count - a) % count * 16 / count) as usize] += 1;
        }
        // Standard deviation 242: eight of them, since these are not independent.
        assert!(distances.iter().all(|n| n.abs_diff(62_500) < 1_936), "{distances:?}");
    }
}
