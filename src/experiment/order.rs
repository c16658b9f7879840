//! Determines the order in which arms run.

use crate::load::random::below;

/// The order of arms in each block, by index. The same seed gives the same order.
pub fn blocks(arms: usize, blocks: usize, mut seed: u64) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = Vec::with_capacity(blocks);
    while all.len() < blocks {
        let mut order: Vec<usize> = (0..arms).collect();
        for last in (1..arms).rev() {
            order.swap(last, below(&mut seed, last as u64 + 1) as usize);
        }
        let back = order.iter().rev().copied().collect();
        all.extend([order, back]);
    }
    all.truncate(blocks);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_each_arm_once_and_a_pair_of_blocks_is_balanced() {
        for arms in 1..6 {
            let all = blocks(arms, 7, 42);
            assert_eq!(all.len(), 7);
            for block in &all {
                let mut sorted = block.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..arms).collect::<Vec<_>>());
            }
            for pair in all.chunks_exact(2) {
                assert!(pair[0].iter().eq(pair[1].iter().rev()));
            }
            assert_eq!(all, blocks(arms, 7, 42));
        }
        assert!(blocks(0, 3, 1).iter().all(Vec::is_empty));
    }

    #[test]
    fn each_arm_is_as_often_first_as_the_others() {
        let mut first = [0; 3];
        for seed in 0..3_000 {
            first[blocks(3, 1, seed)[0][0]] += 1;
        }
        // Standard deviation 26.
        assert!(first.iter().all(|n| (900..1_100).contains(n)), "{first:?}");
    }
}
