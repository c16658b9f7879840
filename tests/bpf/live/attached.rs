//! Skips a test if the machine refuses its probe.

use crate::support::skip::skipped;
use anyhow::Result;
use biopsy::refusal::Refusal;

/// Returns the probe. None: this machine cannot have it, and the test is skipped with the reason.
pub fn attached<T>(probe: Result<T>) -> Option<T> {
    match probe {
        Ok(probe) => Some(probe),
        Err(error) if error.is::<Refusal>() => {
            skipped(format_args!("{error:#}"));
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}
