//! Reads the per-CPU caches of shared rows without a lock: caches are read until two consecutive reads agree, so that
//! no count is lost or doubled while the CPUs go on.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

/// Reading all slots takes about 50 us, and a slot is reused at most a few thousand times a second, so the second read
/// is mostly the last one.
const LOOKS: usize = 8;

/// A cache slot of one CPU.
pub trait CacheEntry: Copy {
    type Key: Ord + Copy;

    /// The row that it belongs to.
    fn key(&self) -> Self::Key;

    /// Whether the slot was not reused since `earlier`, so that its contents of then are in no row yet.
    fn follows(&self, earlier: &Self) -> bool;
}

/// Reads the slots until none was reused between reading the rows and the last read of the slots. `before` are the
/// slots as read before the rows; rows of slots that were reused since are read again.
///
/// After [`LOOKS`] attempts, counts that moved in between are in neither, and appear in the next reading.
pub fn settle<P: CacheEntry, R>(
    mut before: Vec<Option<P>>,
    rows: &mut BTreeMap<P::Key, R>,
    look: &dyn Fn() -> Result<Vec<Option<P>>>,
    row: &dyn Fn(P::Key) -> Result<Option<R>>,
) -> Result<Vec<P>> {
    let mut now = look()?;
    for _ in 0..LOOKS {
        let gone = before.iter().zip(&now).filter_map(|(before, now)| match (before, now) {
            (Some(before), Some(now)) if now.follows(before) => None,
            (before, _) => before.as_ref().map(CacheEntry::key),
        });
        let mut keys: BTreeSet<P::Key> = gone.collect();
        // Rows that were added after they were read.
        keys.extend(now.iter().flatten().map(CacheEntry::key).filter(|key| !rows.contains_key(key)));
        if keys.is_empty() {
            break;
        }
        for key in keys {
            if let Some(read) = row(key)? {
                rows.insert(key, read);
            }
        }
        before = std::mem::replace(&mut now, look()?);
    }
    Ok(now.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Key and count.
    impl CacheEntry for (u64, u64) {
        type Key = u64;

        fn key(&self) -> u64 {
            self.0
        }

        fn follows(&self, earlier: &Self) -> bool {
            self.0 == earlier.0 && self.1 >= earlier.1
        }
    }

    /// Simulates the kernel: a slot is given to another key at these reads, counted from 0.
    struct Kernel {
        rows: RefCell<BTreeMap<u64, u64>>,
        place: Cell<(u64, u64)>,
        looks: Cell<usize>,
        moves_at: Vec<usize>,
    }

    impl Kernel {
        fn look(&self) -> Result<Vec<Option<(u64, u64)>>> {
            if self.moves_at.contains(&self.looks.get()) {
                let (key, n) = self.place.get();
                *self.rows.borrow_mut().entry(key).or_default() += n;
                self.rows.borrow_mut().entry(key + 1).or_default();
                self.place.set((key + 1, 1));
            }
            self.looks.set(self.looks.get() + 1);
            Ok(vec![Some(self.place.get()), None])
        }

        fn all(&self) -> u64 {
            self.rows.borrow().values().sum::<u64>() + self.place.get().1
        }
    }

    fn read(moves_at: &[usize]) -> (u64, u64) {
        let kernel = Kernel {
            rows: RefCell::new(BTreeMap::from([(7, 100)])),
            place: Cell::new((7, 17_000)),
            looks: Cell::new(0),
            moves_at: moves_at.to_vec(),
        };
        let before = kernel.look().unwrap();
        let mut rows = kernel.rows.borrow().clone();
        let row = |key| Ok(kernel.rows.borrow().get(&key).copied());
        let kept = settle(before, &mut rows, &|| kernel.look(), &row).unwrap();
        (rows.values().sum::<u64>() + kept.iter().map(|(_, n)| n).sum::<u64>(), kernel.all())
    }

    #[test]
    fn what_changes_hands_meanwhile_is_there_once() {
        for moves_at in [&[][..], &[0], &[1], &[2], &[1, 2], &[1, 2, 3, 4], &[1, 3]] {
            let (seen, all) = read(moves_at);
            assert_eq!(seen, all, "{moves_at:?}");
        }
    }

    #[test]
    fn places_that_never_rest_do_not_hold_the_reader_up() {
        let (seen, all) = read(&(0..100).collect::<Vec<_>>());
        assert!(seen <= all && all - seen <= 1, "{seen} of {all}");
    }
}
