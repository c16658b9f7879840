//! Draws random blocks with a skewed distribution: some come more often than others.

use super::super::job::Distribution;
use super::super::random::{below, scramble, unit};
use super::coverage::Permutation;

/// After this many failed draws in a row, the parameters are unusable.
const TRIES: u32 = 1_000;

/// Draws numbers below a count.
///
/// All but [`Skew::Zoned`] draw a rank and map each rank to its own block somewhere in the range. fio hashes the ranks,
/// so that two may share a block; here they may not.
#[derive(Debug, Clone)]
pub enum Skew {
    Zipf(Zipf, Permutation),
    /// The rank is the count multiplied by a power of a uniform number.
    Pareto {
        power: f64,
        blocks: Permutation,
    },
    /// fio's distribution: the sum of a variable with a deviation of 1/12 of the range and a uniform one.
    Normal {
        /// Width of the uniform variable.
        width: u64,
        blocks: Permutation,
    },
    Zoned(Vec<AccessZone>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AccessZone {
    /// Cumulative percentage of accesses up to this zone.
    accesses: f64,
    first: u64,
    blocks: u64,
}

impl Skew {
    /// None for uniform. `count` must be above 0; `seed` decides where the hot blocks are.
    pub fn new(distribution: &Distribution, count: u64, seed: u64) -> Option<Self> {
        let scattered = || Permutation::new(count, scramble(seed));
        Some(match distribution {
            Distribution::Uniform => return None,
            Distribution::Zipf(theta) => Self::Zipf(Zipf::new(count, *theta), scattered()),
            // fio's parameter h: the share h of the ranks gets the share 1 - h of the accesses.
            Distribution::Pareto(h) => Self::Pareto { power: h.ln() / (1.0 - h).ln(), blocks: scattered() },
            Distribution::Normal(percent) => {
                let width = (count as f64 * percent / 100.0).ceil() as u64;
                Self::Normal { width: width.min(count / 2), blocks: scattered() }
            }
            Distribution::Zoned(zones) => Self::Zoned(zoned(zones, count)?),
        })
    }

    pub fn draw(&self, count: u64, state: &mut u64) -> u64 {
        match self {
            Self::Zipf(zipf, blocks) => blocks.at(zipf.draw(state) - 1),
            Self::Pareto { power, blocks } => {
                blocks.at(((count as f64 * unit(state).powf(*power)) as u64).min(count - 1))
            }
            Self::Normal { width, blocks } => blocks.at(normal(count, *width, state)),
            Self::Zoned(zones) => {
                let (last, accesses) = zones.last().map_or((0, 0.0), |zone| (zones.len() - 1, zone.accesses));
                let drawn = unit(state) * accesses;
                let zone = zones[zones.iter().position(|zone| drawn < zone.accesses).unwrap_or(last)];
                zone.first + below(state, zone.blocks)
            }
        }
    }
}

/// None where no zone has both accesses and blocks. A zone smaller than a block gets the block in which it begins.
fn zoned(zones: &[(f64, f64)], count: u64) -> Option<Vec<AccessZone>> {
    let (mut accesses, mut range) = (0.0, 0.0);
    let mut all = Vec::with_capacity(zones.len());
    for (access, length) in zones {
        let first = ((count as f64 * range / 100.0).round() as u64).min(count - 1);
        range += length.max(0.0);
        let end = ((count as f64 * range / 100.0).round() as u64).min(count);
        if *access > 0.0 {
            accesses += access;
            all.push(AccessZone { accesses, first, blocks: end.saturating_sub(first).max(1) });
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The mean of twelve numbers from 0 to `count`, shifted by less than half of `width`: fio's `gauss_next`, before it
/// hashes.
fn normal(count: u64, width: u64, state: &mut u64) -> u64 {
    const NUMBERS: u64 = 12;
    let sum: u64 = (0..NUMBERS).map(|_| below(state, count + 1)).sum();
    let mean = sum.div_ceil(NUMBERS) as i64;
    let mut moved = (width as f64 * unit(state)) as i64 - (width / 2) as i64;
    while moved != 0 && !(0..count as i64).contains(&(mean + moved)) {
        moved /= 2;
    }
    ((mean + moved) as u64).min(count - 1)
}

/// Draws ranks from 1 on, rank k with probability proportional to k^-theta, by rejection-inversion (Hörmann, Derflinger
/// 1996): exact for every count and theta, and without a sum over all ranks.
#[derive(Debug, Clone)]
pub struct Zipf {
    count: u64,
    theta: f64,
    /// Range of the integral of the density, from before rank 1 to after the last rank.
    from: f64,
    to: f64,
    /// A rank rounded up by no more than this is accepted without a further test.
    near: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let mut zipf = Self { count, theta, from: 0.0, to: 0.0, near: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(count as f64 + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn density(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// (x^(1 - theta) - 1) / (1 - theta), and ln x for theta 1.
    fn integral(&self, x: f64) -> f64 {
        let (log, slope) = (x.ln(), (1.0 - self.theta) * x.ln());
        if slope.abs() > 1e-8 { slope.exp_m1() / slope * log } else { log * (1.0 + slope / 2.0) }
    }

    fn inverse(&self, y: f64) -> f64 {
        let slope = (y * (1.0 - self.theta)).max(-1.0);
        (if slope.abs() > 1e-8 { slope.ln_1p() / slope * y } else { y * (1.0 - slope / 2.0) }).exp()
    }

    fn draw(&self, state: &mut u64) -> u64 {
        let mut rank = 1;
        for _ in 0..TRIES {
            let y = self.to + unit(state) * (self.from - self.to);
            let x = self.inverse(y);
            rank = (x.round() as u64).clamp(1, self.count);
            let k = rank as f64;
            if k - x <= self.near || y >= self.integral(k + 0.5) - self.density(k) {
                break;
            }
        }
        rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    /// How often each block came.
    fn counts(distribution: Distribution, count: u64, seed: u64) -> Vec<u32> {
        let skew = Skew::new(&distribution, count, seed).unwrap();
        let (mut counts, mut state) = (vec![0; count as usize], seed);
        (0..DRAWS).for_each(|_| counts[skew.draw(count, &mut state) as usize] += 1);
        counts
    }

    /// Pearson's chi-squared test over classes with at least 20 expected.
    fn fits(counts: &[u32], probability: impl Fn(usize) -> f64) {
        let (mut sum, mut classes) = (0.0, 0u32);
        let (mut observed, mut expected) = (0.0, 0.0);
        for (i, count) in counts.iter().enumerate() {
            observed += f64::from(*count);
            expected += probability(i) * f64::from(DRAWS);
            if expected >= 20.0 {
                sum += (observed - expected).powi(2) / expected;
                classes += 1;
                (observed, expected) = (0.0, 0.0);
            }
        }
        let freedom = f64::from(classes - 1);
        assert!(classes > 10, "the test has to see something: {classes} classes");
        assert!(sum < freedom + 5.0 * (2.0 * freedom).sqrt(), "{sum} for {freedom} degrees of freedom");
    }

    fn ranked(mut counts: Vec<u32>) -> Vec<u32> {
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn zipf_follows_its_law() {
        for theta in [0.5, 0.99, 1.0, 1.2, 3.0] {
            let count = 1_000u32;
            let all: f64 = (1..=count).map(|k| f64::from(k).powf(-theta)).sum();
            let Some(Skew::Zipf(zipf, _)) = Skew::new(&Distribution::Zipf(theta), count.into(), 3) else {
                panic!("zipf is a skew");
            };
            let (mut counts, mut state) = (vec![0; count as usize], 11);
            (0..DRAWS).for_each(|_| counts[zipf.draw(&mut state) as usize - 1] += 1);
            fits(&counts, |i| (i as f64 + 1.0).powf(-theta) / all);
        }
    }

    #[test]
    fn zipf_of_a_huge_device_keeps_its_first_ranks() {
        // zeta(1.2) = 5.5916: nearly all of its sum comes from ranks below 2^40 (the rest: 5 * 2^-8 = 0.0195).
        let zipf = Zipf::new(1 << 40, 1.2);
        let mut state = 5;
        let ones = (0..DRAWS).filter(|_| zipf.draw(&mut state) == 1).count() as f64;
        let expected = f64::from(DRAWS) / (5.5916 - 0.0195);
        assert!((ones - expected).abs() < 5.0 * expected.sqrt(), "{ones} {expected}");
    }

    #[test]
    fn pareto_gives_most_accesses_to_few_blocks() {
        let count = 10_000;
        let Some(Skew::Pareto { blocks, .. }) = Skew::new(&Distribution::Pareto(0.2), count, 3) else {
            panic!("pareto is a skew");
        };
        let counts = counts(Distribution::Pareto(0.2), count, 3);
        let ranks: Vec<u32> = (0..count).map(|rank| counts[blocks.at(rank) as usize]).collect();
        let share = |part: usize| f64::from(ranks[..part].iter().sum::<u32>()) / f64::from(DRAWS);
        // 80 % to 20 %; in between, the part x of the ranks gets x^(ln 0.8 / ln 0.2).
        assert!((share(2_000) - 0.8).abs() < 0.005, "{}", share(2_000));
        let exponent = 0.8f64.ln() / 0.2f64.ln();
        fits(&ranks, |i| {
            ((i as f64 + 1.0) / count as f64).powf(exponent) - (i as f64 / count as f64).powf(exponent)
        });
    }

    #[test]
    fn hot_blocks_lie_anywhere() {
        for distribution in [Distribution::Zipf(1.2), Distribution::Pareto(0.1), Distribution::Normal(0.0)] {
            let mut quarters = [0u32; 4];
            for seed in 0..64 {
                let counts = counts_of_few(&distribution, seed);
                let hottest = counts.iter().enumerate().max_by_key(|(_, n)| **n).unwrap().0;
                quarters[hottest / 250] += 1;
            }
            assert!(quarters.iter().all(|n| (5..30).contains(n)), "{distribution:?}: {quarters:?}");
        }
        let ranked = ranked(counts(Distribution::Zipf(1.2), 1_000, 1));
        assert!(ranked[0] > 2 * ranked[2], "no two ranks share a block");
    }

    fn counts_of_few(distribution: &Distribution, seed: u64) -> Vec<u32> {
        let skew = Skew::new(distribution, 1_000, seed).unwrap();
        let (mut counts, mut state) = (vec![0; 1_000], seed);
        (0..2_000).for_each(|_| counts[skew.draw(1_000, &mut state) as usize] += 1);
        counts
    }

    /// How often fio 3.33 chose each of 1000 blocks, in order: the offsets written by `fio --name=x --ioengine=null
    /// --rw=randread --bs=4k --size=4000k --io_size=800000k --norandommap --random_distribution=normal:N
    /// --write_iolog=FILE`.
    const FIOS: [(f64, &str); 2] = [
        (20.0, include_str!("distribution/fio-3.33-normal-20")),
        (0.0, include_str!("distribution/fio-3.33-normal-0")),
    ];

    #[test]
    fn normal_is_fios() {
        const COUNT: u64 = 1_000;
        for (percent, text) in FIOS {
            let fio: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let Some(Skew::Normal { width, .. }) = Skew::new(&Distribution::Normal(percent), COUNT, 1) else {
                panic!("normal is a skew");
            };
            let (mut ours, mut state) = ([0.0; COUNT as usize], 7);
            for _ in 0..DRAWS {
                // Hashed to a block as fio does.
                let block = normal(COUNT, width, &mut state).wrapping_mul(0x61c8_8646_80b5_83eb) % COUNT;
                ours[block as usize] += 1.0;
            }
            assert_eq!((fio.len(), fio.iter().sum::<f64>()), (ours.len(), f64::from(DRAWS)));
            let (mut sum, mut classes) = (0.0, 0.0_f64);
            for (fio, ours) in fio.iter().zip(ours).filter(|(fio, ours)| *fio + ours >= 40.0) {
                sum += (fio - ours).powi(2) / (fio + ours);
                classes += 1.0;
            }
            assert!(classes > 120.0, "{classes} classes");
            assert!(sum < classes + 5.0 * (2.0 * classes).sqrt(), "{percent}: {sum} for {classes} classes");
        }
    }

    #[test]
    fn normal_has_the_deviation_of_its_two_parts() {
        // Deviation relative to the range: 1/12 from the sum, plus that of a uniform variable of the set width, at most
        // half.
        for (percent, width) in [(0.0, 0.0_f64), (1.0, 0.01), (20.0, 0.2), (60.0, 0.5)] {
            let count = 10_000;
            let Some(Skew::Normal { width: blocks, .. }) =
                Skew::new(&Distribution::Normal(percent), count, 1)
            else {
                panic!("normal is a skew");
            };
            let mut state = 3;
            let drawn: Vec<f64> =
                (0..DRAWS).map(|_| normal(count, blocks, &mut state) as f64 / count as f64 - 0.5).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(DRAWS);
            let deviation = (drawn.iter().map(|x| x * x).sum::<f64>() / f64::from(DRAWS)).sqrt();
            let wanted = (1.0 / 144.0 + width * width / 12.0_f64).sqrt();
            assert!(mean.abs() < 0.001, "{percent}: {mean}");
            assert!((deviation / wanted - 1.0).abs() < 0.01, "{percent}: {deviation} {wanted}");
        }
    }

    #[test]
    fn zones_have_their_shares_and_their_places() {
        let zones = vec![(60.0, 10.0), (30.0, 20.0), (8.0, 30.0), (2.0, 40.0)];
        fits(&counts(Distribution::Zoned(zones), 1_000, 4), |i| match i {
            0..100 => 0.6 / 100.0,
            100..300 => 0.3 / 200.0,
            300..600 => 0.08 / 300.0,
            _ => 0.02 / 400.0,
        });
    }

    #[test]
    fn parameters_beyond_sense_keep_within_the_range() {
        let zoned = |zones: &[(f64, f64)]| Distribution::Zoned(zones.to_vec());
        let all = [
            Distribution::Zipf(f64::NAN),
            Distribution::Zipf(-3.0),
            Distribution::Zipf(1e300),
            Distribution::Pareto(0.0),
            Distribution::Pareto(1.0),
            Distribution::Pareto(7.0),
            Distribution::Normal(0.0),
            Distribution::Normal(1e300),
            Distribution::Normal(f64::NAN),
            zoned(&[(1e300, 1e300), (5.0, 5.0), (f64::NAN, f64::NAN)]),
            zoned(&[(50.0, 0.001), (50.0, 200.0)]),
        ];
        for distribution in all {
            for count in [1, 2, 1_000, 1 << 55] {
                let Some(skew) = Skew::new(&distribution, count, 1) else { continue };
                let mut state = 1;
                assert!((0..100).all(|_| skew.draw(count, &mut state) < count), "{distribution:?} {count}");
            }
        }
        assert!(Skew::new(&zoned(&[]), 10, 1).is_none());
        assert!(Skew::new(&zoned(&[(0.0, 100.0)]), 10, 1).is_none());
    }
}
