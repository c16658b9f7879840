//! Pseudo-random numbers that repeat with their seed.

/// SplitMix64 (Steele, Lea, Flood 2014): one addition and two multiplications; every state occurs once.
#[inline]
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    scramble(*state)
}

/// Mixes a state so that it is unrelated to its neighbours: adjacent states of this generator give shifted copies of
/// one sequence.
#[inline]
pub fn scramble(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The initial state of a thread's own generator.
pub fn seeded(seed: u64, number: u32) -> u64 {
    scramble(seed ^ scramble(u64::from(number) + 1))
}

/// A number in 0..end: the high word of the product is uniform up to an error of end / 2^64, without a division.
#[inline]
pub fn below(state: &mut u64, end: u64) -> u64 {
    ((u128::from(random(state)) * u128::from(end)) >> 64) as u64
}

/// A number in [0, 1).
pub fn unit(state: &mut u64) -> f64 {
    // A double has room for 53 bits.
    (random(state) >> 11) as f64 / (1u64 << 53) as f64
}

/// Fills with bytes that no drive can compress or deduplicate.
pub fn scribble(bytes: &mut [u8], state: &mut u64) {
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&random(state).to_le_bytes());
    }
    let rest = words.into_remainder();
    let last = random(state).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}
