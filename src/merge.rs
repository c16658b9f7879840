//! Merges measurements of the same kind: the intervals of a run, or the runs of several machines.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;

use crate::hist::Histogram;

/// Data that can be merged.
pub trait Merge {
    /// Adds a later measurement, or one of another machine at the same time.
    fn merge_with(&mut self, later: &Self);
}

/// A row of a list; rows with equal keys are merged.
pub trait Row: Merge + Clone {
    type Key: Eq + Hash;

    fn key(&self) -> Self::Key;
}

/// The result of a view.
pub trait Summary: Merge {
    /// Computes derived fields and sorts rows, after everything was merged.
    fn settle(&mut self);

    /// Prefixes names that other machines also use with the host's name, so that those of several machines stay
    /// separate.
    fn name_host(&mut self, host: &str);

    /// The length of the interval if [`Self::name_host`] makes everything distinct. None: there are figures of a whole
    /// machine, which cannot be merged over several.
    fn window(&mut self) -> Option<&mut u64>;

    /// The part of the interval that some figures cover; over several machines the smallest counts.
    fn part_of_window(&mut self) -> Option<&mut u64> {
        None
    }
}

/// Sums that saturate instead of overflowing, because figures from files may have any value.
pub trait SaturatingSum: Iterator<Item: Borrow<u64>> + Sized {
    fn saturating_sum(self) -> u64 {
        self.fold(0, |all: u64, n| all.saturating_add(*n.borrow()))
    }
}

impl<I: Iterator<Item: Borrow<u64>>> SaturatingSum for I {}

/// Same, None if any figure is unknown.
pub fn sum_if_known(mut figures: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    figures.try_fold(0u64, |all, n| Some(all.saturating_add(n?)))
}

/// The weighted mean of two figures; None if either is unknown.
pub fn weighted(a: Option<f64>, of_a: u64, b: Option<f64>, of_b: u64) -> Option<f64> {
    let (of_a, of_b) = (of_a as f64, of_b as f64);
    let (a, b, all) = (a?, b?, (of_a + of_b).max(1.0));
    let mean = (a * of_a + b * of_b) / all;
    // The mean lies between the two, and JSON has no infinity.
    Some(if mean.is_finite() { mean } else { a * (of_a / all) + b * (of_b / all) })
}

/// Same, but if one is unknown, the other.
pub fn weighted_known(a: Option<f64>, of_a: u64, b: Option<f64>, of_b: u64) -> Option<f64> {
    weighted(a, of_a, b, of_b).or(a).or(b)
}

/// Prefixes a name with that of the host: `web1:nvme0n1`.
pub fn on_host(host: &str, name: &mut String) {
    *name = format!("{host}:{name}");
}

/// Declares for each field of a struct how it is merged, by the functions of [`how`]. A forgotten field does not
/// compile.
macro_rules! merge {
    ($type:ty { $($fields:tt)* }) => {
        impl $crate::merge::Merge for $type {
            fn merge_with(&mut self, later: &Self) {
                self.merge_fields(later);
            }
        }

        $crate::merge::merge_fields!($type { $($fields)* });
    };
}

/// Same, for a type whose [`Merge`] does more.
macro_rules! merge_fields {
    ($type:ty { $($how:ident: $($field:ident)*;)* }) => {
        impl $type {
            fn merge_fields(&mut self, later: &Self) {
                let Self { $($($field,)*)* } = self;
                $($($crate::merge::how::$how($field, &later.$field);)*)*
            }
        }
    };
}

/// Declares a row with a key, an expression of its fields.
macro_rules! row {
    ($type:ty, $key:ty, $of:expr) => {
        impl $crate::merge::Row for $type {
            type Key = $key;

            fn key(&self) -> $key {
                let of: fn(&Self) -> $key = $of;
                of(self)
            }
        }
    };
}

pub(crate) use {merge, merge_fields, row};

impl Merge for u64 {
    fn merge_with(&mut self, later: &Self) {
        *self = self.saturating_add(*later);
    }
}

impl Merge for i64 {
    fn merge_with(&mut self, later: &Self) {
        *self = self.saturating_add(*later);
    }
}

impl Merge for Histogram {
    fn merge_with(&mut self, later: &Self) {
        self.merge(later);
    }
}

/// Merges pairs by component.
impl<A: Merge, B: Merge> Merge for (A, B) {
    fn merge_with(&mut self, later: &Self) {
        self.0.merge_with(&later.0);
        self.1.merge_with(&later.1);
    }
}

/// A missing value is replaced by the other: nothing of it occurred there. See [`how::both`] for values that were not
/// measured.
impl<T: Merge + Clone> Merge for Option<T> {
    fn merge_with(&mut self, later: &Self) {
        match (self.as_mut(), later) {
            (Some(mine), Some(later)) => mine.merge_with(later),
            (None, Some(later)) => *self = Some(later.clone()),
            (_, None) => {}
        }
    }
}

impl<K: Ord + Clone, V: Merge + Clone> Merge for BTreeMap<K, V> {
    fn merge_with(&mut self, later: &Self) {
        for (key, value) in later {
            match self.get_mut(key) {
                Some(mine) => mine.merge_with(value),
                None => {
                    self.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

impl<T: Merge, const N: usize> Merge for [T; N] {
    fn merge_with(&mut self, later: &Self) {
        self.iter_mut().zip(later).for_each(|(mine, later)| mine.merge_with(later));
    }
}

/// How a field is merged.
pub mod how {
    use std::collections::{BTreeMap, HashMap, HashSet};
    use std::hash::Hash;

    use super::{Merge, Row};

    /// Adds: counts, sums, histograms, and maps of them.
    pub fn add<T: Merge>(mine: &mut T, later: &T) {
        mine.merge_with(later);
    }

    /// Merges lists: rows with equal keys are added, in order of first occurrence.
    pub fn rows<T: Row>(mine: &mut Vec<T>, later: &[T]) {
        rows_by(mine, later, T::key);
    }

    /// Same, with a different key.
    pub fn rows_by<T: Merge + Clone, K: Eq + Hash>(mine: &mut Vec<T>, later: &[T], key: impl Fn(&T) -> K) {
        let keys: Vec<K> = mine.iter().map(&key).collect();
        // Most lists have the same rows in the same order.
        let same = keys.iter().zip(later).take_while(|(known, row)| **known == key(row)).count();
        mine.iter_mut().zip(&later[..same]).for_each(|(mine, row)| mine.merge_with(row));
        if same == later.len() {
            return;
        }
        // A list may have 30,000 rows: a search for each would take seconds. Of equal rows the first counts.
        let mut places: HashMap<K, usize> = HashMap::with_capacity(keys.len());
        for (at, known) in keys.into_iter().enumerate() {
            places.entry(known).or_insert(at);
        }
        for row in &later[same..] {
            let at = *places.entry(key(row)).or_insert(mine.len());
            match mine.get_mut(at) {
                Some(known) => known.merge_with(row),
                None => mine.push(row.clone()),
            }
        }
    }

    /// Adds if both were measured, otherwise None: a partial count is not a count.
    pub fn both<T: Merge>(mine: &mut Option<T>, later: &Option<T>) {
        match (mine.as_mut(), later) {
            (Some(known), Some(later)) => known.merge_with(later),
            _ => *mine = None,
        }
    }

    /// Same, for each value of a map.
    pub fn both_each<K: Ord, T: Merge>(mine: &mut BTreeMap<K, Option<T>>, later: &BTreeMap<K, Option<T>>) {
        for (key, known) in mine {
            both(known, later.get(key).unwrap_or(&None));
        }
    }

    /// Same, for a list.
    pub fn both_rows<T: Row>(mine: &mut Option<Vec<T>>, later: &Option<Vec<T>>) {
        match (mine.as_mut(), later) {
            (Some(known), Some(later)) => rows(known, later),
            _ => *mine = None,
        }
    }

    /// Keeps the first: constants, and values at the start.
    pub fn first<T>(_: &mut T, _: &T) {}

    /// Union of lists, in order of first occurrence.
    pub fn each<T: Clone + Eq + Hash>(mine: &mut Vec<T>, later: &[T]) {
        // Most lists are equal.
        let same = mine.iter().zip(later).take_while(|(mine, later)| mine == later).count();
        if same == later.len() {
            return;
        }
        let mut known: HashSet<&T> = mine.iter().collect();
        let new: Vec<T> = later[same..].iter().filter(|one| known.insert(one)).cloned().collect();
        mine.extend(new);
    }

    /// Keeps the last: values at the end.
    pub fn last<T: Clone>(mine: &mut T, later: &T) {
        mine.clone_from(later);
    }

    /// Keeps the maximum.
    pub fn most<T: PartialOrd + Copy>(mine: &mut T, later: &T) {
        if *later > *mine {
            *mine = *later;
        }
    }

    /// Keeps the minimum of the known values.
    pub fn least<T: PartialOrd + Copy>(mine: &mut Option<T>, later: &Option<T>) {
        if mine.is_none_or(|known| later.is_some_and(|later| later < known)) {
            *mine = later.or(*mine);
        }
    }

    /// True if it was true at any time.
    pub fn any(mine: &mut bool, later: &bool) {
        *mine |= *later;
    }

    /// Resets a derived value, which is recomputed.
    pub fn derived<T: Default>(mine: &mut T, _: &T) {
        *mine = T::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Disk {
        name: &'static str,
        ios: u64,
        depth: u64,
        counted: Option<u64>,
        seen: Option<u64>,
    }

    merge!(Disk { first: name; add: ios seen; most: depth; both: counted; });
    row!(Disk, &'static str, |disk| disk.name);

    fn disk(name: &'static str, ios: u64, counted: Option<u64>, seen: Option<u64>) -> Disk {
        Disk { name, ios, depth: ios, counted, seen }
    }

    #[test]
    fn each_field_is_merged_in_its_way_and_rows_by_their_key() {
        let mut disks = vec![disk("a", 1, Some(1), None)];
        how::rows(&mut disks, &[disk("b", 5, None, None), disk("a", 2, None, Some(3))]);
        let a = Disk { depth: 2, ..disk("a", 3, None, Some(3)) };
        assert_eq!(disks, [a, disk("b", 5, None, None)]);
    }

    #[test]
    fn a_mean_of_numbers_is_a_number() {
        assert_eq!(weighted(Some(1.0), 1, Some(4.0), 2), Some(3.0));
        assert_eq!(
            weighted(Some(f64::MAX), u64::MAX, Some(f64::MAX), 1 << 53).map(f64::is_finite),
            Some(true)
        );
        assert_eq!(weighted(Some(f64::MAX), 2, Some(-f64::MAX), 2), Some(0.0));
    }

    #[derive(Debug, Clone, PartialEq)]
    struct Numbered {
        number: u64,
        ios: u64,
    }

    merge!(Numbered { first: number; add: ios; });
    row!(Numbered, u64, |one| one.number);

    /// A linear search for each row would take minutes with this many.
    #[test]
    fn many_rows_in_any_order_are_merged_at_once() {
        let numbered = |number| Numbered { number, ios: 1 };
        let mut rows: Vec<Numbered> = (0..200_000).map(numbered).collect();
        let later: Vec<Numbered> = (0..200_002).rev().map(numbered).collect();
        how::rows(&mut rows, &later);
        assert_eq!(rows[200_000..], [numbered(200_001), numbered(200_000)]);
        assert!(rows[..200_000].iter().all(|one| one.ios == 2));
        // Of equal rows the first counts, also among added ones.
        let mut equal = vec![numbered(7), numbered(7)];
        how::rows(&mut equal, &[numbered(8), numbered(7), numbered(8)]);
        let ios: Vec<u64> = equal.iter().map(|one| one.ios).collect();
        assert_eq!(ios, [2, 1, 2]);
    }

    /// As above.
    #[test]
    fn many_things_are_there_once_and_in_their_order() {
        let text = |number: u32| format!("gap {number}");
        let mut all: Vec<String> = (0..100_000).map(text).collect();
        let later: Vec<String> = (0..100_003).rev().chain([100_002]).map(text).collect();
        how::each(&mut all, &later);
        assert_eq!(all[..100_000], (0..100_000).map(text).collect::<Vec<_>>());
        assert_eq!(all[100_000..], [100_002, 100_001, 100_000].map(text));
    }

    #[test]
    fn maps_have_the_keys_of_both() {
        let mut map = BTreeMap::from([("a", 1u64)]);
        map.merge_with(&BTreeMap::from([("a", 2), ("b", 3)]));
        assert_eq!(map, BTreeMap::from([("a", 3), ("b", 3)]));
    }
}
