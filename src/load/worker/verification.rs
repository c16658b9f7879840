//! Results of a thread's read-back.

use super::super::JobResult;
use super::super::content::Mismatch;
use super::source::ReadBackSource;

#[derive(Debug, Default)]
pub struct Verification {
    /// Slots that were read back and not checked yet.
    pub unchecked: Vec<u32>,
    /// Blocks that were read back completely and match.
    pub right: u64,
    /// The first block that did not match.
    pub mismatch: Option<Mismatch>,
    /// Failed writes that were not read back, and whether others were left out too; None: nothing was read back.
    left: Option<(u64, bool)>,
}

impl Verification {
    /// The read-back has ended.
    pub fn ended(&mut self, look: &ReadBackSource) {
        self.left = Some((look.skipped, look.cut));
    }

    pub fn finish(self, result: &mut JobResult) {
        result.verified = self.left.map(|_| self.right);
        (result.skipped, result.cut) = self.left.unwrap_or_default();
        result.mismatch = self.mismatch.map(|mismatch| mismatch.to_string());
    }
}
