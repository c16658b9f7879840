//! The histogram of all measurements: log-linear with 4 sub-bucket bits.
//!
//! Values below 16 have a bucket each; above, every power of two is divided into 16 buckets of equal width. A bucket
//! `[lower, upper)` is at most lower/16 wide, so its midpoint is off by at most 1/32 = 3.125 % of the true value.
//! `bpf/hist.h` computes the same index in the kernel; a test checks both against the same table of values.
//!
//! Buckets reach to 2^40 (18 minutes in nanoseconds); larger values fall into the last bucket, whose quantile is
//! clamped to the exact maximum. `sum`, `min` and `max` are exact.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Sub-bucket bits: 2^4 buckets per power of two.
pub const SUB_BITS: u32 = 4;
/// Powers of two covered: values below 2^40 are resolved.
pub const MAX_BITS: u32 = 40;
/// Number of buckets.
pub const BUCKETS: usize = ((MAX_BITS - SUB_BITS + 1) as usize) << SUB_BITS;

/// The bucket of `value`.
pub fn index(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    if value >= 1 << MAX_BITS {
        return BUCKETS - 1;
    }
    let msb = 63 - value.leading_zeros();
    let shift = msb - SUB_BITS;
    (((shift + 1) as usize) << SUB_BITS) + ((value >> shift) as usize & ((1 << SUB_BITS) - 1))
}

/// `[lower, upper)` of a bucket.
pub fn bounds(index: usize) -> (u64, u64) {
    let sub = 1usize << SUB_BITS;
    if index < sub {
        return (index as u64, index as u64 + 1);
    }
    let shift = (index >> SUB_BITS) - 1;
    let lower = ((sub + (index & (sub - 1))) as u64) << shift;
    (lower, lower + (1 << shift))
}

/// Counts per bucket with exact sum, minimum and maximum. The unit is the caller's; times are
/// nanoseconds everywhere.
///
/// In JSON it is one of times: `buckets` are `[lower, upper, count]`, quantiles are null where too few values lie above
/// them. `#[serde(with = "counts")]` is for one of anything else.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(into = "times::Form", try_from = "times::StoredForm")]
#[schemars(try_from = "times::Form")]
pub struct Histogram {
    counts: Counts,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// Counts by bucket.
#[derive(Debug, Clone)]
enum Counts {
    /// Non-empty buckets, ascending, at most [`MOST_FEW`]: a summary may have 10,000 histograms with few values.
    Few(Vec<(u16, u64)>),
    All(Vec<u64>),
}

/// A fifth of the memory of all buckets.
const MOST_FEW: usize = BUCKETS / 10;

impl Counts {
    fn new(all: Vec<u64>) -> Self {
        if all.iter().filter(|n| **n > 0).count() > MOST_FEW {
            return Self::All(all);
        }
        Self::Few((0..).zip(all).filter(|(_, n)| *n > 0).collect())
    }

    /// From non-empty buckets, ascending.
    fn of_filled(filled: Vec<(u16, u64)>) -> Self {
        if filled.len() <= MOST_FEW {
            return Self::Few(filled);
        }
        let mut all = vec![0; BUCKETS];
        filled.into_iter().for_each(|(bucket, n)| all[usize::from(bucket)] = n);
        Self::All(all)
    }

    /// The non-empty buckets, ascending.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (few, all): (&[(u16, u64)], &[u64]) = match self {
            Self::Few(few) => (few, &[]),
            Self::All(all) => (&[], all),
        };
        let few = few.iter().map(|(bucket, n)| (usize::from(*bucket), *n));
        few.chain(all.iter().copied().enumerate().filter(|(_, n)| *n > 0))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Counts::Few(Vec::new()), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |hist: &Self| (hist.count, hist.sum, hist.min, hist.max);
        numbers(self) == numbers(other) && self.counts.filled().eq(other.counts.filled())
    }
}

impl Eq for Histogram {}

const UNLIKE: &str = "count, extremes and buckets of a histogram do not belong together";

/// Total count; saturates for damaged data.
fn total(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |all, n| all.saturating_add(*n))
}

/// The last bucket has no upper bound.
fn highest(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 { u64::MAX } else { bounds(bucket).1 - 1 }
}

impl Histogram {
    /// From the kernel's or a file's fields. `counts` may be shorter than [`BUCKETS`].
    ///
    /// A histogram that is read during updates may have counted a value that its extremes do not include yet; without
    /// compare-and-swap (before Linux 5.12) they may never include it. Then the bound of the outermost bucket is used.
    pub fn from_parts(counts: &[u64], sum: u64, min: u64, max: u64) -> Self {
        let known = &counts[..counts.len().min(BUCKETS)];
        // Without a branch per bucket: most histograms of a reading are empty.
        if known.iter().fold(0, |all, n| all | n) == 0 {
            return Self::default();
        }
        let filled = (0..).zip(known).filter(|(_, n)| **n > 0).map(|(bucket, n)| (bucket, *n));
        Self::from_filled(filled.collect(), sum, min, max)
    }

    /// Of values that all lie in one bucket; empty where there is no such bucket.
    pub fn of_bucket(bucket: u32, count: u64, sum: u64, min: u64, max: u64) -> Self {
        let bucket = u16::try_from(bucket).ok().filter(|bucket| usize::from(*bucket) < BUCKETS && count > 0);
        bucket.map_or_else(Self::default, |bucket| Self::from_filled(vec![(bucket, count)], sum, min, max))
    }

    /// `filled` are the non-empty buckets, ascending, and at least one.
    fn from_filled(filled: Vec<(u16, u64)>, sum: u64, min: u64, max: u64) -> Self {
        let (Some(&(first, _)), Some(&(last, _))) = (filled.first(), filled.last()) else {
            return Self::default();
        };
        let count = filled.iter().fold(0, |all: u64, (_, n)| all.saturating_add(*n));
        // An extreme on the wrong side of its bucket is kept: `analyze::invariants` reports it.
        let max = max.max(bounds(last.into()).0);
        let min = min.min(highest(first.into())).min(max);
        Self { counts: Counts::of_filled(filled), count, sum, min, max }
    }

    /// From JSON fields, rejecting combinations that are inconsistent.
    fn read_back(
        count: u64,
        sum: u64,
        extremes: Option<(u64, u64)>,
        filled: Vec<(u16, u64)>,
    ) -> Result<Self, &'static str> {
        // Saturates like merging, so that merged histograms can be read back.
        let all = filled.iter().fold(0u64, |all, (_, n)| all.saturating_add(*n));
        let (Some((first, _)), Some((last, _))) = (filled.first(), filled.last()) else {
            return if count == 0 { Ok(Self::default()) } else { Err(UNLIKE) };
        };
        let Some((min, max)) = extremes else { return Err(UNLIKE) };
        let bucket = |value| index(value) as u16;
        if all != count || bucket(min) != *first || bucket(max) != *last || min > max {
            return Err(UNLIKE);
        }
        Ok(Self { counts: Counts::of_filled(filled), count, sum, min, max })
    }

    /// Expands to all buckets.
    #[inline]
    fn room(&mut self) -> &mut [u64] {
        if let Counts::Few(few) = &self.counts {
            let mut all = vec![0; BUCKETS];
            few.iter().for_each(|(bucket, n)| all[usize::from(*bucket)] = *n);
            self.counts = Counts::All(all);
        }
        match &mut self.counts {
            Counts::All(all) => all,
            Counts::Few(_) => &mut [],
        }
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.room()[index(value)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds a value `times` times.
    pub fn record_many(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = &mut self.room()[index(value)];
        *bucket = bucket.saturating_add(times);
        self.count = self.count.saturating_add(times);
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Keeps the compact form if both have it.
    fn combine(&mut self, other: &Self, both: fn(u64, u64) -> u64) {
        let is_few = matches!((&self.counts, &other.counts), (Counts::Few(_), Counts::Few(_)));
        let room = self.room();
        other.counts.filled().for_each(|(bucket, n)| room[bucket] = both(room[bucket], n));
        if is_few && let Counts::All(all) = &mut self.counts {
            self.counts = Counts::new(std::mem::take(all));
        }
    }

    /// Adds `other`: exact, in any order.
    pub fn merge(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.combine(other, u64::saturating_add);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Raises the counts to those of `earlier`, an older state of this histogram that was read with more values.
    pub fn hold(&mut self, earlier: &Self) {
        if earlier.is_empty() {
            return;
        }
        self.combine(earlier, u64::max);
        self.count = self.counts.filled().fold(0, |all, (_, n)| n.saturating_add(all));
        self.sum = self.sum.max(earlier.sum);
        self.min = self.min.min(earlier.min);
        self.max = self.max.max(earlier.max);
    }

    /// The values since `earlier`, an older state of this histogram.
    ///
    /// Count and sum are exact. The extremes are exact if they moved since then, or for a single value; otherwise they
    /// are the bounds of the outermost bucket that grew (off by at most a bucket's width, 6.25 %), as far as the sum
    /// permits.
    pub fn since(&self, earlier: &Self) -> Self {
        // The common case: no new values.
        if self.count == earlier.count {
            return Self::default();
        }
        let mut counts = vec![0u64; BUCKETS];
        self.counts.filled().for_each(|(bucket, n)| counts[bucket] = n);
        earlier.counts.filled().for_each(|(bucket, n)| counts[bucket] = counts[bucket].saturating_sub(n));
        let first = counts.iter().position(|&n| n > 0);
        let last = counts.iter().rposition(|&n| n > 0);
        let (Some(first), Some(last)) = (first, last) else {
            return Self::default();
        };
        let min = if self.min < earlier.min { self.min } else { bounds(first).0.max(self.min) };
        let max = if self.max > earlier.max { self.max } else { (bounds(last).1 - 1).min(self.max) };
        let (count, sum) = (total(&counts), self.sum.saturating_sub(earlier.sum));
        // All other values are at least the minimum and at most the maximum. If a state was read during an update, its
        // sum may not match its counts: then the buckets are right.
        let most = sum.saturating_sub(min.saturating_mul(count - 1));
        let max = if most >= min { max.min(most) } else { max };
        let least = sum.saturating_sub(max.saturating_mul(count - 1));
        let min = if least <= max { min.max(least) } else { min };
        let min = min.clamp(bounds(first).0, highest(first));
        let max = max.clamp(bounds(last).0, highest(last)).max(min);
        Self { count, counts: Counts::new(counts), sum, min, max }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// None when empty.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// None when empty.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// None when empty.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Sample standard deviation (over n − 1), 0 for a single value, None when empty. It uses bucket midpoints: off by
    /// at most 1/32 of the values' root mean square, and 0 for values of one bucket.
    pub fn deviation(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let mean =
            self.midpoints().map(|(value, n)| value as f64 * n as f64).sum::<f64>() / self.count as f64;
        let squares: f64 = self.midpoints().map(|(value, n)| (value as f64 - mean).powi(2) * n as f64).sum();
        Some((squares / (self.count.max(2) - 1) as f64).sqrt())
    }

    /// The value at quantile `q` (0 to 1): midpoint of the nearest-rank bucket, clamped to the exact extremes. None
    /// where less than one value is above it, `count × (1 − q) < 1`.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        // 1e-9: 1000 × (1 − 0.999) is 0.9999999999999… in binary floating point.
        if self.count == 0 || self.count as f64 * (1.0 - q) < 1.0 - 1e-9 {
            return None;
        }
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, n) in self.counts.filled() {
            seen = n.saturating_add(seen);
            if seen >= rank {
                let (lower, upper) = bounds(bucket);
                return Some((lower + (upper - lower) / 2).clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// Same as [`Self::quantile`], interpolated within the bucket: for comparisons, where values on either side of a
    /// bound would otherwise differ by a bucket's width, up to 6 %.
    pub fn interpolated(&self, q: f64) -> Option<f64> {
        self.quantile(q)?;
        let rank = (self.count as f64 * q).ceil();
        let mut seen = 0.0;
        self.buckets().find_map(|(lower, upper, n)| {
            let before = seen;
            seen += n as f64;
            let inside = (rank - before - 0.5) / n as f64;
            (seen >= rank).then(|| lower as f64 + (upper - lower) as f64 * inside)
        })
    }

    /// `(lower, upper, count)` of every non-empty bucket, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.filled().map(|(bucket, n)| {
            let (lower, upper) = bounds(bucket);
            (lower, upper, n)
        })
    }

    /// `(midpoint, count)` of every non-empty bucket, ascending; clamped to the exact extremes, as quantiles are.
    pub fn midpoints(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets().map(|(lower, upper, n)| ((lower + (upper - lower) / 2).clamp(self.min, self.max), n))
    }
}

impl FromIterator<u64> for Histogram {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut hist = Self::default();
        values.into_iter().for_each(|value| hist.record(value));
        hist
    }
}

/// The buckets in JSON: non-empty ones, ascending.
struct BucketList(Vec<(u16, u64)>);

impl<'de> Deserialize<'de> for BucketList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Buckets;
        impl<'de> Visitor<'de> for Buckets {
            type Value = BucketList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the buckets of a histogram")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut buckets: A) -> Result<BucketList, A::Error> {
                let mut filled: Vec<(u16, u64)> = Vec::with_capacity(16);
                while let Some((lower, upper, n)) = buckets.next_element::<(u64, u64, u64)>()? {
                    let at = index(lower);
                    if bounds(at) != (lower, upper) || n == 0 {
                        let what = format!("[{lower}, {upper}, {n}] is not a bucket of a histogram");
                        return Err(A::Error::custom(what));
                    }
                    filled.push((at as u16, n));
                }
                // A summary may have 10,000 of them.
                if filled.len() < 8 {
                    filled.shrink_to_fit();
                }
                filled.sort_unstable_by_key(|(at, _)| *at);
                if filled.windows(2).any(|two| two[0].0 == two[1].0) {
                    return Err(A::Error::custom("a bucket of a histogram is there twice"));
                }
                Ok(BucketList(filled))
            }
        }
        deserializer.deserialize_seq(Buckets)
    }
}

/// The JSON form of a histogram, with keys for its unit. Quantiles are not read back, because they follow from the
/// buckets.
macro_rules! form {
    ($sum:literal $min:literal $max:literal $p50:literal $p90:literal $p99:literal $p999:literal
     $p9999:literal) => {
        /// A histogram as it stands in JSON.
        #[derive(Serialize, JsonSchema)]
        pub struct Form {
            count: u64,
            #[serde(rename = $sum)]
            sum: u64,
            #[serde(rename = $min)]
            min: Option<u64>,
            #[serde(rename = $max)]
            max: Option<u64>,
            #[serde(rename = $p50)]
            p50: Option<u64>,
            #[serde(rename = $p90)]
            p90: Option<u64>,
            #[serde(rename = $p99)]
            p99: Option<u64>,
            #[serde(rename = $p999)]
            p999: Option<u64>,
            #[serde(rename = $p9999)]
            p9999: Option<u64>,
            buckets: Vec<(u64, u64, u64)>,
        }

        impl From<Histogram> for Form {
            fn from(hist: Histogram) -> Self {
                Self {
                    count: hist.count(),
                    sum: hist.sum(),
                    min: hist.min(),
                    max: hist.max(),
                    p50: hist.quantile(0.5),
                    p90: hist.quantile(0.9),
                    p99: hist.quantile(0.99),
                    p999: hist.quantile(0.999),
                    p9999: hist.quantile(0.9999),
                    buckets: hist.buckets().collect(),
                }
            }
        }

        /// The fields that are read back.
        #[derive(Deserialize)]
        pub struct StoredForm {
            count: u64,
            #[serde(rename = $sum)]
            sum: u64,
            #[serde(rename = $min)]
            min: Option<u64>,
            #[serde(rename = $max)]
            max: Option<u64>,
            buckets: BucketList,
        }

        impl TryFrom<StoredForm> for Histogram {
            type Error = &'static str;

            fn try_from(stored: StoredForm) -> Result<Self, &'static str> {
                Self::read_back(stored.count, stored.sum, stored.min.zip(stored.max), stored.buckets.0)
            }
        }
    };
}

/// For nanoseconds.
pub mod times {
    use super::{BucketList, Deserialize, Histogram, JsonSchema, Serialize};

    form!("sum_ns" "min_ns" "max_ns" "p50_ns" "p90_ns" "p99_ns" "p999_ns" "p9999_ns");
}

/// For other values.
pub mod counts {
    use serde::Serializer;

    use super::{BucketList, Deserialize, Deserializer, Histogram, JsonSchema, Serialize};

    form!("sum" "min" "max" "p50" "p90" "p99" "p999" "p9999");

    pub fn serialize<S: Serializer>(hist: &Histogram, serializer: S) -> Result<S::Ok, S::Error> {
        Form::from(hist.clone()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        StoredForm::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }

    /// For a histogram that may not have been measured.
    pub mod optional {
        use super::{Deserialize, Deserializer, Form, Histogram, Serialize, Serializer, StoredForm};

        pub fn serialize<S: Serializer>(hist: &Option<Histogram>, serializer: S) -> Result<S::Ok, S::Error> {
            hist.clone().map(Form::from).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Histogram>, D::Error> {
            let stored = Option::<StoredForm>::deserialize(deserializer)?;
            stored.map(|stored| stored.try_into().map_err(serde::de::Error::custom)).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpolated_quantile_moves_within_its_bucket() {
        for begin in [130_000, 131_500, 139_000, 139_500] {
            let median = (begin..begin + 10_000).collect::<Histogram>().interpolated(0.5).unwrap();
            assert!((median / (begin as f64 + 5_000.0) - 1.0).abs() < 0.005, "{begin}: {median}");
        }
        assert_eq!([7; 4].into_iter().collect::<Histogram>().interpolated(0.5), Some(7.375), "within [7, 8)");
        assert_eq!(Histogram::default().interpolated(0.5), None);
    }

    #[test]
    fn what_came_since_has_extremes_that_its_sum_allows() {
        let both = |values: &[u64]| values.iter().copied().collect::<Histogram>();
        let earlier = both(&[100, 9_000]);
        let one = both(&[100, 9_000, 1_783]).since(&earlier);
        assert_eq!((one.min(), one.max(), one.sum()), (Some(1_783), Some(1_783), 1_783));
        let two = both(&[100, 9_000, 1_783, 1_790]).since(&earlier);
        let (min, max) = (two.min().unwrap(), two.max().unwrap());
        assert!(min <= 1_783 && max >= 1_790 && max <= two.sum() - min, "{min} {max}");
        // A sum that does not fit the counts has no effect.
        let mut torn = both(&[100, 9_000, 1_783]);
        torn.sum = earlier.sum;
        let torn = torn.since(&earlier);
        assert!(torn.min().unwrap() <= 1_783 && torn.max().unwrap() >= 1_783, "{torn:?}");
    }
    use proptest::prelude::*;

    #[test]
    fn buckets_touch_and_contain_their_values() {
        for i in 0..BUCKETS - 1 {
            assert_eq!(bounds(i).1, bounds(i + 1).0);
        }
        for i in 0..BUCKETS {
            let (lower, upper) = bounds(i);
            assert_eq!(index(lower), i);
            assert_eq!(index(upper - 1), i);
        }
        assert_eq!(bounds(BUCKETS - 1).1, 1 << MAX_BITS);
        assert_eq!(index(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn extremes_lie_in_the_outermost_buckets_that_count() {
        let mut counts = vec![0; BUCKETS];
        counts[index(100)] = 1;
        counts[index(1000)] = 1;
        let exact = Histogram::from_parts(&counts, 1100, 100, 1000);
        assert_eq!((exact.min(), exact.max()), (Some(100), Some(1000)));
        // The kernel counted both values but had updated the extremes for one or neither.
        let late = Histogram::from_parts(&counts, 1100, u64::MAX, 0);
        assert_eq!((late.min(), late.max()), (Some(bounds(index(100)).1 - 1), Some(bounds(index(1000)).0)));
        let mut counts = vec![0; BUCKETS];
        counts[BUCKETS - 1] = 1;
        let long = Histogram::from_parts(&counts, 1 << 50, 1 << 50, 1 << 50);
        assert_eq!((long.min(), long.max()), (Some(1 << 50), Some(1 << 50)));
    }

    #[test]
    fn a_quantile_needs_one_value_above_it() {
        let mut h = Histogram::from_iter([100; 999]);
        assert_eq!(h.quantile(0.999), None);
        h.record(100);
        assert_eq!(h.quantile(0.999), Some(100));
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn many_at_once_are_as_many_one_by_one() {
        let mut many = Histogram::from_iter([7]);
        many.record_many(1000, 3);
        many.record_many(5, 0);
        assert_eq!(many, Histogram::from_iter([7, 1000, 1000, 1000]));
    }

    #[test]
    fn counts_that_do_not_fit_are_at_the_most_and_are_read_back() {
        let (mut all, mut more) = (Histogram::default(), Histogram::default());
        all.record_many(5, u64::MAX);
        more.record_many(1_000, u64::MAX - 1);
        all.merge(&more);
        all.record_many(5, 3);
        assert_eq!((all.count(), all.quantile(0.5)), (u64::MAX, Some(5)));
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), all);
        // Any other count still does not match its buckets.
        assert!(
            serde_json::from_str::<Histogram>(
                &text.replace(&format!("\"count\":{}", u64::MAX), "\"count\":7")
            )
            .is_err()
        );
    }

    #[test]
    fn a_deviation_is_that_of_a_sample() {
        assert_eq!(Histogram::default().deviation(), None);
        assert_eq!(Histogram::from_iter([60_001]).deviation(), Some(0.0));
        assert_eq!(Histogram::from_iter([60_001; 9]).deviation(), Some(0.0));
        let spread = Histogram::from_iter([2, 4, 4, 4, 5, 5, 7, 9]).deviation().unwrap();
        assert!((spread - (32.0f64 / 7.0).sqrt()).abs() < 1e-12, "{spread}");
    }

    #[test]
    fn an_interval_keeps_exact_sums_and_moved_extremes() {
        let then = Histogram::from_iter([1_000]);
        let mut now = then.clone();
        now.record(5_000);
        let delta = now.since(&then);
        assert_eq!((delta.count(), delta.sum(), delta.max()), (1, 5_000, Some(5_000)));
        assert!(delta.min().unwrap() <= 5_000 && delta.min().unwrap() > 4_700);
    }

    proptest! {
        #[test]
        fn quantiles_stay_within_the_error_bound(mut values in proptest::collection::vec(0u64..1 << 39, 2..400)) {
            let h: Histogram = values.iter().copied().collect();
            let mut oracle = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 40, 4).unwrap();
            values.iter().for_each(|&v| oracle.record(v).unwrap());
            values.sort_unstable();
            let rank = ((values.len() as f64 * 0.5).ceil() as usize).max(1) - 1;
            let got = h.quantile(0.5).unwrap() as f64;
            let truth = values[rank] as f64;
            prop_assert!((got - truth).abs() <= truth / 32.0 + 1.0, "{got} for {truth}");
            let theirs = oracle.value_at_quantile(0.5) as f64;
            prop_assert!((got - theirs).abs() <= theirs / 31.0 + 1.0, "{got} beside {theirs}");
            let (n, mean) = (values.len() as f64, h.mean().unwrap());
            let squares = |about: f64| values.iter().map(|&v| (v as f64 - about).powi(2)).sum::<f64>();
            let (deviation, size) = ((squares(mean) / (n - 1.0)).sqrt(), (squares(0.0) / (n - 1.0)).sqrt());
            prop_assert!((h.deviation().unwrap() - deviation).abs() <= size / 32.0 + 1.0);
            prop_assert_eq!(h.sum(), values.iter().sum::<u64>());
            prop_assert_eq!(h.min(), values.first().copied());
            prop_assert_eq!(h.max(), values.last().copied());
        }

        /// Extremes behind or ahead of the counts, as a reading during updates may find.
        #[test]
        fn any_reading_has_quantiles(
            values in proptest::collection::vec(0u64..100, 1..9),
            more in proptest::collection::vec(0u64..100, 0..9),
            (sum, min, max) in (0u64..900, prop_oneof![0u64..100, Just(u64::MAX)], 0u64..100),
        ) {
            let of = |values: &[u64]| values.iter().copied().collect::<Histogram>().room().to_vec();
            let then = Histogram::from_parts(&of(&values), sum, min, max);
            let now = Histogram::from_parts(&of(&[&values[..], &more].concat()), sum, min, max);
            for hist in [then.clone(), now.since(&then)] {
                if let Some(median) = hist.quantile(0.5) {
                    prop_assert!(hist.min() <= Some(median) && Some(median) <= hist.max(), "{:?}", hist);
                }
            }
            let text = serde_json::to_string(&now.since(&then)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), now.since(&then));
        }

        #[test]
        fn json_is_read_back_whole(values in proptest::collection::vec(any::<u64>().prop_map(|v| v >> 20), 0..50)) {
            let hist: Histogram = values.into_iter().collect();
            let text = serde_json::to_string(&hist).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Histogram>(&text).unwrap(), &hist);
            let counts = serde_json::to_string(&counts::Form::from(hist.clone())).unwrap();
            let read: counts::StoredForm = serde_json::from_str(&counts).unwrap();
            prop_assert_eq!(Histogram::try_from(read).unwrap(), hist);
        }

        #[test]
        fn merging_equals_recording_together(a in proptest::collection::vec(any::<u64>().prop_map(|v| v >> 20), 0..50),
                                              b in proptest::collection::vec(any::<u64>().prop_map(|v| v >> 20), 0..50)) {
            let fill = |values: &[u64]| values.iter().copied().collect::<Histogram>();
            let mut merged = fill(&a);
            merged.merge(&fill(&b));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, fill(&all));
        }
    }
}
