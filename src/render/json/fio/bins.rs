//! Converts our histograms to fio's.
//!
//! fio divides every power of two from 128 ns on into 64 buckets, and names each by its midpoint; below, each
//! nanosecond has its own. Our buckets are four times as wide (a quarter of that below 128 ns, where both are
//! narrower). The count of each goes to the fio bucket that contains our midpoint. That is off by half of our width,
//! and fio's midpoint by half of its own in addition: at most 1/32 + 1/128 of the true value, 3.9 %. A value clamped to
//! the exact extremes stays in its bucket. As in fio, all times above 17 s are in the last bucket.

use crate::hist::Histogram;

/// fio's default percentiles.
pub const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// fio's FIO_IO_U_PLAT_BITS.
const BITS: u32 = 6;
/// FIO_IO_U_PLAT_GROUP_NR: groups of 64 buckets.
const GROUPS: u32 = 29;

/// The value by which fio names the bucket of `ns`.
pub fn name(ns: u64) -> u64 {
    // The last bucket of the last group also has everything above.
    let end = 1u64 << (GROUPS + BITS - 1);
    let ns = ns.min(end - 1);
    let highest = 63 - ns.max(1).leading_zeros();
    if highest <= BITS {
        return ns;
    }
    let width = 1 << (highest - BITS);
    ns / width * width + width / 2
}

/// Names and counts of the non-empty buckets, ascending.
pub fn bins(hist: &Histogram) -> Vec<(u64, u64)> {
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for (value, n) in hist.midpoints() {
        let name = name(value);
        match bins.last_mut().filter(|last| last.0 == name) {
            Some(last) => last.1 += n,
            None => bins.push((name, n)),
        }
    }
    bins
}

/// The first bucket that, together with those below it, has this percentage of the values; 0 without any, as in fio.
pub fn percentile(bins: &[(u64, u64)], percent: f64) -> u64 {
    let wanted = percent / 100.0 * bins.iter().map(|bin| bin.1).sum::<u64>() as f64;
    let mut seen = 0;
    let reached = bins.iter().find(|bin| {
        seen += bin.1;
        seen as f64 >= wanted
    });
    reached.or(bins.last()).map_or(0, |bin| bin.0)
}

/// Times by decimal classes, in percent of all: fio's `latency_ns`, `latency_us` and `latency_ms`, where each class is
/// named by its upper end. A value counts at its bucket's midpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Classes {
    pub ns: [f64; 10],
    pub us: [f64; 10],
    pub ms: [f64; 12],
}

/// Upper ends of the classes below 1000 of a unit.
const ENDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

impl Classes {
    pub fn of(hist: &Histogram) -> Self {
        let mut classes = Self::default();
        let class = |value: u64| ENDS.iter().position(|end| value < *end);
        let percent = |n: u64| n as f64 * 100.0 / hist.count() as f64;
        for (value, n) in hist.midpoints() {
            let (us, ms) = (value / 1_000, value / 1_000_000);
            if let Some(at) = class(value) {
                classes.ns[at] += percent(n);
            } else if let Some(at) = class(us) {
                classes.us[at] += percent(n);
            } else {
                let at = class(ms).unwrap_or(if ms < 2000 { 10 } else { 11 });
                classes.ms[at] += percent(n);
            }
        }
        // As in fio, a share that would read as zero is raised.
        let raise = |share: &mut f64| {
            if *share > 0.0 {
                *share = share.max(0.01);
            }
        };
        classes.ns.iter_mut().chain(&mut classes.us).chain(&mut classes.ms).for_each(raise);
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of `bins` that fio 3.33 wrote.
    const FIO: [u64; 20] = [
        44, 103, 127, 129, 255, 258, 262, 286, 482, 988, 1096, 4832, 7904, 20608, 120320, 1220608, 4014080,
        5734400, 6651904, 2932736,
    ];

    #[test]
    fn buckets_are_named_as_fio_names_them() {
        for key in FIO {
            assert_eq!(name(key), key, "a midpoint is in its own bucket");
        }
        assert_eq!((name(0), name(1), name(127), name(128), name(131)), (0, 1, 127, 129, 131));
        assert_eq!((name(17_179_869_183), name(u64::MAX)), (17_112_760_320, 17_112_760_320));
    }

    #[test]
    fn a_recoded_value_is_off_by_less_than_four_percent() {
        for value in (0..200_000u64).step_by(7).chain((200_000..1 << 34).step_by(999_983)) {
            let others = [value / 2, value * 2 + 64];
            let hist = Histogram::from_iter([others[0], value, others[1]]);
            let near = bins(&hist).iter().map(|bin| bin.0.abs_diff(value.min((1 << 34) - 1))).min().unwrap();
            assert!(near as f64 <= value as f64 * (1.0 / 32.0 + 1.0 / 128.0), "{near} off {value}");
        }
    }

    #[test]
    fn no_count_is_lost() {
        let hist = Histogram::from_iter((0..5000).map(|i| i * i * i));
        let bins = bins(&hist);
        assert_eq!(bins.iter().map(|bin| bin.1).sum::<u64>(), 5000);
        assert!(bins.is_sorted_by(|a, b| a.0 < b.0));
        let classes = Classes::of(&hist);
        let all: f64 = classes.ns.iter().chain(&classes.us).chain(&classes.ms).sum();
        assert!((all - 100.0).abs() < 0.2, "{all}");
    }

    #[test]
    fn percentiles_are_nearest_ranks_and_always_there() {
        let bins = [(10, 1), (20, 98), (30, 1)];
        assert_eq!([1.0, 1.1, 99.0, 99.5].map(|p| percentile(&bins, p)), [10, 20, 20, 30]);
        assert_eq!(percentile(&[(10, 1)], 99.99), 10);
        assert_eq!(percentile(&[], 50.0), 0);
    }

    #[test]
    fn classes_end_before_the_number_that_names_them() {
        let only = |ns: u64| Classes::of(&Histogram::from_iter([ns]));
        assert_eq!(only(1).ns[0], 100.0);
        assert_eq!(only(2).ns[1], 100.0);
        assert_eq!(only(999).ns[9], 100.0);
        assert_eq!(only(1000).us[0], 100.0);
        assert_eq!(only(250_000).us[7], 100.0);
        assert_eq!(only(999_999).us[9], 100.0);
        assert_eq!(only(1_999_000_000).ms[10], 100.0);
        assert_eq!(only(2_000_000_000).ms[11], 100.0);
        assert_eq!(Classes::of(&Histogram::default()), Classes::default());
    }
}
