//! Which slots carry nothing.

/// The slots that carry nothing: the last one to come back is the first one to leave, as its memory is still near.
pub struct Free {
    /// As many as there are slots; the first `count` of them are free ones.
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

    /// The one that [`Self::take`] takes.
    pub fn next(&self) -> Option<u32> {
        self.slots[..self.count].last().copied()
    }

    pub fn take(&mut self) {
        self.count -= 1;
    }
}
