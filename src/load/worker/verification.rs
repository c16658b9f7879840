//! What a thread finds in what it wrote.

use super::super::JobResult;
use super::super::content::Mismatch;
use super::source::Completions;

#[derive(Debug, Default)]
pub struct Verification {
    /// The slots that were read back and not looked at yet.
    pub unchecked: Vec<u32>,
    /// Blocks that were read back whole and as they were written.
    pub right: u64,
    /// The first one that was not.
    pub mismatch: Option<Mismatch>,
    /// Writes that failed and so were not read back, and whether others were not; None: nothing was read back.
    left: Option<(u64, bool)>,
}

impl Verification {
    /// Nothing more is read back.
    pub fn ended(&mut self, look: &Completions) {
        self.left = Some((look.skipped, look.cut));
    }

    pub fn finish(self, result: &mut JobResult) {
        result.verified = self.left.map(|_| self.right);
        (result.skipped, result.cut) = self.left.unwrap_or_default();
        result.mismatch = self.mismatch.map(|mismatch| mismatch.to_string());
    }
}
