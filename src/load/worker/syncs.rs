//! Chooses which file of a thread is synced next.

/// The files that were written since their last sync. As in fio, the writes of a thread are counted over all its files,
/// and a sync covers one file: here the one that has waited longest, so that every written file gets its turn.
#[derive(Debug)]
pub struct Syncs {
    /// By file, the number of its first write since its last sync; 0: none.
    since: Vec<u64>,
}

impl Syncs {
    pub fn new(files: usize) -> Self {
        Self { since: vec![0; files] }
    }

    /// Records that the thread's write number `number` (from 1) went to `file`.
    pub fn wrote(&mut self, file: u16, number: u64) {
        if let Some(since) = self.since.get_mut(usize::from(file)).filter(|since| **since == 0) {
            *since = number;
        }
    }

    /// The file to sync next.
    pub fn next(&mut self) -> u16 {
        let waits = self.since.iter_mut().enumerate().filter(|(_, since)| **since > 0);
        let Some((file, since)) = waits.min_by_key(|(_, since)| **since) else { return 0 };
        *since = 0;
        u16::try_from(file).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of the syncs, with one sync after `every` writes to two files in turn.
    fn order(every: u64) -> Vec<u16> {
        let mut syncs = Syncs::new(2);
        let mut order = Vec::new();
        for number in 1..=12 {
            syncs.wrote((number % 2) as u16, number);
            if number % every == 0 {
                order.push(syncs.next());
            }
        }
        order
    }

    #[test]
    fn each_file_has_its_turn() {
        assert_eq!(order(1), [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], "the one that was written");
        assert_eq!(order(2), [1, 0, 1, 0, 1, 0]);
        assert_eq!(order(4), [1, 0, 1]);
        assert_eq!(Syncs::new(1).next(), 0);
    }
}
