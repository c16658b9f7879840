//! Keeps the free slots of a thread.

/// A stack of free slots: the last one returned is the first one taken, because its memory is still in the cache.
pub struct Free {
    /// One entry per slot; the first `count` are free.
    pub slots: Vec<u32>,
    pub count: usize,
}

impl Free {
    pub fn all(depth: u32) -> Self {
        Self { slots: (0..depth).rev().collect(), count: depth as usize }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The slot that [`Self::take`] takes next.
    pub fn next(&self) -> Option<u32> {
        self.slots[..self.count].last().copied()
    }

    pub fn take(&mut self) {
        self.count -= 1;
    }
}
