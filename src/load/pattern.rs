//! Which block comes next. Pure: the same seed and job number give the same order.

use super::Pattern;

/// The offsets of one job, endless.
#[derive(Debug, Clone)]
pub struct Offsets {
    pattern: Pattern,
    bs: u64,
    blocks: u64,
    /// Sequential: the next block. Random: the state of the generator.
    state: u64,
}

impl Offsets {
    /// The order of job `number` of `jobs` over `blocks` (above 0) blocks of `bs` bytes.
    pub fn new(pattern: Pattern, bs: u64, blocks: u64, number: u32, jobs: u32, seed: u64) -> Self {
        let state = match pattern {
            // u128: blocks × number overflows for large devices with tiny blocks only, but silently.
            Pattern::Read => (u128::from(blocks) * u128::from(number) / u128::from(jobs.max(1))) as u64,
            // Scrambled, because neighbouring states of this generator give shifted copies of one sequence.
            Pattern::RandRead => scramble(seed ^ scramble(u64::from(number) + 1)),
        };
        Self { pattern, bs, blocks, state }
    }

    /// The next offset in bytes.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let block = match self.pattern {
            Pattern::Read => {
                let block = self.state;
                self.state = if block + 1 >= self.blocks { 0 } else { block + 1 };
                block
            }
            // The high word of the product: uniform up to blocks / 2^64, without a division.
            Pattern::RandRead => {
                ((u128::from(random(&mut self.state)) * u128::from(self.blocks)) >> 64) as u64
            }
        };
        block * self.bs
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and two multiplications, every state occurs once.
#[inline]
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    scramble(*state)
}

#[inline]
fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(mut offsets: Offsets, n: usize) -> Vec<u64> {
        (0..n).map(|_| offsets.next()).collect()
    }

    #[test]
    fn random_offsets_cover_the_range_evenly() {
        let mut hits = [0u32; 64];
        for offset in take(Offsets::new(Pattern::RandRead, 4096, 64, 0, 1, 1), 64_000) {
            assert_eq!(offset % 4096, 0);
            hits[(offset / 4096) as usize] += 1;
        }
        // 1,000 expected, standard deviation 31: six of them on either side.
        assert!(hits.iter().all(|n| (810..1190).contains(n)), "{hits:?}");
    }

    #[test]
    fn random_offsets_reach_the_end_of_a_huge_device() {
        let blocks = (1u64 << 60) / 512;
        let offsets = take(Offsets::new(Pattern::RandRead, 512, blocks, 0, 1, 7), 10_000);
        assert!(offsets.iter().all(|o| *o < 1 << 60));
        assert!(offsets.iter().any(|o| *o > (1 << 60) - (1 << 52)));
    }

    #[test]
    fn sequential_offsets_wrap_at_the_end() {
        assert_eq!(take(Offsets::new(Pattern::Read, 512, 3, 0, 1, 1), 5), [0, 512, 1024, 0, 512]);
        assert_eq!(take(Offsets::new(Pattern::Read, 512, 1, 0, 1, 1), 2), [0, 0]);
    }

    #[test]
    fn sequential_jobs_start_at_their_own_share() {
        let first = |number| take(Offsets::new(Pattern::Read, 512, 8, number, 4, 1), 1)[0];
        assert_eq!([first(0), first(1), first(2), first(3)], [0, 1024, 2048, 3072]);
    }

    #[test]
    fn a_seed_reproduces_its_order_and_jobs_differ() {
        let order = |number, seed| take(Offsets::new(Pattern::RandRead, 4096, 1 << 20, number, 2, seed), 100);
        assert_eq!(order(0, 42), order(0, 42));
        assert_ne!(order(0, 42), order(0, 43));
        assert_ne!(order(0, 42), order(1, 42));
    }
}
